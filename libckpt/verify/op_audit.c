/* op_audit.c -- `audit`: every file below the paths is asked for its pickles' names. */
#include <inttypes.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/format/ck_format.h"
#include "libckpt/format/ck_limits.h"
#include "libckpt/io/ck_mount.h"
#include "libckpt/verify/op_verify.h"

struct walk {
	struct ck_fdpool *pool;
	struct ckpt_limits limits;
	const struct ck_formats *formats;
	struct ck_audit list;
	uint64_t nseen;
};

/* Folders count as well: two links to where they lie would else be 2^32 of them. */
static int count_one(struct walk *w, const char *path, struct ckpt_err *err)
{
	if (++w->nseen <= w->limits.files)
		return 0;
	return ck_fail_limit(err, path, CKPT_NO_OFFSET, "files", w->limits.files,
			     "the folders have too many files");
}

static int audit_file(struct walk *w, const char *path, bool always, struct ckpt_err *err)
{
	struct ck_src *src = NULL;
	int rc = count_one(w, path, err);

	if (!rc)
		rc = ck_src_open(w->pool, path, &src, err);
	if (!rc)
		rc = w->formats->pickles->audit(src, &w->limits, always, &w->list, err);
	ck_src_close(src);
	return rc;
}

static int audit_folder(struct walk *w, const char *path, unsigned depth, struct ckpt_err *err)
{
	struct ck_tree tree = CK_TREE_INIT;
	int rc;

	if (depth > w->limits.folder_depth)
		return ck_fail_limit(err, path, CKPT_NO_OFFSET, "folder_depth",
				     w->limits.folder_depth,
				     "folders are nested too deeply (does a link lead back?)");
	rc = count_one(w, path, err);
	if (!rc)
		rc = ck_look_list(w->pool, &tree, &path, 1, NULL, w->limits.files, err);
	for (uint64_t i = 0; !rc && i < tree.n; i++) {
		const struct ck_tree_entry *e = &tree.entry[i];

		if (e->is_dir)
			rc = audit_folder(w, e->path, depth + 1, err);
		else if (!e->is_odd)
			rc = audit_file(w, e->path, false, err);
	}
	ck_tree_release(&tree);
	return rc;
}

static int audit_input(const struct ck_input *in, void *arg, struct ckpt_err *err)
{
	struct walk *w = arg;

	return in->is_dir ? audit_folder(w, in->path[0], 0, err) :
	       audit_file(w, in->path[0], true, err);
}

/* A pool for each: it holds one archive at most. */
static int audit_path(struct walk *w, const char *path, struct ckpt_err *err)
{
	struct ck_input in = {
		.path = &path, .npaths = 1, .limits = w->limits, .formats = w->formats,
	};
	int rc;

	w->pool = in.pool = ck_fdpool_new(0);
	if (!w->pool)
		return ck_fail_nomem(err, "a pool of files", 0);
	rc = ck_format_with_input(&in, audit_input, w, err);
	ck_fdpool_free(w->pool);
	w->pool = NULL;
	return rc;
}

/* The list moves into one arena, which the caller frees. */
static int hand_over(struct walk *w, struct ckpt_audit *out, struct ckpt_err *err)
{
	const size_t bytes = w->list.n * sizeof(*w->list.pickle);
	struct ckpt_audit_pickle *copy = ck_arena_alloc(&w->list.arena, bytes + 1);
	struct ck_arena *arena = ck_alloc(sizeof(*arena));

	if (!copy || !arena) {
		ck_free(arena);
		return ck_fail_nomem(err, "names", bytes);
	}
	if (bytes)
		memcpy(copy, w->list.pickle, bytes);
	*arena = w->list.arena;
	w->list.arena = (struct ck_arena)CK_ARENA_INIT;
	*out = (struct ckpt_audit){ .npickles = w->list.n, .pickle = copy,
				    .nfiles = w->list.nfiles, .memory = arena };
	return 0;
}

int ck_audit(const struct ck_formats *formats, const char *const *paths, size_t npaths,
	     const struct ckpt_limits *limits, struct ckpt_audit *out, struct ckpt_err *err)
{
	struct walk w = { .formats = formats };
	int rc = 0;

	ck_limits_fill(limits, &w.limits);
	w.list.arena.limit = w.limits.memory_bytes;
	for (size_t i = 0; !rc && i < npaths; i++)
		rc = audit_path(&w, paths[i], err);
	if (!rc)
		rc = hand_over(&w, out, err);
	rc = ck_arena_why(&w.list.arena, rc, paths[0], err);
	ck_arena_release(&w.list.arena);
	ck_free(w.list.pickle);
	return rc;
}
