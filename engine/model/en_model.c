/*
 * en_model.c -- the parameters of a model: names, shapes, order, blocks; and random ones.
 *
 * Two passes over one description: the first counts, the second writes.
 */
#include "engine/model/en_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/model/en_model_priv.h"

#define NAME_MAX_BYTES 64u

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

static void add_param(struct en_model *m, uint32_t block, const struct part *part)
{
	struct en_block *b = &m->block[block];
	struct en_param *p = &m->param[m->nparams];
	char *name = m->names + (size_t)m->nparams * NAME_MAX_BYTES;

	if (block && block <= m->config.layers)
		snprintf(name, NAME_MAX_BYTES, "model.layers.%u.%s", block - 1, part->name);
	else
		snprintf(name, NAME_MAX_BYTES, "%s", part->name);
	*p = (struct en_param){
		.name = name, .block = block, .slot = part->slot, .ndim = part->cols ? 2 : 1,
		.shape = { part->rows, part->cols },
		.numel = part->rows * (part->cols ? part->cols : 1), .offset = b->numel,
		.init = part->init, .decay = part->init == EN_INIT_NORMAL,
	};
	b->at[part->slot] = p->offset;
	b->numel += p->numel;
	b->count++;
	m->numel += p->numel;
	m->nparams++;
}

int en_model_new(const struct en_model_config *config, struct en_model **model_out,
		 struct ckpt_err *err)
{
	struct part part[EN_LAYER_SLOTS];
	struct en_model *m;
	size_t most;
	int rc = en_model_config_check(config, "model", err);

	if (rc)
		return rc;
	most = (size_t)config->layers * EN_LAYER_SLOTS + 3;
	m = calloc(1, sizeof(*m));
	if (m) {
		m->config = *config;
		m->nblocks = config->layers + 2;
		m->param = calloc(most, sizeof(*m->param));
		m->block = calloc(m->nblocks, sizeof(*m->block));
		m->names = calloc(most, NAME_MAX_BYTES);
	}
	if (!m || !m->param || !m->block || !m->names) {
		en_model_free(m);
		return en_model_fail(err, CKPT_E_NOMEM, "model", "no memory for %zu parameters",
				     most);
	}
	for (uint32_t b = 0; b < m->nblocks; b++) {
		const uint32_t n = block_parts(config, b, part);

		m->block[b].first = m->nparams;
		memset(m->block[b].at, 0xff, sizeof(m->block[b].at));
		for (uint32_t i = 0; i < n; i++)
			add_param(m, b, &part[i]);
	}
	*model_out = m;
	return 0;
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

void en_model_init(const struct en_model *model, uint32_t param, uint64_t seed, uint64_t first,
		   uint64_t count, float *out)
{
	const enum en_init init = model->param[param].init;

	if (init == EN_INIT_NORMAL) {
		kn_random_normal(out, count, seed, param, first, 0, model->config.init_range);
		return;
	}
	for (uint64_t i = 0; i < count; i++)
		out[i] = init == EN_INIT_ONE;
}
