/*
 * en_keys.c -- see en_keys.h.  long on purpose: one row a key.
 *
 * Types, bounds and defaults are those of DeepSpeed 0.19.8 (runtime/config.py,
 * runtime/zero/config.py, runtime/zero/offload_config.py, runtime/precision_config.py,
 * runtime/lr_schedules.py).
 */
#include "engine/config/keys/en_keys.h"

#include <stddef.h>
#include <string.h>

const struct en_block_info en_block_info[EN_BLOCKS] = {
	[EN_B_TOP] = { "", false, false, false },
	[EN_B_ZERO] = { "zero_optimization", true, true, true },
	[EN_B_OFFLOAD_PARAM] = { "zero_optimization.offload_param", true, true, true },
	[EN_B_OFFLOAD_OPTIMIZER] = { "zero_optimization.offload_optimizer", true, true, true },
	[EN_B_FP16] = { "fp16", true, false, true },
	[EN_B_BF16] = { "bf16", true, false, true },
	[EN_B_OPTIMIZER] = { "optimizer", false, false, false },
	[EN_B_OPTIMIZER_PARAMS] = { "optimizer.params", false, false, true },
	[EN_B_SCHEDULER] = { "scheduler", false, false, false },
	[EN_B_SCHEDULER_PARAMS] = { "scheduler.params", false, false, true },
	[EN_B_CHECKPOINT] = { "checkpoint", false, false, false },
	[EN_B_DATA_TYPES] = { "data_types", false, false, false },
	[EN_B_ACTIVATIONS] = { "activation_checkpointing", false, false, false },
	[EN_B_AIO] = { "aio", false, false, false },
};

#define F(name) .field = offsetof(struct en_settings, name)
#define NONE .field = EN_NO_FIELD
#define BOOL(d) .type = EN_K_BOOL, .dflt = d
#define INT(d, low) .type = EN_K_INT, .dflt = d, .min = low
#define FLOAT(d) .type = EN_K_FLOAT, .dflt = d
#define STR(d) .type = EN_K_STR, .dflt = d
#define ANY .type = EN_K_ANY
#define USED .role = EN_R_USED
#define QUIET(text) .role = EN_R_QUIET, .why = text, NONE
#define READ(text) .role = EN_R_QUIET, .why = text	/* and F(): its value is kept */
#define ONLY(text) .role = EN_R_DEFAULT_ONLY, .why = text, NONE
#define GONE(text) .type = EN_K_ANY, .role = EN_R_REMOVED, .why = text, NONE
#define SWITCH(text) .type = EN_K_ANY, .role = EN_R_SWITCH, .why = text, NONE
#define BLOCK(b) .type = EN_K_BLOCK, .role = EN_R_USED, .inner = b, NONE
#define WHEN(w) .when = EN_W_##w
#define NULLS .flags = EN_F_NULL
#define NUMBERS 1e300	/* no bound */

static const char no_mp[] = "ztrain is data-parallel only";
static const char no_moe[] = "ztrain has no mixture of experts";
static const char no_log[] = "ztrain writes its own log";
static const char no_python[] = "ztrain does not run Python";
static const char moves_sums[] =
	"ztrain reduces one block at a time; only the order of sums differs";
static const char by_block[] = "ztrain gathers whole transformer blocks";
static const char one_block[] = "ztrain reduces one block at a time, whatever its size";
static const char overlaps[] = "on GPUs: false waits for each transfer, otherwise transfers "
			       "overlap at every stage; CPU ranks always prefetch the next block";
static const char ahead[] = "on GPUs: 0 prefetches no block, otherwise one, or as many as hold "
			    "this many elements; CPU ranks prefetch one";
static const char stays[] =
	"on GPUs: a transformer block (DeepSpeed: a parameter) of at most this many elements is "
	"persistent: gathered once per step; CPU ranks have none";
static const char all_stay[] =
	"on GPUs: limit for all persistent blocks together (param_persistence_threshold)";
static const char live[] = "on GPUs: limit of gathered elements when more than one block is "
			   "prefetched; CPU ranks hold two blocks";
static const char again[] = "on GPUs: a block used again within this many elements is kept until "
			    "its buffer is needed; CPU ranks release it";
static const char no_pin[] =
	"transfers to and from a GPU use pinned buffers; the states themselves are not pinned";
static const char both_ways[] = "one part is always being read and one written";
static const char no_nvme[] = "parameters stay in memory";
static const char one_ring[] = "io_uring takes all requests of a rank";
static const char no_quant[] = "ZeRO++ is not supported";
static const char no_act[] = "use --recompute; in DeepSpeed too this block alone enables nothing";

const struct en_key en_keys[] = {
	/* ---- batch and update ---- */
	{ EN_B_TOP, "train_batch_size", INT(NULL, -NUMBERS), NULLS, USED, F(train_batch) },
	{ EN_B_TOP, "train_micro_batch_size_per_gpu", INT(NULL, -NUMBERS), NULLS, USED,
	  F(micro_batch) },
	{ EN_B_TOP, "gradient_accumulation_steps", INT(NULL, -NUMBERS), NULLS, USED,
	  F(accumulation) },
	{ EN_B_TOP, "gradient_clipping", FLOAT("1.0"), .dflt_old = "0.0", USED,
	  F(gradient_clipping) },
	{ EN_B_TOP, "prescale_gradients", BOOL("false"),
	  ONLY("gradients are divided once, by the number of ranks") },
	{ EN_B_TOP, "gradient_predivide_factor", FLOAT("1.0"),
	  ONLY("gradients are divided once, by the number of ranks") },
	{ EN_B_TOP, "gradient_allreduce_op", STR("mean"), ONLY("gradients are averaged") },
	{ EN_B_TOP, "managed_gradient_accumulation", BOOL("true"),
	  ONLY("ztrain decides where a step ends") },
	{ EN_B_TOP, "communication_data_type", .type = EN_K_DTYPE, NULLS, USED,
	  F(communication_dtype) },
	{ EN_B_TOP, "seq_parallel_communication_data_type", STR("fp32"), QUIET(no_mp) },
	{ EN_B_TOP, "sequence_parallel_size", INT("1", 1), ONLY(no_mp) },
	{ EN_B_TOP, "disable_allgather", BOOL("false"), QUIET("DeepSpeed ignores it too") },

	/* ---- log ---- */
	{ EN_B_TOP, "steps_per_print", INT(NULL, 0), NULLS, READ("ztrain prints a line per step"),
	  F(steps_per_print) },
	{ EN_B_TOP, "wall_clock_breakdown", BOOL("false"), READ(no_log), F(wall_clock_breakdown) },
	{ EN_B_TOP, "memory_breakdown", BOOL("false"), READ("--counters prints memory by kind"),
	  F(memory_breakdown) },
	{ EN_B_TOP, "dump_state", BOOL("false"), READ("this screen shows all settings"),
	  F(dump_state) },
	{ EN_B_TOP, "disable_python_gc", BOOL("false"), QUIET(no_python) },
	{ EN_B_TOP, "log_level", ANY, QUIET(no_log) },
	{ EN_B_TOP, "timers", ANY, QUIET(no_log) },
	{ EN_B_TOP, "comms_logger", ANY, QUIET(no_log) },
	{ EN_B_TOP, "flops_profiler", ANY, QUIET(no_log) },
	{ EN_B_TOP, "tensorboard", ANY, QUIET(no_log) },
	{ EN_B_TOP, "wandb", ANY, QUIET(no_log) },
	{ EN_B_TOP, "comet", ANY, QUIET(no_log) },
	{ EN_B_TOP, "csv_monitor", ANY, QUIET(no_log) },

	/* ---- checks of DeepSpeed, and what it does beside training ---- */
	{ EN_B_TOP, "zero_allow_untested_optimizer", BOOL("false"),
	  QUIET("ztrain has its own optimizer") },
	{ EN_B_TOP, "zero_force_ds_cpu_optimizer", BOOL("true"),
	  QUIET("ztrain has its own optimizer") },
	{ EN_B_TOP, "dataloader_drop_last", BOOL("false"),
	  QUIET("ztrain makes its own batches; see --tail") },
	{ EN_B_TOP, "vocabulary_size", ANY, QUIET("DeepSpeed only warns about it") },
	{ EN_B_TOP, "allgather_size", ANY,
	  QUIET("the bucket size of the old form \"zero_optimization\": true") },
	{ EN_B_TOP, "use_data_before_expert_parallelism", ANY, QUIET(no_moe) },
	{ EN_B_TOP, "compile", ANY, QUIET(no_python) },
	{ EN_B_TOP, "pipeline", ANY, QUIET("DeepSpeed uses it for pipeline modules") },
	{ EN_B_TOP, "datastates_ckpt", ANY, QUIET("ztrain has its own checkpointer") },
	{ EN_B_TOP, "autotuning", SWITCH("ztrain has no autotuning") },
	{ EN_B_TOP, "hybrid_engine", SWITCH("ztrain only trains") },
	{ EN_B_TOP, "data_efficiency", SWITCH("it would change the samples and their order") },
	{ EN_B_TOP, "torch_autocast", SWITCH("the whole model is fp32, bf16 or fp16") },
	{ EN_B_TOP, "expert_parallel", SWITCH(no_moe) },
	{ EN_B_TOP, "tensor_parallel", ANY, .role = EN_R_DEFAULT_ONLY, .why = no_mp, NONE },
	{ EN_B_TOP, "weight_quantization", ANY, .role = EN_R_DEFAULT_ONLY,
	  .why = "weights are not quantised", NONE },
	{ EN_B_TOP, "amp", GONE("DeepSpeed removed NVIDIA's Apex: use fp16 or bf16") },
	{ EN_B_TOP, "nebula", GONE("DeepSpeed removed Nebula checkpoints") },
	{ EN_B_TOP, "compression_training", GONE("DeepSpeed removed the compression library") },
	{ EN_B_TOP, "quantize_training", GONE("DeepSpeed removed mixture of quantization") },
	{ EN_B_TOP, "sparse_gradients", GONE("DeepSpeed removed sparse gradients of embeddings") },
	{ EN_B_TOP, "eigenvalue", GONE("DeepSpeed removed mixture of quantization") },
	{ EN_B_TOP, "sparse_attention", GONE("DeepSpeed removed sparse attention") },
	{ EN_B_TOP, "elasticity",
	  GONE("DeepSpeed removed elastic training: give the batch sizes") },
	{ EN_B_TOP, "graph_harvesting", GONE("DeepSpeed removed graph harvesting") },
	{ EN_B_TOP, "curriculum_learning", GONE("DeepSpeed removed the old curriculum learning") },
	{ EN_B_TOP, "progressive_layer_drop",
	  GONE("DeepSpeed removed progressive layer dropping") },

	/* ---- blocks ---- */
	{ EN_B_TOP, "fp16", BLOCK(EN_B_FP16) },
	{ EN_B_TOP, "bf16", .alias = "bfloat16", BLOCK(EN_B_BF16) },
	{ EN_B_TOP, "zero_optimization", BLOCK(EN_B_ZERO) },
	{ EN_B_TOP, "optimizer", BLOCK(EN_B_OPTIMIZER) },
	{ EN_B_TOP, "scheduler", BLOCK(EN_B_SCHEDULER) },
	{ EN_B_TOP, "checkpoint", BLOCK(EN_B_CHECKPOINT) },
	{ EN_B_TOP, "data_types", BLOCK(EN_B_DATA_TYPES) },
	{ EN_B_TOP, "activation_checkpointing", BLOCK(EN_B_ACTIVATIONS) },
	{ EN_B_TOP, "aio", BLOCK(EN_B_AIO) },

	/* ---- precision ---- */
	{ EN_B_FP16, "enabled", BOOL("false"), USED, F(fp16_enabled) },
	{ EN_B_FP16, "auto_cast", BOOL("false"), QUIET("inputs are token ids") },
	{ EN_B_FP16, "loss_scale", FLOAT("0.0"), .flags = EN_F_NO_BOOL | EN_F_NO_SIGN, USED,
	  WHEN(FP16), F(loss_scale) },
	{ EN_B_FP16, "initial_scale_power", INT("16", -NUMBERS), USED, WHEN(DYNAMIC_SCALE),
	  F(initial_scale_power) },
	{ EN_B_FP16, "loss_scale_window", INT("1000", -NUMBERS), .flags = EN_F_NO_BOOL, USED,
	  WHEN(DYNAMIC_SCALE), F(loss_scale_window) },
	{ EN_B_FP16, "hysteresis", INT("2", -NUMBERS), USED, WHEN(DYNAMIC_SCALE), F(hysteresis) },
	{ EN_B_FP16, "consecutive_hysteresis", BOOL("false"), USED, WHEN(DYNAMIC_SCALE),
	  F(consecutive_hysteresis) },
	{ EN_B_FP16, "min_loss_scale", INT("1", -NUMBERS), .flags = EN_F_NO_BOOL, USED,
	  WHEN(DYNAMIC_SCALE), F(min_loss_scale) },
	{ EN_B_FP16, "fp16_master_weights_and_grads", BOOL("false"),
	  ONLY("master weights are fp32") },
	{ EN_B_BF16, "enabled", BOOL("false"), USED, F(bf16_enabled) },
	{ EN_B_BF16, "immediate_grad_update", BOOL("false"),
	  QUIET("gradients are always accumulated at once") },
	{ EN_B_BF16, "check_grad_overflow", BOOL("true"), .dflt_old = "false", USED, WHEN(BF16),
	  F(check_grad_overflow) },
	{ EN_B_BF16, "bf16_master_weights_and_grads", BOOL("false"),
	  ONLY("master weights are fp32") },
	{ EN_B_BF16, "bf16_optimizer_states", BOOL("false"), ONLY("moments are fp32") },
	{ EN_B_DATA_TYPES, "grad_accum_dtype", .type = EN_K_DTYPE, NULLS,
	  READ("gradients are summed in fp32, except with --overflow deepspeed"),
	  F(grad_accum_dtype) },
	{ EN_B_DATA_TYPES, "param_dtype", ANY, NULLS, .role = EN_R_DEFAULT_ONLY,
	  .why = "the blocks fp16 and bf16 set the type of parameters", NONE },
	{ EN_B_DATA_TYPES, "buffer_dtype", ANY, NULLS, .role = EN_R_DEFAULT_ONLY,
	  .why = "the only buffers of these models are rotary frequencies, in fp32", NONE },
	{ EN_B_DATA_TYPES, "keep_in_fp32_modules", ANY,
	  QUIET("these models have no such modules") },

	/* ---- ZeRO ---- */
	{ EN_B_ZERO, "stage", .type = EN_K_STAGE, .dflt = "0", USED, F(stage) },
	{ EN_B_ZERO, "contiguous_gradients", BOOL("true"),
	  QUIET("gradients of a block are always one buffer") },
	{ EN_B_ZERO, "reduce_scatter", BOOL("true"),
	  QUIET("gradients are always reduced by reduce-scatter") },
	{ EN_B_ZERO, "reduce_bucket_size", INT("500000000", 1), .flags = EN_F_MIN_0_19,
	  READ(one_block), WHEN(ZERO), F(reduce_bucket_size) },
	{ EN_B_ZERO, "use_multi_rank_bucket_allreduce", BOOL("true"), QUIET(moves_sums) },
	{ EN_B_ZERO, "allgather_partitions", BOOL("true"),
	  QUIET("parameters are always gathered") },
	{ EN_B_ZERO, "allgather_bucket_size", INT("500000000", 0),
	  QUIET("ztrain gathers one block at a time; DeepSpeed gathers a group at once") },
	{ EN_B_ZERO, "overlap_comm", BOOL(NULL), NULLS, USED, .why = overlaps, WHEN(ZERO),
	  F(overlap_comm) },
	{ EN_B_ZERO, "compute_grad_norm", BOOL("true"), .flags = EN_F_SINCE_0_19,
	  QUIET("the norm is always computed") },
	{ EN_B_ZERO, "load_from_fp32_weights", BOOL("true"),
	  ONLY("masters are loaded from fp32; 16-bit weights would lose bits") },
	{ EN_B_ZERO, "elastic_checkpoint", BOOL("false"),
	  QUIET("any number of ranks can load any step") },
	{ EN_B_ZERO, "offload_param", BLOCK(EN_B_OFFLOAD_PARAM), NULLS },
	{ EN_B_ZERO, "offload_optimizer", BLOCK(EN_B_OFFLOAD_OPTIMIZER), NULLS },
	{ EN_B_ZERO, "zenflow", ANY, NULLS, .role = EN_R_DEFAULT_ONLY,
	  .why = "ZenFlow, which updates with older gradients, is not supported", NONE },
	{ EN_B_ZERO, "sub_group_size", INT("1000000000", 0), USED, WHEN(STAGE_3),
	  F(sub_group_size) },
	{ EN_B_ZERO, "cpu_offload_use_pin_memory", BOOL(NULL), NULLS,
	  QUIET("deprecated; DeepSpeed and ztrain use pin_memory of the offload blocks") },
	{ EN_B_ZERO, "prefetch_bucket_size", "stage3_prefetch_bucket_size", INT("50000000", 0),
	  USED, .why = ahead, WHEN(STAGE_3), F(prefetch_bucket_size) },
	{ EN_B_ZERO, "param_persistence_threshold", "stage3_param_persistence_threshold",
	  INT("100000", 0), USED, .why = stays, WHEN(STAGE_3), F(param_persistence_threshold) },
	{ EN_B_ZERO, "model_persistence_threshold", "stage3_model_persistence_threshold",
	  INT("9223372036854775807", 0), USED, .why = all_stay, WHEN(STAGE_3),
	  F(model_persistence_threshold) },
	{ EN_B_ZERO, "max_live_parameters", "stage3_max_live_parameters", INT("1000000000", 0),
	  USED, .why = live, WHEN(STAGE_3), F(max_live_parameters) },
	{ EN_B_ZERO, "max_reuse_distance", "stage3_max_reuse_distance", INT("1000000000", 0), USED,
	  .why = again, WHEN(STAGE_3), F(max_reuse_distance) },
	{ EN_B_ZERO, "gather_16bit_weights_on_model_save",
	  "stage3_gather_16bit_weights_on_model_save", BOOL("false"), USED, WHEN(STAGE_3),
	  .why = "true: export 16-bit weights, also without --export (to weights in the folder of "
		 "--save); false: fp32; no rank gathers them",
	  F(gather_16bit_weights_on_model_save) },
	{ EN_B_ZERO, "module_granularity_threshold", "stage3_module_granularity_threshold",
	  INT("0", -NUMBERS), QUIET(by_block) },
	{ EN_B_ZERO, "use_all_reduce_for_fetch_params", "stage3_use_all_reduce_for_fetch_params",
	  BOOL("false"), QUIET(by_block) },
	{ EN_B_ZERO, "allgather_sequential", "stage3_allgather_sequential", BOOL("false"),
	  QUIET(by_block) },
	{ EN_B_ZERO, "ignore_unused_parameters", BOOL("true"), QUIET("every parameter is used") },
	{ EN_B_ZERO, "legacy_stage1", BOOL("false"), ONLY("DeepSpeed removed it in 0.5.9") },
	{ EN_B_ZERO, "round_robin_gradients", BOOL("false"), USED, WHEN(STAGE_1_2),
	  F(round_robin_gradients) },
	{ EN_B_ZERO, "parameter_alignment", BOOL("false"), .flags = EN_F_SINCE_0_19,
	  ONLY("steps are saved without gaps between parameters") },
	{ EN_B_ZERO, "zero_hpz_partition_size", INT("1", 0), ONLY(no_quant) },
	{ EN_B_ZERO, "zero_quantized_weights", BOOL("false"), ONLY(no_quant) },
	{ EN_B_ZERO, "zero_quantized_nontrainable_weights", BOOL("false"), ONLY(no_quant) },
	{ EN_B_ZERO, "zero_quantized_gradients", BOOL("false"), ONLY(no_quant) },
	{ EN_B_ZERO, "memory_efficient_linear", BOOL("true"), QUIET(no_python) },
	{ EN_B_ZERO, "pipeline_loading_checkpoint", BOOL("false"), QUIET(no_python) },
	{ EN_B_ZERO, "override_module_apply", BOOL("true"), QUIET(no_python) },
	{ EN_B_ZERO, "log_trace_cache_warnings", BOOL("false"), QUIET(no_log) },
	{ EN_B_ZERO, "enable_sanity_checks", BOOL("false"), .flags = EN_F_SINCE_0_19,
	  QUIET(no_python) },
	{ EN_B_ZERO, "save_muon_momentum_buffer_in_memory", BOOL("false"), .flags = EN_F_SINCE_0_19,
	  QUIET("ztrain has no Muon") },
	{ EN_B_ZERO, "leaf_module", ANY, QUIET(no_moe) },
	{ EN_B_ZERO, "mics_shard_size", GONE("DeepSpeed removed MiCS") },
	{ EN_B_ZERO, "mics_hierarchical_params_gather", GONE("DeepSpeed removed MiCS") },
	{ EN_B_ZERO, "zeropp_loco_param", GONE("DeepSpeed removed LoCo") },

	/* ---- offload ---- */
	{ EN_B_OFFLOAD_OPTIMIZER, "device", .type = EN_K_DEVICE, .dflt = "none", USED, WHEN(ZERO),
	  .why = "the host's cores update, in DeepSpeedCPUAdam's order of operations",
	  F(offload_optimizer.device) },
	{ EN_B_OFFLOAD_OPTIMIZER, "nvme_path", STR(NULL), NULLS, USED, WHEN(OPTIMIZER_NVME),
	  .why = "a folder; each rank keeps an unnamed file in it while it runs",
	  F(offload_optimizer.nvme_path) },
	{ EN_B_OFFLOAD_OPTIMIZER, "buffer_count", INT("4", 0), USED, WHEN(OPTIMIZER_NVME),
	  .why = "parts of 4,194,304 elements kept in memory, at least 3",
	  F(offload_optimizer.buffer_count) },
	{ EN_B_OFFLOAD_OPTIMIZER, "pin_memory", BOOL("true"), .dflt_old = "false", READ(no_pin),
	  WHEN(OFFLOAD_OPTIMIZER), F(offload_optimizer.pin_memory) },
	{ EN_B_OFFLOAD_OPTIMIZER, "pipeline_read", BOOL("false"), READ(both_ways),
	  WHEN(OPTIMIZER_NVME), F(offload_optimizer.pipeline_read) },
	{ EN_B_OFFLOAD_OPTIMIZER, "pipeline_write", BOOL("false"), READ(both_ways),
	  WHEN(OPTIMIZER_NVME), F(offload_optimizer.pipeline_write) },
	{ EN_B_OFFLOAD_OPTIMIZER, "fast_init", BOOL("false"),
	  QUIET("states always start as zeros") },
	{ EN_B_OFFLOAD_OPTIMIZER, "ratio", FLOAT("1.0"), .flags = EN_F_UNIT,
	  ONLY("the optimizer is offloaded as a whole") },
	{ EN_B_OFFLOAD_OPTIMIZER, "super_offload", BOOL("false"), .flags = EN_F_SINCE_0_19,
	  QUIET("only for Grace Hopper") },
	{ EN_B_OFFLOAD_OPTIMIZER, "cpuadam_cores_perc", FLOAT("0.8"),
	  .flags = EN_F_SINCE_0_19 | EN_F_UNIT, QUIET("only for super_offload") },
	{ EN_B_OFFLOAD_PARAM, "device", .type = EN_K_DEVICE, .dflt = "none", USED, WHEN(STAGE_3),
	  F(offload_param.device) },
	{ EN_B_OFFLOAD_PARAM, "nvme_path", STR(NULL), NULLS, READ(no_nvme), WHEN(PARAM_NVME),
	  F(offload_param.nvme_path) },
	{ EN_B_OFFLOAD_PARAM, "buffer_count", INT("5", 0), READ(no_nvme), WHEN(PARAM_NVME),
	  F(offload_param.buffer_count) },
	{ EN_B_OFFLOAD_PARAM, "buffer_size", INT("100000000", 0), READ(no_nvme), WHEN(PARAM_NVME),
	  F(offload_param.buffer_size) },
	{ EN_B_OFFLOAD_PARAM, "max_in_cpu", INT("1000000000", 0), READ(no_nvme), WHEN(PARAM_NVME),
	  F(offload_param.max_in_cpu) },
	{ EN_B_OFFLOAD_PARAM, "pin_memory", BOOL("true"), .dflt_old = "false",
	  READ("with GPUs host parameters are always pinned; CPU ranks pin nothing"),
	  WHEN(OFFLOAD_PARAM), F(offload_param.pin_memory) },
	{ EN_B_AIO, "block_size", INT("1048576", 1), USED, WHEN(NVME),
	  .why = "bytes of a request, limited to 4 KiB .. 64 MiB", F(aio_block_size) },
	{ EN_B_AIO, "queue_depth", INT("8", 1), USED, WHEN(NVME),
	  .why = "requests in flight per rank, at most 1024; threads, if io_uring is unavailable",
	  F(aio_queue_depth) },
	{ EN_B_AIO, "intra_op_parallelism", INT("1", 1), READ(one_ring), WHEN(NVME),
	  F(aio_threads) },
	{ EN_B_AIO, "single_submit", BOOL("false"), QUIET(one_ring) },
	{ EN_B_AIO, "overlap_events", BOOL("true"), QUIET(one_ring) },
	{ EN_B_AIO, "use_gds", BOOL("false"),
	  QUIET("files are read and written through host memory") },
	{ EN_B_AIO, "thread_count", ANY, QUIET("old name of intra_op_parallelism; ignored") },

	/* ---- optimizer ---- */
	{ EN_B_OPTIMIZER, "type", STR(NULL), USED, NONE },
	{ EN_B_OPTIMIZER, "params", BLOCK(EN_B_OPTIMIZER_PARAMS) },
	{ EN_B_OPTIMIZER, "legacy_fusion", ANY,
	  QUIET("DeepSpeed uses it without ZeRO and with Apex") },
	{ EN_B_OPTIMIZER_PARAMS, "lr", FLOAT("0.001"), USED, WHEN(OPTIMIZER), F(optimizer.lr) },
	{ EN_B_OPTIMIZER_PARAMS, "betas", .type = EN_K_NUMBER_PAIR, .dflt = "0.9, 0.999", USED,
	  WHEN(OPTIMIZER), F(optimizer.beta1) },
	{ EN_B_OPTIMIZER_PARAMS, "eps", FLOAT("1e-08"), USED, WHEN(OPTIMIZER), F(optimizer.eps) },
	{ EN_B_OPTIMIZER_PARAMS, "weight_decay", FLOAT("0.0"), USED, WHEN(OPTIMIZER),
	  F(optimizer.weight_decay) },
	{ EN_B_OPTIMIZER_PARAMS, "bias_correction", BOOL("true"), USED, WHEN(OPTIMIZER),
	  F(optimizer.bias_correction) },
	{ EN_B_OPTIMIZER_PARAMS, "adam_w_mode", BOOL("true"), USED, WHEN(OPTIMIZER),
	  F(optimizer.adamw) },
	{ EN_B_OPTIMIZER_PARAMS, "torch_adam", BOOL("false"), USED, WHEN(OPTIMIZER),
	  F(optimizer.torch) },
	{ EN_B_OPTIMIZER_PARAMS, "amsgrad", BOOL("false"), ONLY("AMSGrad is not supported") },
	{ EN_B_OPTIMIZER_PARAMS, "set_grad_none", ANY, QUIET(no_python) },
	{ EN_B_OPTIMIZER_PARAMS, "foreach", ANY, QUIET(no_python) },
	{ EN_B_OPTIMIZER_PARAMS, "fused", ANY, QUIET(no_python) },
	{ EN_B_OPTIMIZER_PARAMS, "capturable", ANY, QUIET(no_python) },
	{ EN_B_OPTIMIZER_PARAMS, "fp32_optimizer_states", BOOL("true"), ONLY("moments are fp32") },

/* ---- scheduler ---- */
#define SCHED(types) .role = EN_R_USED, .when = EN_W_SCHEDULER, .schedulers = types
#define WARM (EN_S(WARMUP) | EN_S(WARMUP_DECAY))
	{ EN_B_SCHEDULER, "type", STR(NULL), USED, NONE },
	{ EN_B_SCHEDULER, "params", BLOCK(EN_B_SCHEDULER_PARAMS) },
	{ EN_B_SCHEDULER_PARAMS, "warmup_min_lr", FLOAT("0.0"), SCHED(WARM),
	  F(schedule.warmup_min_lr) },
	{ EN_B_SCHEDULER_PARAMS, "warmup_max_lr", FLOAT(NULL), NULLS, SCHED(WARM),
	  F(schedule.warmup_max_lr) },
	{ EN_B_SCHEDULER_PARAMS, "warmup_num_steps", INT("1000", 1), .flags = EN_F_MIN_0_19,
	  SCHED(WARM | EN_S(WARMUP_COSINE)), F(schedule.warmup_num_steps) },
	{ EN_B_SCHEDULER_PARAMS, "warmup_type", STR("log"), SCHED(WARM | EN_S(WARMUP_COSINE)),
	  NONE },
	{ EN_B_SCHEDULER_PARAMS, "total_num_steps", INT(NULL, -NUMBERS),
	  SCHED(EN_S(WARMUP_DECAY) | EN_S(WARMUP_COSINE)), F(schedule.total_num_steps) },
	{ EN_B_SCHEDULER_PARAMS, "warmup_min_ratio", FLOAT("0.0"), SCHED(EN_S(WARMUP_COSINE)),
	  F(schedule.warmup_min_ratio) },
	{ EN_B_SCHEDULER_PARAMS, "cos_min_ratio", FLOAT("0.0001"), SCHED(EN_S(WARMUP_COSINE)),
	  F(schedule.cos_min_ratio) },
	{ EN_B_SCHEDULER_PARAMS, "lr_range_test_min_lr", FLOAT("0.001"), SCHED(EN_S(RANGE_TEST)),
	  F(schedule.range_min_lr) },
	{ EN_B_SCHEDULER_PARAMS, "lr_range_test_step_size", INT("2000", 1), SCHED(EN_S(RANGE_TEST)),
	  F(schedule.range_step_size) },
	{ EN_B_SCHEDULER_PARAMS, "lr_range_test_step_rate", FLOAT("1.0"), SCHED(EN_S(RANGE_TEST)),
	  F(schedule.range_step_rate) },
	{ EN_B_SCHEDULER_PARAMS, "lr_range_test_staircase", BOOL("false"), SCHED(EN_S(RANGE_TEST)),
	  F(schedule.range_staircase) },
	{ EN_B_SCHEDULER_PARAMS, "cycle_min_lr", FLOAT(NULL), SCHED(EN_S(ONE_CYCLE)),
	  F(schedule.cycle_min_lr) },
	{ EN_B_SCHEDULER_PARAMS, "cycle_max_lr", FLOAT(NULL), SCHED(EN_S(ONE_CYCLE)),
	  F(schedule.cycle_max_lr) },
	{ EN_B_SCHEDULER_PARAMS, "decay_lr_rate", FLOAT("0.0"), SCHED(EN_S(ONE_CYCLE)),
	  F(schedule.decay_lr_rate) },
	{ EN_B_SCHEDULER_PARAMS, "cycle_first_step_size", INT("2000", 1), SCHED(EN_S(ONE_CYCLE)),
	  F(schedule.cycle_first_step_size) },
	{ EN_B_SCHEDULER_PARAMS, "cycle_second_step_size", INT(NULL, 0), NULLS,
	  SCHED(EN_S(ONE_CYCLE)), F(schedule.cycle_second_step_size) },
	{ EN_B_SCHEDULER_PARAMS, "cycle_first_stair_count", INT("0", 0), SCHED(EN_S(ONE_CYCLE)),
	  F(schedule.cycle_first_stair_count) },
	{ EN_B_SCHEDULER_PARAMS, "cycle_second_stair_count", INT(NULL, 0), NULLS,
	  SCHED(EN_S(ONE_CYCLE)), F(schedule.cycle_second_stair_count) },
	{ EN_B_SCHEDULER_PARAMS, "decay_step_size", INT("0", 0), SCHED(EN_S(ONE_CYCLE)),
	  F(schedule.decay_step_size) },
	{ EN_B_SCHEDULER_PARAMS, "cycle_momentum", BOOL("true"), SCHED(EN_S(ONE_CYCLE)),
	  F(schedule.cycle_momentum) },
	{ EN_B_SCHEDULER_PARAMS, "cycle_min_mom", FLOAT("0.8"), SCHED(EN_S(ONE_CYCLE)),
	  F(schedule.cycle_min_mom) },
	{ EN_B_SCHEDULER_PARAMS, "cycle_max_mom", FLOAT("0.9"), SCHED(EN_S(ONE_CYCLE)),
	  F(schedule.cycle_max_mom) },
	{ EN_B_SCHEDULER_PARAMS, "decay_mom_rate", FLOAT("0.0"), SCHED(EN_S(ONE_CYCLE)),
	  F(schedule.decay_mom_rate) },
	{ EN_B_SCHEDULER_PARAMS, "last_batch_iteration", INT("-1", -1), .role = EN_R_DEFAULT_ONLY,
	  .when = EN_W_SCHEDULER, .schedulers = ~0u, NONE,
	  .why = "the position in the schedule comes from the resumed step" },

	/* ---- files ---- */
	{ EN_B_CHECKPOINT, "tag_validation", STR("Warn"),
	  QUIET("one rank sends the tag to all others") },
	{ EN_B_CHECKPOINT, "load_universal", BOOL("false"),
	  QUIET("the format of a step is detected") },
	{ EN_B_CHECKPOINT, "use_node_local_storage", BOOL("false"), USED,
	  F(use_node_local_storage) },
	{ EN_B_CHECKPOINT, "parallel_write", ANY, QUIET("every rank writes its own shard") },
	{ EN_B_CHECKPOINT, "checkpoint_serialization", ANY, QUIET("files have torch's format") },
	{ EN_B_CHECKPOINT, "writer", ANY, QUIET("files are written directly") },

	/* ---- activations ---- */
	{ EN_B_ACTIVATIONS, "partition_activations", ANY, QUIET(no_act) },
	{ EN_B_ACTIVATIONS, "contiguous_memory_optimization", ANY, QUIET(no_act) },
	{ EN_B_ACTIVATIONS, "cpu_checkpointing", ANY, QUIET(no_act) },
	{ EN_B_ACTIVATIONS, "number_checkpoints", ANY, QUIET(no_act) },
	{ EN_B_ACTIVATIONS, "synchronize_checkpoint_boundary", ANY, QUIET(no_act) },
	{ EN_B_ACTIVATIONS, "profile", ANY, QUIET(no_act) },
};

const size_t en_n_keys = CK_ARRAY_LEN(en_keys);

const struct en_key *en_key_find(enum en_block block, const char *name)
{
	for (size_t i = 0; i < en_n_keys; i++)
		if (en_keys[i].block == block &&
		    (!strcmp(en_keys[i].name, name) ||
		     (en_keys[i].alias && !strcmp(en_keys[i].alias, name))))
			return &en_keys[i];
	return NULL;
}

unsigned en_edit_distance(const char *a, const char *b, unsigned max)
{
	unsigned row[64];
	const size_t n = strlen(a), m = strlen(b);

	if (n >= CK_ARRAY_LEN(row) || m >= CK_ARRAY_LEN(row))
		return max + 1;
	for (size_t j = 0; j <= m; j++)
		row[j] = (unsigned)j;
	for (size_t i = 1; i <= n; i++) {
		unsigned diagonal = row[0];

		row[0] = (unsigned)i;
		for (size_t j = 1; j <= m; j++) {
			const unsigned change = diagonal + (a[i - 1] != b[j - 1]);
			const unsigned less = row[j] < row[j - 1] ? row[j] + 1 : row[j - 1] + 1;

			diagonal = row[j];
			row[j] = change < less ? change : less;
		}
	}
	return row[m] <= max ? row[m] : max + 1;
}

static unsigned nearness(const struct en_key *k, enum en_block block, const char *name)
{
	const unsigned max = strlen(name) < 6 ? 1 : strlen(name) < 10 ? 2 : 3;
	unsigned d = en_edit_distance(name, k->name, max);

	if (k->alias && en_edit_distance(name, k->alias, max) < d)
		d = en_edit_distance(name, k->alias, max);
	if (d > max)
		return 100;
	return 2 * d + (k->block != block);	/* the same block first */
}

const struct en_key *en_key_near(enum en_block block, const char *name)
{
	const struct en_key *best = NULL;
	unsigned least = 100;

	for (size_t i = 0; i < en_n_keys; i++) {
		const unsigned d = nearness(&en_keys[i], block, name);

		if (d < least && en_keys[i].role != EN_R_REMOVED) {
			least = d;
			best = &en_keys[i];
		}
	}
	return best;
}
