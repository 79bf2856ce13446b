/*
 * en_yaml_keys.c -- the keys of an accelerate configuration (ClusterConfig of accelerate 1.15, and
 * what `accelerate launch` knows under deepspeed_config); see en_accelerate.h.
 */
#include <stdio.h>
#include <string.h>

#include "engine/config/accelerate/en_accelerate_priv.h"

struct key {
	const char *name;
	enum en_ruling ruling;
	const char *why;
};

static const struct key top[] = {
	{ "compute_environment", EN_USED, "" },
	{ "distributed_type", EN_USED, "" },
	{ "num_processes", EN_USED, "" },
	{ "num_machines", EN_USED, "" },
	{ "machine_rank", EN_USED, "" },
	{ "main_process_ip", EN_NO_EFFECT, "set by the launcher of the ranks" },
	{ "main_process_port", EN_NO_EFFECT, "set by the launcher of the ranks" },
	{ "mixed_precision", EN_USED, "" },
	{ "fp16", EN_USED, "deprecated: read as mixed_precision" },
	{ "deepspeed_config", EN_USED, "" },
	{ "debug", EN_NO_EFFECT, "ztrain does not run Python" },
	{ "use_cpu", EN_NO_EFFECT, "ztrain runs where it is started" },
	{ "gpu_ids", EN_NO_EFFECT, "set CUDA_VISIBLE_DEVICES where the ranks are started" },
	{ "rdzv_backend", EN_NO_EFFECT, "ztrain does not use torchrun's settings" },
	{ "same_network", EN_NO_EFFECT, "ztrain does not use torchrun's settings" },
	{ "main_training_function", EN_NO_EFFECT, "it is for TPUs" },
	{ "enable_cpu_affinity", EN_NO_EFFECT, "the launcher of the ranks binds them" },
	{ "downcast_bf16", EN_NO_EFFECT, "it is for TPUs" },
	{ "tpu_name", EN_NO_EFFECT, "it is for TPUs" },
	{ "tpu_zone", EN_NO_EFFECT, "it is for TPUs" },
	{ "tpu_use_cluster", EN_NO_EFFECT, "it is for TPUs" },
	{ "tpu_use_sudo", EN_NO_EFFECT, "it is for TPUs" },
	{ "tpu_vm", EN_NO_EFFECT, "it is for TPUs" },
	{ "tpu_env", EN_NO_EFFECT, "it is for TPUs" },
	{ "command_file", EN_NO_EFFECT, "it is for TPUs" },
	{ "commands", EN_NO_EFFECT, "it is for TPUs" },
	{ "dynamo_backend", EN_NO_EFFECT, "ztrain does not run Python" },
	{ "dynamo_config", EN_NO_EFFECT, "ztrain does not run Python" },
	{ "fsdp_config", EN_NO_EFFECT, "distributed_type is not FSDP" },
	{ "megatron_lm_config", EN_NO_EFFECT, "distributed_type is not MEGATRON_LM" },
	{ "mpirun_config", EN_NO_EFFECT, "start mpirun yourself" },
	{ "fp8_config", EN_NO_EFFECT, "ztrain --fp8 names the recipe" },
	{ "parallelism_config", EN_REFUSED, "accelerate uses it with FSDP 2 only" },
};

static const struct key of_deepspeed[] = {
	{ "zero_stage", EN_USED, "" },
	{ "gradient_accumulation_steps", EN_USED, "" },
	{ "gradient_clipping", EN_USED, "" },
	{ "offload_optimizer_device", EN_USED, "" },
	{ "offload_param_device", EN_USED, "" },
	{ "offload_optimizer_nvme_path", 0, "" },
	{ "offload_param_nvme_path", 0, "" },
	{ "zero3_save_16bit_model", EN_USED, "" },
	{ "deepspeed_config_file", EN_USED, "" },
	{ "zero3_init_flag", EN_NO_EFFECT, "ztrain always builds models in parts" },
	{ "deepspeed_multinode_launcher", EN_NO_EFFECT, "the ranks are started by mpirun or srun" },
	{ "deepspeed_hostfile", EN_NO_EFFECT, "the ranks are started by mpirun or srun" },
	{ "deepspeed_exclusion_filter", EN_NO_EFFECT, "the ranks are started by mpirun or srun" },
	{ "deepspeed_inclusion_filter", EN_NO_EFFECT, "the ranks are started by mpirun or srun" },
	{ "deepspeed_moe_layer_cls_names", EN_NO_EFFECT, "ztrain has no mixture of experts" },
};

#define N_TOP CK_ARRAY_LEN(top)
#define N_DEEPSPEED CK_ARRAY_LEN(of_deepspeed)

static const struct key *find(const struct key *keys, size_t n, const char *name)
{
	for (size_t i = 0; i < n; i++)
		if (!strcmp(keys[i].name, name))
			return &keys[i];
	return NULL;
}

static const struct key *near(const struct key *keys, size_t n, const char *name)
{
	for (unsigned d = 1; d <= 3; d++)
		for (size_t i = 0; i < n; i++)
			if (en_edit_distance(keys[i].name, name, 3) == d)
				return &keys[i];
	return NULL;
}

static bool is_empty(const struct en_node *v)
{
	return v->type == EN_NULL || (v->type == EN_DICT && !v->n);
}

static void known(struct en_yaml *y, const struct key *k, const char *path, const struct en_node *v)
{
	uint64_t n = 0;

	if (k->ruling == EN_REFUSED && !is_empty(v))
		en_refuse(&y->ev, true, CKPT_E_UNSUPPORTED, path, v, "%s", k->why);
	else if (k->ruling)
		n = en_rule(&y->ev, k->ruling == EN_REFUSED ? EN_NO_EFFECT : k->ruling, path, v,
			    "%s", k->why);
	if (n && !strncmp(k->why, "deprecated", 10))
		y->ev.cfg->verdict[n - 1].deprecated = true;
}

static void unknown_top(struct en_yaml *y, const struct en_node *v)
{
	const struct key *there = find(of_deepspeed, N_DEEPSPEED, v->key);
	const struct key *like = near(top, N_TOP, v->key);
	char hint[128] = "";

	if (there)
		snprintf(hint, sizeof(hint), "; it belongs under deepspeed_config");
	else if (like)
		snprintf(hint, sizeof(hint), "; did you mean \"%s\"?", like->name);
	en_refuse(&y->ev, true, CKPT_E_CORRUPT, v->key, v, "accelerate has no such top-level key%s",
		  hint);
}

/* The key of DeepSpeed's own that was meant, if it is one: stage3_x, x, or in an offload block. */
static bool is_deepspeeds(const char *name)
{
	return en_key_find(EN_B_ZERO, name) || en_key_find(EN_B_TOP, name);
}

static void unknown_deepspeed(struct en_yaml *y, const char *path, const struct en_node *v)
{
	const struct key *like = near(of_deepspeed, N_DEEPSPEED, v->key);
	const char *name = v->key;

	if (en_key_find(EN_B_ZERO, name) &&
	    !strcmp(name, "stage3_gather_16bit_weights_on_model_save"))
		en_rule(&y->ev, EN_IGNORED, path, v,
			"accelerate ignores it silently; its name in accelerate is "
			"zero3_save_16bit_model");
	else if (is_deepspeeds(name))
		en_rule(&y->ev, EN_IGNORED, path, v,
			"accelerate ignores it silently; it is a DeepSpeed key, for a "
			"deepspeed_config_file");
	else
		en_rule(&y->ev, EN_IGNORED, path, v, "accelerate ignores it silently%s%s%s",
			like ? "; did you mean \"" : "", like ? like->name : "", like ? "\"?" : "");
}

static void under_deepspeed(struct en_yaml *y)
{
	for (const struct en_node *v = y->ds->child; v && !y->ev.rc; v = v->next) {
		const struct key *k = find(of_deepspeed, N_DEEPSPEED, v->key);
		const char *path = ck_arena_printf(&y->ev.cfg->arena, "deepspeed_config.%s",
						   v->key);

		if (!path)
			y->ev.rc = -CKPT_E_NOMEM;
		else if (k)
			known(y, k, path, v);
		else
			unknown_deepspeed(y, path, v);
	}
}

void en_yaml_keys(struct en_yaml *y)
{
	for (const struct en_node *v = y->root->child; v && !y->ev.rc; v = v->next) {
		const struct key *k = find(top, N_TOP, v->key);

		if (k && v != y->ds)
			known(y, k, v->key, v);
		else if (!k)
			unknown_top(y, v);
	}
	if (!y->ds)
		return;
	if (y->ds->type == EN_DICT)
		under_deepspeed(y);
	else
		en_refuse(&y->ev, true, CKPT_E_CORRUPT, "deepspeed_config", y->ds,
			  "expected a mapping of keys");
	if (y->ds->type != EN_DICT)
		y->ds = NULL;
}
