/* cmd_pack.c -- `zckpt pack`: a step as one .tar.zst; and what it shares with `zckpt unpack`. */
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "cli_pack.h"

const struct opt opts_pack[] = {
	{ "force", 'f', OPT_FLAG, &cli_args.force, NULL,
	  "replace an existing destination", 0 },
	{ "dry-run", 0, OPT_FLAG, &cli_args.dry_run, NULL, "check, write nothing", 0 },
	{ "restart", 0, OPT_FLAG, &cli_args.restart, NULL,
	  "delete what a killed run left", OPT_RARE },
	{ "sync", 0, OPT_CHOICE, &cli_args.sync, "data|full|none",
	  "what to sync before the rename", OPT_RARE },
	{ 0 },
};

static struct {
	uint64_t level;
} want = { .level = OPT_UNSET };

static const struct opt own[] = {
	{ "output", 'o', OPT_TEXT, &cli_args.output, "DST",
	  "destination, instead of the last word", 0 },
	{ "level", 0, OPT_COUNT, &want.level, "N", "zstd's level, 1 to 19 (default 3)", 0 },
	{ "strict", 0, OPT_FLAG, &cli_args.strict, NULL, "stop at warnings, with exit status 1",
		OPT_RARE },
	{ 0 },
};

void pack_print(const struct verb *verb)
{
	const struct args *args = verb->args;
	const char *what = ((const struct pack *)verb)->name, *dst = verb->dst;
	const struct ckpt_packed *done = &((const struct pack *)verb)->done;
	char *bytes, *archive;

	if (args->quiet)
		return;
	bytes = cli_strdup(out_size(done->bytes));
	archive = cli_strdup(out_size(done->archive_bytes));
	if (args->dry_run)
		cli_say("would %s %" PRIu64 " file%s, %s, to %s", what, done->files,
			out_plural(done->files), bytes, out_name(dst));
	else
		cli_say("%sed %" PRIu64 " file%s, %s, to %s: %s%s, %.2f s, %" PRIu32 " thread%s",
			what, done->files, out_plural(done->files), bytes, out_name(dst), archive,
			!strcmp(what, "unpack") ? " packed" : "", done->seconds, done->threads,
			out_plural(done->threads));
	if (args->dry_run)
		report_dry(!strcmp(what, "pack") ? "at most " : "", done->would_write_bytes,
			   done->would_read_bytes, done->free_bytes);
	cli_free(bytes);
	cli_free(archive);
}

void pack_print_json(const struct verb *verb, int status)
{
	const struct ckpt_packed *done = &((const struct pack *)verb)->done;
	struct json json;

	json_begin(&json, stdout, ((const struct pack *)verb)->name);
	json_bool(&json, "ok", !status);
	json_int(&json, "exit", status);
	json_text(&json, "dst", verb->dst);
	if (status) {
		json_error(&json, &verb->err);
	} else {
		json_text(&json, "kind", done->kind);
		json_uint(&json, "files", done->files);
		json_uint(&json, "bytes", done->bytes);
		json_uint(&json, "archive_bytes", done->archive_bytes);
		if (done->would_write_bytes)
			json_uint(&json, "would_write_bytes", done->would_write_bytes);
		report_json_dry(&json, done->would_read_bytes, done->free_bytes);
		json_uint(&json, "threads", done->threads);
		json_seconds(&json, "seconds", done->seconds);
	}
	json_close(&json, '}');
}

/* The ending of another kind of archive, which a pack under that name would not be; or NULL. */
static const char *other_end(const char *dst)
{
	static const char *const ends[] = {
		".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar", ".zip", ".7z", ".gz", ".bz2",
		".xz",
	};
	const size_t n = strlen(dst);

	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
		if (n > strlen(ends[i]) && !strcmp(dst + n - strlen(ends[i]), ends[i]))
			return dst + n - strlen(ends[i]);
	return NULL;
}

static int wrong_end(const struct words *sources, const char *dst)
{
	const char *end = other_end(dst);
	char *name = cli_format("%.*s.tar.zst", (int)(end - dst), dst);

	return cli_try(&cmd_pack, cli_format("zckpt pack %s %s", out_word(sources->list[0]),
					     out_word(name)),
		       "%s: a pack is a .tar.zst and not a %s", out_name(dst), end);
}

static int parse_words(const struct args *args, struct words *sources, const char **dst_out)
{
	size_t n = args->rest.n;

	*dst_out = args->output;
	if (!*dst_out && n > 1)
		*dst_out = args->rest.list[--n];
	for (size_t i = 0; i < n; i++)
		words_add(sources, args->rest.list[i]);
	if (!*dst_out || n != 1)
		return cli_wrong(&cmd_pack, "pack needs a step and a destination: zckpt pack RUN "
				 "step.tar.zst");
	if (other_end(*dst_out))
		return wrong_end(sources, *dst_out);
	if (!strcmp(*dst_out, "-") && args->json)
		return cli_wrong(&cmd_pack, "--json and the pack cannot both go to stdout");
	if (!strcmp(*dst_out, "-") && isatty(STDOUT_FILENO))
		return cli_wrong(&cmd_pack, "a pack is binary output, not for a terminal; use a "
			"pipe: zckpt pack SRC - | ...");
	if (want.level != OPT_UNSET && (want.level < 1 || want.level > 19))
		return cli_wrong(&cmd_pack, "--level %" PRIu64 " is not between 1 and 19",
				 want.level);
	if (strcmp(*dst_out, "-") && cli_is_in_source(*dst_out, sources))
		return cli_wrong(&cmd_pack, "%s: this is part of the source and cannot be "
			"replaced",
				 out_name(*dst_out));
	return 0;
}

static int call(struct verb *verb)
{
	const struct ckpt_pack_opts opts = {
		.size = sizeof(opts), .run = &verb->run, .out_fd = STDOUT_FILENO,
		.level = want.level == OPT_UNSET ? 0 : (int)want.level,
		.flags = cli_write_flags(verb->args),
	};

	return ckpt_pack(verb->ck, verb->dst, &opts, &((struct pack *)verb)->done, &verb->err);
}

static int run(struct args *args)
{
	struct pack pack = { .name = "pack", .verb = {
		.args = args, .call = call, .print_json = pack_print_json, .print = pack_print,
	} };
	struct verb *verb = &pack.verb;
	const int status = verb_run(verb, parse_words(args, &verb->sources, &verb->dst));

	ckpt_close(verb->ck);
	return status;
}

const struct command cmd_pack = {
	.name = "pack",
	.run = run,
	.gist = "pack a step into one .tar.zst that every command reads",
	.synopsis = "SRC DST",
	.about = "Writes a step as one .tar.zst, read back and compared before it is in place. "
		 "'tar --zstd -x' unpacks it; an index in it lets zckpt read one tensor without "
		 "unpacking: inspect, ls, map, cat, verify, digest, diff, convert and reshard take "
		 "it as a source. DST - is stdout.",
	.examples = "zckpt pack run run.tar.zst\n"
		    "zckpt pack --level 10 run/global_step200 step200.tar.zst\n",
	.notes = "docs/formats/pack.md (installed in PREFIX/share/doc/zckpt) says what is in it.",
	.tables = { own, opts_pack, opts_source, opts_run, opts_talk, NULL },
};
