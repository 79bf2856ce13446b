/*
 * en_mem.h -- memory of a rank, counted by what it is for, so that a run can show what ZeRO saves.
 */
#ifndef EN_MEM_H
#define EN_MEM_H

#include <stddef.h>
#include <stdint.h>

#include <ckpt.h>

enum en_mem_kind {
	EN_MEM_PARAMS,		/* that are computed with: whole, or this rank's part */
	EN_MEM_GATHERED,	/* room for parameters of other ranks, for a while */
	EN_MEM_GRADS,
	EN_MEM_OPTIMIZER,	/* masters and moments */
	EN_MEM_ACTIVATIONS,
	EN_MEM_KINDS,
};

struct en_mem {
	uint64_t now[EN_MEM_KINDS], peak[EN_MEM_KINDS];
	uint64_t total, total_peak;
};

/* "parameters", "gathered", ...; lent for ever. */
const char *en_mem_name(enum en_mem_kind kind);

/* 'bytes' of zeros at a multiple of 64.  CKPT_E_NOMEM. */
int en_mem_new(struct en_mem *mem, enum en_mem_kind kind, uint64_t bytes, void *p_out,
	       struct ckpt_err *err);
/* Of en_mem_new(); NULL is fine. */
void en_mem_free(struct en_mem *mem, enum en_mem_kind kind, void *p);
/* Memory that something else took and gave back. */
void en_mem_note(struct en_mem *mem, enum en_mem_kind kind, int64_t bytes);

#endif
