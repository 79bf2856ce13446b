/*
 * stp_format.c -- the driver of HuggingFaceStorageWriter's folders: the order in which one is read.
 */
#define _GNU_SOURCE
#include <string.h>

#include "formats/dcp_st/stp.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/io/ck_mount.h"

#define PEEK 4096u

/* ---- bids ---- */

static const struct ck_tree_entry *first_file(const struct ck_tree *tree)
{
	struct ck_st_shard id;

	for (uint64_t i = 0; i < tree->n; i++)
		if (!tree->entry[i].is_dir && ck_st_shard_read(tree->entry[i].name, &id) && id.rank)
			return &tree->entry[i];
	return NULL;
}

static const struct ck_tree_entry *folder_below(const struct ck_tree *tree)
{
	const struct ck_tree_entry *e = ck_tree_find(tree, "sharded");

	return e && e->is_dir ? e : NULL;
}

/* Its metadata, which the writer puts first, has places. */
static bool has_places(const struct ck_input *in, const struct ck_tree_entry *e)
{
	struct ck_src *src = NULL;
	char head[PEEK];
	size_t n;
	bool yes = false;

	if (ck_src_open(in->pool, e->path, &src, NULL))
		return false;
	n = (size_t)ck_min_u64(sizeof(head), ck_src_size(src));
	if (!ck_src_read(src, 0, head, n, NULL))
		yes = memmem(head, n, CK_ST_PLACES_KEY, strlen(CK_ST_PLACES_KEY)) != NULL;
	ck_src_close(src);
	return yes;
}

/*
 * Below an index or one whole file of weights, which a loader takes; above what Hugging Face's
 * driver bids for shards that it cannot read.  The folder "sharded" is read where no whole files
 * are beside it.
 */
static int probe(const struct ck_input *in)
{
	const struct ck_tree_entry *e = in->is_dir ? first_file(&in->tree) : NULL;

	if (e)
		return has_places(in, e) ? 36 : 12;
	return in->is_dir && folder_below(&in->tree) ? 9 : 0;
}

/* ---- reading ---- */

static int find_folder(struct stp *d, struct ckpt_err *err)
{
	const struct ck_tree_entry *e = folder_below(&d->in->tree);
	int rc;

	d->tree = &d->in->tree;
	d->where = d->in->path[0];
	if (first_file(d->tree) || !e)
		return 0;
	d->where = ck_arena_strdup(&d->arena, e->path);
	if (!d->where)
		return ck_fail_nomem(err, "a path", 0);
	rc = ck_look_list(d->in->pool, &d->sub, d->in->path, d->in->npaths, "sharded",
			  d->in->limits.files, err);
	d->tree = &d->sub;
	if (!rc && !first_file(d->tree))
		rc = ck_fail(err, CKPT_E_FORMAT, d->in->path[0], CKPT_NO_OFFSET,
			     "neither the folder nor 'sharded' in it holds model weights");
	return rc;
}

static int read_all(struct stp *d, struct ckpt_err *err)
{
	int rc = find_folder(d, err);

	d->ix->format = "dcp-safetensors";
	if (!rc)
		rc = ck_stp_files_open(d, err);
	if (!rc)
		rc = ck_stp_files_add(d, err);
	if (!rc)
		rc = ck_stp_join(d, err);
	if (!rc)
		rc = ck_stp_check(d, err);
	if (!rc && !d->is_proven)
		ck_stp_files_missing(d);
	d->ix->world = (uint32_t)d->ranks;
	d->ix->optimizer = "none";
	d->ix->writer = "torch.distributed.checkpoint, HuggingFaceStorageWriter";
	d->ix->why = ck_arena_printf(&d->ix->arena, "%s has files of ranks", d->where);
	return rc;
}

static void release(struct stp *d)
{
	for (uint64_t i = 0; i < d->nfiles; i++) {
		ck_st_close(d->file[i].st);
		ck_src_close(d->file[i].src);
		ck_findings_release(&d->file[i].notes);
	}
	for (uint64_t i = 0; i < d->ntensors; i++)
		ck_free(d->tensor[i].piece);
	ck_free(d->file);
	ck_free(d->tensor);
	ck_map_release(&d->by_name);
	ck_tree_release(&d->sub);
	ck_arena_release(&d->arena);
}

static int stp_index(const struct ck_input *in, struct ck_index *ix, struct ck_findings *f,
		     struct ckpt_err *err)
{
	struct stp d = { .in = in, .ix = ix, .f = f };
	struct ckpt_err mine = { 0 };
	int rc;

	if (!err)
		err = &mine;	/* findings are made of it */
	d.arena.limit = in->limits.memory_bytes;
	rc = read_all(&d, err);
	rc = ck_arena_why(&d.arena, rc, in->path[0], err);
	release(&d);
	return rc;
}

const struct ck_format ck_format_dcp_st = {
	.name = "dcp-safetensors",
	.is_model = true,
	.probe = probe,
	.index = stp_index,
};
