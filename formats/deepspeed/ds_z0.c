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
 * Up to PREFIX elements of each are compared, by a hash of 128 bits.  That cannot name a state
 * wrongly: the true parameter always fits, so a false one that fits as well makes two, and then
 * none is taken.
 */
#include <inttypes.h>
#include <string.h>

#include "formats/deepspeed/ck_ds.h"
#include "kernels/include/kn.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/tensor/ck_dtype.h"

#define PREFIX 4096u

/* The stored weight of a parameter, looked at once. */
struct z0_param {
	struct ds_slice weight;
	struct ck_hash128 hash;	/* of its first 'prefix' elements */
	uint64_t prefix;
	bool readable;
	bool unknown;		/* strided or deflated: not looked at */
};

struct z0 {
	struct ds_step *ds;
	struct ds_file *file;
	const struct ck_val *groups;	/* the torch optimizer's 'param_groups' */
	struct ck_val *const *state;	/* and 'state' */
	struct ck_map by_key;		/* the 8 bytes of a key -> pair in 'state' */
	uint32_t *param;	/* tensors that may be trained, in the order of 'module' */
	struct z0_param *weight;	/* of param[] */
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

/* The hash of the first 'n' elements of 's', from 'at' on, rounded to 'dtype'. */
static bool hash_of(struct z0 *z, const struct ds_slice *s, uint64_t at, uint64_t n,
		    enum ckpt_dtype dtype, struct ck_hash128 *out)
{
	const uint64_t es = ckpt_dtype_bits(s->dtype) / 8;
	struct ck_src *src = z->ds->ix->source[z->file->source].src;
	uint8_t in[PREFIX * 8], cast[PREFIX * 8];

	if (s->flags || !ck_dtype_is_castable(s->dtype) || !ck_dtype_is_castable(dtype) ||
	    n > PREFIX || at > s->numel || n > s->numel - at ||
	    ck_src_read(src, s->off + at * es, in, n * es, NULL))
		return false;
	kn_cast(cast, kn_type_of(dtype), in, kn_type_of(s->dtype), n, NULL);
	*out = ck_hash128(cast, n * (ckpt_dtype_bits(dtype) / 8));
	return true;
}

/* Do the elements of 'master' from 'at' on round to the first ones of the parameter? */
static bool rounds_to(struct z0 *z, const struct ds_slice *master, uint64_t at,
		      const struct z0_param *p)
{
	struct ck_hash128 h;

	return p->readable && hash_of(z, master, at, p->prefix, p->weight.dtype, &h) &&
	       ck_hash128_equal(h, p->hash);
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
	struct ck_hash128 h = { 0 };
	enum ckpt_dtype hashed = (enum ckpt_dtype)0;	/* the type that 'h' is for */

	for (uint64_t i = 0; i < z->nparams; i++) {
		const struct z0_param *p = &z->weight[i];

		if (!same_shape(&z->ds->ix->tensor[z->param[i]], r))
			continue;
		if (p->unknown)
			return CK_NONE;	/* it may be this one */
		if (!p->readable)
			continue;
		if (p->weight.dtype != hashed &&
		    !hash_of(z, master, 0, p->prefix, p->weight.dtype, &h))
			continue;
		hashed = p->weight.dtype;
		if (!ck_hash128_equal(h, p->hash))
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

		if (at + t->numel > flat->numel || !rounds_to(z, flat, at, &z->weight[i]))
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
	z->weight = ck_arena_zalloc(&z->ds->arena, (ix->ntensors + 1) * sizeof(*z->weight));
	if (!z->param || !z->taken || !z->weight)
		return ck_fail_nomem(err, "a list of parameters", ix->ntensors);
	for (uint32_t i = 0; i < ix->ntensors; i++)
		if (ix->tensor[i].role != CKPT_ROLE_BUFFER && ix->tensor[i].role != CKPT_ROLE_ALIAS)
			z->param[z->nparams++] = i;
	return 0;
}

static void read_weights(struct z0 *z)
{
	for (uint64_t i = 0; i < z->nparams; i++) {
		struct z0_param *p = &z->weight[i];

		p->unknown = !weight_slice(z->ds, z->param[i], &p->weight);
		if (p->unknown)
			continue;
		p->prefix = ck_min_u64(p->weight.numel, PREFIX);
		p->readable = hash_of(z, &p->weight, 0, p->prefix, p->weight.dtype, &p->hash);
	}
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
	read_weights(&z);
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
