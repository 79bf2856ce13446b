/* zt_command.c -- see zt_command.h. */
#include "engine/main/zt_command.h"

#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "engine/main/zt_say.h"
#include "tools/shared/cli_mem.h"
#include "tools/shared/cli_opt.h"
#include "tools/shared/cli_text.h"

const struct zt_command zt_commands[] = {
	{ "bench", "measure speed and memory" },
	{ "eval", "loss of a step or model on other rows" },
	{ "generate", "continue a prompt" },
	{ "report", "charts and a table of logs" },
	{ "log", "logs as TensorBoard's files" },
	{ "config", "print accelerate YAML as DeepSpeed JSON" },
	{ NULL, NULL },
};

#define NCOMMANDS (sizeof(zt_commands) / sizeof(zt_commands[0]) - 1)

/* Words of other programs, and what ztrain has for each; "" = a run, which has no command. */
static const struct {
	const char *word, *give;
} others[] = {
	{ "train", "" }, { "run", "" }, { "resume", "" }, { "finetune", "" }, { "sft", "" },
	{ "evaluate", "eval" }, { "evaluation", "eval" }, { "validate", "eval" },
	{ "test", "eval" }, { "perplexity", "eval" }, { "benchmark", "bench" },
	{ "sample", "generate" }, { "infer", "generate" }, { "inference", "generate" },
	{ "chat", "generate" }, { "plot", "report" }, { "chart", "report" },
	{ "curves", "report" }, { "tensorboard", "log" }, { "help", "--help" },
	{ "version", "--version" },
};

bool zt_is_command(const char *word)
{
	for (size_t i = 0; i < NCOMMANDS; i++)
		if (!strcmp(zt_commands[i].name, word))
			return true;
	return false;
}

/* NULL: nothing is near. */
static const char *meant(const char *word)
{
	const char *names[NCOMMANDS + 1] = { NULL };

	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		if (opt_is_name(word, others[i].word))
			return others[i].give;
	for (size_t i = 0; i < NCOMMANDS; i++)
		names[i] = zt_commands[i].name;
	return opt_nearest(word, names);
}

int zt_wrong_command(int argc, char **argv)
{
	const char *word = argv[1], *give = meant(word);
	const char *call = cli_format("ztrain%s%s", give && *give ? " " : "", give ? give : "");

	for (int i = 2; i < argc; i++)
		call = cli_format("%s %s", call, cli_argument(argv[i]));
	if (!access(word, F_OK))
		zt_say_error("ztrain: ", "%s is a path; its option comes before it: --model, "
			     "--config, --data or --resume (see ztrain --help)", out_name(word));
	else if (!give)
		zt_say_error("ztrain: ", "there is no command %s (see ztrain --help)",
			     out_name(word));
	else if (!*give)
		zt_say_error("ztrain: ", "there is no command %s; ztrain trains without one",
			     out_name(word));
	else
		zt_say_error("ztrain: ", "there is no command %s; did you mean %s?",
			     out_name(word), give);
	if (give && access(word, F_OK))
		zt_say("ztrain: ", "try: %s", call);
	return 2;
}
