/*
 * ckpt_saver.c -- the life of a saver: one save at a time is open, one thread ends it behind the
 * caller's back.  See ckpt_save.h.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <ckpt_zero.h>

#include "formats/ck_formats.h"
#include "libckpt/base/ck_clock.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/commit/ck_leftover.h"
#include "libckpt/io/ck_fs.h"
#include "libckpt/run/ck_ckpt.h"
#include "libckpt/save/ck_saver.h"

#define DEFAULT_BUFFER ((uint64_t)256 << 20)
#define LEAST_BUFFER ((uint64_t)1 << 20)
#define DEFAULT_TIMEOUT 300000u
#define DEFAULT_THREADS 2u
#define MAX_THREADS 64u
#define POLL_NS 10000000L
#define TURNS 3			/* at a folder that somebody has just left */

/* ---- a save ---- */

static void release_save(struct sv_save *s)
{
	ck_sv_part_release(&s->part);
	ck_sv_refs_release(&s->refs);
	ck_free(s->stage_file);
	s->stage_file = NULL;
	ck_sv_link_forget(s);
	if (s->spec.tag)
		ck_sv_spec_release(&s->spec);
}

/* Where rank 0 has given up, what another rank fails with is that its data are gone. */
static int end_save(struct ckpt_saver *sv, struct ckpt_err *err)
{
	struct ckpt_err heard = { 0 };
	int rc = ck_sv_end(&sv->save, sv->closed_at, err);

	if (rc && ck_sv_part(&sv->opts) && ck_saver_given_up(sv, &rc, &heard))
		*err = heard;
	if (rc)
		ck_sv_give_up(&sv->save, err);
	return rc;
}

/* The thread that ends saves. */
static void *end_saves(void *arg)
{
	struct ckpt_saver *sv = arg;

	pthread_mutex_lock(&sv->lock);
	for (;;) {
		struct ckpt_err err = { 0 };
		int rc;

		while (!sv->quit && sv->state != CK_SAVER_CLOSING)
			pthread_cond_wait(&sv->changed, &sv->lock);
		if (sv->state != CK_SAVER_CLOSING)
			break;
		pthread_mutex_unlock(&sv->lock);
		rc = end_save(sv, &err);
		ck_stage_close(sv->save.stage);
		sv->save.stage = NULL;
		pthread_mutex_lock(&sv->lock);
		sv->result = rc;
		sv->err = err;
		sv->state = CK_SAVER_ENDED;
		pthread_cond_broadcast(&sv->changed);
	}
	pthread_mutex_unlock(&sv->lock);
	return NULL;
}

/* ---- a saver ---- */

static int check_opts(struct ckpt_saver_opts *o, struct ckpt_err *err)
{
	if (!o->root || !o->root[0])
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "'root' is not set; a saver needs the folder for its steps");
	if (!o->nranks || o->nranks > CKPT_ZERO_MAX_WORLD || o->rank >= o->nranks)
		return ck_fail(err, CKPT_E_USAGE, o->root, CKPT_NO_OFFSET,
			       "rank %" PRIu32 " of %" PRIu32 " does not exist: ranks are "
			       "counted from 0, and 1 to %u can save", o->rank,
			       o->nranks, CKPT_ZERO_MAX_WORLD);
	if (o->nranks > 1 && (!o->job || !o->job[0]))
		return ck_fail(err, CKPT_E_USAGE, o->root, CKPT_NO_OFFSET,
			       "%" PRIu32 " ranks save, but 'job' is not set, which "
			       "distinguishes files of a killed job", o->nranks);
	if (o->threads > MAX_THREADS || (o->flags & ~CKPT_SAVER_LOCAL) ||
	    (o->buffer_bytes && o->buffer_bytes < LEAST_BUFFER))
		return ck_fail(err, CKPT_E_USAGE, o->root, CKPT_NO_OFFSET,
			       "options out of range: %" PRIu32 " threads (at most %u), a "
			       "buffer of %" PRIu64 " bytes (at least %" PRIu64 "), flags %#x",
			       o->threads, MAX_THREADS,
			       o->buffer_bytes, LEAST_BUFFER, o->flags);
	o->threads = o->threads ? o->threads : DEFAULT_THREADS;
	o->buffer_bytes = o->buffer_bytes ? o->buffer_bytes : DEFAULT_BUFFER;
	o->timeout_ms = o->timeout_ms ? o->timeout_ms : DEFAULT_TIMEOUT;
	return 0;
}

/* One rank needs no name for its job: the moment is one. */
static int name_job(struct ckpt_saver *sv, struct ckpt_err *err)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	sv->job_name = sv->opts.job ? ck_strdup(sv->opts.job) :
		       ck_asprintf("%" PRId64 ".%09ld %p", (int64_t)ts.tv_sec, ts.tv_nsec,
				   (void *)sv);
	sv->root = ck_strdup(sv->opts.root);
	if (!sv->job_name || !sv->root)
		return ck_fail_nomem(err, "a saver", 0);
	sv->job = ck_hash128(sv->job_name, strlen(sv->job_name));
	sv->opts.root = sv->root;
	sv->opts.job = sv->job_name;
	sv->save.opts = &sv->opts;
	return 0;
}

int ckpt_saver_new(const struct ckpt_saver_opts *opts, struct ckpt_saver **saver_out,
		   struct ckpt_err *err)
{
	struct ckpt_saver *sv = ck_zalloc(sizeof(*sv));
	int rc;

	if (!sv)
		return ck_fail_nomem(err, "a saver", sizeof(*sv));
	pthread_mutex_init(&sv->lock, NULL);
	pthread_cond_init(&sv->changed, NULL);
	rc = ck_opts_take(&sv->opts, sizeof(sv->opts), opts, "struct ckpt_saver_opts", err);
	if (!rc)
		rc = check_opts(&sv->opts, err);
	if (!rc)
		rc = name_job(sv, err);
	if (!rc)
		rc = ck_saver_ask_new(sv, err);
	if (!rc)
		rc = ck_sv_work_new(sv->opts.threads, sv->opts.buffer_bytes, &sv->save.work, err);
	if (!rc) {
		const int failed = ck_thread(&sv->ender, end_saves, sv);

		sv->has_ender = !failed;
		if (failed)
			rc = ck_fail_sys(err, failed, "start", "the thread that ends saves");
	}
	if (!rc)
		*saver_out = sv;
	else
		ckpt_saver_free(sv);
	return rc;
}

/*
 * Until the threads of the saver are idle.  False: they still work at that time (0 = no limit).
 * 'look': this is the caller's thread, and it may be asked.
 */
static bool wait_until(struct ckpt_saver *sv, double until, bool look)
{
	const struct timespec nap = { .tv_nsec = POLL_NS };
	bool ended;

	pthread_mutex_lock(&sv->lock);
	look = look && sv->opts.look;
	while (sv->state == CK_SAVER_CLOSING && until <= 0 && !look)
		pthread_cond_wait(&sv->changed, &sv->lock);
	while (sv->state == CK_SAVER_CLOSING && (until <= 0 || ck_clock_seconds() < until)) {
		pthread_mutex_unlock(&sv->lock);
		if (look)
			ck_saver_ask_gone(sv);
		nanosleep(&nap, NULL);
		pthread_mutex_lock(&sv->lock);
	}
	ended = sv->state != CK_SAVER_CLOSING;
	pthread_mutex_unlock(&sv->lock);
	return ended;
}

int ckpt_saver_drain(struct ckpt_saver *sv, uint32_t timeout_ms)
{
	return wait_until(sv, timeout_ms ? ck_clock_seconds() + timeout_ms / 1e3 : 0, false);
}

void ckpt_saver_free(struct ckpt_saver *sv)
{
	if (!sv)
		return;
	if (sv->state == CK_SAVER_OPEN)
		ckpt_save_abort(sv, "the saver was freed before the save was committed");
	if (sv->has_ender) {
		wait_until(sv, 0, true);
		pthread_mutex_lock(&sv->lock);
		sv->quit = true;
		pthread_cond_broadcast(&sv->changed);
		pthread_mutex_unlock(&sv->lock);
		pthread_join(sv->ender, NULL);
	}
	release_save(&sv->save);
	ck_sv_work_free(sv->save.work);
	ck_free(sv->looked);
	ck_free((void *)(uintptr_t)sv->gone);
	ck_free(sv->dst);
	ck_free(sv->root);
	ck_free(sv->job_name);
	pthread_mutex_destroy(&sv->lock);
	pthread_cond_destroy(&sv->changed);
	ck_free(sv);
}

/* ---- begin ---- */

/* Each save of a job has a number of its own on every rank: that of its begin(). */
static struct ck_hash128 make_id(const struct ckpt_saver *sv, const char *tag)
{
	char text[64];
	struct ck_hash128 part[2] = { sv->job };

	part[1] = ck_hash128(tag, strlen(tag));
	part[1].lo += sv->count;
	memcpy(text, part, sizeof(part));
	return ck_hash128(text, sizeof(part));
}

static int check_absent(const struct ckpt_saver *sv, struct ckpt_err *err)
{
	enum ck_fs_kind kind;
	int rc = ck_fs_kind(sv->dst, &kind, err);

	if (rc || kind == CK_FS_NOTHING || sv->save.spec.force)
		return rc;
	return ck_fail(err, CKPT_E_EXISTS, sv->dst, CKPT_NO_OFFSET,
		       "a step of this name exists; CKPT_SAVE_FORCE replaces it");
}

/* Storage that two ranks share is not theirs alone: one would replace the other's part. */
static int is_part_of_other(void *arg, const char *dir, const char *name, struct ckpt_err *err)
{
	const struct ckpt_saver *sv = arg;
	char mine[32];

	snprintf(mine, sizeof(mine), "manifest-%05" PRIu32 ".json", sv->opts.rank);
	if (strncmp(name, "manifest-", 9) || !strcmp(name, mine))
		return 0;
	return ck_fail(err, CKPT_E_USAGE, dir, CKPT_NO_OFFSET,
		       "%.40s exists: another rank saves in this folder; with CKPT_SAVER_LOCAL "
		       "each rank needs its own root", name);
}

static int check_alone(struct ckpt_saver *sv, struct ckpt_err *err)
{
	enum ck_fs_kind kind;
	int rc = ck_fs_kind(sv->dst, &kind, err);

	return rc || kind != CK_FS_DIR ? rc : ck_fs_each(sv->dst, is_part_of_other, sv, err);
}

static int make_root(const struct ckpt_saver *sv, struct ckpt_err *err)
{
	bool made;
	int rc = ck_stage_make_dir(sv->root, &made, err);

	/* where weights go there may be other things than steps */
	if (!rc && !ck_sv_part(&sv->opts) && !sv->save.spec.hf.wanted)
		rc = ck_leftover_sweep(sv->root, sv->job, sv->count, sv->opts.sync, err);
	return rc;
}

static uint64_t bytes_of_mine(const struct sv_save *s)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < s->spec.plan.nfiles; i++)
		if ((!s->spec.own_cut || ck_sv_is_mine(s, i)) && !ck_sv_is_linked(s, i))
			n += s->spec.plan.file[i].bytes;
	return n;
}

/* Rounded up: when they are over, so is the time. */
static uint32_t ms_until(double until)
{
	const double left = until - ck_clock_seconds();

	return left > 0 ? (uint32_t)(left * 1e3) + 1 : 1;
}

/*
 * A rank of this job that still ends an earlier save of that name is waited for.  What is left
 * after a whole wait for the lock is no other turn: that would say how short it was.
 */
static int begin_or_wait(struct ckpt_saver *sv, struct ck_stage_opts *so, struct ckpt_err *err)
{
	const struct timespec nap = { .tv_nsec = POLL_NS };
	const double until = ck_clock_seconds() + sv->opts.timeout_ms / 1e3;
	struct ckpt_err inner;
	bool again = true;
	int rc = 0;

	for (int turn = 0; again; turn++) {
		inner = (struct ckpt_err){ 0 };
		so->lock_ms = ms_until(until);
		rc = ck_stage_begin(so, &sv->save.stage, &inner);
		again = rc == -CKPT_E_BUSY && ck_clock_seconds() + POLL_NS / 1e9 < until &&
			(turn < TURNS || ck_leftover_is_earlier(so));
		if (again)
			nanosleep(&nap, NULL);
	}
	if (rc && err && !err->code)
		*err = inner;
	return rc;
}

static int begin_stage(struct ckpt_saver *sv, struct ckpt_err *err)
{
	struct sv_save *s = &sv->save;
	struct ck_stage_opts so = {
		.dst = sv->dst, .is_dir = true, .force = s->spec.force, .sync = sv->opts.sync,
		.part = ck_sv_part(&sv->opts), .nparts = ck_sv_parts(&sv->opts),
		.nunits = sv->count, .total_bytes = bytes_of_mine(s), .plan = s->spec.hash,
		.fingerprint = sv->job, .session = true, .is_ours = ck_sv_hf_outputs(&s->spec),
		.writers = sv->opts.threads,
	};
	struct stat st;
	int rc = begin_or_wait(sv, &so, err);

	if (rc)
		return rc;
	if (ck_sys.stat(ck_stage_paths(s->stage)->data, &st))
		return ck_fail_sys(err, errno, "stat", ck_stage_paths(s->stage)->data);
	sv->inode = st.st_ino;
	return 0;
}

/* Space is taken by one rank for each file. */
static int make_files(struct sv_save *s, struct ckpt_err *err)
{
	const struct ck_plan *plan = &s->spec.plan;
	int rc = 0;

	s->stage_file = ck_alloc_array(plan->nfiles + 1, sizeof(*s->stage_file));
	if (!s->stage_file)
		return ck_fail_nomem(err, "files", plan->nfiles);
	for (uint32_t i = 0; !rc && i < plan->nfiles; i++) {
		const char *name = ck_sv_spec_local(&s->spec, plan->file[i].name);

		if (name && ck_sv_is_linked(s, i))
			rc = ck_sv_is_mine(s, i) ? ck_sv_link_file(s, i, err) :
			     ck_stage_file_to_read(s->stage, name, &s->stage_file[i], err);
		else if (name && ck_sv_is_mine(s, i))
			rc = ck_stage_file(s->stage, name, plan->file[i].bytes, &s->stage_file[i],
					   err);
		else if (name && !s->spec.own_cut)
			rc = ck_stage_file_of_other(s->stage, name, &s->stage_file[i], err);
	}
	return rc;
}

static int begin(struct ckpt_saver *sv, const struct ckpt_save_step *step, struct ckpt_err *err)
{
	struct sv_save *s = &sv->save;
	int rc = ck_sv_spec_make(&s->spec, &ck_all_formats, &sv->opts, step,
				 make_id(sv, step->tag ? step->tag : ""), err);

	if (rc)
		return rc;
	ck_free(sv->dst);
	sv->dst = ck_fs_join(sv->root, s->spec.tag);
	rc = sv->dst ? ck_sv_refs_make(&s->refs, &s->spec.ix, &s->spec.plan, err) :
	     ck_fail_nomem(err, "a path", 0);
	s->part.rank = ck_sv_part(&sv->opts);
	if (!rc && s->spec.frozen_from)
		rc = ck_sv_link_find(s, err);
	if (!rc)
		rc = make_root(sv, err);
	if (!rc && s->spec.local)
		rc = check_alone(sv, err);
	if (!rc)
		rc = check_absent(sv, err);
	if (!rc)
		rc = begin_stage(sv, err);
	return rc ? rc : make_files(s, err);
}

/* Files are to be linked to the save before this one, which rank 0 may still put into its place. */
static void hear_of_last(struct ckpt_saver *sv, const char *frozen_from)
{
	struct ckpt_err ignored = { 0 };
	bool late;

	if (ck_sv_part(&sv->opts) && frozen_from && sv->dst && !sv->reported && !sv->result &&
	    !strcmp(ck_fs_base(sv->dst), frozen_from))
		ck_saver_hear_end(sv, 0, &late, &ignored);
}

int ckpt_save_begin(struct ckpt_saver *sv, const struct ckpt_save_step *step, struct ckpt_err *err)
{
	struct ckpt_save_step all;
	struct ckpt_err inner = { 0 };
	double since;
	int rc;

	if (sv->state == CK_SAVER_OPEN)
		return ck_fail(err, CKPT_E_USAGE, sv->root, CKPT_NO_OFFSET,
			       "a save is open: commit or abort it before the next one begins");
	rc = ck_opts_take(&all, sizeof(all), step, "struct ckpt_save_step", err);
	if (rc)
		return rc;
	wait_until(sv, 0, true);
	hear_of_last(sv, all.frozen_from);
	since = ck_clock_seconds();
	release_save(&sv->save);
	memset(&sv->saved, 0, sizeof(sv->saved));
	sv->save.written = sv->save.linked_bytes = 0;
	sv->save.nfiles = sv->save.file_bytes = 0;
	sv->reported = true;
	sv->count++;
	rc = begin(sv, &all, &inner);
	if (rc) {
		if (err && !err->code)
			*err = inner;
		ck_sv_give_up(&sv->save, &inner);
		release_save(&sv->save);
		return rc;
	}
	ck_sv_work_begin(sv->save.work, &(struct sv_target){
		.ix = &sv->save.spec.ix, .plan = &sv->save.spec.plan, .refs = &sv->save.refs,
		.stage = sv->save.stage, .stage_file = sv->save.stage_file,
	});
	sv->state = CK_SAVER_OPEN;
	sv->saved.begin_seconds = ck_clock_seconds() - since;
	return 0;
}

/* ---- put ---- */

static int check_range(const struct ckpt_saver *sv, uint64_t tensor, const char *state,
		       uint64_t first, uint64_t count, struct ckpt_err *err)
{
	const struct sv_spec *spec = &sv->save.spec;
	const struct ck_tensor *t = &spec->ix.tensor[tensor];

	if (first > t->numel || count > t->numel - first)
		return ck_fail(err, CKPT_E_USAGE, t->name, CKPT_NO_OFFSET,
			       "elements %" PRIu64 " to %" PRIu64 " of its %.60s were put, but "
			       "it has %" PRIu64, first, first + count - 1, state, t->numel);
	if (!spec->own_cut || !count)
		return 0;
	for (uint64_t i = 0; i < spec->nown; i++)
		if (spec->own[i].tensor == tensor && spec->own[i].first <= first &&
		    first + count <= spec->own[i].first + spec->own[i].count)
			return 0;
	return ck_fail(err, CKPT_E_USAGE, t->name, CKPT_NO_OFFSET,
		       "elements %" PRIu64 " to %" PRIu64 " of its %.60s were put, but are not "
		       "in one range that rank %" PRIu32 " has in 'own'", first,
		       first + count - 1, state, sv->opts.rank);
}

/* Puts that follow each other are one, unless they meet within a block. */
static int add_range(struct sv_save *s, uint32_t state, uint64_t first, uint64_t count,
		     struct ckpt_err *err)
{
	struct sv_part *p = &s->part;
	struct sv_range *last = p->nranges ? &p->range[p->nranges - 1] : NULL;
	int rc;

	if (last && last->state == state && last->first + last->count == first &&
	    !(first % ck_sv_grain(&s->refs, state))) {
		last->count += count;
		return 0;
	}
	rc = ck_grow(&p->range, &p->range_cap, p->nranges + 1, sizeof(*last), err);
	if (!rc)
		p->range[p->nranges++] = (struct sv_range){
			.first = first, .count = count, .state = state,
		};
	return rc;
}

static int fail_closed(const struct ckpt_saver *sv, struct ckpt_err *err)
{
	return ck_fail(err, CKPT_E_USAGE, sv->root, CKPT_NO_OFFSET,
		       "no save is open; ckpt_save_begin() opens one");
}

/* What an earlier step has of it is linked. */
static bool is_there(const struct sv_save *s, uint64_t tensor)
{
	return s->link_from && s->spec.ix.tensor[tensor].role == CKPT_ROLE_FROZEN;
}

int ckpt_save_needs(const struct ckpt_saver *sv, uint64_t tensor)
{
	const struct sv_spec *spec = &sv->save.spec;

	return sv->state == CK_SAVER_OPEN && tensor < spec->ix.ntensors &&
	       spec->ix.tensor[tensor].role != CKPT_ROLE_ALIAS && !is_there(&sv->save, tensor);
}

int ckpt_save_put(struct ckpt_saver *sv, uint64_t tensor, const char *state, uint64_t first,
		  uint64_t count, const void *p, unsigned flags, struct ckpt_err *err)
{
	struct sv_save *s = &sv->save;
	const double since = ck_clock_seconds();
	uint32_t number;
	int rc;

	if (sv->state != CK_SAVER_OPEN)
		return fail_closed(sv, err);
	rc = ck_sv_spec_state(&s->spec, tensor, state, &number, err);
	if (!rc && ((count && !p) || (flags & ~CKPT_PUT_BORROW)))
		rc = ck_fail(err, CKPT_E_USAGE, s->spec.ix.tensor[tensor].name, CKPT_NO_OFFSET,
			     "cannot put %" PRIu64 " elements at %p with flags %#x: the pointer "
			     "is NULL, or a flag unknown", count, p, flags);
	if (!rc)
		rc = check_range(sv, tensor, state, first, count, err);
	if (rc || !count || is_there(s, tensor))
		return rc;
	rc = add_range(s, number, first, count, err);
	if (!rc)
		rc = ck_sv_work_put(s->work, number, first, count, p, flags & CKPT_PUT_BORROW, err);
	sv->saved.put_bytes += count * (ckpt_dtype_bits(s->spec.ix.state[number].dtype) / 8);
	sv->saved.put_seconds += ck_clock_seconds() - since;
	return rc;
}

/* ---- the end ---- */

int ckpt_save_commit(struct ckpt_saver *sv, struct ckpt_err *err)
{
	int rc;

	if (sv->state != CK_SAVER_OPEN)
		return fail_closed(sv, err);
	rc = ck_sv_work_check(sv->save.work, err);
	pthread_mutex_lock(&sv->lock);
	sv->closed_at = ck_clock_seconds();
	sv->reported = rc != 0;
	sv->state = CK_SAVER_CLOSING;
	pthread_cond_broadcast(&sv->changed);
	pthread_mutex_unlock(&sv->lock);
	if (rc)
		wait_until(sv, 0, true);
	return rc;
}

void ckpt_save_abort(struct ckpt_saver *sv, const char *why)
{
	struct ckpt_err err = { 0 };

	if (sv->state != CK_SAVER_OPEN)
		return;
	ck_fail(&err, CKPT_E_CANCELED, NULL, CKPT_NO_OFFSET, "%.400s",
		why ? why : "the trainer gave no reason");
	ck_sv_work_cancel(sv->save.work);
	ck_sv_give_up(&sv->save, &err);
	release_save(&sv->save);
	sv->state = CK_SAVER_IDLE;
}

int ckpt_save_wait(struct ckpt_saver *sv, uint32_t timeout_ms, struct ckpt_saved *out,
		   struct ckpt_err *err)
{
	const double until = timeout_ms ? ck_clock_seconds() + timeout_ms / 1e3 : 0;
	bool late = false;
	int rc;

	if (sv->state == CK_SAVER_OPEN)
		return ck_fail(err, CKPT_E_USAGE, sv->root, CKPT_NO_OFFSET,
			       "a save is open and has not been committed");
	if (!wait_until(sv, until, true))
		return ck_fail(err, CKPT_E_BUSY, sv->dst, CKPT_NO_OFFSET,
			       "the save did not finish within %" PRIu32 " ms", timeout_ms);
	rc = sv->reported ? 0 : sv->result;
	if (rc && err && !err->code)
		*err = sv->err;
	if (!rc && !sv->reported && ck_sv_part(&sv->opts))
		rc = ck_saver_hear_end(sv, until, &late, err);
	if (late)
		return rc;
	sv->reported = true;
	sv->saved.written_bytes = sv->save.written;
	sv->saved.linked_bytes = sv->save.linked_bytes;
	sv->saved.write_seconds = sv->save.write_seconds;
	sv->saved.commit_seconds = sv->save.commit_seconds;
	sv->saved.nfiles = sv->save.nfiles;
	sv->saved.file_bytes = sv->save.file_bytes;
	if (!rc && out)
		*out = sv->saved;
	return rc;
}
