/*
 * rk_numbers.c -- an optimizer that numbers its parameters: whose is each state?
 *
 * torch 2.6 and later may have names beside the numbers.  Else the shapes tell where the states are
 * sharded tensors, or whole (ck_step_match.h); pieces of FSDP1's flat parameters are rk_flat.c's.
 * Where more than one way fits, or none, all states are left out, by name.
 */
#include <inttypes.h>
#include <string.h>

#include "formats/fsdp_ranks/rk.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/tensor/ck_dtype.h"

struct kinds {
	struct ck_map map;
	uint32_t n;
};

static int kind_of(struct rk *r, struct kinds *k, const uint64_t *shape, uint32_t ndim,
		   uint32_t *out, struct ckpt_err *err)
{
	const size_t bytes = (ndim + 1) * sizeof(*shape);
	uint64_t *key = ck_arena_alloc(&r->arena, bytes), at = k->n;
	int rc;

	if (!key)
		return ck_fail_nomem(err, "a shape", bytes);
	key[0] = ndim;
	if (ndim)
		memcpy(key + 1, shape, ndim * sizeof(*shape));
	rc = ck_map_add(&k->map, (const char *)key, bytes, k->n, &at, err);
	if (rc < 0)
		return rc;
	*out = rc ? (uint32_t)at : k->n++;
	return 0;
}

/* The shape of the first state of a parameter that is one, as the first rank that has it says. */
static int shape_of(struct rk *r, const struct rk_id *id, struct rk_value *out,
		    struct ckpt_err *err)
{
	struct ck_val *const *item;
	uint64_t n;
	int rc = 0;

	*out = (struct rk_value){ .is_tensor = false };
	for (uint32_t k = 0; !rc && k < r->world; k++) {
		if (!ck_val_pairs(id->of_rank[k], &item, &n))
			continue;
		for (uint64_t i = 0; !rc && i < n; i++) {
			if (!ck_rk_optim_is_state(item[2 * i], item[2 * i + 1]))
				continue;
			rc = ck_rk_value_read(r, r->optim[k], item[2 * i + 1], out, err);
			if (out->is_tensor)
				return rc;
		}
	}
	return rc;
}

uint64_t ck_rk_numbers_items(const struct rk *r, const uint32_t *twin, uint32_t *item)
{
	uint64_t n = 0, twins = 0;

	for (uint32_t i = 0; i < r->ntensors; i++) {
		const struct rk_tensor *t = &r->tensor[i];

		if (t->alias_of != CK_NONE || t->sharded != r->any_sharded ||
		    ck_dtype_info((enum ckpt_dtype)t->weight.dtype)->cls != CK_CLASS_FLOAT)
			continue;
		twins += twin[i] != CK_NONE;
		item[n++] = i;
	}
	if (n > r->nids && twins && n - twins >= r->nids) {
		uint64_t k = 0;

		for (uint64_t i = 0; i < n; i++)
			if (twin[item[i]] == CK_NONE)
				item[k++] = item[i];
		n = k;
	}
	return n;
}

/* Where each group's entries begin; they are in the order of the groups. */
uint64_t *ck_rk_numbers_firsts(struct rk *r)
{
	uint64_t *first = ck_arena_zalloc(&r->arena, (r->ngroups + 1) * sizeof(*first));

	for (uint64_t i = 0; first && i < r->nids; i++)
		first[r->id[i].group + 1]++;
	for (uint32_t g = 0; first && g < r->ngroups; g++)
		first[g + 1] += first[g];
	return first;
}

static int match_shapes(struct rk *r, const uint32_t *twin, const char **why, struct ckpt_err *err)
{
	uint32_t *item = ck_arena_zalloc(&r->arena, (r->ntensors + 1) * sizeof(*item));
	uint32_t *kind = ck_arena_zalloc(&r->arena, (r->ntensors + 1) * sizeof(*kind));
	uint32_t *entry = ck_arena_zalloc(&r->arena, (r->nids + 1) * sizeof(*entry));
	uint32_t *of = ck_arena_zalloc(&r->arena, (r->nids + 1) * sizeof(*of));
	const uint64_t *first = ck_rk_numbers_firsts(r);
	struct kinds kinds = { .n = 0 };
	enum ck_step_verdict verdict = CK_MATCH_NONE;
	uint64_t n;
	int rc = 0;

	if (!item || !kind || !entry || !of || !first)
		return ck_fail_nomem(err, "a search", r->nids);
	n = ck_rk_numbers_items(r, twin, item);
	for (uint64_t i = 0; !rc && i < n; i++)
		rc = kind_of(r, &kinds, r->tensor[item[i]].weight.shape,
			     r->tensor[item[i]].weight.ndim, &kind[i], err);
	for (uint64_t i = 0; !rc && i < r->nids; i++) {
		struct rk_value v;

		entry[i] = CK_MATCH_ANY;
		rc = shape_of(r, &r->id[i], &v, err);
		if (!rc && v.is_tensor)
			rc = kind_of(r, &kinds, v.shape, v.ndim, &entry[i], err);
	}
	if (!rc)
		rc = ck_step_match_run(&(struct ck_step_match){
			.item = kind, .nitems = n, .entry = entry, .nentries = r->nids,
			.first = first, .ngroups = r->ngroups,
		}, of, &verdict, err);
	*why = verdict == CK_MATCH_UNIQUE ? NULL : ck_step_match_why(verdict);
	for (uint64_t i = 0; !rc && verdict == CK_MATCH_UNIQUE && i < r->nids; i++)
		r->id[i].tensor = of[i] == CK_NONE ? CK_NONE : item[of[i]];
	ck_map_release(&kinds.map);
	return rc;
}

static bool is_sharded(struct rk *r)
{
	struct rk_value v;

	for (uint64_t i = 0; i < r->nids; i++)
		if (r->id[i].has_state && !shape_of(r, &r->id[i], &v, NULL) && v.is_tensor &&
		    v.sharded)
			return true;
	return false;
}

/*
 * torch 2.6 and later: an optimizer that was made of named_parameters() has 'param_names' in each
 * group.  True if it has a tensor's name for every number.
 */
static bool find_called(struct rk *r)
{
	uint64_t at;

	for (uint64_t i = 0; i < r->nids; i++)
		if (!r->id[i].called ||
		    !ck_map_find(&r->by_name, r->id[i].called, strlen(r->id[i].called), &at))
			return false;
	for (uint64_t i = 0; i < r->nids; i++) {
		ck_map_find(&r->by_name, r->id[i].called, strlen(r->id[i].called), &at);
		r->id[i].tensor = r->tensor[at].alias_of != CK_NONE ? r->tensor[at].alias_of :
								      (uint32_t)at;
	}
	return true;
}

int ck_rk_numbers_find(struct rk *r, struct ckpt_err *err)
{
	uint32_t *twin = ck_arena_alloc(&r->arena, (r->ntensors + 1) * sizeof(*twin));
	const char *why = NULL;
	uint64_t n = 0;
	int rc = twin ? ck_rk_model_twins(r, twin, err) : ck_fail_nomem(err, "names", r->ntensors);

	for (uint64_t i = 0; !rc && i < r->ntensors; i++)
		r->tensor[i].twin = twin[i] != CK_NONE;
	for (uint64_t i = 0; i < r->nids; i++)
		n += r->id[i].has_state;
	if (rc || (!n && !r->deepspeed))
		return rc;
	if ((is_sharded(r) || !r->any_sharded || !n) && find_called(r))
		return 0;
	if (is_sharded(r) || !r->any_sharded || !n)
		rc = match_shapes(r, twin, &why, err);
	else
		rc = ck_rk_flat_states(r, twin, &why, err);
	r->unproven = why;
	if (!rc && why && n)
		ck_findings_add(r->f, CK_FINDING_NOT_IN_CHECKPOINT, r->where,
				"the optimizer's states of %" PRIu64
				" parameters are left out: the "
				"files number the parameters, and the states %s",
				n, why);
	return rc;
}
