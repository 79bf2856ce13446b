/*
 * ds_z0.c -- stage 0: the optimizer's states, which are stored without names.
 *
 * A state is named only where the name follows from the files:
 *
 *   masters kept per parameter (fp32_groups)   the one parameter of the same shape whose
 *       weight the master rounds to; if two parameters fit, or none, it is left out
 *   masters kept flat (fp32_groups_flat)       one group only, in the order of 'module', and
 *       only if every piece rounds to its weight
 *   no masters (fp32 training)                 one group only, as many parameters as 'module'
 *       has, all shapes alike in order
 *
 * Up to PREFIX elements of each are compared.  That cannot name a state wrongly: the true
 * parameter always fits, so a false one that fits as well makes two, and then none is taken.
 */
#include <inttypes.h>
#include <string.h>

#include "formats/deepspeed/ck_ds.h"
#include "kernels/include/kn.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/tensor/ck_dtype.h"

#define PREFIX 4096u

struct z0 {
	struct ds_step *ds;
	struct ds_file *file;
	const struct ck_val *groups;	/* the torch optimizer's 'param_groups' */
	struct ck_val *const *state;	/* and 'state' */
	struct ck_map by_key;		/* the 8 bytes of a key -> pair in 'state' */
	uint32_t *param;	/* tensors that may be trained, in the order of 'module' */
	uint64_t nparams;
	bool *taken;		/* of param[] */
	uint64_t named, left;	/* parameters of the optimizer */
};

static enum kn_type kn_type_of(enum ckpt_dtype dtype)
{
	return dtype == CKPT_F64 ? KN_F64 : dtype == CKPT_F16 ? KN_F16 :
	       dtype == CKPT_BF16 ? KN_BF16 : KN_F32;
}

/* The stored weight of a tensor as a slice; false if it is strided or deflated. */
static bool weight_slice(const struct ds_step *ds, uint32_t tensor, struct ds_slice *out)
{
	const uint32_t s = ck_index_state_find(ds->ix, tensor, "weight");
	const struct ck_extent *e;

	if (s == CK_NONE || ds->ix->state[s].nextents != 1)
		return false;
	e = &ds->ix->extent[ds->ix->state[s].extent];
	if (e->flags || e->runs != 1)
		return false;
	*out = (struct ds_slice){ .off = e->off, .numel = e->count, .dtype = e->dtype };
	return true;
}

/* Do the first elements of 'master' (from element 'at' on) round to those of 'weight'? */
static bool rounds_to(struct z0 *z, const struct ds_slice *master, uint64_t at,
		      const struct ds_slice *weight)
{
	const uint64_t n = ck_min_u64(weight->numel, PREFIX);
	const uint64_t ms = ckpt_dtype_bits(master->dtype) / 8;
	const uint64_t ws = ckpt_dtype_bits(weight->dtype) / 8;
	struct ck_src *src = z->ds->ix->source[z->file->source].src;
	uint8_t *buf;
	bool same = false;

	if (master->flags || !ck_dtype_is_castable(master->dtype) ||
	    !ck_dtype_is_castable(weight->dtype) || at + n > master->numel)
		return false;
	buf = ck_alloc(n * (ms + 2 * ws));
	if (!buf)
		return false;
	if (!ck_src_read(src, master->off + at * ms, buf, n * ms, NULL) &&
	    !ck_src_read(src, weight->off, buf + n * ms, n * ws, NULL)) {
		uint8_t *cast = buf + n * (ms + ws);

		kn_cast(cast, kn_type_of(weight->dtype), buf, kn_type_of(master->dtype), n, NULL);
		same = !memcmp(cast, buf + n * ms, n * ws);
	}
	ck_free(buf);
	return same;
}

static bool same_shape(const struct ck_tensor *t, const struct ck_tensor_ref *r)
{
	return t->ndim == r->ndim &&
	       (!t->ndim || !memcmp(t->shape, r->shape, t->ndim * sizeof(*t->shape)));
}

/* The only parameter that fits, or CK_NONE. */
static uint32_t only_match(struct z0 *z, const struct ck_tensor_ref *r,
			   const struct ds_slice *master)
{
	uint32_t found = CK_NONE;

	for (uint64_t i = 0; i < z->nparams; i++) {
		struct ds_slice w;

		if (!same_shape(&z->ds->ix->tensor[z->param[i]], r) ||
		    !weight_slice(z->ds, z->param[i], &w) || !rounds_to(z, master, 0, &w))
			continue;
		if (found != CK_NONE)
			return CK_NONE;
		found = (uint32_t)i;
	}
	return found;
}

/* Elements [at, at + numel of the tensor) of 's' as a state. */
static int add_state(struct z0 *z, uint32_t tensor, const char *name, const struct ds_slice *s,
		     uint64_t at, struct ckpt_err *err)
{
	struct ck_index *ix = z->ds->ix;
	int rc = ck_index_state_begin(ix, tensor, name, (enum ckpt_dtype)s->dtype, 0, err);

	if (!rc)
		rc = ck_ds_extent(z->ds, z->file, s, at, ix->tensor[tensor].numel, 0, err);
	if (rc) {
		ck_index_state_cancel(ix);
		return rc;
	}
	return ck_index_state_end(ix, NULL, err);
}

/* Every state of one parameter; 'at' as above, 'whole' elements in all. */
static int add_states(struct z0 *z, uint32_t tensor, const struct ck_val *state, uint64_t at,
		      uint64_t whole, struct ckpt_err *err)
{
	struct ck_val *const *item;
	uint64_t n;
	int rc = 0;

	z->ds->ix->tensor[tensor].role = CKPT_ROLE_TRAINABLE;
	if (!ck_val_pairs(state, &item, &n))
		return 0;
	for (uint64_t i = 0; !rc && i < n; i++) {
		const char *name = ck_val_str(item[2 * i]);
		struct ds_slice s;

		if (name && strcmp(name, "step") && strcmp(name, "weight") &&
		    strcmp(name, "master") && ck_ds_slice_of(z->file, item[2 * i + 1], &s) &&
		    s.numel == whole)
			rc = add_state(z, tensor, name, &s, at, err);
	}
	return rc;
}

/* Find the torch optimizer's dictionary and number its states. */
static int find_torch(struct z0 *z, const struct ck_val *opt, struct ckpt_err *err)
{
	const struct ck_val *inner = ck_val_get(opt, "optimizer_state_dict");
	uint64_t n;
	int rc = 0;

	if (!inner)
		inner = opt;
	z->groups = ck_val_get(inner, "param_groups");
	if (!ck_val_pairs(ck_val_get(inner, "state"), &z->state, &n))
		return 0;
	for (uint64_t i = n; rc >= 0 && i > 0; i--) {	/* of two, the later one counts */
		const struct ck_val *key = z->state[2 * (i - 1)];

		if (key->kind == CK_VAL_INT)
			rc = ck_map_add(&z->by_key, (const char *)&key->u.i, sizeof(key->u.i),
					i - 1, NULL, err);
	}
	return rc < 0 ? rc : 0;
}

static const struct ck_val *state_of(const struct z0 *z, int64_t key)
{
	uint64_t i;

	return ck_map_find(&z->by_key, (const char *)&key, sizeof(key), &i) ?
	       z->state[2 * i + 1] : NULL;
}

static struct ck_val *group_params(const struct z0 *z, uint64_t g)
{
	return ck_val_get(ck_val_at(z->groups, g), "params");
}

static int match_one(struct z0 *z, const struct ck_val *tensor, const struct ck_val *number,
		     int32_t group, struct ckpt_err *err)
{
	const struct ck_tensor_ref *r = ck_val_tensor(tensor);
	struct ds_slice master;
	uint32_t i;
	int64_t k;
	int rc;

	if (!r || !ck_ds_slice_of(z->file, tensor, &master) || !ck_val_int(number, &k))
		goto left;
	i = only_match(z, r, &master);
	if (i == CK_NONE || z->taken[i])
		goto left;
	z->taken[i] = true;
	z->named++;
	z->ds->ix->tensor[z->param[i]].group = group;
	rc = add_state(z, z->param[i], "master", &master, 0, err);
	if (!rc)
		rc = add_states(z, z->param[i], state_of(z, k), 0, master.numel, err);
	return rc;
left:
	z->left++;
	return 0;
}

/* fp32_groups: a list of lists of whole masters. */
static int match_groups(struct z0 *z, const struct ck_val *groups, struct ckpt_err *err)
{
	struct ck_val *const *group, *const *item;
	uint64_t ngroups, n;
	int rc = 0;

	if (!ck_val_seq(groups, &group, &ngroups))
		return 0;
	for (uint64_t g = 0; !rc && g < ngroups; g++) {
		if (!ck_val_seq(group[g], &item, &n))
			continue;
		for (uint64_t i = 0; !rc && i < n; i++)
			rc = match_one(z, item[i], ck_val_at(group_params(z, g), i), (int32_t)g,
				       err);
	}
	return rc;
}

/* Does the flat master hold every parameter in order, each rounding to its weight? */
static bool flat_fits(struct z0 *z, const struct ds_slice *flat)
{
	uint64_t at = 0;

	for (uint64_t i = 0; i < z->nparams; i++) {
		const struct ck_tensor *t = &z->ds->ix->tensor[z->param[i]];
		struct ds_slice w;

		if (at + t->numel > flat->numel || !weight_slice(z->ds, z->param[i], &w) ||
		    !rounds_to(z, flat, at, &w))
			return false;
		at += t->numel;
	}
	return at == flat->numel;
}

static int match_flat(struct z0 *z, const struct ck_val *groups, struct ckpt_err *err)
{
	struct ck_val *const *item;
	struct ds_slice flat;
	uint64_t n, at = 0;
	int rc = 0;

	z->left = z->nparams;
	if (!ck_val_seq(groups, &item, &n) || n != 1 || !ck_ds_slice_of(z->file, item[0], &flat) ||
	    !flat_fits(z, &flat))
		return 0;
	z->left = 0;
	for (uint64_t i = 0; !rc && i < z->nparams; i++) {
		rc = add_state(z, z->param[i], "master", &flat, at, err);
		if (!rc)
			rc = add_states(z, z->param[i], state_of(z, 0), at, flat.numel, err);
		at += z->ds->ix->tensor[z->param[i]].numel;
		z->named++;
	}
	return rc;
}

/* Any tensor among a parameter's states that is not its scalar step. */
static const struct ck_tensor_ref *state_tensor(const struct ck_val *state)
{
	struct ck_val *const *item;
	uint64_t n;

	if (!ck_val_pairs(state, &item, &n))
		return NULL;
	for (uint64_t i = 0; i < n; i++)
		if (!ck_val_is_str(item[2 * i], "step") && ck_val_tensor(item[2 * i + 1]))
			return ck_val_tensor(item[2 * i + 1]);
	return NULL;
}

static bool order_fits(struct z0 *z, const struct ck_val *params)
{
	struct ck_val *const *number;
	uint64_t n;
	int64_t k;

	if (!ck_val_seq(params, &number, &n) || n != z->nparams)
		return false;
	for (uint64_t i = 0; i < n; i++) {
		const struct ck_tensor_ref *r;

		if (!ck_val_int(number[i], &k))
			return false;
		r = state_tensor(state_of(z, k));
		if (!r || !same_shape(&z->ds->ix->tensor[z->param[i]], r))
			return false;
	}
	return true;
}

static int match_order(struct z0 *z, struct ckpt_err *err)
{
	const struct ck_val *params = group_params(z, 0);
	struct ck_val *const *groups;
	uint64_t n;
	int64_t k;
	int rc = 0;

	z->left = z->nparams;
	if (!ck_val_seq(z->groups, &groups, &n) || n != 1 || !order_fits(z, params))
		return 0;
	z->left = 0;
	for (uint64_t i = 0; !rc && i < z->nparams; i++) {
		if (!ck_val_int(ck_val_at(params, i), &k))
			continue;	/* order_fits() saw numbers */
		rc = add_states(z, z->param[i], state_of(z, k), 0,
				z->ds->ix->tensor[z->param[i]].numel, err);
		z->named++;
	}
	return rc;
}

static int list_params(struct z0 *z, struct ckpt_err *err)
{
	const struct ck_index *ix = z->ds->ix;

	z->param = ck_arena_alloc(&z->ds->arena, (ix->ntensors + 1) * sizeof(*z->param));
	z->taken = ck_arena_zalloc(&z->ds->arena, ix->ntensors + 1);
	if (!z->param || !z->taken)
		return ck_fail_nomem(err, "a list of parameters", ix->ntensors);
	for (uint32_t i = 0; i < ix->ntensors; i++)
		if (ix->tensor[i].role != CKPT_ROLE_BUFFER && ix->tensor[i].role != CKPT_ROLE_ALIAS)
			z->param[z->nparams++] = i;
	return 0;
}

int ck_ds_index_z0(struct ds_step *ds, struct ckpt_err *err)
{
	struct z0 z = { .ds = ds, .file = ds->model_file };
	const struct ck_val *opt = ck_val_get(ds->model, "optimizer");
	int rc = list_params(&z, err);

	if (!rc)
		rc = find_torch(&z, opt, err);
	if (rc)
		goto out;
	if (ck_val_get(opt, "fp32_groups"))
		rc = match_groups(&z, ck_val_get(opt, "fp32_groups"), err);
	else if (ck_val_get(opt, "fp32_groups_flat"))
		rc = match_flat(&z, ck_val_get(opt, "fp32_groups_flat"), err);
	else
		rc = match_order(&z, err);
	if (!rc && z.left)
		ck_findings_add(ds->f, CK_FINDING_NOT_IN_CHECKPOINT, ds->where,
				"stage 0 stores optimizer states without names; those of %" PRIu64
				" parameters cannot be told from the files and are left out, "
				"%" PRIu64 " are named", z.left, z.named);
out:
	ck_map_release(&z.by_key);
	return rc;
}
