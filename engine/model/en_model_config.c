/*
 * en_model_config.c -- config.json of transformers 4 and 5.
 *
 * Each key has a row in a table: it is read, must have a value under which it changes nothing,
 * or does not concern training.  A key without a row is refused, since it may change the model,
 * unless it is false, null, empty or a 0 that switches nothing on: then it is noted.
 */
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/en_json.h"
#include "engine/model/en_model.h"
#include "engine/model/en_model_priv.h"

#define CONFIG_MAX_BYTES ((size_t)1 << 20)
#define NONE UINT64_MAX		/* no token: the key is absent */

enum rule {
	READ = 1,	/* by the code below */
	FREE,		/* no matter */
	OFF,		/* false, null, 0, "" or an empty list or object, else refused */
	ONE,		/* 1 or null */
	ON,		/* true or null */
};

struct key {
	const char *name;
	enum rule rule;
};

static const struct key keys[] = {
	{ "architectures", READ }, { "attention_bias", OFF }, { "attention_dropout", OFF },
	{ "dtype", READ }, { "head_dim", READ }, { "hidden_act", READ }, { "hidden_size", READ },
	{ "initializer_range", READ }, { "intermediate_size", READ }, { "layer_types", READ },
	{ "max_position_embeddings", READ }, { "mlp_bias", OFF }, { "model_type", READ },
	{ "num_attention_heads", READ }, { "num_hidden_layers", READ },
	{ "num_key_value_heads", READ }, { "pretraining_tp", ONE }, { "rms_norm_eps", READ },
	{ "rope_parameters", READ }, { "rope_scaling", READ }, { "rope_theta", READ },
	{ "tie_word_embeddings", READ }, { "torch_dtype", READ }, { "use_sliding_window", OFF },
	{ "vocab_size", READ },
	/* would change the computation */
	{ "use_mrope", OFF }, { "resid_pdrop", OFF }, { "embd_pdrop", OFF },
	{ "hidden_dropout", OFF }, { "residual_dropout", OFF }, { "embedding_dropout", OFF },
	{ "add_cross_attention", OFF }, { "chunk_size_feed_forward", OFF },
	{ "is_causal", ON }, { "is_encoder_decoder", OFF }, { "partial_rotary_factor", ONE },
	{ "pruned_heads", OFF },
	{ "quantization_config", OFF }, { "tie_encoder_decoder", OFF },
	/* tokens, generation, other tasks, how transformers runs */
	{ "bos_token_id", FREE }, { "eos_token_id", FREE }, { "pad_token_id", FREE },
	{ "sep_token_id", FREE }, { "decoder_start_token_id", FREE }, { "bad_words_ids", FREE },
	{ "begin_suppress_tokens", FREE }, { "cross_attention_hidden_size", FREE },
	{ "diversity_penalty", FREE }, { "do_sample", FREE }, { "early_stopping", FREE },
	{ "encoder_no_repeat_ngram_size", FREE }, { "exponential_decay_length_penalty", FREE },
	{ "finetuning_task", FREE }, { "forced_bos_token_id", FREE },
	{ "forced_eos_token_id", FREE }, { "id2label", FREE }, { "is_decoder", FREE },
	{ "label2id", FREE }, { "length_penalty", FREE }, { "max_length", FREE },
	{ "max_window_layers", FREE }, { "min_length", FREE }, { "no_repeat_ngram_size", FREE },
	{ "num_beam_groups", FREE }, { "num_beams", FREE }, { "num_return_sequences", FREE },
	{ "output_attentions", FREE }, { "output_hidden_states", FREE },
	{ "output_scores", FREE }, { "prefix", FREE }, { "problem_type", FREE },
	{ "remove_invalid_values", FREE }, { "repetition_penalty", FREE }, { "return_dict", FREE },
	{ "return_dict_in_generate", FREE }, { "sliding_window", FREE },
	{ "suppress_tokens", FREE }, { "task_specific_params", FREE }, { "temperature", FREE },
	{ "tf_legacy_loss", FREE }, { "tokenizer_class", FREE }, { "top_k", FREE },
	{ "top_p", FREE }, { "torchscript", FREE }, { "transformers_version", FREE },
	{ "typical_p", FREE }, { "use_bfloat16", FREE }, { "use_cache", FREE },
	{ "attn_implementation", FREE }, { "bos_token", FREE }, { "cache_implementation", FREE },
	{ "eos_token", FREE }, { "gradient_checkpointing", FREE }, { "model_max_length", FREE },
	{ "pad_token", FREE }, { "transformers.js_config", FREE }, { "unsloth_fixed", FREE },
	{ "unsloth_version", FREE },
};

static const struct {
	enum en_arch arch;
	const char *name, *type;
} archs[] = {
	{ EN_LLAMA, "LlamaForCausalLM", "llama" },
	{ EN_QWEN2, "Qwen2ForCausalLM", "qwen2" },
	{ EN_QWEN3, "Qwen3ForCausalLM", "qwen3" },
};

#define NARCH (sizeof(archs) / sizeof(archs[0]))

const char *en_arch_name(enum en_arch arch)
{
	for (size_t i = 0; i < NARCH; i++)
		if (archs[i].arch == arch)
			return archs[i].name;
	return "";
}

struct reader {
	const struct ck_json *doc;
	const char *where;
	struct ckpt_err *err;
	int rc;			/* of the first failure */
};

#define BAD(r, code, ...) ((r)->rc = (r)->rc ? (r)->rc : \
			   en_model_fail((r)->err, code, (r)->where, __VA_ARGS__))

static const struct ck_json_tok *token(const struct reader *r, uint64_t v)
{
	return &r->doc->tok[v];
}

static const char *string(const struct reader *r, uint64_t v)
{
	return v != NONE && token(r, v)->type == CK_JSON_STRING ? token(r, v)->str : NULL;
}

static bool is(const struct reader *r, uint64_t v, enum ck_json_type type)
{
	return v != NONE && token(r, v)->type == type;
}

static bool is_number(const struct reader *r, uint64_t v, double n)
{
	double got;

	return v != NONE && en_json_double(r->doc, v, &got) && got == n;
}

/* A positive integer; 0 when absent and not required. */
static uint32_t count(struct reader *r, uint64_t o, const char *name, bool required)
{
	const uint64_t v = ck_json_given(r->doc, o, name);
	double n;

	if (v == NONE) {
		if (required)
			BAD(r, CKPT_E_CORRUPT, "\"%s\" is missing", name);
		return 0;
	}
	if (!en_json_double(r->doc, v, &n) || !(n >= 1) || n > INT32_MAX || n != floor(n)) {
		BAD(r, CKPT_E_CORRUPT, "\"%s\" is not an integer from 1 to %d", name, INT32_MAX);
		return 0;
	}
	return (uint32_t)n;
}

/* A positive number, 'otherwise' when absent (0: it is required). */
static double positive(struct reader *r, uint64_t o, const char *name, double otherwise)
{
	const uint64_t v = ck_json_given(r->doc, o, name);
	double n;

	if (v == NONE && otherwise > 0)
		return otherwise;
	if (v == NONE || !en_json_double(r->doc, v, &n) || !(n > 0) || n > 1e300) {
		BAD(r, CKPT_E_CORRUPT, "\"%s\" is %s", name,
		    v != NONE ? "not a positive number" : "missing");
		return 1;
	}
	return n;
}

static bool flag(struct reader *r, uint64_t o, const char *name)
{
	const uint64_t v = ck_json_given(r->doc, o, name);

	if (v != NONE && !is(r, v, CK_JSON_TRUE) && !is(r, v, CK_JSON_FALSE))
		BAD(r, CKPT_E_CORRUPT, "\"%s\" is neither true nor false", name);
	return is(r, v, CK_JSON_TRUE);
}

static const char *text_of(struct reader *r, uint64_t o, const char *name)
{
	const uint64_t v = ck_json_given(r->doc, o, name);

	if (v != NONE && !is(r, v, CK_JSON_STRING))
		BAD(r, CKPT_E_CORRUPT, "\"%s\" is not a string", name);
	return string(r, v);
}

static bool is_off(const struct reader *r, uint64_t v)
{
	switch (token(r, v)->type) {
	case CK_JSON_NULL:
	case CK_JSON_FALSE:
		return true;
	case CK_JSON_NUMBER:
		return is_number(r, v, 0);
	case CK_JSON_STRING:
		return !token(r, v)->str_len;
	case CK_JSON_ARRAY:
	case CK_JSON_OBJECT:
		return !token(r, v)->n;
	default:
		return false;
	}
}

/* Nothing is switched on by the key, whatever it is; 0 is a number that counts for some. */
static bool is_nothing(const struct reader *r, const char *name, uint64_t v)
{
	static const char *const at_zero[] = {
		"eps", "scal", "factor", "multiplier", "theta", "alpha", "beta", "temperature",
	};

	for (size_t i = 0; is(r, v, CK_JSON_NUMBER) && i < CK_ARRAY_LEN(at_zero); i++)
		if (strstr(name, at_zero[i]))
			return false;
	return is_off(r, v);
}

static void note(struct en_model_config *c, const char *key)
{
	const size_t n = strlen(c->noted);

	snprintf(c->noted + n, sizeof(c->noted) - n, "%s%s", n ? ", " : "", key);
}

static void check_key(struct reader *r, const char *name, uint64_t v, struct en_model_config *c)
{
	const struct key *k = NULL;

	for (size_t i = 0; i < CK_ARRAY_LEN(keys); i++)
		if (!strcmp(keys[i].name, name))
			k = &keys[i];
	if (!k && name[0] != '_' && is_nothing(r, name, v))
		note(c, name);
	else if (!k && name[0] != '_')
		BAD(r, CKPT_E_UNSUPPORTED,
		    "unknown key \"%.100s\", which may change the model; remove it if it does not",
		    name);
	if (k && k->rule == OFF && !is_off(r, v))
		BAD(r, CKPT_E_UNSUPPORTED, "\"%s\" is set, which is not supported", name);
	if (k && k->rule == ONE && !is(r, v, CK_JSON_NULL) && !is_number(r, v, 1))
		BAD(r, CKPT_E_UNSUPPORTED, "\"%s\" is not 1, which is not supported", name);
	if (k && k->rule == ON && !is(r, v, CK_JSON_NULL) && !is(r, v, CK_JSON_TRUE))
		BAD(r, CKPT_E_UNSUPPORTED, "\"%s\" is not true, which is not supported", name);
}

/* Each key is known, and where it must be off, off. */
static void check_keys(struct reader *r, struct en_model_config *c)
{
	uint64_t name = 1;

	for (uint32_t i = 0; i < token(r, 0)->n; i++, name = token(r, name + 1)->next)
		check_key(r, token(r, name)->str, name + 1, c);
}

static enum en_arch read_arch(struct reader *r)
{
	const uint64_t list = ck_json_given(r->doc, 0, "architectures");
	const bool one = is(r, list, CK_JSON_ARRAY) && token(r, list)->n == 1;
	const char *first = one ? string(r, list + 1) : NULL;
	const char *type = text_of(r, 0, "model_type");

	if (list != NONE && !first) {
		BAD(r, CKPT_E_CORRUPT, "\"architectures\" is not a list of one name");
		return EN_LLAMA;
	}
	for (size_t i = 0; i < NARCH; i++) {
		if (first ? strcmp(first, archs[i].name) :
			    !type || strcmp(type, archs[i].type))
			continue;
		if (type && strcmp(type, archs[i].type))
			BAD(r, CKPT_E_CORRUPT, "\"architectures\" says %s and \"model_type\" %.60s",
			    archs[i].name, type);
		return archs[i].arch;
	}
	if (ck_json_given(r->doc, 0, "vision_config") != NONE) {
		BAD(r, CKPT_E_UNSUPPORTED,
		    "%.60s is a vision-language model; ztrain trains its language model, which "
		    "zckpt convert --language-part MODEL DIR writes alone", first ? first :
		    type ? type : "this");
		return EN_LLAMA;
	}
	BAD(r, CKPT_E_UNSUPPORTED,
	    "unsupported architecture: %.60s; expected LlamaForCausalLM, Qwen2ForCausalLM or "
	    "Qwen3ForCausalLM",
	    first ? first :
	    type  ? type :
		    "not given");
	return EN_LLAMA;
}

static void check_rope_key(struct reader *r, const char *name, uint64_t v)
{
	static const char *const known[] = { "rope_theta", "rope_type", "type", "factor",
					     "low_freq_factor", "high_freq_factor",
					     "original_max_position_embeddings" };

	if (!strcmp(name, "partial_rotary_factor")) {
		if (!is_number(r, v, 1))
			BAD(r, CKPT_E_UNSUPPORTED,
			    "partial rotation of heads (\"partial_rotary_factor\") is not "
			    "supported");
		return;
	}
	for (size_t i = 0; i < CK_ARRAY_LEN(known); i++)
		if (!strcmp(known[i], name))
			return;
	if (!is_off(r, v))
		BAD(r, CKPT_E_UNSUPPORTED, "unknown rope key \"%.60s\"", name);
}

/* The object of rope settings, wherever this version keeps it; other keys are refused. */
static void read_rope_object(struct reader *r, uint64_t o, struct en_rope *rope)
{
	uint64_t name = o + 1;
	const char *type;

	if (!is(r, o, CK_JSON_OBJECT)) {
		BAD(r, CKPT_E_CORRUPT, "the rope settings are not an object");
		return;
	}
	for (uint32_t i = 0; i < token(r, o)->n; i++, name = token(r, name + 1)->next)
		check_rope_key(r, token(r, name)->str, name + 1);
	type = text_of(r, o, "rope_type");
	if (!type)
		type = text_of(r, o, "type");
	if (!type || !strcmp(type, "default"))
		return;
	if (strcmp(type, "llama3")) {
		BAD(r, CKPT_E_UNSUPPORTED,
		    "unsupported rope scaling \"%.40s\"; expected \"llama3\" or \"default\"", type);
		return;
	}
	rope->llama3 = true;
	rope->factor = positive(r, o, "factor", 0);
	rope->low = positive(r, o, "low_freq_factor", 0);
	rope->high = positive(r, o, "high_freq_factor", 0);
	rope->original = count(r, o, "original_max_position_embeddings", true);
	if (!r->rc && !(rope->high > rope->low))
		BAD(r, CKPT_E_CORRUPT, "\"high_freq_factor\" %g is not above "
		    "\"low_freq_factor\" %g", rope->high, rope->low);
}

static void read_rope(struct reader *r, struct en_rope *rope)
{
	const uint64_t v5 = ck_json_given(r->doc, 0, "rope_parameters");
	const uint64_t v4 = ck_json_given(r->doc, 0, "rope_scaling");
	const uint64_t v = v5 != NONE ? v5 : v4;
	double theta = positive(r, 0, "rope_theta", 10000);

	if (v5 != NONE && v4 != NONE) {
		BAD(r, CKPT_E_CORRUPT, "both \"rope_parameters\" and \"rope_scaling\" are given");
		return;
	}
	if (v != NONE) {
		read_rope_object(r, v, rope);
		if (!r->rc)
			theta = positive(r, v, "rope_theta", theta);
	}
	rope->theta = theta;
}

static enum kn_type read_type(struct reader *r)
{
	static const struct {
		const char *name;
		enum kn_type type;
	} types[] = { { "float32", KN_F32 }, { "bfloat16", KN_BF16 }, { "float16", KN_F16 },
		      { "float64", KN_F64 } };
	const char *name = text_of(r, 0, "dtype");

	if (!name)
		name = text_of(r, 0, "torch_dtype");
	if (!name)
		return 0;
	if (!strncmp(name, "torch.", 6))
		name += 6;
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		if (!strcmp(name, types[i].name))
			return types[i].type;
	BAD(r, CKPT_E_UNSUPPORTED, "the weights are of type \"%.40s\"", name);
	return 0;
}

static void read_layer_types(struct reader *r)
{
	const uint64_t list = ck_json_given(r->doc, 0, "layer_types");
	uint64_t v = list + 1;

	if (list == NONE)
		return;
	if (!is(r, list, CK_JSON_ARRAY)) {
		BAD(r, CKPT_E_CORRUPT, "\"layer_types\" is not a list");
		return;
	}
	for (uint32_t i = 0; i < token(r, list)->n; i++, v = token(r, v)->next)
		if (!string(r, v) || strcmp(string(r, v), "full_attention"))
			BAD(r, CKPT_E_UNSUPPORTED,
			    "\"layer_types\" has %.60s; only full_attention is supported",
			    string(r, v) ? string(r, v) : "a value that is not a name");
}

static void read_sizes(struct reader *r, struct en_model_config *c)
{
	c->vocab = count(r, 0, "vocab_size", true);
	c->hidden = count(r, 0, "hidden_size", true);
	c->inter = count(r, 0, "intermediate_size", true);
	c->layers = count(r, 0, "num_hidden_layers", true);
	c->heads = count(r, 0, "num_attention_heads", true);
	/* transformers' defaults for Qwen are constants that fit one size of model: not guessed */
	c->kv_heads = count(r, 0, "num_key_value_heads", c->arch != EN_LLAMA);
	c->head_dim = count(r, 0, "head_dim", c->arch == EN_QWEN3);
	c->max_positions = count(r, 0, "max_position_embeddings", false);
	if (!c->kv_heads)
		c->kv_heads = c->heads;
	if (!c->head_dim && c->heads) {
		c->head_dim = c->hidden / c->heads;
		if (c->hidden % c->heads)
			BAD(r, CKPT_E_CORRUPT, "\"hidden_size\" %u is not divisible by "
			    "\"num_attention_heads\" %u, and \"head_dim\" is missing", c->hidden,
			    c->heads);
	}
}

int en_model_config_check(const struct en_model_config *c, const char *where,
			  struct ckpt_err *err)
{
	const uint64_t q = (uint64_t)c->heads * c->head_dim;
	double total;

	if (!c->vocab || !c->hidden || !c->inter || !c->layers || !c->heads || !c->kv_heads ||
	    !c->head_dim)
		return en_model_fail(err, CKPT_E_CORRUPT, where, "a size of the model is 0");
	if (c->heads % c->kv_heads)
		return en_model_fail(err, CKPT_E_CORRUPT, where,
				     "%u heads cannot share %u key/value heads", c->heads,
				     c->kv_heads);
	if (c->head_dim % 2)
		return en_model_fail(err, CKPT_E_CORRUPT, where,
				     "the head dimension %u is odd, so rope has no halves",
				     c->head_dim);
	total = (double)c->vocab * c->hidden * 2 +
		(double)c->layers * ((double)c->hidden * ((double)q * 4 + (double)c->inter * 3));
	if (total > 0x1p50 || c->layers > 1000000)
		return en_model_fail(
			err, CKPT_E_UNSUPPORTED, where,
			"a model of %g parameters in %u layers exceeds the limits of ztrain", total,
			c->layers);
	return 0;
}

/* The strict reader's refusal, with the byte, as the file's. */
static int parse(struct ck_json *doc, const char *text, size_t nbytes, const char *where,
		 struct ckpt_err *err)
{
	struct ckpt_err why = { 0 };
	int rc;

	if (memchr(text, 0, nbytes))
		return en_model_fail(err, CKPT_E_CORRUPT, where,
				     "binary data; expected the JSON text of a config.json");
	rc = en_json_parse(doc, text, nbytes, EN_MODEL_NODES, where, &why);
	if (rc == -CKPT_E_CORRUPT && doc->twice)
		return en_model_fail(err, CKPT_E_CORRUPT, where, "duplicate key \"%.*s\"",
				     (int)strcspn(text + why.offset + 1, "\""),
				     text + why.offset + 1);
	if (rc == -CKPT_E_CORRUPT)
		return en_model_fail(err, CKPT_E_CORRUPT, where,
				     "not a JSON object (byte %llu: %s)",
				     (unsigned long long)why.offset, why.msg);
	if (rc)
		return en_model_fail(err, why.code, where, "%s", why.msg);
	if (doc->tok[0].type != CK_JSON_OBJECT)
		return en_model_fail(err, CKPT_E_CORRUPT, where, "not a JSON object");
	return 0;
}

int en_model_config_parse(const char *text, size_t nbytes, const char *where,
			  struct en_model_config *out, struct ckpt_err *err)
{
	struct ck_json doc = CK_JSON_INIT;
	struct reader r = { .doc = &doc, .where = where, .err = err };
	struct en_model_config c = { 0 };
	const char *act;

	r.rc = parse(&doc, text, nbytes, where, err);
	if (r.rc)
		goto out;
	c.arch = read_arch(&r);
	check_keys(&r, &c);
	read_sizes(&r, &c);
	c.norm_eps = positive(&r, 0, "rms_norm_eps", 1e-6);
	c.init_range = positive(&r, 0, "initializer_range", 0.02);
	c.tied = flag(&r, 0, "tie_word_embeddings");
	read_rope(&r, &c.rope);
	read_layer_types(&r);
	c.type = read_type(&r);
	act = text_of(&r, 0, "hidden_act");
	if (act && strcmp(act, "silu"))
		BAD(&r, CKPT_E_UNSUPPORTED,
		    "unsupported activation \"%.40s\"; only silu is supported", act);
	if (!r.rc)
		r.rc = en_model_config_check(&c, where, err);
	if (!r.rc)
		*out = c;
out:
	ck_json_release(&doc);
	return r.rc;
}

int en_model_file(const char *path, char **text_out, size_t *n_out, struct ckpt_err *err)
{
	char *text = malloc(CONFIG_MAX_BYTES + 1);
	FILE *f = text ? fopen(path, "rb") : NULL;
	size_t n = 0;
	int rc = 0;

	if (!text)
		return en_model_fail(err, CKPT_E_NOMEM, path, "no memory to read it");
	if (!f) {
		rc = en_model_fail(err, errno == ENOENT || errno == ENOTDIR ? CKPT_E_NOTFOUND :
				   CKPT_E_IO, path, "cannot open: %s", strerror(errno));
		goto out;
	}
	n = fread(text, 1, CONFIG_MAX_BYTES + 1, f);
	if (ferror(f))
		rc = en_model_fail(err, CKPT_E_IO, path, "cannot read: %s", strerror(errno));
	else if (n > CONFIG_MAX_BYTES)
		rc = en_model_fail(err, CKPT_E_LIMIT, path, "larger than %zu bytes",
				   CONFIG_MAX_BYTES);
out:
	if (f)
		fclose(f);
	if (!rc) {
		*text_out = text;
		*n_out = n;
	} else {
		free(text);
	}
	return rc;
}

int en_model_config_read(const char *path, struct en_model_config *out, struct ckpt_err *err)
{
	char *text = NULL;
	size_t n = 0;
	int rc = en_model_file(path, &text, &n, err);

	if (!rc)
		rc = en_model_config_parse(text, n, path, out, err);
	free(text);
	return rc;
}
