/*
 * kn_cpu.c -- which variants this machine runs.
 *
 * There are four sets of variants, each complete and constant.  A pointer to the best
 * one is stored on first use; threads that race store the same pointer, and the sets are
 * constant, so the store needs no order.
 */
#include <stdatomic.h>

#include "kernels/cpu/kn_ops.h"
#include "kernels/include/kn.h"
#include "kernels/include/kn_ref.h"

#if defined(__x86_64__) && defined(__GNUC__)
#define KN_HAVE_X86 1
#include <cpuid.h>

#include "kernels/cpu/kn_x86_avx2.h"
#include "kernels/cpu/kn_x86_avx512.h"
#include "kernels/cpu/kn_x86_diff.h"
#else
#define KN_HAVE_X86 0
#endif

#if KN_HAVE_X86
static const struct kn_ops avx512_ops = {
	.name = "avx512",
	.needs = KN_CPU_AVX2 | KN_CPU_F16C | KN_CPU_AVX512,
	.bf16_to_f32 = avx512_bf16_to_f32,
	.f16_to_f32 = avx512_f16_to_f32,
	.f32_to_f64 = avx512_f32_to_f64,
	.f16_to_bf16 = avx512_f16_to_bf16,
	.f32_to_bf16 = avx512_f32_to_bf16,
	.f32_to_f16 = avx512_f32_to_f16,
	.f64_to_f32 = avx512_f64_to_f32,
	.bf16_to_f16 = avx512_bf16_to_f16,
	.bswap16 = avx512_bswap16,
	.bswap32 = avx512_bswap32,
	.bswap64 = avx512_bswap64,
	.xor16 = avx512_xor,
	.mismatch = avx512_mismatch,
	.diff = f16c_diff,
};

static const struct kn_ops f16c_ops = {
	.name = "avx2+f16c",
	.needs = KN_CPU_AVX2 | KN_CPU_F16C,
	.bf16_to_f32 = avx2_bf16_to_f32,
	.f16_to_f32 = f16c_f16_to_f32,
	.f32_to_f64 = avx2_f32_to_f64,
	.f16_to_bf16 = f16c_f16_to_bf16,
	.f32_to_bf16 = avx2_f32_to_bf16,
	.f32_to_f16 = f16c_f32_to_f16,
	.f64_to_f32 = avx2_f64_to_f32,
	.bf16_to_f16 = f16c_bf16_to_f16,
	.bswap16 = avx2_bswap16,
	.bswap32 = avx2_bswap32,
	.bswap64 = avx2_bswap64,
	.xor16 = avx2_xor,
	.mismatch = avx2_mismatch,
	.diff = f16c_diff,
};

static const struct kn_ops avx2_ops = {
	.name = "avx2",
	.needs = KN_CPU_AVX2,
	.bf16_to_f32 = avx2_bf16_to_f32,
	.f16_to_f32 = kn_ref_f16_to_f32,
	.f32_to_f64 = avx2_f32_to_f64,
	.f16_to_bf16 = kn_ref_f16_to_bf16,
	.f32_to_bf16 = avx2_f32_to_bf16,
	.f32_to_f16 = kn_ref_f32_to_f16,
	.f64_to_f32 = avx2_f64_to_f32,
	.bf16_to_f16 = kn_ref_bf16_to_f16,
	.bswap16 = avx2_bswap16,
	.bswap32 = avx2_bswap32,
	.bswap64 = avx2_bswap64,
	.xor16 = avx2_xor,
	.mismatch = avx2_mismatch,
	.diff = avx2_diff,
};
#endif

static const struct kn_ops ref_ops = {
	.name = "ref",
	.needs = 0,
	.bf16_to_f32 = kn_ref_bf16_to_f32,
	.f16_to_f32 = kn_ref_f16_to_f32,
	.f32_to_f64 = kn_ref_f32_to_f64,
	.f16_to_bf16 = kn_ref_f16_to_bf16,
	.f32_to_bf16 = kn_ref_f32_to_bf16,
	.f32_to_f16 = kn_ref_f32_to_f16,
	.f64_to_f32 = kn_ref_f64_to_f32,
	.bf16_to_f16 = kn_ref_bf16_to_f16,
	.bswap16 = kn_ref_bswap16,
	.bswap32 = kn_ref_bswap32,
	.bswap64 = kn_ref_bswap64,
	.xor16 = kn_ref_xor,
	.mismatch = kn_ref_mismatch,
	.diff = kn_ref_diff,
};

/* Best first. */
static const struct kn_ops *const all_ops[] = {
#if KN_HAVE_X86
	&avx512_ops,
	&f16c_ops,
	&avx2_ops,
#endif
	&ref_ops,
};

static _Atomic(const struct kn_ops *) ops_in_use;
static atomic_uint mask_in_use = KN_CPU_ALL;

/*
 * __builtin_cpu_supports() answers for the CPU and for the registers the system saves.
 * Not every compiler knows its "f16c", so that bit is read here; the 256-bit registers
 * it needs are those of AVX2.
 */
static unsigned detect(void)
{
	unsigned found = 0;

#if KN_HAVE_X86
	unsigned a, b, c = 0, d;

	__builtin_cpu_init();
	if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("popcnt"))
		found |= KN_CPU_AVX2;
	if (found && __get_cpuid(1, &a, &b, &c, &d) && (c & (1u << 29)))
		found |= KN_CPU_F16C;
	if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
	    __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
	    __builtin_cpu_supports("avx512vbmi"))
		found |= KN_CPU_AVX512;
#endif
	return found;
}

unsigned kn_cpu_features(void)
{
	return detect() & atomic_load_explicit(&mask_in_use, memory_order_relaxed);
}

void kn_cpu_mask(unsigned mask)
{
	atomic_store_explicit(&mask_in_use, mask, memory_order_relaxed);
	atomic_store_explicit(&ops_in_use, NULL, memory_order_relaxed);
}

static const struct kn_ops *choose(void)
{
	const unsigned have = kn_cpu_features();
	size_t i = 0;

	/* The last set needs nothing, so the walk ends. */
	while (all_ops[i]->needs & ~have)
		i++;
	atomic_store_explicit(&ops_in_use, all_ops[i], memory_order_relaxed);
	return all_ops[i];
}

const struct kn_ops *kn_ops_get(void)
{
	const struct kn_ops *ops =
		atomic_load_explicit(&ops_in_use, memory_order_relaxed);

	return ops ? ops : choose();
}

const char *kn_cpu_variant(void)
{
	return kn_ops_get()->name;
}
