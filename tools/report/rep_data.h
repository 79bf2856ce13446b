/* rep_data.h -- private to tools/report: the parts of a report's data, each a writer of JSON. */
#ifndef REP_DATA_H
#define REP_DATA_H

#include "../cli_diff.h"
#include "../cli_view.h"
#include "../shared/cli_log.h"
#include "report.h"

struct rep {
	const struct report_opts *opts;
	struct ckpt *ck;
	struct ckpt_info info;
	struct json *json;
	struct ckpt_err *err;
	struct run_log *log;	/* of opts->log */
	int padded;		/* of rep_sizes(): the files have padding of optimizer states */
};

/* What was done before the page began, so that a failure leaves none. */
struct rep_checked {
	int yes;			/* every byte was verified */
	struct ckpt_verified v;
	struct run_log log;		/* of opts->log */
	struct two two;			/* how two compare */
};

/* rep_head.c: the answer, findings with what helps, facts, sums and sizes. */
void rep_head(struct rep *rep, const struct rep_checked *checked);
void rep_sizes(struct rep *rep);

/* rep_tensors.c: columns of the tensors' table. */
void rep_tensors(struct rep *rep);

/* rep_lanes.c: how the files of each rank are cut. */
void rep_lanes(struct rep *rep);

/* rep_stats.c: statistics of the elements; 0, or -CKPT_E_CANCELED. */
int rep_stats(struct rep *rep);

/* rep_steps.c: the steps of the run's folder, and its log. */
void rep_steps(struct rep *rep);
/* The one that was asked for: 0, or -CKPT_E_USAGE where it cannot be read. */
int rep_log_read(const struct report_opts *opts, struct run_log *log, struct ckpt_err *err);

/* rep_diff.c: what two checkpoints differ in. */
int rep_compare(const struct report_opts *opts, struct ckpt *a, struct ckpt *b, struct two *two,
		struct ckpt_err *err);
void rep_diff(struct rep *rep, const struct two *two);

/* rep_page.c: begin writes the page up to its data, end what follows. */
void rep_page_begin(FILE *out, const char *title);
void rep_page_end(FILE *out);
/* A stream into the data of the page: what would end a script is written \u003c.  NULL = none. */
FILE *rep_page_data(FILE *out);

/*
 * rep_dict.c: texts, each kept once and known by its number.  Zeroed = empty.
 */
struct rep_dict {
	char **text;
	size_t n, room;
	size_t *slot;		/* a hash table of numbers + 1 */
	size_t nslots;
};
/* Takes 'text', which malloc() made. */
size_t rep_dict_take(struct rep_dict *dict, char *text);
/* Its texts, which are JSON, as member 'key'. */
void rep_dict_json(const struct rep_dict *dict, struct json *json, const char *key);
void rep_dict_release(struct rep_dict *dict);
/* A stream whose text rep_dict_take() gets after fclose(); it ends the program without memory. */
FILE *rep_text_open(char **text, size_t *size);
/* A number of few digits; NaN and infinity are strings. */
void rep_real(FILE *out, double n);

#endif
