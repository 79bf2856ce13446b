/* cmd_commit.c -- `zckpt commit`: puts a result made in parts into place. */
#include "cli.h"

static struct {
	int discard;
} want;

static const struct opt own[] = {
	{ "timeout", 0, OPT_COUNT, &cli_args.timeout, "SECONDS",
	  "seconds to wait for parts (default 60)", OPT_RARE },
	{ "discard", 0, OPT_FLAG, &want.discard, NULL,
	  "delete what the parts wrote", 0 },
	{ "sync", 0, OPT_CHOICE, &cli_args.sync, "data|full|none",
	  "what to sync before the rename", OPT_RARE },
	{ 0 },
};

static int run(struct args *args)
{
	static const enum ckpt_sync syncs[] = { CKPT_SYNC_DATA, CKPT_SYNC_FULL, CKPT_SYNC_NONE };
	uint64_t ms = args->timeout == OPT_UNSET ? 60000 : args->timeout * 1000;
	struct ckpt_err err = { 0 };
	const char *dst;
	int rc;

	if (args->rest.n != 1)
		return cli_wrong(&cmd_commit, "commit needs one destination, the DST of the parts");
	dst = args->rest.list[0];
	if (want.discard)
		rc = ckpt_discard(dst, &err);
	else
		rc = ckpt_commit(dst, ms > UINT32_MAX ? UINT32_MAX : (uint32_t)ms,
				 syncs[args->sync], &err);
	if (rc)
		return cli_fail(args->json ? "commit" : NULL, NULL, &err);
	if (args->json) {
		struct json json;

		json_begin(&json, stdout, "commit");
		json_text(&json, "dst", dst);
		json_close(&json, '}');
	} else if (!args->quiet) {
		cli_say(want.discard ? "the parts written for %s are removed" : "%s is in place",
			out_name(dst));
	}
	return EXIT_DONE;
}

const struct command cmd_commit = {
	.name = "commit",
	.run = run,
	.gist = "finish a convert or reshard that ran in parts (--part)",
	.synopsis = "DST",
	.about = "When every 'zckpt convert --part I/N SRC DST' or 'zckpt reshard --part I/N ...' "
		 "has ended, puts the output into place. Until then DST is not created or changed. "
		 "The ranks of mpirun or srun do not need it.",
	.examples = "zckpt convert --part 1/2 run model.safetensors\n"
		    "zckpt convert --part 2/2 run model.safetensors\n"
		    "zckpt commit model.safetensors\n",
	.tables = { own, opts_talk, NULL },
};
