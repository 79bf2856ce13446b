/*
 * en_held.h -- the loss of rows that are not trained on.
 *
 * Rows are dealt in units of a micro-batch, unit u to rank u mod size, and every rank takes as many
 * turns, since parameters may have to be gathered.  The loss is the mean over all tokens that
 * count; the sums of units are joined as one tree, so it has the same bits at any number of ranks.
 */
#ifndef EN_HELD_H
#define EN_HELD_H

#include "engine/zero/en_zero.h"

struct en_held_feed {
	void *arg;
	uint64_t units;		/* 0: there is nothing to evaluate */
	/* Unit 'unit' below 'units': '*rows_out' of its rows are there, at least 1. */
	int (*rows)(void *arg, uint64_t unit, int32_t *ids, int32_t *labels,
		    uint32_t *rows_out, struct ckpt_err *err);
};

struct en_held;

/* Room for units of [rows, tokens].  CKPT_E_NOMEM. */
int en_held_new(struct en_zero *z, struct en_comm *comm, const struct en_held_feed *feed,
		uint32_t rows, uint32_t tokens, struct en_held **held_out, struct ckpt_err *err);
/* NULL is fine. */
void en_held_free(struct en_held *held);

/* Between steps.  '*loss_out' is the same on every rank; NaN if no token counts. */
int en_held_loss(struct en_held *held, double *loss_out, struct ckpt_err *err);

#endif
