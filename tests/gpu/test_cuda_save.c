/*
 * test_cuda_save.c -- the copy of a GPU's state for a save, made while the next step is: it is the
 * state of the moment at which it was begun, to the bit, and the step is the one that would have
 * been.  Exit 77 without a GPU; `make gpusim` links it with one that is late and in no order.
 *
 * usage: test_cuda_save [CASE]
 *
 * If this fails, a save holds numbers of two steps.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/zero/cuda/en_zero_cuda.h"

#define STEPS 4
#define ROWS 1u
#define TOKENS 128u
#define RING ((uint64_t)160 << 10)	/* bytes that go round; the state has 5 MB */

static struct {
	const char *name;
	enum kn_type type;
	uint32_t stage;
	bool tied;
	uint64_t bytes;		/* of the copy; 0 = all */
	bool thread;		/* that takes it; else it is taken after the step */
} cases[] = {
	{ "fp32, stage 0, all of it, taken after the step", KN_F32, 0, false, 0, false },
	{ "bf16, stage 3, all of it, taken after the step", KN_BF16, 3, true, 0, false },
	{ "bf16, stage 1, all of it, by a thread", KN_BF16, 1, false, 0, true },
	{ "bf16, stage 2, a little that goes round", KN_BF16, 2, true, RING, true },
	{ "fp16, stage 3, a little that goes round", KN_F16, 3, false, RING, true },
};
#define NCASES (sizeof(cases) / sizeof(cases[0]))

static int failed, passed;

/* ---- steps ---- */

static struct en_model *make_model(bool tied)
{
	const struct en_model_config c = {
		.arch = EN_QWEN3, .vocab = 517, .hidden = 96, .inter = 232, .layers = 3,
		.heads = 4, .kv_heads = 2, .head_dim = 64, .max_positions = 1024,
		.norm_eps = 1e-5, .init_range = 0.05, .tied = tied, .rope = { .theta = 10000 },
	};
	struct en_model *m = NULL;
	struct ckpt_err err = { 0 };

	if (en_model_new(&c, &m, &err)) {
		printf("FAILED: %s\n", err.msg);
		exit(1);
	}
	return m;
}

static int step(struct en_zero *z, uint64_t k, struct ckpt_err *err)
{
	const struct en_zero_hyper hyper[2] = {
		{ 1e-2, 0.9, 0.95, 1e-8, 0.1 }, { 1e-2, 0.9, 0.95, 1e-8, 0 },
	};
	static int32_t ids[ROWS * TOKENS];
	const struct en_batch b = { ROWS, TOKENS, ids, ids, NULL, NULL };
	const struct en_zero_micro_batch unit = { &b, 1.0 / (ROWS * (TOKENS - 1)) };
	struct en_loss loss;
	uint64_t bits;
	double norm;
	int rc;

	for (uint32_t i = 0; i < ROWS * TOKENS; i++) {
		kn_random_bits(&bits, 1, 7, k, i);
		ids[i] = (int32_t)(bits % 517);
	}
	rc = en_zero_micro_batch(z, 0, &unit, &loss, err);
	if (!rc)
		rc = en_zero_norm(z, &norm, err);
	return rc ? rc : en_zero_update(z, hyper, k + 1, norm > 1 ? (float)(1 / norm) : 1, err);
}

/* ---- states: of each piece the three, in sequence ---- */

static uint64_t elements(const struct en_zero *z)
{
	uint64_t n, all = 0;
	const struct en_zero_piece *p = en_zero_pieces(z, &n);

	for (uint64_t i = 0; i < n; i++)
		all += EN_STATES * p[i].count;
	return all;
}

static int get_all(struct en_zero *z, float *to, struct ckpt_err *err)
{
	uint64_t n;
	const struct en_zero_piece *p = en_zero_pieces(z, &n);
	int rc = 0;

	for (uint64_t i = 0; !rc && i < n; i++)
		for (int s = 0; !rc && s < EN_STATES; s++) {
			rc = en_zero_read(z, &(struct en_zero_slice){ p[i].block, (enum en_state)s,
								     p[i].at, p[i].count },
					 to, err);
			to += p[i].count;
		}
	return rc;
}

static void take(const struct en_zero *z, const struct en_zero_copied *c, float *to)
{
	const struct en_zero_slice *s = &c->slice;
	uint64_t n;
	const struct en_zero_piece *p = en_zero_pieces(z, &n);

	for (uint64_t i = 0; i < n; to += EN_STATES * p[i++].count) {
		const uint64_t a = s->at > p[i].at ? s->at : p[i].at;
		const uint64_t end = p[i].at + p[i].count, b = s->at + s->n;

		if (p[i].block == s->block && a < end && a < b)
			memcpy(to + (uint64_t)s->state * p[i].count + (a - p[i].at),
			       c->p + (a - s->at), ((end < b ? end : b) - a) * sizeof(float));
	}
}

/* ---- a copy ---- */

struct copy {
	struct en_zero *z;
	float *to;
	bool naps;
	unsigned chance;
	struct ckpt_err err;
	int rc;
};

static void nap(struct copy *c)
{
	const struct timespec t = { .tv_nsec = (long)(rand_r(&c->chance) % 2000) * 1000 };

	if (c->naps)
		nanosleep(&t, NULL);
}

static void *take_all(void *arg)
{
	struct copy *c = arg;
	struct en_zero_copied got = { .p = NULL };

	nap(c);
	c->rc = c->naps ? en_zero_snap_start(c->z, &c->err) : 0;
	do {
		c->rc = c->rc ? c->rc : en_zero_snap_next(c->z, &got, &c->err);
		if (!c->rc && got.slice.n) {
			if (rand_r(&c->chance) % 16 == 0)
				nap(c);
			take(c->z, &got, c->to);
		}
	} while (!c->rc && got.slice.n);
	en_zero_snap_end(c->z);
	return NULL;
}

/* Step 'k', with what was before it copied to c->to meanwhile. */
static int step_and_copy(struct copy *c, uint64_t k, bool thread, struct ckpt_err *err)
{
	pthread_t t;
	int rc = en_zero_snap_begin(c->z, err);

	c->naps = thread;
	if (!rc && thread && pthread_create(&t, NULL, take_all, c))
		return -1;
	if (!rc && !thread)
		rc = en_zero_snap_start(c->z, err);
	if (!rc)
		rc = step(c->z, k, err);
	if (thread)
		pthread_join(t, NULL);
	else
		take_all(c);
	if (!rc && c->rc)
		*err = c->err;
	return rc ? rc : c->rc;
}

/* ---- a case ---- */

static int train(size_t number, bool copies, float **state, struct ckpt_err *err)
{
	const struct en_zero_opts o = {
		.stage = cases[number].stage, .type = cases[number].type,
		.wire = cases[number].type, .micro_batches = 1, .rows = ROWS, .tokens = TOKENS,
		.threads = 1,
	};
	const struct en_zero_rule rule = { KN_ADAM_FUSED, true, true, false };
	const struct en_cuda_opts how = { .fixed = true };
	struct en_model *m = make_model(cases[number].tied);
	struct copy c = { .chance = (unsigned)number + 1 };
	struct en_comm *comm = NULL;
	bool has = true;
	uint64_t n = 0;
	int rc = en_comm_local_open(&comm, err);

	if (!rc)
		rc = en_zero_cuda_new(m, comm, &o, &rule, &how, &c.z, err);
	if (!rc && copies)
		rc = en_zero_snap_new(c.z, cases[number].bytes, 2, &has, err);
	if (!rc)
		rc = has ? en_zero_init(c.z, 3, err) : -1;
	if (!rc)
		rc = en_zero_sync_params(c.z, err);
	if (!rc)
		n = elements(c.z);
	for (uint64_t k = 0; !rc && k <= STEPS; k++) {
		state[k] = malloc(n * sizeof(float));
		memset(state[k], 0xff, n * sizeof(float));
		c.to = state[k];
		if (!copies || k == STEPS)
			rc = get_all(c.z, state[k], err);
		if (!rc && k < STEPS)
			rc = copies ? step_and_copy(&c, k, cases[number].thread, err) :
				step(c.z, k, err);
	}
	en_zero_free(c.z);
	en_comm_close(comm, NULL);
	en_model_free(m);
	return rc ? rc : (int)n;
}

static void run_case(size_t number)
{
	float *want[STEPS + 1] = { NULL }, *got[STEPS + 1] = { NULL };
	struct ckpt_err err = { 0 };
	const int n = train(number, false, want, &err);
	const int same = n > 0 ? train(number, true, got, &err) : n;
	int bad = 0;

	if (n <= 0 || same != n) {
		failed++;
		printf("FAILED %s: %s: %s\n", cases[number].name, err.where, err.msg);
		return;
	}
	for (int k = 0; k <= STEPS; k++) {
		if (memcmp(want[k], got[k], (size_t)n * sizeof(float))) {
			printf("FAILED %s: %s %d\n", cases[number].name,
			       k < STEPS ? "the copy before step" : "the state after step",
			       k < STEPS ? k + 1 : k);
			bad++;
		}
		free(want[k]);
		free(got[k]);
	}
	failed += bad != 0;
	passed += !bad;
	if (!bad)
		printf("  %-48s %d numbers, %d times\n", cases[number].name, n, STEPS);
}

int main(int argc, char **argv)
{
	if (!en_cuda_count()) {
		puts("no GPU is to be seen");
		return 77;
	}
	for (size_t i = 0; i < NCASES; i++)
		if (argc < 2 || (size_t)atoi(argv[1]) == i)
			run_case(i);
	printf("%d passed, %d failed, 0 skipped\n", passed, failed);
	return failed != 0;
}
