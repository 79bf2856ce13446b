/* ds_par.c -- see ds_par.h: positions, their files, and what their model files must say alike. */
#include "formats/ds_pt/ds_par.h"

#include <inttypes.h>
#include <string.h>

#include <ckpt_zero.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"

#define COMPARE_DEPTH 200

bool ck_ds_is_parallel(const struct ds_step *whole)
{
	for (uint64_t i = 0; i < whole->nfiles; i++)
		if (whole->file[i].id.mp > 0 || whole->file[i].id.kind == DS_LAYER)
			return true;
	return false;
}

static int refuse(const struct ds_step *whole, const char *what, const char *name,
		  struct ckpt_err *err)
{
	return ck_fail(err, CKPT_E_LAYOUT, whole->at.where, CKPT_NO_OFFSET,
		       "LAYOUT_UNSUPPORTED: %s, as %s shows; zckpt reads tensor and "
		       "pipeline parallel steps of ZeRO stage 0 to 2 without experts", what, name);
}

static int check_kinds(const struct ds_step *whole, struct ckpt_err *err)
{
	for (uint64_t i = 0; i < whole->nfiles; i++) {
		const struct ds_file *file = &whole->file[i];

		if (file->id.kind == DS_EXPERT || file->id.kind == DS_EXPERT_OPTIM)
			return refuse(whole, "experts beside tensor or pipeline parallelism",
				      file->name, err);
		if (file->id.kind == DS_MODEL_RANK)
			return refuse(whole, "ZeRO stage 3 beside tensor or pipeline parallelism",
				      file->name, err);
	}
	return 0;
}

static struct ds_file *model_of(const struct ds_step *whole, uint32_t mp)
{
	for (uint64_t i = 0; i < whole->nfiles; i++)
		if (whole->file[i].id.kind == DS_MODEL && whole->file[i].id.mp == mp)
			return &whole->file[i];
	return NULL;
}

static int miss_model(const struct ds_step *whole, uint32_t mp, uint32_t n, struct ckpt_err *err)
{
	return ck_fail(err, CKPT_E_INCOMPLETE, whole->at.where, CKPT_NO_OFFSET,
		       n ? "MODEL_FILE_MISSING: mp_rank_%02u_model_states.pt is missing; "
			   "mp_world_size is %u, so the step has as many of them (was the save "
			   "interrupted, or the copy partial?)" :
			   "MODEL_FILE_MISSING: mp_rank_%02u_model_states.pt and all others of "
			   "that kind are missing (was the save interrupted, or the copy "
			   "partial?)", mp, n);
}

/* How many positions there are, as the first model file says. */
static int count_positions(struct ds_step *whole, uint32_t *out, struct ckpt_err *err)
{
	struct ds_file *file = model_of(whole, 0);
	int64_t n = 1;
	int rc;

	for (uint64_t i = 0; !file && i < whole->nfiles; i++)
		if (whole->file[i].id.kind == DS_MODEL)
			file = &whole->file[i];
	if (!file)
		return miss_model(whole, 0, 0, err);
	rc = ck_ds_open_needed(whole, file, err);
	if (rc)
		return rc;
	if (!ck_val_int(ck_val_get(file->pt->doc.root, "mp_world_size"), &n) || n < 1 ||
	    n > CKPT_ZERO_MAX_WORLD)
		return ck_fail(err, CKPT_E_CORRUPT, file->path, CKPT_NO_OFFSET,
			       "RANKS_DISAGREE: mp_world_size is missing or not between 1 and %u",
			       CKPT_ZERO_MAX_WORLD);
	for (int64_t mp = 0; mp < n; mp++)
		if (!model_of(whole, (uint32_t)mp))
			return miss_model(whole, (uint32_t)mp, (uint32_t)n, err);
	*out = (uint32_t)n;
	return 0;
}

static int degrees(struct ds_par *par, struct ckpt_err *err)
{
	const struct ck_val *model = par->pos[0].ds->model;
	const struct ck_val *dims = ck_val_get(model, "checkpoint_parallel_dimensions");
	int64_t pp = 0, tp = 0;

	if (!ck_val_int(ck_val_get(dims, "tp_degree"), &tp) ||
	    !ck_val_int(ck_val_get(dims, "pp_degree"), &pp)) {
		tp = par->npos;
		for (uint64_t i = 0, first = 1; i < par->whole->nfiles; i++) {
			const struct ds_name *id = &par->whole->file[i].id;

			if (id->kind != DS_LAYER)
				continue;
			tp = first ? (int64_t)id->mp + 1 : (int64_t)ck_max_u64((uint64_t)tp,
									       id->mp + 1u);
			first = 0;
		}
		pp = par->npos / tp;
	}
	if (tp < 1 || pp < 1 || tp > par->npos || pp > par->npos || tp * pp != par->npos)
		return ck_fail(err, CKPT_E_MISMATCH, par->whole->at.where, CKPT_NO_OFFSET,
			       "RANKS_DISAGREE: mp_world_size is %u, but there are %" PRId64 " "
			       "tensor ranks and %" PRId64 " pipeline stages", par->npos, tp, pp);
	par->npp = (uint32_t)pp;
	par->ntp = (uint32_t)tp;
	for (uint32_t i = 0; i < par->npos; i++) {
		par->pos[i].pp = i / par->ntp;
		par->pos[i].tp = i % par->ntp;
	}
	return 0;
}

/* The files of position 'mp' as a step of its own. */
static int new_position(struct ds_par *par, uint32_t mp, struct ckpt_err *err)
{
	struct ds_step *whole = par->whole, *ds = ck_zalloc(sizeof(*ds));
	struct ds_pos *pos = &par->pos[mp];
	int rc;

	if (!ds)
		return ck_fail_nomem(err, "a step", sizeof(*ds));
	*ds = (struct ds_step){
		.in = whole->in, .ix = &pos->ix, .f = whole->f, .at = whole->at, .mp = mp,
		.par = par, .no_shards = whole->no_shards,
	};
	ds->arena.limit = whole->in->limits.memory_bytes;
	pthread_mutex_init(&ds->lock, NULL);
	pos->ds = ds;
	rc = ck_index_init(&pos->ix, whole->in->limits.memory_bytes, err);
	if (rc)
		return rc;
	pos->has_ix = true;
	ds->file = ck_arena_zalloc(&ds->arena, (whole->nfiles + 1) * sizeof(*ds->file));
	if (!ds->file)
		return ck_fail_nomem(err, "a list of files", whole->nfiles);
	for (uint64_t i = 0; i < whole->nfiles; i++) {
		struct ds_file *file = &whole->file[i];

		if (file->id.mp != mp || (file->id.kind != DS_MODEL && file->id.kind != DS_OPTIM))
			continue;
		ds->file[ds->nfiles++] = *file;
		*file = (struct ds_file){ .path = file->path, .name = file->name, .id = file->id,
					  .bytes = file->bytes };
	}
	return 0;
}

/* Its model file; names and shapes of it decide which layers are whose. */
static int open_model(struct ds_pos *pos, struct ckpt_err *err)
{
	struct ds_step *ds = pos->ds;
	struct ds_file *file = NULL;
	struct ck_val *const *item;
	uint64_t n;
	int rc;

	for (uint64_t i = 0; i < ds->nfiles; i++)
		if (ds->file[i].id.kind == DS_MODEL)
			file = &ds->file[i];
	rc = ck_ds_open_needed(ds, file, err);
	if (rc)
		return rc;
	ds->model_file = file;
	ds->model = file->pt->doc.root;
	if (!ck_val_pairs(ds->model, &item, &n))
		return ck_fail(err, CKPT_E_FORMAT, file->path, CKPT_NO_OFFSET,
			       "this file holds no dictionary, so it is not a DeepSpeed model "
			       "file");
	return 0;
}

static bool differs(const struct ck_val *a, const struct ck_val *b, const char *key)
{
	return !ck_val_equal(ck_val_get(a, key), ck_val_get(b, key), COMPARE_DEPTH);
}

/* What every position must say as the first one does. */
static void compare_model(const struct ds_par *par, const struct ds_pos *pos)
{
	static const char *const same[] = {
		"mp_world_size", "dp_world_size", "checkpoint_parallel_dimensions", "ds_version",
		"skipped_steps",
	};
	const struct ds_step *first = par->pos[0].ds, *ds = pos->ds;
	int64_t a = -1, b = -1;

	if (differs(first->model, ds->model, "global_steps")) {
		ck_val_int(ck_val_get(first->model, "global_steps"), &a);
		ck_val_int(ck_val_get(ds->model, "global_steps"), &b);
		ck_findings_add(ds->f, CK_FINDING_STEP_MIXED, ds->model_file->path,
				"global_steps is %" PRId64 " here and %" PRId64 " in %s (files of "
				"two saves in one folder?)", b, a, first->model_file->name);
	}
	for (size_t i = 0; i < CK_ARRAY_LEN(same); i++)
		if (differs(first->model, ds->model, same[i]))
			ck_findings_add(ds->f, CK_FINDING_RANKS_DISAGREE, ds->model_file->path,
					"'%s' differs from the value in %s", same[i],
					first->model_file->name);
}

/* Files of positions that the step does not have. */
static void check_extra(const struct ds_par *par)
{
	for (uint64_t i = 0; i < par->whole->nfiles; i++) {
		const struct ds_file *file = &par->whole->file[i];

		if (file->id.mp < (file->id.kind == DS_LAYER ? par->ntp : par->npos))
			continue;
		ck_findings_add(par->whole->f, CK_FINDING_RANK_FILE_EXTRA, file->path,
				"this file is of %s %u, but the step has %u of them (left over "
				"from a run with more ranks?)", file->id.kind == DS_LAYER ?
				"tensor rank" : "mp_rank", file->id.mp,
				file->id.kind == DS_LAYER ? par->ntp : par->npos);
	}
}

int ck_ds_par_open(struct ds_step *whole, struct ckpt_err *err)
{
	struct ds_par *par;
	uint32_t n = 0;
	int rc = check_kinds(whole, err);

	if (!rc)
		rc = count_positions(whole, &n, err);
	if (rc)
		return rc;
	par = ck_arena_zalloc(&whole->arena, sizeof(*par));
	if (par)
		par->pos = ck_arena_zalloc(&whole->arena, n * sizeof(*par->pos));
	if (!par || !par->pos)
		return ck_fail_nomem(err, "positions", n);
	par->whole = whole;
	par->cut_vocabulary = whole->no_shards;
	whole->parts = par;
	par->npos = n;
	for (uint32_t mp = 0; !rc && mp < n; mp++)
		rc = new_position(par, mp, err);
	for (uint32_t mp = 0; !rc && mp < n; mp++)
		rc = open_model(&par->pos[mp], err);
	if (!rc)
		rc = degrees(par, err);
	for (uint32_t mp = 1; !rc && mp < n; mp++)
		compare_model(par, &par->pos[mp]);
	if (rc)
		return rc;
	check_extra(par);
	rc = ck_ds_par_rules(par, err);
	return rc ? rc : ck_ds_pipe_open(par, err);
}

/* Errors that say which files are of no use. */
static uint64_t count_absent(const struct ck_findings *f)
{
	return (uint64_t)f->of_kind[CK_FINDING_RANK_FILE_MISSING] +
	       f->of_kind[CK_FINDING_MODEL_FILE_MISSING] + f->of_kind[CK_FINDING_FILE_DAMAGED] +
	       f->of_kind[CK_FINDING_NO_PERMISSION] + f->of_kind[CK_FINDING_RANK_FILE_SWAPPED];
}

int ck_ds_par_read(struct ds_par *par, int (*read)(struct ds_step *ds, struct ckpt_err *err),
		   struct ckpt_err *err)
{
	int rc = 0;

	for (uint32_t i = 0; !rc && i < par->npos; i++) {
		const uint64_t before = count_absent(par->whole->f);

		rc = read(par->pos[i].ds, err);
		rc = ck_arena_why(&par->pos[i].ds->arena, rc, par->whole->at.where, err);
		par->pos[i].incomplete |= count_absent(par->whole->f) > before;
	}
	return rc;
}

void ck_ds_par_free(struct ds_par *par)
{
	if (!par)
		return;
	for (uint32_t i = 0; i < par->nlayers; i++)
		ck_ds_file_release(&par->layer[i].file);
	for (uint32_t i = 0; i < par->npos; i++) {
		struct ds_pos *pos = &par->pos[i];

		if (pos->ds) {
			pos->ds->at.tree = (struct ck_tree)CK_TREE_INIT;	/* the whole's */
			ck_ds_free(pos->ds);
		}
		if (pos->has_ix)
			ck_index_release(&pos->ix);
		ck_free(pos->source);
		ck_free(pos->member);
		ck_free(pos->view);
	}
	for (uint32_t pp = 0; par->rules && pp < par->npp; pp++)
		ck_ds_tp_rules_release(&par->rules[pp]);
	ck_ds_tp_rules_release(&par->given);
}
