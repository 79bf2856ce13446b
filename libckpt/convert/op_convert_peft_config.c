/*
 * op_convert_peft_config.c -- the adapter_config.json that `convert --to peft` writes: the one
 * beside the step where there is one, compared with the tensors, else made of their shapes and
 * names and of what the caller says.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/ck_buf.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/base/ck_text.h"
#include "libckpt/naming/ck_peft_name.h"
#include "libckpt/convert/op_convert.h"

#define MOST ((uint64_t)16 << 20)

/* A module with an A, and its rank. */
struct module {
	const char *name;	/* without wrappers */
	uint64_t r;
};

/* The end of names of modules, and whether it means those with an A and no others. */
struct end {
	const char *name;
	bool fits;
};

struct making {
	struct ck_cv *cv;
	struct module *module;
	uint64_t n, cap;
	const char **saved;	/* modules that are trained as a whole */
	uint64_t nsaved, saved_cap;
	struct end *end;
	uint64_t nends, end_cap;
	uint64_t r;		/* of most of them */
	bool dora, b_bias, bias, other_bias;
	struct ck_buf buf;
};

static const char *last_part(const char *name)
{
	const char *dot = strrchr(name, '.');

	return dot ? dot + 1 : name;
}

/* ------------------------------------------------------------------ what is there */

static int add_module(struct making *m, const struct ck_item *item, const struct ck_peft_name *p,
		      struct ckpt_err *err)
{
	const struct ck_tensor *t = &m->cv->ck->ix.tensor[item->tensor];
	struct module mod = { .name = ck_peft_plain(&m->cv->arena, t->name, p->module_len) };
	int rc = mod.name ? 0 : ck_fail_nomem(err, "a name", p->module_len);

	if (!rc && (t->ndim < 2 || !t->shape[0]))
		return ck_fail(err, CKPT_E_MISMATCH, t->name, CKPT_NO_OFFSET,
			       "its rank is not known: it has %u dimension%s, the first of size "
			       "%" PRIu64 " (a placeholder of a ZeRO-3 run?)", t->ndim,
			       t->ndim == 1 ? "" : "s", t->ndim ? t->shape[0] : 0);
	if (!rc)
		rc = ck_grow(&m->module, &m->cap, m->n + 1, sizeof(mod), err);
	if (!rc) {
		mod.r = t->shape[0];
		m->module[m->n++] = mod;
	}
	return rc;
}

static int add_saved(struct making *m, const char *name, struct ckpt_err *err)
{
	int rc = 0;

	for (uint64_t i = 0; i < m->nsaved; i++)
		if (!strcmp(m->saved[i], name))
			return 0;
	rc = ck_grow(&m->saved, &m->saved_cap, m->nsaved + 1, sizeof(*m->saved), err);
	if (!rc)
		m->saved[m->nsaved++] = name;
	return rc;
}

/* Of PEFT's own file without its configuration: "lm_head.weight" is of a saved module too. */
static int add_plain(struct making *m, const char *name, struct ckpt_err *err)
{
	const char *plain = ck_peft_plain(&m->cv->arena, name, strlen(name));
	char *dot;

	if (!plain)
		return ck_fail_nomem(err, "a name", strlen(name));
	if (ck_ends_with(plain, ".bias")) {
		m->bias = true;
		m->other_bias |= !strstr(name, ".base_layer.");
		return 0;
	}
	dot = strrchr((char *)(uintptr_t)plain, '.');
	if (dot)
		*dot = 0;
	return add_saved(m, last_part(plain), err);
}

static int look_at_item(struct making *m, const struct ck_item *item, struct ckpt_err *err)
{
	const char *name = m->cv->ck->ix.tensor[item->tensor].name, *plain;
	struct ck_peft_name p;

	ck_peft_name_parse(name, &p);
	m->dora |= p.part == CK_PEFT_MAGNITUDE;
	m->b_bias |= p.part == CK_PEFT_B_BIAS;
	if (p.part == CK_PEFT_A || p.part == CK_PEFT_EMBED_A)
		return add_module(m, item, &p, err);
	if (p.part == CK_PEFT_NONE)
		return add_plain(m, name, err);
	if (p.part != CK_PEFT_SAVED)
		return 0;
	plain = ck_peft_plain(&m->cv->arena, name, p.module_len);
	return plain ? add_saved(m, last_part(plain), err) :
		       ck_fail_nomem(err, "a name", p.module_len);
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct module *)a)->name, ((const struct module *)b)->name);
}

static int by_rank(const void *a, const void *b)
{
	const struct module *x = a, *y = b;

	return x->r != y->r ? (x->r < y->r ? -1 : 1) : by_name(a, b);
}

/* The rank that most modules have. */
static void find_rank(struct making *m)
{
	uint64_t most = 0;

	qsort(m->module, m->n, sizeof(*m->module), by_rank);
	for (uint64_t i = 0, from = 0; i < m->n; i++) {
		if (m->module[i].r != m->module[from].r)
			from = i;
		if (i - from + 1 > most) {
			most = i - from + 1;
			m->r = m->module[i].r;
		}
	}
	qsort(m->module, m->n, sizeof(*m->module), by_name);
}

static int look_at_all(struct making *m, struct ckpt_err *err)
{
	const struct ck_cv_set *set = &m->cv->set[0];
	int rc = 0;

	for (uint64_t i = 0; !rc && i < set->nitems; i++)
		rc = look_at_item(m, &set->item[i], err);
	if (!rc && !m->n)
		return ck_fail(err, CKPT_E_USAGE, m->cv->ck->ix.path, CKPT_NO_OFFSET,
			       "nothing of the adapter is selected");
	find_rank(m);
	return rc;
}

/* ----------------------------------------------------------------- target_modules */

static bool has_module(const struct making *m, const char *name)
{
	const struct module key = { .name = name };

	return bsearch(&key, m->module, m->n, sizeof(key), by_name);
}

/* The number of the layer, or -1: "model.layers.12.mlp" has 12. */
static int64_t layer_of(const char *name)
{
	for (const char *p = strchr(name, '.'); p; p = strchr(p + 1, '.')) {
		char *end;
		const unsigned long long n = p[1] >= '0' && p[1] <= '9' ?
					     strtoull(p + 1, &end, 10) : 0;

		if (p[1] >= '0' && p[1] <= '9' && *end == '.' && n < UINT32_MAX)
			return (int64_t)n;
	}
	return -1;
}

/* Modules of every layer from 0 to 'top' have this end of their names, as many in each. */
static bool fills_layers(const struct making *m, const char *end, int64_t top)
{
	int64_t count = 0, most = -1, least = INT64_MAX;

	for (uint64_t i = 0; i < m->n; i++) {
		const int64_t layer = layer_of(m->module[i].name);

		if (strcmp(last_part(m->module[i].name), end))
			continue;
		count++;
		most = layer > most ? layer : most;
		least = layer < least ? layer : least;
	}
	return most < 0 || (!least && most == top && !(count % (top + 1)));
}

/* No module of the model that ends so is without an adapter, as far as the checkpoint has it. */
static int fits_all(const struct making *m, const char *end, bool *fits_out, struct ckpt_err *err)
{
	const struct ck_index *ix = &m->cv->ck->ix;
	int64_t top = -1;

	for (uint64_t i = 0; i < m->n; i++) {
		const int64_t layer = layer_of(m->module[i].name);

		top = layer > top ? layer : top;
	}
	*fits_out = fills_layers(m, end, top);
	for (uint64_t i = 0; *fits_out && i < ix->ntensors; i++) {
		const char *name = ix->tensor[i].name, *plain;
		struct ck_peft_name p;

		ck_peft_name_parse(name, &p);
		if (p.part != CK_PEFT_NONE || !ck_ends_with(name, ".weight") ||
		    !strstr(name, end))
			continue;
		plain = ck_peft_plain(&m->cv->arena, name, strlen(name) - strlen(".weight"));
		if (!plain)
			return ck_fail_nomem(err, "a name", strlen(name));
		*fits_out = strcmp(last_part(plain), end) || has_module(m, plain);
	}
	return 0;
}

static int add_text(struct making *m, const char *before, const char *text, struct ckpt_err *err)
{
	int rc = ck_buf_adds(&m->buf, before, err);

	return rc ? rc : ck_buf_add_json(&m->buf, text, strlen(text), err);
}

static int add_end(struct making *m, const char *name, struct ckpt_err *err)
{
	struct end end = { .name = name };
	int rc = fits_all(m, name, &end.fits, err);

	if (!rc)
		rc = ck_grow(&m->end, &m->end_cap, m->nends + 1, sizeof(end), err);
	if (!rc)
		m->end[m->nends++] = end;
	return rc;
}

/* Ends of names ("q_proj") where they mean these modules and no others, else whole names. */
static int add_targets(struct making *m, struct ckpt_err *err)
{
	const char *between = "[\n    ";
	int rc = 0;

	for (uint64_t i = 0; !rc && i < m->n; i++) {
		const char *name = m->module[i].name, *end = last_part(name);
		uint64_t k = 0;

		while (k < m->nends && strcmp(m->end[k].name, end))
			k++;
		if (k < m->nends && m->end[k].fits)
			continue;
		if (k == m->nends)
			rc = add_end(m, end, err);
		if (!rc)
			rc = add_text(m, between, m->end[k].fits ? end : name, err);
		between = ",\n    ";
	}
	return rc ? rc : ck_buf_adds(&m->buf, "\n  ]", err);
}

static int add_saved_list(struct making *m, struct ckpt_err *err)
{
	int rc = 0;

	if (!m->nsaved)
		return ck_buf_adds(&m->buf, "null", err);
	for (uint64_t i = 0; !rc && i < m->nsaved; i++)
		rc = add_text(m, i ? ",\n    " : "[\n    ", m->saved[i], err);
	return rc ? rc : ck_buf_adds(&m->buf, "\n  ]", err);
}

static int add_ranks(struct making *m, struct ckpt_err *err)
{
	const char *between = "{\n    ";
	int rc = 0;

	for (uint64_t i = 0; !rc && i < m->n; i++) {
		if (m->module[i].r == m->r)
			continue;
		rc = add_text(m, between, m->module[i].name, err);
		if (!rc)
			rc = ck_buf_addf(&m->buf, err, ": %" PRIu64, m->module[i].r);
		between = ",\n    ";
	}
	return rc ? rc : ck_buf_adds(&m->buf, *between == '{' ? "{}" : "\n  }", err);
}

/* ---------------------------------------------------------------------- the text */

/* The shortest decimal that is the same number. */
static int add_number(struct making *m, double v, struct ckpt_err *err)
{
	char text[40];

	for (int digits = 1; digits <= 17; digits++) {
		snprintf(text, sizeof(text), "%.*g", digits, v);
		if (strtod(text, NULL) == v)
			break;
	}
	if (v >= 0 && v < 1e15 && v == (double)(uint64_t)v)
		snprintf(text, sizeof(text), "%" PRIu64, (uint64_t)v);
	return ck_buf_adds(&m->buf, text, err);
}

static int add_string(struct making *m, const char *text, struct ckpt_err *err)
{
	return text ? ck_buf_add_json(&m->buf, text, strlen(text), err) :
		      ck_buf_adds(&m->buf, "null", err);
}

/* What the caller gives in place of a key of the file; false: nothing. */
static bool is_given(const struct ckpt_peft_opts *o, const char *key)
{
	return (!strcmp(key, "lora_alpha") && o->alpha > 0) ||
	       (!strcmp(key, "lora_dropout") && o->dropout > 0) ||
	       (!strcmp(key, "bias") && o->bias) || (!strcmp(key, "task_type") && o->task_type) ||
	       (!strcmp(key, "base_model_name_or_path") && o->base_model) ||
	       (!strcmp(key, "use_rslora") && o->rslora) || !strcmp(key, "inference_mode");
}

static const char *bias_of(const struct making *m)
{
	const char *asked = m->cv->opts->peft->bias;

	return asked ? asked : !m->bias ? "none" : m->other_bias ? "all" : "lora_only";
}

/* The value of a key that follows from tensors and the call. */
static int add_value(struct making *m, const char *key, struct ckpt_err *err)
{
	const struct ckpt_peft_opts *o = m->cv->opts->peft;

	if (!strcmp(key, "base_model_name_or_path"))
		return add_string(m, o->base_model, err);
	if (!strcmp(key, "bias"))
		return add_string(m, bias_of(m), err);
	if (!strcmp(key, "lora_alpha"))
		return add_number(m, o->alpha, err);
	if (!strcmp(key, "lora_dropout"))
		return add_number(m, o->dropout, err);
	if (!strcmp(key, "r"))
		return add_number(m, (double)m->r, err);
	if (!strcmp(key, "task_type"))
		return add_string(m, o->task_type, err);
	if (!strcmp(key, "target_modules"))
		return add_targets(m, err);
	if (!strcmp(key, "modules_to_save"))
		return add_saved_list(m, err);
	if (!strcmp(key, "rank_pattern"))
		return add_ranks(m, err);
	if (!strcmp(key, "alpha_pattern"))
		return ck_buf_adds(&m->buf, "{}", err);
	if (!strcmp(key, "peft_type"))
		return add_string(m, "LORA", err);
	return ck_buf_adds(&m->buf, !strcmp(key, "inference_mode") ||
			   (!strcmp(key, "use_dora") && m->dora) ||
			   (!strcmp(key, "lora_bias") && m->b_bias) ||
			   (!strcmp(key, "use_rslora") && o->rslora) ||
			   !strcmp(key, "init_lora_weights") ? "true" : "false", err);
}

static int make_new(struct making *m, struct ckpt_err *err)
{
	static const char *const keys[] = {
		"alpha_pattern", "base_model_name_or_path", "bias", "fan_in_fan_out",
		"inference_mode", "init_lora_weights", "lora_alpha", "lora_bias", "lora_dropout",
		"modules_to_save", "peft_type", "r", "rank_pattern", "target_modules",
		"task_type", "use_dora", "use_rslora",
	};
	int rc = 0;

	if (!(m->cv->opts->peft->alpha > 0))
		return ck_fail(err, CKPT_E_USAGE, m->cv->ck->ix.path, CKPT_NO_OFFSET,
			       "the alpha of LoRA is in no tensor, and no adapter_config.json is "
			       "beside it; give --lora-alpha N as the run had it (r is %" PRIu64
			       "), or --adapter-config FILE", m->r);
	for (size_t i = 0; !rc && i < CK_ARRAY_LEN(keys); i++) {
		/* keys that older versions of PEFT do not know are there only if they say more */
		if (!strcmp(keys[i], "lora_bias") && !m->b_bias)
			continue;
		rc = ck_buf_addf(&m->buf, err, "%s\n  \"%s\": ", i ? "," : "{", keys[i]);
		if (!rc)
			rc = add_value(m, keys[i], err);
	}
	return rc ? rc : ck_buf_adds(&m->buf, "\n}\n", err);
}

/* Every key of the file as it is, but for what the caller gives. */
static int make_copy(struct making *m, struct ckpt_err *err)
{
	const struct ckpt_peft_opts *o = m->cv->opts->peft;
	const struct ck_json *doc = &m->cv->peft_config.doc;
	const char *between = "{\n  ";
	int rc = 0;

	for (uint64_t t = 1; !rc && t < doc->tok[0].next; t = doc->tok[t + 1].next) {
		const struct ck_json_tok *v = &doc->tok[t + 1];

		rc = add_text(m, between, doc->tok[t].str, err);
		between = ",\n  ";
		if (!rc)
			rc = ck_buf_adds(&m->buf, ": ", err);
		if (!rc)
			rc = is_given(o, doc->tok[t].str) ?
			     add_value(m, doc->tok[t].str, err) :
			     ck_buf_add(&m->buf, doc->text + v->off, v->len, err);
	}
	return rc ? rc : ck_buf_adds(&m->buf, "\n}\n", err);
}

static int check_ranks(const struct making *m, struct ckpt_err *err)
{
	const struct ck_peft_config *c = &m->cv->peft_config;
	int rc = 0;

	if (!(c->alpha > 0) && !(m->cv->opts->peft->alpha > 0))
		return ck_fail(err, CKPT_E_USAGE, c->path, CKPT_NO_OFFSET,
			       "it has no \"lora_alpha\"; give --lora-alpha N as the run had it");
	for (uint64_t i = 0; !rc && i < m->n; i++) {
		double alpha, r = 0;

		rc = ck_peft_config_of(c, m->module[i].name, &alpha, &r, err);
		if (!rc && r > 0 && r != (double)m->module[i].r)
			rc = ck_fail(err, CKPT_E_MISMATCH, c->path, CKPT_NO_OFFSET,
				     "r is %g here, but the matrix A of %.120s has %" PRIu64
				     " row%s: it is the configuration of another run", r,
				     m->module[i].name, m->module[i].r,
				     m->module[i].r == 1 ? "" : "s");
	}
	return rc;
}

int ck_cv_peft_config(struct ck_cv *cv, struct ckpt_err *err)
{
	struct making m = { .cv = cv, .buf = CK_BUF_INIT(MOST) };
	struct ck_cv_aux aux = { .name = "adapter_config.json" };
	int rc = look_at_all(&m, err);

	if (!rc)
		rc = cv->peft_config.path ? check_ranks(&m, err) : 0;
	if (!rc)
		rc = cv->peft_config.path ? make_copy(&m, err) : make_new(&m, err);
	if (!rc) {
		cv->config_text = ck_arena_strdup(&cv->arena, m.buf.p);
		aux.bytes = m.buf.len;
		if (!cv->config_text)
			rc = ck_fail_nomem(err, "a configuration", m.buf.len);
	}
	if (!rc)
		rc = ck_grow(&cv->aux, &cv->aux_cap, cv->naux + 1, sizeof(aux), err);
	if (!rc)
		cv->aux[cv->naux++] = aux;
	ck_buf_release(&m.buf);
	ck_free(m.saved);
	ck_free(m.end);
	ck_free(m.module);
	return rc;
}
