/*
 * ck_pt_cut.c -- what of its storages a torch file's tensors use.
 *
 * Of a storage the elements from the first to the last of each tensor stay, laid one behind the
 * other; tensors that overlap keep doing so, and strides are as they were.  One tensor alone that
 * jumps over elements (a column of a matrix) is laid out anew without them.
 */
#include <stdlib.h>
#include <string.h>

#include "formats/torch_pt/ck_pt_save.h"
#include "formats/torch_pt/ck_pt_slim.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/tensor/ck_dtype.h"
#include "libckpt/tensor/ck_val_new.h"

/* ---- the live tensors ---- */

static int reach(struct pt_walk *w, struct ck_val *v, struct ckpt_err *err)
{
	int rc;

	if (!v || v->mark || v->kind < CK_VAL_TUPLE || v->kind == CK_VAL_GLOBAL)
		return 0;
	rc = ck_grow(&w->node, &w->cap, w->n + 1, sizeof(struct ck_val *), err);
	if (rc)
		return rc;
	v->mark = 1;
	w->node[w->n++] = v;
	return 0;
}

static int reach_all(struct pt_walk *w, struct ck_val *const *item, uint64_t n,
		     struct ckpt_err *err)
{
	int rc = 0;

	for (uint64_t i = 0; !rc && i < n; i++)
		rc = reach(w, item[i], err);
	return rc;
}

static bool has_hooks(const struct ck_val *v, uint64_t arg)
{
	struct ck_val *const *item;
	uint64_t n;

	return ck_val_pairs(ck_val_at(v->u.obj->args, arg), &item, &n) && n;
}

/* A call around a tensor that says more than a writer of tensors would: attributes, a device. */
static bool is_wrapped(const struct ck_val *v)
{
	const struct ck_val *inner = ck_val_at(v->u.obj->args, 0);
	const enum ck_pt_call call = ck_pt_call_of(v);

	if (!inner || inner->kind != CK_VAL_OBJECT || !inner->u.obj->tensor)
		return false;
	return call == CK_PT_CPU_TENSOR ||
	       ck_val_is_call(v, "torch._utils", "_rebuild_parameter_with_state") ||
	       (call == CK_PT_PARAMETER && (v->u.obj->state || has_hooks(v, 2)));
}

/*
 * _rebuild_from_type_v2(function, class, arguments, attributes) is written as it stands, too; the
 * tensor is in its arguments.  Others that a writer would not make stay as they were bound.
 */
static int open_type(const struct pt_walk *w, struct ck_val *v, struct ckpt_err *err)
{
	struct ck_obj *o = v->u.obj;
	struct ck_val *fn = ck_val_at(o->args, 0), *args = ck_val_at(o->args, 2), *inner;
	struct ck_tensor_ref ref = *o->tensor;

	if (o->args->kind != CK_VAL_TUPLE || o->args->u.seq.n != 4 || o->state || !args ||
	    args->kind != CK_VAL_TUPLE || ref.parameter ||
	    !ck_val_is_global(fn, "torch._utils", ck_pt_call_for(ref.dtype)))
		return 0;
	inner = ck_val_new_object(w->arena, CK_HOW_REDUCE, fn, args);
	ref.args_only = true;
	if (inner)
		inner->u.obj->tensor = ck_arena_alloc(w->arena, sizeof(ref));
	if (!inner || !inner->u.obj->tensor)
		return ck_fail_nomem(err, "a tensor", sizeof(ref));
	*inner->u.obj->tensor = ref;
	o->args->u.seq.item[2] = inner;
	o->tensor = NULL;
	return 0;
}

/* A wrapper is written as it stands, with the tensor in it. */
static int enter(struct pt_walk *w, struct ck_val *v, struct ckpt_err *err)
{
	struct ck_obj *o = v->u.obj;
	int rc;

	if (v->kind == CK_VAL_PERSID)
		return 0;
	if (v->kind != CK_VAL_OBJECT)
		return reach_all(w, v->u.seq.item, v->u.seq.n, err);
	if (o->tensor && is_wrapped(v))
		o->tensor = NULL;
	if (o->tensor && ck_pt_call_of(v) == CK_PT_FROM_TYPE) {
		rc = open_type(w, v, err);
		if (rc)
			return rc;
	}
	if (o->tensor)
		return 0;
	rc = reach(w, o->fn, err);
	if (!rc)
		rc = reach(w, o->args, err);
	if (!rc)
		rc = reach(w, o->kwargs, err);
	if (!rc)
		rc = reach(w, o->state, err);
	if (!rc)
		rc = reach_all(w, o->list, o->nlist, err);
	return rc ? rc : reach_all(w, o->dict, o->ndict, err);
}

static int walk_tree(struct pt_walk *w, struct ck_val *root, struct ckpt_err *err)
{
	int rc;

	w->n = 0;
	rc = reach(w, root, err);
	for (uint64_t i = 0; !rc && i < w->n; i++)
		rc = enter(w, w->node[i], err);
	for (uint64_t i = 0; i < w->n; i++)
		w->node[i]->mark = 0;
	return rc;
}

static struct ck_tensor_ref *tensor_at(const struct pt_walk *w, uint64_t i)
{
	return w->node[i]->kind == CK_VAL_OBJECT ? w->node[i]->u.obj->tensor : NULL;
}

/* Elements from the first to the last. */
static uint64_t span_of(const struct ck_tensor_ref *t)
{
	uint64_t span = 1;

	for (uint32_t d = 0; d < t->ndim; d++) {
		if (!t->shape[d])
			return 0;
		span += (t->shape[d] - 1) * t->stride[d];	/* lies in the storage */
	}
	return span;
}

static int by_place(const void *a, const void *b)
{
	const struct ck_tensor_ref *x = *(struct ck_tensor_ref *const *)a;
	const struct ck_tensor_ref *y = *(struct ck_tensor_ref *const *)b;

	if (x->storage != y->storage)
		return x->storage < y->storage ? -1 : 1;
	return (x->offset > y->offset) - (x->offset < y->offset);
}

int ck_pt_live(struct pt_slim *s, uint64_t *bytes_out, struct ckpt_err *err)
{
	uint64_t bytes = 0;
	int rc = walk_tree(&s->walk, s->pt->doc.root, err);

	if (rc)
		return rc;
	ck_free(s->ref);
	s->nrefs = 0;
	s->ref = ck_alloc_array(s->walk.n + 1, sizeof(struct ck_tensor_ref *));
	if (!s->ref)
		return ck_fail_nomem(err, "a list of tensors", s->walk.n);
	for (uint64_t i = 0; i < s->walk.n; i++)
		if (tensor_at(&s->walk, i))
			s->ref[s->nrefs++] = tensor_at(&s->walk, i);
	if (s->nrefs)
		qsort(s->ref, s->nrefs, sizeof(struct ck_tensor_ref *), by_place);
	for (uint64_t i = 0; i < s->nrefs; i++)
		if (!i || s->ref[i]->storage != s->ref[i - 1]->storage)
			bytes += s->pt->storage[s->ref[i]->storage].bytes;
	*bytes_out = bytes;
	return 0;
}

/* ---- what cannot be written again ---- */

/* A subclass of Tensor, hooks or attributes of a tensor itself. */
static bool is_more(const struct ck_val *v)
{
	enum ck_pt_call call = ck_pt_call_of(v);

	if (call == CK_PT_PARAMETER && !v->u.obj->state) {
		v = ck_val_at(v->u.obj->args, 0);
		if (!v || v->kind != CK_VAL_OBJECT)
			return true;
		call = ck_pt_call_of(v);
	}
	if (call == CK_PT_OLD)
		return false;
	return (call != CK_PT_V1 && call != CK_PT_V2 && call != CK_PT_V3) || v->u.obj->state ||
	       has_hooks(v, 5);
}

static const char *storage_hinders(const struct ck_pt_storage *st, const struct ck_tensor_ref *t)
{
	const struct ck_dtype_info *info = ck_dtype_info(t->dtype);

	if (st->deflated)
		return "it is compressed";
	if (st->swapped)
		return "it is big-endian";
	if (st->absent)
		return "it has tensors without data";
	if (st->root != CK_NONE)
		return "it has storages that are views of others";
	return !info || !info->torch || info->bits < 8 ? "it has tensors of a type that zckpt "
	       "cannot write" : NULL;
}

const char *ck_pt_hinders(const struct pt_slim *s)
{
	const char *why = s->pt->doubled ? "one of its dictionaries has a key twice" : NULL;

	for (uint64_t i = 0; !why && i < s->walk.n; i++)
		if (s->walk.node[i]->kind == CK_VAL_PERSID)
			why = "it has tensors of a kind that zckpt cannot write";
		else if (tensor_at(&s->walk, i) && is_more(s->walk.node[i]))
			why = "it has tensors with attributes or a class of their own";
	for (uint64_t i = 0; !why && i < s->nrefs; i++) {
		const struct ck_tensor_ref *t = s->ref[i], *last = i ? s->ref[i - 1] : t;

		why = storage_hinders(&s->pt->storage[t->storage], t);
		if (!why && t->storage == last->storage && t->dtype != last->dtype)
			why = "it has tensors of two types on one storage";
	}
	return why;
}

/* ---- cutting ---- */

static int add_piece(struct pt_slim *s, struct ck_pt_part *part, uint64_t from, uint64_t count,
		     struct ckpt_err *err)
{
	struct ck_pt_piece *piece;

	/* Room for twice as many at every power of two. */
	if (!(part->npieces & (part->npieces - 1))) {
		piece = ck_arena_alloc(&s->arena, (2 * part->npieces + 1) * sizeof(*piece));
		if (piece && part->npieces)
			memcpy(piece, part->piece, part->npieces * sizeof(*piece));
		if (!piece)
			return ck_fail_nomem(err, "pieces", part->npieces);
		part->piece = piece;
	}
	piece = (struct ck_pt_piece *)(uintptr_t)&part->piece[part->npieces++];
	*piece = (struct ck_pt_piece){
		.kind = CK_SEG_FILE, .first = from, .count = count, .text = s->want->path,
		.slot = CK_NONE,
	};
	return 0;
}

/* Elements [begin, end) of the storage, which 'at' elements stand before by now. */
struct stretch {
	uint64_t begin, end, at;
	uint64_t first;		/* of the tensors in it */
};

static int end_stretch(struct pt_slim *s, const struct stretch *x, uint64_t behind,
		       struct ck_pt_part *part, struct ckpt_err *err)
{
	const uint64_t es = ckpt_dtype_bits(part->dtype) / 8;
	const uint64_t from = s->pt->storage[s->ref[x->first]->storage].off + x->begin * es;

	for (uint64_t i = x->first; i < behind; i++)
		s->ref[i]->offset = span_of(s->ref[i]) ? s->ref[i]->offset - x->begin + x->at : 0;
	return x->end > x->begin ? add_piece(s, part, from, (x->end - x->begin) * es, err) : 0;
}

/* Tensors ref[i..j) of one storage, in order of their first elements. */
static int cut_spans(struct pt_slim *s, uint64_t i, uint64_t j, struct ck_pt_part *part,
		     uint64_t *used, struct ckpt_err *err)
{
	struct stretch x = { .first = i };
	bool open = false;
	int rc = 0;

	for (uint64_t k = i; !rc && k < j; k++) {
		const uint64_t span = span_of(s->ref[k]), begin = s->ref[k]->offset;

		if (!span)
			continue;
		if (open && begin > x.end) {
			rc = end_stretch(s, &x, k, part, err);
			x.at += x.end - x.begin;
			x.first = k;
			open = false;
		}
		if (!open)
			x.begin = x.end = begin;
		open = true;
		x.end = ck_max_u64(x.end, begin + span);
	}
	if (!rc)
		rc = end_stretch(s, &x, j, part, err);
	*used = x.at + x.end - x.begin;
	return rc;
}

static int own_source(struct pt_slim *s, struct ck_index *own, uint32_t *out, struct ckpt_err *err)
{
	struct ck_src *src;
	int rc;

	if (own->nsources && !strcmp(own->source[own->nsources - 1].path, s->want->path)) {
		*out = (uint32_t)(own->nsources - 1);
		return 0;
	}
	rc = ck_src_open(s->want->pool, s->want->path, &src, err);
	return rc ? rc : ck_index_add_source(own, s->want->path, src, -1, out, err);
}

static int own_state(struct pt_slim *s, const struct ck_tensor_ref *t, uint32_t *state_out,
		     struct ckpt_err *err)
{
	const char *name = ck_arena_printf(&s->arena, "%s/%s", s->want->path,
					   s->pt->storage[t->storage].key);
	uint32_t tensor = 0, source = 0;
	struct ck_extent e;
	struct ck_index *own;
	int rc = ck_plan_own(s->plan, s->want->limits->memory_bytes, &own, err);

	if (!rc && !name)
		rc = ck_fail_nomem(err, "a name", 0);
	if (!rc)
		rc = own_source(s, own, &source, err);
	if (!rc)
		rc = ck_index_add_tensor(own, name, t->shape, t->ndim, CKPT_ROLE_PLAIN, &tensor,
					 err);
	if (!rc)
		rc = ck_index_state_begin(own, tensor, "bytes", t->dtype, 0, err);
	if (rc)
		return rc > 0 ? ck_fail(err, CKPT_E_USAGE, name, CKPT_NO_OFFSET,
					"the file is in the plan twice") : rc;
	rc = ck_pt_extent(s->pt, t, 0, t->numel, 0, source, -1, own, &e, err);
	if (!rc)
		rc = ck_index_state_extent(own, &e, err);
	if (rc)
		ck_index_state_cancel(own);
	return rc ? rc : ck_index_state_end(own, state_out, err);
}

/* The tensor's elements alone, one behind the other. */
static int gather(struct pt_slim *s, struct ck_tensor_ref *t, struct ck_pt_part *part,
		  struct ckpt_err *err)
{
	struct ck_pt_piece *piece = ck_arena_alloc(&s->arena, sizeof(*piece));
	uint64_t *stride = ck_arena_alloc(&s->arena, (t->ndim + 1ull) * sizeof(*stride));
	uint64_t step = 1;
	uint32_t state;
	int rc;

	if (!piece || !stride)
		return ck_fail_nomem(err, "a piece", 1);
	rc = own_state(s, t, &state, err);
	if (rc)
		return rc;
	*piece = (struct ck_pt_piece){
		.kind = CK_SEG_OWN, .dtype = t->dtype, .slot = CK_NONE, .count = t->numel,
		.state = state,
	};
	for (uint32_t d = t->ndim; d > 0; d--) {
		stride[d - 1] = step;
		step *= t->shape[d - 1];
	}
	t->offset = 0;
	t->stride = stride;
	t->conj = t->neg = false;	/* done in reading */
	part->piece = piece;
	part->npieces = 1;
	return 0;
}

static bool can_gather(const struct pt_slim *s, const struct ck_tensor_ref *t)
{
	return t->numel && t->numel < span_of(t) &&
	       span_of(t) <= s->want->limits->gather_bytes / (ckpt_dtype_bits(t->dtype) / 8);
}

static int cut_storage(struct pt_slim *s, uint64_t i, uint64_t j, struct ckpt_err *err)
{
	struct ck_tensor_ref *t = s->ref[i];
	const struct ck_pt_storage *st = &s->pt->storage[t->storage];
	struct ck_pt_part *part = &s->part[t->storage];
	uint64_t used = t->numel;
	int rc;

	part->dtype = t->dtype;
	if (!(s->want->what & CKPT_SLIM_VIEWS))
		return st->bytes ? add_piece(s, part, st->off, st->bytes, err) : 0;
	rc = j - i == 1 && can_gather(s, t) ? gather(s, t, part, err) :
	     cut_spans(s, i, j, part, &used, err);
	s->saved.views += st->bytes - used * (ckpt_dtype_bits(t->dtype) / 8);
	return rc;
}

int ck_pt_cut(struct pt_slim *s, struct ckpt_err *err)
{
	int rc = 0;

	s->part = ck_arena_zalloc(&s->arena, (s->pt->nstorages + 1) * sizeof(*s->part));
	if (!s->part)
		return ck_fail_nomem(err, "storages", s->pt->nstorages);
	for (uint64_t i = 0, j; !rc && i < s->nrefs; i = j) {
		for (j = i + 1; j < s->nrefs && s->ref[j]->storage == s->ref[i]->storage;)
			j++;
		rc = cut_storage(s, i, j, err);
	}
	return rc;
}
