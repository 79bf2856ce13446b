/* cmd_report.c -- `zckpt report`: pictures of a checkpoint, or of what two differ in, as a page. */
#include <string.h>

#include "cli.h"
#include "report/report.h"
#include "shared/cli_page.h"

static struct {
	const char *tag2, *log;
	int stats, verify;
	uint64_t seed;
} want;

static const struct opt own[] = {
	{ "output", 'o', OPT_TEXT, &cli_args.output, "FILE",
	  "write to FILE, or with - to stdout (default report.html)", 0 },
	{ "force", 'f', OPT_FLAG, &cli_args.force, NULL,
	  "replace FILE even if it is not a report", 0 },
	{ "verify", 0, OPT_FLAG, &want.verify, NULL, "first read every byte, as verify --full", 0 },
	{ "stats", 0, OPT_CHOICE, &want.stats, "sample|all|none",
	  "elements for statistics: at most 4,096 of each state (default), all, or none", 0 },
	{ "seed", 0, OPT_COUNT, &want.seed, "N", "choose other elements (default 0)", OPT_RARE },
	{ "log", 0, OPT_TEXT, &want.log, "FILE",
	  "draw this training log (default: one in the step or the run's folder)", 0 },
	{ "tag2", 0, OPT_TEXT, &want.tag2, "NAME", "step of B; without B, another step of A", 0 },
	{ 0 },
};

/* ---------------------------------------------------------------- output */

/* The page or the data: the file appears whole, or nothing does. */
static int write_out(const struct args *args, const struct report_opts *opts, struct ckpt *a,
		     struct ckpt *b)
{
	const char *path = args->output ? args->output : args->json ? "-" : "report.html";
	struct page page;
	struct ckpt_err err = { 0 };
	char why[PAGE_WHY] = "";
	int rc;

	rc = page_file(&page, path, args->force, why);
	if (rc) {
		cli_say_error("%s", why);
		return rc == -1 ? EXIT_CALL : EXIT_TROUBLE;
	}
	rc = report_write_of(opts, a, b, page.out, &err);
	if (rc) {
		page_discard(&page);
		if (!err.where[0] && (err.code == CKPT_E_IO || err.code == CKPT_E_NOSPACE))
			snprintf(err.where, sizeof(err.where), "%s",
				 strcmp(path, "-") ? path : "stdout");
		return cli_fail(args->json ? "report" : NULL, a, &err);
	}
	if (page_finish(&page, why)) {
		cli_say_error("%s", why);
		return EXIT_TROUBLE;
	}
	if (strcmp(path, "-") != 0 && !args->quiet)
		cli_say("wrote %s", out_name(path));
	return EXIT_DONE;
}

/* ---------------------------------------------------------------- the call */

/* A report is never written over what it is of. */
static int check_output(const struct args *args)
{
	if (!args->output || !strcmp(args->output, "-"))
		return 0;
	if (cli_precious(args->output, &args->rest, 1))
		return cli_wrong(&cmd_report, "-o %s: it is or contains the checkpoint",
				 out_name(args->output));
	if (args->force && cli_is_in_source(args->output, &args->rest))
		return cli_wrong(&cmd_report, "-o %s: it is a file of the checkpoint's folder, "
				 "which --force does not replace", out_name(args->output));
	return 0;
}

static int open_all(const struct args *args, struct ckpt **a, struct ckpt **b)
{
	struct args second = *args;
	struct words one = { 0 }, two = { 0 };
	struct ckpt_err err = { 0 };
	int status;

	words_add(&one, args->rest.list[0]);
	words_add(&two, args->rest.list[args->rest.n - 1]);
	status = cli_open(args, "report", &one, a, &err);
	if (status || (args->rest.n == 1 && !want.tag2))
		return status;
	second.tag = want.tag2;
	second.tag_option = "--tag2";
	return cli_open(&second, "report", &two, b, &err);
}

static int check_call(const struct args *args)
{
	if (!args->rest.n)
		return cli_wrong(&cmd_report, "report needs a checkpoint");
	if (args->rest.n > 2)
		return cli_wrong(&cmd_report, "report takes one checkpoint, or two to compare; %zu "
				 "are given", args->rest.n);
	if (args->rest.n == 2 && want.log)
		return cli_wrong(&cmd_report, "--log is for a report of one checkpoint");
	return check_output(args);
}

/* The findings, as inspect has them; of --verify they are the answer too. */
static int say_findings(const struct args *args, struct ckpt *a, struct ckpt *b)
{
	uint64_t errors = out_findings_count(a, CKPT_ERROR);

	out_findings_asked(args, a);
	if (b) {
		out_findings_asked(args, b);
		errors += out_findings_count(b, CKPT_ERROR);
	}
	return want.verify && errors ? EXIT_NO : EXIT_DONE;
}

static int run(struct args *args)
{
	struct report_opts opts = { .tag = args->tag, .tag2 = want.tag2, .log = want.log,
				    .limits = &args->limits, .stats = (enum report_stats)want.stats,
				    .seed = want.seed, .verify = want.verify,
				    .json = args->json };
	struct ckpt *a = NULL, *b = NULL;
	struct progress progress;
	struct ckpt_run_opts run_opts;
	int status = check_call(args);

	if (status)
		return status;
	opts.path = args->rest.list;
	opts.n_paths = args->rest.n;
	status = open_all(args, &a, &b);
	if (!status) {
		cli_run_begin(args, &progress, &run_opts);
		opts.run = &run_opts;
		status = write_out(args, &opts, a, b);
		progress_end(&progress);
		if (!status)
			status = say_findings(args, a, b);
	}
	ckpt_close(b);
	ckpt_close(a);
	return status;
}

const struct command cmd_report = {
	.name = "report",
	.run = run,
	.gist = "write a page with pictures of a checkpoint, or of two compared",
	.synopsis = "SRC [B]",
	.about = "Writes one HTML file that shows a checkpoint in a browser, without a network: "
		 "whether it is complete, how the ranks' files are cut, what takes the space, "
		 "every tensor with statistics and a histogram, hyper-parameters, the steps of "
		 "the run and its loss. Of two checkpoints: what differs, layer by layer.",
	.examples = "zckpt report run\n"
		    "zckpt report --verify -o step300.html run\n"
		    "zckpt report run/global_step200 run/global_step300 -o diff.html\n",
	.notes = "Statistics of a sample take seconds; the page says how many elements they are "
		 "of. FILE is replaced if it is a report, else only with --force. --json prints "
		 "the data of the page (docs/guide/report.md). Exit 0 also if there are findings, "
		 "except with --verify: then 1 if one is an error.\n"
		 "report.html#tensor=NAME opens the page at a tensor.",
	.tables = { own, opts_source, opts_run, opts_talk, NULL },
};
