/*
 * ck_seen.c -- see ck_seen.h.
 *
 * A piece is noted for every read.  They may come in any order, twice, or overlap (spans of strided
 * runs do): a member is walked from its first byte on, a piece that begins where the walk stands
 * counts, and what no piece covers is read again.
 */
#include "libckpt/ops/ck_seen.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/ck_crc.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_map.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/io/ck_src.h"
#include "libckpt/zip/ck_zip.h"

#define WINDOW ((size_t)256 << 10)
#define SPARE_BYTES ((uint64_t)64 << 20)	/* that are read for a checksum alone */
#define LOCAL_MOST (30 + 2 * 65535)	/* bytes of a local header */

enum kind {
	UNKNOWN = 0,
	ARCHIVE,
	OTHER,
};

struct seen_source {
	_Atomic int kind;
	pthread_mutex_t lock;
	struct ck_crc_piece *piece;
	uint64_t n, cap;
};

struct ck_seen {
	const struct ck_index *ix;
	struct seen_source *source;
	struct ck_map by_path;
	bool all;
};

int ck_seen_new(const struct ck_index *ix, struct ck_seen **seen_out, struct ckpt_err *err)
{
	struct ck_seen *seen = ck_zalloc(sizeof(*seen));

	if (seen)
		seen->source = ck_zalloc((ix->nsources + 1) * sizeof(*seen->source));
	if (!seen || !seen->source) {
		ck_free(seen);
		return ck_fail_nomem(err, "checksums of files", ix->nsources);
	}
	seen->ix = ix;
	for (uint64_t i = 0; i < ix->nsources; i++)
		pthread_mutex_init(&seen->source[i].lock, NULL);
	for (uint64_t i = 0; i < ix->nsources; i++) {
		const char *path = ix->source[i].path;

		if (ck_map_add(&seen->by_path, path, strlen(path), i, NULL, err) < 0) {
			ck_seen_free(seen);
			return -CKPT_E_NOMEM;
		}
	}
	*seen_out = seen;
	return 0;
}

void ck_seen_free(struct ck_seen *seen)
{
	if (!seen)
		return;
	for (uint64_t i = 0; i < seen->ix->nsources; i++) {
		pthread_mutex_destroy(&seen->source[i].lock);
		ck_free(seen->source[i].piece);
	}
	ck_map_release(&seen->by_path);
	ck_free(seen->source);
	ck_free(seen);
}

/* The same answer by whichever thread finds it first. */
static int look(const struct ck_seen *seen, uint32_t source, int *kind_out, struct ckpt_err *err)
{
	struct seen_source *s = &seen->source[source];
	struct ck_src *src = seen->ix->source[source].src;
	uint8_t head[4] = { 0 };
	int rc;

	*kind_out = atomic_load(&s->kind);
	if (*kind_out != UNKNOWN)
		return 0;
	rc = ck_src_read(src, 0, head, (size_t)ck_min_u64(sizeof(head), ck_src_size(src)), err);
	if (!rc) {
		*kind_out = memcmp(head, "PK\3\4", 4) ? OTHER : ARCHIVE;
		atomic_store(&s->kind, *kind_out);
	}
	return rc;
}

int ck_seen_add(struct ck_seen *seen, uint32_t source, uint64_t off, const void *p, size_t n,
		struct ckpt_err *err)
{
	struct seen_source *s = &seen->source[source];
	struct ck_crc_piece piece = { .off = off, .bytes = n };
	int kind, rc = look(seen, source, &kind, err);

	if (rc || kind != ARCHIVE)
		return rc;
	if (n)
		piece.crc = ck_zip_crc32(0, p, n);
	pthread_mutex_lock(&s->lock);
	rc = ck_grow(&s->piece, &s->cap, s->n + 1, sizeof(*s->piece), err);
	if (!rc)
		s->piece[s->n++] = piece;
	pthread_mutex_unlock(&s->lock);
	return rc;
}

int ck_seen_add_file(struct ck_seen *seen, const char *path, uint64_t off, const void *p, size_t n,
		     struct ckpt_err *err)
{
	uint64_t i;

	if (!ck_map_find(&seen->by_path, path, strlen(path), &i))
		return 0;
	return ck_seen_add(seen, (uint32_t)i, off, p, n, err);
}

void ck_seen_all(struct ck_seen *seen)
{
	seen->all = true;
}

/* ------------------------------------------------------------------------ checking */

struct checking {
	const struct seen_source *s;
	struct ck_src *src;
	bool alone, all;
	uint32_t source;
	ck_seen_fn fn;
	void *arg;
	uint8_t *buf;		/* WINDOW */
	uint64_t at, end;	/* the walk through a member */
	uint64_t next;		/* piece */
};

/* The first piece that begins at 'off' or behind. */
static uint64_t piece_at(const struct seen_source *s, uint64_t off)
{
	uint64_t lo = 0, hi = s->n;

	while (lo < hi) {
		const uint64_t mid = lo + (hi - lo) / 2;

		if (s->piece[mid].off < off)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

/*
 * The next stretch of the member: a piece, or NULL and how far none reaches.  False at the end.
 */
static bool walk(struct checking *c, const struct ck_crc_piece **piece_out, uint64_t *n_out)
{
	const struct seen_source *s = c->s;
	uint64_t to = c->end;

	if (c->at == c->end)
		return false;
	for (; c->next < s->n && s->piece[c->next].off < c->end; c->next++) {
		const struct ck_crc_piece *p = &s->piece[c->next];

		if (p->off < c->at || !p->bytes || p->bytes > c->end - p->off)
			continue;
		if (p->off == c->at) {
			*piece_out = p;
			*n_out = p->bytes;
			c->at += p->bytes;
			c->next++;
			return true;
		}
		to = p->off;
		break;
	}
	*piece_out = NULL;
	*n_out = to - c->at;
	c->at = to;
	return true;
}

static void begin_walk(struct checking *c, uint64_t data, uint64_t bytes)
{
	c->at = data;
	c->end = data + bytes;
	c->next = piece_at(c->s, data);
}

static int sum_again(struct checking *c, uint64_t off, uint64_t n, uint32_t *crc,
		     struct ckpt_err *err)
{
	int rc = 0;

	for (uint64_t i = 0; !rc && i < n; i += WINDOW) {
		const size_t k = (size_t)ck_min_u64(WINDOW, n - i);

		rc = ck_src_read(c->src, off + i, c->buf, k, err);
		if (!rc)
			*crc = ck_zip_crc32(*crc, c->buf, k);
	}
	return rc;
}

static int sum_member(struct checking *c, uint64_t data, uint64_t bytes, uint32_t *crc_out,
		      struct ckpt_err *err)
{
	const struct ck_crc_piece *p;
	struct ck_crc_shift shift = { 0 };
	uint64_t n;

	*crc_out = 0;
	begin_walk(c, data, bytes);
	while (walk(c, &p, &n)) {
		const int rc = p ? 0 : sum_again(c, c->at - n, n, crc_out, err);

		if (rc)
			return rc;
		if (p)
			*crc_out = ck_crc_append(*crc_out, p->crc, n, &shift);
	}
	return 0;
}

/* Bytes of a member that were not read; all of them if none was. */
static uint64_t left_of(struct checking *c, uint64_t data, uint64_t bytes)
{
	const struct ck_crc_piece *p;
	uint64_t n, left = 0;

	begin_walk(c, data, bytes);
	while (walk(c, &p, &n))
		left += p ? 0 : n;
	return left;
}

static bool is_touched(const struct seen_source *s, uint64_t from, uint64_t to)
{
	const uint64_t i = piece_at(s, from);

	return i < s->n && s->piece[i].off < to;
}

static int check_entry(struct checking *c, const struct ck_zip *zip,
		       const struct ck_zip_entry *e, struct ckpt_err *err)
{
	struct ck_seen_member m = {
		.path = ck_src_name(c->src), .name = e->name, .source = c->source,
		.bytes = e->bytes, .want = e->crc,
	};
	uint64_t data, left, most;
	int rc;

	if (e->method || !e->bytes || !e->crc ||
	    (!c->all && !is_touched(c->s, e->header, e->header + LOCAL_MOST + e->bytes)))
		return 0;
	rc = ck_zip_data_offset(zip, e, &data, err);
	if (rc || (!c->all && !is_touched(c->s, data, data + e->bytes)))
		return rc;
	left = left_of(c, data, e->bytes);
	most = c->alone ? ck_max_u64(SPARE_BYTES, e->bytes - left) : (e->bytes - left) / 8;
	if (!c->all && left > most)
		return 0;
	m.off = data;
	m.read = e->bytes - left;
	m.again = left;
	rc = sum_member(c, data, e->bytes, &m.crc, err);
	return rc ? rc : c->fn(c->arg, &m, err);
}

/* 'ask' is complete but for the source. */
static int check_source(struct ck_seen *seen, uint32_t source, const struct ckpt_limits *limits,
			const struct checking *ask, struct ckpt_err *err)
{
	struct seen_source *s = &seen->source[source];
	struct checking c = *ask;
	struct ck_zip *zip;
	int kind, rc;

	c.s = s;
	c.src = seen->ix->source[source].src;
	c.source = source;
	if (!s->n && !seen->all)
		return 0;
	rc = look(seen, source, &kind, err);
	if (rc || kind != ARCHIVE)
		return rc;
	if (s->n)
		qsort(s->piece, s->n, sizeof(*s->piece), ck_crc_order);
	rc = ck_zip_open(c.src, limits, &zip, err);
	if (rc)
		return rc;
	c.buf = ck_alloc(WINDOW);
	if (!c.buf)
		rc = ck_fail_nomem(err, "a buffer", WINDOW);
	for (uint64_t i = 0; !rc && i < ck_zip_count(zip); i++)
		rc = check_entry(&c, zip, ck_zip_entry_get(zip, i), err);
	ck_free(c.buf);
	ck_zip_close(zip);
	return rc;
}

int ck_seen_each(struct ck_seen *seen, const struct ckpt_limits *limits, bool alone, ck_seen_fn fn,
		 void *arg, struct ckpt_err *err)
{
	const struct checking ask = { .alone = alone, .all = seen->all, .fn = fn, .arg = arg };
	int rc = 0;

	for (uint32_t i = 0; !rc && i < seen->ix->nsources; i++)
		rc = check_source(seen, i, limits, &ask, err);
	return rc;
}

static int add_finding(void *arg, const struct ck_seen_member *m, struct ckpt_err *err)
{
	struct ck_findings *findings = arg;

	(void)err;
	if (m->crc != m->want)
		ck_findings_add(findings, CK_FINDING_CRC_WRONG, m->path,
				"the bytes of '%s' have the CRC-32 %08x, the archive says %08x: "
				"they changed after they were written", m->name, m->crc, m->want);
	return 0;
}

int ck_seen_check(struct ck_seen *seen, const struct ckpt_limits *limits, bool alone,
		  struct ck_findings *findings, struct ckpt_err *err)
{
	const struct ckpt_finding *f;
	const int rc = ck_seen_each(seen, limits, alone, add_finding, findings, err);

	if (rc)
		return rc;
	f = ck_findings_worst(findings, CKPT_ERROR);
	return f ? ck_findings_fail(f, err) : 0;
}
