/*
 * en_data.h -- the units of a run: rows of a source in the order of its samples, and where it is.
 *
 * Calling sequence:
 *
 *	en_source_open(&src, "train.jsonl", &source_opts, &err);
 *	en_data_init(&data, src, 0, train_rows, &sample_opts, &err);
 *	en_data_resume(&data, state, len, &consumed, &err);	... of a resumed run
 *	for each step, each unit of this rank:
 *		en_data_rows(&data, consumed, m * world + rank, ids, labels, starts, &unit, &err);
 *	consumed += data.samples.batch;
 *	en_data_state(&data, consumed, &buf, &err);		... into the checkpoint
 *
 * Several en_data may share one source (the rows held out for evaluation on another range of
 * it); one thread at a time for all of them together.
 */
#ifndef EN_DATA_H
#define EN_DATA_H

#include "engine/data/en_samples.h"
#include "engine/data/en_source.h"
#include "libckpt/base/ck_buf.h"

struct en_data {
	struct en_source *src;	/* lent */
	struct en_source_info info;
	struct en_samples samples;
	uint64_t first, rows;	/* of the source */
	uint64_t *number;	/* rows of a unit */
};

/*
 * Rows for training and for evaluation: the last 'held_out' of 'rows' are the latter.  CKPT_E_USAGE
 * if nothing would be left to train on.
 */
int en_data_split(uint64_t rows, uint64_t held_out, uint64_t *train_out, struct ckpt_err *err);

/*
 * Rows [first, first + rows) of 'src', which must outlive 'd'; rows 0 = to the end.  CKPT_E_USAGE
 * for a range that does not exist, and the errors of en_samples_init(); CKPT_E_NOMEM.
 */
int en_data_init(struct en_data *d, struct en_source *src, uint64_t first, uint64_t rows,
		 const struct en_samples_opts *opts, struct ckpt_err *err);
void en_data_release(struct en_data *d);

struct en_unit {
	uint64_t rows;		/* micro, or fewer with EN_LAST_SHORT */
	uint64_t counted;	/* positions that have a target: labels[t + 1] that is not -100 */
	const uint64_t *number;	/* of each row in the source, lent until the next call */
};

/*
 * Unit 'unit' of the step that begins after 'start' samples: ids, labels and starts (which may be
 * NULL) [micro, tokens], of which 'rows' rows are filled.  A unit without a counted position is no
 * error here.  The errors of en_samples_unit() and en_source_row().
 */
int en_data_rows(struct en_data *d, uint64_t start, uint64_t unit, int32_t *ids, int32_t *labels,
		 int32_t *starts, struct en_unit *unit_out, struct ckpt_err *err);

/*
 * Adds where the run is, as a JSON object (docs/ztrain/data.md, "State"), and takes it again.
 *
 *	CKPT_E_MISMATCH  the data, the order or the seed is another one; or, unless the tail is
 *	                 EN_LAST_FLOW, the batch is
 *	CKPT_E_CORRUPT   no such object
 */
int en_data_state(const struct en_data *d, uint64_t consumed, struct ck_buf *buf,
		  struct ckpt_err *err);
int en_data_resume(const struct en_data *d, const char *text, uint64_t len,
		   uint64_t *consumed_out, struct ckpt_err *err);

#endif
