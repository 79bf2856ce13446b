/* ck_pt_given.c -- see ck_pt_given.h. */
#include "formats/torch_pt/ck_pt_given.h"

#include <fnmatch.h>
#include <inttypes.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/step/ck_name_list.h"

bool ck_pt_given_any(const struct ck_input *in)
{
	return in->order_path || (in->frozen && *in->frozen) || (in->buffers && *in->buffers);
}

/* ---- patterns ---- */

static int mark(const struct ck_index *ix, const char *const *pattern, uint8_t as, uint8_t *role,
		struct ckpt_err *err)
{
	for (; pattern && *pattern; pattern++) {
		bool fits = false;

		for (uint32_t i = 0; i < ix->ntensors; i++) {
			if (fnmatch(*pattern, ix->tensor[i].name, 0))
				continue;
			fits = true;
			if (ix->tensor[i].role != CKPT_ROLE_ALIAS)
				role[i] = as;
		}
		if (!fits)
			return ck_fail(err, CKPT_E_USAGE, ix->path, CKPT_NO_OFFSET,
				       "%.100s matches none of the %" PRIu64 " tensors (%s); "
				       "zckpt inspect -v lists them", *pattern, ix->ntensors,
				       as == CKPT_ROLE_FROZEN ? "--frozen" : "--buffer");
	}
	return 0;
}

int ck_pt_given_roles(const struct ck_input *in, const struct ck_index *ix, struct ck_arena *a,
		      uint8_t **role_out, struct ckpt_err *err)
{
	uint8_t *role;
	int rc;

	*role_out = NULL;
	if (!ck_pt_given_any(in))
		return 0;
	role = ck_arena_zalloc(a, ix->ntensors + 1);
	if (!role)
		return ck_fail_nomem(err, "names", ix->ntensors);
	rc = mark(ix, in->frozen, CKPT_ROLE_FROZEN, role, err);
	if (!rc)
		rc = mark(ix, in->buffers, CKPT_ROLE_BUFFER, role, err);
	*role_out = role;
	return rc;
}

/* ---- the list ---- */

/* Its names. */
struct listed {
	uint32_t *tensor;	/* in an arena; at most as many as the index has */
	uint64_t *line;		/* of each, from 1 */
	uint64_t n;
	const struct ck_index *ix;
	const char *path;
	uint8_t *met;		/* by tensor: what excludes it, or CKPT_ROLE_TRAINABLE: listed */
};

static int find_name(const struct ck_index *ix, const char *name, uint32_t *out)
{
	if (!ck_index_find(ix, name, out) &&
	    !ck_index_find(ix, name + ck_pt_owners_wrapped(name), out))
		return 0;
	if (ix->tensor[*out].role == CKPT_ROLE_ALIAS)
		*out = (uint32_t)ix->tensor[*out].alias_of;
	return 1;
}

static int take_name(void *arg, uint64_t line, const char *name, struct ckpt_err *err)
{
	struct listed *out = arg;
	uint32_t t;

	if (!find_name(out->ix, name, &t))
		return ck_fail(err, CKPT_E_MISMATCH, out->path, CKPT_NO_OFFSET,
			       "line %" PRIu64 ": the model has no %.200s", line, name);
	if (out->met[t] == CKPT_ROLE_TRAINABLE)
		return ck_fail(err, CKPT_E_MISMATCH, out->path, CKPT_NO_OFFSET,
			       "line %" PRIu64 ": the list has %.200s twice", line, name);
	if (out->met[t])
		return ck_fail(err, CKPT_E_MISMATCH, out->path, CKPT_NO_OFFSET,
			       "line %" PRIu64 ": %.200s is excluded by %s, so the optimizer does "
			       "not have it", line, name,
			       out->met[t] == CKPT_ROLE_FROZEN ? "--frozen" : "--buffer");
	out->met[t] = CKPT_ROLE_TRAINABLE;
	out->line[out->n] = line;
	out->tensor[out->n++] = t;
	return 0;
}

static int read_list(const struct ck_input *in, const struct ck_index *ix, const uint8_t *role,
		     struct ck_arena *a, struct listed *out, struct ckpt_err *err)
{
	struct listed list = {
		.tensor = ck_arena_alloc(a, (ix->ntensors + 1) * sizeof(*list.tensor)),
		.line = ck_arena_alloc(a, (ix->ntensors + 1) * sizeof(*list.line)),
		.met = ck_arena_alloc(a, ix->ntensors + 1),
		.ix = ix, .path = in->order_path,
	};
	int rc;

	if (!list.tensor || !list.line || !list.met)
		return ck_fail_nomem(err, "names", ix->ntensors);
	memcpy(list.met, role, ix->ntensors);
	rc = ck_name_list_each(in->order_path, &in->limits, take_name, &list, err);
	if (!rc)
		*out = list;
	return rc;
}

/* ---- does it fit? ---- */

/* "line 4, norm.bias (24 elements; exp_avg of number 3 has 8)"; NULL = all fit. */
static const char *first_wrong(const struct ck_index *ix, const struct ck_pt_owners *o,
			       const struct listed *list, struct ck_arena *a)
{
	const char *state;

	for (uint64_t i = 0; i < list->n; i++) {
		const struct ck_tensor *t = &ix->tensor[list->tensor[i]];
		const struct ck_tensor_ref *r = i >= o->n ? NULL :
						ck_pt_owners_misfit(o->state[i], t, &state);

		if (r)
			return ck_arena_printf(a, "line %" PRIu64 ", %.100s: it has %" PRIu64
					       " elements in %u dimensions, and %.60s of number %"
					       PRIu64 " has %" PRIu64 " in %u", list->line[i],
					       t->name, t->numel, t->ndim, state, i, r->numel,
					       r->ndim);
		if (i == o->n)
			return ck_arena_printf(a, "line %" PRIu64 ", %.100s, after the last number",
					       list->line[i], t->name);
	}
	return list->n == o->n ? NULL :
	       ck_arena_printf(a, "number %" PRIu64 ", which has no line", list->n);
}

/* The names that the groups have themselves decide. */
static int compare_names(const struct ck_input *in, const struct ck_index *ix,
			 const struct ck_pt_owners *o, const struct listed *list,
			 struct ckpt_err *err)
{
	for (uint64_t i = 0; i < o->n; i++)
		if (o->param[i] != list->tensor[i])
			return ck_fail(err, CKPT_E_MISMATCH, in->order_path, CKPT_NO_OFFSET,
				       "line %" PRIu64 ": the list has %.100s, but the file itself "
				       "names number %" PRIu64 " %.100s; it needs no --order",
				       list->line[i], ix->tensor[list->tensor[i]].name, i,
				       ix->tensor[o->param[i]].name);
	return 0;
}

int ck_pt_given_order(const struct ck_input *in, const struct ck_index *ix, struct ck_arena *a,
		      struct ck_pt_owners *o, bool named, struct ckpt_err *err)
{
	struct listed list = { .n = 0 };
	const char *wrong;
	int rc = read_list(in, ix, o->role, a, &list, err);

	if (rc)
		return rc;
	wrong = first_wrong(ix, o, &list, a);
	if (wrong)
		return ck_fail(err, CKPT_E_MISMATCH, in->order_path, CKPT_NO_OFFSET,
			       "the list has %" PRIu64 " name%s and the optimizer %" PRIu64
			       " parameter%s; the first that does not fit is %s; the order is that "
			       "of the optimizer's groups, one after the other", list.n,
			       list.n == 1 ? "" : "s", o->n, o->n == 1 ? "" : "s", wrong);
	if (named)
		return compare_names(in, ix, o, &list, err);
	memcpy(o->param, list.tensor, o->n * sizeof(*o->param));
	return 0;
}

int ck_pt_given_check(const struct ck_index *ix, const struct ck_pt_owners *o,
		      struct ckpt_err *err)
{
	for (uint64_t i = 0; o->role && i < o->n; i++)
		if (o->role[o->param[i]])
			return ck_fail(err, CKPT_E_MISMATCH, ix->tensor[o->param[i]].name,
				       CKPT_NO_OFFSET, "%s excludes it, but the optimizer has it: "
				       "the file names its number %" PRIu64 " of %" PRIu64 " so",
				       o->role[o->param[i]] == CKPT_ROLE_FROZEN ? "--frozen" :
				       "--buffer", i, o->n);
	return 0;
}
