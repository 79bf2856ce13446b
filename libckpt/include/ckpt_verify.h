/*
 * ckpt_verify.h -- is a checkpoint whole?  Part of <ckpt.h>.
 */
#ifndef CKPT_VERIFY_H
#define CKPT_VERIFY_H

#include <ckpt.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CKPT_VERIFY_FULL 1u		/* every byte, every element */
#define CKPT_VERIFY_WRITE_MANIFEST 2u	/* if nothing is wrong; implies CKPT_VERIFY_FULL */
#define CKPT_VERIFY_FORCE 4u		/* a manifest that is there is replaced, not compared */

struct ckpt_verify_opts {
	size_t size;
	const struct ckpt_run_opts *run;
	unsigned flags;		/* CKPT_VERIFY_* */
};

/* What was looked at.  From 'read_bytes' to 'sums' they are of CKPT_VERIFY_FULL. */
struct ckpt_verified {
	uint64_t files;			/* of the checkpoint, and beside it in its folder */
	uint64_t file_bytes;
	int manifest;			/* 1 = one is there and was compared, 2 = one was written */
	char manifest_path[4096];	/* where it lies or would, "" if the name is longer */
	int agreed;			/* masters were held against weights */
	uint64_t read_bytes;
	uint64_t checksums;		/* CRC-32 of archive members that were compared */
	uint64_t unsummed;		/* members that have none */
	uint64_t elements;		/* masters held against their weights */
	uint64_t copies;		/* elements of further copies */
	uint64_t pad_bytes;		/* padding looked at */
	uint64_t sums;			/* of pieces of tensors, as files or a manifest have them */
	uint64_t without_sums;		/* tensors in files that could have sums, and have none */
};

/*
 * Look whether 'ck' is whole and its parts belong together.  What is wrong is added to the
 * findings of 'ck', where what opening found stands already: the checkpoint is whole if none of
 * them is an error.
 *
 * Without CKPT_VERIFY_FULL no tensor is read but 64 elements at either end of every extent of
 * masters and weights.  With it every byte of every file is read once and every CRC-32 compared;
 * all copies of a tensor are compared, and every master with its weight; padding must be zeros.
 * A manifest beside the files (docs/formats/manifest.md) is compared with them: names, sizes, and
 * the hash of each file, or without CKPT_VERIFY_FULL of its directory.
 *
 * Elements are not compared if opening found an error ('agreed' is 0): parts that do not belong
 * together differ everywhere.
 *
 * Returns 0 whatever was found, or the negative of
 *	CKPT_E_IO, CKPT_E_NOMEM, CKPT_E_CANCELED
 *	CKPT_E_MISMATCH, CKPT_E_TRUNCATED  a file changed meanwhile
 *	CKPT_E_USAGE     a flag that is not known
 *	and with CKPT_VERIFY_WRITE_MANIFEST those of writing a file.
 */
CKPT_API int ckpt_verify(struct ckpt *ck, const struct ckpt_verify_opts *opts,
			 struct ckpt_verified *out, struct ckpt_err *err);

/*
 * What ckpt_open() said as a finding, if it is one: 1, and '*out' lends from 'err'; or 0 if it is
 * no answer about the checkpoint (no memory, a wrong call, another format, ...).
 */
CKPT_API int ckpt_verify_open_finding(const struct ckpt_err *err, struct ckpt_finding *out);

/* Whether a finding is called so. */
CKPT_API int ckpt_finding_known(const char *id);

#ifdef __cplusplus
}
#endif
#endif
