/* cmd_unpack.c -- `zckpt unpack`: a pack, or a tar or zip of others, to a folder. */
#include "cli_pack.h"

static const struct opt own[] = {
	{ "output", 'o', OPT_TEXT, &cli_args.output, "DST",
	  "destination, instead of the last word", 0 },
	{ "threads", 'j', OPT_COUNT, &cli_args.threads, "N",
	  "threads (default: CPUs, within a limit)", OPT_RARE },
	{ 0 },
};

static int call(struct verb *verb)
{
	const struct ckpt_unpack_opts opts = {
		.size = sizeof(opts), .run = &verb->run, .flags = cli_write_flags(verb->args),
	};

	return ckpt_unpack(verb->args->rest.list[0], verb->dst, &opts,
			   &((struct pack *)verb)->done, &verb->err);
}

static int run(struct args *args)
{
	struct pack unpack = { .name = "unpack", .verb = {
		.args = args, .sigpipe = 1, .call = call, .print_json = pack_print_json,
		.print = pack_print,
		.dst = args->output ? args->output : args->rest.n > 1 ? args->rest.list[1] : NULL,
	} };

	if (!unpack.verb.dst || args->rest.n != (args->output ? 1 : 2))
		return cli_wrong(&cmd_unpack, "unpack needs an archive and a destination: zckpt "
				 "unpack step.tar.zst RUN");
	return verb_run(&unpack.verb, 0);
}

const struct command cmd_unpack = {
	.name = "unpack",
	.run = run,
	.gist = "unpack a pack, .tar or .zip to a folder",
	.synopsis = "PACK DST",
	.about = "Writes the files of a pack, or of a .tar, .tar.gz, .tar.zst or .zip, to the "
		 "folder DST. Hashes of a pack are compared. An archive with a name that leads "
		 "out of DST, a link, a device or a repeated name is refused as a whole (exit "
		 "4). A single folder, such as a step, may go into an existing DST; 'latest' is "
		 "changed last.",
	.examples = "zckpt unpack run.tar.zst restored\n"
		    "zckpt unpack step200.tar run\n",
	.notes = "--force replaces a folder of the same name in DST, and no other.",
	.tables = { own, opts_pack, opts_run, opts_talk, NULL },
};
