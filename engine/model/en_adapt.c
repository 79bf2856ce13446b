/* en_adapt.c -- see en_adapt.h. */
#include "engine/model/en_adapt.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/en_json.h"
#include "engine/model/en_model_priv.h"

#define ALL ((1u << EN_LINEARS) - 1)
#define DEFAULT (1u << EN_LINEAR_Q | 1u << EN_LINEAR_V)
#define NONE UINT64_MAX

static const struct en_lora usual = { .r = 8, .alpha = 8, .targets = DEFAULT };

/* ---- targets ---- */

/* 'text' is the word; in an option '-' and '_' are the same. */
static bool is_word(const char *text, size_t n, const char *word, bool is_option)
{
	size_t i = 0;

	while (i < n && word[i] && (text[i] == word[i] || (is_option &&
	       strchr("-_", text[i]) && strchr("-_", word[i]))))
		i++;
	return i == n && !word[i];
}

/* A module's name, or the end of its path.  'where' NULL: in the option. */
static int add_target(const char *name, size_t n, unsigned *targets, const char *where,
		      struct ckpt_err *err)
{
	for (size_t i = n; i-- > 0;)
		if (name[i] == '.') {
			name += i + 1;
			n -= i + 1;
			break;
		}
	if (!n && !where)
		return en_model_fail(err, CKPT_E_USAGE, "--lora", "target= has an empty name; "
				     "expected target=q_proj+v_proj, or all-linear");
	if (is_word(name, n, "all-linear", !where)) {
		*targets |= ALL;
		return 0;
	}
	for (uint32_t i = 0; i < EN_LINEARS; i++)
		if (is_word(name, n, en_linear_name((enum en_linear)i), !where)) {
			*targets |= 1u << i;
			return 0;
		}
	return en_model_fail(err, CKPT_E_UNSUPPORTED, where ? where : "--lora",
			     "no adapter for a module %.*s; expected q_proj, k_proj, v_proj, "
			     "o_proj, gate_proj, up_proj, down_proj or all-linear", (int)n, name);
}

static int add_targets(const char *text, size_t n, unsigned *targets, struct ckpt_err *err)
{
	int rc = 0;

	for (size_t at = 0; !rc && at <= n;) {
		size_t len = 0;

		while (at + len < n && text[at + len] != '+')
			len++;
		rc = add_target(text + at, len, targets, NULL, err);
		at += len + 1;
	}
	return rc;
}

/* ---- the option ---- */

static int bad(struct ckpt_err *err, const char *text, size_t n, const char *what)
{
	return en_model_fail(err, CKPT_E_USAGE, "--lora", "%.*s: %s", (int)n, text, what);
}

static bool number(const char *text, size_t n, double *out)
{
	char copy[40], *end;

	if (!n || n >= sizeof(copy))
		return false;
	memcpy(copy, text, n);
	copy[n] = 0;
	*out = strtod(copy, &end);
	return !*end && isfinite(*out);
}

static bool is_key(const char *text, size_t n, const char *key)
{
	return strlen(key) == n && !strncmp(text, key, n);
}

/* "r=8": the value is [n) of 'value'. */
static int set_key(struct en_lora *l, const char *text, size_t key, const char *value, size_t n,
	       struct ckpt_err *err)
{
	double v = 0;
	const bool is = number(value, n, &v);

	if (is_key(text, key, "r")) {
		if (!is || v < 1 || v > 65536 || v != floor(v))
			return bad(err, text, key + 1 + n, "expected a rank from 1 to 65536");
		l->r = (uint32_t)v;
	} else if (is_key(text, key, "alpha")) {
		if (!is || v <= 0)
			return bad(err, text, key + 1 + n, "expected a number above 0");
		l->alpha = v;
	} else if (is_key(text, key, "dropout")) {
		if (!is || v < 0 || v >= 1)
			return bad(err, text, key + 1 + n, "expected 0 or a number below 1");
		l->dropout = v;
	} else {
		return bad(err, text, key, "unknown key; expected r, alpha, dropout, target or "
			   "rslora");
	}
	return 0;
}

int en_lora_parse(const char *text, struct en_lora *lora, struct ckpt_err *err)
{
	struct en_lora l = lora->r ? *lora : usual;
	unsigned targets = 0;
	bool listing = false;
	int rc = 0;

	for (const char *p = text; !rc && *p;) {
		const size_t n = strcspn(p, ","), key = strcspn(p, "=,");

		if (key < n && is_key(p, key, "target")) {
			listing = true;
			rc = add_targets(p + key + 1, n - key - 1, &targets, err);
		} else if (key < n) {
			listing = false;
			rc = set_key(&l, p, key, p + key + 1, n - key - 1, err);
		} else if (is_key(p, n, "rslora")) {
			l.rslora = true;
		} else if (listing) {
			rc = add_targets(p, n, &targets, err);
		} else if (!n) {
			rc = en_model_fail(err, CKPT_E_USAGE, "--lora", "%s: a comma without a "
					   "key after it", text);
		} else {
			rc = bad(err, p, n, "expected r=N, alpha=A, dropout=P, "
				 "target=NAME+NAME or rslora");
		}
		p += n + (p[n] == ',');
	}
	if (rc)
		return rc;
	if (targets)
		l.targets = targets;
	*lora = l;
	return 0;
}

void en_lora_text(const struct en_lora *l, char out[EN_LORA_TEXT])
{
	char drop[40] = "";
	size_t n;

	if (!l->r) {
		snprintf(out, EN_LORA_TEXT, "none");
		return;
	}
	if (l->dropout > 0)
		snprintf(drop, sizeof(drop), ",dropout=%.12g", l->dropout);
	n = (size_t)snprintf(out, EN_LORA_TEXT, "r=%u,alpha=%.12g%s%s,target=", l->r, l->alpha,
			     drop, l->rslora ? ",rslora" : "");
	for (uint32_t i = 0; i < EN_LINEARS; i++)
		if (l->targets & 1u << i)
			n += (size_t)snprintf(out + n, EN_LORA_TEXT - n, "%s%s",
					      out[n - 1] == '=' ? "" : "+",
					      en_linear_name((enum en_linear)i));
}

/* ---- PEFT's file ---- */

/* Kinds of adapters that are not built; null, false and these are as if absent. */
static const struct {
	const char *key, *off;
} off[] = {
	{ "bias", "none" }, { "use_dora", NULL }, { "modules_to_save", NULL },
	{ "rank_pattern", NULL }, { "alpha_pattern", NULL }, { "layers_to_transform", NULL },
	{ "layer_replication", NULL }, { "target_parameters", NULL }, { "use_qalora", NULL },
	{ "lora_bias", NULL }, { "fan_in_fan_out", NULL }, { "trainable_token_indices", NULL },
	{ "exclude_modules", NULL }, { "alora_invocation_tokens", NULL },
};

static bool is_off(const struct ck_json *doc, uint64_t v, const char *text)
{
	const struct ck_json_tok *t = v == NONE ? NULL : &doc->tok[v];

	if (!t || t->type == CK_JSON_FALSE || t->type == CK_JSON_NULL)
		return true;
	if (t->type == CK_JSON_STRING)
		return text && !strcmp(t->str, text);
	return (t->type == CK_JSON_ARRAY || t->type == CK_JSON_OBJECT) && !t->n;
}

static int take_targets(const struct ck_json *doc, uint64_t v, const char *where,
			unsigned *targets, struct ckpt_err *err)
{
	const bool is_list = v != NONE && doc->tok[v].type == CK_JSON_ARRAY;
	const bool is_text = v != NONE && doc->tok[v].type == CK_JSON_STRING;
	const uint32_t n = is_list ? doc->tok[v].n : 1;
	int rc = 0;

	*targets = v == NONE ? DEFAULT : 0;
	if (is_text && strpbrk(doc->tok[v].str, "*+?()[]|^$\\"))
		return 0;	/* a regular expression */
	for (uint32_t i = 0; !rc && v != NONE && i < n; i++) {
		const struct ck_json_tok *t = &doc->tok[is_list && !i ? ++v : v];

		rc = t->type == CK_JSON_STRING ?
		     add_target(t->str, strlen(t->str), targets, where, err) :
		     en_model_fail(err, CKPT_E_CORRUPT, where, "target_modules is no list of "
				   "names");
		v = t->next;
	}
	return rc;
}

static int take_config(const struct ck_json *doc, const char *where, struct en_lora *out,
		       struct ckpt_err *err)
{
	const uint64_t r = ck_json_given(doc, 0, "r"), alpha = ck_json_given(doc, 0, "lora_alpha");
	const uint64_t drop = ck_json_given(doc, 0, "lora_dropout");
	const uint64_t rs = ck_json_given(doc, 0, "use_rslora");
	const uint64_t kind = ck_json_given(doc, 0, "peft_type");
	double rank = 8;

	*out = usual;
	if (kind != NONE && (doc->tok[kind].type != CK_JSON_STRING ||
			     strcmp(doc->tok[kind].str, "LORA")))
		return en_model_fail(err, CKPT_E_UNSUPPORTED, where, "peft_type is not LORA");
	if ((r != NONE && !en_json_double(doc, r, &rank)) || rank < 1 || rank > 65536 ||
	    rank != floor(rank) || (alpha != NONE && !en_json_double(doc, alpha, &out->alpha)) ||
	    (drop != NONE && !en_json_double(doc, drop, &out->dropout)) ||
	    !(out->dropout >= 0) || out->dropout >= 1)
		return en_model_fail(err, CKPT_E_CORRUPT, where, "r, lora_alpha or lora_dropout "
				     "is not a number in its range");
	for (size_t i = 0; i < sizeof(off) / sizeof(off[0]); i++)
		if (!is_off(doc, ck_json_given(doc, 0, off[i].key), off[i].off))
			return en_model_fail(err, CKPT_E_UNSUPPORTED, where,
					     "%s is set, which ztrain does not train", off[i].key);
	out->r = (uint32_t)rank;
	out->rslora = rs != NONE && doc->tok[rs].type == CK_JSON_TRUE;
	return take_targets(doc, ck_json_given(doc, 0, "target_modules"), where, &out->targets,
			    err);
}

int en_lora_read(const char *dir, struct en_lora *out, struct ckpt_err *err)
{
	struct ck_json doc = CK_JSON_INIT;
	char path[4096], *text = NULL;
	size_t n;
	int rc;

	snprintf(path, sizeof(path), "%s/adapter_config.json", dir);
	rc = en_model_file(path, &text, &n, err);
	if (rc == -CKPT_E_NOTFOUND && err)
		*err = (struct ckpt_err){ 0 };
	if (rc == -CKPT_E_NOTFOUND)
		return en_model_fail(err, CKPT_E_NOTFOUND, path, "no such file; --lora-from "
				     "expects the folder that PEFT saves an adapter in");
	if (!rc)
		rc = en_json_parse(&doc, text, n, EN_MODEL_NODES, path, err);
	if (!rc && doc.tok[0].type != CK_JSON_OBJECT)
		rc = en_model_fail(err, CKPT_E_CORRUPT, path, "not a JSON object");
	if (!rc)
		rc = take_config(&doc, path, out, err);
	ck_json_release(&doc);
	free(text);
	return rc;
}
