/*
 * en_eval_set.h -- the loss of rows that are not trained on.
 *
 * Micro-batch u goes to rank u mod size, and every rank takes as many turns, since parameters may
 * have to be gathered.  The loss is the mean over all tokens that count; the sums of micro-batches
 * are joined as one tree, so it has the same bits at any number of ranks.
 */
#ifndef EN_EVAL_SET_H
#define EN_EVAL_SET_H

#include "engine/zero/en_zero.h"

struct en_eval_loader {
	void *arg;
	uint64_t n_micro_batches;		/* 0: there is nothing to evaluate */
	/* '*rows_out' of the rows of micro-batch 'micro_batch' are there, at least 1. */
	int (*rows)(void *arg, uint64_t micro_batch, int32_t *ids, int32_t *labels,
		    int32_t *starts, uint32_t *rows_out, struct ckpt_err *err);
	bool packed;	/* rows may hold several documents; else 'starts' is NULL */
};

struct en_eval_set;

/* Buffers for micro-batches of [rows, tokens].  CKPT_E_NOMEM. */
int en_eval_set_new(struct en_zero *z, struct en_comm *comm, const struct en_eval_loader *loader,
		    uint32_t rows, uint32_t tokens, struct en_eval_set **set_out,
		    struct ckpt_err *err);
/* NULL is fine. */
void en_eval_set_free(struct en_eval_set *set);

/*
 * Between steps.  '*loss_out' is the same on every rank; NaN if no token counts.  '*tokens_out'
 * (may be NULL) is how many do.
 */
int en_eval_set_loss(struct en_eval_set *set, double *loss_out, uint64_t *tokens_out,
		     struct ckpt_err *err);

#endif
