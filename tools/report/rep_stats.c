/*
 * rep_stats.c -- statistics of the elements of each state, and a histogram.
 *
 * A sample of a state with more than REPORT_PER_STATE elements is SPANS runs of neighbours, one in
 * each of as many equal parts of the state, at a place that the seed and the name determine.  Runs
 * cost one read each.  The weights of all tensors come first, then the other states, so that the
 * time limit costs the latter.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "rep_data.h"
#include "rep_sample.h"

#define SPANS 8
#define CHUNK 65536	/* elements of a read, of --stats all */

struct stats {
	struct rep *rep;
	struct sample sample;
	double *number;		/* CHUNK */
	void *bytes;		/* of as many of the largest type */
	double began;
	uint64_t states, done, failed;	/* states: that there are */
	int late;
	char why[600];		/* of the first that could not be read */
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

static int add_range(struct stats *s, uint64_t i, uint32_t k, enum ckpt_dtype dtype,
		     uint64_t first, uint64_t count, struct ckpt_err *err)
{
	const enum ckpt_dtype as = rep_read_as(dtype);
	const size_t size = ckpt_dtype_bits(as ? as : dtype) / 8;
	int rc = 0;

	while (count && !rc) {
		const uint64_t n = count < CHUNK ? count : CHUNK;

		rc = ckpt_read(s->rep->ck, i, k, first, n, as, s->bytes, (size_t)n * size, err);
		if (!rc) {
			rep_numbers_of(dtype, s->bytes, (size_t)n, s->number);
			sample_add(&s->sample, s->number, (size_t)n);
		}
		first += n;
		count -= n;
	}
	return rc;
}

/* All elements, or of each of SPANS parts as many as fit, at a random place. */
static int read_state(struct stats *s, uint64_t i, uint32_t k, const struct ckpt_tensor_info *t,
		      const struct ckpt_state_info *state, struct ckpt_err *err)
{
	const struct report_opts *opts = s->rep->opts;
	const uint64_t span = REPORT_PER_STATE / SPANS, part = t->numel / SPANS;
	uint64_t seed = seed_of(opts->seed, t->name, state->name);
	int rc = 0;

	sample_begin(&s->sample);
	if (opts->stats == REPORT_ALL || t->numel <= REPORT_PER_STATE)
		return add_range(s, i, k, state->dtype, 0, t->numel, err);
	for (uint64_t p = 0; p < SPANS && !rc; p++) {
		seed = mix(seed + UINT64_C(0x9e3779b97f4a7c15));
		rc = add_range(s, i, k, state->dtype, p * part + seed % (part - span + 1), span,
			       err);
	}
	return rc;
}

static void put_row(struct stats *s, uint64_t i, const struct ckpt_tensor_info *t,
		    const struct ckpt_state_info *state)
{
	const struct sample *m = &s->sample;
	FILE *out = s->rep->json->out;
	uint64_t bins[REPORT_BINS];

	fprintf(out, "%s[%" PRIu64 ",", s->done ? "," : "", i);
	json_quote(out, state->name);
	fprintf(out, ",%" PRIu64 ",%" PRIu64 ",", m->seen, t->numel);
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

static void add_state(struct stats *s, uint64_t i, uint32_t k, const struct ckpt_tensor_info *t,
		      const struct ckpt_state_info *state)
{
	struct ckpt_err err = { 0 };

	if (read_state(s, i, k, t, state, &err)) {
		if (!s->failed++)
			snprintf(s->why, sizeof(s->why), "%s, %s: %s", t->name, state->name,
				 err.msg);
	} else {
		put_row(s, i, t, state);
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

	if (opts->stats == REPORT_SAMPLE && progress_clock() - s->began > REPORT_SECONDS)
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
			add_state(s, i, k, t, &state);
	}
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
	struct stats s = { .rep = rep, .began = progress_clock() };
	const volatile int *cancel = rep->opts->run ? rep->opts->run->cancel : NULL;

	s.sample.kept = cli_alloc(SAMPLE_KEPT * sizeof(double));
	s.number = cli_alloc(CHUNK * sizeof(double));
	s.bytes = cli_alloc(CHUNK * sizeof(double));
	put_all(&s);
	cli_free(s.bytes);
	cli_free(s.number);
	cli_free(s.sample.kept);
	if (!cancel || !*cancel)
		return 0;
	*rep->err = (struct ckpt_err){ .code = CKPT_E_CANCELED, .offset = CKPT_NO_OFFSET };
	snprintf(rep->err->msg, sizeof(rep->err->msg), "stopped before the page was complete");
	return -CKPT_E_CANCELED;
}
