/*
 * en_zero_cuda.h -- the training state on NVIDIA GPUs, one for each rank: what engine/zero does on
 * CPUs, with cuBLASLt, cuDNN, NCCL and the kernels of kernels/cuda.
 *
 * Two streams: one computes, one moves parameters and gradients, so that a block is gathered while
 * the one before is computed, and reduced while the next one is.  Gradients are computed and sent
 * in opts.wire.  With 'fixed' the same run has the same bits again; never those of CPU ranks.
 */
#ifndef EN_ZERO_CUDA_H
#define EN_ZERO_CUDA_H

#include "engine/zero/en_zero.h"

/* False: of the functions below only those that say so exist. */
bool en_cuda_is_built(void);
/* GPUs that this process sees; 0 without a driver. */
uint32_t en_cuda_count(void);

struct en_cuda_device {
	char name[80];		/* "NVIDIA H200" */
	char uuid[48];		/* "GPU-8f6a..."; of a part of a GPU (MIG) the part's */
	char pci[24];		/* "0000:1B:00.0" */
	uint64_t free_bytes, bytes;	/* of its memory */
};

/* GPU number 'n' of those to be seen.  Begins to use it: some memory of it and of the host. */
int en_cuda_device(uint32_t n, struct en_cuda_device *out, struct ckpt_err *err);

/* How gradients are summed over ranks and micro-batches. */
enum en_cuda_sum {
	EN_CUDA_SUM_NCCL,	/* by NCCL, in the type that is sent; micro-batches one by one */
	EN_CUDA_SUM_TREE,	/* exchanged, all micro-batches of a step summed as one tree in
				 * natural order: the same bits at 1, 2, 4, 8 ranks with as many, on
				 * GPUs of one kind, with 'fixed' */
};

/* Products of the layers' matrices in 8 bits, with one scale for a tensor by its own numbers. */
enum en_cuda_fp8_recipe {
	EN_CUDA_FP8_OFF,
	EN_CUDA_FP8_TENSORWISE,		/* all three products of a matrix */
	EN_CUDA_FP8_TENSORWISE_GW_HP,	/* but gradients of matrices in 16 bits */
	EN_CUDA_FP8_TENSORWISE_FAST,	/* all, with sums of fewer bits also on the way back */
};

struct en_cuda_opts {
	uint32_t device;	/* number among those that are visible */
	enum en_cuda_sum sum;
	bool fixed;		/* attention's way back has the same bits each time */
	bool own_attention;	/* not cuDNN's */
	bool keep_all;		/* nothing is computed again; without opts.recompute */
	enum en_cuda_fp8_recipe fp8;	/* on GPUs that have such products (8.9 and later) */
};

/* "tensorwise", ...; a static string. */
static inline const char *en_cuda_fp8_name(enum en_cuda_fp8_recipe recipe)
{
	return recipe == EN_CUDA_FP8_OFF ? "off" :
	       recipe == EN_CUDA_FP8_TENSORWISE ? "tensorwise" :
	       recipe == EN_CUDA_FP8_TENSORWISE_GW_HP ? "tensorwise_with_gw_hp" :
							"tensorwise_fast";
}

/*
 * As en_zero_cpu_new().  'comm' carries a few bytes between hosts, and NCCL's id at the start; all
 * ranks of it are on GPUs of their own.  CKPT_E_UNSUPPORTED without a GPU, CKPT_E_NOMEM when its
 * memory does not suffice, CKPT_E_IO for what a library says.
 */
int en_zero_cuda_new(const struct en_model *model, struct en_comm *comm,
		     const struct en_zero_opts *opts, const struct en_zero_rule *rule,
		     const struct en_cuda_opts *cuda, struct en_zero **z_out,
		     struct ckpt_err *err);

/*
 * What en_zero_mem() will have after a step on any rank of 'size': to the byte, since what takes
 * the memory also counts it.  'rooms_only': without attention's, which is asked of its library and
 * takes that seconds.  Errors as above; a GPU must be there.
 */
int en_zero_cuda_expect(const struct en_model *model, const struct en_zero_opts *opts,
			uint32_t size, const struct en_cuda_opts *cuda, bool rooms_only,
			struct en_mem *out, struct ckpt_err *err);

/* Bytes of a GPU that are free, and all of them, as the driver says. */
int en_cuda_memory(uint32_t device, uint64_t *free_out, uint64_t *all_out, struct ckpt_err *err);

/* "NVIDIA H200, attention by cudnn 9.19.0"; lent. */
const char *en_zero_cuda_text(const struct en_zero *z);

#endif
