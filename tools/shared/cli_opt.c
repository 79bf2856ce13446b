/* cli_opt.c -- see cli_opt.h: parsing, and the nearest name. */
#include "cli_opt.h"

#include <ctype.h>
#include <string.h>

#include "cli_text.h"

/* ---------------------------------------------------------------- nearest */

static char fold(char c)
{
	return c == '_' ? '-' : (char)tolower((unsigned char)c);
}

int opt_is_name(const char *a, const char *b)
{
	while (*a && fold(*a) == fold(*b)) {
		a++;
		b++;
	}
	return !*a && !*b;
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

/* ---------------------------------------------------------------- parsing */

/* The option after 'opt' (NULL = the first) in the tables from '*table' on; NULL at the end. */
static const struct opt *next_opt(const struct opt *const **table, const struct opt *opt)
{
	for (opt = opt ? opt + 1 : **table; opt; opt = *++*table) {
		while (opt->kind == OPT_HEADING)
			opt++;
		if (opt->kind)
			return opt;
	}
	return NULL;
}

/* Whether 'name' begins with 'word', as opt_is_name() compares. */
static int begins(const char *word, const char *name)
{
	while (*word && fold(*word) == fold(*name)) {
		word++;
		name++;
	}
	return !*word;
}

/* The option whose name alone begins so; NULL, with '*names' of those that do, if several do. */
static const struct opt *find_begun(const struct opt_call *call, const char *word, unsigned hidden,
				    int *no_out, struct words *names)
{
	const struct opt *const *table = call->tables;
	const struct opt *opt = NULL, *found = NULL;
	int several = 0;

	while ((opt = next_opt(&table, opt)) != NULL) {
		const int no = (opt->flags & OPT_NEGATABLE) && !strncmp(word, "no-", 3) &&
			       word[3] && begins(word + 3, opt->name);

		if ((opt->flags & OPT_HIDDEN) != hidden || (!no && !begins(word, opt->name)))
			continue;
		words_add(names, no ? cli_format("no-%s", opt->name) : opt->name);
		several |= found && found->to != opt->to;
		found = opt;
		*no_out = no;
	}
	return several ? NULL : found;
}

/* Of those that are listed; else of the others. */
static const struct opt *find_beginning(const struct opt_call *call, const char *word, int *no_out,
					struct words *names)
{
	const struct opt *opt = find_begun(call, word, 0, no_out, names);

	return names->n ? opt : find_begun(call, word, OPT_HIDDEN, no_out, names);
}

static const struct opt *find_long(const struct opt_call *call, const char *name, int *no_out)
{
	const struct opt *const *table = call->tables;
	const struct opt *opt = NULL;

	while ((opt = next_opt(&table, opt)) != NULL) {
		*no_out = (opt->flags & OPT_NEGATABLE) && fold(name[0]) == 'n' &&
			  fold(name[1]) == 'o' && fold(name[2]) == '-' &&
			  opt_is_name(name + 3, opt->name);
		if (*no_out || opt_is_name(name, opt->name))
			return opt;
	}
	return NULL;
}

const struct opt *opt_find(const struct opt_call *call, const char *name)
{
	int no;

	return find_long(call, name, &no);
}

static const struct opt *find_letter(const struct opt_call *call, char letter)
{
	const struct opt *const *table = call->tables;
	const struct opt *opt = NULL;

	do
		opt = next_opt(&table, opt);
	while (opt && opt->letter != letter);
	return opt;
}

static int ambiguous_option(const struct opt_call *call, const char *name,
			    const struct words *names)
{
	char *list = cli_strdup("");

	for (size_t i = 0; i < names->n; i++)
		list = cli_format("%s%s--%s", list, i ? ", " : "", names->list[i]);
	return opt_wrong(call, "--%s may be any of %s", out_name(name), list);
}

static int unknown_option(const struct opt_call *call, const char *word, const char *name)
{
	const struct opt *const *table = call->tables;
	const struct opt *opt = NULL;
	struct words names = { 0 };
	const char *near, *meant = call->meant ? call->meant(name) : NULL;

	if (meant)
		return opt_wrong(call, "there is no option --%s; %s", out_name(name), meant);
	while ((opt = next_opt(&table, opt)) != NULL)
		if (!(opt->flags & OPT_HIDDEN))
			words_add(&names, opt->name);
	near = opt_nearest(name, names.list);
	if (call->unknown)
		return call->unknown(call, word, near);
	if (near)
		return opt_wrong(call, "there is no option --%s; did you mean --%s?",
				 out_name(name), near);
	return opt_wrong(call, "there is no option --%s", out_name(name));
}

/* A call that is under way. */
struct parse {
	const struct opt_call *call;
	int argc, i;		/* argv[i] is read */
	char **argv;
	int ended;		/* by an option with OPT_LAST */
};

static int set_flag(struct parse *p, const struct opt *opt, int value)
{
	*(int *)opt->to = value;
	p->ended = (opt->flags & OPT_LAST) != 0;
	return 0;
}

static int parse_long(struct parse *p)
{
	const char *word = p->argv[p->i] + 2;
	const size_t n = strcspn(word, "=");
	char *name = cli_format("%.*s", (int)(n > 200 ? 200 : n), word);
	struct words names = { 0 };
	const struct opt *opt;
	int no;

	opt = find_long(p->call, name, &no);
	if (!opt && *name)
		opt = find_beginning(p->call, name, &no, &names);
	if (!opt && names.n && !(p->call->is_meant && p->call->is_meant(p->call, name)))
		return ambiguous_option(p->call, name, &names);
	if (!opt)
		return unknown_option(p->call, p->argv[p->i], name);
	cli_free(name);
	if (opt->kind == OPT_FLAG && word[n])
		return opt_wrong(p->call, "--%s takes no value", opt->name);
	if (opt->kind == OPT_FLAG)
		return set_flag(p, opt, !no);
	if (word[n])
		return opt_set(p->call, opt, word + n + 1);
	if (p->i + 1 >= p->argc)
		return opt_wrong(p->call, "--%s needs a value (%s)", opt->name, opt->value);
	return opt_set(p->call, opt, p->argv[++p->i]);
}

/* "-force", "-dtype": the name of an option after one dash. */
static const struct opt *find_one_dash(const struct opt_call *call, const char *word)
{
	const size_t n = strcspn(word + 1, "=");
	char *name = cli_format("%.*s", (int)(n > 200 ? 200 : n), word + 1);
	const struct opt *opt = n > 2 ? opt_find(call, name) : NULL;

	cli_free(name);
	return opt;
}

static int parse_letters(struct parse *p)
{
	const char *word = p->argv[p->i];
	const struct opt *whole = find_one_dash(p->call, word);

	if (whole && p->call->unknown)
		return p->call->unknown(p->call, word, whole->name);
	if (whole)
		return opt_wrong(p->call, "%s: --%s has two dashes", out_name(word), whole->name);
	for (const char *at = word + 1; *at && !p->ended; at++) {
		const struct opt *opt = find_letter(p->call, *at);

		if (!opt && !word[2] && p->call->unknown)
			return p->call->unknown(p->call, word, NULL);
		if (!opt)
			return opt_wrong(p->call, "there is no option -%c in %s",
					 isprint((unsigned char)*at) ? *at : '?', out_name(word));
		if (opt->kind == OPT_FLAG) {
			set_flag(p, opt, 1);
			continue;
		}
		if (at[1])
			return opt_set(p->call, opt, at + 1);
		if (p->i + 1 >= p->argc)
			return opt_wrong(p->call, "-%c needs a value (%s)", *at, opt->value);
		return opt_set(p->call, opt, p->argv[++p->i]);
	}
	return 0;
}

int opt_parse(const struct opt_call *call, int argc, char **argv)
{
	struct parse p = { .call = call, .argc = argc, .argv = argv };
	int rc = 0, only_words = 0;

	for (; p.i < argc && !rc && !p.ended; p.i++) {
		const char *word = argv[p.i];

		if (only_words || word[0] != '-' || !word[1])
			words_add(call->rest, word);
		else if (!strcmp(word, "--"))
			only_words = 1;
		else if (word[1] == '-')
			rc = parse_long(&p);
		else
			rc = parse_letters(&p);
	}
	return rc;
}
