/*
 * rk_index.c -- tensors, states and extents of the blocks, in the order of the model files.
 *
 * A block that is as wide as the tensor is one run of it; of another, each row is one.  Ranks that
 * have the same block have copies: the first of each block makes the state, the second ones a
 * replica of it, and so on, so that whoever reads or verifies compares them.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/fsdp_ranks/rk_tc.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/step/ck_step_ds.h"
#include "libckpt/step/ck_step_fact.h"
#include "libckpt/tensor/ck_block.h"
#include "libckpt/tensor/ck_dtype.h"

/* ---- blocks ---- */

struct sorted {
	const struct rk_block *block;
	uint32_t ndim;
};

static int compare_numbers(const uint64_t *a, const uint64_t *b, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		if (a[i] != b[i])
			return a[i] < b[i] ? -1 : 1;
	return 0;
}

static int compare_blocks(const struct sorted *a, const struct sorted *b)
{
	const int place = compare_numbers(a->block->offset, b->block->offset, a->ndim);

	return place ? place : compare_numbers(a->block->size, b->block->size, a->ndim);
}

static int by_block(const void *a, const void *b)
{
	const struct sorted *x = a, *y = b;
	const int place = compare_blocks(x, y);

	if (place)
		return place;
	return x->block->file->id.rank < y->block->file->id.rank ? -1 :
	       x->block->file->id.rank > y->block->file->id.rank;
}

static int sort_blocks(const struct rk_state *s, struct sorted **out, uint64_t *n_out,
		       struct ckpt_err *err)
{
	struct sorted *a = ck_alloc_array(s->nblocks + 1, sizeof(*a));
	uint64_t n = 0;

	if (!a)
		return ck_fail_nomem(err, "blocks", s->nblocks);
	for (uint64_t i = 0; i < s->nblocks; i++)
		if (s->block[i].numel)
			a[n++] = (struct sorted){ &s->block[i], s->ndim };
	qsort(a, n, sizeof(*a), by_block);
	*out = a;
	*n_out = n;
	return 0;
}

/* Blocks after 'i' that are the same one, and it. */
static uint64_t copies_of(const struct sorted *a, uint64_t n, uint64_t i)
{
	uint64_t k = 1;

	while (i + k < n && !compare_blocks(&a[i], &a[i + k]))
		k++;
	return k;
}

static uint64_t most_copies(const struct sorted *a, uint64_t n)
{
	uint64_t most = 0, k;

	for (uint64_t i = 0; i < n; i += k) {
		k = copies_of(a, n, i);
		most = k > most ? k : most;
	}
	return most;
}

/* ---- tiles ---- */

static int add_block(const struct rk *r, const struct rk_block *b, struct ck_tiles *tiles,
		     struct ckpt_err *err)
{
	const struct ck_block block = { b->offset, b->size };
	const uint64_t run = ck_tiles_run(tiles, &block), n = run ? b->numel / run : 0;
	struct ck_extent e;
	int rc = ck_pt_extent(b->file->pt, b->t, b->begin, b->numel, 0, b->file->source,
			      r->naming == RK_WHOLE ? -1 : (int32_t)b->file->id.rank, r->ix, &e,
			      err);

	if (!rc && n > b->file->bytes)	/* of a view that repeats its elements */
		rc = ck_fail(err, CKPT_E_CORRUPT, b->file->path, CKPT_NO_OFFSET,
			     "a part of a tensor has %" PRIu64 " rows, the file %" PRIu64 " bytes",
			     n, b->file->bytes);
	return rc ? rc : ck_tiles_add(tiles, &block, 0, b->numel, &e, err);
}

/* Copy number 'copy' of each block; of one with fewer its first. */
static int add_blocks(const struct rk *r, const struct rk_tensor *t, const struct rk_state *s,
		      const struct sorted *a, uint64_t n, uint64_t copy, struct ck_tiles *tiles,
		      struct ckpt_err *err)
{
	uint64_t k;
	int rc = ck_tiles_begin(tiles, t->name, s->shape, s->ndim, err);

	for (uint64_t i = 0; !rc && i < n; i += k) {
		k = copies_of(a, n, i);
		rc = add_block(r, a[i + (copy < k ? copy : 0)].block, tiles, err);
	}
	return rc;
}

/* ---- states ---- */

static int add_state(struct rk *r, const struct rk_tensor *t, const struct rk_state *s,
		     struct ck_tiles *tiles, struct ckpt_err *err)
{
	struct ck_tiles_fault fault = { .odd = false };
	struct sorted *a = NULL;
	uint64_t n = 0, copies;
	int rc = sort_blocks(s, &a, &n, err);

	if (rc)
		return rc;
	copies = most_copies(a, n);
	rc = add_blocks(r, t, s, a, n, 0, tiles, err);
	if (!rc)
		rc = ck_tiles_check(tiles, &fault, err);
	if (!rc && fault.odd) {
		if (!r->incomplete || fault.twice)
			ck_findings_add(r->f, CK_FINDING_LENGTH_WRONG, t->name,
					"the ranks' parts of its %s %s element %" PRIu64 " of %"
					PRIu64 " (files of two saves in one folder?)", s->name,
					fault.twice ? "overlap at" : "leave out", fault.at,
					s->numel);
	} else if (!rc) {
		rc = ck_tiles_put(tiles, r->ix, t->number, s->name, s->dtype, err);
		for (uint64_t k = 1; !rc && k < copies; k++) {
			rc = add_blocks(r, t, s, a, n, k, tiles, err);
			if (!rc)
				rc = ck_tiles_put(tiles, r->ix, t->number, s->name, s->dtype, err);
		}
	}
	ck_free(a);
	return rc;
}

/* ---- tensors ---- */

static bool has_optimizer(const struct rk *r)
{
	for (uint64_t i = 0; i < r->ntensors; i++)
		if (r->tensor[i].state)
			return true;
	return false;
}

/* FSDP shards every parameter: what is whole beside sharded ones is a buffer. */
static enum ckpt_role role_of(const struct rk *r, const struct rk_tensor *t, bool optimizer)
{
	if (t->alias_of != CK_NONE)
		return CKPT_ROLE_ALIAS;
	if (t->state || (r->deepspeed && t->group >= 0))
		return CKPT_ROLE_TRAINABLE;
	if (ck_rk_extra_lists(r, "frozen", t->name))
		return CKPT_ROLE_FROZEN;
	if (ck_rk_extra_lists(r, "buffer_names", t->name))
		return CKPT_ROLE_BUFFER;
	if ((r->any_sharded && !t->sharded) ||
	    (optimizer && ck_dtype_info((enum ckpt_dtype)t->weight.dtype)->cls != CK_CLASS_FLOAT))
		return CKPT_ROLE_BUFFER;
	return optimizer && t->sharded && !t->twin ? CKPT_ROLE_FROZEN : CKPT_ROLE_PLAIN;
}

/* Of a run of DeepSpeed in 16 bits what is here is the master, of which its weight is made. */
static int add_parameter(struct rk *r, struct rk_tensor *t, struct ck_tiles *tiles,
			 struct ckpt_err *err)
{
	const enum ckpt_dtype dtype = ck_step_ds_type(r->deepspeed, "weight_dtype");
	struct rk_state s = t->weight;
	uint32_t master;
	int rc;

	if (s.dtype != ck_step_ds_type(r->deepspeed, "master_dtype") ||
	    !ck_dtype_is_castable(dtype))
		return add_state(r, t, &t->weight, tiles, err);
	s.name = "master";
	rc = add_state(r, t, &s, tiles, err);
	master = ck_index_state_find(r->ix, t->number, "master");
	return rc || master == CK_NONE ? rc :
	       ck_index_state_derive(r->ix, master, "weight", dtype, err);
}

static int add_tensor(struct rk *r, struct rk_tensor *t, bool optimizer, struct ck_tiles *tiles,
		      struct ckpt_err *err)
{
	const enum ckpt_role role = role_of(r, t, optimizer);
	int rc = ck_index_add_tensor(r->ix, t->name, t->weight.shape, t->weight.ndim, role,
				     &t->number, err);

	if (rc)
		return rc;
	r->ix->tensor[t->number].group = t->group;
	if (role == CKPT_ROLE_TRAINABLE)
		return add_parameter(r, t, tiles, err);
	if (role != CKPT_ROLE_ALIAS)
		return add_state(r, t, &t->weight, tiles, err);
	r->ix->tensor[t->number].alias_of = r->tensor[t->alias_of].number;
	return 0;
}

static bool fits(const struct rk_tensor *t, const struct rk_state *s)
{
	if (s->flat)
		return s->numel == t->weight.numel;
	return s->ndim == t->weight.ndim &&
	       (!s->ndim || !memcmp(s->shape, t->weight.shape, s->ndim * sizeof(*s->shape)));
}

static int add_moments(struct rk *r, const struct rk_tensor *t, struct ck_tiles *tiles,
		       struct ckpt_err *err)
{
	int rc = 0;

	for (const struct rk_state *s = t->state; !rc && s; s = s->next) {
		if (fits(t, s)) {
			rc = add_state(r, t, s, tiles, err);
			continue;
		}
		r->nlost++;
		ck_findings_add(r->f, CK_FINDING_NOT_IN_CHECKPOINT, t->name,
				"its optimizer state %s is left out: it has another shape",
				s->name);
	}
	return rc;
}

static int add_all(struct rk *r, struct ck_tiles *tiles, struct ckpt_err *err)
{
	const bool optimizer = has_optimizer(r);
	int rc = 0;

	for (uint64_t i = 0; !rc && i < r->ntensors; i++)
		rc = add_tensor(r, &r->tensor[i], optimizer, tiles, err);
	for (uint64_t i = 0; !rc && i < r->ntensors; i++)
		rc = add_moments(r, &r->tensor[i], tiles, err);
	return rc;
}

/* ---- facts ---- */

/*
 * The name of the folder says it, or of the one above; else the optimizer.  In verl one step of the
 * run is several of the optimizer.
 */
static int64_t step_of(struct rk *r)
{
	const char *end = r->where + strlen(r->where);
	int64_t said = r->tc ? ck_rk_tc_step(r) : -1;
	uint64_t n;

	if (said >= 0 ||
	    (ck_val_int(ck_val_get(r->deepspeed, "global_steps"), &said) && said >= 0))
		return said;
	for (int k = 0; k < 2 && end > r->where; k++) {
		const char *begin = end, *name;

		while (begin > r->where && begin[-1] != '/')
			begin--;
		name = ck_arena_strndup(&r->arena, begin, (size_t)(end - begin));
		if (name && ck_step_number(name, &n) && n < INT64_MAX)
			return (int64_t)n;
		end = begin > r->where ? begin - 1 : begin;
	}
	for (uint32_t g = 0; g < r->ngroups; g++)
		if (r->group[g].has_step && r->group[g].step >= 0 && r->group[g].step < 1e15)
			return (int64_t)r->group[g].step;
	return -1;
}

int ck_rk_index_fill(struct rk *r, struct ckpt_err *err)
{
	static const char *const writers[] = {
		[RK_VERL] = "FSDP, rank files of verl",
		[RK_ACCEL] = "FSDP, rank files of accelerate",
		[RK_WHOLE] = "FSDP, FULL_STATE_DICT",
		[RK_TC] = "torch_checkpointing",
	};
	struct ck_tiles tiles;
	int rc;

	ck_tiles_init(&tiles, r->in->limits.memory_bytes);
	rc = add_all(r, &tiles, err);
	r->ix->world = r->world;
	r->ix->optimizer = !has_optimizer(r) ? "none" : r->naming == RK_WHOLE ? "whole" : "sharded";
	r->ix->writer = writers[r->naming];
	r->ix->step = step_of(r);
	r->ix->ngroups = r->ngroups;
	if (!rc)
		rc = ck_rk_optim_facts(r, err);
	if (!rc && r->tc)
		rc = ck_rk_tc_facts(r, err);
	ck_tiles_release(&tiles);
	return rc;
}
