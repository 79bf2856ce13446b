/*
 * uni_step.c -- the optimizer of a universal checkpoint in the form of stages 1 and 2, from which
 * every writer makes a step of any stage and world size.
 *
 * What shards keep under 'base_optimizer_state' is spread here: hyper-parameters in
 * optimizer_state.pt, the count of steps in a file of each parameter (at stage 3 in
 * optimizer_state.pt too), states by name in the folders.
 */
#include <string.h>

#include "formats/universal/ck_uni.h"
#include "libckpt/base/ck_err.h"

/* Keys of what was cut, or of the torch optimizer, which is put together anew. */
static bool is_remade(const char *key)
{
	static const char *const keys[] = {
		"param_groups", "optimizer_state_dict", "fp32_flat_groups",
		"base_optimizer_state", "single_partition_of_fp32_groups",
	};

	for (size_t i = 0; i < CK_ARRAY_LEN(keys); i++)
		if (!strcmp(keys[i], key))
			return true;
	return false;
}

static struct ck_val *copy_rest(struct uni *u)
{
	struct ck_arena *a = &u->ds.arena;
	struct ck_val *zero = ck_val_new_dict(a);
	struct ck_val *const *item;
	uint64_t n;

	if (!ck_val_pairs(u->optim_root, &item, &n))
		return zero;
	for (uint64_t i = 0; zero && i < n; i++) {
		const char *key = ck_val_str(item[2 * i]);

		if (!key || !is_remade(key))
			zero = ck_val_dict_add(a, zero, item[2 * i], item[2 * i + 1]);
	}
	return zero;
}

/* At stage 3 an older converter leaves them inside only. */
static struct ck_val *param_groups(const struct uni *u)
{
	struct ck_val *v = ck_val_get(u->optim_root, "param_groups");

	return v ? v : ck_val_get(ck_val_get(u->optim_root, "optimizer_state_dict"),
				  "param_groups");
}

/* Numbers of the torch optimizer's own entry that are no states of elements: 'step' above all. */
static struct ck_val *entry_rest(struct uni *u, struct ck_val *entry, uint32_t g)
{
	struct ck_val *old = ck_val_get_int(ck_val_get(ck_val_get(u->optim_root,
								  "optimizer_state_dict"),
						       "state"), g);
	struct ck_val *const *item;
	uint64_t n;

	if (!ck_val_pairs(old, &item, &n))
		return entry;
	for (uint64_t i = 0; entry && i < n; i++) {
		const struct ck_tensor_ref *t = ck_val_tensor(item[2 * i + 1]);

		if (!t || !t->ndim || ck_val_is_str(item[2 * i], "step"))
			entry = ck_val_dict_set(&u->ds.arena, entry, item[2 * i], item[2 * i + 1]);
	}
	return entry;
}

/* A number as it is; a tensor lies in the file, whose storages the writer takes up behind. */
static struct ck_val *step_value(struct uni *u, struct uni_file *f, struct ckpt_err *err)
{
	struct ds_step *ds = &u->ds;
	const struct ck_tensor_ref *t;
	struct ck_tensor_ref ref;
	int rc = ck_ds_open_pt(ds, &f->file, err);

	if (rc)
		return NULL;
	t = ck_val_tensor(f->file.pt->doc.root);
	if (!t) {
		struct ck_val *v = f->file.pt->doc.root->kind == CK_VAL_FLOAT ?
			ck_val_new_float(&ds->arena, f->step) :
			ck_val_new_int(&ds->arena, (int64_t)f->step);

		ck_ds_close_pt(&f->file);
		return v;
	}
	ref = *t;
	ref.storage += ds->zero_first[ds->nzero_more];
	ds->zero_more[ds->nzero_more++] = &f->file;
	ds->zero_first[ds->nzero_more] = ref.storage - t->storage + (uint32_t)f->file.pt->nstorages;
	return ck_val_new_tensor(&ds->arena, &ref);
}

/* The writer looks at names only: what stands under them it makes from the index. */
static struct ck_val *state_names(struct uni *u, struct ck_val *entry, const struct uni_param *p)
{
	static const char *const first[] = { "exp_avg", "exp_avg_sq" };
	struct ck_arena *a = &u->ds.arena;

	for (size_t i = 0; i < CK_ARRAY_LEN(first); i++)
		if (entry && ck_uni_file(p, first[i]))
			entry = ck_val_dict_sets(a, entry, first[i], ck_val_new_none(a));
	for (uint32_t i = 0; entry && i < p->nfiles; i++)
		if (strcmp(p->file[i].state, "fp32") && strcmp(p->file[i].state, "step"))
			entry = ck_val_dict_sets(a, entry, p->file[i].state, ck_val_new_none(a));
	return entry;
}

static struct ck_val *entry_of(struct uni *u, uint32_t g, struct ckpt_err *err)
{
	struct ck_arena *a = &u->ds.arena;
	struct uni_param *p = u->ds.group[g].nparams ? u->group[g] : NULL;
	struct uni_file *step = p ? ck_uni_file(p, "step") : NULL;
	struct ck_val *entry = ck_val_new_dict(a);

	if (step && step->has_step)
		entry = ck_val_dict_sets(a, entry, "step", step_value(u, step, err));
	entry = entry_rest(u, entry, g);
	return p ? state_names(u, entry, p) : entry;
}

static bool is_empty(const struct ck_val *entry)
{
	struct ck_val *const *item;
	uint64_t n;

	return ck_val_pairs(entry, &item, &n) && !n;
}

/* 'zero' of the step; entries only where 'whole' (for a writer), since they keep files open. */
static int put_together(struct uni *u, bool whole, struct ckpt_err *err)
{
	struct ds_step *ds = &u->ds;
	struct ck_arena *a = &ds->arena;
	struct ck_val *state = ck_val_new_dict(a), *base = ck_val_new_dict(a), *zero = copy_rest(u);

	for (uint32_t g = 0; whole && state && g < ds->ngroups; g++) {
		struct ck_val *entry = entry_of(u, g, err);

		if (entry && is_empty(entry))
			continue;
		state = ck_val_dict_add(a, state, ck_val_new_int(a, ds->group[g].state_key), entry);
	}
	base = ck_val_dict_sets(a, base, "state", state);
	if (param_groups(u))
		base = ck_val_dict_sets(a, base, "param_groups", param_groups(u));
	ds->zero = ck_val_dict_sets(a, zero, "base_optimizer_state", base);
	if (ds->zero)
		return 0;
	return err->code ? -(int)err->code : ck_fail_nomem(err, "an optimizer", ds->ngroups);
}

int ck_uni_optimizer(struct uni *u, struct ckpt_err *err)
{
	int rc;

	if (!u->optim_root)
		return 0;
	rc = put_together(u, false, err);
	return rc ? rc : ck_ds_name_groups(&u->ds, err);
}

/* ---- the driver's slot ---- */

/* Shards are named after the run's precision. */
static bool is_bf16(const struct uni *u, const struct ck_index *ix)
{
	for (uint32_t g = 0; g < u->ds.ngroups; g++) {
		uint32_t tensor, s;

		if (!u->ds.group[g].nparams ||
		    !ck_index_find(ix, u->ds.group[g].param[0].name, &tensor))
			continue;
		s = ck_index_state_find(ix, tensor, "weight");
		return s != CK_NONE && ix->state[s].dtype == CKPT_BF16;
	}
	return false;
}

static int make_step(struct uni *u, const struct ck_index *ix, struct ckpt_err *err)
{
	struct ds_step *ds = &u->ds;
	const uint64_t n = (uint64_t)ds->ngroups + 1;

	if (!u->optim_root)
		return ck_fail(err, CKPT_E_INCOMPLETE, u->optim.path, CKPT_NO_OFFSET,
			       "STATE_FILE_MISSING: without this file nothing says what the "
			       "optimizer's groups are");
	ds->zero_more = ck_arena_zalloc(&ds->arena, n * sizeof(struct ds_file *));
	ds->zero_first = ck_arena_zalloc(&ds->arena, n * sizeof(*ds->zero_first));
	if (!ds->zero_more || !ds->zero_first)
		return ck_fail_nomem(err, "a list of files", n);
	ds->zero_first[0] = (uint32_t)u->optim.pt->nstorages;
	u->optim.id.bf16 = is_bf16(u, ix);
	ds->optim_file = &u->optim;
	ds->zero_file = &u->optim;
	return put_together(u, true, err);
}

int ck_uni_reshard(const struct ck_input *in, const struct ck_index *ix,
		   const struct ck_reshard_want *want, struct ck_plan *plan,
		   struct ck_findings *findings, struct ckpt_err *err)
{
	struct ck_index scratch;
	struct uni u = { .ds = { .in = in, .ix = &scratch, .f = findings, .tell_own = true } };
	int rc = ck_index_init(&scratch, in->limits.memory_bytes, err);

	if (rc)
		return rc;
	rc = ck_uni_begin(&u, err);
	if (!rc)
		rc = make_step(&u, ix, err);
	if (!rc)
		rc = want->target->write_step(&(struct ck_step){
			.format = &ck_format_universal, .tag = scratch.tag, .own = &u.ds,
		}, ix, want, plan, err);
	ck_uni_end(&u);
	ck_index_release(&scratch);
	return rc;
}
