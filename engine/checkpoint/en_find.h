/*
 * en_find.h -- where a run begins, and which steps of its folder it may replace.
 *
 * Rank 0 searches before the first step and sends the result to all ranks.  A step belongs to a run
 * by the key "ztrain_run_id" of its client state: the run's own id, then the ids of the runs that
 * it resumed, the newest first.  A run that resumes from its last step keeps its id; one that
 * leaves later steps, or saves in another folder, takes a new one.  So two runs in one folder have
 * different ids.
 */
#ifndef EN_FIND_H
#define EN_FIND_H

#include <stdbool.h>
#include <stdint.h>

#include <ckpt_value.h>

#include "engine/comm/en_comm.h"

#define EN_FIND_MOST 8		/* steps to begin with, the later ones if the first is damaged */
#define EN_FIND_NAME 256
#define EN_RUN_ID 17		/* 16 hexadecimal digits */
#define EN_RUN_TEXT 160		/* ids of a run, blanks between them */
#define EN_RUN_KEY "ztrain_run_id"

/* A step in the folder that is saved to. */
struct en_step_found {
	char name[EN_FIND_NAME];
	char run[EN_RUN_ID];	/* "" = it does not say */
	char ids[EN_RUN_TEXT];	/* the same, and those of the runs that it resumed */
	bool whole;
};

struct en_found {
	uint32_t n;		/* steps to begin with, the one that counts first */
	char tag[EN_FIND_MOST][EN_FIND_NAME];
	bool same_folder;	/* they are in the folder that is saved to */
	uint64_t nsteps;	/* in that folder */
	struct en_step_found *step;
};

struct en_find_opts {
	const char *save;	/* folder that is saved to, or NULL */
	const char *from;	/* folder to resume from, or a step, or weights; NULL = none */
	bool newest;		/* from == save: without a step the run begins */
	bool overwrite;		/* steps of other runs may be replaced */
	enum ckpt_sync sync;
	/* Called by rank 0: which steps were skipped or kept, and why. */
	void (*say)(const char *line);
};

/*
 * All ranks call it.  If the run resumes from the folder that it saves to, rank 0 first removes the
 * remains of a killed run, and 'latest' then names the step that is resumed.
 *
 *	CKPT_E_INCOMPLETE  the folder has steps, and none is whole
 *	CKPT_E_MISMATCH    steps of different runs, and 'latest' decides for none
 *	CKPT_E_EXISTS      a new run, and the folder has steps ('overwrite' lets them be replaced)
 *	CKPT_E_USAGE       each rank has saved in a folder of its own
 *	CKPT_E_NOTFOUND, CKPT_E_IO, CKPT_E_NOMEM, codes of the collectives
 */
int en_find_steps(const struct en_find_opts *opts, struct en_comm *comm, struct en_found *out,
		  struct ckpt_err *err);
void en_found_release(struct en_found *found);

/* N of "global_stepN", or of "checkpoint-N", as the Trainer calls a step; -1 for another name. */
int64_t en_find_number(const char *name);

/* Step 'tag' counts from now on: the run could not load one before it. */
int en_find_set_latest(const struct en_find_opts *opts, const char *tag, struct ckpt_err *err);

/* The ids that a step has under EN_RUN_KEY; "" if none, or no ids. */
void en_run_ids(struct ckpt_values *values, char out[EN_RUN_TEXT]);
/* The ids of a run that resumes from 'before' (NULL or "" = it begins); 'job' makes a new one. */
void en_run_name(const struct en_found *found, const char *before, const char *tag,
		 const char *job, char out[EN_RUN_TEXT]);
/*
 * May a run of these ids save a step 'name'?  CKPT_E_EXISTS with the reason; '*replaces_out': there
 * is one of its own.
 */
int en_find_may_save(const struct en_find_opts *opts, const struct en_found *found,
		     const char *ids, const char *name, bool *replaces_out,
		     struct ckpt_err *err);

/*
 * No other run saves in 'dir' until en_unlock_folder(); CKPT_E_BUSY names who does, CKPT_E_IO: the
 * lock's file cannot be opened, or is a link.  By rank 0.  '*lock_out' is -1 where the file system
 * has no locks.
 */
int en_lock_folder(const char *dir, int *lock_out, struct ckpt_err *err);
/* -1 is fine. */
void en_unlock_folder(const char *dir, int lock);

#endif
