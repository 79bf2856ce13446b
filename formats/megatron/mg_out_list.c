/*
 * mg_out_list.c -- which tensors of Megatron-Core a model of transformers becomes.
 *
 * A table of names has a line for each tensor that a checkpoint can have.  Where two lines are made
 * of the same tensors of transformers, the first is written: the other is a form of other layers.
 * With experts the norm before them is written under both of its names, since the layers of
 * TransformerEngine ask for the one and those of Megatron-Core for the other.
 *
 * Layers that are alike are one tensor with an axis for the layer, as Megatron-Core stacks them; a
 * model with layers of two kinds has tensors of single layers.  Experts are always an axis.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/megatron/mg_out.h"
#include "libckpt/base/ck_buf.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/tensor/ck_dtype.h"

/* ---- names ---- */

const char *ck_mg_out_name(struct ck_arena *arena, const char *pattern, uint64_t layer,
			   uint64_t expert)
{
	const char *name = "";

	while (name && *pattern) {
		const size_t n = strcspn(pattern, "{");
		const uint64_t number = pattern[n] != '{' || pattern[n + 1] == 'L' ? layer : expert;

		if (!pattern[n])
			return ck_arena_printf(arena, "%s%s", name, pattern);
		name = number == MG_OUT_ALL ?
		       ck_arena_printf(arena, "%s%.*s", name, (int)n, pattern) :
		       ck_arena_printf(arena, "%s%.*s%" PRIu64, name, (int)n, pattern, number);
		pattern += n + 3;
		/* without the number there is no dot either */
		pattern += number == MG_OUT_ALL && *pattern == '.';
	}
	return name;
}

static bool has_flag(const struct mg_out *o, const struct mg_map_tensor *t)
{
	return !t->flag || o->sizes.flag[ck_mg_map_find_flag(&o->map, t->flag)] != t->unless;
}

/* Has the layer such a tensor? */
static bool is_of_layer(const struct mg_out *o, const struct mg_map_tensor *t, uint64_t layer)
{
	return t->layers == MG_MAP_ALL_LAYERS ||
	       o->sizes.has_experts[layer] == (t->layers == MG_MAP_EXPERT_LAYERS);
}

/* ---- what is in the source ---- */

int ck_mg_out_state(const struct mg_out *o, const struct mg_out_tensor *t, uint64_t part,
		    uint64_t layer, uint64_t expert, uint32_t *state_out, struct ckpt_err *err)
{
	struct ck_arena names = CK_ARENA_INIT;
	const char *name = ck_mg_out_name(&names, t->t->part[part].name, layer, expert);
	uint32_t tensor;
	int rc = 0;

	if (!name) {
		rc = ck_fail_nomem(err, "a name", 0);
	} else if (!ck_index_find(o->ix, name, &tensor)) {
		rc = ck_fail(err, CKPT_E_MISMATCH, name, CKPT_NO_OFFSET,
			     "the source lacks this tensor, which %s of %s has: %s is written of "
			     "it", o->map.family, o->sizes.where, t->key);
	} else {
		if (o->ix->tensor[tensor].role == CKPT_ROLE_ALIAS)
			tensor = (uint32_t)o->ix->tensor[tensor].alias_of;
		*state_out = ck_index_state_find(o->ix, tensor, "weight");
		if (*state_out == CK_NONE)
			rc = ck_fail(err, CKPT_E_INCOMPLETE, name, CKPT_NO_OFFSET,
				     "the source lacks its weight");
	}
	ck_arena_release(&names);
	return rc;
}

static void print_shape(char *out, size_t size, const uint64_t *shape, uint32_t ndim)
{
	size_t n = (size_t)snprintf(out, size, "[");

	for (uint32_t i = 0; i < ndim && n < size; i++)
		n += (size_t)snprintf(out + n, size - n, "%s%" PRIu64, i ? ", " : "", shape[i]);
	if (n < size)
		snprintf(out + n, size - n, "]");
}

static int check_shape(const struct mg_out *o, const struct mg_out_tensor *t, uint64_t part,
		       const struct ck_tensor *from, struct ckpt_err *err)
{
	const uint64_t *after = t->shape + t->lead + 1;
	uint64_t want[MG_MAP_AXES];
	char is[100], wanted[100];
	bool same = from->ndim == t->t->naxes;

	want[0] = t->rows[part] * t->groups;
	for (uint32_t d = 1; d < t->t->naxes; d++)
		want[d] = after[d - 1];
	for (uint32_t d = 0; same && d < from->ndim; d++)
		same = from->shape[d] == want[d];
	if (same)
		return 0;
	print_shape(is, sizeof(is), from->shape, from->ndim);
	print_shape(wanted, sizeof(wanted), want, t->t->naxes);
	return ck_fail(err, CKPT_E_MISMATCH, from->name, CKPT_NO_OFFSET,
		       "its shape is %s, and %s asks for %s", is, o->sizes.where, wanted);
}

static bool is_float(enum ckpt_dtype dtype)
{
	return dtype == CKPT_F16 || dtype == CKPT_BF16 || dtype == CKPT_F32 || dtype == CKPT_F64;
}

/* One type for all that becomes a tensor: as asked, or as it is stored. */
static int take_type(const struct mg_out *o, struct mg_out_tensor *t, const struct ck_state *s,
		     struct ckpt_err *err)
{
	const char *name = o->ix->tensor[s->tensor].name;
	const enum ckpt_dtype dtype = (enum ckpt_dtype)s->dtype;

	if (!is_float(dtype))
		return ck_fail(err, CKPT_E_UNSUPPORTED, name, CKPT_NO_OFFSET,
			       "elements of type %s are no weights that Megatron-Core trains",
			       ckpt_dtype_name(dtype));
	if (o->want->dtype)
		t->dtype = (uint8_t)o->want->dtype;
	else if (!t->dtype)
		t->dtype = s->dtype;
	else if (t->dtype != s->dtype)
		return ck_fail(err, CKPT_E_MISMATCH, name, CKPT_NO_OFFSET,
			       "its type is %s, and that of other tensors that go into %s is %s; "
			       "--dtype chooses one", ckpt_dtype_name(dtype), t->key,
			       ckpt_dtype_name((enum ckpt_dtype)t->dtype));
	return 0;
}

/* ---- a tensor of the table ---- */

/* Layers that a tensor is of: [*first, *end). */
static void layers_of(const struct mg_out *o, const struct mg_out_tensor *t, uint64_t *first,
		      uint64_t *end)
{
	*first = t->layer == MG_OUT_ALL ? 0 : t->layer;
	*end = t->layer != MG_OUT_ALL ? t->layer + 1 : t->t->has_layer ? o->sizes.layers : 1;
}

/* Parts of one layer and expert: each is in the source, and is not used twice. */
static int take_parts(struct mg_out *o, struct mg_out_tensor *t, uint64_t layer, uint64_t expert,
		      struct ckpt_err *err)
{
	int rc = 0;

	for (uint64_t p = 0; !rc && p < t->t->nparts && t->t->part[p].name; p++) {
		const char *name = ck_mg_out_name(o->arena, t->t->part[p].name, layer, expert);
		uint32_t state = CK_NONE;

		if (!name)
			return ck_fail_nomem(err, "a name", 0);
		rc = ck_map_add(&o->by_name, name, strlen(name), o->n, NULL, err);
		if (rc == 1)
			return ck_fail(err, CKPT_E_FORMAT, o->map.where, CKPT_NO_OFFSET,
				       "line %" PRIu32 ": %.100s is in two tensors that are "
				       "written", t->t->line, name);
		if (!rc)
			rc = ck_mg_out_state(o, t, p, layer, expert, &state, err);
		if (!rc)
			rc = check_shape(o, t, p, &o->ix->tensor[o->ix->state[state].tensor], err);
		if (!rc)
			rc = take_type(o, t, &o->ix->state[state], err);
	}
	return rc;
}

static int take_sources(struct mg_out *o, struct mg_out_tensor *t, struct ckpt_err *err)
{
	const uint64_t experts = t->t->has_expert ? o->sizes.experts : 1;
	uint64_t first, end;
	int rc = 0;

	layers_of(o, t, &first, &end);
	for (uint64_t l = first; !rc && l < end; l++)
		for (uint64_t e = 0; !rc && e < experts; e++)
			rc = take_parts(o, t, l, e, err);
	return rc;
}

/* Rows of the parts; the padding of a vocabulary is after them. */
static int fill_rows(struct mg_out *o, struct mg_out_tensor *t, uint64_t rows,
		     struct ckpt_err *err)
{
	const struct mg_map_tensor *m = t->t;
	uint64_t used = 0, per;
	int rc = 0;

	t->groups = 1;
	if (m->groups)
		rc = ck_mg_sizes_value(&o->sizes, &o->map, m->groups, m->line, &t->groups, err);
	if (rc)
		return rc;
	if (!t->groups || rows % t->groups || m->nparts > CK_ARRAY_LEN(t->rows))
		return ck_fail(err, CKPT_E_MISMATCH, o->sizes.where, CKPT_NO_OFFSET,
			       "%s has %" PRIu64 " rows, which are not %" PRIu64 " equal groups",
			       t->key, rows, t->groups);
	per = rows / t->groups;
	for (uint64_t p = 0; !rc && p < m->nparts && m->part[p].name; p++) {
		t->rows[p] = per - used;
		if (m->part[p].rows)
			rc = ck_mg_sizes_value(&o->sizes, &o->map, m->part[p].rows,
					       m->part[p].line, &t->rows[p], err);
		if (!rc && (!t->rows[p] || t->rows[p] > per - used))
			return ck_fail(err, CKPT_E_MISMATCH, o->sizes.where, CKPT_NO_OFFSET,
				       "%s has %" PRIu64 " rows, and %s alone would have %" PRIu64,
				       t->key, per, m->part[p].name, t->rows[p]);
		used += t->rows[p];
	}
	t->padded = per - used;
	if (!rc && t->padded && m->part[m->nparts - 1].name)
		return ck_fail(err, CKPT_E_MISMATCH, o->sizes.where, CKPT_NO_OFFSET,
			       "%s has %" PRIu64 " rows, and its parts only %" PRIu64, t->key, per,
			       used);
	return rc;
}

/* "*": the vocabulary, padded so that all ranks of tensor parallelism have as much of it. */
static int axis_of(struct mg_out *o, const struct mg_map_tensor *m, uint32_t d, uint64_t *out,
		   struct ckpt_err *err)
{
	const uint64_t each = o->want->vocab_divisor * o->want->tp;
	int rc;

	if (strcmp(m->axis[d], "*") != 0)
		return ck_mg_sizes_value(&o->sizes, &o->map, m->axis[d], m->line, out, err);
	rc = ck_mg_sizes_value(&o->sizes, &o->map, m->part[0].rows, m->line, &o->vocab, err);
	if (!rc && (o->vocab > INT64_MAX / 2 || each > INT64_MAX / 2))
		rc = ck_fail(err, CKPT_E_LIMIT, o->sizes.where, CKPT_NO_OFFSET,
			     "a vocabulary of %" PRIu64 " rows", o->vocab);
	if (!rc)
		*out = o->padded_vocab = (o->vocab + each - 1) / each * each;
	return rc;
}

static int fill_shape(struct mg_out *o, struct mg_out_tensor *t, struct ckpt_err *err)
{
	const struct mg_map_tensor *m = t->t;
	uint64_t numel = 1;
	int rc = 0;

	if (m->has_layer && t->layer == MG_OUT_ALL)
		t->shape[t->lead++] = o->sizes.layers;
	if (m->has_expert)
		t->shape[t->lead++] = o->sizes.experts;
	t->ndim = t->lead + m->naxes;
	t->row = 1;
	for (uint32_t d = 0; !rc && d < m->naxes; d++) {
		rc = axis_of(o, m, d, &t->shape[t->lead + d], err);
		if (!rc && d && ck_mul_over(t->row, t->shape[t->lead + d], &t->row))
			t->row = UINT64_MAX;
	}
	for (uint32_t d = 0; !rc && d < t->ndim; d++)
		if (ck_mul_over(numel, t->shape[d], &numel) || numel > INT64_MAX / 8)
			return ck_fail(err, CKPT_E_LIMIT, o->sizes.where, CKPT_NO_OFFSET,
				       "%s would have more than 2^60 elements", t->key);
	return rc ? rc : fill_rows(o, t, t->shape[t->lead], err);
}

static int add_tensor(struct mg_out *o, const struct mg_map_tensor *m, uint64_t layer,
		      struct ckpt_err *err)
{
	struct mg_out_tensor t = {
		.t = m, .layer = layer, .key = ck_mg_out_name(o->arena, m->key, layer, MG_OUT_ALL),
	};
	int rc = t.key ? fill_shape(o, &t, err) : ck_fail_nomem(err, "a name", 0);

	if (!rc)
		rc = take_sources(o, &t, err);
	if (!rc)
		rc = ck_grow(&o->tensor, &o->cap, o->n + 1, sizeof(*o->tensor), err);
	if (!rc)
		o->tensor[o->n++] = t;
	return rc;
}

/* ---- lines of the table ---- */

/* Tensor that the first part of this line is in already, or NULL. */
static struct mg_out_tensor *find_made(struct mg_out *o, const struct mg_map_tensor *m,
				       uint64_t layer)
{
	const uint64_t at = !m->has_layer ? 0 : layer == MG_OUT_ALL ? 0 : layer;
	const char *name = ck_mg_out_name(o->arena, m->part[0].name, at, 0);
	uint64_t number;

	return name && ck_map_find(&o->by_name, name, strlen(name), &number) ?
	       &o->tensor[number] : NULL;
}

/* Both lines are the whole of one tensor of transformers. */
static bool is_renamed(const struct mg_map_tensor *a, const struct mg_map_tensor *b)
{
	return a->nparts == 1 && b->nparts == 1 && a->part[0].name && !a->part[0].rows &&
	       !b->part[0].rows && !strcmp(a->part[0].name, b->part[0].name);
}

static int take_line(struct mg_out *o, const struct mg_map_tensor *m, uint64_t layer,
		     struct ckpt_err *err)
{
	struct mg_out_tensor *made;

	if (m->has_layer && !is_of_layer(o, m, layer == MG_OUT_ALL ? 0 : layer))
		return 0;
	made = find_made(o, m, layer);
	if (!made)
		return add_tensor(o, m, layer, err);
	if (!o->sizes.experts || made->second || !is_renamed(m, made->t) ||
	    (layer != MG_OUT_ALL && !o->sizes.has_experts[layer]))
		return 0;
	made->second = ck_mg_out_name(o->arena, m->key, layer, MG_OUT_ALL);
	return made->second ? 0 : ck_fail_nomem(err, "a name", 0);
}

static int list_lines(struct mg_out *o, struct ckpt_err *err)
{
	int rc = 0;

	for (uint64_t i = 0; !rc && i < o->map.ntensors; i++) {
		const struct mg_map_tensor *m = &o->map.tensor[i];

		if (m->unused || m->optional || !has_flag(o, m) || !m->part[0].name)
			continue;
		if (!m->has_layer || o->stacked) {
			rc = take_line(o, m, MG_OUT_ALL, err);
			continue;
		}
		for (uint64_t l = 0; !rc && l < o->sizes.layers; l++)
			rc = take_line(o, m, l, err);
	}
	return rc;
}

/* A tensor without a place in the model would be lost. */
static int check_all_used(const struct mg_out *o, struct ckpt_err *err)
{
	for (uint32_t i = 0; i < o->ix->ntensors; i++) {
		const struct ck_tensor *t = &o->ix->tensor[i];
		const char *end = strstr(t->name, "rotary_emb.inv_freq");

		if (t->role == CKPT_ROLE_ALIAS || t->role == CKPT_ROLE_BUFFER || end ||
		    ck_map_find(&o->by_name, t->name, strlen(t->name), NULL))
			continue;
		return ck_fail(err, CKPT_E_MISMATCH, t->name, CKPT_NO_OFFSET,
			       "%s of %s has no such tensor, so it would be lost; if it is a "
			       "buffer, name it with --buffer", o->map.family, o->sizes.where);
	}
	return 0;
}

int ck_mg_out_list(struct mg_out *o, struct ckpt_err *err)
{
	int rc = list_lines(o, err);

	return rc ? rc : check_all_used(o, err);
}
