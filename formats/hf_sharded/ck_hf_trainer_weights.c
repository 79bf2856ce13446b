/*
 * ck_hf_trainer_weights.c -- the weights of a Trainer's folder that is written.
 *
 * A parameter is its master where it has one: the Trainer keeps that one in fp32.
 *
 * An adapter of PEFT goes to adapter_model.safetensors, under PEFT's names, as the Trainer saves
 * it.  A step that has the model as well keeps that too, in model.safetensors and with the names of
 * the model that was trained, and the Trainer reads this one.
 */
#include "formats/hf_sharded/ck_hf_trainer_out.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/hf_sharded/ck_hf_plan.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/naming/ck_peft_name.h"

#define SHARD_BYTES UINT64_C(5000000000)
#define MAX_META 3u	/* beside second names */

/* ---- which tensors ---- */

static uint32_t state_of(const struct ck_index *ix, uint32_t tensor)
{
	const uint32_t master = ck_index_state_find(ix, tensor, "master");

	if (ix->tensor[tensor].role == CKPT_ROLE_ALIAS)
		return CK_NONE;
	return master == CK_NONE ? ck_index_state_find(ix, tensor, "weight") : master;
}

bool ck_trn_out_is_adapter(const struct ck_index *ix, uint32_t tensor)
{
	struct ck_peft_name name;

	ck_peft_name_parse(ix->tensor[tensor].name, &name);
	return ck_peft_is_lora(name.part) &&
	       (!name.adapter_len ||
		(name.adapter_len == 7 && !memcmp(name.adapter, "default", 7)));
}

void ck_trn_out_find_adapter(struct trn_out *o)
{
	struct ck_peft_name name;

	o->nadapter = 0;
	for (uint32_t i = 0; i < o->ix->ntensors; i++) {
		ck_peft_name_parse(o->ix->tensor[i].name, &name);
		if (!ck_peft_is_lora(name.part))
			continue;
		if (!ck_trn_out_is_adapter(o->ix, i)) {		/* a folder of its own in PEFT */
			o->nadapter = 0;
			return;
		}
		o->nadapter++;
	}
}

static bool has_others(const struct trn_out *o)
{
	for (uint32_t i = 0; i < o->ix->ntensors; i++)
		if (state_of(o->ix, i) != CK_NONE && !ck_trn_out_is_adapter(o->ix, i))
			return true;
	return false;
}

/* ---- a file ---- */

static int list_items(struct trn_out *o, bool adapter, struct ck_want *want, struct ckpt_err *err)
{
	struct ck_item *item = ck_arena_alloc(o->arena, (o->ix->ntensors + 1ull) * sizeof(*item));

	if (!item)
		return ck_fail_nomem(err, "a list of tensors", o->ix->ntensors);
	want->item = item;
	for (uint32_t i = 0; i < o->ix->ntensors; i++) {
		const char *name = o->ix->tensor[i].name;
		const uint32_t state = state_of(o->ix, i);

		if (state == CK_NONE || (adapter && !ck_trn_out_is_adapter(o->ix, i)))
			continue;
		if (adapter)
			name = ck_peft_file_name(o->arena, name);
		if (!name)
			return ck_fail_nomem(err, "a name", 0);
		item[want->nitems++] = (struct ck_item){
			.name = name, .tensor = i, .state = state,
			.dtype = o->ix->state[state].dtype,
		};
	}
	return 0;
}

static int by_key(const void *a, const void *b)
{
	const struct ck_fact *x = a, *y = b;

	return strcmp(x->key, y->key);
}

static int list_meta(struct trn_out *o, bool adapter, struct ck_want *want, struct ckpt_err *err)
{
	struct ck_fact *meta = ck_arena_alloc(o->arena, (o->ix->ntensors + (uint64_t)MAX_META) *
					      sizeof(*meta));
	const char *step = ck_arena_printf(o->arena, "%" PRId64, o->steps);

	if (!meta || !step)
		return ck_fail_nomem(err, "metadata", o->ix->ntensors);
	want->meta = meta;
	meta[want->nmeta++] = (struct ck_fact){ "format", "pt" };
	meta[want->nmeta++] = (struct ck_fact){ "zckpt.global_step", step };
	meta[want->nmeta++] = (struct ck_fact){ "zckpt.version", CKPT_VERSION_STRING };
	for (uint32_t i = 0; !adapter && i < o->ix->ntensors; i++) {
		const struct ck_tensor *t = &o->ix->tensor[i];

		if (t->role == CKPT_ROLE_ALIAS && !ck_plan_is_taken_key(t->name))
			meta[want->nmeta++] = (struct ck_fact){
				t->name, o->ix->tensor[t->alias_of].name,
			};
	}
	qsort(meta, want->nmeta, sizeof(*meta), by_key);
	return 0;
}

/*
 * The plan of a model folder has plain names; here they are in the step's.  A state has its sum in
 * one file.
 */
static int write_file(struct trn_out *o, bool adapter, bool sums, struct ckpt_err *err)
{
	struct ck_want want = {
		.ix = o->ix, .stem = adapter ? "adapter_model" : "model", .state_name = "weight",
		.max_shard_bytes = adapter ? UINT64_MAX : SHARD_BYTES, .sums = sums,
	};
	const uint64_t first = o->plan->nfiles;
	int rc = list_items(o, adapter, &want, err);

	if (!rc)
		rc = list_meta(o, adapter, &want, err);
	if (!rc)
		rc = ck_hf_plan(&want, o->plan, err);
	for (uint64_t i = first; !rc && i < o->plan->nfiles; i++) {
		struct ck_outfile *f = &o->plan->file[i];

		f->name = ck_arena_printf(&o->plan->arena, "%s/%s", o->tag, f->name);
		if (!f->name)
			rc = ck_fail_nomem(err, "a file name", 0);
	}
	return rc;
}

int ck_trn_out_weights(struct trn_out *o, struct ckpt_err *err)
{
	const bool whole = !o->nadapter || has_others(o);
	int rc = whole ? write_file(o, false, true, err) : 0;

	return rc || !o->nadapter ? rc : write_file(o, true, !whole, err);
}
