/* zt_config.c -- the configuration of ztrain: the file as it is, and what the options add. */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "engine/main/zt_program.h"
#include "engine/main/zt_say.h"

#define STEPS 100	/* of a run, where neither the caller nor a scheduler says it */

/* The defaults of transformers' TrainingArguments. */
static const struct en_facts defaults = {
	.micro_batch = 8, .accumulation = 1, .lr = 5e-5, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8,
	.weight_decay = 0, .max_grad_norm = 1, .warmup_steps = 0,
};

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
	f.fill_missing = true;
	if (!a->config)
		f.micro_batch = 1;
	state_whole(&f, EN_HAS_MICRO, &f.micro_batch, a->micro_batch);
	state_whole(&f, EN_HAS_ACCUMULATION, &f.accumulation, a->accumulation);
	state(&f, EN_HAS_LR, &f.lr, a->lr);
	state(&f, EN_HAS_EPS, &f.eps, a->eps);
	state(&f, EN_HAS_BETA1, &f.beta1, a->beta1);
	state(&f, EN_HAS_BETA2, &f.beta2, a->beta2);
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

/* Without a file: everything as the Trainer would fill it in; `ztrain eval` has a step's stage. */
static int parse_bare(const struct zt_program *p, struct en_config *out, struct ckpt_err *err)
{
	static const char bare[] = "{\"train_micro_batch_size_per_gpu\": \"auto\", "
				   "\"gradient_accumulation_steps\": \"auto\", "
				   "\"gradient_clipping\": \"auto\", "
				   "\"fp16\": {\"enabled\": \"auto\"}, "
				   "\"bf16\": {\"enabled\": \"auto\"}";
	char text[sizeof(bare) + 48];
	int n = snprintf(text, sizeof(text), "%s", bare);

	if (p->step.stage)
		n += snprintf(text + n, sizeof(text) - (size_t)n,
			      ", \"zero_optimization\": {\"stage\": %d}", (int)p->step.stage);
	n += snprintf(text + n, sizeof(text) - (size_t)n, "}");
	return en_config_parse_deepspeed(out, text, (uint64_t)n, "(no --config)", err);
}

/* ---- options that the schedule leaves without effect ---- */

static int refuse(struct ckpt_err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static int refuse(struct ckpt_err *err, const char *fmt, ...)
{
	va_list ap;

	err->code = CKPT_E_USAGE;
	va_start(ap, fmt);
	vsnprintf(err->msg, sizeof(err->msg), fmt, ap);
	va_end(ap);
	return -CKPT_E_USAGE;
}

/* The rate is the schedule's own, whatever the optimizer's is. */
static int check_file_schedule(const struct zt_program *p, struct ckpt_err *err)
{
	const struct zt_args *a = &p->args;
	const struct en_schedule *s = &p->config.set.schedule;
	const bool cycle = s->type == EN_SCHEDULER_ONE_CYCLE;

	if (a->scheduler)
		return refuse(err,
			      "--lr-scheduler %s: %s already has a scheduler; remove one of them",
			      a->scheduler, a->config);
	if (!cycle && s->type != EN_SCHEDULER_RANGE_TEST)
		return 0;
	if (!isnan(a->lr))
		return refuse(err,
			      "--lr %g has no effect: the %s of %s sets the rate by its %s; remove "
			      "the option",
			      a->lr, cycle ? "OneCycle" : "LRRangeTest", a->config,
			      cycle ? "cycle_min_lr and cycle_max_lr" : "lr_range_test_min_lr");
	if (!isnan(a->warmup))
		return refuse(err,
			      "--warmup-steps %g has no effect: the %s of %s has no warm-up; "
			      "remove the option",
			      a->warmup, cycle ? "OneCycle" : "LRRangeTest", a->config);
	if (cycle && s->cycle_momentum && !(isnan(a->beta1) && isnan(a->beta2)))
		return refuse(err,
			      "--beta%d %g has no effect: the OneCycle of %s sets the betas "
			      "(cycle_momentum); remove the option",
			      isnan(a->beta1) ? 2 : 1, isnan(a->beta1) ? a->beta2 : a->beta1,
			      a->config);
	return 0;
}

static int check_schedule(const struct zt_program *p, struct ckpt_err *err)
{
	const struct zt_args *a = &p->args;

	if (p->config.set.schedule.type != EN_SCHEDULER_NONE)
		return check_file_schedule(p, err);
	if (isnan(a->warmup) || !a->warmup)
		return 0;
	if (!a->scheduler)
		return refuse(err,
			      "--warmup-steps %g has no effect: the learning rate is constant; "
			      "give --lr-scheduler linear, or a \"scheduler\" in --config",
			      a->warmup);
	if (!strcmp(a->scheduler, "reduce_lr_on_plateau"))
		return refuse(err, "--warmup-steps %g has no effect with --lr-scheduler "
			      "reduce_lr_on_plateau; remove the option", a->warmup);
	if (!strcmp(a->scheduler, "constant"))
		return refuse(err, "--warmup-steps %g has no effect with --lr-scheduler constant; "
			      "give --lr-scheduler constant_with_warmup", a->warmup);
	return 0;
}

/* Whose steps are skipped in fp16.  Where bits over ranks are not promised, DeepSpeed's. */
static int choose_overflow(struct zt_program *p, struct ckpt_err *err)
{
	const struct en_settings *set = &p->config.set;
	const bool wide = set->communication_dtype == CKPT_F32;
	const bool tree = p->on_gpu && p->cuda.sum == EN_CUDA_SUM_TREE;
	const bool stated = p->args.overflow == ZT_DEEPSPEED;

	if (set->precision != EN_FP16)
		return !p->args.overflow ? 0 :
					   refuse(err, "--overflow needs fp16; the precision is %s",
						  set->precision == EN_BF16 ? "bf16" : "fp32");
	if (stated && tree)
		return refuse(err, "--overflow deepspeed sums in fp16, --reduction tree in fp32: "
				   "remove one of them");
	if (stated && wide)
		return refuse(err, "--overflow deepspeed sums in fp16, communication_data_type is "
				   "fp32: remove one of them");
	p->as_deepspeed = stated || (!p->args.overflow && p->on_gpu && !tree && !wide);
	return 0;
}

/* No rank sees the folders of all. */
static int check_folder(const struct zt_program *p, struct ckpt_err *err)
{
	if (!p->config.set.use_node_local_storage || !(p->args.keep_best || p->args.save_most))
		return 0;
	return refuse(err, "--keep-best and --save-total-limit need one folder of all ranks; "
		      "checkpoint.use_node_local_storage of %s is true", p->args.config);
}

/* Values that are defaults here; "auto" in a file asks for one. */
static unsigned unsaid(const struct en_node *tree, unsigned stated)
{
	static const struct {
		unsigned bits;
		const char *path;
	} keys[] = {
		{ EN_HAS_LR, "optimizer.params.lr" },
		{ EN_HAS_LR, "scheduler.params.warmup_max_lr" },
		{ EN_HAS_BETA1 | EN_HAS_BETA2, "optimizer.params.betas" },
		{ EN_HAS_EPS, "optimizer.params.eps" },
		{ EN_HAS_WEIGHT_DECAY, "optimizer.params.weight_decay" },
	};
	unsigned all = 0, said = stated;

	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		all |= keys[i].bits;
		said |= en_node_path(tree, keys[i].path) ? keys[i].bits : 0;
	}
	return all & ~said;
}

static int parse(const struct zt_program *p, struct en_config *out, struct ckpt_err *err)
{
	const char *file = p->args.config;

	return file ? en_config_read(out, file, p->comm->size, err) : parse_bare(p, out, err);
}

/*
 * Steps of --epochs, which "auto" of a schedule asks for: they follow from the rows of a step, so
 * the configuration is resolved once before.  What it refuses is said by the second time.
 */
static int count_steps(struct zt_program *p, struct ckpt_err *err)
{
	struct ckpt_err unsaid = { 0 };
	struct en_facts facts = facts_of(p);
	struct en_config once;
	uint64_t batch = 0;

	if (p->args.steps >= 0 && !p->comm->rank)
		zt_say("ztrain: ", "--epochs %g has no effect: --steps %" PRId64 " is given",
		       p->args.epochs, p->args.steps);
	if (p->args.steps >= 0) {
		p->args.epochs = NAN;
		return 0;
	}
	facts.has |= EN_HAS_STEPS;
	en_config_init(&once, EN_DS_0_19);
	if (!parse(p, &once, &unsaid) && !en_config_resolve(&once, &facts, &unsaid))
		batch = (uint64_t)(once.set.micro_batch * once.set.accumulation) * p->comm->size;
	en_config_release(&once);
	return batch ? zt_data_steps(p, batch, &p->args.steps, err) : 0;
}

int zt_config_read(struct zt_program *p, struct ckpt_err *err)
{
	struct en_facts facts;
	int rc = isnan(p->args.epochs) ? 0 : count_steps(p, err);

	if (rc)
		return rc;
	facts = facts_of(p);
	p->stated = facts.has;
	rc = parse(p, &p->config, err);
	if (!rc)
		p->unsaid = unsaid(p->config.tree, facts.has);
	if (!rc)
		rc = en_config_resolve(&p->config, &facts, err);
	zt_tell_config(p);
	if (!rc && p->args.steps < 0)
		p->args.steps = p->config.set.schedule.total_num_steps > 0 ?
			p->config.set.schedule.total_num_steps : STEPS;
	if (!rc)
		rc = check_schedule(p, err);
	if (!rc)
		rc = choose_overflow(p, err);
	if (!rc)
		rc = check_folder(p, err);
	if (!rc)
		rc = en_node_write(p->config.tree, &p->config_json, err);
	return rc ? rc : ck_buf_add(&p->config_json, "", 1, err);
}
