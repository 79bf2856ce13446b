/*
 * dcp_entries.c -- a step as the flat names of {"model": ..., "optimizer": ...}, as torch's
 * get_state_dict() and dcp.save() have it, with the client's values beside these two.
 *
 * A parameter is its master where it has one: FSDP keeps that one in fp32.  What only DeepSpeed has
 * is one more value, "deepspeed", which loaders do not ask for and which makes the way back exact.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/dcp/dcp_out.h"
#include "formats/torch_pt/ck_pt.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/step/ck_step_drop.h"
#include "libckpt/step/ck_step_ds.h"
#include "libckpt/tensor/ck_dtype.h"
#include "libckpt/tensor/ck_val_new.h"

#define DEPTH 64u
#define NUMBER_BYTES 8

/* ---- entries ---- */

/* A flat name is that of one item: of two, the client's second one is left out. */
int ck_dcp_add(struct dcp_out *o, const struct dcp_entry *e, struct ckpt_err *err)
{
	int rc;

	if (!e->name || !e->path)
		return ck_fail_nomem(err, "a name", 0);
	rc = ck_map_add(&o->by_name, e->name, strlen(e->name), o->n, NULL, err);
	if (rc > 0 && !e->is_client)
		return ck_fail(err, CKPT_E_UNSUPPORTED, e->name, CKPT_NO_OFFSET,
			       "two items of a DCP folder would have this name");
	if (rc > 0) {
		ck_findings_add(o->step->f, CK_FINDING_NOT_CARRIED, e->name,
				"another value has the same name in a DCP folder");
		return 0;
	}
	if (!rc)
		rc = ck_grow(&o->entry, &o->cap, o->n + 1, sizeof(*o->entry), err);
	if (!rc) {
		o->entry[o->n] = *e;
		/* accelerate merge-weights wants the model alone in its folder */
		o->entry[o->n++].part = o->is_split &&
					strncmp(e->name, o->model, strlen(o->model)) != 0;
	}
	return rc;
}

/* Steps of a path: those of "a.b." first, then up to three. */
struct ck_val *ck_dcp_path(struct dcp_out *o, const char *begin, const char *const *step,
			   size_t n)
{
	struct ck_val *item[DEPTH + 4];
	uint64_t k = 0;

	for (const char *p = begin; *p && k < DEPTH; p += strcspn(p, ".") + 1)
		item[k++] = ck_val_new_strn(o->arena, p, strcspn(p, "."));
	for (size_t i = 0; i < n; i++)
		item[k++] = ck_val_new_str(o->arena, step[i]);
	return ck_val_new_tuple(o->arena, item, k);
}

struct ck_val *ck_dcp_path_add(struct dcp_out *o, const struct ck_val *path, struct ck_val *step)
{
	struct ck_val *const *item = NULL, **more;
	uint64_t n = 0;

	ck_val_seq(path, &item, &n);
	more = ck_arena_alloc(o->arena, (n + 1) * sizeof(struct ck_val *));
	if (!more || !step)
		return NULL;
	if (n)
		memcpy(more, item, n * sizeof(struct ck_val *));
	more[n] = step;
	return ck_val_new_tuple(o->arena, more, n + 1);
}

/* Blocks of rows, one for each rank that has any; what has no rows is rank 0's. */
static int cut(struct dcp_out *o, struct dcp_entry *e, struct ckpt_err *err)
{
	const uint64_t rows = e->ndim ? e->shape[0] : 0;
	const uint64_t each = (rows + o->world - 1) / o->world;
	uint64_t n = 0, numel;
	int rc = ck_shape_numel(e->shape, e->ndim, &numel, err);

	if (rc)
		return rc;
	e->spot = ck_arena_zalloc(o->arena, (ck_min_u64(o->world, rows) + 1) * sizeof(*e->spot));
	if (!e->spot)
		return ck_fail_nomem(err, "blocks", o->world);
	if (!e->ndim || !numel)
		e->spot[n++] = (struct dcp_spot){ .rows = rows };
	for (uint32_t r = 0; e->ndim && numel && r < o->world && r * each < rows; r++)
		e->spot[n++] = (struct dcp_spot){
			.rank = r, .row = r * each, .rows = ck_min_u64(each, rows - r * each),
		};
	e->nspots = n;
	return 0;
}

static int add_state(struct dcp_out *o, uint32_t tensor, const char *name, struct ck_val *path,
		     uint32_t state, struct ckpt_err *err)
{
	const struct ck_tensor *t = &o->ix->tensor[tensor];
	struct dcp_entry e = {
		.name = name, .path = path, .is_tensor = true, .state = state, .ndim = t->ndim,
		.shape = t->shape,
		.dtype = o->ix->state[state].dtype,
	};
	int rc = cut(o, &e, err);

	return rc ? rc : ck_dcp_add(o, &e, err);
}

int ck_dcp_add_value(struct dcp_out *o, const char *name, struct ck_val *path,
		     const struct ck_val *v, bool is_client, struct ckpt_err *err)
{
	struct dcp_entry e = {
		.name = name, .path = path, .value = (struct ck_val *)v, .state = CK_NONE,
		.is_client = is_client,
		.spot = ck_arena_zalloc(o->arena, sizeof(*e.spot)), .nspots = 1,
	};

	return !e.spot || !v ? ck_fail_nomem(err, "a value", 0) : ck_dcp_add(o, &e, err);
}

/* ---- the model ---- */

/* The state that FSDP's parameter is: the master, in fp32. */
static uint32_t parameter_of(const struct dcp_out *o, uint32_t tensor)
{
	const uint32_t master = ck_index_state_find(o->ix, tensor, "master");

	return master == CK_NONE ? ck_index_state_find(o->ix, tensor, "weight") : master;
}

/* A tied name is there in full, as torch writes it. */
static int add_model(struct dcp_out *o, struct ckpt_err *err)
{
	int rc = 0;

	for (uint32_t i = 0; !rc && i < o->ix->ntensors; i++) {
		const struct ck_tensor *t = &o->ix->tensor[i];
		const uint32_t of = t->role == CKPT_ROLE_ALIAS ? (uint32_t)t->alias_of : i;
		const uint32_t state = parameter_of(o, of);

		if (state == CK_NONE)
			continue;
		rc = add_state(o, of, ck_arena_printf(o->arena, "%s%s", o->model, t->name),
			       ck_dcp_path(o, o->model, &t->name, 1), state, err);
	}
	return rc;
}

/* ---- the optimizer ---- */

/* Of "optimizer.state.NAME.STATE"; a flat one is one step below "optimizer". */
static struct ck_val *state_path(struct dcp_out *o, const char *name, const char *state)
{
	const char *step[3] = { "state", name, state };
	const char *flat = ck_arena_printf(o->arena, "state.%s.%s", name, state);

	return !flat ? NULL : o->flat ? ck_dcp_path(o, o->optim, &flat, 1) :
	       ck_dcp_path(o, o->optim, step, 3);
}

static int add_moments(struct dcp_out *o, uint32_t tensor, struct ckpt_err *err)
{
	const struct ck_tensor *t = &o->ix->tensor[tensor];
	int rc = 0;

	for (uint32_t s = t->first_state; !rc && s != CK_NONE; s = o->ix->state[s].next) {
		const char *state = o->ix->state[s].name;

		if (!ck_step_is_moment(o->want, state))
			continue;
		rc = add_state(o, tensor, ck_arena_printf(o->arena, "%sstate.%s.%s", o->optim,
							  t->name, state),
			       state_path(o, t->name, state), s, err);
	}
	return rc;
}

/* torch's count of steps: a tensor of one F32 for each parameter. */
static int add_step(struct dcp_out *o, const char *name, double count, struct ckpt_err *err)
{
	struct dcp_entry e = {
		.name = ck_arena_printf(o->arena, "%sstate.%s.step", o->optim, name),
		.path = state_path(o, name, "step"), .is_tensor = true, .state = CK_NONE,
		.dtype = CKPT_F32,
		.number = (float)(o->want->reset ? 0 : count),
	};
	int rc = cut(o, &e, err);

	return rc ? rc : ck_dcp_add(o, &e, err);
}

static bool is_hyper(const char *key, const struct ck_val *v)
{
	return ck_step_ds_is_hyper(key, v) && !strchr(key, '.');
}

/* Of group 'g', or of a parameter. */
static int add_hyper_of(struct dcp_out *o, uint32_t g, const char *name, const char *key,
			const struct ck_val *v, struct ckpt_err *err)
{
	struct ck_arena *a = o->arena;
	const char *group = ck_arena_printf(a, "%u", g), *step = "param_groups";
	const char *own = ck_arena_printf(a, "param_groups.%s.%s", name ? name : group, key);
	struct ck_val *path = ck_dcp_path(o, o->optim, name ? &own : &step, 1);

	if (!name)
		path = ck_dcp_path_add(o, ck_dcp_path_add(o, path, ck_val_new_int(a, g)),
				       ck_val_new_str(a, key));
	return !own || !group ? ck_fail_nomem(err, "a name", strlen(key)) :
	       ck_dcp_add_value(o, ck_arena_printf(a, "%s%s", o->optim, own), path, v, false, err);
}

static int add_hyper(struct dcp_out *o, uint32_t g, const char *key, const struct ck_val *v,
		     struct ckpt_err *err)
{
	const struct ck_step_group *group = &o->step->group[g];
	int rc = 0;

	if (o->is_old && !o->flat) {
		o->groups[g] = ck_val_dict_sets(o->arena, o->groups[g], key, (struct ck_val *)v);
		return o->groups[g] ? 0 : ck_fail_nomem(err, "a param group", g);
	}
	if (!o->flat)
		return add_hyper_of(o, g, NULL, key, v, err);
	for (uint32_t i = 0; !rc && i < group->nparams && strcmp(key, "params"); i++)
		rc = add_hyper_of(o, g, group->param[i].name, key, v, err);
	return rc;
}

/* Groups of Adam and AdamW are the same before torch 2.6. */
static void note_decay(struct dcp_out *o, uint32_t g, const struct ck_val *hyper)
{
	double decay = 0;

	if (ck_val_get(hyper, "amsgrad") &&
	    ck_val_num(ck_val_get(hyper, "weight_decay"), &decay) && decay != 0)
		ck_findings_add(o->step->f, CK_FINDING_FORMAT_NOTE, o->tag,
				"group %u has weight decay and does not say whether it is Adam's "
				"or AdamW's (torch before 2.6): decoupled_weight_decay is written "
				"as True, AdamW's", g);
}

/* What torch's AdamW has and DeepSpeed's has not: loaders ask for each by name. */
static int add_defaults(struct dcp_out *o, uint32_t g, const struct ck_val *hyper,
			struct ckpt_err *err)
{
	struct ck_arena *a = o->arena;
	const struct ck_val *lr = ck_val_get(hyper, "lr");
	const struct {
		const char *key;
		const struct ck_val *v;
	} all[] = {
		{ "amsgrad", ck_val_new_bool(a, false) }, { "maximize", ck_val_new_bool(a, false) },
		{ "foreach", ck_val_new_none(a) }, { "capturable", ck_val_new_bool(a, false) },
		{ "differentiable", ck_val_new_bool(a, false) }, { "fused", ck_val_new_none(a) },
		{ "decoupled_weight_decay", ck_val_new_bool(a, true) }, { "initial_lr", lr },
	};
	int rc = 0;

	for (size_t i = 0; !rc && lr && i < CK_ARRAY_LEN(all); i++) {
		if (ck_val_get(hyper, all[i].key))
			continue;
		if (!strcmp(all[i].key, "decoupled_weight_decay")) {
			if (o->is_old)
				continue;
			note_decay(o, g, hyper);
		}
		rc = add_hyper(o, g, all[i].key, all[i].v, err);
	}
	return rc;
}

/* A number, or a tensor of one in a file of the step. */
static bool number_of(const struct dcp_out *o, const struct ck_val *v, double *out)
{
	const struct ck_tensor_ref *t = ck_val_tensor(v);
	struct ck_tensor_ref ref;
	uint8_t *p = NULL;
	bool is_out = false;

	if (ck_val_num(v, out))
		return true;
	for (uint32_t i = 0; t && t->numel == 1 && i < o->step->nfiles; i++) {
		const struct ck_step_file *f = &o->step->file[i];

		if (!f->pt || t->storage < f->first || t->storage - f->first >= f->pt->nstorages)
			continue;
		ref = *t;
		ref.storage -= f->first;
		is_out = !ck_pt_tensor_bytes(f->pt, &ref, NUMBER_BYTES, &p, NULL) && p &&
			 ck_dtype_number(t->dtype, p, out);
		ck_free(p);
		break;
	}
	return is_out;
}

static int add_group(struct dcp_out *o, uint32_t g, struct ckpt_err *err)
{
	const struct ck_step_group *group = &o->step->group[g];
	struct ck_val *names = ck_val_new_list(o->arena), *const *item;
	double count = 0;
	const bool counted = number_of(o, ck_val_get(group->entry, "step"), &count) ||
			     number_of(o, ck_val_get(group->hyper, "step"), &count);
	uint64_t n = 0;
	int rc = 0;

	for (uint32_t i = 0; !rc && i < group->nparams; i++) {
		const struct ck_step_param *p = &group->param[i];
		uint32_t tensor;

		if (!ck_index_find(o->ix, p->name, &tensor))
			return ck_fail(err, CKPT_E_MISMATCH, p->name, CKPT_NO_OFFSET,
				       "the parameter is not in the index");
		names = ck_val_list_add(o->arena, names, ck_val_new_str(o->arena, p->name));
		if (counted)
			rc = add_step(o, p->name, count, err);
		if (!rc)
			rc = add_moments(o, tensor, err);
	}
	ck_val_pairs(o->source ? o->source->group[g].hyper : group->hyper, &item, &n);
	for (uint64_t i = 0; !rc && i < n; i++) {
		const char *key = ck_val_str(item[2 * i]);

		if (is_hyper(key, item[2 * i + 1]))
			rc = add_hyper(o, g, key, item[2 * i + 1], err);
	}
	if (!rc && (!o->source || (!o->is_old && (o->source->fs.is_old || o->want->torch))))
		rc = add_defaults(o, g, group->hyper, err);
	return rc ? rc : add_hyper(o, g, "params", names, err);
}

/* ---- what DeepSpeed needs on the way back ---- */

/* Names of each group: a flat optimizer has values of parameters, not groups. */
static struct ck_val *group_names(struct dcp_out *o)
{
	struct ck_val *all = ck_val_new_list(o->arena);

	for (uint32_t g = 0; g < o->step->ngroups; g++) {
		const struct ck_step_group *group = &o->step->group[g];
		struct ck_val *names = ck_val_new_list(o->arena);

		for (uint32_t i = 0; i < group->nparams; i++)
			names = ck_val_list_add(o->arena, names,
						ck_val_new_str(o->arena, group->param[i].name));
		all = ck_val_list_add(o->arena, all, names);
	}
	return all;
}

static int add_deepspeed(struct dcp_out *o, struct ckpt_err *err)
{
	const struct ck_val *scheduler = ck_val_get(o->step->model, "lr_scheduler");
	struct ck_val *d = ck_step_ds_make(o->step, o->ix, o->arena, is_hyper,
					   ck_dcp_is_scheduler(scheduler));
	const char *name = "deepspeed";

	if (o->flat)
		d = ck_val_dict_sets(o->arena, d, "param_groups", group_names(o));
	return ck_dcp_add_value(o, name, ck_dcp_path(o, "", &name, 1), d, false, err);
}

/* Of torch before 2.4: the groups are one value. */
static int add_groups_whole(struct dcp_out *o, struct ckpt_err *err)
{
	struct ck_val *all = ck_val_new_list(o->arena);
	const char *step = "param_groups";

	for (uint32_t g = 0; g < o->step->ngroups; g++)
		all = ck_val_list_add(o->arena, all, o->groups[g]);
	return ck_dcp_add_value(o, ck_arena_printf(o->arena, "%s%s", o->optim, step),
				ck_dcp_path(o, o->optim, &step, 1), all, false, err);
}

static int add_optimizer(struct dcp_out *o, struct ckpt_err *err)
{
	int rc = 0;

	o->groups = ck_arena_zalloc(o->arena, ((uint64_t)o->step->ngroups + 1) *
				    sizeof(struct ck_val *));
	if (!o->groups)
		return ck_fail_nomem(err, "param groups", o->step->ngroups);
	for (uint32_t g = 0; !rc && g < o->step->ngroups; g++) {
		o->groups[g] = ck_val_new_dict(o->arena);
		rc = add_group(o, g, err);
	}
	return rc || !o->is_old || o->flat ? rc : add_groups_whole(o, err);
}

int ck_dcp_entries_make(struct dcp_out *o, struct ckpt_err *err)
{
	int rc = add_model(o, err);

	if (!rc)
		rc = add_optimizer(o, err);
	if (!rc)
		rc = ck_dcp_clients_add(o, err);
	return rc || (o->source && !o->source->deepspeed) ? rc : add_deepspeed(o, err);
}
