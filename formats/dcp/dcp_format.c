/*
 * dcp_format.c -- the driver of folders of torch.distributed.checkpoint (DCP), as FSDP and its
 * users save them: the order in which one is read.
 */
#include <string.h>

#include "formats/dcp/dcp.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/io/ck_mount.h"

static const char *const folders[DCP_PARTS] = { "pytorch_model_fsdp_", "optimizer_" };

/* "pytorch_model_fsdp_0": the first model of accelerate. */
static const struct ck_tree_entry *part_in(const struct ck_tree *tree, const char *begin)
{
	const size_t n = strlen(begin);

	for (uint64_t i = 0; i < tree->n; i++) {
		const char *name = tree->entry[i].name;

		if (tree->entry[i].is_dir && !strncmp(name, begin, n) && name[n] &&
		    strspn(name + n, "0123456789") == strlen(name + n))
			return &tree->entry[i];
	}
	return NULL;
}

/* Megatron-Core keeps its own form in such a folder. */
static bool is_megatron(const struct ck_tree *tree)
{
	return ck_tree_find(tree, "common.pt") || ck_tree_find(tree, "metadata.json");
}

static int holds(const struct ck_tree *tree)
{
	const struct ck_tree_entry *meta = ck_tree_find(tree, DCP_METADATA);

	if (meta && !meta->is_dir)
		return is_megatron(tree) ? 0 : 65;
	return part_in(tree, folders[0]) ? 62 : 0;
}

bool ck_dcp_is_part_folder(const char *name)
{
	for (size_t i = 0; i < DCP_PARTS; i++)
		if (!strncmp(name, folders[i], strlen(folders[i])))
			return true;
	return false;
}

static bool is_part(const char *name, bool is_dir)
{
	const size_t n = strlen(name);

	if (is_dir)
		return ck_dcp_is_part_folder(name);
	return !strcmp(name, DCP_METADATA) || (n > 7 && !strcmp(name + n - 7, ".distcp"));
}

/* ---- parts ---- */

static int list_part(struct dcp *d, const char *sub, struct dcp_part *part, struct ckpt_err *err)
{
	const char *below = d->at.given_step ? sub : *sub ?
		ck_arena_printf(&d->arena, "%s/%s", d->ix->tag, sub) : d->ix->tag;

	part->sub = sub;
	if (!below)
		return ck_fail_nomem(err, "a path", 0);
	return ck_look_list(d->in->pool, &part->tree, d->at.root, d->at.nroots,
			    *below ? below : NULL, d->in->limits.files, err);
}

static int open_part(struct dcp *d, const char *sub, struct ckpt_err *err)
{
	struct dcp_part *part = &d->part[d->nparts++];
	const struct ck_tree_entry *e;
	int rc;

	part->tree = (struct ck_tree)CK_TREE_INIT;
	rc = list_part(d, sub, part, err);
	if (rc)
		return rc;
	e = ck_tree_find(&part->tree, DCP_METADATA);
	part->path = ck_arena_printf(&d->arena, "%s%s%s/" DCP_METADATA, d->at.where,
				     *sub ? "/" : "", sub);
	if (e)
		part->path = ck_arena_strdup(&d->arena, e->path);
	if (!part->path)
		return ck_fail_nomem(err, "a path", 0);
	if (!e) {
		ck_findings_add(d->f, CK_FINDING_MODEL_FILE_MISSING, part->path,
				"missing, and it says what is in the folder; it is written last "
				"(was the save interrupted, or the copy partial?)");
		d->nparts--;
		ck_tree_release(&part->tree);
		return 0;
	}
	rc = ck_src_open(d->in->pool, part->path, &part->src, err);
	return rc ? rc : ck_dcp_meta_read(d, part, err);
}

static int open_parts(struct dcp *d, struct ckpt_err *err)
{
	const struct ck_tree_entry *e;
	int rc = 0;

	if (ck_tree_find(&d->at.tree, DCP_METADATA))
		return open_part(d, "", err);
	for (size_t i = 0; !rc && i < DCP_PARTS; i++) {
		e = part_in(&d->at.tree, folders[i]);
		if (e)
			rc = open_part(d, e->name, err);
	}
	return rc;
}

/* ---- */

struct dcp *ck_dcp_new(const struct ck_input *in, struct ck_index *ix, struct ck_findings *f,
		       struct ckpt_err *err)
{
	struct dcp *d = ck_alloc(sizeof(*d));

	if (!d) {
		ck_fail_nomem(err, "a step", sizeof(*d));
		return NULL;
	}
	*d = (struct dcp){ .in = in, .ix = ix, .f = f, .box = "" };
	d->arena.limit = in->limits.memory_bytes;
	pthread_mutex_init(&d->lock, NULL);
	return d;
}

void ck_dcp_free(void *of)
{
	struct dcp *d = of;

	if (!d)
		return;
	for (uint64_t i = 0; i < d->nitems; i++)
		ck_dcp_value_close(d->item[i].value);
	for (uint32_t i = 0; i < d->nparts; i++) {
		ck_src_close(d->part[i].src);
		ck_pkl_release(&d->part[i].doc);
		ck_map_release(&d->part[i].by_place);
		ck_free(d->part[i].place);
		ck_tree_release(&d->part[i].tree);
	}
	for (uint64_t i = 0; i < d->nfiles; i++)
		ck_src_close(d->file[i].src);
	ck_free(d->item);
	ck_free(d->file);
	ck_map_release(&d->by_flat);
	ck_map_release(&d->by_file);
	ck_map_release(&d->group_of);
	ck_map_release(&d->by_number);
	ck_free(d->number);
	ck_map_release(&d->has_state);
	ck_map_release(&d->frozen);
	ck_map_release(&d->buffers);
	ck_map_release(&d->tied);
	ck_map_release(&d->by_sums);
	ck_tree_release(&d->at.tree);
	ck_arena_release(&d->arena);
	pthread_mutex_destroy(&d->lock);
	ck_free(d);
}

static int read_all(struct dcp *d, struct ckpt_err *err)
{
	struct ck_step_finder fd = { d->in, d->f, &d->arena };
	int rc = ck_step_find(&fd, d->ix, &d->at, err);

	d->ix->format = "dcp";
	if (!rc)
		rc = open_parts(d, err);
	if (!rc)
		rc = ck_dcp_items_read(d, err);
	if (!rc)
		rc = ck_dcp_deepspeed_find(d, err);
	if (!rc)
		rc = ck_dcp_names_find(d, err);
	if (!rc)
		rc = ck_dcp_groups_find(d, err);
	return rc ? rc : ck_dcp_index_fill(d, err);
}

static int dcp_index(const struct ck_input *in, struct ck_index *ix, struct ck_findings *f,
		     struct ckpt_err *err)
{
	struct dcp *d = ck_dcp_new(in, ix, f, err);
	struct ckpt_err mine = { 0 };
	int rc;

	if (!d)
		return -CKPT_E_NOMEM;
	if (!err)
		err = &mine;	/* findings are made of it */
	rc = read_all(d, err);
	rc = ck_arena_why(&d->arena, rc, in->path[0], err);
	ck_kept_give(in->kept, rc, d, ck_dcp_free);
	return rc;
}

/* ---- the driver ---- */

static int probe(const struct ck_input *in)
{
	const struct ck_format *kind;
	bool named;
	int rc;

	if (!in->is_dir)
		return 0;
	if (holds(&in->tree))
		return 65;
	rc = ck_step_chosen_kind(in, &kind, &named);
	return rc ? rc : kind == &ck_format_dcp ? 58 : 0;
}

const struct ck_format ck_format_dcp = {
	.name = "dcp",
	.noun = "checkpoint of torch.distributed.checkpoint (DCP)",
	.is_model = true,
	.is_step = true,
	.probe = probe,
	.index = dcp_index,
	.holds = holds,
	.is_part = is_part,
	.read_step = ck_dcp_read_step,
	.write_step = ck_dcp_write_step,
	.values = ck_dcp_values,
};
