/*
 * en_checkpointer.h -- checkpoints of a training state: all ranks save it while they train, and
 * load it at any number of ranks and any stage.
 */
#ifndef EN_CHECKPOINTER_H
#define EN_CHECKPOINTER_H

#include "engine/checkpoint/en_best.h"
#include "engine/checkpoint/en_find.h"
#include "engine/checkpoint/en_fingerprint.h"
#include "engine/checkpoint/en_run_facts.h"
#include "engine/sched/en_scale.h"
#include "engine/sched/en_sched.h"
#include "engine/zero/en_zero.h"

/* Where a run is. */
struct en_place_in_run {
	int64_t steps, samples, skipped;
	uint64_t updates;	/* of the optimizer */
};

#define EN_CHECKPOINTER_RANK "rank-"	/* and five digits: folders of 'local' */

struct en_checkpointer_opts {
	const char *root;	/* folder of the steps */
	const char *job;	/* see struct ckpt_saver_opts */
	int to;			/* CKPT_TO_* */
	uint32_t stage;		/* of the files; the run's own for most */
	/*
	 * 'root' is on storage of each node's own: every rank saves in root/rank-00007, a step of
	 * its part (native form only).  All of them together are a step: ckpt_open() takes the
	 * list.
	 */
	bool local;
	/* Of DeepSpeed's layout. */
	bool round_robin;	/* stages 1 and 2 */
	uint64_t sub_group_size;	/* stage 3, elements; 0 = 1e9 */
	enum ckpt_sync sync;
	uint32_t timeout_ms;
	/*
	 * For copies of the state: 0 = all of this rank's, so that a save never waits for files.
	 * A smaller buffer waits until the excess has been written.
	 */
	uint64_t buffer_bytes;
	uint32_t threads;	/* that write, 1 to 64; 0 = by the cores that are left, at most 8 */
	uint32_t busy;		/* threads of this rank that compute */
	bool no_frozen;		/* steps are without frozen parameters */
	const char *beside;	/* model folder or config.json to copy into each step, and the
				 * base of adapters by name; or NULL */
};

struct en_checkpointer;

/* 'look' of struct ckpt_saver_opts: which ranks have ended; 'comm' is the table. */
void en_checkpointer_ranks_gone(void *comm, uint8_t *gone);

/*
 * The size of a buffer that holds all states of a rank (bytes of en_zero_cpu_expect()), so that
 * copying them never waits for the disk.
 */
uint64_t en_checkpointer_buffer(uint64_t bytes);
/* Bytes of masters and moments that this rank saves. */
uint64_t en_checkpointer_state(const struct en_zero *z);
/*
 * All ranks call it.  'z' and 'model' outlive '*checkpointer_out'.  CKPT_E_USAGE, CKPT_E_NOMEM,
 * codes of the collectives.
 */
int en_checkpointer_new(const struct en_model *model, struct en_zero *z, struct en_comm *comm,
			const struct en_checkpointer_opts *opts,
			struct en_checkpointer **checkpointer_out, struct ckpt_err *err);
/* Waits for the save in progress.  NULL is fine. */
void en_checkpointer_free(struct en_checkpointer *checkpointer);

/* The values of a step that are not tensors. */
struct en_checkpointer_values {
	struct en_place_in_run at;
	const struct en_zero_hyper *hyper;	/* by group: what is in force */
	const struct en_sched *sched;
	const struct en_scale *scale;
	double clip;
	const char *ds_config;	/* JSON, or NULL */
	const char *client;	/* JSON object, or NULL */
	bool replaces;		/* a step of that name may be there */
};

/*
 * Copies this rank's part of the state and begins to write it; waits for the previous save first.
 * A failure of the previous save is returned, with *old_out true; the new save begins nevertheless.
 *
 * If the state is on a device, the copy and the step's files have only begun when this returns: the
 * next save or en_checkpointer_wait() returns a failure.
 */
int en_checkpointer_save(struct en_checkpointer *checkpointer, const char *tag,
			 const struct en_checkpointer_values *values,
			 bool *old_out, struct ckpt_err *err);
/*
 * How the last save ended, and what it took.  'timeout_ms' 0 = as long as it takes; CKPT_E_BUSY if
 * it still runs then, as en_checkpointer_pending() says: a save that failed may have that code as
 * well.
 */
int en_checkpointer_wait(struct en_checkpointer *checkpointer, uint32_t timeout_ms,
			 struct ckpt_saved *out, struct ckpt_err *err);
/* A save was begun, and en_checkpointer_wait() has not returned its result. */
bool en_checkpointer_pending(const struct en_checkpointer *checkpointer);

/* The client's key under which en_run keeps where its data is: JSON as a text. */
#define EN_CHECKPOINTER_DATA "ztrain_data"
/* The same of data that the run has left by en_run_opts.new_data: an array of such objects. */
#define EN_CHECKPOINTER_LEFT "ztrain_data_before"

/* What a step gave back. */
struct en_loaded {
	struct en_place_in_run at;	/* 'samples' -1: the step does not say */
	bool resumed;		/* with moments; else the run begins with the weights */
	bool has_fingerprint;	/* this engine saved it */
	struct en_fingerprint fingerprint;
	struct en_in_force in_force;
	struct en_run_facts made;	/* 'n' 0: the step does not say */
	struct en_best best;	/* 'step' 0 and 'unfallen' 0 likewise */
	uint64_t bytes;		/* read by this rank */
	char *data;		/* the value of EN_CHECKPOINTER_DATA (ck_free), or NULL */
	char *left;		/* of EN_CHECKPOINTER_LEFT likewise */
	const char *tag;	/* that was loaded, lent; NULL = 'from' itself */
	char run[EN_RUN_TEXT];	/* the ids of its run (en_find.h); "" = it does not say */
};

/* What the model of a step is compared with before anything large is read. */
struct en_checkpointer_check {
	const struct en_run_facts *now;
	bool allow;			/* another model */
	struct en_differ *differ;
};

/*
 * What the caller says of a file of torch whose optimizer numbers its parameters: as in struct
 * ckpt_open_opts.
 */
struct en_owners {
	const char *order;
	const char *const *frozen, *const *buffers;
};

/* Where a run begins, and whose state it fills. */
struct en_resume {
	const struct en_model *model;
	struct en_zero *z;
	struct en_comm *comm;
	const char *from;		/* a folder of steps, a step, or weights */
	const struct en_found *found;	/* steps in it, the one that counts first; or NULL */
	const struct en_find_opts *find;	/* with 'found' */
	const struct en_checkpointer_check *check;
	struct en_sched *sched;		/* NULL, and 'scale' too: they stay unread */
	struct en_scale *scale;
	uint64_t seed;			/* of adapters */
	const char *adapter;		/* a folder of PEFT's that they begin with; or NULL */
	const char *weights;		/* of frozen parameters that a step lacks; or NULL */
	const char *config;		/* of the model, where a step has none: a folder or file */
	struct en_owners owners;	/* all NULL: 'from' says it itself */
};

/*
 * Masters and moments of this rank, and where the run was.  A step that a rank finds damaged
 * (CKPT_E_CORRUPT, CKPT_E_INCOMPLETE) is skipped by all ranks, which load the one before it; rank
 * 0 prints a line.  en_zero_sync_params() comes next; en_loaded_release() also after a failure.
 */
int en_resume_load(const struct en_resume *resume, struct en_loaded *out, struct ckpt_err *err);
/* Masters of adapters alone, from r->adapter or r->seed. */
int en_resume_adapters(const struct en_resume *resume, struct ckpt_err *err);
void en_loaded_release(struct en_loaded *loaded);

#endif
