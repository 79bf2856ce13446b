/* mnt_table.c -- see mnt.h. */
#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mnt.h"

/* "a\040b" of /proc/self/mountinfo, in place. */
static void unescape(char *s)
{
	char *to = s;

	for (; *s; s++) {
		if (s[0] == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] && s[3]) {
			*to++ = (char)((s[1] - '0') * 64 + (s[2] - '0') * 8 + (s[3] - '0'));
			s += 3;
		} else {
			*to++ = *s;
		}
	}
	*to = 0;
}

/* "36 35 98:0 / /mnt/x rw,... - fuse.zckpt zckpt rw": the device, place and type of a line. */
static int parse_line(char *line, char **dev, char **place, char **type)
{
	char *dash = strstr(line, " - "), *save = NULL;

	if (!dash)
		return -1;
	*dash = 0;
	*type = strtok_r(dash + 3, " ", &save);
	save = NULL;
	strtok_r(line, " ", &save);
	strtok_r(NULL, " ", &save);
	*dev = strtok_r(NULL, " ", &save);
	strtok_r(NULL, " ", &save);
	*place = strtok_r(NULL, " ", &save);
	return *dev && *place && *type ? 0 : -1;
}

/* The last line counts: it is on top. */
enum mnt_what mnt_look(const char *place, char dev[32])
{
	FILE *f = fopen("/proc/self/mountinfo", "r");
	enum mnt_what what = MNT_NOTHING;
	char *line = NULL, *at, *type, *device;
	size_t room = 0;

	while (f && getline(&line, &room, f) > 0) {
		if (parse_line(line, &device, &at, &type))
			continue;
		unescape(at);
		if (strcmp(at, place))
			continue;
		what = strcmp(type, "fuse.zckpt") ? MNT_OTHER : MNT_OURS;
		if (dev)
			snprintf(dev, 32, "%s", device);
	}
	free(line);
	if (f)
		fclose(f);
	return what;
}

char *mnt_place(const char *dir)
{
	char *real = realpath(dir, NULL), *place = NULL, *above, *copy;

	if (real || (errno != ENOTCONN && errno != EIO))
		return real;
	/* its server died: the folder above it answers */
	copy = cli_strdup(dir);
	above = realpath(dirname(copy), NULL);
	cli_free(copy);
	if (!above)
		return NULL;
	copy = cli_strdup(dir);
	if (asprintf(&place, "%s/%s", strcmp(above, "/") ? above : "", basename(copy)) < 0)
		place = NULL;
	cli_free(copy);
	free(above);
	return place;
}

/* fusermount3 may unmount what this user mounted. */
static int run_fusermount(const char *place, int lazy)
{
	int status;
	pid_t pid = fork();

	if (!pid) {
		execlp("fusermount3", "fusermount3", lazy ? "-uz" : "-u", "--", place,
		       (char *)NULL);
		_exit(127);
	}
	if (pid < 0 || waitpid(pid, &status, 0) < 0)
		return -1;
	errno = WIFEXITED(status) && WEXITSTATUS(status) == 127 ? ENOENT : EBUSY;
	return WIFEXITED(status) && !WEXITSTATUS(status) ? 0 : -1;
}

int mnt_detach(const char *place, int lazy)
{
	if (!umount2(place, UMOUNT_NOFOLLOW | (lazy ? MNT_DETACH : 0)))
		return 0;
	return errno == EPERM ? run_fusermount(place, lazy) : -1;
}
