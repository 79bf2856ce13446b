/*
 * shelf.h -- what `serve` and `mount` show of a path: the same names in both.
 *
 *	[STEP/]FILE		weights as they were saved, config.json, the tokenizer
 *	[STEP/]fp32/FILE	weights in that type; bf16/ and fp16/ likewise
 *	[STEP/]state/FILE	a file for each state: exp_avg.safetensors, ...
 *
 * A path that is one step, or a file, has no STEP.  Steps are opened when they are needed, and some
 * are closed again when many are open.
 */
#ifndef SHELF_H
#define SHELF_H

#include <pthread.h>

#include "../cli_steps.h"

#define SHELF_FORMS 5
#define SHELF_STATE 4	/* the form of the states */

/* "", "fp32", "bf16", "fp16", "state". */
extern const char *const shelf_form_name[SHELF_FORMS];

/* A step, or the one checkpoint that the path is. */
struct shelf_step {
	char *name;		/* its folder; "" of a single one */
	char *path;
	int64_t time;		/* seconds since 1970, of its newest file */
	int64_t number;		/* -1 = unknown */
	int is_latest;
	/* The rest is the shelf's: */
	pthread_mutex_t lock;
	struct ckpt *ck;
	struct ckpt_view_checks *checks;
	struct ckpt_view *view[SHELF_FORMS];
	char tag[SHELF_FORMS][33];	/* of the form's first file when it was opened first */
	unsigned users;
	uint64_t used;		/* when, on the shelf's own clock */
	int stale;		/* a file changed: close it when there is no user */
};

struct shelf {
	const struct args *args;
	const char *path, *aux;
	struct ckpt_select select;
	struct shelf_step *step;
	size_t n;
	int single;		/* one checkpoint, whose files are at the top */
	/*
	 * A kernel keeps pages of files: a step that changed stays an error.  Else it is opened
	 * again, with other tags.
	 */
	int keeps_first;
	pthread_mutex_t lock;	/* guards what follows */
	uint64_t clock;
	struct words log;
	uint64_t log_lost;
	int log_quiet;		/* no line on stderr */
	const char *latest;	/* name of the step that the folder means, or NULL */
};

/* Finds the steps of the path.  0, or the exit status after saying why not. */
int shelf_open(struct shelf *shelf, const struct args *args, const char *path);
void shelf_close(struct shelf *shelf);
/* The step of that name, of a single one ""; NULL if there is none. */
struct shelf_step *shelf_step(struct shelf *shelf, const char *name, size_t len);

/*
 * The view of a form, until shelf_put(): opened if it is not.  0 or -code; '*view_out' is NULL, and
 * the result 0, for the states of a checkpoint that has none.  Any thread.
 */
int shelf_get(struct shelf *shelf, struct shelf_step *step, int form,
	      struct ckpt_view **view_out, struct ckpt_err *err);
void shelf_put(struct shelf *shelf, struct shelf_step *step);
/* ckpt_view_read() and ckpt_view_check() of what shelf_get() gave; a failure goes to the log. */
int shelf_read(struct shelf *shelf, struct shelf_step *step, struct ckpt_view *view,
	       uint64_t file, uint64_t off, size_t n, void *buf, struct ckpt_err *err);
int shelf_check(struct shelf *shelf, struct shelf_step *step, struct ckpt_view *view,
		uint64_t file, uint64_t off, uint64_t n, struct ckpt_err *err);

/* What a path names: "STEP/fp32/model.safetensors", without a slash in front. */
struct shelf_place {
	enum { SHELF_NOTHING, SHELF_TOP, SHELF_FOLDER, SHELF_FILE } kind;
	struct shelf_step *step;	/* of folders and files */
	int form;
	const char *file;		/* a name, which the view may not have; lent by the path */
};
/*
 * By its words alone; 'latest' is a second name of the step that the folder means.  The folder of
 * a single checkpoint is a SHELF_FOLDER, that of several steps SHELF_TOP.
 */
void shelf_find(struct shelf *shelf, const char *path, struct shelf_place *out);

/* A failure that a reader met: a line on stderr, and in the log, once while it is the last. */
void shelf_log(struct shelf *shelf, const struct shelf_step *step, const struct ckpt_err *err);
/* The log as text, a line for each; free(). */
char *shelf_log_text(struct shelf *shelf);

#endif
