/* ck_leftover.c -- see ck_leftover.h. */
#include "libckpt/commit/ck_leftover.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/commit/ck_record.h"
#include "libckpt/io/ck_fs.h"

#define ENDING ".zckpt-partial"

char *ck_leftover_put_path(const struct ck_commit *c, uint32_t part)
{
	return ck_asprintf("%s/put-%05u", c->partial, part);
}

struct dropping {
	const struct ck_commit *c;
	const struct ck_stage_opts *o;
	uint64_t others;	/* parts of this save */
};

/* Nobody holds it: it goes, with what its part said it put. */
static int drop_record(const struct ck_commit *c, const char *path, uint32_t part,
		       struct ckpt_err *err)
{
	struct ck_record_seen seen = { 0 };
	struct ck_record *rec = NULL;
	struct ckpt_err inner = { 0 };
	char *put = ck_leftover_put_path(c, part);
	int rc = put ? ck_record_claim(path, &rec, &seen, &inner) :
		 ck_fail_nomem(err, "a file name", 0);

	if (rc == -CKPT_E_BUSY || rc == -CKPT_E_NOMEM) {
		if (err && !err->code && inner.code)
			*err = inner;
	} else {
		rc = 0;
		ck_sys.unlink(put);
		ck_sys.unlink(path);
	}
	ck_record_close(rec);
	ck_free(put);
	return rc;
}

static int fail_other_plan(const struct dropping *d, const char *path, uint32_t part,
			   struct ckpt_err *err)
{
	return ck_fail(err, CKPT_E_MISMATCH, path, CKPT_NO_OFFSET,
		       "rank %" PRIu32 " and rank %" PRIu32 " describe this save differently: "
		       "shapes, groups, values and the files found in 'frozen_from' must be the "
		       "same on every rank", part, d->o->part);
}

static int look_at(void *arg, const char *dir, const char *name, struct ckpt_err *err)
{
	struct dropping *d = arg;
	const struct ck_stage_opts *o = d->o;
	const uint32_t part = (uint32_t)strtoul(name + (strlen(name) > 5 ? 5 : 0), NULL, 10);
	struct ck_record_seen seen = { 0 };
	char *path;
	int rc;

	if (strncmp(name, "part-", 5))
		return 0;
	path = ck_fs_join(dir, name);
	if (!path)
		return ck_fail_nomem(err, "a file name", strlen(name));
	rc = ck_record_peek(path, &seen, NULL);
	if (rc == -CKPT_E_NOMEM)
		ck_fail_nomem(err, "a record", 0);
	else if (rc || !(seen.head.flags & CK_RECORD_SESSION) || part == o->part ||
		 !ck_hash128_equal(seen.head.fingerprint, o->fingerprint) ||
		 seen.head.nunits != o->nunits)
		rc = drop_record(d->c, path, part, err);
	else if (!ck_hash128_equal(seen.head.plan, o->plan) || seen.head.nparts != o->nparts)
		rc = fail_other_plan(d, path, part, err);
	else
		d->others++;
	ck_free(path);
	return rc;
}

int ck_leftover_drop(const struct ck_commit *c, const struct ck_stage_opts *o, struct ckpt_err *err)
{
	struct dropping d = { .c = c, .o = o };
	int rc = ck_fs_each(c->partial, look_at, &d, err);

	if (!rc && !d.others)
		rc = ck_fs_remove_tree(c->data, err);
	return rc;
}

struct looking {
	const struct ck_stage_opts *o;
	bool earlier;
};

static int is_earlier(void *arg, const char *dir, const char *name, struct ckpt_err *err)
{
	struct looking *l = arg;
	struct ck_record_seen seen = { 0 };
	char *path = strncmp(name, "part-", 5) ? NULL : ck_fs_join(dir, name);

	(void)err;
	if (path && !ck_record_peek(path, &seen, NULL))
		l->earlier |= (seen.head.flags & CK_RECORD_SESSION) &&
			      ck_hash128_equal(seen.head.fingerprint, l->o->fingerprint) &&
			      seen.head.nunits < l->o->nunits;
	ck_free(path);
	return 0;
}

bool ck_leftover_is_earlier(const struct ck_stage_opts *o)
{
	struct looking l = { .o = o };
	struct ck_commit c = { 0 };

	if (!ck_commit_init(&c, o->dst, true, NULL)) {
		ck_fs_each(c.partial, is_earlier, &l, NULL);
		ck_commit_release(&c);
	}
	return l.earlier;
}

/* ---- in a folder of steps ---- */

struct sweeping {
	struct ck_hash128 job;
	uint64_t before;
	enum ckpt_sync sync;
};

struct finding {
	const struct sweeping *s;
	bool stale, alive;
	bool holds;		/* something else than records and what parts put */
};

/*
 * Of which job is the folder?  One record of this save, or of no session, keeps it.  One that
 * cannot be read is what a kill left of its making: under the folder's lock none is being made.
 */
static int judge(void *arg, const char *dir, const char *name, struct ckpt_err *err)
{
	struct finding *f = arg;
	struct ck_record_seen seen = { 0 };
	char *path;
	int rc;

	if (strncmp(name, "part-", 5)) {
		f->holds |= strncmp(name, "put-", 4) != 0;
		return 0;
	}
	path = ck_fs_join(dir, name);
	if (!path)
		return ck_fail_nomem(err, "a file name", strlen(name));
	rc = ck_record_peek(path, &seen, NULL);
	ck_free(path);
	if (!rc && (seen.head.flags & CK_RECORD_SESSION) &&
	    (!ck_hash128_equal(seen.head.fingerprint, f->s->job) ||
	     seen.head.nunits < f->s->before))
		f->stale = true;
	else if (rc != -CKPT_E_CORRUPT)
		f->alive = true;
	return rc == -CKPT_E_NOMEM ? ck_fail_nomem(err, "a record", 0) : 0;
}

/* Without a record that can be read it goes if there is nothing to be lost. */
static bool is_stale(const struct finding *f)
{
	return !f->alive && (f->stale || !f->holds);
}

/* A part of this save may have begun, and ended, since look_into() let the lock go. */
static bool may_go(const struct ck_commit *c, void *arg)
{
	struct finding f = { .s = arg };

	return !ck_fs_each(c->partial, judge, &f, NULL) && is_stale(&f);
}

static int look_into(const char *dst, struct finding *f, bool *stale_out, struct ckpt_err *err)
{
	struct ck_commit c = { 0 };
	int lock = -1, rc = ck_commit_init(&c, dst, true, err);

	if (!rc && !ck_commit_try_lock(&c, &lock))
		f->alive = true;	/* somebody begins there, or gives up */
	else if (!rc)
		rc = ck_fs_each(c.partial, judge, f, err);
	ck_commit_unlock(lock);
	ck_commit_release(&c);
	*stale_out = is_stale(f);
	return rc;
}

static int sweep_one(void *arg, const char *dir, const char *name, struct ckpt_err *err)
{
	struct sweeping *s = arg;
	const size_t n = strlen(name), end = strlen(ENDING);
	struct finding f = { .s = s };
	char *partial, *dst = NULL;
	bool settled, stale = false;
	int rc;

	if (n <= end || strcmp(name + n - end, ENDING))
		return 0;
	partial = ck_fs_join(dir, name);
	if (partial)
		dst = ck_strndup(partial, strlen(partial) - end);
	rc = dst ? look_into(dst, &f, &stale, NULL) : -CKPT_E_NOMEM;
	if (rc == -CKPT_E_NOMEM)
		ck_fail_nomem(err, "a path", n);
	else if (!rc && stale) {
		ck_stage_settle(dst, s->sync, NULL, &settled, NULL);
		ck_stage_discard_if(dst, NULL, may_go, s, NULL);
	}
	if (rc != -CKPT_E_NOMEM)
		rc = 0;		/* another one has just removed it, or it is no folder */
	ck_free(partial);
	ck_free(dst);
	return rc;
}

int ck_leftover_sweep(const char *root, struct ck_hash128 job, uint64_t before, enum ckpt_sync sync,
		      struct ckpt_err *err)
{
	struct sweeping s = { .job = job, .before = before, .sync = sync };

	return ck_fs_each(root, sweep_one, &s, err);
}
