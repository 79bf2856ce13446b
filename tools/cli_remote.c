/* cli_remote.c -- addresses of object stores, where a path belongs: what to type instead. */
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

/* Length of "user@host" or "host" where 'word' is a place that scp takes; 0: it is a path. */
static size_t host_of(const char *word)
{
	const size_t n = strcspn(word, ":/");
	const char *at = memchr(word, '@', n);

	if (!n || word[n] != ':' || !access(word, F_OK))
		return 0;
	return (at && at != word && at + 1 < word + n) || (!at && word[n + 1] == '/') ? n : 0;
}

static int ends_with(const char *text, const char *end)
{
	const size_t n = strlen(text), m = strlen(end);

	return n > m && !strcmp(text + n - m, end);
}

/* What convert and pack write to stdout: one .safetensors, a pack. */
static int is_stream(const struct command *cmd, const char *word)
{
	return !strcmp(cmd->name, "pack") ||
	       (!strcmp(cmd->name, "convert") && ends_with(word, ".safetensors"));
}

static const char *name_in(const char *address)
{
	const char *slash = strrchr(address, '/');

	return slash && slash[1] ? slash + 1 : "run";
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

	if (copy && is_stream(cmd, word))
		return cli_try(cmd, cli_format("%s | %s - %s", call_with(args, word, "-"), copy,
					       out_word(word)),
			       "%s: zckpt writes to local paths; stream the result there",
			       out_name(word));
	if (copy)
		command = cli_format("%s && %s %s %s", call_with(args, word, name),
				     strchr(name, '.') ? copy : stores[at].copy_folder,
				     out_word(name), out_word(word));
	return cli_try(cmd, command, "%s: zckpt writes to local paths; copy the result afterwards",
		       out_name(word));
}

/* "user@host:path", to be written. */
static int try_host(const struct command *cmd, const struct args *args, const char *word, size_t n)
{
	const char *path = word + n + 1, *name = strchr(path, '/') || !*path ? name_in(path) : path;
	char *command;

	if (is_stream(cmd, path)) {
		char *there = cli_format("cat > %s", out_word(path));

		command = cli_format("%s | ssh %.*s %s", call_with(args, word, "-"), (int)n, word,
				     out_word(there));
		cli_free(there);
	} else {
		command = cli_format("%s && scp -r %s %s", call_with(args, word, name),
				     out_word(name), out_word(word));
	}
	return cli_try(cmd, command, "%s: zckpt writes to local paths, not to %.*s", out_name(word),
		       (int)n, word);
}

static int try_source(const struct command *cmd, const char *word)
{
	const int at = store_of(word);
	const char *colon = strchr(word, ':');
	const char *name = at < 0 && !strchr(word, '/') && colon[1] ? colon + 1 : name_in(word);
	const char *copy = at < 0 ? "scp -r" :
			   strchr(name, '.') ? stores[at].copy : stores[at].copy_folder;
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

static int is_address(const char *word)
{
	return store_of(word) >= 0 || host_of(word);
}

static int is_stdout(const char *word)
{
	return !strcmp(word, "/dev/stdout") || !strcmp(word, "/dev/fd/1") ||
	       !strcmp(word, "/proc/self/fd/1");
}

static int check_destination(const struct command *cmd, const struct args *args, const char *word)
{
	if (store_of(word) >= 0)
		return try_destination(cmd, args, word, store_of(word));
	if (host_of(word))
		return try_host(cmd, args, word, host_of(word));
	if (is_stdout(word) && (!strcmp(cmd->name, "convert") || !strcmp(cmd->name, "pack")))
		return cli_try(cmd, call_with(args, word, "-"), "%s: a stream on stdout is '-'",
			       word);
	return 0;
}

int cli_no_address(const struct command *cmd, const struct args *args)
{
	const struct words *rest = &args->rest;
	const int has_dst = strstr(cmd->synopsis, "DST") && !args->output && rest->n > 1;

	if (args->output && check_destination(cmd, args, args->output))
		return EXIT_CALL;
	for (size_t i = 0; i + (has_dst != 0) < rest->n; i++)
		if (is_address(rest->list[i]))
			return try_source(cmd, rest->list[i]);
	return has_dst ? check_destination(cmd, args, rest->list[rest->n - 1]) : 0;
}
