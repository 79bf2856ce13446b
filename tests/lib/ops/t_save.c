/* See t_save.h. */
#include "tests/lib/ops/t_save.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/include/kn.h"
#include "tests/lib/fs/t_dir.h"

#define NTENSORS 9
#define NSTATES 3
#define FROZEN 3		/* number of the frozen tensor */
#define STRIPE 1000

static const struct ckpt_save_state states[NSTATES] = {
	{ "master", CKPT_F32 }, { "exp_avg", CKPT_F32 }, { "exp_avg_sq", CKPT_F32 },
};

static const struct ckpt_save_group groups[2] = {
	{ 1e-3, 2e-3, 0.1, 0.9, 0.95, 1e-8, 42 }, { 1e-3, 2e-3, 0, 0.9, 0.95, 1e-8, 42 },
};

struct ckpt_save_step *t_save_step(const struct t_trainer *t, const char *tag, int to, int stage,
				   uint32_t world)
{
	static const uint64_t scalar[1] = { 0 }, three[1] = { 3 }, nothing[2] = { 0, 7 };
	static const uint64_t cube[3] = { 17, 19, 23 };
	static uint64_t large[2], larger[1], even[1];
	static struct ckpt_save_tensor tensor[NTENSORS];
	static struct ckpt_save_step step;
	const enum ckpt_dtype w = t->weight ? t->weight : CKPT_BF16;
	const uint64_t n = t->size ? t->size : 5003;

	large[0] = n;
	large[1] = 3;
	larger[0] = 2 * n + 1;
	even[0] = t->frozen ? t->frozen : 4096;
	memcpy(tensor, (struct ckpt_save_tensor[NTENSORS]){
		{ "embed.weight", large, 2, CKPT_ROLE_TRAINABLE, w, 0, 0, 0 },
		{ "layers.0.w", cube, 3, CKPT_ROLE_TRAINABLE, w, 0, 0, 0 },
		{ "layers.0.b", three, 1, CKPT_ROLE_TRAINABLE, w, 1, 0, 0 },
		{ "layers.0.frozen", even, 1, CKPT_ROLE_FROZEN, w, -1, 0, 0 },
		{ "layers.0.steps", scalar, 0, CKPT_ROLE_BUFFER, CKPT_I64, -1, 0, 0 },
		{ "layers.1.w", larger, 1, CKPT_ROLE_TRAINABLE, w, 0, 0, 0 },
		{ "layers.1.scale", scalar, 0, CKPT_ROLE_TRAINABLE, w, 1, 0, 0 },
		{ "head.weight", large, 2, CKPT_ROLE_ALIAS, w, -1, 0, 0 },
		{ "empty", nothing, 2, CKPT_ROLE_BUFFER, CKPT_F32, -1, 0, 0 },
	}, sizeof(tensor));
	for (int i = 0; i < NTENSORS; i++)
		tensor[i].derived = t->derived && tensor[i].role == CKPT_ROLE_TRAINABLE;
	step = (struct ckpt_save_step){
		.size = sizeof(step), .tag = tag, .to = to, .stage = stage, .world = world,
		.tensor = tensor, .ntensors = NTENSORS, .state = states, .nstates = NSTATES,
		.group = groups, .ngroups = 2, .steps = 42, .samples = 1344, .skipped = 1,
		.clip_grad = 1, .ds_config = "{\"bf16\": {\"enabled\": true}}",
		.scheduler = "{\"last_batch_iteration\": 41}",
		.frozen_from = t->frozen_from,
		.client = "{\"epoch\": 3, \"note\": \"a \\\"b\\\"\", \"seen\": [1, 2.5, null]}",
	};
	return &step;
}

void t_save_at(struct ckpt_save_step *step, int64_t steps)
{
	static struct ckpt_save_group group[2];

	memcpy(group, groups, sizeof(group));
	group[0].step = group[1].step = steps - step->skipped;
	step->steps = steps;
	step->group = group;
}

int t_saver(const struct t_trainer *t, uint32_t rank, struct ckpt_saver **out,
	    struct ckpt_err *err)
{
	const struct ckpt_saver_opts o = {
		.size = sizeof(o), .root = t->root, .job = t->job ? t->job : "job 1",
		.rank = rank, .nranks = t->nranks, .threads = t->threads,
		.buffer_bytes = t->buffer_bytes ? t->buffer_bytes : 1 << 20, .sync = t->sync,
		.timeout_ms = t->timeout_ms, .flags = t->flags,
	};

	return ckpt_saver_new(&o, out, err);
}

/* ---- elements ---- */

static uint64_t numel_of(const struct ckpt_save_tensor *t)
{
	uint64_t n = 1;

	for (uint32_t d = 0; d < t->ndim; d++)
		n *= t->shape[d];
	return n;
}

/* A number that a float holds, other for each element. */
static float value_of(uint64_t seed, uint64_t tensor, uint64_t state, uint64_t i)
{
	uint64_t x = (i + 1) * 0x9e3779b97f4a7c15ull + seed * 0xd1342543de82ef95ull +
		     (tensor * 8 + state) * 0x2545f4914f6cdd1dull;

	x ^= x >> 29;
	x *= 0xbf58476d1ce4e5b9ull;
	x ^= x >> 32;
	return (float)((int64_t)(x >> 40) - (1 << 23)) * 0x1p-20f;
}

/* Elements [first, first + count) of state number 'state' (0 = weight) in the type 'dtype'. */
static void fill(const struct t_trainer *t, uint64_t tensor, uint64_t state, enum ckpt_dtype dtype,
		 uint64_t first, uint64_t count, uint8_t *to)
{
	const uint64_t as = state ? state : 1;	/* a weight is its master, rounded */
	const uint64_t seed = tensor == FROZEN && t->frozen_seed ? t->frozen_seed : t->seed;

	for (uint64_t i = 0; i < count; i++) {
		const float f = value_of(seed, tensor, as, first + i);
		const int64_t n = (int64_t)(f * 1024);

		if (dtype == CKPT_I64)
			memcpy(to + 8 * i, &n, 8);
		else if (dtype == CKPT_F32)
			memcpy(to + 4 * i, &f, 4);
		else if (dtype == CKPT_BF16)
			kn_f32_to_bf16(to + 2 * i, &f, 1);
		else
			kn_f32_to_f16(to + 2 * i, &f, 1);
	}
}

/* ---- who holds what ---- */

typedef int (*range_fn)(void *arg, uint64_t tensor, uint64_t first, uint64_t count);

static int each_even(const struct ckpt_save_step *s, uint32_t rank, uint32_t n, range_fn fn,
		     void *arg)
{
	uint64_t all = 0, at = 0, from, to;
	int rc = 0;

	for (uint64_t i = 0; i < s->ntensors; i++)
		all += s->tensor[i].role == CKPT_ROLE_ALIAS ? 0 : numel_of(&s->tensor[i]);
	from = all * rank / n;
	to = all * (rank + 1) / n;
	for (uint64_t i = 0; !rc && i < s->ntensors; i++) {
		const uint64_t numel = s->tensor[i].role == CKPT_ROLE_ALIAS ? 0 :
				       numel_of(&s->tensor[i]);
		const uint64_t a = from > at ? from : at, b = to < at + numel ? to : at + numel;

		if (a < b)
			rc = fn(arg, i, a - at, b - a);
		at += numel;
	}
	return rc;
}

static int each_stripe(const struct ckpt_save_step *s, uint32_t rank, uint32_t n, range_fn fn,
		       void *arg)
{
	int rc = 0;

	for (uint64_t i = 0; i < s->ntensors; i++) {
		const uint64_t numel = numel_of(&s->tensor[i]);

		if (s->tensor[i].role == CKPT_ROLE_ALIAS)
			continue;
		for (uint64_t k = rank; !rc && k * STRIPE < numel; k += n)
			rc = fn(arg, i, k * STRIPE,
				numel - k * STRIPE < STRIPE ? numel - k * STRIPE : STRIPE);
	}
	return rc;
}

static int each_range(const struct t_trainer *t, const struct ckpt_save_step *s, uint32_t rank,
		      range_fn fn, void *arg)
{
	int rc = 0;

	if (t->held == T_HELD_EVEN)
		return each_even(s, rank, t->nranks, fn, arg);
	if (t->held == T_HELD_BLOCKS)
		return each_stripe(s, rank, t->nranks, fn, arg);
	for (uint64_t i = 0; !rc && i < s->ntensors; i++)
		if (s->tensor[i].role != CKPT_ROLE_ALIAS &&
		    (t->held == T_HELD_FIRST ? !rank : i % t->nranks == rank))
			rc = fn(arg, i, 0, numel_of(&s->tensor[i]));
	return rc;
}

/* ---- saving ---- */

struct owning {
	struct ckpt_save_range *r;
	uint64_t n;
};

static int add_own(void *arg, uint64_t tensor, uint64_t first, uint64_t count)
{
	struct owning *o = arg;

	o->r = t_grow(o->r, (o->n + 1) * sizeof(*o->r));
	o->r[o->n++] = (struct ckpt_save_range){ tensor, first, count };
	return 0;
}

int t_save_begin(const struct t_trainer *t, struct ckpt_saver *sv, struct ckpt_save_step *step,
		 uint32_t rank, struct ckpt_err *err)
{
	struct owning o = { 0 };
	int rc;

	if (t->own) {
		o.r = t_alloc(sizeof(*o.r));
		each_range(t, step, rank, add_own, &o);
	}
	step->own = o.r;
	step->nown = o.n;
	rc = ckpt_save_begin(sv, step, err);
	step->own = NULL;
	free(o.r);
	return rc;
}

struct putting {
	const struct t_trainer *t;
	const struct ckpt_save_step *step;
	struct ckpt_saver *sv;
	struct ckpt_err *err;
	void **kept;		/* what was lent */
	size_t nkept;
};

static int put_state(struct putting *p, uint64_t tensor, uint64_t state, uint64_t first,
		     uint64_t count)
{
	const enum ckpt_dtype dtype = state ? states[state - 1].dtype :
				      p->step->tensor[tensor].dtype;
	uint8_t *bytes = t_alloc(count * 8 + 1);
	int rc;

	fill(p->t, tensor, state, dtype, first, count, bytes);
	rc = ckpt_save_put(p->sv, tensor, state ? states[state - 1].name : "weight", first, count,
			   bytes, p->t->lend ? CKPT_PUT_BORROW : 0, p->err);
	if (p->t->lend) {
		p->kept = t_grow(p->kept, (p->nkept + 1) * sizeof(*p->kept));
		p->kept[p->nkept++] = bytes;
		return rc;
	}
	memset(bytes, 0xee, count * 8);	/* it was copied */
	free(bytes);
	return rc;
}

static int put_range(void *arg, uint64_t tensor, uint64_t first, uint64_t count)
{
	struct putting *p = arg;
	const struct ckpt_save_tensor *t = &p->step->tensor[tensor];
	const bool trained = t->role == CKPT_ROLE_TRAINABLE;
	const bool skip = t->derived || (p->t->ask && !ckpt_save_needs(p->sv, tensor));
	int rc = skip ? 0 : put_state(p, tensor, 0, first, count);

	for (uint64_t s = 1; !rc && trained && s <= NSTATES; s++)
		rc = put_state(p, tensor, s, first, count);
	return rc;
}

int t_save_put(const struct t_trainer *t, struct ckpt_saver *sv, const struct ckpt_save_step *step,
	       uint32_t rank, struct ckpt_err *err)
{
	struct putting p = { .t = t, .step = step, .sv = sv, .err = err };

	if (t->lend)
		t_die("lent memory is not kept");
	return each_range(t, step, rank, put_range, &p);
}

int t_save_all(const struct t_trainer *t, struct ckpt_save_step *step, struct ckpt_err *err)
{
	struct ckpt_saver **sv = t_alloc(t->nranks * sizeof(*sv));
	struct putting p = { .t = t, .step = step, .err = err };
	uint32_t n = 0;
	int rc = 0;

	for (; !rc && n < t->nranks; n += !rc)
		rc = t_saver(t, n, &sv[n], err);
	for (uint32_t r = 0; !rc && r < n; r++)
		rc = t_save_begin(t, sv[r], step, r, err);
	for (uint32_t r = 0; !rc && r < n; r++) {
		p.sv = sv[r];
		rc = each_range(t, step, r, put_range, &p);
	}
	for (uint32_t r = 0; !rc && r < n; r++)
		rc = ckpt_save_commit(sv[r], err);
	for (uint32_t r = 0; !rc && r < n; r++)
		rc = ckpt_save_wait(sv[r], 0, NULL, err);
	for (uint32_t r = n; r > 0; r--)
		ckpt_saver_free(sv[r - 1]);
	for (size_t i = 0; i < p.nkept; i++)
		free(p.kept[i]);
	free(p.kept);
	free(sv);
	return rc;
}

/* ---- checking ---- */

struct reading {
	uint8_t *p;
	uint64_t n, cap;
};

static int take_bytes(void *arg, const void *p, size_t n, struct ckpt_err *err)
{
	struct reading *r = arg;

	(void)err;
	if (r->n + n > r->cap)
		t_die("more than %" PRIu64 " bytes", r->cap);
	memcpy(r->p + r->n, p, n);
	r->n += n;
	return 0;
}

static void check_state(const struct t_trainer *t, struct ckpt *ck, const struct ckpt_save_step *s,
			uint64_t i, uint64_t state)
{
	const char *name = state ? states[state - 1].name : "weight";
	const enum ckpt_dtype dtype = state ? states[state - 1].dtype : s->tensor[i].dtype;
	const uint64_t n = numel_of(&s->tensor[i]), bytes = n * (ckpt_dtype_bits(dtype) / 8);
	const struct ckpt_cat_opts o = { .size = sizeof(o), .state = name, .form = CKPT_CAT_RAW };
	struct reading r = { .p = t_alloc(bytes + 1), .cap = bytes };
	uint8_t *want = t_alloc(n * 8 + 1);
	struct ckpt_err err = { 0 };
	uint64_t tensor;

	if (ckpt_tensor_find(ck, s->tensor[i].name, &tensor, &err) ||
	    ckpt_cat(ck, tensor, &o, take_bytes, &r, NULL, &err))
		t_die("%s of %s: %s", name, s->tensor[i].name, err.msg);
	fill(t, i, state, dtype, 0, n, want);
	if (r.n != bytes || memcmp(r.p, want, bytes))
		t_die("%s of %s has other elements", name, s->tensor[i].name);
	free(r.p);
	free(want);
}

void t_save_check(const struct t_trainer *t, struct ckpt *ck)
{
	const struct ckpt_save_step *s = t_save_step(t, "", 0, 0, 0);

	for (uint64_t i = 0; i < s->ntensors; i++) {
		if (s->tensor[i].role == CKPT_ROLE_ALIAS)
			continue;
		check_state(t, ck, s, i, 0);
		for (uint64_t k = 1; s->tensor[i].role == CKPT_ROLE_TRAINABLE && k <= NSTATES; k++)
			check_state(t, ck, s, i, k);
	}
}
