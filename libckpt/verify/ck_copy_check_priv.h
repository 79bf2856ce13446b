/*
 * ck_copy_check_priv.h -- private to ck_copy_check.c, which makes the lists, and
 * ck_copy_compare.c, which compares.
 */
#ifndef CK_COPY_CHECK_PRIV_H
#define CK_COPY_CHECK_PRIV_H

#include <pthread.h>

#include "libckpt/run/ck_master_check.h"
#include "libckpt/run/ck_read.h"
#include "libckpt/verify/ck_copy_check.h"

#define CK_COPY_CHECK_BATCH ((size_t)128 << 10)
#define CK_COPY_CHECK_PAD UINT32_MAX

enum ck_copy_check_kind { CK_COPY_CHECK_MASTER, CK_COPY_CHECK_COPY, CK_COPY_CHECK_BUFFER };

/* Two states of one tensor: what is read anyway, and what it is compared with. */
struct ck_copy_check_pair {
	uint32_t tensor, state, mate;
	uint8_t kind;
	bool differs, loose;
	bool claims;		/* the mate's bytes */
	struct ck_master_check_at at;	/* the lowest */
};

/* Bytes of a file that are compared. */
struct ck_copy_check_range {
	uint64_t off, bytes;
	uint64_t reach;		/* the farthest end of this and earlier ranges of the file */
	uint64_t first;		/* element of the state */
	uint64_t row, step;	/* so many elements follow each other there, and so on */
	uint32_t source;
	uint32_t pair;		/* or CK_COPY_CHECK_PAD */
	const char *state;	/* of padding */
	uint64_t bad;		/* of padding: first byte that is not zero, or CKPT_NO_OFFSET */
};

struct ck_copy_check_space {
	uint8_t *theirs, *cast, *scratch;
	uint64_t elements, copies, pad_bytes;
};

/* Bytes of a weight that are read with its master, and not where they stand. */
struct ck_copy_check_claim {
	uint64_t off, end;
	uint32_t source;
};

struct ck_copy_check {
	struct ckpt *ck;
	struct ck_copy_check_claim *claim;	/* sorted by place */
	uint64_t nclaims, claim_cap;
	ck_copy_check_claimed_fn claimed;
	void *claimed_arg;
	struct ck_reader *reader;
	struct ck_copy_check_pair *pair;
	uint64_t npairs, pair_cap;
	struct ck_copy_check_range *range;
	uint64_t nranges, range_cap;
	uint64_t *first_job, njobs;	/* of the loose ones, by pair */
	struct ck_copy_check_space *space;
	uint32_t nspaces;
	pthread_mutex_t lock;	/* guards what pairs and ranges have found */
	bool locked;		/* the mutex is there */
	const volatile int *cancel;
};

#endif
