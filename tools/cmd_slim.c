/* cmd_slim.c -- `zckpt slim`: a smaller copy of a step or of a torch file. */
#include <inttypes.h>
#include <string.h>

#include "cli_pack.h"
#include "cli_verb.h"

static struct {
	int views, frozen, moments;
} want;

static const struct opt own[] = {
	{ "views", 0, OPT_FLAG, &want.views, NULL, "drop parts of storages that no tensor uses",
		0 },
	{ "frozen", 0, OPT_FLAG, &want.frozen, NULL,
	  "drop second copies of frozen parameters", 0 },
	{ "moments", 0, OPT_FLAG, &want.moments, NULL,
	  "drop optimizer states; masters stay", 0 },
	{ "output", 'o', OPT_TEXT, &cli_args.output, "DST",
	  "destination, instead of the last word", 0 },
	{ "strict", 0, OPT_FLAG, &cli_args.strict, NULL, "stop at warnings, with exit status 1",
		OPT_RARE },
	{ 0 },
};

struct slim {
	struct verb verb;
	struct ckpt_slimmed done;
};

/* Those that are named; with --moments the two that lose nothing come along. */
static unsigned what_of(void)
{
	const unsigned what = (want.views ? CKPT_SLIM_VIEWS : 0) |
			      (want.frozen ? CKPT_SLIM_FROZEN : 0);

	return (what ? what : CKPT_SLIM_VIEWS | CKPT_SLIM_FROZEN) |
	       (want.moments ? CKPT_SLIM_MOMENTS : 0);
}

static void print_part(uint64_t bytes, const char *what)
{
	if (bytes)
		cli_say("  %9s  %s", out_size(bytes), what);
}

static void print_result(const struct verb *verb)
{
	const struct ckpt_slimmed *s = &((const struct slim *)verb)->done;
	const struct args *args = verb->args;
	const char *dst = verb->dst;
	const uint64_t tensors = s->views_bytes + s->frozen_bytes + s->moments_bytes;
	char *before, *after;

	for (uint64_t i = 0; i < s->nkept; i++)
		cli_say("%s: left as it is: %s", out_name(s->kept[i].path), s->kept[i].why);
	if (args->quiet)
		return;
	before = cli_strdup(out_size(s->before_bytes));
	after = cli_strdup(out_size(s->after_bytes));
	if (args->dry_run)
		cli_say("would write %" PRIu64 " file%s, %s instead of %s", s->files,
			s->files == 1 ? "" : "s", after, before);
	else
		cli_say("wrote %s: %" PRIu64 " file%s, %s instead of %s", out_name(dst), s->files,
			s->files == 1 ? "" : "s", after, before);
	if (tensors)
		cli_say("without");
	else
		cli_say("nothing to remove: the copy would be as large%s", want.moments ? "" :
			"; --moments drops optimizer states");
	print_part(s->moments_bytes, "optimizer states");
	print_part(s->frozen_bytes, "second copies of frozen parameters");
	print_part(s->views_bytes, "parts of storages that no tensor uses");
	if (s->manifest)
		cli_say("zckpt-manifest.json is not copied; zckpt verify --write-manifest "
			"writes a new one");
	if (args->dry_run && dst)
		report_dry("", s->after_bytes, s->would_read_bytes, s->free_bytes);
	else if (!args->dry_run)
		cli_say("read %s in %.2f s with %" PRIu32 " thread%s", out_size(s->read_bytes),
			s->seconds, s->threads, s->threads == 1 ? "" : "s");
	cli_free(before);
	cli_free(after);
}

static void print_json(const struct verb *verb, int status)
{
	const struct ckpt_slimmed *s = &((const struct slim *)verb)->done;
	struct json json;

	json_begin(&json, stdout, "slim");
	json_bool(&json, "ok", !status);
	json_int(&json, "exit", status);
	json_text(&json, "dst", verb->dst ? verb->dst : "");
	if (status) {
		json_error(&json, &verb->err);
		json_close(&json, '}');
		return;
	}
	json_bool(&json, "dry_run", verb->args->dry_run);
	json_uint(&json, "files", s->files);
	json_uint(&json, "before_bytes", s->before_bytes);
	json_uint(&json, "after_bytes", s->after_bytes);
	json_uint(&json, "moments_bytes", s->moments_bytes);
	json_uint(&json, "frozen_bytes", s->frozen_bytes);
	json_uint(&json, "views_bytes", s->views_bytes);
	json_bool(&json, "manifest", s->manifest);
	json_open(&json, "kept", '[');
	for (uint64_t i = 0; i < s->nkept; i++) {
		json_open(&json, NULL, '{');
		json_text(&json, "path", s->kept[i].path);
		json_text(&json, "why", s->kept[i].why);
		json_close(&json, '}');
	}
	json_close(&json, ']');
	json_uint(&json, "read_bytes", s->read_bytes);
	json_uint(&json, "resumed_bytes", s->resumed_bytes);
	report_json_dry(&json, s->would_read_bytes, s->free_bytes);
	json_uint(&json, "threads", s->threads);
	json_seconds(&json, "seconds", s->seconds);
	json_close(&json, '}');
}

static int parse_words(const struct args *args, struct words *sources, const char **dst_out)
{
	const char *why;
	size_t n = args->rest.n;

	*dst_out = args->output;
	if (!*dst_out && (n > 1 || (n && !args->dry_run)))
		*dst_out = args->rest.list[--n];
	for (size_t i = 0; i < n; i++)
		words_add(sources, args->rest.list[i]);
	if (!n)
		return cli_wrong(&cmd_slim, "slim needs a checkpoint and a destination");
	if (*dst_out && !**dst_out)
		return cli_wrong(&cmd_slim, "the destination is an empty name");
	/* Of several folders the last may be a source, too: then the destination is missing. */
	why = *dst_out && args->force ?
	      cli_precious(*dst_out, sources, args->output || sources->n == 1) : NULL;
	if (why)
		return cli_wrong(&cmd_slim, "%s: %s", out_name(*dst_out), why);
	return 0;
}

static int call(struct verb *verb)
{
	const struct ckpt_slim_opts opts = {
		.size = sizeof(opts), .run = &verb->run, .what = what_of(),
		.flags = cli_write_flags(verb->args),
	};

	return ckpt_slim(verb->ck, verb->dst, &opts, &((struct slim *)verb)->done, &verb->err);
}

static int run(struct args *args)
{
	struct slim slim = { .verb = {
		.args = args, .call = call, .print_json = print_json, .print = print_result,
	} };
	struct verb *verb = &slim.verb;
	const int status = verb_run(verb, parse_words(args, &verb->sources, &verb->dst));

	ckpt_slimmed_free(&slim.done);
	ckpt_close(verb->ck);
	return status;
}

const struct command cmd_slim = {
	.name = "slim",
	.run = run,
	.gist = "write a smaller copy, without moments or unused bytes",
	.synopsis = "SRC... DST",
	.about = "Writes a smaller copy of a step (of any form), a folder of weights or a torch "
		 "file. Without --views, --frozen or --moments it drops what no reader needs: "
		 "bytes of storages that no tensor uses, and second copies of frozen parameters. "
		 "What stays is kept bit for bit. With --dry-run, DST may be left out.",
	.examples = "zckpt slim --dry-run run\n"
		    "zckpt slim --moments run run-small\n",
	.notes = "Without moments DeepSpeed loads a step with load_optimizer_states=False.",
	.tables = { own, opts_pack, opts_source, opts_run, opts_talk, NULL },
};
