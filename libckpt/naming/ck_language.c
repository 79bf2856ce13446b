/* ck_language.c -- see ck_language.h. */
#include "libckpt/naming/ck_language.h"

#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/base/ck_text.h"

/* ---- names ---- */

const struct ckpt_rule *ck_language_rules(void)
{
	static const struct ckpt_rule rules[] = {
		{ "model.language_model.*", "model.*" },
		{ "language_model.model.*", "model.*" },
		{ "language_model.lm_head.*", "lm_head.*" },
		{ NULL, NULL },
	};

	return rules;
}

const char *const *ck_language_others(void)
{
	static const char *const others[] = {
		"model.visual.*", "visual.*", "model.vision_tower.*", "vision_tower.*",
		"model.multi_modal_projector.*", "multi_modal_projector.*", "vision_model.*",
		"mlp1.*", NULL,
	};

	return others;
}

bool ck_language_has(const char *name)
{
	static const char *const begins[] = {
		"model.embed_tokens.", "model.layers.", "model.norm.", "lm_head.",
	};

	for (size_t i = 0; i < CK_ARRAY_LEN(begins); i++)
		if (!strncmp(name, begins[i], strlen(begins[i])))
			return true;
	return false;
}

/* ---- config.json ---- */

/* A decoder as transformers has it alone. */
struct decoder {
	const char *inside;	/* its model_type in the whole model, without "_text" */
	const char *type, *architecture;
};

static const struct decoder decoders[] = {
	{ "qwen2_vl", "qwen2", "Qwen2ForCausalLM" }, { "qwen2_5_vl", "qwen2", "Qwen2ForCausalLM" },
	{ "qwen3_vl", "qwen3", "Qwen3ForCausalLM" }, { "qwen2", "qwen2", "Qwen2ForCausalLM" },
	{ "qwen3", "qwen3", "Qwen3ForCausalLM" }, { "llama", "llama", "LlamaForCausalLM" },
	{ "mistral", "mistral", "MistralForCausalLM" },
	{ "qwen3_moe", "qwen3_moe", "Qwen3MoeForCausalLM" },
};

struct writing {
	const struct ck_json *doc;
	const char *where;
	uint64_t text;		/* the object of the decoder */
	struct ck_buf *out;
	struct ckpt_err *err;
};

static uint64_t find(const struct writing *w, uint64_t object, const char *key)
{
	return ck_json_given(w->doc, object, key);
}

static const char *string(const struct writing *w, uint64_t tok)
{
	return tok != UINT64_MAX && w->doc->tok[tok].type == CK_JSON_STRING ?
	       w->doc->tok[tok].str : "";
}

static const struct decoder *find_decoder(const char *type)
{
	const size_t n = strlen(type) - (ck_ends_with(type, "_text") ? 5 : 0);

	for (size_t i = 0; i < CK_ARRAY_LEN(decoders); i++)
		if (strlen(decoders[i].inside) == n && !strncmp(decoders[i].inside, type, n))
			return &decoders[i];
	return NULL;
}

/* A member that the decoder alone does not have, or has in another form. */
static bool is_left_out(const struct ck_json_tok *key)
{
	static const char *const names[] = {
		"model_type", "architectures", "tie_word_embeddings", "rope_parameters",
		"rope_scaling", "vision_config", "dtype", "torch_dtype", "auto_map",
		"_name_or_path", "image_token_id", "video_token_id", "vision_start_token_id",
		"vision_end_token_id", "vision_token_id",
	};

	for (size_t i = 0; i < CK_ARRAY_LEN(names); i++)
		if (!strcmp(key->str, names[i]))
			return true;
	return false;
}

static int put_value(const struct writing *w, const char *key, uint64_t tok)
{
	const struct ck_json_tok *t = &w->doc->tok[tok];
	int rc = ck_buf_addf(w->out, w->err, ",\n  \"%s\": ", key);

	return rc ? rc : ck_buf_add(w->out, w->doc->text + t->off, t->len, w->err);
}

/* The members of an object; 'skip' says of which key nothing is written. */
static int put_members(const struct writing *w, uint64_t object,
		       bool (*skip)(const struct ck_json_tok *key))
{
	const struct ck_json_tok *tok = w->doc->tok;
	int rc = 0;

	for (uint64_t t = object + 1; !rc && t < tok[object].next; t = tok[t + 1].next)
		if (!skip(&tok[t]))
			rc = put_value(w, tok[t].str, t + 1);
	return rc;
}

static bool is_of_mrope(const struct ck_json_tok *key)
{
	return !strncmp(key->str, "mrope", 5) || !strcmp(key->str, "rope_type") ||
	       !strcmp(key->str, "type");
}

/* "rope_parameters" of transformers 5, "rope_scaling" of 4; M-RoPE becomes the plain one. */
static int put_rope(const struct writing *w, const char *key)
{
	const uint64_t rope = find(w, w->text, key);
	uint64_t type;
	const char *name;
	int rc;

	if (rope == UINT64_MAX)
		return 0;
	if (w->doc->tok[rope].type != CK_JSON_OBJECT)
		return put_value(w, key, rope);
	type = find(w, rope, "rope_type");
	name = string(w, type != UINT64_MAX ? type : find(w, rope, "type"));
	if (strcmp(name, "mrope") != 0 && strcmp(name, "default") != 0)
		return put_value(w, key, rope);
	if (!strcmp(key, "rope_scaling"))	/* nothing is scaled */
		return 0;
	rc = ck_buf_addf(w->out, w->err, ",\n  \"%s\": {\"rope_type\": \"default\"", key);
	if (!rc)
		rc = put_members(w, rope, is_of_mrope);
	return rc ? rc : ck_buf_adds(w->out, "}", w->err);
}

/* As transformers looks for it: outside, and for Qwen2-VL and 2.5-VL also inside. */
static bool is_tied(const struct writing *w)
{
	const char *whole = string(w, find(w, 0, "model_type"));
	const uint64_t outer = find(w, 0, "tie_word_embeddings");
	const uint64_t inner = find(w, w->text, "tie_word_embeddings");
	const bool inside = inner != UINT64_MAX && w->doc->tok[inner].type == CK_JSON_TRUE;

	if (!strcmp(whole, "internvl_chat"))
		return inside;
	if (outer == UINT64_MAX && !strcmp(whole, "internvl"))
		return true;
	return (outer != UINT64_MAX && w->doc->tok[outer].type == CK_JSON_TRUE) ||
	       (inside && !strncmp(whole, "qwen2", 5));
}

static int put_head(const struct writing *w, const struct decoder *d, const char *dtype)
{
	uint64_t old = find(w, w->text, "dtype");
	int rc = ck_buf_addf(w->out, w->err, "{\n  \"architectures\": [\"%s\"],\n  \"model_type\": "
			     "\"%s\",\n  \"tie_word_embeddings\": %s", d->architecture, d->type,
			     is_tied(w) ? "true" : "false");

	if (old == UINT64_MAX)
		old = find(w, w->text, "torch_dtype");
	if (!rc && dtype)
		return ck_buf_addf(w->out, w->err, ",\n  \"dtype\": \"%s\"", dtype);
	return rc || old == UINT64_MAX ? rc : put_value(w, "dtype", old);
}

int ck_language_config(const struct ck_json *doc, const char *where, const char *dtype,
		       struct ck_buf *out, struct ckpt_err *err)
{
	struct writing w = { .doc = doc, .where = where, .out = out, .err = err };
	const struct decoder *d;
	const char *type;
	int rc;

	w.text = find(&w, 0, "text_config");
	if (w.text == UINT64_MAX)
		w.text = find(&w, 0, "llm_config");
	if (w.text == UINT64_MAX)	/* flat, as transformers before 4.52 writes it */
		w.text = 0;
	type = string(&w, find(&w, w.text, "model_type"));
	d = doc->tok[w.text].type == CK_JSON_OBJECT ? find_decoder(type) : NULL;
	if (!d)
		return ck_fail(err, CKPT_E_UNSUPPORTED, where, CKPT_NO_OFFSET,
			       "the language model is of type \"%.80s\"; known are those of "
			       "Qwen2-VL, Qwen2.5-VL and Qwen3-VL, and qwen2, qwen3, qwen3_moe, "
			       "llama and mistral", type);
	rc = put_head(&w, d, dtype);
	if (!rc)
		rc = put_rope(&w, "rope_parameters");
	if (!rc)
		rc = put_rope(&w, "rope_scaling");
	if (!rc)
		rc = put_members(&w, w.text, is_left_out);
	return rc ? rc : ck_buf_adds(out, "\n}\n", err);
}
