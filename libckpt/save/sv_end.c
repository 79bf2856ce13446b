/*
 * sv_end.c -- the end of a save: literals and the record of this rank; rank 0 waits for the
 * others, joins, and puts the step into its place.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "libckpt/base/ck_clock.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/commit/ck_record.h"
#include "libckpt/commit/ck_leftover.h"
#include "libckpt/commit/op_latest.h"
#include "libckpt/io/ck_fs.h"
#include "libckpt/io/ck_src.h"
#include "libckpt/run/ck_ckpt.h"
#include "libckpt/save/ck_save.h"
#include "libckpt/zip/ck_zip.h"

#define POLL_NS 10000000L
#define ZEROS ((size_t)64 << 10)
#define COPY ((size_t)256 << 10)
#define NAMED 16u

/* ---- literals ---- */

static int add_crc(struct sv_save *s, const struct ck_seg *seg, uint32_t crc, struct ckpt_err *err)
{
	struct sv_part *p = &s->part;
	int rc;

	if (seg->crc == CK_NONE)
		return 0;
	rc = ck_grow(&p->crc, &p->crc_cap, p->ncrcs + 1, sizeof(*p->crc), err);
	if (!rc)
		p->crc[p->ncrcs++] = (struct ck_crc_piece){
			.off = seg->off - s->spec.plan.crc[seg->crc].begin, .bytes = seg->bytes,
			.slot = seg->crc, .crc = crc,
		};
	return rc;
}

/* A new file is zero already. */
static int add_zeros(struct sv_save *s, const struct ck_seg *seg, struct ckpt_err *err)
{
	uint8_t *zeros = seg->crc == CK_NONE ? NULL : ck_zalloc(ZEROS);
	uint32_t crc = 0;

	if (seg->crc == CK_NONE)
		return 0;
	if (!zeros)
		return ck_fail_nomem(err, "zeros", ZEROS);
	for (uint64_t at = 0; at < seg->bytes; at += ZEROS)
		crc = ck_zip_crc32(crc, zeros, ck_min_u64(ZEROS, seg->bytes - at));
	ck_free(zeros);
	return add_crc(s, seg, crc, err);
}

static int write_literal(struct sv_save *s, uint32_t file, const struct ck_seg *seg,
			 struct ckpt_err *err)
{
	int rc = ck_stage_write(s->stage, s->stage_file[file], seg->off, seg->text, seg->bytes,
				err);

	s->written += rc ? 0 : seg->bytes;
	return rc ? rc : add_crc(s, seg, ck_zip_crc32(0, seg->text, seg->bytes), err);
}

/* A file that goes along as it is now: replaced since the save began, it is the new one, whole. */
static int write_copy(struct sv_save *s, uint32_t file, const struct ck_seg *seg,
		      struct ckpt_err *err)
{
	struct ck_fdpool *pool = ck_fdpool_new(1);
	struct ck_src *src = NULL;
	uint8_t *p = ck_alloc(COPY);
	int rc = p && pool ? ck_src_open(pool, seg->text, &src, err) :
		 ck_fail_nomem(err, "a copy", COPY);

	if (!rc && ck_src_size(src) != seg->bytes)
		rc = ck_fail(err, CKPT_E_MISMATCH, seg->text, CKPT_NO_OFFSET,
			     "it has %" PRIu64 " bytes, but had %" PRIu64 " when the save began",
			     ck_src_size(src), seg->bytes);
	for (uint64_t at = 0, n; !rc && at < seg->bytes; at += n) {
		n = ck_min_u64(COPY, seg->bytes - at);
		rc = ck_src_read(src, seg->first + at, p, n, err);
		if (!rc)
			rc = ck_stage_write(s->stage, s->stage_file[file], seg->off + at, p, n,
					    err);
	}
	if (pool)	/* half of one file and half of the next is neither */
		rc = ck_fdpool_check(pool, rc, err);
	s->written += rc ? 0 : seg->bytes;
	ck_src_close(src);
	ck_fdpool_free(pool);
	ck_free(p);
	return rc;
}

static int write_literals(struct sv_save *s, struct ckpt_err *err)
{
	const struct ck_plan *plan = &s->spec.plan;
	int rc = 0;

	for (uint32_t f = 0; f < plan->nfiles; f++) {
		const struct ck_outfile *file = &plan->file[f];

		if (!ck_sv_is_mine(s, f) || ck_sv_is_linked(s, f))
			continue;
		for (uint64_t i = 0; !rc && i < file->nsegs; i++) {
			const struct ck_seg *seg = &plan->seg[file->seg + i];

			if (seg->kind == CK_SEG_LITERAL)
				rc = write_literal(s, f, seg, err);
			else if (seg->kind == CK_SEG_ZERO)
				rc = add_zeros(s, seg, err);
			else if (seg->kind == CK_SEG_FILE)
				rc = write_copy(s, f, seg, err);
		}
	}
	return rc;
}

/* ---- this rank's part ---- */

static int write_put(struct sv_save *s, struct ckpt_err *err)
{
	char *path = ck_leftover_put_path(ck_stage_paths(s->stage), ck_sv_part(s->opts));
	int rc;

	if (!path)
		return ck_fail_nomem(err, "a path", 0);
	s->part.cut = s->spec.own;
	s->part.ncuts = s->spec.nown;
	rc = ck_sv_part_write(&s->part, path, err);
	s->part.cut = NULL;
	s->part.ncuts = 0;
	ck_free(path);
	return rc;
}

static int end_part(struct sv_save *s, struct ckpt_err *err)
{
	int rc = ck_sv_work_finish(s->work, &s->part, &s->written, err);

	if (!rc)
		rc = write_literals(s, err);
	if (!rc)
		rc = write_put(s, err);
	return rc ? rc : ck_stage_end(s->stage, err);
}

/* ---- rank 0: the others ---- */

enum seen { SEEN_NOTHING, SEEN_BEGUN, SEEN_ENDED };

/* How far a rank is; a failure is one that it left behind, or that it describes another save. */
static int look_at(const struct sv_save *s, uint32_t rank, enum seen *seen_out,
		   struct ckpt_err *err)
{
	const struct ck_commit *c = ck_stage_paths(s->stage);
	char *rec = ck_commit_record_path(c, rank), *put = ck_leftover_put_path(c, rank);
	struct ck_record_seen seen = { 0 };
	struct sv_part part = { 0 };
	int rc = 0;

	*seen_out = SEEN_NOTHING;
	if (!rec || !put)
		rc = ck_fail_nomem(err, "a path", 0);
	else if (!ck_record_peek(rec, &seen, NULL))
		*seen_out = seen.ended ? SEEN_ENDED : SEEN_BEGUN;
	if (!rc && *seen_out && !ck_hash128_equal(seen.head.plan, s->spec.hash))
		rc = ck_fail(err, CKPT_E_MISMATCH, rec, CKPT_NO_OFFSET,
			     "rank %" PRIu32 " and rank 0 describe this save differently: "
			     "shapes, groups, values and the files found in 'frozen_from' must "
			     "be the same on every rank", rank);
	if (!rc && *seen_out == SEEN_BEGUN && !ck_sv_part_read(&part, put, NULL) && part.code)
		rc = ck_fail(err, CKPT_E_INCOMPLETE, s->spec.tag, CKPT_NO_OFFSET,
			     "rank %" PRIu32 " abandoned this save: %.300s", rank, part.why);
	ck_sv_part_release(&part);
	ck_free(rec);
	ck_free(put);
	return rc;
}

static int fail_missing(const struct sv_save *s, const uint8_t *seen, struct ckpt_err *err)
{
	const uint32_t n = s->opts->nranks;
	char list[NAMED * 12 + 8] = "";
	uint32_t missing = 0, first = 0;
	size_t at = 0;

	for (uint32_t r = n; r-- > 1;)
		first = seen[r] == SEEN_ENDED ? first : r;
	for (uint32_t r = 1; r < n; r++) {
		if (seen[r] == SEEN_ENDED)
			continue;
		if (missing < NAMED)
			at += (size_t)snprintf(list + at, sizeof(list) - at, "%s%" PRIu32,
					       missing ? ", " : "", r);
		missing++;
	}
	return ck_fail(err, CKPT_E_INCOMPLETE, s->spec.tag, CKPT_NO_OFFSET,
		       "rank%s %s%s of %" PRIu32 " did not finish this save in %" PRIu32 " ms "
		       "(rank %" PRIu32 " %s): %s", missing > 1 ? "s" : "", list,
		       missing > NAMED ? ", ..." : "", n, s->opts->timeout_ms, first,
		       seen[first] == SEEN_BEGUN ? "has begun it" : "has not begun it",
		       seen[first] == SEEN_BEGUN ? "is it stopped, or does its disk hang?" :
		       "is it alive, and does it see this folder?");
}

static int fail_dead(const struct sv_save *s, uint32_t rank, struct ckpt_err *err)
{
	return ck_fail(err, CKPT_E_INCOMPLETE, s->spec.tag, CKPT_NO_OFFSET,
		       "rank %" PRIu32 " of %" PRIu32 " did not finish this save: it has "
		       "exited", rank, s->opts->nranks);
}

static int wait_for_ranks(const struct sv_save *s, double since, struct ckpt_err *err)
{
	const struct timespec nap = { .tv_nsec = POLL_NS };
	const double until = since + s->opts->timeout_ms / 1e3;
	uint8_t *seen = ck_zalloc(s->opts->nranks);
	uint32_t left = ck_sv_parts(s->opts) - 1;
	bool late = false;
	int rc = seen ? 0 : ck_fail_nomem(err, "ranks", s->opts->nranks);

	while (!rc && left) {
		late = ck_clock_seconds() >= until;
		left = 0;
		for (uint32_t r = 1; !rc && r < s->opts->nranks; r++) {
			enum seen now = seen[r];
			const bool dead = s->gone && s->gone[r];

			if (now != SEEN_ENDED)
				rc = look_at(s, r, &now, err);
			/* it was gone before the look, so there will be no more */
			if (!rc && now != SEEN_ENDED && dead)
				rc = fail_dead(s, r, err);
			seen[r] = (uint8_t)now;
			left += now != SEEN_ENDED;
		}
		if (!rc && left && late)
			rc = fail_missing(s, seen, err);
		if (!rc && left)
			nanosleep(&nap, NULL);
	}
	ck_free(seen);
	return rc;
}

static int read_parts(const struct sv_save *s, struct sv_part *part, struct ckpt_err *err)
{
	int rc = 0;

	for (uint32_t r = 0; !rc && r < ck_sv_parts(s->opts); r++) {
		char *path = ck_leftover_put_path(ck_stage_paths(s->stage), r);

		rc = path ? ck_sv_part_read(&part[r], path, err) : ck_fail_nomem(err, "a path", 0);
		ck_free(path);
	}
	return rc;
}

/* ---- rank 0: files that were cut as the ranks said ---- */

static int gather_cuts(const struct sv_part *part, uint32_t n, struct ck_cut **cut_out,
		       uint64_t *n_out, struct ckpt_err *err)
{
	struct ck_cut *all;
	uint64_t total = 0, at = 0;

	for (uint32_t r = 0; r < n; r++)
		total += part[r].ncuts;
	all = ck_alloc_array(total + 1, sizeof(*all));
	if (!all)
		return ck_fail_nomem(err, "ranges", total);
	for (uint32_t r = 0; r < n; r++)
		for (uint64_t i = 0; i < part[r].ncuts; i++) {
			all[at] = part[r].cut[i];
			all[at++].rank = r;
		}
	*cut_out = all;
	*n_out = total;
	return 0;
}

static int by_tensor(const void *a, const void *b)
{
	const struct ck_cut *x = a, *y = b;

	if (x->tensor != y->tensor)
		return x->tensor < y->tensor ? -1 : 1;
	return (x->first > y->first) - (x->first < y->first);
}

/* The cuts of one tensor, in order: all of its elements, each once. */
static int check_tiles(const struct ck_tensor *t, const struct ck_cut *cut, uint64_t n,
		       struct ckpt_err *err)
{
	uint64_t at = 0;

	for (uint64_t i = 0; i < n; i++) {
		if (cut[i].first > t->numel || cut[i].count > t->numel - cut[i].first)
			return ck_fail(err, CKPT_E_CORRUPT, t->name, CKPT_NO_OFFSET,
				       "rank %" PRIu32 " declares elements beyond the last one",
				       cut[i].rank);
		if (cut[i].first < at)
			return ck_fail(err, CKPT_E_MISMATCH, t->name, CKPT_NO_OFFSET,
				       "ranks %" PRIu32 " and %" PRIu32 " both hold its element %"
				       PRIu64 ", so the step was not saved", cut[i - 1].rank,
				       cut[i].rank, cut[i].first);
		if (cut[i].first > at)
			break;
		at += cut[i].count;
	}
	return at == t->numel ? 0 :
	       ck_fail(err, CKPT_E_INCOMPLETE, t->name, CKPT_NO_OFFSET,
		       "no rank holds its elements from %" PRIu64 " on (of %" PRIu64 "), so the "
		       "step was not saved", at, t->numel);
}

static int check_cuts(const struct sv_spec *spec, const struct ck_cut *cut, uint64_t n,
		      struct ckpt_err *err)
{
	struct ck_cut *sorted = ck_alloc_array(n + 1, sizeof(*sorted));
	uint64_t at = 0;
	int rc = 0;

	if (!sorted)
		return ck_fail_nomem(err, "ranges", n);
	if (n)
		memcpy(sorted, cut, n * sizeof(*sorted));
	qsort(sorted, n, sizeof(*sorted), by_tensor);
	for (uint32_t t = 0; !rc && t < spec->ix.ntensors; t++) {
		const uint64_t from = at;

		while (at < n && sorted[at].tensor == t)
			at++;
		if (spec->ix.tensor[t].role != CKPT_ROLE_ALIAS)
			rc = check_tiles(&spec->ix.tensor[t], sorted + from, at - from, err);
	}
	if (!rc && at < n)
		rc = ck_fail(err, CKPT_E_CORRUPT, spec->tag, CKPT_NO_OFFSET,
			     "rank %" PRIu32 " declares elements of a tensor that does not exist",
			     sorted[at].rank);
	ck_free(sorted);
	return rc;
}

/* The plan of all, its files in the stage, and the one that only rank 0 could make. */
static int plan_all(struct sv_save *s, const struct sv_part *part, struct ck_plan *plan,
		    uint32_t **file_out, struct ckpt_err *err)
{
	struct ck_cut *cut = NULL;
	uint64_t n = 0, common;
	uint32_t *file = NULL;
	int rc = gather_cuts(part, s->opts->nranks, &cut, &n, err);

	if (!rc)
		rc = check_cuts(&s->spec, cut, n, err);
	if (!rc)
		rc = ck_sv_spec_plan_all(&s->spec, cut, n, plan, err);
	if (!rc)
		file = ck_alloc_array(plan->nfiles + 1, sizeof(*file));
	if (!rc && !file)
		rc = ck_fail_nomem(err, "files", plan->nfiles);
	common = rc ? 0 : plan->nfiles - s->spec.nalong;
	for (uint32_t i = 0; !rc && i < plan->nfiles; i++) {
		const char *name = ck_sv_spec_local(&s->spec, plan->file[i].name);
		const struct ck_seg *seg = &plan->seg[plan->file[i].seg];

		if (!name)
			continue;
		if (i >= common) {	/* which goes along, and is there */
			file[i] = s->stage_file[s->spec.nshared + (i - common)];
			continue;
		}
		rc = i == plan->seal.file ?
		     ck_stage_file(s->stage, name, plan->file[i].bytes, &file[i], err) :
		     ck_sv_is_frozen(s, plan, i) ?
		     ck_stage_file_to_read(s->stage, name, &file[i], err) :
		     ck_stage_file_of_other(s->stage, name, &file[i], err);
		if (!rc && i == plan->seal.file)
			rc = ck_stage_write(s->stage, file[i], 0, seg->text, seg->bytes, err);
	}
	ck_free(cut);
	if (rc)
		ck_free(file);
	else
		*file_out = file;
	return rc;
}

/* ---- rank 0: the step ---- */

/* A file that another process removed must not be missing from a step that looks whole. */
static int check_file(const struct sv_save *s, const char *name, uint64_t bytes,
		      struct ckpt_err *err)
{
	char *path = ck_fs_join(ck_stage_paths(s->stage)->data, name);
	struct stat st;
	int rc = 0;

	if (!path)
		return ck_fail_nomem(err, "a file name", strlen(name));
	if (ck_sys.stat(path, &st))
		rc = errno != ENOENT ? ck_fail_sys(err, errno, "stat", path) :
		     ck_fail(err, CKPT_E_INCOMPLETE, path, CKPT_NO_OFFSET,
			     "the file is missing, although every rank has ended: another "
			     "process removed it, so the step was not saved");
	else if ((uint64_t)st.st_size != bytes)
		rc = ck_fail(err, CKPT_E_INCOMPLETE, path, CKPT_NO_OFFSET,
			     "the file has %" PRIu64 " bytes instead of %" PRIu64 ", although "
			     "every rank has ended: another process removed or changed it, so the "
			     "step was not saved", (uint64_t)st.st_size, bytes);
	ck_free(path);
	return rc;
}

static int check_files(const struct sv_save *s, const struct ck_plan *plan, struct ckpt_err *err)
{
	int rc = 0;

	for (uint32_t i = 0; !rc && i < plan->nfiles; i++) {
		const char *name = ck_sv_spec_local(&s->spec, plan->file[i].name);

		if (name && (!s->spec.local || ck_sv_is_mine(s, i)))
			rc = check_file(s, name, plan->file[i].bytes, err);
	}
	return rc;
}

static void count_files(struct sv_save *s, const struct ck_plan *plan)
{
	for (uint64_t i = 0; i < plan->nfiles; i++) {
		if (s->spec.local && !ck_sv_is_mine(s, (uint32_t)i))
			continue;
		s->nfiles += ck_sv_spec_local(&s->spec, plan->file[i].name) != NULL;
		s->file_bytes += plan->file[i].bytes;
	}
}

static int join(struct sv_save *s, struct sv_part *part, struct ckpt_err *err)
{
	struct ck_plan all = CK_PLAN_INIT;
	struct sv_refs refs = { 0 };
	uint32_t *file = NULL;
	struct sv_join j = {
		.spec = &s->spec, .plan = &s->spec.plan, .refs = &s->refs, .stage = s->stage,
		.stage_file = s->stage_file, .part = part, .nparts = ck_sv_parts(s->opts),
		.alone = s->spec.local ? s : NULL,
	};
	int rc = 0;

	if (s->spec.own_cut && !s->spec.local) {
		rc = plan_all(s, part, &all, &file, err);
		if (!rc)
			rc = ck_sv_refs_make(&refs, &s->spec.ix, &all, err);
		j.plan = &all;
		j.refs = &refs;
		j.stage_file = file;
	}
	if (!rc)
		rc = check_files(s, j.plan, err);
	if (!rc)
		rc = ck_sv_join(&j, err);
	if (!rc)
		count_files(s, j.plan);
	ck_sv_refs_release(&refs);
	ck_plan_release(&all);
	ck_free(file);
	return rc;
}

/* Into its place; then 'latest' may name it.  What fails behind the rename is told so. */
static int place(struct sv_save *s, struct ckpt_err *err)
{
	struct ckpt_err inner = { 0 };
	const char *what = "leftover files beside it were not removed, and 'latest' does not "
		"name it";
	int rc = ck_stage_flush(s->stage, &inner);

	if (!rc)
		rc = ck_stage_commit(s->stage, s->opts->timeout_ms, &inner);
	if (!rc && s->spec.latest) {
		what = "'latest' does not name it";
		rc = ck_latest_set(s->opts->root, s->spec.tag, s->spec.want.step.target->aside,
				   s->opts->sync, &inner);
	}
	if (rc && ck_stage_is_done(s->stage))
		return ck_fail(err, inner.code, inner.where, inner.offset,
			       "step %.80s is in place, but %s: %.300s", s->spec.tag, what,
			       inner.msg);
	if (rc && err && !err->code)
		*err = inner;
	return rc;
}

static int end_all(struct sv_save *s, double since, struct ckpt_err *err)
{
	const uint32_t n = ck_sv_parts(s->opts);
	struct sv_part *part = ck_zalloc(n * sizeof(*part));
	int rc = part ? wait_for_ranks(s, since, err) : ck_fail_nomem(err, "ranks", n);

	if (!rc)
		rc = read_parts(s, part, err);
	if (!rc)
		rc = join(s, part, err);
	if (!rc)
		rc = place(s, err);
	for (uint32_t r = 0; part && r < n; r++)
		ck_sv_part_release(&part[r]);
	ck_free(part);
	return rc;
}

int ck_sv_end(struct sv_save *s, double since, struct ckpt_err *err)
{
	int rc = end_part(s, err);

	s->write_seconds = ck_clock_seconds() - since;
	if (!rc && !ck_sv_part(s->opts))
		rc = end_all(s, since, err);
	s->commit_seconds = ck_clock_seconds() - since;
	return rc;
}

/*
 * Others learn of it from the record of what was put.  Rank 0 takes the data away as well: nobody
 * will put it into its place.
 */
void ck_sv_give_up(struct sv_save *s, const struct ckpt_err *why)
{
	const bool alone = ck_sv_parts(s->opts) == 1;
	bool told;
	char *path;

	if (!s->stage)
		return;
	if (alone || ck_stage_is_done(s->stage)) {
		ck_stage_abort(s->stage);
		s->stage = NULL;
		return;
	}
	path = ck_leftover_put_path(ck_stage_paths(s->stage), s->opts->rank);
	ck_sv_part_release(&s->part);
	s->part = (struct sv_part){ .rank = s->opts->rank, .code = (int)why->code };
	s->part.why = ck_strdup(why->msg);
	told = path && !ck_sv_part_write(&s->part, path, NULL);
	if (!s->opts->rank)
		ck_fs_remove_tree(ck_stage_paths(s->stage)->data, NULL);
	if (path && !told)	/* on a full disk there is room now */
		ck_sv_part_write(&s->part, path, NULL);
	ck_free(path);
	ck_stage_close(s->stage);
	s->stage = NULL;
}
