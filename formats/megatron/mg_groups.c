/*
 * mg_groups.c -- the optimizer's param groups, in the order of its optimizers: with experts there
 * are two, for dense parameters and for experts.  No file says which parameters a group has.
 */
#include <string.h>

#include "formats/megatron/mg.h"
#include "libckpt/tensor/ck_val_new.h"

#define MOST_GROUPS 100000u

/* {"optimizer": {"param_groups": [...]}, ...}: of one optimizer. */
static struct ck_val *add_groups(struct ck_arena *a, struct ck_val *list, const struct ck_val *one)
{
	const struct ck_val *inner = ck_val_get(one, "optimizer");
	struct ck_val *const *item;
	uint64_t n = 0;

	if (!ck_val_seq(ck_val_get(inner ? inner : one, "param_groups"), &item, &n))
		return list;
	for (uint64_t i = 0; list && i < n && i < MOST_GROUPS; i++)
		list = ck_val_list_add(a, list, item[i]);
	return list;
}

/* Of dp_reshardable: an item of the first rank group of each optimizer. */
static struct ck_val *add_from_items(struct mg *mg, struct ck_val *list)
{
	for (uint64_t i = 0; list && i < mg->fs.nitems; i++) {
		const struct dcp_item *it = &mg->fs.item[i];

		if (!it->is_tensor && strstr(it->flat, ".dp_group_idx_0.optimizer/shard_"))
			list = add_groups(&mg->fs.arena, list, ck_val_at(ck_dcp_value_of(it), 0));
	}
	return list;
}

struct ck_val *ck_mg_groups(struct mg *mg)
{
	const struct ck_val *all = ck_val_get(mg->common, "optimizer"), *one;
	struct ck_val *list = add_groups(&mg->fs.arena, ck_val_new_list(&mg->fs.arena), all);

	for (int64_t i = 0; list && i < MOST_GROUPS; i++) {
		one = ck_val_get_int(all, i);
		if (!one)
			break;
		list = add_groups(&mg->fs.arena, list, one);
	}
	return list && !list->u.seq.n ? add_from_items(mg, list) : list;
}
