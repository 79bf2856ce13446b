/* cli_unknown.c -- options of other programs: which one of ours they mean, and the call with it. */
#include <string.h>

#include "cli.h"

/*
 * 'verb' NULL: every verb that has 'option'.  Without 'option' the word is left out, and 'say' is
 * why.  'value' stands before the value.
 */
static const struct meaning {
	const char *word, *verb, *option, *value, *say;
} meanings[] = {
	{ "precision", NULL, "dtype", "", NULL },
	{ "torch-dtype", NULL, "dtype", "", NULL },
	{ "data-type", NULL, "dtype", "", NULL },
	{ "learning-rate", NULL, "lr", "", NULL },
	{ "rtol", NULL, "tolerance", "rel:", NULL },
	{ "atol", NULL, "tolerance", "", NULL },
	{ "overwrite", NULL, "force", NULL, NULL },
	{ "yes", NULL, "apply", NULL, NULL },
	{ "y", NULL, "apply", NULL, NULL },
	{ "y", NULL, "force", NULL, NULL },
	{ "yes", NULL, "force", NULL, NULL },
	{ "base", NULL, "aux", "", NULL },
	{ "base-model", NULL, "aux", "", NULL },
	{ "config", "convert", "aux", "", "--aux DIR is the folder with config.json" },
	{ "tokenizer", "convert", "aux", "", "--aux DIR is the folder with the tokenizer" },
	{ "lora", "convert", "to peft", NULL, "--to peft writes the adapter of a run" },
	{ "adapter", "convert", "to peft", NULL, "--to peft writes the adapter of a run" },
	{ "zero", NULL, "stage", "", NULL },
	{ "zero-stage", NULL, "stage", "", NULL },
	{ "last", NULL, "keep-last", "", NULL },
	{ "keep", NULL, "keep-last", "", NULL },
	{ "deep", "verify", "full", NULL, NULL },
	{ "dry-run", "prune", NULL, NULL, "without --apply prune only shows what it would do" },
	{ "lazy-mode", NULL, NULL, NULL,
	  "zckpt never holds a whole model in memory; leave it out" },
};

/* "precision" of "--precision=bf16". */
static char *name_of(const char *word)
{
	const char *name = word + strspn(word, "-");

	return cli_format("%.*s", (int)strcspn(name, "="), name);
}

static int has_option(const struct opt_call *call, const char *option)
{
	char *name = cli_format("%.*s", (int)strcspn(option, " "), option);
	const int yes = opt_find(call, name) != NULL;

	cli_free(name);
	return yes;
}

static const struct meaning *find(const struct opt_call *call, const struct command *cmd,
				  const char *name)
{
	for (size_t i = 0; i < sizeof(meanings) / sizeof(meanings[0]); i++) {
		const struct meaning *m = &meanings[i];

		if (opt_is_name(name, m->word) && (!m->verb || !strcmp(m->verb, cmd->name)) &&
		    (!m->option || has_option(call, m->option)))
			return m;
	}
	return NULL;
}

int cli_is_meant(const struct opt_call *call, const char *name)
{
	return find(call, call->arg, name) != NULL;
}

/* The call with '--OPTION' (NULL: nothing) in place of 'word', and 'before' at its value. */
static char *call_with(const char *word, const char *option, const char *before)
{
	char *text = cli_strdup("zckpt");
	const char *equals = strchr(word, '=');

	for (int i = 1; i < cli_args.argc; i++) {
		const char *at = cli_args.argv[i];

		if (at != word) {
			text = cli_format("%s %s", text, cli_argument(at));
			continue;
		}
		if (option)
			text = cli_format("%s --%s", text, option);
		if (option && equals)
			text = cli_format("%s=%s%s", text, before, out_word(equals + 1));
		else if (*before && i + 1 < cli_args.argc)
			text = cli_format("%s %s%s", text, before, out_word(cli_args.argv[++i]));
	}
	return text;
}

/* Whether one of the words of --color follows, as in "--colour always". */
static int has_choice(const char *word)
{
	static const char *const words[] = { "auto", "always", "never" };

	for (int i = 1; i + 1 < cli_args.argc; i++)
		for (size_t k = 0; cli_args.argv[i] == word && k < 3; k++)
			if (!strcmp(cli_args.argv[i + 1], words[k]))
				return 1;
	return strchr(word, '=') != NULL;
}

int cli_unknown_option(const struct opt_call *call, const char *word, const char *near)
{
	const struct command *cmd = call->arg;
	char *name = name_of(word);
	const struct meaning *m = find(call, cmd, name);
	const char *dashes = word[1] == '-' ? "--" : "-";

	if (near && dashes[1] != '-')
		return cli_try(cmd, call_with(word, near, ""), "%s: --%s has two dashes",
			       out_name(word), near);
	if (m && m->say)
		return cli_try(cmd, call_with(word, m->option, m->value ? m->value : ""),
			       "there is no option %s%s: %s", dashes, out_name(name), m->say);
	if (m)
		near = m->option;
	else if (near && !strcmp(near, "color") && !has_choice(word))
		near = "color=always";
	if (near)
		return cli_try(cmd, call_with(word, near, m && m->value ? m->value : ""),
			       "there is no option %s%s; did you mean --%s?", dashes,
			       out_name(name), near);
	return cli_wrong(cmd, "there is no option %s%s", dashes, out_name(name));
}
