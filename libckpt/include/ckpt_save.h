/*
 * ckpt_save.h -- saving from a training loop: every rank puts what it holds, and threads write it
 * while training continues.  Part of <ckpt.h>.
 *
 *	ckpt_saver_new                       once per process
 *	ckpt_save_begin                      each save, on every rank, in the same order
 *	ckpt_save_put ... ckpt_save_put      what this rank holds
 *	ckpt_save_commit                     training may continue
 *	ckpt_save_wait                       (optional) the result
 *	ckpt_saver_free
 *
 * Ranks do not communicate: all of them give the same description, so each knows the whole layout,
 * and writes its elements where they belong.  Each leaves a record of what it put beside the data;
 * rank 0 waits for all records, checks that every element was put exactly once, fills in the sums
 * and renames the step into place.  So a step appears complete or not at all, and files may be cut
 * otherwise than the ranks' shares (docs/formats/partial.md, "Save sessions").
 *
 * A save, as each rank calls it:
 *
 *	if (!ckpt_save_begin(saver, &step, &err)) {
 *		for (i = 0; i < nmine && !rc; i++)
 *			rc = ckpt_save_put(saver, mine[i].tensor, "master", mine[i].first,
 *					   mine[i].count, mine[i].p, 0, &err);
 *		if (rc)
 *			ckpt_save_abort(saver, err.msg);
 *		else
 *			rc = ckpt_save_commit(saver, &err);
 *	}
 *	... the next steps of the training ...
 *	rc = ckpt_save_wait(saver, 0, NULL, &err);
 *
 * One thread at a time uses a saver.  A saver has threads of its own until it is freed; a forked
 * child does not have them.
 */
#ifndef CKPT_SAVE_H
#define CKPT_SAVE_H

#include <ckpt.h>
#include <ckpt_reshard.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * The saves of one rank: at most one is in progress, and all use the same threads and buffer.
 */
struct ckpt_saver;

/*
 * A flag of a saver.  'root' is on storage of this rank alone, a root for each: no rank sees what
 * others write, and none waits for them.  Each rank completes its part of the step alone (native
 * form, with 'own'), and puts it into place with a manifest of its own.  To read it, pass the
 * folders of all ranks to ckpt_open(), or one folder with copies of all their files: they are one
 * step, if none is missing.  An element that two ranks hold, or none, is a finding when it is read.
 * Nothing is linked (frozen_from) unless there is one rank.
 */
#define CKPT_SAVER_LOCAL 2u

/* Zero in a number means the default in parentheses.  Strings are copied. */
struct ckpt_saver_opts {
	size_t size;		/* sizeof(struct ckpt_saver_opts) */
	const char *root;	/* folder of the steps; made if its parent exists */
	const char *job;	/* the same text on every rank, and a new one at each start of the
				   job, such as the launcher's job number and the time.  May be
				   NULL if there is one rank */
	uint32_t rank, nranks;	/* of the processes that save, nranks 1 to 4096 */
	uint32_t threads;	/* that write, 1 to 64; 0 = 2 */
	uint64_t buffer_bytes;	/* for copies of what is put, allocated and touched at once
				   (256 MiB); at least 1 MiB */
	enum ckpt_sync sync;	/* of a step before it is renamed */
	uint32_t timeout_ms;	/* rank 0: for the other ranks (300,000) */
	unsigned flags;		/* CKPT_SAVER_* */
	/*
	 * Called some times a second while ckpt_save_wait(), ckpt_save_begin() and
	 * ckpt_saver_free() wait for other ranks, in the thread that calls these; sets gone[r]
	 * [nranks] for ranks that have certainly ended.  A save that lacks something of theirs
	 * then fails at once instead of after 'timeout_ms'.  NULL: it is not known which ranks
	 * have ended.
	 */
	void (*look)(void *arg, uint8_t *gone);
	void *look_arg;		/* its first argument */
};

/*
 * Make a saver: its threads start, its buffer is allocated.  Nothing is written, and the root is
 * not examined.  Returns 0 and '*saver_out' for ckpt_saver_free(), or the negative of
 *	CKPT_E_USAGE  no root; an impossible rank or nranks; several ranks and no 'job'; more than
 *	              64 threads; a buffer below 1 MiB; unknown flags
 *	CKPT_E_NOMEM
 *	CKPT_E_IO     a thread could not be started
 */
CKPT_API int ckpt_saver_new(const struct ckpt_saver_opts *opts, struct ckpt_saver **saver_out,
			    struct ckpt_err *err);
/*
 * Waits for a save that was committed, discards one that was not.  NULL is fine.
 */
CKPT_API void ckpt_saver_free(struct ckpt_saver *saver);

/* ---------------------------------------------------------------- what a step is */

/*
 * A tensor of the model.  Trainable ones have a group, and the states of ckpt_save_step in
 * addition to their weight; others have a weight only.  The order is that of the model's state
 * dict; within a group it is the optimizer's.
 */
struct ckpt_save_tensor {
	const char *name;	/* as in the model's state dict */
	const uint64_t *shape;	/* [ndim] */
	uint32_t ndim;		/* 0: one element */
	enum ckpt_role role;	/* TRAINABLE, FROZEN, BUFFER or ALIAS */
	enum ckpt_dtype dtype;	/* of the weight */
	int32_t group;		/* TRAINABLE: its param group; else -1 */
	uint64_t alias_of;	/* ALIAS: number of the tensor that it names; HUGGINGFACE: the name
				   must not be "format" or "zckpt.*" (keys of the metadata) */
	int derived;		/* TRAINABLE: the weight is not put: it is the rounded master */
};

/* A state that every trainable tensor has: "master", "exp_avg", ... */
struct ckpt_save_state {
	const char *name;	/* the optimizer's; pass it to ckpt_save_put() */
	enum ckpt_dtype dtype;	/* in which it is put and written */
};

/* A param group of Adam, as a run that resumes needs it. */
struct ckpt_save_group {
	double lr, initial_lr, weight_decay, beta1, beta2, eps;
	int64_t step;		/* of the optimizer */
};

/* Of fp16.  Zero = a static scale of one. */
struct ckpt_save_scaler {
	int dynamic;			/* the scale moves; else it is fixed */
	double scale, min_scale;	/* as DeepSpeed's cur_scale, min_scale */
	/* cur_iter, last_overflow_iter, scale_window, delayed_shift, cur_hysteresis */
	int64_t iter, last_overflow, window, hysteresis, hysteresis_left;
};

/* Elements first .. first + count - 1 of a tensor, row-major, of all its states. */
struct ckpt_save_range {
	uint64_t tensor, first, count;	/* elements */
};

/* Flags of a save. */
#define CKPT_SAVE_FORCE 1u		/* replace a step of that name */
#define CKPT_SAVE_NO_LATEST 2u		/* do not change 'latest' */

/*
 * Not a step, but the weights alone as a folder for transformers: model.safetensors, or shards and
 * their index, config.json, tokenizer.  'tag' names it in 'root'.  Each tensor's weight is written
 * in its type ('derived': the master, rounded once), second names are only mentioned in the
 * metadata, and states that are not needed may be put and are dropped.  The bytes of the files do
 * not depend on the ranks.  'stage', 'world' and everything except tensors are ignored, 'own' is
 * NULL, and 'latest' does not change.  With CKPT_SAVE_FORCE other files of an existing folder stay.
 */
#define CKPT_TO_HUGGINGFACE 3

/* The step: the same on every rank, except 'own' and what rank 0 alone gives. */
struct ckpt_save_step {
	size_t size;		/* sizeof(struct ckpt_save_step) */
	const char *tag;	/* "global_step300" */
	/*
	 * The layout, as in struct ckpt_reshard_opts, or CKPT_TO_HUGGINGFACE.  CKPT_TO_DCP: a
	 * trainable tensor is in the folder as its master if it has one, and a weight that is put
	 * beside it is dropped, as FSDP has one copy of it; declare it 'derived'.  The same for
	 * CKPT_TO_TRAINER, whose 'tag' should be "checkpoint-N": the Trainer looks for it.
	 */
	int to;			/* CKPT_TO_DEEPSPEED, _UNIVERSAL, _NATIVE, _DCP, _TRAINER */
	int stage;		/* 0 to 3; 4 = BF16_Optimizer; NATIVE: shown by inspect */
	uint32_t world;		/* ranks of the layout; 0 = nranks */
	int round_robin;	/* 0 or 1: round_robin_gradients of stages 1 and 2 */
	uint64_t sub_group_size;	/* stage 3; 0 = 1e9 */
	const char *ds_version;		/* that will load it; NULL = "0.19.8" */
	const struct ckpt_save_tensor *tensor;	/* [ntensors]: all of the model's */
	uint64_t ntensors;
	const struct ckpt_save_state *state;	/* [nstates]: of trainable tensors */
	uint64_t nstates;
	const struct ckpt_save_group *group;	/* [ngroups] */
	uint64_t ngroups;
	int64_t steps, samples, skipped;	/* global_steps, global_samples, skipped_steps */
	const struct ckpt_save_scaler *scaler;	/* or NULL */
	double clip_grad;	/* gradient_clipping, 0 = none */
	/* JSON objects, or NULL. */
	const char *ds_config;
	const char *scheduler;	/* the state of the lr scheduler */
	const char *client;	/* the caller's own keys */
	/*
	 * NATIVE: what this rank will put, the same for all states, in the order of this rank's
	 * file; each rank gives its own and writes one file.
	 * NULL: files of equal shares, and any rank may put any element.
	 */
	const struct ckpt_save_range *own;
	uint64_t nown;		/* of 'own' */
	unsigned flags;		/* CKPT_SAVE_* */
	/*
	 * NATIVE: the tag of an earlier step of this root, or NULL; the same on every rank.  If it
	 * has the frozen files that this save would write (the same tensors, cut the same way, with
	 * known sums), they become hard links to its files, and frozen elements need not be put:
	 * see ckpt_save_needs().  Else they are written as if this were NULL.  The elements are
	 * not compared: after a change of a frozen parameter leave this out once.
	 */
	const char *frozen_from;
	uint64_t max_shard_bytes;	/* of HUGGINGFACE; 0 = 5,000,000,000 */
	/*
	 * What a model needs besides its weights.  A step has it in its folder, where convert finds
	 * it; rank 0's are used, and a folder that no longer exists by then is ignored.
	 */
	const char *config_json;	/* text of config.json; NULL = that of 'aux_dir' */
	const char *aux_dir;	/* folder whose generation_config.json, tokenizer and the like are
				   copied (HUGGINGFACE: by the ranks); or NULL */
	const char *adapter_json;	/* text of PEFT's adapter_config.json, of a step whose
					   trained tensors are an adapter's; or NULL */
};

/*
 * Begin a save; waits for the one before it.  Everything in 'step' is copied.  The space of the
 * step is allocated here, so a full disk fails here.
 *
 * Returns 0 or the negative of
 *	CKPT_E_USAGE        a description that contradicts itself, an impossible layout
 *	CKPT_E_EXISTS       a step of that name, without CKPT_SAVE_FORCE
 *	CKPT_E_NOSPACE      the disk has less free space than the step needs
 *	CKPT_E_BUSY         another process saves this step here; for a rank of this job that still
 *	                    completes an earlier save of that name the call waits (timeout_ms)
 *	CKPT_E_MISMATCH     another rank describes this save differently, or found other files in
 *	                    'frozen_from'
 *	CKPT_E_UNSUPPORTED  a state or type that the layout has no place for
 *	CKPT_E_IO, CKPT_E_NOMEM, CKPT_E_CORRUPT (JSON)
 * After a failure there is nothing to abort, and the next save may begin.
 */
CKPT_API int ckpt_save_begin(struct ckpt_saver *saver, const struct ckpt_save_step *step,
			     struct ckpt_err *err);

/*
 * Must anything of this tensor be put?  0 for a frozen one that is linked (frozen_from): puts of it
 * are accepted and dropped; for an alias, and without an open save.  Else 1, whichever rank has it.
 * If files are cut as the ranks hold their elements ('own'), each rank has its own answer.
 */
CKPT_API int ckpt_save_needs(const struct ckpt_saver *saver, uint64_t tensor);

/* The memory at 'p' must not change until ckpt_save_wait() returns: it is not copied. */
#define CKPT_PUT_BORROW 1u

/*
 * Elements first .. first + count - 1 of a state ("weight", "master", ...), row-major, in the
 * state's type.  When this returns the memory may change (except with CKPT_PUT_BORROW): it was
 * copied, if necessary after waiting for room in the buffer.  All ranks together put each element
 * of each state exactly once; no element of a derived weight or of an alias.
 *
 * Cost: a copy.  Writing begins when the buffer is full, or with ckpt_save_commit(), so that it
 * does not compete with the copies.
 *
 * Returns 0 or the negative of CKPT_E_USAGE (unknown state, elements beyond the end or not among
 * 'own'), or the failure of a writer.  Elements that were put twice are detected at the end, by
 * ckpt_save_wait() of rank 0.
 */
CKPT_API int ckpt_save_put(struct ckpt_saver *saver, uint64_t tensor, const char *state,
			   uint64_t first, uint64_t count, const void *p, unsigned flags,
			   struct ckpt_err *err);

/*
 * This rank has put everything.  Returns at once: 0, or the failure of a writer so far; then the
 * save has ended, and ckpt_save_wait() returns 0.
 */
CKPT_API int ckpt_save_commit(struct ckpt_saver *saver, struct ckpt_err *err);

/*
 * Discard the open save, and say why: queued data are dropped, rank 0 finds the reason in this
 * rank's record and ends the save for all.  'why' may be NULL.  Without an open save it does
 * nothing, so it may follow any failure.
 */
CKPT_API void ckpt_save_abort(struct ckpt_saver *saver, const char *why);

/* What a save cost this rank.  Seconds are of the wall clock. */
struct ckpt_saved {
	uint64_t put_bytes;	/* by this rank */
	uint64_t written_bytes;	/* by this rank */
	uint64_t nfiles, file_bytes;	/* of the step */
	double begin_seconds;	/* in ckpt_save_begin(), without waiting for the one before */
	double put_seconds;	/* in ckpt_save_put() */
	double write_seconds;	/* from commit until this rank's bytes were on their way (synced) */
	double commit_seconds;	/* rank 0: until the step was in its place */
	uint64_t linked_bytes;	/* of files that this rank linked to those of another step */
};

/*
 * Wait for the save that was committed: on rank 0 until the step is in its place, on others until
 * they see it there.  timeout_ms 0 = as long as it takes; CKPT_E_BUSY if the save still
 * runs then (ckpt_save_pending()).  '*out' may be NULL.  Without a save, or for one whose result
 * was returned already, returns 0.
 *
 * Returns 0 or the negative of
 *	CKPT_E_INCOMPLETE  rank 0: a rank did not complete its part in time or aborted, or no rank
 *	                   put some elements; the message names them.  Others: rank 0 did not end
 *	                   the save in twice its time-out, or its result is no longer available
 *	CKPT_E_MISMATCH    rank 0: elements were put twice
 *	CKPT_E_USAGE       a save is open that was not committed
 *	CKPT_E_NOSPACE, CKPT_E_IO, CKPT_E_NOMEM, CKPT_E_EXISTS
 * or, on other ranks, the reason why rank 0 ended it.
 * After any failure nothing of the step is in its place, unless the message says that it is.
 */
CKPT_API int ckpt_save_wait(struct ckpt_saver *saver, uint32_t timeout_ms,
			    struct ckpt_saved *out, struct ckpt_err *err);

/*
 * 1 if a save was committed and ckpt_save_wait() has not returned its result, else 0.  After
 * CKPT_E_BUSY it distinguishes a save that still runs from one that failed with that code.
 */
CKPT_API int ckpt_save_pending(const struct ckpt_saver *saver);

/*
 * Wait until no committed save is being written, or until 'timeout_ms' have passed (0 = as long as
 * it takes): 1 if none is, else 0.  ckpt_save_wait() still returns the result.
 *
 * For a program that waits for its saves before it ends: call it in a function of atexit(), or in a
 * thread that a signal handler wakes, since a handler itself may not wait.  From any thread, while
 * others make any call except ckpt_saver_free().  Not in a forked child, which has none of the
 * threads that write: compare getpid().
 */
CKPT_API int ckpt_saver_drain(struct ckpt_saver *saver, uint32_t timeout_ms);

#ifdef __cplusplus
}
#endif
#endif
