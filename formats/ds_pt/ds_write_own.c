/*
 * ds_write_own.c -- storages of a source file that cannot be copied byte by byte: deflated by
 * another zip program, or big-endian.  They become states of the plan's own index, whose reader
 * inflates and turns round.
 */
#include <string.h>

#include "formats/ds_pt/ds_write.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/tensor/ck_dtype.h"
#include "libckpt/tensor/ck_extents.h"

static int own_source(struct wr *w, struct ck_index *own, const char *path,
		      uint32_t *source_out, struct ckpt_err *err)
{
	struct ck_src *src;
	int rc;

	/* One file after the other is taken, some of them again and again. */
	for (uint64_t i = own->nsources; i > 0; i--)
		if (!strcmp(own->source[i - 1].path, path)) {
			*source_out = (uint32_t)(i - 1);
			return 0;
		}
	rc = ck_src_open(w->step->in->pool, path, &src, err);
	return rc ? rc : ck_index_add_source(own, path, src, -1, source_out, err);
}

static int own_state(struct ck_index *own, uint32_t tensor, uint32_t source, uint64_t numel,
		     const struct ck_pt_storage *s, struct ckpt_err *err)
{
	const struct ck_member m = {
		.name = s->key, .off = s->off, .packed = s->packed, .bytes = s->bytes,
		.source = source, .crc = s->crc,
	};
	struct ck_extent e = {
		.count = numel, .runs = 1, .off = s->deflated ? 0 : s->off, .source = source,
		.member = CK_NONE, .view = CK_NONE, .rank = -1, .dtype = s->dtype,
		.flags = (uint8_t)((s->deflated ? CKPT_EXTENT_DEFLATED : 0) |
				   (s->swapped && ckpt_dtype_bits(s->dtype) > 8 ?
				    CKPT_EXTENT_SWAPPED : 0)),
	};
	uint32_t state;
	int rc = s->deflated ? ck_index_add_member(own, &m, &e.member, err) : 0;

	if (!rc)
		rc = ck_index_state_begin(own, tensor, "bytes", (enum ckpt_dtype)s->dtype, 0, err);
	if (rc)
		return rc;
	rc = ck_index_state_extent(own, &e, err);
	if (rc)
		ck_index_state_cancel(own);
	return rc ? rc : ck_index_state_end(own, &state, err);
}

int ck_wr_own(struct wr *w, const struct ck_step_file *file, const struct ck_pt_storage *s,
	      struct ck_pt_piece *piece, struct ckpt_err *err)
{
	const uint64_t numel = s->bytes / (ckpt_dtype_bits(s->dtype) / 8);
	const char *name = ck_arena_printf(&w->arena, "%s/%s", file->path, s->key);
	uint32_t source = 0, tensor;
	struct ck_index *own;
	int rc;

	if (!name)
		return ck_fail_nomem(err, "a name", 0);
	if (s->untyped && s->swapped)
		return ck_fail(err, CKPT_E_UNSUPPORTED, file->path, CKPT_NO_OFFSET,
			       "big-endian storages without a type (%s) cannot be "
			       "resharded", s->key);
	rc = ck_plan_own(w->plan, w->step->in->limits.memory_bytes, &own, err);
	if (!rc)
		rc = own_source(w, own, file->path, &source, err);
	if (!rc)
		rc = ck_index_add_tensor(own, name, &numel, 1, CKPT_ROLE_PLAIN, &tensor, err);
	if (!rc)
		rc = own_state(own, tensor, source, numel, s, err);
	if (rc < 0)
		return rc;
	*piece = (struct ck_pt_piece){
		.kind = CK_SEG_OWN, .dtype = s->dtype, .slot = CK_NONE, .count = numel,
		.state = ck_index_state_find(own, tensor, "bytes"),
	};
	return 0;
}

/* Extents of a position, whose sources are its own. */
static int take_extents(struct wr *w, struct ck_index *own, const struct ck_state *state,
			struct ckpt_err *err)
{
	const struct ck_extent *e;
	struct ck_extents c;
	int rc = 0;

	ck_extents_begin(&c, w->ix, state, 0);
	while (!rc && (e = ck_extents_next(&c))) {
		struct ck_extent mine = *e;

		if (e->view != CK_NONE || e->member != CK_NONE)
			return ck_fail(err, CKPT_E_UNSUPPORTED, w->ix->source[e->source].path,
				       CKPT_NO_OFFSET, "a file of a tensor or pipeline parallel "
				       "step is compressed or strided; zckpt cannot reshard it");
		rc = own_source(w, own, w->ix->source[e->source].path, &mine.source, err);
		if (!rc)
			rc = ck_index_state_extent(own, &mine, err);
	}
	return rc;
}

int ck_wr_own_state(struct wr *w, uint32_t state, uint32_t *own_out, struct ckpt_err *err)
{
	const struct ck_state *from = &w->ix->state[state];
	const struct ck_tensor *t = &w->ix->tensor[from->tensor];
	const char *name = ck_arena_printf(&w->arena, "%u/%u", w->mp, state);
	struct ck_index *own;
	uint32_t tensor;
	int rc;

	if (w->own_state[state] != CK_NONE) {
		*own_out = w->own_state[state];
		return 0;
	}
	rc = name ? ck_plan_own(w->plan, w->step->in->limits.memory_bytes, &own, err) :
	     ck_fail_nomem(err, "a name", 0);
	if (!rc)
		rc = ck_index_add_tensor(own, name, &t->numel, 1, CKPT_ROLE_PLAIN, &tensor, err);
	if (!rc)
		rc = ck_index_state_begin(own, tensor, "bytes", (enum ckpt_dtype)from->dtype, 0,
					  err);
	if (rc)
		return rc;
	rc = take_extents(w, own, from, err);
	if (rc)
		ck_index_state_cancel(own);
	else
		rc = ck_index_state_end(own, &w->own_state[state], err);
	*own_out = w->own_state[state];
	return rc;
}
