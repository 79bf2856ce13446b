/*
 * ckpt_load.h -- ranges of states into the caller's memory, as a run that resumes needs them.
 * Part of <ckpt.h>.
 *
 * Each rank of a job opens the step, which any number of ranks may have written, and loads its own
 * ranges of any states in one call:
 *
 *	struct ckpt_load_range mine[] = {
 *		{ .tensor = t, .state = "master", .first = a, .count = n, .dtype = CKPT_F32,
 *		  .dst = master },
 *		{ .tensor = t, .state = "exp_avg", .first = a, .count = n, .dst = exp_avg },
 *	};
 *	struct ckpt_load_opts opts = { .size = sizeof(opts), .flags = CKPT_LOAD_CHECK };
 *
 *	if (ckpt_load(ck, mine, 2, &opts, &loaded, &err))
 *		...
 */
#ifndef CKPT_LOAD_H
#define CKPT_LOAD_H

#include <ckpt.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Elements [first, first + count) of a state, row-major, to 'dst'.  This struct never grows: its
 * size is part of the interface.
 */
struct ckpt_load_range {
	uint64_t tensor;	/* its number; a second name of a tied tensor loads that tensor */
	const char *state;	/* NULL = "weight" */
	uint64_t first, count;	/* types under 8 bits: whole bytes */
	enum ckpt_dtype dtype;	/* of the elements at 'dst'; 0 = as stored */
	void *dst;		/* count elements; any alignment; NULL if count is 0 */
};

/* Compare the bytes with the sums that the files have of them; see ckpt_load(). */
#define CKPT_LOAD_CHECK 1u
/* Load what the index has, also with findings of severity CKPT_ERROR. */
#define CKPT_LOAD_DESPITE_FINDINGS 2u

/* For several calls, and several ranks; see ckpt_load_checks_new(). */
struct ckpt_load_checks;

struct ckpt_load_opts {
	size_t size;
	const struct ckpt_run_opts *run;	/* 'sync' is ignored */
	unsigned flags;				/* CKPT_LOAD_* */
	/* Not NULL: what this call reads is noted there, to be compared later; the flag
	   CKPT_LOAD_CHECK is then ignored. */
	struct ckpt_load_checks *checks;
};

struct ckpt_loaded {
	uint64_t ranges;	/* that were not empty */
	uint64_t bytes_made;	/* in the caller's memory */
	/*
	 * Read from files for the ranges: exactly their bytes, as stored, if they are in one
	 * piece.  More for inner slices with small gaps, which are read too, for strided views,
	 * and for deflated members, which are read whole.
	 */
	uint64_t bytes_read;
	uint64_t reads;		/* system calls that did it */
	uint64_t checked_bytes;	/* of bytes_read, those that match a sum */
	uint64_t unchecked_bytes;	/* the rest of them */
	uint64_t again_bytes;	/* read in addition, for a sum alone (CKPT_LOAD_CHECK) */
	uint64_t masters_made;	/* ranges of "master" that were made from the weight */
	uint64_t overflows;	/* finite values that became infinite in a cast */
	uint32_t threads;	/* that were used */
	double seconds;
};

/*
 * Load 'n' ranges.  They are sorted by their places in the files, neighbours are read together, and
 * threads share the reading; elements that need no conversion go from the file straight to 'dst'.
 *
 * The state "master" of a tensor that has none is its weight, and with dtype 0 then in F32 if it is
 * floating (as ckpt_convert() makes fp32).  A weight that is not stored is made from the master.  A
 * buffer that differs over ranks gives rank 0's bytes.
 *
 * Every range is checked before anything is read, and so are the headers of files whose hash the
 * checkpoint has (a native step's).  Findings of severity CKPT_ERROR stop the call, unless
 * CKPT_LOAD_DESPITE_FINDINGS is set.  Master and weight are not compared: ckpt_verify() does that.
 *
 * CKPT_LOAD_CHECK: a record of an archive is compared with its CRC-32 if this call read eight
 * ninths of it (it then reads the rest).  A piece of a native step is compared with its sum if
 * this call read all its whole blocks of 4 KiB, and its parts of blocks at the two ends if this
 * call read both.  Bytes that cannot be compared with anything count as 'unchecked_bytes'; deflated
 * members are always checked.  If as many ranks load as wrote, and load the same shares, all of a
 * native step is checked.
 *
 * Any number of calls may run at the same time on one handle.  Memory: 256 KiB a thread, 64 bytes
 * for each extent that a range meets, 40 for each range, half of opts->run->mem_limit for deflated
 * members and strided views; with CKPT_LOAD_CHECK about 100 bytes for each piece and 24 for each
 * 256 KiB that is read.
 *
 * '*out' (may be NULL) is filled on success.  On failure the content of the memory that the
 * ranges name is undefined: some of the elements, or none.
 * Returns 0 or the negative of
 *	CKPT_E_USAGE     no such tensor or state, a range beyond the end, 'dst' NULL, overlapping
 *	                 destinations, an unsupported conversion
 *	CKPT_E_CORRUPT, CKPT_E_MISMATCH  bytes that do not match their sum; the message names the
 *	                 file, the state, the tensor and the elements
 *	CKPT_E_MISMATCH  a file of the step changed since it was opened; the file is named
 *	CKPT_E_CANCELED  opts->run->cancel was set
 *	the code of the first finding that stops it, and the failures of reading.
 */
CKPT_API int ckpt_load(const struct ckpt *ck, const struct ckpt_load_range *range, size_t n,
		       const struct ckpt_load_opts *opts, struct ckpt_loaded *out,
		       struct ckpt_err *err);

/*
 * Checks of several calls, by one rank or by many that together load all of a state: every record
 * and every piece that any of them reads is compared with its sum as a whole.  Each rank makes its
 * own, passes it to all its calls, and ends it when they are done; ranks need not communicate.  If
 * several ranks read parts of a piece, one of them, determined by the step, also reads the rest:
 * all ranks together read nothing more than twice, and what one rank reads whole only once.
 *
 * Memory: 120 bytes for each piece of the step, a bit for each 4 KiB of it, 24 bytes for each
 * 256 KiB that is read of archives.  new: CKPT_E_MISMATCH, CKPT_E_CORRUPT if the header of a file
 * or the values of the step do not match the manifest; CKPT_E_NOMEM.  end: the same of
 * records and pieces; CKPT_E_CANCELED (run->cancel), failures of reading.  '*out' (may be NULL) is
 * filled on success.  'ck' must outlive the checks.  Any number of calls may use them at the same
 * time, except end and free.  free: NULL is fine.
 */
struct ckpt_load_checked {
	uint64_t checked_bytes;	/* that match a sum */
	uint64_t again_bytes;	/* read for a sum alone */
};
CKPT_API int ckpt_load_checks_new(const struct ckpt *ck, struct ckpt_load_checks **out,
				  struct ckpt_err *err);
CKPT_API int ckpt_load_checks_end(struct ckpt_load_checks *checks,
				  const struct ckpt_run_opts *run, struct ckpt_load_checked *out,
				  struct ckpt_err *err);
CKPT_API void ckpt_load_checks_free(struct ckpt_load_checks *checks);

#ifdef __cplusplus
}
#endif
#endif
