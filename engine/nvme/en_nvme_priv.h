/* en_nvme_priv.h -- what the files of engine/nvme share: the queue, and who works on it. */
#ifndef EN_NVME_PRIV_H
#define EN_NVME_PRIV_H

#include <pthread.h>

#include "engine/nvme/en_nvme.h"

#define EN_NVME_THREADS 64u
#define EN_NVME_TEXT 200

struct en_nvme {
	int fd;
	bool direct;
	uint64_t block;
	uint32_t depth;
	char *dir;
	char text[EN_NVME_TEXT];
	int64_t (*ended)(void *arg, bool write, uint64_t at, int64_t res);
	void *arg;
	pthread_mutex_t lock;
	pthread_cond_t work, done;
	struct en_nvme_op *head, *tail;	/* with bytes that no request was made for */
	bool quit;
	struct en_uring *uring;		/* NULL: threads with pread() and pwrite() */
	uint32_t nthreads;
	pthread_t thread[EN_NVME_THREADS];
};

/* A request: bytes [from, from + n) of a transfer. */
struct en_nvme_part {
	struct en_nvme_op *op;
	uint64_t from, n;
};

static inline uint8_t *en_nvme_at(const struct en_nvme_part *p)
{
	return p->op->buf + p->from;
}

/* Under the lock: the next request, false if there is none. */
bool en_nvme_take(struct en_nvme *n, struct en_nvme_part *part);
/*
 * A request gave 'res' (bytes, or -errno).  true: '*part' is what is left of it, to be asked for
 * again; else it is over, with '*error_out' for en_nvme_end().
 */
bool en_nvme_more(const struct en_nvme *n, struct en_nvme_part *part, int64_t res, int *error_out);
/* Takes the lock: a request is over. */
void en_nvme_end(struct en_nvme *n, const struct en_nvme_part *part, int error);

/*
 * en_nvme_uring.c: a ring, or 0 and NULL with a reason in 'why' (or in a build without liburing).
 * The thread that works on it is en_uring_work(n).
 */
int en_uring_new(struct en_nvme *n, char *why, size_t len, struct ckpt_err *err);
void en_uring_free(struct en_uring *u);
void *en_uring_work(void *nvme);

#endif
