/*
 * ck_stage.c -- see ck_stage.h and docs/formats/partial.md.
 */
#include "libckpt/commit/ck_stage_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/commit/ck_commit.h"
#include "libckpt/commit/ck_result_sums.h"
#include "libckpt/commit/ck_source_sums.h"
#include "libckpt/commit/ck_record.h"
#include "libckpt/commit/ck_leftover.h"
#include "libckpt/io/ck_fdpool.h"
#include "libckpt/io/ck_fs.h"

#define MOST_TURNS 100

bool ck_stage_is_done(const struct ck_stage *stage)
{
	return stage->done;
}

bool ck_stage_is_continued(const struct ck_stage *stage)
{
	return stage->rec && !ck_record_is_new(stage->rec);
}

const struct ck_commit *ck_stage_paths(const struct ck_stage *stage)
{
	return &stage->paths;
}

/* Into a folder that holds something: it is renamed into, so it must be on our file system. */
static int check_into(struct ck_stage *stage, struct ckpt_err *err)
{
	const struct ck_stage_opts *o = &stage->opts;
	struct stat dst, parent;

	if (ck_sys.stat(o->dst, &dst))
		return ck_fail_sys(err, errno, "stat", o->dst);
	if (ck_sys.stat(stage->paths.parent, &parent))
		return ck_fail_sys(err, errno, "stat", stage->paths.parent);
	if (dst.st_dev != parent.st_dev)
		return ck_fail(err, CKPT_E_USAGE, o->dst, CKPT_NO_OFFSET,
			       "the destination is a mount point, but the result is written "
			       "beside it and renamed; give a folder within the file system");
	if (ck_sys.access(o->dst, W_OK | X_OK))
		return ck_fail_sys(err, errno, "write into the folder", o->dst);
	stage->paths.step = ck_hash64(o->step, strlen(o->step));
	return o->check ? o->check(o->check_arg, err) : 0;
}

static int check_dst(struct ck_stage *stage, struct ckpt_err *err)
{
	const struct ck_stage_opts *o = &stage->opts;
	enum ck_fs_kind kind;
	bool empty = false;
	int rc = ck_fs_kind(o->dst, &kind, err);

	if (rc || kind == CK_FS_NOTHING)
		return rc;
	if (kind == CK_FS_DIR) {
		rc = ck_fs_dir_is_empty(o->dst, &empty, err);
		if (rc)
			return rc;
	}
	if (kind == CK_FS_OTHER || (kind == CK_FS_DIR) != o->is_dir)
		return ck_fail(err, CKPT_E_EXISTS, o->dst, CKPT_NO_OFFSET,
			       "%s is at the destination, but the result is %s; move it away, "
			       "or give another path",
			       kind == CK_FS_DIR ? "a folder" :
			       kind == CK_FS_FILE ? "a file" : "a link, pipe or device",
			       o->is_dir ? "a folder" : "a file");
	if (kind == CK_FS_DIR && !empty && o->step)
		return check_into(stage, err);
	if (stage->paths.is_dots)
		return ck_fail(err, CKPT_E_USAGE, o->dst, CKPT_NO_OFFSET,
			       "the result replaces this whole folder; give its path from "
			       "another folder, not as '.' or '..'");
	if (!o->force && !empty)
		return ck_fail(err, CKPT_E_EXISTS, o->dst, CKPT_NO_OFFSET, "%s", o->is_dir ?
			       "the folder exists; --force replaces its weights, other files "
			       "stay" : "the destination exists; --force replaces it");
	return 0;
}

/*
 * Parts of one result are parts of one source.  What is the same for its copies on other machines
 * goes into the fingerprint; what is not counts where parts read the same files.
 */
static void mark_sources(struct ck_stage *stage)
{
	struct ck_stage_opts *o = &stage->opts;

	if (!o->sources)
		return;
	ck_stamps_marks(ck_fdpool_stamps(o->sources), &stage->marks);
	if (o->nparts > 1)
		o->fingerprint = ck_hash128_add(o->fingerprint, stage->marks.times);
}

static bool is_of_source(const struct ck_stage *stage, const struct ck_record_head *head)
{
	return ck_hash128_equal(head->fingerprint, stage->opts.fingerprint);
}

/* Did a killed run get as far as the rename?  Whatever its plan was, its end is brought about. */
static int tidy_after_kill(struct ck_stage *stage, struct ckpt_err *err)
{
	const struct ck_stage_opts *o = &stage->opts;
	struct ckpt_err inner = { 0 };
	struct ck_record_seen seen = { 0 };
	struct ck_record *rec = NULL;
	char *path = ck_commit_record_path(&stage->paths, 0);
	bool placed = false;
	int rc;

	if (!path)
		return ck_fail_nomem(err, "a file name", 0);
	rc = ck_record_claim(path, &rec, &seen, &inner);
	ck_free(path);
	if (rc == -CKPT_E_BUSY && o->nparts > 1)
		return 0;	/* part 0 is at work */
	if (rc == -CKPT_E_BUSY || rc == -CKPT_E_NOMEM || rc == -CKPT_E_IO) {
		if (err && !err->code)
			*err = inner;
		return rc;
	}
	if (!rc && o->is_dir != !!(seen.head.flags & CK_RECORD_DIR))
		rc = -CKPT_E_EXISTS;	/* open_record() will say so */
	stage->paths.step = rc ? 0 : seen.head.step;
	rc = ck_commit_tidy(&stage->paths, rc ? NULL : &seen, o->sync, o->is_ours, &placed, err);
	stage->paths.step = 0;
	stage->done = placed && !o->session && ck_hash128_equal(seen.head.plan, o->plan) &&
		      is_of_source(stage, &seen.head) &&
		      ck_hash128_equal(seen.head.exact, stage->marks.exact);
	ck_record_close(rec);
	return rc;
}

/* A step replaces a step of a folder that was there; a folder that comes meanwhile it does not. */
static bool may_replace(const struct ck_stage *stage)
{
	return stage->opts.force && (!stage->opts.step || stage->paths.step);
}

static int open_record(struct ck_stage *stage, struct ckpt_err *err)
{
	const struct ck_stage_opts *o = &stage->opts;
	const struct ck_record_head head = {
		.flags = (o->is_dir ? CK_RECORD_DIR : 0) |
			 (may_replace(stage) ? CK_RECORD_FORCE : 0) |
			 (stage->paths.step ? CK_RECORD_INTO : 0) |
			 (o->session ? CK_RECORD_SESSION : 0),
		.step = stage->paths.step,
		.part = o->part, .nparts = o->nparts, .nunits = o->nunits,
		.plan = o->plan, .fingerprint = o->fingerprint, .pid = (uint64_t)getpid(),
		.exact = stage->marks.exact, .inodes = stage->marks.inodes,
	};
	char *path = ck_commit_record_path(&stage->paths, o->part);
	int rc;

	if (!path)
		return ck_fail_nomem(err, "a file name", 0);
	rc = ck_record_open(path, &head, &stage->rec, err);
	ck_free(path);
	return rc;
}

/* --restart drops the folder unless a living process is in it, whatever its part. */
static int drop_old(const struct ck_stage *stage, struct ckpt_err *err)
{
	struct stat st;

	if (ck_sys.lstat(stage->paths.partial, &st))
		return errno == ENOENT ? 0 : ck_fail_sys(err, errno, "stat",
							 stage->paths.partial);
	return ck_commit_drop_all(&stage->paths, NULL, NULL, err);
}

struct others {
	const struct ck_stage *stage;
	uint64_t n;
};

/* Another part's record must be one of the same run, and of the same source. */
static int compare_part(const struct ck_stage *stage, const struct ck_record_head *head,
			const char *path, struct ckpt_err *err)
{
	const struct ck_record_head ours = {
		.exact = stage->marks.exact, .inodes = stage->marks.inodes,
	};

	if (head->nparts != stage->opts.nparts ||
	    !ck_hash128_equal(head->plan, stage->opts.plan))
		return ck_fail(err, CKPT_E_EXISTS, path, CKPT_NO_OFFSET,
			       "part %u of %u of another run is unfinished here; zckpt "
			       "commit --discard deletes it", head->part + 1, head->nparts);
	if (!is_of_source(stage, head))
		return ck_fail(err, CKPT_E_MISMATCH, path, CKPT_NO_OFFSET,
			       "part %u of %u was made from another source, or from this "
			       "one before it changed (copies on several machines need "
			       "equal mtimes: cp -p, rsync -a); run zckpt commit --discard, "
			       "then start all parts again", head->part + 1, head->nparts);
	if (!ck_record_same_files(head, &ours))
		return ck_fail(err, CKPT_E_MISMATCH, path, CKPT_NO_OFFSET,
			       "part %u of %u was made from these files before they changed "
			       "(equal inodes, other ctimes); run zckpt commit --discard, "
			       "then start all parts again",
			       head->part + 1, head->nparts);
	return 0;
}

static int check_other(void *arg, const char *dir, const char *name, struct ckpt_err *err)
{
	struct others *others = arg;
	struct ck_record_seen seen = { 0 };
	char *path;
	int rc = 0;

	if (strncmp(name, "part-", 5) ||
	    strtoul(name + 5, NULL, 10) == others->stage->opts.part)
		return 0;
	path = ck_fs_join(dir, name);
	if (!path)
		return ck_fail_nomem(err, "a file name", strlen(name));
	/* One that cannot be read is its own part's worry: it may be in the making. */
	if (!ck_record_peek(path, &seen, NULL))
		rc = compare_part(others->stage, &seen.head, path, err);
	others->n++;
	ck_free(path);
	return rc;
}

/*
 * Data that no record speaks of may be of another plan: it must not get into the result.  An old
 * folder that none speaks of is what a power cut left of one that was being removed: until then
 * the record is on the disk.
 */
static int drop_stray_data(struct ck_stage *stage, struct ckpt_err *err)
{
	struct others others = { .stage = stage };
	int rc = ck_fs_each(stage->paths.partial, check_other, &others, err);

	if (rc || others.n || !ck_record_is_new(stage->rec))
		return rc;
	rc = ck_fs_remove_tree(stage->paths.data, err);
	return rc ? rc : ck_fs_remove_tree(stage->paths.old, err);
}

/* What an earlier process, or another part, took already is not asked for again. */
static int check_space(const struct ck_stage *stage, struct ckpt_err *err)
{
	return ck_fs_need(stage->paths.parent, stage->opts.total_bytes, stage->paths.data, err);
}

/* Inside the partial folder: parts that begin at the same time wait for each other. */
static int move_in(struct ck_stage *stage, struct ckpt_err *err)
{
	bool made;
	int lock, rc = ck_commit_lock(&stage->paths, &lock, err);

	if (rc)
		return rc;
	if (stage->opts.session)
		rc = ck_leftover_drop(&stage->paths, &stage->opts, err);
	if (!rc)
		rc = open_record(stage, err);
	if (!rc)
		rc = drop_stray_data(stage, err);
	if (!rc)
		rc = ck_stage_make_dir(stage->paths.data, &made, err);
	ck_commit_unlock(lock);
	return rc;
}

/* A process that ends, or drops what a killed one left, may remove the folder under our feet. */
static int move_in_again(struct ck_stage *stage, struct ckpt_err *err)
{
	struct ckpt_err inner = { 0 };
	int rc = -CKPT_E_NOTFOUND;

	for (int i = 0; rc == -CKPT_E_NOTFOUND && i < MOST_TURNS; i++) {
		bool made = false;

		ck_err_clear(&inner);
		ck_record_close(stage->rec);
		stage->rec = NULL;
		rc = ck_stage_make_dir(stage->paths.partial, &made, &inner);
		stage->made = stage->made || made;
		if (!rc)
			rc = move_in(stage, &inner);
	}
	if (rc && err && !err->code)
		*err = inner;
	return rc;
}

/* Parts that begin at once must not find the record of part 0 locked by this look. */
static int tidy_what_is_there(struct ck_stage *stage, struct ckpt_err *err)
{
	struct ckpt_err inner = { 0 };
	int lock, rc = ck_commit_lock(&stage->paths, &lock, &inner);

	if (rc == -CKPT_E_NOTFOUND)
		return 0;
	if (!rc)
		rc = tidy_after_kill(stage, &inner);
	ck_commit_unlock(lock);
	if (rc && err && !err->code)
		*err = inner;
	return rc;
}

static int begin(struct ck_stage *stage, struct ckpt_err *err)
{
	const struct ck_stage_opts *o = &stage->opts;
	int rc = ck_fs_check_above(stage->paths.parent, err);

	if (!rc)
		rc = tidy_what_is_there(stage, err);
	if (rc || stage->done)
		return rc;
	rc = check_dst(stage, err);
	if (rc == -CKPT_E_EXISTS && o->nparts == 1)
		ck_commit_remove_empty(&stage->paths);	/* emptied by one that was killed then */
	if (!rc)
		rc = check_space(stage, err);
	if (!rc && o->restart && o->nparts == 1)
		rc = drop_old(stage, err);
	if (!rc && !o->session)
		rc = ck_fs_make_folders(stage->paths.parent, o->sync != CKPT_SYNC_NONE,
					&stage->made_above, err);
	return rc ? rc : move_in_again(stage, err);
}

/* What stood at dst was moved aside and could not be moved back. */
static bool holds_old(const struct ck_stage *stage)
{
	struct stat st;

	return !ck_sys.lstat(stage->paths.old, &st) || errno != ENOENT;
}

/* What we made goes; what a killed run, or another one at work, has there stays. */
static void give_way(struct ck_stage *stage)
{
	if (stage->made && stage->opts.nparts == 1) {
		ck_record_close(stage->rec);
		stage->rec = NULL;
		ck_commit_drop_all(&stage->paths, NULL, NULL, NULL);
	} else if (stage->rec && ck_record_is_new(stage->rec) && !holds_old(stage)) {
		ck_commit_drop_part(&stage->paths, stage->opts.part);
	} else if (stage->made) {
		ck_commit_remove_empty(&stage->paths);
	}
	ck_fs_remove_made(stage->paths.parent, stage->made_above);
}

int ck_stage_begin(const struct ck_stage_opts *opts, struct ck_stage **stage_out,
		   struct ckpt_err *err)
{
	struct ck_stage *stage = ck_zalloc(sizeof(*stage));
	int rc;

	if (!stage)
		return ck_fail_nomem(err, "a stage", sizeof(*stage));
	stage->opts = *opts;
	mark_sources(stage);
	rc = ck_commit_init(&stage->paths, opts->dst, opts->is_dir, err);
	if (!rc) {
		stage->opts.dst = stage->paths.dst;
		if (opts->lock_ms)
			stage->paths.lock_ms = opts->lock_ms;
		stage->pool = ck_fdpool_new(CK_STAGE_MAX_OPEN);
		rc = stage->pool ? begin(stage, err) : ck_fail_nomem(err, "a pool of files", 0);
	}
	if (!rc) {
		ck_stage_map_init(stage);
		*stage_out = stage;
		return 0;
	}
	give_way(stage);
	ck_stage_close(stage);
	return rc;
}

int ck_stage_note(struct ck_stage *stage, uint64_t unit, struct ck_hash128 hash,
		  struct ckpt_err *err)
{
	return ck_record_note(stage->rec, unit, hash, err);
}

bool ck_stage_noted(const struct ck_stage *stage, uint64_t unit, struct ck_hash128 *hash_out)
{
	return ck_record_find(stage->rec, unit, hash_out);
}

int ck_stage_sum(struct ck_stage *stage, uint32_t sum, uint64_t off, uint64_t bytes,
		 uint32_t crc, struct ckpt_err *err)
{
	const struct ck_record_sum s = { .sum = sum, .off = off, .bytes = bytes, .crc = crc };

	return ck_record_sum(stage->rec, &s, err);
}

static int note_place(struct ck_stage *stage, uint64_t sum, enum ck_record_kind kind, uint32_t file,
		      uint64_t off, struct ckpt_err *err)
{
	const char *name = stage->file[file]->path + strlen(stage->paths.data) + 1;
	const struct ck_record_sum s = { .sum = sum, .off = off, .place = true, .kind = kind,
					 .bytes = ck_hash64(name, strlen(name)) };

	return ck_record_sum(stage->rec, &s, err);
}

int ck_stage_sum_place(struct ck_stage *stage, uint32_t sum, uint32_t file, uint64_t off,
		       struct ckpt_err *err)
{
	return note_place(stage, sum, CK_RECORD_CRC, file, off, err);
}

int ck_stage_term(struct ck_stage *stage, uint32_t sum, struct ck_hash128 term,
		  struct ckpt_err *err)
{
	const struct ck_record_sum s = { .sum = sum, .off = term.lo, .bytes = term.hi,
					 .kind = CK_RECORD_SUM128 };

	return ck_record_sum(stage->rec, &s, err);
}

int ck_stage_term_place(struct ck_stage *stage, uint32_t sum, uint32_t file, uint64_t off,
			struct ckpt_err *err)
{
	return note_place(stage, sum, CK_RECORD_SUM128, file, off, err);
}

int ck_stage_head(struct ck_stage *stage, uint64_t bytes, uint32_t file, uint64_t off,
		  struct ckpt_err *err)
{
	return note_place(stage, bytes, CK_RECORD_HEAD, file, off, err);
}

int ck_stage_read_sum(struct ck_stage *stage, const struct ck_record_sum *sum,
		      struct ckpt_err *err)
{
	return ck_record_sum(stage->rec, sum, err);
}

int ck_stage_end(struct ck_stage *stage, struct ckpt_err *err)
{
	struct ck_fdpool *sources = stage->opts.sources;
	int rc = sources ? ck_fdpool_check(sources, 0, err) : 0;

	if (!rc)
		rc = ck_stage_flush(stage, err);
	return rc ? rc : ck_record_end(stage->rec, err);
}

int ck_stage_commit(struct ck_stage *stage, uint32_t timeout_ms, struct ckpt_err *err)
{
	const struct ck_stage_opts *o = &stage->opts;
	const struct ck_record_head like = {
		.nparts = o->nparts, .plan = o->plan, .fingerprint = o->fingerprint,
		.exact = stage->marks.exact, .inodes = stage->marks.inodes,
	};
	int rc;

	if (stage->done)
		return 0;
	if (o->part)
		return ck_fail(err, CKPT_E_USAGE, o->dst, CKPT_NO_OFFSET,
			       "part %u cannot put the result into place; only part 0 does",
			       o->part);
	rc = ck_commit_wait(&stage->paths, &like, timeout_ms, err);
	if (!rc && o->nparts > 1)
		rc = ck_source_sums_check(&stage->paths, o->nparts, err);
	if (!rc && o->nparts > 1)
		rc = ck_result_sums_fill(&stage->paths, o->nparts, o->sync, err);
	if (rc)
		return rc;
	return ck_commit_place(&stage->paths, stage->rec, may_replace(stage), o->sync, o->is_ours,
			       &stage->done, err);
}

void ck_stage_close(struct ck_stage *stage)
{
	if (!stage)
		return;
	ck_stage_map_release(stage);
	for (uint64_t i = 0; i < stage->nfiles; i++) {
		ck_fdpool_close(stage->pool, &stage->file[i]->pooled, NULL);
		pthread_cond_destroy(&stage->file[i]->left);
		pthread_mutex_destroy(&stage->file[i]->lock);
		ck_free(stage->file[i]->path);
		ck_free(stage->file[i]);
	}
	ck_free(stage->file);
	ck_fdpool_free(stage->pool);
	ck_record_close(stage->rec);
	ck_commit_release(&stage->paths);
	ck_free(stage->made_above);
	ck_free(stage);
}

/* Its only part, whose record this process has. */
static void remove_partial(const struct ck_stage *stage)
{
	int lock;

	if (ck_commit_lock(&stage->paths, &lock, NULL))
		return;
	ck_fs_remove_tree(stage->paths.partial, NULL);
	ck_commit_unlock(lock);
}

void ck_stage_abort(struct ck_stage *stage)
{
	if (!stage)
		return;
	if (!stage->done && stage->rec) {
		if (holds_old(stage))
			;	/* all there is of it; the next run puts it back */
		else if (stage->opts.nparts == 1)
			remove_partial(stage);
		else
			ck_commit_drop_part(&stage->paths, stage->opts.part);
		ck_fs_remove_made(stage->paths.parent, stage->made_above);
	}
	ck_stage_close(stage);
}
