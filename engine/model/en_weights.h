/* en_weights.h -- the weights of a whole model in the memory of one process. */
#ifndef EN_WEIGHTS_H
#define EN_WEIGHTS_H

#include "engine/model/en_model.h"

struct en_weights {
	void **block;		/* the flat buffer of each, in the type asked for */
	uint32_t n;
	uint64_t bytes;
};

/*
 * From an open checkpoint of any format: of a training step the masters, rounded once, else the
 * weights.  Each byte is read once, by 'threads' threads.  Codes of en_model_match() and
 * ckpt_load().  'out' is for en_weights_free().
 */
int en_weights_load(const struct en_model *model, const struct ckpt *ck, enum kn_type type,
		    uint32_t threads, struct en_weights *out, struct ckpt_err *err);
void en_weights_free(struct en_weights *w);

#define EN_EOS_MOST 64u

/*
 * The tokens that end a text, from "eos_token_id" (a number, a list or null) of
 * DIR/generation_config.json, or else of DIR/config.json; none if neither says one.
 * CKPT_E_CORRUPT, CKPT_E_LIMIT (more than EN_EOS_MOST), CKPT_E_IO, CKPT_E_NOMEM.
 */
int en_eos_read(const char *dir, int32_t ids[EN_EOS_MOST], uint32_t *n_out, struct ckpt_err *err);

#endif
