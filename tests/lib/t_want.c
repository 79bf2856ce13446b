/* From truth to expectation. The rules, as the fixtures show them:
 *
 * - truth names a tied weight once; the files name it under every name, at every
 *   stage (at stage 3 the placeholders share a storage), so each name is wanted;
 * - NAME|buffer is wanted among the weights, unless case.json says that it is not
 *   persistent: then no file holds it;
 * - a buffer's dtype is the truth's, not the one case.json gives: DeepSpeed up to
 *   0.18 turns floating buffers into the model's 16-bit type;
 * - frozen parameters have a weight and no other state;
 * - what not_in_checkpoint lists must be absent, not merely be allowed to be. */
#define _GNU_SOURCE
#include "tests/lib/t_want.h"
#include "tests/lib/t_cast.h"
#include "tests/lib/t_dir.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void t_say(struct t_report *r, const char *fmt, ...)
{
	char *line = NULL, *all;
	va_list ap;

	if (++r->bad > 12)
		return;
	va_start(ap, fmt);
	if (vasprintf(&line, fmt, ap) < 0)
		t_die("no memory for a sentence");
	va_end(ap);
	all = t_fmt("%s     %s\n", r->text ? r->text : "", line);
	free(r->text);
	free(line);
	r->text = all;
}

const char *t_split(const char *key, char **name_out)
{
	const char *bar = strrchr(key, '|');

	if (!bar)
		t_die("truth has an entry without a state: %s", key);
	*name_out = t_fmt("%.*s", (int)(bar - key), key);
	return bar + 1;
}

const struct t_st_tensor *t_truth(const struct t_st *truth, const char *name,
				  const char *state)
{
	char *key = t_fmt("%s|%s", name, state);
	const struct t_st_tensor *t = t_st_find(truth, key);

	free(key);
	return t;
}

static void add(struct t_wants *w, const char *name, const char *base,
		const struct t_st_tensor *from, const char *dtype, int required)
{
	struct t_want *x;

	w->list = t_grow(w->list, (w->n + 1) * sizeof(*w->list));
	x = &w->list[w->n++];
	x->name = t_fmt("%s", name);
	x->base = base;
	x->from = from;
	x->dtype = dtype;
	x->required = required;
}

/* The tensor under its own name and under each name tied to it. */
static void add_all_names(struct t_wants *w, const struct t_case *c,
			  const char *base, const struct t_st_tensor *from,
			  const char *dtype, int required)
{
	size_t first = w->n;

	add(w, base, base, from, dtype, required);
	for (size_t i = 0; i < c->n_tied; i++)
		for (char **s = c->tied[i]; *s; s++) {
			int there = !t_case_tied(c, base, *s);

			for (size_t k = first; k < w->n && !there; k++)
				there = !strcmp(w->list[k].name, *s);
			if (!there)
				add(w, *s, base, from, dtype, required);
		}
}

/* The case's own copy of a name, which outlives the caller's. */
static const char *own_name(const struct t_case *c, const char *name)
{
	const struct t_param *p = t_case_param(c, name);
	const struct t_buffer *b = t_case_buffer(c, name);

	if (!p && !b)
		t_die("%s: truth has %s, case.json has not", c->name, name);
	return p ? p->name : b->name;
}

void t_wants_state(struct t_wants *w, const struct t_case *c,
		   const struct t_st *truth, const char *state)
{
	memset(w, 0, sizeof(*w));
	for (size_t i = 0; i < truth->n_tensors; i++) {
		const struct t_st_tensor *t = &truth->tensors[i];
		char *name;
		const char *s = t_split(t->name, &name);
		int buffer = !strcmp(s, "buffer");
		int gone = t_case_missing(c, name, s);

		if (buffer) {
			const struct t_buffer *b = t_case_buffer(c, name);

			gone = gone || !b || !b->persistent;
			s = "weight";
		}
		if (!gone && !strcmp(s, state))
			add_all_names(w, c, own_name(c, name), t, t->dtype,
				      !t_case_unnamed_states(c) ||
				      !strcmp(s, "weight"));
		free(name);
	}
}

void t_wants_model(struct t_wants *w, const struct t_case *c,
		   const struct t_st *truth, const char *dtype,
		   const struct t_st *master)
{
	struct t_wants weights;
	int keep = !strcmp(dtype, "keep");

	memset(w, 0, sizeof(*w));
	t_wants_state(&weights, c, truth, "weight");
	for (size_t i = 0; i < weights.n; i++) {
		const struct t_want *x = &weights.list[i];
		const struct t_st_tensor *from = x->from, *m;

		m = t_truth(truth, x->base, "master");
		if (m && t_case_missing(c, x->base, "master"))
			m = NULL;
		if (m && t_case_unnamed_states(c) &&
		    !(master && t_st_find(master, x->base)))
			m = NULL;
		if (m && !keep)
			from = m;
		add(w, x->name, x->base, from,
		    keep || !t_st_is_float(from->dtype) ? from->dtype : dtype, 1);
	}
	/* trained parameters whose weight is not saved but whose master is */
	for (size_t i = 0; i < c->n_params && !keep; i++) {
		const char *name = c->params[i].name;
		const struct t_st_tensor *m = t_truth(truth, name, "master");

		if (m && t_case_missing(c, name, "weight") &&
		    !t_case_missing(c, name, "master"))
			add_all_names(w, c, name, m, dtype, 1);
	}
	t_wants_free(&weights);
}

void t_wants_free(struct t_wants *w)
{
	for (size_t i = 0; i < w->n; i++)
		free(w->list[i].name);
	free(w->list);
	memset(w, 0, sizeof(*w));
}

static int same_shape(const struct t_st_tensor *a, const struct t_st_tensor *b)
{
	return a->ndim == b->ndim &&
	       !memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof(a->shape[0]));
}

static void compare_one(const struct t_want *x, const struct t_st_tensor *g,
			const char *label, struct t_report *r)
{
	size_t size = t_st_itemsize(x->dtype);
	uint8_t *bytes;
	uint64_t i = 0;

	if (strcmp(g->dtype, x->dtype) || !same_shape(g, x->from)) {
		t_say(r, "%s: %s is %s, truth is %s wanted as %s", label, x->name,
		      t_st_say(g), t_st_say(x->from), x->dtype);
		return;
	}
	bytes = t_cast(x->from, x->dtype);
	if (!bytes)
		t_die("no cast from %s to %s", x->from->dtype, x->dtype);
	if (t_same(bytes, g->data, x->dtype, g->count)) {
		r->equal++;
	} else {
		while (!memcmp(bytes + i * size, g->data + i * size, size))
			i++;
		t_say(r, "%s: %s %s differs from the truth, first at element %llu",
		      label, x->name, t_st_say(g), (unsigned long long)i);
	}
	free(bytes);
}

static const struct t_want *find_want(const struct t_wants *w, const char *name)
{
	for (size_t i = 0; i < w->n; i++)
		if (!strcmp(w->list[i].name, name))
			return &w->list[i];
	return NULL;
}

/* Under alias: the name that was kept of X's weight, or NULL. */
static const char *kept_of(const struct t_wants *w, const struct t_want *x,
			   const struct t_st *got)
{
	for (size_t i = 0; i < w->n; i++)
		if (!strcmp(w->list[i].base, x->base) &&
		    t_st_find(got, w->list[i].name))
			return w->list[i].name;
	return NULL;
}

static void check_alias(const struct t_wants *w, const struct t_want *x,
			const struct t_st *got, const char *label,
			struct t_report *r)
{
	const char *kept = kept_of(w, x, got), *said = t_st_meta(got, x->name);

	if (!kept)
		t_say(r, "%s: %s is missing", label, x->name);
	else if (!said || strcmp(said, kept))
		t_say(r, "%s: %s was left out for %s, but the metadata say %s",
		      label, x->name, kept, said ? said : "nothing");
}

void t_wants_compare(const struct t_wants *w, const struct t_st *got, int alias,
		     const char *label, struct t_report *r)
{
	for (size_t i = 0; i < w->n; i++) {
		const struct t_want *x = &w->list[i];
		const struct t_st_tensor *g = t_st_find(got, x->name);
		const char *kept = alias ? kept_of(w, x, got) : NULL;

		if (g && kept && strcmp(kept, x->name))
			t_say(r, "%s: %s and %s are one weight, written twice",
			      label, kept, x->name);
		else if (g)
			compare_one(x, g, label, r);
		else if (!x->required)
			r->absent++;
		else if (alias)
			check_alias(w, x, got, label, r);
		else
			t_say(r, "%s: %s is missing", label, x->name);
	}
	for (size_t i = 0; i < got->n_tensors; i++)
		if (!find_want(w, got->tensors[i].name))
			t_say(r, "%s: %s %s is not in the truth", label,
			      got->tensors[i].name, t_st_say(&got->tensors[i]));
}
