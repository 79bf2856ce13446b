/* cmd_diff.c -- `zckpt diff`: the call; cli_diff*.c print what it finds. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli_diff.h"

static struct {
	const char *strip_prefix, *tag2, *tolerance;
	struct words state;
	int all, scalars;
} want = { .scalars = -1 };

static const struct opt own[] = {
	{ "tag2", 0, OPT_TEXT, &want.tag2, "NAME",
	  "step of B; without B, another step of A", 0 },
	{ "state", 0, OPT_COMMAS, &want.state, "NAME",
	  "only these states; master=weight: A's masters with B's weights", 0 },
	{ "tolerance", 0, OPT_TEXT, &want.tolerance, "TOL",
	  "largest difference allowed: 1e-6, rel:1e-3, or both", 0 },
	{ "scalars", 0, OPT_FLAG, &want.scalars, NULL,
	  "compare step, hyper-parameters, loss scale (default: if no tensors are chosen)",
	  OPT_NEGATABLE },
	{ "strip-prefix", 0, OPT_TEXT, &want.strip_prefix, "TEXT",
	  "remove TEXT from the start of names", OPT_RARE },
	{ "all", 0, OPT_FLAG, &want.all, NULL, "print all rows that differ, not 20", 0 },
	{ 0 },
};

/* ---------------------------------------------------------------- the call */

/* A number from 0 on, of 'n' letters. */
static int number(const char *text, size_t n, double *out)
{
	char *copy = cli_format("%.*s", (int)n, text), *end;

	*out = strtod(copy, &end);
	return n && !*end && copy[0] != ' ' && *out >= 0 && !isinf(*out) ? 0 : -1;
}

static int parse_tolerance(struct ckpt_diff_opts *opts)
{
	const char *text = want.tolerance;

	if (!text)
		return 0;
	opts->flags |= CKPT_DIFF_TOLERANCE;
	for (;;) {
		size_t n = strcspn(text, ",");
		int rel = !strncmp(text, "rel:", 4), bad;

		bad = rel ? number(text + 4, n < 4 ? 0 : n - 4, &opts->rel_tolerance) :
			    number(text, n, &opts->abs_tolerance);
		if (bad)
			return cli_wrong(&cmd_diff, "--tolerance %s: expected a number >= 0, "
					 "rel:NUMBER, or both with a comma",
					 out_name(want.tolerance));
		if (!text[n])
			return 0;
		text += n + 1;
	}
}

static int is_format(const char *path, const char *format)
{
	struct ckpt_open_opts opts = { .size = sizeof(opts) };
	struct ckpt_info info;
	struct ckpt *ck = NULL;
	int yes;

	if (ckpt_open(&path, 1, &opts, &ck, NULL))
		return 1;	/* what is wrong with it is said where it is used */
	ckpt_info_get(ck, &info);
	yes = !strcmp(info.format, format);
	ckpt_close(ck);
	return yes;
}

/* These options are of Megatron-Core; a Trainer's folder takes --model-config too. */
static int takes_names(const struct args *args, const char *path)
{
	return is_format(path, "megatron") ||
	       (args->model_config && is_format(path, "trainer"));
}

static void forget_names(struct args *args)
{
	args->names = args->model_config = NULL;
	args->vocab = 0;
}

static int open_both(struct two *two)
{
	const struct args *args = two->args;
	struct args first = *args, second;
	struct words a = { 0 }, b = { 0 };
	struct ckpt_err err = { 0 };
	int status;

	first.find_states |= cli_is_beyond_weight(&want.state);
	second = first;
	words_add(&a, args->rest.list[0]);
	words_add(&b, args->rest.list[args->rest.n - 1]);
	second.tag = want.tag2;
	/* A subtree is of the torch files among the two. */
	if (args->subtree && !is_format(b.list[0], "torch"))
		second.subtree = NULL;
	else if (args->subtree && !is_format(a.list[0], "torch"))
		first.subtree = NULL;
	if (args->names || args->model_config || args->vocab) {
		const int a_is = takes_names(args, a.list[0]);
		const int b_is = takes_names(args, b.list[0]);

		if (a_is && !b_is)
			forget_names(&second);
		else if (b_is && !a_is)
			forget_names(&first);
	}
	status = cli_open(&first, "diff", &a, &two->a, &err);
	second.tag_option = "--tag2";
	if (!status)
		status = cli_open(&second, "diff", &b, &two->b, &err);
	return status;
}

static int compare(struct two *two, const struct ckpt_select *select, struct ckpt_diff_opts *opts)
{
	const struct args *args = two->args;
	int chosen = want.state.n || args->include.n || args->exclude.n || args->only.n;
	struct progress progress;
	struct ckpt_run_opts run;
	struct ckpt_err err = { 0 };
	int rc;

	cli_run_begin(args, &progress, &run);
	opts->run = &run;
	opts->select = select;
	opts->states = want.state.list;
	if (want.scalars == 0 || (want.scalars < 0 && chosen))
		opts->flags |= CKPT_DIFF_NO_SCALARS;
	rc = ckpt_diff(two->a, two->b, opts, &two->diff, &err);
	progress_end(&progress);
	out_findings_asked(args, two->a);
	out_findings_asked(args, two->b);
	if (!rc)
		return 0;
	rc = cli_fail(args->json ? "diff" : NULL, two->a, &err);
	if (err.code == CKPT_E_USAGE)
		cli_say_nearest(args, (const struct ckpt *const[]){ two->a, two->b }, 2);
	return rc;
}

static int run(struct args *args)
{
	struct ckpt_diff_opts opts = { .size = sizeof(opts) };
	struct two two = { .args = args, .all = want.all };
	struct ckpt_select select;
	int status;

	if (args->rest.n != 2 && !(args->rest.n == 1 && want.tag2))
		return cli_wrong(&cmd_diff, "diff needs two checkpoints, or one and --tag2");
	status = cli_select(&cmd_diff, args, &select);
	select.strip_prefix = want.strip_prefix;
	if (!status)
		status = parse_tolerance(&opts);
	two.tolerance = want.tolerance;
	if (!status)
		status = open_both(&two);
	if (!status)
		status = compare(&two, &select, &opts);
	if (!status) {
		ckpt_info_get(two.a, &two.info_a);
		ckpt_info_get(two.b, &two.info_b);
		if (args->json)
			diff_json(&two);
		else
			diff_print(&two);
		status = two.diff.ndiffering ? EXIT_NO : EXIT_DONE;
		if (diff_unread(&two.diff) && status == EXIT_DONE) {
			cli_say("zckpt cannot read %s of A and %" PRIu64 " of B (TENSOR_OPAQUE), "
				"so they are not compared; --exclude leaves them out",
				diff_plural(two.diff.nopaque_a, "tensor"), two.diff.nopaque_b);
			status = EXIT_TROUBLE;
		}
	}
	ckpt_diff_free(&two.diff);
	ckpt_close(two.b);
	ckpt_close(two.a);
	return status;
}

const struct command cmd_diff = {
	.name = "diff",
	.run = run,
	.ranks = RANKS_EACH,
	.gist = "compare two checkpoints of any format, stage or rank count",
	.synopsis = "A B",
	.about = "Compares the tensors of two checkpoints by name and state, and their scalars. "
		 "The first line is the answer. Then: a line for each state, the tensors that "
		 "differ most, what only one side has. Weights exported from a step are compared "
		 "with what convert writes. Exit status 0 if both are the same, 1 if not.",
	.examples = "zckpt diff run model.safetensors\n"
		    "zckpt diff --tag global_step200 --tag2 global_step300 run\n",
	.notes = "Without --tolerance only equal bits are the same. With it (0 is allowed) "
		 "equal numbers of any type are: 0 equals -0, NaN equals NaN.\n"
		 "TOL: |a - b| <= ABS + REL * max(|a|, |b|) for every element.",
	.tables = { own, opts_select, opts_source, opts_run, opts_talk, NULL },
};
