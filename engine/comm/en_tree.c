/*
 * en_tree.c -- see en_tree.h.
 *
 * Arrays go by blocks that stay in the cache, and each block through a stack of partial results as
 * a binary counter carries: after array r, as many pairs are joined as r + 1 has factors of 2.
 * What is left at the end is joined from the top.  That is the tree: a result on the stack stands
 * for a full subtree of 2^k arrays, and the leftovers are the odd last ones that pass up.
 */
#include "engine/comm/en_tree.h"

#include <stdbool.h>
#include <string.h>

#include "kernels/include/kn_train.h"

#define BLOCK 2048u		/* elements */
#define LEVEL (BLOCK * 8u)	/* bytes */

/* y[i] = a[i] joined with b[i]; y may be a. */
typedef void (*join_fn)(void *y, const void *a, const void *b, size_t n);

static void sum_f32(void *y, const void *a, const void *b, size_t n)
{
	kn_add(y, a, b, n, KN_F32);
}

#define SIMPLE(name, ctype, expression)						\
	static void name(void *yp, const void *ap, const void *bp, size_t n)	\
	{									\
		ctype *y = yp;							\
		const ctype *as = ap, *bs = bp;					\
										\
		for (size_t i = 0; i < n; i++) {				\
			const ctype a = as[i], b = bs[i];			\
										\
			y[i] = (expression);					\
		}								\
	}

#define LARGER(a, b) ((a) != (a) ? (a) : (b) != (b) || (b) > (a) ? (b) : (a))
#define SMALLER(a, b) ((a) != (a) ? (a) : (b) != (b) || (b) < (a) ? (b) : (a))

SIMPLE(max_f32, float, LARGER(a, b))
SIMPLE(min_f32, float, SMALLER(a, b))
SIMPLE(sum_f64, double, a + b)
SIMPLE(max_f64, double, LARGER(a, b))
SIMPLE(min_f64, double, SMALLER(a, b))
SIMPLE(sum_u64, uint64_t, a + b)
SIMPLE(max_u64, uint64_t, a > b ? a : b)
SIMPLE(min_u64, uint64_t, a < b ? a : b)

static join_fn join_of(const struct en_tree *tree)
{
	static const join_fn f32[] = { sum_f32, max_f32, min_f32 };
	static const join_fn f64[] = { sum_f64, max_f64, min_f64 };
	static const join_fn u64[] = { sum_u64, max_u64, min_u64 };
	const size_t op = (size_t)tree->op - EN_COMM_SUM;

	if (tree->type == KN_NUM_F64)
		return f64[op];
	return tree->type == KN_NUM_U64 ? u64[op] : f32[op];
}

struct stack {
	const void *top[33];	/* for each place a piece itself, or its memory */
	uint8_t *memory;	/* LEVEL bytes a place */
	uint32_t n;
	join_fn join;
};

static void join_top(struct stack *s, size_t n)
{
	uint8_t *y;

	s->n--;
	y = s->memory + (size_t)(s->n - 1) * LEVEL;
	s->join(y, s->top[s->n - 1], s->top[s->n], n);
	s->top[s->n - 1] = y;
}

static void push(struct stack *s, enum kn_num type, const void *piece, size_t n)
{
	uint8_t *memory = s->memory + (size_t)s->n * LEVEL;

	s->top[s->n++] = type == KN_NUM_BF16 || type == KN_NUM_F16 ? memory : piece;
	if (type == KN_NUM_BF16)
		kn_bf16_to_f32(memory, piece, n);
	else if (type == KN_NUM_F16)
		kn_f16_to_f32(memory, piece, n);
}

static uint32_t levels(uint32_t npieces)
{
	uint32_t n = 1;

	while (npieces >>= 1)
		n++;
	return n + 1;
}

size_t en_tree_work(uint32_t npieces)
{
	return (size_t)levels(npieces) * LEVEL;
}

void en_tree_join(const struct en_tree *tree, const void *const *piece, uint32_t npieces, size_t n,
		  void *out, void *work)
{
	const bool wide = tree->type == KN_NUM_F64 || tree->type == KN_NUM_U64;
	const size_t from = kn_num_size(tree->type), to = wide ? 8 : 4;
	struct stack s = { .memory = work, .join = join_of(tree) };

	for (size_t at = 0; at < n; at += BLOCK) {
		const size_t count = n - at < BLOCK ? n - at : BLOCK;
		uint8_t *y = (uint8_t *)out + at * to;

		for (uint32_t r = 0; r < npieces; r++) {
			push(&s, tree->type, (const uint8_t *)piece[r] + at * from, count);
			for (uint32_t k = r + 1; !(k & 1); k >>= 1)
				join_top(&s, count);
		}
		while (s.n > 1)
			join_top(&s, count);
		s.n = 0;
		if (!wide && tree->scale != 1)
			kn_scale((float *)(void *)y, s.top[0], tree->scale, count);
		else if (s.top[0] != y)
			memcpy(y, s.top[0], count * to);
	}
}
