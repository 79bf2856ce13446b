/* cli_args.c -- options of several verbs: their tables, and the parsing and help of a verb. */
#include <string.h>

#include "cli.h"

#define WIDTH 79	/* of a help text */

struct args cli_args = { .progress = -1, .timeout = OPT_UNSET };

/* ---------------------------------------------------------------- limits */

/* Which limit 'name' is, with '-' and '_' the same; else the names it could have been. */
static int limit_find(const char *name, struct ckpt_limit_info *out, struct words *names)
{
	for (uint32_t i = 0; !ckpt_limit_get(i, out, NULL); i++) {
		if (opt_is_name(name, out->name))
			return 1;
		words_add(names, out->name);
	}
	return 0;
}

static int set_limit(const struct opt_call *call, const struct opt *opt, const char *value)
{
	const size_t n = strcspn(value, "=");
	char *name = cli_format("%.*s", (int)(n > 200 ? 200 : n), value);
	struct ckpt_limit_info info;
	struct ckpt_err err = { 0 };
	struct words names = { 0 };
	uint64_t bound;
	const char *near;

	(void)opt;
	if (!value[n])
		return opt_wrong(call, "--limit: %s is not NAME=N", out_name(value));
	if (!limit_find(name, &info, &names)) {
		near = opt_nearest(name, names.list);
		return opt_wrong(call, "--limit: unknown limit %s%s%s (docs/limits.md lists "
			"all)",
				 out_name(name), near ? "; did you mean " : "", near ? near : "");
	}
	value += n + 1;
	if (opt_size_parse(value, &bound) ||
	    (!info.is_bytes && value[strspn(value, "0123456789")]))
		return opt_wrong(call, "--limit %s: %s is not a %s", info.name, out_name(value),
				 info.is_bytes ? "size; sizes are 5GB, 512MiB, 1.5TB" : "number");
	if (ckpt_limits_set(&cli_args.limits, info.name, bound, &err))
		return opt_wrong(call, "--limit: %s", err.msg);
	return 0;
}

struct opt_own cli_limit = { .set = set_limit };

/* ---------------------------------------------------------------- tables */

const struct opt opts_source[] = {
	{ "tag", 't', OPT_TEXT, &cli_args.tag, "NAME",
	  "step, by its name or number (default: 'latest')", 0 },
	{ "step", 0, OPT_TEXT, &cli_args.tag, "NAME", "", OPT_HIDDEN },
	{ "checkpoint", 0, OPT_TEXT, &cli_args.tag, "NAME", "", OPT_HIDDEN },
	{ "subtree", 0, OPT_TEXT, &cli_args.subtree, "KEY",
	  "entry of a .pt file to read (default: its model)", OPT_RARE },
	OPT_NAMES,
	{ "as-warning", 0, OPT_COMMAS, &cli_args.as_warning, "ID",
	  "count findings of that name as warnings", OPT_RARE },
	{ "threads", 'j', OPT_COUNT, &cli_args.threads, "N",
	  "threads (default: CPUs, within a limit)", OPT_RARE },
	OPT_LIMITS,
	{ 0 },
};

const struct opt opts_select[] = {
	{ "include", 0, OPT_WORDS, &cli_args.include, "PATTERN",
	  "only names that match (*, ?, [...]); may repeat", 0 },
	{ "exclude", 0, OPT_WORDS, &cli_args.exclude, "PATTERN",
	  "exclude names that match; may repeat", 0 },
	{ "only", 0, OPT_COMMAS, &cli_args.only, "WHAT", "only trainable, frozen or buffers", 0 },
	{ 0 },
};

const char *cli_aux;

const struct opt opts_shown[] = {
	{ "tag", 't', OPT_TEXT, &cli_args.tag, "NAME",
	  "show this step only, not in a folder of its own", 0 },
	{ "step", 0, OPT_TEXT, &cli_args.tag, "NAME", "", OPT_HIDDEN },
	{ "aux", 0, OPT_TEXT, &cli_aux, "DIR", "where config and tokenizer files are", 0 },
	{ "subtree", 0, OPT_TEXT, &cli_args.subtree, "KEY",
	  "entry of a .pt file to read (default: its model)", OPT_RARE },
	OPT_NAMES,
	{ "as-warning", 0, OPT_COMMAS, &cli_args.as_warning, "ID",
	  "count findings of that name as warnings", OPT_RARE },
	{ "threads", 'j', OPT_COUNT, &cli_args.threads, "N",
	  "threads that open a step (default: CPUs, within a limit)", OPT_RARE },
	{ "mem-limit", 0, OPT_SIZE, &cli_args.mem_limit, "SIZE",
	  "memory of a step for deflated members (default 256MiB)", OPT_RARE },
	OPT_LIMITS,
	{ 0 },
};

const struct opt opts_shown_talk[] = {
	{ "quiet", 'q', OPT_FLAG, &cli_args.quiet, NULL, "print errors and warnings only", 0 },
	{ "verbose", 'v', OPT_FLAG, &cli_args.verbose, NULL, "print more of everything", 0 },
	{ "help", 'h', OPT_FLAG, &cli_args.help, NULL, "print this text", OPT_LAST },
	{ 0 },
};

const struct opt opts_run[] = {
	{ "mem-limit", 0, OPT_SIZE, &cli_args.mem_limit, "SIZE",
	  "memory for buffers (default 256MiB)", OPT_RARE },
	{ "progress", 0, OPT_FLAG, &cli_args.progress, NULL,
	  "show progress even without a terminal; --no-progress: never", OPT_NEGATABLE | OPT_RARE },
	{ 0 },
};

const struct opt opts_write[] = {
	{ "part", 0, OPT_TEXT, &cli_args.part, "I/N",
	  "write only part I of N (from 1); then zckpt commit", OPT_RARE },
	{ "timeout", 0, OPT_COUNT, &cli_args.timeout, "SECONDS",
	  "under mpirun: seconds until a silent rank counts as lost (default 600)", OPT_RARE },
	{ "output-dir", 0, OPT_TEXT, &cli_args.output, "DST", "", OPT_HIDDEN },
	{ "output-file", 0, OPT_TEXT, &cli_args.output, "DST", "", OPT_HIDDEN },
	{ "dry-run", 0, OPT_FLAG, &cli_args.dry_run, NULL, "plan and check, write nothing", 0 },
	{ "restart", 0, OPT_FLAG, &cli_args.restart, NULL,
	  "delete what a killed run left", OPT_RARE },
	{ "strict", 0, OPT_FLAG, &cli_args.strict, NULL, "stop at warnings, with exit status 1",
		OPT_RARE },
	{ "sync", 0, OPT_CHOICE, &cli_args.sync, "data|full|none",
	  "what to sync before the rename", OPT_RARE },
	{ 0 },
};

const struct opt opts_talk[] = {
	{ "json", 0, OPT_FLAG, &cli_args.json, NULL, "print one JSON object to stdout", 0 },
	{ "quiet", 'q', OPT_FLAG, &cli_args.quiet, NULL, "print errors and warnings only", 0 },
	{ "verbose", 'v', OPT_FLAG, &cli_args.verbose, NULL, "print more of everything", 0 },
	{ "color", 0, OPT_CHOICE, &cli_args.color, TERM_COLORS,
	  "colour errors, warnings and headings (default: on a terminal)", OPT_RARE },
	{ "help", 'h', OPT_FLAG, &cli_args.help, NULL, "print this text", OPT_LAST },
	{ 0 },
};

/* ---------------------------------------------------------------- a verb */

static int wrong(const void *cmd, const char *what)
{
	return cli_wrong(cmd, "%s", what);
}

int cli_parse(const struct command *cmd, int argc, char **argv)
{
	const struct opt_call call = {
		.tables = cmd->tables, .rest = &cli_args.rest, .wrong = wrong, .arg = cmd,
		.unknown = cli_unknown_option, .is_meant = cli_is_meant,
	};

	return opt_parse(&call, argc, argv);
}

/* Lines of 'text', each indented. */
static void print_examples(const char *text, FILE *out)
{
	for (size_t n; *text; text += n + (text[n] == '\n')) {
		n = strcspn(text, "\n");
		fprintf(out, "  %.*s\n", (int)n, text);
	}
}

static void list_options(const struct command *cmd, enum opt_list list, FILE *out)
{
	const struct opt_style style = {
		.list = list, .column = 29, .gap = 2, .width = WIDTH, .letters = 1,
	};

	fprintf(out, "\n%s:\n", list == OPT_LIST_RARE ? "other options" : "options");
	for (const struct opt *const *table = cmd->tables; *table; table++)
		opt_help(*table, &style, out);
}

void cli_help(const struct command *cmd, int all, FILE *out)
{
	const unsigned nrare = opt_count(cmd->tables, OPT_LIST_RARE);

	fprintf(out, "usage: zckpt %s [OPTION...] %s\n\n", cmd->name, cmd->synopsis);
	opt_wrap(out, cmd->about, 0, 0, WIDTH);
	fputc('\n', out);
	term_put(out, TERM_HEADING, "examples:\n");
	print_examples(cmd->examples, out);
	list_options(cmd, OPT_LIST_COMMON, out);
	if (all && nrare)
		list_options(cmd, OPT_LIST_RARE, out);
	if (cmd->notes) {
		fputc('\n', out);
		opt_wrap(out, cmd->notes, 0, 0, WIDTH);
	}
	if (!all && nrare)
		fprintf(out, "\n'zckpt %s -h --all' lists %u more option%s.\n", cmd->name, nrare,
			out_plural(nrare));
}
