/*
 * ck_run.h -- the executor: runs a plan's units on a few threads with bounded memory.
 *
 * Progress, cancel, the record of a run, digests and dry runs live here and nowhere
 * else; verbs only make plans.
 */
#ifndef CK_RUN_H
#define CK_RUN_H

#include "libckpt/base/ck_crc.h"
#include "libckpt/commit/ck_stage.h"
#include "libckpt/format/ck_findings.h"
#include "libckpt/format/ck_plan.h"
#include "libckpt/run/ck_change.h"
#include "libckpt/tensor/ck_index.h"

enum ck_run_to {
	CK_RUN_STAGE = 1,	/* by position into files of a stage */
	CK_RUN_STREAM,		/* in order to a descriptor */
	CK_RUN_NOWHERE,		/* read and hash only */
};

struct ck_run_job {
	const struct ck_index *ix;
	const struct ck_plan *plan;
	const struct ck_change *change;	/* NULL = states are copied */
	const struct ckpt_limits *limits;
	const struct ckpt_run_opts *opts;	/* complete: defaults filled in */
	enum ck_run_to to;
	struct ck_fdpool *pool;		/* of the source, asked for files of its archive; or NULL */
	struct ck_stage *stage;
	const uint32_t *stage_file;	/* of each file of the plan */
	int fd;
	uint32_t most_threads;		/* that help; 0 = any */
	uint32_t part, nparts;		/* units u with u mod nparts = part are ours */
	struct ck_findings *findings;	/* for CRC_WRONG of what was read; NULL = nobody asks */
	bool strict;			/* a finite value that becomes infinite fails the run */
};

struct ck_run_stats {
	uint64_t written, resumed;	/* bytes */
	uint64_t done;			/* bytes; also of a run that failed */
	uint64_t kept;			/* that the next run need not write; of one that failed */
	uint64_t to_read, free;		/* of a dry run */
	uint64_t overflows;
	uint32_t threads;
	struct ck_hash128 *digest;	/* one per slot of the plan; ck_free() */
	/* To a stage: of the plan's CRCs, in order, what our units are of them; ck_free(). */
	struct ck_crc_piece *piece;
	uint64_t npieces;
};

/* Fill what is zero in 'in' (may be NULL). */
void ck_run_opts_fill(const struct ckpt_run_opts *in, struct ckpt_run_opts *out);

/*
 * '*stats_out' is filled on success.  With 'findings', an archive member that is not what its
 * CRC-32 says fails the run at its end (ck_crc_check.h), or, where several parts read it, the
 * commit (ck_part_sums.h).  CKPT_E_CORRUPT, CKPT_E_CANCELED, CKPT_E_NOSPACE, CKPT_E_IO, codes of
 * reading.
 */
int ck_run(const struct ck_run_job *job, struct ck_run_stats *stats_out, struct ckpt_err *err);

#endif
