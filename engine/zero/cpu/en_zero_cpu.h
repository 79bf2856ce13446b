/* en_zero_cpu.h -- the training state on CPU ranks. */
#ifndef EN_ZERO_CPU_H
#define EN_ZERO_CPU_H

#include "engine/zero/en_zero.h"

/*
 * CKPT_E_USAGE, CKPT_E_NOMEM, CKPT_E_IO (threads).  'model' and 'comm' outlive '*z_out'.
 * Parameters are zero.
 */
int en_zero_cpu_new(const struct en_model *model, struct en_comm *comm,
		    const struct en_zero_opts *opts, const struct en_zero_rule *rule,
		    struct en_zero **z_out, struct ckpt_err *err);
/*
 * The peaks that en_zero_mem() will have after a step on rank 'rank' of 'size': to the byte, by
 * arithmetic; docs/ztrain/memory.md has the formulas.  'messages': the collectives' backend sends
 * messages (MPI), and has scratch memory.  'state_out' (may be NULL): bytes of masters and moments
 * without padding, which is what this rank saves.  CKPT_E_USAGE as en_zero_cpu_new(), and a rank
 * that does not exist.
 */
int en_zero_cpu_expect(const struct en_model *model, const struct en_zero_opts *opts,
		       uint32_t rank, uint32_t size, bool messages, struct en_mem *out,
		       uint64_t *state_out, struct ckpt_err *err);

#endif
