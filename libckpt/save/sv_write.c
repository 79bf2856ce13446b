/*
 * sv_write.c -- elements of a state to the segments that take them: for each window that stays in
 * its core's cache they are rounded if need be, hashed, summed and written.
 */
#include <string.h>

#include "kernels/include/kn.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/run/ck_read.h"
#include "libckpt/save/ck_save.h"
#include "libckpt/tensor/ck_dtype.h"
#include "libckpt/zip/ck_zip.h"

#define WINDOW ((uint64_t)256 << 10)

int ck_sv_hand_init(struct sv_hand *me, struct ckpt_err *err)
{
	memset(me, 0, sizeof(*me));
	me->buf = ck_alloc(WINDOW);
	return me->buf ? 0 : ck_fail_nomem(err, "a buffer", WINDOW);
}

void ck_sv_hand_forget(struct sv_hand *me)
{
	ck_free(me->sum);
	ck_free(me->crc);
	me->sum = NULL;
	me->crc = NULL;
	me->ncrcs = me->crc_cap = me->written = 0;
}

void ck_sv_hand_release(struct sv_hand *me)
{
	ck_sv_hand_forget(me);
	ck_free(me->buf);
	me->buf = NULL;
}

/* Of the elements [at, at + n) of a run, the blocks that it fills. */
static int add_digest(const struct sv_target *t, struct sv_hand *me, const struct ck_seg *seg,
		      uint32_t state, uint64_t at, uint64_t n, const uint8_t *p,
		      struct ckpt_err *err)
{
	const struct ck_index *ix = t->ix;
	const uint64_t es = ckpt_dtype_bits((enum ckpt_dtype)seg->dtype) / 8;
	const uint64_t grain = ck_sv_grain(t->refs, state), over = at % grain;
	const uint64_t from = over ? at + grain - over : at;
	uint64_t to = at + n;

	if (seg->slot == CK_NONE)
		return 0;
	if (to != ix->tensor[ix->state[state].tensor].numel)
		to -= to % grain;
	if (to <= from)
		return 0;
	if (!me->sum) {
		me->sum = ck_zalloc(t->plan->nslots * sizeof(*me->sum));
		if (!me->sum)
			return ck_fail_nomem(err, "digests", t->plan->nslots);
	}
	me->sum[seg->slot] = ck_hash128_add(me->sum[seg->slot],
					    ck_digest_blocks(p + (from - at) * es,
							     (to - from) * es, from / grain));
	return 0;
}

static int add_crc(const struct sv_target *t, struct sv_hand *me, const struct ck_seg *seg,
		   uint64_t skip, const uint8_t *p, uint64_t n, struct ckpt_err *err)
{
	struct ck_crc_piece *last = me->ncrcs ? &me->crc[me->ncrcs - 1] : NULL;
	uint64_t off;
	int rc;

	if (seg->crc == CK_NONE)
		return 0;
	off = seg->off + skip - t->plan->crc[seg->crc].begin;
	if (!last || last->slot != seg->crc || last->off + last->bytes != off) {
		rc = ck_grow(&me->crc, &me->crc_cap, me->ncrcs + 1, sizeof(*me->crc), err);
		if (rc)
			return rc;
		last = &me->crc[me->ncrcs++];
		*last = (struct ck_crc_piece){ .off = off, .slot = seg->crc };
	}
	last->crc = ck_zip_crc32(last->crc, p, n);
	last->bytes += n;
	return 0;
}

/* Elements [at, at + n) of a run to a segment, in its type. */
static int write_window(const struct sv_target *t, struct sv_hand *me, const struct sv_run *run,
			const struct sv_ref *ref, uint64_t at, uint64_t n, struct ckpt_err *err)
{
	const struct ck_seg *seg = &t->plan->seg[ref->seg];
	const enum ckpt_dtype from = (enum ckpt_dtype)t->ix->state[run->state].dtype,
			      to = (enum ckpt_dtype)seg->dtype;
	const uint64_t es = ckpt_dtype_bits(from) / 8, des = ckpt_dtype_bits(to) / 8;
	const uint64_t skip = (at - ref->first) * des;
	const uint8_t *p = run->p + (at - run->first) * es;
	int rc;

	if (from != to) {
		if (!ck_dtype_is_castable(from) || !ck_dtype_is_castable(to) ||
		    kn_cast(me->buf, ck_read_kn(to), p, ck_read_kn(from), n, NULL))
			return ck_fail(err, CKPT_E_UNSUPPORTED,
				       t->ix->tensor[t->ix->state[run->state].tensor].name,
				       CKPT_NO_OFFSET, "%s cannot be rounded to %s",
				       ckpt_dtype_name(from), ckpt_dtype_name(to));
		p = me->buf;
	}
	rc = add_digest(t, me, seg, run->state, at, n, p, err);
	if (!rc)
		rc = add_crc(t, me, seg, skip, p, n * des, err);
	if (!rc)
		rc = ck_stage_write(t->stage, t->stage_file[ref->file], seg->off + skip, p,
				    n * des, err);
	if (!rc)
		me->written += n * des;
	return rc;
}

static int write_overlap(const struct sv_target *t, struct sv_hand *me, const struct sv_run *run,
			 const struct sv_ref *ref, struct ckpt_err *err)
{
	const uint64_t end = ck_min_u64(run->first + run->count, ref->first + ref->count);
	const uint64_t es = ckpt_dtype_bits(t->ix->state[run->state].dtype) / 8;
	const uint64_t des = ckpt_dtype_bits(t->plan->seg[ref->seg].dtype) / 8;
	const uint64_t grain = ck_sv_grain(t->refs, run->state);
	int rc = 0;

	for (uint64_t at = ck_max_u64(run->first, ref->first), n; !rc && at < end; at += n) {
		n = ck_min_u64(end - at, WINDOW / ck_max_u64(es, des));
		if (at + n < end)
			n -= (at + n) % grain;
		rc = write_window(t, me, run, ref, at, n, err);
	}
	return rc;
}

int ck_sv_write(const struct sv_target *t, struct sv_hand *me, const struct sv_run *run,
		struct ckpt_err *err)
{
	const struct sv_refs *refs = t->refs;
	int rc = 0;

	for (uint64_t i = refs->of[run->state]; !rc && i < refs->of[run->state + 1]; i++) {
		const struct sv_ref *ref = &refs->ref[i];

		if (ref->first >= run->first + run->count)
			break;
		if (ref->first + ref->count > run->first)
			rc = write_overlap(t, me, run, ref, err);
	}
	return rc;
}
