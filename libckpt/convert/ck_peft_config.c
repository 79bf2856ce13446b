/* ck_peft_config.c -- see ck_peft_config.h. */
#include "libckpt/convert/ck_peft_config.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/naming/ck_peft_name.h"
#include "libckpt/io/ck_mount.h"

#define MOST ((uint64_t)4 << 20)
#define FILE_NAME "adapter_config.json"

double ck_peft_number(const struct ck_json *doc, uint64_t tok)
{
	const struct ck_json_tok *t;
	char text[40];

	if (tok == UINT64_MAX || doc->tok[tok].type != CK_JSON_NUMBER)
		return 0;
	t = &doc->tok[tok];
	if (t->len >= sizeof(text))
		return 0;
	memcpy(text, doc->text + t->off, t->len);
	text[t->len] = 0;
	return strtod(text, NULL);
}

/* Not null, false, 0, "", [] or {}. */
static bool is_set(const struct ck_json *doc, uint64_t tok)
{
	const struct ck_json_tok *t;

	if (tok == UINT64_MAX)
		return false;
	t = &doc->tok[tok];
	switch ((enum ck_json_type)t->type) {
	case CK_JSON_NULL:
	case CK_JSON_FALSE:
		return false;
	case CK_JSON_STRING:
		return t->str_len;
	case CK_JSON_NUMBER:
		return ck_peft_number(doc, tok) != 0;
	case CK_JSON_ARRAY:
	case CK_JSON_OBJECT:
		return t->n;
	case CK_JSON_TRUE:
		break;
	}
	return true;
}

/* ------------------------------------------------------------------- finding */

/* '*path_out' = dir/sub/adapter_config.json, if it is a file. */
static int look_for(const struct ckpt *ck, struct ck_peft_config *c, const char *dir,
		    const char *sub, struct ckpt_err *err)
{
	const char *path = ck_arena_printf(&c->arena, "%s/%s%s" FILE_NAME, dir, sub ? sub : "",
					   sub ? "/" : "");
	enum ck_fs_kind kind;

	if (!path)
		return ck_fail_nomem(err, "a file name", strlen(dir));
	if (!ck_look_kind(ck->pool, path, &kind, NULL, NULL) && kind == CK_FS_FILE)
		c->path = path;
	return 0;
}

static int look_in(const struct ckpt *ck, struct ck_peft_config *c, const char *dir,
		   const char *adapter, struct ckpt_err *err)
{
	const bool named = adapter && *adapter && strcmp(adapter, "default") != 0;
	int rc = named ? look_for(ck, c, dir, adapter, err) : 0;

	if (!rc && !c->path)
		rc = look_for(ck, c, dir, NULL, err);
	return rc;
}

static int find(const struct ckpt *ck, struct ck_peft_config *c, const char *adapter,
		struct ckpt_err *err)
{
	const char *path = ck->ix.path;
	enum ck_fs_kind kind;
	char *dir, *above;
	int rc = ck_look_kind(ck->pool, path, &kind, NULL, err);

	if (rc)
		return rc;
	dir = kind == CK_FS_DIR ? ck_strdup(path) : ck_fs_parent(path);
	above = dir ? ck_fs_parent(dir) : NULL;
	if (!dir || !above)
		rc = ck_fail_nomem(err, "a file name", strlen(path));
	if (!rc)
		rc = look_in(ck, c, dir, adapter, err);
	if (!rc && !c->path)
		rc = look_in(ck, c, above, adapter, err);
	ck_free(above);
	ck_free(dir);
	return rc;
}

/* ------------------------------------------------------------------- reading */

static bool is_true(const struct ck_json *doc, const char *key)
{
	const uint64_t tok = ck_json_get(doc, 0, key);

	return tok != UINT64_MAX && doc->tok[tok].type == CK_JSON_TRUE;
}

static int take_values(struct ck_peft_config *c, struct ckpt_err *err)
{
	const struct ck_json *doc = &c->doc;
	uint64_t tok;

	if (!doc->n || doc->tok[0].type != CK_JSON_OBJECT)
		return ck_fail(err, CKPT_E_CORRUPT, c->path, 0, "this is no JSON object");
	tok = ck_json_get(doc, 0, "peft_type");
	if (tok == UINT64_MAX || doc->tok[tok].type != CK_JSON_STRING)
		return ck_fail(err, CKPT_E_CORRUPT, c->path, CKPT_NO_OFFSET,
			       "it has no \"peft_type\", so it is no configuration of PEFT");
	c->method = doc->tok[tok].str;
	if (strcmp(c->method, "LORA") != 0)
		return ck_fail(err, CKPT_E_UNSUPPORTED, c->path, doc->tok[tok].off,
			       "the method is %.60s, and zckpt knows LoRA alone; save and merge "
			       "this adapter with PEFT itself", c->method);
	c->alpha = ck_peft_number(doc, ck_json_get(doc, 0, "lora_alpha"));
	c->r = ck_peft_number(doc, ck_json_get(doc, 0, "r"));
	c->rslora = is_true(doc, "use_rslora");
	c->fan_in_fan_out = is_true(doc, "fan_in_fan_out");
	return 0;
}

int ck_peft_config_read(const struct ckpt *ck, const char *path, const char *adapter,
			struct ck_peft_config *out, struct ckpt_err *err)
{
	uint64_t len;
	int rc = 0;

	out->path = path;
	if (!path)
		rc = find(ck, out, adapter, err);
	if (rc || !out->path)
		return rc;
	rc = ck_look_read(path ? NULL : ck->pool, out->path, MOST, &out->text, &len, err);
	if (!rc)
		rc = ck_json_parse(&out->doc, out->text, len, &ck->limits, 0, out->path, err);
	return rc ? rc : take_values(out, err);
}

void ck_peft_config_release(struct ck_peft_config *c)
{
	ck_json_release(&c->doc);
	ck_free(c->text);
	ck_arena_release(&c->arena);
	*c = (struct ck_peft_config)CK_PEFT_CONFIG_INIT;
}

/* ------------------------------------------------------------------- asking */

/* Keys that make another function of A and B, and what it is called. */
static const struct {
	const char *key, *what;
} beyond[] = {
	{ "use_dora", "DoRA" },
	{ "lora_bias", "a bias of B" },
	{ "layer_replication", "replicated layers" },
	{ "target_parameters", "LoRA of bare parameters" },
	{ "trainable_token_indices", "trained rows of the embedding" },
	{ "use_qalora", "QALoRA" },
	{ "use_bdlora", "block-diagonal LoRA" },
	{ "kasa_config", "KaSA" },
	{ "arrow_config", "Arrow" },
	{ "alora_invocation_tokens", "aLoRA" },
};

/* Initialisations that take their first A and B out of the base's weights. */
static const char *const from_base[] = { "pissa", "olora", "corda", "loftq", "lora_ga" };

int ck_peft_config_check_merge(const struct ck_peft_config *c, struct ckpt_err *err)
{
	const struct ck_json *doc = &c->doc;
	uint64_t tok;

	if (!c->path)
		return 0;
	for (size_t i = 0; i < CK_ARRAY_LEN(beyond); i++)
		if (is_set(doc, ck_json_get(doc, 0, beyond[i].key)))
			return ck_fail(err, CKPT_E_UNSUPPORTED, c->path, CKPT_NO_OFFSET,
				       "\"%s\" is set: zckpt does not merge %s; PEFT's "
				       "merge_and_unload() does", beyond[i].key, beyond[i].what);
	tok = ck_json_get(doc, 0, "init_lora_weights");
	for (size_t i = 0; tok != UINT64_MAX && doc->tok[tok].type == CK_JSON_STRING &&
		i < CK_ARRAY_LEN(from_base); i++)
		if (!strncmp(doc->tok[tok].str, from_base[i], strlen(from_base[i])))
			return ck_fail(err, CKPT_E_UNSUPPORTED, c->path, doc->tok[tok].off,
				       "\"init_lora_weights\" is \"%.40s\", which changed the "
				       "weights of the base before training, and the base does not "
				       "have those; merge with PEFT itself", doc->tok[tok].str);
	return 0;
}

/* The value of the first key of an object that fits the module, or UINT64_MAX. */
static int find_pattern(const struct ck_peft_config *c, const char *key, const char *module,
			uint64_t *tok_out, struct ckpt_err *err)
{
	const struct ck_json_tok *tok = c->doc.tok;
	const uint64_t obj = c->path ? ck_json_given(&c->doc, 0, key) : UINT64_MAX;
	bool known = true;

	*tok_out = UINT64_MAX;
	if (obj == UINT64_MAX || tok[obj].type != CK_JSON_OBJECT)
		return 0;
	for (uint64_t t = obj + 1; t < tok[obj].next; t = tok[t + 1].next) {
		if (ck_peft_pattern_fits(tok[t].str, module, &known)) {
			*tok_out = t + 1;
			return 0;
		}
		if (!known)
			return ck_fail(err, CKPT_E_UNSUPPORTED, c->path, tok[t].off,
				       "%s: \"%.100s\" is a regular expression; zckpt compares the "
				       "ends of names alone", key, tok[t].str);
	}
	return 0;
}

int ck_peft_config_of(const struct ck_peft_config *c, const char *module, double *alpha_out,
		      double *r_out, struct ckpt_err *err)
{
	uint64_t tok;
	int rc = find_pattern(c, "alpha_pattern", module, &tok, err);

	if (rc)
		return rc;
	*alpha_out = tok == UINT64_MAX ? c->alpha : ck_peft_number(&c->doc, tok);
	rc = find_pattern(c, "rank_pattern", module, &tok, err);
	if (!rc)
		*r_out = tok == UINT64_MAX ? c->r : ck_peft_number(&c->doc, tok);
	return rc;
}
