/* ck_digest_fill.c -- see ck_digest_fill.h. */
#include "libckpt/sums/ck_digest_fill.h"

#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/sums/ck_digest_lines.h"

void ck_digest_fill_close(const struct ck_plan *plan, struct ck_hash128 *sum)
{
	for (uint64_t i = 0; i < plan->nslots; i++) {
		const uint32_t whole = plan->slot[i].whole;

		if (whole && whole != CK_SLOT_SUM)
			sum[whole - 1] = ck_hash128_add(sum[whole - 1], sum[i]);
	}
	for (uint64_t i = 0; i < plan->nslots; i++) {
		const struct ck_slot *s = &plan->slot[i];

		if (!s->whole)
			sum[i] = ck_digest_close(ckpt_dtype_name(s->dtype), s->shape, s->ndim,
						 sum[i]);
	}
}

/* The hashes into their places in the headers. */
static int fill_digests(const struct ck_plan *plan, const struct ck_hash128 *digest,
			struct ck_stage *stage, const uint32_t *stage_file, struct ckpt_err *err)
{
	int rc = 0;

	for (uint64_t i = 0; !rc && i < plan->nslots; i++) {
		const struct ck_slot *s = &plan->slot[i];
		char text[33];

		if (s->fill == UINT64_MAX)
			continue;
		ck_hash128_print(digest[i], text);
		rc = ck_stage_write(stage, stage_file[s->file], s->fill, text, 32, err);
	}
	return rc;
}

/* The hashes of headers, which are there but for them. */
static int fill_heads(const struct ck_plan *plan, struct ck_stage *stage,
		      const uint32_t *stage_file, struct ckpt_err *err)
{
	int rc = 0;

	for (uint64_t i = 0; !rc && i < plan->nheads; i++) {
		const struct ck_plan_head *h = &plan->head[i];
		const uint32_t file = stage_file[h->file];
		char text[33], *bytes = ck_alloc(h->bytes);

		rc = bytes ? ck_stage_read(stage, file, 0, bytes, h->bytes, err) :
		     ck_fail_nomem(err, "a header", h->bytes);
		if (!rc) {
			memset(bytes + h->sum, '0', 32);
			ck_hash128_print(ck_hash128(bytes, h->bytes), text);
			rc = ck_stage_write(stage, file, h->sum, text, 32, err);
		}
		ck_free(bytes);
	}
	return rc;
}

/* What is said of all of it, once every other byte is there. */
static int seal(const struct ck_plan *plan, const struct ck_hash128 *digest,
		struct ck_stage *stage, uint32_t file, struct ckpt_err *err)
{
	const struct ck_plan_seal *s = &plan->seal;
	struct ckpt_digest_line *lines;
	struct ck_arena arena = CK_ARENA_INIT;
	char text[33], *bytes = NULL;
	int rc = 0;

	if (s->root != UINT64_MAX) {
		rc = ck_digest_lines_make(plan, digest, &arena, &lines, text, err);
		ck_arena_release(&arena);
		if (!rc)
			rc = ck_stage_write(stage, file, s->root, text, 32, err);
	}
	if (!rc) {
		bytes = ck_alloc(s->bytes);
		rc = bytes ? ck_stage_read(stage, file, 0, bytes, s->bytes, err) :
		     ck_fail_nomem(err, "a manifest", s->bytes);
	}
	if (!rc) {
		ck_hash128_print(ck_hash128(bytes, s->bytes), text);
		rc = ck_stage_write(stage, file, s->sum, text, 32, err);
	}
	ck_free(bytes);
	return rc;
}

int ck_digest_fill(const struct ck_plan *plan, const struct ck_hash128 *digest,
		   struct ck_stage *stage, const uint32_t *stage_file, struct ckpt_err *err)
{
	int rc = fill_digests(plan, digest, stage, stage_file, err);

	if (!rc)
		rc = fill_heads(plan, stage, stage_file, err);
	if (rc || !plan->seal.wanted)
		return rc;
	return seal(plan, digest, stage, stage_file[plan->seal.file], err);
}
