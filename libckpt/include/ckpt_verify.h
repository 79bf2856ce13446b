/*
 * ckpt_verify.h -- check that a checkpoint is complete and consistent.  Part of <ckpt.h>.
 *
 *	struct ckpt_verify_opts opts = { .size = sizeof(opts), .flags = CKPT_VERIFY_FULL };
 *	struct ckpt_verified seen;
 *	struct ckpt_finding f;
 *
 *	if (ckpt_verify(ck, &opts, &seen, &err))
 *		... it could not be verified: err.msg ...
 *	for (uint64_t i = 0; !ckpt_finding_get(ck, i, &f, NULL); i++)
 *		if (f.severity == CKPT_ERROR)
 *			... it is damaged: f.id, f.where, f.text ...
 */
#ifndef CKPT_VERIFY_H
#define CKPT_VERIFY_H

#include <ckpt.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Flags.  A manifest (zckpt-manifest.json, docs/formats/manifest.md) keeps names, sizes and hashes
 * of the files, so that a later verify can say which file changed.
 */
#define CKPT_VERIFY_FULL 1u		/* every byte, every element */
#define CKPT_VERIFY_WRITE_MANIFEST 2u	/* if nothing is wrong; implies CKPT_VERIFY_FULL */
#define CKPT_VERIFY_FORCE 4u		/* an existing manifest is replaced, not compared */

struct ckpt_verify_opts {
	size_t size;		/* sizeof(struct ckpt_verify_opts) */
	const struct ckpt_run_opts *run;	/* 'sync' is for a manifest that is written */
	unsigned flags;		/* CKPT_VERIFY_* */
};

/*
 * What was checked, for a report.  The findings alone say whether the checkpoint is good.
 * The numbers from 'read_bytes' to 'sums' are 0 without CKPT_VERIFY_FULL.
 */
struct ckpt_verified {
	uint64_t files;			/* of the checkpoint, and others in its folder */
	uint64_t file_bytes;
	int manifest;			/* 1 = one exists and was compared, 2 = one was written */
	char manifest_path[4096];	/* its place, "" if the name is longer */
	int agreed;			/* masters were compared with weights */
	uint64_t read_bytes;
	uint64_t checksums;		/* CRC-32 of archive members that were compared */
	uint64_t unsummed;		/* members that have none */
	uint64_t elements;		/* of masters that were compared with weights */
	uint64_t copies;		/* elements of further copies */
	uint64_t pad_bytes;		/* of padding that were checked */
	uint64_t sums;			/* of pieces of tensors, as files or a manifest have them */
	uint64_t without_sums;		/* tensors in files that could have sums, and have none */
};

/*
 * Check that 'ck' is complete and its parts belong together.  Problems are added to the findings of
 * 'ck', after those of ckpt_open(): the checkpoint is good if none of them is an error.
 *
 * Without CKPT_VERIFY_FULL only 64 elements at either end of every extent of masters and weights
 * are read.  With it every byte of every file is read once and every CRC-32 compared; all copies
 * of a tensor are compared, and every master with its weight; padding must be zeros. A manifest
 * beside the files (docs/formats/manifest.md) is compared with them: names, sizes, and the hash of
 * each file, or without CKPT_VERIFY_FULL of its directory.
 *
 * Elements are not compared if opening found an error ('agreed' is 0): parts that do not belong
 * together differ everywhere, and each would be a finding.  A manifest that is damaged is a finding
 * and is then ignored.  A pack whose own hashes do not agree is a finding too, and nothing in it is
 * checked.
 *
 * With CKPT_VERIFY_WRITE_MANIFEST a manifest is written unless the checkpoint has an error, because
 * it would record damaged bytes as good; out->manifest says whether it was.  An existing
 * manifest is compared first and then replaced; CKPT_VERIFY_FORCE leaves the comparison out.
 *
 * Threads: opts->run->threads read.  The call adds to 'ck', so no other call may use 'ck' at the
 * same time.
 *
 * Returns 0, with or without findings, or the negative of
 *	CKPT_E_IO, CKPT_E_NOMEM, CKPT_E_CANCELED
 *	CKPT_E_MISMATCH, CKPT_E_TRUNCATED  a file changed meanwhile
 *	CKPT_E_USAGE     an unknown flag; a manifest for a pack, which is never changed
 *	and with CKPT_VERIFY_WRITE_MANIFEST those of writing a file.
 */
CKPT_API int ckpt_verify(struct ckpt *ck, const struct ckpt_verify_opts *opts,
			 struct ckpt_verified *out, struct ckpt_err *err);

/*
 * A failure of ckpt_open() as a finding, for a report that lists both alike.  Returns 1 and fills
 * '*out', whose strings are lent by 'err'; or 0 and leaves it, if the failure says nothing about
 * the checkpoint (no memory, a wrong call, another format, ...).  CKPT_E_TRUNCATED and
 * CKPT_E_CORRUPT that name no finding become FILE_DAMAGED.
 */
CKPT_API int ckpt_verify_open_finding(const struct ckpt_err *err, struct ckpt_finding *out);

/* 1 if 'id' is the name of a finding ("RANK_FILE_MISSING"), else 0; NULL is fine.  For options. */
CKPT_API int ckpt_finding_known(const char *id);

#ifdef __cplusplus
}
#endif
#endif
