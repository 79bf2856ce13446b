/*
 * dcp_files.c -- a step's folder and its data files: listed, opened, given to the index, and lent
 * from an index that has them.
 */
#include <inttypes.h>
#include <string.h>

#include "formats/dcp_files/ck_dcp_files.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/io/ck_mount.h"
#include "libckpt/tensor/ck_dtype.h"

void ck_dcp_files_init(struct dcp_files *fs, const struct ck_input *in, struct ck_index *ix,
		       struct ck_findings *f)
{
	fs->in = in;
	fs->ix = ix;
	fs->f = f;
	fs->arena.limit = in->limits.memory_bytes;
	pthread_mutex_init(&fs->lock, NULL);
}

void ck_dcp_files_release(struct dcp_files *fs)
{
	for (uint64_t i = 0; i < fs->nitems; i++)
		ck_dcp_value_close(fs->item[i].value);
	for (uint32_t i = 0; i < fs->nparts; i++) {
		ck_src_close(fs->part[i].src);
		ck_pkl_release(&fs->part[i].doc);
		ck_map_release(&fs->part[i].by_place);
		ck_free(fs->part[i].place);
		ck_tree_release(&fs->part[i].tree);
	}
	for (uint64_t i = 0; i < fs->nfiles; i++)
		ck_src_close(fs->file[i].src);
	ck_free(fs->item);
	ck_free(fs->file);
	ck_map_release(&fs->by_flat);
	ck_map_release(&fs->by_file);
	ck_tree_release(&fs->at.tree);
	ck_arena_release(&fs->arena);
	pthread_mutex_destroy(&fs->lock);
}

/* ---- parts ---- */

static int list_part(struct dcp_files *fs, const char *sub, struct dcp_part *part,
		     struct ckpt_err *err)
{
	const char *below = fs->at.given_step ? sub : *sub ?
		ck_arena_printf(&fs->arena, "%s/%s", fs->ix->tag, sub) : fs->ix->tag;

	part->sub = sub;
	if (!below)
		return ck_fail_nomem(err, "a path", 0);
	return ck_look_list(fs->in->pool, &part->tree, fs->at.root, fs->at.nroots,
			    *below ? below : NULL, fs->in->limits.files, err);
}

int ck_dcp_part_open(struct dcp_files *fs, const char *sub, struct ckpt_err *err)
{
	struct dcp_part *part = &fs->part[fs->nparts++];
	const struct ck_tree_entry *e;
	int rc;

	part->tree = (struct ck_tree)CK_TREE_INIT;
	rc = list_part(fs, sub, part, err);
	if (rc)
		return rc;
	e = ck_tree_find(&part->tree, DCP_METADATA);
	part->path = ck_arena_printf(&fs->arena, "%s%s%s/" DCP_METADATA, fs->at.where,
				     *sub ? "/" : "", sub);
	if (e)
		part->path = ck_arena_strdup(&fs->arena, e->path);
	if (!part->path)
		return ck_fail_nomem(err, "a path", 0);
	if (!e) {
		ck_findings_add(fs->f, CK_FINDING_MODEL_FILE_MISSING, part->path,
				"missing, and it says what is in the folder; it is written last "
				"(was the save interrupted, or the copy partial?)");
		fs->nparts--;
		ck_tree_release(&part->tree);
		return 0;
	}
	rc = ck_src_open(fs->in->pool, part->path, &part->src, err);
	return rc ? rc : ck_dcp_meta_read(fs, part, err);
}

/* ---- the index ---- */

int ck_dcp_files_give(struct dcp_files *fs, struct ckpt_err *err)
{
	int rc = 0;

	for (uint32_t i = 0; !rc && i < fs->nparts; i++) {
		uint32_t source;

		rc = ck_index_add_source(fs->ix, fs->part[i].path, fs->part[i].src, -1, &source,
					 err);
		fs->part[i].src = NULL;
	}
	for (uint64_t i = 0; !rc && i < fs->nfiles; i++) {
		struct dcp_file *file = &fs->file[i];
		uint8_t tail[8];

		ck_put_le64(tail, file->bytes);
		ck_hasher_add(fs->ix->fingerprint, file->name, strlen(file->name) + 1);
		ck_hasher_add(fs->ix->fingerprint, tail, sizeof(tail));
		if (!file->src)
			continue;
		/* Values that are no tensors still read it: the index closes it. */
		rc = ck_index_add_source(fs->ix, file->path, file->src, file->rank, &file->source,
					 err);
		file->src = NULL;
	}
	return rc;
}

uint32_t ck_dcp_files_world(const struct dcp_files *fs)
{
	int32_t last = -1;

	for (uint64_t i = 0; i < fs->nfiles; i++)
		if (fs->file[i].rank > last)
			last = fs->file[i].rank;
	return (uint32_t)(last + 1);
}

/* ---- an index that has them ---- */

/* Is it the file of that name below the step's folder? */
static bool ends_in(const char *path, const char *name)
{
	const size_t n = strlen(path), len = strlen(name);

	return n > len && path[n - len - 1] == '/' && !strcmp(path + n - len, name);
}

static int read_parts(struct dcp_files *fs, const struct ck_index *ix,
		      const char *(*sub_of)(struct dcp_files *fs, const char *path),
		      struct ckpt_err *err)
{
	int rc = 0;

	for (uint64_t i = 0; !rc && i < ix->nsources && fs->nparts < DCP_PARTS; i++) {
		const struct ck_source *s = &ix->source[i];
		struct dcp_part *part = &fs->part[fs->nparts];

		if (!ends_in(s->path, DCP_METADATA))
			continue;
		part->tree = (struct ck_tree)CK_TREE_INIT;
		part->path = s->path;
		part->src = s->src;
		part->sub = sub_of(fs, s->path);
		fs->nparts++;
		rc = part->sub ? ck_dcp_meta_read(fs, part, err) : ck_fail_nomem(err, "a name", 0);
		part->src = NULL;
	}
	if (!rc && !fs->nparts)
		rc = ck_fail(err, CKPT_E_INCOMPLETE, ix->path, CKPT_NO_OFFSET,
			     "MODEL_FILE_MISSING: no '.metadata' is here, which has the values");
	return rc;
}

int ck_dcp_files_lend(struct dcp_files *fs, const struct ck_index *ix,
		      const char *(*sub_of)(struct dcp_files *fs, const char *path),
		      struct ckpt_err *err)
{
	int rc = read_parts(fs, ix, sub_of, err);

	for (uint64_t i = 0; !rc && i < fs->nfiles; i++)
		for (uint64_t k = 0; k < ix->nsources && !fs->file[i].src; k++)
			if (ends_in(ix->source[k].path, fs->file[i].name)) {
				fs->file[i].src = ix->source[k].src;
				fs->file[i].path = ix->source[k].path;
				fs->file[i].bytes = ix->source[k].bytes;
			}
	return rc;
}

void ck_dcp_files_give_back(struct dcp_files *fs)
{
	for (uint64_t i = 0; i < fs->nfiles; i++)
		fs->file[i].src = NULL;
}
