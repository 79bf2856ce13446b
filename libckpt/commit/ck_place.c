/*
 * ck_place.c -- see ck_place.h.
 *
 * A run's folder holds many steps and one 'latest', and readers open it at any time.  So the step's
 * folder moves in first, as one rename; files beside it follow; 'latest' is replaced at the end,
 * when all that it leads to is there and, unless sync is off, on the disk.  A reader in between
 * finds the old 'latest' and the old step.
 *
 * A process that resumes after a kill cannot know how far the other one came, and need not: each
 * rename is done again only for what is still in the partial folder, and the step's inode, which
 * the record has, distinguishes our step at the destination from one that somebody else put there.
 */
#include "libckpt/commit/ck_place.h"

#include <errno.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/io/ck_fs.h"

int ck_commit_announce(const struct ck_commit *c, struct ck_record *rec, const char *path,
		       bool sync, struct ckpt_err *err)
{
	struct stat st;
	int rc = 0;

	if (ck_sys.lstat(path, &st))
		return ck_fail_sys(err, errno, "stat", path);
	if (sync)
		rc = ck_fs_sync_dir(c->parent, CK_SYNCED_BEGUN, err);
	return rc ? rc : ck_record_place(rec, st.st_ino, sync, err);
}

struct placing {
	const struct ck_commit *c;
	bool force, sync;
	char *step;		/* name of the folder that goes as one, or NULL */
	const char *to;		/* folder that is filled */
	bool top;		/* it is c->dst */
};

static bool is_step(const struct ck_commit *c, const char *name)
{
	return ck_hash64(name, strlen(name)) == c->step;
}

static bool is_pointer(const char *name)
{
	return !strcmp(name, "latest") || !strcmp(name, "latest_universal");
}

static int find_step(void *arg, const char *dir, const char *name, struct ckpt_err *err)
{
	struct placing *p = arg;

	(void)dir;
	if (!is_step(p->c, name))
		return 0;
	p->step = ck_strdup(name);
	return p->step ? 0 : ck_fail_nomem(err, "a file name", strlen(name));
}

static int fail_appeared(const char *path, struct ckpt_err *err)
{
	return ck_fail(err, CKPT_E_EXISTS, path, CKPT_NO_OFFSET,
		       "another process created the destination during this run");
}

/* Two steps where the file system has no exchange: 'to' is absent between them. */
static int swap_in_two(const struct ck_commit *c, const char *from, const char *to,
		       bool *begun_out, struct ckpt_err *err)
{
	int failed;

	if (ck_sys.rename(to, c->old, 0))
		return ck_fail_sys(err, errno, "move the old step aside", to);
	if (!ck_sys.rename(from, to, 0))
		return 0;
	failed = errno;
	if (ck_sys.rename(c->old, to, 0))
		*begun_out = true;
	return ck_fail_sys(err, failed, "rename", to);
}

static int swap(const struct ck_commit *c, const char *from, const char *to, bool *begun_out,
		struct ckpt_err *err)
{
	int rc = 0;

	if (ck_sys.rename(from, to, CK_RENAME_EXCHANGE)) {
		if (errno != EINVAL && errno != ENOSYS)
			return ck_fail_sys(err, errno, "exchange folders", to);
		rc = swap_in_two(c, from, to, begun_out, err);
	}
	if (!rc)
		*begun_out = true;
	return rc;
}

static int place_step(const struct placing *p, const char *from, const char *to,
		      uint64_t placing, bool *begun_out, struct ckpt_err *err)
{
	struct stat st;

	if (!ck_sys.lstat(to, &st)) {
		if (st.st_ino == placing) {
			*begun_out = true;
			return 0;
		}
		return p->force ? swap(p->c, from, to, begun_out, err) : fail_appeared(to, err);
	}
	if (errno != ENOENT)
		return ck_fail_sys(err, errno, "stat", to);
	if (ck_fs_move_new(from, to))
		return errno == EEXIST ? fail_appeared(to, err) :
		       ck_fail_sys(err, errno, "rename", to);
	*begun_out = true;
	return 0;
}

static int merge_one(void *arg, const char *dir, const char *name, struct ckpt_err *err);

/* 'to' is there: folders are filled up, files stay unless 'force' is on. */
static int merge_over(const struct placing *p, const char *from, const char *to,
		      struct ckpt_err *err)
{
	struct placing below = { .c = p->c, .force = p->force, .sync = p->sync, .to = to };
	struct stat st;
	int rc;

	if (ck_sys.lstat(from, &st))
		return ck_fail_sys(err, errno, "stat", from);
	if (S_ISDIR(st.st_mode)) {
		if (ck_sys.stat(to, &st))
			return ck_fail_sys(err, errno, "stat", to);
		if (!S_ISDIR(st.st_mode))
			return fail_appeared(to, err);
		rc = ck_fs_each(from, merge_one, &below, err);
		return rc || !p->sync ? rc : ck_fs_sync_dir(to, CK_SYNCED_BESIDE, err);
	}
	if (p->force && ck_sys.rename(from, to, 0))
		return ck_fail_sys(err, errno, "rename", to);
	return 0;
}

static int merge_one(void *arg, const char *dir, const char *name, struct ckpt_err *err)
{
	const struct placing *p = arg;
	char *from, *to;
	int rc = 0;

	if (p->top && (is_step(p->c, name) || is_pointer(name)))
		return 0;
	from = ck_fs_join(dir, name);
	to = ck_fs_join(p->to, name);
	if (!from || !to)
		rc = ck_fail_nomem(err, "a file name", strlen(name));
	else if (ck_fs_move_new(from, to))
		rc = errno == EEXIST ? merge_over(p, from, to, err) :
		     ck_fail_sys(err, errno, "rename", to);
	ck_free(from);
	ck_free(to);
	return rc;
}

static int point_one(void *arg, const char *dir, const char *name, struct ckpt_err *err)
{
	const struct placing *p = arg;
	char *from, *to;
	int rc = 0;

	if (!is_pointer(name))
		return 0;
	from = ck_fs_join(dir, name);
	to = ck_fs_join(p->to, name);
	if (!from || !to)
		rc = ck_fail_nomem(err, "a file name", strlen(name));
	else if (ck_sys.rename(from, to, 0))
		rc = ck_fail_sys(err, errno, "rename", to);
	ck_free(from);
	ck_free(to);
	return rc;
}

/* The step stands: what is beside it, then what points to it. */
static int place_rest(struct placing *p, struct ckpt_err *err)
{
	int rc = ck_fs_each(p->c->data, merge_one, p, err);

	if (!rc && p->sync)
		rc = ck_fs_sync_dir(p->to, CK_SYNCED_STEP, err);
	if (!rc)
		rc = ck_fs_each(p->c->data, point_one, p, err);
	if (!rc && p->sync)
		rc = ck_fs_sync_dir(p->to, CK_SYNCED_LATEST, err);
	return rc;
}

/* rec NULL: the entry is there, 'placing'. */
static int place(const struct ck_commit *c, struct ck_record *rec, uint64_t placing, bool force,
		 enum ckpt_sync sync, bool *begun_out, struct ckpt_err *err)
{
	struct placing p = {
		.c = c, .force = force, .sync = sync != CKPT_SYNC_NONE, .to = c->dst, .top = true,
	};
	char *from = NULL, *to = NULL;
	int rc = ck_fs_each(c->data, find_step, &p, err);

	/* A killed run had moved it: then it is in dst. */
	if (!rc && !p.step)
		*begun_out = true;
	if (!rc && p.step) {
		from = ck_fs_join(c->data, p.step);
		to = ck_fs_join(c->dst, p.step);
		if (!from || !to)
			rc = ck_fail_nomem(err, "a file name", 0);
		else if (rec)
			rc = ck_commit_announce(c, rec, from, p.sync, err);
		if (!rc)
			rc = place_step(&p, from, to, placing, begun_out, err);
	}
	if (!rc)
		rc = place_rest(&p, err);
	ck_free(from);
	ck_free(to);
	ck_free(p.step);
	return rc;
}

int ck_place_into(const struct ck_commit *c, struct ck_record *rec, bool force,
		  enum ckpt_sync sync, bool *begun_out, struct ckpt_err *err)
{
	return place(c, rec, 0, force, sync, begun_out, err);
}

/* The inode of the step's folder in 'dir', 0 = it is not there. */
static int step_in(const struct ck_commit *c, const char *dir, uint64_t *inode_out,
		   struct ckpt_err *err)
{
	struct placing p = { .c = c };
	enum ck_fs_kind kind;
	struct stat st;
	char *path;
	int rc = ck_fs_kind(dir, &kind, err);

	*inode_out = 0;
	if (!rc && kind == CK_FS_DIR)
		rc = ck_fs_each(dir, find_step, &p, err);
	if (rc || !p.step) {
		ck_free(p.step);
		return rc;
	}
	path = ck_fs_join(dir, p.step);
	if (!path)
		rc = ck_fail_nomem(err, "a file name", 0);
	else if (ck_sys.lstat(path, &st))
		rc = ck_fail_sys(err, errno, "stat", path);
	else
		*inode_out = st.st_ino;
	ck_free(path);
	ck_free(p.step);
	return rc;
}

/* What is not where it was may be lost as well as moved: only the inode tells. */
int ck_place_go_on(const struct ck_commit *c, uint64_t placing, bool force, enum ckpt_sync sync,
		   bool *begun_out, struct ckpt_err *err)
{
	uint64_t ours, theirs;
	enum ck_fs_kind kind;
	int rc = ck_fs_kind(c->dst, &kind, err);

	if (rc || kind != CK_FS_DIR)
		return rc;
	rc = step_in(c, c->dst, &theirs, err);
	if (!rc)
		rc = step_in(c, c->data, &ours, err);
	if (!rc)
		rc = ck_fs_kind(c->data, &kind, err);
	if (rc)
		return rc;
	if (theirs == placing) {
		*begun_out = true;
		/* Else all but the tidying up was done. */
		return kind == CK_FS_DIR ? place(c, NULL, placing, force, sync, begun_out, err) : 0;
	}
	/* Something else is where the step should go, and --force is not given. */
	if (ours != placing || (theirs && !force))
		return 0;
	return place(c, NULL, placing, force, sync, begun_out, err);
}
