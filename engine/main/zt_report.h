/* zt_report.h -- ztrain report: logs of runs as text, or as a page. */
#ifndef ZT_REPORT_H
#define ZT_REPORT_H

#include <stdbool.h>
#include <stdio.h>

#include "tools/shared/cli_log.h"
#include "tools/shared/cli_opt.h"

/* What the summary says of a run; NAN = the log does not say it. */
struct zt_run {
	struct run_log log;
	const char *name;	/* short, and no other run's */
	double loss, best_eval, tokens, seconds, rate;
	int64_t loss_at, best_at;	/* steps */
	uint64_t lost, loss_n;	/* losses that are no finite numbers, of all */
	int64_t lost_at;	/* the first of them */
	uint64_t skipped;	/* steps */
	struct words notes;	/* sentences about what is unusual, without the run's name */
};

struct zt_runs {
	struct zt_run *run;
	size_t n;
};

/* argv[0] is "report".  The exit status. */
int zt_report(int argc, char **argv);
const struct opt *const *zt_report_tables(void);

/* zt_runs.c: reads the logs; 0, or -1 after saying what is wrong, as 'program'. */
int zt_runs_read(struct zt_runs *runs, const struct words *paths, const char *program);
void zt_runs_release(struct zt_runs *runs);

/* zt_report_text.c */
void zt_report_text(const struct zt_runs *runs, FILE *out);
/* zt_report_page.c: 0, or -1 after saying what is wrong. */
int zt_report_page(const struct zt_runs *runs, const char *path, const char *title, int force);

/* zt_report_text.c: values for people; "-" of NAN.  Lent until the eighth next call. */
const char *zt_number(double v);
const char *zt_count(double v);		/* 950, 12.3k, 4.56M */
const char *zt_duration(double seconds);

#endif
