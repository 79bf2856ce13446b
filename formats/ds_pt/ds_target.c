/* ds_target.c -- see ds_target.h. */
#include "formats/ds_pt/ds_target.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "libckpt/base/ck_err.h"

static struct ck_val *zero_config(const struct ds_step *ds)
{
	return ck_val_get(ck_val_get(ds->model, "ds_config"), "zero_optimization");
}

static bool config_flag(const struct ds_step *ds, const char *key)
{
	int64_t v = 0;

	return ck_val_int(ck_val_get(zero_config(ds), key), &v) && v;
}

/* Was the source laid out by round robin?  BF16_Optimizer never is. */
static bool source_round_robin(const struct ds_step *ds)
{
	return ds->stage != 3 && !ds->bf16_optimizer && ds->optim_file &&
	       config_flag(ds, "round_robin_gradients");
}

static bool source_aligned(const struct ds_step *ds)
{
	const struct ck_val *gaps = ck_val_get(ds->zero, "param_alignment_paddings");
	struct ck_val *const *group, *const *item;
	uint64_t ngroups, n, seen = 0;
	int64_t gap;

	if (config_flag(ds, "parameter_alignment"))
		return true;
	if (!ck_val_seq(gaps, &group, &ngroups))
		return false;
	for (uint64_t g = 0; g < ngroups; g++) {
		if (!ck_val_seq(group[g], &item, &n))
			continue;
		seen += n;	/* one list may hang in many groups */
		for (uint64_t i = 0; i < n && seen <= ds->in->limits.pickle_nodes; i++)
			if (ck_val_int(item[i], &gap) && gap)
				return true;
	}
	return false;
}

/* Before 0.19.8 nobody looks for gaps between parameters. */
static bool has_gaps(const struct tg_layout *t)
{
	const uint32_t *v = t->version;

	return v[0] || v[1] > 19 || (v[1] == 19 && v[2] >= 8);
}

static uint64_t source_sub_group_size(const struct ds_step *ds)
{
	int64_t n;

	if (ck_val_int(ck_val_get(zero_config(ds), "sub_group_size"), &n) && n > 0)
		return (uint64_t)n;
	return CKPT_Z3_SUB_GROUP_SIZE;
}

static void take_param(struct tg_group *g, uint32_t at, const struct ds_param *p)
{
	g->param[at] = (struct tg_param){
		.name = p->name, .shape = p->shape, .ndim = p->ndim, .tensor = CK_NONE,
		.numel = p->numel,
	};
}

/*
 * Parameters of source group 'from' into 'g' from 'at' on: those of a flat group in the
 * optimizer's order, with round robin undone; those of sub-groups one behind the other.
 */
static void take_params(struct tg_group *g, uint32_t at, const struct ds_group *from,
			bool round_robin, uint32_t world)
{
	for (uint32_t k = 0; k < from->nparams; k++)
		take_param(g, at + (round_robin ?
				    ckpt_z12_rr_original(from->nparams, world, k) : k),
			   &from->param[k]);
}

/* The number of param groups: of the optimizer if it says, else of param_shapes. */
static uint32_t count_groups(const struct ds_step *ds)
{
	struct ck_val *const *item;
	uint64_t n = 0;

	if (!ck_val_seq(ck_ds_param_groups(ds, ds->zero), &item, &n) || ds->stage != 3)
		return ds->ngroups;
	return (uint32_t)n;
}

/* A sub-group that no param group lists would be left out. */
static int check_count(const struct ds_step *ds, const struct tg_layout *t, struct ckpt_err *err)
{
	uint64_t have = 0, want = 0;

	for (uint32_t i = 0; i < ds->ngroups; i++)
		want += ds->group[i].nparams;
	for (uint32_t g = 0; g < t->ngroups; g++)
		have += t->group[g].nparams;
	if (have == want)
		return 0;
	return ck_fail(err, CKPT_E_CORRUPT, ds->at.where, CKPT_NO_OFFSET,
		       "NAMES_WRONG: param_shapes lists %" PRIu64 " parameters, and %" PRIu64
		       " of them are in a param group of the optimizer", want, have);
}

static struct tg_group *group_of(const struct tg_layout *t, const struct ds_group *from)
{
	return from->group >= 0 && (uint32_t)from->group < t->ngroups ? &t->group[from->group] :
									NULL;
}

static int find_params(const struct ck_index *ix, struct tg_group *g, struct ckpt_err *err)
{
	for (uint32_t k = 0; k < g->nparams; k++)
		if (!ck_index_find(ix, g->param[k].name, &g->param[k].tensor))
			return ck_fail(err, CKPT_E_MISMATCH, g->param[k].name, CKPT_NO_OFFSET,
				       "the parameter is not in the index");
	return 0;
}

/* Each source group is looked at twice, to count and to take: a file can list a million. */
static int take_groups(struct ds_step *ds, const struct ck_index *ix, struct tg_layout *t,
		       struct ckpt_err *err)
{
	const bool rr = source_round_robin(ds);
	struct tg_group *g;
	uint32_t *room;
	int rc = 0;

	t->ngroups = count_groups(ds);
	t->group = ck_arena_zalloc(&ds->arena, ((uint64_t)t->ngroups + 1) * sizeof(*t->group));
	room = ck_arena_zalloc(&ds->arena, ((uint64_t)t->ngroups + 1) * sizeof(*room));
	if (!t->group || !room)
		return ck_fail_nomem(err, "groups", t->ngroups);
	for (uint32_t i = 0; i < ds->ngroups; i++)
		if ((g = group_of(t, &ds->group[i])) != NULL)
			room[g - t->group] += ds->group[i].nparams;
	for (uint32_t i = 0; i < t->ngroups; i++) {
		g = &t->group[i];
		g->param = ck_arena_zalloc(&ds->arena, ((uint64_t)room[i] + 1) * sizeof(*g->param));
		if (!g->param)
			return ck_fail_nomem(err, "parameters", room[i]);
	}
	for (uint32_t i = 0; i < ds->ngroups; i++) {
		g = group_of(t, &ds->group[i]);
		if (!g)
			continue;
		take_params(g, g->nparams, &ds->group[i], rr, ds->world);
		g->nparams += ds->group[i].nparams;
	}
	for (uint32_t i = 0; !rc && i < t->ngroups; i++)
		rc = find_params(ix, &t->group[i], err);
	return rc;
}

/* 16 bytes of the model's type; all parameters have the same. */
static uint32_t gap_unit(const struct ds_step *ds, const struct ck_index *ix,
			 const struct tg_group *g)
{
	const uint32_t s = g->nparams ? ck_index_state_find(ix, g->param[0].tensor, "weight") :
			   CK_NONE;

	if (ds->weight_dtype)
		return ckpt_z12_gap_unit(ckpt_dtype_bits(ds->weight_dtype) / 8);
	return s == CK_NONE ? 1 : ckpt_z12_gap_unit(ckpt_dtype_bits(ix->state[s].dtype) / 8);
}

static int lay_flat(struct ds_step *ds, const struct ck_index *ix, const struct tg_layout *t,
		    struct tg_group *g, struct ckpt_err *err)
{
	const uint64_t bytes = (g->nparams + 1) * sizeof(uint64_t);

	g->order = ck_arena_alloc(&ds->arena, bytes);
	g->numel = ck_arena_alloc(&ds->arena, bytes);
	g->offset = ck_arena_alloc(&ds->arena, bytes);
	g->gap = ck_arena_alloc(&ds->arena, bytes);
	if (!g->order || !g->numel || !g->offset || !g->gap)
		return ck_fail_nomem(err, "a layout", bytes);
	for (uint32_t k = 0; k < g->nparams; k++) {
		g->order[k] = t->round_robin ? ckpt_z12_rr_original(g->nparams, t->world, k) : k;
		g->numel[k] = g->param[g->order[k]].numel;
	}
	if (ckpt_z12_offsets(g->numel, g->nparams, t->aligned ? gap_unit(ds, ix, g) : 1, g->offset,
			     g->gap, &g->total) ||
	    ckpt_z12_cut(g->total, t->world,
			 ckpt_z12_align_factor(t->version[0], t->version[1], t->version[2]),
			 &g->cut))
		return ck_fail(err, CKPT_E_LIMIT, ds->at.where, CKPT_NO_OFFSET,
			       "a group cannot be cut over %u ranks", t->world);
	return 0;
}

static int lay_subs(struct ds_step *ds, struct tg_layout *t, struct tg_group *g,
		    struct ckpt_err *err)
{
	const uint64_t bytes = (g->nparams + 1) * sizeof(uint64_t);

	g->numel = ck_arena_alloc(&ds->arena, bytes);
	g->part = ck_arena_alloc(&ds->arena, bytes);
	g->first = ck_arena_zalloc(&ds->arena, bytes);
	if (!g->numel || !g->part || !g->first)
		return ck_fail_nomem(err, "a layout", bytes);
	for (uint32_t k = 0; k < g->nparams; k++) {
		g->numel[k] = g->param[k].numel;
		g->part[k] = ckpt_z3_part_numel(g->numel[k], t->world);
	}
	if (ckpt_z3_subgroups(g->numel, g->nparams, t->world, t->sub_group_size, g->first,
			      &g->nsubs))
		return ck_fail(err, CKPT_E_LIMIT, ds->at.where, CKPT_NO_OFFSET,
			       "a group cannot be cut over %u ranks", t->world);
	g->first[g->nsubs] = g->nparams;
	g->sub0 = t->nsubs;
	t->nsubs += g->nsubs;
	return 0;
}

/* The key sets of these are known; files of older ones are read, not made. */
static int choose_version(struct ds_step *ds, const struct ck_reshard_want *want,
			  struct tg_layout *t, struct ckpt_err *err)
{
	uint32_t *v = t->version;
	char end;

	memcpy(v, ds->version, sizeof(t->version));
	if (!want->version)
		return 0;
	if (sscanf(want->version, "%u.%u.%u%c", &v[0], &v[1], &v[2], &end) != 3)
		return ck_fail(err, CKPT_E_USAGE, want->version, CKPT_NO_OFFSET,
			       "this is no version of DeepSpeed, such as 0.16.9");
	if (v[0] || v[1] < 9 || (v[1] == 9 && v[2] < 2) || v[1] > 19)
		return ck_fail(err, CKPT_E_UNSUPPORTED, want->version, CKPT_NO_OFFSET,
			       "what this DeepSpeed has in its files is not known; 0.9.2 to 0.19.x "
			       "can be written for");
	return 0;
}

/* DeepSpeed gives no other run this optimizer, and the loss scale of fp16 has no place in it. */
static int check_bf16(const struct ds_step *ds, const struct ck_index *ix, struct ckpt_err *err)
{
	enum ckpt_dtype type;

	if (ds->bf16_optimizer || !ck_ds_trained_type(ds, ix, &type) || type == CKPT_BF16)
		return 0;
	return ck_fail(err, CKPT_E_UNSUPPORTED, ds->at.where, CKPT_NO_OFFSET,
		       "BF16_Optimizer (stage bf16) is for runs in bf16, and this one is %s",
		       ckpt_dtype_name(type));
}

static int choose_stage(struct ds_step *ds, const struct ck_index *ix,
			const struct ck_reshard_want *want, struct tg_layout *t,
			struct ckpt_err *err)
{
	t->stage = want->stage == 4 ? 1 : want->stage >= 0 ? want->stage : ds->stage;
	t->bf16_optimizer = want->stage == 4 || (want->stage < 0 && ds->bf16_optimizer);
	if (!t->stage && want->target->aside)
		t->stage = 2;	/* the shape that is not stage 3's */
	if (t->stage < 0 || t->stage > 3)
		return ck_fail(err, CKPT_E_USAGE, ds->at.where, CKPT_NO_OFFSET,
			       "there is no stage %d", t->stage);
	if (ds->elastic && (t->stage == 3 || !t->stage || t->bf16_optimizer != ds->bf16_optimizer))
		return ck_fail(err, CKPT_E_UNSUPPORTED, ds->at.where, CKPT_NO_OFFSET,
			       "an elastic step has no hyper-parameters, so it stays at stages 1 "
			       "and 2");
	if (t->bf16_optimizer && check_bf16(ds, ix, err))
		return -CKPT_E_UNSUPPORTED;
	if (!t->stage)
		return ck_ds_target_z0(ds, ix, want, t, err);
	return 0;
}

/* Lengths and keys depend on it, but for what stays at stage 3 or is kept at stage 0. */
static int check_version(const struct ds_step *ds, const struct tg_layout *t,
			 struct ckpt_err *err)
{
	const uint32_t *v = t->version;

	if (v[0] || v[1] || v[2] || !t->stage || (t->stage == 3 && ds->stage == 3))
		return 0;
	return ck_fail(err, CKPT_E_UNSUPPORTED, ds->at.where, CKPT_NO_OFFSET,
		       "the model file does not say which DeepSpeed wrote it (ds_version); "
		       "--ds-version names the one that is to load the result");
}

/* A group without trainable parameters exists at stage 3 only. */
static int check_groups(struct ds_step *ds, const struct tg_layout *t, struct ckpt_err *err)
{
	for (uint32_t g = 0; t->stage != 3 && g < t->ngroups; g++)
		if (!t->group[g].nparams)
			return ck_fail(err, CKPT_E_UNSUPPORTED, ds->at.where, CKPT_NO_OFFSET,
				       "param group %u is wholly frozen, which DeepSpeed runs "
				       "at stage 3 only", g);
	return 0;
}

int ck_ds_target_groups(struct ds_step *ds, const struct ck_index *ix,
			const struct ck_reshard_want *want, struct tg_layout *out,
			struct ckpt_err *err)
{
	struct tg_layout t = { .world = want->world, .stage = 2 };
	int rc = choose_version(ds, want, &t, err);

	if (!rc)
		rc = take_groups(ds, ix, &t, err);
	if (!rc)
		rc = check_count(ds, &t, err);
	if (!rc)
		*out = t;
	return rc;
}

int ck_ds_target(struct ds_step *ds, const struct ck_index *ix, const struct ck_reshard_want *want,
		 struct tg_layout *out, struct ckpt_err *err)
{
	struct tg_layout t = { .world = want->world };
	int rc = choose_version(ds, want, &t, err);

	if (!rc)
		rc = choose_stage(ds, ix, want, &t, err);
	if (!rc)
		rc = check_version(ds, &t, err);
	if (rc)
		return rc;
	t.round_robin = !t.bf16_optimizer && t.stage != 3 &&
			(want->round_robin < 0 ? config_flag(ds, "round_robin_gradients") :
			 want->round_robin);
	t.aligned = t.stage != 3 && !t.bf16_optimizer && source_aligned(ds) && has_gaps(&t);
	t.sub_group_size = want->sub_group_size ? want->sub_group_size : source_sub_group_size(ds);
	rc = take_groups(ds, ix, &t, err);
	if (!rc)
		rc = check_count(ds, &t, err);
	if (!rc)
		rc = check_groups(ds, &t, err);
	for (uint32_t g = 0; !rc && t.stage && g < t.ngroups; g++)
		rc = t.stage == 3 ? lay_subs(ds, &t, &t.group[g], err) :
		     lay_flat(ds, ix, &t, &t.group[g], err);
	if (!rc)
		*out = t;
	return rc;
}
