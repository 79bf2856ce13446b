/* en_export_priv.h -- what the files of an export share. */
#ifndef EN_EXPORT_PRIV_H
#define EN_EXPORT_PRIV_H

#include "engine/checkpoint/en_export.h"

/* ---- en_export_lora.c ---- */

/*
 * The masters of all of a block's trained parameters, in fp32, on every rank: all call it.
 * '*whole_out' is for ck_free(); NULL where nothing is trained.
 */
int en_export_block(struct en_zero *z, struct en_comm *comm, const struct en_model *model,
		    uint32_t block, float **whole_out, struct ckpt_err *err);

/* w [count], elements [first, ...) of a matrix of 'whole's block, gets what its adapter adds. */
void en_export_add(const struct en_model *model, uint32_t param, const float *whole,
		   uint64_t first, uint64_t count, float *w);

/*
 * The text of adapter_config.json of the model's adapters; 'base' names the model, or is NULL.
 * New memory (ck_free()).
 */
int en_export_adapter_config(const struct en_model *model, const char *base, char **text_out,
			     struct ckpt_err *err);
/* adapter_model.safetensors and adapter_config.json in 'dir', by rank 0; all call it. */
int en_export_adapter(const struct en_model *model, struct en_zero *z, struct en_comm *comm,
		      const struct en_export_opts *opts, const char *dir, struct ckpt_saved *out,
		      struct ckpt_err *err);

#endif
