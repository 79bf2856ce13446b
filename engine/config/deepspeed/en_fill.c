/*
 * en_fill.c -- "auto", as transformers' Trainer (5.17, integrations/deepspeed.py) and accelerate
 * (1.15, Accelerator._prepare_deepspeed) replace it; see en_deepspeed_priv.h.
 *
 * Both look at fixed paths.  The Trainer leaves an "auto" elsewhere to DeepSpeed; accelerate fails
 * on it.  The Trainer also holds values of the file against its arguments.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/config/deepspeed/en_deepspeed_priv.h"

/* The place of the "auto", with the rule that replaced it. */
static struct en_place filled_at(struct en_resolve *ev, const struct en_node *v, const char *why)
{
	struct en_place at = v->at;

	(void)ev;
	at.from = EN_FROM_AUTO;
	at.why = why;
	return at;
}

static void put(struct en_resolve *ev, struct en_node *old, const struct en_node *v)
{
	if (v)
		en_node_replace(old, v);
	else
		ev->rc = -CKPT_E_NOMEM;
}

static void put_int(struct en_resolve *ev, struct en_node *old, int64_t i, const char *why)
{
	put(ev, old, en_node_int(&ev->cfg->arena, i, filled_at(ev, old, why)));
}

static void put_float(struct en_resolve *ev, struct en_node *old, double f, const char *why)
{
	put(ev, old, en_node_float(&ev->cfg->arena, f, filled_at(ev, old, why)));
}

static void put_bool(struct en_resolve *ev, struct en_node *old, bool b, const char *why)
{
	put(ev, old, en_node_bool(&ev->cfg->arena, b, filled_at(ev, old, why)));
}

static struct en_node *at(const struct en_resolve *ev, const char *path)
{
	return en_node_path(ev->cfg->tree, path);
}

static void not_stated(struct en_resolve *ev, const char *path, const struct en_node *v,
		       const char *what)
{
	en_refuse(ev, ev->cfg->launch.from_accelerate, CKPT_E_USAGE, path, v,
		  "\"auto\" needs %s, which is not given", what);
}

/* 'says': "--clip says", "--micro-batch x ranks is"; 'hint': another clause, or "". */
static void mismatch(struct en_resolve *ev, const char *path, const struct en_node *v,
		     const char *says, const char *stated, const char *hint)
{
	char text[EN_VALUE_TEXT];

	en_node_text(v, text);
	en_refuse(ev, true, CKPT_E_MISMATCH, path, v,
		  "the file says %s, %s %s; make them equal, or use \"auto\" in the file%s", text,
		  says, stated, hint);
	en_by_trainer(ev, path);
}

/* Of two numbers. */
static void mismatch_number(struct en_resolve *ev, const char *path, const struct en_node *v,
			    const char *says, double stated)
{
	const bool steps = !strcmp(path, "scheduler.params.total_num_steps");
	char text[32];

	snprintf(text, sizeof(text), "%.12g", stated);
	mismatch(ev, path, v, says, text,
		 steps ? " (--stop-at ends a part of the run after fewer steps)" : "");
}

/* A number: replaces "auto" if it is known; where 'says' is not NULL it must agree with a value. */
static void number(struct en_resolve *ev, const char *path, bool known, const char *says, double f,
		   bool whole, const char *what)
{
	struct en_node *v = at(ev, path);

	if (!v || ev->rc)
		return;
	if (en_node_is_auto(v) && !known)
		not_stated(ev, path, v, what);
	else if (en_node_is_auto(v) && whole)
		put_int(ev, v, (int64_t)f, what);
	else if (en_node_is_auto(v))
		put_float(ev, v, f, what);
	else if (says && (v->type == EN_INT || v->type == EN_FLOAT) && v->f != f)
		mismatch_number(ev, path, v, says, f);
}

/* What a value is, for people: as stated, or the default of transformers' arguments. */
static const char *said(struct en_resolve *ev, unsigned bit, const char *what)
{
	const char *text;

	if (!(ev->facts->fills & bit) || (ev->facts->has & bit))
		return what;
	text = ck_arena_printf(&ev->cfg->arena, "%s: default", what);
	return text ? text : what;
}

/* Two numbers, each of which may be stated. */
static struct en_node *pair(struct en_resolve *ev, double one, double two, struct en_place place)
{
	struct ck_arena *arena = &ev->cfg->arena;
	struct en_node *list = en_node_new(arena, EN_LIST, place);

	return en_node_add(list, NULL, en_node_float(arena, one, place)) &&
	       en_node_add(list, NULL, en_node_float(arena, two, place)) ? list : NULL;
}

static void compare_betas(struct en_resolve *ev, const char *path, const struct en_node *v)
{
	const struct en_facts *f = ev->facts;
	const struct en_node *one = v->type == EN_LIST && v->n == 2 ? v->child : NULL;

	if (one && (f->has & EN_HAS_BETA1) && one->f != f->beta1)
		mismatch_number(ev, path, v, "--beta1 says", f->beta1);
	else if (one && (f->has & EN_HAS_BETA2) && one->next->f != f->beta2)
		mismatch_number(ev, path, v, "--beta2 says", f->beta2);
}

static void betas(struct en_resolve *ev)
{
	static const char path[] = "optimizer.params.betas", what[] = "adam_beta1, adam_beta2";
	const struct en_facts *f = ev->facts;
	const bool stated = f->has & EN_HAS_BETAS;
	const bool known = ((f->has | f->fills) & EN_HAS_BETAS) == EN_HAS_BETAS;
	struct en_node *v = at(ev, path);

	if (ev->rc)
		return;
	if (stated && en_option_counts(ev, path))
		en_option_put(ev, path, pair(ev, f->beta1, f->beta2, (struct en_place){ 0 }),
			    (f->has & EN_HAS_BETA1) ? "--beta1" : "--beta2");
	else if (v && !en_node_is_auto(v))
		compare_betas(ev, path, v);
	else if (v && !known)
		not_stated(ev, path, v, what);
	else if (v)
		put(ev, v, pair(ev, f->beta1, f->beta2,
				filled_at(ev, v, said(ev, EN_HAS_BETAS, what))));
}

/* True or false, as the class of the block reads it; -1 where it reads neither. */
static int is_on(const struct en_resolve *ev, enum en_block block, const struct en_node *v)
{
	struct en_value got;
	char why[EN_WHY];
	bool theirs;

	return en_coerce(en_key_find(block, "enabled"), true, ev->cfg->version, v, &got, &theirs,
			 why) ? -1 : got.i != 0;
}

static void enabled(struct en_resolve *ev, enum en_block block, const char *path, bool on,
		    const char *what)
{
	const struct en_facts *f = ev->facts;
	const bool stated = f->has & EN_HAS_PRECISION;
	struct en_node *v = at(ev, path);

	if (ev->rc)
		return;
	if (stated && en_option_counts(ev, path)) {
		if (on || v)
			en_option_put(ev, path, en_node_bool(&ev->cfg->arena, on,
							   (struct en_place){ 0 }),
				    "--precision");
	} else if (v && en_node_is_auto(v)) {
		put_bool(ev, v, stated && on, stated ? what : "no precision given: fp32");
	} else if (v && stated && is_on(ev, block, v) == !on) {
		mismatch(ev, path, v, "--precision says",
			 f->bf16 ? "bf16" : f->fp16 ? "fp16" : "fp32", "");
	}
}

/* The block has two names: the one that DeepSpeed reads. */
static const char *bf16_path(const struct en_resolve *ev)
{
	const struct en_node *bf16 = at(ev, "bf16"), *old = at(ev, "bfloat16");

	return ev->facts->fill_missing && old && (!bf16 || bf16->type == EN_NULL) ?
	       "bfloat16.enabled" : "bf16.enabled";
}

/* Sizes by the model's width; 'path' is touched only where it says "auto". */
static void by_width(struct en_resolve *ev, const char *path, double f, const char *what)
{
	struct en_node *v = at(ev, path);

	if (!v || !en_node_is_auto(v) || ev->rc)
		return;
	if (!ev->facts->hidden_size)
		not_stated(ev, path, v, "the model's hidden_size");
	else
		put_int(ev, v, (int64_t)f, what);
}

static void widths(struct en_resolve *ev, bool stage_3)
{
	const double h = (double)ev->facts->hidden_size;

	by_width(ev, "zero_optimization.reduce_bucket_size", h * h, "hidden_size squared");
	if (!stage_3)
		return;
	by_width(ev, "zero_optimization.stage3_prefetch_bucket_size", 0.9 * h * h,
		 "0.9 x hidden_size squared");
	by_width(ev, "zero_optimization.stage3_param_persistence_threshold", 10 * h,
		 "10 x hidden_size");
}

/* As stated, else as the file has it by now, else the default. */
static double stated_or_filed(const struct en_resolve *ev, unsigned bit, const char *path,
			      uint64_t fact)
{
	const struct en_node *v = at(ev, path);

	return !(ev->facts->has & bit) && v && v->type == EN_INT ? v->f : (double)fact;
}

static double warmup(const struct en_resolve *ev)
{
	const struct en_facts *f = ev->facts;
	double steps = f->warmup_steps;

	if (steps < 1)
		steps = ceil(steps * stated_or_filed(ev, EN_HAS_STEPS,
						     "scheduler.params.total_num_steps",
						     f->steps));
	return steps < 1 ? 1 : floor(steps);	/* DeepSpeed 0.19 refuses 0 */
}

static double all_ranks(const struct en_resolve *ev)
{
	const struct en_facts *f = ev->facts;

	return f->world *
	       stated_or_filed(ev, EN_HAS_MICRO, "train_micro_batch_size_per_gpu", f->micro_batch) *
	       stated_or_filed(ev, EN_HAS_ACCUMULATION, "gradient_accumulation_steps",
			       f->accumulation);
}

/* One of the Trainer's arguments, and the option that states it. */
static void argument(struct en_resolve *ev, unsigned bit, const char *path, double f, bool whole,
		     const char *option, const char *what)
{
	const bool stated = ev->facts->has & bit, known = stated || (ev->facts->fills & bit);
	struct ck_arena *arena = &ev->cfg->arena;
	const struct en_place none = { 0 };
	const char *says = stated ? ck_arena_printf(arena, "%s says", option) : NULL;

	if (ev->rc || (stated && !says))
		ev->rc = ev->rc ? ev->rc : -CKPT_E_NOMEM;
	else if (stated && en_option_counts(ev, path))
		en_option_put(ev, path, whole ? en_node_int(arena, (int64_t)f, none) :
			    en_node_float(arena, f, none), option);
	else
		number(ev, path, known, says, f, whole,
		       stated ? option : strcmp(what, path) ? said(ev, bit, what) : "default");
}

static void batch_arguments(struct en_resolve *ev)
{
	const struct en_facts *f = ev->facts;
	const unsigned both = EN_HAS_MICRO | EN_HAS_ACCUMULATION;

	argument(ev, EN_HAS_MICRO, "train_micro_batch_size_per_gpu", (double)f->micro_batch, true,
		 "--micro-batch", "per_device_train_batch_size");
	argument(ev, EN_HAS_ACCUMULATION, "gradient_accumulation_steps", (double)f->accumulation,
		 true, "--accumulation", "gradient_accumulation_steps");
	number(ev, "train_batch_size", ((f->has | f->fills) & both) == both,
	       (f->has & both) == both ? "--micro-batch x --accumulation x ranks is" : NULL,
	       all_ranks(ev), true, "micro-batch x accumulation x ranks");
}

static void scheduler_arguments(struct en_resolve *ev)
{
	const struct en_facts *f = ev->facts;
	const unsigned known = f->has | f->fills;
	const bool part = f->warmup_steps < 1;

	number(ev, "scheduler.params.warmup_min_lr", true, NULL, 0, true, "always 0");
	argument(ev, EN_HAS_LR, "scheduler.params.warmup_max_lr", f->lr, false, "--lr",
		 "learning_rate");
	argument(ev, EN_HAS_STEPS, "scheduler.params.total_num_steps", (double)f->steps, true,
		 "--steps", "the steps of the run");
	if ((known & EN_HAS_WARMUP) && part && !(known & EN_HAS_STEPS))
		number(ev, "scheduler.params.warmup_num_steps", false, NULL, 0, true,
		       "warmup_steps");
	else
		argument(ev, EN_HAS_WARMUP, "scheduler.params.warmup_num_steps", warmup(ev), true,
			 "--warmup-steps", "warmup_steps");
}

static void by_trainer(struct en_resolve *ev)
{
	const struct en_facts *f = ev->facts;
	const struct en_node *stage = at(ev, "zero_optimization.stage");

	batch_arguments(ev);
	argument(ev, EN_HAS_MAX_GRAD_NORM, "gradient_clipping", f->max_grad_norm, false, "--clip",
		 "max_grad_norm");
	argument(ev, EN_HAS_LR, "optimizer.params.lr", f->lr, false, "--lr",
		 "learning_rate");
	betas(ev);
	argument(ev, EN_HAS_EPS, "optimizer.params.eps", f->eps, false, "--eps",
		 "adam_epsilon");
	argument(ev, EN_HAS_WEIGHT_DECAY, "optimizer.params.weight_decay", f->weight_decay, false,
		 "--weight-decay", "weight_decay");
	enabled(ev, EN_B_FP16, "fp16.enabled", f->fp16, "fp16");
	enabled(ev, EN_B_BF16, bf16_path(ev), f->bf16, "bf16");
	widths(ev, stage && stage->type == EN_INT && stage->i == 3);
	scheduler_arguments(ev);
}

/* accelerate fails on every "auto" that is left, at any place. */
static void left_over(struct en_resolve *ev, const struct en_node *dict, const char *of)
{
	for (const struct en_node *v = dict->child; v && !ev->rc; v = v->next) {
		const char *path = ck_arena_printf(&ev->cfg->arena, "%s%s%s", of, *of ? "." : "",
						   v->key);

		if (!path)
			ev->rc = -CKPT_E_NOMEM;
		else if (v->type == EN_DICT)
			left_over(ev, v, path);
		else if (en_node_is_auto(v))
			en_refuse(ev, true, CKPT_E_USAGE, path, v,
				  "accelerate cannot resolve this \"auto\" and fails; write the "
				  "value");
	}
}

/* The Accelerator makes a number of it before anybody fills it in. */
static void no_auto_accumulation(struct en_resolve *ev)
{
	const struct en_node *v = at(ev, "gradient_accumulation_steps");

	if (en_node_is_auto(v) && v->at.from == EN_FROM_YAML)
		en_refuse(ev, true, CKPT_E_CORRUPT, "deepspeed_config.gradient_accumulation_steps",
			  v,
			  "Accelerator() calls int() on this and would fail; use an integer, or "
			  "remove the key for 1");
}

/*
 * accelerate divides the total of a DummyScheduler by the ranks, since scripts count the steps of a
 * data loader that is not cut yet.  'steps' counts what all ranks do together, and stays.
 */
static void by_accelerate(struct en_resolve *ev)
{
	const struct en_facts *f = ev->facts;
	const unsigned has = f->has;
	const struct en_node *micro, *acc;
	bool both;

	no_auto_accumulation(ev);
	number(ev, "train_micro_batch_size_per_gpu", has & EN_HAS_MICRO, NULL,
	       (double)f->micro_batch, true, "batch size of the data loader");
	number(ev, "gradient_accumulation_steps", true, NULL,
	       has & EN_HAS_ACCUMULATION ? (double)f->accumulation : 1, true,
	       has & EN_HAS_ACCUMULATION ? "the given accumulation" : "1, Accelerator()'s default");
	micro = at(ev, "train_micro_batch_size_per_gpu");
	acc = at(ev, "gradient_accumulation_steps");
	both = micro && micro->type == EN_INT && acc && acc->type == EN_INT;
	number(ev, "train_batch_size", both, NULL,
	       both ? micro->f * acc->f * f->world : 0, true, "micro-batch x accumulation x ranks");
	number(ev, "gradient_clipping", true, NULL, 1, false, "always 1.0");
	number(ev, "optimizer.params.lr", has & EN_HAS_LR, NULL, f->lr, false,
	       "the learning rate");
	number(ev, "optimizer.params.weight_decay", has & EN_HAS_WEIGHT_DECAY, NULL,
	       f->weight_decay, false, "the decay");
	number(ev, "scheduler.params.warmup_min_lr", true, NULL, 0, true, "always 0");
	number(ev, "scheduler.params.warmup_max_lr", has & EN_HAS_LR, NULL, f->lr, false,
	       "the learning rate");
	number(ev, "scheduler.params.warmup_num_steps", has & EN_HAS_WARMUP, NULL,
	       warmup(ev), true,
	       "the warm-up");
	number(ev, "scheduler.params.total_num_steps", has & EN_HAS_STEPS, NULL,
	       (double)f->steps, true, "the steps of the run");
	widths(ev, true);
	if (at(ev, "zero_optimization.stage3_gather_16bit_weights_on_model_save") &&
	    en_node_is_auto(at(ev, "zero_optimization.stage3_gather_16bit_weights_on_model_save")))
		put_bool(ev, at(ev, "zero_optimization.stage3_gather_16bit_weights_on_model_save"),
			 false, "always false");
	left_over(ev, ev->cfg->tree, "");
}

void en_fill(struct en_resolve *ev)
{
	if (ev->facts->filler == EN_FILL_TRAINER)
		by_trainer(ev);
	else if (ev->cfg->launch.from_accelerate || ev->facts->filler == EN_FILL_ACCELERATE)
		by_accelerate(ev);
}
