/*
 * ck_proof.c -- see ck_proof.h.
 *
 * What a source has of sums is listed when its first byte is needed: the stored members of an
 * archive that have a CRC-32, and the pieces that the index states sums of.  Each has a verdict.
 * Under the lock a thread takes the piece whose verdict is unknown; it reads and compares without
 * the lock, then wakes those who wait.
 */
#include "libckpt/view/ck_proof.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_search.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/io/ck_stamp.h"
#include "libckpt/sums/ck_piece.h"
#include "libckpt/sums/ck_stated_sum.h"
#include "libckpt/zip/ck_zip_row.h"

enum verdict {
	UNKNOWN = 0,
	AT_WORK,
	GOOD,
	BAD,
};

/* A member of an archive ('says' NULL), or a piece that the index states a sum of. */
struct part {
	uint64_t off, bytes;		/* in the source */
	const struct ck_stated_sum *says;
	const char *name;		/* of the member */
	uint32_t crc;
	_Atomic int verdict;
};

struct proof_source {
	pthread_mutex_t lock;		/* around listing */
	_Atomic bool listed;
	struct part *part;		/* by place */
	uint64_t n, cap;
	struct ck_arena names;
};

struct ckpt_view_checks {
	struct ckpt *ck;
	struct ck_hash128 stamps;
	struct proof_source *source;
	pthread_mutex_t lock;		/* around verdicts that are given, and findings */
	pthread_cond_t given;
	struct ck_findings findings;
};

int ck_proof_new(struct ckpt *ck, struct ckpt_view_checks **out, struct ckpt_err *err)
{
	struct ckpt_view_checks *proof = ck_zalloc(sizeof(*proof));
	struct ck_stamp_marks marks;

	if (proof)
		proof->source = ck_zalloc((ck->ix.nsources + 1) * sizeof(*proof->source));
	if (!proof || !proof->source) {
		ck_free(proof);
		return ck_fail_nomem(err, "checks of files", ck->ix.nsources);
	}
	for (uint64_t i = 0; i < ck->ix.nsources; i++)
		pthread_mutex_init(&proof->source[i].lock, NULL);
	pthread_mutex_init(&proof->lock, NULL);
	pthread_cond_init(&proof->given, NULL);
	ck_stamps_marks(ck_fdpool_stamps(ck->pool), &marks);
	proof->stamps = marks.exact;
	proof->findings.as_warning = ck->findings.as_warning;
	proof->ck = ck;
	*out = proof;
	return 0;
}

void ck_proof_free(struct ckpt_view_checks *proof)
{
	if (!proof)
		return;
	for (uint64_t i = 0; i < proof->ck->ix.nsources; i++) {
		pthread_mutex_destroy(&proof->source[i].lock);
		ck_arena_release(&proof->source[i].names);
		ck_free(proof->source[i].part);
	}
	ck_findings_release(&proof->findings);
	pthread_mutex_destroy(&proof->lock);
	pthread_cond_destroy(&proof->given);
	ck_free(proof->source);
	ck_free(proof);
}

bool ck_proof_is_of(const struct ckpt_view_checks *proof, const struct ckpt *ck)
{
	return proof->ck == ck;
}

struct ck_hash128 ck_proof_stamps(const struct ckpt_view_checks *proof)
{
	return proof->stamps;
}

/* ------------------------------------------------------------------- listing */

static int add(struct proof_source *s, const struct part *part, struct ckpt_err *err)
{
	int rc = ck_grow(&s->part, &s->cap, s->n + 1, sizeof(*s->part), err);

	if (!rc)
		s->part[s->n++] = *part;
	return rc;
}

static int list_member(struct proof_source *s, const struct ck_zip *zip,
		       const struct ck_zip_entry *e, struct ckpt_err *err)
{
	struct part part = { .bytes = e->bytes, .crc = e->crc };
	int rc;

	if (e->method || !e->bytes || !e->crc)
		return 0;
	part.name = ck_arena_strdup(&s->names, e->name);
	if (!part.name)
		return ck_fail_nomem(err, "the name of a member", e->name_len);
	rc = ck_zip_data_offset(zip, e, &part.off, err);
	return rc ? rc : add(s, &part, err);
}

/* A .distcp file has one for each tensor. */
static int list_archive(void *arg, const struct ck_zip *zip, struct ckpt_err *err)
{
	int rc = 0;

	for (uint64_t i = 0; !rc && i < ck_zip_count(zip); i++)
		rc = list_member(arg, zip, ck_zip_entry_get(zip, i), err);
	return rc;
}

static int list_members(const struct ckpt_view_checks *proof, struct proof_source *s,
			struct ck_src *src, struct ckpt_err *err)
{
	uint8_t head[4] = { 0 };
	const size_t n = (size_t)ck_min_u64(sizeof(head), ck_src_size(src));
	const int rc = ck_src_read(src, 0, head, n, err);

	if (rc || memcmp(head, "PK\3\4", 4))
		return rc;
	return ck_zip_each(src, &proof->ck->limits, list_archive, s, err);
}

static int list_pieces(const struct ck_index *ix, struct proof_source *s, uint32_t source,
		       struct ckpt_err *err)
{
	struct ck_piece p;
	int rc = 0;

	for (uint64_t i = 0; !rc && i < ix->nstated_sums; i++) {
		if (!ck_piece_find(ix, &ix->stated_sum[i], &p) || p.source != source)
			continue;
		rc = add(s, &(struct part){ .off = p.off, .bytes = p.head + p.bytes + p.tail,
					    .says = &ix->stated_sum[i] }, err);
	}
	return rc;
}

static int by_place(const void *a, const void *b)
{
	const struct part *x = a, *y = b;

	return x->off < y->off ? -1 : x->off > y->off;
}

static int list_parts(struct ckpt_view_checks *proof, uint32_t source, struct ckpt_err *err)
{
	struct proof_source *s = &proof->source[source];
	int rc = 0;

	pthread_mutex_lock(&s->lock);
	if (!atomic_load(&s->listed)) {
		s->n = 0;
		rc = list_members(proof, s, proof->ck->ix.source[source].src, err);
		if (!rc)
			rc = list_pieces(&proof->ck->ix, s, source, err);
		if (!rc && s->n)
			qsort(s->part, s->n, sizeof(*s->part), by_place);
		if (!rc)
			atomic_store(&s->listed, true);
	}
	pthread_mutex_unlock(&s->lock);
	return rc;
}

/* ------------------------------------------------------------------- comparing */

static int check_member(struct ck_src *src, const struct part *part, uint8_t *buf, bool *good_out,
			struct ckpt_err *err)
{
	uint32_t crc = 0;

	for (uint64_t at = 0, n; at < part->bytes; at += n) {
		int rc;

		n = ck_min_u64(part->bytes - at, CK_PIECE_BUFFER);
		rc = ck_src_read(src, part->off + at, buf, n, err);
		if (rc)
			return rc;
		crc = ck_zip_crc32(crc, buf, n);
	}
	*good_out = crc == part->crc;
	return 0;
}

static int check_part(const struct ckpt_view_checks *proof, uint32_t source,
		      const struct part *part, bool *good_out, struct ckpt_err *err)
{
	const struct ck_index *ix = &proof->ck->ix;
	uint8_t *buf = ck_alloc(CK_PIECE_BUFFER);
	struct ck_piece piece;
	int rc;

	if (!buf)
		return ck_fail_nomem(err, "a buffer", CK_PIECE_BUFFER);
	if (part->says && ck_piece_find(ix, part->says, &piece))
		rc = ck_piece_check(ix, part->says, &piece, buf, good_out, err);
	else
		rc = check_member(ix->source[source].src, part, buf, good_out, err);
	ck_free(buf);
	return rc;
}

/* The error that a bad part is; 0 where it counts as a warning.  'keep': the finding too. */
static int fail_part(struct ckpt_view_checks *proof, uint32_t source, const struct part *part,
		     bool keep, struct ckpt_err *err)
{
	struct ck_findings one = { .as_warning = proof->findings.as_warning };
	const struct ckpt_finding *f;
	int rc;

	if (part->says)
		ck_stated_wrong(&one, &proof->ck->ix, part->says);
	else
		ck_findings_add(&one, CK_FINDING_CRC_WRONG, proof->ck->ix.source[source].path,
				"the bytes of '%s' do not match the CRC-32 %08x in the archive: "
				"they changed after they were written", part->name, part->crc);
	if (keep)
		ck_findings_merge(&proof->findings, &one, CK_FINDING_COUNT);
	f = ck_findings_worst(&one, CKPT_ERROR);
	rc = f ? ck_findings_fail(f, err) : 0;
	ck_findings_release(&one);
	return rc;
}

/* Whether this thread is to compare it; else its verdict is given. */
static bool take_part(struct ckpt_view_checks *proof, struct part *part)
{
	bool ours;

	pthread_mutex_lock(&proof->lock);
	while (atomic_load(&part->verdict) == AT_WORK)
		pthread_cond_wait(&proof->given, &proof->lock);
	ours = atomic_load(&part->verdict) == UNKNOWN;
	if (ours)
		atomic_store(&part->verdict, AT_WORK);
	pthread_mutex_unlock(&proof->lock);
	return ours;
}

/* A failure of reading leaves the verdict unknown: the next who needs it tries again. */
static int need_part(struct ckpt_view_checks *proof, uint32_t source, struct part *part,
		     struct ckpt_err *err)
{
	bool good = false;
	int rc;

	if (atomic_load(&part->verdict) == GOOD)
		return 0;
	if (!take_part(proof, part))
		return atomic_load(&part->verdict) == GOOD ? 0 :
		       fail_part(proof, source, part, false, err);
	rc = check_part(proof, source, part, &good, err);
	pthread_mutex_lock(&proof->lock);
	if (!rc && !good) {
		rc = fail_part(proof, source, part, true, err);
		good = !rc;
		atomic_store(&part->verdict, good ? GOOD : BAD);
	} else {
		atomic_store(&part->verdict, rc ? UNKNOWN : GOOD);
	}
	pthread_cond_broadcast(&proof->given);
	pthread_mutex_unlock(&proof->lock);
	return rc;
}

int ck_proof_need(struct ckpt_view_checks *proof, uint32_t source, uint64_t off, uint64_t n,
		  struct ckpt_err *err)
{
	struct proof_source *s = &proof->source[source];
	const uint64_t end = off + ck_max_u64(n, 1);
	uint64_t i;
	int rc = atomic_load(&s->listed) ? 0 : list_parts(proof, source, err);

	if (rc)
		return rc;
	CK_LOWER_BOUND(i, s->n, s->part[i].off + s->part[i].bytes <= off);
	for (; !rc && i < s->n && s->part[i].off < end; i++)
		if (s->part[i].off + s->part[i].bytes > off)
			rc = need_part(proof, source, &s->part[i], err);
	return rc;
}

int ck_proof_saw(void *proof, uint32_t source, uint64_t off, const void *p, size_t n,
		 struct ckpt_err *err)
{
	(void)p;
	return ck_proof_need(proof, source, off, n, err);
}

bool ck_proof_finding(struct ckpt_view_checks *proof, uint64_t i, struct ckpt_finding *out)
{
	bool is;

	pthread_mutex_lock(&proof->lock);
	is = i < proof->findings.n;
	if (is)
		*out = proof->findings.list[i];
	pthread_mutex_unlock(&proof->lock);
	return is;
}
