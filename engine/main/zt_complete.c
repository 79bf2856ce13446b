/* zt_complete.c -- see zt_complete.h: commands, and options and values from the tables. */
#include "engine/main/zt_complete.h"

#include <stdbool.h>
#include <string.h>

#include "engine/main/zt_args.h"
#include "engine/main/zt_command.h"
#include "engine/main/zt_generate.h"
#include "engine/main/zt_log.h"
#include "engine/main/zt_report.h"
#include "tools/shared/cli_opt_complete.h"

/* Values that the tables have in their texts only. */
static void offer_value(const struct typed *typed)
{
	if (complete_value(typed))
		return;
	complete_kind(COMPLETE_WORDS);
	if (!strcmp(typed->opt->name, "save-buffer"))
		complete_word(typed, "full", NULL);
	for (int i = 0; i < 4 && !strcmp(typed->opt->name, "stages"); i++)
		complete_word(typed, (const char *const[]){ "0", "1", "2", "3" }[i], NULL);
}

static void offer(const struct opt *const *tables, int argc, char **argv, bool with_commands)
{
	struct typed typed;

	complete_read(tables, argc, argv, &typed);
	if (typed.opt) {
		offer_value(&typed);
	} else if (typed.is_option) {
		complete_options(tables, &typed);
		complete_word(&typed, "--help", "the options");
	} else {
		complete_kind(COMPLETE_WORDS);
		if (!with_commands)
			return;
		for (const struct zt_command *c = zt_commands; c->name; c++)
			complete_word(&typed, c->name, c->help);
	}
}

/* A call whose arguments are files or folders. */
static void offer_files(const struct opt *const *tables, int argc, char **argv)
{
	struct typed typed;

	complete_read(tables, argc, argv, &typed);
	if (typed.opt || typed.is_option)
		offer(tables, argc, argv, false);
	else
		complete_kind(COMPLETE_FILES);
}

int zt_complete(int argc, char **argv)
{
	const char *first = argc > 1 ? argv[0] : "";

	if (!strcmp(first, "config"))
		complete_kind(COMPLETE_FILES);
	else if (!strcmp(first, "report"))
		offer_files(zt_report_tables(), argc - 1, argv + 1);
	else if (!strcmp(first, "log"))
		offer_files(zt_log_tables(), argc - 1, argv + 1);
	else if (!strcmp(first, "generate"))
		offer(zt_generate_tables(), argc - 1, argv + 1, false);
	else if (!strcmp(first, "eval"))
		offer_files(zt_args_tables(ZT_EVAL), argc - 1, argv + 1);
	else if (!strcmp(first, "bench"))
		offer(zt_args_tables(ZT_BENCH), argc - 1, argv + 1, false);
	else
		offer(zt_args_tables(ZT_RUN), argc, argv, argc < 2);
	return 0;
}
