/*
 * ds_fill.c -- a step that was read, for those who write it: its groups in the optimizer's own
 * order, what it is made of, what its ranks have of their own.
 */
#include <inttypes.h>
#include <string.h>

#include "formats/ds_pt/ds_experts.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/include/ckpt_zero.h"

static struct ck_val *zero_config(const struct ds_step *ds)
{
	return ck_val_get(ck_val_get(ds->model, "ds_config"), "zero_optimization");
}

static bool config_flag(const struct ds_step *ds, const char *key)
{
	int64_t v = 0;

	return ck_val_int(ck_val_get(zero_config(ds), key), &v) && v;
}

static bool is_aligned(const struct ds_step *ds)
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

/* ---- groups ---- */

/* Was the source laid out by round robin?  BF16_Optimizer never is. */
static bool is_round_robin(const struct ds_step *ds)
{
	return ds->stage != 3 && !ds->bf16_optimizer && ds->optim_file &&
	       config_flag(ds, "round_robin_gradients");
}

/* The number of param groups: of the optimizer if it says, else of param_shapes. */
static uint32_t count_groups(const struct ds_step *ds)
{
	struct ck_val *const *item;
	uint64_t n = 0;

	if (!ck_val_seq(ds->param_groups, &item, &n) || ds->stage != 3)
		return ds->ngroups;
	return (uint32_t)n;
}

static struct ck_step_group *group_of(const struct ck_step *step, const struct ds_group *from)
{
	return from->group >= 0 && (uint32_t)from->group < step->ngroups ?
	       &step->group[from->group] : NULL;
}

/*
 * Parameters of source group 'from' into 'g': those of a flat group in the optimizer's order, with
 * round robin undone; those of sub-groups one after the other.
 */
static void add_params(struct ck_step_group *g, const struct ds_group *from, bool round_robin,
		       uint32_t world)
{
	const uint32_t runs = from->ep && !from->stacked ? from->ep : 1;
	const uint32_t n = from->nparams / runs;

	g->ep = from->ep;
	g->stacked = from->stacked;
	if (from->ep)
		world /= from->ep;
	for (uint32_t k = 0; k < from->nparams; k++) {
		const struct ds_param *p = &from->param[k];
		const uint32_t at = round_robin ?
				    k / n * n + ckpt_z12_rr_original(n, world, k % n) : k;

		g->param[g->nparams + at] = (struct ck_step_param){
			.name = p->name, .shape = p->shape, .ndim = p->ndim, .tensor = CK_NONE,
			.numel = p->numel,
		};
	}
	g->nparams += from->nparams;
}

/* Each source group is looked at twice, to count and to take: a file can list a million. */
static int fill_groups(struct ds_step *ds, struct ck_step *step, struct ckpt_err *err)
{
	const bool rr = is_round_robin(ds);
	struct ck_step_group *g;
	uint32_t *room;

	step->ngroups = count_groups(ds);
	step->group = ck_arena_zalloc(&ds->arena, ((uint64_t)step->ngroups + 1) * sizeof(*g));
	room = ck_arena_zalloc(&ds->arena, ((uint64_t)step->ngroups + 1) * sizeof(*room));
	if (!step->group || !room)
		return ck_fail_nomem(err, "groups", step->ngroups);
	for (uint32_t i = 0; i < ds->ngroups; i++) {
		step->nlisted += ds->group[i].nparams;
		g = group_of(step, &ds->group[i]);
		if (g)
			room[g - step->group] += ds->group[i].nparams;
	}
	for (uint32_t i = 0; i < step->ngroups; i++) {
		g = &step->group[i];
		g->param = ck_arena_zalloc(&ds->arena, ((uint64_t)room[i] + 1) * sizeof(*g->param));
		if (!g->param)
			return ck_fail_nomem(err, "parameters", room[i]);
	}
	for (uint32_t i = 0; i < ds->ngroups; i++) {
		g = group_of(step, &ds->group[i]);
		if (g)
			add_params(g, &ds->group[i], rr, ds->world);
	}
	return 0;
}

/* ---- the model's values of a rank ---- */

static struct ds_file *rank_file(const struct ck_step *step, uint32_t rank)
{
	const struct ds_step *ds = step->from;
	const uint32_t from = rank % ds->world;

	return ds->model_rank ? ds->model_rank[from].file : NULL;
}

static bool has_rank(const struct ck_step *step, uint32_t rank)
{
	const struct ds_step *ds = step->from;
	const struct ds_file *file = rank_file(step, rank);

	return file && file != ds->model_file;
}

static int open_rank(struct ck_step *step, uint32_t rank, struct ck_step_file *out,
		     struct ckpt_err *err)
{
	struct ds_step *ds = step->from;
	struct ds_file *file = rank_file(step, rank);
	int rc = 0;

	*out = (struct ck_step_file){ .path = NULL };
	if (!has_rank(step, rank))	/* an absent one is let pass as a warning */
		return 0;
	rc = ck_ds_open_pt(ds, file, err);
	if (!rc)
		*out = (struct ck_step_file){ .path = file->path, .pt = file->pt };
	return rc;
}

static void close_rank(struct ck_step *step, uint32_t rank)
{
	ck_ds_close_pt(rank_file(step, rank));
}

static struct ck_step_differing first_differing(const struct ds_step *ds, bool shard)
{
	for (uint64_t i = 0; i < ds->nfiles; i++)
		if (ds->file[i].own && (ds->file[i].id.kind == DS_OPTIM) == shard)
			return (struct ck_step_differing){ ds->file[i].path, ds->file[i].own };
	return (struct ck_step_differing){ .path = NULL };
}

/* ---- */

void ck_ds_fill_optimizer(struct ck_step *step, const struct ck_val *zero)
{
	step->scaler = ck_val_get(zero, "loss_scaler");
	step->dynamic_scale = ck_val_get(zero, "dynamic_loss_scale");
	step->overflow = ck_val_get(zero, "overflow");
	step->clip = ck_val_get(zero, "clip_grad");
	step->elastic_step = ck_val_get(zero, "base_optimizer_state_step");
}

struct ds_step *ck_ds_kept(const struct ck_input *in, struct ck_findings *f)
{
	struct ds_step *ds = in->kept->of;

	ds->in = in;
	ds->f = f;
	return ds;
}

int ck_ds_fill(struct ds_step *ds, const struct ck_format *format, struct ck_step *step,
	       struct ckpt_err *err)
{
	struct ck_step_file *model = ck_arena_zalloc(&ds->arena, sizeof(*model));

	*step = (struct ck_step){
		.in = ds->in, .f = ds->f, .arena = &ds->arena, .format = format, .at = ds->at,
		.experts = ds->experts != NULL,
		.by_data = ds->experts && ds->experts->by_data,
		.tag = ds->ix->tag, .world = ds->world, .stage = ds->stage,
		.bf16_optimizer = ds->bf16_optimizer, .elastic = ds->elastic,
		.aligned = is_aligned(ds), .state = ds->state_name, .nstates = ds->nstates,
		.left_out = ds->left_out, .model = ds->model, .model_file = model,
		.frozen_listed = ds->frozen_listed, .own_shard = first_differing(ds, true),
		.own_model = first_differing(ds, false), .has_rank = has_rank,
		.open_rank = open_rank,
		.close_rank = close_rank, .from = ds,
	};
	memcpy(step->version, ds->version, sizeof(step->version));
	if (!model)
		return ck_fail_nomem(err, "a file", sizeof(*model));
	*model = (struct ck_step_file){ .path = ds->model_file->path, .pt = ds->model_file->pt };
	return fill_groups(ds, step, err);
}
