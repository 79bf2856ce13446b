/*
 * fk_queue.c -- streams, events, and when what is queued is done.
 *
 * An operation has a number in its stream and may wait for one number of another stream.  Who
 * waits on the host marks what is needed for it, and runs operations until it is done: those that
 * are needed, and sometimes others that could run; one at a time, of streams by chance.  A stream's
 * luck changes with every wait, so that at times one runs far ahead of the others.  From some
 * waits to the next a little is done early as well, now and then.
 *
 * Operations of NCCL may block until other ranks come, so they run early only if they are needed.
 * A host that waits for something else meanwhile (a message, a flag that a callback sets) would
 * stop its device, which real ones do not: a thread continues if another rank needs it, or
 * if no call came for a while.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/gpusim/fk_queue.h"

#define POLL_MS 10		/* of the thread */
#define IDLE_S 0.3		/* no call came */

/* The last of each communicator. */
struct last { struct ncclComm *comm; uint32_t stream; uint64_t at, n; };

static struct last last[16];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER, asked = PTHREAD_COND_INITIALIZER;
struct fk_queue fk_queue;

/* ---- the beginning ---- */

static uint64_t chance(void)
{
	uint64_t x = fk_queue.rng += 0x9e3779b97f4a7c15u;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

void fk_stir(uint64_t by)
{
	fk_enter();
	fk_queue.rng ^= (by + 1) * 0xd1342543de82ef95u;
	fk_leave();
}

static void tell(void)
{
	fprintf(stderr, "fake GPU: %llu operations, %llu records, %llu waits, %llu not done\n",
		(unsigned long long)fk_queue.ops, (unsigned long long)fk_queue.records,
		(unsigned long long)fk_queue.waits, (unsigned long long)fk_queue.pending);
}

static void *go_on(void *unused);

/* One that was destroyed and is done keeps its numbers, which events may know. */
static struct CUstream_st *free_stream(void)
{
	struct CUstream_st *s;

	for (uint32_t i = 0; i < fk_queue.nstreams; i++)
		if (!fk_queue.stream[i]->alive && !fk_queue.stream[i]->head)
			return fk_queue.stream[i];
	if (fk_queue.nstreams == FK_STREAMS)
		fk_die("more than %u streams were made", FK_STREAMS);
	s = fk_room(sizeof(*s));
	memset(s, 0, sizeof(*s));
	s->index = fk_queue.nstreams;
	fk_queue.stream[fk_queue.nstreams++] = s;
	return s;
}

struct CUstream_st *fk_new_stream(bool legacy, bool blocking)
{
	struct CUstream_st *s = free_stream();

	s->alive = true;
	s->legacy = legacy;
	s->blocking = blocking;
	return s;
}

static void start(void)
{
	const char *seed = getenv("FAKE_GPU_SEED");
	pthread_t thread;

	fk_queue.eager = seed && !strcmp(seed, "eager");
	fk_queue.rng = fk_queue.eager ? 0 : fk_env("FAKE_GPU_SEED", 1);
	fk_queue.races = fk_env("FAKE_GPU_RACES", 1) != 0;
	fk_queue.drop = fk_env("FAKE_GPU_DROP_WAIT", 0);
	if (fk_env("FAKE_GPU_STATS", 0))
		atexit(tell);
	fk_new_stream(true, false);
	fk_queue.started = true;
	if (pthread_create(&thread, NULL, go_on, NULL))
		fk_die("no thread");
	pthread_detach(thread);
}

void fk_enter(void)
{
	pthread_mutex_lock(&lock);
	if (!fk_queue.started)
		start();
	fk_queue.called = fk_now();
}

void fk_leave(void)
{
	pthread_mutex_unlock(&lock);
}

struct CUstream_st *fk_stream_of(cudaStream_t s)
{
	if (!s)
		return fk_queue.stream[0];
	if (!s->alive)
		fk_die("a stream is used that was destroyed");
	return s;
}

/* ---- running ---- */

static bool can_run(const struct op *op)
{
	return !op->of || fk_queue.stream[op->of - 1]->done >= op->until;
}

static void need(struct CUstream_st *s, uint64_t at)
{
	if (at > s->need)
		s->need = at;
}

/* What the needed ones need. */
void fk_mark(struct CUstream_st *s, uint64_t at)
{
	bool more = true;

	need(s, at);
	while (more) {
		more = false;
		for (uint32_t i = 0; i < fk_queue.nstreams; i++) {
			struct CUstream_st *t = fk_queue.stream[i];

			for (; t->scan && t->scanned < t->need; t->scan = t->scan->next) {
				const struct op *op = t->scan;

				t->scanned++;
				if (op->of)
					need(fk_queue.stream[op->of - 1], op->until);
				more = true;
			}
		}
	}
}

/* One operation of 's', without the lock while it runs. */
static void run_one(struct CUstream_st *s)
{
	struct op *op = s->head;

	fk_queue.running = true;
	fk_leave();
	if (op->run)
		op->run(op->args);
	pthread_mutex_lock(&lock);
	if (op->event) {
		op->event->time = fk_now();
		if (!--op->event->refs)
			free(op->event);
	}
	fk_queue.running = false;
	if (s->scan == op) {
		s->scan = op->next;
		s->scanned++;
	}
	s->head = op->next;
	if (!s->head)
		s->tail = NULL;
	s->done++;
	fk_queue.pending--;
	fk_queue.ops++;
	free(op->args);
	free(op);
	pthread_cond_broadcast(&changed);
}

/* A stream whose next operation may run; 'extra': also one that no caller needs. */
static struct CUstream_st *pick(bool extra)
{
	struct CUstream_st *best = NULL;
	uint64_t sum = 0;

	for (uint32_t i = 0; i < fk_queue.nstreams; i++) {
		struct CUstream_st *s = fk_queue.stream[i];

		if (!s->head || !can_run(s->head))
			continue;
		if (s->done >= s->need && (!extra || s->head->comm))
			continue;
		sum += 1ull << s->luck;
		if (chance() % sum < 1ull << s->luck)
			best = s;
	}
	return best;
}

static void new_luck(void)
{
	for (uint32_t i = 0; i < fk_queue.nstreams; i++)
		fk_queue.stream[i]->luck = (unsigned)(chance() % 4 * 3);
}

void fk_run_until(struct CUstream_st *s, uint64_t at)
{
	const bool extra = chance() % 3 == 0;

	fk_queue.lively = chance() % 3 == 0;
	new_luck();
	fk_mark(s, at);
	fk_queue.waiting++;
	while (s->done < at) {
		struct CUstream_st *next;

		if (fk_queue.running) {
			pthread_cond_wait(&changed, &lock);
			continue;
		}
		next = pick(extra);
		if (!next)
			fk_die("nothing can run, and operation %llu of stream %u is waited for",
			       (unsigned long long)at, s->index);
		run_one(next);
	}
	fk_queue.waiting--;
	fk_queue.called = fk_now();
}

void fk_step(void)
{
	struct CUstream_st *next = fk_queue.running ? NULL : pick(false);

	if (next && next->head->comm) {
		fk_queue.asked = true;
		pthread_cond_signal(&asked);
	} else if (next) {
		run_one(next);
	}
}

/* What waits for other ranks does so here, not in the thread that has only asked. */
static void answer(void)
{
	struct CUstream_st *next = fk_queue.asked && !fk_queue.running ? pick(false) : NULL;

	fk_queue.asked = false;
	if (next)
		run_one(next);
}

/* ---- the thread ---- */

/* The first of a communicator that is not done. */
static struct CUstream_st *first_of(struct ncclComm *comm, uint64_t *at)
{
	struct CUstream_st *first = NULL;
	uint64_t least = UINT64_MAX;

	for (uint32_t i = 0; i < fk_queue.nstreams; i++) {
		uint64_t n = fk_queue.stream[i]->done;

		for (const struct op *op = fk_queue.stream[i]->head; op; op = op->next) {
			n++;
			if (op->comm != comm || op->comm_at >= least)
				continue;
			least = op->comm_at;
			first = fk_queue.stream[i];
			*at = n;
		}
	}
	return first;
}

/* Nobody calls: all that does not block. */
static bool run_idle(void)
{
	for (uint32_t i = 0; i < fk_queue.nstreams; i++) {
		struct CUstream_st *s = fk_queue.stream[i];

		if (!s->head || !can_run(s->head) ||
		    (s->head->comm && !fk_comm_all_have(s->head->comm, s->head->comm_at)))
			continue;
		run_one(s);
		return true;
	}
	return false;
}

static bool is_idle(void)
{
	return !fk_queue.waiting && !fk_queue.running && fk_now() - fk_queue.called > IDLE_S;
}

static void *go_on(void *unused)
{
	struct timespec until;

	(void)unused;
	pthread_mutex_lock(&lock);
	for (;;) {
		while (!fk_queue.pending)
			pthread_cond_wait(&changed, &lock);
		for (struct ncclComm *c = fk_comms(); c; c = fk_comm_next(c)) {
			uint64_t at;
			struct CUstream_st *s = fk_comm_is_wanted(c) ? first_of(c, &at) : NULL;

			if (s)
				fk_run_until(s, at);
		}
		while (is_idle() && run_idle())
			;
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_nsec += POLL_MS * 1000000;
		until.tv_sec += until.tv_nsec / 1000000000;
		until.tv_nsec %= 1000000000;
		pthread_cond_timedwait(&asked, &lock, &until);
		answer();
	}
	return NULL;
}

/* ---- queueing ---- */

struct op *fk_append(struct CUstream_st *s, const char *name)
{
	struct op *op = fk_room(sizeof(*op));

	memset(op, 0, sizeof(*op));
	op->name = name;
	if (s->tail)
		s->tail->next = op;
	else
		s->head = op;
	s->tail = op;
	if (!s->scan)
		s->scan = op;
	s->queued++;
	fk_queue.pending++;
	if (fk_queue.pending == 1)
		pthread_cond_broadcast(&changed);
	return op;
}

void fk_wait_for(struct CUstream_st *s, uint32_t stream, uint64_t at)
{
	struct op *op;

	if (fk_queue.stream[stream]->done >= at || stream == s->index)
		return;
	op = fk_append(s, "wait");
	op->of = stream + 1;
	op->until = at;
}

/* The default stream waits for all that are not "non-blocking", and they for it. */
static void wait_all(struct CUstream_st *s, const struct CUstream_st *of)
{
	uint64_t seen[FK_STREAMS];

	fk_seen_of(seen, of);
	fk_seen_join(s->seen, seen);
	fk_wait_for(s, of->index, of->queued);
}

void fk_wait_legacy(struct CUstream_st *s)
{
	for (uint32_t i = 1; s->legacy && i < fk_queue.nstreams; i++)
		if (fk_queue.stream[i]->blocking)
			wait_all(s, fk_queue.stream[i]);
	if (s->blocking)
		wait_all(s, fk_queue.stream[0]);
}

/* At once, or now and then a little of what is there. */
void fk_after(struct CUstream_st *s)
{
	if (fk_queue.eager) {
		fk_run_until(s, s->queued);
		return;
	}
	if (!fk_queue.lively || chance() % 8)
		return;
	new_luck();
	for (uint64_t n = chance() % 8; n && !fk_queue.running; n--) {
		struct CUstream_st *next = pick(true);

		if (!next)
			break;
		run_one(next);
	}
}

static struct last *last_of(const struct ncclComm *comm)
{
	for (size_t i = 0; i < FK_LEN(last); i++)
		if (last[i].comm == comm)
			return &last[i];
	return NULL;
}

/* In the order of the communicator's calls, also over streams. */
static void after_last(struct CUstream_st *s, struct ncclComm *comm)
{
	struct last *l = last_of(comm);

	if (!l) {
		l = last_of(NULL);
		if (!l)
			fk_die("too many communicators");
		*l = (struct last){ .comm = comm };
	} else {
		fk_wait_for(s, l->stream, l->at);
	}
	l->n++;
	l->stream = s->index;
	l->at = s->queued + 1;
	fk_comm_queued(comm, l->n);
}

int fk_launch_of(struct ncclComm *comm, cudaStream_t stream, const char *name,
		 void (*run)(const void *args), const void *args, size_t size,
		 const struct fk_use *use, size_t nuse, bool any)
{
	struct CUstream_st *s;
	struct op *op;

	for (size_t i = 0; !any && i < nuse; i++)
		fk_look(name, &use[i]);
	fk_enter();
	s = fk_stream_of(stream);
	fk_wait_legacy(s);
	if (comm)
		after_last(s, comm);
	op = fk_append(s, name);
	op->run = run;
	op->args = fk_room(size);
	memcpy(op->args, args, size);
	op->comm = comm;
	op->comm_at = comm ? last_of(comm)->n : 0;
	fk_touch(s, name, use, nuse);
	fk_after(s);
	fk_leave();
	return 0;
}

int fk_launch(cudaStream_t stream, const char *name, void (*run)(const void *args),
	      const void *args, size_t size, const struct fk_use *use, size_t nuse)
{
	const int rc = fk_launch_of(NULL, stream, name, run, args, size, use, nuse, false);

	return rc ? rc : (int)cudaGetLastError();
}

void fk_settle_comm(struct ncclComm *comm)
{
	struct last *l;

	fk_enter();
	l = last_of(comm);
	if (l) {
		fk_run_until(fk_queue.stream[l->stream], l->at);
		*l = (struct last){ .comm = NULL };
	}
	fk_leave();
}
