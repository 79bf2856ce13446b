/*
 * en_walk.c -- every key of a DeepSpeed configuration meets its row of the table; see
 * en_deepspeed_priv.h.
 */
#include <stdio.h>
#include <string.h>

#include "engine/config/deepspeed/en_deepspeed_priv.h"

/* What the file spells: the block, then its own name for the key. */
static const char *spelt(struct en_resolve *ev, enum en_block block, const struct en_node *v)
{
	const char *of = en_block_info[block].path;
	char *path = ck_arena_printf(&ev->cfg->arena, "%s%s%s", of, *of ? "." : "", v->key);

	if (!path)
		ev->rc = -CKPT_E_NOMEM;
	return path ? path : "";
}

static bool is_strict(const struct en_resolve *ev, enum en_block block)
{
	const struct en_block_info *b = &en_block_info[block];

	return ev->cfg->version > EN_DS_0_16 ? b->strict : b->strict_0_16;
}

/* Verdicts are for keys of the user's DeepSpeed configuration; what accelerate makes of a
 * YAML has its verdicts there. */
static bool is_users(const struct en_resolve *ev, const struct en_node *v)
{
	return v->at.file && ev->cfg->json_file && !strcmp(v->at.file, ev->cfg->json_file);
}

/* Rulings other than a refusal. */
static uint64_t rule(struct en_resolve *ev, enum en_ruling ruling, enum en_block block,
		     const struct en_node *v, const char *why)
{
	if (!is_users(ev, v))
		return 0;
	return en_rule(ev, ruling, spelt(ev, block, v), v, "%s", why);
}

/* Names that other programs have for a setting of DeepSpeed. */
static const char *other_name(const char *key)
{
	static const struct {
		const char *theirs, *ours;
	} names[] = {
		{ "learning_rate", "optimizer.params.lr" },
		{ "max_grad_norm", "gradient_clipping" },
		{ "grad_clip", "gradient_clipping" },
		{ "batch_size", "train_batch_size" },
		{ "micro_batch_size", "train_micro_batch_size_per_gpu" },
		{ "per_device_train_batch_size", "train_micro_batch_size_per_gpu" },
		{ "accumulation_steps", "gradient_accumulation_steps" },
		{ "zero_stage", "zero_optimization.stage" },
		{ "warmup_steps", "scheduler.params.warmup_num_steps" },
	};

	for (size_t i = 0; i < CK_ARRAY_LEN(names); i++)
		if (!strcmp(names[i].theirs, key))
			return names[i].ours;
	return NULL;
}

static void unknown(struct en_resolve *ev, enum en_block block, const struct en_node *v)
{
	const struct en_key *near = en_key_near(block, v->key);
	const bool fails = is_strict(ev, block) || block == EN_B_OPTIMIZER_PARAMS ||
			   block == EN_B_SCHEDULER_PARAMS;
	const char *there = near ? en_key_path(ev, near) : "";
	char hint[160] = "";

	if (near && near->block == block)
		snprintf(hint, sizeof(hint), "; did you mean \"%s\"?",
			 near->alias ? near->alias : near->name);
	else if (other_name(v->key))
		snprintf(hint, sizeof(hint), "; did you mean \"%s\"?", other_name(v->key));
	else if (near)
		snprintf(hint, sizeof(hint), "; such a key belongs in \"%.100s\"", there);
	if (fails)
		en_refuse(ev, true, CKPT_E_CORRUPT, spelt(ev, block, v), v,
			  "DeepSpeed %s has no such key here%s",
			  en_ds_version_name(ev->cfg->version), hint);
	else if (is_users(ev, v) && *v->key != '_')
		en_rule(ev, EN_IGNORED, spelt(ev, block, v), v, "DeepSpeed ignores it%s", hint);
	else
		rule(ev, EN_IGNORED, block, v, "DeepSpeed ignores it");
}

/* ------------------------------------------------------------------ values */

/* {}, false, null and {"enabled": false} switch nothing on. */
static bool is_off(const struct en_node *v)
{
	const struct en_node *on = en_node_get(v, "enabled");

	if (on)
		return (on->type == EN_BOOL && !on->i) || en_node_is_auto(on);
	return v->type == EN_NULL || (v->type == EN_DICT && !v->n) ||
	       (v->type == EN_BOOL && !v->i) || (v->type == EN_INT && v->i <= 0) ||
	       en_node_is_auto(v);
}

static void take_removed(struct en_resolve *ev, const struct en_key *k, const struct en_node *v)
{
	if (ev->cfg->version >= EN_DS_0_19)
		en_refuse(ev, true, CKPT_E_UNSUPPORTED, spelt(ev, k->block, v), v,
			  "%s, and 0.19 rejects the key even if it is off", k->why);
	else if (is_off(v))
		rule(ev, EN_NO_EFFECT, k->block, v, "it is off");
	else
		en_refuse(ev, false, CKPT_E_UNSUPPORTED, spelt(ev, k->block, v), v,
			  "unsupported, as in DeepSpeed 0.19 and later");
}

/* Keys whose value is not looked into. */
static void take_any(struct en_resolve *ev, const struct en_key *k, const struct en_node *v)
{
	if (k->role == EN_R_REMOVED)
		take_removed(ev, k, v);
	else if (k->role == EN_R_QUIET)
		rule(ev, EN_NO_EFFECT, k->block, v, k->why);
	else if (is_off(v))
		rule(ev, EN_NO_EFFECT, k->block, v, "it is off");
	else
		en_refuse(ev, false, CKPT_E_UNSUPPORTED, spelt(ev, k->block, v), v, "%s", k->why);
}

static void take_auto(struct en_resolve *ev, const struct en_key *k, const struct en_node *v)
{
	struct en_value dflt;
	char text[EN_VALUE_TEXT];

	en_default(k, ev->cfg->version, &dflt);
	en_value_text(k, &dflt, text);
	if (is_strict(ev, k->block) && is_users(ev, v)) {
		en_rule(ev, EN_USED, spelt(ev, k->block, v), v,
			"\"auto\" is not resolved here; DeepSpeed uses its default, %s", text);
	} else if (!is_strict(ev, k->block)) {
		en_refuse(ev, true, CKPT_E_USAGE, spelt(ev, k->block, v), v,
			  "\"auto\" is resolved by transformers or accelerate; plain DeepSpeed "
			  "rejects it: write the value");
	}
}

static bool is_default(const struct en_resolve *ev, const struct en_key *k,
		       const struct en_value *got)
{
	struct en_value dflt;

	en_default(k, ev->cfg->version, &dflt);
	return en_value_same(&dflt, got);
}

static void accept(struct en_resolve *ev, const struct en_key *k, const struct en_node *v,
		   const struct en_value *got)
{
	const size_t number = (size_t)(k - en_keys);
	const bool same = is_default(ev, k, got);

	ev->value[number] = *got;
	ev->given[number].v = v;
	if (k->role == EN_R_DEFAULT_ONLY && !same)
		en_refuse(ev, false, CKPT_E_UNSUPPORTED, spelt(ev, k->block, v), v, "%s", k->why);
	else if (k->role == EN_R_DEFAULT_ONLY)
		rule(ev, EN_USED, k->block, v, "the default, and the only supported value");
	else if (k->role == EN_R_QUIET)
		ev->given[number].verdict = rule(ev, EN_NO_EFFECT, k->block, v, k->why);
	else
		ev->given[number].verdict = rule(ev, EN_USED, k->block, v,
						 v->at.from == EN_FROM_AUTO ? v->at.why :
						 k->why ? k->why : "");
}

static void read_key(struct en_resolve *ev, const struct en_key *k, const struct en_node *v)
{
	struct en_value got;
	char why[EN_WHY];
	bool theirs, later;

	if (k->type == EN_K_ANY) {
		take_any(ev, k, v);
		return;
	}
	if (en_node_is_auto(v)) {
		take_auto(ev, k, v);
		return;
	}
	if (!en_coerce(k, is_strict(ev, k->block), ev->cfg->version, v, &got, &theirs, why)) {
		accept(ev, k, v, &got);
		return;
	}
	later = theirs && !is_strict(ev, k->block);
	en_refuse(ev, theirs, CKPT_E_CORRUPT, spelt(ev, k->block, v), v, "%s%s", why,
		  later ? "; DeepSpeed accepts it and fails later" : "");
	if (later)
		en_fails_later(ev, spelt(ev, k->block, v));
}

/* ------------------------------------------------------------------ blocks */

static void walk_block(struct en_resolve *ev, enum en_block block, const struct en_node *dict);

/* The bucket size of the old form; its own key has its verdict. */
static void old_size(struct en_resolve *ev, const struct en_node *v)
{
	const struct en_key *k = en_key_find(EN_B_ZERO, "allgather_bucket_size");
	struct en_value got;
	char why[EN_WHY];
	bool theirs;

	if (en_coerce(k, true, ev->cfg->version, v, &got, &theirs, why)) {
		en_refuse(ev, theirs, CKPT_E_CORRUPT, "allgather_size", v, "%s", why);
		return;
	}
	ev->value[k - en_keys] = got;
	ev->given[k - en_keys].v = v;
}

/* "zero_optimization": true, of the first versions. */
static void old_zero(struct en_resolve *ev, const struct en_node *v)
{
	const struct en_node *size = en_node_get(ev->cfg->tree, "allgather_size");
	struct en_node *stage = en_node_int(&ev->cfg->arena, v->i != 0, v->at);
	const size_t number = en_key_number(EN_B_ZERO, "stage");
	uint64_t n;

	if (!stage) {
		ev->rc = -CKPT_E_NOMEM;
		return;
	}
	ev->value[number] = (struct en_value){ .type = EN_INT, .i = v->i != 0, .f = (double)v->i };
	ev->given[number].v = stage;
	n = rule(ev, EN_USED, EN_B_TOP, v, "deprecated: read as \"stage\": 1, or 0 for false");
	if (n)
		ev->cfg->verdict[n - 1].deprecated = true;
	if (size && v->i)
		old_size(ev, size);
}

/* null is an error for most blocks there. */
static bool null_passes(const struct en_key *k)
{
	return (k->flags & EN_F_NULL) || k->inner == EN_B_BF16 || k->inner == EN_B_AIO;
}

static void take_block(struct en_resolve *ev, const struct en_key *k, const struct en_node *v)
{
	if (v->type == EN_DICT)
		walk_block(ev, k->inner, v);
	else if (k->inner == EN_B_ZERO && v->type == EN_BOOL)
		old_zero(ev, v);
	else if ((v->type == EN_NULL && null_passes(k)) ||
		 (en_node_is_auto(v) && is_strict(ev, k->block)))
		rule(ev, EN_USED, k->block, v, "the block is ignored");
	else
		en_refuse(ev, true, CKPT_E_CORRUPT, spelt(ev, k->block, v), v,
			  "expected a block of keys, {...}");
}

/* "bf16" wins over "bfloat16", unless it is null. */
static bool is_shadowed(const struct en_node *dict, const struct en_key *k, const struct en_node *v)
{
	const struct en_node *bf16 = en_node_get(dict, "bf16");

	return k->inner == EN_B_BF16 && v != bf16 && bf16 && bf16->type != EN_NULL;
}

static void one_key(struct en_resolve *ev, enum en_block block, const struct en_node *dict,
		    const struct en_node *v)
{
	const struct en_key *k = en_key_find(block, v->key);
	const struct en_node *other;

	if (block == EN_B_ZERO && en_old_key(ev, dict, v))
		return;
	if (k && (k->flags & EN_F_SINCE_0_19) && ev->cfg->version < EN_DS_0_19)
		k = NULL;
	if (!k) {
		if (block != EN_B_OPTIMIZER_PARAMS || strcmp(v->key, "max_grad_norm") != 0)
			unknown(ev, block, v);	/* the other is en_check.c's */
		return;
	}
	if (k->type == EN_K_BLOCK) {
		if (k->block == EN_B_TOP && is_shadowed(dict, k, v))
			rule(ev, EN_NO_EFFECT, block, v,
			     "DeepSpeed uses \"bf16\", which is given too");
		else
			take_block(ev, k, v);
		return;
	}
	other = k->alias ? en_node_get(dict, k->alias) : NULL;
	if (other && other != v && !en_node_is_auto(other) && !en_node_is_auto(v))
		en_refuse(ev, true, CKPT_E_CORRUPT, spelt(ev, block, v), v,
			  "\"%s\" is given too, and both name the same setting", k->alias);
	else
		read_key(ev, k, v);
}

/* "optimizer" and "scheduler" without a type are ignored. */
static bool needs_type(enum en_block block)
{
	return block == EN_B_OPTIMIZER || block == EN_B_SCHEDULER;
}

static void walk_block(struct en_resolve *ev, enum en_block block, const struct en_node *dict)
{
	if (needs_type(block) && !en_node_get(dict, "type")) {
		for (const struct en_node *v = dict->child; v && !ev->rc; v = v->next)
			rule(ev, EN_IGNORED, block, v, "no \"type\": DeepSpeed ignores the block");
		return;
	}
	for (const struct en_node *v = dict->child; v && !ev->rc; v = v->next)
		one_key(ev, block, dict, v);
}

void en_walk(struct en_resolve *ev)
{
	for (size_t i = 0; i < en_n_keys; i++)
		en_default(&en_keys[i], ev->cfg->version, &ev->value[i]);
	walk_block(ev, EN_B_TOP, ev->cfg->tree);
}
