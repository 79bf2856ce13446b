/*
 * en_model.c -- the parameters of a model: names, shapes, order, blocks; and random ones.
 *
 * Two passes over one description: the first counts, the second writes.
 */
#include "engine/model/en_model.h"

#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/model/en_model_priv.h"
#include "libckpt/ztrain/ck_zt_memory.h"

#define NAME_MAX_BYTES 112u	/* with "base_model.model." and ".lora_A.default" */

/* One parameter of a block, in the order of named_parameters(). */
struct part {
	enum en_slot slot;
	const char *name;
	uint64_t rows, cols;	/* cols 0: a vector */
	enum en_init init;
};

static uint32_t layer_parts(const struct en_model_config *c, struct part *part)
{
	const uint64_t h = c->hidden, q = (uint64_t)c->heads * c->head_dim;
	const uint64_t kv = (uint64_t)c->kv_heads * c->head_dim;
	const bool bias = c->arch == EN_QWEN2, norm = c->arch == EN_QWEN3;
	const struct part all[] = {
		{ EN_Q, "self_attn.q_proj.weight", q, h, EN_INIT_NORMAL },
		{ EN_Q_BIAS, "self_attn.q_proj.bias", bias ? q : 0, 0, EN_INIT_ZERO },
		{ EN_K, "self_attn.k_proj.weight", kv, h, EN_INIT_NORMAL },
		{ EN_K_BIAS, "self_attn.k_proj.bias", bias ? kv : 0, 0, EN_INIT_ZERO },
		{ EN_V, "self_attn.v_proj.weight", kv, h, EN_INIT_NORMAL },
		{ EN_V_BIAS, "self_attn.v_proj.bias", bias ? kv : 0, 0, EN_INIT_ZERO },
		{ EN_O, "self_attn.o_proj.weight", h, q, EN_INIT_NORMAL },
		{ EN_Q_NORM, "self_attn.q_norm.weight", norm ? c->head_dim : 0, 0, EN_INIT_ONE },
		{ EN_K_NORM, "self_attn.k_norm.weight", norm ? c->head_dim : 0, 0, EN_INIT_ONE },
		{ EN_GATE, "mlp.gate_proj.weight", c->inter, h, EN_INIT_NORMAL },
		{ EN_UP, "mlp.up_proj.weight", c->inter, h, EN_INIT_NORMAL },
		{ EN_DOWN, "mlp.down_proj.weight", h, c->inter, EN_INIT_NORMAL },
		{ EN_NORM_IN, "input_layernorm.weight", h, 0, EN_INIT_ONE },
		{ EN_NORM_POST, "post_attention_layernorm.weight", h, 0, EN_INIT_ONE },
	};
	uint32_t n = 0;

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (all[i].rows)
			part[n++] = all[i];
	return n;
}

static uint32_t block_parts(const struct en_model_config *c, uint32_t block, struct part *part)
{
	if (!block) {
		part[0] = (struct part){ EN_EMBED, "model.embed_tokens.weight", c->vocab,
					 c->hidden, EN_INIT_NORMAL };
		return 1;
	}
	if (block <= c->layers)
		return layer_parts(c, part);
	part[0] = (struct part){ EN_NORM_FINAL, "model.norm.weight", c->hidden, 0, EN_INIT_ONE };
	part[1] = (struct part){ EN_HEAD, "lm_head.weight", c->vocab, c->hidden, EN_INIT_NORMAL };
	return c->tied ? 1 : 2;
}

/* ---- adapters ---- */

static const struct {
	const char *name, *path;
	enum en_slot weight;
} linears[EN_LINEARS] = {
	{ "q_proj", "self_attn.q_proj", EN_Q }, { "k_proj", "self_attn.k_proj", EN_K },
	{ "v_proj", "self_attn.v_proj", EN_V }, { "o_proj", "self_attn.o_proj", EN_O },
	{ "gate_proj", "mlp.gate_proj", EN_GATE }, { "up_proj", "mlp.up_proj", EN_UP },
	{ "down_proj", "mlp.down_proj", EN_DOWN },
};

const char *en_linear_name(enum en_linear linear)
{
	return (unsigned)linear < EN_LINEARS ? linears[linear].name : "?";
}

/* The linear module with an adapter that a name of a layer is of, EN_LINEARS if none. */
static uint32_t adapted(const struct en_model *m, const char *name)
{
	for (uint32_t i = 0; i < EN_LINEARS && m->lora.r; i++) {
		const size_t n = strlen(linears[i].path);

		if (m->lora.targets & 1u << i && !strncmp(name, linears[i].path, n) &&
		    name[n] == '.')
			return i;
	}
	return EN_LINEARS;
}

/* ---- parameters ---- */

static void name_it(const struct en_model *m, char *to, uint32_t block, const char *name,
		    const char *module)
{
	const char *in = m->lora.r && module ? "base_model.model." : "";
	const uint32_t at = module ? adapted(m, name) : EN_LINEARS;
	const size_t n = at < EN_LINEARS ? strlen(linears[at].path) : 0;
	const char *middle = n ? module : "";

	if (block && block <= m->config.layers)
		snprintf(to, NAME_MAX_BYTES, "%smodel.layers.%u.%.*s%s%s", in, block - 1, (int)n,
			 name, middle, name + n);
	else
		snprintf(to, NAME_MAX_BYTES, "%s%s", in, name);
}

/* 'plain' NULL: an adapter's. */
static struct en_param *add_param(struct en_model *m, uint32_t block, const struct part *part,
				  const char *name, const char *plain)
{
	struct en_param *p = &m->param[m->nparams];

	*p = (struct en_param){
		.name = name, .plain = plain, .block = block, .slot = part->slot,
		.stream = m->nparams, .ndim = part->cols ? 2 : 1,
		.shape = { part->rows, part->cols },
		.numel = part->rows * (part->cols ? part->cols : 1), .frozen = m->lora.r && plain,
		.init = part->init,
		.decay = part->init == EN_INIT_NORMAL || part->init == EN_INIT_UNIFORM || !plain,
	};
	m->block[block].count++;
	m->numel += p->numel;
	m->nparams++;
	return p;
}

static char *next_name(struct en_model *m)
{
	return m->names + NAME_MAX_BYTES * m->nnames++;
}

static void add_plain(struct en_model *m, uint32_t block, const struct part *part)
{
	char *name = next_name(m), *plain = name;

	name_it(m, name, block, part->name, ".base_layer");
	if (m->lora.r)
		name_it(m, plain = next_name(m), block, part->name, NULL);
	add_param(m, block, part, name, plain)->stream = m->nplain++;
}

/* A module's adapter follows its bias, or its weight if it has none. */
static void add_adapter(struct en_model *m, uint32_t block, uint32_t linear,
			const struct part *weight)
{
	struct part part[2] = {
		{ EN_LORA_A + linear, ".lora_A.default", m->lora.r, weight->cols,
		  EN_INIT_UNIFORM },
		{ EN_LORA_B + linear, ".lora_B.default", weight->rows, m->lora.r, EN_INIT_ZERO },
	};

	for (int i = 0; i < 2; i++) {
		char *name = next_name(m);

		name_it(m, name, block, weight->name, part[i].name);
		add_param(m, block, &part[i], name, NULL)->stream |= UINT64_C(1) << 32;
	}
}

static void add_block(struct en_model *m, uint32_t block)
{
	struct part part[EN_LAYER_SLOTS];
	const uint32_t n = block_parts(&m->config, block, part);
	const bool layer = block && block <= m->config.layers;
	uint32_t weight = 0;

	m->block[block].first = m->nparams;
	for (uint32_t i = 0; i < n; i++) {
		const uint32_t linear = layer ? adapted(m, part[i].name) : EN_LINEARS;

		add_plain(m, block, &part[i]);
		if (part[i].cols)
			weight = i;
		if (linear < EN_LINEARS &&
		    (i + 1 == n || adapted(m, part[i + 1].name) != linear))
			add_adapter(m, block, linear, &part[weight]);
	}
}

/* ---- what is trained ---- */

static int freeze(struct en_model *m, const char *pattern, struct ckpt_err *err)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < m->nparams; i++) {
		struct en_param *p = &m->param[i];

		if (!p->plain || (fnmatch(pattern, p->name, 0) && fnmatch(pattern, p->plain, 0)))
			continue;	/* adapters are what is trained */
		p->frozen = true;
		n++;
	}
	if (!n && m->config.tied && !fnmatch(pattern, "lm_head.weight", 0))
		return en_model_fail(err, CKPT_E_USAGE, "",
				     "--freeze %s: lm_head.weight is tied to %s; freeze that",
				     pattern, m->param[0].name);
	return n ? 0 : en_model_fail(err, CKPT_E_USAGE, "",
				     "--freeze %s matches none of the %u parameters (%s, ..., %s); "
				     "* matches any text: '*embed*'", pattern, m->nparams,
				     m->param[0].name, m->param[m->nparams - 1].name);
}

/* Trained parameters first, frozen ones after their padding, each in order. */
static void place(struct en_model *m, uint32_t block, uint32_t ranks)
{
	struct en_block *b = &m->block[block];

	memset(b->at, 0xff, sizeof(b->at));
	memset(b->grad, 0xff, sizeof(b->grad));
	for (uint32_t i = b->first; i < b->first + b->count; i++) {
		struct en_param *p = &m->param[i];
		uint64_t *n = p->frozen ? &b->frozen : &b->numel;

		p->offset = *n;
		*n += p->numel;
	}
	b->base = ck_zt_padded(b->numel, ranks ? ranks : 1);
	for (uint32_t i = b->first; i < b->first + b->count; i++) {
		const struct en_param *p = &m->param[i];

		b->at[p->slot] = p->offset + (p->frozen ? b->base : 0);
		if (!p->frozen)
			b->grad[p->slot] = p->offset;
	}
	m->trained += b->numel;
	if (b->numel && m->lowest == m->nblocks)
		m->lowest = block;
}

void en_model_hold(struct en_model *m)
{
	for (uint32_t i = 0; i < m->nparams; i++) {
		struct en_param *p = &m->param[i];

		if (p->frozen)
			p->offset += m->block[p->block].base;
		else
			p->frozen = p->held = true;
	}
	for (uint32_t i = 0; i < m->nblocks; i++) {
		struct en_block *b = &m->block[i];

		b->frozen = en_block_span(b);
		b->numel = b->base = 0;
		memset(b->grad, 0xff, sizeof(b->grad));
	}
	m->trained = 0;
	m->lowest = m->nblocks;
}

/*
 * The pattern joins the text; one that is too long ends in a number made of it all, and what JSON
 * would not take as it is becomes '?'.
 */
static void note(struct en_model *m, const char *pattern)
{
	const size_t n = strlen(m->freeze), most = sizeof(m->freeze);
	uint32_t hash = 2166136261u;

	if ((size_t)snprintf(m->freeze + n, most - n, "%s%s", n ? " " : "", pattern) >= most - n) {
		for (const char *p = m->freeze; *p; p++)
			hash = (hash ^ (uint8_t)*p) * 16777619u;
		for (const char *p = pattern; *p; p++)
			hash = (hash ^ (uint8_t)*p) * 16777619u;
		snprintf(m->freeze + most - 13, 13, "... %08x", hash);
	}
	for (char *p = m->freeze; *p; p++)
		if (*p < ' ' || *p == '"' || *p == '\\' || *p > '~')
			*p = '?';
}

/* Whether a parameter is trained that decays, or does not. */
static bool has_group(const struct en_model *m, bool decay)
{
	for (uint32_t i = 0; i < m->nparams; i++)
		if (!m->param[i].frozen && m->param[i].decay == decay)
			return true;
	return false;
}

static int choose(struct en_model *m, const struct en_adapt *adapt, struct ckpt_err *err)
{
	int rc = 0;

	for (uint32_t i = 0; !rc && i < adapt->nfreeze; i++) {
		rc = freeze(m, adapt->freeze[i], err);
		note(m, adapt->freeze[i]);
	}
	if (rc)
		return rc;
	m->lowest = m->nblocks;
	for (uint32_t b = 0; b < m->nblocks; b++)
		place(m, b, adapt->ranks);
	m->both_groups = has_group(m, true) && has_group(m, false);
	return m->trained ? 0 :
	       en_model_fail(err, CKPT_E_USAGE, "", "--freeze leaves nothing to train: all %u "
			     "parameters are frozen", m->nparams);
}

static int check_lora(const struct en_lora *l, struct ckpt_err *err)
{
	if (!l->r || (l->targets && l->targets < 1u << EN_LINEARS && l->r <= 1u << 16))
		return 0;
	return en_model_fail(err, CKPT_E_USAGE, "", "adapters of rank %u for modules 0x%x; "
			     "expected a rank of 1 to 65536 and modules of a layer", l->r,
			     l->targets);
}

static uint64_t widest_dropped(const struct en_model_config *c, const struct en_lora *l)
{
	const unsigned o = 1u << EN_LINEAR_O, down = 1u << EN_LINEAR_DOWN;
	const uint64_t q = l->targets & o ? (uint64_t)c->heads * c->head_dim : 0;
	const uint64_t inter = l->targets & down ? c->inter : 0;
	const uint64_t hidden = l->targets & ~(o | down) ? c->hidden : 0;
	const uint64_t most = q > inter ? q : inter;

	if (!l->r || !(l->dropout > 0))
		return 0;
	return most > hidden ? most : hidden;
}

int en_model_new(const struct en_model_config *config, struct en_model **model_out,
		 struct ckpt_err *err)
{
	const struct en_adapt none = { .ranks = 1 };

	return en_model_new_adapted(config, &none, model_out, err);
}

int en_model_new_adapted(const struct en_model_config *config, const struct en_adapt *adapt,
			 struct en_model **model_out, struct ckpt_err *err)
{
	const struct en_lora *l = &adapt->lora;
	struct en_model *m;
	size_t most;
	int rc = en_model_config_check(config, "model", err);

	if (!rc)
		rc = check_lora(l, err);
	if (rc)
		return rc;
	most = (size_t)config->layers * EN_LAYER_SLOTS + 3;
	m = calloc(1, sizeof(*m));
	if (m) {
		m->config = *config;
		m->lora = *l;
		m->scale = l->r ? (float)(l->alpha / (l->rslora ? sqrt(l->r) : l->r)) : 0;
		m->drop = widest_dropped(config, l);
		m->nblocks = config->layers + 2;
		m->param = calloc(most, sizeof(*m->param));
		m->block = calloc(m->nblocks, sizeof(*m->block));
		m->names = calloc(2 * most, NAME_MAX_BYTES);
	}
	if (!m || !m->param || !m->block || !m->names) {
		en_model_free(m);
		return en_model_fail(err, CKPT_E_NOMEM, "model", "no memory for %zu parameters",
				     most);
	}
	for (uint32_t b = 0; b < m->nblocks; b++)
		add_block(m, b);
	rc = choose(m, adapt, err);
	if (rc)
		en_model_free(m);
	else
		*model_out = m;
	return rc;
}

void en_model_free(struct en_model *model)
{
	if (!model)
		return;
	free(model->names);
	free(model->block);
	free(model->param);
	free(model);
}

int64_t en_model_find(const struct en_model *model, const char *name)
{
	for (uint32_t i = 0; i < model->nparams; i++)
		if (!strcmp(model->param[i].name, name))
			return i;
	return -1;
}

const char *en_model_tied_name(const struct en_model *model)
{
	return model->lora.r ? "base_model.model.lm_head.weight" : "lm_head.weight";
}

/* As torch's kaiming_uniform_ with a = sqrt(5). */
static void uniform(const struct en_param *p, uint64_t seed, uint64_t first, uint64_t count,
		    float *out)
{
	const double bound = 1 / sqrt((double)p->shape[1]);
	uint64_t bits[256];

	for (uint64_t at = 0; at < count; at += 256) {
		const uint64_t n = count - at < 256 ? count - at : 256;

		kn_random_bits(bits, n, seed, p->stream, first + at);
		for (uint64_t i = 0; i < n; i++)
			out[at + i] = (float)(bound *
					      ((double)(bits[i] >> 11) * 0x1p-52 - 1));
	}
}

void en_model_init(const struct en_model *model, uint32_t param, uint64_t seed, uint64_t first,
		   uint64_t count, float *out)
{
	const struct en_param *p = &model->param[param];
	const enum en_init init = p->init;

	if (init == EN_INIT_NORMAL) {
		kn_random_normal(out, count, seed, p->stream, first, 0,
				 model->config.init_range);
		return;
	}
	if (init == EN_INIT_UNIFORM) {
		uniform(p, seed, first, count, out);
		return;
	}
	for (uint64_t i = 0; i < count; i++)
		out[i] = init == EN_INIT_ONE;
}
