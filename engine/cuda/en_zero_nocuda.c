/* en_zero_nocuda.c -- a build without CUDA: see en_zero_cuda.h. */
#include "engine/cuda/en_zero_cuda.h"
#include "libckpt/base/ck_err.h"

bool en_cuda_is_built(void)
{
	return false;
}

uint32_t en_cuda_count(void)
{
	return 0;
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
	return ck_fail(err, CKPT_E_UNSUPPORTED, NULL, CKPT_NO_OFFSET,
		       "this program was built without CUDA: make gpu");
}

const char *en_zero_cuda_text(const struct en_zero *z)
{
	(void)z;
	return "";
}
