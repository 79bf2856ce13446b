/* mnt_run.c -- see mnt.h: mounting, the background, and the end. */
#include "mnt.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <malloc.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* The last line of libfuse, for our own message. */
static char fuse_said[300];

static void hear_fuse(enum fuse_log_level level, const char *fmt, va_list ap)
	__attribute__((format(printf, 2, 0)));
static void hear_fuse(enum fuse_log_level level, const char *fmt, va_list ap)
{
	size_t n;

	(void)level;
	vsnprintf(fuse_said, sizeof(fuse_said), fmt, ap);
	n = strlen(fuse_said);
	while (n && fuse_said[n - 1] == '\n')
		fuse_said[--n] = 0;
}

/* ---------------------------------------------------------------- the folder */

/* A server that was killed leaves its mount, at which every call fails. */
static int clear_dead(const struct mnt *mnt)
{
	const int fd = open(mnt->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd >= 0)
		close(fd);
	if (fd >= 0 || errno != ENOTCONN)	/* stat() may still be answered by the kernel */
		return 0;
	if (mnt_look(mnt->place, NULL) == MNT_OURS && !mnt_detach(mnt->place, 1)) {
		cli_say("%s: unmounted what a zckpt mount that was killed left there",
			out_name(mnt->dir));
		return 0;
	}
	cli_say_error("%s: its file system has no server any more; unmount it first: "
		      "fusermount3 -uz %s", out_name(mnt->dir), out_word(mnt->dir));
	return EXIT_TROUBLE;
}

/* Whether 'a' is 'b' or below it; both are absolute. */
static int is_below(const char *a, const char *b)
{
	const size_t n = strlen(b);

	return !strncmp(a, b, n) && (!a[n] || a[n] == '/' || !strcmp(b, "/"));
}

static int is_empty(const char *dir)
{
	DIR *d = opendir(dir);
	const struct dirent *e;
	int yes = 1;

	while (d && yes && (e = readdir(d)))
		yes = !strcmp(e->d_name, ".") || !strcmp(e->d_name, "..");
	if (d)
		closedir(d);
	return yes;
}

static int check_folder(struct mnt *mnt)
{
	const char *path = mnt->shelf->path;
	struct stat st;

	mnt->place = mnt_place(mnt->dir);
	if (!mnt->place && errno == ENOENT && !mkdir(mnt->dir, 0777)) {
		mnt->made = 1;
		mnt->place = mnt_place(mnt->dir);
	}
	if (!mnt->place) {
		cli_say_error("%s: %s", out_name(mnt->dir), strerror(errno));
		return EXIT_TROUBLE;
	}
	if (clear_dead(mnt))
		return EXIT_TROUBLE;
	if (stat(mnt->place, &st) || !S_ISDIR(st.st_mode)) {
		cli_say_error("%s: this is no folder; a mount needs an empty or a new one",
			      out_name(mnt->dir));
		return EXIT_CALL;
	}
	if (mnt_look(mnt->place, NULL) == MNT_OURS) {
		cli_say_error("%s: zckpt has mounted something there", out_name(mnt->dir));
		cli_say("try: zckpt mount --unmount %s", out_word(mnt->dir));
		return EXIT_CALL;
	}
	if (is_below(path, mnt->place) || is_below(mnt->place, path)) {
		cli_say_error("%s would hide the checkpoint that it reads, or is a folder of it; "
			      "give a folder outside of it", out_name(mnt->dir));
		return EXIT_CALL;
	}
	if (!is_empty(mnt->place)) {
		cli_say_error("%s: the folder is not empty, and a mount would hide its files; give "
			      "an empty or a new one", out_name(mnt->dir));
		return EXIT_CALL;
	}
	return 0;
}

/* ---------------------------------------------------------------- mounting */

/* The kernel reads ahead 128 KiB; only root may say more, and without it reads are slower. */
static void raise_readahead(const struct mnt *mnt)
{
	char dev[32], *path;
	FILE *f;

	if (mnt_look(mnt->place, dev) != MNT_OURS)
		return;
	path = cli_format("/sys/class/bdi/%s/read_ahead_kb", dev);
	f = fopen(path, "w");
	cli_free(path);
	if (!f)
		return;
	fputs("1024\n", f);
	fclose(f);
}

static int loop(struct mnt *mnt, struct fuse *fuse)
{
	struct fuse_loop_config config = { .clone_fd = 1, .max_idle_threads = 8 };
	struct fuse_session *se = fuse_get_session(fuse);
	int status = EXIT_DONE;

	if (fuse_daemonize(mnt->foreground) || fuse_set_signal_handlers(se)) {
		cli_say_error("the server does not start: %s", strerror(errno));
		return EXIT_TROUBLE;
	}
	mnt->shelf->log_quiet = !mnt->foreground;
	if (fuse_loop_mt(fuse, &config) < 0)
		status = EXIT_TROUBLE;
	fuse_remove_signal_handlers(se);
	return status;
}

static int mount_and_loop(struct mnt *mnt, struct fuse *fuse)
{
	int status;

	if (fuse_mount(fuse, mnt->place)) {
		cli_say_error("cannot mount at %s: %s", out_name(mnt->dir), fuse_said[0] ?
			      fuse_said : "see the line above");
		if (access("/dev/fuse", F_OK))
			cli_say("there is no /dev/fuse: load it with 'modprobe fuse'; a container "
				"needs --device /dev/fuse --cap-add SYS_ADMIN");
		return EXIT_TROUBLE;
	}
	raise_readahead(mnt);
	if (!mnt->shelf->args->quiet)
		printf("%s\n", mnt->place);
	if (!mnt->shelf->args->quiet && !mnt->foreground)
		cli_say("to end it: zckpt mount --unmount %s", out_word(mnt->dir));
	fflush(stdout);
	status = loop(mnt, fuse);
	fuse_unmount(fuse);
	return status;
}

/* A folder that was made for nothing goes again. */
static int end(struct mnt *mnt, int status)
{
	if (status && mnt->made)
		rmdir(mnt->dir);
	free(mnt->place);
	return status;
}

/* libfuse allocates each answer: memory that goes back to the kernel between them costs faults. */
static void keep_memory(void)
{
	mallopt(M_MMAP_THRESHOLD, 64 << 20);
	mallopt(M_TRIM_THRESHOLD, 256 << 20);
}

int mnt_run(struct mnt *mnt)
{
	char *argv[] = {
		(char *)(uintptr_t)"zckpt", (char *)(uintptr_t)"-o", (char *)(uintptr_t)
		"ro,default_permissions,fsname=zckpt,subtype=zckpt,max_read=1048576", NULL,
	};
	struct fuse_args args = FUSE_ARGS_INIT(3, argv);
	struct fuse *fuse;
	int status = check_folder(mnt);

	if (status)
		return end(mnt, status);
	keep_memory();
	fuse_set_log_func(hear_fuse);
	mnt->began = (int64_t)time(NULL);
	fuse = fuse_new(&args, &mnt_operations, sizeof(mnt_operations), mnt);
	if (!fuse) {
		cli_say_error("libfuse does not start: %s", fuse_said);
		fuse_opt_free_args(&args);
		return end(mnt, EXIT_TROUBLE);
	}
	status = mount_and_loop(mnt, fuse);
	fuse_destroy(fuse);
	fuse_opt_free_args(&args);
	return end(mnt, status);
}

static int fail_detach(const char *dir, int errnum)
{
	cli_say_error("%s: %s", out_name(dir), errnum == EBUSY ?
		      "a program has a file open there, or its current folder is there" :
		      strerror(errnum));
	if (errnum == EBUSY || errnum == EPERM)
		cli_say("to see which: fuser -vm %s", out_word(dir));
	return EXIT_TROUBLE;
}

int mnt_unmount(const char *dir)
{
	char *place = mnt_place(dir);
	const int is_ours = place && mnt_look(place, NULL) == MNT_OURS;
	const int errnum = is_ours && mnt_detach(place, 0) ? errno : 0;

	free(place);
	if (errnum)
		return fail_detach(dir, errnum);
	if (is_ours)
		return EXIT_DONE;
	cli_say_error("%s: zckpt has mounted nothing there; 'findmnt -t fuse.zckpt' lists its "
		      "mounts", out_name(dir));
	return EXIT_CALL;
}
