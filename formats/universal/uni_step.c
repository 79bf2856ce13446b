/*
 * uni_step.c -- the optimizer of a universal checkpoint, from which a step of any form, stage and
 * world size is written.
 *
 * Its values are spread: hyper-parameters in optimizer_state.pt, the count of steps in a file of
 * each parameter (at stage 3 in optimizer_state.pt too), states by name in the folders.
 */
#include <string.h>

#include "formats/ds_pt/ds_par.h"
#include "formats/universal/ck_uni.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"

/* At stage 3 an older converter leaves them inside only. */
struct ck_val *ck_uni_param_groups(const struct uni *u)
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

/* A number as it is; a tensor is in the file, which becomes one more of the step's. */
static struct ck_val *step_value(struct ck_step *step, struct uni_file *f, struct ckpt_err *err)
{
	const struct ck_step_file *last = &step->file[step->nfiles - 1];
	struct ds_step *ds = step->from;
	const struct ck_tensor_ref *t;
	struct ck_step_file *more;
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
	more = &step->file[step->nfiles++];
	*more = (struct ck_step_file){
		.path = f->file.path, .pt = f->file.pt,
		.first = last->first + (uint32_t)last->pt->nstorages,
	};
	ref = *t;
	ref.storage += more->first;
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

/* Of names-group 'g'; NULL without values, or (with '*err' or without memory) on failure. */
static struct ck_val *entry_of(struct uni *u, struct ck_step *step, uint32_t g,
			       struct ckpt_err *err)
{
	struct ck_arena *a = &u->ds.arena;
	struct uni_param *p = u->ds.group[g].nparams ? u->group[g] : NULL;
	struct uni_file *f = p ? ck_uni_file(p, "step") : NULL;
	struct ck_val *entry = ck_val_new_dict(a);

	if (f && f->has_step)
		entry = ck_val_dict_sets(a, entry, "step", step_value(step, f, err));
	entry = entry_rest(u, entry, g);
	return p ? state_names(u, entry, p) : entry;
}

static bool is_empty(const struct ck_val *entry)
{
	struct ck_val *const *item;
	uint64_t n;

	return ck_val_pairs(entry, &item, &n) && !n;
}

/* The first names-group of a param group says what its entry is. */
static int fill_group(struct uni *u, struct ck_step *step, uint32_t g, struct ckpt_err *err)
{
	struct ck_step_group *to = &step->group[g];
	struct ckpt_err inner = { 0 };
	uint32_t i = 0;

	to->hyper = ck_val_at(ck_uni_param_groups(u), g);
	while (i < u->ds.ngroups && u->ds.group[i].group != (int32_t)g)
		i++;
	if (i == u->ds.ngroups)
		return 0;
	to->entry = entry_of(u, step, i, &inner);
	if (!to->entry)
		return inner.code ? ck_fail(err, inner.code, inner.where, inner.offset, "%s",
					    inner.msg) :
		       ck_fail_nomem(err, "an optimizer", g);
	if (is_empty(to->entry))
		to->entry = NULL;
	return 0;
}

/* Steps of parameters are tensors in files of their own, which stay open. */
static int complete(struct ck_step *step, struct ckpt_err *err)
{
	struct uni *u = step->from;
	const uint64_t n = (uint64_t)step->ngroups + 1;
	int rc = 0;

	step->file = ck_arena_zalloc(step->arena, n * sizeof(*step->file));
	if (!step->file)
		return ck_fail_nomem(err, "a list of files", n);
	step->file[step->nfiles++] = (struct ck_step_file){ .path = u->optim.path,
							    .pt = u->optim.pt };
	step->own = u->optim_root;
	ck_ds_fill_optimizer(step, u->optim_root);
	for (uint32_t g = 0; !rc && g < step->ngroups; g++)
		rc = fill_group(u, step, g, err);
	return rc;
}

/* ---- the driver's slot ---- */

int ck_uni_read_step(const struct ck_input *in, const struct ck_index *ix, struct ck_findings *f,
		     struct ck_step *out, struct ckpt_err *err)
{
	struct uni *u = (struct uni *)ck_ds_kept(in, f);
	int rc;

	(void)ix;
	if (!u->optim_root)
		return ck_fail(err, CKPT_E_INCOMPLETE, u->optim.path, CKPT_NO_OFFSET,
			       "STATE_FILE_MISSING: only this file lists the optimizer's "
			       "groups");
	u->ds.optim_file = &u->optim;
	rc = ck_ds_fill(&u->ds, &ck_format_universal, out, err);
	out->complete = complete;
	out->parallel = out->only_whole = u->ds.parts != NULL;
	out->make_whole = ck_ds_par_whole_model;
	return rc;
}
