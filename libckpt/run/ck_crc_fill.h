/*
 * ck_crc_fill.h -- the CRCs of a plan that was run to a stage, into the result.
 */
#ifndef CK_CRC_FILL_H
#define CK_CRC_FILL_H

#include "libckpt/run/ck_run.h"

/*
 * Between ck_run() and ck_stage_end().  A run of one part writes the CRCs to their places; of
 * several, each leaves its pieces in its record and part 0 the places, for the committer.
 */
int ck_crc_fill(const struct ck_run_job *job, const struct ck_run_stats *stats,
		struct ckpt_err *err);

#endif
