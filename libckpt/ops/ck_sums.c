/* ck_sums.c -- see ck_sums.h. */
#include "libckpt/ops/ck_sums.h"

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

int ck_sums_settle(const struct ck_run_job *job, const struct ck_run_stats *stats,
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
	return rc || job->part ? rc : record_places(job, err);
}
