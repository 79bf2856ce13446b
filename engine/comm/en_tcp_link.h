/*
 * en_tcp_link.h -- the connection of two ranks, over which records go, some followed by a
 * chunk of an operation.
 *
 * A rank sends a chunk when the receiver has announced that its buffer is ready.  So incoming data
 * always has a destination, operations may be in flight in any order, and nothing is buffered
 * unasked.  Two ranks that do not run the same step detect it before data is mixed up.
 *
 *	record, 32 bytes, little-endian
 *	 0  4: 1 ready, 2 a chunk, whose bytes follow, 3 leaving, 4 ended
 *	 4  4: kind of the operation (en_comm.h)
 *	 8  its number
 *	16  chunk; of 3: bytes of text that follow
 *	24  bytes a rank of the operation
 *
 * 'leaving' carries what went wrong, so that those who only see a connection end know of whom the
 * one at its other end had not heard.
 */
#ifndef EN_TCP_LINK_H
#define EN_TCP_LINK_H

#include <poll.h>
#include <sys/uio.h>

#include "engine/comm/en_transport.h"
#include "libckpt/base/ck_buf.h"

#define EN_RECORD 32u
#define EN_MOST_TEXT 480u

enum en_record { EN_READY = 1, EN_CHUNK, EN_LEAVING, EN_ENDED };

/* Of a message of a work, in w->own. */
enum en_state { EN_NONE, EN_POSTED, EN_CLEARED, EN_MOVING, EN_DONE };

/* What a rank is ready for, and this one has not come to. */
struct en_early {
	uint64_t number, chunk, bytes;
	uint32_t kind;
};

struct en_link {
	int fd;			/* -1: closed */
	bool ended, left;	/* it said so */
	char why[EN_MOST_TEXT];	/* of one that left, or whose connection broke; "" = neither */
	/* Out: records, or a chunk after its record. */
	struct ck_buf queue;
	size_t queued;		/* bytes of the queue that have gone */
	uint8_t head[EN_RECORD];
	size_t head_left;
	const uint8_t *out;
	uint64_t out_left;
	struct en_collective *out_work; /* NULL: none */
	uint64_t out_chunk;
	/* In. */
	uint8_t record[EN_RECORD];
	size_t have;		/* bytes of the record */
	uint8_t *in;
	uint64_t in_left;
	struct en_collective *in_work;
	uint64_t in_chunk;
	bool in_text;
	struct ck_buf early;	/* struct en_early */
};

struct en_tcp {
	struct en_transport flow; /* first */
	struct en_link *at;	/* [size] */
	struct pollfd *poll;	/* [size] */
	char told[EN_MOST_TEXT];	/* by the first rank that left: what it said */
};

static inline struct en_tcp *en_tcp_of(struct en_transport *flow)
{
	return (struct en_tcp *)(void *)flow;
}

static inline uint8_t *en_link_state(const struct en_collective *w, uint64_t chunk, bool from,
				     uint32_t p)
{
	return (uint8_t *)w->own + ((chunk & 1) * 2 + !from) * w->size + p;
}

static inline struct en_early en_early_of(const struct en_collective *w, uint64_t chunk)
{
	return (struct en_early){
		.number = w->number, .chunk = chunk, .bytes = w->bytes, .kind = (uint32_t)w->kind,
	};
}

/* Closed, and it had not said that it would. */
static inline bool en_link_is_broken(const struct en_link *at)
{
	return at->fd < 0 && !at->left && !at->ended;
}

/* Fails: those whose connection is closed are named. */
int en_link_gone(struct en_transport *f, struct ckpt_err *err);

void en_link_record(uint8_t *b, enum en_record kind, const struct en_early *e);
int en_link_queue(struct en_tcp *c, uint32_t p, enum en_record kind, const struct en_early *e,
		  struct ckpt_err *err);
/* A chunk is to go to rank p, as soon as it is ready for it. */
int en_link_await(struct en_tcp *c, struct en_collective *w, uint64_t chunk, uint32_t p,
		  struct ckpt_err *err);

/* What of it the system takes now; 0: nothing more for the moment, or the connection broke. */
size_t en_link_send(struct en_tcp *c, uint32_t p, struct iovec *part, size_t n);
bool en_link_send_queue(struct en_tcp *c, uint32_t p);
/* Something can go out; what is next is chosen. */
bool en_link_has_output(struct en_tcp *c, uint32_t p);
void en_link_push(struct en_tcp *c, uint32_t p, bool *moved);
/* What has come from rank p. */
int en_link_pull(struct en_tcp *c, uint32_t p, bool *moved, struct ckpt_err *err);

#endif
