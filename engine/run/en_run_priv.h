/* en_run_priv.h -- what the files of a run share. */
#ifndef EN_RUN_PRIV_H
#define EN_RUN_PRIV_H

#include "engine/run/en_run.h"

struct en_run {
	const struct en_run_opts *o;
	struct en_ran *out;
	struct en_zero *z;
	struct en_checkpointer *checkpointer;
	struct en_eval_set *eval_set;		/* NULL: nothing is evaluated */
	struct en_sched sched;
	struct en_scale scale;
	struct en_fingerprint fingerprint;
	struct en_zero_hyper base[EN_SCHED_GROUPS];	/* without rates, and what schedules set */
	struct en_zero_hyper hyper[EN_SCHED_GROUPS];
	struct en_differ differ;
	struct en_place_in_run at;
	/* Of a micro-batch; with the mean over tokens of all own.  starts: NULL unless packed. */
	int32_t *ids, *labels, *starts;
	double *loss;			/* of every micro-batch of a step; en_step.c: and memory */
	uint64_t n_micro_batches;			/* of all ranks */
	uint64_t n_shared;		/* entries of 'loss' */
	double *memory;			/* of all ranks, as sent; or NULL */
	double resident, read_at;	/* this rank's peak in bytes, and when it was read */
	int64_t saved_at;		/* steps of the last save, -1 = none */
	struct en_best best;
	int64_t best_saved;		/* its step when that save was asked for; 0 = none */
	int64_t best_named;		/* by the file 'best'; 0 = not by this run */
	int64_t data_from;		/* samples of the run before this data */
	char *data_left;		/* JSON array of the data before it, or NULL */
	double save_began;
	char run[EN_RUN_TEXT];		/* ids, en_find.h */
};

/* en_step.c */
/* r->base, as the settings say. */
void en_run_init_hyper(struct en_run *r);
/* Rates of the update that comes. */
void en_run_set_hyper(struct en_run *r);
/* '*stop_out': it was broken off between two micro-batches, and nothing of it counts. */
int en_run_step(struct en_run *r, struct en_step_report *report, bool *stop_out,
		struct ckpt_err *err);
/* Every rank knows it at the same place. */
int en_run_wants_stop(struct en_run *r, bool *out, struct ckpt_err *err);

/* en_save.c */
bool en_run_is_due(int64_t steps, int64_t every);
/* After which this call ends. */
int64_t en_run_last_step(const struct en_run_opts *opts);
/* Steps that this run will save are known: one that it must not replace stops it now. */
int en_run_check_saves(const struct en_run *r, struct ckpt_err *err);
int en_run_make_checkpointer(struct en_run *r, struct ckpt_err *err);
/* The folder that is saved to has it, and it was whole. */
bool en_run_has_step(const struct en_run *r, int64_t steps);
/* That step, or one that a resumed run knows to be the best, is whole: 'best', and old steps. */
void en_run_settle(struct en_run *r);
/* The run continues after a failed save: the next save, or the end, returns its error. */
int en_run_save(struct en_run *r, struct ckpt_err *err);

/* What a step of this run records of its configuration. */
void en_run_fill_facts(struct en_run_facts *facts, const struct en_run *r);

#endif
