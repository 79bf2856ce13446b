/* zt_config.c -- the configuration of ztrain: the file as it is, and what the options add. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/main/zt_program.h"

#define STEPS 100	/* of a run, where neither the caller nor a scheduler says it */

/* What transformers' TrainingArguments have where nobody says anything. */
static const struct en_facts defaults = {
	.micro_batch = 8, .accumulation = 1, .lr = 5e-5, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8,
	.weight_decay = 0, .max_grad_norm = 1, .warmup_steps = 0,
};

static bool is_yaml(const char *path)
{
	const char *dot = strrchr(path, '.');

	return dot && (!strcmp(dot, ".yaml") || !strcmp(dot, ".yml"));
}

static void state(struct en_facts *f, unsigned bit, double *field, double v)
{
	if (isnan(v))
		return;
	*field = v;
	f->has |= bit;
}

static void state_whole(struct en_facts *f, unsigned bit, uint64_t *field, int64_t v)
{
	if (!v)
		return;
	*field = (uint64_t)v;
	f->has |= bit;
}

static struct en_facts facts_of(const struct zt_program *p)
{
	const struct zt_args *a = &p->args;
	struct en_facts f = defaults;

	f.world = p->comm->size;
	f.filler = EN_FILL_TRAINER;
	f.hidden_size = p->model->config.hidden;
	f.steps = a->steps < 0 ? STEPS : (uint64_t)a->steps;
	f.has = a->steps < 0 ? 0 : EN_HAS_STEPS;
	f.fills = EN_HAS_ALL & ~EN_HAS_PRECISION;
	if (!a->config) {
		f.micro_batch = 1;
		f.lr = 1e-3;
	}
	state_whole(&f, EN_HAS_MICRO, &f.micro_batch, a->micro_batch);
	state_whole(&f, EN_HAS_ACCUMULATION, &f.accumulation, a->accumulation);
	state(&f, EN_HAS_LR, &f.lr, a->lr);
	state(&f, EN_HAS_EPS, &f.eps, a->eps);
	state(&f, EN_HAS_BETAS, &f.beta1, a->beta1);
	state(&f, EN_HAS_BETAS, &f.beta2, a->beta2);
	state(&f, EN_HAS_WEIGHT_DECAY, &f.weight_decay, a->weight_decay);
	state(&f, EN_HAS_MAX_GRAD_NORM, &f.max_grad_norm, a->clip);
	state(&f, EN_HAS_WARMUP, &f.warmup_steps, a->warmup);
	if (a->precision) {
		f.has |= EN_HAS_PRECISION;
		f.bf16 = a->precision == EN_BF16;
		f.fp16 = a->precision == EN_FP16;
	}
	return f;
}

/* Without a file: everything as the Trainer would fill it in. */
static int parse_bare(struct zt_program *p, struct ckpt_err *err)
{
	static const char bare[] = "{\"train_micro_batch_size_per_gpu\": \"auto\", "
				   "\"gradient_accumulation_steps\": \"auto\", "
				   "\"gradient_clipping\": \"auto\", "
				   "\"fp16\": {\"enabled\": \"auto\"}, "
				   "\"bf16\": {\"enabled\": \"auto\"}}";

	return en_config_parse_deepspeed(&p->config, bare, sizeof(bare) - 1, "(no --config)", err);
}

int zt_config_read(struct zt_program *p, struct ckpt_err *err)
{
	const char *file = p->args.config;
	const struct en_facts facts = facts_of(p);
	int rc;

	if (!file)
		rc = parse_bare(p, err);
	else if (is_yaml(file))
		rc = en_config_read_accelerate(&p->config, file, p->comm->size, err);
	else
		rc = en_config_read_deepspeed(&p->config, file, err);
	if (!rc)
		rc = en_config_resolve(&p->config, &facts, err);
	zt_tell_config(p);
	if (!rc && p->args.steps < 0)
		p->args.steps = p->config.set.schedule.total_num_steps > 0 ?
			p->config.set.schedule.total_num_steps : STEPS;
	if (!rc && p->args.scheduler && p->config.set.schedule.type != EN_SCHEDULER_NONE) {
		err->code = CKPT_E_USAGE;
		snprintf(err->msg, sizeof(err->msg),
			 "--lr-scheduler %s, and %s has a scheduler of its own: leave one of them "
			 "out", p->args.scheduler, file);
		return -CKPT_E_USAGE;
	}
	if (!rc)
		rc = en_node_write(p->config.tree, &p->config_json, err);
	return rc ? rc : ck_buf_add(&p->config_json, "", 1, err);
}
