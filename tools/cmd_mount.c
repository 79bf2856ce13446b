/* cmd_mount.c -- `zckpt mount`: a checkpoint as a folder of the files that convert would write. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#ifdef ZCKPT_FUSE
#include "fuse/mnt.h"
#endif
#include "cli.h"

static struct {
	int foreground, unmount;
} want;

static const struct opt own[] = {
	{ "foreground", 'f', OPT_FLAG, &want.foreground, NULL,
	  "stay in the foreground, with messages; Ctrl-C unmounts", 0 },
	{ "unmount", 'u', OPT_FLAG, &want.unmount, NULL, "unmount DIR", 0 },
	{ "umount", 0, OPT_FLAG, &want.unmount, NULL, "", OPT_HIDDEN },
	{ 0 },
};

#ifdef ZCKPT_FUSE
/* The background process has another current folder. NULL: path itself must do. */
static char *absolute(const char *path)
{
	return path ? realpath(path, NULL) : NULL;
}

static int mount_path(const struct args *args)
{
	char *source = absolute(args->rest.list[0]), *aux = absolute(cli_aux);
	struct shelf shelf = { .aux = aux ? aux : cli_aux, .keeps_first = 1 };
	struct mnt mnt = {
		.shelf = &shelf, .dir = args->rest.list[1], .foreground = want.foreground,
	};
	int status = cli_select(&cmd_mount, args, &shelf.select);

	if (!status)
		status = shelf_open(&shelf, args, source ? source : args->rest.list[0]);
	if (!status)
		status = mnt_run(&mnt);
	shelf_close(&shelf);
	free(source);
	free(aux);
	return status;
}

static int unmount(const char *dir)
{
	return mnt_unmount(dir);
}
#else
static int say_not_built(void)
{
	cli_say_error("this zckpt was built without libfuse3, so it cannot mount; install "
		      "libfuse3-dev and build again: make FUSE=1");
	return EXIT_TROUBLE;
}

static int mount_path(const struct args *args)
{
	(void)args;
	return say_not_built();
}

static int unmount(const char *dir)
{
	(void)dir;
	return say_not_built();
}
#endif

static int run(struct args *args)
{
	if (want.unmount && args->rest.n != 1)
		return cli_wrong(&cmd_mount, "--unmount needs the folder: zckpt mount --unmount "
				 "DIR");
	if (want.unmount)
		return unmount(args->rest.list[0]);
	if (args->rest.n != 2)
		return cli_wrong(&cmd_mount, "mount needs a checkpoint and a folder: zckpt mount "
				 "RUN DIR");
	return mount_path(args);
}

const struct command cmd_mount = {
	.name = "mount",
	.run = run,
	.gist = "mount a checkpoint as a folder with model.safetensors",
	.synopsis = "PATH DIR",
	.about = "Makes the files that convert would write appear in DIR, an empty or a new "
		 "folder, read-only and without using disk: model.safetensors as saved, the same "
		 "below fp32/, bf16/ and fp16/, the optimizer's states below state/, config.json "
		 "and the tokenizer. Of a run, each complete step is a folder. Any program can "
		 "read them. Bytes are compared with their sums before they are handed out; damage "
		 "is an I/O error, and a line in .zckpt/findings.txt.",
	.examples = "zckpt mount run view\n"
		    "ls -l view/latest/bf16\n"
		    "zckpt mount --unmount view\n",
	.notes = "A server process in the background makes the bytes; --unmount ends it. A step "
		 "whose files change while it is mounted gives I/O errors until it is mounted "
		 "again.",
	.tables = { own, opts_shown, opts_select, opts_shown_talk, NULL },
};
