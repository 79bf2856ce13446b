/* cli_opt_complete.c -- see cli_opt_complete.h. */
#include "cli_opt_complete.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

/* ---------------------------------------------------------------- reading */

/* The option of that name, of 'n' letters, or of that letter; NULL = there is none. */
static const struct opt *find(const struct opt *const *tables, const char *name, size_t n,
			      char letter)
{
	char *wanted = cli_format("%.*s", (int)(n > 200 ? 200 : n), name);
	const struct opt *found = NULL;

	for (; *tables && !found; tables++)
		for (const struct opt *opt = *tables; opt->kind && !found; opt++)
			if (opt->kind != OPT_HEADING &&
			    (letter ? opt->letter == letter : opt_is_name(wanted, opt->name)))
				found = opt;
	cli_free(wanted);
	return found;
}

static int has_value(const struct opt *opt)
{
	return opt && opt->kind != OPT_FLAG;
}

/* The option whose value is the next word, if 'word' is such a one. */
static const struct opt *waiting(const struct opt *const *tables, const char *word)
{
	const struct opt *opt;

	if (word[1] == '-')
		return strchr(word, '=') ? NULL : find(tables, word + 2, strlen(word + 2), 0);
	for (word++; *word; word++) {
		opt = find(tables, NULL, 0, *word);
		if (has_value(opt))
			return word[1] ? NULL : opt;
	}
	return NULL;
}

/* The part of 'typed->word' after its first 'n' bytes is what is completed. */
static void cut(struct typed *typed, size_t n)
{
	typed->head = cli_format("%s%.*s", typed->head, (int)n, typed->word);
	typed->word += n;
}

static void read_last(const struct opt *const *tables, struct typed *typed)
{
	const char *word = typed->word, *equals = strchr(word, '='), *comma;

	if (!typed->opt && word[0] == '-' && word[1] == '-' && equals) {
		typed->opt = find(tables, word + 2, (size_t)(equals - word) - 2, 0);
		if (!has_value(typed->opt))
			typed->opt = NULL;
		cut(typed, (size_t)(equals - word) + 1);
	} else if (!typed->opt && word[0] == '-') {
		typed->is_option = 1;
	}
	comma = typed->opt && typed->opt->kind == OPT_COMMAS ? strrchr(typed->word, ',') : NULL;
	if (comma)
		cut(typed, (size_t)(comma - typed->word) + 1);
}

void complete_read(const struct opt *const *tables, int argc, char **argv,
		   struct typed *typed_out)
{
	struct typed typed = { .word = argc ? argv[argc - 1] : "", .head = "" };
	int only_words = 0;

	for (int i = 0; i + 1 < argc; i++) {
		const struct opt *opt;

		if (!only_words && !strcmp(argv[i], "--")) {
			only_words = 1;
			continue;
		}
		if (only_words || argv[i][0] != '-' || !argv[i][1]) {
			words_add(&typed.rest, argv[i]);
			continue;
		}
		opt = waiting(tables, argv[i]);
		if (has_value(opt) && ++i + 1 == argc)
			typed.opt = opt;
	}
	if (!only_words)
		read_last(tables, &typed);
	*typed_out = typed;
}

/* ---------------------------------------------------------------- answers */

void complete_kind(const char *kind)
{
	puts(kind);
}

void complete_word(const struct typed *typed, const char *word, const char *about)
{
	if (strncasecmp(word, typed->word, strlen(typed->word)) || strpbrk(word, "\t\n"))
		return;
	printf("%s%s%s%.*s\n", typed->head, word, about ? "\t" : "",
	       about ? (int)strcspn(about, "\n") : 0, about ? about : "");
}

void complete_options(const struct opt *const *tables, const struct typed *typed)
{
	complete_kind(COMPLETE_WORDS);
	for (; *tables; tables++) {
		for (const struct opt *opt = *tables; opt->kind; opt++) {
			char *name;

			if (opt->kind == OPT_HEADING || (opt->flags & OPT_HIDDEN))
				continue;
			name = cli_format("--%s", opt->name);
			complete_word(typed, name, opt->help);
			cli_free(name);
			name = cli_format("--no-%s", opt->name);
			if (opt->flags & OPT_NEGATABLE)
				complete_word(typed, name, opt->help);
			cli_free(name);
		}
	}
}

static int is_placeholder(const char *text, size_t n)
{
	return n && isupper((unsigned char)*text) &&
	       strcspn(text, "abcdefghijklmnopqrstuvwxyz") >= n;
}

/* What a placeholder of a table is: FILE, DIR, ...; NULL = no path. */
static const char *kind_of(const char *value)
{
	static const char *const files[] = { "FILE", "PATH", "DST", NULL };
	static const char *const folders[] = { "DIR", "FOLDER", "RUN", NULL };

	for (; value; value = strchr(value, '|') ? strchr(value, '|') + 1 : NULL) {
		const size_t n = strcspn(value, "|");

		for (int i = 0; files[i]; i++)
			if (n == strlen(files[i]) && !strncmp(value, files[i], n))
				return COMPLETE_FILES;
		for (int i = 0; folders[i]; i++)
			if (n == strlen(folders[i]) && !strncmp(value, folders[i], n))
				return COMPLETE_FOLDERS;
	}
	return NULL;
}

int complete_value(const struct typed *typed)
{
	const struct opt *opt = typed->opt;
	const struct opt_own *own = opt->kind == OPT_OWN ? opt->to : NULL;
	const char *kind = kind_of(opt->value), *text = opt->value;

	if (!(own && own->choice) && !kind && !strchr(text, '|'))
		return 0;
	complete_kind(kind ? kind : COMPLETE_WORDS);
	for (int i = 0; own && own->choice && own->choice[i]; i++)
		complete_word(typed, own->choice[i], NULL);
	while (!(own && own->choice) && *text) {
		const size_t n = strcspn(text, "|");
		char *word = cli_format("%.*s", (int)n, text);

		if (!is_placeholder(text, n))
			complete_word(typed, word, NULL);
		cli_free(word);
		text += n + (text[n] == '|');
	}
	return 1;
}
