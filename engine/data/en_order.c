/*
 * en_order.c -- see en_order.h.
 *
 * The Feistel network: x = L | R of 'half' bits each; a round is (L, R) -> (R, L ^ f(R)), which is
 * invertible whatever f is, so the whole is a permutation of 2^(2 half) numbers.  Walking from a
 * number below n until one below n comes again stays on one cycle, so that it is a permutation of
 * [0, n) as well; with 2^(2 half) < 4 n (or 256) this takes less than 4 turns on average for n
 * above 64.
 *
 * torch: ATen/native/TensorFactories.cpp (randperm on a CPU) swaps each element with a later one,
 * chosen by random() % (n - i); random() is the 32-bit Mersenne Twister (Matsumoto, Nishimura
 * 1998), initialised with the low 32 bits of the seed.
 */
#include "engine/data/en_order.h"

#include <string.h>

#include "engine/data/en_mix.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"

#define ROUNDS 6
#define WHERE "data order"

const char *en_order_name(enum en_order_kind kind)
{
	return kind == EN_ORDER_SHUFFLED ? "shuffled" : kind == EN_ORDER_TORCH ? "torch" :
	       "sequential";
}

int en_order_init(struct en_order *o, enum en_order_kind kind, uint64_t n, uint64_t seed,
		  struct ckpt_err *err)
{
	const uint64_t most = kind == EN_ORDER_TORCH ? EN_ORDER_TORCH_ROWS : (uint64_t)1 << 62;

	if (!n)
		return ck_fail(err, CKPT_E_USAGE, WHERE, CKPT_NO_OFFSET, "the data has no rows");
	if (n > most)
		return ck_fail(err, CKPT_E_LIMIT, WHERE, CKPT_NO_OFFSET,
			       "%llu rows; the order '%s' supports up to %llu",
			       (unsigned long long)n, en_order_name(kind),
			       (unsigned long long)most);
	memset(o, 0, sizeof(*o));
	o->kind = kind;
	o->n = n;
	o->seed = seed;
	/* 256 numbers at least, or the network of few rows would be a poor one. */
	o->half = 4;
	while (o->half < 31 && (uint64_t)1 << (2 * o->half) < n)
		o->half++;
	return 0;
}

void en_order_release(struct en_order *o)
{
	ck_free(o->list);
	memset(o, 0, sizeof(*o));
}

static uint64_t network(const struct en_order *o, uint64_t key, uint64_t x)
{
	const uint64_t mask = ((uint64_t)1 << o->half) - 1;
	uint64_t left = x >> o->half, right = x & mask;

	for (uint64_t round = 0; round < ROUNDS; round++) {
		const uint64_t f = en_mix64(key ^ round << 56 ^ right) & mask;
		const uint64_t was = right;

		right = left ^ f;
		left = was;
	}
	return left << o->half | right;
}

/* ---- torch ---- */

struct twister {
	uint32_t s[624];
	unsigned at;
};

static void twister_init(struct twister *t, uint32_t seed)
{
	t->s[0] = seed;
	for (uint32_t i = 1; i < 624; i++)
		t->s[i] = 1812433253u * (t->s[i - 1] ^ t->s[i - 1] >> 30) + i;
	t->at = 624;
}

static void twister_turn(struct twister *t)
{
	for (unsigned k = 0; k < 624; k++) {
		const uint32_t y = (t->s[k] & 0x80000000u) | (t->s[(k + 1) % 624] & 0x7fffffffu);

		t->s[k] = t->s[(k + 397) % 624] ^ y >> 1 ^ (y & 1 ? 0x9908b0dfu : 0);
	}
	t->at = 0;
}

static uint32_t twister_next(struct twister *t)
{
	uint32_t y;

	if (t->at == 624)
		twister_turn(t);
	y = t->s[t->at++];
	y ^= y >> 11;
	y ^= y << 7 & 0x9d2c5680u;
	y ^= y << 15 & 0xefc60000u;
	return y ^ y >> 18;
}

static int make_list(struct en_order *o, uint64_t epoch, struct ckpt_err *err)
{
	const uint32_t n = (uint32_t)o->n;
	struct twister t;

	if (!o->list)
		o->list = ck_alloc_array(n, sizeof(*o->list));
	if (!o->list)
		return ck_fail_nomem(err, "the order of an epoch", (uint64_t)n * sizeof(*o->list));
	twister_init(&t, (uint32_t)(o->seed + epoch));
	for (uint32_t i = 0; i < n; i++)
		o->list[i] = i;
	for (uint32_t i = 0; i + 1 < n; i++) {
		const uint32_t j = i + twister_next(&t) % (n - i), was = o->list[i];

		o->list[i] = o->list[j];
		o->list[j] = was;
	}
	o->list_epoch = epoch;
	return 0;
}

int en_order_at(struct en_order *o, uint64_t epoch, uint64_t k, uint64_t *row_out,
		struct ckpt_err *err)
{
	const uint64_t key = en_mix2(o->seed, epoch);
	uint64_t x = k;
	int rc;

	if (o->kind == EN_ORDER_TORCH) {
		if (!o->list || o->list_epoch != epoch) {
			rc = make_list(o, epoch, err);
			if (rc)
				return rc;
		}
		x = o->list[k];
	} else if (o->kind == EN_ORDER_SHUFFLED) {
		do
			x = network(o, key, x);
		while (x >= o->n);
	}
	*row_out = x;
	return 0;
}
