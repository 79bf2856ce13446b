/* en_fingerprint.c -- see en_fingerprint.h. */
#include "engine/checkpoint/en_fingerprint.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/en_json.h"
#include "libckpt/base/ck_err.h"

#define NFIELDS 9
#define AS_DEEPSPEED 16		/* in the field of 'wire' */
#define LOCAL 32

static void list(const struct en_fingerprint *r, int64_t v[NFIELDS])
{
	const int64_t all[NFIELDS] = {
		r->world, (int64_t)r->accumulation, (int64_t)r->rows, (int64_t)r->tokens,
		r->precision, r->wire + (r->as_deepspeed ? AS_DEEPSPEED : 0) +
		(r->as_deepspeed && r->local ? LOCAL : 0), r->rule, r->token_mean,
		r->cuda + 2 * (r->cuda && r->tree),
	};

	memcpy(v, all, sizeof(all));
}

/* A list of numbers in a text: what a client's key may hold in every format. */
int en_fingerprint_add(const struct en_fingerprint *r, struct ck_buf *buf, struct ckpt_err *err)
{
	char text[32 * NFIELDS] = "\"" EN_FINGERPRINT_KEY "\": \"[";
	size_t n = strlen(text);
	int64_t v[NFIELDS];

	list(r, v);
	for (int i = 0; i < NFIELDS; i++)
		n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%" PRId64, i ? ", " : "",
				      v[i]);
	snprintf(text + n, sizeof(text) - n, "]\"");
	return ck_buf_adds(buf, text, err);
}

static bool parse(struct en_fingerprint *r, const char *p, uint64_t len)
{
	char text[32 * NFIELDS], *at = text;
	int64_t v[NFIELDS];

	if (!len || len >= sizeof(text))
		return false;
	memcpy(text, p, len);
	text[len] = 0;
	for (int i = 0; i < NFIELDS; i++) {
		if (*at++ != (i ? ',' : '['))
			return false;
		errno = 0;
		v[i] = strtoll(at, &at, 10);
		if (errno || v[i] < 0)
			return false;
	}
	if (strcmp(at, "]") != 0)
		return false;
	if (v[0] < 1 || v[0] > UINT32_MAX || v[1] < 1 || v[1] > INT32_MAX)
		return false;
	*r = (struct en_fingerprint){
		.world = (uint32_t)v[0], .accumulation = (uint64_t)v[1], .rows = (uint64_t)v[2],
		.tokens = (uint64_t)v[3], .precision = v[4], .wire = v[5] % AS_DEEPSPEED,
		.rule = v[6], .as_deepspeed = v[5] & AS_DEEPSPEED, .local = v[5] & LOCAL,
		.token_mean = v[7] != 0, .cuda = v[8] & 1, .tree = v[8] == 3,
	};
	return true;
}

bool en_fingerprint_read(struct en_fingerprint *r, struct ckpt_values *values)
{
	struct ckpt_value text;

	return !ckpt_value_get(values, EN_FINGERPRINT_KEY, &text, NULL) &&
	       text.kind == CKPT_VALUE_STRING && parse(r, text.bytes, text.n);
}

static bool is_power(uint32_t n)
{
	return !(n & (n - 1));
}

/* Of two numbers that may be as large as they like: the product for people. */
static uint64_t micro_batches(const struct en_fingerprint *r)
{
	return r->world * r->accumulation;
}

/* Why another order of sums, or other sums, NULL if neither. */
static const char *difference(const struct en_fingerprint *a, const struct en_fingerprint *b)
{
	if (micro_batches(a) != micro_batches(b))
		return "ranks x accumulation differs";
	if (a->rows != b->rows)
		return "the micro-batch differs";
	if (a->tokens != b->tokens)
		return "the row length differs";
	if (a->precision != b->precision || a->wire != b->wire)
		return "the precision differs";
	if (a->as_deepspeed != b->as_deepspeed)
		return "only one run sums fp16 gradients as DeepSpeed does (--overflow)";
	if (a->as_deepspeed && (a->world != b->world || a->local != b->local))
		return "with --overflow deepspeed, fp16 sums depend on ranks and stage";
	if (a->rule != b->rule)
		return "the optimizer's order of operations differs";
	if (a->token_mean != b->token_mean)
		return "--loss differs";
	if (a->cuda != b->cuda)
		return "one run is on GPUs, the other on CPUs";
	if (a->cuda && !(a->tree && b->tree))
		return "without --reduction tree, GPUs sum in any order";
	if (!is_power(a->world) && a->world != b->world)
		return "the earlier number of ranks is not a power of two";
	if (!is_power(b->world) && a->world != b->world)
		return "the number of ranks is not a power of two";
	return NULL;
}

static bool say_beginning(const struct en_fingerprint *r, char text[EN_FINGERPRINT_TEXT])
{
	size_t n;

	if (r->as_deepspeed) {
		snprintf(text, EN_FINGERPRINT_TEXT,
			 "bits: fp16 gradients are divided and summed as in DeepSpeed (--overflow "
			 "deepspeed): bits and skipped steps depend on the number of ranks");
		return false;
	}
	if (r->cuda && !r->tree) {
		snprintf(text, EN_FINGERPRINT_TEXT,
			 "bits: GPUs sum in any order, so runs are equal within rounding "
			 "(--reduction tree: bit-identical)");
		return false;
	}
	if (!is_power(r->world)) {
		snprintf(text, EN_FINGERPRINT_TEXT,
			 "bits: %" PRIu32 " ranks is not a power of two: other numbers of ranks "
					  "give the same results within rounding only",
			 r->world);
		return false;
	}
	n = (size_t)snprintf(text, EN_FINGERPRINT_TEXT,
			     "bits: %" PRIu32 " x %" PRIu64 " = %" PRIu64
			     " micro-batch%s of %" PRIu64
			     " row%s in a step, summed as one tree: bit-identical on",
			     r->world, r->accumulation, micro_batches(r),
			     micro_batches(r) == 1 ? "" : "es", r->rows, r->rows == 1 ? "" : "s");
	for (uint64_t w = 1; w <= 1024 && w <= micro_batches(r); w *= 2)
		if (micro_batches(r) % w == 0 && n < EN_FINGERPRINT_TEXT)
			n += (size_t)snprintf(text + n, EN_FINGERPRINT_TEXT - n, "%s %" PRIu64,
					      w == 1 ? "" : ",", w);
	if (n < EN_FINGERPRINT_TEXT)
		snprintf(text + n, EN_FINGERPRINT_TEXT - n,
			 " rank%s with as many micro-batches, at every stage, on %s of one kind",
			 micro_batches(r) == 1 ? "" : "s", r->cuda ? "GPUs" : "processors");
	return true;
}

bool en_fingerprint_same_bits(const struct en_fingerprint *now, const struct en_fingerprint *before,
			      char text[EN_FINGERPRINT_TEXT])
{
	const char *why;

	if (!before)
		return say_beginning(now, text);
	why = difference(before, now);
	snprintf(text, EN_FINGERPRINT_TEXT,
		 "bits: %s %" PRIu32 " rank%s x %" PRIu64 " micro-batch%s of %" PRIu64 " row%s%s%s",
		 why ? "resumed state is bit-identical; later steps equal within rounding "
		       "those of" :
		       "bit-identical, as if the run of",
		 before->world, before->world == 1 ? "" : "s", before->accumulation,
		 before->accumulation == 1 ? "" : "es", before->rows, before->rows == 1 ? "" : "s",
		 why ? ": " : " had not stopped", why ? why : "");
	return !why;
}
