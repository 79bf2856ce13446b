/* en_bench.c -- see en_bench.h: the steps of a configuration. */
#include "engine/bench/en_bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/zero/cpu/en_zero_cpu.h"
#include "engine/zero/en_offloader.h"
#include "libckpt/base/ck_clock.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"

#define MOST_SPANS ((uint64_t)EN_TRACE_MOST)
#define TOKENS_TAG 0xbe9c	/* of the random numbers that become tokens */

struct bench {
	const struct en_bench_opts *o;
	struct en_bench *out;
	struct en_zero *z;
	int32_t *ids;		/* of a micro-batch */
	int32_t *starts;	/* the same; NULL: a row is one document */
	double *seconds;	/* [steps] */
	uint64_t *bits;
	uint64_t k;		/* steps so far */
	double loss;
};

double en_bench_flop(const struct en_model *model, uint32_t tokens)
{
	const struct en_model_config *c = &model->config;
	const double table = (double)c->vocab * c->hidden;
	const double looked_up = c->tied ? 0 : table;
	const double frozen = (double)(model->numel - model->trained) -
			      (model->block[0].frozen ? looked_up : 0);
	const double n = (double)model->numel - looked_up;

	/* of a frozen matrix there is no gradient */
	return 6 * n - 2 * frozen + 12.0 * c->layers * c->heads * c->head_dim * tokens;
}

uint64_t en_bench_held(const struct en_mem *mem, bool on_gpu)
{
	return en_mem_peaks(mem, on_gpu);
}

/* ---- ranks agree ---- */

static int most_of(struct bench *b, double *v, uint64_t n, struct ckpt_err *err)
{
	return en_comm_all_reduce(b->o->comm, v, KN_NUM_F64, n, EN_COMM_MAX, NULL, err);
}

/* A rank that has not the memory must not leave others waiting for it. */
static int agree(struct bench *b, int rc, struct ckpt_err *err)
{
	double bad = rc == -CKPT_E_NOMEM ? 1 : rc ? 2 : 0;
	int told;

	if (b->o->comm->broken.code)
		return rc;
	told = most_of(b, &bad, 1, rc ? NULL : err);
	if (rc || told)
		return rc ? rc : told;
	if (bad > 1)
		return ck_fail(err, CKPT_E_IO, NULL, CKPT_NO_OFFSET, "another rank failed");
	return bad > 0 ? ck_fail(err, CKPT_E_NOMEM, NULL, CKPT_NO_OFFSET,
				 "another rank is out of memory") :
			 0;
}

/* ---- a step ---- */

/* Documents of 1 to 2 'document' - 1 tokens; the row cuts the last one. */
static void fill_starts(struct bench *b)
{
	const uint64_t n = (uint64_t)b->o->zero.rows * b->o->zero.tokens;
	uint64_t left = 0;
	int32_t begin = 0;

	for (uint64_t i = 0; b->starts && i < n; i++, left--) {
		if (!left || i % b->o->zero.tokens == 0) {
			left = 1 + b->bits[i] % (2 * b->o->document - 1);
			begin = (int32_t)(i % b->o->zero.tokens);
		}
		b->starts[i] = begin;
	}
}

static void fill(struct bench *b, uint64_t unit)
{
	const uint64_t n = (uint64_t)b->o->zero.rows * b->o->zero.tokens;

	kn_random_bits(b->bits, n, b->o->seed, TOKENS_TAG, unit * n);
	for (uint64_t i = 0; i < n; i++)
		b->ids[i] = (int32_t)(b->bits[i] % b->o->model->config.vocab);
	fill_starts(b);
}

static int run_units(struct bench *b, double *loss_out, struct ckpt_err *err)
{
	const struct en_bench_opts *o = b->o;
	const uint64_t all = (uint64_t)o->zero.micro_batches * o->comm->size;
	struct en_drop drop = { .seed = o->seed };
	const struct en_batch batch = {
		o->zero.rows, o->zero.tokens, b->ids, b->ids, b->starts, &drop,
	};
	struct en_zero_micro_batch unit = { .batch = &batch };
	int rc = 0;

	*loss_out = 0;
	for (uint32_t m = 0; !rc && m < o->zero.micro_batches; m++) {
		struct en_loss loss = { 0 };
		uint64_t number;
		double count;

		number = b->k * all + (uint64_t)m * o->comm->size + o->comm->rank;
		drop.sample = number * o->zero.rows;
		fill(b, number);
		count = (double)en_batch_count(&batch);
		unit.factor = 1 / (count * (double)all);
		if (o->zero.as_deepspeed)	/* divided by them in the sum */
			unit.factor *= o->comm->size;
		rc = en_zero_micro_batch(b->z, m, &unit, &loss, err);
		*loss_out += loss.sum / count / o->zero.micro_batches;
	}
	return rc;
}

static int step(struct bench *b, struct ckpt_err *err)
{
	static const struct en_zero_hyper hyper[2] = {
		{ 1e-5, 0.9, 0.95, 1e-8, 0.1 }, { 1e-5, 0.9, 0.95, 1e-8, 0 },
	};
	const double clip = b->o->clip;
	double norm = 0;
	int rc = run_units(b, &b->loss, err);

	if (!rc)
		rc = en_zero_norm(b->z, &norm, err);
	if (!rc)
		rc = en_zero_update(b->z, hyper, ++b->k,
				    clip > 0 && norm > clip ? (float)(clip / norm) : 1, err);
	return rc;
}

/* ---- before and after ---- */

static int expect(struct bench *b, struct ckpt_err *err)
{
	const struct en_bench_opts *o = b->o;
	struct en_mem *mem = &b->out->expected;

	if (o->cuda)
		return en_zero_cuda_expect(o->model, &o->zero, o->comm->size, o->cuda, false, mem,
					   err);
	return en_zero_cpu_expect(o->model, &o->zero, o->comm->rank, o->comm->size,
			      o->messages, mem, NULL, err);
}

static int begin(struct bench *b, struct ckpt_err *err)
{
	const struct en_bench_opts *o = b->o;
	const uint64_t n = (uint64_t)o->zero.rows * o->zero.tokens;
	int rc = expect(b, err);

	b->ids = ck_alloc_array(n, sizeof(*b->ids));
	b->bits = ck_alloc_array(n, sizeof(*b->bits));
	b->starts = o->document ? ck_alloc_array(n, sizeof(*b->starts)) : NULL;
	b->seconds = ck_alloc_array(o->steps + 1ull, sizeof(*b->seconds));
	if (!rc && (!b->ids || !b->bits || (o->document && !b->starts) || !b->seconds))
		rc = ck_fail_nomem(err, "a batch", n);
	if (!rc && o->cuda)
		rc = en_cuda_memory(o->cuda->device, &b->out->device_free, &b->out->device_all,
				    err);
	rc = agree(b, rc, err);
	if (rc)
		return rc;
	rc = o->cuda ? en_zero_cuda_new(o->model, o->comm, &o->zero, &o->rule, o->cuda, &b->z,
					err) :
	     en_zero_cpu_new(o->model, o->comm, &o->zero, &o->rule, &b->z, err);
	rc = agree(b, rc, err);
	if (!rc)
		rc = en_zero_init(b->z, o->seed, err);
	return rc ? rc : en_zero_sync_params(b->z, err);
}

static int note_memory(struct bench *b, struct ckpt_err *err)
{
	struct en_bench *out = b->out;
	double peak[2];
	uint64_t left, all;
	int rc = 0;

	out->mem = *en_zero_mem(b->z);
	peak[0] = (double)en_bench_held(&out->mem, b->o->cuda != NULL);
	peak[1] = -peak[0];
	rc = most_of(b, peak, 2, err);
	out->peak_most = (uint64_t)peak[0];
	out->peak_least = (uint64_t)-peak[1];
	if (rc || !b->o->cuda)
		return rc;
	out->has_device = true;
	snprintf(out->device, sizeof(out->device), "%s", en_zero_cuda_text(b->z));
	rc = en_cuda_memory(b->o->cuda->device, &left, &all, err);
	out->device_used = left < out->device_free ? out->device_free - left : 0;
	return rc;
}

/* ---- timed steps ---- */

static int by_size(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

/* Between two of them if the part is between them. */
static double part_of(const double *v, uint32_t n, double part)
{
	const double at = part * (n - 1);
	const uint32_t i = (uint32_t)at;

	return i + 1 < n ? v[i] + (at - i) * (v[i + 1] - v[i]) : v[n - 1];
}

static int timed(struct bench *b, struct ckpt_err *err)
{
	const struct en_bench_opts *o = b->o;
	struct en_bench *out = b->out;
	struct en_comm_counter before[EN_COMM_KINDS];
	double since = ck_clock_seconds(), then;
	int rc = 0;

	memcpy(before, o->comm->counter, sizeof(before));
	for (uint32_t i = 0; !rc && i < o->steps; i++) {
		rc = step(b, err);
		then = ck_clock_seconds();
		b->seconds[i] = then - since;
		since = then;
	}
	for (int k = 0; k < EN_COMM_KINDS; k++)
		out->sent[k] = (o->comm->counter[k].sent - before[k].sent) / o->steps;
	if (!rc)
		rc = most_of(b, b->seconds, o->steps, err);
	if (rc)
		return rc;
	qsort(b->seconds, o->steps, sizeof(*b->seconds), by_size);
	out->step = (struct en_bench_times){
		.median = part_of(b->seconds, o->steps, 0.5), .least = b->seconds[0],
		.most = b->seconds[o->steps - 1], .low = part_of(b->seconds, o->steps, 0.25),
		.high = part_of(b->seconds, o->steps, 0.75),
	};
	out->tokens_per_s = (double)o->zero.micro_batches * o->zero.rows * o->zero.tokens /
			    out->step.median;
	out->loss = b->loss;
	return 0;
}

/* ---- traced steps ---- */

/*
 * More than a step has: about ten things a block and micro-batch, eight of each update; where the
 * host updates, three of each tile.
 */
static uint64_t spans_of_step(const struct en_bench_opts *o)
{
	const uint64_t n = o->model->nblocks + 4ull;
	const uint64_t tile = o->zero.off_tile ? o->zero.off_tile : EN_OFFLOADER_TILE;
	const uint64_t tiles = o->model->numel / o->comm->size / tile + 2 * n;

	return n * (12ull * o->zero.micro_batches + 10) + (o->zero.host_optimizer ? 3 * tiles : 0);
}

static int note_waits(struct bench *b, const struct en_trace *t, double seconds,
		      struct ckpt_err *err)
{
	double v[4] = { 0, 0, 0, seconds };
	struct en_bench *out = b->out;
	uint32_t n;
	const struct en_span *s = en_trace_spans(t, &n);
	int rc;

	for (uint32_t i = 0; i < n; i++)
		if (s[i].waits)
			v[!strncmp(s[i].what, "gather", 6) ? 0 :
			  !strcmp(s[i].what, "reduce") ? 1 : 2] += s[i].to - s[i].from;
	rc = most_of(b, v, 4, err);
	out->wait_gather = v[0] / out->traced;
	out->wait_reduce = v[1] / out->traced;
	out->wait_other = v[2] / out->traced;
	out->traced_step = v[3] / out->traced;
	out->lost = en_trace_lost(t);
	return rc;
}

static int traced(struct bench *b, struct en_trace **trace_out, struct ckpt_err *err)
{
	const uint64_t each = spans_of_step(b->o);
	struct en_trace *t = NULL;
	double since = 0;
	int rc;

	b->out->traced = (uint32_t)ck_min_u64(b->o->traced, ck_max_u64(1, MOST_SPANS / each));
	if (!b->o->traced)
		return 0;
	rc = en_trace_new(&t, (uint32_t)ck_min_u64(each * b->out->traced, MOST_SPANS), err);
	rc = agree(b, rc, err);
	/* all ranks' clocks begin together, as well as a barrier can */
	if (!rc)
		rc = en_comm_barrier(b->o->comm, NULL, err);
	if (!rc)
		rc = en_zero_trace(b->z, t, err);
	since = ck_clock_seconds();
	for (uint32_t i = 0; !rc && i < b->out->traced; i++)
		rc = step(b, err);
	if (!rc)
		rc = en_zero_trace(b->z, NULL, err);
	if (!rc)
		rc = note_waits(b, t, ck_clock_seconds() - since, err);
	if (rc || !trace_out) {
		/* the engine must not mark in what is gone */
		if (rc && b->z)
			en_zero_trace(b->z, NULL, NULL);
		en_trace_free(t);
	} else {
		*trace_out = t;
	}
	return rc;
}

int en_bench_run(const struct en_bench_opts *opts, struct en_bench *out,
		 struct en_trace **trace_out, struct ckpt_err *err)
{
	struct bench b = { .o = opts, .out = out };
	int rc;

	memset(out, 0, sizeof(*out));
	out->world = opts->comm->size;
	out->steps = opts->steps;
	out->zero = opts->zero;
	out->flop_per_token = en_bench_flop(opts->model, opts->zero.tokens);
	if (!opts->steps)
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET, "no steps to time");
	rc = begin(&b, err);
	for (uint32_t i = 0; !rc && i < opts->warmup; i++)
		rc = agree(&b, step(&b, err), err);
	if (!rc)
		rc = timed(&b, err);
	if (!rc)
		rc = note_memory(&b, err);
	if (!rc)
		rc = traced(&b, trace_out, err);
	en_zero_free(b.z);
	ck_free(b.ids);
	ck_free(b.starts);
	ck_free(b.bits);
	ck_free(b.seconds);
	return rc;
}
