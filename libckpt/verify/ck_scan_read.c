/*
 * ck_scan_read.c -- see ck_scan.h: every byte, once.
 *
 * A job is a piece of a file.  CRCs of pieces are put together at the end; a file's hash goes on
 * from piece to piece, so a thread that has read one waits for the piece before it.  Jobs are
 * handed out in order: that one is at work or done.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/ck_crc.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_pool.h"
#include "libckpt/base/ck_search.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/verify/ck_scan.h"
#include "libckpt/verify/ck_scan_priv.h"
#include "libckpt/zip/ck_zip_row.h"

#define PIECE_MOST ((uint64_t)1024 << 10)
#define PIECE_LEAST ((uint64_t)64 << 10)

struct reading {
	struct ck_scan *scan;
	struct ck_copy_check *watch;
	uint64_t piece;
	uint8_t **buf;		/* per thread */
	struct ck_scan_file **by_source;
	uint64_t njobs, total, done;
	pthread_mutex_t lock;	/* guards turns, 'done' and the progress call */
	pthread_cond_t turned;
};

/* The file that job belongs to. */
static struct ck_scan_file *file_of(const struct ck_scan *scan, uint64_t job)
{
	uint64_t i;

	CK_LOWER_BOUND(i, scan->n, scan->file[i].first_job <= job);
	return &scan->file[i ? i - 1 : 0];
}

/* The first member that ends behind 'off'. */
static uint64_t member_at(const struct ck_scan_file *f, uint64_t off)
{
	uint64_t i;

	CK_LOWER_BOUND(i, f->nmembers, f->member[i].off + f->member[i].bytes <= off);
	return i;
}

static int keep(struct reading *r, struct ck_scan_file *f, const struct ck_crc_piece *piece,
		struct ckpt_err *err)
{
	int rc;

	pthread_mutex_lock(&r->lock);
	rc = ck_grow(&f->crc, &f->crc_cap, f->ncrcs + 1, sizeof(*piece), err);
	if (!rc)
		f->crc[f->ncrcs++] = *piece;
	pthread_mutex_unlock(&r->lock);
	return rc;
}

static int sum_piece(struct reading *r, struct ck_scan_file *f, uint64_t off, const uint8_t *p,
		     uint64_t n, struct ckpt_err *err)
{
	int rc = 0;

	for (uint64_t i = member_at(f, off); !rc && i < f->nmembers; i++) {
		const struct ck_scan_member *m = &f->member[i];
		struct ck_crc_piece piece;
		const uint64_t a = ck_max_u64(off, m->off);
		const uint64_t b = ck_min_u64(off + n, m->off + m->bytes);

		if (m->off >= off + n)
			break;
		if (!m->crc)
			continue;
		piece = (struct ck_crc_piece){
			.off = a - m->off, .bytes = b - a, .slot = (uint32_t)i,
			.crc = ck_zip_crc32(0, p + (a - off), (size_t)(b - a)),
		};
		rc = keep(r, f, &piece, err);
	}
	return rc;
}

static int sum_claimed(void *arg, uint32_t source, uint64_t off, const void *p, uint64_t n,
		       struct ckpt_err *err)
{
	struct reading *r = arg;

	if (r->scan->passed)
		ck_sum_check_add(r->scan->passed, source, off, p, n);
	return sum_piece(r, r->by_source[source], off, p, n, err);
}

/* ------------------------------------------------------------------------- pieces */

static bool is_canceled(const struct reading *r)
{
	const volatile int *cancel = r->scan->opts->cancel;

	return cancel && __atomic_load_n(cancel, __ATOMIC_RELAXED);
}

static void tell_progress(struct reading *r, uint64_t n)
{
	const struct ckpt_run_opts *o = r->scan->opts;

	pthread_mutex_lock(&r->lock);
	r->done += n;
	if (o->progress) {
		const struct ckpt_progress p = { .done_bytes = r->done, .total_bytes = r->total };

		o->progress(o->progress_arg, &p);
	}
	pthread_mutex_unlock(&r->lock);
}

static int hash_piece(struct reading *r, struct ck_scan_file *f, uint64_t number,
		      const uint8_t *p, uint64_t n, struct ckpt_err *err)
{
	bool ok;

	pthread_mutex_lock(&r->lock);
	while (!f->failed && f->turn != number)
		pthread_cond_wait(&r->turned, &r->lock);
	ok = !f->failed;
	pthread_mutex_unlock(&r->lock);
	if (!ok)
		return ck_fail(err, CKPT_E_CANCELED, f->file->path, CKPT_NO_OFFSET,
			       "an earlier piece of the file could not be read");
	ck_hasher_add(f->hasher, p, (size_t)n);
	pthread_mutex_lock(&r->lock);
	f->turn++;
	pthread_cond_broadcast(&r->turned);
	pthread_mutex_unlock(&r->lock);
	return 0;
}

/* Bytes that nothing else reads. */
static int read_run(struct reading *r, struct ck_scan_file *f, uint64_t number, uint32_t worker,
		    uint64_t off, uint64_t n, struct ckpt_err *err)
{
	uint8_t *p = r->buf[worker];
	int rc = ck_src_read(f->src, off, p, (size_t)n, err);

	if (!rc)
		rc = sum_piece(r, f, off, p, n, err);
	if (!rc && f->hasher)
		rc = hash_piece(r, f, number, p, n, err);
	if (!rc && f->file->source != CK_NONE && r->scan->passed)
		ck_sum_check_add(r->scan->passed, f->file->source, off, p, n);
	if (!rc && f->file->source != CK_NONE)
		rc = ck_copy_check_bytes(r->watch, worker, f->file->source, off, p, n, err);
	return rc;
}

static int read_piece(struct reading *r, struct ck_scan_file *f, uint64_t number,
		      uint32_t worker, struct ckpt_err *err)
{
	const uint64_t off = number * r->piece;
	const uint64_t end = ck_min_u64(off + r->piece, f->file->bytes);
	uint64_t from = off, to = off;
	int rc = 0;

	if (is_canceled(r))
		return ck_fail(err, CKPT_E_CANCELED, NULL, CKPT_NO_OFFSET, "the run was canceled");
	while (!rc && ck_copy_check_free_run(r->watch, f->file->source, to, end, &from, &to))
		rc = read_run(r, f, number, worker, from, to - from, err);
	if (!rc)
		tell_progress(r, end - off);
	return rc;
}

static int piece_job(void *arg, uint64_t job, uint32_t worker, struct ckpt_err *err)
{
	struct reading *r = arg;
	struct ck_scan_file *f = file_of(r->scan, job);
	const int rc = read_piece(r, f, job - f->first_job, worker, err);

	if (rc) {
		pthread_mutex_lock(&r->lock);
		f->failed = true;
		pthread_cond_broadcast(&r->turned);
		pthread_mutex_unlock(&r->lock);
	}
	return rc;
}

/* -------------------------------------------------------------------------- members */

#define MOST_NAMED 20u

/* An entry by its number over all archives of a file. */
struct naming {
	uint64_t left;
	char name[128];
};

static int find_name(void *arg, const struct ck_zip *zip, struct ckpt_err *err)
{
	struct naming *n = arg;

	(void)err;
	if (n->left < ck_zip_count(zip)) {
		snprintf(n->name, sizeof(n->name), "%s", ck_zip_entry_get(zip, n->left)->name);
		return 1;
	}
	n->left -= ck_zip_count(zip);
	return 0;
}

static void tell_wrong(struct ck_scan *scan, const struct ck_scan_file *f, uint32_t entry,
		       uint32_t have, uint32_t want)
{
	struct naming n = { .left = entry };

	snprintf(n.name, sizeof(n.name), "record %u", entry);
	/* The first few have a name: to find one all archives before it are opened. */
	if (scan->ck->findings.of_kind[CK_FINDING_CRC_WRONG] < MOST_NAMED)
		(void)ck_zip_each(f->src, &scan->ck->limits, find_name, &n, NULL);
	ck_findings_add(&scan->ck->findings, CK_FINDING_CRC_WRONG, f->file->path,
			"the bytes of '%s' have the CRC-32 %08x, the archive says %08x: "
			"they changed after they were written", n.name, have, want);
}

static int check_members(struct ck_scan *scan, struct ck_scan_file *f, struct ckpt_err *err)
{
	const uint64_t n = f->ncrcs;
	uint64_t at = 0;

	if (n)
		qsort(f->crc, n, sizeof(*f->crc), ck_crc_order);
	for (uint64_t i = 0; i < f->nmembers; i++) {
		const struct ck_scan_member *m = &f->member[i];
		uint64_t end = at;
		uint32_t crc = 0;
		int rc;

		scan->counts.unsummed += !m->crc;
		if (!m->crc)
			continue;
		while (end < n && f->crc[end].slot == i)
			end++;
		rc = ck_crc_join(f->crc + at, end - at, m->bytes, &crc, err);
		if (rc)
			return rc;
		scan->counts.members++;
		if (crc != m->crc)
			tell_wrong(scan, f, m->entry, crc, m->crc);
		at = end;
	}
	return 0;
}

static int check_one_packed(struct ck_scan *scan, const struct ck_scan_file *f,
			    const struct ck_zip *zip, const struct ck_zip_entry *e,
			    struct ckpt_err *err)
{
	uint8_t *data = NULL;
	int rc = ck_zip_read_within(zip, e, scan->ck->limits.inflate_bytes, "inflate_bytes",
				    &data, err);

	if (!rc)
		ck_free(data);
	scan->counts.members += e->crc != 0;
	scan->counts.unsummed += !e->crc;
	if (rc != -CKPT_E_CORRUPT && rc != -CKPT_E_TRUNCATED)
		return rc;
	ck_findings_add(&scan->ck->findings, CK_FINDING_CRC_WRONG, f->file->path, "'%s': %s",
			e->name, err->msg);
	ck_err_clear(err);
	return 0;
}

struct packed {
	struct ck_scan *scan;
	const struct ck_scan_file *f;
	uint64_t next, first;	/* of f->packed; number of the archive's first entry */
};

static int check_packed_of(void *arg, const struct ck_zip *zip, struct ckpt_err *err)
{
	struct packed *p = arg;
	const struct ck_scan_file *f = p->f;
	const uint64_t end = p->first + ck_zip_count(zip);
	int rc = 0;

	for (; !rc && p->next < f->npacked && f->packed[p->next] < end; p->next++)
		rc = check_one_packed(p->scan, f, zip,
				      ck_zip_entry_get(zip, f->packed[p->next] - p->first), err);
	p->first = end;
	return rc;
}

/* Deflated members as wholes, one at a time: each is held in memory. */
static int check_packed(struct ck_scan *scan, const struct ck_scan_file *f, struct ckpt_err *err)
{
	struct packed p = { .scan = scan, .f = f };

	return f->npacked ? ck_zip_each(f->src, &scan->ck->limits, check_packed_of, &p, err) : 0;
}

/* ----------------------------------------------------------------------------- all */

/* What is read: the checkpoint's files, archives, and for hashes everything. */
static int prepare(struct reading *r, bool hash, struct ckpt_err *err)
{
	struct ck_scan *scan = r->scan;

	for (uint64_t i = 0; i < scan->n; i++) {
		struct ck_scan_file *f = &scan->file[i];
		const bool read = hash || f->file->source != CK_NONE || f->nmembers;

		f->first_job = r->njobs;
		f->njobs = read ? (f->file->bytes + r->piece - 1) / r->piece : 0;
		r->njobs += f->njobs;
		r->total += read ? f->file->bytes : 0;
		scan->counts.files += read;
		if (f->file->source != CK_NONE)
			r->by_source[f->file->source] = f;
		if (hash)
			f->hasher = ck_hasher_new();
		if (hash && !f->hasher)
			return ck_fail_nomem(err, "a hash", 0);
	}
	scan->counts.read_bytes = r->total;
	/* a file's hash needs its bytes in order */
	return hash ? 0 : ck_copy_check_claim(r->watch, sum_claimed, r, err);
}

static int run(struct reading *r, struct ckpt_err *err)
{
	const uint32_t threads = r->scan->opts->threads;
	int rc = 0;

	r->buf = ck_zalloc(threads * sizeof(*r->buf));
	if (!r->buf)
		return ck_fail_nomem(err, "buffers", threads);
	for (uint32_t i = 0; !rc && i < threads; i++) {
		r->buf[i] = ck_alloc((size_t)r->piece);
		if (!r->buf[i])
			rc = ck_fail_nomem(err, "buffers", r->piece);
	}
	if (!rc)
		rc = ck_pool_run(threads, r->njobs, piece_job, r, err);
	for (uint32_t i = 0; i < threads; i++)
		ck_free(r->buf[i]);
	ck_free(r->buf);
	return rc;
}

int ck_scan_read(struct ck_scan *scan, struct ck_copy_check *watch, bool hash, struct ckpt_err *err)
{
	const uint64_t share = scan->opts->mem_limit / ck_max_u64(scan->opts->threads, 1) / 2;
	struct reading r = {
		.scan = scan, .watch = watch,
		.piece = ck_max_u64(PIECE_LEAST, ck_min_u64(PIECE_MOST, share)),
	};
	int rc;

	pthread_mutex_init(&r.lock, NULL);
	pthread_cond_init(&r.turned, NULL);
	r.by_source = ck_zalloc((scan->ck->ix.nsources + 1) * sizeof(*r.by_source));
	rc = r.by_source ? prepare(&r, hash, err) :
			   ck_fail_nomem(err, "a list of files", scan->ck->ix.nsources);
	ck_fdpool_set_drop(scan->ck->pool, true);
	if (!rc)
		rc = run(&r, err);
	ck_fdpool_set_drop(scan->ck->pool, false);
	for (uint64_t i = 0; !rc && i < scan->n; i++) {
		rc = check_members(scan, &scan->file[i], err);
		if (!rc)
			rc = check_packed(scan, &scan->file[i], err);
		if (!rc && hash)
			scan->file[i].hash = ck_hasher_sum(scan->file[i].hasher);
	}
	ck_free(r.by_source);
	pthread_cond_destroy(&r.turned);
	pthread_mutex_destroy(&r.lock);
	return rc;
}
