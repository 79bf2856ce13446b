/*
 * ds_own.c -- values that differ over ranks and are no part of a layout: random states of the
 * client, what an optimizer of another make keeps beside its tensors.  Where a step is written for
 * as many ranks each keeps its own; else they have no one place, and that is said.
 */
#include <inttypes.h>
#include <string.h>

#include "formats/ds_pt/ck_ds.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"

#define COMPARE_DEPTH 200
#define NEST_DEPTH 16
#define MOST_BYTES ((uint64_t)1 << 20)	/* of a tensor that is read to be compared */

/* ---- comparing ---- */

static bool same_tensors(const struct ck_pt *a, const struct ck_tensor_ref *x,
			 const struct ck_pt *b, const struct ck_tensor_ref *y)
{
	const struct ck_pt_storage *s = &a->storage[x->storage], *t = &b->storage[y->storage];
	const uint64_t n = x->numel * (ckpt_dtype_bits((enum ckpt_dtype)x->dtype) / 8);
	uint8_t *p = NULL, *q = NULL;
	bool same;

	if (!x->numel || (s->crc && s->crc == t->crc && s->bytes == t->bytes &&
			  x->offset == y->offset))
		return true;
	if (n > MOST_BYTES)
		return !s->crc || !t->crc;	/* not known: nothing is said */
	if (ck_pt_tensor_bytes(a, x, MOST_BYTES, &p, NULL) ||
	    ck_pt_tensor_bytes(b, y, MOST_BYTES, &q, NULL)) {
		ck_free(p);
		return true;
	}
	same = !p || !q || !memcmp(p, q, n);
	ck_free(p);
	ck_free(q);
	return same;
}

/* Equal, elements of tensors included (those in objects aside). */
static bool same_values(const struct ck_pt *a, const struct ck_val *x, const struct ck_pt *b,
			const struct ck_val *y, uint32_t depth)
{
	struct ck_val *const *mine, *const *theirs;
	uint64_t n, m;

	if (!ck_val_equal(x, y, COMPARE_DEPTH))
		return false;
	if (ck_val_tensor(x) && ck_val_tensor(y))
		return same_tensors(a, ck_val_tensor(x), b, ck_val_tensor(y));
	if (!depth)
		return true;
	if (ck_val_pairs(x, &mine, &n) && ck_val_pairs(y, &theirs, &m)) {
		n *= 2;
		m *= 2;
	} else if (!ck_val_seq(x, &mine, &n) || !ck_val_seq(y, &theirs, &m)) {
		return true;
	}
	for (uint64_t i = 0; i < n && i < m; i++)
		if (!same_values(a, mine[i], b, theirs[i], depth - 1))
			return false;
	return true;
}

static bool is_listed(const char *const *list, const char *key)
{
	while (*list && strcmp(*list, key))
		list++;
	return *list != NULL;
}

/* The first key of 'x' whose value is another in 'y', or that 'y' lacks; not those of 'but'. */
static const char *differing(const struct ck_pt *a, const struct ck_val *x, const struct ck_pt *b,
			     const struct ck_val *y, const char *const *but)
{
	struct ck_val *const *item;
	uint64_t n;

	if (!ck_val_pairs(x, &item, &n))
		return NULL;
	for (uint64_t i = 0; i < n; i++) {
		const char *key = ck_val_str(item[2 * i]);

		if (key && !is_listed(but, key) &&
		    !same_values(a, item[2 * i + 1], b, ck_val_get(y, key), NEST_DEPTH))
			return key;
	}
	return NULL;
}

static void keep(struct ds_step *ds, struct ds_file *file, const char *key)
{
	pthread_mutex_lock(&ds->lock);
	file->own = key ? ck_arena_strdup(&ds->arena, key) : NULL;
	pthread_mutex_unlock(&ds->lock);
}

void ck_ds_note_own_model(struct ds_step *ds, struct ds_file *file)
{
	/* compared elsewhere, or of a rank by their nature */
	static const char *const but[] = {
		"module", "buffer_names", "param_shapes", "frozen_param_shapes", "dp_world_size",
		"mp_world_size", "ds_version", "skipped_steps", "global_steps", "shared_params",
		"frozen_param_fragments", "zckpt_id", "zckpt_rank", "optimizer", NULL,
	};
	const struct ck_pt *first = ds->model_file->pt, *pt = file->pt;
	const char *key;

	if (!ds->in->kept || file == ds->model_file)
		return;
	key = differing(first, first->doc.root, pt, pt->doc.root, but);
	keep(ds, file, key ? key : differing(pt, pt->doc.root, first, first->doc.root, but));
}

/* Of an entry of the optimizer's state: all that is no tensor, which are cut. */
static const char *differing_state(const struct ck_val *x, const struct ck_val *y)
{
	struct ck_val *const *item;
	uint64_t n;

	if (!ck_val_pairs(x, &item, &n))
		return NULL;
	for (uint64_t i = 0; i < n; i++) {
		const char *key = ck_val_str(item[2 * i]);

		if (key && strcmp(key, "step") && !ck_val_tensor(item[2 * i + 1]) &&
		    !ck_val_equal(item[2 * i + 1], ck_val_get(y, key), COMPARE_DEPTH))
			return key;
	}
	return NULL;
}

static const char *differing_states(const struct ds_step *ds, const struct ck_val *zero)
{
	const struct ck_val *x = ck_val_get(ck_ds_torch_optimizer(ds, ds->zero), "state");
	const struct ck_val *y = ck_val_get(ck_ds_torch_optimizer(ds, zero), "state");
	const char *key = NULL;

	for (uint32_t g = 0; !key && g < ds->ngroups; g++)
		key = differing_state(ck_val_get_int(x, ds->group[g].state_key),
				      ck_val_get_int(y, ds->group[g].state_key));
	return key;
}

void ck_ds_note_own_zero(struct ds_step *ds, struct ds_file *file, const struct ck_val *zero)
{
	static const char *const but[] = {
		"zero_stage", "partition_count", "loss_scaler", "dynamic_loss_scale", "overflow",
		"ds_version", "clip_grad", "param_alignment_paddings", "group_paddings",
		"groups_padding", "param_slice_mappings", "base_optimizer_state",
		"single_partition_of_fp32_groups", "optimizer_state_dict", "fp32_flat_groups", NULL,
	};
	const struct ck_pt *first = ds->optim_file->pt;
	const char *key;

	if (!ds->in->kept || file == ds->optim_file)
		return;
	key = differing(first, ds->zero, file->pt, zero, but);
	if (!key)
		key = differing(file->pt, zero, first, ds->zero, but);
	keep(ds, file, key ? key : differing_states(ds, zero));
}
