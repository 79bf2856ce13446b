/*
 * ck_order.c -- see ck_order.h.  What is known of architectures was read off
 * named_parameters() of transformers 5 (tests/interop/shard_cases.py compares again).
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/io/ck_tree.h"
#include "libckpt/json/ck_json.h"
#include "libckpt/reshard/ck_order.h"


/* ---- architectures ---- */

/* Decoders whose modules are model.embed_tokens, model.layers.N, model.norm, lm_head. */
struct family {
	const char *model_type;
	bool tied;			/* where the config does not say */
	const char *const *part;	/* modules of a layer in order, NULL at the end */
};

static const char *const llama_parts[] = {
	"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
	"self_attn.q_norm", "self_attn.k_norm", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj",
	"input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm",
	"post_feedforward_layernorm", NULL,
};

static const char *const phi3_parts[] = {
	"self_attn.o_proj", "self_attn.qkv_proj", "mlp.gate_up_proj", "mlp.down_proj",
	"input_layernorm", "post_attention_layernorm", NULL,
};

static const struct family families[] = {
	{ "llama", false, llama_parts }, { "mistral", false, llama_parts },
	{ "qwen2", false, llama_parts }, { "qwen3", false, llama_parts },
	{ "gemma", true, llama_parts }, { "gemma2", true, llama_parts },
	{ "gemma3_text", true, llama_parts }, { "granite", false, llama_parts },
	{ "olmo", false, llama_parts }, { "olmo2", false, llama_parts },
	{ "smollm3", true, llama_parts }, { "phi3", false, phi3_parts },
};

/* What of a config.json counts. */
struct config {
	const struct family *family;
	bool tied;
	uint64_t layers;
};

static int unknown_type(const char *path, const char *type, struct ckpt_err *err)
{
	return ck_fail(err, CKPT_E_UNSUPPORTED, path, CKPT_NO_OFFSET,
		       "zckpt does not know the order of the parameters of a model of type "
		       "\"%.80s\"; give it with --order FILE: one name of named_parameters() "
		       "per line", type);
}

static int take_config(const struct ck_json *doc, const char *path, struct config *out,
		       struct ckpt_err *err)
{
	const uint64_t type = doc->n ? ck_json_get(doc, 0, "model_type") : UINT64_MAX;
	const uint64_t tie = doc->n ? ck_json_get(doc, 0, "tie_word_embeddings") : UINT64_MAX;
	const uint64_t layers = doc->n ? ck_json_get(doc, 0, "num_hidden_layers") : UINT64_MAX;
	const char *name = type == UINT64_MAX ? NULL : doc->tok[type].str;

	for (size_t i = 0; name && i < CK_ARRAY_LEN(families); i++)
		if (!strcmp(families[i].model_type, name))
			out->family = &families[i];
	if (!out->family)
		return unknown_type(path, name ? name : "?", err);
	if (layers == UINT64_MAX || !ck_json_u64(doc, layers, &out->layers))
		return ck_fail(err, CKPT_E_MISMATCH, path, CKPT_NO_OFFSET,
			       "num_hidden_layers is missing or not a number");
	out->tied = out->family->tied;
	if (tie != UINT64_MAX)
		out->tied = doc->tok[tie].type == CK_JSON_TRUE;
	return 0;
}

static int read_config(const char *path, const struct ckpt_limits *limits, struct config *out,
		       struct ckpt_err *err)
{
	struct ck_json doc = CK_JSON_INIT;
	char *text = NULL;
	uint64_t len;
	int rc = ck_file_read(path, limits->header_bytes, &text, &len, err);

	if (!rc)
		rc = ck_json_parse(&doc, text, len, limits, 0, path, err);
	if (!rc)
		rc = take_config(&doc, path, out, err);
	ck_json_release(&doc);
	ck_free(text);
	return rc;
}

/* ---- places of names ---- */

/* Sorts as the modules do: before the layers, a layer, behind them. */
struct place {
	uint32_t tensor;
	uint32_t where;		/* 0 embeddings, 1 layers, 2 norm, 3 head */
	uint64_t layer;
	uint32_t part, bias;
};

static int compare_places(const void *a, const void *b)
{
	const struct place *x = a, *y = b;

	if (x->where != y->where)
		return x->where < y->where ? -1 : 1;
	if (x->layer != y->layer)
		return x->layer < y->layer ? -1 : 1;
	if (x->part != y->part)
		return x->part < y->part ? -1 : 1;
	return x->bias < y->bias ? -1 : x->bias > y->bias;
}

/* "MODULE.weight" or "MODULE.bias"? */
static bool is_of(const char *name, const char *module, uint32_t *bias_out)
{
	const size_t n = strlen(module);

	if (strncmp(name, module, n) || name[n] != '.')
		return false;
	*bias_out = !strcmp(name + n, ".bias");
	return *bias_out || !strcmp(name + n, ".weight");
}

static bool find_layer(const char *name, const struct family *family, struct place *out)
{
	const char *p = name + strlen("model.layers.");

	if (*p < '0' || *p > '9' || (*p == '0' && p[1] != '.'))
		return false;
	for (; *p >= '0' && *p <= '9' && out->layer < UINT32_MAX; p++)
		out->layer = out->layer * 10 + (uint64_t)(*p - '0');
	if (*p++ != '.')
		return false;
	for (uint32_t i = 0; family->part[i]; i++)
		if (is_of(p, family->part[i], &out->bias)) {
			out->where = 1;
			out->part = i;
			return true;
		}
	return false;
}

static bool find_place(const char *name, const struct family *family, struct place *out)
{
	static const char *const outer[] = { "model.embed_tokens", NULL, "model.norm", "lm_head" };

	if (!strncmp(name, "model.layers.", strlen("model.layers.")))
		return find_layer(name, family, out);
	for (uint32_t i = 0; i < CK_ARRAY_LEN(outer); i++)
		if (outer[i] && is_of(name, outer[i], &out->bias)) {
			out->where = i;
			return true;
		}
	return false;
}

/* Every layer has the same parameters, and there are as many as the config says. */
static int check_layers(const struct ck_index *ix, const struct place *p, uint64_t n,
			const struct config *config, const char *path, struct ckpt_err *err)
{
	uint64_t first = 0, per = 0, count = 0;

	while (first < n && p[first].where == 0)
		first++;
	while (first + per < n && p[first + per].where == 1 && p[first + per].layer == 0)
		per++;
	for (uint64_t i = first; i < n && p[i].where == 1; i++, count++) {
		const uint64_t k = i - first;
		const struct place *like = per ? &p[first + k % per] : NULL;

		if (!like || p[i].layer != k / per || p[i].part != like->part ||
		    p[i].bias != like->bias)
			return ck_fail(err, CKPT_E_MISMATCH, ix->tensor[p[i].tensor].name,
				       CKPT_NO_OFFSET, "layer %" PRIu64 " has other parameters "
				       "than layer 0: one before this is missing, or this one "
				       "is extra", p[i].layer);
	}
	if (!first || (per ? count != per * config->layers : config->layers != 0))
		return ck_fail(err, CKPT_E_MISMATCH, path, CKPT_NO_OFFSET,
			       "the config says %" PRIu64 " layers, but the weights have "
			       "%" PRIu64 "%s", config->layers, per ? count / per : 0,
			       first ? "" : " and no model.embed_tokens");
	return 0;
}

/* A tied head is the embedding; one that is stored as well is left out of the optimizer. */
static int settle_head(const struct config *config, const char *path, struct place *p,
		       uint64_t *n, struct ck_order *out, struct ckpt_err *err)
{
	const bool has = *n && p[*n - 1].where == 3;

	if (config->tied) {
		while (*n && p[*n - 1].where == 3)
			(*n)--;
		out->alias = "lm_head.weight";
	} else if (!has) {
		return ck_fail(err, CKPT_E_MISMATCH, path, CKPT_NO_OFFSET,
			       "lm_head.weight is missing, and the config does not tie it to "
			       "the embedding");
	}
	return 0;
}

static int room(struct ck_order *out, uint64_t n, struct ckpt_err *err)
{
	out->tensor = ck_arena_alloc(&out->arena, (n + 1) * sizeof(*out->tensor));
	return out->tensor ? 0 : ck_fail_nomem(err, "the order of the parameters", n);
}

int ck_order_by_config(const struct ck_index *ix, const char *path,
		       const struct ckpt_limits *limits, const bool *set_aside,
		       struct ck_order *out, struct ckpt_err *err)
{
	struct place *p = ck_alloc_array(ix->ntensors + 1, sizeof(*p));
	struct config config = { 0 };
	uint64_t n = 0;
	int rc = p ? read_config(path, limits, &config, err) :
		 ck_fail_nomem(err, "names", ix->ntensors);

	memset(out, 0, sizeof(*out));
	for (uint32_t i = 0; !rc && i < ix->ntensors; i++) {
		p[n] = (struct place){ .tensor = i };
		if (set_aside[i] || ix->tensor[i].role == CKPT_ROLE_ALIAS)
			continue;
		if (!find_place(ix->tensor[i].name, config.family, &p[n]))
			rc = ck_fail(err, CKPT_E_MISMATCH, ix->tensor[i].name, CKPT_NO_OFFSET,
				     "a model of type \"%s\" has no parameter of this name; name "
				     "it with --buffer or --frozen, or give the order (--order)",
				     config.family->model_type);
		n++;
	}
	if (!rc) {
		qsort(p, n, sizeof(*p), compare_places);
		rc = check_layers(ix, p, n, &config, path, err);
	}
	if (!rc)
		rc = settle_head(&config, path, p, &n, out, err);
	if (!rc)
		rc = room(out, n, err);
	for (uint64_t i = 0; !rc && i < n; i++)
		out->tensor[out->n++] = p[i].tensor;
	ck_free(p);
	if (rc)
		ck_order_release(out);
	return rc;
}

/* ---- by a list ---- */

static int take_name(const struct ck_index *ix, const char *path, uint64_t line, const char *name,
		     bool *met, struct ck_order *out, struct ckpt_err *err)
{
	uint32_t t;

	if (!*name)
		return 0;
	if (!ck_index_find(ix, name, &t))
		return ck_fail(err, CKPT_E_MISMATCH, path, CKPT_NO_OFFSET,
			       "line %" PRIu64 ": the weights have no %.200s", line, name);
	if (met[t])
		return ck_fail(err, CKPT_E_MISMATCH, path, CKPT_NO_OFFSET,
			       "line %" PRIu64 ": %.200s is excluded, or the list has it twice",
			       line, name);
	met[t] = true;
	out->tensor[out->n++] = t;
	return 0;
}

static int take_lines(const struct ck_index *ix, const char *path, char *text, bool *met,
		      struct ck_order *out, struct ckpt_err *err)
{
	uint64_t line = 0;
	int rc = 0;

	for (char *p = text; !rc && p;) {
		char *end = strchr(p, '\n');

		if (end)
			*end = '\0';
		if (p[0] && p[strlen(p) - 1] == '\r')
			p[strlen(p) - 1] = '\0';
		rc = take_name(ix, path, ++line, p, met, out, err);
		p = end ? end + 1 : NULL;
	}
	for (uint32_t i = 0; !rc && i < ix->ntensors; i++)
		if (!met[i] && ix->tensor[i].role != CKPT_ROLE_ALIAS)
			rc = ck_fail(err, CKPT_E_MISMATCH, ix->tensor[i].name, CKPT_NO_OFFSET,
				     "it is not in %s; name it with --buffer or --frozen if the "
				     "optimizer does not have it", path);
	return rc;
}

int ck_order_by_list(const struct ck_index *ix, const char *path,
		     const struct ckpt_limits *limits, const bool *set_aside,
		     struct ck_order *out, struct ckpt_err *err)
{
	bool *met = ck_alloc_array(ix->ntensors + 1, sizeof(*met));
	char *text = NULL;
	uint64_t len;
	int rc = met ? ck_file_read(path, limits->header_bytes, &text, &len, err) :
		 ck_fail_nomem(err, "names", ix->ntensors);

	memset(out, 0, sizeof(*out));
	if (!rc && strlen(text) != len)
		rc = ck_fail(err, CKPT_E_CORRUPT, path, strlen(text), "the list of names has a "
			     "NUL byte");
	if (!rc)
		rc = room(out, ix->ntensors, err);
	if (!rc) {
		memcpy(met, set_aside, ix->ntensors * sizeof(*met));
		rc = take_lines(ix, path, text, met, out, err);
	}
	ck_free(text);
	ck_free(met);
	if (rc)
		ck_order_release(out);
	return rc;
}

void ck_order_release(struct ck_order *order)
{
	ck_arena_release(&order->arena);
	memset(order, 0, sizeof(*order));
}

/* ---- weight decay ---- */

/* A whole word between dots that ends so? */
static bool has_word(const char *name, const char *word)
{
	const size_t n = strlen(word);

	for (const char *p = strcasestr(name, word); p; p = strcasestr(p + 1, word))
		if ((p[n] == '\0' || p[n] == '.') && (p == name || p[-1] == '.' || p[-1] == '_'))
			return true;
	return false;
}

bool ck_order_is_undecayed(const char *name)
{
	return strcasestr(name, "bias") || strcasestr(name, "layernorm") ||
	       strcasestr(name, "rmsnorm") || has_word(name, "norm");
}
