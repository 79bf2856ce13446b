/*
 * kn.h -- kernels: arrays in, arrays out.
 *
 * No allocation, no files, no threads, no failure but a wrong argument.  Each kernel has
 * one definition in plain C, kn_ref_NAME() in kernels/ref (declared in kn_ref.h), and
 * variants for wide CPUs in kernels/cpu that give the same bits.  The best variant the
 * CPU *and* the operating system support is chosen on first use.
 *
 * Common to all: buffers need no alignment; counts are elements unless named bytes; 0 is
 * fine, and pointers may then be NULL; source and target must not overlap, but may be
 * the same address where elements keep their size.  Any number of threads may call.
 * Numbers are in the CPU's byte order (little endian).  The floating-point environment is
 * the one a program starts with (no flushing of subnormals).
 *
 * Rounding is to nearest, ties to even, once: f64 -> 16 bits does not go by way of f32.
 * Subnormals are exact on both sides, signs of zero are kept, what is too large becomes
 * infinity, infinity stays.  NaN stays NaN:
 *	to bf16      always 0x7fc0, sign and payload dropped
 *	bf16 to f32  bits kept
 *	all others   sign kept, top bits of the payload kept, made quiet, as F16C and SSE2 do
 *
 * The ..._count forms add to '*overflow' the number of finite elements that became
 * infinite (the caller sets it to 0 first; NULL: not counted).
 */
#ifndef KN_H
#define KN_H

#include <stddef.h>
#include <stdint.h>

/* Element types of kn_cast(); values are pinned. */
enum kn_type {
	KN_F64 = 1,
	KN_F32 = 2,
	KN_F16 = 3,	/* IEEE binary16 */
	KN_BF16 = 4,	/* upper half of an f32 */
};

/* Bytes of an element, or 0 for a number that is no kn_type. */
size_t kn_type_size(enum kn_type type);

/*
 * kn_cast() converts 'n' elements of any type to any type; equal types are copied bit for
 * bit.  '*overflow' as above.  Returns 0, or -1 when a type is none of the four.
 */
int kn_cast(void *dst, enum kn_type dst_type, const void *src, enum kn_type src_type,
	    size_t n, uint64_t *overflow);

/* Widening: exact. */
void kn_bf16_to_f32(void *dst, const void *src, size_t n);
void kn_f16_to_f32(void *dst, const void *src, size_t n);
void kn_f32_to_f64(void *dst, const void *src, size_t n);

/* Narrowing: rounded.  f16 -> bf16 loses digits but cannot overflow. */
void kn_f32_to_bf16(void *dst, const void *src, size_t n);
void kn_f32_to_f16(void *dst, const void *src, size_t n);
void kn_f64_to_f32(void *dst, const void *src, size_t n);
void kn_f64_to_bf16(void *dst, const void *src, size_t n);
void kn_f64_to_f16(void *dst, const void *src, size_t n);
void kn_f16_to_bf16(void *dst, const void *src, size_t n);
void kn_bf16_to_f16(void *dst, const void *src, size_t n);
void kn_f32_to_bf16_count(void *dst, const void *src, size_t n, uint64_t *overflow);
void kn_f32_to_f16_count(void *dst, const void *src, size_t n, uint64_t *overflow);
void kn_f64_to_f32_count(void *dst, const void *src, size_t n, uint64_t *overflow);
void kn_f64_to_bf16_count(void *dst, const void *src, size_t n, uint64_t *overflow);
void kn_f64_to_f16_count(void *dst, const void *src, size_t n, uint64_t *overflow);
void kn_bf16_to_f16_count(void *dst, const void *src, size_t n, uint64_t *overflow);

/* The bytes of each of 'n' elements of 2, 4 or 8 bytes in reverse.  dst may be src. */
void kn_bswap16(void *dst, const void *src, size_t n);
void kn_bswap32(void *dst, const void *src, size_t n);
void kn_bswap64(void *dst, const void *src, size_t n);

/*
 * kn_negate() flips the sign of 'n' real floating-point numbers of 'size' bytes (2, 4 or
 * 8), zeros and NaN included; for complex numbers pass twice the count.  kn_conj() flips
 * the sign of the imaginary part of 'n' complex numbers whose parts have 'size' bytes
 * each.  dst may be src.  Both return 0, or -1 for another size.
 */
int kn_negate(void *dst, const void *src, size_t size, size_t n);
int kn_conj(void *dst, const void *src, size_t size, size_t n);

/*
 * kn_copy_past() copies 'n' bytes as memcpy() does, past the caches where they are many: for what
 * is not read again soon.  All of it is visible to other threads in the usual ways.
 */
void kn_copy_past(void *dst, const void *src, size_t n);

/*
 * kn_gather() copies 'nrun' runs of 'run' elements of 'size' bytes: run i goes from
 * element i * src_stride of 'src' to element i * dst_stride of 'dst'.  Strides may be
 * smaller than 'run' on the source side, 0 or negative.  Any 'size'; 1, 2, 4, 8 and 16
 * with short runs are fast.  The caller answers for the ranges; run * size fits size_t.
 *
 *	column 2 of a 5 x 7 matrix of f32:
 *	kn_gather(dst, 1, matrix + 2, 7, 4, 1, 5)
 */
void kn_gather(void *dst, ptrdiff_t dst_stride, const void *src, ptrdiff_t src_stride,
	       size_t size, size_t run, size_t nrun);

/*
 * kn_mismatch() is the index of the first byte in which two buffers of 'nbytes' bytes
 * differ, or 'nbytes' when they are equal.  Divide by the element size for an element.
 */
size_t kn_mismatch(const void *a, const void *b, size_t nbytes);

/*
 * Element types of kn_diff().  The first four are those of kn_type; BYTE is a byte without a
 * meaning as a number.  (U8 does for BOOL.)
 */
enum kn_num {
	KN_NUM_F64 = KN_F64, KN_NUM_F32 = KN_F32, KN_NUM_F16 = KN_F16, KN_NUM_BF16 = KN_BF16,
	KN_NUM_F8_E4M3, KN_NUM_F8_E5M2, KN_NUM_F8_E4M3FNUZ, KN_NUM_F8_E5M2FNUZ, KN_NUM_F8_E8M0,
	KN_NUM_I8, KN_NUM_I16, KN_NUM_I32, KN_NUM_I64,
	KN_NUM_U8, KN_NUM_U16, KN_NUM_U32, KN_NUM_U64,
	KN_NUM_BYTE,
};

/* Bytes of an element, or 0 for a number that is no kn_num. */
size_t kn_num_size(enum kn_num type);
/* The element as a double; exact but for integers beyond 2^53. */
double kn_num_value(enum kn_num type, const void *p);
/* The same for 'n' of them. */
void kn_num_widen(double *dst, enum kn_num type, const void *src, size_t n);

struct kn_diff_how {
	unsigned parts;		/* numbers (bytes) of an element: 2 for complex ones */
	double abs, rel;	/* beyond = further apart than abs + rel * max(|a|, |b|) */
};

#define KN_DIFF_BUCKETS 65

/* Indices count elements from 0; steps and NaN count numbers. */
struct kn_diff {
	uint64_t differ;	/* elements whose bits differ */
	uint64_t first, last;	/* the first and last of them */
	uint64_t beyond;	/* those beyond the tolerance, or NaN or infinite on one side */
	uint64_t first_beyond, last_beyond;
	uint64_t nan_a, nan_b, nan_both;	/* NaN in one only, in both */
	double max_abs;		/* largest |a - b|, infinity too; NaN is left out */
	uint64_t max_at;	/* the first element that has it */
	uint64_t max_steps;	/* largest distance in steps */
	/* How many are 0, 1, 2-3, 4-7, ... steps apart; NaN in one is left out. */
	uint64_t steps[KN_DIFF_BUCKETS];
	double sum_dd, sum_aa, sum_bb;	/* of (a - b)^2, a^2, b^2, where both are finite */
};

/*
 * kn_diff() compares 'n' numbers of 'a' and 'b', which are of one type, and sets '*out'.  A step
 * leads to the next number that the type has: 1 ULP, or 1 of an integer.  -0 and 0, and two NaN,
 * are 0 steps apart; other bits make them differ all the same.  Of BYTE only the counts are
 * set.  Returns 0, or -1 for a type that is none or parts below 1.
 */
int kn_diff(enum kn_num type, const struct kn_diff_how *how, const void *a, const void *b,
	    size_t n, struct kn_diff *out);

/* CPU features that variants need; detection includes the operating system's consent. */
#define KN_CPU_AVX2 1u		/* AVX2 and POPCNT */
#define KN_CPU_F16C 2u
#define KN_CPU_AVX512 4u	/* F, BW, DQ, VL, and VBMI as the mark of chips whose clock
				   does not suffer from 512-bit registers */
#define KN_CPU_ALL 7u

/* Features of this machine, less what kn_cpu_mask() hides. */
unsigned kn_cpu_features(void);

/*
 * kn_cpu_mask() hides all features but those in 'mask' from the next call of a kernel on;
 * KN_CPU_ALL undoes it.  For tests and benchmarks: results never depend on it.
 */
void kn_cpu_mask(unsigned mask);

/* Name of the chosen set of variants: "ref", "avx2", "avx2+f16c" or "avx512". */
const char *kn_cpu_variant(void);

#endif
