/*
 * cli_opt.c -- options from tables: parsing, help, and what was probably meant.
 *
 * "--name value", "--name=value", "-n value", "-nvalue", "-qv"; '-' and '_' are the
 * same in names; "--" ends the options; "-" alone is no option.
 */
#include <ctype.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

#define HELP_COLUMN 29
#define HELP_WIDTH 79

#define AT(field) offsetof(struct args, field)

const struct opt opts_source[] = {
	{ "tag", 't', OPT_TEXT, AT(tag), "NAME", "step to take (default: what 'latest' names)", 0 },
	{ "subtree", 0, OPT_TEXT, AT(subtree), "KEY",
	  "entry of a .pt file to take (default: its model)", 0 },
	{ "as-warning", 0, OPT_COMMAS, AT(as_warning), "ID",
	  "count findings of that name as warnings", 0 },
	{ "threads", 0, OPT_COUNT, AT(threads), "N", "threads (default: CPUs, within a limit)", 0 },
	OPT_LIMITS,
	{ 0 },
};

const struct opt opts_select[] = {
	{ "include", 0, OPT_WORDS, AT(include), "PATTERN",
	  "only names that match (*, ?, [...]); may repeat", 0 },
	{ "exclude", 0, OPT_WORDS, AT(exclude), "PATTERN",
	  "without names that match; may repeat", 0 },
	{ "only", 0, OPT_COMMAS, AT(only), "WHAT", "only trainable, frozen or buffers", 0 },
	{ 0 },
};

const struct opt opts_run[] = {
	{ "mem-limit", 0, OPT_SIZE, AT(mem_limit), "SIZE",
	  "memory for buffers (default 256MiB)", 0 },
	{ "progress", 0, OPT_FLAG, AT(progress), NULL,
	  "even without a terminal; --no-progress: never", OPT_NEGATABLE },
	{ 0 },
};

const struct opt opts_write[] = {
	{ "part", 0, OPT_TEXT, AT(part), "I/N",
	  "only share I of N (from 1); then zckpt commit", 0 },
	{ "timeout", 0, OPT_COUNT, AT(timeout), "SECONDS",
	  "under mpirun: a rank silent for so long is lost (default 600)", 0 },
	{ "dry-run", 0, OPT_FLAG, AT(dry_run), NULL, "plan and check, write nothing", 0 },
	{ "restart", 0, OPT_FLAG, AT(restart), NULL, "drop what a killed run left", 0 },
	{ "strict", 0, OPT_FLAG, AT(strict), NULL, "warnings stop it, exit 1", 0 },
	{ "sync", 0, OPT_CHOICE, AT(sync), "data|full|none",
	  "what is synced before the rename", 0 },
	{ 0 },
};

const struct opt opts_talk[] = {
	{ "json", 0, OPT_FLAG, AT(json), NULL, "one JSON object on stdout", 0 },
	{ "quiet", 'q', OPT_FLAG, AT(quiet), NULL, "errors and warnings only", 0 },
	{ "verbose", 'v', OPT_FLAG, AT(verbose), NULL, "more of everything", 0 },
	{ "help", 'h', OPT_FLAG, AT(help), NULL, "this text", 0 },
	{ 0 },
};

/* ---------------------------------------------------------------- memory */

/* Stands before each piece; the chain makes what lives until the end reachable. */
struct piece {
	struct piece *next, *prev;
};
static struct piece *pieces;

void *cli_alloc(size_t bytes)
{
	struct piece *piece = calloc(1, sizeof(*piece) + bytes);

	if (!piece) {
		cli_say("no memory for %zu bytes", bytes);
		exit(EXIT_TROUBLE);
	}
	piece->next = pieces;
	if (pieces)
		pieces->prev = piece;
	pieces = piece;
	return piece + 1;
}

void cli_free(void *memory)
{
	struct piece *piece;

	if (!memory)
		return;
	piece = (struct piece *)memory - 1;
	if (piece->next)
		piece->next->prev = piece->prev;
	if (piece->prev)
		piece->prev->next = piece->next;
	else
		pieces = piece->next;
	free(piece);
}

char *cli_strdup(const char *text)
{
	size_t n = strlen(text) + 1;

	return memcpy(cli_alloc(n), text, n);
}

char *cli_format(const char *fmt, ...)
{
	va_list ap;
	char *out;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	out = cli_alloc((size_t)(n < 0 ? 0 : n) + 1);
	va_start(ap, fmt);
	vsnprintf(out, (size_t)(n < 0 ? 0 : n) + 1, fmt, ap);
	va_end(ap);
	return out;
}

void words_add(struct words *words, const char *word)
{
	const char **list = cli_alloc((words->n + 2) * sizeof(*list));

	if (words->n)
		memcpy(list, words->list, words->n * sizeof(*list));
	cli_free(words->list);
	list[words->n++] = word;
	words->list = list;
}

/* ---------------------------------------------------------------- nearest */

static char fold(char c)
{
	return c == '_' ? '-' : (char)tolower((unsigned char)c);
}

static unsigned least(unsigned a, unsigned b)
{
	return a < b ? a : b;
}

/* Edits (insert, remove, replace, swap) between two words of at most 31 letters. */
static unsigned distance(const char *a, const char *b)
{
	unsigned d[32][32], na = (unsigned)strlen(a), nb = (unsigned)strlen(b);

	if (na > 31 || nb > 31)
		return 99;
	for (unsigned i = 0; i <= na; i++) {
		for (unsigned j = 0; j <= nb; j++) {
			if (!i || !j) {
				d[i][j] = i + j;
				continue;
			}
			d[i][j] = least(d[i - 1][j], d[i][j - 1]) + 1;
			d[i][j] = least(d[i][j], d[i - 1][j - 1] +
						(fold(a[i - 1]) != fold(b[j - 1])));
			if (i > 1 && j > 1 && fold(a[i - 1]) == fold(b[j - 2]) &&
			    fold(a[i - 2]) == fold(b[j - 1]))
				d[i][j] = least(d[i][j], d[i - 2][j - 2] + 1);
		}
	}
	return d[na][nb];
}

const char *opt_nearest(const char *word, const char *const *names)
{
	const char *best = NULL;
	unsigned least_seen = 99, d;
	size_t n = strlen(word);

	for (; *names; names++) {
		d = distance(word, *names);
		/* a beginning is as good as one wrong letter */
		if (n > 2 && d > 1 && !strncmp(word, *names, n))
			d = 1;
		if (d < least_seen) {
			least_seen = d;
			best = *names;
		}
	}
	return least_seen <= (n < 4 ? 1u : n < 8 ? 2u : 3u) ? best : NULL;
}

/* ---------------------------------------------------------------- values */

/* 1 and the factor of a unit: "", B, K/KB, KiB, M, G, T likewise, in any case. */
static int unit_parse(const char *text, uint64_t *factor_out)
{
	static const char letters[] = "kmgt";
	const char *at = *text ? strchr(letters, tolower((unsigned char)*text)) : NULL;
	uint64_t base = 1000, factor = 1;

	if (at)
		text++;
	if (at && tolower((unsigned char)*text) == 'i') {
		base = 1024;
		text++;
		if (tolower((unsigned char)*text) != 'b')
			return 0;
	}
	if (tolower((unsigned char)*text) == 'b')
		text++;
	if (*text)
		return 0;
	for (; at && at >= letters; at--)
		factor *= base;
	*factor_out = factor;
	return 1;
}

int opt_size_parse(const char *text, uint64_t *bytes_out)
{
	uint64_t whole = 0, part = 0, scale = 1, factor;

	if (!isdigit((unsigned char)*text))
		return -1;
	for (; isdigit((unsigned char)*text); text++)
		if (__builtin_mul_overflow(whole, UINT64_C(10), &whole) ||
		    __builtin_add_overflow(whole, (uint64_t)(*text - '0'), &whole))
			return -1;
	if (*text == '.') {
		for (text++; isdigit((unsigned char)*text); text++) {
			if (scale >= 1000000)
				return -1;
			part = part * 10 + (uint64_t)(*text - '0');
			scale *= 10;
		}
	}
	while (*text == ' ')
		text++;
	if (!unit_parse(text, &factor) || __builtin_mul_overflow(whole, factor, &whole))
		return -1;
	/* part < 10^6 and factor <= 2^40: no overflow */
	if (__builtin_add_overflow(whole, part * factor / scale, &whole))
		return -1;
	*bytes_out = whole;
	return 0;
}

static int count_parse(const char *text, uint64_t *n_out)
{
	uint64_t n = 0;

	if (!*text)
		return -1;
	for (; *text; text++) {
		if (!isdigit((unsigned char)*text) || n > INT32_MAX / 10)
			return -1;
		n = n * 10 + (uint64_t)(*text - '0');
	}
	*n_out = n;
	return n > INT32_MAX ? -1 : 0;
}

/* The index of 'word' in "a|b|c", or -1. */
static int choice_parse(const char *choices, const char *word)
{
	size_t n = strlen(word);

	for (int i = 0; *choices; i++) {
		size_t m = strcspn(choices, "|");

		if (m == n && !strncmp(choices, word, n))
			return i;
		choices += m + (choices[m] == '|');
	}
	return -1;
}

static int commas_add(struct words *words, const char *value)
{
	char *copy = cli_strdup(value), *comma;

	for (;;) {
		comma = strchr(copy, ',');
		if (comma)
			*comma = 0;
		if (!*copy)
			return -1;
		words_add(words, copy);
		if (!comma)
			return 0;
		copy = comma + 1;
	}
}

/* Which limit 'name' is, with '-' and '_' the same; else the names it could have been. */
static int limit_find(const char *name, struct ckpt_limit_info *out, struct words *names)
{
	for (uint32_t i = 0; !ckpt_limit_get(i, out, NULL); i++) {
		size_t k = 0;

		while (name[k] && fold(name[k]) == fold(out->name[k]))
			k++;
		if (!name[k] && !out->name[k])
			return 1;
		words_add(names, out->name);
	}
	return 0;
}

static int limit_set(const struct command *cmd, const char *value, struct ckpt_limits *limits)
{
	const size_t n = strcspn(value, "=");
	char *name = cli_format("%.*s", (int)(n > 200 ? 200 : n), value);
	struct ckpt_limit_info info;
	struct ckpt_err err = { 0 };
	struct words names = { 0 };
	uint64_t bound;
	const char *near;

	if (!value[n])
		return cli_wrong(cmd, "--limit: %s is not NAME=N", out_name(value));
	if (!limit_find(name, &info, &names)) {
		near = opt_nearest(name, names.list);
		return cli_wrong(cmd, "--limit: there is no limit %s%s%s (docs/limits.md has all)",
				 out_name(name), near ? "; did you mean " : "", near ? near : "");
	}
	value += n + 1;
	if (opt_size_parse(value, &bound) ||
	    (!info.is_bytes && value[strspn(value, "0123456789")]))
		return cli_wrong(cmd, "--limit %s: %s is not a %s", info.name, out_name(value),
				 info.is_bytes ? "size; sizes are 5GB, 512MiB, 1.5TB" : "number");
	if (ckpt_limits_set(limits, info.name, bound, &err))
		return cli_wrong(cmd, "--limit: %s", err.msg);
	return 0;
}

static int value_set(const struct command *cmd, const struct opt *opt, const char *value,
		     struct args *args)
{
	char *field = (char *)args + opt->where;
	int chosen;

	switch (opt->kind) {
	case OPT_TEXT:
		*(const char **)(void *)field = value;
		return 0;
	case OPT_WORDS:
		words_add((struct words *)(void *)field, value);
		return 0;
	case OPT_COMMAS:
		if (!commas_add((struct words *)(void *)field, value))
			return 0;
		return cli_wrong(cmd, "--%s: a word of %s is empty", opt->name, out_name(value));
	case OPT_COUNT:
		if (!count_parse(value, (uint64_t *)(void *)field))
			return 0;
		return cli_wrong(cmd, "--%s: %s is not a number", opt->name, out_name(value));
	case OPT_SIZE:
		if (!opt_size_parse(value, (uint64_t *)(void *)field) &&
		    *(uint64_t *)(void *)field)
			return 0;
		return cli_wrong(cmd, "--%s: %s is not a size; sizes are 5GB, 512MiB, 1.5TB",
				 opt->name, out_name(value));
	case OPT_LIMIT:
		return limit_set(cmd, value, (struct ckpt_limits *)(void *)field);
	case OPT_CHOICE:
		chosen = choice_parse(opt->value, value);
		if (chosen < 0)
			return cli_wrong(cmd, "--%s: %s is none of %s", opt->name,
					 out_name(value), opt->value);
		*(int *)(void *)field = chosen;
		return 0;
	case OPT_END:
	case OPT_FLAG:
		break;
	}
	return cli_wrong(cmd, "--%s takes no value", opt->name);
}

/* ---------------------------------------------------------------- parsing */

/* Whether 'word', n letters, is the name. */
static int is_name(const char *word, size_t n, const char *name)
{
	for (size_t i = 0; i < n; i++)
		if (!name[i] || fold(word[i]) != name[i])
			return 0;
	return !name[n];
}

static const struct opt *find_long(const struct command *cmd, const char *word, size_t n,
				   int *no_out)
{
	for (const struct opt *const *table = cmd->tables; *table; table++) {
		for (const struct opt *opt = *table; opt->kind; opt++) {
			*no_out = 0;
			if (is_name(word, n, opt->name))
				return opt;
			*no_out = 1;
			if ((opt->flags & OPT_NEGATABLE) && n > 3 && is_name(word, 3, "no-") &&
			    is_name(word + 3, n - 3, opt->name))
				return opt;
		}
	}
	return NULL;
}

static const struct opt *find_letter(const struct command *cmd, char letter)
{
	for (const struct opt *const *table = cmd->tables; *table; table++)
		for (const struct opt *opt = *table; opt->kind; opt++)
			if (opt->letter == letter)
				return opt;
	return NULL;
}

static int unknown_option(const struct command *cmd, const char *word, size_t n)
{
	char *name = cli_format("%.*s", (int)(n > 200 ? 200 : n), word);
	struct words names = { 0 };
	const char *near;

	for (const struct opt *const *table = cmd->tables; *table; table++)
		for (const struct opt *opt = *table; opt->kind; opt++)
			if (!(opt->flags & OPT_HIDDEN))
				words_add(&names, opt->name);
	near = opt_nearest(name, names.list);
	if (near)
		return cli_wrong(cmd, "there is no option --%s; did you mean --%s?",
				 out_name(name), near);
	return cli_wrong(cmd, "there is no option --%s", out_name(name));
}

static int parse_long(const struct command *cmd, char **argv, int argc, int *i,
		      struct args *args)
{
	const char *word = argv[*i] + 2, *value;
	size_t n = strcspn(word, "=");
	const struct opt *opt;
	int no;

	opt = find_long(cmd, word, n, &no);
	if (!opt)
		return unknown_option(cmd, word, n);
	if (opt->kind == OPT_FLAG) {
		if (word[n])
			return cli_wrong(cmd, "--%s takes no value", opt->name);
		*(int *)(void *)((char *)args + opt->where) = !no;
		return 0;
	}
	if (word[n])
		value = word + n + 1;
	else if (*i + 1 < argc)
		value = argv[++*i];
	else
		return cli_wrong(cmd, "--%s needs a value (%s)", opt->name, opt->value);
	return value_set(cmd, opt, value, args);
}

static int parse_letters(const struct command *cmd, char **argv, int argc, int *i,
			 struct args *args)
{
	for (const char *at = argv[*i] + 1; *at; at++) {
		const struct opt *opt = find_letter(cmd, *at);

		if (!opt)
			return cli_wrong(cmd, "there is no option -%c in %s",
					 isprint((unsigned char)*at) ? *at : '?',
					 out_name(argv[*i]));
		if (opt->kind == OPT_FLAG) {
			*(int *)(void *)((char *)args + opt->where) = 1;
			continue;
		}
		if (at[1])
			return value_set(cmd, opt, at + 1, args);
		if (*i + 1 >= argc)
			return cli_wrong(cmd, "-%c needs a value (%s)", *at, opt->value);
		return value_set(cmd, opt, argv[++*i], args);
	}
	return 0;
}

int opt_parse(const struct command *cmd, int argc, char **argv, struct args *args)
{
	int rc = 0, ended = 0;

	for (int i = 0; i < argc && !rc; i++) {
		if (ended || argv[i][0] != '-' || !argv[i][1])
			words_add(&args->rest, argv[i]);
		else if (!strcmp(argv[i], "--"))
			ended = 1;
		else if (argv[i][1] == '-')
			rc = parse_long(cmd, argv, argc, &i, args);
		else
			rc = parse_letters(cmd, argv, argc, &i, args);
		if (args->help)
			return 0;
	}
	return rc;
}

/* ---------------------------------------------------------------- help */

/* Words of 'text' from 'column' on, further lines indented by 'indent'. */
static void wrap(FILE *out, const char *text, size_t column, size_t indent)
{
	while (*text) {
		size_t n = strcspn(text, " \n");

		if (column > indent && column + 1 + n > HELP_WIDTH) {
			fprintf(out, "\n%*s", (int)indent, "");
			column = indent;
		} else if (column > indent) {
			fputc(' ', out);
			column++;
		}
		fprintf(out, "%.*s", (int)n, text);
		column += n;
		text += n;
		if (*text == '\n') {
			fprintf(out, "\n%*s", (int)indent, "");
			column = indent;
		}
		text += *text != 0;
	}
	fputc('\n', out);
}

static void help_option(const struct opt *opt, FILE *out)
{
	char left[80];
	int n;

	n = snprintf(left, sizeof(left), "  %c%c%s--%s%s%s", opt->letter ? '-' : ' ',
		     opt->letter ? opt->letter : ' ', opt->letter ? ", " : "  ", opt->name,
		     opt->value ? " " : "", opt->value ? opt->value : "");
	fputs(left, out);
	if (n + 2 > HELP_COLUMN)
		fprintf(out, "\n%*s", HELP_COLUMN, "");
	else
		fprintf(out, "%*s", HELP_COLUMN - n, "");
	wrap(out, opt->help, HELP_COLUMN, HELP_COLUMN);
}

void opt_help(const struct command *cmd, FILE *out)
{
	fprintf(out, "usage: zckpt %s [OPTION...] %s\n\n", cmd->name, cmd->synopsis);
	wrap(out, cmd->about, 0, 0);
	fputc('\n', out);
	for (const struct opt *const *table = cmd->tables; *table; table++)
		for (const struct opt *opt = *table; opt->kind; opt++)
			if (!(opt->flags & OPT_HIDDEN))
				help_option(opt, out);
	if (cmd->notes) {
		fputc('\n', out);
		wrap(out, cmd->notes, 0, 0);
	}
}
