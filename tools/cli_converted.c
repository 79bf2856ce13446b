/* cli_converted.c -- see cli_converted.h. */
#include "cli_converted.h"

#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "cli_advice.h"

/* Whether the result has a file whose name begins so. */
static int has_file(const struct converted *c, const char *name)
{
	for (uint64_t i = 0; i < c->report->nfiles; i++) {
		const char *slash = strrchr(c->report->files[i].path, '/');

		if (slash && !strncmp(slash + 1, name, strlen(name)))
			return 1;
	}
	return 0;
}

/* Whether the folder has it from before. */
static int was_there(const struct converted *c, const char *name)
{
	char *path = cli_format("%s/%s", c->dst, name);
	const int yes = !has_file(c, name) && !access(path, F_OK);

	cli_free(path);
	return yes;
}

/* With --force other files stay: of which model they are, this run cannot know. */
static void say_what_stays(const struct converted *c)
{
	static const char *const names[] = {
		"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json",
	};
	char *list = NULL, *longer;
	size_t n = 0;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (!was_there(c, names[i]))
			continue;
		longer = cli_format("%s%s%s", list ? list : "", list ? ", " : "", names[i]);
		cli_free(list);
		list = longer;
		n++;
	}
	if (n)
		cli_say("warning: %s in %s %s from before and %s not changed: an earlier model's "
			"dtype or shape would not fit; --aux DIR replaces them", list,
			out_name(c->dst), n == 1 ? "is" : "are", n == 1 ? "was" : "were");
	cli_free(list);
}

/* What a folder of weights lacks, so that transformers would not load it. */
static void say_what_lacks(const struct converted *c)
{
	size_t n = strlen(c->dst);
	int config = has_file(c, "config.json") || was_there(c, "config.json");
	int tokenizer = has_file(c, "tokenizer") || has_file(c, "vocab") ||
			has_file(c, "spiece") || was_there(c, "tokenizer.json") ||
			was_there(c, "tokenizer.model") || was_there(c, "vocab.json");

	if (!c->report->nfiles || strncmp(c->report->files[0].path, c->dst, n) ||
	    !c->report->files[0].path[n] || c->of_states)
		return;
	say_what_stays(c);
	if (config && tokenizer)
		return;
	cli_say("warning: %s has no %s%s%s, because the checkpoint has none; add --aux "
		"MODEL_FOLDER to copy %s", out_name(c->dst), config ? "" : "config.json",
		config || tokenizer ? "" : " or ", tokenizer ? "" : "tokenizer",
		config || tokenizer ? "it" : "them");
}

/* An adapter of PEFT is recognised by a file that is of no use beside model.safetensors. */
static void say_adapter(const struct converted *c)
{
	struct ckpt_info info;
	char *dir, *at;

	ckpt_info_get(c->ck, &info);
	dir = cli_strdup(info.path);
	for (int i = 0; i < 2; i++) {
		char *up = advice_parent(dir);

		at = cli_format("%s/adapter_config.json", dir);
		if (!access(at, R_OK)) {
			cli_say("note: %s is not copied, because these are weights of an "
				"adapter, or of a model with one; --to peft writes both "
				"for PEFT", out_name(at));
			i = 2;
		}
		cli_free(at);
		cli_free(dir);
		dir = up;
	}
	cli_free(dir);
}

void converted_say(const struct converted *c)
{
	say_what_lacks(c);
	if (!c->merged)
		say_adapter(c);
}
