/* ck_folder.c -- see ck_folder.h. */
#include "libckpt/verify/ck_folder.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/base/ck_text.h"
#include "libckpt/io/ck_mount.h"

struct walk {
	struct ck_folder *folder;
	const struct ckpt *ck;
	struct ck_map source;	/* path -> number in the index */
	struct ck_map seen;	/* names */
	const char *below;	/* name of the folder that is read, "" = the step's own */
	uint32_t depth;
	bool deep;
};

/* Ours, or nobody's. */
static bool is_passed_over(const char *name)
{
	return name[0] == '.' || ck_ends_with(name, CK_MANIFEST_NAME) ||
	       ck_ends_with(name, CK_MANIFEST_NAME ".tmp") || strstr(name, ".zckpt-");
}

static int add_file(struct walk *w, const char *name, const char *path, struct ckpt_err *err)
{
	struct ck_folder *folder = w->folder;
	struct ck_folder_file *f;
	enum ck_fs_kind kind;
	uint64_t source, bytes = 0;
	int rc = ck_look_kind(w->ck->pool, path, &kind, &bytes, err);

	if (!rc && kind == CK_FS_NOTHING)
		rc = ck_fail_sys(err, ENOENT, "stat", path);
	if (rc)
		return rc;
	rc = ck_map_add(&w->seen, name, strlen(name), folder->n, NULL, err);
	if (rc)
		return rc < 0 ? rc : 0;	/* an earlier root has it */
	if (folder->n >= w->ck->limits.files)
		return ck_fail_limit(err, path, CKPT_NO_OFFSET, "files", w->ck->limits.files,
				     "the folder has too many files");
	rc = ck_grow(&folder->file, &folder->cap, folder->n + 1, sizeof(*f), err);
	if (rc)
		return rc;
	f = &folder->file[folder->n++];
	*f = (struct ck_folder_file){ name, path, bytes, CK_NONE };
	if (ck_map_find(&w->source, path, strlen(path), &source))
		f->source = (uint32_t)source;
	return 0;
}

static int see(void *arg, const char *dir, const char *name, struct ckpt_err *err)
{
	struct walk *w = arg;
	const char *below = w->below;
	const uint32_t most = w->ck->limits.folder_depth;
	const char *path = ck_arena_printf(&w->folder->arena, "%s/%s", dir, name);
	const char *within = ck_arena_printf(&w->folder->arena, "%s%s%s", below,
					     below[0] ? "/" : "", name);
	enum ck_fs_kind kind;
	int rc;

	if (!path || !within)
		return ck_fail_nomem(err, "a file name", strlen(name));
	if (is_passed_over(name) && !ck_map_find(&w->source, path, strlen(path), NULL))
		return 0;
	rc = ck_look_kind(w->ck->pool, path, &kind, NULL, err);
	if (rc || kind == CK_FS_FILE)
		return rc ? rc : add_file(w, within, path, err);
	if (kind != CK_FS_DIR || !w->deep)
		return 0;
	if (w->depth == most)
		return ck_fail_limit(err, path, CKPT_NO_OFFSET, "folder_depth", most,
				     "folders below the step are nested too deeply (does a link "
				     "lead back?)");
	w->below = within;
	w->depth++;
	rc = ck_look_each(w->ck->pool, path, see, w, err);
	w->depth--;
	w->below = below;
	return rc;
}

/*
 * The folder of the step in each root: what the first root and the step's path differ by, below
 * the others.
 */
static int walk_roots(struct walk *w, struct ckpt_err *err)
{
	const struct ckpt *ck = w->ck;
	const char *below = NULL;
	int rc = ck_look_each(ck->pool, ck->ix.path, see, w, err);

	for (size_t i = 0; i < ck->npaths && !below; i++) {
		const size_t n = strlen(ck->path[i]);

		if (!strncmp(ck->path[i], ck->ix.path, n))
			below = ck->ix.path + n;
	}
	for (size_t i = 0; !rc && below && i < ck->npaths; i++) {
		const char *dir = ck_arena_printf(&w->folder->arena, "%s%s%s", ck->path[i],
						  below[0] && below[0] != '/' ? "/" : "", below);
		enum ck_fs_kind kind;

		if (!dir)
			return ck_fail_nomem(err, "a path", 0);
		rc = ck_look_kind(ck->pool, dir, &kind, NULL, err);
		if (!rc && kind == CK_FS_DIR && strcmp(dir, ck->ix.path))
			rc = ck_look_each(ck->pool, dir, see, w, err);
	}
	return rc;
}

static int by_name(const void *a, const void *b)
{
	const struct ck_folder_file *x = a, *y = b;

	return strcmp(x->name, y->name);
}

static int number_sources(struct walk *w, struct ckpt_err *err)
{
	const struct ck_index *ix = &w->ck->ix;
	int rc = 0;

	for (uint64_t i = 0; rc >= 0 && i < ix->nsources; i++)
		rc = ck_map_add(&w->source, ix->source[i].path, strlen(ix->source[i].path), i,
				NULL, err);
	return rc < 0 ? rc : 0;
}

/* A source that lies elsewhere: under its path, so that it is read as well. */
static int add_strays(struct walk *w, struct ckpt_err *err)
{
	const struct ck_index *ix = &w->ck->ix;
	bool *met = ck_zalloc(ix->nsources + 1);
	int rc = 0;

	if (!met)
		return ck_fail_nomem(err, "a list of files", ix->nsources);
	for (uint64_t i = 0; i < w->folder->n; i++)
		if (w->folder->file[i].source != CK_NONE)
			met[w->folder->file[i].source] = true;
	for (uint64_t i = 0; !rc && i < ix->nsources; i++)
		if (!met[i])
			rc = add_file(w, ix->source[i].path, ix->source[i].path, err);
	ck_free(met);
	return rc;
}

int ck_folder_list(struct ck_folder *folder, const struct ckpt *ck, struct ckpt_err *err)
{
	struct walk w = { .folder = folder, .ck = ck, .below = "" };
	enum ck_fs_kind kind;
	int rc = ck_look_kind(ck->pool, ck->ix.path, &kind, NULL, err);

	if (!rc)
		rc = number_sources(&w, err);
	w.deep = ck->driver->is_step;
	if (!rc && kind == CK_FS_DIR)
		rc = walk_roots(&w, err);
	else if (!rc)
		rc = add_file(&w, ck_fs_base(ck->ix.path), ck->ix.path, err);
	if (!rc)
		rc = add_strays(&w, err);
	folder->manifest = ck_arena_printf(&folder->arena, "%s%c%s", ck->ix.path,
					   kind == CK_FS_DIR ? '/' : '.', CK_MANIFEST_NAME);
	if (!rc && !folder->manifest)
		rc = ck_fail_nomem(err, "a path", 0);
	if (!rc)
		qsort(folder->file, folder->n, sizeof(*folder->file), by_name);
	ck_map_release(&w.source);
	ck_map_release(&w.seen);
	return rc;
}

const struct ck_folder_file *ck_folder_find(const struct ck_folder *folder, const char *name)
{
	const struct ck_folder_file wanted = { .name = name };

	if (!folder->n)
		return NULL;
	return bsearch(&wanted, folder->file, folder->n, sizeof(wanted), by_name);
}

void ck_folder_release(struct ck_folder *folder)
{
	ck_free(folder->file);
	ck_arena_release(&folder->arena);
	memset(folder, 0, sizeof(*folder));
}
