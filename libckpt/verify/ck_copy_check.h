/*
 * ck_copy_check.h -- what is compared while files are read as a whole: masters with weights, copies
 * with each other, padding with zeros; every element of them.
 *
 * A master is met where its bytes are read anyway, and its weight is fetched then.  So that it
 * need not be read a second time, its bytes can be claimed: whoever reads files passes over them
 * and is told of them as they come.  What is stored in a way that cannot be compared in passing
 * (deflated, big-endian, strided) is read once more at the end.
 */
#ifndef CK_COPY_CHECK_H
#define CK_COPY_CHECK_H

#include "libckpt/run/ck_ckpt.h"

struct ck_copy_check;

struct ck_copy_check_counts {
	uint64_t elements;	/* masters compared with weights */
	uint64_t copies;	/* elements of further copies */
	uint64_t pad_bytes;
};

/* Work space for 'threads'; without 'compare' only padding is looked at. */
int ck_copy_check_new(struct ckpt *ck, uint32_t threads, bool compare, struct ck_copy_check **out,
		      struct ckpt_err *err);
/* Called by any thread, once for every claimed byte. */
typedef int (*ck_copy_check_claimed_fn)(void *arg, uint32_t source, uint64_t off, const void *p,
					uint64_t n, struct ckpt_err *err);
/* From now on weights are claimed, if no byte of them serves anything else. */
int ck_copy_check_claim(struct ck_copy_check *w, ck_copy_check_claimed_fn fn, void *arg,
			struct ckpt_err *err);
/*
 * The first run at or behind 'off', and before 'end', that is not claimed: false if there is
 * none.
 */
bool ck_copy_check_free_run(const struct ck_copy_check *w, uint32_t source, uint64_t off,
			    uint64_t end, uint64_t *from_out, uint64_t *to_out);
/* Bytes [off, off + n) of a file of the index, once each, by thread number 'worker'. */
int ck_copy_check_bytes(struct ck_copy_check *w, uint32_t worker, uint32_t source, uint64_t off,
			const void *p, uint64_t n, struct ckpt_err *err);
/* What could not be compared in passing. */
int ck_copy_check_rest(struct ck_copy_check *w, uint32_t threads, const volatile int *cancel,
		       struct ckpt_err *err);
/* Findings go to the checkpoint. */
void ck_copy_check_report(struct ck_copy_check *w, struct ck_copy_check_counts *counts_out);
void ck_copy_check_free(struct ck_copy_check *w);

#endif
