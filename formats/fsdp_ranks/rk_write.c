/*
 * rk_write.c -- a step as rank files of FSDP2, under verl's names: for each rank its rows of every
 * parameter and of its optimizer states, buffers whole, and the extra state.
 *
 * A parameter is its master where it has one: FSDP keeps that one in fp32.
 */
#include <inttypes.h>
#include <string.h>

#include "formats/fsdp_ranks/rk_out.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/step/ck_step_along.h"
#include "libckpt/tensor/ck_dtype.h"
#include "libckpt/tensor/ck_extents.h"
#include "libckpt/tensor/ck_val_new.h"

/* ---- the torch that will load them ---- */

/* Versions whose own files have been compared, key by key. */
static const struct {
	uint32_t major, minor;
	enum rk_form form;
} forms[] = {
	{ 2, 6, RK_FORM_2_6 }, { 2, 8, RK_FORM_2_8 }, { 2, 11, RK_FORM_2_11 },
	{ 2, 15, RK_FORM_2_15 },
};

static int choose_form(struct rk_out *o, struct ckpt_err *err)
{
	const uint32_t major = o->want->torch >> 16, minor = o->want->torch >> 8 & 0xff;

	o->form = RK_FORM_2_11;
	if (!o->want->torch)
		return 0;
	for (size_t i = 0; i < CK_ARRAY_LEN(forms); i++)
		if (major == forms[i].major && minor == forms[i].minor) {
			o->form = forms[i].form;
			return 0;
		}
	return ck_fail(err, CKPT_E_UNSUPPORTED, NULL, CKPT_NO_OFFSET,
		       "the form in which torch %" PRIu32 ".%" PRIu32 " pickles a DTensor is not "
		       "known; those of 2.6, 2.8, 2.11 and 2.15 are written, and --to dcp writes "
		       "a folder that each torch from 2.4 on loads", major, minor);
}

/* ---- names ---- */

/* The state that FSDP's parameter is: the master, in fp32. */
static uint32_t parameter_of(const struct rk_out *o, uint32_t tensor)
{
	const uint32_t master = ck_index_state_find(o->ix, tensor, "master");

	return master == CK_NONE ? ck_index_state_find(o->ix, tensor, "weight") : master;
}

/* Ranks have parts of it. */
static bool is_in_parts(const struct rk_out *o, uint32_t state)
{
	const struct ck_state *s = &o->ix->state[state];

	for (uint64_t i = 1; i < s->nstored; i++)
		if (ck_extent_stored(o->ix, s, i)->rank != ck_extent_stored(o->ix, s, 0)->rank)
			return true;
	return false;
}

/* One that no file calls a parameter: by its parts in the source, or its name. */
static bool may_be_parameter(const struct rk_out *o, const struct ck_tensor *t, uint32_t state)
{
	const char *dot = strrchr(t->name, '.'), *last = dot ? dot + 1 : t->name;
	uint64_t at;

	if (ck_dtype_info((enum ckpt_dtype)o->ix->state[state].dtype)->cls != CK_CLASS_FLOAT)
		return false;
	if (o->source && o->source->any_sharded)
		return ck_map_find(&o->source->by_name, t->name, strlen(t->name), &at) &&
		       o->source->tensor[at].sharded;
	return is_in_parts(o, state) || !strcmp(last, "weight") || !strcmp(last, "bias");
}

/* FSDP2 shards every parameter that has rows. */
static bool is_sharded(struct rk_out *o, const struct ck_tensor *t, uint32_t state)
{
	if (!t->ndim)
		return false;
	if (t->role != CKPT_ROLE_PLAIN)
		return t->role == CKPT_ROLE_TRAINABLE || t->role == CKPT_ROLE_FROZEN;
	if (!may_be_parameter(o, t, state))
		return false;
	o->guessed = o->guessed ? o->guessed : t->name;
	o->nguessed++;
	return true;
}

static int add_name(struct rk_out *o, uint32_t tensor, bool *done, struct ckpt_err *err)
{
	const struct ck_tensor *t = &o->ix->tensor[tensor];
	const uint32_t of = t->role == CKPT_ROLE_ALIAS ? (uint32_t)t->alias_of : tensor;
	const uint32_t state = parameter_of(o, of);

	if (done[tensor] || state == CK_NONE)
		return 0;
	done[tensor] = true;
	if (t->ndim > RK_MOST_DIMS)
		return ck_fail(err, CKPT_E_UNSUPPORTED, t->name, CKPT_NO_OFFSET,
			       "a tensor of %u dimensions; torch has %u at most", t->ndim,
			       RK_MOST_DIMS);
	if (!ck_dtype_info((enum ckpt_dtype)o->ix->state[state].dtype)->torch)
		return ck_fail(err, CKPT_E_UNSUPPORTED, t->name, CKPT_NO_OFFSET,
			       "torch has no type %s",
			       ckpt_dtype_name((enum ckpt_dtype)o->ix->state[state].dtype));
	o->named[o->nnamed++] = (struct rk_named){
		.name = t->name, .tensor = of, .state = state,
		.sharded = is_sharded(o, &o->ix->tensor[of], state),
	};
	return 0;
}

/* In the order of the state dict where the step has it: the reader's proofs go by that order. */
static int list_names(struct rk_out *o, struct ckpt_err *err)
{
	const uint64_t n = o->ix->ntensors;
	bool *done = ck_zalloc(n + 1);
	struct ck_val *const *item;
	uint64_t m = 0;
	int rc = 0;

	o->named = ck_arena_zalloc(o->step->arena, (n + 1) * sizeof(*o->named));
	if (!done || !o->named)
		rc = ck_fail_nomem(err, "names", n);
	ck_val_pairs(ck_val_get(o->step->model, "module"), &item, &m);
	for (uint64_t i = 0; !rc && i < m; i++) {
		const char *name = ck_val_str(item[2 * i]);
		uint32_t tensor;

		if (name && ck_index_find(o->ix, name, &tensor))
			rc = add_name(o, tensor, done, err);
	}
	for (uint32_t i = 0; !rc && i < n; i++)
		rc = add_name(o, i, done, err);
	if (o->guessed && !o->source)
		ck_findings_add(o->step->f, CK_FINDING_FORMAT_NOTE, o->guessed,
				"%" PRIu64 " tensors that no file calls parameters are written as "
				"such, in parts: ranks had parts of them, or they have names of "
				"weights", o->nguessed);
	ck_free(done);
	return rc;
}

/* ---- files ---- */

static struct ck_val *model_of(struct rk_out *o)
{
	struct ck_val *d = ck_val_new_ordered(&o->arena);

	for (uint64_t i = 0; i < o->nnamed; i++) {
		const struct rk_named *n = &o->named[i];

		d = ck_val_dict_add(&o->arena, d, ck_val_new_str(&o->arena, n->name),
				    n->sharded ? ck_rk_out_sharded(o, n->tensor, n->state) :
						 ck_rk_out_whole(o, n->tensor, n->state));
	}
	return d;
}

static const char *name_of(struct rk_out *o, const char *kind)
{
	return ck_arena_printf(&o->arena, "%s/%s_world_size_%" PRIu32 "_rank_%" PRIu32 ".pt",
			       o->dir, kind, o->world, o->rank);
}

/* Nothing of a file is needed once it is planned. */
static int write_file(struct rk_out *o, const char *kind, struct ck_val *(*make)(struct rk_out *),
		      struct ckpt_err *err)
{
	struct ck_pt_want want = {
		.ix = o->ix, .root = make(o), .name = name_of(o, kind), .storage = o->storage,
		.nstorages = o->nstorages,
	};
	int rc = want.root && want.name ? ck_pt_plan_file(&want, o->plan, err) :
					  ck_fail_nomem(err, "a rank's file", o->nnamed);

	o->nstorages = 0;
	o->shared = (struct rk_shared){ .nkeys = 0 };
	ck_map_release(&o->by_state);
	ck_arena_release(&o->arena);
	return rc;
}

/* With as many ranks the extra state is that of the source, with its random states. */
static bool keeps_extra(const struct rk_out *o)
{
	const struct rk *r = o->source;

	if (!r || r->naming != RK_VERL || r->world != o->world || o->want->reset)
		return false;
	for (uint32_t k = 0; k < r->world; k++)
		if (!r->extra[k] || !r->extra[k]->ok)
			return false;
	return true;
}

static int copy_extra(struct rk_out *o, struct ckpt_err *err)
{
	const struct rk_file *file = o->source->extra[o->rank];
	const char *name = name_of(o, "extra_state");
	int rc = name ? ck_plan_file(o->plan, name, err) : ck_fail_nomem(err, "a name", 0);

	if (!rc)
		rc = ck_plan_copy(o->plan, file->path, 0, file->bytes, err);
	ck_arena_release(&o->arena);
	return rc;
}

static int write_config(struct rk_out *o, struct ckpt_err *err)
{
	struct ck_arena *a = o->step->arena;
	const char *name = ck_arena_printf(a, "%s/fsdp_config.json", o->dir);
	const char *text = ck_arena_printf(a, "{\n    \"FSDP_version\": 2,\n"
					   "    \"world_size\": %" PRIu32 "\n}", o->world);
	int rc = name && text ? ck_plan_file(o->plan, name, err) : ck_fail_nomem(err, "a name", 0);

	return rc ? rc : ck_plan_literal(o->plan, text, strlen(text), err);
}

static int write_all(struct rk_out *o, struct ckpt_err *err)
{
	const bool keep = keeps_extra(o);
	int rc = 0;

	for (o->rank = 0; !rc && o->rank < o->world; o->rank++)
		rc = write_file(o, "model", model_of, err);
	for (o->rank = 0; !rc && o->rank < o->world; o->rank++)
		rc = write_file(o, "optim", ck_rk_out_optimizer, err);
	for (o->rank = 0; !rc && o->rank < o->world; o->rank++)
		rc = keep ? copy_extra(o, err) : write_file(o, "extra_state", ck_rk_out_extra, err);
	if (!rc && !keep)
		ck_rk_out_note_values(o);
	return rc ? rc : write_config(o, err);
}

/* ---- the driver ---- */

/* verl's folder of a model is kept where the step's name lets verl and zckpt find it. */
static const char *dir_of(const struct rk_out *o)
{
	if (!o->tag || !o->source || !*o->source->sub || strncmp(o->tag, "global_step", 11) != 0)
		return o->tag;
	return ck_arena_printf(o->step->arena, "%s/%s", o->tag, o->source->sub);
}

int ck_rk_write_step(struct ck_step *step, const struct ck_index *ix,
		  const struct ck_reshard_want *want, struct ck_plan *plan, struct ckpt_err *err)
{
	const struct rk *from = step->format == &ck_format_fsdp_ranks ? step->from : NULL;
	uint64_t number;
	struct rk_out o = {
		.step = step, .ix = ix, .want = want, .plan = plan, .source = from,
		.tag = from && !want->tag && ck_step_number(ix->tag, &number) ? ix->tag :
		       ck_step_tag(step, want),
		.device = want->device ? want->device :
			  from && from->device ? from->device : "cuda",
		.world = want->world ? want->world : step->world ? step->world : 1,
	};
	struct ck_step_along along = { .step = step, .want = want, .tag = o.tag };
	int rc = choose_form(&o, err);

	if (!rc && step->complete)
		rc = step->complete(step, err);
	o.dir = dir_of(&o);
	if (!rc && !o.dir)
		rc = ck_fail_nomem(err, "a name", 0);
	if (!rc)
		rc = ck_rk_out_check(&o, err);
	if (!rc)
		rc = list_names(&o, err);
	if (!rc)
		rc = ck_rk_out_prepare(&o, err);
	if (!rc)
		rc = write_all(&o, err);
	if (!rc)
		rc = ck_step_along_list(&along, err);
	if (!rc)
		rc = ck_step_along_plan(&along, plan, err);
	ck_step_along_release(&along);
	ck_map_release(&o.by_state);
	ck_arena_release(&o.arena);
	ck_free(o.storage);
	return rc;
}
