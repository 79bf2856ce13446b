/*
 * ck_order_model.c -- see ck_order_model.h.  What is known of architectures was read off
 * named_parameters() of transformers 5 (tests/interop/shard_cases.py and vl_cases.py compare).
 */
#include "libckpt/step/ck_order_model.h"

#include <inttypes.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/base/ck_text.h"
#include "libckpt/json/ck_json.h"

/* ---- architectures ---- */

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

/* Blocks of the towers of Qwen2-VL, 2.5-VL and 3-VL: each has some of these. */
static const char *const qwen_blocks[] = {
	"norm1", "norm2", "attn.qkv", "attn.proj", "mlp.gate_proj", "mlp.up_proj",
	"mlp.down_proj", "mlp.fc1", "mlp.fc2", "mlp.linear_fc1", "mlp.linear_fc2", NULL,
};

static const char *const deepstack_parts[] = { "norm", "linear_fc1", "linear_fc2", NULL };

static const char *const internvl_layers[] = {
	"lambda_1", "lambda_2", "attention.q_proj", "attention.k_proj", "attention.v_proj",
	"attention.projection_layer", "attention.q_norm", "attention.k_norm", "mlp.fc1",
	"mlp.fc2", "layernorm_before", "layernorm_after", NULL,
};

#define DECODER(prefix, parts, head) \
	{ prefix ".embed_tokens", NULL, NULL, false, true }, \
	{ prefix ".layers", parts, "num_hidden_layers", false, true }, \
	{ prefix ".norm", NULL, NULL, false, false }, \
	{ head, NULL, NULL, false, false }
#define END { NULL, NULL, NULL, false, false }
#define ONE(name) { name, NULL, NULL, true, true }
#define MAYBE(name) { name, NULL, NULL, true, false }

static const struct ck_order_section llama[] = { DECODER("model", llama_parts, "lm_head"), END };
static const struct ck_order_section phi3[] = { DECODER("model", phi3_parts, "lm_head"), END };

static const struct ck_order_section qwen2_vl[] = {
	ONE("model.visual.patch_embed.proj"),
	{ "model.visual.blocks", qwen_blocks, "depth", true, true },
	ONE("model.visual.merger.ln_q"), ONE("model.visual.merger.mlp.0"),
	ONE("model.visual.merger.mlp.2"),
	DECODER("model.language_model", llama_parts, "lm_head"), END,
};

static const struct ck_order_section qwen3_vl[] = {
	ONE("model.visual.patch_embed.proj"), ONE("model.visual.pos_embed"),
	{ "model.visual.blocks", qwen_blocks, "depth", true, true },
	ONE("model.visual.merger.norm"), ONE("model.visual.merger.linear_fc1"),
	ONE("model.visual.merger.linear_fc2"),
	{ "model.visual.deepstack_merger_list", deepstack_parts, "deepstack_visual_indexes", true,
	  false },
	DECODER("model.language_model", llama_parts, "lm_head"), END,
};

static const struct ck_order_section internvl[] = {
	ONE("model.vision_tower.embeddings.cls_token"),
	MAYBE("model.vision_tower.embeddings.mask_token"),
	MAYBE("model.vision_tower.embeddings.position_embeddings"),
	ONE("model.vision_tower.embeddings.patch_embeddings.projection"),
	{ "model.vision_tower.encoder.layer", internvl_layers, "num_hidden_layers", true, true },
	MAYBE("model.vision_tower.layernorm"),
	ONE("model.multi_modal_projector.layer_norm"),
	ONE("model.multi_modal_projector.linear_1"), ONE("model.multi_modal_projector.linear_2"),
	DECODER("model.language_model", llama_parts, "lm_head"), END,
};

static const char *const chat_layers[] = {
	"ls1", "ls2", "attn.qkv", "attn.q_norm", "attn.k_norm", "attn.proj", "mlp.fc1", "mlp.fc2",
	"norm1", "norm2", NULL,
};

/* By the model's own code, which its folder has. */
static const struct ck_order_section internvl_chat[] = {
	ONE("vision_model.embeddings.class_embedding"),
	ONE("vision_model.embeddings.position_embedding"),
	ONE("vision_model.embeddings.patch_embedding"),
	{ "vision_model.encoder.layers", chat_layers, "num_hidden_layers", true, true },
	DECODER("language_model.model", llama_parts, "language_model.lm_head"),
	ONE("mlp1.0"), ONE("mlp1.1"), ONE("mlp1.3"), END,
};

/* Where tie_word_embeddings is. */
enum tied_by { OUTER, EITHER, INNER };

static const struct family {
	const char *type;
	bool tied;		/* where the config does not say */
	enum tied_by by;
	const struct ck_order_section *section;
} families[] = {
	{ "llama", false, OUTER, llama }, { "mistral", false, OUTER, llama },
	{ "qwen2", false, OUTER, llama }, { "qwen3", false, OUTER, llama },
	{ "gemma", true, OUTER, llama }, { "gemma2", true, OUTER, llama },
	{ "gemma3_text", true, OUTER, llama }, { "granite", false, OUTER, llama },
	{ "olmo", false, OUTER, llama }, { "olmo2", false, OUTER, llama },
	{ "smollm3", true, OUTER, llama }, { "phi3", false, OUTER, phi3 },
	{ "qwen2_vl", false, EITHER, qwen2_vl }, { "qwen2_5_vl", false, EITHER, qwen2_vl },
	{ "qwen3_vl", false, OUTER, qwen3_vl }, { "internvl", true, OUTER, internvl },
	{ "internvl_chat", false, INNER, internvl_chat },
};

/* NULL: not known. */
static const struct family *find_family(const char *type)
{
	for (size_t i = 0; type && i < CK_ARRAY_LEN(families); i++)
		if (!strcmp(families[i].type, type))
			return &families[i];
	return NULL;
}

/* ---- config.json ---- */

struct reading {
	const struct ck_json *doc;
	const char *path;
	uint64_t text, vision;	/* objects; UINT64_MAX = there is none */
	struct ckpt_err *err;
};

static int unknown_type(const struct reading *r, const char *type)
{
	return ck_fail(r->err, CKPT_E_UNSUPPORTED, r->path, CKPT_NO_OFFSET,
		       "zckpt does not know the order of the parameters of a model of type "
		       "\"%.80s\"; give it with --order FILE: one name of named_parameters() "
		       "per line", type);
}

static uint64_t find(const struct reading *r, uint64_t object, const char *key)
{
	return object == UINT64_MAX ? UINT64_MAX : ck_json_get(r->doc, object, key);
}

static const char *type_in(const struct reading *r, uint64_t object)
{
	const uint64_t tok = find(r, object, "model_type");

	return tok == UINT64_MAX ? NULL : r->doc->tok[tok].str;
}

/* A number, or how many a list has. */
static int read_count(const struct reading *r, const struct ck_order_section *s, uint64_t *out)
{
	const uint64_t tok = find(r, s->in_vision ? r->vision : r->text, s->count);

	*out = 0;
	if (tok != UINT64_MAX && r->doc->tok[tok].type == CK_JSON_ARRAY) {
		for (uint64_t i = tok + 1; i < r->doc->tok[tok].next; i = r->doc->tok[i].next)
			++*out;
		return 0;
	}
	if (tok != UINT64_MAX && ck_json_u64(r->doc, tok, out))
		return 0;
	return ck_fail(r->err, CKPT_E_MISMATCH, r->path, CKPT_NO_OFFSET,
		       "%s%s is missing or not a number", s->in_vision ? "vision_config." : "",
		       s->count);
}

static bool is_tied(const struct reading *r, const struct family *f)
{
	const uint64_t outer = find(r, 0, "tie_word_embeddings");
	const uint64_t inner = find(r, r->text, "tie_word_embeddings");
	const bool is = outer == UINT64_MAX ? f->tied :
			r->doc->tok[outer].type == CK_JSON_TRUE;
	const bool inside = inner != UINT64_MAX && r->doc->tok[inner].type == CK_JSON_TRUE;

	return f->by == INNER ? inside : is || (f->by == EITHER && inside);
}

/* The text of an InternVL may be any decoder, and its layers are those of a known one. */
static int check_text(const struct reading *r)
{
	const char *type = type_in(r, r->text);
	const struct family *f = find_family(type);

	if (r->text == 0 || !type || !strncmp(type, "qwen2_vl", 8) ||
	    !strncmp(type, "qwen2_5_vl", 10) || !strncmp(type, "qwen3_vl", 8) ||
	    (f && f->section == llama))
		return 0;
	return unknown_type(r, type);
}

static int take_config(const struct reading *r, struct ck_order_model *out)
{
	const char *type = type_in(r, 0);
	const struct family *f = find_family(type);
	int rc = f ? check_text(r) : unknown_type(r, type ? type : "?");

	if (rc)
		return rc;
	*out = (struct ck_order_model){ .type = f->type, .section = f->section };
	out->tied = is_tied(r, f);
	for (uint32_t i = 0; !rc && f->section[i].prefix; i++) {
		const char *prefix = f->section[i].prefix;

		if (f->section[i].count)
			rc = read_count(r, &f->section[i], &out->layers[i]);
		if (ck_ends_with(prefix, "embed_tokens"))
			out->embedding = prefix;
		if (ck_ends_with(prefix, "lm_head"))
			out->head = i;
	}
	return rc;
}

int ck_order_model_parse(const struct ck_order_config *from, const struct ckpt_limits *limits,
			 struct ck_order_model *out, struct ckpt_err *err)
{
	struct ck_json doc = CK_JSON_INIT;
	struct reading r = { .doc = &doc, .path = from->path, .vision = UINT64_MAX, .err = err };
	int rc = ck_json_parse(&doc, from->text, from->len, limits, 0, from->path, err);

	if (!rc && (!doc.n || doc.tok[0].type != CK_JSON_OBJECT))
		rc = unknown_type(&r, "?");
	if (!rc) {
		r.vision = ck_json_given(&doc, 0, "vision_config");
		r.text = ck_json_given(&doc, 0, "text_config");
		if (r.text == UINT64_MAX)
			r.text = ck_json_given(&doc, 0, "llm_config");
		if (r.text == UINT64_MAX)	/* flat, as before transformers 4.52 */
			r.text = 0;
		rc = take_config(&r, out);
	}
	ck_json_release(&doc);
	return rc;
}
