/*
 * en_check.c -- settings that hang together, and those that follow from others; see
 * en_deepspeed_priv.h.
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <strings.h>

#include "engine/config/deepspeed/en_deepspeed_priv.h"

static const struct en_value *value(const struct en_resolve *ev, enum en_block b, const char *name)
{
	return &ev->value[en_key_number(b, name)];
}

static int64_t number(const struct en_resolve *ev, enum en_block b, const char *name)
{
	return value(ev, b, name)->i;
}

static void precision(struct en_resolve *ev)
{
	const bool fp16 = number(ev, EN_B_FP16, "enabled"), bf16 = number(ev, EN_B_BF16, "enabled");

	ev->set.precision = bf16 ? EN_BF16 : fp16 ? EN_FP16 : EN_FP32;
	if (fp16 && bf16)
		en_refuse(ev, true, CKPT_E_CORRUPT, "bf16.enabled",
			  en_given(ev, EN_B_BF16, "enabled"),
			  "fp16 is enabled too; enable one of them");
	if (!fp16 || value(ev, EN_B_FP16, "loss_scale")->f != 0)
		return;
	if (number(ev, EN_B_FP16, "loss_scale_window") <= 0)
		en_refuse(ev, ev->cfg->version >= EN_DS_0_19, CKPT_E_CORRUPT,
			  "fp16.loss_scale_window", en_given(ev, EN_B_FP16, "loss_scale_window"),
			  "a dynamic loss scale needs a window above 0");
	if (number(ev, EN_B_FP16, "min_loss_scale") <= 0)
		en_refuse(ev, ev->cfg->version >= EN_DS_0_19, CKPT_E_CORRUPT, "fp16.min_loss_scale",
			  en_given(ev, EN_B_FP16, "min_loss_scale"),
			  "a dynamic loss scale needs a smallest scale above 0");
}

/* Gradients travel as they are computed, or wider. */
static void communication(struct en_resolve *ev)
{
	static const enum ckpt_dtype computed[] = { [EN_FP32] = CKPT_F32, [EN_BF16] = CKPT_BF16,
						    [EN_FP16] = CKPT_F16 };
	const int64_t type = number(ev, EN_B_TOP, "communication_data_type");

	if (type && type != CKPT_F32 && type != (int64_t)computed[ev->set.precision])
		en_refuse(ev, false, CKPT_E_UNSUPPORTED, "communication_data_type",
			  en_given(ev, EN_B_TOP, "communication_data_type"),
			  "unsupported; gradients are sent as %s, the compute type, or as fp32",
			  ckpt_dtype_torch_name(computed[ev->set.precision]));
}

/* ------------------------------------------------------------------- ZeRO */

static void nvme(struct en_resolve *ev, enum en_block b)
{
	const struct en_value *path = value(ev, b, "nvme_path");
	const struct en_node *device = en_given(ev, b, "device");
	const char *of = b == EN_B_OFFLOAD_PARAM ? "zero_optimization.offload_param"
						 : "zero_optimization.offload_optimizer";

	if (number(ev, b, "device") != EN_DEVICE_NVME)
		return;
	if (number(ev, EN_B_ZERO, "stage") != 3)
		en_refuse(ev, false, CKPT_E_UNSUPPORTED, of, device,
			  "NVMe needs stage 3; at stage %" PRId64
			  " DeepSpeed would keep the state in memory",
			  number(ev, EN_B_ZERO, "stage"));
	else if (path->type != EN_STR || !*path->str)
		en_refuse(ev, false, CKPT_E_CORRUPT, of, device, "NVMe needs a \"nvme_path\"");
	else if (b == EN_B_OFFLOAD_PARAM && ev->given[en_key_number(b, "device")].verdict)
		ev->cfg->verdict[ev->given[en_key_number(b, "device")].verdict - 1].why =
			"NVMe holds optimizer state only: parameters stay in host memory";
}

/* A note on what offloading does is not for a file that says "none". */
static void no_offload(struct en_resolve *ev, enum en_block b)
{
	const uint64_t verdict = ev->given[en_key_number(b, "device")].verdict;

	if (verdict && number(ev, b, "device") == EN_DEVICE_NONE)
		ev->cfg->verdict[verdict - 1].why = "";
}

static void zero(struct en_resolve *ev)
{
	const int64_t stage = number(ev, EN_B_ZERO, "stage");
	const struct en_value *overlap = value(ev, EN_B_ZERO, "overlap_comm");
	const struct en_node *norm = en_given(ev, EN_B_ZERO, "compute_grad_norm");

	ev->set.no_overlap = overlap->type == EN_BOOL && !overlap->i;
	if (overlap->type == EN_NULL)
		en_derive(ev, EN_B_ZERO, "overlap_comm",
			  (struct en_value){ .type = EN_BOOL, .i = stage == 3 },
			  "DeepSpeed's default is true at stage 3 only; ztrain's GPUs overlap at "
			  "every stage");
	if (norm && !number(ev, EN_B_ZERO, "compute_grad_norm") && (stage == 0 || stage == 3))
		en_refuse(ev, true, CKPT_E_CORRUPT, "zero_optimization.compute_grad_norm", norm,
			  "false is supported at stages 1 and 2 only");
	no_offload(ev, EN_B_OFFLOAD_OPTIMIZER);
	nvme(ev, EN_B_OFFLOAD_OPTIMIZER);
	nvme(ev, EN_B_OFFLOAD_PARAM);
}

/* -------------------------------------------------------------- optimizer */

static void max_grad_norm(struct en_resolve *ev)
{
	const struct en_node *params = en_node_path(ev->cfg->tree, "optimizer.params");
	const struct en_node *v = en_node_get(params, "max_grad_norm");
	static const char path[] = "optimizer.params.max_grad_norm";

	if (!v)
		return;
	if (ev->cfg->version >= EN_DS_0_19)
		en_refuse(
			ev, true, CKPT_E_CORRUPT, path, v,
			"not an option of the optimizer; use the top-level \"gradient_clipping\"");
	else
		en_rule(ev, EN_NO_EFFECT, path, v,
			"DeepSpeed sets it to 0 with a warning; use the top-level "
			"\"gradient_clipping\"");
}

static void client_optimizer(struct en_resolve *ev)
{
	const struct en_facts *f = ev->facts;
	const unsigned known = f->has | f->fills;
	struct en_optimizer *o = &ev->set.optimizer;

	o->type = EN_OPTIMIZER_CLIENT;
	o->adamw = o->torch = o->bias_correction = true;
	o->one_group = false;
	if (known & EN_HAS_LR)
		o->lr = f->lr;
	if (known & EN_HAS_BETAS) {
		o->beta1 = f->beta1;
		o->beta2 = f->beta2;
	}
	if (known & EN_HAS_EPS)
		o->eps = f->eps;
	if (known & EN_HAS_WEIGHT_DECAY)
		o->weight_decay = f->weight_decay;
}

static void optimizer(struct en_resolve *ev)
{
	const struct en_value *type = value(ev, EN_B_OPTIMIZER, "type");
	const struct en_node *v = en_given(ev, EN_B_OPTIMIZER, "type");
	struct en_optimizer *o = &ev->set.optimizer;
	bool is_adamw;

	if (type->type != EN_STR) {
		client_optimizer(ev);
		return;
	}
	is_adamw = !strcasecmp(type->str, "adamw");
	if (!is_adamw && strcasecmp(type->str, "adam") != 0)
		en_refuse(ev, false, CKPT_E_UNSUPPORTED, "optimizer.type", v,
			  "unsupported; use Adam or AdamW");
	o->type = EN_OPTIMIZER_ADAM;
	o->adamw = o->adamw || is_adamw; /* "Adam" is AdamW too, unless adam_w_mode is false */
	o->one_group = true;
	max_grad_norm(ev);
}

/* -------------------------------------------------------------- scheduler */

static const struct {
	const char *name;
	enum en_scheduler_type type;
} schedulers[] = {
	{ "LRRangeTest", EN_SCHEDULER_RANGE_TEST }, { "OneCycle", EN_SCHEDULER_ONE_CYCLE },
	{ "WarmupLR", EN_SCHEDULER_WARMUP }, { "WarmupDecayLR", EN_SCHEDULER_WARMUP_DECAY },
	{ "WarmupCosineLR", EN_SCHEDULER_WARMUP_COSINE },
};

static enum en_scheduler_type scheduler_type(struct en_resolve *ev)
{
	const struct en_value *type = value(ev, EN_B_SCHEDULER, "type");

	if (type->type != EN_STR)
		return EN_SCHEDULER_NONE;
	for (size_t i = 0; i < CK_ARRAY_LEN(schedulers); i++)
		if (!strcmp(schedulers[i].name, type->str))
			return schedulers[i].type;
	en_refuse(ev, false, CKPT_E_UNSUPPORTED, "scheduler.type",
		  en_given(ev, EN_B_SCHEDULER, "type"),
		  "unsupported; use LRRangeTest, OneCycle, WarmupLR, WarmupDecayLR or "
		  "WarmupCosineLR");
	return EN_SCHEDULER_NONE;
}

static void needs(struct en_resolve *ev, unsigned types, const char *name)
{
	const size_t k = en_key_number(EN_B_SCHEDULER_PARAMS, name);
	const struct en_node *v = en_node_path(ev->cfg->tree, "scheduler.params");

	if (((1u << ev->set.schedule.type) & types) && ev->value[k].type == EN_NULL &&
	    !en_node_get(v, name))
		en_refuse(ev, true, CKPT_E_CORRUPT, en_key_path(ev, &en_keys[k]),
			  en_given(ev, EN_B_SCHEDULER, "type"), "this scheduler needs \"%s\"",
			  name);
}

/* A parameter of another scheduler is an unexpected argument there. */
static void no_others(struct en_resolve *ev)
{
	for (size_t i = 0; i < en_n_keys; i++)
		if (en_keys[i].block == EN_B_SCHEDULER_PARAMS && ev->given[i].v &&
		    !(en_keys[i].schedulers & (1u << ev->set.schedule.type)))
			en_refuse(ev, true, CKPT_E_CORRUPT, en_key_path(ev, &en_keys[i]),
				  ev->given[i].v, "%s has no such option",
				  value(ev, EN_B_SCHEDULER, "type")->str);
}

static void warmup(struct en_resolve *ev)
{
	struct en_schedule *s = &ev->set.schedule;
	const struct en_value *max = value(ev, EN_B_SCHEDULER_PARAMS, "warmup_max_lr");
	const struct en_value *type = value(ev, EN_B_SCHEDULER_PARAMS, "warmup_type");
	const bool is_warmup = (1u << s->type) & (EN_S(WARMUP) | EN_S(WARMUP_DECAY));
	const bool by_lr = s->type == EN_SCHEDULER_WARMUP && ev->cfg->version > EN_DS_0_16;

	if (is_warmup && max->type == EN_NULL && !by_lr &&
	    !en_given(ev, EN_B_SCHEDULER_PARAMS, "warmup_max_lr"))
		en_derive(ev, EN_B_SCHEDULER_PARAMS, "warmup_max_lr",
			  (struct en_value){ .type = EN_FLOAT, .f = 0.001 },
			  "DeepSpeed's default, independent of the optimizer's rate");
	s->warmup_max_lr = max->type == EN_NULL ? (double)NAN : max->f;
	s->warmup_linear = type->type == EN_STR && !strcmp(type->str, "linear");
	if (type->type == EN_STR && !s->warmup_linear && strcmp(type->str, "log") != 0)
		en_rule(ev, EN_NO_EFFECT, "scheduler.params.warmup_type",
			en_given(ev, EN_B_SCHEDULER_PARAMS, "warmup_type"),
			"expected \"log\" or \"linear\"; DeepSpeed warns and uses \"log\"");
}

static void scheduler(struct en_resolve *ev)
{
	struct en_schedule *s = &ev->set.schedule;

	s->type = scheduler_type(ev);
	if (value(ev, EN_B_SCHEDULER_PARAMS, "cycle_second_step_size")->type == EN_NULL)
		s->cycle_second_step_size = -1;
	if (value(ev, EN_B_SCHEDULER_PARAMS, "cycle_second_stair_count")->type == EN_NULL)
		s->cycle_second_stair_count = -1;
	if (s->type != EN_SCHEDULER_NONE)
		no_others(ev);
	needs(ev, EN_S(WARMUP_DECAY) | EN_S(WARMUP_COSINE), "total_num_steps");
	needs(ev, EN_S(ONE_CYCLE), "cycle_min_lr");
	needs(ev, EN_S(ONE_CYCLE), "cycle_max_lr");
	warmup(ev);
}

/* ------------------------------------------------------------------ launch */

static void world(struct en_resolve *ev)
{
	const uint32_t said = ev->cfg->launch.num_processes, is = ev->facts->world;

	if (said && said != is)
		en_refuse(ev, false, CKPT_E_MISMATCH, "num_processes", NULL,
			  "the file says %u processes in all, and %u rank%s started; start %u "
			  "(mpirun -n %u ztrain ...), or change the file",
			  said, is, is == 1 ? " was" : "s were", said, said);
}

void en_check(struct en_resolve *ev)
{
	precision(ev);
	communication(ev);
	zero(ev);
	for (size_t i = 0; i < en_n_keys; i++)
		en_value_put(&en_keys[i], &ev->value[i], &ev->set);
	optimizer(ev);
	scheduler(ev);
	world(ev);
	if (value(ev, EN_B_TOP, "gradient_clipping")->f < 0)
		en_refuse(ev, false, CKPT_E_CORRUPT, "gradient_clipping",
			  en_given(ev, EN_B_TOP, "gradient_clipping"),
			  "must be 0 (no clipping) or more");
}
