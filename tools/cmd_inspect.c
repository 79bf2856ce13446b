/* cmd_inspect.c -- `zckpt inspect`: what is this, is it whole, what next. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli_advice.h"
#include "cli_findings.h"
#include "cli_sizes.h"
#include "cli_verdict.h"
#include "cli_view.h"

/* Without -v, so that the answer fits on a screen. */
#define TIED_SHOWN 3
#define GROUPS_SHOWN 4

static struct {
	int tensors, names, explain_size;
} want;

static const struct opt own[] = {
	{ "names", 0, OPT_FLAG, &want.names, NULL, "list the tensors: name, shape, type", 0 },
	{ "tensors", 0, OPT_FLAG, &want.tensors, NULL, "every tensor too, as with -v", 0 },
	{ "explain-size", 0, OPT_FLAG, &want.explain_size, NULL,
	  "first print what the bytes on disk are for", 0 },
	{ 0 },
};

/* "group.12.lr" -> 12 and "lr"; NULL for any other fact. */
static const char *group_fact(const char *key, unsigned long *group_out)
{
	char *end;

	if (strncmp(key, "group.", 6) || key[6] < '0' || key[6] > '9')
		return NULL;
	*group_out = strtoul(key + 6, &end, 10);
	return *end == '.' ? end + 1 : NULL;
}

/* ---------------------------------------------------------------- for people */

static void print_line(const char *label, const char *text)
{
	printf("%-12s %s\n", label, text);
}

/* Another form of a step, beside the one that was opened. */
static void print_universal(const struct view *view)
{
	const char *key, *value;

	for (uint64_t i = 0; !ckpt_fact_get(view->ck, i, &key, &value, NULL); i++)
		if (!strcmp(key, "universal"))
			printf("%-12s a universal checkpoint, %s (--tag opens it)\n", "also here",
			       out_name(value));
}

static void print_what(const struct view *view)
{
	const struct ckpt_info *info = &view->info;
	char *text;

	print_line("path", out_name(info->path));
	if (info->tag[0])
		print_line("tag", out_name(info->tag));
	if (info->why[0])
		print_line("chosen", out_name(info->why));
	print_universal(view);
	if (info->stage >= 0)
		text = cli_format("%s, ZeRO stage %" PRId32 ", %" PRIu32 " rank%s", info->format,
				  info->stage, info->world, info->world == 1 ? "" : "s");
	else if (info->world)
		text = cli_format("%s, %" PRIu32 " rank%s", info->format, info->world,
				  info->world == 1 ? "" : "s");
	else
		text = cli_strdup(info->format);
	print_line("format", text);
	if (view_layout(view->ck))
		print_line("layout", out_name(view_layout(view->ck)));
	if (info->writer[0])
		print_line("written by", out_name(info->writer));
	if (!strcmp(info->optimizer, "unnamed"))
		print_line("optimizer", view->args->find_states ?
			   "its states are in buckets without names; see the findings" :
			   "its states are in buckets without names; --find-states reads them");
	else if (info->optimizer[0] && strcmp(info->optimizer, "ZeRO"))
		print_line("optimizer", out_name(info->optimizer));
	if (info->step >= 0)
		printf("%-12s %" PRId64 "\n", "step", info->step);
	printf("%-12s %" PRIu64 ", %s", "files", info->nfiles, out_size(info->file_bytes));
	if (info->file_bytes >= 1000)
		printf(" (%s bytes)", out_count(info->file_bytes));
	putchar('\n');
}

static void print_roles(const struct view *view)
{
	struct table table = { .align = "lrr" };

	table_add(&table, (const char *const[]){ "ROLE", "TENSORS", "ELEMENTS" });
	for (unsigned role = 1; role < NROLES; role++)
		if (view->tensors[role])
			table_add(&table, (const char *const[]){
				out_role((enum ckpt_role)role), out_count(view->tensors[role]),
				out_count(view->elements[role]) });
	putchar('\n');
	table_print(&table, stdout, "");
}

static void print_states(const struct view *view)
{
	struct table table = { .align = "llrrrl" };

	if (!view->nsums)
		return;
	table_add(&table, (const char *const[]){ "STATE", "TYPE", "TENSORS", "ELEMENTS", "BYTES",
						 "" });
	for (size_t i = 0; i < view->nsums; i++) {
		const struct sum *sum = &view->sums[i];

		table_add(&table, (const char *const[]){
			out_name(sum->name), ckpt_dtype_name(sum->dtype), out_count(sum->tensors),
			out_count(sum->elements), out_size(sum->bytes),
			sum->derived ? "rebuilt from the fp32 copy" : "" });
	}
	putchar('\n');
	table_print(&table, stdout, "");
}

/* Second names: a few, unless all are asked for. */
static void print_tied(const struct view *view)
{
	const uint64_t most = view->args->verbose ? UINT64_MAX : TIED_SHOWN;
	const uint64_t all = view->tensors[CKPT_ROLE_ALIAS];
	struct ckpt_tensor_info tensor, kept;
	uint64_t n = 0;

	for (uint64_t i = 0; !ckpt_tensor_get(view->ck, i, &tensor, NULL); i++) {
		if (tensor.role != CKPT_ROLE_ALIAS ||
		    ckpt_tensor_get(view->ck, tensor.alias_of, &kept, NULL) || n++ >= most)
			continue;
		printf("%-12s %s = %s\n", n == 1 ? "tied" : "", out_name(tensor.name),
		       out_name(kept.name));
	}
	if (n > most)
		printf("%-12s and %s more of %s; --names lists them\n", "", out_count(n - most),
		       out_count(all));
}

/* Settings that are off say nothing. */
static int is_set(const char *value)
{
	return strcmp(value, "null") && strcmp(value, "false");
}

/* One line of settings, wrapped; 0 if there are no facts about this group. */
static int print_group(const struct view *view, unsigned long number)
{
	const char *key, *value, *word;
	unsigned long group;
	size_t column = 0;
	int any = 0;

	for (uint64_t i = 0; !ckpt_fact_get(view->ck, i, &key, &value, NULL); i++) {
		word = group_fact(key, &group);
		if (!word || group != number)
			continue;
		if (!any++)
			column = (size_t)printf("  %lu", number);
		if (!view->args->verbose && !is_set(value))
			continue;
		if (column > 4 && column + strlen(word) + strlen(value) > 76)
			column = (size_t)printf("\n   ") - 1;
		column += (size_t)printf("  %s %s", out_name(word), out_name(value));
	}
	if (any)
		putchar('\n');
	return any;
}

static void print_groups(const struct view *view)
{
	const unsigned long all = view->info.ngroups;
	const unsigned long most = view->args->verbose || all <= GROUPS_SHOWN + 1 ? all :
				   GROUPS_SHOWN;

	if (!all)
		return;
	printf("\noptimizer groups\n");
	for (unsigned long i = 0; i < most; i++)
		if (!print_group(view, i))
			printf("  %lu  its settings are not saved\n", i);
	if (most < all)
		printf("  and %lu more groups; -v shows them\n", all - most);
}

static void print_findings(const struct view *view)
{
	struct folded *line;
	size_t n = findings_lines(view->ck, CKPT_INFO, view->args->verbose, &line);

	if (n)
		printf("\nfindings (zckpt explain NAME)\n");
	for (size_t i = 0; i < n; i++) {
		const struct ckpt_finding *f = &line[i].f;

		if (!view->args->verbose && i == FINDINGS_SHOWN) {
			printf("  %zu more findings; -v lists them\n", n - i);
			break;
		}
		printf("  %s %s: %s%s%s\n", out_severity(f->severity), f->id, out_name(f->where),
		       f->where[0] ? ": " : "", out_name(f->text));
	}
}

static void print_tensors(const struct view *view)
{
	struct table table = { .align = "llll" };
	struct ckpt_tensor_info tensor, kept;
	struct ckpt_state_info state;

	table_add(&table, (const char *const[]){ "TENSOR", "ROLE", "SHAPE", "STATES" });
	for (uint64_t i = 0; !ckpt_tensor_get(view->ck, i, &tensor, NULL); i++) {
		char *states = cli_strdup("");

		if (tensor.role == CKPT_ROLE_ALIAS &&
		    !ckpt_tensor_get(view->ck, tensor.alias_of, &kept, NULL)) {
			cli_free(states);
			states = cli_format("= %s", out_name(kept.name));
		}
		for (uint32_t k = 0; tensor.role != CKPT_ROLE_ALIAS && k < tensor.nstates; k++) {
			char *longer;

			if (ckpt_state_get(view->ck, i, k, &state, NULL))
				continue;
			longer = cli_format("%s%s%s %s%s", states, states[0] ? ", " : "",
					    out_name(state.name), ckpt_dtype_name(state.dtype),
					    state.flags & CKPT_STATE_DERIVED ? " (derived)" : "");
			cli_free(states);
			states = longer;
		}
		table_add(&table, (const char *const[]){ out_name(tensor.name),
							 out_role(tensor.role),
							 out_shape(&tensor), states });
		cli_free(states);
	}
	putchar('\n');
	table_print(&table, stdout, "");
}

/* The weight, as the first line counts types, else the first state.  0, or not if there is none. */
static int state_of_weight(const struct ckpt *ck, uint64_t tensor, uint32_t n,
			   struct ckpt_state_info *out)
{
	for (uint32_t k = 0; k < n; k++)
		if (!ckpt_state_get(ck, tensor, k, out, NULL) && !strcmp(out->name, "weight"))
			return 0;
	return n ? ckpt_state_get(ck, tensor, 0, out, NULL) : -1;
}

/* --names: the name, shape and type of each; of a second name, the first. */
static void print_names(const struct view *view)
{
	struct table table = { .align = "lll" };
	struct ckpt_tensor_info tensor, kept;
	struct ckpt_state_info state;

	table_add(&table, (const char *const[]){ "TENSOR", "SHAPE", "TYPE" });
	for (uint64_t i = 0; !ckpt_tensor_get(view->ck, i, &tensor, NULL); i++) {
		char *type = NULL;

		if (tensor.role == CKPT_ROLE_ALIAS &&
		    !ckpt_tensor_get(view->ck, tensor.alias_of, &kept, NULL))
			type = cli_format("= %s", out_name(kept.name));
		else if (!state_of_weight(view->ck, i, tensor.nstates, &state))
			type = cli_strdup(view_type(state.dtype));
		table_add(&table, (const char *const[]){ out_name(tensor.name), out_shape(&tensor),
							 type ? type : "" });
		cli_free(type);
	}
	putchar('\n');
	table_print(&table, stdout, "");
}

static void print_long(const struct view *view)
{
	putchar('\n');
	print_what(view);
	print_tied(view);
	print_roles(view);
	print_states(view);
	print_groups(view);
	if (view->args->verbose || want.tensors)
		print_tensors(view);
}

static void print_first(const struct view *view)
{
	const struct words *rest = &view->args->rest;
	char *answer = view_answer(view, rest->n == 1 ? rest->list[0] : NULL);

	printf("%s\n", answer);
	cli_free(answer);
}

static int print_all(const struct view *view)
{
	const struct args *args = view->args;
	int status = 0;
	char *next;

	if (want.explain_size)
		status = sizes_print(view->ck);
	if (!want.explain_size || status)
		print_first(view);
	if (want.names)
		print_names(view);
	if (args->verbose || want.tensors || !(want.names || want.explain_size))
		print_long(view);
	print_findings(view);
	next = args->quiet ? cli_strdup("") : advice_next(args, args->rest.list[0], view->ck);
	if (next[0])
		printf("\nnext: %s\n", next);
	cli_free(next);
	return status;
}

static int run(struct args *args)
{
	struct ckpt_err err = { 0 };
	struct view view = { .args = args, .list = want.tensors || want.names,
			     .explain_size = want.explain_size };
	int status;

	if (!args->rest.n)
		return cli_wrong(&cmd_inspect, "inspect needs a checkpoint");
	status = cli_open(args, "inspect", &args->rest, &view.ck, &err);
	if (status)
		return status;
	ckpt_info_get(view.ck, &view.info);
	view_collect(&view);
	if (args->json)
		status = view_json(&view);
	else
		status = print_all(&view);
	cli_free(view.sums);
	ckpt_close(view.ck);
	return status;
}

const struct command cmd_inspect = {
	.name = "inspect",
	.run = run,
	.ranks = RANKS_EACH,
	.gist = "show what a checkpoint is, what it holds and its findings",
	.synopsis = "SRC...",
	.about = "Says what a checkpoint is: format, step, stage, ranks, parameters, states, "
		 "optimizer groups, tied names and findings. Reads no tensor data.",
	.examples = "zckpt inspect run\n"
		    "zckpt inspect --tensors model.safetensors\n",
	.notes = "SRC is a DeepSpeed root or step, a checkpoint-N folder, a Hugging Face folder, "
		 "a .safetensors or .pt file. Several are overlaid, as when each node kept its "
		 "own files. Exit 0 also if there are findings.",
	.tables = { own, opts_source, opts_talk, NULL },
};
