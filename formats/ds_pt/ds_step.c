/*
 * ds_step.c -- a step while it is being read: where it is, its files into the index, what its
 * readers ask of it, and its end.
 */
#include <inttypes.h>
#include <string.h>

#include "formats/ds_pt/ds_experts.h"
#include "formats/ds_pt/ds_par.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"

int ck_ds_find(struct ds_step *ds, struct ckpt_err *err)
{
	struct ck_step_finder fd = { ds->in, ds->f, &ds->arena };

	return ck_step_find(&fd, ds->ix, &ds->at, err);
}

int ck_ds_add_source(struct ds_step *ds, struct ds_file *file, struct ckpt_err *err)
{
	const bool ranked = file->id.kind == DS_MODEL_RANK || file->id.kind == DS_OPTIM;
	uint8_t tail[24];
	int rc = 0;

	ck_put_le64(tail, file->bytes);
	ck_put_le64(tail + 8, file->fingerprint.lo);
	ck_put_le64(tail + 16, file->fingerprint.hi);
	ck_hasher_add(ds->ix->fingerprint, file->name, strlen(file->name) + 1);
	ck_hasher_add(ds->ix->fingerprint, tail, sizeof(tail));
	if (file->src)
		rc = ck_index_add_source(ds->ix, file->path, file->src,
					 ranked ? (int32_t)file->id.rank : -1, &file->source, err);
	file->src = NULL;
	return rc;
}

bool ck_ds_is_named(const struct ds_step *ds, const char *path)
{
	for (uint64_t i = 0; i < ds->f->n; i++)
		if (ds->f->list[i].severity == CKPT_ERROR && !strcmp(ds->f->list[i].where, path))
			return true;
	return false;
}

bool ck_ds_is_rank_named(const struct ds_step *ds, enum ds_kind kind, uint32_t rank)
{
	for (uint64_t i = 0; i < ds->nfiles; i++)
		if (ds->file[i].id.kind == kind && ds->file[i].id.rank == rank &&
		    ck_ds_is_named(ds, ds->file[i].path))
			return true;
	return false;
}

bool ck_ds_is_swapped(const struct ds_file *file)
{
	return file->notes.of_kind[CK_FINDING_RANK_FILE_SWAPPED] != 0;
}

int ck_ds_why_swapped(const struct ds_step *ds, int rc, struct ckpt_err *err)
{
	const bool fits = rc == -CKPT_E_MISMATCH || rc == -CKPT_E_CORRUPT;

	for (uint64_t i = 0; fits && i < ds->nfiles; i++)
		for (uint64_t k = 0; k < ds->file[i].notes.n; k++) {
			const struct ckpt_finding *one = &ds->file[i].notes.list[k];

			if (strcmp(one->id, ck_finding_name(CK_FINDING_RANK_FILE_SWAPPED)))
				continue;
			ck_err_clear(err);
			return ck_findings_fail(one, err);
		}
	return rc;
}

/*
 * An optimizer counts what the engine has not skipped; up to 0.12.6 one step more, which made its
 * states.  One that was reset counts from 0.  One count that fits is enough: param groups may be
 * younger than the run.
 */
void ck_ds_check_counts(struct ds_step *ds, const char *where, const double *count, uint32_t n)
{
	int64_t taken, skipped = 0;

	if (!n || !ck_val_int(ck_val_get(ds->model, "global_steps"), &taken))
		return;
	ck_val_int(ck_val_get(ds->model, "skipped_steps"), &skipped);
	for (uint32_t i = 0; i < n; i++) {
		const double more = count[i] - ((double)taken - (double)skipped);

		if (more == 0 || more == 1 || count[i] == 0)
			return;
	}
	ck_findings_add(ds->f, CK_FINDING_OPTIMIZER_STEP_DIFFERS, where,
			"the optimizer counts %g steps, the model files %" PRId64 " with "
			"%" PRId64 " skipped (files of another step, or an optimizer reset in the "
			"run?)", count[0], taken, skipped);
}

bool ck_ds_has_optimizer(const struct ds_step *ds)
{
	const struct ck_val *opt = ck_val_get(ds->model, "optimizer");

	return opt && !ck_val_is_none(opt);
}

bool ck_ds_is_z0(const struct ds_step *ds)
{
	return !ds->optim_file && !ds->model_rank && ck_ds_has_optimizer(ds);
}

enum ckpt_role ck_ds_role_of_rest(const struct ds_step *ds)
{
	if (!ds->optim_file && !ds->no_shards)
		return CKPT_ROLE_PLAIN;
	return ds->frozen_listed ? CKPT_ROLE_UNTRAINED : CKPT_ROLE_FROZEN;
}

enum ckpt_dtype ck_ds_placeholder_dtype(const struct ds_step *ds, const char *name)
{
	struct ck_val *const *item;
	const struct ck_tensor_ref *t;
	uint64_t i, n;

	if (!ck_map_find(&ds->in_module, name, strlen(name), &i))
		return (enum ckpt_dtype)0;
	ck_val_pairs(ds->module, &item, &n);
	t = ck_val_tensor(item[2 * i + 1]);
	return t ? (enum ckpt_dtype)t->dtype : (enum ckpt_dtype)0;
}

void ck_ds_file_release(struct ds_file *file)
{
	ck_ds_close_pt(file);
	ck_src_close(file->src);
	ck_free(file->deflated);
	ck_free(file->member);
	ck_findings_release(&file->notes);
}

void ck_ds_free(void *of)
{
	struct ds_step *ds = of;

	ck_ds_par_free(ds->parts);
	for (uint64_t i = 0; i < ds->nfiles; i++)
		ck_ds_file_release(&ds->file[i]);
	for (uint32_t r = 0; ds->model_rank && r < ds->world; r++) {
		ck_free(ds->model_rank[r].frozen);
		ck_free(ds->model_rank[r].buffer);
	}
	ck_ds_experts_release(ds);
	ck_map_release(&ds->in_module);
	ck_map_release(&ds->frozen_no);
	ck_map_release(&ds->buffer_no);
	ck_tree_release(&ds->at.tree);
	ck_arena_release(&ds->arena);
	pthread_mutex_destroy(&ds->lock);
	ck_free(of);
}
