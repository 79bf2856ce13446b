/*
 * en_best.h -- the lowest evaluation loss of a run, which step has it, and which steps are kept.
 *
 * The state is in every step (the client's key EN_BEST_KEY), so a resumed run continues to compare
 * and to count.  The file 'best' in the folder of the steps names a step as 'latest' does.
 */
#ifndef EN_BEST_H
#define EN_BEST_H

#include <stdbool.h>
#include <stdint.h>

#include <ckpt_value.h>

#include "engine/checkpoint/en_find.h"
#include "libckpt/base/ck_buf.h"

struct en_best {
	int64_t step;		/* after which the loss was the lowest; 0 = no evaluation yet */
	double loss;
	int64_t unfallen;	/* evaluations in a row that were not lower */
};

/* An evaluation after 'step'.  True if its loss is the lowest so far; NaN is never. */
bool en_best_add(struct en_best *best, int64_t step, double loss);

/* A JSON object of texts, as a text. */
#define EN_BEST_KEY "ztrain_best"
int en_best_write(const struct en_best *best, struct ck_buf *buf, struct ckpt_err *err);
/* False, and '*out' as it was, if the step has none. */
bool en_best_read(struct en_best *out, struct ckpt_values *values);

/* ---- the folder of the steps, by one rank ---- */

/* The file 'best' names 'tag', a folder in 'root': replaced in one rename, as ckpt_latest_set(). */
int en_best_set(const char *root, const char *tag, enum ckpt_sync sync, struct ckpt_err *err);
/*
 * Remove all whole steps but the 'most' newest, what 'latest' and 'best' name, and steps of other
 * runs than 'ids' in 'found' (may be NULL).  A step that is being written is left alone.  Codes of
 * ckpt_prune().
 */
int en_best_prune(const char *root, uint64_t most, const struct en_found *found, const char *ids,
		  struct ckpt_err *err);

#endif
