/*
 * en_cuda_mem.c -- memory of the GPU: taken at the start, counted, given back at the end.
 *
 * What moves between ranks is where the others can reach it (a window of NCCL, from 2.28 on, if
 * all GPUs see each other): then gathers and exchanges are done by the copy engines, and leave the
 * multiprocessors to those who compute.
 */
#include "engine/zero/cuda/en_cuda_priv.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"

#ifdef NCCL_CTA_POLICY_ZERO
#define HAS_WINDOWS 1
#else
#define HAS_WINDOWS 0
#endif

struct en_cuda_allocation {
	void *p;
	void *window;		/* of NCCL, or NULL */
	bool is_nccl;		/* ncclMemAlloc() */
};

static int fail(struct en_cuda *c, enum en_mem_kind kind, uint64_t bytes, struct ckpt_err *err)
{
	const uint64_t *held = c->z.mem.now;
	const uint64_t host = held[EN_MEM_HOST_PARAMS] + held[EN_MEM_HOST_OPTIMIZER];
	size_t free_bytes = 0, all = 0;

	cudaGetLastError();
	cudaMemGetInfo(&free_bytes, &all);
	return ck_fail(err, CKPT_E_NOMEM, "GPU", CKPT_NO_OFFSET,
		       "out of GPU memory: need %llu MiB for %s, %llu of %llu MiB free (%llu MiB "
		       "used by this process)",
		       (unsigned long long)bytes >> 20, en_mem_name(kind),
		       (unsigned long long)free_bytes >> 20, (unsigned long long)all >> 20,
		       (unsigned long long)(c->z.mem.total - host) >> 20);
}

static int allocate(struct en_cuda *c, bool shared, uint64_t bytes, struct en_cuda_allocation *m)
{
#if HAS_WINDOWS
	if (shared && c->shares) {
		ncclWindow_t window = NULL;

		if (ncclMemAlloc(&m->p, bytes) != ncclSuccess)
			return (int)cudaErrorMemoryAllocation;
		m->is_nccl = true;
		if (ncclCommWindowRegister(c->nccl, m->p, bytes, &window,
					   NCCL_WIN_COLL_SYMMETRIC) != ncclSuccess)
			window = NULL;
		m->window = window;
		c->shares = window != NULL;
		return 0;
	}
#endif
	(void)c;
	(void)shared;
	return (int)cudaMalloc(&m->p, bytes);
}

/* Device memory of zeros. */
static int new_memory(struct en_cuda *c, enum en_mem_kind kind, bool shared, uint64_t bytes,
		      void *p_out, struct ckpt_err *err)
{
	struct en_cuda_allocation *m;
	int rc;

	if (c->expects) {
		en_mem_note(&c->z.mem, kind, (int64_t)bytes);
		return 0;
	}
	m = ck_realloc(c->memory, (c->nmemory + 1) * sizeof(*m));
	if (!m)
		return ck_fail_nomem(err, "a list of memory", c->nmemory * sizeof(*m));
	c->memory = m;
	m += c->nmemory;
	*m = (struct en_cuda_allocation){ .p = NULL };
	rc = allocate(c, shared, bytes ? bytes : 1, m);
	if (rc == (int)cudaErrorMemoryAllocation)
		return fail(c, kind, bytes, err);
	if (rc)
		return en_cuda_cuda(rc, "memory", err);
	c->nmemory++;
	rc = (int)cudaMemsetAsync(m->p, 0, bytes, c->work);
	if (rc)
		return en_cuda_cuda(rc, "memory", err);
	en_mem_note(&c->z.mem, kind, (int64_t)bytes);
	*(void **)p_out = m->p;
	return 0;
}

int en_cuda_new(struct en_cuda *c, enum en_mem_kind kind, uint64_t bytes, void *p_out,
		struct ckpt_err *err)
{
	return new_memory(c, kind, false, bytes, p_out, err);
}

int en_cuda_new_shared(struct en_cuda *c, enum en_mem_kind kind, uint64_t bytes, void *p_out,
		       struct ckpt_err *err)
{
	return new_memory(c, kind, true, bytes, p_out, err);
}

static void give_back(struct en_cuda *c, const struct en_cuda_allocation *m)
{
#if HAS_WINDOWS
	if (m->window)
		ncclCommWindowDeregister(c->nccl, m->window);
	if (m->is_nccl) {
		ncclMemFree(m->p);
		return;
	}
#endif
	(void)c;
	cudaFree(m->p);
}

void en_cuda_free_one(struct en_cuda *c, void *p)
{
	for (uint32_t i = c->nmemory; p && i > 0; i--)
		if (c->memory[i - 1].p == p) {
			give_back(c, &c->memory[i - 1]);
			c->memory[i - 1] = c->memory[--c->nmemory];
			return;
		}
}

void en_cuda_free_all(struct en_cuda *c)
{
	while (c->nmemory)
		give_back(c, &c->memory[--c->nmemory]);
	ck_free(c->memory);
	c->memory = NULL;
}
