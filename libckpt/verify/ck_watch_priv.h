/*
 * ck_watch_priv.h -- private to ck_watch.c, which makes the lists, and ck_watch_look.c, which
 * compares.
 */
#ifndef CK_WATCH_PRIV_H
#define CK_WATCH_PRIV_H

#include <pthread.h>

#include "libckpt/run/ck_agree.h"
#include "libckpt/run/ck_read.h"
#include "libckpt/verify/ck_watch.h"

#define CK_WATCH_BATCH ((size_t)128 << 10)
#define CK_WATCH_PAD UINT32_MAX

enum ck_watch_kind { CK_WATCH_MASTER, CK_WATCH_COPY, CK_WATCH_BUFFER };

/* Two states of one tensor: what is read anyway, and what it is compared with. */
struct ck_watch_pair {
	uint32_t tensor, state, mate;
	uint8_t kind;
	bool differs, loose;
	bool claims;		/* the mate's bytes */
	struct ck_agree_at at;	/* the lowest */
};

/* Bytes of a file that are compared. */
struct ck_watch_range {
	uint64_t off, bytes;
	uint64_t reach;		/* the farthest end of this and earlier ranges of the file */
	uint64_t first;		/* element of the state */
	uint32_t source;
	uint32_t pair;		/* or CK_WATCH_PAD */
	const char *state;	/* of padding */
	uint64_t bad;		/* of padding: first byte that is not zero, or CKPT_NO_OFFSET */
};

struct ck_watch_space {
	uint8_t *theirs, *cast, *scratch;
	uint64_t elements, copies, pad_bytes;
};

/* Bytes of a weight that are read with its master, and not where they stand. */
struct ck_watch_claim {
	uint64_t off, end;
	uint32_t source;
};

struct ck_watch {
	struct ckpt *ck;
	struct ck_watch_claim *claim;	/* sorted by place */
	uint64_t nclaims, claim_cap;
	ck_watch_claimed_fn claimed;
	void *claimed_arg;
	struct ck_reader *reader;
	struct ck_watch_pair *pair;
	uint64_t npairs, pair_cap;
	struct ck_watch_range *range;
	uint64_t nranges, range_cap;
	uint64_t *first_job, njobs;	/* of the loose ones, by pair */
	struct ck_watch_space *space;
	uint32_t nspaces;
	pthread_mutex_t lock;	/* guards what pairs and ranges have found */
	bool locked;		/* the mutex is there */
	const volatile int *cancel;
};

#endif
