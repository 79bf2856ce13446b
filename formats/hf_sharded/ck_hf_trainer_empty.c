/*
 * ck_hf_trainer_empty.c -- param groups without parameters.  The Trainer has two groups always: the
 * second one of an adapter, in which nothing is without weight decay, is empty.  Steps of other
 * forms have none, and no rate for it.
 */
#include "formats/hf_sharded/ck_hf_trainer.h"

#include "libckpt/base/ck_err.h"
#include "libckpt/tensor/ck_val_new.h"

/* The rates of groups with parameters. */
static struct ck_val *drop_rates(struct trn *t, struct ck_val *v)
{
	struct ck_val *list = ck_val_new_list(&t->arena), *const *item;
	uint64_t n;

	if (!ck_val_seq(v, &item, &n) || n != t->ngroups)
		return v;
	for (uint32_t g = 0; g < n; g++)
		if (t->group[g].n)
			list = ck_val_list_add(&t->arena, list, item[g]);
	return list;
}

static int drop_schedules(struct trn *t, struct ckpt_err *err)
{
	struct ck_val *d = ck_val_new_dict(&t->arena), *const *item;
	uint64_t n;

	if (!ck_val_pairs(ck_trn_root(t, TRN_IN_SCHEDULER), &item, &n))
		return 0;
	for (uint64_t i = 0; i < n; i++)
		d = ck_val_dict_add(&t->arena, d, item[2 * i], drop_rates(t, item[2 * i + 1]));
	t->scheduler = d;
	return d ? 0 : ck_fail_nomem(err, "a scheduler", n);
}

int ck_trn_drop_empty(struct trn *t, struct ckpt_err *err)
{
	uint32_t n = 0, some = 0;

	for (uint32_t g = 0; g < t->ngroups; g++)
		some += t->group[g].n > 0;
	if (some == t->ngroups || drop_schedules(t, err))
		return some == t->ngroups ? 0 : -CKPT_E_NOMEM;
	for (uint32_t g = 0; g < t->ngroups; g++) {
		if (!t->group[g].n)
			continue;
		for (uint64_t i = 0; i < t->group[g].n; i++)
			t->param[t->order[t->group[g].first + i]].group = n;
		t->group[n++] = t->group[g];
	}
	t->ngroups = n;
	return 0;
}
