/* A raw file of pseudo-random bytes, an index over it, and runs of plans: what tests of reading,
 * running and staging share. */
#ifndef T_RAW_H
#define T_RAW_H

#include <stddef.h>
#include <stdint.h>

#include "libckpt/format/ck_plan.h"
#include "libckpt/io/ck_src.h"
#include "libckpt/run/ck_run.h"
#include "libckpt/tensor/ck_index.h"

struct t_raw {
	uint8_t *bytes;		/* what the file holds */
	size_t n;
	char *dir;		/* scratch folder, the file in it is "raw" */
	struct ck_fdpool *pool;
	struct ck_index ix;
	uint32_t source;
};

/* xorshift64*: the same numbers everywhere. */
uint64_t t_random(uint64_t *state);

void t_raw_make(struct t_raw *raw, size_t n);
/* Write bytes that were changed, before anything reads them: the file is opened again. */
void t_raw_put(struct t_raw *raw);
void t_raw_free(struct t_raw *raw);

/* An extent of 'count' elements at byte 'off' of the file, from element 'first' on. */
struct ck_extent t_extent(const struct t_raw *raw, uint64_t first, uint64_t count, uint64_t off,
			  enum ckpt_dtype dtype);
/* A tensor with one state over the given extents; the number of the state. */
uint32_t t_state(struct t_raw *raw, const char *name, const uint64_t *shape, uint32_t ndim,
		 enum ckpt_dtype dtype, const struct ck_extent *extent, size_t nextents);

#endif
