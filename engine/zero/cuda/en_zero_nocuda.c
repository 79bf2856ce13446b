/* en_zero_nocuda.c -- a build without CUDA: see en_zero_cuda.h. */
#include "engine/zero/cuda/en_zero_cuda.h"
#include "libckpt/base/ck_err.h"

bool en_cuda_is_built(void)
{
	return false;
}

uint32_t en_cuda_count(void)
{
	return 0;
}

static int no_cuda(struct ckpt_err *err)
{
	return ck_fail(err, CKPT_E_UNSUPPORTED, NULL, CKPT_NO_OFFSET,
		       "built without CUDA: run make gpu");
}

int en_cuda_device(uint32_t n, struct en_cuda_device *out, struct ckpt_err *err)
{
	(void)out;
	return ck_fail(err, CKPT_E_UNSUPPORTED, NULL, CKPT_NO_OFFSET,
		       "GPU %u: built without CUDA: run make gpu", n);
}

int en_zero_cuda_new(const struct en_model *model, struct en_comm *comm,
		     const struct en_zero_opts *opts, const struct en_zero_rule *rule,
		     const struct en_cuda_opts *cuda, struct en_zero **z_out, struct ckpt_err *err)
{
	(void)model;
	(void)comm;
	(void)opts;
	(void)rule;
	(void)cuda;
	(void)z_out;
	return no_cuda(err);
}

int en_zero_cuda_expect(const struct en_model *model, const struct en_zero_opts *opts,
			uint32_t size, const struct en_cuda_opts *cuda, bool rooms_only,
			struct en_mem *out, struct ckpt_err *err)
{
	(void)model;
	(void)opts;
	(void)size;
	(void)cuda;
	(void)rooms_only;
	(void)out;
	return no_cuda(err);
}

int en_cuda_memory(uint32_t device, uint64_t *free_out, uint64_t *all_out, struct ckpt_err *err)
{
	(void)device;
	(void)free_out;
	(void)all_out;
	return no_cuda(err);
}

const char *en_zero_cuda_text(const struct en_zero *z)
{
	(void)z;
	return "";
}
