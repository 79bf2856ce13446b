/* fk_queue.h -- streams and events of the fake GPU, and what is queued. */
#ifndef FK_QUEUE_H
#define FK_QUEUE_H

#include "tests/gpusim/fk.h"

#define FK_STREAMS 64u

struct op {
	struct op *next;
	const char *name;
	void (*run)(const void *args);
	uint32_t of;		/* 0: of nothing; else 1 + the stream that is waited for */
	uint64_t until;		/* its number there */
	struct CUevent_st *event;	/* a record's */
	struct ncclComm *comm;
	uint64_t comm_at;
	void *args;
};

struct CUstream_st {
	uint32_t index;
	bool alive, legacy, blocking;
	uint64_t queued, done;	/* numbers of the last */
	uint64_t need, scanned;
	struct op *head, *tail;
	struct op *scan;	/* the first that is not scanned */
	unsigned luck;
	uint64_t seen[FK_STREAMS];	/* of each stream, up to which number */
};

struct CUevent_st {
	unsigned refs;		/* the program's, and records that are queued */
	uint32_t stream;	/* of the last record; 0 = none, else 1 + its index */
	uint64_t at;
	double time;
	uint64_t seen[FK_STREAMS];
};

struct fk_queue {
	struct CUstream_st *stream[FK_STREAMS];
	uint32_t nstreams, waiting;	/* threads that wait */
	bool running, eager, started, races, lively, asked;
	uint64_t host[FK_STREAMS];	/* what it has seen */
	uint64_t rng, pending, drop, waits, ops, records;
	double called;
};
extern struct fk_queue fk_queue;

/* The lock of all of it. */
void fk_enter(void);
void fk_leave(void);

/* ---- under the lock ---- */
struct CUstream_st *fk_new_stream(bool legacy, bool blocking);
/* That a handle means; destroyed ones end the process. */
struct CUstream_st *fk_stream_of(cudaStream_t s);
/* An operation that does nothing, at the end of a stream. */
struct op *fk_append(struct CUstream_st *s, const char *name);
/* What comes next in 's' comes after number 'at' of another. */
void fk_wait_for(struct CUstream_st *s, uint32_t stream, uint64_t at);
/* The default stream waits for all that are not "non-blocking", and they for it. */
void fk_wait_legacy(struct CUstream_st *s);
/* Something was queued: at once it is done, or now and then a little of what is there. */
void fk_after(struct CUstream_st *s);
/* This, and what it needs, is waited for. */
void fk_mark(struct CUstream_st *s, uint64_t at);
/* Until it is done; one operation of what is waited for, if it can run. */
void fk_run_until(struct CUstream_st *s, uint64_t at);
void fk_step(void);

/* ---- fk_race.c, under the lock ---- */
void fk_seen_join(uint64_t *seen, const uint64_t *more);
/* All that is queued on a stream by now. */
void fk_seen_of(uint64_t *seen, const struct CUstream_st *s);
/* The host has waited for it: whatever is queued from now on comes later. */
void fk_seen_by_host(const uint64_t *seen);
/* The last operation of 's' touches memory. */
void fk_touch(struct CUstream_st *s, const char *name, const struct fk_use *use, size_t nuse);

#endif
