/*
 * uni_write.c -- the step in DeepSpeed's universal form: a folder 'zero' with a folder of whole
 * states for each parameter, beside the model files (docs/formats/universal.md).
 *
 * Stages 1 and 2 have dictionaries around tensors of the parameter's shape and a count of steps
 * in each folder; stage 3 has bare flat tensors.
 */
#include <inttypes.h>
#include <string.h>

#include "formats/universal/ck_uni.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/step/ck_step_drop.h"

/* ---- names become paths ---- */

/* One part of a path that a file system and DeepSpeed take as it is. */
static bool is_part(const char *p, size_t n)
{
	return n && n <= 255 && !(n <= 2 && !strncmp(p, "..", n));
}

static int check_name(const char *name, struct ckpt_err *err)
{
	bool ok = strcmp(name, "optimizer_state.pt") != 0;

	for (const char *p = name; ok; p++) {
		const size_t n = strcspn(p, "/");

		ok = is_part(p, n);
		p += n;
		if (!*p)
			break;
	}
	if (ok)
		return 0;
	return ck_fail(err, CKPT_E_UNSUPPORTED, name, CKPT_NO_OFFSET,
		       "a universal checkpoint has one folder for each parameter, and this "
		       "name cannot be a folder's");
}

static int check_state_name(const char *name, struct ckpt_err *err)
{
	if (is_part(name, strlen(name)) && !strchr(name, '/') && strcmp(name, "fp32"))
		return 0;
	return ck_fail(err, CKPT_E_UNSUPPORTED, name, CKPT_NO_OFFSET,
		       "a universal checkpoint has one file for each state, and the name of "
		       "this state cannot be a file's");
}

/* ---- what the loader will not take ---- */

#define NAMED 6	/* names in a sentence */

/* Buffers, or frozen parameters: DeepSpeed leaves them as the new run made them. */
static void tell_role(struct wr *w, const char *what, bool buffers)
{
	char *names = NULL;
	uint32_t n = 0;

	for (uint32_t i = 0; i < w->ix->ntensors; i++) {
		const struct ck_tensor *t = &w->ix->tensor[i];

		if (buffers ? t->role != CKPT_ROLE_BUFFER :
		    t->role != CKPT_ROLE_FROZEN && t->role != CKPT_ROLE_UNTRAINED)
			continue;
		if (n++ < NAMED)
			names = ck_arena_printf(&w->arena, "%s%s%s", names ? names : "",
						names ? ", " : "", t->name);
	}
	if (n)
		ck_findings_add(w->step->f, CK_FINDING_LOADER_DROPS, what,
				"DeepSpeed's universal loader does not restore %" PRIu32 " %.*s; "
				"%s as in a new run: %s%s", n, (int)strlen(what) - (n == 1), what,
				n == 1 ? "it starts" : "they start", names ? names : "",
				n > NAMED ? ", ..." : "");
}

static bool is_hyper(const char *key)
{
	return key && strcmp(key, "params") && strcmp(key, "param_names") && strcmp(key, "name");
}

/* A key of group 0 that another group has otherwise, or NULL. */
static const char *differing_hyper(const struct wr *w)
{
	const struct ck_step_group *group = w->step->group;
	struct ck_val *const *item;
	uint64_t n;

	if (!ck_val_pairs(group[0].hyper, &item, &n))
		return NULL;
	for (uint32_t g = 1; g < w->t->ngroups; g++)
		for (uint64_t i = 0; i < n; i++) {
			const char *key = ck_val_str(item[2 * i]);

			if (is_hyper(key) &&
			    !ck_val_equal(item[2 * i + 1],
					  ck_val_get(group[g].hyper, key), 8))
				return key;
		}
	return NULL;
}

/* Does the result have this one of the optimizer? */
static bool keeps(const struct wr *w, const struct ck_val *entry, const char *name)
{
	return ck_val_get(entry, name) && !ck_step_is_dropped(w->want, name);
}

/* The states of the optimizer: those of the first group with parameters. */
static const struct tg_group *some_group(const struct wr *w, const struct ck_val **entry_out)
{
	uint32_t g = 0;

	while (g + 1 < w->t->ngroups && !w->t->group[g].nparams)
		g++;
	*entry_out = w->step->group[g].entry;
	return &w->t->group[g];
}

/* Stage 3 is loaded as one Adam. */
static void tell_states(struct wr *w)
{
	const struct ck_val *entry;
	const struct tg_group *g = some_group(w, &entry);
	struct ck_val *const *item;
	uint64_t n;

	if (!ck_val_pairs(entry, &item, &n))
		n = 0;
	for (uint64_t i = 0; i < n; i++) {
		const char *name = ck_val_str(item[2 * i]);

		if (name && strcmp(name, "step") && strcmp(name, "exp_avg") &&
		    strcmp(name, "exp_avg_sq") && !ck_step_is_dropped(w->want, name) &&
		    ck_wr_has(w, g->param[0].tensor, name))
			ck_findings_add(w->step->f, CK_FINDING_LOADER_DROPS, name,
					"at stage 3 DeepSpeed's universal loader reads exp_avg and "
					"exp_avg_sq only");
	}
	if (!keeps(w, entry, "exp_avg") || !keeps(w, entry, "exp_avg_sq"))
		ck_findings_add(w->step->f, CK_FINDING_LOADER_DROPS, w->step->at.where,
				"at stage 3 DeepSpeed's universal loader needs exp_avg and "
				"exp_avg_sq, which this optimizer (or this step) does not "
				"have");
}

/* And of one param group. */
static void tell_sub_groups(struct wr *w)
{
	const char *key = differing_hyper(w);

	if (key)
		ck_findings_add(w->step->f, CK_FINDING_LOADER_DROPS, key,
				"at stage 3 DeepSpeed's universal loader gives the "
				"hyper-parameters of group 0 to all %" PRIu32 " groups, and they "
				"differ", w->t->ngroups);
	if (!ck_wr_since(w, 18, 0) && w->t->nsubs > 1)
		ck_findings_add(w->step->f, CK_FINDING_LOADER_DROPS, w->step->at.where,
				"DeepSpeed before 0.18 loads universal checkpoints of stage 3 "
				"with one param group and one sub-group; this one has "
				"%" PRIu32, w->t->nsubs);
}

/* And one count of steps, as an object that all sub-groups have. */
static void tell_step(struct wr *w)
{
	const struct ck_val *entry;

	some_group(w, &entry);
	if (w->t->nsubs > 1 && keeps(w, entry, "step") && ck_val_tensor(ck_val_get(entry, "step")))
		ck_findings_add(w->step->f, CK_FINDING_LOADER_DROPS, "step",
				"at stage 3 DeepSpeed's universal loader shares 'step' over all "
				"%" PRIu32 " sub-groups, so Adam's bias correction runs ahead; "
				"--to deepspeed avoids it", w->t->nsubs);
}

void ck_uni_tell_drops(struct wr *w)
{
	tell_role(w, "buffers", true);
	tell_role(w, "frozen parameters", false);
	if (w->t->stage == 3) {
		tell_sub_groups(w);
		tell_step(w);
		tell_states(w);
	} else if (w->t->round_robin && !w->t->aligned) {
		ck_findings_add(w->step->f, CK_FINDING_LOADER_DROPS, "round_robin_gradients",
				"with this option, DeepSpeed loads universal checkpoints "
				"into the wrong places; the values here are right, so "
				"resume without it");
	}
}

int ck_uni_check_version(const struct wr *w, struct ckpt_err *err)
{
	const bool known = w->t->stage == 3 ? ck_wr_since(w, 14, 5) : ck_wr_since(w, 14, 1);

	if (w->step->elastic)
		return ck_fail(err, CKPT_E_UNSUPPORTED, w->step->at.where, CKPT_NO_OFFSET,
			       "an elastic step has no hyper-parameters, which a universal "
			       "checkpoint needs");
	if (known)
		return 0;
	return ck_fail(err, CKPT_E_UNSUPPORTED, w->step->at.where, CKPT_NO_OFFSET,
		       "DeepSpeed 0.%" PRIu32 ".%" PRIu32 " cannot load a universal "
		       "checkpoint of this kind (stages 1 and 2 since 0.14.1, stage 3 since "
		       "0.14.5); --ds-version "
		       "names another one", w->t->version[1], w->t->version[2]);
}

/* ---- a parameter ---- */

/* {cat_dim: 0, param: tensor}, with the keys and the order of DeepSpeed's converter. */
static struct ck_val *around(struct wr *w, const struct uni_cut *cut, struct ck_val *tensor)
{
	struct ck_arena *a = &w->arena;
	struct ck_val *dict = ck_val_new_dict(a);

	if (cut->axis >= 0)
		dict = ck_val_dict_sets(a, dict, "cat_dim", ck_val_new_int(a, cut->axis));
	if (cut->parts)
		dict = ck_val_dict_sets(a, dict, "param_n_sub_params",
					ck_val_new_int(a, cut->parts));
	if (cut->vocabulary)
		dict = ck_val_dict_sets(a, dict, "vocab_tensor", ck_val_new_bool(a, true));
	return ck_val_dict_sets(a, dict, "param", tensor);
}

/* Of the parameter's shape; the loader takes slices of it, so one without dimensions gets one. */
static struct ck_val *shaped(struct wr *w, const struct ck_step_param *p, uint32_t number,
			     bool master)
{
	static const uint64_t one = 1;

	return ck_wr_tensor(w, number, p->ndim ? p->shape : &one, p->ndim ? p->ndim : 1, master);
}

static int write_state(struct wr *w, const struct ck_step_param *p, const char *name,
		       const char *file, const struct uni_cut *cut, struct ckpt_err *err)
{
	const bool master = !strcmp(name, "master");
	struct ck_val *root;
	uint32_t number;
	int rc = ck_wr_begin(w, NULL, 0, err);

	if (!rc)
		rc = ck_wr_storage(w, ck_wr_dtype(w, p->tensor, name), &number, err);
	if (!rc)
		rc = ck_wr_named(w, p->tensor, name, 0, p->numel, err);
	if (rc)
		return rc;
	root = w->t->stage == 3 ? ck_wr_flat(w, number, master) :
	       around(w, cut, shaped(w, p, number, master));
	if (!root)
		return ck_fail_nomem(err, "a tensor", 0);
	return ck_wr_finish(w, ck_arena_printf(&w->arena, "zero/%s/%s", p->name, file), root, err);
}

static int write_step(struct wr *w, const struct ck_step_param *p, const struct ck_val *entry,
		      struct ckpt_err *err)
{
	struct ckpt_err inner = { 0 };
	struct ck_val *made;
	int rc = ck_wr_begin(w, w->step->file, w->step->nfiles, err);

	if (rc)
		return rc;
	made = ck_val_get(ck_wr_edit_entry(w, entry, CK_NONE, NULL, NULL, &inner), "step");
	if (inner.code)
		return ck_fail(err, inner.code, inner.where, inner.offset, "%s", inner.msg);
	if (!made)
		return ck_fail_nomem(err, "a count of steps", 0);
	return ck_wr_finish(w, ck_arena_printf(&w->arena, "zero/%s/step", p->name), made, err);
}

int ck_uni_write_param(struct wr *w, const struct ck_step_param *p, const struct ck_val *entry,
		       const struct uni_cut *cut, struct ckpt_err *err)
{
	struct ck_val *const *item;
	uint64_t n;
	int rc = check_name(p->name, err);

	if (!rc)
		rc = write_state(w, p, "master", "fp32", cut, err);
	if (!ck_val_pairs(entry, &item, &n))
		n = 0;
	for (uint64_t i = 0; !rc && i < n; i++) {
		const char *name = ck_val_str(item[2 * i]);

		if (!name || !strcmp(name, "step") || ck_step_is_dropped(w->want, name) ||
		    !ck_wr_has(w, p->tensor, name))
			continue;
		rc = check_state_name(name, err);
		if (!rc)
			rc = write_state(w, p, name, name, cut, err);
	}
	if (!rc && w->t->stage != 3 && keeps(w, entry, "step"))
		rc = write_step(w, p, entry, err);
	return rc;
}

/* ---- optimizer_state.pt ---- */

static struct ck_val *without(struct wr *w, const struct ck_val *dict, const char *const *keys)
{
	struct ck_val *v = ck_val_clone(&w->arena, dict);

	for (; v && *keys; keys++)
		ck_val_dict_drop(v, *keys);
	return v;
}

/* The torch optimizer of stage 3 without what lies in the folders: steps and scalars stay. */
static struct ck_val *bare_optimizer(struct wr *w, const struct ck_val *opt)
{
	struct ck_arena *a = &w->arena;
	struct ck_val *state = ck_val_new_dict(a);
	struct ck_val *const *item, *const *pair;
	uint64_t n, npairs;

	if (!ck_val_pairs(ck_val_get(opt, "state"), &item, &n))
		n = 0;
	for (uint64_t i = 0; state && i < n; i++) {
		struct ck_val *entry = ck_val_clone(a, item[2 * i + 1]);

		if (!ck_val_pairs(item[2 * i + 1], &pair, &npairs))
			npairs = 0;
		for (uint64_t k = 0; entry && k < npairs; k++) {
			const char *name = ck_val_str(pair[2 * k]);
			const struct ck_tensor_ref *t = ck_val_tensor(pair[2 * k + 1]);

			if (name && strcmp(name, "step") && t && t->ndim)
				ck_val_dict_drop(entry, name);
		}
		state = ck_val_dict_add(a, state, item[2 * i], entry);
	}
	return ck_val_dict_sets(a, ck_val_clone(a, opt), "state", state);
}

static struct ck_val *optimizer_state(struct wr *w, struct ckpt_err *err)
{
	static const char *const flat[] = {
		"base_optimizer_state", "single_partition_of_fp32_groups", "param_slice_mappings",
		NULL,
	};
	static const char *const sub[] = { "fp32_flat_groups", NULL };
	struct ck_val *zero = ck_wr_zero_dict(w, 0, err), *v, *opt;

	if (!zero)
		return NULL;
	opt = ck_val_get(zero, w->t->stage == 3 ? "optimizer_state_dict" : "base_optimizer_state");
	v = without(w, zero, w->t->stage == 3 ? sub : flat);
	if (w->t->stage == 3)
		v = ck_val_dict_sets(&w->arena, v, "optimizer_state_dict", bare_optimizer(w, opt));
	return ck_val_dict_sets(&w->arena, v, "param_groups", ck_val_get(opt, "param_groups"));
}

int ck_uni_write_optimizer(struct wr *w, struct ckpt_err *err)
{
	struct ckpt_err inner = { 0 };
	struct ck_val *root;
	int rc = ck_wr_begin(w, w->step->file, w->step->nfiles, err);

	if (rc)
		return rc;
	root = optimizer_state(w, &inner);
	if (inner.code)
		return ck_fail(err, inner.code, inner.where, inner.offset, "%s", inner.msg);
	if (!root)
		return ck_fail_nomem(err, "an optimizer", 0);
	return ck_wr_finish(w, "zero/optimizer_state", root, err);
}

static int write_params(struct wr *w, struct ckpt_err *err)
{
	static const struct uni_cut uncut = { .axis = 0 };
	int rc = ck_uni_check_version(w, err);

	for (uint32_t g = 0; !rc && g < w->t->ngroups; g++) {
		const struct tg_group *group = &w->t->group[g];
		const struct ck_val *entry = w->step->group[g].entry;

		for (uint32_t i = 0; !rc && i < group->nparams; i++)
			rc = ck_uni_write_param(w, &group->param[i], entry, &uncut, err);
	}
	if (!rc)
		rc = ck_uni_write_optimizer(w, err);
	if (!rc)
		ck_uni_tell_drops(w);
	return rc;
}

static int write_all(struct wr *w, struct ckpt_err *err)
{
	int rc = ck_wr_models(w, err);

	if (!rc)
		rc = write_params(w, err);
	ck_wr_tell_own(w);
	if (!rc)
		rc = ck_step_along_list(&w->along, err);
	return rc ? rc : ck_step_along_plan(&w->along, w->plan, err);
}

int ck_uni_write_step(struct ck_step *step, const struct ck_index *ix,
		      const struct ck_reshard_want *want, struct ck_plan *plan,
		      struct ckpt_err *err)
{
	struct tg_layout layout;
	struct wr w;
	int rc;

	if (step->parallel)
		return ck_uni_write_parallel(step, want, plan, err);
	rc = ck_wr_init(&w, step, ix, want, plan, err);

	if (!rc && step->complete)
		rc = step->complete(step, err);
	if (!rc)
		rc = ck_ds_target(step, ix, want, &layout, err);
	if (rc)
		return rc;
	ck_wr_layout(&w, &layout);
	w.by_rank = layout.stage == 3;
	rc = ck_wr_check(&w, err);
	if (!rc)
		rc = write_all(&w, err);
	ck_wr_end(&w);
	return rc;
}
