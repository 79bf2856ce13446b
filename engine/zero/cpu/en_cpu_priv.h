/* en_cpu_priv.h -- what the files of engine/zero/cpu share. */
#ifndef EN_CPU_PRIV_H
#define EN_CPU_PRIV_H

#include "engine/zero/cpu/en_zero_cpu.h"
#include "engine/zero/en_zero_backend.h"

/* ---- the table ---- */
int en_cpu_trace(struct en_zero *z, struct en_trace *t, struct ckpt_err *err);
void en_cpu_free(struct en_zero *z);
int en_cpu_publish(struct en_zero *z, struct ckpt_err *err);
int en_cpu_unit(struct en_zero *z, uint32_t m, const struct en_zero_unit *unit,
		 struct en_loss *loss_out, struct ckpt_err *err);
int en_cpu_eval(struct en_zero *z, const struct en_batch *batch, struct en_loss *loss_out,
		 struct ckpt_err *err);
int en_cpu_norm(struct en_zero *z, double *norm_out, struct ckpt_err *err);
int en_cpu_update(struct en_zero *z, const struct en_zero_hyper *hyper, uint64_t k,
		   float grad_scale, struct ckpt_err *err);

/* ---- en_cpu_move.c ---- */
/* The parameters of a block, gathered if need be; en_zero_release() lets go of them. */
int en_zero_take(struct en_zero *z, uint32_t block, const void **params_out, struct ckpt_err *err);
void en_zero_release(struct en_zero *z, uint32_t block);
/* Begin to gather a block that will be taken soon. */
int en_zero_prefetch(struct en_zero *z, uint32_t block, struct ckpt_err *err);
/* Where a block's gradients are to be written, zero behind the last parameter. */
int en_zero_grads(struct en_zero *z, uint32_t block, float **grads_out, struct ckpt_err *err);
/* They are written: sum them over ranks. */
int en_zero_reduce(struct en_zero *z, uint32_t block, float *grads, uint32_t m,
		   struct ckpt_err *err);
/* All sums of micro-batch m are there. */
int en_zero_settle(struct en_zero *z, struct ckpt_err *err);
/* After the last micro-batch: block b's gradient, [shard]. */
float *en_zero_total(const struct en_zero *z, uint32_t block);
/*
 * With 'as_deepspeed', stages 0 and 1: a rank adds up its own micro-batches in the whole gradients,
 * and only the sum is reduced.
 */
static inline bool en_zero_adds(const struct en_zero *z)
{
	return z->opts.as_deepspeed && z->opts.stage < 2;
}
/* Which of the rooms for gathers a block has; so consecutive ones have two, and a tied head too. */
uint32_t en_zero_gather_of(const struct en_model *model, uint32_t block);

#endif
