/*
 * en_samples.h -- which rows a unit of a step takes: no file, only numbers.
 *
 * Samples are counted over the whole run: sample g is row k of epoch e.  One number says how far a
 * run is: the samples that its steps have consumed, whatever the world size was.  So a run resumes
 * at any world size with the first sample that no step has used.
 *
 * A step takes batch = micro * accumulation * world samples from 'start' on.  Its micro-batches
 * (units) are numbered u = m * world + r, m the micro-step and r the rank:
 *
 *	EN_SAMPLER_UNITS  rows start + u * micro + i, i below micro: accelerate's BatchSamplerShard.
 *	                  A unit has the same rows at every world size, if micro and batch stay.
 *	EN_SAMPLER_RANKS  rows start + (m * micro + i) * world + r: DistributedSampler, which
 *	                  DeepSpeed gives the training_data of deepspeed.initialize().
 *
 * Where the rows of an epoch are not a multiple of the batch:
 *
 *	EN_LAST_FLOW    the step takes the first rows of the next epoch too: every row once an
 *	                epoch, none left out.  'start' may be any number, and the batch may change
 *	                at any step.
 *	EN_LAST_DROP    the rest of each epoch's order is left out (another rest each epoch, if
 *	                shuffled).
 *	EN_LAST_FILL    the last step is filled from the beginning of the epoch's order, repeatedly
 *	                if necessary (accelerate's even_batches).
 *	EN_LAST_SHORT   the last step has fewer rows, some units none: for evaluation.
 *
 * With the last three 'start' is a multiple of the batch.
 */
#ifndef EN_SAMPLES_H
#define EN_SAMPLES_H

#include "engine/data/en_order.h"

enum en_last_batch { EN_LAST_FLOW = 1, EN_LAST_DROP, EN_LAST_FILL, EN_LAST_SHORT };
enum en_sampler { EN_SAMPLER_UNITS = 1, EN_SAMPLER_RANKS };

struct en_samples_opts {
	enum en_order_kind order;	/* 0 = EN_ORDER_SEQUENTIAL */
	enum en_last_batch last;	/* 0 = EN_LAST_FLOW */
	enum en_sampler sampler;	/* 0 = EN_SAMPLER_UNITS */
	uint64_t seed;
	uint64_t micro, accumulation;
	uint32_t world;
};

struct en_samples {
	struct en_samples_opts opts;
	struct en_order order;
	uint64_t batch;		/* of a step */
	uint64_t span;		/* samples that an epoch counts for: rows, or whole batches */
};

/* "flow", "drop", "fill", "short".  Static string, never freed. */
const char *en_last_name(enum en_last_batch last);

/*
 * Of 'n' rows.  CKPT_E_USAGE: no rows, no batch, or with EN_LAST_DROP fewer rows than a batch, so
 * that nothing would be left; CKPT_E_LIMIT: numbers beyond 2^62.
 */
int en_samples_init(struct en_samples *s, uint64_t n, const struct en_samples_opts *opts,
		    struct ckpt_err *err);
void en_samples_release(struct en_samples *s);

/*
 * The rows of unit 'unit' of the step that begins at sample 'start': row[] has room for micro of
 * them,
 * '*n_out' is how many there are (fewer with EN_LAST_SHORT only).  CKPT_E_USAGE: no such unit, a
 * start that is no multiple of the batch; CKPT_E_LIMIT: beyond 2^62 samples; CKPT_E_NOMEM.
 */
int en_samples_unit(struct en_samples *s, uint64_t start, uint64_t unit, uint64_t *row,
		    uint64_t *n_out, struct ckpt_err *err);

#endif
