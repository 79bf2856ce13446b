/*
 * ck_slice.c -- see ck_slice.h.
 *
 * A range start:stop:step follows Python: negative numbers count from the end, what lies outside is
 * cut off, and with a negative step the default is from the last element to the first.
 */
#include "libckpt/select/ck_slice.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/tensor/ck_dtype.h"

struct cut {
	uint64_t start, count;
	int64_t step;
	bool keeps;		/* the dimension: a range does, an index does not */
};

struct slicing {
	const char *at, *text, *where;
	const uint64_t *shape;
	uint32_t ndim;
	struct cut cut[CK_SLICE_DIMS];
	uint32_t ncuts;
};

static int fail_syntax(const struct slicing *s, struct ckpt_err *err)
{
	return ck_fail(err, CKPT_E_USAGE, s->where, CKPT_NO_OFFSET,
		       "[%.80s] is not a slice, at \"%.20s\"; write it as in Python: 0:2, 3, "
		       "::-1, ...", s->text, s->at);
}

static void skip_blanks(struct slicing *s)
{
	s->at += strspn(s->at, " \t");
}

/* A number, if one stands here; 1 if so. */
static int take_number(struct slicing *s, int64_t *out, struct ckpt_err *err)
{
	bool negative;
	uint64_t v = 0;

	skip_blanks(s);
	negative = *s->at == '-';
	if (!negative && (*s->at < '0' || *s->at > '9'))
		return 0;
	s->at += negative;
	if (*s->at < '0' || *s->at > '9')
		return fail_syntax(s, err);
	for (; *s->at >= '0' && *s->at <= '9'; s->at++)
		if (ck_mul_over(v, 10, &v) || ck_add_over(v, (uint64_t)(*s->at - '0'), &v) ||
		    v > INT64_MAX)
			return fail_syntax(s, err);
	*out = negative ? -(int64_t)v : (int64_t)v;
	skip_blanks(s);
	return 1;
}

/* A place from the end, and cut to [least, most]. */
static int64_t clamp_place(int64_t v, int64_t n, int64_t least, int64_t most)
{
	if (v < 0)
		v += n;
	return v < least ? least : v > most ? most : v;
}

static void make_range(struct cut *c, uint64_t dim, const bool given[3], const int64_t v[3])
{
	const int64_t n = (int64_t)dim, step = given[2] ? v[2] : 1;
	int64_t start, stop;

	if (step > 0) {
		start = given[0] ? clamp_place(v[0], n, 0, n) : 0;
		stop = given[1] ? clamp_place(v[1], n, 0, n) : n;
	} else {
		start = given[0] ? clamp_place(v[0], n, -1, n - 1) : n - 1;
		stop = given[1] ? clamp_place(v[1], n, -1, n - 1) : -1;
	}
	*c = (struct cut){ .step = step, .keeps = true };
	if (step > 0 && start < stop)
		c->count = (uint64_t)(stop - start - 1) / (uint64_t)step + 1;
	else if (step < 0 && start > stop)
		c->count = (uint64_t)(start - stop - 1) / ((uint64_t)-(step + 1) + 1) + 1;
	if (c->count)
		c->start = (uint64_t)start;
	if (c->count < 2)
		c->step = 1;
}

/* One place between commas. */
static int take_cut(struct slicing *s, uint64_t dim, struct ckpt_err *err)
{
	struct cut *c = &s->cut[s->ncuts];
	bool given[3] = { false, false, false };
	int64_t v[3] = { 0, 0, 1 };
	int colons = 0, rc;

	for (int i = 0; i < 3; i++) {
		rc = take_number(s, &v[i], err);
		if (rc < 0)
			return rc;
		given[i] = rc;
		if (i == 2 || *s->at != ':')
			break;
		s->at++;
		colons++;
	}
	if (!colons && !given[0])
		return fail_syntax(s, err);
	if (given[2] && !v[2])
		return ck_fail(err, CKPT_E_USAGE, s->where, CKPT_NO_OFFSET,
			       "the step of a slice cannot be 0");
	s->ncuts++;
	if (colons) {
		make_range(c, dim, given, v);
		return 0;
	}
	if (v[0] >= (int64_t)dim || v[0] < -(int64_t)dim)
		return ck_fail(err, CKPT_E_USAGE, s->where, CKPT_NO_OFFSET,
			       "index %" PRId64 " is outside dimension %u, which has %" PRIu64,
			       v[0], s->ncuts - 1, dim);
	*c = (struct cut){
		.start = (uint64_t)(v[0] < 0 ? v[0] + (int64_t)dim : v[0]), .count = 1, .step = 1,
	};
	return 0;
}

static void take_whole(struct slicing *s)
{
	s->cut[s->ncuts] = (struct cut){ .count = s->shape[s->ncuts], .step = 1, .keeps = true };
	s->ncuts++;
}

/* How many places follow this one. */
static uint32_t places_left(const char *at)
{
	uint32_t n = 0;

	at += strspn(at, " \t");
	if (*at == ',')
		at++;
	at += strspn(at, " \t");
	if (!*at)
		return 0;
	for (n = 1; *at; at++)
		if (*at == ',' && at[1 + strspn(at + 1, " \t")])
			n++;
	return n;
}

static int take_cuts(struct slicing *s, struct ckpt_err *err)
{
	bool dots = false;
	int rc;

	for (skip_blanks(s); *s->at;) {
		if (!strncmp(s->at, "...", 3) && !dots) {
			dots = true;
			s->at += 3;
			for (uint32_t after = places_left(s->at); s->ncuts + after < s->ndim;)
				take_whole(s);
		} else if (s->ncuts == s->ndim) {
			return ck_fail(err, CKPT_E_USAGE, s->where, CKPT_NO_OFFSET,
				       "the slice [%.80s] has more indices than the tensor has "
				       "dimensions, %u", s->text, s->ndim);
		} else {
			rc = take_cut(s, s->shape[s->ncuts], err);
			if (rc)
				return rc;
		}
		skip_blanks(s);
		if (!*s->at)
			break;
		if (*s->at != ',')
			return fail_syntax(s, err);
		s->at++;
		skip_blanks(s);
	}
	while (s->ncuts < s->ndim)
		take_whole(s);
	return 0;
}

/* Dimensions of one element go into 'first'; neighbours that go on evenly become one. */
static void lay_out(const struct slicing *s, struct ck_slice *out)
{
	uint64_t pitch = 1;
	uint32_t n = 0;

	for (uint32_t i = s->ndim; i--;) {
		const struct cut *c = &s->cut[i];
		const int64_t stride = (int64_t)pitch * c->step;

		out->first += c->start * pitch;
		pitch *= s->shape[i];
		if (c->count == 1)
			continue;
		if (n && stride == out->stride[n - 1] * (int64_t)out->count[n - 1]) {
			out->count[n - 1] *= c->count;
			continue;
		}
		out->count[n] = c->count;
		out->stride[n++] = stride;
	}
	out->nsteps = n;
	/* they were met from the last on */
	for (uint32_t i = 0; i < n / 2; i++) {
		const uint64_t count = out->count[i];
		const int64_t stride = out->stride[i];

		out->count[i] = out->count[n - 1 - i];
		out->stride[i] = out->stride[n - 1 - i];
		out->count[n - 1 - i] = count;
		out->stride[n - 1 - i] = stride;
	}
}

int ck_slice_parse(const char *text, const uint64_t *shape, uint32_t ndim, const char *where,
		   struct ck_slice *out, struct ckpt_err *err)
{
	struct slicing s = {
		.at = text ? text : "", .text = text ? text : "", .where = where, .shape = shape,
		.ndim = ndim,
	};
	struct ck_slice made = { .numel = 1 };
	int rc;

	if (ndim > CK_SLICE_DIMS)
		return ck_fail(err, CKPT_E_LIMIT, where, CKPT_NO_OFFSET,
			       "the tensor has %u dimensions, but a slice can have at most %u",
			       ndim,
			       (unsigned)CK_SLICE_DIMS);
	rc = take_cuts(&s, err);
	if (rc)
		return rc;
	for (uint32_t i = 0; i < ndim; i++) {
		made.numel *= s.cut[i].count;
		if (s.cut[i].keeps)
			made.shape[made.ndim++] = s.cut[i].count;
	}
	if (made.numel)
		lay_out(&s, &made);
	*out = made;
	return 0;
}
