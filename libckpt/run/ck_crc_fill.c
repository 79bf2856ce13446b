/* ck_crc_fill.c -- see ck_crc_fill.h. */
#include "libckpt/run/ck_crc_fill.h"

/* The CRCs are complete: each to its places. */
static int fill_all(const struct ck_run_job *job, const struct ck_run_stats *stats,
		    struct ckpt_err *err)
{
	uint64_t at = 0;
	int rc = 0;

	for (uint32_t i = 0; !rc && i < job->plan->ncrcs; i++) {
		const struct ck_plan_crc *c = &job->plan->crc[i];
		const uint64_t first = at;
		uint32_t crc = 0;
		uint8_t p[4];

		while (at < stats->npieces && stats->piece[at].slot == i)
			at++;
		rc = ck_crc_join(stats->piece + first, at - first, c->bytes, &crc, err);
		ck_put_le32(p, crc);
		for (uint32_t k = 0; !rc && k < c->nfills; k++)
			rc = ck_stage_write(job->stage, job->stage_file[c->file], c->fill[k], p,
					    sizeof(p), err);
	}
	return rc;
}

static int record_places(const struct ck_run_job *job, struct ckpt_err *err)
{
	int rc = 0;

	for (uint32_t i = 0; !rc && i < job->plan->ncrcs; i++) {
		const struct ck_plan_crc *c = &job->plan->crc[i];

		rc = ck_stage_sum(job->stage, i, c->bytes, 0, 0, err);
		for (uint32_t k = 0; !rc && k < c->nfills; k++)
			rc = ck_stage_sum_place(job->stage, i, job->stage_file[c->file],
						c->fill[k], err);
	}
	return rc;
}

/* What our units add to sums of 128 bits, and by part 0 where these go. */
static int record_terms(const struct ck_run_job *job, const struct ck_run_stats *stats,
			struct ckpt_err *err)
{
	const struct ck_plan *plan = job->plan;
	const struct ck_hash128 none = { 0 };
	int rc = 0;

	for (uint32_t i = 0; !rc && i < plan->nslots; i++) {
		const struct ck_slot *s = &plan->slot[i];

		if (s->whole != CK_SLOT_SUM)
			continue;
		if (!ck_hash128_equal(stats->digest[i], none))
			rc = ck_stage_term(job->stage, i, stats->digest[i], err);
		if (!rc && !job->part)
			rc = ck_stage_term_place(job->stage, i, job->stage_file[s->file], s->fill,
						 err);
	}
	for (uint64_t i = 0; !rc && !job->part && i < plan->nheads; i++)
		rc = ck_stage_head(job->stage, plan->head[i].bytes,
				   job->stage_file[plan->head[i].file], plan->head[i].sum, err);
	return rc;
}

int ck_crc_fill(const struct ck_run_job *job, const struct ck_run_stats *stats,
		struct ckpt_err *err)
{
	int rc = 0;

	if (job->nparts == 1)
		return fill_all(job, stats, err);
	for (uint64_t i = 0; !rc && i < stats->npieces; i++) {
		const struct ck_crc_piece *p = &stats->piece[i];

		if (p->bytes)
			rc = ck_stage_sum(job->stage, p->slot, p->off, p->bytes, p->crc, err);
	}
	if (!rc)
		rc = record_terms(job, stats, err);
	return rc || job->part ? rc : record_places(job, err);
}
