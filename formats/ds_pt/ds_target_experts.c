/*
 * ds_target_experts.c -- DeepSpeed's experts in a step that is to be written: on which ranks each
 * expert rank's flat runs are, and what param groups another number of expert ranks gives.
 *
 * DeepSpeed makes a group of the experts of each param group of the client.  It has the parameters
 * of the rank's own experts in the order of the modules: layer after layer, expert after expert.
 * Where they have more than MOST elements, it makes several groups of them, none above that
 * (deepspeed.moe.utils).
 */
#include <inttypes.h>
#include <string.h>

#include "formats/ds_pt/ds_experts.h"
#include "formats/ds_pt/ds_target.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/tensor/ck_val_new.h"

#define MOST 178956971u
#define HYPER_DEPTH 8

/* Groups of the same param group of the client, which DeepSpeed divided by their size. */
struct family {
	struct ck_step_group *group;	/* the first; 'n' follow each other */
	uint32_t n;
	struct ck_step_param *param;	/* all of expert rank 0, of 1, ... */
	uint32_t nparams;		/* of one expert rank; of stacked ones: all */
};

uint32_t ck_tg_run(const struct tg_layout *t, const struct tg_group *g, uint32_t rank)
{
	return t->by_data ? rank / g->world : rank % g->runs;
}

uint32_t ck_tg_place(const struct tg_layout *t, const struct tg_group *g, uint32_t rank)
{
	return t->by_data ? rank % g->world : rank / g->runs;
}

/* ---- may they be written ---- */

static int refuse(const struct ck_step *step, const char *what, struct ckpt_err *err)
{
	return ck_fail(err, CKPT_E_UNSUPPORTED, step->at.where, CKPT_NO_OFFSET,
		       "%s; weights can be converted (zckpt convert), and reshard --to dcp or "
		       "native keeps all states", what);
}

/* A step that came here by another format says so in its groups. */
static bool has_experts(const struct ck_step *step)
{
	bool experts = step->experts;
	int64_t moe;

	for (uint32_t g = 0; g < step->ngroups; g++)
		experts |= ck_val_int(ck_val_get(step->group[g].hyper, "moe"), &moe) && moe;
	return experts;
}

/* What is frozen is listed by names that rank 0 counts from 0. */
static bool has_frozen_experts(const struct ck_step *step, const struct ck_index *ix)
{
	const struct ck_val *module = ck_val_get(step->model, "module");

	for (uint32_t i = 0; i < ix->ntensors; i++)
		if (ix->tensor[i].role == CKPT_ROLE_FROZEN &&
		    !ck_val_get(module, ix->tensor[i].name))
			return true;
	return false;
}

static bool is_other_version(const struct ck_step *step, const struct tg_layout *t)
{
	return memcmp(step->version, t->version, sizeof(t->version)) != 0;
}

static int check_form(const struct ck_step *step, const struct ck_index *ix,
		      const struct ck_reshard_want *want, const struct tg_layout *t,
		      struct ckpt_err *err)
{
	if (step->format != want->target || !step->shards)
		return refuse(step, "the step has DeepSpeed's experts, which zckpt writes as "
			      "DeepSpeed files from DeepSpeed files alone", err);
	if (!t->stage || t->stage == 3 || t->bf16_optimizer != step->bf16_optimizer)
		return refuse(step, "a step with experts stays at ZeRO stages 1 and 2, and one of "
			      "BF16_Optimizer stays one", err);
	if (is_other_version(step, t))
		return refuse(step, "a step with experts is written for the DeepSpeed that wrote "
			      "it (--ds-version)", err);
	if ((want->ep || t->stage != step->stage) && has_frozen_experts(step, ix))
		return refuse(step, "experts of the step are frozen, so it keeps its stage and its "
			      "expert ranks", err);
	return 0;
}

/* ---- other expert ranks: families ---- */

static bool is_same_hyper(const struct ck_step *step, const struct ck_val *a,
			  const struct ck_val *b)
{
	struct ck_val *x = ck_val_clone(step->arena, a), *y = ck_val_clone(step->arena, b);

	if (!x || !y)
		return false;
	ck_val_dict_drop(x, "params");
	ck_val_dict_drop(y, "params");
	return ck_val_equal(x, y, HYPER_DEPTH);
}

/* Elements that an expert rank has of the parameter. */
static uint64_t own_numel(const struct ck_step_group *g, const struct ck_step_param *p)
{
	return g->stacked ? p->numel / g->ep : p->numel;
}

static uint32_t own_params(const struct ck_step_group *g)
{
	return g->stacked ? g->nparams : g->nparams / g->ep;
}

static uint64_t group_numel(const struct ck_step_group *g)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < own_params(g); i++)
		sum += own_numel(g, &g->param[i]);
	return sum;
}

/* Is 'b' what did not go into 'a' for its size? */
static bool is_continued(const struct ck_step *step, const struct ck_step_group *a,
			 const struct ck_step_group *b)
{
	return b->ep == a->ep && a->stacked == b->stacked && b->nparams &&
	       group_numel(a) + own_numel(b, &b->param[0]) > MOST &&
	       is_same_hyper(step, a->hyper, b->hyper);
}

static int join_family(struct ck_step *step, struct family *f, struct ckpt_err *err)
{
	const uint32_t runs = f->group->stacked ? 1 : f->group->ep;
	uint64_t n = 0, at = 0;

	for (uint32_t i = 0; i < f->n; i++)
		n += own_params(&f->group[i]);
	f->nparams = (uint32_t)n;
	f->param = ck_arena_zalloc(step->arena, (n * runs + 1) * sizeof(*f->param));
	if (!f->param)
		return ck_fail_nomem(err, "parameters of experts", n * runs);
	for (uint32_t r = 0; r < runs; r++)
		for (uint32_t i = 0; i < f->n; i++) {
			const uint32_t own = own_params(&f->group[i]);

			memcpy(f->param + at, f->group[i].param + (uint64_t)r * own,
			       own * sizeof(*f->param));
			at += own;
		}
	return 0;
}

/* ---- other expert ranks: experts that have names of their own ---- */

/* Parameters of one layer in a family: 'local' experts of 'each' parameters. */
struct block {
	uint32_t first, local, each;
};

/* "X.deepspeed_experts.3.w" -> bytes in front of the number, the number, what follows it. */
static bool split_name(const char *name, size_t *stem, uint32_t *e, const char **rest)
{
	const char *p = strstr(name, DS_EXPERT_MARK);

	if (!p)
		return false;
	p += strlen(DS_EXPERT_MARK);
	*stem = (size_t)(p - name);
	for (*e = 0; *p >= '0' && *p <= '9' && *e < 1000000; p++)
		*e = *e * 10 + (uint32_t)(*p - '0');
	*rest = p;
	return true;
}

/* The layer whose parameters begin at 'first'; false if they are in another order. */
static bool take_block(const struct family *f, uint32_t first, struct block *b)
{
	const char *name = f->param[first].name, *rest, *as;
	size_t stem, n;
	uint32_t e, k = first;

	*b = (struct block){ .first = first };
	if (!split_name(name, &stem, &e, &rest))
		return false;
	for (; k < f->nparams && split_name(f->param[k].name, &n, &e, &rest) && n == stem &&
	       !memcmp(f->param[k].name, name, stem); k++) {
		if (!e && b->each == k - first)
			b->each++;
		if (e != (k - first) / b->each)
			return false;
		split_name(f->param[first + (k - first) % b->each].name, &n, &e, &as);
		if (strcmp(rest, as))
			return false;
	}
	b->local = (k - first) / b->each;
	return (k - first) % b->each == 0;
}

/* Parameter 'r' of global expert 'e' of the block. */
static const struct ck_step_param *of_expert(const struct family *f, const struct block *b,
					     uint32_t e, uint32_t r)
{
	return &f->param[(uint64_t)(e / b->local) * f->nparams + b->first +
			 e % b->local * b->each + r];
}

static int uneven(const struct ck_step *step, const char *name, uint64_t n, uint32_t ep,
		  struct ckpt_err *err)
{
	return ck_fail(err, CKPT_E_USAGE, step->at.where, CKPT_NO_OFFSET,
		       "%.100s is of a layer of %" PRIu64 " experts, which cannot be divided among "
		       "%u expert ranks; give a number of which %" PRIu64 " is a multiple (--ep)",
		       name, n, ep, n);
}

/* The experts of each rank of 'ep', into 'out' of as many parameters. */
static int deal_experts(struct ck_step *step, const struct family *f, uint32_t ep,
			struct ck_step_param *out, struct ckpt_err *err)
{
	const uint32_t old = f->group->ep, own = (uint32_t)((uint64_t)f->nparams * old / ep);
	uint32_t at = 0;
	struct block b;

	for (uint32_t k = 0; k < f->nparams; k += b.local * b.each) {
		if (!take_block(f, k, &b))
			return refuse(step, "parameters of experts are in another order than layer "
				      "by layer and expert by expert, so their order with other "
				      "expert ranks is not known", err);
		if ((uint64_t)b.local * old % ep)
			return uneven(step, f->param[k].name, (uint64_t)b.local * old, ep, err);
		const uint32_t local = (uint32_t)((uint64_t)b.local * old / ep);

		for (uint32_t e = 0; e < local * ep; e++)
			for (uint32_t r = 0; r < b.each; r++)
				out[(uint64_t)(e / local) * own + at + e % local * b.each + r] =
					*of_expert(f, &b, e, r);
		at += local * b.each;
	}
	return 0;
}

static int check_stacks(struct ck_step *step, const struct family *f, uint32_t ep,
			struct ckpt_err *err)
{
	for (uint32_t k = 0; k < f->nparams; k++)
		if (f->param[k].shape[0] % ep)
			return uneven(step, f->param[k].name, f->param[k].shape[0], ep, err);
	return 0;
}

/* ---- other expert ranks: groups ---- */

struct regrouping {
	struct ck_step *step;
	uint32_t ep;
	struct ck_step_group *group;
	uint32_t n, room;
};

static int add_group(struct regrouping *x, const struct ck_step_group *g, struct ckpt_err *err)
{
	if (x->n == x->room) {
		const uint32_t room = x->room * 2 + 8;
		struct ck_step_group *more = ck_arena_zalloc(x->step->arena, room * sizeof(*more));

		if (!more)
			return ck_fail_nomem(err, "param groups", room);
		if (x->n)
			memcpy(more, x->group, x->n * sizeof(*more));
		x->group = more;
		x->room = room;
	}
	x->group[x->n] = *g;
	x->group[x->n].key = x->n;
	x->n++;
	return 0;
}

/* The dictionary of the group, whose name has the number of expert ranks. */
static struct ck_val *named(struct regrouping *x, struct ck_val *hyper)
{
	struct ck_arena *a = x->step->arena;
	const char *old = ck_val_str(ck_val_get(hyper, "name"));
	const char *name = ck_arena_printf(a, "ep_size_%u", x->ep);

	if (!old || strncmp(old, "ep_size_", 8))
		return hyper;
	return name ? ck_val_dict_sets(a, ck_val_clone(a, hyper), "name",
				       ck_val_new_str(a, name)) : NULL;
}

/* Parameters [first, last) of each expert rank as a group. */
static int cut_group(struct regrouping *x, const struct family *f, const struct ck_step_param *all,
		     uint32_t own, uint32_t first, uint32_t last, struct ckpt_err *err)
{
	struct ck_step_group g = *f->group;
	const uint32_t runs = g.stacked ? 1 : x->ep, n = last - first;

	g.ep = x->ep;
	g.nparams = n * runs;
	g.hyper = named(x, g.hyper);
	g.param = ck_arena_zalloc(x->step->arena, ((uint64_t)n * runs + 1) * sizeof(*g.param));
	if (!g.hyper || !g.param)
		return ck_fail_nomem(err, "a param group", n);
	for (uint32_t r = 0; r < runs; r++)
		memcpy(g.param + (uint64_t)r * n, all + (uint64_t)r * own + first,
		       n * sizeof(*g.param));
	return add_group(x, &g, err);
}

static int cut_family(struct regrouping *x, const struct family *f,
		      const struct ck_step_param *all, uint32_t own, struct ckpt_err *err)
{
	const struct ck_step_group as = { .ep = x->ep, .stacked = f->group->stacked };
	uint32_t first = 0;
	uint64_t sum = 0;
	int rc = 0;

	for (uint32_t k = 0; !rc && k < own; k++) {
		const uint64_t n = own_numel(&as, &all[k]);

		if (sum + n > MOST && k > first) {
			rc = cut_group(x, f, all, own, first, k, err);
			first = k;
			sum = 0;
		}
		sum += n;
	}
	return rc ? rc : cut_group(x, f, all, own, first, own, err);
}

static int deal_family(struct regrouping *x, struct family *f, struct ckpt_err *err)
{
	struct ck_step *step = x->step;
	const bool stacked = f->group->stacked;
	const uint64_t n = (uint64_t)f->nparams * f->group->ep;
	struct ck_step_param *all = f->param;
	int rc;

	if (stacked) {
		rc = check_stacks(step, f, x->ep, err);
		return rc ? rc : cut_family(x, f, all, f->nparams, err);
	}
	/* a layer that is not divided evenly is found before anything is written past the end */
	all = ck_arena_zalloc(step->arena, (n + 1) * sizeof(*all));
	if (!all)
		return ck_fail_nomem(err, "parameters of experts", n);
	rc = deal_experts(step, f, x->ep, all, err);
	return rc ? rc : cut_family(x, f, all, (uint32_t)(n / x->ep), err);
}

static int take_family(struct regrouping *x, struct ck_step_group *first, struct family *f,
		       struct ckpt_err *err)
{
	struct ck_step *step = x->step;
	const struct ck_step_group *end = step->group + step->ngroups;

	*f = (struct family){ .group = first, .n = 1 };
	while (first + f->n < end &&
	       is_continued(step, &first[f->n - 1], &first[f->n]))
		f->n++;
	for (uint32_t i = 0; i < f->n; i++)
		if (own_params(&first[i]) > 1 && group_numel(&first[i]) > MOST)
			return refuse(step, "a param group of experts has more elements than "
				      "DeepSpeed puts into one by itself, so what groups another "
				      "number of expert ranks gives is not known", err);
	return join_family(step, f, err);
}

static int regroup(struct ck_step *step, uint32_t ep, struct ckpt_err *err)
{
	struct regrouping x = { .step = step, .ep = ep };
	struct family f;
	int rc = 0;

	for (uint32_t g = 0; !rc && g < step->ngroups; g += f.n) {
		f.n = 1;
		if (!step->group[g].ep || !step->group[g].nparams) {
			rc = add_group(&x, &step->group[g], err);
			continue;
		}
		rc = take_family(&x, &step->group[g], &f, err);
		if (!rc)
			rc = deal_family(&x, &f, err);
	}
	if (rc)
		return rc;
	step->group = x.group;
	step->ngroups = x.n;
	return 0;
}

/* ---- */

/* The expert ranks of all groups, 0 without any; '*odd_out' is another number, or 0. */
static uint32_t common_ep(const struct ck_step *step, uint32_t *odd_out)
{
	uint32_t ep = 0;

	*odd_out = 0;
	for (uint32_t g = 0; g < step->ngroups; g++) {
		if (ep && step->group[g].ep && step->group[g].ep != ep)
			*odd_out = step->group[g].ep;
		if (!ep)
			ep = step->group[g].ep;
	}
	return ep;
}

static int check_world(const struct ck_step *step, uint32_t world, struct ckpt_err *err)
{
	for (uint32_t g = 0; g < step->ngroups; g++)
		if (step->group[g].ep && world % step->group[g].ep)
			return ck_fail(err, CKPT_E_USAGE, step->at.where, CKPT_NO_OFFSET,
				       "%u ranks cannot hold experts on %u expert ranks: each "
				       "expert rank is on as many ranks; give a multiple of %u "
				       "(--world), or other expert ranks (--ep)",
				       world, step->group[g].ep, step->group[g].ep);
	return 0;
}

int ck_ds_target_experts(struct ck_step *step, const struct ck_index *ix,
			 const struct ck_reshard_want *want, struct tg_layout *t,
			 struct ckpt_err *err)
{
	uint32_t ep, odd;
	int rc = 0;

	if (!has_experts(step))
		return !want->ep ? 0 :
		       ck_fail(err, CKPT_E_USAGE, step->at.where, CKPT_NO_OFFSET,
			       "the step has no experts of DeepSpeed, so it has no expert ranks "
			       "(--ep %u)", want->ep);
	rc = check_form(step, ix, want, t, err);
	if (rc)
		return rc;
	t->experts = true;
	t->by_data = step->by_data;
	ep = common_ep(step, &odd);
	if (want->ep && odd)
		return refuse(step, "the step has layers on several numbers of expert ranks, and "
			      "zckpt keeps those (--ep)", err);
	if (want->ep && ep && want->ep != ep) {
		if (step->elastic)
			return refuse(step, "an elastic step has no param groups, so its expert "
				      "ranks stay (--ep)", err);
		t->regrouped = true;
		rc = regroup(step, want->ep, err);
	}
	return rc ? rc : check_world(step, t->world, err);
}

/* An expert rank's part of a stacked parameter. */
static int take_part(struct ck_step *step, uint32_t runs, struct ck_step_param *p,
		     struct ckpt_err *err)
{
	uint64_t *shape = ck_arena_alloc(step->arena, ((uint64_t)p->ndim + 1) * sizeof(*shape));

	if (!shape)
		return ck_fail_nomem(err, "a shape", p->ndim);
	memcpy(shape, p->shape, p->ndim * sizeof(*shape));
	shape[0] /= runs;
	p->shape = shape;
	p->numel /= runs;
	return 0;
}

int ck_ds_target_runs(struct ck_step *step, const struct ck_step_group *from, struct tg_group *g,
		      struct ckpt_err *err)
{
	int rc = 0;

	g->runs = from->ep;
	g->world /= from->ep;
	g->stacked = from->stacked;
	if (!from->stacked) {
		g->nparams = from->nparams / from->ep;
		return 0;
	}
	g->param = ck_arena_zalloc(step->arena, ((uint64_t)g->nparams + 1) * sizeof(*g->param));
	if (!g->param)
		return ck_fail_nomem(err, "parameters of experts", g->nparams);
	for (uint32_t k = 0; !rc && k < g->nparams; k++) {
		g->param[k] = from->param[k];
		rc = take_part(step, from->ep, &g->param[k], err);
	}
	return rc;
}
