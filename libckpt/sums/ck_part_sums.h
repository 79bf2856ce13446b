/*
 * ck_part_sums.h -- who of the parts of a run answers for which bytes of its source, and what each
 * notes of them for the committer (docs/formats/partial.md, "Sums of the source").
 *
 * Every part computes the same from the plan.  Bytes that several units read belong to the one
 * that begins first; bytes that none reads, but a comparison needs, go to the part with the least
 * to read.
 */
#ifndef CK_PART_SUMS_H
#define CK_PART_SUMS_H

#include "libckpt/commit/ck_record.h"
#include "libckpt/format/ck_findings.h"
#include "libckpt/format/ck_plan.h"
#include "libckpt/tensor/ck_index.h"

#define CK_NOT_SHARED UINT64_MAX

struct ck_crc_check;
struct ck_stage;

struct ck_part_sums {
	uint32_t part, nparts;
	uint64_t *load;		/* bytes that each part reads */
	uint64_t next;		/* number of the next member or piece that several parts read */
	const char *const *as_warning;	/* lent */
	struct ck_record_sum *note;
	uint64_t n, cap;
};

int ck_part_sums_init(struct ck_part_sums *share, uint32_t part, uint32_t nparts,
		      struct ckpt_err *err);
void ck_part_sums_release(struct ck_part_sums *share);

/* Bytes [from, to) of a source belong to a part. */
struct ck_claim {
	uint64_t from, to;
	uint32_t source, part;
};

/* Of the sources of one index; zeroed = none. */
struct ck_claims {
	struct ck_claim *claim;	/* by source and place; they do not overlap */
	uint64_t n, cap;
};

/* 'seen' knows the sources by path.  What is read is added to the loads. */
int ck_claims_make(struct ck_claims *claims, struct ck_part_sums *share, const struct ck_index *ix,
		   const struct ck_plan *plan, const struct ck_crc_check *seen,
		   struct ckpt_err *err);
void ck_claims_release(struct ck_claims *claims);

/*
 * The stretch of [at, end) that begins at 'at' and belongs to one part, or to none: then
 * '*part_out' is CK_NONE.  Where it ends.
 */
uint64_t ck_claims_stretch(const struct ck_claims *claims, uint32_t source, uint64_t at,
			   uint64_t end, uint32_t *part_out);

/* Who reads bytes that belong to none: 'near' (may be CK_NONE) if they are few. */
uint32_t ck_part_sums_rest(struct ck_part_sums *share, uint64_t bytes, uint32_t near);

/* Notes: a stretch of a member, by its offset in it; blocks of a piece. */
int ck_part_sums_crc(struct ck_part_sums *share, uint64_t number, uint64_t off, uint64_t bytes,
		     uint32_t crc, struct ckpt_err *err);
int ck_part_sums_term(struct ck_part_sums *share, uint64_t number, uint64_t blocks,
		      struct ck_hash128 sum, struct ckpt_err *err);
/*
 * By part 0: what the parts' notes must give together, and the finding if they do not.  'shape' is
 * that of a digest that is to be closed: its type and dimensions; "" = none.
 */
int ck_part_sums_want_crc(struct ck_part_sums *share, uint64_t number, uint64_t bytes, uint32_t crc,
			  const struct ck_findings *finding, struct ckpt_err *err);
int ck_part_sums_want_sum(struct ck_part_sums *share, uint64_t number, uint64_t blocks,
			  struct ck_hash128 sum, const char *shape,
			  const struct ck_findings *finding, struct ckpt_err *err);

/* All notes go into the record of the part. */
int ck_part_sums_settle(const struct ck_part_sums *share, struct ck_stage *stage,
			struct ckpt_err *err);

#endif
