/*
 * ck_model_config.c -- the shape of a decoder from its config.json.  What the keys of each
 * architecture mean was read off transformers 5; tests/interop/plan_cases.py compares the
 * number of parameters with the models that transformers builds.
 */
#include <inttypes.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/estimate/ck_model.h"
#include "libckpt/format/ck_limits.h"
#include "libckpt/io/ck_tree.h"
#include "libckpt/json/ck_json.h"

#define MAX_CONFIG_BYTES ((uint64_t)16 << 20)
#define MAX_LAYERS 10000
#define MAX_WIDTH ((uint64_t)1 << 24)
#define MAX_EXPERTS ((uint64_t)1 << 16)

#define LLAMA (CK_SHAPE_GATED | CK_SHAPE_RMS)
#define BIASED (CK_SHAPE_QKV_BIAS | CK_SHAPE_O_BIAS)
#define PLAIN_GPT (BIASED | CK_SHAPE_MLP_BIAS)

static int read_mixtral(const struct ck_config *r, struct ck_shape *s);
static int read_qwen_moe(const struct ck_config *r, struct ck_shape *s);
static int read_deepseek(const struct ck_config *r, struct ck_shape *s);

/* What a model_type means: 'has' and the rest that config.json does not say. */
struct family {
	const char *type;
	unsigned has;
	uint32_t norms;
	bool tied;		/* where the config does not say */
	uint32_t head_dim;	/* likewise; 0 = hidden / heads */
	unsigned attention_bias, mlp_bias;	/* what these keys add */
	const char *bias_key;	/* that of attention_bias where it has another name */
	bool bias;		/* its default */
	int (*experts)(const struct ck_config *r, struct ck_shape *s);
};

/* type, has, norms, tied, head_dim, what attention_bias, mlp_bias add, name, default, experts */
static const struct family families[] = {
	{ "llama", LLAMA, 2, false, 0, BIASED, CK_SHAPE_MLP_BIAS, NULL, false, NULL },
	{ "mistral", LLAMA, 2, false, 0, 0, 0, NULL, false, NULL },
	{ "qwen2", LLAMA | CK_SHAPE_QKV_BIAS, 2, false, 0, 0, 0, NULL, false, NULL },
	{ "qwen3", LLAMA | CK_SHAPE_QK_NORM, 2, false, 128, BIASED, 0, NULL, false, NULL },
	{ "gemma", LLAMA, 2, true, 256, BIASED, 0, NULL, false, NULL },
	{ "gemma2", LLAMA, 4, true, 256, BIASED, 0, NULL, false, NULL },
	{ "gemma3_text", LLAMA | CK_SHAPE_QK_NORM, 4, true, 256, BIASED, 0, NULL, false, NULL },
	{ "granite", LLAMA, 2, false, 0, BIASED, CK_SHAPE_MLP_BIAS, NULL, false, NULL },
	{ "olmo", CK_SHAPE_GATED | CK_SHAPE_BARE_NORM, 2, false, 0, BIASED, 0, NULL, false, NULL },
	{ "olmo2", LLAMA | CK_SHAPE_QK_NORM_ALL, 2, false, 0, BIASED, 0, NULL, false, NULL },
	{ "smollm3", LLAMA, 2, true, 0, BIASED, CK_SHAPE_MLP_BIAS, NULL, false, NULL },
	{ "phi3", LLAMA | CK_SHAPE_FUSED_QKV | CK_SHAPE_FUSED_GATE, 2, false, 0, 0, 0, NULL,
	  false, NULL },
	{ "mixtral", LLAMA, 2, false, 0, 0, 0, NULL, false, read_mixtral },
	{ "qwen2_moe", LLAMA, 2, false, 0, CK_SHAPE_QKV_BIAS, 0, "qkv_bias", true, read_qwen_moe },
	{ "qwen3_moe", LLAMA | CK_SHAPE_QK_NORM, 2, false, 0, BIASED, 0, NULL, false,
	  read_qwen_moe },
	{ "deepseek_v2", LLAMA, 2, false, 1, CK_SHAPE_O_BIAS, CK_SHAPE_MLP_BIAS, NULL, false,
	  read_deepseek },
	{ "deepseek_v3", LLAMA, 2, false, 1, CK_SHAPE_O_BIAS, 0, NULL, false, read_deepseek },
	{ "starcoder2", 0, 2, true, 0, PLAIN_GPT, 0, "use_bias", true, NULL },
	{ "gpt2", PLAIN_GPT | CK_SHAPE_FUSED_QKV, 2, true, 0, 0, 0, NULL, false, NULL },
	{ "gpt_neox", CK_SHAPE_MLP_BIAS | CK_SHAPE_FUSED_QKV, 2, false, 0, BIASED, 0, NULL, true,
	  NULL },
	{ "opt", 0, 2, true, 0, BIASED | CK_SHAPE_MLP_BIAS, 0, "enable_bias",
	  true, NULL },
};

/* NULL: the type is not known. */
static const struct family *find_family(const char *type)
{
	for (size_t i = 0; i < CK_ARRAY_LEN(families); i++)
		if (!strcmp(families[i].type, type))
			return &families[i];
	return NULL;
}

uint64_t ck_cfg_find(const struct ck_config *r, const char *key)
{
	return r->object == UINT64_MAX ? UINT64_MAX : ck_json_given(r->doc, r->object, key);
}

int ck_cfg_number(const struct ck_config *r, const char *key, uint64_t otherwise, uint64_t most,
		  uint64_t *out)
{
	const uint64_t tok = ck_cfg_find(r, key);
	uint64_t n = otherwise;

	if (tok == UINT64_MAX && !otherwise)
		return ck_fail(r->err, CKPT_E_MISMATCH, r->path, CKPT_NO_OFFSET,
			       "%s is missing", key);
	if (tok != UINT64_MAX && !ck_json_u64(r->doc, tok, &n))
		return ck_fail(r->err, CKPT_E_MISMATCH, r->path, r->doc->tok[tok].off,
			       "%s is not a plain number", key);
	if (!n || n > most)
		return ck_fail(r->err, CKPT_E_LIMIT, r->path, CKPT_NO_OFFSET,
			       "%s is %" PRIu64 "; 1 to %" PRIu64 " are possible", key, n, most);
	*out = n;
	return 0;
}

/* As ck_cfg_number(), where 0 is possible. */
static int count(const struct ck_config *r, const char *key, uint64_t otherwise, uint64_t most,
		 uint64_t *out)
{
	const uint64_t tok = ck_cfg_find(r, key);
	uint64_t n;

	if (tok != UINT64_MAX && !(ck_json_u64(r->doc, tok, &n) && !n))
		return ck_cfg_number(r, key, 0, most, out);
	*out = tok == UINT64_MAX ? otherwise : 0;
	return 0;
}

bool ck_cfg_truth(const struct ck_config *r, const char *key, bool otherwise)
{
	const uint64_t tok = ck_cfg_find(r, key);

	return tok == UINT64_MAX ? otherwise : r->doc->tok[tok].type == CK_JSON_TRUE;
}

/* GPT-2 has names of its own. */
static int read_gpt2(const struct ck_config *r, struct ck_shape *s)
{
	int rc = ck_cfg_number(r, "n_embd", 0, MAX_WIDTH, &s->hidden);

	if (!rc)
		rc = ck_cfg_number(r, "n_layer", 0, MAX_LAYERS, &s->layers);
	if (!rc)
		rc = ck_cfg_number(r, "n_head", 0, MAX_WIDTH, &s->heads);
	if (!rc)
		rc = ck_cfg_number(r, "n_positions", 0, MAX_WIDTH, &s->positions);
	if (!rc)
		rc = ck_cfg_number(r, "n_inner", 4 * s->hidden, MAX_WIDTH, &s->inter);
	return rc;
}

static int read_opt(const struct ck_config *r, struct ck_shape *s)
{
	uint64_t width;
	int rc = ck_cfg_number(r, "ffn_dim", 0, MAX_WIDTH, &s->inter);

	if (!rc)
		rc = ck_cfg_number(r, "max_position_embeddings", 0, MAX_WIDTH, &s->positions);
	if (!rc)
		rc = ck_cfg_number(r, "word_embed_proj_dim", s->hidden, MAX_WIDTH, &width);
	if (rc)
		return rc;
	s->positions += 2;	/* OPT's positions begin at 2 */
	if (width != s->hidden || !ck_cfg_truth(r, "do_layer_norm_before", true) ||
	    !ck_cfg_truth(r, "layer_norm_elementwise_affine", true) ||
	    ck_cfg_truth(r, "_remove_final_layer_norm", false))
		return ck_fail(r->err, CKPT_E_UNSUPPORTED, r->path, CKPT_NO_OFFSET,
			       "unsupported variant of OPT: projected embeddings, or norms "
			       "after the layers");
	return 0;
}

static int read_sizes(const struct ck_config *r, const struct family *f, struct ck_shape *s)
{
	int rc = 0;

	if (!strcmp(s->type, "gpt2")) {
		rc = read_gpt2(r, s);
	} else {
		rc = ck_cfg_number(r, "hidden_size", 0, MAX_WIDTH, &s->hidden);
		if (!rc)
			rc = ck_cfg_number(r, "num_hidden_layers", 0, MAX_LAYERS, &s->layers);
		if (!rc)
			rc = ck_cfg_number(r, "num_attention_heads", 0, MAX_WIDTH, &s->heads);
		if (!rc)
			rc = strcmp(s->type, "opt") ?
			     ck_cfg_number(r, "intermediate_size", 0, MAX_WIDTH, &s->inter) :
			     read_opt(r, s);
	}
	if (!rc)
		rc = ck_cfg_number(r, "vocab_size", 0, MAX_WIDTH, &s->vocab);
	if (!rc)
		rc = ck_cfg_number(r, "num_key_value_heads", s->heads, MAX_WIDTH, &s->kv_heads);
	if (!rc && !f->head_dim && ck_cfg_find(r, "head_dim") == UINT64_MAX && s->hidden % s->heads)
		rc = ck_fail(r->err, CKPT_E_MISMATCH, r->path, CKPT_NO_OFFSET,
			     "the hidden size %" PRIu64 " is not a multiple of the number of "
			     "heads, %" PRIu64, s->hidden, s->heads);
	if (!rc)
		rc = ck_cfg_number(r, "head_dim", f->head_dim ? f->head_dim :
			    s->hidden >= s->heads ? s->hidden / s->heads : 1, MAX_WIDTH,
			    &s->head_dim);
	return rc;
}

/* ---- experts ---- */

/* The number of experts has three names; a token passes 'some' of them by default. */
static int read_experts(const struct ck_config *r, uint64_t some, struct ck_moe *e)
{
	static const char *const names[] = { "num_local_experts", "num_experts",
					     "n_routed_experts" };
	const char *name = names[0];
	int rc;

	for (size_t i = 0; i < CK_ARRAY_LEN(names); i++)
		if (ck_cfg_find(r, names[i]) != UINT64_MAX)
			name = names[i];
	rc = ck_cfg_find(r, name) == UINT64_MAX ?
	     ck_cfg_number(r, name, 0, MAX_EXPERTS, &e->experts) :
	     count(r, name, 0, MAX_EXPERTS, &e->experts);
	if (!rc && e->experts)
		rc = ck_cfg_number(r, "num_experts_per_tok", some, MAX_WIDTH, &e->top_k);
	if (!rc && e->top_k > e->experts)
		rc = ck_fail(r->err, CKPT_E_MISMATCH, r->path, CKPT_NO_OFFSET,
			     "num_experts_per_tok is %" PRIu64 ", but %s is %" PRIu64, e->top_k,
			     name, e->experts);
	return rc;
}

static int read_mixtral(const struct ck_config *r, struct ck_shape *s)
{
	s->moe.inter = s->inter;
	return read_experts(r, 2, &s->moe);
}

/* A list of numbers of layers. */
static int read_dense_layers(const struct ck_config *r, const char *key, struct ck_moe *e)
{
	const uint64_t list = ck_cfg_find(r, key);
	uint64_t n, i = 0;

	if (list == UINT64_MAX)
		return 0;
	if (r->doc->tok[list].type != CK_JSON_ARRAY)
		return ck_fail(r->err, CKPT_E_MISMATCH, r->path, r->doc->tok[list].off,
			       "%s is not a list", key);
	for (uint64_t tok = list + 1; tok < r->doc->tok[list].next; tok = r->doc->tok[tok].next) {
		if (!ck_json_u64(r->doc, tok, &n) || n >= CK_DENSE_BITS)
			return ck_fail(r->err, CKPT_E_LIMIT, r->path, r->doc->tok[tok].off,
				       "number %" PRIu64 " of %s is not a layer from 0 to %u",
				       i, key, CK_DENSE_BITS - 1);
		e->dense[n / 8] |= (uint8_t)(1u << n % 8);
		i++;
	}
	return 0;
}

static int read_qwen_moe(const struct ck_config *r, struct ck_shape *s)
{
	int rc = read_experts(r, strcmp(s->type, "qwen2_moe") ? 8 : 4, &s->moe);

	if (!rc && s->moe.experts)
		rc = ck_cfg_number(r, "moe_intermediate_size", 0, MAX_WIDTH, &s->moe.inter);
	if (!rc && s->moe.experts && !strcmp(s->type, "qwen2_moe"))
		rc = ck_cfg_number(r, "shared_expert_intermediate_size", 0, MAX_WIDTH,
				   &s->moe.shared);
	s->moe.shared_gate = true;
	if (!rc)
		rc = ck_cfg_number(r, "decoder_sparse_step", 1, MAX_LAYERS, &s->moe.every);
	return rc ? rc : read_dense_layers(r, "mlp_only_layers", &s->moe);
}

static int read_mla(const struct ck_config *r, struct ck_mla *a)
{
	int rc = 0;

	/* null is "not compressed", and no key transformers' default */
	if (ck_cfg_find(r, "q_lora_rank") != UINT64_MAX ||
	    ck_json_get(r->doc, r->object, "q_lora_rank") == UINT64_MAX)
		rc = ck_cfg_number(r, "q_lora_rank", 1536, MAX_WIDTH, &a->q_rank);
	if (!rc)
		rc = ck_cfg_number(r, "kv_lora_rank", 512, MAX_WIDTH, &a->kv_rank);
	if (!rc)
		rc = ck_cfg_number(r, "qk_nope_head_dim", 128, MAX_WIDTH, &a->nope);
	if (!rc)
		rc = ck_cfg_number(r, "qk_rope_head_dim", 64, MAX_WIDTH, &a->rope);
	return rc ? rc : ck_cfg_number(r, "v_head_dim", 128, MAX_WIDTH, &a->v);
}

static int read_deepseek(const struct ck_config *r, struct ck_shape *s)
{
	uint64_t shared, every;
	int rc = read_mla(r, &s->mla);

	if (!rc)
		rc = read_experts(r, strcmp(s->type, "deepseek_v3") ? 0 : 8, &s->moe);
	if (!rc)
		rc = ck_cfg_number(r, "moe_intermediate_size", 0, MAX_WIDTH, &s->moe.inter);
	if (!rc)
		rc = count(r, "n_shared_experts", 0, MAX_EXPERTS, &shared);
	if (!rc)
		rc = count(r, "first_k_dense_replace", strcmp(s->type, "deepseek_v3") ? 0 : 3,
			   MAX_LAYERS, &s->moe.first_dense);
	if (!rc)
		rc = ck_cfg_number(r, "moe_layer_freq", 1, MAX_LAYERS, &every);
	if (rc)
		return rc;
	s->moe.shared = shared * s->moe.inter;
	if (every == 1 && s->moe.experts)
		return 0;
	return ck_fail(r->err, CKPT_E_UNSUPPORTED, r->path, CKPT_NO_OFFSET,
		       "unsupported variant of DeepSeek: moe_layer_freq %" PRIu64 " with %" PRIu64
		       " experts, where transformers has 1 and at least one",
		       every, s->moe.experts);
}

static int unknown(const struct ck_config *r, const char *type)
{
	char known[400] = "";
	size_t n = 0;

	for (size_t i = 0; i < CK_ARRAY_LEN(families); i++) {
		const char *name = families[i].type;
		const size_t len = strlen(name);

		if (n + len + 3 > sizeof(known))
			break;
		memcpy(known + n, i ? ", " : "", i ? 2 : 0);
		n += i ? 2 : 0;
		memcpy(known + n, name, len + 1);
		n += len;
	}
	return ck_fail(r->err, CKPT_E_UNSUPPORTED, r->path, CKPT_NO_OFFSET,
		       "zckpt does not know the parameters of a model of type \"%.80s\" (known: "
		       "%s; with a vision tower qwen2_vl, qwen2_5_vl, qwen3_vl, internvl, "
		       "internvl_chat); give its weights, or a number of parameters", type, known);
}

static const char *type_in(const struct ck_config *r)
{
	const uint64_t type = ck_cfg_find(r, "model_type");

	return type == UINT64_MAX ? NULL : r->doc->tok[type].str;
}

/* The decoder, of which 'r' says the sizes. */
static int read_decoder(const struct ck_config *r, const struct family *f, struct ck_shape *s)
{
	int rc;

	*s = (struct ck_shape){ .type = f->type, .has = f->has, .norms = f->norms };
	rc = read_sizes(r, f, s);
	if (rc)
		return rc;
	if (ck_cfg_truth(r, f->bias_key ? f->bias_key : "attention_bias", f->bias))
		s->has |= f->attention_bias;
	if (ck_cfg_truth(r, "mlp_bias", false))
		s->has |= f->mlp_bias;
	if (f->experts)
		rc = f->experts(r, s);
	if (rc)
		return rc;
	s->tied = ck_cfg_truth(r, "tie_word_embeddings", f->tied);
	if (s->heads * s->head_dim > MAX_WIDTH || s->kv_heads > s->heads)
		return ck_fail(r->err, CKPT_E_MISMATCH, r->path, CKPT_NO_OFFSET,
			       "%" PRIu64 " heads of %" PRIu64 " elements with %" PRIu64 " "
			       "key-value heads are not possible",
			       s->heads, s->head_dim, s->kv_heads);
	return 0;
}

/* A head is tied by the outer configuration; that of Qwen2-VL and 2.5-VL looks inside too. */
static bool is_tied(const struct ck_config *root, const char *type, bool inside)
{
	if (!strcmp(type, "internvl_chat"))	/* the decoder is a model of its own */
		return inside;
	if (ck_cfg_truth(root, "tie_word_embeddings", !strcmp(type, "internvl")))
		return true;
	return inside && (!strcmp(type, "qwen2_vl") || !strcmp(type, "qwen2_5_vl"));
}

static int read_shape(const struct ck_config *root, struct ck_shape *s)
{
	const char *type = root->doc->tok[0].type == CK_JSON_OBJECT ? type_in(root) : NULL;
	struct ck_config text = *root;
	const char *outer = NULL, *inner;
	const struct family *f;
	int rc;

	if (!type)
		return ck_fail(root->err, CKPT_E_UNSUPPORTED, root->path, CKPT_NO_OFFSET,
			       "it has no \"model_type\": expected a model's config.json, not a "
			       "configuration of DeepSpeed or of a tokenizer");
	inner = ck_tower_find(root, type, &text.object, &outer);
	if (outer && !inner)
		inner = type_in(&text);
	if (!outer)
		text.object = root->object;
	if (outer && !inner)
		return ck_fail(root->err, CKPT_E_MISMATCH, root->path, CKPT_NO_OFFSET,
			       "the configuration of the language model is missing, or its "
			       "model_type");
	f = find_family(outer ? inner : type);
	if (!f)
		return unknown(root, outer ? inner : type);
	rc = read_decoder(&text, f, s);
	if (rc || !outer)
		return rc;
	s->type = outer;
	s->tied = is_tied(root, outer, s->tied);
	return ck_tower_read(root, s);
}

int ck_shape_read(const char *path, struct ck_shape *out, struct ckpt_err *err)
{
	struct ck_json doc = CK_JSON_INIT;
	struct ck_config r = { &doc, 0, path, err };
	struct ckpt_limits limits;
	char *text = NULL;
	uint64_t len;
	int rc;

	ck_limits_fill(NULL, &limits);
	rc = ck_file_read(path, MAX_CONFIG_BYTES, &text, &len, err);
	if (!rc)
		rc = ck_json_parse(&doc, text, len, &limits, 0, path, err);
	if (!rc)
		rc = read_shape(&r, out);
	ck_json_release(&doc);
	ck_free(text);
	return rc;
}
