/*
 * ZeRO over ranks: the same model trained for a few steps at every stage and number of ranks, with
 * and without recomputation, by one thread and two, has the same bits; and a rank holds what its
 * stage says.  If this fails, a run that was resharded is another run.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/zero/cpu/en_zero_cpu.h"
#include "libckpt/base/ck_hash.h"
#include "tests/engine/te_model.h"
#include "tests/engine/te_ranks.h"
#include "tests/lib/fs/t_dir.h"

#define UNITS 8u
#define ROWS 1u
#define TOKENS 17u
#define STEPS 3u

/* One training, and what it ends with. */
struct training {
	const struct en_model *model;
	struct en_zero_opts opts;
	uint32_t ranks;
	uint32_t units;			/* of a step, at most UNITS; 0 = all of them */
	struct ck_hash128 hash;		/* of masters and moments, by parameter */
	double norm[STEPS], loss[STEPS];
	struct en_mem mem;		/* of rank 0 */
	float **whole;			/* masters and moments of each parameter */
};

static int32_t token_of(const struct en_model *m, uint32_t step, uint32_t unit, uint32_t i)
{
	uint32_t x = (step * UNITS + unit) * 1000003u + i * 7919u + 12345u;

	x ^= x >> 13;
	x *= 0x5bd1e995u;
	x ^= x >> 15;
	return (int32_t)(x % m->config.vocab);
}

static int run_unit(struct en_zero *z, const struct training *t, uint32_t step, uint32_t m,
		    uint32_t rank, double *loss, struct ckpt_err *err)
{
	int32_t ids[ROWS * TOKENS];
	const struct en_batch batch = { ROWS, TOKENS, ids, ids, NULL, NULL };
	struct en_zero_micro_batch unit = { .batch = &batch };
	struct en_loss l;
	const uint32_t u = m * t->ranks + rank;
	int rc;

	for (uint32_t i = 0; i < ROWS * TOKENS; i++)
		ids[i] = token_of(t->model, step, u, i);
	unit.factor = 1.0 / ((double)en_batch_count(&batch) * UNITS);
	rc = en_zero_micro_batch(z, m, &unit, &l, err);
	loss[u] = l.sum / (double)l.count;
	return rc;
}

static int run_step(struct en_zero *z, struct training *t, struct en_comm *comm, uint32_t step,
		    struct ckpt_err *err)
{
	static const struct en_zero_hyper hyper[2] = {
		{ 3e-3, 0.9, 0.95, 1e-8, 0.1 }, { 3e-3, 0.9, 0.95, 1e-8, 0 },
	};
	double loss[UNITS] = { 0 }, norm = 0;
	int rc = 0;

	for (uint32_t m = 0; !rc && m < t->opts.micro_batches; m++)
		rc = run_unit(z, t, step, m, comm->rank, loss, err);
	if (!rc)
		rc = en_zero_norm(z, &norm, err);
	if (!rc)
		rc = en_comm_all_reduce(comm, loss, KN_NUM_F64, UNITS, EN_COMM_SUM, NULL, err);
	if (!rc)
		rc = en_zero_update(z, hyper, step + 1, norm > 1 ? (float)(1 / (norm + 1e-6)) : 1,
				    err);
	if (!comm->rank) {
		t->norm[step] = norm;
		t->loss[step] = kn_tree_sum(loss, UNITS) / UNITS;
	}
	return rc;
}

/* Ranks write into each other's gaps only. */
static int take_state(struct en_zero *z, struct training *t, struct ckpt_err *err)
{
	uint64_t n;
	const struct en_zero_piece *p = en_zero_pieces(z, &n);
	int rc = 0;

	for (uint64_t i = 0; i < n; i++) {
		const uint64_t numel = t->model->param[p[i].param].numel;
		float *to = t->whole[p[i].param] + p[i].first;

		for (int s = 0; !rc && s < EN_STATES; s++) {
			const struct en_zero_slice slice = { p[i].block, (enum en_state)s,
							     p[i].at, p[i].count };

			rc = en_zero_read(z, &slice, to + (uint64_t)s * numel, err);
		}
	}
	return rc;
}

static int train(struct en_comm *comm, void *arg, struct ckpt_err *err)
{
	static const struct en_zero_rule rule = { KN_ADAM_TORCH, true, true, false };
	struct training *t = arg;
	struct en_zero *z = NULL;
	int rc = en_zero_cpu_new(t->model, comm, &t->opts, &rule, &z, err);

	if (rc)
		return rc;
	rc = en_zero_init(z, 7, err);
	if (!rc)
		rc = en_zero_sync_params(z, err);
	for (uint32_t s = 0; !rc && s < STEPS; s++)
		rc = run_step(z, t, comm, s, err);
	if (!rc)
		rc = take_state(z, t, err);
	if (!comm->rank)
		t->mem = *en_zero_mem(z);
	en_zero_free(z);
	return rc;
}

static void run(struct training *t)
{
	struct ck_hasher *h = ck_hasher_new();

	t->opts.micro_batches = (t->units ? t->units : UNITS) / t->ranks;
	t->whole = t_alloc(t->model->nparams * sizeof(*t->whole));
	for (uint32_t i = 0; i < t->model->nparams; i++) {
		t->whole[i] = t_alloc(3 * t->model->param[i].numel * sizeof(float));
		memset(t->whole[i], 0xff, 3 * t->model->param[i].numel * sizeof(float));
	}
	te_ranks(t->ranks, train, t);
	for (uint32_t i = 0; i < t->model->nparams; i++) {
		ck_hasher_add(h, t->whole[i], 3 * t->model->param[i].numel * sizeof(float));
		free(t->whole[i]);
	}
	t->hash = ck_hasher_sum(h);
	ck_hasher_free(h);
	free(t->whole);
}

static struct training a_training(const struct en_model *model, uint32_t ranks, uint32_t stage,
				  enum kn_type type)
{
	return (struct training){
		.model = model, .ranks = ranks,
		.opts = { .stage = stage, .type = type, .wire = type, .rows = ROWS,
			  .tokens = TOKENS, .threads = 1 },
	};
}

static void must_agree(const struct training *a, const struct training *b, const char *what)
{
	for (uint32_t s = 0; s < STEPS; s++)
		if (a->norm[s] != b->norm[s] || a->loss[s] != b->loss[s])
			fail_msg("%s: step %u has norm %.17g and loss %.17g, not %.17g and %.17g",
				 what, s, b->norm[s], b->loss[s], a->norm[s], a->loss[s]);
	if (!ck_hash128_equal(a->hash, b->hash))
		fail_msg("%s: other masters or moments", what);
}

static void one_model(const char *name, enum kn_type type)
{
	static const uint32_t ranks[] = { 1, 2, 4, 8 };
	struct te_model m;
	struct training base, other;

	te_model_open(&m, name);
	base = a_training(m.model, 1, 0, type);
	run(&base);
	assert_true(base.loss[0] > 0 && isfinite(base.norm[STEPS - 1]));
	assert_true(base.loss[STEPS - 1] != base.loss[0]);
	for (uint32_t stage = 0; stage <= 3; stage++)
		for (size_t i = 0; i < 4; i++) {
			char *what = t_fmt("%s at stage %u with %u ranks", name, stage, ranks[i]);

			other = a_training(m.model, ranks[i], stage, type);
			other.opts.recompute = stage & 1;
			other.opts.threads = 1 + (i & 1);
			run(&other);
			must_agree(&base, &other, what);
			free(what);
		}
	te_model_close(&m);
}

static void the_same_bits_everywhere(void **state)
{
	(void)state;
	one_model("llama3", KN_F32);
	one_model("qwen3_tied", KN_F32);
	one_model("qwen25_tied", KN_BF16);
	one_model("qwen3", KN_BF16);
}

/* A step of 3, 5, 6, 7 units is summed in one order at every stage, and ends with all of them. */
static void any_number_of_units(void **state)
{
	static const uint32_t units[] = { 1, 2, 3, 5, 6, 7 };
	struct training base, other;
	struct te_model m;

	(void)state;
	te_model_open(&m, "qwen25_tied");
	for (size_t i = 0; i < CK_ARRAY_LEN(units); i++) {
		base = a_training(m.model, 1, 0, KN_BF16);
		base.units = units[i];
		run(&base);
		for (uint32_t stage = 0; stage <= 3; stage++) {
			const uint32_t ranks = units[i] % 2 ? 1 : 2;
			char *what = t_fmt("%u units at stage %u with %u ranks", units[i], stage,
					   ranks);

			other = a_training(m.model, ranks, stage, KN_BF16);
			other.units = units[i];
			run(&other);
			must_agree(&base, &other, what);
			free(what);
		}
	}
	te_model_close(&m);
}

/* 3 ranks sum in another order: the numbers are near, not the same. */
static void other_worlds_are_near(void **state)
{
	struct te_model m;
	struct training base, other;

	(void)state;
	te_model_open(&m, "qwen3_tied");
	for (uint32_t ranks = 3; ranks <= 7; ranks += 2) {
		other = a_training(m.model, ranks, 3, KN_F32);
		base = a_training(m.model, 1, 2, KN_F32);
		run(&other);
		run(&base);
		/* units that are left out when 8 are dealt to 3 ranks make it another batch */
		assert_true(fabs(other.loss[0] - base.loss[0] * 1) < base.loss[0]);
		assert_true(isfinite(other.norm[STEPS - 1]));
	}
	te_model_close(&m);
}

static void memory_is_what_the_stage_says(void **state)
{
	struct te_model m;
	struct training t[4];

	(void)state;
	te_model_open(&m, "qwen3");
	for (uint32_t stage = 0; stage <= 3; stage++) {
		t[stage] = a_training(m.model, 4, stage, KN_BF16);
		run(&t[stage]);
	}
	/* optimizer: 12 bytes an element, whole at stage 0, a quarter above */
	for (uint32_t stage = 1; stage <= 3; stage++)
		assert_int_equal(t[0].mem.peak[EN_MEM_OPTIMIZER],
				 4 * t[stage].mem.peak[EN_MEM_OPTIMIZER]);
	assert_int_equal(t[2].mem.peak[EN_MEM_PARAMS], 4 * t[3].mem.peak[EN_MEM_PARAMS]);
	assert_int_equal(t[0].mem.peak[EN_MEM_PARAMS], t[2].mem.peak[EN_MEM_PARAMS]);
	assert_true(t[2].mem.peak[EN_MEM_GRADS] < t[1].mem.peak[EN_MEM_GRADS]);
	assert_true(!t[2].mem.peak[EN_MEM_GATHERED] && t[3].mem.peak[EN_MEM_GATHERED]);
	for (uint32_t stage = 0; stage <= 3; stage++)
		for (int k = 0; k < EN_MEM_KINDS; k++)
			assert_true(t[stage].mem.peak[k] <= t[stage].mem.total_peak);
	te_model_close(&m);
}

/* ---- states in a file ---- */

/* Tiles of one chunk, so that a rank has more of them than there is room for. */
static void in_a_file(const char *name, enum kn_type type, const char *dir)
{
	static const uint32_t ranks[] = { 1, 2, 4 };
	const struct en_nvme_opts nvme[] = {
		{ .dir = dir, .block = 8192, .depth = 4 },
		{ .dir = dir, .avoid = EN_NVME_NO_URING | EN_NVME_NO_DIRECT, .threads = 2 },
	};
	struct te_model m;

	te_model_open(&m, name);
	for (uint32_t stage = 1; stage <= 3; stage++)
		for (size_t i = 0; i < CK_ARRAY_LEN(ranks); i++) {
			struct training base = a_training(m.model, ranks[i], stage, type);
			struct training file = base;
			char *what = t_fmt("%s in a file at stage %u with %u ranks", name, stage,
					   ranks[i]);

			file.opts.host_optimizer = true;
			file.opts.nvme = nvme[i & 1];
			file.opts.off_tile = i == 2 ? 2 * EN_ZERO_CHUNK : EN_ZERO_CHUNK;
			file.opts.off_buffers = stage == 2 ? 5 : 3;
			run(&base);
			run(&file);
			must_agree(&base, &file, what);
			assert_int_equal(file.mem.peak[EN_MEM_OPTIMIZER], 0);
			assert_true(file.mem.peak[EN_MEM_HOST_OPTIMIZER] <
				    base.mem.peak[EN_MEM_OPTIMIZER]);
			free(what);
		}
	te_model_close(&m);
}

static void states_in_a_file_have_the_same_bits(void **state)
{
	char *dir = t_dir_new();

	(void)state;
	in_a_file("qwen3_tied", KN_BF16, dir);
	in_a_file("llama3", KN_F32, dir);
	t_dir_end(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_same_bits_everywhere),
		cmocka_unit_test(any_number_of_units),
		cmocka_unit_test(other_worlds_are_near),
		cmocka_unit_test(memory_is_what_the_stage_says),
		cmocka_unit_test(states_in_a_file_have_the_same_bits),
	};

	te_need_fixtures();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
