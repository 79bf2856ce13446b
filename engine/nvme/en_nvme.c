/* en_nvme.c -- see en_nvme.h: the file, the queue, and threads where there is no io_uring. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "engine/nvme/en_nvme_priv.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"

#define MOST_NAMES 100u		/* that others have, before it is given up */

/* ---- the queue ---- */

bool en_nvme_take(struct en_nvme *n, struct en_nvme_part *part)
{
	struct en_nvme_op *op = n->head;

	if (!op)
		return false;
	part->op = op;
	part->from = op->begun;
	part->n = ck_min_u64(n->block, op->bytes - op->begun);
	op->begun += part->n;
	op->out++;
	if (op->begun == op->bytes)
		n->head = op->next;
	return true;
}

/* Around the page cache what is asked for again begins at a whole block too. */
bool en_nvme_more(const struct en_nvme *n, struct en_nvme_part *part, int64_t res, int *error_out)
{
	const struct en_nvme_op *op = part->op;

	if (n->ended)
		res = n->ended(n->arg, op->write, op->at + part->from, res);
	if (res == -EINTR || res == -EAGAIN)
		return true;
	if (res > 0 && n->direct && (uint64_t)res < part->n)
		res -= res % EN_NVME_ALIGN;
	*error_out = res < 0 ? (int)-res : res ? 0 : EIO;
	if (*error_out || (uint64_t)res >= part->n)
		return false;
	part->from += (uint64_t)res;
	part->n -= (uint64_t)res;
	return true;
}

/* What was not asked for yet of a transfer that failed will not be. */
static void give_up(struct en_nvme *n, struct en_nvme_op *op)
{
	if (op->begun < op->bytes) {
		struct en_nvme_op **p = &n->head;

		while (*p != op)
			p = &(*p)->next;
		*p = op->next;
		op->begun = op->bytes;
		for (n->tail = n->head; n->tail && n->tail->next;)
			n->tail = n->tail->next;
	}
}

void en_nvme_end(struct en_nvme *n, const struct en_nvme_part *part, int error)
{
	struct en_nvme_op *op = part->op;

	pthread_mutex_lock(&n->lock);
	op->out--;
	if (error && !op->error) {
		op->error = error;
		give_up(n, op);
	}
	if (!op->out && op->begun == op->bytes) {
		op->busy = false;
		pthread_cond_broadcast(&n->done);
	}
	pthread_mutex_unlock(&n->lock);
}

void en_nvme_begin(struct en_nvme *n, struct en_nvme_op *op, bool write, void *buf, uint64_t at,
		   uint64_t bytes)
{
	*op = (struct en_nvme_op){
		.buf = buf, .at = at, .bytes = bytes, .write = write, .busy = bytes != 0,
	};
	if (!bytes)
		return;
	pthread_mutex_lock(&n->lock);
	if (n->head)
		n->tail->next = op;
	else
		n->head = op;
	n->tail = op;
	pthread_cond_broadcast(&n->work);
	pthread_mutex_unlock(&n->lock);
}

int en_nvme_wait(struct en_nvme *n, struct en_nvme_op *op, struct ckpt_err *err)
{
	char call[96];

	pthread_mutex_lock(&n->lock);
	while (op->busy)
		pthread_cond_wait(&n->done, &n->lock);
	pthread_mutex_unlock(&n->lock);
	if (!op->error)
		return 0;
	snprintf(call, sizeof(call), "%s %" PRIu64 " bytes at %" PRIu64 " of the states there",
		 op->write ? "writing" : "reading", op->bytes, op->at);
	return ck_fail_sys(err, op->error, call, n->dir);
}

/* ---- threads ---- */

static void do_part(struct en_nvme *n, struct en_nvme_part *part)
{
	const struct en_nvme_op *op = part->op;
	int64_t res;
	int error;

	do {
		const off_t at = (off_t)(op->at + part->from);

		res = op->write ? ck_sys.pwrite(n->fd, en_nvme_at(part), part->n, at) :
		      ck_sys.pread(n->fd, en_nvme_at(part), part->n, at);
		res = res < 0 ? -errno : res;
	} while (en_nvme_more(n, part, res, &error));
	en_nvme_end(n, part, error);
}

static void *work(void *arg)
{
	struct en_nvme *n = arg;
	struct en_nvme_part part;

	for (;;) {
		pthread_mutex_lock(&n->lock);
		while (!n->quit && !n->head)
			pthread_cond_wait(&n->work, &n->lock);
		if (!en_nvme_take(n, &part)) {
			pthread_mutex_unlock(&n->lock);
			return NULL;
		}
		pthread_mutex_unlock(&n->lock);
		do_part(n, &part);
	}
}

static int start(struct en_nvme *n, uint32_t threads, struct ckpt_err *err)
{
	for (uint32_t i = 0; i < threads; i++) {
		const int rc = ck_thread(&n->thread[i], n->uring ? en_uring_work : work, n);

		if (rc)
			return ck_fail_sys(err, rc, "starting a thread", n->dir);
		n->nthreads++;
	}
	return 0;
}

/* ---- the file ---- */

/* One rank makes the folder, and the others find it. */
static int make_dir(const char *dir, struct ckpt_err *err)
{
	if (!ck_sys.mkdir(dir, 0777) || errno == EEXIST)
		return 0;
	return ck_fail_sys(err, errno, "mkdir", dir);
}

/* An unused name; ck_free() it. */
static int make_file(struct en_nvme *n, uint32_t rank, char **path_out, struct ckpt_err *err)
{
	for (unsigned i = 0; i < MOST_NAMES; i++) {
		char *path = ck_asprintf("%s/zckpt-%ld-rank-%05u-%u.states", n->dir,
					 (long)getpid(), rank, i);

		if (!path)
			return ck_fail_nomem(err, "a name", strlen(n->dir));
		n->fd = ck_open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		if (n->fd >= 0) {
			*path_out = path;
			return 0;
		}
		ck_free(path);
		if (errno != EEXIST)
			break;
	}
	return ck_fail_sys(err, errno, "making a file for states", n->dir);
}

static int too_full(const struct en_nvme *n, uint64_t bytes, struct ckpt_err *err)
{
	struct statvfs st;

	if (ck_statvfs(n->dir, &st))
		return ck_fail_sys(err, ENOSPC, "making room for states", n->dir);
	return ck_fail(err, CKPT_E_NOSPACE, n->dir, CKPT_NO_OFFSET,
		       "this rank's optimizer states need %" PRIu64 " bytes there, and %" PRIu64
		       " are free for all ranks",
		       bytes, (uint64_t)st.f_bavail * st.f_frsize);
}

/* A file system that cannot set room aside may be full later; what it says now must do. */
static int take_room(struct en_nvme *n, uint64_t bytes, struct ckpt_err *err)
{
	struct statvfs st;

	if (!bytes || !ck_fallocate(n->fd, 0, (off_t)bytes))
		return 0;
	if (errno == ENOSPC || errno == EFBIG)
		return too_full(n, bytes, err);
	if (errno != EOPNOTSUPP && errno != EINVAL && errno != ENOSYS)
		return ck_fail_sys(err, errno, "fallocate", n->dir);
	if (!ck_statvfs(n->dir, &st) && (uint64_t)st.f_bavail * st.f_frsize < bytes)
		return too_full(n, bytes, err);
	if (ck_ftruncate(n->fd, (off_t)bytes))
		return ck_fail_sys(err, errno, "ftruncate", n->dir);
	return 0;
}

/* What refuses O_DIRECT does so when the file is opened, or when a block is written: 0 or errno. */
static int try_direct(struct en_nvme *n, const char *path)
{
	uint8_t room[2 * EN_NVME_ALIGN];
	uint8_t *block = room + EN_NVME_ALIGN - (uintptr_t)room % EN_NVME_ALIGN;
	const int fd = ck_open(path, O_RDWR | O_CLOEXEC | O_DIRECT, 0);
	ssize_t res;

	if (fd < 0)
		return errno;
	memset(block, 0, EN_NVME_ALIGN);
	res = ck_sys.pwrite(fd, block, EN_NVME_ALIGN, 0);
	if (res != (ssize_t)EN_NVME_ALIGN) {
		const int why = res < 0 ? errno : EINVAL;

		ck_close(fd);
		return why;
	}
	ck_close(n->fd);
	n->fd = fd;
	n->direct = true;
	return 0;
}

static int open_file(struct en_nvme *n, const struct en_nvme_opts *o, int *no_direct,
		     struct ckpt_err *err)
{
	char *path = NULL;
	int rc = make_dir(o->dir, err);

	if (!rc)
		rc = make_file(n, o->rank, &path, err);
	if (!rc)
		rc = take_room(n, o->bytes, err);
	if (!rc)
		*no_direct = o->avoid & EN_NVME_NO_DIRECT || !o->bytes ? -1 : try_direct(n, path);
	if (path)
		ck_sys.unlink(path);
	ck_free(path);
	return rc;
}

/* ---- life ---- */

static void describe(struct en_nvme *n, const char *no_uring, int no_direct)
{
	char some[96], cache[96] = "O_DIRECT";

	if (!n->direct)
		snprintf(cache, sizeof(cache), "through the page cache (O_DIRECT: %s)",
			 no_direct < 0 ? "disabled" : strerror_r(no_direct, some, sizeof(some)));
	if (n->uring)
		snprintf(n->text, sizeof(n->text), "io_uring, %s", cache);
	else
		snprintf(n->text, sizeof(n->text), "%u threads (io_uring: %s), %s", n->nthreads,
			 no_uring, cache);
}

static uint64_t within(uint64_t v, uint64_t dflt, uint64_t least, uint64_t most)
{
	v = v ? v : dflt;
	return v < least ? least : v > most ? most : v;
}

static int make(struct en_nvme *n, const struct en_nvme_opts *o, struct ckpt_err *err)
{
	const uint32_t threads = (uint32_t)within(o->threads, 4, 1, EN_NVME_THREADS);
	char why[64] = "disabled";
	int no_direct = 0, rc = open_file(n, o, &no_direct, err);

	if (!rc && !(o->avoid & EN_NVME_NO_URING))
		rc = en_uring_new(n, why, sizeof(why), err);
	if (!rc)
		rc = start(n, n->uring ? 1 : threads, err);
	if (!rc)
		describe(n, why, no_direct);
	return rc;
}

int en_nvme_open(const struct en_nvme_opts *o, struct en_nvme **n_out, struct ckpt_err *err)
{
	struct en_nvme *n = ck_zalloc(sizeof(*n));
	int rc;

	if (!n)
		return ck_fail_nomem(err, "a file of states", sizeof(*n));
	n->fd = -1;
	n->ended = o->ended;
	n->arg = o->arg;
	n->block = within(o->block, (uint64_t)1 << 20, EN_NVME_ALIGN, (uint64_t)64 << 20) /
		   EN_NVME_ALIGN * EN_NVME_ALIGN;
	n->depth = (uint32_t)within(o->depth, 32, 1, 1024);
	pthread_mutex_init(&n->lock, NULL);
	pthread_cond_init(&n->work, NULL);
	pthread_cond_init(&n->done, NULL);
	n->dir = ck_strdup(o->dir);
	rc = n->dir ? make(n, o, err) : ck_fail_nomem(err, "a name", strlen(o->dir));
	if (rc)
		en_nvme_close(n);
	else
		*n_out = n;
	return rc;
}

void en_nvme_close(struct en_nvme *n)
{
	if (!n)
		return;
	pthread_mutex_lock(&n->lock);
	n->quit = true;
	pthread_cond_broadcast(&n->work);
	pthread_mutex_unlock(&n->lock);
	for (uint32_t i = 0; i < n->nthreads; i++)
		pthread_join(n->thread[i], NULL);
	en_uring_free(n->uring);
	pthread_cond_destroy(&n->done);
	pthread_cond_destroy(&n->work);
	pthread_mutex_destroy(&n->lock);
	if (n->fd >= 0)
		ck_close(n->fd);
	ck_free(n->dir);
	ck_free(n);
}

const char *en_nvme_text(const struct en_nvme *n)
{
	return n->text;
}
