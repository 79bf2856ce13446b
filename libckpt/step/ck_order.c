/* ck_order.c -- see ck_order.h.  Which modules a model has is in ck_order_model.c. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/io/ck_tree.h"
#include "libckpt/naming/ck_peft_name.h"
#include "libckpt/step/ck_name_list.h"
#include "libckpt/step/ck_order.h"
#include "libckpt/step/ck_order_model.h"

/* ---- places of names ---- */

/* Sorts as the modules do. */
struct place {
	uint32_t tensor;
	uint32_t where;		/* section of the model */
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

/* "MODULE.weight", "MODULE.bias", or a parameter of its own? */
static bool is_of(const char *name, const char *module, uint32_t *bias_out)
{
	const size_t n = strlen(module);

	*bias_out = 0;
	if (strncmp(name, module, n) || (name[n] && name[n] != '.'))
		return false;
	*bias_out = !strcmp(name + n, ".bias");
	return !name[n] || *bias_out || !strcmp(name + n, ".weight");
}

/* 'p' is what follows the prefix of the section. */
static bool find_layer(const char *p, const char *const *part, struct place *out)
{
	if (*p < '0' || *p > '9' || (*p == '0' && p[1] != '.'))
		return false;
	for (; *p >= '0' && *p <= '9' && out->layer < UINT32_MAX; p++)
		out->layer = out->layer * 10 + (uint64_t)(*p - '0');
	if (*p++ != '.')
		return false;
	for (uint32_t i = 0; part[i]; i++)
		if (is_of(p, part[i], &out->bias)) {
			out->part = i;
			return true;
		}
	return false;
}

static bool find_place(const char *name, const struct ck_order_section *section,
		       struct place *out)
{
	for (uint32_t i = 0; section[i].prefix; i++) {
		const size_t n = strlen(section[i].prefix);

		out->where = i;
		if (!section[i].part && is_of(name, section[i].prefix, &out->bias))
			return true;
		if (section[i].part && !strncmp(name, section[i].prefix, n) && name[n] == '.')
			return find_layer(name + n + 1, section[i].part, out);
	}
	return false;
}

/* Every layer has the same parameters, and there are as many as the config says. */
static int check_section(const struct ck_index *ix, const struct place *p, uint64_t n,
			 const struct ck_order_model *model, uint32_t where, const char *path,
			 struct ckpt_err *err)
{
	const struct ck_order_section *s = &model->section[where];
	uint64_t per = 0;

	if (s->needed && !n && (!s->part || model->layers[where]))
		return ck_fail(err, CKPT_E_MISMATCH, path, CKPT_NO_OFFSET,
			       "the weights have no %s, which a model of type \"%s\" has",
			       s->prefix, model->type);
	while (s->part && per < n && p[per].layer == 0)
		per++;
	for (uint64_t i = 0; s->part && i < n; i++) {
		const struct place *like = per ? &p[i % per] : NULL;

		if (!like || p[i].layer != i / per || p[i].part != like->part ||
		    p[i].bias != like->bias)
			return ck_fail(err, CKPT_E_MISMATCH, ix->tensor[p[i].tensor].name,
				       CKPT_NO_OFFSET, "layer %" PRIu64 " has other parameters "
				       "than layer 0: one before this is missing, or this one "
				       "is extra", p[i].layer);
	}
	if (s->part && n != per * model->layers[where])
		return ck_fail(err, CKPT_E_MISMATCH, path, CKPT_NO_OFFSET,
			       "the config says %" PRIu64 " layers, but the weights have "
			       "%" PRIu64 " in %s", model->layers[where], per ? n / per : 0,
			       s->prefix);
	return 0;
}

static int check_places(const struct ck_index *ix, const struct place *p, uint64_t n,
			const struct ck_order_model *model, const char *path,
			struct ckpt_err *err)
{
	uint64_t first = 0;
	int rc = 0;

	for (uint32_t i = 0; !rc && model->section[i].prefix; i++) {
		uint64_t count = 0;

		while (first + count < n && p[first + count].where == i)
			count++;
		rc = check_section(ix, p + first, count, model, i, path, err);
		first += count;
	}
	return rc;
}

/* A tied head is the embedding; one that is stored as well is left out of the optimizer. */
static int settle_head(const struct ck_order_model *model, const char *path, struct place *p,
		       uint64_t *n, struct ck_order *out, struct ckpt_err *err)
{
	const char *head = model->section[model->head].prefix;
	uint64_t kept = 0;
	bool has = false;

	for (uint64_t i = 0; i < *n; i++) {
		has |= p[i].where == model->head;
		if (!model->tied || p[i].where != model->head)
			p[kept++] = p[i];
	}
	*n = kept;
	if (!model->tied && !has)
		return ck_fail(err, CKPT_E_MISMATCH, path, CKPT_NO_OFFSET,
			       "%s.weight is missing, and the config does not tie it to the "
			       "embedding", head);
	if (!model->tied)
		return 0;
	out->alias = ck_arena_printf(&out->arena, "%s.weight", head);
	return out->alias ? 0 : ck_fail_nomem(err, "a name", strlen(head));
}

static int room(struct ck_order *out, uint64_t n, struct ckpt_err *err)
{
	out->tensor = ck_arena_alloc(&out->arena, (n + 1) * sizeof(*out->tensor));
	return out->tensor ? 0 : ck_fail_nomem(err, "the order of the parameters", n);
}

/* What the optimizer has, and the embedding that a tied head is. */
static int take_order(const struct ck_index *ix, const struct place *p, uint64_t n,
		      const struct ck_order_model *model, const bool *set_aside,
		      struct ck_order *out, struct ckpt_err *err)
{
	int rc = room(out, n, err);

	for (uint64_t i = 0; !rc && i < n; i++) {
		if (is_of(ix->tensor[p[i].tensor].name, model->embedding, &(uint32_t){ 0 }))
			out->embedding = p[i].tensor;
		if (!set_aside[p[i].tensor])
			out->tensor[out->n++] = p[i].tensor;
	}
	return rc;
}

/* The places of all parameters, frozen ones too: they are no hole in the order. */
static int find_places(const struct ck_index *ix, const struct ck_order_model *model,
		       const bool *set_aside, struct place *p, uint64_t *n_out,
		       struct ckpt_err *err)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < ix->ntensors; i++) {
		p[n] = (struct place){ .tensor = i };
		if (ix->tensor[i].role == CKPT_ROLE_ALIAS || ix->tensor[i].role == CKPT_ROLE_BUFFER)
			continue;
		if (find_place(ix->tensor[i].name, model->section, &p[n]))
			n++;
		else if (!set_aside[i])
			return ck_fail(err, CKPT_E_MISMATCH, ix->tensor[i].name, CKPT_NO_OFFSET,
				       "a model of type \"%s\" has no parameter of this name; "
				       "name it with --buffer or --frozen, or give the order "
				       "(--order)", model->type);
	}
	qsort(p, n, sizeof(*p), compare_places);
	*n_out = n;
	return 0;
}

/* ---- adapters ---- */

/* A module has its parts of an adapter in this order. */
static uint32_t turn_of(enum ck_peft_part part)
{
	static const enum ck_peft_part turn[] = {
		CK_PEFT_A, CK_PEFT_B, CK_PEFT_B_BIAS, CK_PEFT_EMBED_A, CK_PEFT_EMBED_B,
		CK_PEFT_MAGNITUDE,
	};
	uint32_t i = 0;

	while (i < CK_ARRAY_LEN(turn) && turn[i] != part)
		i++;
	return i;
}

static int place_adapter(const struct ck_index *ix, const struct ck_order_model *model,
			 struct ck_arena *arena, struct place *p, struct ckpt_err *err)
{
	const char *name = ix->tensor[p->tensor].name, *module;
	struct ck_peft_name part;

	ck_peft_name_parse(name, &part);
	module = ck_peft_plain(arena, name, part.module_len);
	if (!module)
		return ck_fail_nomem(err, "a name", part.module_len);
	if (!ck_peft_is_lora(part.part) || !find_place(module, model->section, p))
		return ck_fail(err, CKPT_E_MISMATCH, name, CKPT_NO_OFFSET,
			       "it is no part of an adapter of a model of type \"%s\"",
			       model->type);
	p->bias = turn_of(part.part);
	return 0;
}

static int place_adapters(const struct ck_index *ix, const struct ck_order_model *model,
			  const bool *set_aside, struct place *p, uint64_t *n_out,
			  struct ck_order *out, struct ckpt_err *err)
{
	uint64_t n = 0;
	int rc = 0;

	for (uint32_t i = 0; !rc && i < ix->ntensors; i++) {
		if (set_aside[i])
			continue;
		p[n] = (struct place){ .tensor = i };
		rc = place_adapter(ix, model, &out->arena, &p[n++], err);
	}
	if (!rc && n)
		qsort(p, n, sizeof(*p), compare_places);
	*n_out = n;
	return rc;
}

/* ---- by a configuration ---- */

static int place_model(const struct ck_index *ix, const struct ck_order_model *model,
		       const bool *set_aside, const char *path, struct place *p, uint64_t *n_out,
		       struct ck_order *out, struct ckpt_err *err)
{
	int rc = find_places(ix, model, set_aside, p, n_out, err);

	if (!rc)
		rc = check_places(ix, p, *n_out, model, path, err);
	return rc ? rc : settle_head(model, path, p, n_out, out, err);
}

int ck_order_by_text(const struct ck_index *ix, const struct ck_order_config *from,
		     const struct ckpt_limits *limits, const bool *set_aside,
		     struct ck_order *out, struct ckpt_err *err)
{
	struct place *p = ck_alloc_array(ix->ntensors + 1, sizeof(*p));
	struct ck_order_model model = { 0 };
	uint64_t n = 0;
	int rc = p ? ck_order_model_parse(from, limits, &model, err) :
		 ck_fail_nomem(err, "names", ix->ntensors);

	memset(out, 0, sizeof(*out));
	if (!rc && from->adapter)
		rc = place_adapters(ix, &model, set_aside, p, &n, out, err);
	else if (!rc)
		rc = place_model(ix, &model, set_aside, from->path, p, &n, out, err);
	if (!rc)
		rc = take_order(ix, p, n, &model, set_aside, out, err);
	ck_free(p);
	if (rc)
		ck_order_release(out);
	return rc;
}

int ck_order_by_config(const struct ck_index *ix, const char *path,
		       const struct ckpt_limits *limits, const bool *set_aside,
		       struct ck_order *out, struct ckpt_err *err)
{
	struct ck_order_config from = { .path = path };
	char *text = NULL;
	int rc = ck_file_read(path, limits->header_bytes, &text, &from.len, err);

	memset(out, 0, sizeof(*out));
	from.text = text;
	if (!rc)
		rc = ck_order_by_text(ix, &from, limits, set_aside, out, err);
	ck_free(text);
	return rc;
}

/* ---- by a list ---- */

struct listing {
	const struct ck_index *ix;
	const char *path;
	bool *met;		/* by tensor: excluded, or listed */
	struct ck_order *out;
};

static int take_name(void *arg, uint64_t line, const char *name, struct ckpt_err *err)
{
	struct listing *l = arg;
	uint32_t t;

	if (!ck_index_find(l->ix, name, &t))
		return ck_fail(err, CKPT_E_MISMATCH, l->path, CKPT_NO_OFFSET,
			       "line %" PRIu64 ": the weights have no %.200s", line, name);
	if (l->met[t])
		return ck_fail(err, CKPT_E_MISMATCH, l->path, CKPT_NO_OFFSET,
			       "line %" PRIu64 ": %.200s is excluded, or the list has it twice",
			       line, name);
	l->met[t] = true;
	l->out->tensor[l->out->n++] = t;
	return 0;
}

static int check_all_listed(const struct listing *l, struct ckpt_err *err)
{
	for (uint32_t i = 0; i < l->ix->ntensors; i++)
		if (!l->met[i] && l->ix->tensor[i].role != CKPT_ROLE_ALIAS)
			return ck_fail(err, CKPT_E_MISMATCH, l->ix->tensor[i].name, CKPT_NO_OFFSET,
				       "it is not in %s; name it with --buffer or --frozen if the "
				       "optimizer does not have it", l->path);
	return 0;
}

int ck_order_by_list(const struct ck_index *ix, const char *path,
		     const struct ckpt_limits *limits, const bool *set_aside,
		     struct ck_order *out, struct ckpt_err *err)
{
	struct listing l = {
		.ix = ix, .path = path, .out = out,
		.met = ck_alloc_array(ix->ntensors + 1, sizeof(*l.met)),
	};
	int rc;

	memset(out, 0, sizeof(*out));
	rc = l.met ? room(out, ix->ntensors, err) : ck_fail_nomem(err, "names", ix->ntensors);
	if (!rc) {
		memcpy(l.met, set_aside, ix->ntensors * sizeof(*l.met));
		rc = ck_name_list_each(path, limits, take_name, &l, err);
	}
	if (!rc)
		rc = check_all_listed(&l, err);
	ck_free(l.met);
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
