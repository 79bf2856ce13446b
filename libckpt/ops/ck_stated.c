/* ck_stated.c -- see ck_stated.h. */
#include "libckpt/ops/ck_stated.h"

#include <inttypes.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/io/ck_src.h"
#include "libckpt/ops/ck_read.h"
#include "libckpt/ops/ck_run.h"

#define WINDOW ((uint64_t)1 << 20)

static int hash_head(const struct ck_source *source, uint64_t bytes, struct ck_hash128 *out,
		     struct ckpt_err *err)
{
	struct ck_hasher *h = ck_hasher_new();
	uint8_t *buf = ck_alloc(ck_min_u64(bytes, WINDOW));
	int rc = h && buf ? 0 : ck_fail_nomem(err, "a header", bytes);

	for (uint64_t at = 0, n; !rc && at < bytes; at += n) {
		n = ck_min_u64(bytes - at, WINDOW);
		rc = ck_src_read(source->src, at, buf, n, err);
		if (!rc)
			ck_hasher_add(h, buf, n);
	}
	if (!rc)
		*out = ck_hasher_sum(h);
	ck_free(buf);
	ck_hasher_free(h);
	return rc;
}

int ck_stated_heads(struct ckpt *ck, struct ckpt_err *err)
{
	int rc = 0;

	for (uint64_t i = 0; !rc && i < ck->ix.nstated_heads; i++) {
		const struct ck_stated_head *head = &ck->ix.stated_head[i];
		const struct ck_source *source = &ck->ix.source[head->source];
		struct ck_hash128 is;

		rc = hash_head(source, head->bytes, &is, err);
		if (!rc && !ck_hash128_equal(is, head->hash))
			ck_findings_add(&ck->findings, CK_FINDING_MANIFEST_HASH_WRONG, source->path,
					"its header (%" PRIu64 " bytes) is not the one that the "
					"manifest knows (a file of another step, or damage)",
					head->bytes);
	}
	return rc;
}

/* ---- */

bool ck_stated_blocks(const struct ck_index *ix, const struct ck_stated_sum *s,
		      uint64_t *first_out, uint64_t *count_out)
{
	const struct ck_state *state = &ix->state[s->state];
	const uint32_t bits = ckpt_dtype_bits((enum ckpt_dtype)state->dtype);
	const uint64_t grain = bits < 8 ? 1 : CK_DIGEST_BLOCK / (bits / 8);
	const uint64_t over = s->first % grain, skip = over ? grain - over : 0;
	uint64_t end = s->first + s->count;

	if (end != ix->tensor[state->tensor].numel)
		end -= end % grain;
	*first_out = s->first + skip;
	*count_out = end > *first_out ? end - *first_out : 0;
	return *count_out != 0;
}

static int add_piece(const struct ckpt *ck, const struct ck_stated_sum *s, struct ck_plan *plan,
		     struct ckpt_err *err)
{
	const struct ck_state *state = &ck->ix.state[s->state];
	const struct ck_slot slot = { .name = "", .state = "", .fill = UINT64_MAX, .whole = 1 };
	uint64_t first, count;
	uint32_t number;
	int rc = ck_plan_slot(plan, &slot, &number, err);

	if (rc || !ck_stated_blocks(&ck->ix, s, &first, &count))
		return rc;
	return ck_plan_state(plan, &ck->ix, s->state, (enum ckpt_dtype)state->dtype, first, count,
			     number, err);
}

/* Slot 0 is the whole of all pieces, which nobody asks for; slot i + 1 is piece i. */
static int make_plan(const struct ckpt *ck, struct ck_plan *plan, struct ckpt_err *err)
{
	const struct ck_slot all = {
		.name = "", .state = "", .dtype = CKPT_U8, .fill = UINT64_MAX,
	};
	uint32_t number;
	int rc = ck_plan_file(plan, "sums", err);

	if (!rc)
		rc = ck_plan_slot(plan, &all, &number, err);
	for (uint64_t i = 0; !rc && i < ck->ix.nstated_sums; i++)
		rc = add_piece(ck, &ck->ix.stated_sum[i], plan, err);
	return rc ? rc : ck_plan_finish(plan, err);
}

static void tell(struct ckpt *ck, const struct ck_stated_sum *s)
{
	const struct ck_state *state = &ck->ix.state[s->state];
	const uint64_t e = ck_index_extent_at(&ck->ix, state, s->first);

	ck_findings_add(&ck->findings, CK_FINDING_MANIFEST_HASH_WRONG,
			ck->ix.tensor[state->tensor].name,
			"%s, elements %" PRIu64 " to %" PRIu64 " in %s: not the bytes that the "
			"manifest knows", state->name, s->first, s->first + s->count - 1,
			ck->ix.source[ck->ix.extent[e].source].path);
}

/* ---- the ends of pieces that cut blocks ---- */

struct ends {
	struct ckpt *ck;
	struct ck_reader *reader;
	struct ck_hasher *hash;
	uint8_t block[CK_DIGEST_BLOCK];
	uint8_t *scratch;
};

static int add_run(struct ends *e, const struct ck_stated_sum *s, uint64_t from, uint64_t to,
		   struct ckpt_err *err)
{
	const struct ck_state *state = &e->ck->ix.state[s->state];
	const enum ckpt_dtype dtype = (enum ckpt_dtype)state->dtype;
	int rc = 0;

	if (to > from)
		rc = ck_reader_read(e->reader, state, from, to - from, dtype, e->block, e->scratch,
				    NULL, err);
	if (!rc && to > from)
		ck_hasher_add(e->hash, e->block, (to - from) * (ckpt_dtype_bits(dtype) / 8));
	return rc;
}

static int check_ends(struct ends *e, const struct ck_stated_sum *s, struct ckpt_err *err)
{
	uint64_t first, count, end = s->first + s->count;
	const bool some = ck_stated_blocks(&e->ck->ix, s, &first, &count);
	int rc;

	ck_hasher_reset(e->hash);
	/* without a whole block there are at most two that it cuts, one behind the other */
	rc = add_run(e, s, s->first, ck_min_u64(first, end), err);
	if (!rc)
		rc = add_run(e, s, some ? first + count : ck_min_u64(first, end), end, err);
	if (!rc && !ck_hash128_equal(ck_hasher_sum(e->hash), s->ends))
		tell(e->ck, s);
	return rc;
}

static int check_all_ends(struct ckpt *ck, struct ckpt_err *err)
{
	struct ends e = { .ck = ck, .hash = ck_hasher_new(), .scratch = ck_alloc(CK_READ_SCRATCH) };
	int rc = e.hash && e.scratch ? ck_reader_new(&ck->ix, &ck->limits, 0, &e.reader, err) :
		 ck_fail_nomem(err, "a hash", CK_READ_SCRATCH);

	for (uint64_t i = 0; !rc && i < ck->ix.nstated_sums; i++)
		if (ck->ix.stated_sum[i].has_ends)
			rc = check_ends(&e, &ck->ix.stated_sum[i], err);
	ck_reader_free(e.reader);
	ck_hasher_free(e.hash);
	ck_free(e.scratch);
	return rc;
}

int ck_stated_sums(struct ckpt *ck, const struct ckpt_run_opts *run, struct ckpt_err *err)
{
	struct ck_plan plan = CK_PLAN_INIT;
	struct ck_run_stats stats = { 0 };
	const struct ck_run_job job = {
		.ix = &ck->ix, .plan = &plan, .limits = &ck->limits, .opts = run,
		.to = CK_RUN_NOWHERE, .nparts = 1, .fd = -1,
	};
	int rc = ck->ix.nstated_sums ? make_plan(ck, &plan, err) : 0;

	if (!rc && ck->ix.nstated_sums)
		rc = ck_run(&job, &stats, err);
	for (uint64_t i = 0; !rc && i < ck->ix.nstated_sums; i++)
		if (!ck_hash128_equal(stats.digest[i + 1], ck->ix.stated_sum[i].sum))
			tell(ck, &ck->ix.stated_sum[i]);
	ck_free(stats.digest);
	ck_plan_release(&plan);
	if (!rc && ck->ix.nstated_sums)
		rc = check_all_ends(ck, err);
	return rc;
}
