/* ds_write_experts.c -- files of experts, as the source has them. */
#include "formats/ds_pt/ds_experts.h"
#include "formats/ds_pt/ds_write.h"
#include "libckpt/base/ck_err.h"

/* A file of the source as TAG/NAME; no memory if 'name' is NULL. */
static int file_as_is(struct wr *w, const char *name, const struct ds_file *file,
		      struct ckpt_err *err)
{
	const char *path = name ? ck_arena_printf(&w->arena, "%s/%s", w->tag, name) : NULL;
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

/*
 * Files of experts count them in the whole model, so they are the same for any ranks.  Of those of
 * expert ranks, which hold nothing beside ZeRO, there is one for each.
 */
int ck_wr_experts(struct wr *w, struct ckpt_err *err)
{
	const struct ds_step *ds = w->step->from;
	const struct ds_file *of_rank = NULL;
	int rc = 0;

	for (uint64_t i = 0; !rc && i < ds->nfiles; i++) {
		if (ds->file[i].id.kind == DS_EXPERT_OPTIM && !of_rank)
			of_rank = &ds->file[i];
		if (ck_ds_experts_is_used(ds, &ds->file[i]))
			rc = file_as_is(w, ds->file[i].name, &ds->file[i], err);
	}
	for (uint32_t e = 0; !rc && of_rank && e < most_runs(w->t); e++) {
		rc = file_as_is(w, ck_arena_printf(&w->arena, "expp_rank_%u_mp_rank_00_"
							 "optim_states.pt", e), of_rank, err);
		ck_arena_release(&w->arena);
	}
	return rc;
}
