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

#define LLAMA (CK_SHAPE_GATED | CK_SHAPE_RMS)
#define BIASED (CK_SHAPE_QKV_BIAS | CK_SHAPE_O_BIAS)
#define PLAIN_GPT (BIASED | CK_SHAPE_MLP_BIAS)

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
};

/* type, has, norms, tied, head_dim, what attention_bias and mlp_bias add, their name, default */
static const struct family families[] = {
	{ "llama", LLAMA, 2, false, 0, BIASED, CK_SHAPE_MLP_BIAS, NULL, false },
	{ "mistral", LLAMA, 2, false, 0, 0, 0, NULL, false },
	{ "qwen2", LLAMA | CK_SHAPE_QKV_BIAS, 2, false, 0, 0, 0, NULL, false },
	{ "qwen3", LLAMA | CK_SHAPE_QK_NORM, 2, false, 128, BIASED, 0, NULL, false },
	{ "gemma", LLAMA, 2, true, 256, BIASED, 0, NULL, false },
	{ "gemma2", LLAMA, 4, true, 256, BIASED, 0, NULL, false },
	{ "gemma3_text", LLAMA | CK_SHAPE_QK_NORM, 4, true, 256, BIASED, 0, NULL, false },
	{ "granite", LLAMA, 2, false, 0, BIASED, CK_SHAPE_MLP_BIAS, NULL, false },
	{ "olmo", CK_SHAPE_GATED | CK_SHAPE_BARE_NORM, 2, false, 0, BIASED, 0, NULL, false },
	{ "olmo2", LLAMA | CK_SHAPE_QK_NORM_ALL, 2, false, 0, BIASED, 0, NULL, false },
	{ "smollm3", LLAMA, 2, true, 0, BIASED, CK_SHAPE_MLP_BIAS, NULL, false },
	{ "phi3", LLAMA | CK_SHAPE_FUSED_QKV | CK_SHAPE_FUSED_GATE, 2, false, 0, 0, 0, NULL,
	  false },
	{ "starcoder2", 0, 2, true, 0, PLAIN_GPT, 0, "use_bias", true },
	{ "gpt2", PLAIN_GPT | CK_SHAPE_FUSED_QKV, 2, true, 0, 0, 0, NULL, false },
	{ "gpt_neox", CK_SHAPE_MLP_BIAS | CK_SHAPE_FUSED_QKV, 2, false, 0, BIASED, 0, NULL, true },
	{ "opt", 0, 2, true, 0, BIASED | CK_SHAPE_MLP_BIAS, 0, "enable_bias",
	  true },
};

/* NULL: the type is not known. */
static const struct family *find_family(const char *type)
{
	for (size_t i = 0; i < CK_ARRAY_LEN(families); i++)
		if (!strcmp(families[i].type, type))
			return &families[i];
	return NULL;
}

struct reading {
	const struct ck_json *doc;
	const char *path;
	struct ckpt_err *err;
};

static uint64_t find(const struct reading *r, const char *key)
{
	return ck_json_given(r->doc, 0, key);
}

/* 'otherwise' 0: it must be there. */
static int number(const struct reading *r, const char *key, uint64_t otherwise, uint64_t most,
		  uint64_t *out)
{
	const uint64_t tok = find(r, key);
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

static bool truth(const struct reading *r, const char *key, bool otherwise)
{
	const uint64_t tok = find(r, key);

	return tok == UINT64_MAX ? otherwise : r->doc->tok[tok].type == CK_JSON_TRUE;
}

/* GPT-2 has names of its own. */
static int read_gpt2(const struct reading *r, struct ck_shape *s)
{
	int rc = number(r, "n_embd", 0, MAX_WIDTH, &s->hidden);

	if (!rc)
		rc = number(r, "n_layer", 0, MAX_LAYERS, &s->layers);
	if (!rc)
		rc = number(r, "n_head", 0, MAX_WIDTH, &s->heads);
	if (!rc)
		rc = number(r, "n_positions", 0, MAX_WIDTH, &s->positions);
	if (!rc)
		rc = number(r, "n_inner", 4 * s->hidden, MAX_WIDTH, &s->inter);
	return rc;
}

static int read_opt(const struct reading *r, struct ck_shape *s)
{
	uint64_t width;
	int rc = number(r, "ffn_dim", 0, MAX_WIDTH, &s->inter);

	if (!rc)
		rc = number(r, "max_position_embeddings", 0, MAX_WIDTH, &s->positions);
	if (!rc)
		rc = number(r, "word_embed_proj_dim", s->hidden, MAX_WIDTH, &width);
	if (rc)
		return rc;
	s->positions += 2;	/* OPT's positions begin at 2 */
	if (width != s->hidden || !truth(r, "do_layer_norm_before", true) ||
	    !truth(r, "layer_norm_elementwise_affine", true) ||
	    truth(r, "_remove_final_layer_norm", false))
		return ck_fail(r->err, CKPT_E_UNSUPPORTED, r->path, CKPT_NO_OFFSET,
			       "unsupported variant of OPT: projected embeddings, or norms "
			       "after the layers");
	return 0;
}

static int read_sizes(const struct reading *r, const struct family *f, struct ck_shape *s)
{
	int rc = 0;

	if (!strcmp(s->type, "gpt2")) {
		rc = read_gpt2(r, s);
	} else {
		rc = number(r, "hidden_size", 0, MAX_WIDTH, &s->hidden);
		if (!rc)
			rc = number(r, "num_hidden_layers", 0, MAX_LAYERS, &s->layers);
		if (!rc)
			rc = number(r, "num_attention_heads", 0, MAX_WIDTH, &s->heads);
		if (!rc)
			rc = strcmp(s->type, "opt") ?
			     number(r, "intermediate_size", 0, MAX_WIDTH, &s->inter) :
			     read_opt(r, s);
	}
	if (!rc)
		rc = number(r, "vocab_size", 0, MAX_WIDTH, &s->vocab);
	if (!rc)
		rc = number(r, "num_key_value_heads", s->heads, MAX_WIDTH, &s->kv_heads);
	if (!rc && !f->head_dim && find(r, "head_dim") == UINT64_MAX && s->hidden % s->heads)
		rc = ck_fail(r->err, CKPT_E_MISMATCH, r->path, CKPT_NO_OFFSET,
			     "the hidden size %" PRIu64 " is not a multiple of the number of "
			     "heads, %" PRIu64, s->hidden, s->heads);
	if (!rc)
		rc = number(r, "head_dim", f->head_dim ? f->head_dim :
			    s->hidden >= s->heads ? s->hidden / s->heads : 1, MAX_WIDTH,
			    &s->head_dim);
	return rc;
}

static int unknown(const struct reading *r, const char *type)
{
	char known[300] = "";
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
		       "%s); give its weights, or a number of parameters", type, known);
}

static int read_shape(const struct reading *r, struct ck_shape *s)
{
	const uint64_t type = r->doc->tok[0].type == CK_JSON_OBJECT ? find(r, "model_type") :
			      UINT64_MAX;
	const char *name = type == UINT64_MAX ? NULL : r->doc->tok[type].str;
	const struct family *f = name ? find_family(name) : NULL;
	int rc;

	if (!name)
		return ck_fail(r->err, CKPT_E_UNSUPPORTED, r->path, CKPT_NO_OFFSET,
			       "it has no \"model_type\": expected a model's config.json, not a "
			       "configuration of DeepSpeed or of a tokenizer");
	if (!f)
		return unknown(r, name);
	*s = (struct ck_shape){ .type = f->type, .has = f->has, .norms = f->norms };
	rc = read_sizes(r, f, s);
	if (rc)
		return rc;
	if (truth(r, f->bias_key ? f->bias_key : "attention_bias", f->bias))
		s->has |= f->attention_bias;
	if (truth(r, "mlp_bias", false))
		s->has |= f->mlp_bias;
	s->tied = truth(r, "tie_word_embeddings", f->tied);
	if (s->heads * s->head_dim > MAX_WIDTH || s->kv_heads > s->heads)
		return ck_fail(r->err, CKPT_E_MISMATCH, r->path, CKPT_NO_OFFSET,
			       "%" PRIu64 " heads of %" PRIu64 " elements with %" PRIu64 " "
			       "key-value heads are not possible",
			       s->heads, s->head_dim, s->kv_heads);
	return 0;
}

int ck_shape_read(const char *path, struct ck_shape *out, struct ckpt_err *err)
{
	struct ck_json doc = CK_JSON_INIT;
	struct reading r = { &doc, path, err };
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
