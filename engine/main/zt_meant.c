/* zt_meant.c -- see zt_meant.h. */
#include "engine/main/zt_meant.h"

#include <stddef.h>

#include "engine/main/zt_args.h"

/* Each option of ztrain, then the names that others have for it. */
struct meant {
	const char *give;
	const char *names[8];	/* end with NULL */
	int run_only;		/* `ztrain bench` lacks the option */
};

static const struct meant list[] = {
	{ "give --model DIR", { "model_name_or_path", "model_name", "model_path" }, 0 },
	{ "give --config FILE",
	  { "deepspeed", "deepspeed_config", "ds_config", "config_file", "config_path" }, 0 },
	{ "give --micro-batch N, the rows that a rank computes at once",
	  { "per_device_train_batch_size", "train_micro_batch_size_per_gpu", "micro_batch_size",
	    "batch_size", "train_batch_size" }, 0 },
	{ "give --accumulation N", { "gradient_accumulation_steps", "grad_accum_steps" }, 0 },
	{ "give --lr RATE", { "learning_rate" }, 1 },
	{ "give --beta1 B", { "adam_beta1" }, 1 },
	{ "give --beta2 B", { "adam_beta2" }, 1 },
	{ "give --eps E", { "adam_epsilon" }, 1 },
	{ "give --clip NORM", { "max_grad_norm", "gradient_clipping", "grad_clip" }, 0 },
	{ "give --lr-scheduler TYPE", { "lr_scheduler_type" }, 1 },
	{ "give --lr-scheduler-args JSON", { "lr_scheduler_kwargs" }, 1 },
	{ "give --warmup-steps N; a value below 1 is a fraction of --steps",
	  { "warmup_ratio", "num_warmup_steps", "lr_warmup_steps" }, 1 },
	{ "give --steps N (epochs x rows / rows of a step)",
	  { "epochs", "num_train_epochs", "num_epochs" }, 1 },
	{ "give --steps N", { "max_steps", "num_steps", "max_train_steps" }, 0 },
	{ "give --precision P (fp32, bf16 or fp16)",
	  { "bf16", "fp16", "mixed_precision", "dtype", "torch_dtype" }, 0 },
	{ "give --precision bf16 --fp8",
	  { "fp8_format", "fp8_recipe", "fp8_backend", "float8" }, 0 },
	{ "give --recompute",
	  { "gradient_checkpointing", "activation_checkpointing",
	    "gradient_checkpointing_enable" }, 0 },
	{ "give --data FILE of tokens (docs/ztrain/data.md)",
	  { "train_file", "dataset", "dataset_name", "dataset_path", "train_data" }, 1 },
	{ "give --eval FILE", { "validation_file", "eval_file", "eval_data" }, 1 },
	{ "give --eval-every N", { "eval_steps", "eval_strategy", "evaluation_strategy" }, 1 },
	{ "give --seq N",
	  { "max_seq_length", "max_length", "seq_length", "seq_len", "block_size", "cutoff_len" },
	  0 },
	{ "give --save DIR", { "output_dir", "checkpoint_dir", "save_dir" }, 1 },
	{ "give --save-every N", { "save_steps", "save_strategy", "save_interval" }, 1 },
	{ "`zckpt prune --keep-last N DIR` deletes older steps", { "save_total_limit" }, 1 },
	{ "give --resume auto", { "resume_from_checkpoint" }, 1 },
	{ "give --overwrite-steps", { "overwrite_output_dir" }, 1 },
	{ "give --log FILE", { "logging_steps" }, 1 },
	{ "give --log FILE, then `ztrain log --tensorboard DIR FILE`",
	  { "logging_dir", "report_to", "tensorboard" }, 1 },
	{ "give --drop-last", { "dataloader_drop_last" }, 1 },
	{ "write \"zero_optimization\": {\"stage\": N} in the file of --config",
	  { "stage", "zero_stage", "zero" }, 0 },
	{ "write \"offload_optimizer\": {\"device\": \"cpu\"} in \"zero_optimization\"",
	  { "offload_optimizer", "offload_optimizer_device", "cpu_offload" }, 0 },
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

const char *zt_meant(const char *name)
{
	return find(name, 0);
}

const char *zt_meant_bench(const char *name)
{
	const char *give = find(name, 1);

	if (!give && (find(name, 0) || zt_args_has(name)))
		give = "a benchmark trains on random tokens and saves nothing";
	return give;
}
