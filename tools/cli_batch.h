/*
 * cli_batch.h -- what depends on the number of ranks and is no state: the batch of a step and
 * the place in the data.  Said by `zckpt reshard`.
 */
#ifndef CLI_BATCH_H
#define CLI_BATCH_H

#include <ckpt_zero.h>

#include "cli.h"

struct batch {
	uint32_t from, to;		/* ranks */
	int known;			/* 'now' holds for 'from' ranks */
	struct ckpt_zero_batch given;	/* as the step's configuration gives it, 0 = not */
	struct ckpt_zero_batch now;
	int kept;			/* 0 = 'then' is the same batch, 1 = the nearest, -1 = ? */
	struct ckpt_zero_batch then;
	int fits;			/* of the configuration as it is, on 'to' ranks: as
					   ckpt_zero_batch_fill() */
	struct ckpt_zero_batch unchanged;
	int64_t steps, samples;		/* done, -1 = not said */
	int trainer;			/* there is a trainer_state.json */
	int64_t trainer_step;
	double epoch;
};

void batch_read(struct batch *b, const struct ckpt *ck, uint32_t to);
/* Sentences; nothing where the number of ranks stays. */
void batch_say(const struct batch *b);
void batch_json(const struct batch *b, struct json *json);

#endif
