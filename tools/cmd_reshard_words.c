/* cmd_reshard_words.c -- `zckpt reshard`: words that were meant as numbers of ranks. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli_arrow.h"
#include "cmd_reshard_words.h"

extern const struct command cmd_reshard;

const char *reshard_new_name(const char *src)
{
	size_t n = strlen(src);

	while (n > 1 && src[n - 1] == '/')
		n--;
	return out_word(cli_format("%.*s-resharded", (int)n, src));
}

char *reshard_words_from(const struct args *args, size_t first)
{
	char *text = cli_strdup("");

	for (size_t i = first; i < args->rest.n; i++)
		text = cli_format("%s %s", text, out_word(args->rest.list[i]));
	if (args->rest.n == first && !args->output)
		text = cli_strdup(" run run-resharded");
	else if (args->rest.n == first + 1 && !args->output)
		text = cli_format("%s %s", text, reshard_new_name(args->rest.list[first]));
	if (args->output)
		text = cli_format("%s -o %s", text, out_word(args->output));
	return text;
}

/* An arrow without quotes: what the shell made of it, and the call that was meant. */
static int wrong_redirect(const struct words *words, uint64_t from)
{
	const char *made = arrow_made_file();
	uint64_t to = 0;
	char *rest = cli_strdup(""), *call;

	for (size_t i = 0; i < words->n; i++)
		rest = cli_format("%s %s", rest, out_word(words->list[i]));
	if (made && !(to = arrow_number(made)) && words->n == 1)
		rest = cli_format("%s %s", rest, out_word(made));	/* RUN -> DST */
	else if (words->n < 2 && !cli_args.output)
		rest = words->n ? cli_format("%s %s", rest, reshard_new_name(words->list[0])) :
		       cli_strdup(" run run-resharded");
	if (cli_args.output)
		rest = cli_format("%s -o %s", rest, out_word(cli_args.output));
	if (!to)
		to = from > 1 ? from / 2 : 4;
	call = from ? cli_format("zckpt reshard '%" PRIu64 "->%" PRIu64 "'%s", from, to, rest) :
		      cli_format("zckpt reshard --world %" PRIu64 "%s", to, rest);
	if (made)
		call = cli_format("rm %s && %s", out_word(made), call);
	return cli_try(&cmd_reshard, call, "the shell used the '>' of '->' as a redirection%s%s: "
		       "write the arrow in quotes, 'N->M'", made ? " and made an empty file " : "",
		       made ? out_name(made) : "");
}

int reshard_check_torn(const struct args *args)
{
	struct words words = { 0 };
	int is_torn = 0;
	uint64_t from = 0, n;

	for (size_t i = 0; i < args->rest.n; i++) {
		const char *word = args->rest.list[i];
		const int is_dash = !strcmp(word, "-") || !strcmp(word, "=");

		is_torn |= is_dash || arrow_is_torn(word);
		if (arrow_is_torn(word) || arrow_is_number(word, &n))
			from = strtoull(word, NULL, 10);
		else if (!is_dash)
			words_add(&words, word);
	}
	return is_torn ? wrong_redirect(&words, from) : 0;
}

int reshard_check_numbers(const struct args *args)
{
	struct words words = { 0 };
	uint64_t number[2] = { 0 }, n;
	size_t found = 0;
	char *call;

	for (size_t i = 0; i < args->rest.n; i++) {
		if (arrow_is_number(args->rest.list[i], &n) && found++ < 2)
			number[found - 1] = n;
		else
			words_add(&words, args->rest.list[i]);
	}
	if (!found || found > 2 || words.n + (args->output != NULL) < 2)
		return 0;
	call = found == 2 ? cli_format("zckpt reshard '%" PRIu64 "->%" PRIu64 "'", number[0],
				       number[1]) :
	       cli_format("zckpt reshard --world %" PRIu64, number[0]);
	for (size_t i = 0; i < words.n; i++)
		call = cli_format("%s %s", call, out_word(words.list[i]));
	if (args->output)
		call = cli_format("%s -o %s", call, out_word(args->output));
	return cli_try(&cmd_reshard, call, "there is no folder %" PRIu64 "; a number of ranks is "
		       "--world M or 'N->M'", number[0]);
}

int reshard_wrong_spec(const struct args *args, const char *word)
{
	const char *digits = "0123456789", *to = word + strspn(word, digits);
	const int n = (int)(to - word), m = (int)strspn(to += strcspn(to, digits), digits);

	return cli_try(&cmd_reshard, cli_format("zckpt reshard '%.*s->%.*s'%s", n, word,
						m ? m : 1, m ? to : "4",
						reshard_words_from(args, 1)),
		       "%s: numbers of ranks are written 'N->M'", out_name(word));
}
