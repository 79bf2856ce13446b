/* fk_pipe.h -- communicators of the fake NCCL, and messages between their ranks. */
#ifndef FK_PIPE_H
#define FK_PIPE_H

#include <stdatomic.h>

#include "tests/gpusim/fk.h"
#include "tests/gpusim/include/nccl.h"

#define FK_RANKS 64
#define FK_PIPE ((size_t)64 << 10)

struct pipe {
	_Atomic uint64_t in, out;	/* bytes */
	uint8_t data[FK_PIPE];
};

struct shared {
	_Atomic uint32_t joined, left, broken;
	_Atomic uint32_t wanted[FK_RANKS];
	_Atomic uint32_t device[FK_RANKS];	/* 1 + its number */
	_Atomic uint64_t queued[FK_RANKS];
	struct pipe pipe[];	/* [from * size + to] */
};

enum what { GATHER = 1, SCATTER, REDUCE_ALL, REDUCE, BROADCAST, ALL_TO_ALL, PAIRS };
struct head {
	uint64_t what, bytes, n;
};

struct ncclComm {
	struct ncclComm *next;
	uint32_t rank, size;
	struct shared *sh;
	size_t mapped;
	uint64_t calls;		/* of collectives */
	char error[200];
};

struct message {
	uint8_t *p;
	struct head head;
	size_t done;		/* bytes, the head's first */
	uint32_t peer;
	bool send;
};

/* "ncclAllGather", ... */
const char *fk_name_of(enum what what);
/*
 * Moves all messages to their ends; 'what' and 'n' are of the operation, the same on both sides.
 * Waits for other ranks; false: the communicator was aborted.
 */
bool fk_exchange(struct ncclComm *c, struct message *m, size_t count, enum what what, uint64_t n);
/* Gives way to others, then sleeps a little; *idle begins with 0. */
void fk_pause(unsigned *idle);

/* 0 for what is no type. */
size_t fk_size_of(ncclDataType_t type);
/* to [n] = the sum of part[0 .. size), each [n]; 'part' is used up. */
void fk_reduce(const struct ncclComm *c, void *to, uint8_t *const *part, size_t n,
	       ncclDataType_t type, ncclRedOp_t op);

#endif
