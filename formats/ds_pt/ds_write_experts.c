/* ds_write_experts.c -- files of experts, as the source has them. */
#include "formats/ds_pt/ds_experts.h"
#include "formats/ds_pt/ds_write.h"
#include "libckpt/base/ck_err.h"

int ck_wr_file_as_is(struct wr *w, const struct ds_file *file, struct ckpt_err *err)
{
	const char *path = ck_arena_printf(&w->arena, "%s/%s", w->tag, file->name);
	int rc;

	if (!path)
		return ck_fail_nomem(err, "a file name", 0);
	rc = ck_plan_file(w->plan, path, err);
	if (!rc)
		rc = ck_plan_copy(w->plan, file->path, 0, file->bytes, err);
	return rc ? rc : ck_plan_sum_file(w->plan, err);
}

static uint32_t most_runs(const struct tg_layout *t)
{
	uint32_t most = 1;

	for (uint32_t g = 0; g < t->ngroups; g++)
		most = t->group[g].runs > most ? t->group[g].runs : most;
	return most;
}

/* Of an expert rank's optimizer, which ZeRO has in its shards. */
static int write_none(struct wr *w, uint32_t e, struct ckpt_err *err)
{
	struct ck_arena *a = &w->arena;
	int rc = ck_wr_begin(w, NULL, 0, err);

	return rc ? rc :
	       ck_wr_finish(w, ck_arena_printf(a, "expp_rank_%u_mp_rank_00_optim_states", e),
			    ck_val_dict_sets(a, ck_val_new_dict(a), "optimizer",
					     ck_val_new_none(a)), err);
}

/* Files of experts count them in the whole model, so they are the same for any ranks. */
int ck_wr_experts(struct wr *w, struct ckpt_err *err)
{
	const struct ds_step *ds = w->step->from;
	int rc = 0;

	for (uint64_t i = 0; !rc && i < ds->nfiles; i++)
		if (ck_ds_experts_is_used(ds, &ds->file[i]))
			rc = ck_wr_file_as_is(w, &ds->file[i], err);
	for (uint32_t e = 0; !rc && ds->experts->optim_none && e < most_runs(w->t); e++)
		rc = write_none(w, e, err);
	return rc;
}
