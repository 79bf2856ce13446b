/*
 * ck_ckpt.h -- what an open checkpoint is, for the verbs and the API above them, whose headers are
 * in their folders (op_*.h).
 */
#ifndef CK_CKPT_H
#define CK_CKPT_H

#include <pthread.h>

#include "libckpt/commit/ck_commit.h"
#include "libckpt/format/ck_format.h"
#include "libckpt/io/ck_src.h"
#include "libckpt/tensor/ck_index.h"

/* Whether heads of files were compared (ck_stated.h). */
struct ck_begun {
	pthread_mutex_t lock;
	bool done;
};

struct ckpt {
	const struct ck_formats *formats;
	const struct ck_format *driver;	/* the one that read it */
	struct ck_index ix;
	struct ck_findings findings;
	struct ck_fdpool *pool;		/* of the index's sources */
	struct ckpt_limits limits;	/* complete */
	struct ck_arena arena;		/* copies of what the caller gave, as all below */
	const char **path;
	size_t npaths;
	const char *tag;		/* NULL = none was given */
	const char *names, *order_path;	/* likewise: of struct ckpt_open_opts */
	const char *const *frozen, *const *buffers;
	uint32_t threads;
	struct ck_begun *begun;
	struct ck_kept kept;		/* of the driver's, until a step is written */
};

/* As ckpt_open(), with these drivers. */
int ck_ckpt_open(const struct ck_formats *formats, const char *const *paths, size_t npaths,
		 const struct ckpt_open_opts *opts, struct ckpt **ck_out, struct ckpt_err *err);

/* What was opened, for a verb that looks at it once more. */
struct ck_input ck_ckpt_input(struct ckpt *ck);

/*
 * Copy an option struct that begins with its size into '*out' of 'size' bytes; what the
 * caller's is shorter is zero.  CKPT_E_USAGE if its size was not set, or if it is longer
 * and says something there that this library does not know.
 */
int ck_opts_take(void *out, size_t size, const void *in, const char *what,
		 struct ckpt_err *err);

#endif
