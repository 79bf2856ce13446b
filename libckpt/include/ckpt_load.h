/*
 * ckpt_load.h -- ranges of states into the caller's memory, as a run that resumes needs them.
 * Part of <ckpt.h>.
 *
 * Each rank of a job opens the step, whatever world it was written by, and asks for its own ranges
 * of whatever states in one call:
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
	uint64_t tensor;	/* its number; a second name of a tied tensor gives that tensor */
	const char *state;	/* NULL = "weight" */
	uint64_t first, count;	/* types under 8 bits: whole bytes */
	enum ckpt_dtype dtype;	/* of the elements at 'dst'; 0 = as stored */
	void *dst;		/* count elements; any alignment; NULL if count is 0 */
};

/* Hold what is read against the sums that the files have of it; see ckpt_load(). */
#define CKPT_LOAD_CHECK 1u
/* Findings of severity CKPT_ERROR do not refuse it: what the index has is loaded. */
#define CKPT_LOAD_DESPITE_FINDINGS 2u

/* Of several calls, and several ranks; see ckpt_load_checks_new(). */
struct ckpt_load_checks;

struct ckpt_load_opts {
	size_t size;
	const struct ckpt_run_opts *run;	/* 'sync' counts for nothing */
	unsigned flags;				/* CKPT_LOAD_* */
	/* Not NULL: what this call reads is noted there, to be compared later; the flag
	   CKPT_LOAD_CHECK then counts for nothing. */
	struct ckpt_load_checks *checks;
};

struct ckpt_loaded {
	uint64_t ranges;	/* that were not empty */
	uint64_t bytes_made;	/* in the caller's memory */
	/*
	 * Read from files for the ranges: exactly their bytes, as stored, wherever they lie in one
	 * piece.  More only of inner slices with small gaps, which are read over, of strided views,
	 * and of deflated members, which are read whole.
	 */
	uint64_t bytes_read;
	uint64_t reads;		/* so often */
	uint64_t checked_bytes;	/* of bytes_read, those that agree with a sum */
	uint64_t unchecked_bytes;	/* the rest of them */
	uint64_t again_bytes;	/* read besides, for a sum alone (CKPT_LOAD_CHECK) */
	uint64_t masters_made;	/* ranges of "master" for which the weight was taken */
	uint64_t overflows;	/* finite values that became infinite in a cast */
	uint32_t threads;	/* that were used */
	double seconds;
};

/*
 * Load 'n' ranges.  They are sorted by their places in the files, what lies together is read
 * together, and threads share the reading; what is stored as it is wanted goes from the file
 * straight to 'dst'.
 *
 * The state "master" of a tensor that has none is its weight, and with dtype 0 then in F32 if it is
 * floating (as ckpt_convert() makes fp32).  A weight that is not stored is made of the master.  Of
 * a buffer that differs over ranks rank 0's bytes are given.
 *
 * Every range is looked at before anything is read, and so are the headers of files whose hash the
 * checkpoint states (a native step's).  Findings of severity CKPT_ERROR refuse the
 * call, unless CKPT_LOAD_DESPITE_FINDINGS is set.  Master and weight are not held against each
 * other: ckpt_verify() does that.
 *
 * CKPT_LOAD_CHECK: a record of an archive is held against its CRC-32 if this call read eight ninths
 * of it (the rest is read for it), a piece of a native step against its sum if this call read all
 * its whole blocks of 4 KiB, and what it has of others if this call read both ends.  What cannot be
 * held against anything is counted in 'unchecked_bytes'; deflated members are always checked.
 * Ranks that ask for what ranks of the same count wrote get all of a native step checked.
 *
 * Any number of calls may run at the same time on one handle.  Memory: 256 KiB a thread, 64 bytes
 * for each extent that a range meets, 40 for each range, half of opts->run->mem_limit for deflated
 * members and strided views; with CKPT_LOAD_CHECK about 100 bytes for each piece and 24 for each
 * 256 KiB that is read.
 *
 * '*out' (may be NULL) is filled on success.  On failure the memory that the ranges name holds
 * anything: some of the elements, or none.
 * Returns 0 or the negative of
 *	CKPT_E_USAGE     no such tensor or state, a range beyond the end, no place for it, two
 *	                 places that overlap, a cast that is none
 *	CKPT_E_CORRUPT, CKPT_E_MISMATCH  bytes that are not those of their sum; the file, the
 *	                 state, the tensor and the elements are named
 *	CKPT_E_MISMATCH  a file of the step changed since it was opened; the file is named
 *	CKPT_E_CANCELED  opts->run->cancel was set
 *	the code of the first finding that stops it, and what reading met.
 */
CKPT_API int ckpt_load(const struct ckpt *ck, const struct ckpt_load_range *range, size_t n,
		       const struct ckpt_load_opts *opts, struct ckpt_loaded *out,
		       struct ckpt_err *err);

/*
 * Checks of several calls, by one rank or by many that together load all of a state: every record
 * and every piece that any of them reads is compared with its sum as a whole.  Each rank makes its
 * own, gives it to all its calls, and ends it when these are done; ranks need not speak to each
 * other.  Of a piece that a rank has read in part the rest is read by the one rank that was given
 * a certain byte of it, which the step decides: all ranks together read nothing more often than
 * twice, and what a rank reads whole only once.
 *
 * Memory: 120 bytes for each piece of the step, a bit for each 4 KiB of it, 24 bytes for each
 * 256 KiB that is read of archives.  new: CKPT_E_MISMATCH, CKPT_E_CORRUPT if the header of a file
 * or the values of the step are not what the manifest knows; CKPT_E_NOMEM.  end: the same of
 * records and pieces; CKPT_E_CANCELED (run->cancel), codes of reading.  '*out' (may be NULL) is
 * filled on success.  'ck' must outlive the checks.  Any number of calls may use them at the same
 * time, but for end and free.  free: NULL is fine.
 */
struct ckpt_load_checked {
	uint64_t checked_bytes;	/* that passed, and agree with a sum */
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
