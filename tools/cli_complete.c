/*
 * cli_complete.c -- `zckpt __complete`: what shells offer (shared/cli_opt_complete.h).
 *
 * Commands, options and their values come from the tables that parse them.  What a word of a
 * command is comes from its synopsis; tags, tensors and states from the checkpoint that is
 * typed already.  Whatever fails offers nothing: its message is of no use at a prompt.
 */
#include "cli_complete.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli_explain.h"
#include "cli_steps.h"
#include "shared/cli_opt_complete.h"

/* ---------------------------------------------------------------- the checkpoint */

/* A shell would have made "~/run" a path; at the prompt it is not done yet. */
static const char *path_of(const char *word)
{
	const char *home = getenv("HOME");

	return word[0] == '~' && word[1] == '/' && home ? cli_format("%s%s", home, word + 1) : word;
}

/* The words typed that are paths. */
static struct words paths_of(const struct typed *typed)
{
	struct words paths = { 0 };

	for (size_t i = 0; i < typed->rest.n; i++) {
		const char *path = path_of(typed->rest.list[i]);

		if (!access(path, F_OK))
			words_add(&paths, path);
	}
	return paths;
}

/* The value of --tag, or -t, before the cursor; NULL = none. */
static const char *tag_of(int argc, char **argv)
{
	const char *tag = NULL;

	for (int i = 0; i + 1 < argc; i++) {
		if ((!strcmp(argv[i], "--tag") || !strcmp(argv[i], "-t")) && i + 2 < argc)
			tag = argv[++i];
		else if (!strncmp(argv[i], "--tag=", 6))
			tag = argv[i] + 6;
	}
	return tag;
}

static void offer_tags(const struct typed *typed, size_t number)
{
	const struct words paths = paths_of(typed);
	struct steps steps = { 0 };

	if (number >= paths.n || steps_find(&cli_args, paths.list[number], &steps))
		return;
	for (size_t i = 0; i < steps.n; i++) {
		const struct step *s = &steps.step[i];

		if (strcmp(s->name, "."))
			complete_word(typed, s->name,
				      s->is_latest ? cli_format("%s, latest", out_size(s->bytes)) :
						     out_size(s->bytes));
	}
	steps_free(&steps);
}

static struct ckpt *open_typed(const struct typed *typed)
{
	const struct words paths = paths_of(typed);
	struct ckpt_open_opts opts;
	struct ckpt *ck = NULL;

	cli_open_opts(&cli_args, &opts);
	if (!paths.n || ckpt_open(paths.list, 1, &opts, &ck, NULL))
		return NULL;
	return ck;
}

static void offer_tensors(const struct typed *typed)
{
	struct ckpt *ck = open_typed(typed);
	struct ckpt_tensor_info tensor;

	for (uint64_t i = 0; ck && !ckpt_tensor_get(ck, i, &tensor, NULL); i++)
		complete_word(typed, tensor.name, out_shape(&tensor));
	ckpt_close(ck);
}

static void add_once(struct words *names, const char *name)
{
	for (size_t i = 0; i < names->n; i++)
		if (!strcmp(names->list[i], name))
			return;
	words_add(names, name);
}

/* Those of the checkpoint, or of one that Adam trains. */
static void offer_states(const struct command *cmd, const struct typed *typed)
{
	struct words names = { 0 };
	struct ckpt *ck = open_typed(typed);
	struct ckpt_tensor_info tensor;
	struct ckpt_state_info state;

	for (uint64_t i = 0; ck && !ckpt_tensor_get(ck, i, &tensor, NULL); i++)
		for (uint32_t k = 0; k < tensor.nstates; k++)
			if (!ckpt_state_get(ck, i, k, &state, NULL))
				add_once(&names, state.name);
	for (int i = 0; !ck && i < 4; i++)
		words_add(&names, (const char *const[]){ "weight", "master", "exp_avg",
							 "exp_avg_sq" }[i]);
	for (size_t i = 0; i < names.n; i++)
		complete_word(typed, names.list[i], NULL);
	if (cmd != &cmd_cat)
		complete_word(typed, "all", NULL);
	ckpt_close(ck);
}

/* ---------------------------------------------------------------- values */

static void offer_list(const struct typed *typed, const char *const *words)
{
	for (; *words; words++)
		complete_word(typed, *words, NULL);
}

static void offer_limits(const struct typed *typed)
{
	struct ckpt_limit_info info;

	for (uint32_t i = 0; !ckpt_limit_get(i, &info, NULL); i++)
		complete_word(typed, cli_format("%s=", info.name), NULL);
}

static void offer_findings(const struct typed *typed)
{
	for (const struct finding_page *page = finding_pages; page->id; page++)
		complete_word(typed, page->id, page->gist);
}

static void offer_value(const struct command *cmd, const struct typed *typed)
{
	static const char *const types[] = { "fp32", "bf16", "fp16", "keep", NULL };
	static const char *const roles[] = { "trainable", "frozen", "buffers", NULL };
	const char *name = typed->opt->name;

	if (complete_value(typed))
		return;
	complete_kind(strcmp(name, "limit") ? COMPLETE_WORDS : COMPLETE_OPEN);
	if (!strcmp(name, "tag") || !strcmp(name, "keep"))
		offer_tags(typed, 0);
	else if (!strcmp(name, "tag2"))
		offer_tags(typed, 1);
	else if (!strcmp(name, "state"))
		offer_states(cmd, typed);
	else if (!strcmp(name, "dtype"))
		offer_list(typed, types);
	else if (!strcmp(name, "only"))
		offer_list(typed, roles);
	else if (!strcmp(name, "limit"))
		offer_limits(typed);
	else if (!strcmp(typed->opt->value, "ID"))
		offer_findings(typed);
	else if (!strcmp(name, "include") || !strcmp(name, "exclude"))
		offer_tensors(typed);
}

/* ---------------------------------------------------------------- words */

/*
 * The placeholders of a synopsis that word 'number' may be, each after a blank: of "SRC... DST"
 * all from SRC on.  Options in it are left out.
 */
static char *places_at(const char *synopsis, size_t number)
{
	char *all = cli_strdup("");

	while (*synopsis) {
		const size_t n = strcspn(synopsis, " ");
		const int is_last = !synopsis[n];
		const int repeats = n > 3 && memchr(synopsis, '.', n) != NULL;

		if (*synopsis != '-' && strncmp(synopsis, "[-", 2)) {
			if (!number || repeats || is_last)
				all = cli_format("%s %.*s", all, (int)n, synopsis);
			if (!number && !repeats)
				return all;
			number -= number > 0;
		}
		synopsis += n + !is_last;
	}
	return all;
}

static void offer_word(const struct command *cmd, const struct typed *typed)
{
	const char *places = places_at(cmd->synopsis, typed->rest.n), *name;
	const int tags = strstr(places, "TAG") != NULL, ids = strstr(places, "[ID]") != NULL;
	const int tensors = strstr(places, "TENSOR") != NULL;
	const int files = !tags && !ids && !(tensors && !strstr(places, "SRC"));

	complete_kind(files ? COMPLETE_FILES : COMPLETE_WORDS);
	if (tags)
		offer_tags(typed, 0);
	if (ids)
		offer_findings(typed);
	if (tensors)
		offer_tensors(typed);
	for (uint32_t i = 0; cmd == &cmd_plan && (name = ckpt_model_name(i)) != NULL; i++)
		complete_word(typed, name, "published model");
}

static void offer_commands(const struct command *const *commands, size_t n,
			   const struct typed *typed, int with_help)
{
	complete_kind(COMPLETE_WORDS);
	for (size_t i = 0; i < n; i++)
		complete_word(typed, commands[i]->name, commands[i]->gist);
	if (!with_help)
		return;
	complete_word(typed, "help", "the options of a command");
	complete_word(typed, "--help", "the list of commands");
	complete_word(typed, "--version", "the version");
}

int cli_complete(const struct command *const *commands, size_t n, int argc, char **argv)
{
	static const struct opt none[] = { { 0 } };
	static const struct opt *const nothing[] = { none, NULL };
	const struct command *cmd = NULL;
	struct typed typed;

	for (size_t i = 0; argc > 1 && i < n; i++)
		if (!strcmp(commands[i]->name, argv[0]))
			cmd = commands[i];
	if (!cmd) {
		complete_read(nothing, argc, argv, &typed);
		if (argc < 2 || (argc == 2 && !strcmp(argv[0], "help")))
			offer_commands(commands, n, &typed, argc < 2);
		else
			complete_kind(COMPLETE_FILES);
		return EXIT_DONE;
	}
	complete_read(cmd->tables, argc - 1, argv + 1, &typed);
	cli_args.tag = tag_of(argc, argv);
	if (typed.opt)
		offer_value(cmd, &typed);
	else if (typed.is_option)
		complete_options(cmd->tables, &typed);
	else
		offer_word(cmd, &typed);
	return EXIT_DONE;
}
