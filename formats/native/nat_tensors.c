/* nat_tensors.c -- the tensors of manifests: states, and pieces of all parts in one row. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/native/ck_nat_read.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/json/ck_json_out.h"
#include "libckpt/tensor/ck_dtype.h"

static int take_shape(struct ck_nat_reading *r, uint64_t obj, const uint64_t **shape_out,
		      uint32_t *ndim_out, struct ckpt_err *err)
{
	const uint64_t list = ck_nat_member(r, obj, "shape", CK_JSON_ARRAY);
	const uint32_t n = list == UINT64_MAX ? 0 : r->doc->tok[list].n;
	uint64_t *shape;

	if (list == UINT64_MAX)
		return ck_nat_bad(r, obj, "a tensor has no shape", err);
	if (n > r->limits->tensor_dims)
		return ck_fail_limit(err, r->path, r->doc->tok[list].off, "tensor_dims",
				     r->limits->tensor_dims,
				     "a tensor has %" PRIu32 " dimensions", n);
	shape = ck_arena_alloc(&r->nat->arena, (n + 1ull) * sizeof(*shape));
	if (!shape)
		return ck_fail_nomem(err, "a shape", n);
	for (uint32_t d = 0; d < n; d++)	/* items are scalars, or this fails */
		if (!ck_json_u64(r->doc, list + 1 + d, &shape[d]))
			return ck_nat_bad(r, list, "a shape is not a list of sizes", err);
	*shape_out = shape;
	*ndim_out = n;
	return 0;
}

static int take_tensor(struct ck_nat_reading *r, uint64_t obj, struct ckpt_err *err)
{
	const bool is_object = r->doc->tok[obj].type == CK_JSON_OBJECT;
	const char *name = is_object ? ck_nat_text_of(r, obj, "name") : NULL;
	const char *role = is_object ? ck_nat_text_of(r, obj, "role") : NULL;
	const uint64_t *shape = NULL;
	int64_t group;
	uint32_t ndim = 0, number;
	int rc;

	if (!name || !role || !ck_role_parse(role) || !ck_nat_i64_of(r, obj, "group", &group) ||
	    group < -1 || (group >= 0 && (uint64_t)group >= r->ix->ngroups))
		return ck_nat_bad(r, obj, "a tensor lacks its name, role or group, or they are out "
				  "of range", err);
	rc = take_shape(r, obj, &shape, &ndim, err);
	if (!rc)
		rc = ck_index_add_tensor(r->ix, name, shape, ndim, (enum ckpt_role)
					 ck_role_parse(role), &number, err);
	if (rc > 0)
		return ck_nat_bad(r, obj, "\"tensors\" has this name twice", err);
	if (rc)
		return rc;
	r->ix->tensor[number].group = (int32_t)group;
	r->tensor_tok[number] = obj;
	return 0;
}

static int take_alias(struct ck_nat_reading *r, uint32_t number, struct ckpt_err *err)
{
	const char *of = ck_nat_text_of(r, r->tensor_tok[number], "alias_of");
	struct ck_tensor *t = &r->ix->tensor[number];
	uint32_t target;

	if (t->role != CKPT_ROLE_ALIAS)
		return 0;
	if (!of || !ck_index_find(r->ix, of, &target) ||
	    r->ix->tensor[target].role == CKPT_ROLE_ALIAS ||
	    r->ix->tensor[target].numel != t->numel)
		return ck_nat_bad(r, r->tensor_tok[number], "an alias refers to no tensor, to "
				  "another alias, or to a tensor with another number of elements",
				  err);
	t->alias_of = target;
	return 0;
}

/* ---- states ---- */

static int take_piece(struct ck_nat_reading *r, uint32_t tensor, const struct ck_nat_told *p,
		      enum ckpt_dtype dtype, bool *gone, struct ckpt_err *err)
{
	const struct ck_nat_part *part = &r->part[p->part];
	const struct ck_json *d = &part->doc;
	const uint64_t list = p->tok;
	struct ck_extent e = { .runs = 1, .member = CK_NONE, .view = CK_NONE, .dtype = dtype };
	struct ck_stated_sum sum = { .state = (uint32_t)r->ix->nstates };
	const struct ck_nat_file *f;
	uint64_t file, bytes, end;
	int rc;

	if (d->tok[list].type != CK_JSON_ARRAY || d->tok[list].n < 6 ||
	    !ck_json_u64(d, list + 1, &file) || !ck_json_u64(d, list + 2, &e.off) ||
	    !ck_json_u64(d, list + 3, &e.first) || !ck_json_u64(d, list + 4, &e.count) ||
	    file >= part->nfiles || !e.count)
		return ck_nat_bad(r, list, "a piece is not [file, offset, first, count, sum, "
				  "ends] with elements in a file of the list", err);
	f = &r->nat->file[part->files + file];
	if (!f->head)
		return ck_nat_bad(r, list, "a piece is in a file of values, which holds no "
				  "tensors", err);
	rc = ck_dtype_bytes(dtype, e.count, &bytes, err);
	if (rc)
		return rc;
	if (e.off < f->head || ck_add_over(e.off, bytes, &end) || end > f->bytes)
		return ck_fail(err, CKPT_E_CORRUPT, r->path, d->tok[list].off,
			       "a piece of %s at byte %" PRIu64 " of %s has %" PRIu64 " bytes, "
			       "but the file has %" PRIu64,
			       r->ix->tensor[tensor].name, e.off, f->name,
			       bytes, f->bytes);
	if (f->source == CK_NONE) {
		*gone = true;	/* a finding says so */
		return 0;
	}
	e.source = f->source;
	e.rank = f->rank;
	sum.first = e.first;
	sum.count = e.count;
	sum.has_ends = ck_json_hash(d, list + 6, &sum.ends);
	rc = ck_index_state_extent(r->ix, &e, err);
	if (!rc && ck_json_hash(d, list + 5, &sum.sum))
		rc = ck_index_add_stated_sum(r->ix, &sum, err);
	return rc;
}

static int by_first(const void *a, const void *b)
{
	const struct ck_nat_told *x = a, *y = b;

	return (x->first > y->first) - (x->first < y->first);
}

/* The lists of all parts; 'at' of each is the state in it. */
static int gather_pieces(struct ck_nat_reading *r, const char *name, const char *type,
			 struct ckpt_err *err)
{
	int rc = 0;

	r->npieces = 0;
	for (uint32_t p = 0; !rc && p < r->nparts; p++) {
		const struct ck_json *d = &r->part[p].doc;
		uint64_t list;

		ck_nat_turn_to(r, p);
		list = ck_nat_same_text(r, r->part[p].at, "name", name) &&
		       ck_nat_same_text(r, r->part[p].at, "dtype", type) ?
		       ck_nat_member(r, r->part[p].at, "pieces", CK_JSON_ARRAY) : UINT64_MAX;
		if (list == UINT64_MAX)
			return ck_nat_bad(r, r->part[p].at, "a state has no pieces, or its name "
					  "or dtype differs from the part of another rank", err);
		for (uint64_t i = list + 1; !rc && i < d->tok[list].next; i = d->tok[i].next) {
			struct ck_nat_told *last;

			rc = ck_grow(&r->piece, &r->piece_cap, r->npieces + 1, sizeof(*last), err);
			if (rc)
				break;
			last = &r->piece[r->npieces++];
			*last = (struct ck_nat_told){ .tok = i, .part = p };
			if (d->tok[i].type == CK_JSON_ARRAY && d->tok[i].n > 3)
				ck_json_u64(d, i + 3, &last->first);
		}
	}
	if (r->nparts > 1 && r->npieces)
		qsort(r->piece, r->npieces, sizeof(*r->piece), by_first);
	return rc;
}

/* A part that is missing has what is not in the others; a finding says so. */
static bool is_short(const struct ck_nat_reading *r, uint32_t tensor, uint64_t nelements)
{
	return r->lacks && nelements < r->ix->tensor[tensor].numel;
}

static int take_pieces(struct ck_nat_reading *r, uint32_t tensor, enum ckpt_dtype dtype,
		       struct ckpt_err *err)
{
	const uint64_t nsums = r->ix->nstated_sums;
	uint64_t end = 0;
	bool gone = false;
	uint32_t state;
	int rc = 0;

	for (uint64_t i = 0; !rc && !gone && i < r->npieces; i++) {
		const struct ck_nat_told *p = &r->piece[i];
		uint64_t count = 0;

		ck_nat_turn_to(r, p->part);
		gone = r->lacks && p->first > end;
		rc = gone ? 0 : take_piece(r, tensor, p, dtype, &gone, err);
		if (!rc)
			ck_json_u64(r->doc, p->tok + 4, &count);
		end = p->first + count;
	}
	ck_nat_turn_to(r, 0);
	if (rc || gone || is_short(r, tensor, end)) {
		ck_index_state_cancel(r->ix);
		r->ix->nstated_sums = nsums;
		return rc;
	}
	return ck_index_state_end(r->ix, &state, err);
}

static int derive(struct ck_nat_reading *r, uint32_t tensor, const char *name,
		  enum ckpt_dtype dtype, struct ckpt_err *err)
{
	const uint32_t master = ck_index_state_find(r->ix, tensor, "master");

	return master == CK_NONE ? 0 : ck_index_state_derive(r->ix, master, name, dtype, err);
}

static int take_state(struct ck_nat_reading *r, uint32_t tensor, uint64_t obj, bool derived,
		      struct ckpt_err *err)
{
	const bool is_object = r->doc->tok[obj].type == CK_JSON_OBJECT;
	const char *name = is_object ? ck_nat_text_of(r, obj, "name") : NULL;
	const char *type = is_object ? ck_nat_text_of(r, obj, "dtype") : NULL;
	const uint64_t list = is_object ? ck_nat_member(r, obj, "pieces", CK_JSON_ARRAY) :
			      UINT64_MAX;
	const enum ckpt_dtype dtype = type ? ckpt_dtype_parse(type) : 0;
	int rc;

	if (!name || !name[0] || !dtype || list == UINT64_MAX)
		return ck_nat_bad(r, obj, "a state lacks its name, dtype or pieces", err);
	if (ck_nat_is_true(r, obj, "derived") != derived)
		return 0;	/* derived ones in a second round */
	if (ck_index_state_find(r->ix, tensor, name) != CK_NONE)
		return ck_nat_bad(r, obj, "a tensor has two states of this name", err);
	if (derived)
		return derive(r, tensor, name, dtype, err);
	rc = ck_index_state_begin(r->ix, tensor, name, dtype, ck_nat_is_true(r, obj, "per_rank") ?
				  CKPT_STATE_PER_RANK : 0, err);
	if (rc)
		return rc;
	if (!rc)
		rc = gather_pieces(r, name, type, err);
	if (!rc)
		return take_pieces(r, tensor, dtype, err);
	ck_index_state_cancel(r->ix);
	ck_nat_turn_to(r, 0);
	return rc;
}

/* Every part has the list of the same states: 'at' is the first in each. */
static int begin_states(struct ck_nat_reading *r, uint32_t tensor, struct ckpt_err *err)
{
	uint32_t n = 0;
	int rc = 0;

	for (uint32_t p = 0; !rc && p < r->nparts; p++) {
		uint64_t list;

		ck_nat_turn_to(r, p);
		list = ck_nat_member(r, r->tensor_tok[tensor], "states", CK_JSON_ARRAY);
		if (list == UINT64_MAX || (p && r->doc->tok[list].n != n))
			rc = ck_nat_bad(r, r->tensor_tok[tensor], "the states of a tensor "
					"differ from those in the part of another rank", err);
		else
			n = r->doc->tok[list].n;
		r->part[p].at = list + 1;
	}
	ck_nat_turn_to(r, 0);
	return rc;
}

static int take_states(struct ck_nat_reading *r, uint32_t tensor, struct ckpt_err *err)
{
	const uint64_t obj = r->tensor_tok[tensor];
	const uint64_t list = ck_nat_member(r, obj, "states", CK_JSON_ARRAY);
	int rc = 0;

	if (list == UINT64_MAX)
		return ck_nat_bad(r, obj, "the list \"states\" of a tensor is missing", err);
	if (r->ix->tensor[tensor].role == CKPT_ROLE_ALIAS && r->doc->tok[list].n)
		return ck_nat_bad(r, obj, "an alias has states of its own", err);
	for (int derived = 0; !rc && derived < 2; derived++) {
		rc = begin_states(r, tensor, err);
		for (uint64_t i = list + 1; !rc && i < r->doc->tok[list].next;
		     i = r->doc->tok[i].next) {
			rc = take_state(r, tensor, i, derived, err);
			for (uint32_t p = 0; p < r->nparts; p++)
				r->part[p].at = r->part[p].doc.tok[r->part[p].at].next;
		}
	}
	return rc;
}

/* Another part's list has the same tensors in the same order. */
static int match_tensor(struct ck_nat_reading *r, uint32_t number, uint64_t obj,
			struct ckpt_err *err)
{
	const struct ck_tensor *t = number < r->ix->ntensors ? &r->ix->tensor[number] : NULL;
	const uint64_t *shape;
	uint32_t ndim;
	int64_t group;
	int rc;

	if (!t || r->doc->tok[obj].type != CK_JSON_OBJECT ||
	    !ck_nat_same_text(r, obj, "name", t->name) ||
	    !ck_nat_same_text(r, obj, "role", ck_role_name(t->role)) ||
	    !ck_nat_i64_of(r, obj, "group", &group) || group != t->group)
		return ck_nat_bad(r, obj, "this tensor differs from the one in the part of "
				  "another rank", err);
	rc = take_shape(r, obj, &shape, &ndim, err);
	if (!rc && (ndim != t->ndim || (ndim && memcmp(shape, t->shape, ndim * sizeof(*shape)))))
		rc = ck_nat_bad(r, obj, "the shape of this tensor differs from that in the part "
				"of another rank", err);
	r->tensor_tok[number] = obj;
	return rc;
}

static int take_part_tensors(struct ck_nat_reading *r, uint32_t part, struct ckpt_err *err)
{
	const uint64_t list = ck_nat_member(r, 0, "tensors", CK_JSON_ARRAY);
	uint32_t n = 0;
	int rc = 0;

	if (list == UINT64_MAX)
		return ck_nat_bad(r, 0, "the list \"tensors\" is missing", err);
	r->part[part].tensor_tok = ck_arena_zalloc(&r->nat->arena, (r->doc->tok[list].n + 1ull) *
						   sizeof(*r->tensor_tok));
	if (!r->part[part].tensor_tok)
		return ck_fail_nomem(err, "tensors", r->doc->tok[list].n);
	ck_nat_turn_to(r, part);
	for (uint64_t i = list + 1; !rc && i < r->doc->tok[list].next; i = r->doc->tok[i].next)
		rc = part ? match_tensor(r, n++, i, err) : take_tensor(r, i, err);
	if (!rc && part && n != r->ix->ntensors)
		rc = ck_nat_bad(r, list, "tensors that another rank's part has are missing", err);
	return rc;
}

int ck_nat_tensors(struct ck_nat_reading *r, struct ckpt_err *err)
{
	int rc = 0;

	for (uint32_t p = 0; !rc && p < r->nparts; p++) {
		ck_nat_turn_to(r, p);
		rc = take_part_tensors(r, p, err);
	}
	ck_nat_turn_to(r, 0);
	for (uint32_t t = 0; !rc && t < r->ix->ntensors; t++)
		rc = take_alias(r, t, err);
	for (uint32_t t = 0; !rc && t < r->ix->ntensors; t++)
		rc = take_states(r, t, err);
	return rc;
}
