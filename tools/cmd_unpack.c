/* cmd_unpack.c -- `zckpt unpack`: a pack, or a tar or zip of others, to a folder. */
#include <signal.h>

#include "cli_pack.h"

static const struct opt own[] = {
	{ "output", 'o', OPT_TEXT, &cli_args.output, "DST",
	  "destination, instead of the last word", 0 },
	{ "threads", 0, OPT_COUNT, &cli_args.threads, "N",
	  "threads (default: CPUs, within a limit)", 0 },
	{ 0 },
};

static int run(struct args *args)
{
	const char *dst = args->output ? args->output :
			  args->rest.n > 1 ? args->rest.list[1] : NULL;
	struct ckpt_packed done = { .files = 0 };
	struct ckpt_err err = { 0 };
	struct progress progress;
	struct ckpt_run_opts run;
	const struct ckpt_unpack_opts opts = {
		.size = sizeof(opts), .run = &run, .flags = cli_write_flags(args),
	};
	int status = EXIT_DONE;

	if (!dst || args->rest.n != (args->output ? 1 : 2))
		return cli_wrong(&cmd_unpack, "unpack needs an archive and a destination: zckpt "
				 "unpack step.tar.zst RUN");
	signal(SIGXFSZ, SIG_IGN);
	cli_run_begin(args, &progress, &run);
	if (ckpt_unpack(args->rest.list[0], dst, &opts, &done, &err))
		status = -1;
	progress_end(&progress);
	if (status)
		status = cli_fail(NULL, NULL, &err);
	if (err.code != CKPT_E_CANCELED) {
		if (args->json)
			pack_json("unpack", status, dst, &done, &err);
		else if (!status)
			pack_say(args, &done, "unpack", dst);
	}
	return status;
}

const struct command cmd_unpack = {
	.name = "unpack",
	.run = run,
	.gist = "a pack, tar or zip to a folder, whole or not at all",
	.synopsis = "PACK DST",
	.about = "Writes the files of a pack, or of a .tar, .tar.gz, .tar.zst or .zip, to the "
		 "folder DST. Hashes of a pack are compared. An archive with a name that leads out "
		 "of DST, a link, a device or a name that stands twice is refused as a whole (exit "
		 "4). One folder, as a step is, may go into a DST that is there; 'latest' is "
		 "changed last.",
	.notes = "--force replaces a folder of the same name in DST, and no other.",
	.tables = { own, opts_pack, opts_run, opts_talk, NULL },
};
