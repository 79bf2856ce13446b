/*
 * op_view.c -- see op_view.h.
 *
 * A read finds the first segment of its range by its place in the file, and walks on from there.
 * A reader's elements are whole, so the parts of an element at both ends of a range go through a
 * buffer of one element.  When all bytes are made, the files that they came from are looked at:
 * one that changed fails the read.
 */
#include "libckpt/view/op_view.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_search.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/convert/op_convert.h"
#include "libckpt/io/ck_fs.h"
#include "libckpt/run/ck_seg_read.h"
#include "libckpt/tensor/ck_extents.h"

#define OPEN_COPIES 16u		/* descriptors for files that are copied */

/* What one thread reads with; kept for the next. */
struct tool {
	struct tool *next;
	uint8_t *seen;		/* a bit for each source that the read used */
	uint8_t scratch[CK_READ_SCRATCH];
};

struct tag {
	char text[33];
};

struct ckpt_view {
	struct ckpt *ck;
	struct ckpt_view_checks *proof, *own_proof;
	struct ck_plan plan;
	struct tag *etag;		/* of each file */
	struct ck_reader *reader;
	struct ck_fdpool *pool;		/* for files that are copied */
	struct ck_seg_from from;
	pthread_mutex_t lock;		/* guards 'idle' */
	struct tool *idle;
	_Atomic uint64_t overflows;
};

/* ------------------------------------------------------------------- opening */

/* The plan of `convert` into a folder, without sums and with one shard for each set. */
static int make_plan(struct ckpt_view *view, const struct ckpt_view_opts *opts,
		     struct ckpt_err *err)
{
	const struct ckpt_convert_opts o = {
		.size = sizeof(o), .run = opts->run, .select = opts->select,
		.dtype = opts->dtype, .states = opts->states, .aux_dir = opts->aux_dir,
		.max_shard_bytes = UINT64_MAX, .flags = CKPT_CONVERT_NO_SUMS,
	};
	struct ck_cv cv = {
		CK_CV_INIT, .ck = view->ck, .opts = &o, .dst = "view", .to = CKPT_DST_FOLDER,
		.fingerprint = ck_hasher_sum(view->ck->ix.fingerprint),
	};
	int rc;

	ck_run_opts_fill(o.run, &cv.run);
	rc = ck_cv_prepare(&cv, err);
	if (!rc && cv.plan.own)
		rc = ck_fail(err, CKPT_E_UNSUPPORTED, view->ck->ix.path, CKPT_NO_OFFSET,
			     "these files have parts that only a run can make; use convert");
	if (!rc) {
		view->plan = cv.plan;
		cv.plan = (struct ck_plan)CK_PLAN_INIT;
	}
	ck_cv_release(&cv);
	return rc;
}

/* A file that is copied is no source of the index: its own stamp goes into the tag. */
static int hash_copies(const struct ckpt_view *view, const struct ck_outfile *f,
		       struct ck_hasher *h, struct ckpt_err *err)
{
	for (uint64_t i = f->seg; i < f->seg + f->nsegs; i++) {
		const struct ck_seg *s = &view->plan.seg[i];
		struct ck_stamp stamp = { 0 };
		struct stat st;

		if (s->kind != CK_SEG_FILE || ck_sys.stat(s->text, &st))
			continue;
		ck_stamp_of(&st, &stamp);
		ck_hasher_add(h, &stamp.ino, sizeof(stamp.ino));
		ck_hasher_add(h, &stamp.mtime_ns, sizeof(stamp.mtime_ns));
		if (ck_src_watch(view->pool, s->text, err))
			return -(int)(err ? err->code : CKPT_E_IO);
	}
	return 0;
}

static int make_tags(struct ckpt_view *view, struct ckpt_err *err)
{
	const struct ck_hash128 stamps = ck_proof_stamps(view->proof);
	struct ck_hasher *h = ck_hasher_new();
	struct ck_hash128 plan;
	int rc = h ? ck_plan_hash(&view->plan, 1, &plan, err) : ck_fail_nomem(err, "a hash", 0);

	view->etag = ck_zalloc((view->plan.nfiles + 1) * sizeof(*view->etag));
	if (!rc && !view->etag)
		rc = ck_fail_nomem(err, "tags of files", view->plan.nfiles);
	for (uint64_t i = 0; !rc && i < view->plan.nfiles; i++) {
		ck_hasher_reset(h);
		ck_hasher_add(h, CKPT_VERSION_STRING, sizeof(CKPT_VERSION_STRING));
		ck_hasher_add(h, &stamps, sizeof(stamps));
		ck_hasher_add(h, &plan, sizeof(plan));
		ck_hasher_add(h, &i, sizeof(i));
		rc = hash_copies(view, &view->plan.file[i], h, err);
		ck_hash128_print(ck_hasher_sum(h), view->etag[i].text);
	}
	ck_hasher_free(h);
	return rc;
}

static int make_readers(struct ckpt_view *view, const struct ckpt_run_opts *run,
			struct ckpt_err *err)
{
	struct ckpt_run_opts whole;
	int rc;

	ck_run_opts_fill(run, &whole);
	view->pool = ck_fdpool_new_of(view->ck->pool, OPEN_COPIES);
	if (!view->pool)
		return ck_fail_nomem(err, "a pool of files", 0);
	rc = ck_reader_new(&view->ck->ix, &view->ck->limits, whole.mem_limit / 2, &view->reader,
			   err);
	if (rc)
		return rc;
	ck_reader_observe(view->reader, ck_proof_saw, view->proof);
	view->from = (struct ck_seg_from){
		.plan = &view->plan, .ix = &view->ck->ix, .reader = view->reader,
		.source_pool = view->ck->pool, .pool = view->pool,
	};
	return 0;
}

int ck_vf_open(struct ckpt *ck, const struct ckpt_view_opts *opts, struct ckpt_view **view_out,
	       struct ckpt_err *err)
{
	struct ckpt_view *view = ck_zalloc(sizeof(*view));
	int rc = 0;

	if (!view)
		return ck_fail_nomem(err, "a view", sizeof(*view));
	view->ck = ck;
	view->proof = opts->checks;
	pthread_mutex_init(&view->lock, NULL);
	if (!opts->checks) {
		rc = ck_proof_new(ck, &view->own_proof, err);
		view->proof = view->own_proof;
	}
	if (!rc)
		rc = make_plan(view, opts, err);
	if (!rc)
		rc = make_readers(view, opts->run, err);
	if (!rc)
		rc = make_tags(view, err);
	if (rc)
		ck_vf_close(view);
	else
		*view_out = view;
	return rc;
}

void ck_vf_close(struct ckpt_view *view)
{
	struct tool *next;

	if (!view)
		return;
	for (struct tool *t = view->idle; t; t = next) {
		next = t->next;
		ck_free(t->seen);
		ck_free(t);
	}
	ck_reader_free(view->reader);
	ck_fdpool_free(view->pool);
	ck_plan_release(&view->plan);
	ck_proof_free(view->own_proof);
	ck_free(view->etag);
	pthread_mutex_destroy(&view->lock);
	ck_free(view);
}

uint64_t ck_vf_count(const struct ckpt_view *view)
{
	return view->plan.nfiles;
}

void ck_vf_get(const struct ckpt_view *view, uint64_t file, struct ckpt_view_file *out)
{
	const struct ck_outfile *f = &view->plan.file[file];

	*out = (struct ckpt_view_file){
		.name = f->name, .bytes = f->bytes, .ntensors = f->ntensors,
		.etag = view->etag[file].text,
	};
}

uint64_t ck_vf_overflows(const struct ckpt_view *view)
{
	return atomic_load(&view->overflows);
}

/* ------------------------------------------------------------------- tools of a thread */

static uint64_t seen_bytes(const struct ckpt_view *view)
{
	return view->ck->ix.nsources / 8 + 1;
}

static struct tool *tool_get(struct ckpt_view *view, struct ckpt_err *err)
{
	struct tool *t;

	pthread_mutex_lock(&view->lock);
	t = view->idle;
	if (t)
		view->idle = t->next;
	pthread_mutex_unlock(&view->lock);
	if (!t) {
		t = ck_alloc(sizeof(*t));
		if (t)
			t->seen = ck_alloc(seen_bytes(view));
		if (!t || !t->seen) {
			ck_free(t);
			ck_fail_nomem(err, "a buffer", sizeof(*t));
			return NULL;
		}
	}
	memset(t->seen, 0, seen_bytes(view));
	return t;
}

static void tool_put(struct ckpt_view *view, struct tool *t)
{
	pthread_mutex_lock(&view->lock);
	t->next = view->idle;
	view->idle = t;
	pthread_mutex_unlock(&view->lock);
}

/* ------------------------------------------------------------------- ranges */

static int check_range(const struct ckpt_view *view, uint64_t file, uint64_t off, uint64_t n,
		       struct ckpt_err *err)
{
	const struct ck_outfile *f = &view->plan.file[file];

	if (off <= f->bytes && n <= f->bytes - off)
		return 0;
	return ck_fail(err, CKPT_E_USAGE, f->name, off,
		       "cannot read %" PRIu64 " bytes here: the file has %" PRIu64 " bytes", n,
		       f->bytes);
}

/* The segment that holds byte 'off', which is within the file. */
static uint64_t segment_at(const struct ckpt_view *view, const struct ck_outfile *f, uint64_t off)
{
	const struct ck_seg *seg = &view->plan.seg[f->seg];
	uint64_t i;

	CK_LOWER_BOUND(i, f->nsegs, seg[i].off + seg[i].bytes <= off);
	return f->seg + i;
}

typedef int (*piece_fn)(struct ckpt_view *view, struct tool *t, const struct ck_seg *s,
			uint64_t skip, uint64_t n, uint8_t *dst, struct ckpt_err *err);

/* The range as pieces of segments, in order. */
static int walk(struct ckpt_view *view, struct tool *t, uint64_t file, uint64_t off, uint64_t n,
		uint8_t *buf, piece_fn fn, struct ckpt_err *err)
{
	const struct ck_outfile *f = &view->plan.file[file];
	uint64_t i = n ? segment_at(view, f, off) : 0, at = 0;
	int rc = 0;

	for (; !rc && at < n; i++) {
		const struct ck_seg *s = &view->plan.seg[i];
		const uint64_t skip = off + at - s->off;
		const uint64_t take = ck_min_u64(s->bytes - skip, n - at);

		if (take)
			rc = fn(view, t, s, skip, take, buf ? buf + at : NULL, err);
		at += take;
	}
	return rc;
}

/* ------------------------------------------------------------------- reading */

static int read_whole(struct ckpt_view *view, struct tool *t, const struct ck_seg *s,
		      uint64_t skip, uint64_t n, uint8_t *dst, struct ckpt_err *err)
{
	uint64_t over = 0;
	const int rc = ck_seg_read(&view->from, s, skip, n, dst, t->scratch, &over, err);

	if (over)
		atomic_fetch_add(&view->overflows, over);
	return rc;
}

/* Some bytes of one element. */
static int read_inside(struct ckpt_view *view, struct tool *t, const struct ck_seg *s,
		       uint64_t skip, uint64_t n, uint8_t *dst, struct ckpt_err *err)
{
	const uint64_t es = ck_seg_grain(s), in = skip % es;
	uint8_t element[16];
	const int rc = read_whole(view, t, s, skip - in, es, element, err);

	if (!rc)
		memcpy(dst, element + in, n);
	return rc;
}

static int read_piece(struct ckpt_view *view, struct tool *t, const struct ck_seg *s,
		      uint64_t skip, uint64_t n, uint8_t *dst, struct ckpt_err *err)
{
	const uint64_t es = ck_seg_grain(s);
	const uint64_t head = skip % es ? ck_min_u64(es - skip % es, n) : 0;
	const uint64_t middle = (n - head) / es * es, tail = n - head - middle;
	int rc = head ? read_inside(view, t, s, skip, head, dst, err) : 0;

	if (!rc && middle)
		rc = read_whole(view, t, s, skip + head, middle, dst + head, err);
	if (!rc && tail)
		rc = read_inside(view, t, s, skip + head + middle, tail, dst + head + middle, err);
	return rc;
}

/* ------------------------------------------------------------------- comparing */

/* From first run to last. */
static int need_span(struct ckpt_view *view, const struct ck_span *s, struct ckpt_err *err)
{
	uint64_t from, to;

	if (s->e->flags & CKPT_EXTENT_DEFLATED)	/* compared as it is inflated */
		return 0;
	if (s->e->flags & CKPT_EXTENT_GATHER)
		return ck_proof_need(view->proof, s->e->source, s->e->off, 1, err);
	ck_span_bytes(s, &from, &to);
	return ck_proof_need(view->proof, s->e->source, from, to - from, err);
}

static void mark(struct tool *t, uint32_t source)
{
	t->seen[source / 8] |= (uint8_t)(1u << source % 8);
}

/* Types under 8 bits: one extent, counted in bytes. */
static int visit_packed(struct ckpt_view *view, struct tool *t, const struct ck_state *state,
			uint64_t first, uint64_t count, bool need, struct ckpt_err *err)
{
	const struct ck_extent *e = ck_extent_stored(&view->ck->ix, state, 0);

	mark(t, e->source);
	return !need || e->flags & CKPT_EXTENT_DEFLATED ? 0 :
	       ck_proof_need(view->proof, e->source, e->off + first, count, err);
}

/* Elements of a state; marks the sources, and with 'need' compares. */
static int visit_state(struct ckpt_view *view, struct tool *t, uint32_t number, uint64_t first,
		       uint64_t count, bool need, struct ckpt_err *err)
{
	const struct ck_index *ix = &view->ck->ix;
	const struct ck_state *state = &ix->state[number];
	struct ck_spans spans;
	struct ck_span span;
	int rc = 0;

	if (ckpt_dtype_bits(state->dtype) < 8)
		return count && state->nstored ?
		       visit_packed(view, t, state, first, count, need, err) : 0;
	ck_spans_begin(&spans, ix, state, first, count);
	while (!rc && ck_spans_next(&spans, &span)) {
		mark(t, span.e->source);
		if (need)
			rc = need_span(view, &span, err);
	}
	return rc;
}

static int visit(struct ckpt_view *view, struct tool *t, const struct ck_seg *s, uint64_t skip,
		 uint64_t n, bool need, struct ckpt_err *err)
{
	const uint64_t es = ck_seg_grain(s), a = skip / es, b = (skip + n + es - 1) / es;

	return s->kind == CK_SEG_STATE ?
	       visit_state(view, t, s->state, s->first + a, b - a, need, err) : 0;
}

static int mark_piece(struct ckpt_view *view, struct tool *t, const struct ck_seg *s,
		      uint64_t skip, uint64_t n, uint8_t *dst, struct ckpt_err *err)
{
	(void)dst;
	if (s->kind == CK_SEG_FILE)
		return ck_fdpool_check_one(view->pool, s->text, err);
	return visit(view, t, s, skip, n, false, err);
}

static int need_piece(struct ckpt_view *view, struct tool *t, const struct ck_seg *s,
		      uint64_t skip, uint64_t n, uint8_t *dst, struct ckpt_err *err)
{
	(void)dst;
	return visit(view, t, s, skip, n, true, err);
}

/* The files that the read used are what they were; of a pack, the pack. */
static int check_seen(const struct ckpt_view *view, const struct tool *t, struct ckpt_err *err)
{
	const struct ck_index *ix = &view->ck->ix;
	int rc = 0;

	if (ck_fdpool_mount(view->ck->pool))
		return ck_fdpool_check(view->ck->pool, 0, err);
	for (uint64_t i = 0; !rc && i < ix->nsources; i++)
		if (t->seen[i / 8] >> i % 8 & 1)
			rc = ck_fdpool_check_one(view->ck->pool, ix->source[i].path, err);
	return rc;
}

/* A file that changed explains damage, and is named instead of it. */
static int explain(const struct ckpt_view *view, int rc, struct ckpt_err *err)
{
	return rc ? ck_fdpool_check(view->ck->pool, rc, err) : 0;
}

/* Reads n bytes of a file at off into buf; NULL: compares what they are made of with its sums. */
static int cover(struct ckpt_view *view, uint64_t file, uint64_t off, uint64_t n, uint8_t *buf,
		 struct ckpt_err *err)
{
	struct tool *t;
	int rc = check_range(view, file, off, n, err);

	if (rc || !n)
		return rc;
	t = tool_get(view, err);
	if (!t)
		return -CKPT_E_NOMEM;
	rc = walk(view, t, file, off, n, buf, buf ? read_piece : need_piece, err);
	if (!rc && buf)
		rc = walk(view, t, file, off, n, NULL, mark_piece, err);
	if (!rc)
		rc = check_seen(view, t, err);
	else
		rc = explain(view, rc, err);
	tool_put(view, t);
	return rc;
}

int ck_vf_read(struct ckpt_view *view, uint64_t file, uint64_t off, size_t n, void *buf,
	       struct ckpt_err *err)
{
	return cover(view, file, off, n, buf, err);
}

int ck_vf_check(struct ckpt_view *view, uint64_t file, uint64_t off, uint64_t n,
		struct ckpt_err *err)
{
	return cover(view, file, off, n, NULL, err);
}
