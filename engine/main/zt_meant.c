/* zt_meant.c -- see zt_meant.h. */
#include "engine/main/zt_meant.h"

#include <stddef.h>

#include "engine/main/zt_alias.h"
#include "engine/main/zt_args.h"

/* Each option of ztrain, then the names that others have for it. */
struct meant {
	const char *give;
	const char *names[8];	/* end with NULL */
	int run_only;		/* `ztrain bench` and `ztrain eval` lack the option */
};

static const struct meant list[] = {
	{ "give --micro-batch N (rows of a rank) and --accumulation N; their product with the "
	  "ranks is the batch", { "batch_size", "train_batch_size", "global_batch_size" }, 0 },
	{ "give --steps N (epochs x rows / rows of a step)",
	  { "epochs", "num_train_epochs", "num_epochs" }, 1 },
	{ "give --steps N", { "max_steps", "num_steps", "max_train_steps" }, 0 },
	{ "give --precision P (fp32, bf16 or fp16)",
	  { "bf16", "fp16", "mixed_precision", "dtype", "torch_dtype", "bf16_full_eval" }, 0 },
	{ "give --precision bf16 --fp8",
	  { "fp8_format", "fp8_recipe", "fp8_backend", "float8" }, 0 },
	{ "give --recompute",
	  { "gradient_checkpointing", "activation_checkpointing",
	    "gradient_checkpointing_enable" }, 0 },
	{ "give --data FILE of tokens (docs/ztrain/data.md)",
	  { "train_file", "dataset", "dataset_name", "dataset_path", "train_data" }, 1 },
	{ "give --eval FILE of tokens (docs/ztrain/data.md)",
	  { "validation_file", "eval_file", "eval_data", "eval_dataset" }, 1 },
	{ "evaluation has the rows of --micro-batch", { "per_device_eval_batch_size" }, 1 },
	{ "give --eval-every N", { "eval_delay", "eval_on_start" }, 1 },
	{ "config.json of --model is used; there is no tokenizer, since data is tokens",
	  { "config_name", "tokenizer_name", "tokenizer_name_or_path", "trust_remote_code" }, 1 },
	{ "give --keep-best, then --export or `zckpt convert` of the step that the file 'best' "
	  "names", { "load_best_model_at_end" }, 1 },
	{ "--keep-best compares the evaluation loss",
	  { "metric_for_best_model", "greater_is_better" }, 1 },
	{ "give --patience N", { "early_stopping_patience" }, 1 },
	{ "give --resume auto", { "resume_from_checkpoint" }, 1 },
	{ "give --log FILE, then `ztrain log --tensorboard DIR FILE`",
	  { "logging_dir", "report_to", "tensorboard", "run_name" }, 1 },
	{ "give --seed N, which decides the order of rows too", { "data_seed" }, 1 },
	{ "give --reduction tree: GPUs then have the same bits at 1, 2, 4 and 8 ranks",
	  { "full_determinism" }, 1 },
	{ "`ztrain bench --stages 0,1,2,3` finds the largest micro-batch that fits",
	  { "auto_find_batch_size" }, 1 },
	{ "copy the folder of --export to the hub: hf upload",
	  { "push_to_hub", "hub_model_id", "hub_token", "hub_strategy" }, 1 },
	{ "write \"zero_optimization\": {\"stage\": 3} in the file of --config, which is what FSDP "
	  "does", { "fsdp", "fsdp_config", "use_fsdp" }, 1 },
	{ "the loss is plain cross entropy of the next token",
	  { "label_smoothing_factor", "neftune_noise_alpha" }, 1 },
	{ "rows have the length of --seq; --pack fills them",
	  { "group_by_length", "length_column_name", "packing" }, 1 },
	{ "ztrain's kernels are compiled", { "torch_compile", "torch_compile_backend" }, 0 },
	{ "write \"optimizer\" in the file of --config", { "optim", "optim_args" }, 1 },
	{ "write \"zero_optimization\": {\"stage\": N} in the file of --config",
	  { "stage", "zero_stage", "zero" }, 0 },
	{ "write \"offload_optimizer\": {\"device\": \"cpu\"} in \"zero_optimization\"",
	  { "offload_optimizer", "offload_optimizer_device", "cpu_offload" }, 0 },
	{ "write \"offload_param\": {\"device\": \"cpu\"} in \"zero_optimization\"",
	  { "offload_param", "offload_param_device" }, 0 },
	{ "the launcher starts the ranks: mpirun -n N ztrain, or torchrun",
	  { "num_gpus", "nproc_per_node", "num_processes", "num_nodes", "nnodes", "hostfile",
	    "world_size" }, 0 },
	{ "set the variable MASTER_ADDR or MASTER_PORT", { "master_addr", "master_port" }, 0 },
};

static const char *find(const char *name, int bench)
{
	for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++)
		for (const char *const *n = list[i].names; *n; n++)
			if (opt_is_name(name, *n))
				return bench && list[i].run_only ? NULL : list[i].give;
	return NULL;
}

/* An option that other calls alone have: the clause names these. */
static const char *of_others(const char *name)
{
	const bool bench = zt_args_is_own(ZT_BENCH, name), eval = zt_args_is_own(ZT_EVAL, name);

	return bench && eval ? "it is one of `ztrain bench` and `ztrain eval`" :
	       bench ? "it is one of `ztrain bench`" : eval ? "it is one of `ztrain eval`" : NULL;
}

const char *zt_meant(const char *name)
{
	const char *give = find(name, 0);

	return give ? give : of_others(name);
}

/* An option of a run that the call lacks: 'why'. */
static const char *not_here(const char *name, const char *why)
{
	const char *give = find(name, 1);

	if (!give && (find(name, 0) || zt_args_has(name) || zt_alias_has(name)))
		give = why;
	return give ? give : of_others(name);
}

const char *zt_meant_bench(const char *name)
{
	return not_here(name, "a benchmark trains on random tokens and saves nothing");
}

const char *zt_meant_eval(const char *name)
{
	return not_here(name, "an evaluation trains nothing and saves nothing");
}
