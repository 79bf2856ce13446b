/* kn_tops_4.c -- training kernels with 4 lanes: any CPU. */
#define KN_W 4
#define KN_TARGET
#include "kernels/cpu/train/kn_tops.h"
#include "kernels/cpu/train/kn_tv_gemm.h"
#include "kernels/cpu/train/kn_tv_loss.h"
#include "kernels/cpu/train/kn_tv_optim.h"
#include "kernels/cpu/train/kn_tv_rows.h"

const struct kn_tops kn_tops_4 = {
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
