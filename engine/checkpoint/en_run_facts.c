/* en_run_facts.c -- see en_run_facts.h: what a run is made of, and its text in a step. */
#include "engine/checkpoint/en_run_facts.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/en_json.h"
#include "engine/model/en_adapt.h"
#include "libckpt/base/ck_err.h"

#define MOST_NODES 1000

static struct en_run_fact *next(struct en_run_facts *m, const char *key)
{
	struct en_run_fact *f = &m->fact[m->n];

	if (m->n == EN_RUN_FACTS)
		return &m->fact[EN_RUN_FACTS - 1];
	m->n++;
	snprintf(f->key, sizeof(f->key), "%s", key);
	return f;
}

static void add_text(struct en_run_facts *m, const char *key, const char *value)
{
	snprintf(next(m, key)->value, sizeof(m->fact[0].value), "%s", value);
}

static void add_whole(struct en_run_facts *m, const char *key, uint64_t value)
{
	snprintf(next(m, key)->value, sizeof(m->fact[0].value), "%" PRIu64, value);
}

static void add_number(struct en_run_facts *m, const char *key, double value)
{
	char text[EN_DOUBLE_TEXT];

	en_double_text(value, text);
	add_text(m, key, text);
}

static void add_flag(struct en_run_facts *m, const char *key, bool value)
{
	add_text(m, key, value ? "true" : "false");
}

/* By the names of config.json; what changes no number of a step is left out. */
static void add_model(struct en_run_facts *m, const struct en_model_config *c)
{
	add_text(m, "architectures", en_arch_name(c->arch));
	add_whole(m, "vocab_size", c->vocab);
	add_whole(m, "hidden_size", c->hidden);
	add_whole(m, "intermediate_size", c->inter);
	add_whole(m, "num_hidden_layers", c->layers);
	add_whole(m, "num_attention_heads", c->heads);
	add_whole(m, "num_key_value_heads", c->kv_heads);
	add_whole(m, "head_dim", c->head_dim);
	add_flag(m, "tie_word_embeddings", c->tied);
	add_number(m, "rms_norm_eps", c->norm_eps);
	add_number(m, "rope_theta", c->rope.theta);
	add_text(m, "rope_type", c->rope.llama3 ? "llama3" : "default");
	if (!c->rope.llama3)
		return;
	add_number(m, "rope.factor", c->rope.factor);
	add_number(m, "rope.low_freq_factor", c->rope.low);
	add_number(m, "rope.high_freq_factor", c->rope.high);
	add_whole(m, "rope.original_max_position_embeddings", c->rope.original);
}

/* Numbers of a schedule; one that is 0 is left out. */
static void add_sched(struct en_run_facts *m, const struct en_sched *s)
{
	const struct {
		const char *key;
		double value;
	} list[] = {
		{ "schedule.min_lr", s->lo[0] }, { "schedule.max_lr", s->hi[0] },
		{ "schedule.min_mom", s->mom_lo[0] }, { "schedule.max_mom", s->mom_hi[0] },
		{ "schedule.warmup", s->warmup }, { "schedule.total", s->total },
		{ "schedule.min_ratio", s->min_ratio }, { "schedule.end_ratio", s->end_ratio },
		{ "schedule.lr_end", s->lr_end }, { "schedule.power", s->power },
		{ "schedule.cycles", s->cycles }, { "schedule.timescale", s->timescale },
		{ "schedule.step_size", s->step_size }, { "schedule.step_rate", s->step_rate },
		{ "schedule.first", s->first }, { "schedule.second", s->second },
		{ "schedule.first_stairs", s->first_stairs },
		{ "schedule.second_stairs", s->second_stairs },
		{ "schedule.decay_size", s->decay_size }, { "schedule.decay_lr", s->decay_lr },
		{ "schedule.decay_mom", s->decay_mom }, { "schedule.linear", s->linear },
		{ "schedule.stable", s->stable }, { "schedule.decay", s->falling },
		{ "schedule.warmup_shape", s->warm_shape },
		{ "schedule.decay_shape", s->fall_shape },
		{ "schedule.factor", s->factor }, { "schedule.patience", s->patience },
		{ "schedule.threshold", s->threshold }, { "schedule.cooldown", s->cooldown },
		{ "schedule.eps", s->eps }, { "schedule.is_max", s->is_max },
		{ "schedule.is_absolute", s->is_absolute },
		{ "schedule.staircase", s->staircase }, { "schedule.momentum", s->momentum },
	};

	add_text(m, "schedule", en_sched_name(s->kind));
	if (s->kind == EN_SCHED_NONE || s->kind == EN_SCHED_CONSTANT)
		return;
	for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++)
		if (list[i].value != 0)
			add_number(m, list[i].key, list[i].value);
}

void en_run_facts_fill(struct en_run_facts *m, const struct en_model_config *model,
		       const struct en_settings *set, const struct en_sched *sched)
{
	memset(m, 0, sizeof(*m));
	add_model(m, model);
	m->nmodel = m->n;
	add_number(m, "gradient_clipping", set->gradient_clipping);
	add_flag(m, "adam_w_mode", set->optimizer.adamw);
	add_flag(m, "bias_correction", set->optimizer.bias_correction);
	add_text(m, "param_groups", set->optimizer.one_group ? "one" : "two");
	add_sched(m, sched);
}

void en_run_facts_fp8(struct en_run_facts *m, const char *recipe)
{
	add_text(m, "fp8", recipe);
}

void en_run_facts_adapt(struct en_run_facts *m, const struct en_model *model, uint64_t seed)
{
	char text[EN_LORA_TEXT];

	en_lora_text(&model->lora, text);
	if (model->lora.r)
		add_text(m, "lora", text);
	if (*model->freeze)
		add_text(m, "freeze", model->freeze);
	if (model->drop)
		add_whole(m, "dropout_seed", seed);
}

const char *en_run_facts_find(const struct en_run_facts *m, const char *key)
{
	for (uint32_t i = 0; i < m->n; i++)
		if (!strcmp(m->fact[i].key, key))
			return m->fact[i].value;
	return NULL;
}

/* ---- in a step ---- */

/* Keys and values are of letters that JSON takes as they are. */
int en_run_facts_write(const struct en_run_facts *m, struct ck_buf *buf, struct ckpt_err *err)
{
	int rc = ck_buf_adds(buf, "{", err);

	for (uint32_t i = 0; !rc && i < m->n; i++)
		rc = ck_buf_addf(buf, err, "%s\"%s\": \"%s\"", i ? ", " : "", m->fact[i].key,
				 m->fact[i].value);
	return rc ? rc : ck_buf_adds(buf, "}", err);
}

/* Of another length or kind than this engine writes: ignored. */
static bool take_all(struct en_run_facts *m, const struct ck_json *doc)
{
	uint64_t at = 1;

	memset(m, 0, sizeof(*m));
	if (doc->tok[0].type != CK_JSON_OBJECT || doc->tok[0].n > EN_RUN_FACTS)
		return false;
	for (uint32_t i = 0; i < doc->tok[0].n; i++) {
		const struct ck_json_tok *key = &doc->tok[at], *value = &doc->tok[at + 1];

		if (value->type != CK_JSON_STRING || strlen(key->str) >= sizeof(m->fact[0].key) ||
		    strlen(value->str) >= sizeof(m->fact[0].value))
			return false;
		add_text(m, key->str, value->str);
		at = value->next;
	}
	return m->n > 0;
}

bool en_run_facts_read(struct en_run_facts *m, struct ckpt_values *values)
{
	struct ck_json doc = CK_JSON_INIT;
	struct ckpt_value text;
	bool ok;

	if (ckpt_value_get(values, EN_RUN_FACTS_KEY, &text, NULL) || text.kind != CKPT_VALUE_STRING)
		return false;
	ok = !en_json_parse(&doc, text.bytes, text.n, MOST_NODES, EN_RUN_FACTS_KEY, NULL) &&
	     take_all(m, &doc);
	ck_json_release(&doc);
	return ok;
}

/* ---- the groups of the optimizer, as any program writes them ---- */

static double number_of(struct ckpt_values *values, uint32_t g, const char *key)
{
	char path[64];
	double v;

	snprintf(path, sizeof(path), "param_groups.%" PRIu32 ".%s", g, key);
	return ckpt_value_float(values, path, &v, NULL) ? (double)NAN : v;
}

void en_in_force_read(struct en_in_force *f, struct ckpt_values *values)
{
	struct ckpt_value v;

	memset(f, 0, sizeof(*f));
	if (!ckpt_value_get(values, "param_groups", &v, NULL) && v.kind == CKPT_VALUE_LIST &&
	    v.n <= EN_SCHED_GROUPS)
		f->ngroups = (uint32_t)v.n;
	for (uint32_t g = 0; g < f->ngroups; g++)
		f->group[g] = (struct en_zero_hyper){
			.lr = number_of(values, g, "lr"),
			.beta1 = number_of(values, g, "betas.0"),
			.beta2 = number_of(values, g, "betas.1"),
			.eps = number_of(values, g, "eps"),
			.decay = number_of(values, g, "weight_decay"),
		};
	f->has_sched = !ckpt_value_get(values, "lr_scheduler", &v, NULL) &&
		       v.kind != CKPT_VALUE_NONE;
}
