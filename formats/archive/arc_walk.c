/*
 * arc_walk.c -- all of a pack, decoded by several threads.
 *
 * Frames are decoded in any order.  A file's hash goes over its bytes in their order, so threads
 * take turns with it, which takes them a fraction of the time of decoding.
 */
#include <inttypes.h>
#include <pthread.h>
#include <string.h>

#include "formats/archive/arc_turn.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_pool.h"
#include "libckpt/base/ck_search.h"
#include "libckpt/base/ck_sys.h"

struct walk {
	struct ck_pack *pack;
	const struct ck_pack_index *ix;
	const struct ckpt_run_opts *run;
	ck_pack_sink_fn sink;
	void *arg;
	struct ck_tar_gaps gaps;
	uint8_t **buf;		/* of each thread */
	struct arc_turn turn;
	struct ck_hasher *hash;	/* of the file that the turn stands in */
	uint64_t entry;		/* its number, or the next one's */
	uint64_t done;
};

/* The first file that ends behind 'at' or begins there. */
static uint64_t entry_at(const struct ck_pack_index *ix, uint64_t at)
{
	uint64_t i;

	CK_LOWER_BOUND(i, ix->n, ix->entry[i].at + ix->entry[i].bytes <= at);
	return i;
}

/* What of the frame lies in gap i: before file i, or behind the last one. */
static void keep_gap(struct walk *w, uint64_t i, const struct ck_pack_frame *f, const uint8_t *p)
{
	const struct ck_tar_gaps *g = &w->gaps;
	const uint64_t begin = g->at[i], end = begin + g->pos[i + 1] - g->pos[i];
	const uint64_t from = ck_max_u64(begin, f->at);
	const uint64_t to = ck_min_u64(end, f->at + f->content);

	if (from < to)
		memcpy(g->bytes + g->pos[i] + (from - begin), p + (from - f->at), to - from);
}

static void keep_gaps(struct walk *w, const struct ck_pack_frame *f, const uint8_t *p)
{
	for (uint64_t i = entry_at(w->ix, f->at); i <= w->ix->n; i++) {
		if (w->gaps.at[i] >= f->at + f->content)
			break;
		keep_gap(w, i, f, p);
	}
}

/* The turn is ours: what of the frame belongs to files goes to their hashes. */
static int hash_files(struct walk *w, const struct ck_pack_frame *f, const uint8_t *p,
		      struct ckpt_err *err)
{
	const uint64_t end = f->at + f->content;

	for (; w->entry < w->ix->n; w->entry++) {
		const struct ck_pack_entry *e = &w->ix->entry[w->entry];
		const uint64_t from = ck_max_u64(e->at, f->at);
		const uint64_t to = ck_min_u64(e->at + e->bytes, end);

		if (e->at > end)
			return 0;
		if (from < to)
			ck_hasher_add(w->hash, p + (from - f->at), to - from);
		if (e->at + e->bytes > end)
			return 0;
		if (!ck_hash128_equal(ck_hasher_sum(w->hash), e->hash))
			return ck_fail(err, CKPT_E_CORRUPT, e->name, CKPT_NO_OFFSET,
				       "the hash of the file's bytes differs from the one "
				       "in the pack's index");
		ck_hasher_reset(w->hash);
	}
	return 0;
}

static int give_files(struct walk *w, const struct ck_pack_frame *f, const uint8_t *p,
		      struct ckpt_err *err)
{
	int rc = 0;

	if (!w->sink)
		return 0;
	for (uint64_t i = entry_at(w->ix, f->at); !rc && i < w->ix->n; i++) {
		const struct ck_pack_entry *e = &w->ix->entry[i];
		const uint64_t from = ck_max_u64(e->at, f->at);
		const uint64_t to = ck_min_u64(e->at + e->bytes, f->at + f->content);

		if (e->at >= f->at + f->content)
			break;
		if (from < to)
			rc = w->sink(w->arg, i, from - e->at, p + (from - f->at), to - from, err);
	}
	return rc;
}

static int in_turn(struct walk *w, const struct ck_pack_frame *f, const uint8_t *p,
		   struct ckpt_err *err)
{
	const struct ckpt_run_opts *run = w->run;
	int rc;

	if (run->cancel && *run->cancel)
		return ck_fail(err, CKPT_E_CANCELED, NULL, CKPT_NO_OFFSET, "canceled");
	rc = hash_files(w, f, p, err);
	w->done += f->content;
	if (!rc && run->progress) {
		const struct ckpt_progress now = { w->done, w->ix->content };

		run->progress(run->progress_arg, &now);
	}
	return rc;
}

static int walk_frame(void *arg, uint64_t job, uint32_t worker, struct ckpt_err *err)
{
	struct walk *w = arg;
	const struct ck_pack_frame *f = &w->ix->frame[job];
	uint8_t *p = w->buf[worker];
	int rc = ck_pack_frame(w->pack, job, p, err);

	if (!rc) {
		keep_gaps(w, f, p);
		rc = give_files(w, f, p, err);
	}
	if (rc) {
		ck_arc_turn_fail(&w->turn);
		return rc;
	}
	if (!ck_arc_turn_wait(&w->turn, job))
		return 0;	/* another one failed, and says so */
	rc = in_turn(w, f, p, err);
	if (rc)
		ck_arc_turn_fail(&w->turn);
	else
		ck_arc_turn_next(&w->turn);
	return rc;
}

static int prepare(struct walk *w, uint32_t threads, uint64_t limit, struct ckpt_err *err)
{
	uint64_t largest = 1;

	for (uint64_t i = 0; i < w->ix->nframes; i++)
		largest = ck_max_u64(largest, w->ix->frame[i].content);
	w->buf = ck_zalloc(threads * sizeof(*w->buf));
	w->hash = ck_hasher_new();
	if (!w->buf || !w->hash)
		return ck_fail_nomem(err, "decoding", 0);
	for (uint32_t i = 0; i < threads; i++) {
		w->buf[i] = ck_alloc(largest);
		if (!w->buf[i])
			return ck_fail_nomem(err, "a frame", largest);
	}
	return ck_tar_gaps_init(&w->gaps, w->ix, limit, err);
}

/* So many that what each holds, twice a frame, stays within the limit. */
static uint32_t threads_for(const struct ck_pack_index *ix, const struct ckpt_run_opts *run)
{
	uint64_t each = 1, n = run->threads ? run->threads : 1;

	for (uint64_t i = 0; i < ix->nframes; i++)
		each = ck_max_u64(each, (uint64_t)ix->frame[i].content + ix->frame[i].bytes);
	n = ck_min_u64(n, run->mem_limit / each);
	return n ? (uint32_t)ck_min_u64(n, 256) : 1;
}

int ck_pack_walk(struct ck_pack *pack, const struct ckpt_run_opts *run, uint64_t limit,
		 ck_pack_sink_fn sink, void *arg, struct ckpt_err *err)
{
	const struct ck_pack_index *ix = ck_pack_index(pack);
	const uint32_t threads = threads_for(ix, run);
	struct walk w = { .pack = pack, .ix = ix, .run = run, .sink = sink, .arg = arg };
	int rc;

	ck_arc_turn_init(&w.turn);
	rc = prepare(&w, threads, limit, err);
	if (!rc)
		rc = ck_pool_run(threads, ix->nframes, walk_frame, &w, err);
	if (!rc && w.entry < ix->n)	/* empty files at the very end */
		rc = ck_fail(err, CKPT_E_CORRUPT, ix->entry[w.entry].name, CKPT_NO_OFFSET,
			     "the file is beyond the end of the pack's contents");
	if (!rc)
		rc = ck_tar_check(ix, &w.gaps, "the pack", err);
	for (uint32_t i = 0; w.buf && i < threads; i++)
		ck_free(w.buf[i]);
	ck_free(w.buf);
	ck_hasher_free(w.hash);
	ck_tar_gaps_release(&w.gaps);
	ck_arc_turn_release(&w.turn);
	return rc;
}
