/* ck_slim_files.c -- see ck_slim_files.h. */
#include "libckpt/retain/ck_slim_files.h"

#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/format/ck_format.h"
#include "libckpt/io/ck_mount.h"
#include "libckpt/step/ck_step_find.h"
#include "libckpt/verify/ck_folder.h"

struct listing {
	struct ck_slim_files *files;
	const struct ckpt *ck;
	const char *const *root;
	size_t nroots;
	const char *prefix;	/* in the result: "TAG/", "" */
	bool inside;
};

static int add(struct ck_slim_files *files, const char *name, const char *path, uint64_t bytes,
	       bool inside, struct ckpt_err *err)
{
	int rc = ck_grow(&files->file, &files->cap, files->n + 1, sizeof(*files->file), err);

	if (!rc && (!name || !path))
		rc = ck_fail_nomem(err, "a file name", 0);
	if (!rc)
		files->file[files->n++] = (struct ck_slim_file){ name, path, bytes, inside };
	return rc;
}

bool ck_slim_is_step(const struct ckpt *ck)
{
	return ck->driver->is_step;
}

/* ---- folders that are walked ---- */

static bool is_left_out(const struct listing *l, const struct ck_tree_entry *e, bool top)
{
	if (e->is_odd || strstr(e->name, ".zckpt-"))
		return true;
	if (!strcmp(e->name, CK_MANIFEST_NAME)) {
		l->files->manifest |= l->inside;
		return l->inside;
	}
	return top && !l->inside &&
	       (!strcmp(e->name, "latest") || !strcmp(e->name, "latest_universal"));
}

/* A folder beside the step that is one itself, or keeps some, is no part of it. */
static int goes_along(const struct listing *l, const struct ck_tree_entry *e, bool *out,
		      struct ckpt_err *err)
{
	enum ck_holds holds = CK_HOLDS_OTHER;
	int rc = 0;

	*out = false;
	if (ck_fdpool_mount(l->ck->pool))	/* a pack has no folders beside its step */
		return 0;
	if (!l->inside)
		rc = ck_step_look(l->ck->formats, e->path, &l->ck->limits, &holds, err);
	*out = !rc && holds == CK_HOLDS_OTHER;
	return rc;
}

static int walk(struct listing *l, const char *sub, uint32_t depth, struct ckpt_err *err);

static int take_entry(struct listing *l, const struct ck_tree_entry *e, const char *sub,
		      uint32_t depth, struct ckpt_err *err)
{
	struct ck_arena *a = &l->files->arena;
	const char *within = ck_arena_printf(a, "%s%s%s", sub ? sub : "", sub ? "/" : "", e->name);
	bool along;
	int rc;

	if (!within)
		return ck_fail_nomem(err, "a file name", 0);
	if (!e->is_dir)
		return add(l->files, ck_arena_printf(a, "%s%s", l->prefix, within),
			   ck_arena_strdup(a, e->path), e->bytes, l->inside, err);
	rc = goes_along(l, e, &along, err);
	return rc || !along ? rc : walk(l, within, depth + 1, err);
}

static int walk(struct listing *l, const char *sub, uint32_t depth, struct ckpt_err *err)
{
	const struct ckpt_limits *limits = &l->ck->limits;
	struct ck_tree tree = CK_TREE_INIT;
	int rc = depth <= limits->folder_depth ? 0 :
		 ck_fail_limit(err, sub, CKPT_NO_OFFSET, "folder_depth", limits->folder_depth,
			       "folders are nested too deeply (does a link lead back?)");

	if (!rc)
		rc = ck_look_list(l->ck->pool, &tree, l->root, l->nroots, sub, limits->files, err);
	if (!rc && l->files->n + tree.n > limits->files)
		rc = ck_fail_limit(err, l->root[0], CKPT_NO_OFFSET, "files", limits->files,
				   "the folder has too many files");
	for (uint64_t i = 0; !rc && i < tree.n; i++)
		if (!is_left_out(l, &tree.entry[i], !sub))
			rc = take_entry(l, &tree.entry[i], sub, depth, err);
	ck_tree_release(&tree);
	return rc;
}

/* ---- a step ---- */

/* Found below what was given, not given itself. */
static bool is_found(const struct ckpt *ck)
{
	const struct ck_mount *m = ck_fdpool_mount(ck->pool);
	const char *given = m ? m->root : ck->path[0];
	size_t n = strlen(given);

	while (n > 1 && given[n - 1] == '/')
		n--;
	return strlen(ck->ix.path) > n && !strncmp(ck->ix.path, given, n);
}

static int list_step(struct ck_slim_files *files, const struct ckpt *ck, const char *prefix,
		     struct ckpt_err *err)
{
	struct ck_folder folder = CK_FOLDER_INIT;
	enum ck_fs_kind kind = CK_FS_NOTHING;
	int rc = ck_folder_list(&folder, ck, err);

	for (uint64_t i = 0; !rc && i < folder.n; i++)
		rc = add(files, ck_arena_printf(&files->arena, "%s%s", prefix,
						folder.file[i].name),
			 ck_arena_strdup(&files->arena, folder.file[i].path),
			 folder.file[i].bytes, true, err);
	if (!rc)
		rc = ck_look_kind(ck->pool, folder.manifest, &kind, NULL, err);
	files->manifest = kind == CK_FS_FILE;
	ck_folder_release(&folder);
	return rc;
}

static int list_beside(struct ck_slim_files *files, const struct ckpt *ck, struct ckpt_err *err)
{
	char *root = ck_fs_parent(ck->ix.path);
	const char *one = root;
	struct listing l = {
		.files = files, .ck = ck, .root = &one, .nroots = 1, .prefix = "",
	};
	int rc = root ? 0 : ck_fail_nomem(err, "a path", 0);

	if (!rc && !strcmp(root, ck->path[0])) {	/* several folders, laid over each other */
		l.root = ck->path;
		l.nroots = ck->npaths;
	}
	if (!rc)
		rc = walk(&l, NULL, 0, err);
	ck_free(root);
	return rc;
}

static int list_root(struct ck_slim_files *files, const struct ckpt *ck, struct ckpt_err *err)
{
	const char *prefix;
	int rc;

	files->tag = ck_arena_strdup(&files->arena, ck->ix.tag);
	prefix = ck_arena_printf(&files->arena, "%s/", ck->ix.tag);
	if (!files->tag || !prefix)
		return ck_fail_nomem(err, "a file name", 0);
	rc = list_step(files, ck, prefix, err);
	return rc || !is_found(ck) ? rc : list_beside(files, ck, err);
}

int ck_slim_files_list(struct ck_slim_files *files, const struct ckpt *ck, bool bare,
		       struct ckpt_err *err)
{
	struct listing l = {
		.files = files, .ck = ck, .root = ck->path, .nroots = ck->npaths, .prefix = "",
		.inside = true,
	};
	enum ck_fs_kind kind;
	uint64_t bytes = 0;
	int rc = ck_look_kind(ck->pool, ck->ix.path ? ck->ix.path : ck->path[0], &kind, &bytes,
			      err);

	if (rc)
		return rc;
	files->is_dir = kind == CK_FS_DIR;
	if (files->is_dir && ck_slim_is_step(ck))
		return bare ? walk(&l, NULL, 0, err) : list_root(files, ck, err);
	if (files->is_dir)
		return walk(&l, NULL, 0, err);
	return add(files, ck_arena_strdup(&files->arena, ck_fs_base(ck->path[0])),
		   ck_arena_strdup(&files->arena, ck->ix.path ? ck->ix.path : ck->path[0]), bytes,
		   true, err);
}

void ck_slim_files_release(struct ck_slim_files *files)
{
	ck_free(files->file);
	ck_arena_release(&files->arena);
	memset(files, 0, sizeof(*files));
}
