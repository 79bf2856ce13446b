/* See t_load.h. */
#include "tests/lib/ops/t_load.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/fs/t_dir.h"
#include "tests/lib/ops/t_raw.h"
#include "tests/lib/ops/t_step.h"

#define UNTOUCHED 0xa5
#define MOST_GAP 7

/* A state as it is asked for, and where its bytes go. */
struct dealt {
	uint64_t tensor, numel;
	const char *state;
	enum ckpt_dtype dtype;
	uint32_t bits;
	uint8_t *want, *got;
	size_t n;
	uint64_t *cut;		/* world + 1: where ranges begin, and the end */
};

struct deal {
	struct dealt *item;
	size_t n, cap;
	uint32_t world;
};

/* ---------------------------------------------------------------- what must come */

struct bytes {
	uint8_t *p;
	size_t n;
};

static int take(void *arg, const void *bytes, size_t n, struct ckpt_err *err)
{
	struct bytes *b = arg;

	(void)err;
	b->p = t_grow(b->p, b->n + n + 1);
	memcpy(b->p + b->n, bytes, n);
	b->n += n;
	return 0;
}

uint8_t *t_load_cat(struct ckpt *ck, uint64_t tensor, const char *state, enum ckpt_dtype dtype,
		    size_t *n_out)
{
	const struct ckpt_cat_opts o = {
		.size = sizeof(o), .state = state, .dtype = dtype, .form = CKPT_CAT_RAW,
	};
	struct bytes b = { .p = t_alloc(1) };

	if (ckpt_cat(ck, tensor, &o, take, &b, NULL, NULL)) {
		free(b.p);
		return NULL;
	}
	*n_out = b.n;
	return b.p;
}

/* ---------------------------------------------------------------- dealing out */

static bool is_floating(enum ckpt_dtype dtype)
{
	return dtype == CKPT_F64 || dtype == CKPT_F32 || dtype == CKPT_F16 || dtype == CKPT_BF16;
}

static enum ckpt_dtype any_type(enum ckpt_dtype stored, uint64_t *seed)
{
	static const enum ckpt_dtype types[] = { 0, CKPT_F32, CKPT_BF16, CKPT_F16, CKPT_F64 };

	return is_floating(stored) ? types[t_random(seed) % 5] : 0;
}

static int ascending(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

/* Anywhere; types under 8 bits at whole bytes. Now and then two are the same. */
static void cut(struct dealt *d, uint32_t world, uint64_t *seed)
{
	const uint64_t whole = d->bits < 8 ? 8 : 1;

	d->cut = t_alloc((world + 1) * sizeof(*d->cut));
	for (uint32_t i = 1; i < world; i++)
		d->cut[i] = i > 1 && t_random(seed) % 4 == 0 ? d->cut[i - 1] :
			    t_random(seed) % (d->numel + 1) / whole * whole;
	if (world > 1)
		qsort(d->cut + 1, world - 1, sizeof(*d->cut), ascending);
	d->cut[0] = 0;
	d->cut[world] = d->numel;
}

static void add(struct ckpt *ck, struct deal *deal, uint64_t tensor, uint32_t state, int cast,
		uint64_t *seed, struct t_loaded *out)
{
	struct ckpt_tensor_info t;
	struct ckpt_state_info s;
	struct dealt d = { .tensor = tensor };

	/* the states of an alias are its tensor's */
	ckpt_tensor_get(ck, tensor, &t, NULL);
	if (ckpt_state_get(ck, t.role == CKPT_ROLE_ALIAS ? t.alias_of : tensor, state, &s, NULL))
		t_die("%s has no state %u", t.name, state);
	d.numel = t.numel;
	d.state = s.name;
	d.dtype = cast ? any_type(s.dtype, seed) : 0;
	d.bits = ckpt_dtype_bits(d.dtype ? d.dtype : s.dtype);
	d.want = t_load_cat(ck, tensor, s.name, d.dtype, &d.n);
	if (!d.want) {
		out->passed++;
		return;
	}
	cut(&d, deal->world, seed);
	if (deal->n == deal->cap) {
		deal->cap = 2 * deal->cap + 64;
		deal->item = t_grow(deal->item, deal->cap * sizeof(d));
	}
	deal->item[deal->n++] = d;
}

static void deal_out(struct ckpt *ck, struct deal *deal, int cast, uint64_t *seed,
		     struct t_loaded *out)
{
	struct ckpt_info info;

	ckpt_info_get(ck, &info);
	for (uint64_t i = 0; i < info.ntensors; i++) {
		struct ckpt_tensor_info t, stored;

		ckpt_tensor_get(ck, i, &t, NULL);
		stored = t;
		if (t.role == CKPT_ROLE_ALIAS)
			ckpt_tensor_get(ck, t.alias_of, &stored, NULL);
		for (uint32_t s = 0; s < stored.nstates; s++)
			add(ck, deal, i, s, cast, seed, out);
	}
}

/* One after the other with gaps of a few bytes, so that nothing is aligned. */
static uint8_t *place(struct deal *deal, size_t *n_out, uint64_t *seed)
{
	size_t n = MOST_GAP, at = 0;
	uint8_t *p;

	for (size_t i = 0; i < deal->n; i++)
		n += deal->item[i].n + MOST_GAP;
	p = t_alloc(n);
	memset(p, UNTOUCHED, n);
	for (size_t i = 0; i < deal->n; i++) {
		at += t_random(seed) % MOST_GAP;
		deal->item[i].got = p + at;
		at += deal->item[i].n;
	}
	*n_out = n;
	return p;
}

/* ---------------------------------------------------------------- loading */

static void load_rank(struct ckpt *ck, const struct deal *deal, uint32_t rank, unsigned flags,
		      uint64_t *seed, struct t_loaded *out)
{
	const struct ckpt_run_opts run = {
		.size = sizeof(run),
		.threads = t_random(seed) % 4 ? 1 : (uint32_t)(2 + t_random(seed) % 2),
		.mem_limit = t_random(seed) % 2 ? 0 : 1 << 20,
	};
	const struct ckpt_load_opts o = { .size = sizeof(o), .run = &run, .flags = flags };
	struct ckpt_load_range *r = t_alloc((deal->n + 1) * sizeof(*r));
	struct ckpt_loaded l;
	struct ckpt_err err = { 0 };
	uint64_t bytes = 0, ranges = 0;

	for (size_t i = 0; i < deal->n; i++) {
		const struct dealt *d = &deal->item[i];
		const uint64_t first = d->cut[rank], count = d->cut[rank + 1] - first;

		r[i] = (struct ckpt_load_range){
			.tensor = d->tensor, .state = d->state, .first = first, .count = count,
			.dtype = d->dtype, .dst = count ? d->got + first * d->bits / 8 : NULL,
		};
		bytes += count * d->bits / 8;
		ranges += count != 0;
	}
	/* in no order */
	for (size_t i = deal->n; i > 1; i--) {
		const size_t k = t_random(seed) % i;
		const struct ckpt_load_range one = r[i - 1];

		r[i - 1] = r[k];
		r[k] = one;
	}
	if (ckpt_load(ck, r, deal->n, &o, &l, &err))
		t_die("rank %u of %u: %s: %s", rank, deal->world, err.where, err.msg);
	if (l.bytes_made != bytes || l.ranges != ranges ||
	    l.checked_bytes + l.unchecked_bytes != l.bytes_read)
		t_die("rank %u of %u: %" PRIu64 " bytes in %" PRIu64 " ranges made, %" PRIu64
		      " in %" PRIu64 " wanted; %" PRIu64 " read", rank, deal->world, l.bytes_made,
		      l.ranges, bytes, ranges, l.bytes_read);
	out->bytes_made += l.bytes_made;
	out->bytes_read += l.bytes_read;
	out->reads += l.reads;
	out->unchecked += l.unchecked_bytes;
	out->again += l.again_bytes;
	free(r);
}

static void compare(struct ckpt *ck, const struct deal *deal, const uint8_t *p, size_t n)
{
	const uint8_t *at = p;

	for (size_t i = 0; i < deal->n; i++) {
		const struct dealt *d = &deal->item[i];
		struct ckpt_tensor_info t;

		ckpt_tensor_get(ck, d->tensor, &t, NULL);
		if (d->n && memcmp(d->got, d->want, d->n))
			t_die("%s of %s as type %d in %u ranges: other bytes than ckpt_cat() gives",
			      d->state, t.name, (int)d->dtype, deal->world);
		for (; at < d->got; at++)
			if (*at != UNTOUCHED)
				t_die("a byte before %s of %s was written", d->state, t.name);
		at = d->got + d->n;
	}
	for (; at < p + n; at++)
		if (*at != UNTOUCHED)
			t_die("a byte after all ranges was written");
}

void t_load_ranks(struct ckpt *ck, uint32_t world, unsigned flags, int cast, uint64_t *seed,
		  struct t_loaded *out)
{
	struct deal deal = { .world = world };
	uint8_t *p;
	size_t n;

	memset(out, 0, sizeof(*out));
	deal_out(ck, &deal, cast, seed, out);
	p = place(&deal, &n, seed);
	for (uint32_t rank = 0; rank < world; rank++)
		load_rank(ck, &deal, rank, flags, seed, out);
	compare(ck, &deal, p, n);
	out->states = deal.n;
	for (size_t i = 0; i < deal.n; i++) {
		free(deal.item[i].want);
		free(deal.item[i].cut);
	}
	free(deal.item);
	free(p);
}

/* ---------------------------------------------------------------- steps and shares */

void t_load_reshard(const char *from, const char *to, int form, uint32_t world)
{
	const struct ckpt_reshard_opts o = {
		.size = sizeof(o), .world = world, .stage = -1, .round_robin = -1, .to = form,
	};
	struct ckpt *ck = t_step_open(from, NULL);
	struct ckpt_err err = { 0 };

	if (ckpt_reshard(ck, to, &o, NULL, &err))
		t_die("%s: %s", err.where, err.msg);
	ckpt_close(ck);
}

/* The ranges of a state that rank has, after the first 'n'; how many there are then. */
static size_t add_share(struct ckpt *ck, uint64_t tensor, uint32_t state, uint32_t rank,
			uint32_t world, int own, struct ckpt_load_range **r, size_t n)
{
	struct ckpt_tensor_info t;
	struct ckpt_state_info s;
	struct ckpt_extent_info e;

	ckpt_tensor_get(ck, tensor, &t, NULL);
	ckpt_state_get(ck, tensor, state, &s, NULL);
	if (s.flags & CKPT_STATE_DERIVED)
		return n;
	for (uint64_t k = 0; k < (own ? s.nextents : 1); k++) {
		const uint64_t begin = t.numel * rank / world;

		if (own && (ckpt_extent_get(ck, tensor, state, k, &e, NULL) ||
			    e.rank != (int32_t)rank))
			continue;
		*r = t_grow(*r, (n + 1) * sizeof(**r));
		(*r)[n] = (struct ckpt_load_range){
			.tensor = tensor, .state = s.name, .first = own ? e.first : begin,
			.count = own ? e.count * e.runs : t.numel * (rank + 1) / world - begin,
		};
		(*r)[n].dst = t_alloc((*r)[n].count * 8 + 1);
		n++;
	}
	return n;
}

void t_load_share(struct ckpt *ck, uint32_t rank, uint32_t world, int own, unsigned flags,
		  struct ckpt_loaded *sum)
{
	const struct ckpt_load_opts o = { .size = sizeof(o), .flags = flags };
	struct ckpt_load_range *r = NULL;
	struct ckpt_tensor_info t;
	struct ckpt_err err = { 0 };
	struct ckpt_loaded l;
	size_t n = 0;

	for (uint64_t i = 0; !ckpt_tensor_get(ck, i, &t, NULL); i++)
		for (uint32_t s = 0; s < t.nstates; s++)
			n = add_share(ck, i, s, rank, world, own, &r, n);
	if (ckpt_load(ck, r, n, &o, &l, &err))
		t_die("rank %u of %u: %s: %s", rank, world, err.where, err.msg);
	sum->bytes_read += l.bytes_read;
	sum->bytes_made += l.bytes_made;
	sum->reads += l.reads;
	sum->checked_bytes += l.checked_bytes;
	sum->unchecked_bytes += l.unchecked_bytes;
	sum->again_bytes += l.again_bytes;
	for (size_t i = 0; i < n; i++)
		free(r[i].dst);
	free(r);
}
