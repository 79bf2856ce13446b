/* en_nvme_uring.c -- requests through io_uring: one thread fills the ring and empties it. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#ifdef EN_URING
#include <liburing.h>
#endif

#include "engine/nvme/en_nvme_priv.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"

#ifdef EN_URING

struct en_uring {
	struct io_uring ring;
	uint32_t busy;			/* requests that the kernel has */
	int broken;			/* errno of a ring that takes no more */
	uint32_t nfree;
	uint32_t *free;			/* numbers of parts that are not in use */
	struct en_nvme_part *part;	/* [depth] */
};

void en_uring_free(struct en_uring *u)
{
	if (!u)
		return;
	io_uring_queue_exit(&u->ring);
	ck_free(u->free);
	ck_free(u->part);
	ck_free(u);
}

int en_uring_new(struct en_nvme *n, char *why, size_t len, struct ckpt_err *err)
{
	struct en_uring *u = ck_zalloc(sizeof(*u));
	char text[64];
	int rc;

	if (!u)
		return ck_fail_nomem(err, "a ring", sizeof(*u));
	rc = io_uring_queue_init(n->depth, &u->ring, 0);
	if (rc < 0) {
		snprintf(why, len, "%s", strerror_r(-rc, text, sizeof(text)));
		ck_free(u);
		return 0;
	}
	u->free = ck_alloc_array(n->depth, sizeof(*u->free));
	u->part = ck_alloc_array(n->depth, sizeof(*u->part));
	if (!u->free || !u->part) {
		en_uring_free(u);
		return ck_fail_nomem(err, "requests", n->depth);
	}
	for (u->nfree = 0; u->nfree < n->depth; u->nfree++)
		u->free[u->nfree] = u->nfree;
	n->uring = u;
	return 0;
}

/* The ring has an entry for every part. */
static void ask(struct en_nvme *n, uint32_t number)
{
	struct en_uring *u = n->uring;
	const struct en_nvme_part *p = &u->part[number];
	struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);
	const uint64_t at = p->op->at + p->from;

	if (p->op->write)
		io_uring_prep_write(sqe, n->fd, en_nvme_at(p), (unsigned)p->n, at);
	else
		io_uring_prep_read(sqe, n->fd, en_nvme_at(p), (unsigned)p->n, at);
	sqe->user_data = number;
	u->busy++;
}

/* Waits for work if there is none; false: nothing is left, and nothing will come. */
static bool ask_all(struct en_nvme *n)
{
	struct en_uring *u = n->uring;

	pthread_mutex_lock(&n->lock);
	while (!u->busy && !n->head && !n->quit)
		pthread_cond_wait(&n->work, &n->lock);
	while (u->nfree && en_nvme_take(n, &u->part[u->free[u->nfree - 1]]))
		ask(n, u->free[--u->nfree]);
	pthread_mutex_unlock(&n->lock);
	return u->busy != 0;
}

static void answer(struct en_nvme *n, uint32_t number, int64_t res)
{
	struct en_uring *u = n->uring;
	int error;

	u->busy--;
	if (en_nvme_more(n, &u->part[number], res, &error)) {
		ask(n, number);
		return;
	}
	en_nvme_end(n, &u->part[number], error);
	u->free[u->nfree++] = number;
}

/* The ring accepts nothing any more: waiting callers get the error, now and later. */
static void fail_all(struct en_nvme *n)
{
	struct en_uring *u = n->uring;
	struct en_nvme_part part;
	bool more = true;

	for (uint32_t i = 0; i < n->depth; i++) {
		bool is_free = false;

		for (uint32_t k = 0; k < u->nfree; k++)
			is_free |= u->free[k] == i;
		if (!is_free)
			en_nvme_end(n, &u->part[i], u->broken);
	}
	while (more) {
		pthread_mutex_lock(&n->lock);
		while (!n->head && !n->quit)
			pthread_cond_wait(&n->work, &n->lock);
		more = en_nvme_take(n, &part);
		pthread_mutex_unlock(&n->lock);
		if (more)
			en_nvme_end(n, &part, u->broken);
	}
}

/*
 * As many answers as there were at first: what is asked for again is not waited for here.  While
 * the kernel has no room for what was asked (-EAGAIN, -EBUSY), emptying the ring makes some.
 */
static void answers(struct en_nvme *n)
{
	struct en_uring *u = n->uring;
	struct io_uring_cqe *cqe;
	unsigned there;
	const int rc = io_uring_submit_and_wait(&u->ring, 1);

	there = io_uring_cq_ready(&u->ring);
	if (rc < 0 && rc != -EINTR && rc != -EAGAIN && rc != -EBUSY && !there)
		u->broken = -rc;
	while (there-- && !io_uring_peek_cqe(&u->ring, &cqe)) {
		const uint32_t number = (uint32_t)cqe->user_data;
		const int64_t res = cqe->res;

		io_uring_cqe_seen(&u->ring, cqe);
		answer(n, number, res);
	}
}

void *en_uring_work(void *nvme)
{
	struct en_nvme *n = nvme;

	while (!n->uring->broken && ask_all(n))
		answers(n);
	if (n->uring->broken)
		fail_all(n);
	return NULL;
}

#else

void en_uring_free(struct en_uring *u)
{
	(void)u;
}

int en_uring_new(struct en_nvme *n, char *why, size_t len, struct ckpt_err *err)
{
	(void)n;
	(void)err;
	snprintf(why, len, "built without liburing");
	return 0;
}

void *en_uring_work(void *nvme)
{
	return nvme;
}

#endif
