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

static int open_parts(struct dcp *d, struct ckpt_err *err)
{
	const struct ck_tree_entry *e;
	int rc = 0;

	if (ck_tree_find(&d->fs.at.tree, DCP_METADATA))
		return ck_dcp_part_open(&d->fs, "", err);
	for (size_t i = 0; !rc && i < DCP_PARTS; i++) {
		e = part_in(&d->fs.at.tree, folders[i]);
		if (e)
			rc = ck_dcp_part_open(&d->fs, e->name, err);
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
	*d = (struct dcp){ .box = "" };
	ck_dcp_files_init(&d->fs, in, ix, f);
	return d;
}

void ck_dcp_free(void *of)
{
	struct dcp *d = of;

	if (!d)
		return;
	ck_map_release(&d->group_of);
	ck_map_release(&d->by_number);
	ck_free(d->number);
	ck_map_release(&d->has_state);
	ck_map_release(&d->frozen);
	ck_map_release(&d->buffers);
	ck_map_release(&d->tied);
	ck_map_release(&d->by_sums);
	ck_dcp_files_release(&d->fs);
	ck_free(d);
}

/* Its 'metadata.json', by which it is known, is written last. */
static int refuse_megatron(const struct dcp *d, struct ckpt_err *err)
{
	static const char common[] = "common_state/shard_";
	uint64_t i = 0;
	char *path;

	while (i < d->fs.nitems && strncmp(d->fs.item[i].flat, common, sizeof(common) - 1) != 0)
		i++;
	if (i == d->fs.nitems)
		return 0;
	path = ck_fs_join(d->fs.at.where, "metadata.json");
	ck_fail(err, CKPT_E_INCOMPLETE, path ? path : d->fs.at.where, CKPT_NO_OFFSET,
		"MODEL_FILE_MISSING: missing; Megatron-Core, whose items these are, writes it "
		"last, so the save did not finish or the copy left it out; after a whole save it "
		"is {\"sharded_backend\": \"torch_dist\", \"sharded_backend_version\": 1}");
	ck_free(path);
	return -CKPT_E_INCOMPLETE;
}

static int read_all(struct dcp *d, struct ckpt_err *err)
{
	struct ck_step_finder fd = { d->fs.in, d->fs.f, &d->fs.arena };
	int rc = ck_step_find(&fd, d->fs.ix, &d->fs.at, err);

	d->fs.ix->format = "dcp";
	if (!rc)
		rc = open_parts(d, err);
	if (!rc)
		rc = refuse_megatron(d, err);
	if (!rc)
		rc = ck_dcp_items_read(&d->fs, err);
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
	rc = ck_arena_why(&d->fs.arena, rc, in->path[0], err);
	ck_kept_give(in->kept, rc, d, ck_dcp_free);
	return rc;
}

/* ---- the driver ---- */

static int probe(const struct ck_input *in)
{
	return ck_step_bid(in, &ck_format_dcp, 65, 58);
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
