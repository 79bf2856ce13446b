/*
 * en_when.c -- which settings matter under the others, and where each comes from; see
 * en_deepspeed_priv.h.
 */
#include <string.h>

#include "engine/config/deepspeed/en_deepspeed_priv.h"

static bool has_effect(const struct en_settings *s, const struct en_key *k)
{
	const bool optimizer = s->stage && s->offload_optimizer.device != EN_DEVICE_NONE;
	const bool param = s->stage == 3 && s->offload_param.device != EN_DEVICE_NONE;
	const bool optimizer_nvme = s->stage == 3 && s->offload_optimizer.device == EN_DEVICE_NVME;
	const bool param_nvme = s->stage == 3 && s->offload_param.device == EN_DEVICE_NVME;

	switch (k->when) {
	case EN_W_ALWAYS:
		return true;
	case EN_W_ZERO:
		return s->stage > 0;
	case EN_W_STAGE_1_2:
		return s->stage == 1 || s->stage == 2;
	case EN_W_STAGE_3:
		return s->stage == 3;
	case EN_W_FP16:
		return s->precision == EN_FP16;
	case EN_W_DYNAMIC_SCALE:
		return s->precision == EN_FP16 && s->loss_scale == 0;
	case EN_W_BF16:
		return s->precision == EN_BF16;
	case EN_W_OFFLOAD_OPTIMIZER:
		return optimizer;
	case EN_W_OPTIMIZER_NVME:
		return optimizer_nvme;
	case EN_W_OFFLOAD_PARAM:
		return param;
	case EN_W_PARAM_NVME:
		return param_nvme;
	case EN_W_NVME:
		return optimizer_nvme;
	case EN_W_OPTIMIZER:
		return s->optimizer.type == EN_OPTIMIZER_ADAM;
	case EN_W_SCHEDULER:
		return (k->schedulers & (1u << s->schedule.type)) != 0;
	}
	return true;
}

static const char *why_not(enum en_when when)
{
	static const char *const text[] = {
		[EN_W_ALWAYS] = "",
		[EN_W_ZERO] = "stage 0 partitions nothing",
		[EN_W_STAGE_1_2] = "used at stages 1 and 2 only",
		[EN_W_STAGE_3] = "used at stage 3 only",
		[EN_W_FP16] = "fp16 is not on",
		[EN_W_DYNAMIC_SCALE] = "there is no dynamic loss scale",
		[EN_W_BF16] = "bf16 is not on",
		[EN_W_OFFLOAD_OPTIMIZER] = "the optimizer is not offloaded",
		[EN_W_OPTIMIZER_NVME] = "the optimizer is not on NVMe",
		[EN_W_OFFLOAD_PARAM] = "parameters are not offloaded",
		[EN_W_PARAM_NVME] = "parameters are not on NVMe",
		[EN_W_NVME] = "nothing is on NVMe",
		[EN_W_OPTIMIZER] = "the file has no optimizer",
		[EN_W_SCHEDULER] = "not an option of this scheduler",
	};

	return text[when];
}

/* The verdict of the key of accelerate's file that a value was made of, or NULL. */
static struct en_verdict *of_yaml(const struct en_resolve *ev, const struct en_node *given)
{
	for (uint64_t i = 0; given && given->at.from == EN_FROM_YAML && i < ev->cfg->n_verdicts;
	     i++) {
		struct en_verdict *v = &ev->cfg->verdict[i];

		if (v->at.from == EN_FROM_YAML && v->at.line == given->at.line &&
		    v->at.col == given->at.col)
			return v;
	}
	return NULL;
}

/* What has no effect under the other settings, or none here, is as if it were not said. */
static void quieten(struct en_resolve *ev, size_t i)
{
	struct en_verdict *v = ev->given[i].verdict ?
		&ev->cfg->verdict[ev->given[i].verdict - 1] : of_yaml(ev, ev->given[i].v);

	if (!v)
		return;
	if (v->ruling != EN_USED && v->ruling != EN_NO_EFFECT)
		return;
	v->ruling = EN_NO_EFFECT;
	v->why = why_not(en_keys[i].when);
}

static bool add_origin(struct en_resolve *ev, size_t i, bool matters)
{
	struct en_origin *o = &ev->cfg->origin[ev->cfg->n_origins];
	char text[EN_VALUE_TEXT];

	en_value_text(&en_keys[i], &ev->value[i], text);
	o->path = en_key_path(ev, &en_keys[i]);
	o->value = ck_arena_strdup(&ev->cfg->arena, text);
	o->matters = matters && en_keys[i].role == EN_R_USED;
	o->at.from = EN_FROM_DEFAULT;
	if (ev->given[i].v)
		o->at = ev->given[i].v->at;
	ev->cfg->n_origins++;
	return o->path && o->value;
}

void en_when(struct en_resolve *ev)
{
	ev->cfg->n_origins = 0;
	ev->cfg->origin = ck_arena_zalloc(&ev->cfg->arena, en_n_keys * sizeof(*ev->cfg->origin));
	if (!ev->cfg->origin) {
		ev->rc = -CKPT_E_NOMEM;
		return;
	}
	for (size_t i = 0; i < en_n_keys && !ev->rc; i++) {
		const bool matters = has_effect(&ev->set, &en_keys[i]);

		if (en_keys[i].type == EN_K_ANY || en_keys[i].type == EN_K_BLOCK)
			continue;
		if (!matters)
			quieten(ev, i);
		if (!add_origin(ev, i, matters))
			ev->rc = -CKPT_E_NOMEM;
	}
	/* The engine asks for the device only. */
	if (!ev->set.stage)
		ev->set.offload_optimizer.device = EN_DEVICE_NONE;
	if (ev->set.stage != 3)
		ev->set.offload_param.device = EN_DEVICE_NONE;
}
