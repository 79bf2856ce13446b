/*
 * mg_items.c -- what each item of '.metadata' is, and the parameters with the places of their
 * weights.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/megatron/mg.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/base/ck_text.h"
#include "libckpt/io/ck_tree.h"

static const struct {
	const char *name;
	enum mg_layout layout;
} layouts[] = {
	{ "fully_reshardable", MG_FULLY_RESHARDABLE },
	{ "fully_sharded_model_space", MG_MODEL_SPACE },
	{ "dp_reshardable", MG_DP_RESHARDABLE },
	{ "fully_sharded_bucket_space", MG_DP_RESHARDABLE },
	{ "dp_zero_gather_scatter", MG_ZERO_GATHER },
};

static const struct {
	const char *name;
	enum mg_which which;
} states[] = {
	{ "param.", MG_MASTER },
	{ "fp32_param.", MG_MASTER },
	{ "exp_avg.", MG_EXP_AVG },
	{ "exp_avg_sq.", MG_EXP_AVG_SQ },
};

/* ---- what an item is ---- */

/* After "optimizer." and maybe "chained_N."; NULL: it is not the optimizer's. */
static const char *below_optimizer(const char *name)
{
	if (!strncmp(name, "chained_", 8)) {
		const char *rest = name + 8 + strspn(name + 8, "0123456789");

		if (*rest != '.')
			return NULL;
		name = rest + 1;
	}
	return !strncmp(name, "optimizer.", 10) ? name + 10 : NULL;
}

static void look_at_state(struct mg *mg, struct dcp_item *it, const char *own)
{
	for (size_t i = 0; i < CK_ARRAY_LEN(states); i++) {
		const size_t n = strlen(states[i].name);

		if (strncmp(own, states[i].name, n))
			continue;
		it->use = MG_BY_NAME;
		it->name = own + n;
		it->state = states[i].name;
		it->which = (uint8_t)states[i].which;
		return;
	}
	ck_findings_add(mg->fs.f, CK_FINDING_NOT_IN_CHECKPOINT, it->flat,
			"left out: a state that is neither the master nor a moment of Adam");
}

static void look_at_item(struct mg *mg, struct dcp_item *it)
{
	const char *own = below_optimizer(it->flat);

	if (own && !strncmp(own, "state.", 6) && it->is_tensor)
		look_at_state(mg, it, own + 6);
	else if (own && !strncmp(own, "distributed.", 12))
		it->use = MG_BUCKET;
	else if (own)
		it->use = MG_OTHER;
	else if (strstr(it->flat, "_extra_state") || !strncmp(it->flat, "rng_state/", 10))
		it->use = MG_SKIPPED;
	else if (it->is_tensor)
		it->use = MG_WEIGHT;
}

static void find_layout(struct mg *mg)
{
	const char *said = ck_val_str(ck_val_get(mg->content, "distrib_optim_sharding_type"));
	bool flat = false, bucket = false, object = false, named = false;

	for (size_t i = 0; said && i < CK_ARRAY_LEN(layouts); i++)
		if (!strcmp(said, layouts[i].name))
			mg->layout = layouts[i].layout;
	if (mg->layout)
		return;
	for (uint64_t i = 0; i < mg->fs.nitems; i++) {
		const struct dcp_item *it = &mg->fs.item[i];
		const struct mg_param *p = it->use == MG_BY_NAME ?
					   ck_mg_param_find(mg, it->name) : NULL;

		bucket |= it->use == MG_BUCKET && it->is_tensor;
		object |= it->use == MG_BUCKET && strstr(it->flat, ".param_state/") != NULL;
		named |= it->use == MG_BY_NAME;
		flat |= p && it->ndim == p->ndim + 1;
	}
	mg->layout = bucket ? MG_DP_RESHARDABLE : object ? MG_ZERO_GATHER : flat ? MG_MODEL_SPACE :
		     named ? MG_REPLICATED : MG_NONE;
}

/* ---- parameters ---- */

/* Embedding, layers, norm, head; what else there is comes last. */
static int rank_of(const char *key)
{
	static const char *const order[] = {
		"embedding.", "decoder.layers.", "decoder.", "output_layer.",
	};

	for (size_t i = 0; i < CK_ARRAY_LEN(order); i++)
		if (strstr(key, order[i]))
			return (int)i;
	return CK_ARRAY_LEN(order);
}

static int by_model(const void *a, const void *b)
{
	const struct mg_param *x = a, *y = b;
	const int d = rank_of(x->key) - rank_of(y->key);

	return d ? d : ck_name_compare(x->key, y->key);
}

static int add_param(struct mg *mg, const struct dcp_item *it, struct ckpt_err *err)
{
	int rc = ck_grow(&mg->param, &mg->param_cap, mg->nparams + 1, sizeof(*mg->param), err);

	if (!rc)
		mg->param[mg->nparams++] = (struct mg_param){
			.key = it->flat, .shape = it->shape, .ndim = it->ndim, .dtype = it->dtype,
			.numel = it->numel, .item = it, .group = -1,
		};
	return rc;
}

int ck_mg_chunks_add(struct mg *mg, struct mg_param *p, enum mg_which which,
		     const struct dcp_item *it, struct ckpt_err *err)
{
	int rc = 0;

	for (uint64_t i = 0; !rc && i < it->nchunks; i++) {
		const struct dcp_chunk *c = &it->chunk[i];

		if (!c->is_read)
			continue;
		rc = ck_mg_piece_add(mg, p, which, &(struct mg_piece){
			.offset = c->offset, .size = c->size, .count = c->numel,
			.extent = ck_mg_extent(mg, it, c),
		}, err);
	}
	return rc;
}

int ck_mg_items_find(struct mg *mg, struct ckpt_err *err)
{
	int rc = 0;

	for (uint64_t i = 0; i < mg->fs.nitems; i++)
		look_at_item(mg, &mg->fs.item[i]);
	rc = ck_mg_second_find(mg, err);
	for (uint64_t i = 0; !rc && i < mg->fs.nitems; i++)
		if (mg->fs.item[i].use == MG_WEIGHT)
			rc = add_param(mg, &mg->fs.item[i], err);
	if (!rc && mg->nparams)
		qsort(mg->param, mg->nparams, sizeof(*mg->param), by_model);
	for (uint64_t i = 0; rc >= 0 && i < mg->nparams; i++) {
		struct mg_param *p = &mg->param[i];

		rc = ck_map_add(&mg->by_key, p->key, strlen(p->key), i, NULL, err);
		if (rc >= 0)
			rc = ck_mg_chunks_add(mg, p, MG_W, p->item, err);
	}
	if (rc < 0)
		return rc;
	find_layout(mg);
	return 0;
}

/* ---- checks ---- */

/* "decoder.layers.7.mlp": 7; -1: no number there, all layers are stacked; -2: of no layer. */
static int64_t layer_of(const char *key)
{
	static const char begin[] = "decoder.layers.";
	const char *p = strstr(key, begin);
	int64_t n = 0;

	if (!p || (p != key && p[-1] != '.'))
		return -2;
	p += strlen(begin);
	if (*p < '0' || *p > '9')
		return -1;
	for (; *p >= '0' && *p <= '9' && n < 1000000; p++)
		n = n * 10 + (*p - '0');
	return n;
}

static void check_axis(struct mg *mg, const struct mg_param *p, uint32_t axis, uint64_t want,
		       const char *what)
{
	if (want && axis < p->ndim && p->shape[axis] != want)
		ck_findings_add(mg->fs.f, CK_FINDING_NAMES_WRONG, p->key,
				"its axis %u has %" PRIu64 " elements, but the args of the run say "
				"%s %" PRIu64 " (files of two runs in one folder?)", axis,
				p->shape[axis], what, want);
}

static void check_vocab(struct mg *mg, const struct mg_param *p)
{
	const struct mg_model *m = &mg->model;

	check_axis(mg, p, 0, m->padded_vocab, "padded_vocab_size");
	if (p->ndim && p->shape[0] < m->vocab)
		ck_findings_add(mg->fs.f, CK_FINDING_NAMES_WRONG, p->key,
				"it has %" PRIu64 " rows, fewer than vocab_size %" PRIu64,
				p->shape[0], m->vocab);
}

static void check_param(struct mg *mg, const struct mg_param *p)
{
	const int64_t layer = layer_of(p->key);
	const char *experts = strstr(p->key, ".experts.experts.linear_fc");

	if (layer == -1)
		check_axis(mg, p, 0, mg->model.layers, "num_layers");
	if (experts && layer >= -1)
		check_axis(mg, p, layer == -1, mg->model.experts, "num_experts");
	if (ck_ends_with(p->key, "router.weight"))
		check_axis(mg, p, layer == -1, mg->model.experts, "num_experts");
	if (ck_ends_with(p->key, "word_embeddings.weight") ||
	    ck_ends_with(p->key, "output_layer.weight"))
		check_vocab(mg, p);
}

static int check_layers(struct mg *mg, struct ckpt_err *err)
{
	const uint64_t n = mg->model.layers;
	uint64_t missing = 0, first = 0;
	bool *seen, any = false;

	if (!n || n > 1000000)
		return 0;
	seen = ck_arena_zalloc(&mg->fs.arena, n);
	if (!seen)
		return ck_fail_nomem(err, "layers", n);
	for (uint64_t i = 0; i < mg->nparams; i++) {
		const int64_t at = layer_of(mg->param[i].key);

		any |= at >= 0;
		if (at >= 0 && (uint64_t)at < n)
			seen[at] = true;
		else if (at >= 0)
			ck_findings_add(mg->fs.f, CK_FINDING_NAMES_WRONG, mg->param[i].key,
					"the args of the run say num_layers %" PRIu64, n);
	}
	for (uint64_t i = n; i > 0; i--)
		if (!seen[i - 1]) {
			missing++;
			first = i - 1;
		}
	if (any && missing)
		ck_findings_add(mg->fs.f, CK_FINDING_NAMES_WRONG, mg->fs.at.where,
				"%" PRIu64 " of %" PRIu64 " layers are missing, the first is "
				"decoder.layers.%" PRIu64, missing, n, first);
	return 0;
}

int ck_mg_items_check(struct mg *mg, struct ckpt_err *err)
{
	for (uint64_t i = 0; i < mg->nparams; i++)
		check_param(mg, &mg->param[i]);
	return check_layers(mg, err);
}
