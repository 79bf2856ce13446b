/*
 * sv_spec.c -- the description of a step that is to be saved, copied and laid out: an index of
 * tensors without bytes, the values beside them, and the driver's plan of both.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/format/ck_limits.h"
#include "libckpt/json/ck_json.h"
#include "libckpt/json/ck_json_val.h"
#include "libckpt/save/ck_save.h"
#include "libckpt/step/ck_step.h"
#include "libckpt/step/ck_step_check.h"

#define DEFAULT_VERSION "0.19.8"
#define MAX_STATES 32u
#define MAX_GROUPS 20000u

/* ---- tensors ---- */

static int check_tensor(const struct ckpt_save_step *step, uint64_t i, struct ckpt_err *err)
{
	const struct ckpt_save_tensor *t = &step->tensor[i];
	const char *what = NULL;
	uint64_t bad;

	if (!t->name || !t->name[0])
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "tensor %" PRIu64 " of %" PRIu64 " has no name", i, step->ntensors);
	if (!ck_utf8_valid(t->name, strlen(t->name), &bad))
		what = "its name is not UTF-8";
	else if (t->role != CKPT_ROLE_TRAINABLE && t->role != CKPT_ROLE_FROZEN &&
		 t->role != CKPT_ROLE_BUFFER && t->role != CKPT_ROLE_ALIAS)
		what = "its role cannot be saved";
	else if (t->ndim && !t->shape && t->role != CKPT_ROLE_ALIAS)
		what = "it has dimensions, but its shape is NULL";
	else if (t->role == CKPT_ROLE_ALIAS && (t->alias_of >= step->ntensors ||
						step->tensor[t->alias_of].role == CKPT_ROLE_ALIAS))
		what = "it is an alias of a tensor that does not exist";
	else if (t->role != CKPT_ROLE_ALIAS && ckpt_dtype_bits(t->dtype) < 8)
		what = "zckpt does not save elements smaller than a byte or of an unknown type";
	else if ((t->role == CKPT_ROLE_TRAINABLE) != (t->group >= 0))
		what = "a trainable tensor must have a param group, any other must not";
	else if (t->group >= 0 && (uint64_t)t->group >= step->ngroups)
		what = "its param group is not declared";
	else if (t->derived && t->role != CKPT_ROLE_TRAINABLE)
		what = "only a trainable weight can be derived from a master";
	return what ? ck_fail(err, CKPT_E_USAGE, t->name, CKPT_NO_OFFSET, "%s", what) : 0;
}

/* A state whose bytes the caller will bring: one extent that nobody reads. */
static int add_state(struct sv_spec *s, uint32_t tensor, const char *name, enum ckpt_dtype dtype,
		     struct ckpt_err *err)
{
	const struct ck_extent e = {
		.count = s->ix.tensor[tensor].numel, .runs = 1, .member = CK_NONE,
		.view = CK_NONE, .rank = -1, .dtype = (uint8_t)dtype,
	};
	int rc = ck_index_state_begin(&s->ix, tensor, name, dtype, 0, err);

	if (!rc && e.count)
		rc = ck_index_state_extent(&s->ix, &e, err);
	if (!rc)
		return ck_index_state_end(&s->ix, NULL, err);
	ck_index_state_cancel(&s->ix);
	return rc;
}

static int add_states(struct sv_spec *s, const struct ckpt_save_step *step, uint32_t tensor,
		      const struct ckpt_save_tensor *t, struct ckpt_err *err)
{
	uint32_t master;
	int rc = 0;

	if (t->role == CKPT_ROLE_ALIAS)
		return 0;
	if (!t->derived)
		rc = add_state(s, tensor, "weight", t->dtype, err);
	for (uint64_t i = 0; !rc && t->role == CKPT_ROLE_TRAINABLE && i < step->nstates; i++)
		rc = add_state(s, tensor, step->state[i].name, step->state[i].dtype, err);
	if (rc || !t->derived)
		return rc;
	master = ck_index_state_find(&s->ix, tensor, "master");
	if (master == CK_NONE)
		return ck_fail(err, CKPT_E_USAGE, t->name, CKPT_NO_OFFSET,
			       "its weight is declared as derived from the master, but 'master' "
			       "is not among the states");
	return ck_index_state_derive(&s->ix, master, "weight", t->dtype, err);
}

static int add_tensor(struct sv_spec *s, const struct ckpt_save_step *step, uint64_t i,
		      struct ckpt_err *err)
{
	const struct ckpt_save_tensor *t = &step->tensor[i];
	const struct ckpt_save_tensor *of = t->role == CKPT_ROLE_ALIAS ?
					    &step->tensor[t->alias_of] : t;
	uint32_t number;
	int rc = ck_index_add_tensor(&s->ix, t->name, of->shape, of->ndim, t->role, &number, err);

	if (rc > 0)
		return ck_fail(err, CKPT_E_USAGE, t->name, CKPT_NO_OFFSET,
			       "two tensors have this name");
	if (rc)
		return rc;
	s->ix.tensor[number].group = t->group;
	if (t->role == CKPT_ROLE_ALIAS)
		s->ix.tensor[number].alias_of = t->alias_of;
	return add_states(s, step, number, t, err);
}

static int check_states(const struct ckpt_save_step *step, struct ckpt_err *err)
{
	if (step->nstates > MAX_STATES)
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET, "the step has %" PRIu64
			       " states, but at most %u are possible", step->nstates, MAX_STATES);
	for (uint64_t i = 0; i < step->nstates; i++) {
		const struct ckpt_save_state *st = &step->state[i];

		if (!st->name || !st->name[0] || strchr(st->name, '/') ||
		    !strcmp(st->name, "weight") || ckpt_dtype_bits(st->dtype) < 8)
			return ck_fail(err, CKPT_E_USAGE, st->name, CKPT_NO_OFFSET,
				       "state %" PRIu64 " has a name or type that cannot be "
				       "saved", i);
		for (uint64_t k = 0; k < i; k++)
			if (!strcmp(st->name, step->state[k].name))
				return ck_fail(err, CKPT_E_USAGE, st->name, CKPT_NO_OFFSET,
					       "two states have this name");
	}
	return 0;
}

static int make_index(struct sv_spec *s, const struct ckpt_save_step *step, const char *root,
		      struct ckpt_err *err)
{
	int rc = 0;

	if (!step->tensor || (step->nstates && !step->state) || (step->ngroups && !step->group))
		rc = ck_fail(err, CKPT_E_USAGE, s->tag, CKPT_NO_OFFSET,
			     "the list of tensors, states or param groups is NULL");
	if (!rc)
		rc = check_states(step, err);
	if (!rc && (!step->ntensors || step->ntensors >= CK_NONE || step->ngroups > MAX_GROUPS))
		rc = ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			     "cannot save a model of %" PRIu64 " tensors in %" PRIu64 " param "
			     "groups: none, or too many", step->ntensors, step->ngroups);
	for (uint64_t i = 0; !rc && i < step->ntensors; i++)
		rc = check_tensor(step, i, err);
	for (uint64_t i = 0; !rc && i < step->ntensors; i++)
		rc = add_tensor(s, step, i, err);
	s->ix.step = step->steps;
	s->ix.stage = step->stage == 4 ? 1 : step->stage;
	s->ix.ngroups = step->ngroups;
	s->ix.path = ck_arena_strdup(&s->ix.arena, root);
	s->ix.tag = s->tag;
	s->ix.optimizer = step->stage == 4 ? "BF16_Optimizer" : step->stage ? "ZeRO" : "none";
	s->ix.writer = "zckpt " CKPT_VERSION_STRING;
	return rc || s->ix.path ? rc : ck_fail_nomem(err, "a path", strlen(root));
}

/* ---- values ---- */

static int parse(struct sv_spec *s, const char *text, const char *what, const struct ck_val **out,
		 struct ckpt_err *err)
{
	struct ck_json doc = CK_JSON_INIT;
	int rc;

	*out = NULL;
	if (!text)
		return 0;
	rc = ck_json_parse(&doc, text, strlen(text), &s->limits, 0, what, err);
	if (!rc && (!doc.n || doc.tok[0].type != CK_JSON_OBJECT))
		rc = ck_fail(err, CKPT_E_CORRUPT, what, 0, "expected a JSON object");
	if (!rc) {
		*out = ck_json_val(&doc, 0, &s->arena);
		if (!*out)
			rc = ck_fail_nomem(err, what, strlen(text));
	}
	ck_json_release(&doc);
	return rc;
}

static int take_groups(struct sv_spec *s, const struct ckpt_save_step *step, struct ckpt_err *err)
{
	struct ck_shard_group *group = ck_arena_zalloc(&s->arena,
						       (step->ngroups + 1) * sizeof(*group));
	struct ck_shard_hyper *hyper = ck_arena_zalloc(&s->arena,
						       (step->ngroups + 1) * sizeof(*hyper));
	uint32_t *list = ck_arena_alloc(&s->arena, (step->ntensors + 1) * sizeof(*list));

	if (!group || !hyper || !list)
		return ck_fail_nomem(err, "groups", step->ngroups);
	for (uint64_t g = 0; g < step->ngroups; g++) {
		const struct ckpt_save_group *from = &step->group[g];

		group[g].tensor = list;
		for (uint64_t i = 0; i < step->ntensors; i++)
			if (step->tensor[i].group == (int64_t)g)
				*list++ = (uint32_t)i;
		group[g].n = (uint64_t)(list - group[g].tensor);
		group[g].weight_decay = from->weight_decay;
		hyper[g] = (struct ck_shard_hyper){
			from->lr, from->initial_lr, from->weight_decay, from->beta1, from->beta2,
			from->eps, from->step,
		};
	}
	s->want.group = group;
	s->want.ngroups = step->ngroups;
	s->now.hyper = hyper;
	return 0;
}

static int take_names(struct sv_spec *s, const struct ckpt_save_step *step, struct ckpt_err *err)
{
	const char **name = ck_arena_zalloc(&s->arena, (step->nstates + 1) * sizeof(*name));

	if (!name)
		return ck_fail_nomem(err, "states", step->nstates);
	s->now.state = name;
	for (uint64_t i = 0; i < step->nstates; i++) {
		if (!strcmp(step->state[i].name, "master"))
			continue;
		name[s->now.nstates] = ck_arena_strdup(&s->arena, step->state[i].name);
		if (!name[s->now.nstates++])
			return ck_fail_nomem(err, "states", step->nstates);
	}
	return 0;
}

static void take_scaler(struct sv_spec *s, const struct ckpt_save_scaler *from)
{
	s->want.scale = from ? from->scale : 1;
	s->want.dynamic = from && from->dynamic;
	if (!from)
		return;
	s->want.min_scale = from->min_scale;
	s->want.window = from->window;
	s->want.hysteresis = from->hysteresis;
	s->now.scaler_iter = from->iter;
	s->now.scaler_last_overflow = from->last_overflow;
	s->now.scaler_hysteresis = from->hysteresis_left;
}

/* NULL: this build cannot write it. */
static const struct ck_format *target_of(const struct ck_formats *formats, int to)
{
	return to == CKPT_TO_UNIVERSAL ? formats->universal :
	       to == CKPT_TO_NATIVE ? formats->native :
	       to == CKPT_TO_DCP ? formats->dcp :
	       to == CKPT_TO_TRAINER ? formats->trainer : formats->step;
}

static int take_layout(struct sv_spec *s, const struct ckpt_saver_opts *o,
		       const struct ckpt_save_step *step, struct ckpt_err *err)
{
	const uint32_t world = step->world ? step->world : o->nranks;
	const char *version = step->ds_version ? step->ds_version : DEFAULT_VERSION;
	int rc = ck_step_check_world(world, err);

	if (!rc && (step->to < CKPT_TO_DEEPSPEED ||
		    (step->to > CKPT_TO_DCP && step->to != CKPT_TO_TRAINER) ||
		    step->stage < 0 || step->stage > 4))
		rc = ck_fail(err, CKPT_E_USAGE, s->tag, CKPT_NO_OFFSET,
			     "cannot save layout %d at stage %d: layouts are 0 to %d and %d, "
			     "stages 0 to 4", step->to, step->stage, CKPT_TO_DCP,
			     CKPT_TO_TRAINER);
	if (!rc && s->own_cut && (step->to != CKPT_TO_NATIVE || world != o->nranks))
		rc = ck_fail(err, CKPT_E_USAGE, s->tag, CKPT_NO_OFFSET,
			     "'own' works only in the native form and for the same number of "
			     "ranks as save (%" PRIu32 ", not %" PRIu32 ")", o->nranks, world);
	if (!rc && s->local && !s->own_cut)
		rc = ck_fail(err, CKPT_E_USAGE, s->tag, CKPT_NO_OFFSET,
			     "with CKPT_SAVER_LOCAL (storage that ranks do not share) a step is "
			     "native, and each rank must list the elements that it holds in "
			     "'own'");
	s->want.step = (struct ck_reshard_want){
		.world = world, .stage = step->stage, .round_robin = step->round_robin ? 1 : 0,
		.sub_group_size = step->sub_group_size, .tag = s->tag,
		.target = target_of(s->formats, step->to),
		.cut_rank = -1, .cut_alone = s->local,
		.version = ck_arena_strdup(&s->arena, version),
	};
	return rc || s->want.step.version ? rc : ck_fail_nomem(err, "a version", 0);
}

static int take_values(struct sv_spec *s, const struct ckpt_saver_opts *o,
		       const struct ckpt_save_step *step, struct ckpt_err *err)
{
	int rc = take_layout(s, o, step, err);

	s->now.steps = step->steps;
	s->now.samples = step->samples;
	s->now.skipped = step->skipped;
	s->want.clip = step->clip_grad;
	s->want.now = &s->now;
	s->want.limits = &s->limits;
	take_scaler(s, step->scaler);
	if (!rc)
		rc = take_groups(s, step, err);
	if (!rc)
		rc = take_names(s, step, err);
	if (!rc)
		rc = parse(s, step->ds_config, "ds_config", &s->want.config, err);
	if (!rc)
		rc = parse(s, step->scheduler, "scheduler", &s->now.scheduler, err);
	if (!rc)
		rc = parse(s, step->client, "client", &s->now.client, err);
	return rc;
}

/* What `inspect` shows of a native step. */
static int add_facts(struct sv_spec *s, const struct ckpt_save_step *step, struct ckpt_err *err)
{
	int rc = ck_index_add_fact(&s->ix, err, "global_steps", "%" PRId64, step->steps);

	if (!rc)
		rc = ck_index_add_fact(&s->ix, err, "global_samples", "%" PRId64, step->samples);
	if (!rc)
		rc = ck_index_add_fact(&s->ix, err, "dp_world_size", "%" PRIu32,
				       s->want.step.world);
	for (uint64_t g = 0; !rc && g < step->ngroups; g++) {
		char key[48];

		snprintf(key, sizeof(key), "group.%" PRIu64 ".lr", g);
		rc = ck_index_add_fact(&s->ix, err, key, "%.17g", step->group[g].lr);
		snprintf(key, sizeof(key), "group.%" PRIu64 ".step", g);
		if (!rc)
			rc = ck_index_add_fact(&s->ix, err, key, "%" PRId64, step->group[g].step);
	}
	return rc;
}

/* ---- the cut ---- */

static int take_own(struct sv_spec *s, const struct ckpt_save_step *step, uint32_t rank,
		    struct ckpt_err *err)
{
	s->own = ck_arena_zalloc(&s->arena, (step->nown + 1) * sizeof(*s->own));
	if (!s->own)
		return ck_fail_nomem(err, "ranges", step->nown);
	for (uint64_t i = 0; i < step->nown; i++) {
		const struct ckpt_save_range *r = &step->own[i];
		const struct ck_tensor *t = r->tensor < s->ix.ntensors ?
					    &s->ix.tensor[r->tensor] : NULL;

		if (!t || r->first > t->numel || r->count > t->numel - r->first)
			return ck_fail(err, CKPT_E_USAGE, t ? t->name : NULL, CKPT_NO_OFFSET,
				       "range %" PRIu64 " in 'own' of rank %" PRIu32 " has "
				       "elements %" PRIu64 " to %" PRIu64 ", but the tensor has "
				       "%" PRIu64 " elements",
				       i, rank, r->first, r->first + r->count,
				       t ? t->numel : 0);
		if (t->role == CKPT_ROLE_ALIAS || !r->count)
			continue;
		s->own[s->nown++] = (struct ck_cut){
			.tensor = (uint32_t)r->tensor, .first = r->first, .count = r->count,
			.rank = rank,
		};
	}
	return 0;
}

static int plan_with(struct sv_spec *s, const struct ck_cut *cut, uint64_t ncuts, int32_t rank,
		     struct ck_plan *plan, struct ckpt_err *err)
{
	if (s->hf.wanted)
		return ck_sv_hf_plan(s, plan, err);
	s->want.step.cut = cut;
	s->want.step.ncuts = ncuts;
	s->want.step.cut_rank = rank;
	return s->want.step.target ? ck_step_shard(&s->ix, &s->want, plan, err) :
	       ck_fail(err, CKPT_E_UNSUPPORTED, NULL, CKPT_NO_OFFSET,
		       "this build cannot write steps");
}

int ck_sv_spec_plan_all(struct sv_spec *s, const struct ck_cut *cut, uint64_t ncuts,
		     struct ck_plan *plan, struct ckpt_err *err)
{
	int rc = plan_with(s, cut, ncuts, -1, plan, err);

	return rc ? rc : ck_sv_beside_plan(s, plan, err);
}

/* What not every plan has: the layout, and names, shapes, groups and types of tensors. */
static void hash_described(const struct sv_spec *s, struct ck_hasher *h)
{
	const struct ck_reshard_want *w = &s->want.step;
	const uint64_t layout[] = {
		w->world, (uint64_t)w->stage, (uint64_t)w->round_robin, w->sub_group_size,
		w->target == s->formats->universal, w->target == s->formats->native,
		w->target == s->formats->dcp, w->target == s->formats->trainer,
		s->ix.ntensors, s->ix.nstates, s->hf.wanted,
	};

	ck_hasher_add(h, layout, sizeof(layout));
	ck_hasher_add(h, w->version, strlen(w->version) + 1);
	for (uint32_t i = 0; i < s->ix.ntensors; i++) {
		const struct ck_tensor *t = &s->ix.tensor[i];
		const uint64_t is[] = { t->ndim, t->role, (uint64_t)t->group, t->alias_of };

		ck_hasher_add(h, t->name, strlen(t->name) + 1);
		ck_hasher_add(h, is, sizeof(is));
		ck_hasher_add(h, t->shape, t->ndim * sizeof(*t->shape));
	}
	for (uint32_t i = 0; i < s->ix.nstates; i++) {
		const struct ck_state *st = &s->ix.state[i];
		const uint64_t is[] = { st->tensor, st->dtype, st->flags };

		ck_hasher_add(h, st->name, strlen(st->name) + 1);
		ck_hasher_add(h, is, sizeof(is));
	}
}

/* What rank 0 alone knows goes along is in its manifest alone. */
static int plan_common(struct sv_spec *s, struct ck_plan *plan, struct ckpt_err *err)
{
	static const struct ck_cut none;
	const uint64_t n = s->want.step.nalong;
	int rc;

	s->want.step.nalong = 0;
	rc = plan_with(s, s->own_cut ? &none : NULL, 0, 0, plan, err);
	s->want.step.nalong = n;
	return rc;
}

/* The plan that all ranks share: with a cut of their own, the values. */
static int hash_common(struct sv_spec *s, uint32_t nranks, struct ckpt_err *err)
{
	const bool apart = s->own_cut || s->want.step.nalong;
	struct ck_plan common = CK_PLAN_INIT;
	struct ck_hasher *h = ck_hasher_new();
	struct ck_hash128 hash;
	int rc = h ? 0 : ck_fail_nomem(err, "a hash", 0);

	if (!rc && apart)
		rc = plan_common(s, &common, err);
	if (!rc)
		rc = ck_plan_hash(apart ? &common : &s->plan, nranks, &hash, err);
	if (!rc) {
		hash_described(s, h);
		ck_hasher_add(h, &hash, sizeof(hash));
		s->hash = ck_hasher_sum(h);
	}
	ck_hasher_free(h);
	ck_plan_release(&common);
	return rc;
}

/* ---- the whole ---- */

static int make(struct sv_spec *s, const struct ckpt_saver_opts *o,
		const struct ckpt_save_step *step, struct ck_hash128 id, struct ckpt_err *err)
{
	int rc = make_index(s, step, o->root, err);

	ck_hasher_add(s->ix.fingerprint, &id, sizeof(id));
	if (!rc)
		rc = take_values(s, o, step, err);
	if (!rc)
		rc = add_facts(s, step, err);
	if (!rc && s->own_cut)
		rc = take_own(s, step, o->rank, err);
	if (!rc)
		rc = ck_sv_beside_list(s, o->rank, step, err);
	if (!rc)
		rc = plan_with(s, s->own, s->nown, (int32_t)o->rank, &s->plan, err);
	if (!rc)
		rc = hash_common(s, o->nranks, err);
	s->nshared = s->plan.nfiles;
	return rc ? rc : ck_sv_beside_plan(s, &s->plan, err);
}

int ck_sv_spec_make(struct sv_spec *s, const struct ck_formats *formats,
		    const struct ckpt_saver_opts *o, const struct ckpt_save_step *step,
		    struct ck_hash128 id, struct ckpt_err *err)
{
	int rc;

	memset(s, 0, sizeof(*s));
	s->formats = formats;
	ck_limits_fill(NULL, &s->limits);
	rc = ck_index_init(&s->ix, s->limits.memory_bytes, err);
	if (rc)
		return rc;
	if (!step->tag)
		rc = ck_fail(err, CKPT_E_USAGE, o->root, CKPT_NO_OFFSET,
			     "'tag' is not set; a step needs a name");
	if (!rc)
		rc = ck_step_check_tag(step->tag, err);
	s->tag = rc ? NULL : ck_arena_strdup(&s->arena, step->tag);
	if (!rc && !s->tag)
		rc = ck_fail_nomem(err, "a tag", strlen(step->tag));
	if (!rc && step->frozen_from) {
		rc = ck_step_check_tag(step->frozen_from, err);
		if (!rc && step->to == CKPT_TO_NATIVE) {
			s->frozen_from = ck_arena_strdup(&s->arena, step->frozen_from);
			rc = s->frozen_from ? 0 : ck_fail_nomem(err, "a tag", 0);
		}
	}
	s->own_cut = step->own != NULL;
	s->local = o->flags & CKPT_SAVER_LOCAL;
	s->force = step->flags & CKPT_SAVE_FORCE;
	s->latest = !(step->flags & CKPT_SAVE_NO_LATEST);
	if (!rc && step->to == CKPT_TO_HUGGINGFACE)
		rc = ck_sv_hf_take(s, step, err);
	if (!rc)
		rc = make(s, o, step, id, err);
	if (rc)
		ck_sv_spec_release(s);
	return rc;
}

void ck_sv_spec_release(struct sv_spec *s)
{
	ck_free(s->along);
	ck_plan_release(&s->plan);
	ck_index_release(&s->ix);
	ck_arena_release(&s->arena);
	memset(s, 0, sizeof(*s));
}

int ck_sv_spec_state(const struct sv_spec *s, uint64_t tensor, const char *name,
		     uint32_t *state_out, struct ckpt_err *err)
{
	const struct ck_tensor *t = tensor < s->ix.ntensors ? &s->ix.tensor[tensor] : NULL;
	const uint32_t state = t && name ? ck_index_state_find(&s->ix, (uint32_t)tensor, name) :
			       CK_NONE;

	if (!t)
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "tensor %" PRIu64 " was put, but only %" PRIu64 " were declared, "
			       "counted from 0", tensor, s->ix.ntensors);
	if (t->role == CKPT_ROLE_ALIAS)
		return ck_fail(err, CKPT_E_USAGE, t->name, CKPT_NO_OFFSET,
			       "it is an alias of %s; put that tensor instead",
			       s->ix.tensor[t->alias_of].name);
	if (state == CK_NONE)
		return ck_fail(err, CKPT_E_USAGE, t->name, CKPT_NO_OFFSET,
			       "state %.60s was put, but not declared",
			       name ? name : "(NULL)");
	if (s->ix.state[state].flags & CKPT_STATE_DERIVED)
		return ck_fail(err, CKPT_E_USAGE, t->name, CKPT_NO_OFFSET,
			       "its weight is derived from the master and must not be put");
	*state_out = state;
	return 0;
}

