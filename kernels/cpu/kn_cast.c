/*
 * kn_cast.c -- the conversions of kn.h: each goes to the set in use.
 *
 * f64 -> 16 bits has only the plain definition: such tensors are rare, and the detour by
 * way of f32 that wide registers offer would round twice.
 */
#include <string.h>

#include "kernels/cpu/kn_ops.h"
#include "kernels/include/kn.h"
#include "kernels/include/kn_ref.h"

void kn_bf16_to_f32(void *dst, const void *src, size_t n)
{
	kn_ops_get()->bf16_to_f32(dst, src, n);
}

void kn_f16_to_f32(void *dst, const void *src, size_t n)
{
	kn_ops_get()->f16_to_f32(dst, src, n);
}

void kn_f32_to_f64(void *dst, const void *src, size_t n)
{
	kn_ops_get()->f32_to_f64(dst, src, n);
}

void kn_f16_to_bf16(void *dst, const void *src, size_t n)
{
	kn_ops_get()->f16_to_bf16(dst, src, n);
}

void kn_f32_to_bf16_count(void *dst, const void *src, size_t n, uint64_t *overflow)
{
	kn_ops_get()->f32_to_bf16(dst, src, n, overflow);
}

void kn_f32_to_f16_count(void *dst, const void *src, size_t n, uint64_t *overflow)
{
	kn_ops_get()->f32_to_f16(dst, src, n, overflow);
}

void kn_f64_to_f32_count(void *dst, const void *src, size_t n, uint64_t *overflow)
{
	kn_ops_get()->f64_to_f32(dst, src, n, overflow);
}

void kn_f64_to_bf16_count(void *dst, const void *src, size_t n, uint64_t *overflow)
{
	kn_ref_f64_to_bf16(dst, src, n, overflow);
}

void kn_f64_to_f16_count(void *dst, const void *src, size_t n, uint64_t *overflow)
{
	kn_ref_f64_to_f16(dst, src, n, overflow);
}

void kn_bf16_to_f16_count(void *dst, const void *src, size_t n, uint64_t *overflow)
{
	kn_ops_get()->bf16_to_f16(dst, src, n, overflow);
}

void kn_f32_to_bf16(void *dst, const void *src, size_t n)
{
	kn_f32_to_bf16_count(dst, src, n, NULL);
}

void kn_f32_to_f16(void *dst, const void *src, size_t n)
{
	kn_f32_to_f16_count(dst, src, n, NULL);
}

void kn_f64_to_f32(void *dst, const void *src, size_t n)
{
	kn_f64_to_f32_count(dst, src, n, NULL);
}

void kn_f64_to_bf16(void *dst, const void *src, size_t n)
{
	kn_f64_to_bf16_count(dst, src, n, NULL);
}

void kn_f64_to_f16(void *dst, const void *src, size_t n)
{
	kn_f64_to_f16_count(dst, src, n, NULL);
}

void kn_bf16_to_f16(void *dst, const void *src, size_t n)
{
	kn_bf16_to_f16_count(dst, src, n, NULL);
}

size_t kn_type_size(enum kn_type type)
{
	switch (type) {
	case KN_F64:
		return 8;
	case KN_F32:
		return 4;
	case KN_F16:
	case KN_BF16:
		return 2;
	}
	return 0;
}

/* 16 bits -> f64 by way of f32, exact; a window that stays in the first-level cache. */
static void widen_twice(uint8_t *dst, const uint8_t *src, kn_widen_fn to_f32, size_t n)
{
	float window[512];
	const size_t cap = sizeof(window) / sizeof(window[0]);

	while (n) {
		const size_t m = n < cap ? n : cap;

		to_f32(window, src, m);
		kn_f32_to_f64(dst, window, m);
		src += 2 * m;
		dst += 8 * m;
		n -= m;
	}
}

#define PAIR(dst, src) ((unsigned)(dst) * 8 + (unsigned)(src))

int kn_cast(void *dst, enum kn_type dst_type, const void *src, enum kn_type src_type,
	    size_t n, uint64_t *overflow)
{
	const size_t size = kn_type_size(src_type);

	if (!size || !kn_type_size(dst_type))
		return -1;
	if (!n)
		return 0;
	if (dst_type == src_type) {
		memmove(dst, src, n * size);
		return 0;
	}
	switch (PAIR(dst_type, src_type)) {
	case PAIR(KN_F64, KN_F32):
		kn_f32_to_f64(dst, src, n);
		break;
	case PAIR(KN_F64, KN_F16):
		widen_twice(dst, src, kn_f16_to_f32, n);
		break;
	case PAIR(KN_F64, KN_BF16):
		widen_twice(dst, src, kn_bf16_to_f32, n);
		break;
	case PAIR(KN_F32, KN_F64):
		kn_f64_to_f32_count(dst, src, n, overflow);
		break;
	case PAIR(KN_F32, KN_F16):
		kn_f16_to_f32(dst, src, n);
		break;
	case PAIR(KN_F32, KN_BF16):
		kn_bf16_to_f32(dst, src, n);
		break;
	case PAIR(KN_F16, KN_F64):
		kn_f64_to_f16_count(dst, src, n, overflow);
		break;
	case PAIR(KN_F16, KN_F32):
		kn_f32_to_f16_count(dst, src, n, overflow);
		break;
	case PAIR(KN_F16, KN_BF16):
		kn_bf16_to_f16_count(dst, src, n, overflow);
		break;
	case PAIR(KN_BF16, KN_F64):
		kn_f64_to_bf16_count(dst, src, n, overflow);
		break;
	case PAIR(KN_BF16, KN_F32):
		kn_f32_to_bf16_count(dst, src, n, overflow);
		break;
	case PAIR(KN_BF16, KN_F16):
		kn_f16_to_bf16(dst, src, n);
		break;
	}
	return 0;
}
