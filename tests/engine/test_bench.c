/*
 * What `ztrain bench` counts and works out: operations of a token, what fits, which stage is
 * recommended, and steps on one and on several ranks, whose numbers must belong together.  If this
 * fails, configurations are compared by numbers that are not theirs.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <cJSON.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/bench/en_bench.h"
#include "tests/engine/te_model.h"
#include "tests/engine/te_ranks.h"
#include "tests/lib/fs/t_dir.h"

#define TOKENS 24u

static struct en_bench_opts opts_of(const struct en_model *model, uint32_t stage)
{
	return (struct en_bench_opts){
		.model = model,
		.zero = { .stage = stage, .type = KN_BF16, .wire = KN_BF16, .micro_batches = 2,
			  .rows = 2, .tokens = TOKENS, .threads = 1 },
		.rule = { KN_ADAM_FUSED, true, true, false }, .clip = 1, .seed = 7, .warmup = 1,
		.steps = 5, .traced = 2,
	};
}

/* 6 N + 12 L A S, of numbers worked out here. */
static void operations_of_a_token(void **state)
{
	const struct en_model_config c = {
		.arch = EN_QWEN3, .vocab = 1000, .hidden = 64, .inter = 96, .layers = 3, .heads = 4,
		.kv_heads = 2, .head_dim = 32, .max_positions = 512, .norm_eps = 1e-6,
		.init_range = 0.02, .rope = { .theta = 10000 },
	};
	/* q, k, v, o; gate, up, down; two norms, two of heads */
	const double layer = 64 * (128 + 64 + 64) + 128 * 64 + 3 * 64 * 96 + 2 * 64 + 2 * 32;
	const double n = 3 * layer + 64 + 64 * 1000;
	struct en_model_config tied = c;
	struct en_model *m = NULL;

	(void)state;
	assert_int_equal(en_model_new(&c, &m, NULL), 0);
	assert_true(en_bench_flop(m, 100) == 6 * n + 12 * 3 * 128 * 100.0);
	en_model_free(m);
	tied.tied = true;
	assert_int_equal(en_model_new(&tied, &m, NULL), 0);
	assert_true(en_bench_flop(m, 100) == 6 * n + 12 * 3 * 128 * 100.0);
	en_model_free(m);
}

static void what_fits(void **state)
{
	struct en_comm *comm = NULL;
	struct en_bench_opts o;
	struct te_model m;
	uint64_t bytes, one, ten, more, free_bytes;
	uint32_t rows;

	(void)state;
	te_model_open(&m, "qwen3_tied");
	assert_int_equal(en_comm_local_open(&comm, NULL), 0);
	o = opts_of(m.model, 3);
	o.comm = comm;
	assert_int_equal(en_bench_fit(&o, UINT64_MAX, 1, &rows, &one, NULL), 0);
	assert_int_equal(rows, 1);
	assert_int_equal(en_bench_fit(&o, UINT64_MAX, 10, &rows, &ten, NULL), 0);
	assert_int_equal(rows, 10);
	assert_int_equal(en_bench_fit(&o, UINT64_MAX, 11, &rows, &more, NULL), 0);
	assert_true(one < ten && ten < more);
	/* to the byte */
	assert_int_equal(en_bench_fit(&o, more, 100, &rows, &bytes, NULL), 0);
	assert_true(rows == 11 && bytes == more);
	assert_int_equal(en_bench_fit(&o, more - 1, 100, &rows, &bytes, NULL), 0);
	assert_true(rows == 10 && bytes == ten);
	assert_int_equal(en_bench_fit(&o, one - 1, 100, &rows, &bytes, NULL), 0);
	assert_true(rows == 0 && bytes == one);
	assert_int_equal(en_bench_free(comm, NULL, &free_bytes, NULL), 0);
	assert_true(free_bytes > (1 << 20));
	assert_int_equal(en_comm_close(comm, NULL), 0);
	te_model_close(&m);
}

/* ---- which stage ---- */

static void check_advice(const struct en_bench_stage *s, uint32_t n, double near, uint32_t want,
			 const char *const *words)
{
	char text[EN_BENCH_TEXT];
	uint32_t best = 99;

	en_bench_advise(s, n, near, &best, text);
	if (best != want)
		fail_msg("place %u is recommended, %u was expected: %s", best, want, text);
	for (; *words; words++)
		if (!strstr(text, *words))
			fail_msg("'%s' is not said: %s", *words, text);
}

static void the_stage_that_is_recommended(void **state)
{
	const uint64_t mib = 1 << 20;
	struct en_bench_stage s[4] = {
		{ 0, false, 0, 0, 0 }, { 1, true, 1000, 300 * mib, 2 },
		{ 2, true, 990, 200 * mib, 3 }, { 3, true, 900, 100 * mib, 4 },
	};

	(void)state;
	check_advice(s, 4, 0.02, 2, (const char *const[]){
		"stage 2: 990 tokens/s per rank with 3 rows at once, 200 MiB of states",
		"the least memory among those within 2 % of the fastest", "stage 0 does not fit",
		"stage 1 is 1.0 % faster with 100 MiB more of states",
		"stage 3 is 9.1 % slower with 100 MiB less of states", NULL });
	check_advice(s, 4, 0.005, 1, (const char *const[]){ "stage 1: 1000 tokens/s", "the fastest",
		NULL });
	check_advice(s, 4, 0.1, 3, (const char *const[]){ "stage 3: 900", "within 10 %", NULL });
	check_advice(s, 2, 0.02, 1, (const char *const[]){ "stage 1: 1000", "stage 0 does not fit",
		NULL });
	check_advice(s, 1, 0.02, 1, (const char *const[]){ "no stage fits", NULL });
	s[1].rows = 1;
	check_advice(s + 1, 1, 0.02, 0, (const char *const[]){ "with 1 row at once", NULL });
}

static void sizes_in_words(void **state)
{
	char text[EN_BENCH_SIZE];

	(void)state;
	assert_string_equal(en_bench_size(0, text), "0 B");
	assert_string_equal(en_bench_size(1023, text), "1023 B");
	assert_string_equal(en_bench_size(1536, text), "1.5 KiB");
	assert_string_equal(en_bench_size(41ull << 30, text), "41.0 GiB");
	assert_string_equal(en_bench_size(139ull << 30, text), "139 GiB");
	assert_string_equal(en_bench_size(UINT64_MAX, text), "16777216 TiB");
}

/* ---- steps ---- */

struct ranks {
	struct en_bench_opts o;
	struct en_bench out[8];
	const char *path;
};

static int run_rank(struct en_comm *comm, void *arg, struct ckpt_err *err)
{
	struct ranks *all = arg;
	struct en_bench_opts o = all->o;
	struct en_trace *t = NULL;
	int rc;

	o.comm = comm;
	rc = en_bench_run(&o, &all->out[comm->rank], &t, err);
	if (!rc)
		rc = en_bench_trace_write(all->path, comm, t, err);
	en_trace_free(t);
	return rc;
}

static void belongs_together(const struct ranks *all, uint32_t rank, uint32_t n)
{
	const struct en_bench *b = &all->out[rank], *first = &all->out[0];
	const double tokens = 2 * 2 * TOKENS;

	assert_int_equal(b->world, n);
	assert_int_equal(b->steps, 5);
	assert_int_equal(b->traced, 2);
	assert_true(b->step.least > 0 && b->step.least <= b->step.low &&
		    b->step.low <= b->step.median && b->step.median <= b->step.high &&
		    b->step.high <= b->step.most);
	assert_true(b->step.median == first->step.median);
	assert_true(fabs(b->tokens_per_s * b->step.median - tokens) < 1e-6);
	assert_true(isfinite(b->loss) && b->loss > 0);
	assert_memory_equal(&b->mem.peak, &b->expected.peak, sizeof(b->mem.peak));
	assert_int_equal(b->mem.total_peak, b->expected.total_peak);
	assert_int_equal(b->peak_most, b->peak_least);
	assert_int_equal(b->peak_most, en_bench_held(&b->mem, false));
	assert_int_equal(b->lost, 0);
	assert_false(b->has_device);
	assert_true(b->wait_gather + b->wait_reduce + b->wait_other <= b->traced_step);
}

static char *text_of(const char *path)
{
	FILE *f = fopen(path, "rb");
	char *text = t_alloc(1 << 24);

	assert_non_null(f);
	text[fread(text, 1, (1 << 24) - 1, f)] = 0;
	fclose(f);
	return text;
}

/* Events of a thread follow each other, and all ranks are there. */
static uint32_t check_trace(const char *path, uint32_t ranks)
{
	char *text = text_of(path);
	cJSON *doc = cJSON_Parse(text);
	const cJSON *e, *events = cJSON_GetObjectItem(doc, "traceEvents");
	double until[8][64] = { { 0 } };
	uint32_t spans = 0, seen = 0;

	assert_non_null(doc);
	cJSON_ArrayForEach(e, events) {
		const int pid = cJSON_GetObjectItem(e, "pid")->valueint;
		const double ts = cJSON_IsNumber(cJSON_GetObjectItem(e, "ts")) ?
			cJSON_GetObjectItem(e, "ts")->valuedouble : 0;
		int tid;

		assert_in_range(pid, 0, ranks - 1);
		seen |= 1u << pid;
		if (strcmp(cJSON_GetObjectItem(e, "ph")->valuestring, "X"))
			continue;
		tid = cJSON_GetObjectItem(e, "tid")->valueint;
		assert_in_range(tid, 0, 63);
		/* printed to the thousandth */
		if (ts < until[pid][tid] - 0.0021)
			fail_msg("rank %d, thread %d: %.3f is before %.3f", pid, tid, ts,
				 until[pid][tid]);
		until[pid][tid] = ts + cJSON_GetObjectItem(e, "dur")->valuedouble;
		spans++;
	}
	assert_int_equal(seen, (1u << ranks) - 1);
	cJSON_Delete(doc);
	free(text);
	return spans;
}

static uint32_t count(const char *path, const char *word)
{
	char *text = text_of(path);
	uint32_t n = 0;

	for (const char *p = text; (p = strstr(p, word)); p++)
		n++;
	free(text);
	return n;
}

static void one(const char *model, uint32_t stage, uint32_t ranks)
{
	char *dir = t_dir_new(), *path = t_fmt("%s/trace.json", dir);
	struct ranks *all = t_alloc(sizeof(*all));
	struct te_model m;
	uint32_t layers;

	te_model_open(&m, model);
	layers = m.model->config.layers;
	memset(all, 0, sizeof(*all));
	all->o = opts_of(m.model, stage);
	all->path = path;
	te_ranks(ranks, run_rank, all);
	for (uint32_t r = 0; r < ranks; r++)
		belongs_together(all, r, ranks);
	assert_true(check_trace(path, ranks) > 0);
	/* two micro-batches of two steps on each rank */
	assert_int_equal(count(path, "\"forward "), ranks * 4 * layers);
	assert_int_equal(count(path, "\"backward "), ranks * 4 * layers);
	assert_int_equal(count(path, "\"adam "), ranks * 2 * (layers + 2));
	assert_int_equal(count(path, "\"reduce "), ranks * 4 * (layers + 2));
	assert_int_equal(count(path, "\"norm\""), ranks * 2);
	te_model_close(&m);
	t_dir_end(dir);
	free(all);
	free(path);
}

static void steps_of_ranks(void **state)
{
	(void)state;
	for (uint32_t stage = 0; stage < 4; stage++) {
		one("qwen3_tied", stage, 1);
		one("llama3", stage, 2);
	}
	one("qwen25", 3, 3);
}

static void without_a_step(void **state)
{
	struct en_comm *comm = NULL;
	struct en_bench_opts o;
	struct en_bench out;
	struct te_model m;

	(void)state;
	te_model_open(&m, "llama3");
	assert_int_equal(en_comm_local_open(&comm, NULL), 0);
	o = opts_of(m.model, 1);
	o.comm = comm;
	o.steps = 0;
	assert_int_equal(en_bench_run(&o, &out, NULL, NULL), -CKPT_E_USAGE);
	o.steps = 1;
	o.traced = 0;
	o.warmup = 0;
	assert_int_equal(en_bench_run(&o, &out, NULL, NULL), 0);
	assert_true(out.step.least == out.step.most && out.traced == 0 && out.wait_gather == 0);
	o.zero.stage = 4;
	assert_int_equal(en_bench_run(&o, &out, NULL, NULL), -CKPT_E_USAGE);
	assert_int_equal(en_comm_close(comm, NULL), 0);
	te_model_close(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(operations_of_a_token), cmocka_unit_test(what_fits),
		cmocka_unit_test(the_stage_that_is_recommended), cmocka_unit_test(sizes_in_words),
		cmocka_unit_test(steps_of_ranks), cmocka_unit_test(without_a_step),
	};

	te_need_fixtures();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
