/* ck_diff_scalar.c -- steps, hyper-parameters, loss scale and counters of two checkpoints. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_map.h"
#include "libckpt/compare/ck_diff.h"

/* What a state is cut into and by whom it was written is not the state. */
static bool is_layout(const char *key)
{
	static const char *const keys[] = {
		"dp_world_size", "ds_version", "train_micro_batch_size_per_gpu",
		"gradient_accumulation_steps", "universal", "layout",
	};

	for (size_t i = 0; i < CK_ARRAY_LEN(keys); i++)
		if (!strcmp(key, keys[i]))
			return true;
	return !strncmp(key, "metadata.", 9);
}

static bool number(const char *text, double *out)
{
	char *end;

	*out = strtod(text, &end);
	return end != text && !*end;
}

/* Equal as text or as numbers: formats need not write them alike. */
static bool is_same(const struct ck_diff *d, const char *a, const char *b)
{
	double x, y, allowed = 0;

	if (!strcmp(a, b))
		return true;
	if (!number(a, &x) || !number(b, &y))
		return false;
	if (d->opts->flags & CKPT_DIFF_TOLERANCE)
		allowed = d->opts->abs_tolerance +
			  d->opts->rel_tolerance * fmax(fabs(x), fabs(y));
	return x == y || fabs(x - y) <= allowed;
}

/* BF16_Optimizer has no loss scale, which is one of 1. */
static bool is_no_scale(const struct ckpt_diff_scalar *s)
{
	double v;

	return !strcmp(s->key, "loss_scale") && number(s->a ? s->a : s->b, &v) && v == 1;
}

static bool counts(const struct ck_diff *d, const struct ckpt_diff_scalar *s)
{
	if (is_layout(s->key))
		return false;
	if (!s->a || !s->b)
		return d->a->ix.ngroups && d->b->ix.ngroups && !is_no_scale(s);
	return !is_same(d, s->a, s->b);
}

int ck_diff_scalars(struct ck_diff *d, struct ckpt_diff_scalar **list_out, uint64_t *n_out,
		    struct ckpt_err *err)
{
	const struct ck_index *a = &d->a->ix, *b = &d->b->ix;
	struct ckpt_diff_scalar *list =
		ck_arena_alloc(d->arena, (a->nfacts + b->nfacts) * sizeof(*list));
	struct ck_map map = CK_MAP_INIT;
	uint64_t n = 0, at;
	int rc = list ? 0 : ck_fail_nomem(err, "scalars", a->nfacts + b->nfacts);

	for (uint64_t i = 0; rc >= 0 && i < a->nfacts; i++) {
		const struct ck_fact *f = &a->fact[i];

		rc = ck_map_add(&map, f->key, strlen(f->key), n, NULL, err);
		if (!rc)
			list[n++] = (struct ckpt_diff_scalar){ .key = f->key, .a = f->value };
	}
	for (uint64_t i = 0; rc >= 0 && i < b->nfacts; i++) {
		const struct ck_fact *f = &b->fact[i];

		rc = ck_map_add(&map, f->key, strlen(f->key), n, &at, err);
		if (!rc)
			list[n++] = (struct ckpt_diff_scalar){ .key = f->key, .b = f->value };
		else if (rc > 0 && !list[at].b)
			list[at].b = f->value;
	}
	for (uint64_t i = 0; rc >= 0 && i < n; i++)
		list[i].differs = counts(d, &list[i]);
	ck_map_release(&map);
	if (rc < 0)
		return rc;
	*list_out = list;
	*n_out = n;
	return 0;
}
