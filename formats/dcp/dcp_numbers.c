/*
 * dcp_numbers.c -- an optimizer that was saved by numbers, as optimizer.state_dict() has it: whose
 * is each state?
 *
 *	optimizer.state.0.exp_avg
 *	optimizer.param_groups.0.params		[0, 1, 4]
 *
 * The numbers count through the groups, and a group has its parameters in the order of the model,
 * which is that of planner_data.  The states get names where only one way fits all shapes.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/dcp/dcp.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/step/ck_step_match.h"
#include "libckpt/tensor/ck_dtype.h"

struct numbers {
	struct dcp *d;
	struct dcp_item **model;	/* that may be parameters, in the model's order */
	uint64_t nmodel;
	uint32_t *kind;			/* of their shapes */
	uint32_t *entry, *of;		/* of each of d->number */
	struct ck_map kinds;
	uint32_t nkinds;
};

int ck_dcp_numbers_add(struct dcp *d, int64_t number, uint32_t g, struct ckpt_err *err)
{
	const char *name = ck_arena_printf(&d->fs.arena, "%" PRId64, number);
	int rc = ck_grow(&d->number, &d->number_cap, d->nnumbers + 1, sizeof(*d->number), err);

	if (!rc && !name)
		rc = ck_fail_nomem(err, "a number", 0);
	if (!rc) {
		d->number[d->nnumbers] = (struct dcp_number){ name, g, d->nnumbers };
		d->nnumbers++;
	}
	return rc;
}

static int by_group(const void *a, const void *b)
{
	const struct dcp_number *x = a, *y = b;

	if (x->group != y->group)
		return x->group < y->group ? -1 : 1;
	return x->at < y->at ? -1 : x->at > y->at;
}

/* A number is in one group once; '*odd_out' says that one is not. */
static int sort_numbers(struct dcp *d, bool *odd_out, struct ckpt_err *err)
{
	int rc = 0;

	*odd_out = false;
	qsort(d->number, d->nnumbers, sizeof(*d->number), by_group);
	for (uint64_t i = 0; rc >= 0 && i < d->nnumbers; i++) {
		rc = ck_map_add(&d->by_number, d->number[i].name, strlen(d->number[i].name), i,
				NULL, err);
		*odd_out |= rc > 0;
	}
	return rc < 0 ? rc : 0;
}

static int kind_of(struct numbers *s, const struct dcp_item *it, uint32_t *out,
		   struct ckpt_err *err)
{
	const size_t bytes = (it->ndim + 1) * sizeof(uint64_t);
	uint64_t *key = ck_arena_alloc(&s->d->fs.arena, bytes), at = s->nkinds;
	int rc;

	if (!key)
		return ck_fail_nomem(err, "a shape", bytes);
	key[0] = it->ndim;
	if (it->ndim)
		memcpy(key + 1, it->shape, it->ndim * sizeof(*it->shape));
	rc = ck_map_add(&s->kinds, (const char *)key, bytes, at, &at, err);
	if (rc < 0)
		return rc;
	*out = rc ? (uint32_t)at : s->nkinds++;
	return 0;
}

static int by_order(const void *a, const void *b)
{
	const struct dcp_item *x = *(struct dcp_item *const *)a, *y = *(struct dcp_item *const *)b;

	return x->order < y->order ? -1 : x->order > y->order;
}

/* Blocks of the same bytes, by their CRC-32s: a second name, most likely. */
static bool is_copy(const struct dcp_item *a, const struct dcp_item *b)
{
	if (a->ndim != b->ndim || a->dtype != b->dtype || a->nchunks != b->nchunks || !a->nchunks ||
	    (a->ndim && memcmp(a->shape, b->shape, a->ndim * sizeof(*a->shape)) != 0))
		return false;
	for (uint64_t k = 0; k < a->nchunks; k++)
		if (!a->chunk[k].is_varied || a->chunk[k].crc != b->chunk[k].crc ||
		    a->chunk[k].numel != b->chunk[k].numel)
			return false;
	return true;
}

/* Second names are no parameters, if without them there are enough. */
static int leave_copies_out(struct numbers *s, struct ckpt_err *err)
{
	bool *copy = ck_zalloc(s->nmodel + 1);
	struct ck_map seen = CK_MAP_INIT;
	uint64_t n = 0, at;
	int rc = copy ? 0 : ck_fail_nomem(err, "names", s->nmodel);

	for (uint64_t i = 0; rc >= 0 && i < s->nmodel; i++) {
		const struct dcp_chunk *c = s->model[i]->chunk;

		if (!s->model[i]->nchunks || !c->crc)
			continue;
		rc = ck_map_add(&seen, (const char *)&c->crc, sizeof(c->crc), i, &at, err);
		copy[i] = rc > 0 && is_copy(s->model[at], s->model[i]);
		n += copy[i];
	}
	if (rc >= 0 && n && s->nmodel - n >= s->d->nnumbers) {
		n = 0;
		for (uint64_t i = 0; i < s->nmodel; i++)
			if (!copy[i])
				s->model[n++] = s->model[i];
		s->nmodel = n;
	}
	ck_map_release(&seen);
	ck_free(copy);
	return rc < 0 ? rc : 0;
}

static int list_model(struct numbers *s, struct ckpt_err *err)
{
	struct dcp *d = s->d;

	for (uint64_t i = 0; i < d->fs.nitems; i++)
		if (d->fs.item[i].use == DCP_MODEL &&
		    ck_dtype_info((enum ckpt_dtype)d->fs.item[i].dtype)->cls == CK_CLASS_FLOAT)
			s->model[s->nmodel++] = &d->fs.item[i];
	if (s->nmodel)
		qsort(s->model, s->nmodel, sizeof(*s->model), by_order);
	return s->nmodel > d->nnumbers ? leave_copies_out(s, err) : 0;
}

/* A state that is no count. */
static bool is_shaped(const struct dcp_item *it)
{
	return it->use == DCP_STATE && strcmp(it->state, "step") != 0 && it->ndim;
}

static int take_kinds(struct numbers *s, struct ckpt_err *err)
{
	struct dcp *d = s->d;
	uint64_t at;
	int rc = 0;

	for (uint64_t i = 0; !rc && i < s->nmodel; i++)
		rc = kind_of(s, s->model[i], &s->kind[i], err);
	for (uint64_t i = 0; i < d->nnumbers; i++)
		s->entry[i] = CK_MATCH_ANY;
	for (uint64_t i = 0; !rc && i < d->fs.nitems; i++) {
		const struct dcp_item *it = &d->fs.item[i];

		if (is_shaped(it) &&
		    ck_map_find(&d->by_number, it->name, strlen(it->name), &at) &&
		    s->entry[at] == CK_MATCH_ANY)
			rc = kind_of(s, it, &s->entry[at], err);
	}
	return rc;
}

/* [ngroups + 1]; the numbers are in the order of the groups. */
static uint64_t *firsts_of(struct dcp *d)
{
	uint64_t *first = ck_arena_zalloc(&d->fs.arena, ((uint64_t)d->ngroups + 1) *
					  sizeof(*first));

	for (uint64_t i = 0; first && i < d->nnumbers; i++)
		first[d->number[i].group + 1]++;
	for (uint32_t g = 0; first && g < d->ngroups; g++)
		first[g + 1] += first[g];
	return first;
}

static int give_names(struct numbers *s, struct ckpt_err *err)
{
	struct dcp *d = s->d;
	uint64_t at;
	int rc = 0;

	for (uint64_t i = 0; i < d->fs.nitems; i++) {
		struct dcp_item *it = &d->fs.item[i];

		if (it->use == DCP_STATE &&
		    ck_map_find(&d->by_number, it->name, strlen(it->name), &at) &&
		    s->of[at] != CK_NONE)
			it->name = s->model[s->of[at]]->name;
	}
	for (uint64_t i = 0; rc >= 0 && i < d->nnumbers; i++)
		if (s->of[i] != CK_NONE) {
			const char *name = s->model[s->of[i]]->name;

			rc = ck_map_add(&d->group_of, name, strlen(name), d->number[i].group, NULL,
					err);
		}
	return rc < 0 ? rc : 0;
}

static bool is_listed(const struct dcp *d, const struct dcp_item *it)
{
	return it->use != DCP_STATE ||
	       ck_map_find(&d->by_number, it->name, strlen(it->name), NULL);
}

static bool are_listed(const struct dcp *d)
{
	for (uint64_t i = 0; i < d->fs.nitems; i++)
		if (!is_listed(d, &d->fs.item[i]))
			return false;
	return true;
}

static int match(struct numbers *s, struct ckpt_err *err)
{
	struct dcp *d = s->d;
	enum ck_step_verdict verdict = CK_MATCH_NONE;
	const uint64_t *first = firsts_of(d);
	int rc = first ? list_model(s, err) : ck_fail_nomem(err, "param groups", d->ngroups);

	if (!rc)
		rc = take_kinds(s, err);
	if (!rc)
		rc = ck_step_match_run(&(struct ck_step_match){
			.item = s->kind, .nitems = s->nmodel, .entry = s->entry,
			.nentries = d->nnumbers, .first = first, .ngroups = d->ngroups,
		}, s->of, &verdict, err);
	if (!rc && verdict == CK_MATCH_UNIQUE)
		return give_names(s, err);
	if (!rc)
		d->unproven = ck_step_match_why(verdict);
	return rc;
}

int ck_dcp_numbers_find(struct dcp *d, struct ckpt_err *err)
{
	struct numbers s = { .d = d };
	bool is_odd;
	int rc;

	if (!d->nnumbers)
		return 0;
	rc = sort_numbers(d, &is_odd, err);
	if (rc)
		return rc;
	if (is_odd || !are_listed(d)) {
		d->unproven = "are not those that its groups list";
		return 0;
	}
	s.model = ck_alloc_array(d->fs.nitems + 1, sizeof(*s.model));
	s.kind = ck_alloc_array(d->fs.nitems + 1, sizeof(*s.kind));
	s.entry = ck_alloc_array(d->nnumbers + 1, sizeof(*s.entry));
	s.of = ck_alloc_array(d->nnumbers + 1, sizeof(*s.of));
	rc = s.model && s.kind && s.entry && s.of ? match(&s, err) :
	     ck_fail_nomem(err, "an optimizer's numbers", d->nnumbers);
	ck_map_release(&s.kinds);
	ck_free(s.of);
	ck_free(s.entry);
	ck_free(s.kind);
	ck_free(s.model);
	return rc;
}
