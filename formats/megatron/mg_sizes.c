/* mg_sizes.c -- see mg_sizes.h. */
#include "formats/megatron/mg_sizes.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"

#define MOST_LAYERS UINT64_C(100000)
#define MOST_EXPERTS UINT64_C(1000000)

struct filling {
	struct mg_sizes *s;
	const struct mg_map *map;
	const struct mg_config *config;
	const struct ck_val *args;
	struct ckpt_err *err;
};

/* ------------------------------------------------------------- one value of the two */

static uint64_t token(const struct filling *f, const char *key)
{
	return f->config ? ck_json_given(&f->config->doc, 0, key) : UINT64_MAX;
}

static int config_number(const struct filling *f, const char *key, uint64_t *out, bool *has_out)
{
	const uint64_t tok = token(f, key);

	*has_out = tok != UINT64_MAX;
	if (*has_out && !ck_json_u64(&f->config->doc, tok, out))
		return ck_fail(f->err, CKPT_E_FORMAT, f->config->path,
			       f->config->doc.tok[tok].off, "%s is no whole number", key);
	return 0;
}

/*
 * None is as if it were missing.  num_query_groups has a default, 1, that does not count without
 * group_query_attention: there are as many as heads.
 */
static bool arg_number(const struct filling *f, const char *arg, uint64_t *out)
{
	const struct ck_val *v = arg ? ck_val_get(f->args, arg) : NULL;
	const struct ck_val *grouped = ck_val_get(f->args, "group_query_attention");
	int64_t n;

	if (!v || !ck_val_int(v, &n) || n < 0)
		return false;
	if (!strcmp(arg, "num_query_groups") && grouped && grouped->kind == CK_VAL_BOOL &&
	    !grouped->u.b)
		return arg_number(f, "num_attention_heads", out);
	*out = (uint64_t)n;
	return true;
}

static int fill_size(struct filling *f, uint64_t i)
{
	const struct mg_map_size *size = &f->map->size[i];
	struct mg_sizes *s = f->s;
	uint64_t arg = 0;
	const bool has_arg = arg_number(f, size->arg, &arg);
	int rc = config_number(f, size->key, &s->value[i], &s->known[i]);

	if (rc)
		return rc;
	if (s->known[i] && has_arg && size->same && arg != s->value[i])
		return ck_fail(f->err, CKPT_E_MISMATCH, f->config->path, CKPT_NO_OFFSET,
			       "%s is %" PRIu64 ", and the run was started with %s %" PRIu64
			       ": this is another model's configuration", size->key, s->value[i],
			       size->arg, arg);
	if (!s->known[i] && has_arg) {
		s->value[i] = arg;
		s->known[i] = true;
	} else if (!s->known[i] && size->otherwise) {
		/* what it is made of may be unknown too */
		s->known[i] = !ck_mg_sizes_value(s, f->map, size->otherwise, size->line,
						 &s->value[i], NULL);
	}
	return 0;
}

static bool config_truth(const struct filling *f, const char *key, bool *out)
{
	const uint64_t tok = token(f, key);

	if (tok == UINT64_MAX)
		return false;
	*out = f->config->doc.tok[tok].type == CK_JSON_TRUE;
	return true;
}

static bool fill_flag(const struct filling *f, const struct mg_map_flag *flag)
{
	const struct ck_val *v = flag->arg && !f->config ? ck_val_get(f->args, flag->arg) : NULL;
	bool yes = flag->otherwise;

	if (!config_truth(f, flag->key, &yes) && v && v->kind == CK_VAL_BOOL)
		yes = v->u.b != flag->arg_inverted;
	return yes;
}

/* --------------------------------------------------------- which layers have experts */

/* A list of layers; a number is none. */
static bool is_listed(const struct filling *f, const char *key, uint64_t layer)
{
	const uint64_t tok = key ? token(f, key) : UINT64_MAX;
	uint64_t at = tok + 1, n;

	if (tok == UINT64_MAX || f->config->doc.tok[tok].type != CK_JSON_ARRAY)
		return false;
	for (uint32_t i = 0; i < f->config->doc.tok[tok].n; i++) {
		if (ck_json_u64(&f->config->doc, at, &n) && n == layer)
			return true;
		at = f->config->doc.tok[at].next;
	}
	return false;
}

/* moe_layer_freq: every so manieth layer, from 0 on; or 0 and 1 for each layer. */
static bool arg_has_experts(const struct filling *f, uint64_t layer)
{
	const struct ck_val *freq = ck_val_get(f->args, "moe_layer_freq");
	const struct ck_val *one = ck_val_at(freq, layer);
	int64_t n;

	if (one)
		return ck_val_int(one, &n) && n;
	return !freq || !ck_val_int(freq, &n) || n < 1 || !(layer % (uint64_t)n);
}

static int fill_layers(struct filling *f)
{
	struct mg_sizes *s = f->s;
	uint64_t every = 1, from = 0;
	bool has;
	int rc = 0;

	s->has_experts = ck_arena_zalloc(&s->arena, s->layers + 1);
	if (!s->has_experts)
		return ck_fail_nomem(f->err, "a table of layers", s->layers);
	if (f->map->every)
		rc = config_number(f, f->map->every, &every, &has);
	if (!rc && f->map->from)
		rc = config_number(f, f->map->from, &from, &has);
	for (uint64_t i = 0; !rc && i < s->layers; i++) {
		bool yes = f->map->has_experts && s->experts;

		if (yes && f->config)
			yes = every && !((i + 1) % every) && i >= from &&
			      !is_listed(f, f->map->except, i);
		else if (yes)
			yes = arg_has_experts(f, i);
		s->has_experts[i] = yes;
		s->dense_layers += !yes;
	}
	return rc;
}

/* ---------------------------------------------------------------------------- all */

/* How Python prints it. */
static bool is_value(const struct ck_val *v, const char *text)
{
	char number[40];

	switch (v->kind) {
	case CK_VAL_NONE:
		return !strcmp(text, "None");
	case CK_VAL_BOOL:
		return !strcmp(text, v->u.b ? "True" : "False");
	case CK_VAL_INT:
		snprintf(number, sizeof(number), "%" PRId64, v->u.i);
		return !strcmp(text, number);
	case CK_VAL_FLOAT:
		snprintf(number, sizeof(number), v->u.f == (double)(int64_t)v->u.f ? "%.1f" : "%g",
			 v->u.f);
		return !strcmp(text, number);
	default:
		return ck_val_is_str(v, text);
	}
}

/* Older versions have no argument for what came later: it is off. */
static bool is_off(const char *text)
{
	return !strcmp(text, "None") || !strcmp(text, "False");
}

bool ck_mg_args_choose(const struct mg_map *map, const struct ck_val *args)
{
	for (uint64_t i = 0; i < map->nneeds; i++) {
		const struct ck_val *v = ck_val_get(args, map->need[i].arg);

		if (v ? !is_value(v, map->need[i].value) : !is_off(map->need[i].value))
			return false;
	}
	return map->nneeds && args;
}

static int check_needs(const struct filling *f)
{
	for (uint64_t i = 0; i < f->map->nneeds; i++) {
		const struct mg_map_need *need = &f->map->need[i];
		const struct ck_val *v = ck_val_get(f->args, need->arg);

		/* None = Megatron's default, which the run did not write down */
		if (!need->only_chooses && v && v->kind != CK_VAL_NONE &&
		    !is_value(v, need->value))
			return ck_fail(f->err, CKPT_E_UNSUPPORTED, f->map->where, CKPT_NO_OFFSET,
				       "the run was started with another %s than %s, so its "
				       "weights are not those of %s in transformers; --naming "
				       "native reads them as they are", need->arg, need->value,
				       f->map->family);
	}
	return 0;
}

static int check_counts(const struct filling *f)
{
	const struct mg_sizes *s = f->s;

	if (s->layers > MOST_LAYERS || s->experts > MOST_EXPERTS)
		return ck_fail(f->err, CKPT_E_LIMIT, s->where, CKPT_NO_OFFSET,
			       "%" PRIu64 " layers with %" PRIu64 " experts; at most %" PRIu64
			       " and %" PRIu64 " are possible", s->layers, s->experts, MOST_LAYERS,
			       MOST_EXPERTS);
	return 0;
}

static uint64_t value_of(const struct mg_sizes *s, const struct mg_map *map, const char *name)
{
	const uint64_t i = ck_mg_map_find_size(map, name, strlen(name));

	return i != UINT64_MAX && s->known[i] ? s->value[i] : 0;
}

int ck_mg_sizes_fill(struct mg_sizes *s, const struct mg_map *map, const struct mg_config *config,
		     const struct ck_val *args, uint64_t vocab, struct ckpt_err *err)
{
	struct filling f = {
		.s = s, .map = map, .config = config && config->path ? config : NULL,
		.args = args, .err = err,
	};
	const uint64_t v = ck_mg_map_find_size(map, "V", 1);
	int rc;

	*s = (struct mg_sizes){ .where = f.config ? config->path : "the run's arguments" };
	s->value = ck_arena_zalloc(&s->arena, (map->nsizes + 1) * sizeof(*s->value));
	s->known = ck_arena_zalloc(&s->arena, map->nsizes + 1);
	s->flag = ck_arena_zalloc(&s->arena, map->nflags + 1);
	rc = s->value && s->known && s->flag ? check_needs(&f) :
	     ck_fail_nomem(err, "sizes of a model", map->nsizes);
	for (uint64_t i = 0; !rc && i < map->nsizes; i++) {
		rc = fill_size(&f, i);
		if (!rc && vocab && i == v) {
			s->value[i] = vocab;
			s->known[i] = true;
			s->vocab_given = true;
		}
	}
	for (uint64_t i = 0; !rc && i < map->nflags; i++)
		s->flag[i] = fill_flag(&f, &map->flag[i]);
	if (!rc) {
		s->layers = value_of(s, map, "L");
		s->experts = value_of(s, map, "E");
		rc = check_counts(&f);
	}
	if (!rc)
		rc = fill_layers(&f);
	if (rc)
		ck_mg_sizes_release(s);
	return rc;
}

void ck_mg_sizes_release(struct mg_sizes *s)
{
	ck_arena_release(&s->arena);
	*s = (struct mg_sizes){ .where = NULL };
}

/* The first size in an expression that has no value, or NULL. */
static const struct mg_map_size *first_unknown(const struct mg_sizes *s, const struct mg_map *map,
					       const char *text)
{
	static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_"
				      "0123456789";

	while (*text) {
		const size_t n = strspn(text, letters);
		const uint64_t i = n ? ck_mg_map_find_size(map, text, n) : UINT64_MAX;

		if (i != UINT64_MAX && !s->known[i])
			return &map->size[i];
		text += n ? n : 1;
	}
	return NULL;
}

int ck_mg_sizes_value(const struct mg_sizes *s, const struct mg_map *map, const char *text,
		      uint32_t line, uint64_t *out, struct ckpt_err *err)
{
	const struct mg_map_size *unknown = first_unknown(s, map, text);

	if (unknown)
		return ck_fail(err, CKPT_E_MISMATCH, s->where, CKPT_NO_OFFSET,
			       "%s is missing%s%s", unknown->key, unknown->arg ? ", and so is the "
			       "argument " : "", unknown->arg ? unknown->arg : "");
	return ck_mg_map_value(map, s->value, text, line, out, err);
}
