/* en_cuda_lib.c -- what CUDA, NCCL, cuBLASLt and cuDNN say, as errors of ours; events, ranks. */
#include <stdio.h>
#include <string.h>

#include "engine/zero/cuda/en_cuda_priv.h"
#include "libckpt/base/ck_err.h"

int en_cuda_cuda(int rc, const char *what, struct ckpt_err *err)
{
	const cudaError_t e = (cudaError_t)rc;

	if (!rc)
		return 0;
	return ck_fail(err, e == cudaErrorMemoryAllocation ? CKPT_E_NOMEM : CKPT_E_IO, "GPU",
		       CKPT_NO_OFFSET, "%s: %s (%s)", what, cudaGetErrorString(e),
		       cudaGetErrorName(e));
}

int en_cuda_nccl(const struct en_cuda *c, ncclResult_t rc, const char *what, struct ckpt_err *err)
{
	if (rc == ncclSuccess)
		return 0;
	return ck_fail(err, CKPT_E_IO, "NCCL", CKPT_NO_OFFSET, "%s: %s: %s", what,
		       ncclGetErrorString(rc), ncclGetLastError(c->nccl));
}

int en_cuda_attn(int rc, const char *why, struct ckpt_err *err)
{
	if (rc > 0)
		return en_cuda_cuda(rc, "attention", err);
	return rc ? ck_fail(err, CKPT_E_IO, "GPU", CKPT_NO_OFFSET, "attention: %s",
			    why && *why ? why : kn_cu_attn_text(rc)) : 0;
}

int en_cuda_event(cudaEvent_t *out, struct ckpt_err *err)
{
	return en_cuda_cuda((int)cudaEventCreateWithFlags(out, cudaEventDisableTiming), "an event",
			    err);
}

/* What was never made must not be given to CUDA: a launch later on would return the error. */
void en_cuda_event_free(cudaEvent_t event)
{
	if (event)
		cudaEventDestroy(event);
}

int en_cuda_after(cudaStream_t later, cudaStream_t earlier, cudaEvent_t by, struct ckpt_err *err)
{
	int rc = (int)cudaEventRecord(by, earlier);

	if (!rc)
		rc = (int)cudaStreamWaitEvent(later, by, 0);
	return en_cuda_cuda(rc, "waiting", err);
}

int en_cuda_join(struct en_cuda *c, struct ckpt_err *err)
{
	struct en_comm *comm = c->z.comm;
	ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
	ncclUniqueId id;
	ncclResult_t said = ncclSuccess;
	int rc;

	memset(&id, 0, sizeof(id));
	if (comm->size == 1)
		return 0;
	if (!comm->rank)
		said = ncclGetUniqueId(&id);
	if (said != ncclSuccess)
		return en_cuda_nccl(c, said, "the id of the job", err);
	rc = en_comm_broadcast(comm, &id, sizeof(id), 0, NULL, err);
	if (rc)
		return rc;
#ifdef NCCL_CTA_POLICY_ZERO	/* what the copy engines can do, they do */
	config.CTAPolicy = NCCL_CTA_POLICY_ZERO;
#endif
	return en_cuda_join_nccl(c, &id, &config, err);
}
