/* en_settings.h -- the settings of a run, and what a configuration file does not say of them. */
#ifndef EN_SETTINGS_H
#define EN_SETTINGS_H

#include "libckpt/base/ck_base.h"

/* ------------------------------------------------------------ whose rules */

/* Versions whose rules and defaults are known, from the real classes. */
enum en_ds_version { EN_DS_0_16 = 1, EN_DS_0_18, EN_DS_0_19 };

/* "0.19.8" for EN_DS_0_19: the release its rules were taken from.  Static string, never freed. */
const char *en_ds_version_name(enum en_ds_version version);

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

/* ------------------------------------------------- what is not in the file */

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

#endif
