/* ck_source_sums.c -- see ck_source_sums.h. */
#include "libckpt/commit/ck_source_sums.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/ck_crc.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_hash.h"
#include "libckpt/base/ck_sys.h"

#define MAX_DIMS 64u

struct joined {
	const struct ck_commit *c;
	struct ck_record_sum *note;	/* by number, kind, then offset */
	uint64_t n, cap;
};

/* Notes of one number. */
struct group {
	const struct ck_record_sum *note;
	uint64_t n;
};

static int read_part(struct joined *j, uint32_t part, struct ckpt_err *err)
{
	char *path = ck_commit_record_path(j->c, part);
	struct ck_record_sum *sums = NULL;
	uint64_t n = 0;
	int rc = path ? ck_record_sums(path, &sums, &n, err) : ck_fail_nomem(err, "a file name", 0);

	for (uint64_t i = 0; !rc && i < n; i++) {
		if (sums[i].kind < CK_RECORD_READ_CRC)
			continue;
		rc = ck_grow(&j->note, &j->cap, j->n + 1, sizeof(*j->note), err);
		if (!rc)
			j->note[j->n++] = sums[i];
	}
	ck_free(sums);
	ck_free(path);
	return rc;
}

static int note_order(const void *a, const void *b)
{
	const struct ck_record_sum *x = a, *y = b;

	if (x->sum != y->sum)
		return x->sum < y->sum ? -1 : 1;
	if (x->kind != y->kind)
		return x->kind < y->kind ? -1 : 1;
	if (x->kind == CK_RECORD_TEXT)
		return (x->crc > y->crc) - (x->crc < y->crc);
	return (x->off > y->off) - (x->off < y->off);
}

static const struct ck_record_sum *first_of(const struct group *g, enum ck_record_kind kind,
					    uint64_t *n_out)
{
	uint64_t i = 0, n = 0;

	while (i < g->n && g->note[i].kind != kind)
		i++;
	while (i + n < g->n && g->note[i + n].kind == kind)
		n++;
	*n_out = n;
	return n ? &g->note[i] : NULL;
}

/* The strings of a message; false if they are not all there. */
static bool get_text(const struct group *g, uint8_t text[CK_RECORD_TEXT_MOST + 1],
		     const char *string[CK_RECORD_TEXTS])
{
	const size_t entry = CK_RECORD_TEXT_ENTRY;
	uint64_t n;
	const struct ck_record_sum *t = first_of(g, CK_RECORD_TEXT, &n);
	size_t at = 0;

	if (!t || n > CK_RECORD_TEXT_MOST / entry)
		return false;
	for (uint64_t i = 0; i < n; i++) {
		if (t[i].crc != i)
			return false;
		ck_put_le64(text + entry * i, t[i].off);
		ck_put_le64(text + entry * i + 8, t[i].bytes);
	}
	for (int i = 0; i < CK_RECORD_TEXTS; i++) {
		string[i] = (const char *)text + at;
		at += strnlen(string[i], entry * n - at) + 1;
		if (at > entry * n)
			return false;
	}
	return true;
}

static int fail_part(const struct joined *j, uint64_t number, struct ckpt_err *err)
{
	return ck_fail(err, CKPT_E_INCOMPLETE, j->c->partial, CKPT_NO_OFFSET,
		       "the records of the parts lack check number %" PRIu64 " of the source "
		       "(parts of several versions of zckpt?); run zckpt commit --discard, then "
		       "start all parts again", number);
}

static int join_crc(const struct joined *j, const struct group *g, const struct ck_record_sum *want,
		    bool *good_out, struct ckpt_err *err)
{
	struct ck_crc_shift shift = { 0 };
	uint64_t n, at = 0;
	const struct ck_record_sum *p = first_of(g, CK_RECORD_READ_CRC, &n);
	uint32_t crc = 0;

	for (uint64_t i = 0; i < n; i++) {
		if (p[i].off != at || p[i].bytes > want->off - at)
			return fail_part(j, want->sum, err);
		crc = ck_crc_append(crc, p[i].crc, p[i].bytes, &shift);
		at += p[i].bytes;
	}
	if (at != want->off)
		return fail_part(j, want->sum, err);
	*good_out = crc == want->crc;
	return 0;
}

/* "F32 4 128" */
static bool close_digest(const char *shape, struct ck_hash128 *sum)
{
	const char *end = strchr(shape, ' ');
	uint64_t dim[MAX_DIMS];
	uint32_t n = 0;
	char type[16] = { 0 };

	if (!end)
		end = shape + strlen(shape);
	if ((size_t)(end - shape) >= sizeof(type))
		return false;
	memcpy(type, shape, (size_t)(end - shape));
	while (*end && n < MAX_DIMS) {
		char *next;

		dim[n++] = strtoull(end, &next, 10);
		if (next == end)
			return false;
		end = next;
	}
	*sum = ck_digest_close(type, dim, n, *sum);
	return !*end;
}

static int join_sum(const struct joined *j, const struct group *g, const struct ck_record_sum *want,
		    const char *shape, bool *good_out, struct ckpt_err *err)
{
	const struct ck_hash128 should = { .lo = want->off, .hi = want->bytes };
	struct ck_hash128 sum = { 0 };
	uint64_t n;
	const struct ck_record_sum *p = first_of(g, CK_RECORD_READ_SUM, &n);
	uint32_t blocks = 0;

	for (uint64_t i = 0; i < n; i++) {
		blocks += p[i].crc;
		sum = ck_hash128_add(sum, (struct ck_hash128){ .lo = p[i].off, .hi = p[i].bytes });
	}
	if (blocks != want->crc || (*shape && !close_digest(shape, &sum)))
		return fail_part(j, want->sum, err);
	*good_out = ck_hash128_equal(sum, should);
	return 0;
}

static int check_group(const struct joined *j, const struct group *g, struct ckpt_err *err)
{
	uint8_t text[CK_RECORD_TEXT_MOST + 1] = { 0 };
	const char *string[CK_RECORD_TEXTS];
	uint64_t ncrcs, nsums;
	const struct ck_record_sum *crc = first_of(g, CK_RECORD_WANT_CRC, &ncrcs);
	const struct ck_record_sum *sum = first_of(g, CK_RECORD_WANT_SUM, &nsums);
	bool good = false;
	long code;
	int rc;

	if (ncrcs + nsums != 1 || !get_text(g, text, string))
		return fail_part(j, g->note->sum, err);
	rc = crc ? join_crc(j, g, crc, &good, err) :
	     join_sum(j, g, sum, string[CK_RECORD_SHAPE], &good, err);
	code = strtol(string[CK_RECORD_CODE], NULL, 10);
	if (rc || good || !code)	/* 0: a warning, as the user wishes */
		return rc;
	return ck_fail(err, code == CKPT_E_CORRUPT ? CKPT_E_CORRUPT : CKPT_E_MISMATCH,
		       string[CK_RECORD_WHERE], CKPT_NO_OFFSET,
		       "%s: %s; the destination is unchanged (zckpt commit --discard "
		       "deletes the parts)", string[CK_RECORD_ID], string[CK_RECORD_CLAUSE]);
}

int ck_source_sums_check(const struct ck_commit *c, uint32_t nparts, struct ckpt_err *err)
{
	struct joined j = { .c = c };
	int rc = 0;

	for (uint32_t part = 0; !rc && part < nparts; part++)
		rc = read_part(&j, part, err);
	if (!rc && j.n)
		qsort(j.note, j.n, sizeof(*j.note), note_order);
	for (uint64_t i = 0, n; !rc && i < j.n; i += n) {
		for (n = 1; i + n < j.n && j.note[i + n].sum == j.note[i].sum; n++)
			;
		rc = check_group(&j, &(struct group){ &j.note[i], n }, err);
	}
	ck_free(j.note);
	return rc;
}
