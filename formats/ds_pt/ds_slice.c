/* ds_slice.c -- runs of elements in a shard: out of values, into extents. */
#include <inttypes.h>
#include <string.h>

#include "formats/ds_pt/ck_ds.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/tensor/ck_dtype.h"

#define SMALL ((uint64_t)1 << 20)	/* a storage that is inflated for one number */

static bool is_contiguous(const struct ck_tensor_ref *t)
{
	uint64_t want = 1;

	for (uint32_t d = t->ndim; d > 0; d--) {
		if (t->shape[d - 1] != 1 && t->stride[d - 1] != want)
			return false;
		want *= t->shape[d - 1];
	}
	return true;
}

bool ck_ds_slice_of(const struct ck_pt *pt, const struct ck_val *v, struct ds_slice *out)
{
	const struct ck_tensor_ref *t = ck_val_tensor(v);
	const struct ck_pt_storage *st;
	uint64_t es;

	if (!t || t->conj || t->neg || t->storage >= pt->nstorages)
		return false;
	if (t->numel && !is_contiguous(t))
		return false;
	es = ckpt_dtype_bits(t->dtype) / 8;
	if (!es)
		return false;
	st = &pt->storage[t->storage];
	*out = (struct ds_slice){
		.off = t->offset * es + (st->deflated ? 0 : st->off),
		.numel = t->numel, .storage = t->storage, .dtype = t->dtype,
		.flags = (uint8_t)((st->swapped ? CKPT_EXTENT_SWAPPED : 0) |
				   (st->deflated ? CKPT_EXTENT_DEFLATED : 0)),
	};
	return true;
}

/* The bytes of a slice of one element, in our order. */
static int read_one(struct ds_file *file, const struct ds_slice *s, uint8_t p[8],
		    struct ckpt_err *err)
{
	const struct ck_pt_storage *st = &file->pt->storage[s->storage];
	const uint32_t es = ckpt_dtype_bits(s->dtype) / 8;
	uint8_t *all;
	int rc = 0;

	if (es > 8)
		return -CKPT_E_UNSUPPORTED;
	if (s->flags & CKPT_EXTENT_DEFLATED) {
		rc = ck_pt_storage_bytes(file->pt, s->storage, SMALL, &all, err);
		if (rc)
			return rc;
		if (s->off <= st->bytes && es <= st->bytes - s->off)
			memcpy(p, all + s->off, es);
		else
			rc = -CKPT_E_CORRUPT;
		ck_free(all);
	} else {
		rc = ck_src_read(file->src, s->off, p, es, err);
	}
	for (uint32_t i = 0; (s->flags & CKPT_EXTENT_SWAPPED) && i < es / 2; i++) {
		const uint8_t t = p[i];

		p[i] = p[es - 1 - i];
		p[es - 1 - i] = t;
	}
	return rc;
}

int ck_ds_number_of(struct ds_file *file, const struct ck_val *v, bool *is_out, double *out,
		    struct ckpt_err *err)
{
	struct ckpt_err inner = { 0 };
	uint8_t p[8] = { 0 };
	struct ds_slice s;
	int rc;

	*is_out = ck_val_num(v, out);
	if (*is_out || !ck_ds_slice_of(file->pt, v, &s) || s.numel != 1)
		return 0;
	rc = read_one(file, &s, p, &inner);
	if (!rc)
		*is_out = ck_dtype_number(s.dtype, p, out);
	return ck_err_take_system(rc, &inner, err);
}

static int add_member(struct ds_step *ds, const struct ds_file *file, const struct ds_slice *s,
		      uint32_t *member_out, struct ckpt_err *err)
{
	const struct ck_pt_storage *st = &file->deflated[s->storage];
	const struct ck_member m = {
		.name = st->key, .off = st->off, .packed = st->packed, .bytes = st->bytes,
		.source = file->source, .crc = st->crc,
	};
	int rc = 0;

	/* One storage gives many extents. */
	if (file->member[s->storage] == CK_NONE)
		rc = ck_index_add_member(ds->ix, &m, &file->member[s->storage], err);
	*member_out = file->member[s->storage];
	return rc;
}

int ck_ds_extent(struct ds_step *ds, const struct ds_file *file, const struct ds_slice *s,
	      uint64_t begin, uint64_t count, uint64_t first, struct ckpt_err *err)
{
	struct ck_extent e = {
		.first = first, .count = count, .runs = 1, .source = file->source,
		.off = s->off + begin * (ckpt_dtype_bits(s->dtype) / 8),
		.member = CK_NONE, .view = CK_NONE, .rank = ds->ix->source[file->source].rank,
		.dtype = s->dtype, .flags = s->flags,
	};
	int rc = 0;

	if (!count)
		return 0;
	if (begin > s->numel || count > s->numel - begin)
		return ck_fail(err, CKPT_E_MISMATCH, file->path, CKPT_NO_OFFSET,
			       "LENGTH_WRONG: cannot read elements %" PRIu64 " to %" PRIu64 " "
			       "of a partition of %" PRIu64 " elements", begin, begin + count,
			       s->numel);
	if (s->flags & CKPT_EXTENT_DEFLATED)
		rc = add_member(ds, file, s, &e.member, err);
	return rc ? rc : ck_index_state_extent(ds->ix, &e, err);
}

void ck_ds_length_wrong(struct ds_step *ds, const struct ds_file *file, const char *what,
		     uint64_t have, uint64_t want)
{
	ck_findings_add(ds->f, CK_FINDING_LENGTH_WRONG, file->path,
			"%s has %" PRIu64 " elements here; with %u ranks it should have %" PRIu64
			" (is this a shard of another run or world "
			"size?)", what, have, ds->world,
			want);
}
