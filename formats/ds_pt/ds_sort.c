/* ds_sort.c -- which files of a step are what; layouts that are refused by their names. */
#include <string.h>

#include "formats/ds_pt/ck_ds.h"
#include "libckpt/base/ck_err.h"

bool ck_ds_has_files(const struct ck_tree *tree)
{
	for (uint64_t i = 0; i < tree->n; i++)
		if (!tree->entry[i].is_dir &&
		    ck_ds_name_parse(tree->entry[i].name).kind != DS_OTHER)
			return true;
	return false;
}

/* What helps. */
#define SAME_RANKS "; DeepSpeed itself resumes it on as many GPUs as before"

static int refuse(const struct ds_step *ds, const char *name, const char *what, const char *help,
		  struct ckpt_err *err)
{
	return ck_fail(err, CKPT_E_LAYOUT, ds->at.where, CKPT_NO_OFFSET,
		       "LAYOUT_UNSUPPORTED: %s, as %s shows; zckpt reads plain data-parallel "
		       "steps of ZeRO stage 0 to 3%s", what, name, help);
}

static int check_layout(struct ds_step *ds, const struct ck_tree_entry *e, struct ds_name id,
			struct ckpt_err *err)
{
	if (e->is_dir && !strcmp(e->name, "offloaded_tensors"))
		return refuse(ds, e->name, "optimizer states on NVMe are not in the shards",
			      SAME_RANKS, err);
	if (e->is_dir)
		return 0;
	if (id.kind == DS_EXPERT && id.layer == CK_NONE)
		return refuse(ds, e->name, "mixture of experts by DeepSpeed before 0.6",
			      SAME_RANKS, err);
	if (id.kind == DS_PIECE)
		return refuse(ds, e->name, "files in pieces by the FAST checkpoint writer",
			      SAME_RANKS, err);
	return 0;
}

static int check_layouts(struct ds_step *ds, struct ckpt_err *err)
{
	int rc = 0;

	for (uint64_t i = 0; !rc && i < ds->at.tree.n; i++) {
		const struct ck_tree_entry *e = &ds->at.tree.entry[i];

		rc = check_layout(ds, e, ck_ds_name_parse(e->name), err);
	}
	return rc;
}

/* 1 = another file is of the same kind and numbers ("rank_1" and "rank_01"). */
static int meets_another(struct ds_step *ds, struct ck_map *seen, struct ds_file *file,
			 struct ckpt_err *err)
{
	uint64_t other;
	int rc;

	/* numbers in names have at most six digits */
	file->key = (uint64_t)file->id.kind << 61 | (uint64_t)file->id.bf16 << 60 |
		    (uint64_t)file->id.mp << 40 | (uint64_t)file->id.layer << 20 | file->id.rank;
	rc = ck_map_add(seen, (const char *)&file->key, sizeof(file->key), ds->nfiles, &other,
			err);
	if (rc == 1)
		ck_findings_add(ds->f, CK_FINDING_RANK_FILE_EXTRA, file->path,
				"this is a second file of the same rank (left over from another "
				"version?); %s is used", ds->file[other].name);
	return rc;
}

static int list_files(struct ds_step *ds, struct ck_map *seen, struct ckpt_err *err)
{
	for (uint64_t i = 0; i < ds->at.tree.n; i++) {
		const struct ck_tree_entry *e = &ds->at.tree.entry[i];
		struct ds_file *file = &ds->file[ds->nfiles];
		const size_t len = strlen(e->name);
		int rc;

		if (e->is_dir)
			continue;
		*file = (struct ds_file){ .path = e->path, .name = e->name, .bytes = e->bytes };
		file->id = ck_ds_name_parse(e->name);
		if (file->id.kind != DS_OTHER) {
			rc = meets_another(ds, seen, file, err);
			if (rc < 0)
				return rc;
			ds->nfiles += !rc;
		} else if (len > 3 && !strcmp(e->name + len - 3, ".pt")) {
			ck_findings_add(ds->f, CK_FINDING_FILE_UNKNOWN, e->path,
					"this file is not part of the step");
		}
	}
	return 0;
}

int ck_ds_sort_files(struct ds_step *ds, struct ckpt_err *err)
{
	struct ck_map seen = CK_MAP_INIT;
	int rc = check_layouts(ds, err);

	if (rc)
		return rc;
	ds->file = ck_arena_zalloc(&ds->arena, (ds->at.tree.n + 1) * sizeof(*ds->file));
	if (!ds->file)
		return ck_fail_nomem(err, "a list of files", ds->at.tree.n);
	rc = list_files(ds, &seen, err);
	ck_map_release(&seen);
	for (uint64_t i = 0; i < ds->at.tree.ndiffering; i++)
		ck_findings_add(ds->f, CK_FINDING_OVERLAY_DIFFERS, ds->at.tree.differing[i],
				"two of the given folders hold this file with different sizes; the "
				"first one's is used");
	return rc;
}
