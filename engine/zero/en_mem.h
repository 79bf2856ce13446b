/*
 * en_mem.h -- memory of a rank, counted by what it is for, so that a run can show what ZeRO saves.
 */
#ifndef EN_MEM_H
#define EN_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ckpt.h>

enum en_mem_kind {
	EN_MEM_PARAMS,		/* that are computed with: whole, or this rank's part */
	EN_MEM_GATHERED,	/* room for parameters of other ranks, for a while */
	EN_MEM_GRADS,
	EN_MEM_OPTIMIZER,	/* masters and moments */
	EN_MEM_ACTIVATIONS,
	EN_MEM_WORK,		/* room to compute in: en_exec_new() */
	EN_MEM_COLLECTIVES,	/* partial sums, and scratch of collectives */
	EN_MEM_SAVE,		/* copies of what is being saved */
	/* What of the above a configuration offloads: on CPU ranks it is the same memory. */
	EN_MEM_HOST_PARAMS,
	EN_MEM_HOST_OPTIMIZER,
	EN_MEM_KINDS,
};

struct en_mem {
	uint64_t now[EN_MEM_KINDS], peak[EN_MEM_KINDS];
	uint64_t total, total_peak;
};

/* "parameters", "gathered", ...; a static string. */
const char *en_mem_name(enum en_mem_kind kind);

/*
 * 'bytes' of zeros at a multiple of 64.  From 1 MiB on it is memory of its own from the system, in
 * huge pages where they are to be had, which no page of is there before it is touched, and which
 * goes back to the system when it is freed.  CKPT_E_NOMEM.
 */
int en_mem_new(struct en_mem *mem, enum en_mem_kind kind, uint64_t bytes, void *p_out,
	       struct ckpt_err *err);
/* Of en_mem_new(); NULL is fine. */
void en_mem_free(struct en_mem *mem, enum en_mem_kind kind, void *p);
/* Memory that something else took or (negative) gave back. */
void en_mem_note(struct en_mem *mem, enum en_mem_kind kind, int64_t bytes);

/* Sum of the kinds' peaks: all, or with 'on_gpu' those of the device.  At least the true peak. */
uint64_t en_mem_peaks(const struct en_mem *mem, bool on_gpu);

/*
 * What this process has held of the machine at most and holds now, as Linux counts it (VmHWM and
 * VmRSS: whole pages that were touched, programs and libraries included).  false where /proc does
 * not say.
 */
bool en_mem_resident(uint64_t *peak_out, uint64_t *now_out);

#endif
