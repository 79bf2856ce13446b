/*
 * en_config.h -- DeepSpeed's JSON and accelerate's YAML, unchanged, as settings of the engine.
 *
 * Calling sequence:
 *
 *	struct en_config cfg;
 *	struct en_facts facts = { .world = 4, .hidden_size = 4096, ... };
 *
 *	en_config_init(&cfg, EN_DS_0_19);
 *	rc = en_config_read_deepspeed(&cfg, "ds_config.json", &err);	(or _read_accelerate)
 *	if (!rc)
 *		rc = en_config_resolve(&cfg, &facts, &err);
 *	... en_config_screen() also where that failed: it says what was refused and why ...
 *	... cfg.set, en_config_origin() ...
 *	en_config_release(&cfg);
 *
 * Reading a file only makes a tree of it.  Resolving does what DeepSpeed, accelerate and the
 * Trainer of transformers do between them: fill in "auto", read the values as their classes read
 * them, take defaults, derive the batch sizes.  Every key of the file ends with a verdict.
 *
 * The rule for keys: a key that changes numbers, or files that others read, is used or refused; a
 * key that moves only speed, memory or order of sums may be without effect here, and that is said.
 *
 * Nothing here prints, ends the process or reads the environment.  One thread a struct.
 */
#ifndef EN_CONFIG_H
#define EN_CONFIG_H

#include "engine/config/en_node.h"

/* ------------------------------------------------------------ whose rules */

/* Versions whose rules and defaults are known, from the real classes. */
enum en_ds_version { EN_DS_0_16 = 1, EN_DS_0_18, EN_DS_0_19 };

/* "0.19.8" for EN_DS_0_19: the release its rules were taken from.  Lent for ever. */
const char *en_ds_version_name(enum en_ds_version version);
/* 0 if the text is none of the three releases ("0.19" and "0.19.8" are). */
enum en_ds_version en_ds_version_parse(const char *text);

/* --------------------------------------------------------------- settings */

enum en_device { EN_DEVICE_NONE, EN_DEVICE_CPU, EN_DEVICE_NVME };
enum en_precision { EN_FP32 = 1, EN_BF16, EN_FP16 };
enum en_optimizer_type {
	EN_OPTIMIZER_CLIENT = 1,	/* none in the file: AdamW of torch, as the caller says */
	EN_OPTIMIZER_ADAM,		/* "Adam" or "AdamW" of the file */
};
enum en_scheduler_type {
	EN_SCHEDULER_NONE = 1,	/* none in the file */
	EN_SCHEDULER_RANGE_TEST, EN_SCHEDULER_ONE_CYCLE, EN_SCHEDULER_WARMUP,
	EN_SCHEDULER_WARMUP_DECAY, EN_SCHEDULER_WARMUP_COSINE,
};

struct en_offload {
	int device;		/* enum en_device */
	const char *nvme_path;	/* NULL unless the device is NVMe */
	int64_t buffer_count;
	int64_t buffer_size;	/* elements; of parameters */
	int64_t max_in_cpu;	/* elements; of parameters */
	bool pin_memory;
	bool pipeline_read, pipeline_write;	/* of the optimizer */
};

struct en_optimizer {
	enum en_optimizer_type type;
	bool adamw;		/* decoupled decay; false: Adam with L2 */
	bool torch;		/* torch's order of operations ("torch_adam") */
	bool one_group;		/* DeepSpeed makes one group: norms and biases decay too */
	bool bias_correction;
	double lr, beta1, beta2, eps, weight_decay;
};

/* Fields of the types that do not use them are the defaults. */
struct en_schedule {
	enum en_scheduler_type type;
	double warmup_min_lr;
	double warmup_max_lr;		/* NAN: the optimizer's lr */
	double warmup_min_ratio, cos_min_ratio;
	int64_t warmup_num_steps, total_num_steps;
	bool warmup_linear;		/* else logarithmic */
	double range_min_lr, range_step_rate;
	int64_t range_step_size;
	bool range_staircase;
	double cycle_min_lr, cycle_max_lr, decay_lr_rate;
	int64_t cycle_first_step_size, cycle_second_step_size;	/* -1: as the first */
	int64_t cycle_first_stair_count, cycle_second_stair_count; /* -1: as the first */
	int64_t decay_step_size;
	bool cycle_momentum;
	double cycle_min_mom, cycle_max_mom, decay_mom_rate;
};

/* Sizes of buckets, thresholds and sub-groups are elements. */
struct en_settings {
	int64_t train_batch, micro_batch, accumulation;	/* samples, samples, micro-batches */
	uint32_t world;
	double gradient_clipping;	/* 0 = off */

	enum en_precision precision;
	bool check_grad_overflow;	/* of bf16; fp16 always does */
	double loss_scale;		/* of fp16: 0 = dynamic */
	int64_t initial_scale_power, loss_scale_window, hysteresis, min_loss_scale;
	bool consecutive_hysteresis;
	int communication_dtype;	/* enum ckpt_dtype, 0 = that of the model */
	int grad_accum_dtype;		/* the same */

	int64_t stage;
	bool overlap_comm, round_robin_gradients;
	bool no_overlap;		/* the file says that overlap_comm is false */
	int64_t reduce_bucket_size, sub_group_size;
	int64_t prefetch_bucket_size, param_persistence_threshold, model_persistence_threshold;
	int64_t max_live_parameters, max_reuse_distance;
	bool gather_16bit_weights_on_model_save;
	struct en_offload offload_optimizer, offload_param;
	int64_t aio_block_size, aio_queue_depth, aio_threads;

	struct en_optimizer optimizer;
	struct en_schedule schedule;

	bool use_node_local_storage;	/* every node writes its own folder */
	int64_t steps_per_print;	/* 0 = never */
	bool wall_clock_breakdown, memory_breakdown, dump_state;

	/* What the file says of these; DeepSpeed has them read as written and enables nothing. */
	bool fp16_enabled, bf16_enabled;
};

/* ---------------------------------------------------------------- verdicts */

enum en_ruling {
	EN_USED = 1,
	EN_NO_EFFECT,	/* known, and nothing here depends on it: 'why' */
	EN_IGNORED,	/* unknown to them too, and passed over by them without a word */
	EN_REFUSED,	/* the run does not begin: 'why' */
};

struct en_verdict {
	enum en_ruling ruling;
	/* DeepSpeed or accelerate does the same: refuses it, or ignores it. */
	bool theirs;
	bool trainers;			/* 'theirs' is the Trainer of transformers */
	bool deprecated;		/* an old name; 'why' has the new one */
	enum ckpt_code code;		/* of EN_REFUSED */
	const char *path;		/* "zero_optimization.stage", as the file spells it */
	const char *value;		/* text, see en_node_text(); "" where there is none */
	struct en_place at;
	const char *why;		/* a clause, or "" */
};

/* Where a setting comes from. */
struct en_origin {
	const char *path;	/* as DeepSpeed documents it */
	struct en_place at;
	const char *value;
	bool matters;		/* under the other settings it has an effect */
};

/* --------------------------------------------------------------------- use */

/* What accelerate's file says of the launch. */
struct en_launch {
	bool from_accelerate;
	uint32_t num_processes;	/* over all machines; 0 = not said */
	uint32_t num_machines, machine_rank;
	const char *main_process_ip;	/* NULL = not said */
	uint32_t main_process_port;	/* 0 = not said */
	const char *mixed_precision;	/* "no", "fp16", "bf16" */
	const char *launcher;		/* deepspeed_multinode_launcher, NULL = not said */
};

struct en_config {
	struct en_settings set;		/* after en_config_resolve() */
	struct en_launch launch;
	enum en_ds_version version;
	const char *file;		/* the one the caller named */
	const char *json_file;		/* the DeepSpeed configuration, NULL = made of a YAML */
	struct en_verdict *verdict;	/* in the order of the files */
	uint64_t n_verdicts, verdict_cap;
	struct en_origin *origin; /* of every setting, in the order of docs/ztrain/config.md */
	uint64_t n_origins;
	struct ck_arena arena;		/* everything above that is a pointer, but verdict */
	struct en_node *tree;		/* what DeepSpeed would be given */
	bool strict;			/* plain JSON */
};

/*
 * Who replaces "auto" before DeepSpeed sees it.  DeepSpeed itself does so only in some blocks.  A
 * YAML is filled by accelerate unless the Trainer is asked for, which then runs on top of it.
 */
enum en_filler { EN_FILL_NONE, EN_FILL_TRAINER, EN_FILL_ACCELERATE };

#define EN_HAS_MICRO (1u << 0)
#define EN_HAS_ACCUMULATION (1u << 1)
#define EN_HAS_LR (1u << 2)
#define EN_HAS_BETA1 (1u << 3)
#define EN_HAS_EPS (1u << 4)
#define EN_HAS_WEIGHT_DECAY (1u << 5)
#define EN_HAS_MAX_GRAD_NORM (1u << 6)
#define EN_HAS_WARMUP (1u << 7)
#define EN_HAS_STEPS (1u << 8)
#define EN_HAS_PRECISION (1u << 9)
#define EN_HAS_BETA2 (1u << 10)
#define EN_HAS_BETAS (EN_HAS_BETA1 | EN_HAS_BETA2)
#define EN_HAS_ALL ((1u << 11) - 1)

/*
 * What the file does not say.  A field counts if its bit is in 'has': it was stated; or in 'fills':
 * it is a default.  With EN_FILL_TRAINER a field that is stated and differs from the file is
 * refused, as the Trainer does.
 */
struct en_facts {
	uint32_t world;		/* data-parallel ranks, at least 1 */
	enum en_filler filler;
	uint64_t hidden_size;	/* of the model; 0 = not known */
	unsigned has;
	unsigned fills;		/* bits of defaults: they replace "auto" and contradict nothing */
	/*
	 * With EN_FILL_TRAINER: what is stated counts where the file lacks its key, too.  The
	 * Trainer itself drops it there.
	 */
	bool fill_missing;
	uint64_t micro_batch, accumulation;
	double lr, beta1, beta2, eps, weight_decay, max_grad_norm;
	double warmup_steps;	/* below 1: that part of 'steps', rounded up */
	uint64_t steps;		/* optimizer steps of the whole run */
	bool fp16, bf16;
};

/* 'version' as above.  Nothing is allocated. */
void en_config_init(struct en_config *cfg, enum en_ds_version version);
void en_config_release(struct en_config *cfg);

/*
 * Read a DeepSpeed configuration: a file of at most 4 MiB, or bytes of which 'name' is used in
 * messages.  What the values mean is not looked at yet.  Once a struct.
 *
 * CKPT_E_NOTFOUND, CKPT_E_IO; CKPT_E_CORRUPT with the byte where the text is no HJSON, or a name
 * stands twice; CKPT_E_LIMIT; CKPT_E_NOMEM.
 */
int en_config_read_deepspeed(struct en_config *cfg, const char *path, struct ckpt_err *err);
int en_config_parse_deepspeed(struct en_config *cfg, const char *text, uint64_t len,
			      const char *name, struct ckpt_err *err);

/*
 * Read an accelerate configuration and make the DeepSpeed configuration of it that accelerate 1.15
 * makes; 'deepspeed_config_file' in it is read from the folder the process is in, as there.
 * 'num_processes' is used where the file has none (0 = the file must have it, as with accelerate
 * launch).
 *
 * What accelerate refuses is a verdict, and en_config_resolve() fails on it.  The errors above, for
 * both files; CKPT_E_UNSUPPORTED in a build without libyaml.
 */
int en_config_read_accelerate(struct en_config *cfg, const char *path, uint32_t num_processes,
			      struct ckpt_err *err);
int en_config_parse_accelerate(struct en_config *cfg, const char *text, uint64_t len,
			       const char *name, uint32_t num_processes, struct ckpt_err *err);
/* One of both, by the name of the file: accelerate's ends in .yaml or .yml, in any case. */
int en_config_read(struct en_config *cfg, const char *path, uint32_t num_processes,
		   struct ckpt_err *err);

/*
 * Fill, read and check everything.  0, and cfg->set is complete; or the first refusal (verdicts are
 * all there; cfg->set is as it was):
 *
 *	CKPT_E_CORRUPT      a value that DeepSpeed does not take either
 *	CKPT_E_UNSUPPORTED  a feature this engine does not have
 *	CKPT_E_MISMATCH     batch sizes, or stated facts, that contradict each other
 *	CKPT_E_USAGE        "auto" for which nobody gave a value
 *
 * Once a struct.
 */
int en_config_resolve(struct en_config *cfg, const struct en_facts *facts, struct ckpt_err *err);

/* Where the setting of a documented path comes from; NULL if there is no such. */
const struct en_origin *en_config_origin(const struct en_config *cfg, const char *path);
/* The first verdict of that ruling on that path (as the file spells it), or NULL. */
const struct en_verdict *en_config_verdict(const struct en_config *cfg, const char *path);

/*
 * The one screen: what was read, batch, precision, stage, and every key under used, filled, without
 * effect, unknown or refused, then the defaults that matter.  Lines of at most 'width' columns
 * (0 = 100; words longer than that stay whole), lent by 'cfg'.
 */
int en_config_screen(struct en_config *cfg, unsigned width, const char *const **lines_out,
		     size_t *n_out, struct ckpt_err *err);

#endif
