/* ck_output_sums.c -- see ck_output_sums.h. */
#include "libckpt/sums/ck_output_sums.h"

#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/zip/ck_zip.h"

static int make_sums(struct ck_output_sums *t, const struct ck_plan *plan, struct ckpt_err *err)
{
	if (!t->sum)
		t->sum = ck_zalloc(plan->nslots * sizeof(*t->sum));
	return t->sum ? 0 : ck_fail_nomem(err, "digests", plan->nslots);
}

int ck_output_sums_digest(struct ck_output_sums *t, const struct ck_plan *plan,
			  const struct ck_seg *s,
			  uint64_t skip, const uint8_t *p, uint64_t n,
			  const struct ck_hash_reuse *hashed, struct ckpt_err *err)
{
	int rc;

	if (s->slot == CK_NONE)
		return 0;
	if (s->first)	/* a piece: it begins at a block */
		skip += s->first * (ckpt_dtype_bits(s->dtype) / 8);
	rc = make_sums(t, plan, err);
	if (!rc)
		t->sum[s->slot] = ck_hash128_add(t->sum[s->slot],
						 ck_hash_reuse_blocks(hashed, p, n,
								      skip / CK_DIGEST_BLOCK));
	return rc;
}

/* Bytes that follow the last piece extend it, so a unit has only a few pieces. */
int ck_output_sums_crc(struct ck_output_sums *t, const struct ck_plan *plan, const struct ck_seg *s,
		       uint64_t skip, const uint8_t *p, uint64_t n, struct ckpt_err *err)
{
	struct ck_crc_piece *last = t->npieces ? &t->piece[t->npieces - 1] : NULL;
	uint64_t off;
	int rc;

	if (s->crc == CK_NONE)
		return 0;
	off = s->off + skip - plan->crc[s->crc].begin;
	if (!last || last->slot != s->crc || last->off + last->bytes != off) {
		rc = ck_grow(&t->piece, &t->piece_cap, t->npieces + 1, sizeof(*t->piece), err);
		if (rc)
			return rc;
		last = &t->piece[t->npieces++];
		*last = (struct ck_crc_piece){ .off = off, .slot = s->crc };
	}
	last->crc = ck_zip_crc32(last->crc, p, n);
	last->bytes += n;
	return 0;
}

int ck_output_sums_join(struct ck_output_sums *all, const struct ck_output_sums *from,
			const struct ck_plan *plan, struct ckpt_err *err)
{
	int rc = make_sums(all, plan, err);

	/* Without pieces 'all' has no memory for them: callers that make none free none. */
	if (!rc && from->npieces)
		rc = ck_grow(&all->piece, &all->piece_cap, all->npieces + from->npieces,
			     sizeof(*all->piece), err);
	if (rc)
		return rc;
	for (uint64_t i = 0; from->sum && i < plan->nslots; i++)
		all->sum[i] = ck_hash128_add(all->sum[i], from->sum[i]);
	if (from->npieces)
		memcpy(all->piece + all->npieces, from->piece, from->npieces * sizeof(*all->piece));
	all->npieces += from->npieces;
	return 0;
}

void ck_output_sums_release(struct ck_output_sums *t)
{
	ck_free(t->sum);
	ck_free(t->piece);
	memset(t, 0, sizeof(*t));
}
