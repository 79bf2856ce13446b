/*
 * en_cuda_expect.c -- before there is a state: what is free, and what a rank will hold, which is
 * the way to take it with nothing taken.
 */
#include "engine/zero/cuda/en_cuda_priv.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"

int en_zero_cuda_expect(const struct en_model *model, const struct en_zero_opts *opts,
			uint32_t size, const struct en_cuda_opts *cuda, bool rooms_only,
			struct en_mem *out, struct ckpt_err *err)
{
	struct en_comm comm = { .size = size };
	struct en_cuda *c;
	int rc = en_zero_check(opts, err);

	if (!rc)
		rc = en_cuda_cuda((int)cudaSetDevice((int)cuda->device), "the device", err);
	if (rc)
		return rc;
	c = ck_zalloc(sizeof(*c));
	if (!c)
		return ck_fail_nomem(err, "a training state", sizeof(*c));
	c->expects = true;
	c->z.model = model;
	c->z.comm = &comm;
	c->z.opts = *opts;
	c->cuda = *cuda;
	rc = en_cuda_take_memory(c, err);
	if (!rc && !rooms_only)
		rc = en_cuda_plan_most(c, err);
	if (!rc)
		*out = c->z.mem;
	en_cuda_free(&c->z);
	return rc;
}

int en_cuda_memory(uint32_t device, uint64_t *free_out, uint64_t *all_out, struct ckpt_err *err)
{
	size_t left = 0, all = 0;
	int rc = (int)cudaSetDevice((int)device);

	if (!rc)
		rc = (int)cudaMemGetInfo(&left, &all);
	if (rc)
		return en_cuda_cuda(rc, "the device", err);
	*free_out = left;
	*all_out = all;
	return 0;
}
