/* cmd_slim.c -- `zckpt slim`: a smaller copy of a step or of a torch file. */
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

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
	int nothing;	/* to remove, so nothing is written */
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

static uint64_t removed_bytes(const struct ckpt_slimmed *s)
{
	return s->views_bytes + s->frozen_bytes + s->moments_bytes;
}

static void print_result(const struct verb *verb)
{
	const struct ckpt_slimmed *s = &((const struct slim *)verb)->done;
	const struct args *args = verb->args;
	const char *dst = verb->dst;
	struct ckpt_info info;
	const uint64_t tensors = removed_bytes(s);
	char *before, *after;

	for (uint64_t i = 0; i < s->nkept; i++)
		cli_say("%s: left as it is: %s", out_name(s->kept[i].path), s->kept[i].why);
	if (((const struct slim *)verb)->nothing) {
		ckpt_info_get(verb->ck, &info);
		cli_say("nothing to remove, so %s is not written%s", out_name(dst),
			info.world ? "; --moments drops optimizer states" : "");
		return;
	}
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
	if (status && verb->err.code) {
		json_error(&json, &verb->err);
		json_close(&json, '}');
		return;
	}
	json_bool(&json, "dry_run", verb->args->dry_run || ((const struct slim *)verb)->nothing);
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

static int is_same(const char *a, const char *b)
{
	struct stat x, y;

	return !stat(a, &x) && !stat(b, &y) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* "run" -> "run-small", "model.pt" -> "model-small.pt". */
static char *small_name(const char *src)
{
	const char *slash = strrchr(src, '/'), *dot = strrchr(slash ? slash : src, '.');
	size_t n = strlen(src);
	struct stat st;

	if (dot && !stat(src, &st) && S_ISREG(st.st_mode))
		return cli_format("%.*s-small%s", (int)(dot - src), src, dot);
	while (n > 1 && src[n - 1] == '/')
		n--;
	return cli_format("%.*s-small", (int)n, src);
}

/* The call with a destination beside the source. */
static int missing_dst(const char *src, const char *what)
{
	return cli_try(&cmd_slim, cli_format("zckpt slim%s%s%s %s %s", want.views ? " --views" : "",
					     want.frozen ? " --frozen" : "",
					     want.moments ? " --moments" : "", out_word(src),
					     out_word(small_name(src))),
		       "%s", what);
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
	if (!n && *dst_out && !args->output)
		return missing_dst(*dst_out, "a destination is missing");
	if (!n)
		return cli_wrong(&cmd_slim, "slim needs a checkpoint and a destination");
	if (*dst_out && !**dst_out)
		return cli_wrong(&cmd_slim, "the destination is an empty name");
	if (*dst_out && sources->n == 1 && is_same(*dst_out, sources->list[0]))
		return missing_dst(*dst_out, "the destination is the source");
	/* Of several folders the last may be a source, too: then the destination is missing. */
	why = *dst_out && args->force ?
	      cli_precious(*dst_out, sources, args->output || sources->n == 1) : NULL;
	if (why)
		return cli_wrong(&cmd_slim, "%s: %s", out_name(*dst_out), why);
	return 0;
}

/* Looks first: where no option names what to drop, a copy that is as large is of no use. */
static int call(struct verb *verb)
{
	struct slim *slim = (struct slim *)verb;
	struct ckpt_slim_opts opts = {
		.size = sizeof(opts), .run = &verb->run, .what = what_of(),
		.flags = cli_write_flags(verb->args) | CKPT_WRITE_DRY_RUN,
	};
	const int is_asked = want.views || want.frozen || want.moments || verb->args->dry_run;
	int rc = is_asked ? 0 : ckpt_slim(verb->ck, verb->dst, &opts, &slim->done, &verb->err);

	slim->nothing = !rc && !is_asked && !removed_bytes(&slim->done);
	if (slim->nothing)
		verb->answer = EXIT_NO;
	if (!rc && !slim->nothing) {
		ckpt_slimmed_free(&slim->done);
		opts.flags = cli_write_flags(verb->args);
		rc = ckpt_slim(verb->ck, verb->dst, &opts, &slim->done, &verb->err);
	}
	/* the library names an option that slim does not have */
	if (verb->err.code == CKPT_E_EXISTS && strstr(verb->err.msg, "--new-tag"))
		snprintf(verb->err.msg, sizeof(verb->err.msg), "the step exists; --force replaces "
			 "it, or choose another destination");
	return rc;
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
	.notes = "Exit 1, and nothing is written, if there is nothing to remove and no option "
		 "names what to drop. Without moments DeepSpeed loads a step with "
		 "load_optimizer_states=False.",
	.tables = { own, opts_pack, opts_source, opts_run, opts_talk, NULL },
};
