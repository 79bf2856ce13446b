/*
 * en_run.h -- a training run from its settings to its end: model, data, state, steps, saves.  The
 * program (ztrain) fills in the options and prints what its callbacks are given.
 */
#ifndef EN_RUN_H
#define EN_RUN_H

#include "engine/config/keys/en_settings.h"
#include "engine/zero/cuda/en_zero_cuda.h"
#include "engine/checkpoint/en_checkpointer.h"
#include "engine/eval/en_eval_set.h"
#include "engine/checkpoint/en_export.h"
#include "engine/checkpoint/en_fingerprint.h"
#include "libckpt/base/ck_buf.h"

/* Where the rows of a step come from. */
struct en_data_loader {
	void *arg;
	/*
	 * The rows of a micro-batch of the step that begins at sample 'start': ids, labels and, of
	 * packed rows (else NULL), starts [rows, tokens] as in struct en_batch.
	 */
	int (*rows)(void *arg, uint64_t start, uint64_t micro_batch, int32_t *ids, int32_t *labels,
		    int32_t *starts, struct ckpt_err *err);
	/* Where it is after so many samples, as JSON, and back. */
	int (*state)(void *arg, uint64_t samples, struct ck_buf *buf, struct ckpt_err *err);
	int (*resume)(void *arg, const char *state, uint64_t len, uint64_t *samples_out,
		      struct ckpt_err *err);
};

/* The report of a step; rank 0 has all numbers. */
struct en_step_report {
	struct en_place_in_run at;	/* after it */
	double loss, lr, grad_norm, loss_scale, seconds;
	uint64_t rows, tokens;		/* of all ranks */
	bool skipped;
	bool has_eval;
	double eval_loss;		/* of the held-out rows, by the parameters after the step */
	const struct en_mem *mem;
	const struct en_comm *comm;
	/*
	 * With en_run_opts.rank_memory, else NULL: bytes of each rank, lent until the next step.
	 * The peak of its process as the system counts it (0: unknown); on GPUs that of its device
	 * (en_mem_peaks()), else NULL.
	 */
	const double *rank_memory, *rank_device;
};

/* The report before the first step; the same on every rank except 'mem'. */
struct en_start_report {
	struct en_place_in_run at;
	bool resumed;			/* where a checkpoint left off, with its moments */
	const char *tag;		/* of the step in the folder that was given, or NULL */
	uint64_t read_bytes;		/* by all ranks */
	double read_seconds;		/* of this one */
	bool same_bits;			/* en_fingerprint.h */
	char bits[EN_FINGERPRINT_TEXT];	/* the sentence about it */
	const struct en_differ *differ;	/* what is another than the step's; lent */
	const struct en_mem *mem;
	const char *device;		/* what computes, in words; "" = the CPU */
	const char *drive;		/* how a file of states is read and written; or "" */
	uint64_t save_bytes;		/* of this rank in a save; 0: nothing is saved */
};

struct en_run_opts {
	const struct en_model *model;
	struct en_comm *comm;
	const struct en_settings *set;
	enum en_ds_version version;
	const char *config_json;	/* what goes into checkpoints as ds_config, or NULL */
	const char *scheduler;		/* one of transformers', NULL = the settings' own */
	const char *scheduler_args;	/* its lr_scheduler_kwargs as JSON, or NULL */
	double warmup_steps;		/* of it; below 1: that part of 'steps'; NAN = none */
	struct en_data_loader loader;
	struct en_eval_loader eval_loader;	/* no micro-batches = no evaluation */
	int64_t eval_every;		/* steps; 0 = after the last one only */
	bool token_mean;		/* the loss is the mean of a step's tokens; else of its
					 * micro-batches' means */
	bool as_deepspeed;		/* of fp16: see struct en_zero_opts */
	const struct en_cuda_opts *cuda;	/* NULL: on the CPU */
	uint32_t tokens;		/* of a row */
	bool packed;			/* rows may hold several documents */
	uint32_t threads;
	bool recompute;
	uint64_t seed;
	int64_t steps;			/* of the whole run */
	int64_t stop_at;		/* end after this one; 0 = the last */
	bool rank_memory;		/* the report of a step has the memory of all ranks */
	/* Saving. */
	const char *save_root;		/* NULL = never */
	const char *save_beside;	/* the model's folder or config.json; or NULL */
	const char *job;
	int save_to;			/* CKPT_TO_* */
	int64_t save_every;		/* steps; 0 = at the end only */
	enum ckpt_sync sync;
	uint64_t save_buffer;		/* bytes for copies (en_checkpointer.h); 0 = all */
	uint32_t save_threads;		/* that write; 0 = by the cores */
	/*
	 * Not 0: end after the micro-batch in work, saved as after the last whole step, for which
	 * there are 'grace_ms' (0 = no limit).  NULL = never.
	 */
	const volatile int *stop;
	uint32_t grace_ms;
	/* Beginning: a folder of steps, a step, or weights; NULL = random. */
	const char *from;
	const struct en_find_opts *find;	/* how 'found' was found; or both NULL */
	const struct en_found *found;	/* steps in 'from', and those that saves may meet */
	unsigned stated;	/* EN_HAS_*: values that replace the step's */
	unsigned unsaid;	/* EN_HAS_*: values that neither an option nor the file states */
	const char *weights;	/* of frozen parameters that a step lacks: the model's folder; or
				 * NULL */
	struct en_owners owners;	/* of states in 'from' */
	const char *adapter;	/* a folder of PEFT's that adapters begin with; or NULL */
	bool no_frozen;		/* steps are saved without frozen parameters */
	bool other_model;	/* a step of another config.json is taken */
	bool new_data;		/* so is a step of other data; this one begins at row 1 */
	const struct en_export_opts *export;	/* at the end, unless it was stopped; or NULL */
	/* With evaluations and 'save_root': */
	bool keep_best;		/* a step whose evaluation is the lowest is saved, and 'best' */
	uint64_t save_most;	/* newest steps that stay, besides 'best'; 0 = all */
	int64_t patience;	/* end after so many evaluations that do not fall; 0 = never */
	bool eval_only;		/* the loss of 'eval_loader' for what 'from' has, and no step */
	/* A code of on_start() ends the run.  Either may be NULL. */
	int (*on_start)(void *arg, const struct en_start_report *start, struct ckpt_err *err);
	void (*on_step)(void *arg, const struct en_step_report *step);
	void *callback_arg;
};

struct en_ran {
	struct en_place_in_run at;
	bool stopped;		/* by 'stop' */
	bool gave_up;		/* by 'patience' */
	struct en_best best;	/* of all evaluations, also before a resume */
	bool was_over;		/* it began after its last step: nothing was trained */
	bool has_eval;		/* of the state of such a run, and with 'eval_only' */
	double eval_loss;
	uint64_t eval_tokens;	/* that count in it */
	const char *tag;	/* of the step that was read; of 'found', or NULL */
	double eval_seconds;
	bool left;		/* 'grace_ms' were over before the save, which continues in
				 * memory of the run's: end the process by en_comm_abort() */
	struct ckpt_saved saved;	/* the last save */
	uint64_t saves;
	double save_seconds;	/* that saves took from the steps */
	double last_save_seconds;	/* of the last one, from the request to its commit */
	struct en_mem mem;	/* of this rank */
	bool exported;
	struct ckpt_saved export;
	double export_seconds;
};

/* What a state is made with, as the settings say. */
void en_run_state_opts(const struct en_settings *set, uint32_t tokens, uint32_t threads,
		       bool recompute, struct en_zero_opts *zero, struct en_zero_rule *rule);

/*
 * Codes of the parts.  A failed save is reported by the next save, or at the end; the run continues
 * until then.
 */
int en_run(const struct en_run_opts *opts, struct en_ran *out, struct ckpt_err *err);

#endif
