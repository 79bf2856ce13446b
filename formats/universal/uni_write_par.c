/*
 * uni_write_par.c -- the universal form of a tensor or pipeline parallel step.
 *
 * States are those of the whole index.  Each stage's parameters come with the values of its own
 * optimizer; what two stages share is of the lower one.  Model files are copied.
 */
#include <string.h>

#include "formats/ds_pt/ds_par.h"
#include "formats/universal/ck_uni.h"
#include "libckpt/base/ck_err.h"

struct par_write {
	struct ck_step *whole;
	struct ds_par *par;
	const struct ck_reshard_want *want;
	struct ck_plan *plan;
	bool *taken;		/* by tensor */
	const uint64_t **shape;	/* of one parameter on each tensor rank */
};

static int check_want(const struct par_write *p, struct ckpt_err *err)
{
	const struct ck_step *step = p->whole;
	const int stage = p->want->stage == 4 ? 1 : p->want->stage;

	if (p->want->version || (stage >= 0 && (stage != step->stage ||
						(p->want->stage == 4) != step->bf16_optimizer)))
		return ck_fail(err, CKPT_E_UNSUPPORTED, step->at.where, CKPT_NO_OFFSET,
			       "a tensor or pipeline parallel step keeps its ZeRO stage and its "
			       "version of DeepSpeed (--stage, --ds-version)");
	if (p->want->world != step->world)
		return ck_fail(err, CKPT_E_UNSUPPORTED, step->at.where, CKPT_NO_OFFSET,
			       "a universal checkpoint of a tensor or pipeline parallel step has "
			       "the model files of its %u ranks, not of %u (--world); DeepSpeed "
			       "loads it at another number", step->world, p->want->world);
	return 0;
}

/* Its shapes on the tensor ranks of a stage; all are there, since the index has it. */
static bool find_shapes(struct par_write *p, uint32_t pp, const char *name)
{
	for (uint32_t t = 0; t < p->par->ntp; t++) {
		const struct ck_index *ix = &ck_ds_pos(p->par, pp, t)->ix;
		uint32_t n;

		if (!ck_index_find(ix, name, &n))
			return false;
		p->shape[t] = ix->tensor[n].shape;
	}
	return true;
}

/* Keys as DeepSpeed 0.19.8 writes them: not one of a cut that an affine map describes. */
static int keys_of(struct par_write *p, uint32_t pp, const struct ck_step_param *param,
		   struct uni_cut *out, struct ckpt_err *err)
{
	struct ds_par *par = p->par;
	const struct ds_tp_local local = {
		.name = param->name, .shape = p->shape, .ndim = param->ndim, .tp = par->ntp,
	};
	struct ds_tp_rules *rules = par->given.given ? &par->given :
				    par->rules ? &par->rules[pp] : NULL;
	struct ds_tp_cut cut = { .kind = DS_TP_COLUMN };
	int rc = rules ? ck_ds_tp_cut(rules, &local, &cut, err) : 0;

	*out = (struct uni_cut){ .axis = -1 };
	if (rc)
		return rc;
	out->vocabulary = par->rules && ck_ds_tp_is_vocabulary(&par->rules[pp], param->name);
	if (par->rules && ck_ds_tp_is_affine(&par->rules[pp], param->name))
		return 0;
	if (cut.kind == DS_TP_PARTS)
		return ck_fail(err, CKPT_E_LAYOUT, param->name, CKPT_NO_OFFSET,
			       "LAYOUT_UNSUPPORTED: the universal form of a parameter in several "
			       "parts (parameter_with_sub_params) is not written");
	if (cut.kind == DS_TP_REPLICATED || cut.kind == DS_TP_AVERAGE)
		return 0;
	out->axis = (int)cut.axis;
	out->parts = cut.kind == DS_TP_TWO_PARTS ? 2 : 0;
	return 0;
}

/* The whole one, without rows of padding. */
static int whole_param(struct par_write *p, uint32_t pp, uint32_t tensor,
		       struct ck_step_param *out, struct ckpt_err *err)
{
	const struct ds_step *ds = p->whole->from;
	const struct ck_tensor *t = &ds->ix->tensor[tensor];
	uint64_t *shape = ck_arena_alloc(p->whole->arena, ((uint64_t)t->ndim + 1) * sizeof(*shape));
	int rc;

	if (!shape)
		return ck_fail_nomem(err, "a shape", t->ndim);
	*out = (struct ck_step_param){
		.name = t->name, .shape = shape, .ndim = t->ndim, .tensor = tensor,
		.numel = t->numel,
	};
	if (!t->ndim)
		return 0;
	memcpy(shape, t->shape, t->ndim * sizeof(*shape));
	rc = ck_ds_par_rows(p->par, pp, t->name, t->shape[0], &shape[0], err);
	if (!rc && shape[0] != t->shape[0])
		out->numel = t->numel / t->shape[0] * shape[0];
	return rc;
}

static int write_one(struct par_write *p, struct wr *w, uint32_t pp, const char *name,
		     const struct ck_val *entry, struct ckpt_err *err)
{
	struct ck_step_param whole;
	struct uni_cut cut;
	uint32_t tensor;
	int rc;

	if (!ck_index_find(w->ix, name, &tensor) || !find_shapes(p, pp, name))
		return ck_fail(err, CKPT_E_INCOMPLETE, name, CKPT_NO_OFFSET,
			       "a tensor rank lacks this parameter");
	if (p->taken[tensor])
		return 0;
	p->taken[tensor] = true;
	rc = whole_param(p, pp, tensor, &whole, err);
	if (!rc)
		rc = keys_of(p, pp, &whole, &cut, err);
	return rc ? rc : ck_uni_write_param(w, &whole, entry, &cut, err);
}

/* What depends on the flat groups of a position: the check, and the first one's optimizer. */
static int write_local(struct wr *w, const struct ds_pos *pos, struct ckpt_err *err)
{
	int rc = ck_wr_check(w, err);

	if (rc)
		return rc;
	ck_wr_tell_own(w);
	if (pos->ds->mp)
		return 0;
	w->own_state = ck_arena_alloc(w->step->arena,
				      (pos->ix.nstates + 1) * sizeof(*w->own_state));
	if (!w->own_state)
		return ck_fail_nomem(err, "numbers of states", pos->ix.nstates);
	memset(w->own_state, 0xff, (pos->ix.nstates + 1) * sizeof(*w->own_state));
	return ck_uni_write_optimizer(w, err);
}

static int write_params(struct par_write *p, struct wr *w, uint32_t pp, struct ckpt_err *err)
{
	int rc = ck_uni_check_version(w, err);

	for (uint32_t g = 0; !rc && g < w->step->ngroups; g++) {
		const struct ck_step_group *group = &w->step->group[g];

		for (uint32_t i = 0; !rc && i < group->nparams; i++)
			rc = write_one(p, w, pp, group->param[i].name, group->entry, err);
	}
	if (!rc && !pp)
		ck_uni_tell_drops(w);
	return rc;
}

static int write_stage(struct par_write *p, uint32_t pp, struct ckpt_err *err)
{
	struct ds_pos *pos = ck_ds_pos(p->par, pp, 0);
	const struct ds_step *ds = p->whole->from;
	struct ck_reshard_want mine = *p->want;
	struct wr local = { .step = NULL }, w = { .step = NULL };
	struct tg_layout layout;
	struct ck_step step;
	int rc;

	pos->ds->in = p->whole->in;
	pos->ds->f = p->whole->f;
	rc = p->par->fill(pos->ds, &pos->ix, &step, err);
	if (rc)
		return rc;
	step.tag = p->whole->tag;
	mine.world = pos->ds->world;
	rc = ck_wr_init(&local, &step, &pos->ix, &mine, p->plan, err);
	if (!rc)
		rc = ck_wr_init(&w, &step, ds->ix, &mine, p->plan, err);
	if (!rc)
		rc = ck_ds_target(&step, &pos->ix, &mine, &layout, err);
	if (!rc) {
		ck_wr_layout(&local, &layout);
		ck_wr_layout(&w, &layout);
		rc = write_local(&local, pos, err);
	}
	if (!rc)
		rc = write_params(p, &w, pp, err);
	ck_wr_end(&local);
	ck_wr_end(&w);
	return rc;
}

/* Model files of all positions, and the files beside the step. */
static int copy_files(struct par_write *p, const struct ck_index *ix, struct ckpt_err *err)
{
	struct wr w;
	int rc = ck_wr_init(&w, p->whole, ix, p->want, p->plan, err);

	for (uint32_t i = 0; !rc && i < p->par->npos; i++)
		rc = ck_wr_file_as_is(&w, p->par->pos[i].ds->model_file, err);
	if (!rc)
		rc = ck_step_along_list(&w.along, err);
	if (!rc)
		rc = ck_step_along_plan(&w.along, p->plan, err);
	ck_wr_end(&w);
	return rc;
}

int ck_uni_write_parallel(struct ck_step *step, const struct ck_reshard_want *want,
			  struct ck_plan *plan, struct ckpt_err *err)
{
	const struct ds_step *ds = step->from;
	struct par_write p = { .whole = step, .par = ds->parts, .want = want, .plan = plan };
	int rc = check_want(&p, err);

	if (!rc)
		rc = ck_ds_par_file_rules(p.par, err);
	if (rc)
		return rc;
	p.par->cut_vocabulary = true;
	p.taken = ck_arena_zalloc(step->arena, ((uint64_t)ds->ix->ntensors + 1) * sizeof(*p.taken));
	p.shape = ck_arena_zalloc(step->arena, ((uint64_t)p.par->ntp + 1) * sizeof(*p.shape));
	if (!p.taken || !p.shape)
		return ck_fail_nomem(err, "parameters", ds->ix->ntensors);
	for (uint32_t pp = 0; !rc && pp < p.par->npp; pp++)
		rc = write_stage(&p, pp, err);
	return rc ? rc : copy_files(&p, ds->ix, err);
}
