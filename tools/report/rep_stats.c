/*
 * rep_stats.c -- statistics of the elements of each state, and a histogram.
 *
 * A sample of a state with more than REPORT_PER_STATE elements is SPANS runs of neighbours, one in
 * each of as many equal parts of the state, at a place that the seed and the name determine.  The
 * weights of all tensors come first, then the other states, so that the limits cost the latter.
 *
 * Ranges of many states are loaded by one ckpt_load(), which reads neighbours together; a range
 * that fails is loaded again alone, so that only its own state is left out.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "rep_data.h"
#include "rep_sample.h"

#define SPANS 8
#define ASKS 1024
#define BUFFER ((size_t)4 << 20)	/* bytes of the ranges of one load */
#define CHUNK 4096			/* elements that are doubles at once */

/* A range of a state. */
struct ask {
	uint64_t tensor, numel;
	const char *name, *state;	/* lent by the checkpoint */
	enum ckpt_dtype dtype;		/* as stored */
	int begins, ends;		/* the first and last range of the state */
};

struct stats {
	struct rep *rep;
	struct sample sample;
	struct ask ask[ASKS];
	struct ckpt_load_range range[ASKS];
	size_t n, used;			/* asks, and bytes of the buffer */
	char *buffer;
	double number[CHUNK];
	double began;
	struct ckpt_run_opts run;	/* of the loads, which report no progress of their own */
	struct ckpt_progress progress;
	uint64_t states, done, failed;	/* states: that there are */
	int late, state_failed;
	char why[600];			/* of the first that could not be read */
};

static uint64_t mix(uint64_t n)
{
	n = (n ^ (n >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);	/* splitmix64 */
	n = (n ^ (n >> 27)) * UINT64_C(0x94d049bb133111eb);
	return n ^ (n >> 31);
}

static uint64_t seed_of(uint64_t seed, const char *name, const char *state)
{
	uint64_t h = mix(seed + UINT64_C(0x9e3779b97f4a7c15));

	for (; *name; name++)
		h = mix(h ^ (unsigned char)*name);
	for (; *state; state++)
		h = mix(h ^ (unsigned char)*state);
	return h;
}

static void put_row(struct stats *s, const struct ask *ask)
{
	const struct sample *m = &s->sample;
	FILE *out = s->rep->json->out;
	uint64_t bins[REPORT_BINS];

	fprintf(out, "%s[%" PRIu64 ",", s->done ? "," : "", ask->tensor);
	json_quote(out, ask->state);
	fprintf(out, ",%" PRIu64 ",%" PRIu64 ",", m->seen, ask->numel);
	if (m->finite) {
		const double real[] = { m->min, m->max, m->mean, sample_std(m) };

		for (unsigned r = 0; r < 4; r++) {
			rep_real(out, real[r]);
			fputc(',', out);
		}
	} else {
		fputs("null,null,null,null,", out);
	}
	fprintf(out, "%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",[", m->zeros, m->nans, m->infs);
	sample_bins(m, bins);
	for (unsigned b = 0; b < REPORT_BINS && m->finite; b++)
		fprintf(out, "%s%" PRIu64, b ? "," : "", bins[b]);
	fputs("]]", out);
	s->done++;
}

/* ---------------------------------------------------------------- loading */

static size_t size_read(enum ckpt_dtype dtype)
{
	const enum ckpt_dtype as = rep_read_as(dtype);

	return ckpt_dtype_bits(as ? as : dtype) / 8;
}

/* The elements of a range that was loaded; after the last one of its state, the row. */
static void take_range(struct stats *s, size_t a)
{
	const struct ckpt_load_range *r = &s->range[a];
	const size_t size = size_read(s->ask[a].dtype);

	for (uint64_t at = 0; at < r->count && !s->state_failed; at += CHUNK) {
		const size_t n = (size_t)(r->count - at < CHUNK ? r->count - at : CHUNK);

		rep_numbers_of(s->ask[a].dtype, (const char *)r->dst + at * size, n, s->number);
		sample_add(&s->sample, s->number, n);
	}
	if (s->ask[a].ends && !s->state_failed)
		put_row(s, &s->ask[a]);
}

static void set_failed(struct stats *s, const struct ask *ask, const struct ckpt_err *err)
{
	if (!s->state_failed && !s->failed++)
		snprintf(s->why, sizeof(s->why), "%s, %s: %s", ask->name, ask->state, err->msg);
	s->state_failed = 1;
}

static void load_all(struct stats *s)
{
	struct ckpt_load_opts opts = { .size = sizeof(opts), .run = &s->run,
				       .flags = CKPT_LOAD_DESPITE_FINDINGS };
	const int alone = s->n && ckpt_load(s->rep->ck, s->range, s->n, &opts, NULL, NULL);

	for (size_t a = 0; a < s->n; a++) {
		struct ckpt_err err = { 0 };

		if (s->ask[a].begins) {
			sample_begin(&s->sample);
			s->state_failed = 0;
		}
		if (alone && !s->state_failed &&
		    ckpt_load(s->rep->ck, &s->range[a], 1, &opts, NULL, &err) &&
		    err.code != CKPT_E_CANCELED)
			set_failed(s, &s->ask[a], &err);
		take_range(s, a);
	}
	s->progress.done_bytes += s->used;
	if (s->rep->opts->run && s->rep->opts->run->progress && s->progress.total_bytes)
		s->rep->opts->run->progress(s->rep->opts->run->progress_arg, &s->progress);
	s->n = s->used = 0;
}

/* Asks for a range, in as many pieces as the buffer wants. */
static void ask_range(struct stats *s, const struct ask *ask, uint64_t first, uint64_t count)
{
	const size_t size = size_read(ask->dtype);
	const uint64_t all = count;

	while (count) {
		uint64_t n = (BUFFER - s->used) / size;

		if (s->n == ASKS || (n < count && n < CHUNK)) {
			load_all(s);
			continue;
		}
		n = n < count ? n : count;
		s->ask[s->n] = *ask;
		s->ask[s->n].begins = ask->begins && count == all;
		s->ask[s->n].ends = ask->ends && n == count;
		s->range[s->n] = (struct ckpt_load_range){
			.tensor = ask->tensor, .state = ask->state, .first = first, .count = n,
			.dtype = rep_read_as(ask->dtype), .dst = s->buffer + s->used };
		s->n++;
		s->used += (size_t)n * size;
		first += n;
		count -= n;
	}
}

/* All elements, or of each of SPANS parts as many as fit, at a random place. */
static void add_state(struct stats *s, uint64_t i, const struct ckpt_tensor_info *t,
		      const struct ckpt_state_info *state)
{
	const struct report_opts *opts = s->rep->opts;
	const uint64_t span = REPORT_PER_STATE / SPANS, part = t->numel / SPANS;
	uint64_t seed = seed_of(opts->seed, t->name, state->name);
	struct ask ask = { i, t->numel, t->name, state->name, state->dtype, 1, 1 };

	if (opts->stats == REPORT_ALL || t->numel <= REPORT_PER_STATE) {
		ask_range(s, &ask, 0, t->numel);
		return;
	}
	for (uint64_t p = 0; p < SPANS; p++) {
		seed = mix(seed + UINT64_C(0x9e3779b97f4a7c15));
		ask.begins = !p;
		ask.ends = p + 1 == SPANS;
		ask_range(s, &ask, p * part + seed % (part - span + 1), span);
	}
}

/* The one that 'weights' are: of a tensor without that state its first one. */
static uint32_t main_state(const struct ckpt *ck, uint64_t i)
{
	uint32_t k;

	return ckpt_state_find(ck, i, "weight", &k, NULL) ? 0 : k;
}

static int is_over(struct stats *s)
{
	const struct report_opts *opts = s->rep->opts;

	if (opts->stats == REPORT_SAMPLE &&
	    (s->states > REPORT_STATES || progress_clock() - s->began > REPORT_SECONDS))
		s->late = 1;
	return s->late || (opts->run && opts->run->cancel && *opts->run->cancel);
}

static void add_tensor(struct stats *s, uint64_t i, const struct ckpt_tensor_info *t, int weights)
{
	const uint32_t kept = main_state(s->rep->ck, i);
	struct ckpt_state_info state;

	for (uint32_t k = 0; k < t->nstates; k++) {
		if ((k == kept) != weights || ckpt_state_get(s->rep->ck, i, k, &state, NULL) ||
		    !rep_is_number(state.dtype) || !t->numel)
			continue;
		s->states++;
		if (!is_over(s))
			add_state(s, i, t, &state);
	}
}

/* The bytes that --stats all reads. */
static uint64_t bytes_of_all(struct ckpt *ck)
{
	struct ckpt_tensor_info t;
	struct ckpt_state_info state;
	uint64_t bytes = 0;

	for (uint64_t i = 0; !ckpt_tensor_get(ck, i, &t, NULL); i++)
		for (uint32_t k = 0; k < t.nstates; k++)
			if (!ckpt_state_get(ck, i, k, &state, NULL) && rep_is_number(state.dtype))
				bytes += t.numel * size_read(state.dtype);
	return bytes;
}

static void put_columns(struct json *json)
{
	static const char *const names[] = { "tensor", "state", "seen", "elements", "min", "max",
					     "mean", "std", "zeros", "nan", "inf", "histogram" };

	json_open(json, "columns", '[');
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		json_text(json, NULL, names[i]);
	json_close(json, ']');
}

static void put_all(struct stats *s)
{
	static const char *const modes[] = { "sample", "all", "none" };
	const struct report_opts *opts = s->rep->opts;
	struct json *json = s->rep->json;
	struct ckpt_tensor_info t;

	json_open(json, "stats", '{');
	json_text(json, "mode", modes[opts->stats]);
	json_uint(json, "seed", opts->seed);
	json_uint(json, "per_state", REPORT_PER_STATE);
	put_columns(json);
	json_open(json, "rows", '[');
	for (int weights = 1; weights >= 0 && opts->stats != REPORT_NONE; weights--)
		for (uint64_t i = 0; !ckpt_tensor_get(s->rep->ck, i, &t, NULL); i++)
			if (t.role != CKPT_ROLE_ALIAS)
				add_tensor(s, i, &t, weights);
	load_all(s);
	json_close(json, ']');
	json_uint(json, "states", s->states);
	json_uint(json, "done", s->done);
	json_uint(json, "failed", s->failed);
	json_text(json, "failed_why", s->why);
	json_bool(json, "late", s->late);
	json_close(json, '}');
}

int rep_stats(struct rep *rep)
{
	struct stats *s = cli_alloc(sizeof(*s));
	const volatile int *cancel = rep->opts->run ? rep->opts->run->cancel : NULL;

	s->rep = rep;
	s->began = progress_clock();
	s->run.size = sizeof(s->run);
	if (rep->opts->run)
		s->run = *rep->opts->run;
	s->run.progress = NULL;
	if (rep->opts->stats == REPORT_ALL)
		s->progress.total_bytes = bytes_of_all(rep->ck);
	s->sample.kept = cli_alloc(SAMPLE_KEPT * sizeof(double));
	s->buffer = cli_alloc(BUFFER);
	put_all(s);
	cli_free(s->buffer);
	cli_free(s->sample.kept);
	cli_free(s);
	if (!cancel || !*cancel)
		return 0;
	*rep->err = (struct ckpt_err){ .code = CKPT_E_CANCELED, .offset = CKPT_NO_OFFSET };
	snprintf(rep->err->msg, sizeof(rep->err->msg), "stopped before the page was complete");
	return -CKPT_E_CANCELED;
}
