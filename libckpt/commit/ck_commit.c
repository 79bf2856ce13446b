/*
 * ck_commit.c -- see ck_commit.h.
 *
 * The order of the last steps makes a kill or a power cut harmless: the record says which inode is
 * about to be renamed, that entry is synced, then comes the rename, then the rest of the partial
 * folder goes, its records last.  Whoever comes next asks for the inode at the destination: equal
 * to the record's means placed, anything else means that the old result is there.  That the result
 * is no longer in the partial folder is no evidence, since a power cut may have lost it too.
 *
 * An old folder trades places with the new one in one system call: a reader never finds the
 * destination absent.  Where the file system cannot (NFS) the old folder is moved aside first, and
 * a process that finds it aside moves it back before anything else.
 */
#include "libckpt/commit/ck_commit.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <time.h>

#include "libckpt/base/ck_clock.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/commit/ck_place.h"
#include "libckpt/io/ck_fs.h"

#define TMPFS_MAGIC_NUMBER 0x01021994
#define RAMFS_MAGIC_NUMBER 0x858458f6
#define POLL_MS 50
#define LOCK_MS 300000

/* "." or "RUN/..": nothing can stand beside that name, nor be renamed to it. */
static bool ends_in_dots(const char *path)
{
	const char *base = ck_fs_base(path);

	return !strcmp(base, ".") || !strcmp(base, "..");
}

/* What cannot be looked at is no answer: a link must not be renamed over. */
static int is_link_to_folder(const char *path, bool *out, struct ckpt_err *err)
{
	struct stat st;

	*out = false;
	if (ck_sys.lstat(path, &st))
		return errno == ENOENT || errno == ENOTDIR ? 0 :
		       ck_fail_sys(err, errno, "stat", path);
	if (!S_ISLNK(st.st_mode))
		return 0;
	if (ck_sys.stat(path, &st))
		return errno == ENOENT || errno == ENOTDIR ? 0 :
		       ck_fail_sys(err, errno, "stat", path);
	*out = S_ISDIR(st.st_mode);
	return 0;
}

/* Names that cannot be renamed to become what they stand for. */
static int take_dst(struct ck_commit *c, const char *dst, size_t n, struct ckpt_err *err)
{
	char real[PATH_MAX];
	bool is_link;
	int rc;

	c->dst = ck_strndup(dst, n);
	if (!c->dst)
		return ck_fail_nomem(err, "a file name", n);
	c->is_dots = ends_in_dots(c->dst);
	rc = is_link_to_folder(c->dst, &is_link, err);
	if (rc || (!c->is_dots && !is_link))
		return rc;
	if (!ck_sys.realpath(c->dst, real))
		return ck_fail_sys(err, errno, "resolve", c->dst);
	ck_free(c->dst);
	c->dst = ck_strdup(real);
	return c->dst ? 0 : ck_fail_nomem(err, "a file name", n);
}

int ck_commit_init(struct ck_commit *c, const char *dst, bool is_dir, struct ckpt_err *err)
{
	size_t n = strlen(dst);
	int rc;

	memset(c, 0, sizeof(*c));
	c->is_dir = is_dir;
	c->lock_ms = LOCK_MS;
	while (n > 1 && dst[n - 1] == '/')
		n--;
	rc = n ? take_dst(c, dst, n, err) : 0;
	if (!rc && (!n || !strcmp(c->dst, "/")))
		rc = ck_fail(err, CKPT_E_USAGE, dst, CKPT_NO_OFFSET,
			     "this path cannot be a destination");
	if (!rc) {
		c->parent = ck_fs_parent(c->dst);
		c->partial = ck_asprintf("%s.zckpt-partial", c->dst);
		c->data = ck_asprintf("%s.zckpt-partial/data", c->dst);
		c->old = ck_asprintf("%s.zckpt-partial/old", c->dst);
		c->result = is_dir ? ck_asprintf("%s.zckpt-partial/data", c->dst) :
			    ck_asprintf("%s.zckpt-partial/data/%s", c->dst, ck_fs_base(c->dst));
		if (!c->parent || !c->partial || !c->data || !c->old || !c->result)
			rc = ck_fail_nomem(err, "a file name", n);
	}
	if (rc)
		ck_commit_release(c);
	return rc;
}

void ck_commit_release(struct ck_commit *c)
{
	ck_free(c->dst);
	ck_free(c->parent);
	ck_free(c->partial);
	ck_free(c->data);
	ck_free(c->old);
	ck_free(c->result);
	memset(c, 0, sizeof(*c));
}

int ck_commit_room(const char *dst, bool is_dir, uint64_t bytes, uint64_t *free_out,
		   struct ckpt_err *err)
{
	struct ck_commit c = { 0 };
	int rc = ck_commit_init(&c, dst, is_dir, err);

	if (!rc)
		rc = ck_fs_need(c.parent, bytes, c.data, err);
	if (!rc)
		*free_out = ck_fs_free(c.parent);
	ck_commit_release(&c);
	return rc;
}

bool ck_commit_in_memory(const struct ck_commit *c)
{
	struct statfs st;

	if (ck_sys.statfs(c->parent, &st))
		return false;
	return (unsigned long)st.f_type == TMPFS_MAGIC_NUMBER ||
	       (unsigned long)st.f_type == RAMFS_MAGIC_NUMBER;
}

/* 'seen_err' is why its record could not be read: that it is not there yet is none. */
static bool part_has_ended(const struct ck_commit *c, uint32_t part,
			   const struct ck_record_head *like, struct ckpt_err *seen_err)
{
	struct ck_record_seen seen = { 0 };
	char *path = ck_commit_record_path(c, part);
	bool ended;

	if (!path)
		ck_fail_nomem(seen_err, "a file name", part);
	ended = path && !ck_record_peek(path, &seen, seen_err) && seen.ended;
	if (seen_err->code == CKPT_E_NOTFOUND)
		ck_err_clear(seen_err);
	ck_free(path);
	return ended && seen.head.part == part && seen.head.nparts == like->nparts &&
	       ck_hash128_equal(seen.head.plan, like->plan) &&
	       ck_hash128_equal(seen.head.fingerprint, like->fingerprint) &&
	       ck_record_same_files(&seen.head, like);
}

int ck_commit_wait(const struct ck_commit *c, const struct ck_record_head *like,
		   uint32_t timeout_ms, struct ckpt_err *err)
{
	const int64_t until = ck_clock_ms() + timeout_ms;
	const struct timespec nap = { .tv_nsec = POLL_MS * 1000000L };
	uint32_t part = 0;

	while (part < like->nparts) {
		struct ckpt_err inner = { 0 };

		if (part_has_ended(c, part, like, &inner)) {
			part++;
			continue;
		}
		if (inner.code == CKPT_E_NOMEM ||
		    (inner.code == CKPT_E_IO && ck_clock_ms() >= until)) {
			if (err && !err->code)
				*err = inner;
			return -(int)inner.code;
		}
		if (ck_clock_ms() >= until)
			return ck_fail(err, CKPT_E_INCOMPLETE, c->partial, CKPT_NO_OFFSET,
				       "part %u of %u is not finished (waited %u ms); start it "
				       "again with the same command", part + 1, like->nparts,
				       timeout_ms);
		nanosleep(&nap, NULL);
	}
	return 0;
}

struct keep {
	const char *to;
	const struct ck_tree *fresh;	/* the new folder */
	ck_is_ours_fn *is_ours;
};

static int keep_one(void *arg, const char *dir, const char *name, struct ckpt_err *err)
{
	const struct keep *keep = arg;
	char *from, *to;
	int rc = 0;

	if (keep->is_ours(name, keep->fresh))
		return 0;
	from = ck_fs_join(dir, name);
	to = ck_fs_join(keep->to, name);
	if (!from || !to)
		rc = ck_fail_nomem(err, "a file name", strlen(name));
	/* The new folder's own file wins. */
	else if (ck_fs_move_new(from, to) && errno != EEXIST)
		rc = ck_fail_sys(err, errno, "move into the new folder", from);
	ck_free(from);
	ck_free(to);
	return rc;
}

/*
 * Move what is not ours from the old folder at 'from', if there is one, to dst.
 *
 * A README or a tokenizer that somebody put beside the weights stays when these are replaced.
 * 'from' is the partial folder's data after an exchange, and its 'old' after two renames.
 */
static int keep_others(const struct ck_commit *c, const char *from,
		       ck_is_ours_fn *is_ours, struct ckpt_err *err)
{
	struct ck_tree fresh = CK_TREE_INIT;
	struct keep keep = { c->dst, &fresh, is_ours };
	const char *dst = c->dst;
	enum ck_fs_kind kind;
	int rc = ck_fs_kind(from, &kind, err);

	if (rc || kind != CK_FS_DIR)
		return rc;
	rc = ck_tree_list(&fresh, &dst, 1, NULL, UINT64_MAX, err);
	if (!rc)
		rc = ck_fs_each(from, keep_one, &keep, err);
	ck_tree_release(&fresh);
	return rc;
}

/*
 * The result stands at dst, what is left of the old one in the partial folder.  Records go last,
 * so that a process killed in here can be followed by one that knows what to do.
 */
static int clean_up(const struct ck_commit *c, enum ckpt_sync sync,
		    ck_is_ours_fn *is_ours, struct ckpt_err *err)
{
	int rc = 0;

	/* First: nothing may move from the old folder to the new one that a power cut puts back. */
	if (sync != CKPT_SYNC_NONE)
		rc = ck_fs_sync_dir(c->parent, CK_SYNCED_PLACED, err);
	if (!rc && c->is_dir && is_ours && !c->step) {
		rc = keep_others(c, c->data, is_ours, err);
		if (!rc)
			rc = keep_others(c, c->old, is_ours, err);
		if (!rc && sync != CKPT_SYNC_NONE)
			rc = ck_fs_sync_dir(c->dst, CK_SYNCED_KEPT, err);
	}
	if (!rc)
		rc = ck_fs_remove_tree(c->data, err);
	if (!rc)
		rc = ck_fs_remove_tree(c->old, err);
	if (!rc)
		rc = ck_fs_remove_tree(c->partial, err);
	if (!rc && sync == CKPT_SYNC_FULL)
		rc = ck_fs_sync_dir(c->parent, CK_SYNCED_GONE, err);
	return rc;
}

/* Two steps where the file system has no exchange: dst is absent between them. */
static int replace_dir(const struct ck_commit *c, struct ckpt_err *err)
{
	int failed;

	if (ck_sys.rename(c->dst, c->old, 0))
		return ck_fail_sys(err, errno, "move the old folder aside", c->dst);
	if (!ck_sys.rename(c->result, c->dst, 0))
		return 0;
	failed = errno;
	ck_sys.rename(c->old, c->dst, 0);
	return ck_fail_sys(err, failed, "rename", c->dst);
}

static int place_over_dir(const struct ck_commit *c, struct ck_record *rec, enum ckpt_sync sync,
			  struct ckpt_err *err)
{
	int rc;

	if (!c->is_dir)
		return ck_fail(err, CKPT_E_EXISTS, c->dst, CKPT_NO_OFFSET,
			       "another process created a folder at the destination during this "
			       "run");
	rc = ck_commit_announce(c, rec, c->result, sync != CKPT_SYNC_NONE, err);
	if (rc || !ck_sys.rename(c->result, c->dst, CK_RENAME_EXCHANGE))
		return rc;
	if (errno != EINVAL && errno != ENOSYS)
		return ck_fail_sys(err, errno, "exchange folders", c->dst);
	return replace_dir(c, err);
}

static int rename_result(const struct ck_commit *c, struct ck_record *rec, bool force,
			 enum ckpt_sync sync, bool *placed_out, struct ckpt_err *err)
{
	enum ck_fs_kind kind;
	bool empty = false;
	int rc = ck_fs_kind(c->dst, &kind, err);

	if (!rc && kind == CK_FS_DIR && c->is_dir)
		rc = ck_fs_dir_is_empty(c->dst, &empty, err);
	if (rc)
		return rc;
	if (kind == CK_FS_DIR && c->step)
		return ck_place_into(c, rec, force, sync, placed_out, err);
	if (kind == CK_FS_DIR && !empty && force)
		return place_over_dir(c, rec, sync, err);
	if (kind != CK_FS_NOTHING && !empty && (kind != CK_FS_FILE || !force || c->is_dir))
		return ck_fail(err, CKPT_E_EXISTS, c->dst, CKPT_NO_OFFSET,
			       "another process created the destination during this run");
	rc = ck_commit_announce(c, rec, c->result, sync != CKPT_SYNC_NONE, err);
	if (rc)
		return rc;
	if (kind == CK_FS_NOTHING ? ck_fs_move_new(c->result, c->dst) :
	    ck_sys.rename(c->result, c->dst, 0))
		return ck_fail_sys(err, errno, "rename", c->dst);
	return 0;
}

int ck_commit_place(const struct ck_commit *c, struct ck_record *rec, bool force,
		    enum ckpt_sync sync, ck_is_ours_fn *is_ours, bool *placed_out,
		    struct ckpt_err *err)
{
	struct ckpt_err inner = { 0 };
	int lock, rc = rename_result(c, rec, force, sync, placed_out, err);

	if (rc)
		return rc;
	*placed_out = true;
	/* Who begins anew here now must not lose what it makes. */
	rc = ck_commit_lock(c, &lock, &inner);
	if (rc && rc != -CKPT_E_NOTFOUND) {
		if (err && !err->code)
			*err = inner;
		return rc;
	}
	rc = clean_up(c, sync, is_ours, err);
	ck_commit_unlock(lock);
	return rc;
}

/* A process was killed between the two steps of replace_dir(). */
static int restore_old(const struct ck_commit *c, bool *dst_is_there, struct ckpt_err *err)
{
	enum ck_fs_kind old;
	int rc = ck_fs_kind(c->old, &old, err);

	if (rc || old != CK_FS_DIR)
		return rc;
	if (ck_sys.rename(c->old, c->dst, 0))
		return ck_fail_sys(err, errno, "move the old folder back", c->dst);
	*dst_is_there = true;
	return 0;
}

int ck_commit_tidy(const struct ck_commit *c, const struct ck_record_seen *seen,
		   enum ckpt_sync sync, ck_is_ours_fn *is_ours, bool *placed_out,
		   struct ckpt_err *err)
{
	struct stat dst;
	bool there;

	if (seen && (seen->head.flags & CK_RECORD_SESSION))
		is_ours = NULL;		/* of a step nothing is kept but the step */
	if (seen && seen->ended && seen->placing && seen->head.step) {
		int rc = ck_place_go_on(c, seen->placing, seen->head.flags & CK_RECORD_FORCE,
					sync, placed_out, err);

		return rc || !*placed_out ? rc : clean_up(c, sync, NULL, err);
	}
	there = !ck_sys.stat(c->dst, &dst);
	if (!there) {
		int rc = restore_old(c, &there, err);

		if (rc || !there)
			return rc;
		if (ck_sys.stat(c->dst, &dst))
			return ck_fail_sys(err, errno, "stat", c->dst);
	}
	/* That the result is no longer in the partial folder proves nothing: it may be lost. */
	if (!seen || !seen->ended || !seen->placing || dst.st_ino != seen->placing)
		return 0;
	*placed_out = true;
	return clean_up(c, sync, is_ours, err);
}

static int is_record(void *arg, const char *dir, const char *name, struct ckpt_err *err)
{
	(void)dir;
	(void)err;
	*(bool *)arg |= !strncmp(name, "part-", 5);
	return 0;
}

void ck_commit_drop_part(const struct ck_commit *c, uint32_t part)
{
	char *path = ck_commit_record_path(c, part);
	bool others = false;
	int lock = -1;

	if (path && !ck_commit_lock(c, &lock, NULL) && !ck_sys.unlink(path) &&
	    !ck_fs_each(c->partial, is_record, &others, NULL) && !others)
		ck_fs_remove_tree(c->partial, NULL);
	ck_commit_unlock(lock);
	ck_free(path);
}
