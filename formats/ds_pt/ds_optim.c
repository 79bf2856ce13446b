/*
 * ds_optim.c -- optimizer shards: what kind they are, and the slices of each rank.
 *
 * State is taken by rule, not by optimizer: whatever stands under state[g] as a contiguous tensor
 * is a candidate under the optimizer's own name for it; ds_z12.c and ds_z3.c accept it when
 * its length is that of the partition.  One-element tensors named "step" are scalars.
 */
#include <inttypes.h>
#include <string.h>

#include <ckpt_zero.h>

#include "formats/ds_pt/ck_ds.h"
#include "formats/ds_pt/ds_experts.h"
#include "libckpt/base/ck_err.h"

#define COMPARE_DEPTH 200

static struct ck_val *zero_dict(const struct ds_file *file)
{
	return ck_val_get(file->pt->doc.root, "optimizer_state_dict");
}

bool ck_ds_stage_of(const struct ck_val *v, int64_t *out)
{
	static const char *const member[] = { "disabled", "optimizer_states", "gradients",
					      "weights" };

	if (v && v->kind == CK_VAL_OBJECT && ck_val_is_call(v, "builtins", "getattr")) {
		for (size_t i = 0; i < CK_ARRAY_LEN(member); i++)
			if (ck_val_is_str(ck_val_at(v->u.obj->args, 1), member[i])) {
				*out = (int64_t)i;
				return true;
			}
		return false;
	}
	if (v && v->kind == CK_VAL_OBJECT)
		v = ck_val_at(v->u.obj->args, 0);
	return ck_val_int(v, out);
}

static struct ck_val *masters_of(bool stage3, const struct ck_val *zero)
{
	return ck_val_get(zero, stage3 ? "fp32_flat_groups" : "single_partition_of_fp32_groups");
}

static struct ck_val *masters(const struct ds_step *ds, const struct ck_val *zero)
{
	return masters_of(ds->stage == 3, zero);
}

/* Rigid: a torch optimizer's dict.  Elastic: a list over groups, NULL here. */
struct ck_val *ck_ds_torch_optimizer(const struct ds_step *ds, const struct ck_val *zero)
{
	return ck_val_get(zero, ds->stage == 3 ? "optimizer_state_dict" :
			  "base_optimizer_state");
}

struct ck_val *ck_ds_param_groups(const struct ds_step *ds, const struct ck_val *zero)
{
	return ck_val_get(ck_ds_torch_optimizer(ds, zero), "param_groups");
}

/* Where the states of a shard are: a list over groups, or a dictionary by key. */
struct states {
	struct ck_val *const *item;
	uint64_t n;
	bool listed;
	struct ck_map by_key;	/* the 8 bytes of an integer key -> pair */
};

static int find_states(const struct ds_step *ds, const struct ck_val *zero, struct states *s,
		       struct ckpt_err *err)
{
	const struct ck_val *opt = ck_ds_torch_optimizer(ds, zero);
	int rc = 0;

	memset(s, 0, sizeof(*s));
	s->listed = ck_val_seq(opt, &s->item, &s->n);
	if (s->listed || !ck_val_pairs(ck_val_get(opt, "state"), &s->item, &s->n))
		return 0;
	for (uint64_t i = s->n; rc >= 0 && i > 0; i--) {	/* of two, the later one counts */
		const struct ck_val *key = s->item[2 * (i - 1)];

		if (key->kind == CK_VAL_INT)
			rc = ck_map_add(&s->by_key, (const char *)&key->u.i, sizeof(key->u.i),
					i - 1, NULL, err);
	}
	return rc < 0 ? rc : 0;
}

static const struct ck_val *state_of(const struct states *s, const struct ds_step *ds,
				     uint64_t part)
{
	const int64_t *key = &ds->group[part].state_key;
	uint64_t i;

	if (s->listed)
		return part < s->n ? s->item[part] : NULL;
	if (!ck_map_find(&s->by_key, (const char *)key, sizeof(*key), &i))
		return NULL;
	return s->item[2 * i + 1];
}

/*
 * partition_count: a number, or a list with one per group, which are all alike unless
 * experts are spread; then '*alike_out' is false.
 */
static int64_t partition_count(const struct ck_val *zero, bool *alike_out)
{
	const struct ck_val *v = ck_val_get(zero, "partition_count");
	struct ck_val *const *item;
	int64_t first = 0, one = 0;
	uint64_t n;

	*alike_out = true;
	if (ck_val_int(v, &one))
		return one;
	if (!ck_val_seq(v, &item, &n) || !n || !ck_val_int(item[0], &first))
		return 0;
	for (uint64_t i = 1; i < n; i++)
		if (!ck_val_int(item[i], &one) || one != first)
			*alike_out = false;
	return first;
}

/* Stage 3 alone has a model file for each rank; 'world' is what the model file says, or 0. */
bool ck_ds_fits_model(const struct ds_step *ds, const struct ds_file *file, int64_t world)
{
	const bool stage3 = ds->model_file->id.kind == DS_MODEL_RANK;
	const struct ck_val *zero = zero_dict(file);
	bool alike;
	int64_t n;

	if (!masters_of(stage3, zero) && masters_of(!stage3, zero))
		return false;
	n = partition_count(zero, &alike);
	return !world || n < 1 || n == world || (ds->experts && world % n == 0);
}

static int refuse(const struct ds_step *ds, const char *what, struct ckpt_err *err)
{
	return ck_fail(err, CKPT_E_LAYOUT, ds->optim_file->path, CKPT_NO_OFFSET,
		       "LAYOUT_UNSUPPORTED: %s", what);
}

static int read_stage(struct ds_step *ds, struct ckpt_err *err)
{
	int64_t stage = -1;

	if (ck_val_get(ds->zero, "local_sub_partitions_of_fp32_groups"))
		return refuse(ds, "the interleaved stage-1 layout of DeepSpeed before 0.5.9", err);
	if (ck_val_get(ds->zero, "ds_zero_partition_groups"))
		return refuse(ds, "mixture of experts by AutoEP (expert parallel)", err);
	if (ck_ds_stage_of(ck_val_get(ds->zero, "zero_stage"), &stage)) {
		ds->stage = (int)stage;
		if (ck_val_get(ds->zero, "fp32_flat_groups"))
			ds->stage = 3;
		if (stage >= 1 && stage <= 3)
			return 0;
		return refuse(ds, "a zero_stage other than 1, 2, 3", err);
	}
	if (ck_val_get(ds->zero, "fp32_flat_groups")) {
		ds->stage = 3;
		return 0;
	}
	if (!ck_val_get(ds->zero, "single_partition_of_fp32_groups"))
		return refuse(ds, "a shard without zero_stage, fp32_flat_groups and "
			      "single_partition_of_fp32_groups", err);
	ds->stage = 1;
	ds->bf16_optimizer = true;
	return 0;
}

int ck_ds_read_zero_dict(struct ds_step *ds, struct ckpt_err *err)
{
	struct ck_val *const *item;
	int64_t world;
	bool alike;
	uint64_t n;
	int rc;

	ds->zero = zero_dict(ds->optim_file);
	if (!ck_val_pairs(ds->zero, &item, &n))
		return ck_fail(err, CKPT_E_CORRUPT, ds->optim_file->path, CKPT_NO_OFFSET,
			       "this shard has no 'optimizer_state_dict'");
	rc = read_stage(ds, err);
	if (rc)
		return rc;
	ds->param_groups = ck_ds_param_groups(ds, ds->zero);
	ds->elastic = ck_val_seq(ck_ds_torch_optimizer(ds, ds->zero), &item, &n);
	world = partition_count(ds->zero, &alike);
	if (ds->experts)
		world = ck_ds_experts_world(ds, world);
	else if (!alike)
		return refuse(ds, "param groups are divided among different numbers of ranks "
			      "(partition_count; mixture of experts)", err);
	if (world < 1 || world > CKPT_ZERO_MAX_WORLD)
		return ck_fail(err, CKPT_E_CORRUPT, ds->optim_file->path, CKPT_NO_OFFSET,
			       "LENGTH_WRONG: partition_count is %" PRId64 "; 1 to %u ranks are "
			       "possible", world, CKPT_ZERO_MAX_WORLD);
	ds->world = (uint32_t)world;
	return 0;
}

static uint32_t state_number(const struct ds_step *ds, const char *name)
{
	uint32_t i = 0;

	while (i < ds->nstates && strcmp(ds->state_name[i], name))
		i++;
	return i;
}

/* Names that mean something else in the index. */
static bool is_taken_name(const char *name)
{
	return !strcmp(name, "weight") || !strcmp(name, "master");
}

/* A tensor that is no run of elements: said once. */
static void leave_out(struct ds_step *ds, const char *name, const struct ck_tensor_ref *t)
{
	if (!t || t->numel < 2 || (ds->left_out && !strcmp(ds->left_out, name)))
		return;
	ds->left_out = name;
	ck_findings_add(&ds->optim_file->notes, CK_FINDING_NOT_IN_CHECKPOINT, ds->optim_file->path,
			"state %.60s is left out: it is not a contiguous tensor, so the parts "
			"of the ranks cannot be joined", name);
}

/* The names of the first shard's states, in the order in which they come. */
static void name_states(struct ds_step *ds, const struct ck_val *dict)
{
	struct ck_val *const *item;
	struct ds_slice s;
	uint64_t n;

	if (!ck_val_pairs(dict, &item, &n))
		return;
	for (uint64_t i = 0; i < n; i++) {
		const char *name = ck_val_str(item[2 * i]);

		if (!name || !strcmp(name, "step") || state_number(ds, name) < ds->nstates)
			continue;
		if (!ck_ds_slice_of(ds->optim_file->pt, item[2 * i + 1], &s)) {
			leave_out(ds, name, ck_val_tensor(item[2 * i + 1]));
			continue;
		}
		if (ds->nstates < DS_MAX_STATES && !is_taken_name(name))
			ds->state_name[ds->nstates++] = name;
		else
			ck_findings_add(&ds->optim_file->notes, CK_FINDING_NOT_IN_CHECKPOINT,
					ds->optim_file->path, "state %.60s is left out: %s", name,
					is_taken_name(name) ? "its name has another meaning here" :
					"zckpt reads at most 32 states of an optimizer");
	}
}

static int take_state(struct ds_step *ds, struct ds_file *file, const struct ck_val *dict,
		      struct ds_part *part, struct ckpt_err *err)
{
	struct ck_val *const *item;
	uint64_t n;
	int rc = 0;

	if (!ck_val_pairs(dict, &item, &n))
		return 0;
	for (uint64_t i = 0; !rc && i < n; i++) {
		const char *name = ck_val_str(item[2 * i]);
		struct ds_slice s;
		uint32_t k;

		if (!name)
			continue;
		if (!strcmp(name, "step")) {
			rc = ck_ds_number_of(file, item[2 * i + 1], &part->has_step, &part->step,
					     err);
			continue;
		}
		if (!ck_ds_slice_of(file->pt, item[2 * i + 1], &s))
			continue;
		k = state_number(ds, name);
		if (k < ds->nstates)
			part->state[k] = s;
		else if (file != ds->optim_file)
			ck_findings_add(&file->notes, CK_FINDING_RANKS_DISAGREE, file->path,
					"this shard has a state %.60s, but %s does not", name,
					ds->optim_file->name);
	}
	return rc;
}

/* What every rank must say alike. */
static void compare_zero(struct ds_step *ds, struct ds_file *file, const struct ck_val *zero)
{
	static const char *const same[] = {
		"zero_stage", "partition_count", "loss_scaler", "dynamic_loss_scale", "overflow",
		"ds_version", "clip_grad", "param_alignment_paddings",
	};

	for (size_t i = 0; i < CK_ARRAY_LEN(same); i++)
		if (!ck_val_equal(ck_val_get(ds->zero, same[i]), ck_val_get(zero, same[i]),
				  COMPARE_DEPTH))
			ck_findings_add(&file->notes, CK_FINDING_RANKS_DISAGREE, file->path,
					"'%s' differs from the value in %s (files of two saves "
					"or world sizes?)", same[i], ds->optim_file->name);
	if (!ck_val_equal(ck_ds_param_groups(ds, ds->zero), ck_ds_param_groups(ds, zero),
			  COMPARE_DEPTH))
		ck_findings_add(&file->notes, CK_FINDING_RANKS_DISAGREE, file->path,
				"the optimizer's param_groups differ from those in %s (files of "
				"two saves?)", ds->optim_file->name);
}

static struct ds_part *new_parts(struct ds_step *ds, uint64_t n)
{
	struct ds_slice *state;
	struct ds_part *part;

	pthread_mutex_lock(&ds->lock);
	part = ck_arena_zalloc(&ds->arena, (n + 1) * sizeof(*part));
	state = ck_arena_zalloc(&ds->arena, (n * ds->nstates + 1) * sizeof(*state));
	pthread_mutex_unlock(&ds->lock);
	for (uint64_t i = 0; part && state && i < n; i++)
		part[i].state = state + i * ds->nstates;
	return state ? part : NULL;
}

/* 'n' masters in 'item'. */
static int take_parts(struct ds_step *ds, struct ds_file *file, const struct states *states,
		      struct ck_val *const *item, uint64_t n, struct ds_part **out,
		      struct ckpt_err *err)
{
	struct ds_part *part;
	int rc = 0;

	for (uint64_t i = 0; file == ds->optim_file && i < n; i++)
		name_states(ds, state_of(states, ds, i));
	part = new_parts(ds, n);
	if (!part)
		return ck_fail_nomem(err, "partitions", n);
	for (uint64_t i = 0; !rc && i < n; i++) {
		if (!ck_ds_slice_of(file->pt, item[i], &part[i].master))
			return ck_fail(err, CKPT_E_CORRUPT, file->path, CKPT_NO_OFFSET,
				       "fp32 partition %" PRIu64 " is not a contiguous "
				       "tensor", i);
		rc = take_state(ds, file, state_of(states, ds, i), &part[i], err);
	}
	if (!rc)
		*out = part;
	return rc;
}

/* A shard of the other kind of stage is whole, and of another save. */
static bool is_of_other_stage(const struct ds_step *ds, struct ds_file *file,
			      const struct ck_val *zero)
{
	int64_t stage = 0;

	if (masters(ds, zero) || !masters_of(ds->stage != 3, zero))
		return false;
	ck_ds_stage_of(ck_val_get(zero, "zero_stage"), &stage);
	stage = ds->stage != 3 ? 3 : stage > 0 ? stage : 1;	/* BF16_Optimizer names none */
	ck_findings_add(&file->notes, CK_FINDING_STEP_MIXED, file->path,
			"this shard is of stage %" PRId64 ", but %s is of stage %d (files of two "
			"saves in one folder?)", stage, ds->optim_file->name, ds->stage);
	return true;
}

int ck_ds_take_optim(struct ds_step *ds, struct ds_file *file, struct ds_optim *optim,
		  struct ckpt_err *err)
{
	const struct ck_val *zero = zero_dict(file);
	struct ck_val *const *item;
	struct states states;
	uint64_t n;
	int rc;

	if (is_of_other_stage(ds, file, zero))
		return 0;
	if (!ck_val_seq(masters(ds, zero), &item, &n))
		return ck_fail(err, CKPT_E_CORRUPT, file->path, CKPT_NO_OFFSET,
			       "this shard has no list of fp32 partitions");
	if (n != ds->ngroups)
		return ck_fail(err, CKPT_E_MISMATCH, file->path, CKPT_NO_OFFSET,
			       "%" PRIu64 " fp32 partitions here, param_shapes has %u groups", n,
			       ds->ngroups);
	if (file != ds->optim_file)
		compare_zero(ds, file, zero);
	ck_ds_note_own_zero(ds, file, zero);
	rc = find_states(ds, zero, &states, err);
	if (!rc)
		rc = take_parts(ds, file, &states, item, n, &optim->part, err);
	ck_map_release(&states.by_key);
	if (rc)
		return rc;
	optim->nparts = (uint32_t)n;
	optim->file = file;
	return 0;
}

bool ck_ds_has_state(const struct ds_step *ds, uint32_t part, uint32_t state)
{
	for (uint32_t r = 0; r < ds->world; r++) {
		const struct ds_optim *o = &ds->optim[r];

		if (o->file && o->part[part].state && o->part[part].state[state].numel)
			return true;
	}
	return false;
}
