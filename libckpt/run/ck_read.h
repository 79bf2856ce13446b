/*
 * ck_read.h -- elements of a state, read from its extents and made what is asked: byte order,
 * lazy conjugation and negation, derived type, wanted type.
 */
#ifndef CK_READ_H
#define CK_READ_H

#include "kernels/include/kn.h"
#include "libckpt/base/ck_base.h"
#include "libckpt/tensor/ck_index.h"

/* Work space of one thread. */
#define CK_READ_SCRATCH ((size_t)256 << 10)

struct ck_reader;

/*
 * 'limits' bounds what is made in memory as a whole: inflated members and strided
 * views, each kept until the reader is freed or room is needed ('cache_bytes').
 */
int ck_reader_new(const struct ck_index *ix, const struct ckpt_limits *limits,
		  uint64_t cache_bytes, struct ck_reader **reader_out, struct ckpt_err *err);
/*
 * From now on 'fn' gets every stretch of stored bytes as it was read; n 0: bytes at 'off' were read
 * in another way.  Any thread that reads calls it.
 */
typedef int (*ck_saw_fn)(void *arg, uint32_t source, uint64_t off, const void *p, size_t n,
			 struct ckpt_err *err);
void ck_reader_observe(struct ck_reader *reader, ck_saw_fn fn, void *arg);
/* A state of what it reads. */
const struct ck_state *ck_reader_state(const struct ck_reader *reader, uint32_t state);
void ck_reader_free(struct ck_reader *reader);

/* What was read so far. */
struct ck_read_counts {
	uint64_t bytes;		/* of files */
	uint64_t reads;
	uint64_t inflated;	/* of 'bytes': deflated members, whose CRC-32 was compared */
};
void ck_reader_counts(struct ck_reader *reader, struct ck_read_counts *out);

/* Bytes of a source as they are. */
int ck_reader_raw(struct ck_reader *reader, uint32_t source, uint64_t off, void *dst, uint64_t n,
		  struct ckpt_err *err);

/*
 * Elements [first, first + count) of 'state' as 'dtype' into 'dst'.  For types under 8
 * bits first and count are bytes and dtype must be the stored one.  'scratch' has
 * CK_READ_SCRATCH bytes.  '*overflows' (may be NULL) grows by finite values that became
 * infinite.  Any number of threads.  CKPT_E_USAGE for a range outside the tensor or a
 * cast that does not exist; codes of reading.
 */
int ck_reader_read(struct ck_reader *reader, const struct ck_state *state, uint64_t first,
		   uint64_t count, enum ckpt_dtype dtype, void *dst, void *scratch,
		   uint64_t *overflows, struct ckpt_err *err);

/* What kernels call a type; only for those of ck_dtype_is_castable(). */
enum kn_type ck_read_kn(enum ckpt_dtype dtype);

#endif
