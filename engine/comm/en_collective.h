/*
 * en_collective.h -- one collective as messages between pairs of ranks, for backends that only
 * have messages.
 *
 * Each rank sends 'bytes' to each other rank and gets as many from it, in chunks.  Two chunks are
 * under way at a time: chunk c + 2 begins when chunk c is done with all ranks.  What comes in goes
 * to its final place, or to scratch memory, from where a chunk of all ranks is joined.
 *
 *	                 to rank p               from rank p           at the end of a chunk
 *	all-gather       own shard               its place             -
 *	reduce-scatter   piece p                 scratch               tree sum
 *	all-reduce       all                     scratch               tree sum, max, min
 *	broadcast        all, if root            its place, if p root  -
 *	barrier          no bytes                no bytes              -
 */
#ifndef EN_COLLECTIVE_H
#define EN_COLLECTIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/comm/en_comm.h"
#include "engine/comm/en_tree.h"
#include "libckpt/ztrain/ck_zt_memory.h"

#define EN_COLLECTIVE_CHUNK CK_ZT_MESSAGE
#define EN_COLLECTIVE_ALL UINT32_MAX /* as root: every rank sends */

/* Memory that operations use one after the other. */
struct en_scratch {
	struct en_scratch *next;
	uint64_t size;
	bool used;
	uint8_t *bytes;
};

struct en_collective {
	struct en_collective *next;
	enum en_comm_kind kind;
	const char *what;	/* "reduce-scatter" */
	uint64_t number;	/* of the operation, from 0, the same on all ranks */
	uint32_t rank, size, root;
	uint64_t bytes;
	const uint8_t *send;	/* to rank p: send + p * send_step */
	uint64_t send_step;
	uint8_t *recv;		/* from rank p: recv + p * recv_step; NULL: to be joined */
	uint64_t recv_step;
	struct en_tree tree;
	uint8_t *out;		/* of the join */
	struct en_scratch *scratch;
	const void **piece;	/* [size], for the join */
	void *tree_work;	/* lent */
	uint64_t chunk, nchunks;
	uint64_t posted, done;	/* chunks */
	void *own;	/* the backend's */
};

/* Cuts what the fields up to 'out' say into chunks.  Returns the bytes of scratch it takes. */
uint64_t en_collective_cut(struct en_collective *work);

uint64_t en_collective_bytes(const struct en_collective *work, uint64_t chunk);
/* NULL: nothing goes there.  A chunk of 0 bytes has an address too. */
const void *en_collective_send(const struct en_collective *work, uint64_t chunk, uint32_t to);
void *en_collective_recv(const struct en_collective *work, uint64_t chunk, uint32_t from);
/* All of it has come in and gone out. */
void en_collective_finish(struct en_collective *work, uint64_t chunk);

/*
 * Memory of 'size' bytes or more, marked as used; what is unused and too small is freed on the way.
 * NULL: there is none.  'comm' counts it.
 */
struct en_scratch *en_scratch_take(struct en_comm *comm, struct en_scratch **list, uint64_t size);
void en_scratch_free(struct en_comm *comm, struct en_scratch **list);

#endif
