/*
 * stp_join.c -- pieces of all ranks become tensors.
 *
 * A piece that is as wide as the tensor is one run of it; of another, each row is one.  A rank
 * that has nothing of a tensor has an empty piece, which begins at its end: it says how far the
 * tensor reaches.  A writer saves each element once, also of tensors that several ranks have.
 */
#include <inttypes.h>
#include <string.h>

#include "formats/dcp_st/stp.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/tensor/ck_block.h"
#include "libckpt/tensor/ck_dtype.h"

/* ---- collecting ---- */

static int tensor_of(struct stp *d, const struct ck_st_tensor *t, uint64_t *at_out,
		     struct ckpt_err *err)
{
	struct stp_tensor new = { .name = t->name, .ndim = t->ndim, .dtype = t->dtype };
	int rc = ck_map_add(&d->by_name, t->name, t->name_len, d->ntensors, at_out, err);

	if (rc)
		return rc < 0 ? rc : 0;
	*at_out = d->ntensors;
	new.shape = ck_arena_zalloc(&d->arena, (t->ndim + 1) * sizeof(*new.shape));
	rc = new.shape ? ck_grow(&d->tensor, &d->tensor_cap, d->ntensors + 1, sizeof(new), err) :
			 ck_fail_nomem(err, "a shape", t->ndim);
	if (!rc)
		d->tensor[d->ntensors++] = new;
	return rc;
}

/* Pieces of one tensor are of one type, and in files of one number. */
static void check_piece(struct stp *d, struct stp_tensor *tensor, const struct stp_file *file,
			const struct ck_st_tensor *t)
{
	const struct stp_file *first = tensor->npieces ? tensor->piece[0].file : file;

	if (tensor->odd)
		return;
	if (t->dtype != tensor->dtype || t->ndim != tensor->ndim) {
		tensor->odd = true;
		ck_findings_add(d->f, CK_FINDING_RANKS_DISAGREE, t->name,
				"it is %s with %u dimensions in %s, %s with %u in %s (files of two "
				"saves in one folder?)", ckpt_dtype_name(tensor->dtype),
				tensor->ndim, first->name, ckpt_dtype_name(t->dtype), t->ndim,
				file->name);
	} else if (file->id.number != first->id.number) {
		tensor->odd = true;
		ck_findings_add(d->f, CK_FINDING_TENSOR_DUPLICATE, t->name,
				"it is in %s and in %s (files of two saves in one folder?)",
				first->name, file->name);
	}
}

static int add_piece(struct stp *d, const struct stp_file *file, const struct ck_st_tensor *t,
		     struct ckpt_err *err)
{
	struct stp_tensor *tensor;
	uint64_t at;
	int rc = tensor_of(d, t, &at, err);

	if (rc)
		return rc;
	tensor = &d->tensor[at];
	check_piece(d, tensor, file, t);
	if (tensor->odd)
		return 0;
	for (uint32_t k = 0; k < t->ndim; k++)
		if (t->place[k] + t->shape[k] > tensor->shape[k])
			tensor->shape[k] = t->place[k] + t->shape[k];
	rc = ck_grow(&tensor->piece, &tensor->piece_cap, tensor->npieces + 1,
		     sizeof(*tensor->piece), err);
	if (!rc)
		tensor->piece[tensor->npieces++] = (struct stp_piece){ file, t };
	return rc;
}

static int collect(struct stp *d, struct ckpt_err *err)
{
	int rc = 0;

	for (uint64_t i = 0; !rc && i < d->nfiles; i++)
		for (uint64_t k = 0; !rc && d->file[i].st && k < d->file[i].st->ntensors; k++)
			rc = add_piece(d, &d->file[i], &d->file[i].st->tensor[k], err);
	return rc;
}

/* ---- tiles ---- */

static int add_tiles(const struct stp_tensor *t, struct ck_tiles *tiles, struct ckpt_err *err)
{
	int rc = ck_tiles_begin(tiles, t->name, t->shape, t->ndim, err);

	for (uint64_t i = 0; !rc && i < t->npieces; i++) {
		const struct ck_st_tensor *st = t->piece[i].t;
		const struct ck_block block = { st->place, st->shape };

		rc = ck_tiles_add(tiles, &block, 0, st->numel, &(struct ck_extent){
			.off = st->off, .source = t->piece[i].file->source, .member = CK_NONE,
			.view = CK_NONE, .rank = (int32_t)t->piece[i].file->id.rank - 1,
			.dtype = (uint8_t)st->dtype,
		}, err);
	}
	return rc;
}

/* ---- tensors ---- */

static int put_tensor(struct stp *d, struct stp_tensor *t, struct ck_tiles *tiles,
		      struct ckpt_err *err)
{
	struct ck_tiles_fault fault = { .odd = false };
	uint32_t number;
	uint64_t numel;
	int rc = ck_shape_numel(t->shape, t->ndim, &numel, NULL);

	if (rc) {
		t->odd = true;
		ck_findings_add(d->f, CK_FINDING_LENGTH_WRONG, t->name,
				"its pieces reach further than the elements of any tensor");
		return 0;
	}
	rc = add_tiles(t, tiles, err);
	if (!rc)
		rc = ck_tiles_check(tiles, &fault, err);
	if (!rc && fault.odd) {
		t->odd = true;
		ck_findings_add(d->f, CK_FINDING_LENGTH_WRONG, t->name,
				"its pieces in %" PRIu64 " files %s element %" PRIu64 " of %" PRIu64
				" (files of two saves in one folder, or one of them missing?)",
				t->npieces, fault.twice ? "overlap at" : "leave out", fault.at,
				numel);
		return 0;
	}
	if (!rc)
		rc = ck_index_add_tensor(d->ix, t->name, t->shape, t->ndim, CKPT_ROLE_PLAIN,
					 &number, err);
	return rc ? rc : ck_tiles_put(tiles, d->ix, number, "weight", t->dtype, err);
}

int ck_stp_join(struct stp *d, struct ckpt_err *err)
{
	struct ck_tiles tiles;
	int rc = collect(d, err);

	ck_tiles_init(&tiles, d->in->limits.memory_bytes);
	for (uint64_t i = 0; !rc && i < d->ntensors; i++) {
		struct stp_tensor *t = &d->tensor[i];

		/* Of a file that cannot be read nothing says how far its pieces reach. */
		t->odd |= !t->npieces || d->damaged[t->piece[0].file->id.number - 1];
		if (!t->odd)
			rc = put_tensor(d, t, &tiles, err);
	}
	ck_tiles_release(&tiles);
	return rc;
}
