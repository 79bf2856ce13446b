/*
 * ck_crc_check.c -- see ck_crc_check.h.
 *
 * A piece is noted for every read.  They may come in any order, twice, or overlap (spans of strided
 * runs do): a member is walked from its first byte on, a piece that begins where the walk is
 * counts, and what no piece covers is read again.
 */
#include "libckpt/sums/ck_crc_check.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/ck_crc.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_hash.h"
#include "libckpt/base/ck_map.h"
#include "libckpt/base/ck_search.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/io/ck_src.h"
#include "libckpt/sums/ck_part_sums.h"
#include "libckpt/zip/ck_zip_row.h"

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
	uint64_t *cut;		/* where members begin and end, ascending; NULL = not known yet */
	uint64_t ncuts, cut_cap;
	bool whole;		/* every member is to be checked */
};

struct ck_crc_check {
	const struct ck_index *ix;
	const struct ckpt_limits *limits;
	struct seen_source *source;
	struct ck_map by_path;
	bool all;
};

int ck_crc_check_new(const struct ck_index *ix, const struct ckpt_limits *limits,
		     struct ck_crc_check **seen_out, struct ckpt_err *err)
{
	struct ck_crc_check *seen = ck_zalloc(sizeof(*seen));

	if (seen)
		seen->source = ck_zalloc((ix->nsources + 1) * sizeof(*seen->source));
	if (!seen || !seen->source) {
		ck_free(seen);
		return ck_fail_nomem(err, "checksums of files", ix->nsources);
	}
	seen->ix = ix;
	seen->limits = limits;
	for (uint64_t i = 0; i < ix->nsources; i++)
		pthread_mutex_init(&seen->source[i].lock, NULL);
	for (uint64_t i = 0; i < ix->nsources; i++) {
		const char *path = ix->source[i].path;

		if (ck_map_add(&seen->by_path, path, strlen(path), i, NULL, err) < 0) {
			ck_crc_check_free(seen);
			return -CKPT_E_NOMEM;
		}
	}
	*seen_out = seen;
	return 0;
}

void ck_crc_check_free(struct ck_crc_check *seen)
{
	if (!seen)
		return;
	for (uint64_t i = 0; i < seen->ix->nsources; i++) {
		pthread_mutex_destroy(&seen->source[i].lock);
		ck_free(seen->source[i].piece);
		ck_free(seen->source[i].cut);
	}
	ck_map_release(&seen->by_path);
	ck_free(seen->source);
	ck_free(seen);
}

/* The same answer by whichever thread finds it first. */
static int kind_of_source(const struct ck_crc_check *seen, uint32_t source, int *kind_out,
			  struct ckpt_err *err)
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

int ck_crc_check_add(struct ck_crc_check *seen, uint32_t source, uint64_t off, const void *p,
		     size_t n, struct ckpt_err *err)
{
	struct seen_source *s = &seen->source[source];
	struct ck_crc_piece piece = { .off = off, .bytes = n };
	int kind, rc = kind_of_source(seen, source, &kind, err);

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

/* ---- bytes of a file, which know nothing of members ---- */

static int by_number(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static int add_cuts(void *arg, const struct ck_zip *zip, struct ckpt_err *err)
{
	struct seen_source *s = arg;
	const uint64_t n = ck_zip_count(zip);
	int rc = ck_grow(&s->cut, &s->cut_cap, s->ncuts + 2 * n + 1, sizeof(*s->cut), err);

	for (uint64_t i = 0; !rc && i < n; i++) {
		const struct ck_zip_entry *e = ck_zip_entry_get(zip, i);
		uint64_t data;

		rc = e->method || !e->bytes ? 0 : ck_zip_data_offset(zip, e, &data, err);
		if (rc || e->method || !e->bytes)
			continue;
		s->cut[s->ncuts++] = data;
		s->cut[s->ncuts++] = data + e->bytes;
	}
	return rc;
}

/* Under the source's lock. */
static int find_cuts(const struct ck_crc_check *seen, struct seen_source *s, struct ck_src *src,
		     struct ckpt_err *err)
{
	const int rc = ck_zip_each(src, seen->limits, add_cuts, s, err);

	if (s->ncuts)
		qsort(s->cut, s->ncuts, sizeof(*s->cut), by_number);
	return rc;
}

/* The first cut after 'off', or 'end'. */
static uint64_t next_cut(const struct seen_source *s, uint64_t off, uint64_t end)
{
	uint64_t i;

	CK_LOWER_BOUND(i, s->ncuts, s->cut[i] <= off);
	return i < s->ncuts ? ck_min_u64(s->cut[i], end) : end;
}

int ck_crc_check_add_raw(struct ck_crc_check *seen, uint32_t source, uint64_t off, const void *p,
			 size_t n, struct ckpt_err *err)
{
	struct seen_source *s = &seen->source[source];
	const uint8_t *from = p;
	const uint64_t end = off + n;
	int kind, rc = kind_of_source(seen, source, &kind, err);

	if (rc || kind != ARCHIVE)
		return rc;
	pthread_mutex_lock(&s->lock);
	if (!s->cut)
		rc = find_cuts(seen, s, seen->ix->source[source].src, err);
	pthread_mutex_unlock(&s->lock);
	while (!rc && off < end) {
		const uint64_t to = next_cut(s, off, end);

		rc = ck_crc_check_add(seen, source, off, from, from ? to - off : 0, err);
		from += from ? to - off : 0;
		off = to;
	}
	return rc;
}

bool ck_crc_check_source(const struct ck_crc_check *seen, const char *path, uint32_t *source_out)
{
	uint64_t i;

	if (!ck_map_find(&seen->by_path, path, strlen(path), &i))
		return false;
	*source_out = (uint32_t)i;
	return true;
}

void ck_crc_check_all(struct ck_crc_check *seen)
{
	seen->all = true;
}

void ck_crc_check_whole(struct ck_crc_check *seen, uint32_t source)
{
	seen->source[source].whole = true;
}

/* ------------------------------------------------------------------------ checking */

struct checking {
	const struct seen_source *s;
	struct ck_src *src;
	const struct ck_crc_check_ask *ask;
	bool all;
	uint32_t source;
	ck_crc_check_fn fn;
	void *arg;
	uint8_t *buf;		/* WINDOW */
	uint64_t at, end;	/* the walk through a member */
	uint64_t next;		/* piece */
};

/* The first piece that begins at 'off' or behind. */
static uint64_t piece_at(const struct seen_source *s, uint64_t off)
{
	uint64_t i;

	CK_LOWER_BOUND(i, s->n, s->piece[i].off < off);
	return i;
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

/* Was a certain byte of [data, data + bytes) read? */
static bool is_witnessed(const struct seen_source *s, uint64_t data, uint64_t bytes)
{
	const uint64_t at = data + ck_hash64(&data, sizeof(data)) % bytes;
	uint64_t i = piece_at(s, at + 1);

	while (i > 0 && s->piece[i - 1].off >= data) {
		i--;
		if (s->piece[i].bytes > at - s->piece[i].off)
			return true;
	}
	return false;
}

/* How much of a member may be read for its checksum alone, if 'read' bytes of it have passed. */
static uint64_t most_of(const struct checking *c, uint64_t data, uint64_t bytes, uint64_t read)
{
	switch (c->ask->rest) {
	case CK_CRC_CHECK_ALONE:
		return ck_max_u64(SPARE_BYTES, read);
	case CK_CRC_CHECK_WHOLE:
		return bytes;
	case CK_CRC_CHECK_WITNESS:
		return is_witnessed(c->s, data, bytes) ? bytes : read / 8;
	default:
		return read / 8;
	}
}

/* ---- a member that parts of a run share ---- */

/* Who answers for what of it. */
struct sharing {
	uint64_t left;		/* bytes that no part reads */
	uint32_t near;		/* the first that reads any of it; CK_NONE = none does */
	uint32_t rest;		/* who reads what is left; CK_NONE = nothing is */
	bool many;
};

static void look_at_shares(const struct checking *c, uint64_t data, uint64_t bytes,
			   struct sharing *out)
{
	uint32_t part;

	*out = (struct sharing){ .near = CK_NONE, .rest = CK_NONE };
	for (uint64_t at = data, to; at < data + bytes; at = to) {
		to = ck_claims_stretch(c->ask->claims, c->source, at, data + bytes, &part);
		if (part == CK_NONE)
			out->left += to - at;
		else if (out->near == CK_NONE)
			out->near = part;
		else
			out->many |= part != out->near;
	}
}

static int sum_stretches(struct checking *c, const struct sharing *s, uint64_t data,
			 uint64_t bytes, uint64_t number, struct ckpt_err *err)
{
	struct ck_part_sums *share = c->ask->share;
	uint32_t part, crc;
	int rc = 0;

	for (uint64_t at = data, to; !rc && at < data + bytes; at = to) {
		to = ck_claims_stretch(c->ask->claims, c->source, at, data + bytes, &part);
		if ((part == CK_NONE ? s->rest : part) != share->part)
			continue;
		rc = sum_member(c, at, to - at, &crc, err);
		if (!rc)
			rc = ck_part_sums_crc(share, number, at - data, to - at, crc, err);
	}
	return rc;
}

static int want_crc(struct ck_part_sums *share, uint64_t number,
		    const struct ck_crc_check_member *m, struct ckpt_err *err)
{
	struct ck_findings finding = { .as_warning = share->as_warning };
	int rc;

	ck_findings_add(&finding, CK_FINDING_CRC_WRONG, m->path,
			"the bytes of '%s' do not match the CRC-32 %08x in the archive: they "
			"changed after they were written", m->name, m->want);
	rc = ck_part_sums_want_crc(share, number, m->bytes, m->want, &finding, err);
	ck_findings_release(&finding);
	return rc;
}

/* All parts come here in the same order.  'm' has all but the sum. */
static int check_shared(struct checking *c, struct ck_crc_check_member *m, struct ckpt_err *err)
{
	struct ck_part_sums *share = c->ask->share;
	struct sharing s;
	uint64_t number;
	int rc;

	look_at_shares(c, m->off, m->bytes, &s);
	if (!c->all && s.left > ck_max_u64(SPARE_BYTES, m->bytes - s.left))
		return 0;
	if (s.left)
		s.rest = ck_part_sums_rest(share, s.left, s.near);
	if (!s.many && (s.near == CK_NONE || s.rest == CK_NONE || s.near == s.rest)) {
		if ((s.near == CK_NONE ? s.rest : s.near) != share->part)
			return 0;
		rc = sum_member(c, m->off, m->bytes, &m->crc, err);
		return rc ? rc : c->fn(c->arg, m, err);
	}
	number = share->next++;
	rc = sum_stretches(c, &s, m->off, m->bytes, number, err);
	return rc || share->part ? rc : want_crc(share, number, m, err);
}

static int check_entry(struct checking *c, const struct ck_zip *zip,
		       const struct ck_zip_entry *e, struct ckpt_err *err)
{
	struct ck_crc_check_member m = {
		.path = ck_src_name(c->src), .name = e->name, .source = c->source,
		.bytes = e->bytes, .want = e->crc,
	};
	uint64_t data, left;
	int rc;

	if (e->method || !e->bytes || !e->crc ||
	    (!c->all && !is_touched(c->s, e->header, e->header + LOCAL_MOST + e->bytes)))
		return 0;
	rc = ck_zip_data_offset(zip, e, &data, err);
	if (rc || (!c->all && !is_touched(c->s, data, data + e->bytes)))
		return rc;
	m.off = data;
	if (c->ask->rest == CK_CRC_CHECK_SHARE)
		return check_shared(c, &m, err);
	left = left_of(c, data, e->bytes);
	if (!c->all && left > most_of(c, data, e->bytes, e->bytes - left))
		return 0;
	m.read = e->bytes - left;
	m.again = left;
	rc = sum_member(c, data, e->bytes, &m.crc, err);
	return rc ? rc : c->fn(c->arg, &m, err);
}

static int check_archive(void *arg, const struct ck_zip *zip, struct ckpt_err *err)
{
	int rc = 0;

	for (uint64_t i = 0; !rc && i < ck_zip_count(zip); i++)
		rc = check_entry(arg, zip, ck_zip_entry_get(zip, i), err);
	return rc;
}

/* 'ask' is complete but for the source. */
static int check_source(struct ck_crc_check *seen, uint32_t source, const struct checking *ask,
			struct ckpt_err *err)
{
	struct seen_source *s = &seen->source[source];
	struct checking c = *ask;
	int kind, rc;

	c.s = s;
	c.src = seen->ix->source[source].src;
	c.source = source;
	c.all = seen->all || s->whole;
	if (!s->n && !c.all)
		return 0;
	rc = kind_of_source(seen, source, &kind, err);
	if (rc || kind != ARCHIVE)
		return rc;
	if (s->n)
		qsort(s->piece, s->n, sizeof(*s->piece), ck_crc_order);
	c.buf = ck_alloc(WINDOW);
	if (!c.buf)
		return ck_fail_nomem(err, "a buffer", WINDOW);
	rc = ck_zip_each(c.src, seen->limits, check_archive, &c, err);
	ck_free(c.buf);
	return rc;
}

int ck_crc_check_each(struct ck_crc_check *seen, const struct ck_crc_check_ask *ask,
		      ck_crc_check_fn fn, void *arg, struct ckpt_err *err)
{
	const struct checking c = { .ask = ask, .fn = fn, .arg = arg };
	int rc = 0;

	for (uint32_t i = 0; !rc && i < seen->ix->nsources; i++)
		rc = check_source(seen, i, &c, err);
	return rc;
}

static int add_finding(void *arg, const struct ck_crc_check_member *m, struct ckpt_err *err)
{
	struct ck_findings *findings = arg;

	(void)err;
	if (m->crc != m->want)
		ck_findings_add(findings, CK_FINDING_CRC_WRONG, m->path,
				"the bytes of '%s' have the CRC-32 %08x, the archive says %08x: "
				"they changed after they were "
				"written", m->name, m->crc, m->want);
	return 0;
}

int ck_crc_check_check(struct ck_crc_check *seen, const struct ck_crc_check_ask *ask,
		       struct ck_findings *findings, struct ckpt_err *err)
{
	const struct ckpt_finding *f;
	const int rc = ck_crc_check_each(seen, ask, add_finding, findings, err);

	if (rc)
		return rc;
	f = ck_findings_worst(findings, CKPT_ERROR);
	return f ? ck_findings_fail(f, err) : 0;
}
