/*
 * dcp_index.c -- tensors, states and extents of the items, in the order of the model's names.
 *
 * A block of a tensor is one run in its file, of which ck_block.h makes extents.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/dcp/dcp.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/step/ck_step_ds.h"
#include "libckpt/step/ck_step_fact.h"
#include "libckpt/tensor/ck_block.h"
#include "libckpt/tensor/ck_dtype.h"

/* ---- extents ---- */

/* Blocks in which all the elements are; a block that could not be read has a finding. */
static int add_blocks(const struct dcp *d, const struct dcp_item *it, struct ck_tiles *tiles,
		      bool *all, struct ckpt_err *err)
{
	int rc = ck_tiles_begin(tiles, it->flat, it->shape, it->ndim, err);

	*all = true;
	for (uint64_t i = 0; !rc && i < it->nchunks; i++) {
		const struct dcp_chunk *c = &it->chunk[i];
		const struct ck_block block = { c->offset, c->size };
		const struct dcp_file *file = c->is_read ? &d->fs.file[c->at.file] : NULL;

		*all &= c->is_read || !c->numel;
		if (file)
			rc = ck_tiles_add(tiles, &block, 0, c->numel, &(struct ck_extent){
				.off = c->data, .source = file->source, .member = CK_NONE,
				.view = CK_NONE, .rank = file->rank, .dtype = it->dtype,
			}, err);
	}
	return rc;
}

static int add_state(struct dcp *d, const struct dcp_item *it, uint32_t tensor, const char *state,
		     struct ck_tiles *tiles, struct ckpt_err *err)
{
	struct ck_tiles_fault fault;
	bool all;
	int rc = add_blocks(d, it, tiles, &all, err);

	if (rc || !all)
		return rc;
	rc = ck_tiles_check(tiles, &fault, err);
	if (rc || !fault.odd)
		return rc ? rc : ck_tiles_put(tiles, d->fs.ix, tensor, state, it->dtype, err);
	ck_findings_add(d->fs.f, CK_FINDING_LENGTH_WRONG, it->flat,
			"its blocks in '.metadata' %s element %" PRIu64 " of %" PRIu64
			" (files of two saves in one folder?)", fault.twice ? "overlap at" :
			"leave out", fault.at, it->numel);
	return 0;
}

/* ---- tied names ---- */

/*
 * What blocks with their CRC-32s are equal for: type, shape, places and sums, as bytes.  NULL: a
 * block has no sum, or it is a vector or of one value, and of these many are equal that are not
 * tied.
 */
static char *sums_of(struct dcp *d, const struct dcp_item *it, size_t *n_out)
{
	const uint64_t most = 2 + it->ndim + it->nchunks * (it->ndim + 1);
	uint64_t *key, n = 0;
	bool is_varied = false;

	if (it->ndim < 2)
		return NULL;
	key = ck_arena_alloc(&d->fs.arena, most * sizeof(*key));
	if (!key)
		return NULL;
	key[n++] = it->dtype;
	key[n++] = it->ndim;
	for (uint32_t k = 0; k < it->ndim; k++)
		key[n++] = it->shape[k];
	for (uint64_t i = 0; i < it->nchunks; i++) {
		const struct dcp_chunk *c = &it->chunk[i];

		if (!c->numel)
			continue;
		if (!c->crc)
			return NULL;
		for (uint32_t k = 0; k < it->ndim; k++)
			key[n++] = c->offset[k];
		key[n++] = c->crc;
		is_varied |= c->is_varied;
	}
	*n_out = n * sizeof(*key);
	return is_varied ? (char *)key : NULL;
}

static int note_sums(struct dcp *d, const struct dcp_item *it, uint32_t tensor,
		     struct ckpt_err *err)
{
	size_t n;
	const char *key = sums_of(d, it, &n);

	return key && ck_map_add(&d->by_sums, key, n, tensor, NULL, err) < 0 ? -CKPT_E_NOMEM : 0;
}

static bool same_shape(const struct ck_tensor *t, const struct dcp_item *it)
{
	return t->ndim == it->ndim &&
	       (!t->ndim || !memcmp(t->shape, it->shape, t->ndim * sizeof(*t->shape)));
}

/* A name that the optimizer has not, with the bytes of one that it has: tied.  A copy of it. */
static bool is_tied(struct dcp *d, const struct dcp_item *it, uint64_t *tensor_out)
{
	const char *of, *key;
	uint32_t tensor;
	size_t n;

	if (d->deepspeed) {	/* it says what is tied */
		of = ck_dcp_deepspeed_tied(d, it->name);
		if (!of || !ck_index_find(d->fs.ix, of, &tensor) ||
		    !same_shape(&d->fs.ix->tensor[tensor], it))
			return false;
		*tensor_out = tensor;
		return true;
	}
	key = sums_of(d, it, &n);
	return key && ck_map_find(&d->by_sums, key, n, tensor_out);
}

/* ---- tensors ---- */

/* In a group, and with a state if others have one: else its gradient was off. */
static bool is_trained(const struct dcp *d, const struct dcp_item *it, uint64_t *group)
{
	return ck_map_find(&d->group_of, it->name, strlen(it->name), group) &&
	       (!it->numel || d->deepspeed || !d->has_state.n ||
		ck_map_find(&d->has_state, it->name, strlen(it->name), NULL));
}

static enum ckpt_role role_of(const struct dcp *d, const struct dcp_item *it, uint64_t *group)
{
	uint64_t other;

	if (is_trained(d, it, group))
		return CKPT_ROLE_TRAINABLE;
	if (ck_map_find(&d->group_of, it->name, strlen(it->name), &other))
		return CKPT_ROLE_FROZEN;
	if (ck_map_find(&d->frozen, it->name, strlen(it->name), NULL))
		return CKPT_ROLE_FROZEN;
	if (ck_map_find(&d->buffers, it->name, strlen(it->name), NULL))
		return CKPT_ROLE_BUFFER;
	if (!d->optim)
		return CKPT_ROLE_PLAIN;
	return ck_dtype_info(it->dtype)->cls == CK_CLASS_FLOAT ? CKPT_ROLE_PLAIN :
	       CKPT_ROLE_BUFFER;
}

static int add_as(struct dcp *d, const struct dcp_item *it, enum ckpt_role role,
		  uint32_t *tensor_out, bool *is_new, struct ckpt_err *err)
{
	const int rc = ck_index_add_tensor(d->fs.ix, it->name, it->shape, it->ndim, role,
					   tensor_out, err);

	*is_new = !rc;
	if (rc > 0)
		ck_findings_add(d->fs.f, CK_FINDING_TENSOR_DUPLICATE, it->flat,
				"two items of the model are called %s without the names of "
				"wrappers", it->name);
	return rc < 0 ? rc : 0;
}

static int add_tied(struct dcp *d, const struct dcp_item *it, uint64_t of, struct ck_tiles *tiles,
		    struct ckpt_err *err)
{
	uint32_t tensor;
	bool is_new;
	int rc = add_as(d, it, CKPT_ROLE_ALIAS, &tensor, &is_new, err);

	if (rc || !is_new)
		return rc;
	d->fs.ix->tensor[tensor].alias_of = of;
	return add_state(d, it, (uint32_t)of,
			 ck_index_state_find(d->fs.ix, (uint32_t)of, "master") == CK_NONE ?
			 "weight" : "master", tiles, err);
}

/* Of a run of DeepSpeed in 16 bits what is here is the master, of which its weight is made. */
static int add_parameter(struct dcp *d, const struct dcp_item *it, uint32_t tensor,
			 struct ck_tiles *tiles, struct ckpt_err *err)
{
	const enum ckpt_dtype dtype = ck_step_ds_type(d->deepspeed, "weight_dtype");
	uint32_t master;
	int rc;

	if (it->dtype != ck_step_ds_type(d->deepspeed, "master_dtype") ||
	    !ck_dtype_is_castable(dtype))
		return add_state(d, it, tensor, "weight", tiles, err);
	rc = add_state(d, it, tensor, "master", tiles, err);
	master = ck_index_state_find(d->fs.ix, tensor, "master");
	return rc || master == CK_NONE ? rc :
	       ck_index_state_derive(d->fs.ix, master, "weight", dtype, err);
}

static int add_trained(struct dcp *d, const struct dcp_item *it, uint64_t group,
		       struct ck_tiles *tiles, struct ckpt_err *err)
{
	uint32_t tensor;
	bool is_new;
	int rc = add_as(d, it, CKPT_ROLE_TRAINABLE, &tensor, &is_new, err);

	if (rc || !is_new)
		return rc;
	d->fs.ix->tensor[tensor].group = (int32_t)group;
	rc = note_sums(d, it, tensor, err);
	return rc ? rc : add_parameter(d, it, tensor, tiles, err);
}

static int add_other(struct dcp *d, const struct dcp_item *it, enum ckpt_role role,
		     struct ck_tiles *tiles, struct ckpt_err *err)
{
	uint64_t of;
	uint32_t tensor;
	bool is_new;
	int rc;

	if ((role == CKPT_ROLE_PLAIN || d->deepspeed) && is_tied(d, it, &of))
		return add_tied(d, it, of, tiles, err);
	rc = add_as(d, it, role, &tensor, &is_new, err);
	return rc || !is_new ? rc : add_state(d, it, tensor, "weight", tiles, err);
}

/* A state of a parameter's shape; 'step' and other numbers are of the group. */
static int add_moment(struct dcp *d, const struct dcp_item *it, struct ck_tiles *tiles,
		      struct ckpt_err *err)
{
	uint32_t tensor;

	if (!ck_index_find(d->fs.ix, it->name, &tensor)) {
		if (strcmp(it->state, "step"))
			ck_findings_add(d->fs.f, CK_FINDING_NOT_IN_CHECKPOINT, it->flat,
					"left out: the model has no tensor %s%s%s%s", it->name,
					d->unproven ? " (the optimizer numbers its parameters, and "
					"its states " : "", d->unproven ? d->unproven : "",
					d->unproven ? ")" : "");
		return 0;
	}
	if (!strcmp(it->state, "step") || !same_shape(&d->fs.ix->tensor[tensor], it)) {
		if (strcmp(it->state, "step"))
			ck_findings_add(d->fs.f, CK_FINDING_NOT_IN_CHECKPOINT, it->flat,
					"left out: its shape is not that of %s", it->name);
		return 0;
	}
	if (d->fs.ix->tensor[tensor].role == CKPT_ROLE_PLAIN)
		d->fs.ix->tensor[tensor].role = CKPT_ROLE_TRAINABLE;
	return add_state(d, it, tensor, it->state, tiles, err);
}

/* ---- facts ---- */

/* The client's own count of steps, else the optimizer's. */
static int64_t step_of(const struct dcp *d)
{
	static const char *const names[] = {
		"step", "global_step", "global_steps", "iteration", "train_state.step",
	};
	int64_t said;

	if (ck_val_int(ck_val_get(d->deepspeed, "global_steps"), &said) && said >= 0)
		return said;

	for (size_t k = 0; k < CK_ARRAY_LEN(names); k++)
		for (uint64_t i = 0; i < d->fs.nitems; i++) {
			const struct dcp_item *it = &d->fs.item[i];
			int64_t n;

			if (it->use != DCP_OTHER || strcmp(it->flat, names[k]))
				continue;
			if (it->has_number && it->number >= 0 && it->number < 1e15)
				return (int64_t)it->number;
			if (ck_val_int(ck_dcp_value_of(it), &n) && n >= 0)
				return n;
		}
	for (uint32_t g = 0; g < d->ngroups; g++)
		if (d->group[g].has_step && d->group[g].step >= 0 && d->group[g].step < 1e15)
			return (int64_t)d->group[g].step;
	return -1;
}

/* "lr_scheduler.last_epoch". */
static int add_scheduler(struct dcp *d, struct ckpt_err *err)
{
	static const char begin[] = "lr_scheduler.";
	const size_t n = sizeof(begin) - 1;
	int rc = 0;

	for (uint64_t i = 0; !rc && i < d->fs.nitems; i++) {
		const struct dcp_item *it = &d->fs.item[i];
		char key[128];

		if (it->use != DCP_OTHER || strncmp(it->flat, begin, n) || strlen(it->flat) > 100)
			continue;
		snprintf(key, sizeof(key), "scheduler.%s", it->flat + n);
		if (it->is_tensor && it->has_number)
			rc = ck_step_add_number(d->fs.ix, key, it->number, err);
		else if (!it->is_tensor)
			rc = ck_step_add_fact(d->fs.ix, key, ck_dcp_value_of(it), err);
	}
	return rc;
}

static bool has_moments(const struct dcp *d)
{
	for (uint64_t i = 0; i < d->fs.nitems; i++)
		if (d->fs.item[i].use == DCP_STATE)
			return true;
	return false;
}

/* Parameters first, so that names which are tied to one find it; each in the model's order. */
static int add_all(struct dcp *d, struct ck_tiles *tiles, struct ckpt_err *err)
{
	uint64_t group = 0;
	int rc = 0;

	for (uint64_t i = 0; !rc && i < d->fs.nitems; i++)
		if (d->fs.item[i].use == DCP_MODEL && is_trained(d, &d->fs.item[i], &group))
			rc = add_trained(d, &d->fs.item[i], group, tiles, err);
	for (uint64_t i = 0; !rc && i < d->fs.nitems; i++)
		if (d->fs.item[i].use == DCP_MODEL && !is_trained(d, &d->fs.item[i], &group))
			rc = add_other(d, &d->fs.item[i], role_of(d, &d->fs.item[i], &group),
				       tiles, err);
	for (uint64_t i = 0; !rc && i < d->fs.nitems; i++)
		if (d->fs.item[i].use == DCP_STATE)
			rc = add_moment(d, &d->fs.item[i], tiles, err);
	return rc;
}

static int note_states(struct dcp *d, struct ckpt_err *err)
{
	int rc = 0;

	for (uint64_t i = 0; rc >= 0 && i < d->fs.nitems; i++)
		if (d->fs.item[i].use == DCP_STATE && d->optim)
			rc = ck_map_add(&d->has_state, d->fs.item[i].name,
					strlen(d->fs.item[i].name), i, NULL, err);
	return rc < 0 ? rc : 0;
}

int ck_dcp_index_fill(struct dcp *d, struct ckpt_err *err)
{
	struct ck_tiles tiles;
	int rc = ck_dcp_files_give(&d->fs, err);

	ck_tiles_init(&tiles, d->fs.in->limits.memory_bytes);
	d->fs.ix->world = ck_dcp_files_world(&d->fs);
	d->fs.ix->optimizer = has_moments(d) ? "sharded" : "none";
	d->fs.ix->writer = "torch.distributed.checkpoint";
	d->fs.ix->step = step_of(d);
	if (!rc)
		rc = note_states(d, err);
	if (!rc)
		rc = add_all(d, &tiles, err);
	if (!rc)
		rc = add_scheduler(d, err);
	if (!rc && *d->box)
		rc = ck_index_add_fact(d->fs.ix, err, "prefix", "%s.", d->box);
	ck_tiles_release(&tiles);
	return rc;
}
