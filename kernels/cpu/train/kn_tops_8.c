/* kn_tops_8.c -- training kernels with 8 lanes: AVX2. */
#if defined(__x86_64__) && defined(__GNUC__)
#define KN_W 8
#define KN_TARGET __attribute__((target("avx2")))
#include "kernels/cpu/train/kn_tops.h"
#include "kernels/cpu/train/kn_tv_gemm.h"
#include "kernels/cpu/train/kn_tv_loss.h"
#include "kernels/cpu/train/kn_tv_optim.h"
#include "kernels/cpu/train/kn_tv_rows.h"

const struct kn_tops kn_tops_8 = {
	.round = tv_round,
	.add = tv_add,
	.scale = tv_scale,
	.rmsnorm = tv_rmsnorm,
	.rmsnorm_back = tv_rmsnorm_back,
	.rope = tv_rope,
	.swiglu = tv_swiglu,
	.swiglu_back = tv_swiglu_back,
	.softmax = tv_softmax,
	.softmax_again = tv_softmax_again,
	.softmax_back = tv_softmax_back,
	.xent = tv_xent,
	.adam = tv_adam,
	.sumsq = tv_sumsq,
	.all_finite = tv_all_finite,
	.gemm_tile = tv_gemm_tile,
};
#else
extern int kn_tops_none;
#endif
