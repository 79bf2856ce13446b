/*
 * ds_find.c -- which step is meant, and which of its files are what.
 *
 * Given may be the tag folder itself, the folder above it (with 'latest'), or a folder
 * of "checkpoint-N" folders of which each is such a root.  Several paths are laid over
 * each other at the same level.
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

/* A folder whose first save was killed before 'latest' was written holds a step by any name. */
static bool holds_named(const struct ck_input *in)
{
	struct ck_tree t = CK_TREE_INIT;
	const bool yes = in->tag && !ck_ds_leads_outside(in->tag) &&
			 !ck_look_list(in->pool, &t, in->path, in->npaths, in->tag,
				       in->limits.files, NULL) && holds_shards(&t);

	ck_tree_release(&t);
	return yes;
}

int ck_ds_probe(const struct ck_input *in)
{
	if (!in->is_dir)
		return 0;
	if (holds_shards(&in->tree))
		return 60;
	if (ck_tree_find(&in->tree, "latest") || holds_named(in))
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

/*
 * Is 'sub' below the roots a folder with shards in it?  A folder that cannot be listed is none,
 * unless its name says that it should be one: another step must not be taken for it.
 */
static int is_step(struct ds_step *ds, const char *const *root, size_t nroots, const char *sub,
		   bool is_named, bool *out, struct ckpt_err *err)
{
	struct ck_tree t = CK_TREE_INIT;
	struct ckpt_err inner = { 0 };
	int rc = ck_look_list(ds->in->pool, &t, root, nroots, sub, ds->in->limits.files, &inner);

	*out = !rc && holds_shards(&t) && !ck_ds_is_universal(&t);
	ck_tree_release(&t);
	if (rc == -CKPT_E_NOMEM || is_named || !strncmp(sub, "global_step", 11))
		return ck_err_take_system(rc, &inner, err);
	return 0;
}

/* Names of the steps that are there, for a message. */
static const char *list_steps(struct ds_step *ds, const struct ck_tree *tree,
			      const char *const *root, size_t nroots)
{
	char *text = NULL;
	uint32_t n = 0;
	bool yes;

	for (uint64_t i = tree->n; i > 0 && n < 5; i--) {
		const struct ck_tree_entry *e = &tree->entry[i - 1];

		if (!e->is_dir || ck_fs_is_aside(e->name) ||
		    is_step(ds, root, nroots, e->name, false, &yes, NULL) || !yes)
			continue;
		text = ck_arena_printf(&ds->arena, "%s%s%s", text ? text : "", text ? ", " : "",
				       e->name);
		n++;
	}
	return text ? text : "none";
}

/* The step with the highest number in its name: entries are sorted that way. */
static int newest_step(struct ds_step *ds, const struct ck_tree *tree, const char *const *root,
		       size_t nroots, const char **name_out, struct ckpt_err *err)
{
	bool yes = false;
	int rc = 0;

	*name_out = NULL;
	for (uint64_t i = tree->n; !rc && !yes && i > 0; i--) {
		const struct ck_tree_entry *e = &tree->entry[i - 1];

		if (e->is_dir && !ck_fs_is_aside(e->name))
			rc = is_step(ds, root, nroots, e->name, false, &yes, err);
		if (yes)
			*name_out = e->name;
	}
	return rc;
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

/*
 * A step with a higher number lies beside: its save was cut short, or 'latest' is an old one.  A
 * tag without a number says nothing.
 */
static int check_newest(struct ds_step *ds, const struct ck_tree *tree, const char *const *root,
			size_t nroots, const char *tag, struct ckpt_err *err)
{
	uint64_t mine, other = 0;
	const char *newest = NULL;
	int rc = 0;

	if (!ck_ds_step_of_tag(tag, &mine))
		return 0;
	for (uint64_t i = 0; !rc && i < tree->n; i++) {
		const struct ck_tree_entry *e = &tree->entry[i];
		bool yes = false;
		uint64_t n;

		if (!e->is_dir || !ck_ds_step_of_tag(e->name, &n) || n <= mine || n <= other)
			continue;
		rc = is_step(ds, root, nroots, e->name, false, &yes, err);
		if (!rc && yes) {
			other = n;
			newest = e->name;
		}
	}
	if (newest)
		ck_findings_add(ds->f, CK_FINDING_LATEST_BEHIND, root[0],
				"'latest' names %s, and %s is there too (was its save cut short, "
				"or is 'latest' an old one?)", tag, newest);
	return rc;
}

static int take_latest(struct ds_step *ds, const struct ck_tree *tree, const char *const *root,
		       size_t nroots, const char *tag, struct ckpt_err *err)
{
	bool yes;
	int rc;

	if (ck_ds_leads_outside(tag))
		return ck_fail(err, CKPT_E_UNSAFE, root[0], CKPT_NO_OFFSET,
			       "LATEST_LIES: 'latest' names %s, which is outside this folder; give "
			       "that folder itself if it is meant", tag);
	rc = is_step(ds, root, nroots, tag, true, &yes, err);
	if (rc)
		return rc;
	if (yes) {
		rc = check_newest(ds, tree, root, nroots, tag, err);
		return rc ? rc : ck_ds_take_step(ds, root, nroots, tag, "'latest' names it", err);
	}
	return ck_fail(err, CKPT_E_NOTFOUND, root[0], CKPT_NO_OFFSET,
		       "LATEST_LIES: 'latest' names the step %s, which is not there or holds no "
		       "shard (steps here: %s); --tag names another one", tag,
		       list_steps(ds, tree, root, nroots));
}

/* A universal checkpoint beside the steps: opened when it is asked for. */
static int note_universal(struct ds_step *ds, const struct ck_tree *tree, struct ckpt_err *err)
{
	char *tag;
	int rc = ck_ds_latest(ds, tree, "latest_universal", &tag, err);

	return rc || !tag ? rc : ck_index_add_fact(ds->ix, err, "universal", "%s", tag);
}

static int find_in_root(struct ds_step *ds, const struct ck_tree *tree, const char *const *root,
			size_t nroots, struct ckpt_err *err)
{
	const char *tag = ds->in->tag;
	bool yes = false;
	char *named;
	int rc = note_universal(ds, tree, err);

	if (!rc && tag)
		rc = is_step(ds, root, nroots, tag, true, &yes, err);
	if (rc)
		return rc;
	if (tag) {
		if (yes)
			return ck_ds_take_step(ds, root, nroots, tag, "--tag names it", err);
		return ck_fail(err, CKPT_E_NOTFOUND, root[0], CKPT_NO_OFFSET,
			       "there is no step %s here (steps here: %s)", tag,
			       list_steps(ds, tree, root, nroots));
	}
	rc = ck_ds_latest(ds, tree, "latest", &named, err);
	if (rc)
		return rc;
	if (named)
		return take_latest(ds, tree, root, nroots, named, err);
	if (ck_tree_find(tree, "latest"))
		return ck_fail(err, CKPT_E_NOTFOUND, root[0], CKPT_NO_OFFSET,
			       "LATEST_LIES: the file 'latest' is empty or no text (a full disk?); "
			       "--tag names a step (steps here: %s)",
			       list_steps(ds, tree, root, nroots));
	rc = newest_step(ds, tree, root, nroots, &tag, err);
	if (rc || !tag)
		return rc ? rc : -CKPT_E_NOTFOUND;
	ck_findings_add(ds->f, CK_FINDING_LATEST_ABSENT, root[0],
			"no 'latest' file; %s is taken, whose name sorts last", tag);
	return ck_ds_take_step(ds, root, nroots, tag, "its name sorts last; there is no 'latest'",
			       err);
}

/* The folder 'name' of every given path that has it. */
static int roots_below(struct ds_step *ds, const char *name, const char ***out, size_t *n_out,
		       struct ckpt_err *err)
{
	const struct ck_input *in = ds->in;
	const char **root = ck_arena_alloc(&ds->arena, in->npaths * sizeof(*root));
	size_t n = 0;

	if (!root)
		return ck_fail_nomem(err, "paths", in->npaths);
	for (size_t i = 0; i < in->npaths; i++) {
		enum ck_fs_kind kind;
		int rc;

		root[n] = ck_arena_printf(&ds->arena, "%s/%s", in->path[i], name);
		if (!root[n])
			return ck_fail_nomem(err, "a path", 0);
		rc = ck_look_kind(in->pool, root[n], &kind, NULL, err);
		if (rc)
			return rc;
		n += kind == CK_FS_DIR;
	}
	*out = root;
	*n_out = n;
	return 0;
}

/* A folder of checkpoint-N folders: the one with the highest number. */
static int find_in_trainer(struct ds_step *ds, struct ckpt_err *err)
{
	const struct ck_tree *tree = &ds->in->tree;

	for (uint64_t i = tree->n; i > 0; i--) {
		const struct ck_tree_entry *e = &tree->entry[i - 1];
		struct ck_tree sub = CK_TREE_INIT;
		const char **root = NULL;
		size_t nroots = 0;
		int rc;

		if (!e->is_dir || strncmp(e->name, "checkpoint-", 11))
			continue;
		rc = roots_below(ds, e->name, &root, &nroots, err);
		if (!rc)
			rc = ck_look_list(ds->in->pool, &sub, root, nroots, NULL,
					  ds->in->limits.files, err);
		if (!rc)
			rc = find_in_root(ds, &sub, root, nroots, err);
		ck_tree_release(&sub);
		if (rc != -CKPT_E_NOTFOUND || err->code)
			return rc;
	}
	return -CKPT_E_NOTFOUND;
}

int ck_ds_find(struct ds_step *ds, struct ckpt_err *err)
{
	const struct ck_input *in = ds->in;
	int rc;

	if (holds_shards(&in->tree)) {
		if (in->tag && strcmp(in->tag, ck_fs_base(in->path[0])))
			return ck_fail(err, CKPT_E_USAGE, in->path[0], CKPT_NO_OFFSET,
				       "this folder is itself the step %s; --tag %s goes with "
				       "the folder above it", ck_fs_base(in->path[0]), in->tag);
		return ck_ds_take_step(ds, in->path, in->npaths, NULL,
				       "the folder given is a step", err);
	}
	rc = find_in_root(ds, &in->tree, in->path, in->npaths, err);
	if (rc == -CKPT_E_NOTFOUND && !err->code)
		rc = find_in_trainer(ds, err);
	if (rc == -CKPT_E_NOTFOUND && !err->code)
		rc = ck_fail(err, CKPT_E_NOTFOUND, in->path[0], CKPT_NO_OFFSET,
			     "no folder in here holds a DeepSpeed step "
			     "(*_model_states.pt, *_optim_states.pt)");
	return rc;
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
