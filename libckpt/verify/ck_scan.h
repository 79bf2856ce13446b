/*
 * ck_scan.h -- files as files: what their archives' directories say, and every byte of them
 * read once, in pieces, by threads: checksums, hashes, and whatever ck_copy_check.h compares.
 */
#ifndef CK_SCAN_H
#define CK_SCAN_H

#include "libckpt/base/ck_hash.h"
#include "libckpt/run/ck_run.h"
#include "libckpt/sums/ck_sum_check.h"
#include "libckpt/verify/ck_folder.h"
#include "libckpt/verify/ck_copy_check.h"

/* Of a file that is no archive, so many of its first bytes stand for its directory. */
#define CK_SCAN_HEAD ((size_t)64 << 10)

struct ck_scan_file {
	const struct ck_folder_file *file;	/* lent */
	struct ck_hash128 quick;	/* of the archive's directory, or of the head */
	struct ck_hash128 hash;		/* of all bytes, if asked for */
	/* private */
	struct ck_src *src, *own;
	struct ck_findings notes;
	struct ck_scan_member *member;	/* sorted by place */
	uint64_t nmembers, member_cap;
	uint32_t *packed;		/* entries that are deflated */
	uint64_t npacked, packed_cap;
	uint64_t nentries;		/* of all its archives: their numbers */
	uint64_t first_job, njobs;
	struct ck_crc_piece *crc;
	uint64_t ncrcs, crc_cap;
	struct ck_hasher *hasher;
	uint64_t turn;			/* the piece that is hashed next */
	bool failed;
};

struct ck_scan_counts {
	uint64_t files, read_bytes;
	uint64_t members;		/* whose checksum was compared */
	uint64_t unsummed;		/* that have none */
};

struct ck_scan {
	struct ckpt *ck;
	const struct ckpt_run_opts *opts;
	struct ck_scan_file *file;
	uint64_t n;
	struct ck_scan_counts counts;
	struct ck_sum_check *passed;	/* is given what is read; NULL = nothing is */
};

/*
 * Look at every file of the folder: '*scan' is to be released, also after a failure.  What is
 * wrong with an archive is a finding.  'deep': local headers too.
 */
int ck_scan_heads(struct ck_scan *scan, struct ckpt *ck, const struct ck_folder *folder,
		  const struct ckpt_run_opts *opts, bool deep, struct ckpt_err *err);
/* Read every byte; 'hash': also those of files that are no part of the checkpoint. */
int ck_scan_read(struct ck_scan *scan, struct ck_copy_check *watch, bool hash,
		 struct ckpt_err *err);
void ck_scan_release(struct ck_scan *scan);

#endif
