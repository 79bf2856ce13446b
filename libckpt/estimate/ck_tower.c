/*
 * ck_tower.c -- what a vision-language model has beside its decoder: the tower and what joins it
 * to the decoder.  The keys of each architecture and their defaults are those of transformers 5
 * (tests/interop/plan_cases.py compares), and of InternVLChatModel's own code.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/estimate/ck_model.h"
#include "libckpt/json/ck_json.h"

#define MOST ((uint64_t)1 << 24)
#define MOST_LAYERS 10000

/* What is read of vision_config; not all of it by each model. */
struct vision {
	struct ck_config c;	/* vision_config */
	const struct ck_config *root;
	struct ck_shape *s;
	uint64_t width, inter, depth, channels, patch, merge, out;
};

struct model {
	const char *type, *text;	/* NULL: the configuration of the text says it */
	const char *text_key;
	int (*read)(struct vision *v);
};

static int read_qwen2_vl(struct vision *v);
static int read_qwen25_vl(struct vision *v);
static int read_qwen3_vl(struct vision *v);
static int read_internvl(struct vision *v);
static int read_internvl_chat(struct vision *v);

static const struct model models[] = {
	{ "qwen2_vl", "qwen2", "text_config", read_qwen2_vl },
	{ "qwen2_5_vl", "qwen2", "text_config", read_qwen25_vl },
	{ "qwen3_vl", "qwen3", "text_config", read_qwen3_vl },
	{ "internvl", NULL, "text_config", read_internvl },
	{ "internvl_chat", NULL, "llm_config", read_internvl_chat },
};

static const struct model *find_model(const char *type)
{
	for (size_t i = 0; i < CK_ARRAY_LEN(models); i++)
		if (!strcmp(models[i].type, type))
			return &models[i];
	return NULL;
}

const char *ck_tower_find(const struct ck_config *root, const char *type, uint64_t *text_out,
			  const char **name_out)
{
	const struct model *m = find_model(type);
	uint64_t text;

	*name_out = NULL;
	*text_out = UINT64_MAX;
	if (!m)
		return NULL;
	text = ck_cfg_find(root, m->text_key);
	/* flat, as transformers before 4.52 writes it */
	*text_out = text == UINT64_MAX && m->text ? root->object : text;
	*name_out = m->type;
	return m->text;
}

/* ---- parts ---- */

/* A module in the group that is built; there is room for those of the models above. */
static void put(struct vision *v, uint64_t weight, uint64_t bias)
{
	struct ck_tower *t = &v->s->tower;
	uint32_t group = 0;

	while (group + 1 < CK_TOWER_GROUPS && t->times[group + 1])
		group++;
	if (!weight && !bias)
		return;
	t->part[t->n].weight = weight;
	t->part[t->n].bias = bias;
	t->part[t->n++].group = group;
}

/* What is put from here on follows itself so often. */
static void repeat(struct vision *v, uint64_t times)
{
	struct ck_tower *t = &v->s->tower;

	for (uint32_t i = 0; i < CK_TOWER_GROUPS; i++)
		if (!t->times[i]) {
			t->times[i] = times;
			return;
		}
}

/* A matrix that makes 'rows' of 'columns'. */
static void linear(struct vision *v, uint64_t columns, uint64_t rows, bool bias)
{
	put(v, columns * rows, bias ? rows : 0);
}

/* ---- Qwen ---- */

static int read_patch(struct vision *v, uint64_t otherwise)
{
	uint64_t temporal;
	int rc = ck_cfg_number(&v->c, ck_cfg_find(&v->c, "in_chans") != UINT64_MAX ?
				  "in_chans" : "in_channels", 3, MOST, &v->channels);

	if (!rc)
		rc = ck_cfg_number(&v->c, "patch_size", otherwise, 4096, &v->patch);
	if (!rc)
		rc = ck_cfg_number(&v->c, "temporal_patch_size", 2, 4096, &temporal);
	if (!rc)
		rc = ck_cfg_number(&v->c, "spatial_merge_size", 2, 64, &v->merge);
	v->merge *= v->merge;
	v->patch *= v->patch * (rc ? 0 : temporal);
	return rc;
}

/* Attention with one matrix for queries, keys and values, and its norms before. */
static void qwen_attention(struct vision *v, bool rms)
{
	const uint64_t d = v->width;

	put(v, d, rms ? 0 : d);
	put(v, d, rms ? 0 : d);
	linear(v, d, 3 * d, true);
	linear(v, d, d, true);
}

/* 'norm' is how much the norm before the two matrices has. */
static void qwen_merger(struct vision *v, uint64_t norm, bool rms)
{
	const uint64_t d = v->width * v->merge;

	put(v, norm, rms ? 0 : norm);
	linear(v, d, d, true);
	linear(v, d, v->out, true);
}

static int read_qwen25_vl(struct vision *v)
{
	int rc = ck_cfg_number(&v->c, "hidden_size", 3584, MOST, &v->width);

	if (!rc)
		rc = ck_cfg_number(&v->c, "intermediate_size", 3420, MOST, &v->inter);
	if (!rc)
		rc = ck_cfg_number(&v->c, "depth", 32, MOST_LAYERS, &v->depth);
	if (!rc)
		rc = ck_cfg_number(&v->c, "out_hidden_size", 3584, MOST, &v->out);
	if (!rc)
		rc = read_patch(v, 14);
	if (rc)
		return rc;
	repeat(v, 1);
	linear(v, v->channels * v->patch, v->width, false);
	repeat(v, v->depth);
	qwen_attention(v, true);
	linear(v, v->width, v->inter, true);
	linear(v, v->width, v->inter, true);
	linear(v, v->inter, v->width, true);
	repeat(v, 1);
	qwen_merger(v, v->width, true);
	return 0;
}

static int read_qwen2_vl(struct vision *v)
{
	uint64_t ratio;
	int rc = ck_cfg_number(&v->c, "embed_dim", 1280, MOST, &v->width);

	if (!rc)
		rc = ck_cfg_number(&v->c, "mlp_ratio", 4, 4096, &ratio);
	if (!rc)
		rc = ck_cfg_number(&v->c, "depth", 32, MOST_LAYERS, &v->depth);
	if (!rc)
		rc = ck_cfg_number(&v->c, "hidden_size", 3584, MOST, &v->out);
	if (!rc)
		rc = read_patch(v, 14);
	if (rc)
		return rc;
	v->inter = v->width * ratio;
	repeat(v, 1);
	linear(v, v->channels * v->patch, v->width, false);
	repeat(v, v->depth);
	qwen_attention(v, false);
	linear(v, v->width, v->inter, true);
	linear(v, v->inter, v->width, true);
	repeat(v, 1);
	qwen_merger(v, v->width, false);
	return 0;
}

/* How many layers have a merger of their own; without the key 3. */
static uint64_t count_deepstack(const struct vision *v)
{
	const uint64_t list = ck_cfg_find(&v->c, "deepstack_visual_indexes");
	const struct ck_json_tok *tok = v->c.doc->tok;
	uint64_t n = 0;

	if (list == UINT64_MAX || tok[list].type != CK_JSON_ARRAY)
		return 3;
	for (uint64_t i = list + 1; i < tok[list].next; i = tok[i].next)
		n++;
	return n;
}

static int read_qwen3_vl(struct vision *v)
{
	const uint64_t deep = count_deepstack(v);
	uint64_t positions;
	int rc = ck_cfg_number(&v->c, "hidden_size", 1152, MOST, &v->width);

	if (!rc)
		rc = ck_cfg_number(&v->c, "intermediate_size", 4304, MOST, &v->inter);
	if (!rc)
		rc = ck_cfg_number(&v->c, "depth", 27, MOST_LAYERS, &v->depth);
	if (!rc)
		rc = ck_cfg_number(&v->c, "out_hidden_size", 3584, MOST, &v->out);
	if (!rc)
		rc = ck_cfg_number(&v->c, "num_position_embeddings", 2304, MOST, &positions);
	if (!rc)
		rc = read_patch(v, 16);
	if (rc)
		return rc;
	repeat(v, 1);
	linear(v, v->channels * v->patch, v->width, true);
	put(v, positions * v->width, 0);
	repeat(v, v->depth);
	qwen_attention(v, false);
	linear(v, v->width, v->inter, true);
	linear(v, v->inter, v->width, true);
	repeat(v, 1);
	qwen_merger(v, v->width, false);
	if (!deep)
		return 0;
	repeat(v, deep);
	qwen_merger(v, v->width * v->merge, false);
	return 0;
}

/* ---- InternVL ---- */

/* A number for both sides of a square, or a list of two; their product. */
static int read_sides(const struct vision *v, const char *key, uint64_t otherwise, uint64_t *a,
		      uint64_t *b)
{
	const uint64_t list = ck_cfg_find(&v->c, key);
	const struct ck_json_tok *tok = v->c.doc->tok;

	if (list == UINT64_MAX || tok[list].type != CK_JSON_ARRAY) {
		int rc = ck_cfg_number(&v->c, key, otherwise, 1 << 16, a);

		*b = *a;
		return rc;
	}
	if (tok[list].next > list + 2 && ck_json_u64(v->c.doc, list + 1, a) &&
	    ck_json_u64(v->c.doc, list + 2, b) && *a && *b && *a <= 1 << 16 && *b <= 1 << 16)
		return 0;
	return ck_fail(v->c.err, CKPT_E_MISMATCH, v->c.path, tok[list].off,
		       "%s is neither a number nor a list of two", key);
}

/* 1 / downsample_ratio, whole: so many pixels of a side become one. */
static uint64_t read_downsampling(const struct vision *v)
{
	const uint64_t tok = ck_cfg_find(v->root, "downsample_ratio");
	const struct ck_json_tok *t = tok == UINT64_MAX ? NULL : &v->root->doc->tok[tok];
	const double ratio = t && t->type == CK_JSON_NUMBER ?
			     strtod(v->root->doc->text + t->off, NULL) : 0.5;

	return ratio > 0 && ratio <= 1 && 1 / ratio < 64 ? (uint64_t)(1 / ratio) : 2;
}

static int internvl_sizes(struct vision *v, uint64_t width, uint64_t inter, uint64_t depth,
			  uint64_t image, uint64_t *positions_out)
{
	uint64_t a, b, x, y;
	int rc = ck_cfg_number(&v->c, "hidden_size", width, MOST, &v->width);

	if (!rc)
		rc = ck_cfg_number(&v->c, "intermediate_size", inter, MOST, &v->inter);
	if (!rc)
		rc = ck_cfg_number(&v->c, "num_hidden_layers", depth, MOST_LAYERS, &v->depth);
	if (!rc)
		rc = ck_cfg_number(&v->c, "num_channels", 3, MOST, &v->channels);
	if (!rc)
		rc = read_sides(v, "image_size", image, &a, &b);
	if (!rc)
		rc = read_sides(v, "patch_size", 14, &x, &y);
	if (rc)
		return rc;
	v->patch = x * y;
	*positions_out = (a / x) * (b / y) + 1;
	return 0;
}

/* Of both forms: the one has one matrix for queries, keys and values. */
static void internvl_layer(struct vision *v, bool fused, bool bias, bool qk_norm, bool rms)
{
	const uint64_t d = v->width;

	repeat(v, v->depth);
	put(v, d, d);	/* the two scales */
	for (int i = 0; i < (fused ? 1 : 3); i++)
		linear(v, d, fused ? 3 * d : d, bias);
	linear(v, d, d, true);
	for (int i = 0; i < 2; i++)
		put(v, qk_norm ? d : 0, 0);
	linear(v, d, v->inter, true);
	linear(v, v->inter, d, true);
	for (int i = 0; i < 2; i++)
		put(v, d, rms ? 0 : d);
}

static void internvl_projector(struct vision *v)
{
	const uint64_t side = read_downsampling(v), d = v->width * side * side, h = v->s->hidden;

	put(v, d, d);
	linear(v, d, h, true);
	linear(v, h, h, true);
}

static bool is_rms(const struct vision *v, bool otherwise)
{
	const uint64_t tok = ck_cfg_find(&v->c, "norm_type");
	const char *type = tok == UINT64_MAX ? NULL : v->c.doc->tok[tok].str;

	return type ? !strcmp(type, "rms_norm") : otherwise;
}

static int read_internvl(struct vision *v)
{
	const bool absolute = ck_cfg_truth(&v->c, "use_absolute_position_embeddings", true);
	uint64_t positions;
	int rc = internvl_sizes(v, 1024, 4096, 24, 448, &positions);

	if (rc)
		return rc;
	repeat(v, 1);
	put(v, v->width, absolute ? positions * v->width : 0);
	put(v, ck_cfg_truth(&v->c, "use_mask_token", false) ? v->width : 0, 0);
	linear(v, v->channels * v->patch, v->width, true);
	internvl_layer(v, false, ck_cfg_truth(&v->c, "attention_bias", false),
		       ck_cfg_truth(&v->c, "use_qk_norm", false), is_rms(v, false));
	repeat(v, 1);
	if (!ck_cfg_truth(&v->c, "use_mean_pooling", true))
		put(v, v->width, v->width);
	internvl_projector(v);
	return 0;
}

static int read_internvl_chat(struct vision *v)
{
	uint64_t positions;
	int rc = internvl_sizes(v, 3200, 12800, 48, 224, &positions);

	if (rc)
		return rc;
	repeat(v, 1);
	put(v, v->width, positions * v->width);
	linear(v, v->channels * v->patch, v->width, true);
	internvl_layer(v, true, ck_cfg_truth(&v->c, "qkv_bias", false),
		       ck_cfg_truth(&v->c, "qk_normalization", true), is_rms(v, true));
	repeat(v, 1);
	internvl_projector(v);
	return 0;
}

int ck_tower_read(const struct ck_config *root, struct ck_shape *shape)
{
	const struct model *m = find_model(shape->type);
	struct vision v = { .c = *root, .root = root, .s = shape };

	v.c.object = ck_cfg_find(root, "vision_config");
	if (!m || v.c.object == UINT64_MAX || root->doc->tok[v.c.object].type != CK_JSON_OBJECT)
		return ck_fail(root->err, CKPT_E_MISMATCH, root->path, CKPT_NO_OFFSET,
			       "vision_config is missing: a model of type \"%s\" has a "
			       "vision tower",
			       shape->type);
	return m->read(&v);
}
