/* zt_report.c -- see zt_report.h: the call. */
#include "engine/main/zt_report.h"

#include <string.h>
#include <sys/stat.h>

#include "engine/main/zt_opt.h"
#include "engine/main/zt_say.h"

#define NAME "ztrain report"

static struct {
	const char *output, *title;
	int force, help, color;
} args;

static const struct opt options[] = {
	{ .kind = OPT_TEXT, .name = "output", .letter = 'o', .value = "FILE", .to = &args.output,
	  .help = "write a page of HTML with charts; - is standard output (default: print a "
		  "table)" },
	ZT_TEXT("title", "TEXT", args.title, "title of the page (Training report)"),
	ZT_FLAG("force", args.force, "replace FILE even if it is not a report"),
	{ "color", 0, OPT_CHOICE, &args.color, TERM_COLORS,
	  "colour errors, warnings and headings (default: on a terminal)", 0 },
	{ "help", 'h', OPT_FLAG, &args.help, NULL, "", OPT_HIDDEN | OPT_LAST },
	{ 0 },
};

const struct opt *const *zt_report_tables(void)
{
	static const struct opt *const tables[] = { options, NULL };

	return tables;
}

static void print_help(void)
{
	static const struct opt_style style = { .list = OPT_LIST_ALL, .column = 26, .gap = 1,
						.width = 79, .letters = 1 };

	puts("usage: ztrain report LOG... [options]\n"
	     "\n"
	     "Shows losses, gradient norms, learning rates, speed and memory of runs. LOG is\n"
	     "the file of ztrain --log, a trainer_state.json of the Hugging Face Trainer, or\n"
	     "a folder with either. Several logs are compared.\n"
	     "\n"
	     "examples:\n"
	     "  ztrain report run/log.jsonl\n"
	     "  ztrain report run/log.jsonl -o report.html\n"
	     "  ztrain report run1/log.jsonl run2/log.jsonl -o report.html\n"
	     "  ztrain report out/checkpoint-500 -o report.html\n"
	     "\n"
	     "options:");
	opt_help(options, &style, stdout);
	puts("\nExit status: 0 done, 1 failed, 2 usage error.");
}

/* -1 when help was printed. */
static int parse(int argc, char **argv, struct words *logs)
{
	const struct opt_call call = {
		.tables = zt_report_tables(), .rest = logs, .wrong = zt_wrong_call, .arg = NAME,
	};
	const int rc = opt_parse(&call, argc - 1, argv + 1);

	if (rc)
		return rc;
	if (args.help) {
		print_help();
		return -1;
	}
	if (!logs->n)
		return zt_wrong_call(NAME, "no log is given: name the file of ztrain --log, or a "
				     "trainer_state.json");
	if (args.title && !args.output)
		return zt_wrong_call(NAME, "--title needs -o FILE");
	return 0;
}

/* --force replaces any file but a log that is read. */
static bool is_log(const struct zt_runs *runs, const char *path)
{
	struct stat a, b;

	for (size_t i = 0; i < runs->n; i++)
		if (!stat(path, &a) && !stat(runs->run[i].log.path, &b) && a.st_dev == b.st_dev &&
		    a.st_ino == b.st_ino)
			return true;
	return false;
}

static int write_page(const struct zt_runs *runs)
{
	struct stat st;

	if (is_log(runs, args.output)) {
		zt_say_error(NAME ": ", "%s is one of the logs: give -o a different file",
			     args.output);
		return -1;
	}
	if (zt_report_page(runs, args.output, args.title ? args.title : "Training report",
			   args.force))
		return -1;
	if (strcmp(args.output, "-") != 0 && !stat(args.output, &st))
		zt_say(NAME ": ", "wrote %s: %zu run%s, %.1f kB", args.output, runs->n,
		       zt_plural(runs->n), (double)st.st_size / 1000);
	return 0;
}

int zt_report(int argc, char **argv)
{
	struct words logs = { 0 };
	struct zt_runs runs = { 0 };
	int rc = parse(argc, argv, &logs);

	if (rc)
		return rc < 0 ? 0 : rc;
	rc = zt_runs_read(&runs, &logs, NAME ": ");
	if (!rc && args.output)
		rc = write_page(&runs);
	else if (!rc)
		zt_report_text(&runs, stdout);
	zt_runs_release(&runs);
	return rc ? 1 : 0;
}
