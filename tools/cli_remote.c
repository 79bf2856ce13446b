/* cli_remote.c -- addresses of object stores, where a path belongs: what to type instead. */
#include <ctype.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

/* Stores, and their programs that copy; each reads or writes '-'. */
static const struct {
	const char *scheme, *copy, *copy_folder;
} stores[] = {
	{ "s3", "aws s3 cp", "aws s3 cp --recursive" },
	{ "gs", "gcloud storage cp", "gcloud storage cp -r" },
	{ "hf", NULL, NULL },
	{ "http", NULL, NULL },
	{ "https", NULL, NULL },
	{ "az", NULL, NULL },
	{ "abfs", NULL, NULL },
	{ "abfss", NULL, NULL },
	{ "hdfs", NULL, NULL },
	{ "oss", NULL, NULL },
};

/* Which store 'word' names; -1: it is a path. */
static int store_of(const char *word)
{
	const size_t n = strcspn(word, ":");

	if (strncmp(word + n, "://", 3) || !access(word, F_OK))
		return -1;
	for (size_t i = 0; i < sizeof(stores) / sizeof(stores[0]); i++)
		if (strlen(stores[i].scheme) == n && !strncmp(stores[i].scheme, word, n))
			return (int)i;
	return -1;
}

static const char *name_in(const char *address)
{
	const char *slash = strrchr(address, '/');

	return slash && slash[1] ? slash + 1 : "run";
}

const char *cli_argument(const char *word)
{
	const char *at = word;

	while (isalnum((unsigned char)*at) || (*at && strchr("-_=,./:", *at)))
		at++;
	return *at || !*word ? out_word(word) : word;
}

/* The call as it was typed, with another word in place of 'word'. */
static char *call_with(const struct args *args, const char *word, const char *instead)
{
	char *text = cli_strdup("zckpt");

	for (int i = 1; i < args->argc; i++) {
		const char *at = strcmp(args->argv[i], word) ? args->argv[i] : instead;

		text = cli_format("%s %s", text, cli_argument(at));
	}
	return text;
}

static int try_destination(const struct command *cmd, const struct args *args, const char *word,
			   int at)
{
	const char *copy = stores[at].copy, *name = name_in(word);
	char *command = NULL;

	if (copy && (!strcmp(cmd->name, "convert") || !strcmp(cmd->name, "pack")))
		return cli_try(cmd, cli_format("%s | %s - %s", call_with(args, word, "-"), copy,
					       out_word(word)),
			       "%s: zckpt writes to local paths; stream the result there",
			       out_name(word));
	if (copy)
		command = cli_format("%s && %s %s %s", call_with(args, word, name),
				     stores[at].copy_folder, out_word(name), out_word(word));
	return cli_try(cmd, command, "%s: zckpt writes to local paths; copy the result afterwards",
		       out_name(word));
}

static int try_source(const struct command *cmd, const char *word, int at)
{
	const char *name = name_in(word);
	const char *copy = strchr(name, '.') ? stores[at].copy : stores[at].copy_folder;
	char *command = NULL;

	if (!strncmp(word, "hf://", 5))
		command = cli_format("hf download %s --local-dir %s", out_word(word + 5),
				     out_word(name));
	else if (!strncmp(word, "http", 4))
		command = cli_format("curl -LO %s", out_word(word));
	else if (copy)
		command = cli_format("%s %s %s", copy, out_word(word), out_word(name));
	return cli_try(cmd, command, "%s: zckpt reads local paths; copy it to this machine first",
		       out_name(word));
}

int cli_no_address(const struct command *cmd, const struct args *args)
{
	const struct words *rest = &args->rest;
	const int last = rest->n ? store_of(rest->list[rest->n - 1]) : -1;

	if (args->output && store_of(args->output) >= 0)
		return try_destination(cmd, args, args->output, store_of(args->output));
	for (size_t i = 0; i + 1 < rest->n; i++)
		if (store_of(rest->list[i]) >= 0)
			return try_source(cmd, rest->list[i], store_of(rest->list[i]));
	if (last < 0)
		return 0;
	if (rest->n > 1 && !args->output && strstr(cmd->synopsis, "DST"))
		return try_destination(cmd, args, rest->list[rest->n - 1], last);
	return try_source(cmd, rest->list[rest->n - 1], last);
}
