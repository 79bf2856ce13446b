/*
 * dcp_write.c -- a step as a folder of torch.distributed.checkpoint: a file for each rank with the
 * rows that FSDP gives it, then the index of all.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/dcp/dcp_out.h"
#include "formats/torch_pt/ck_pt_plan.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/step/ck_step_along.h"
#include "libckpt/step/ck_step_drop.h"
#include "libckpt/step/ck_step_ds.h"
#include "libckpt/tensor/ck_dtype.h"
#include "libckpt/tensor/ck_val_new.h"

/* ---- an archive ---- */

static int append(struct dcp_out *o, struct dcp_spot *s, struct ck_pt_want *want,
		  struct ckpt_err *err)
{
	const struct ck_outfile *file = &o->plan->file[o->plan->nfiles - 1];
	int rc;

	want->ix = o->ix;
	want->prefix = "archive";
	want->append = true;
	s->begin = file->bytes;
	rc = ck_pt_plan_file(want, o->plan, err);
	s->bytes = o->plan->file[o->plan->nfiles - 1].bytes - s->begin;
	return rc;
}

static int append_value(struct dcp_out *o, const struct dcp_entry *e, struct ckpt_err *err)
{
	struct ck_pt_want want = { .name = e->name, .root = e->value };

	return append(o, e->spot, &want, err);
}

/* Elements of a row; of a tensor without dimensions the only one. */
static uint64_t row_of(const struct dcp_entry *e)
{
	uint64_t n = 1;

	for (uint32_t k = 1; k < e->ndim; k++)
		n *= e->shape[k];
	return n;
}

static int append_block(struct dcp_out *o, const struct dcp_entry *e, struct dcp_spot *s,
			struct ckpt_err *err)
{
	const uint64_t row = row_of(e), count = e->ndim ? s->rows * row : 1;
	uint64_t *dim = ck_arena_alloc(o->arena, (2 * (uint64_t)e->ndim + 1) * sizeof(*dim));
	struct ck_pt_piece piece = {
		.kind = CK_SEG_STATE, .dtype = e->dtype, .state = e->state,
		.first = s->row * row, .count = count, .slot = CK_NONE,
	};
	const struct ck_pt_part part = { e->dtype, &piece, count ? 1 : 0 };
	struct ck_tensor_ref ref = {
		.dtype = e->dtype, .ndim = e->ndim, .shape = dim, .stride = dim + e->ndim,
		.numel = count,
	};
	struct ck_pt_want want = { .name = e->name, .storage = &part, .nstorages = 1 };
	uint64_t stride = 1;
	int rc = 0;

	if (!dim)
		return ck_fail_nomem(err, "a shape", e->ndim);
	for (uint32_t k = e->ndim; k > 0; k--) {
		dim[k - 1] = k == 1 ? s->rows : e->shape[k - 1];
		dim[e->ndim + k - 1] = stride;
		stride *= dim[k - 1] ? dim[k - 1] : 1;
	}
	if (e->state != CK_NONE && o->want->reset &&
	    ck_step_is_moment(o->want, o->ix->state[e->state].name)) {
		piece.kind = CK_SEG_ZERO;	/* its count is of bytes */
		rc = ck_dtype_bytes((enum ckpt_dtype)e->dtype, count, &piece.count, err);
	}
	if (e->state == CK_NONE) {
		piece = (struct ck_pt_piece){
			.kind = CK_SEG_LITERAL, .count = sizeof(e->number), .text = &e->number,
		};
	}
	want.root = ck_val_new_tensor(o->arena, &ref);
	if (rc)
		return rc;
	return want.root ? append(o, s, &want, err) : ck_fail_nomem(err, "a tensor", 0);
}

/* An archive of the source, byte for byte. */
static int append_copy(struct dcp_out *o, struct dcp_spot *s, struct ckpt_err *err)
{
	const struct dcp_place *at = &s->from->at;

	s->begin = o->plan->file[o->plan->nfiles - 1].bytes;
	s->bytes = at->bytes;
	return ck_plan_copy(o->plan, o->source->fs.file[at->file].path, at->begin, at->bytes, err);
}

static int append_one(struct dcp_out *o, const struct dcp_entry *e, struct dcp_spot *s,
		      struct ckpt_err *err)
{
	if (e->is_copied)
		return append_copy(o, s, err);
	return e->value ? append_value(o, e, err) : append_block(o, e, s, err);
}

/* ---- files ---- */

/* A block or a value, in the file that it goes into. */
struct piece {
	uint64_t entry;
	struct dcp_spot *spot;
	uint32_t rank;
	uint8_t part;
	bool is_tensor;
};

static int by_rank(const void *a, const void *b)
{
	const struct piece *x = a, *y = b;

	if (x->part != y->part)
		return x->part < y->part ? -1 : 1;
	if (x->rank != y->rank)
		return x->rank < y->rank ? -1 : 1;
	if (x->is_tensor != y->is_tensor)
		return x->is_tensor ? 1 : -1;
	if (x->entry != y->entry)
		return x->entry < y->entry ? -1 : 1;
	return x->spot < y->spot ? -1 : x->spot > y->spot;
}

/* Values first, as torch has them, then blocks, rank by rank. */
static int list_pieces(const struct dcp_out *o, struct piece **out, uint64_t *n_out,
		       struct ckpt_err *err)
{
	uint64_t n = 0;
	struct piece *p;

	for (uint64_t i = 0; i < o->n; i++)
		n += o->entry[i].nspots;
	p = ck_alloc_array(n + 1, sizeof(*p));
	if (!p)
		return ck_fail_nomem(err, "a list of blocks", n);
	n = 0;
	for (uint64_t i = 0; i < o->n; i++)
		for (uint64_t k = 0; k < o->entry[i].nspots; k++) {
			struct dcp_spot *s = &o->entry[i].spot[k];

			p[n++] = (struct piece){ i, s, s->rank, o->entry[i].part,
						 o->entry[i].is_tensor };
		}
	if (n)
		qsort(p, n, sizeof(*p), by_rank);
	*out = p;
	*n_out = n;
	return 0;
}

static int begin_file(struct dcp_out *o, const struct piece *p, struct ckpt_err *err)
{
	const char *name = ck_arena_printf(o->arena, "%s/%s__%" PRIu32 "_0.distcp", o->tag,
					   ck_dcp_layout_folder(o, p->part), p->rank);

	return name ? ck_plan_file(o->plan, name, err) : ck_fail_nomem(err, "a name", 0);
}

static int write_pieces(struct dcp_out *o, struct ckpt_err *err)
{
	struct piece *p = NULL;
	uint64_t n = 0;
	int rc = list_pieces(o, &p, &n, err);

	for (uint64_t i = 0; !rc && i < n; i++) {
		if (!i || p[i].rank != p[i - 1].rank || p[i].part != p[i - 1].part)
			rc = begin_file(o, &p[i], err);
		if (!rc)
			rc = append_one(o, &o->entry[p[i].entry], p[i].spot, err);
	}
	ck_free(p);
	return rc;
}

/* Where accelerate has the state of a scheduler; a file of this name that goes along stays. */
static int write_scheduler(struct dcp_out *o, const struct ck_step_along *along,
			   struct ckpt_err *err)
{
	const struct ck_val *v = ck_val_get(o->step->model, "lr_scheduler");
	struct ck_pt_want want = {
		.ix = o->ix, .root = v,
		.name = ck_arena_printf(o->arena, "%s/scheduler.bin", o->tag),
	};

	if (!want.name)
		return ck_fail_nomem(err, "a name", 0);
	for (uint64_t i = 0; i < along->nfiles; i++)
		if (!strcmp(along->file[i].name, want.name))
			return 0;
	return !ck_dcp_is_scheduler(v) || !ck_step_ds_is_plain(v) ? 0 :
	       ck_pt_plan_file(&want, o->plan, err);
}

static int write_all(struct dcp_out *o, struct ck_step_along *along, struct ckpt_err *err)
{
	int rc = ck_step_check_drops(o->step, o->ix, o->want, err);

	if (!rc)
		rc = ck_step_check_joined(o->step, o->want, false, err);
	if (!rc)
		rc = ck_dcp_layout_choose(o, err);
	if (!rc)
		rc = ck_dcp_entries_make(o, err);
	if (!rc)
		rc = write_pieces(o, err);
	for (uint8_t part = 0; !rc && part <= o->is_split; part++)
		rc = ck_dcp_list_write(o, part, err);
	if (!rc)
		rc = ck_step_along_list(along, err);
	if (!rc && o->is_split)
		rc = write_scheduler(o, along, err);
	return rc ? rc : ck_step_along_plan(along, o->plan, err);
}

int ck_dcp_write_step(struct ck_step *step, const struct ck_index *ix,
		   const struct ck_reshard_want *want, struct ck_plan *plan, struct ckpt_err *err)
{
	struct dcp_out o = {
		.step = step, .ix = ix, .want = want, .plan = plan,
		.tag = ck_step_tag(step, want), .arena = step->arena,
		.source = step->format == &ck_format_dcp ? step->from : NULL,
		.is_old = want->torch && want->torch < CK_TORCH(2, 4),
		.world = want->world ? want->world : step->world ? step->world : 1,
	};
	struct ck_step_along along = { .step = step, .want = want, .tag = o.tag };
	int rc;

	if (want->torch && want->torch < CK_TORCH(2, 1))
		return ck_fail(err, CKPT_E_UNSUPPORTED, NULL, CKPT_NO_OFFSET,
			       "the DCP folders of torch before 2.1 are not known; --torch 2.1 is "
			       "the oldest");
	rc = step->complete ? step->complete(step, err) : 0;
	if (!rc && !o.tag)
		rc = ck_fail_nomem(err, "a name", 0);
	if (!rc)
		rc = write_all(&o, &along, err);
	ck_step_along_release(&along);
	ck_map_release(&o.by_name);
	ck_free(o.entry);
	return rc;
}
