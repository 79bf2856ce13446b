/* Checks of a fixture's truth against its case.json, and the table of traits. */
#define _GNU_SOURCE
#include "tests/lib/t_self.h"
#include "tests/lib/t_cast.h"
#include "tests/lib/t_dir.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int shape_is(const struct t_st_tensor *t, int ndim, const int64_t *shape)
{
	return t->ndim == ndim &&
	       !memcmp(t->shape, shape, (size_t)ndim * sizeof(*shape));
}

static void check_entry(const struct t_case *c, const struct t_st_tensor *t,
			const char *label, struct t_report *r)
{
	char *name;
	const char *state = t_split(t->name, &name);
	const struct t_param *p = t_case_param(c, name);
	const struct t_buffer *b = t_case_buffer(c, name);

	if (!strcmp(state, "buffer")) {
		if (!b || !shape_is(t, b->ndim, b->shape))
			t_say(r, "%s: no buffer in case.json fits %s %s", label,
			      t->name, t_st_say(t));
	} else if (!p || !shape_is(t, p->ndim, p->shape)) {
		t_say(r, "%s: no parameter in case.json fits %s %s", label,
		      t->name, t_st_say(t));
	} else if (!p->requires_grad && strcmp(state, "weight")) {
		t_say(r, "%s: %s, but the parameter is frozen", label, t->name);
	}
	free(name);
}

/* Each parameter has a weight; each trained one a master that rounds to it. */
static void check_param(const struct t_case *c, const struct t_param *p,
			const struct t_st *truth, const char *label,
			struct t_report *r)
{
	const struct t_st_tensor *w = t_truth(truth, p->name, "weight");
	const struct t_st_tensor *m = t_truth(truth, p->name, "master");
	uint8_t *cast;

	if (!w) {
		t_say(r, "%s: %s has no weight", label, p->name);
		return;
	}
	if (p->requires_grad && !m)
		t_say(r, "%s: %s is trained and has no master", label, p->name);
	if (!m)
		return;
	cast = t_cast(m, w->dtype);
	if (!cast || !t_same(cast, w->data, w->dtype, w->count))
		t_say(r, "%s: the master of %s does not round to its weight",
		      label, p->name);
	else
		r->equal++;
	free(cast);
	(void)c;
}

static void check_tied(const struct t_case *c, const struct t_st *truth,
		       const char *label, struct t_report *r)
{
	for (size_t i = 0; i < c->n_tied; i++) {
		int n = 0;

		for (char **s = c->tied[i]; *s; s++)
			n += t_truth(truth, *s, "weight") != NULL;
		if (n != 1)
			t_say(r, "%s: %d of the names tied to %s are in the truth",
			      label, n, c->tied[i][0]);
	}
}

static void check_missing(const struct t_case *c, const struct t_st *truth,
			  const char *label, struct t_report *r)
{
	for (size_t i = 0; c->missing[i]; i++) {
		const char *key = c->missing[i];
		int n = t_st_find(truth, key) != NULL;

		for (size_t k = 0; k < truth->n_tensors && key[0] == '*'; k++)
			n += t_ends_with(truth->tensors[k].name, key + 1);
		if (!n)
			t_say(r, "%s: not_in_checkpoint lists %s, which the truth "
			      "has not", label, key);
	}
}

void t_self_check(const struct t_case *c, const struct t_st *truth,
		  const char *label, struct t_report *r)
{
	for (size_t i = 0; i < truth->n_tensors; i++)
		check_entry(c, &truth->tensors[i], label, r);
	for (size_t i = 0; i < c->n_params; i++)
		check_param(c, &c->params[i], truth, label, r);
	for (size_t i = 0; i < c->n_buffers; i++)
		if (!t_truth(truth, c->buffers[i].name, "buffer"))
			t_say(r, "%s: buffer %s is not in the truth", label,
			      c->buffers[i].name);
	check_tied(c, truth, label, r);
	check_missing(c, truth, label, r);
}

static struct {
	char *name;
	long n;
} traits[200];
static size_t n_traits;

static void count(const char *name, long by)
{
	size_t i = 0;

	while (i < n_traits && strcmp(traits[i].name, name))
		i++;
	if (i == sizeof(traits) / sizeof(traits[0]))
		t_die("too many traits");
	if (i == n_traits) {
		traits[i].name = t_fmt("%s", name);
		n_traits++;
	}
	traits[i].n += by;
}

static void count_f(const char *fmt, const char *s, int d)
{
	char *name = s ? t_fmt("%s %s", fmt, s) : t_fmt("%s %d", fmt, d);

	count(name, 1);
	free(name);
}

static void count_params(const struct t_case *c)
{
	int frozen = 0, zero_dim = 0, odd = 0, tiny = 0;

	for (size_t i = 0; i < c->n_params; i++) {
		const struct t_param *p = &c->params[i];
		int64_t n = 1;

		for (int k = 0; k < p->ndim; k++)
			n *= p->shape[k];
		frozen |= !p->requires_grad;
		zero_dim |= p->ndim == 0;
		odd |= c->world > 1 && n % c->world != 0;
		tiny |= n < c->world;
	}
	count("with frozen parameters", frozen);
	count("with a 0-dim parameter", zero_dim);
	count("with a size the world does not divide", odd);
	count("with a parameter smaller than the world", tiny);
}

void t_traits_add(const struct t_case *c, const struct t_st *truth)
{
	int hidden = 0;

	count("cases", 1);
	count("to be refused", c->refuse);
	count_f("stage", NULL, c->stage);
	count_f("world", NULL, c->world);
	count_f("precision", c->precision, 0);
	count_f("DeepSpeed", c->version, 0);
	count_f("wrapper", c->wrapper, 0);
	if (c->refuse)
		return;
	for (size_t i = 0; i < c->n_buffers; i++)
		hidden |= !c->buffers[i].persistent;
	count_params(c);
	count("with several groups", t_case_groups(c) > 1);
	count("with tied weights", c->n_tied > 0);
	count("with three names for one weight", c->n_tied > 1);
	count("with a sub-group size", c->sub_groups);
	count("with buffers", c->n_buffers > 0);
	count("with buffers that are not persistent", hidden);
	count("with entries not in the checkpoint", c->missing[0] != NULL);
	count("with several tags", c->tags[0] && c->tags[1]);
	count("elastic", strstr(c->name, "elastic") != NULL);
	count("round robin", strstr(c->name, "roundrobin") != NULL);
	count("parameter alignment", strstr(c->name, "paramalign") != NULL);
	count("legacy stream", strstr(c->name, "legacy") != NULL);
	for (size_t i = 0; i < truth->n_tensors; i++) {
		const struct t_st_tensor *t = &truth->tensors[i];

		count_f("truth entries", strrchr(t->name, '|') + 1, 0);
	}
}

void t_traits_expected(void)
{
	count("with expected_fp32.safetensors", 1);
}

static int by_trait(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

void t_traits_print(void)
{
	if (n_traits)
		qsort(traits, n_traits, sizeof(traits[0]), by_trait);
	printf("\n");
	for (size_t i = 0; i < n_traits; i++) {
		printf("%6ld  %s\n", traits[i].n, traits[i].name);
		free(traits[i].name);
	}
	printf("\n");
	n_traits = 0;
}
