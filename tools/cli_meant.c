/* cli_meant.c -- see cli_meant.h. */
#include "cli_meant.h"

#include "cli_lora.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char universal[] = "reshard --to universal";

static const struct {
	const char *word, *verb;
} meanings[] = {
	{ "merge", "convert" }, { "merge-weights", "convert" }, { "consolidate", "convert" },
	{ "export", "convert" }, { "to-fp32", "convert" }, { "zero-to-fp32", "convert" },
	{ "fp32", "convert" }, { "save", "convert" },
	{ "info", "inspect" }, { "show", "inspect" }, { "describe", "inspect" },
	{ "summary", "inspect" }, { "check", "verify" }, { "validate", "verify" },
	{ "fsck", "verify" }, { "test", "verify" }, { "compare", "diff" }, { "cmp", "diff" },
	{ "list", "ls" }, { "status", "ls" }, { "steps", "ls" }, { "hash", "digest" },
	{ "checksum", "digest" }, { "sum", "digest" }, { "clean", "prune" },
	{ "cleanup", "prune" }, { "delete", "prune" }, { "remove", "prune" }, { "rm", "prune" },
	{ "print", "cat" }, { "dump", "cat" }, { "get", "cat" }, { "estimate", "plan" },
	{ "memory", "plan" }, { "resume", "reshard" }, { "resize", "reshard" },
	{ "repartition", "reshard" }, { "universal", universal },
	{ "to-universal", universal }, { "ds-to-universal", universal }, { "split", "shard" },
	{ "partition", "shard" }, { "shrink", "slim" }, { "archive", "pack" },
	{ "compress", "pack" }, { "why", "doctor" }, { "diagnose", "doctor" },
	{ "fix", "doctor" }, { "repair", "doctor" },
	{ "tensors", "inspect --names" }, { "keys", "inspect --names" },
	{ "names", "inspect --names" }, { "du", "inspect --explain-size" },
	{ "size", "inspect --explain-size" }, { "version", "--version" },
};

static int is_file(const char *path)
{
	struct stat st;

	return !stat(path, &st) && S_ISREG(st.st_mode);
}

/* Two paths, one of them a file: a check of one against the other. */
static int is_pair(const struct args *args)
{
	return args->argc == 4 && !access(args->argv[2], F_OK) && !access(args->argv[3], F_OK) &&
	       (is_file(args->argv[2]) || is_file(args->argv[3]));
}

/* Scripts go by their names without ".py". */
static int is_meaning(const char *word, const char *meaning)
{
	const size_t n = strlen(word);

	return opt_is_name(n > 3 && !strcmp(word + n - 3, ".py") ?
			   cli_format("%.*s", (int)n - 3, word) : word, meaning);
}

const char *meant_verb(const struct args *args, const char *word)
{
	static const char *const archives[] = { ".zst", ".tar", ".gz", ".tgz", ".zip", NULL };
	const int is_call = args->argc > 2 && !strcmp(args->argv[1], word);
	const char *end = is_call ? strrchr(args->argv[2], '.') : NULL;

	for (size_t i = 0; i < sizeof(meanings) / sizeof(meanings[0]); i++)
		if (is_meaning(word, meanings[i].word))
			return !strcmp(meanings[i].verb, "verify") && is_call && is_pair(args) ?
			       "diff" : meanings[i].verb;
	if (!opt_is_name(word, "extract"))
		return NULL;
	for (size_t i = 0; end && archives[i]; i++)
		if (!strcmp(end, archives[i]))
			return "unpack";
	return "cat";
}

/* ds_to_universal.py's words: the folders are options, and workers are threads of ours. */
static char *call_of_universal(const struct args *args)
{
	const char *from = NULL, *to = NULL;
	char *rest = cli_strdup(""), *call = cli_format("zckpt %s", universal);

	for (int i = 2; i < args->argc; i++) {
		const char *word = args->argv[i];
		const size_t n = strcspn(word, "=");
		const char *value = word[n] ? word + n + 1 : args->argv[i + 1];
		char *name = cli_format("%.*s", (int)n, word);

		if (word[0] != '-' || word[1] != '-') {
			rest = cli_format("%s %s", rest, cli_argument(word));
			continue;
		}
		if (opt_is_name(name, "--input-folder"))
			from = value;
		else if (opt_is_name(name, "--output-folder"))
			to = value;
		else if (!strstr(name, "workers"))
			continue;	/* a flag of the script */
		i += !word[n] && value;
	}
	if (from)
		call = cli_format("%s %s", call, out_word(from));
	if (to)
		call = cli_format("%s %s", call, out_word(to));
	return cli_format("%s%s", call, rest);
}

char *meant_call(const struct args *args, const char *verb)
{
	char *text = cli_format("zckpt %s", verb);

	if (verb == universal)
		return call_of_universal(args);
	/* of this one a rule is missing in any case */
	if (!strcmp(verb, "prune") && args->argc == 3)
		text = cli_format("%s --keep-last 3", text);
	for (int i = 2; i < args->argc; i++)
		text = cli_format("%s %s", text, cli_argument(args->argv[i]));
	return text;
}

char *meant_of_path(const struct args *args)
{
	const int is_two = args->argc == 3 && args->argv[2][0] != '-';
	const char *verb = !is_two ? "inspect" : access(args->argv[2], F_OK) ? "convert" : "diff";
	char *text = cli_format("zckpt %s %s", verb, out_word(args->argv[1]));

	for (int i = 2; i < args->argc; i++)
		text = cli_format("%s %s", text, cli_argument(args->argv[i]));
	return text;
}

char *meant_order(const struct args *args, int at)
{
	char *text = cli_format("zckpt %s", args->argv[at]);

	for (int i = 1; i < args->argc; i++)
		if (i != at)
			text = cli_format("%s %s", text, cli_argument(args->argv[i]));
	return text;
}

int meant_merge(const struct args *args)
{
	if (args->argc < 3 || !lora_is_adapter(args->argv[2]))
		return 0;
	return cli_wrong(NULL, "%s: zckpt does not merge an adapter into its base; PEFT's "
			 "merge_and_unload() does (docs/guide/lora.md)", out_name(args->argv[2]));
}
