/*
 * kn_attn.c -- causal attention by blocks of query rows.
 *
 * For KN_ATTN_ROWS rows of one head the scores against all keys up to the last row are one matrix
 * product; rows are then cut at the diagonal.  No more than two such strips are ever held.  On the
 * way back the probabilities are made again from the scores, bit for bit, with the maximum and
 * the sum that the forward pass kept.
 */
#include <string.h>

#include "kernels/cpu/train/kn_tops.h"
#include "kernels/include/kn_train.h"

struct strip {
	size_t first, rows, keys;	/* query rows first..first+rows see keys 0..keys */
};

static struct strip strip_at(const struct kn_attn *s, size_t first)
{
	struct strip b = { .first = first };

	b.rows = s->t - first < KN_ATTN_ROWS ? s->t - first : KN_ATTN_ROWS;
	b.keys = first + b.rows;
	return b;
}

/* Where in 'stat' row 'first' of a head is. */
static size_t stat_at(const struct kn_attn *s, size_t head, size_t first)
{
	return (head * (s->lds ? s->lds : s->t) + first) * 2;
}

size_t kn_attn_work(const struct kn_attn *shape)
{
	return 2 * (shape->t < KN_ATTN_ROWS ? shape->t : KN_ATTN_ROWS) * shape->t;
}

/* Scores become probabilities; after the diagonal is 0. */
static void softmax(const struct kn_attn *s, const struct strip *b, float *score, float *stat)
{
	const struct kn_tops *ops = kn_tops_get();

	for (size_t i = 0; i < b->rows; i++, score += b->keys, stat += 2) {
		const size_t n = b->first + i + 1;

		ops->softmax(score, n, s->scale, stat, s->type);
		memset(score + n, 0, (b->keys - n) * sizeof(*score));
	}
}

/* The same, when 'stat' is known. */
static void softmax_again(const struct kn_attn *s, const struct strip *b, float *score,
			  const float *stat)
{
	const struct kn_tops *ops = kn_tops_get();

	for (size_t i = 0; i < b->rows; i++, score += b->keys, stat += 2) {
		const size_t n = b->first + i + 1;

		ops->softmax_again(score, n, s->scale, stat, s->type);
		memset(score + n, 0, (b->keys - n) * sizeof(*score));
	}
}

static void product(const struct kn_attn *s, unsigned flags, size_t m, size_t n, size_t k,
		    const float *a, size_t lda, const float *b, size_t ldb, float *c, size_t ldc)
{
	(s->type == KN_BF16 ? kn_gemm_bf16 : kn_gemm)(flags, m, n, k, a, lda, b, ldb, c, ldc);
}

static void round_rows(float *y, size_t ld, size_t rows, size_t n, enum kn_type type)
{
	for (size_t r = 0; type != KN_F32 && r < rows; r++)
		kn_round(y + r * ld, n, type);
}

/* One strip of one head: o is written. */
static void strip_forward(const struct kn_attn *s, const struct strip *b, float *o, float *stat,
			  const float *q, const float *k, const float *v, float *work)
{
	product(s, KN_GEMM_TB, b->rows, b->keys, s->d, q, s->ldq, k, s->ldk, work, b->keys);
	round_rows(work, b->keys, b->rows, b->keys, s->type);
	softmax(s, b, work, stat);
	product(s, 0, b->rows, s->d, b->keys, work, b->keys, v, s->ldk, o, s->ldq);
	round_rows(o, s->ldq, b->rows, s->d, s->type);
}

void kn_attn(const struct kn_attn *s, float *o, float *stat, const float *q, const float *k,
	     const float *v, float *work)
{
	for (size_t first = 0; first < s->t; first += KN_ATTN_ROWS) {
		const struct strip b = strip_at(s, first);

		for (size_t a = 0; a < s->group; a++) {
			const size_t at = first * s->ldq + a * s->d;

			strip_forward(s, &b, o + at, stat + stat_at(s, a, first), q + at, k, v,
				      work);
		}
	}
}

void kn_attn_from(const struct kn_attn *s, size_t from, float *o, const float *q, const float *k,
		  const float *v, float *work)
{
	float stat[2 * KN_ATTN_ROWS];

	for (size_t first = from; first < s->t; first += KN_ATTN_ROWS) {
		const struct strip b = strip_at(s, first);

		for (size_t a = 0; a < s->group; a++) {
			const size_t at = (first - from) * s->ldq + a * s->d;

			strip_forward(s, &b, o + at, stat, q + at, k, v, work);
		}
	}
}

/* One strip of one head: dq is written, dk and dv are added to. */
static void strip_back(const struct kn_attn *s, const struct strip *b, float *dq, float *dk,
		       float *dv, const float *go, const float *stat, const float *q,
		       const float *k, const float *v, float *work)
{
	const struct kn_tops *ops = kn_tops_get();
	float *p = work, *dp = work + b->rows * b->keys;

	product(s, KN_GEMM_TB, b->rows, b->keys, s->d, q, s->ldq, k, s->ldk, p, b->keys);
	round_rows(p, b->keys, b->rows, b->keys, s->type);
	softmax_again(s, b, p, stat);
	product(s, KN_GEMM_TA | KN_GEMM_ADD, b->keys, s->d, b->rows, p, b->keys, go, s->ldq, dv,
		s->ldk);
	product(s, KN_GEMM_TB, b->rows, b->keys, s->d, go, s->ldq, v, s->ldk, dp, b->keys);
	round_rows(dp, b->keys, b->rows, b->keys, s->type);
	for (size_t i = 0; i < b->rows; i++) {
		const size_t n = b->first + i + 1;

		ops->softmax_back(dp + i * b->keys, p + i * b->keys, n, s->scale, s->type);
		memset(dp + i * b->keys + n, 0, (b->keys - n) * sizeof(*dp));
	}
	product(s, 0, b->rows, s->d, b->keys, dp, b->keys, k, s->ldk, dq, s->ldq);
	round_rows(dq, s->ldq, b->rows, s->d, s->type);
	product(s, KN_GEMM_TA | KN_GEMM_ADD, b->keys, s->d, b->rows, dp, b->keys, q, s->ldq, dk,
		s->ldk);
}

void kn_attn_back(const struct kn_attn *s, float *dq, float *dk, float *dv, const float *go,
		  const float *stat, const float *q, const float *k, const float *v, float *work)
{
	for (size_t i = 0; i < s->t; i++) {
		memset(dk + i * s->ldk, 0, s->d * sizeof(*dk));
		memset(dv + i * s->ldk, 0, s->d * sizeof(*dv));
	}
	for (size_t first = 0; first < s->t; first += KN_ATTN_ROWS) {
		const struct strip b = strip_at(s, first);

		for (size_t a = 0; a < s->group; a++) {
			const size_t at = first * s->ldq + a * s->d;

			strip_back(s, &b, dq + at, dk, dv, go + at, stat + stat_at(s, a, first),
				   q + at, k, v, work);
		}
	}
	round_rows(dk, s->ldk, s->t, s->d, s->type);
	round_rows(dv, s->ldk, s->t, s->d, s->type);
}
