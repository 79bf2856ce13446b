/* cz_lib.c -- what CUDA, NCCL, cuBLASLt and cuDNN say, as errors of ours; memory, events, ranks. */
#include <stdio.h>
#include <string.h>

#include "engine/cuda/cz_priv.h"
#include "libckpt/base/ck_err.h"

int cz_cuda(int rc, const char *what, struct ckpt_err *err)
{
	const cudaError_t e = (cudaError_t)rc;

	if (!rc)
		return 0;
	return ck_fail(err, e == cudaErrorMemoryAllocation ? CKPT_E_NOMEM : CKPT_E_IO, "GPU",
		       CKPT_NO_OFFSET, "%s: %s (%s)", what, cudaGetErrorString(e),
		       cudaGetErrorName(e));
}

int cz_nccl(const struct cz *c, ncclResult_t rc, const char *what, struct ckpt_err *err)
{
	if (rc == ncclSuccess)
		return 0;
	return ck_fail(err, CKPT_E_IO, "NCCL", CKPT_NO_OFFSET, "%s: %s: %s", what,
		       ncclGetErrorString(rc), ncclGetLastError(c->nccl));
}

int cz_attn(int rc, const char *why, struct ckpt_err *err)
{
	if (rc > 0)
		return cz_cuda(rc, "attention", err);
	return rc ? ck_fail(err, CKPT_E_IO, "GPU", CKPT_NO_OFFSET, "attention: %s",
			    why && *why ? why : kn_cu_attn_text(rc)) : 0;
}

int cz_new(struct cz *c, enum en_mem_kind kind, uint64_t bytes, void *p_out, struct ckpt_err *err)
{
	size_t free_bytes = 0, all = 0;
	void *p = NULL;
	int rc = (int)cudaMalloc(&p, bytes ? bytes : 1);

	if (rc == (int)cudaErrorMemoryAllocation) {
		cudaGetLastError();
		cudaMemGetInfo(&free_bytes, &all);
		return ck_fail(err, CKPT_E_NOMEM, "GPU", CKPT_NO_OFFSET,
			       "%llu MiB for %s are not there: %llu of %llu MiB are free, after "
			       "%llu MiB of this run", (unsigned long long)bytes >> 20,
			       en_mem_name(kind), (unsigned long long)free_bytes >> 20,
			       (unsigned long long)all >> 20,
			       (unsigned long long)c->z.mem.total >> 20);
	}
	if (!rc)
		rc = (int)cudaMemsetAsync(p, 0, bytes, c->work);
	if (rc)
		return cz_cuda(rc, "memory", err);
	en_mem_note(&c->z.mem, kind, (int64_t)bytes);
	*(void **)p_out = p;
	return 0;
}

int cz_event(cudaEvent_t *out, struct ckpt_err *err)
{
	return cz_cuda((int)cudaEventCreateWithFlags(out, cudaEventDisableTiming), "an event", err);
}

int cz_after(cudaStream_t later, cudaStream_t earlier, cudaEvent_t by, struct ckpt_err *err)
{
	int rc = (int)cudaEventRecord(by, earlier);

	if (!rc)
		rc = (int)cudaStreamWaitEvent(later, by, 0);
	return cz_cuda(rc, "waiting", err);
}

int cz_join(struct cz *c, struct ckpt_err *err)
{
	struct en_comm *comm = c->z.comm;
	ncclUniqueId id;
	ncclResult_t said = ncclSuccess;
	int rc;

	memset(&id, 0, sizeof(id));
	if (comm->size == 1)
		return 0;
	if (!comm->rank)
		said = ncclGetUniqueId(&id);
	if (said != ncclSuccess)
		return cz_nccl(c, said, "the id of the job", err);
	rc = en_comm_broadcast(comm, &id, sizeof(id), 0, NULL, err);
	if (rc)
		return rc;
	return cz_nccl(c, ncclCommInitRank(&c->nccl, (int)comm->size, id, (int)comm->rank),
		       "joining the ranks", err);
}
