/* ds_target.c -- see ds_target.h. */
#include "formats/ds_pt/ds_target.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "libckpt/base/ck_err.h"

static struct ck_val *zero_config(const struct ck_step *step)
{
	return ck_val_get(ck_val_get(step->model, "ds_config"), "zero_optimization");
}

static bool config_flag(const struct ck_step *step, const char *key)
{
	int64_t v = 0;

	return ck_val_int(ck_val_get(zero_config(step), key), &v) && v;
}

/* Before 0.19.8 no loader looks for gaps between parameters. */
static bool has_gaps(const struct tg_layout *t)
{
	const uint32_t *v = t->version;

	return v[0] || v[1] > 19 || (v[1] == 19 && v[2] >= 8);
}

static uint64_t source_sub_group_size(const struct ck_step *step)
{
	int64_t n;

	if (ck_val_int(ck_val_get(zero_config(step), "sub_group_size"), &n) && n > 0)
		return (uint64_t)n;
	return CKPT_Z3_SUB_GROUP_SIZE;
}

/* A sub-group that no param group lists would be left out. */
static int check_count(const struct ck_step *step, const struct tg_layout *t, struct ckpt_err *err)
{
	uint64_t have = 0, want = step->nlisted;

	for (uint32_t g = 0; g < t->ngroups; g++)
		have += (uint64_t)t->group[g].nparams *
			(t->group[g].stacked ? 1 : t->group[g].runs);
	if (have == want)
		return 0;
	return ck_fail(err, CKPT_E_CORRUPT, step->at.where, CKPT_NO_OFFSET,
		       "NAMES_WRONG: param_shapes lists %" PRIu64 " parameters, and %" PRIu64
		       " of them are in a param group of the optimizer", want, have);
}

static int find_params(const struct ck_index *ix, struct tg_group *g, struct ckpt_err *err)
{
	const uint64_t n = (uint64_t)g->nparams * (g->stacked ? 1 : g->runs);

	for (uint64_t k = 0; k < n; k++)
		if (!ck_index_find(ix, g->param[k].name, &g->param[k].tensor))
			return ck_fail(err, CKPT_E_MISMATCH, g->param[k].name, CKPT_NO_OFFSET,
				       "the parameter is not in the index");
	return 0;
}

static int take_groups(struct ck_step *step, const struct ck_index *ix, struct tg_layout *t,
		       struct ckpt_err *err)
{
	int rc = 0;

	t->ngroups = step->ngroups;
	t->group = ck_arena_zalloc(step->arena, ((uint64_t)t->ngroups + 1) * sizeof(*t->group));
	if (!t->group)
		return ck_fail_nomem(err, "groups", t->ngroups);
	for (uint32_t i = 0; !rc && i < t->ngroups; i++) {
		struct tg_group *g = &t->group[i];

		g->param = step->group[i].param;
		g->nparams = step->group[i].nparams;
		g->runs = 1;
		g->world = t->world;
		if (step->group[i].ep && t->experts)
			rc = ck_ds_target_runs(step, &step->group[i], g, err);
		if (!rc)
			rc = find_params(ix, g, err);
	}
	return rc;
}

/* 16 bytes of the model's type; all parameters have the same. */
static uint32_t gap_unit(const struct ck_step *step, const struct ck_index *ix,
			 const struct tg_group *g)
{
	const uint32_t s = g->nparams ? ck_index_state_find(ix, g->param[0].tensor, "weight") :
			   CK_NONE;

	if (step->weight_dtype)
		return ckpt_z12_gap_unit(ckpt_dtype_bits(step->weight_dtype) / 8);
	return s == CK_NONE ? 1 : ckpt_z12_gap_unit(ckpt_dtype_bits(ix->state[s].dtype) / 8);
}

static int lay_flat(struct ck_step *step, const struct ck_index *ix, const struct tg_layout *t,
		    struct tg_group *g, struct ckpt_err *err)
{
	const uint64_t bytes = (g->nparams + 1) * sizeof(uint64_t);

	g->order = ck_arena_alloc(step->arena, bytes);
	g->numel = ck_arena_alloc(step->arena, bytes);
	g->offset = ck_arena_alloc(step->arena, bytes);
	g->gap = ck_arena_alloc(step->arena, bytes);
	if (!g->order || !g->numel || !g->offset || !g->gap)
		return ck_fail_nomem(err, "a layout", bytes);
	for (uint32_t k = 0; k < g->nparams; k++) {
		g->order[k] = t->round_robin ? ckpt_z12_rr_original(g->nparams, g->world, k) : k;
		g->numel[k] = g->param[g->order[k]].numel;
	}
	if (ckpt_z12_offsets(g->numel, g->nparams, t->aligned ? gap_unit(step, ix, g) : 1,
			     g->offset, g->gap, &g->total) ||
	    ckpt_z12_cut(g->total, g->world,
			 ckpt_z12_align_factor(t->version[0], t->version[1], t->version[2]),
			 &g->cut))
		return ck_fail(err, CKPT_E_LIMIT, step->at.where, CKPT_NO_OFFSET,
			       "a group cannot be divided among %u ranks", g->world);
	return 0;
}

static int lay_subs(struct ck_step *step, struct tg_layout *t, struct tg_group *g,
		    struct ckpt_err *err)
{
	const uint64_t bytes = (g->nparams + 1) * sizeof(uint64_t);

	g->numel = ck_arena_alloc(step->arena, bytes);
	g->part = ck_arena_alloc(step->arena, bytes);
	g->first = ck_arena_zalloc(step->arena, bytes);
	if (!g->numel || !g->part || !g->first)
		return ck_fail_nomem(err, "a layout", bytes);
	for (uint32_t k = 0; k < g->nparams; k++) {
		g->numel[k] = g->param[k].numel;
		g->part[k] = ckpt_z3_part_numel(g->numel[k], t->world);
	}
	if (ckpt_z3_subgroups(g->numel, g->nparams, t->world, t->sub_group_size, g->first,
			      &g->nsubs))
		return ck_fail(err, CKPT_E_LIMIT, step->at.where, CKPT_NO_OFFSET,
			       "a group cannot be divided among %u ranks", t->world);
	g->first[g->nsubs] = g->nparams;
	g->sub0 = t->nsubs;
	t->nsubs += g->nsubs;
	return 0;
}

/* The key sets of these are known; files of older ones are read, not made. */
static int choose_version(struct ck_step *step, const struct ck_reshard_want *want,
			  struct tg_layout *t, struct ckpt_err *err)
{
	uint32_t *v = t->version;
	char end;

	memcpy(v, step->version, sizeof(t->version));
	if (!want->version)
		return 0;
	if (sscanf(want->version, "%u.%u.%u%c", &v[0], &v[1], &v[2], &end) != 3)
		return ck_fail(err, CKPT_E_USAGE, want->version, CKPT_NO_OFFSET,
			       "not a version of DeepSpeed; expected a number such as 0.16.9");
	if (v[0] || v[1] < 9 || (v[1] == 9 && v[2] < 2) || v[1] > 19)
		return ck_fail(err, CKPT_E_UNSUPPORTED, want->version, CKPT_NO_OFFSET,
			       "zckpt does not know the file format of this DeepSpeed; it "
			       "supports 0.9.2 to 0.19.x");
	return 0;
}

/* DeepSpeed gives no other run this optimizer, and the loss scale of fp16 has no place in it. */
static int check_bf16(const struct ck_step *step, const struct ck_index *ix, struct ckpt_err *err)
{
	enum ckpt_dtype type;

	if (step->bf16_optimizer || !ck_ds_trained_type(step, ix, &type) || type == CKPT_BF16)
		return 0;
	return ck_fail(err, CKPT_E_UNSUPPORTED, step->at.where, CKPT_NO_OFFSET,
		       "BF16_Optimizer (stage bf16) is for runs in bf16, but this run is %s",
		       ckpt_dtype_name(type));
}

static int choose_stage(struct ck_step *step, const struct ck_index *ix,
			const struct ck_reshard_want *want, struct tg_layout *t,
			struct ckpt_err *err)
{
	t->stage = want->stage == 4 ? 1 : want->stage >= 0 ? want->stage : step->stage;
	t->bf16_optimizer = want->stage == 4 || (want->stage < 0 && step->bf16_optimizer);
	if (!t->stage && want->target->aside)
		t->stage = 2;	/* the shape that is not stage 3's */
	if (t->stage < 0 || t->stage > 3)
		return ck_fail(err, CKPT_E_USAGE, step->at.where, CKPT_NO_OFFSET,
			       "stage %d does not exist; stages are 0 to 3", t->stage);
	if (step->elastic &&
	    (t->stage == 3 || !t->stage || t->bf16_optimizer != step->bf16_optimizer))
		return ck_fail(err, CKPT_E_UNSUPPORTED, step->at.where, CKPT_NO_OFFSET,
			       "an elastic step has no hyper-parameters, so it stays at stages 1 "
			       "and 2");
	if (t->bf16_optimizer && check_bf16(step, ix, err))
		return -CKPT_E_UNSUPPORTED;
	if (!t->stage)
		return ck_ds_target_z0(step, ix, want, t, err);
	return 0;
}

/* Lengths and keys depend on it, but for what stays at stage 3 or is kept at stage 0. */
static int check_version(const struct ck_step *step, const struct tg_layout *t,
			 struct ckpt_err *err)
{
	const uint32_t *v = t->version;

	if (v[0] || v[1] || v[2] || !t->stage || (t->stage == 3 && step->stage == 3))
		return 0;
	return ck_fail(err, CKPT_E_UNSUPPORTED, step->at.where, CKPT_NO_OFFSET,
		       "the model file does not say which DeepSpeed wrote it (ds_version); give "
		       "the version that will load the result: --ds-version");
}

/* A group without trainable parameters exists at stage 3 only. */
static int check_groups(struct ck_step *step, const struct tg_layout *t, struct ckpt_err *err)
{
	for (uint32_t g = 0; t->stage != 3 && g < t->ngroups; g++)
		if (!t->group[g].nparams)
			return ck_fail(err, CKPT_E_UNSUPPORTED, step->at.where, CKPT_NO_OFFSET,
				       "all of param group %u is frozen, which DeepSpeed "
				       "supports at stage 3 only", g);
	return 0;
}

int ck_ds_target_groups(struct ck_step *step, const struct ck_index *ix,
			const struct ck_reshard_want *want, struct tg_layout *out,
			struct ckpt_err *err)
{
	struct tg_layout t = { .world = want->world, .stage = 2 };
	int rc = choose_version(step, want, &t, err);

	if (!rc)
		rc = take_groups(step, ix, &t, err);
	if (!rc)
		rc = check_count(step, &t, err);
	if (!rc)
		*out = t;
	return rc;
}

int ck_ds_target(struct ck_step *step, const struct ck_index *ix,
		 const struct ck_reshard_want *want, struct tg_layout *out, struct ckpt_err *err)
{
	struct tg_layout t = { .world = want->world };
	int rc = choose_version(step, want, &t, err);

	if (!rc)
		rc = choose_stage(step, ix, want, &t, err);
	if (!rc)
		rc = check_version(step, &t, err);
	if (!rc)
		rc = ck_ds_target_experts(step, ix, want, &t, err);
	if (rc)
		return rc;
	t.round_robin = !t.bf16_optimizer && t.stage != 3 &&
			(want->round_robin < 0 ? config_flag(step, "round_robin_gradients") :
			 want->round_robin);
	t.aligned = t.stage != 3 && !t.bf16_optimizer && step->aligned && has_gaps(&t);
	t.sub_group_size = want->sub_group_size ? want->sub_group_size :
			   source_sub_group_size(step);
	rc = take_groups(step, ix, &t, err);
	if (!rc)
		rc = check_count(step, &t, err);
	if (!rc)
		rc = check_groups(step, &t, err);
	for (uint32_t g = 0; !rc && t.stage && g < t.ngroups; g++)
		rc = t.stage == 3 ? lay_subs(step, &t, &t.group[g], err) :
		     lay_flat(step, ix, &t, &t.group[g], err);
	if (!rc)
		*out = t;
	return rc;
}
