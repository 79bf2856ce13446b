/*
 * cli_call.c -- the call that was typed, with another source, tag or destination: what the last
 * line of a message offers.
 */
#include <string.h>

#include "cli_advice.h"

static void add_word(char **call, const char *word)
{
	const size_t dashes = word[0] == '-' && word[1] ? strspn(word, "-") : 0;
	char *longer = cli_format("%s %.*s%s", *call, (int)dashes, word,
				  word[dashes] ? out_word(word + dashes) : "");

	cli_free(*call);
	*call = longer;
}

/* How many words a '--tag NAME' has here: 0 if it is none. */
static int tag_words(const char *word)
{
	if (!strcmp(word, "--tag") || !strcmp(word, "-t"))
		return 2;
	return !strncmp(word, "--tag=", 6) || (!strncmp(word, "-t", 2) && word[2]);
}

static int is_source(const struct words *sources, const char *word, size_t from)
{
	for (size_t i = from; i < sources->n; i++)
		if (word == sources->list[i])
			return 1;
	return 0;
}

/* With 'alone' the other sources are left out. */
static char *call_of(const struct args *args, const char *tag, const char *to, const char *more,
		     int alone)
{
	char *call = cli_format("zckpt %s", args->argv[1]);
	const struct words *sources = &args->sources;

	if (tag) {
		add_word(&call, "--tag");
		add_word(&call, tag);
	}
	for (int i = 2; i < args->argc; i++) {
		const char *word = args->argv[i];
		const int skipped = tag ? tag_words(word) : 0;

		if (skipped) {
			i += skipped - 1;
			continue;
		}
		if (alone && is_source(sources, word, 1))
			continue;
		if (sources->n && word == sources->list[0])
			add_word(&call, to ? to : args->meant ? args->meant : word);
		else
			add_word(&call, word);
		if (more && sources->n && word == sources->list[sources->n - 1])
			add_word(&call, more);
	}
	return call;
}

char *advice_call(const struct args *args, const char *tag, const char *to, const char *more)
{
	return call_of(args, tag, to, more, 0);
}

char *advice_alone(const struct args *args, const char *source)
{
	return call_of(args, NULL, source, NULL, 1);
}

char *advice_dst(const struct args *args, const char *dst, const char *to)
{
	char *call = cli_format("zckpt %s", args->argv[1]);

	for (int i = 2; i < args->argc; i++)
		add_word(&call, args->argv[i] == dst ? to : args->argv[i]);
	return call;
}

char *advice_swapped(const struct args *args, const char *a, const char *b)
{
	char *call = cli_format("zckpt %s", args->argv[1]);

	for (int i = 2; i < args->argc; i++) {
		const char *word = args->argv[i];

		add_word(&call, word == a ? b : word == b ? a : word);
	}
	return call;
}

/* Verbs whose call makes sense with another step; after the others, convert is next. */
static int is_repeatable(const struct args *args)
{
	static const char *const verbs[] = {
		"convert", "reshard", "cat", "map", "digest", "slim", "pack", "plan", "inspect",
		"verify", NULL,
	};

	for (size_t i = 0; verbs[i]; i++)
		if (!strcmp(args->argv[1], verbs[i]))
			return 1;
	return 0;
}

int advice_takes_folders(const struct args *args)
{
	static const char *const verbs[] = {
		"convert", "reshard", "inspect", "verify", "map", "digest", NULL,
	};

	for (size_t i = 0; verbs[i]; i++)
		if (!strcmp(args->argv[1], verbs[i]))
			return 1;
	return 0;
}

/* The verb that was typed, or 'convert' for one that only looks. */
char *advice_step(const struct args *args, const char *src, const char *tag, const char *path)
{
	char *call, *words;

	if (is_repeatable(args))
		return advice_call(args, tag, path, NULL);
	call = cli_strdup("zckpt convert");
	if (tag) {
		add_word(&call, "--tag");
		add_word(&call, tag);
	}
	add_word(&call, path ? path : src);
	words = cli_format("%s model.safetensors", call);
	cli_free(call);
	return words;
}

char *advice_with(const struct args *args, const char *path)
{
	/* what only looks has been answered */
	if (!strcmp(args->argv[1], "inspect") || !strcmp(args->argv[1], "verify"))
		return cli_format("zckpt convert %s model.safetensors", out_word(path));
	return advice_step(args, path, NULL, path);
}

char *advice_whole(const struct args *args, const char *step)
{
	return is_repeatable(args) ? advice_call(args, NULL, step, NULL) :
	       cli_format("zckpt inspect %s", out_word(step));
}
