/*
 * ck_seg_read.h -- the bytes of a plan's segments, wherever they go: to a run's files and streams,
 * or to the reader of a view.
 */
#ifndef CK_SEG_READ_H
#define CK_SEG_READ_H

#include "libckpt/format/ck_plan.h"
#include "libckpt/io/ck_fdpool.h"
#include "libckpt/run/ck_change.h"
#include "libckpt/run/ck_read.h"

/* Where segments get their bytes.  Everything is lent. */
struct ck_seg_from {
	const struct ck_plan *plan;
	const struct ck_index *ix;
	struct ck_reader *reader;
	struct ck_reader *own;		/* of the plan's own index; NULL if it has none */
	const struct ck_change *change;	/* of states of 'ix'; or NULL */
	struct ck_fdpool *source_pool;	/* asked for files of its archive; or NULL */
	struct ck_fdpool *pool;		/* for files that are copied */
	/* May be NULL; else called with each stretch of a file that was copied. */
	int (*saw_file)(void *arg, const char *path, uint64_t off, const void *p, size_t n,
			struct ckpt_err *err);
	void *arg;
};

/*
 * Bytes [skip, skip + n) of a segment, both multiples of the element's size, into 'dst'.
 * 'scratch' has CK_READ_SCRATCH bytes.  '*overflows' (may be NULL) grows by finite values that
 * became infinite.  Any number of threads.  Codes of reading.
 */
int ck_seg_read(const struct ck_seg_from *from, const struct ck_seg *s, uint64_t skip, uint64_t n,
		void *dst, void *scratch, uint64_t *overflows, struct ckpt_err *err);

/* Bytes of an element of a segment, 1 where bytes can be taken one by one. */
uint64_t ck_seg_grain(const struct ck_seg *s);

#endif
