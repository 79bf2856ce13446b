/*
 * ds_find.c -- what a folder holds, the step that ds_choose.c has chosen, and which of its files
 * are what.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/deepspeed/ck_ds.h"
#include "formats/native/ck_nat.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/io/ck_mount.h"

static bool is_shard_name(const char *name)
{
	const enum ds_kind k = ck_ds_name_parse(name).kind;

	return k != DS_OTHER;
}

static bool holds_shards(const struct ck_tree *tree)
{
	for (uint64_t i = 0; i < tree->n; i++)
		if (!tree->entry[i].is_dir && is_shard_name(tree->entry[i].name))
			return true;
	return false;
}

/* A folder one or two levels down may be a step: worth a low bid. */
static bool may_hold_steps(const struct ck_tree *tree)
{
	for (uint64_t i = 0; i < tree->n; i++) {
		const char *name = tree->entry[i].name;

		if (!tree->entry[i].is_dir)
			continue;
		if (!strncmp(name, "global_step", 11) || !strncmp(name, "checkpoint-", 11))
			return true;
	}
	return false;
}

bool ck_ds_is_step(const struct ck_tree *tree)
{
	const struct ck_tree_entry *zero = ck_tree_find(tree, "zero");

	return holds_shards(tree) || (zero && zero->is_dir) || ck_nat_is_step(tree);
}

enum ds_holds ck_ds_holds(const struct ck_tree *tree)
{
	return ck_nat_is_step(tree) ? DS_HOLDS_NATIVE :
	       ck_ds_is_universal(tree) ? DS_HOLDS_UNIVERSAL :
	       holds_shards(tree) ? DS_HOLDS_SHARDS : DS_HOLDS_NO_STEP;
}

bool ck_ds_keeps_steps(const struct ck_tree *tree)
{
	return ck_tree_find(tree, "latest") || may_hold_steps(tree);
}

/* Some folder in there is a step. */
static bool holds_step(const char *path, const struct ck_tree *tree, uint64_t max)
{
	bool yes = false;

	for (uint64_t i = 0; i < tree->n && !yes; i++) {
		struct ck_tree sub = CK_TREE_INIT;

		if (!tree->entry[i].is_dir || ck_fs_is_aside(tree->entry[i].name))
			continue;
		if (!ck_tree_list(&sub, &path, 1, tree->entry[i].name, max, NULL))
			yes = ck_ds_is_step(&sub);
		ck_tree_release(&sub);
	}
	return yes;
}

int ck_ds_look(const char *path, const struct ckpt_limits *limits, enum ck_holds *out,
	       struct ckpt_err *err)
{
	struct ck_tree tree = CK_TREE_INIT;
	int rc = ck_tree_list(&tree, &path, 1, NULL, limits->files, err);

	if (!rc && ck_ds_is_step(&tree))
		*out = CK_HOLDS_SHARDS;
	else if (!rc && (ck_ds_keeps_steps(&tree) || ck_tree_find(&tree, "trainer_state.json") ||
			 ck_tree_find(&tree, "latest_universal") ||
			 holds_step(path, &tree, limits->files)))
		*out = CK_HOLDS_STEPS;
	else if (!rc)
		*out = CK_HOLDS_OTHER;
	ck_tree_release(&tree);
	return rc;
}

int ck_ds_probe(const struct ck_input *in)
{
	enum ds_holds kind;
	bool named;
	int rc;

	if (!in->is_dir)
		return 0;
	if (holds_shards(&in->tree))
		return 60;
	rc = ck_ds_chosen_kind(in, &kind, &named);
	if (rc)
		return rc;
	/* a folder whose first save was killed before 'latest' holds the step of a tag */
	if (ck_tree_find(&in->tree, "latest") || (in->tag && kind == DS_HOLDS_SHARDS))
		return 56;
	return may_hold_steps(&in->tree) ? 20 : 0;
}

/* What DeepSpeed strips; a NUL is no blank. */
static bool is_blank(char c)
{
	return c == ' ' || (c >= '\t' && c <= '\r');
}

int ck_ds_latest(struct ds_step *ds, const struct ck_tree *tree, const char *file, char **tag_out,
		 struct ckpt_err *err)
{
	const struct ck_tree_entry *e = ck_tree_find(tree, file);
	struct ckpt_err inner = { 0 };
	uint64_t len = 0, begin = 0;
	char *text = NULL;
	int rc;

	*tag_out = NULL;
	if (!e || e->is_dir)
		return 0;
	rc = ck_look_read(ds->in->pool, e->path, 4096, &text, &len, &inner);
	if (rc == -CKPT_E_CORRUPT)	/* it lies in an archive */
		return ck_fail(err, inner.code, inner.where, inner.offset, "%s", inner.msg);
	if (rc)
		return ck_err_take_system(rc, &inner, err);
	while (begin < len && is_blank(text[begin]))
		begin++;
	while (len > begin && is_blank(text[len - 1]))
		len--;
	if (len > begin && !memchr(text + begin, 0, len - begin)) {
		*tag_out = ck_arena_strndup(&ds->arena, text + begin, len - begin);
		rc = *tag_out ? 0 : ck_fail_nomem(err, "the name of a step", len);
	}
	ck_free(text);
	return rc;
}

/* DeepSpeed's universal form of a step: states by parameter in a folder 'zero'. */
bool ck_ds_is_universal(const struct ck_tree *tree)
{
	const struct ck_tree_entry *e = ck_tree_find(tree, "zero");

	return e && e->is_dir && holds_shards(tree);
}

int ck_ds_take_step(struct ds_step *ds, const char *const *root, size_t nroots, const char *tag,
		    const char *why, struct ckpt_err *err)
{
	struct ck_index *ix = ds->ix;
	int rc = ck_look_list(ds->in->pool, &ds->tree, root, nroots, tag, ds->in->limits.files,
			      err);

	if (rc)
		return rc;
	ix->path = tag ? ck_arena_printf(&ix->arena, "%s/%s", root[0], tag) :
		   ck_arena_strdup(&ix->arena, root[0]);
	ix->tag = ck_arena_strdup(&ix->arena, tag ? tag : ck_fs_base(root[0]));
	ix->why = ck_arena_strdup(&ix->arena, why);
	if (!ix->path || !ix->tag || !ix->why)
		return ck_fail_nomem(err, "a path", 0);
	ds->where = ix->path;
	ds->given_step = !tag;
	ds->root = root;
	ds->nroots = nroots;
	if (strchr(ix->tag, '[') || strchr(ix->tag, ']'))
		ck_findings_add(ds->f, CK_FINDING_TAG_UNLOADABLE, ix->tag,
				"the tag has brackets: DeepSpeed's loader, which looks for files "
				"by pattern, finds none of them");
	return 0;
}

bool ck_ds_step_of_tag(const char *tag, uint64_t *step_out)
{
	const char *p = tag + strlen("global_step");
	uint64_t n = 0;

	if (strncmp(tag, "global_step", strlen("global_step")) || !*p || strlen(p) > 18)
		return false;
	for (; *p >= '0' && *p <= '9'; p++)
		n = n * 10 + (uint64_t)(*p - '0');
	if (*p)
		return false;
	*step_out = n;
	return true;
}

bool ck_ds_leads_outside(const char *tag)
{
	const char *p = tag;

	for (;;) {
		if (*p == '/' || !strcmp(p, "..") || !strncmp(p, "../", 3))
			return true;
		p = strchr(p, '/');
		if (!p)
			return false;
		p++;
	}
}

int ck_ds_find(struct ds_step *ds, struct ckpt_err *err)
{
	struct ds_choice c;
	int rc = ck_ds_choose(ds, &c, err);

	if (rc)
		return rc;
	if (c.universal)	/* beside the steps: opened when it is asked for */
		rc = ck_index_add_fact(ds->ix, err, "universal", "%s", c.universal);
	return rc ? rc : ck_ds_take_step(ds, c.root, c.nroots, c.tag, c.why, err);
}

static int refuse(const struct ds_step *ds, const char *name, const char *what,
		  struct ckpt_err *err)
{
	return ck_fail(err, CKPT_E_LAYOUT, ds->where, CKPT_NO_OFFSET,
		       "LAYOUT_UNSUPPORTED: %s (seen by %s); zckpt reads plain data-parallel "
		       "steps of ZeRO stage 0 to 3", what, name);
}

static int check_layout(struct ds_step *ds, const struct ck_tree_entry *e, struct ds_name id,
			struct ckpt_err *err)
{
	if (e->is_dir && !strcmp(e->name, "offloaded_tensors"))
		return refuse(ds, e->name, "optimizer states offloaded to NVMe lie outside the "
			      "shards", err);
	if (e->is_dir)
		return 0;
	if (id.kind == DS_EXPERT || id.kind == DS_EXPERT_OPTIM)
		return refuse(ds, e->name, "mixture of experts (expert parallel)", err);
	if (id.kind == DS_LAYER)
		return refuse(ds, e->name, "pipeline parallel", err);
	if (id.kind == DS_PIECE)
		return refuse(ds, e->name, "files in pieces by the FAST checkpoint writer", err);
	return 0;
}

/* Experts and layers first: such folders hold mp_rank_01 files as well. */
static int check_layouts(struct ds_step *ds, struct ckpt_err *err)
{
	int rc = 0;

	for (uint64_t i = 0; !rc && i < ds->tree.n; i++)
		rc = check_layout(ds, &ds->tree.entry[i], ck_ds_name_parse(ds->tree.entry[i].name),
				  err);
	for (uint64_t i = 0; !rc && i < ds->tree.n; i++) {
		const struct ck_tree_entry *e = &ds->tree.entry[i];
		const struct ds_name id = ck_ds_name_parse(e->name);

		if (!e->is_dir && id.kind != DS_OTHER && id.mp > 0)
			rc = refuse(ds, e->name, "tensor parallel (more than one mp_rank)", err);
	}
	return rc;
}

/* 1 = another file is of the same kind and rank ("rank_1" and "rank_01"). */
static int meets_another(struct ds_step *ds, struct ck_map *seen, struct ds_file *file,
			 struct ckpt_err *err)
{
	uint64_t other;
	int rc;

	file->key = (uint64_t)file->id.kind << 40 | (uint64_t)file->id.bf16 << 32 | file->id.rank;
	rc = ck_map_add(seen, (const char *)&file->key, sizeof(file->key), ds->nfiles, &other,
			err);
	if (rc == 1)
		ck_findings_add(ds->f, CK_FINDING_RANK_FILE_EXTRA, file->path,
				"a second file of the same rank; %s is used (left over from "
				"another version?)", ds->file[other].name);
	return rc;
}

static int list_files(struct ds_step *ds, struct ck_map *seen, struct ckpt_err *err)
{
	for (uint64_t i = 0; i < ds->tree.n; i++) {
		const struct ck_tree_entry *e = &ds->tree.entry[i];
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
	ds->file = ck_arena_zalloc(&ds->arena, (ds->tree.n + 1) * sizeof(*ds->file));
	if (!ds->file)
		return ck_fail_nomem(err, "a list of files", ds->tree.n);
	rc = list_files(ds, &seen, err);
	ck_map_release(&seen);
	for (uint64_t i = 0; i < ds->tree.ndiffering; i++)
		ck_findings_add(ds->f, CK_FINDING_OVERLAY_DIFFERS, ds->tree.differing[i],
				"two of the given folders hold this file with different sizes; the "
				"first one's is used");
	return rc;
}
