/*
 * en_nvme.h -- a file on a fast drive for offloaded states: long aligned runs are read and written
 * while the caller computes.
 *
 * The file has its full length when it is opened, so that a full disk is found at the start.  It is
 * unlinked before the first byte is written, so a killed run leaves no file.  Only this process
 * uses it.
 *
 * Requests go to the kernel through io_uring, bypassing the page cache (O_DIRECT).  If the file
 * system refuses direct I/O, the page cache is used; if the system refuses io_uring, as containers
 * do, threads with pread() and pwrite() are used.  en_nvme_text() names the fallback.
 *
 *	en_nvme_open(), then for each transfer
 *	en_nvme_begin() and, before its memory is looked at or used again, en_nvme_wait()
 *
 * One thread calls.  Two transfers that touch the same bytes of the file must not be under way
 * together; what is begun is otherwise done in any order.
 */
#ifndef EN_NVME_H
#define EN_NVME_H

#include <stdbool.h>
#include <stdint.h>

#include <ckpt.h>

#define EN_NVME_ALIGN 4096u	/* of memory, places in the file and lengths */

#define EN_NVME_NO_URING 1u
#define EN_NVME_NO_DIRECT 2u

struct en_nvme_opts {
	const char *dir;	/* on the drive; created if its parent exists */
	uint32_t rank;		/* for the name, while there is one */
	uint64_t bytes;		/* of the file */
	uint64_t block;		/* of a request, at most; 0 = 1 MiB; brought to 4 KiB .. 64 MiB */
	uint32_t depth;		/* requests under way; 0 = 32; at most 1024 */
	uint32_t threads;	/* where there is no io_uring; 0 = 4; at most 64 */
	unsigned avoid;		/* EN_NVME_NO_* */
	/* Tests: sees how a request ended (bytes, or -errno), and says how it did. */
	int64_t (*ended)(void *arg, bool write, uint64_t at, int64_t res);
	void *arg;
};

/* A transfer; the caller's, zero before it is first begun. */
struct en_nvme_op {
	struct en_nvme_op *next;
	uint8_t *buf;
	uint64_t at, bytes;
	uint64_t begun;		/* bytes that requests were made for */
	uint32_t out;		/* requests under way */
	int error;		/* errno of the first that failed */
	bool write, busy;
};

struct en_nvme;

/*
 * CKPT_E_NOSPACE where the file does not fit, in a sentence with both numbers; CKPT_E_NOTFOUND,
 * CKPT_E_IO, CKPT_E_NOMEM.
 */
int en_nvme_open(const struct en_nvme_opts *opts, struct en_nvme **n_out, struct ckpt_err *err);
/* Waits for what is under way.  NULL is fine. */
void en_nvme_close(struct en_nvme *n);

/* "io_uring, O_DIRECT", or what took their place and why; lent. */
const char *en_nvme_text(const struct en_nvme *n);

/* 'op' is not under way; 'buf', 'at' and 'bytes' are multiples of EN_NVME_ALIGN. */
void en_nvme_begin(struct en_nvme *n, struct en_nvme_op *op, bool write, void *buf, uint64_t at,
		   uint64_t bytes);
/*
 * Until it is done; at once if it is not under way.  CKPT_E_IO or CKPT_E_NOSPACE, of the first
 * request that failed; what its memory or the file's range holds is then unknown.
 */
int en_nvme_wait(struct en_nvme *n, struct en_nvme_op *op, struct ckpt_err *err);

#endif
