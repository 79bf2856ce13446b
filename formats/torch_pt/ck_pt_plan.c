/* ck_pt_plan.c -- see ck_pt_plan.h: the records of an archive and what lies between them. */
#include "formats/torch_pt/ck_pt_plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/torch_pt/ck_pt_save.h"
#include "libckpt/base/ck_buf.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/tensor/ck_dtype.h"
#include "libckpt/zip/ck_zip.h"
#include "libckpt/zip/ck_zip_layout.h"

#define ID_DIGITS 40
#define MOST_SMALL 4

/* A file in the making. */
struct making {
	struct ck_pt_saved saved;
	struct ck_plan *plan;
	const char *prefix;
	char *pickle;
	uint64_t pickle_bytes;
	char id[ID_DIGITS + 1];
	struct ck_zip_rec *rec;
	uint64_t nrecs;
	uint32_t before, behind;	/* records before the storages, and after them */
	const char *small[2 * MOST_SMALL];	/* what these have */
	uint64_t base;		/* where the archive begins in its file */
	struct ck_zip_ends ends;
	uint32_t *crc;		/* by number of a storage: in the plan, CK_NONE = empty */
	struct ck_buf between;	/* headers and small records that are not in the plan yet */
};

/* ---- lengths ---- */

static int piece_bytes(const struct ck_pt_piece *p, uint64_t *out, struct ckpt_err *err)
{
	if (p->kind == CK_SEG_STATE || p->kind == CK_SEG_OWN)
		return ck_dtype_bytes(p->dtype, p->count, out, err);
	*out = p->count;
	return 0;
}

static int measure(struct making *m, struct ckpt_err *err)
{
	const struct ck_pt_want *want = m->saved.want;

	for (uint64_t i = 0; i < want->nstorages; i++)
		for (uint64_t k = 0; k < want->storage[i].npieces; k++) {
			uint64_t n = 0;
			int rc = piece_bytes(&want->storage[i].piece[k], &n, err);

			if (!rc && (ck_add_over(m->saved.bytes[i], n, &m->saved.bytes[i]) ||
				    m->saved.bytes[i] > INT64_MAX))
				rc = ck_fail(err, CKPT_E_LIMIT, want->name, CKPT_NO_OFFSET,
					     "a storage would exceed 2^63 bytes");
			if (rc)
				return rc;
		}
	return 0;
}

/* torch cuts the name at its last dot, and takes "archive" where the name is not plain ASCII. */
static int choose_prefix(struct making *m, struct ckpt_err *err)
{
	const struct ck_pt_want *want = m->saved.want;
	const char *base = strrchr(want->name, '/'), *dot;

	if (want->prefix) {
		m->prefix = want->prefix;
		return 0;
	}
	base = base ? base + 1 : want->name;
	dot = strrchr(base, '.');
	m->prefix = ck_arena_strndup(&m->plan->arena, base,
				     dot ? (size_t)(dot - base) : strlen(base));
	if (!m->prefix)
		return ck_fail_nomem(err, "a name", strlen(base));
	for (const char *p = m->prefix; *p; p++)
		if ((unsigned char)*p < ' ' || (unsigned char)*p > 126 || *p == '\\')
			m->prefix = "archive";
	if (!m->prefix[0] || strlen(m->prefix) > 200)
		m->prefix = "archive";
	return 0;
}

/*
 * torch puts 40 digits of hashes here, the second 20 of which are a sum of CRCs.  Ours say what the
 * pickle is and how long the storages are; they are the same in every run.  The second 20 are no
 * number of 64 bits, so that nobody takes them for that sum: CRCs are known when all is written.
 */
static void make_id(struct making *m)
{
	const uint64_t one = ck_hash64(m->pickle, m->pickle_bytes);
	uint64_t two = m->saved.nkeys;
	uint8_t p[16];

	for (uint32_t i = 0; i < m->saved.nkeys; i++) {
		ck_put_le64(p, two);
		ck_put_le64(p + 8, m->saved.bytes[m->saved.order[i]]);
		two = ck_hash64(p, sizeof(p));
	}
	snprintf(m->id, sizeof(m->id), "%020" PRIu64 "2%019" PRIu64, one,
		 two % UINT64_C(10000000000000000000));
}

/* What torch writes beside the storages; a row of archives has no need of all. */
static void list_small(struct making *m, struct ck_zip_rec *before, struct ck_zip_rec *behind)
{
	static const struct {
		const char *name, *text;
		bool needed, is_behind;
	} all[] = {
		{ "data.pkl", NULL, true, false }, { ".format_version", "1", false, false },
		{ ".storage_alignment", "64", false, false },
		{ "byteorder", "little", true, false },
		{ "version", "3\n", true, true }, { ".data/serialization_id", "", false, true },
	};

	m->before = m->behind = 0;
	for (size_t i = 0; i < CK_ARRAY_LEN(all); i++) {
		const char *text = !all[i].text ? m->pickle : *all[i].text ? all[i].text : m->id;
		const struct ck_zip_rec rec = {
			.name = all[i].name,
			.bytes = all[i].text ? strlen(text) : m->pickle_bytes,
		};

		if (!all[i].needed && m->saved.want->append)
			continue;
		m->small[m->before + m->behind] = text;
		if (all[i].is_behind)
			behind[m->behind++] = rec;
		else
			before[m->before++] = rec;
	}
}

static int list_records(struct making *m, struct ckpt_err *err)
{
	struct ck_zip_rec before[MOST_SMALL], behind[MOST_SMALL], *r;

	list_small(m, before, behind);
	m->nrecs = m->before + (uint64_t)m->saved.nkeys + m->behind;
	m->rec = ck_alloc_array(m->nrecs, sizeof(*m->rec));
	if (!m->rec)
		return ck_fail_nomem(err, "records", m->nrecs);
	memset(m->rec, 0, m->nrecs * sizeof(*m->rec));
	memcpy(m->rec, before, m->before * sizeof(*before));
	r = m->rec + m->before;
	for (uint32_t i = 0; i < m->saved.nkeys; i++, r++) {
		r->name = ck_arena_printf(&m->plan->arena, "data/%u", i);
		r->bytes = m->saved.bytes[m->saved.order[i]];
		if (!r->name)
			return ck_fail_nomem(err, "records", m->nrecs);
	}
	memcpy(r, behind, m->behind * sizeof(*behind));
	return ck_zip_layout(m->prefix, CK_ZIP_ALIGN, m->rec, m->nrecs, &m->ends, err);
}

/* ---- bytes ---- */

static int flush(struct making *m, struct ckpt_err *err)
{
	int rc = ck_plan_literal(m->plan, m->between.p, m->between.len, err);

	m->between.len = 0;
	return rc;
}

/* A record whose content is here. */
static int put_small(struct making *m, struct ck_zip_rec *r, const char *content,
		     struct ckpt_err *err)
{
	int rc;

	r->crc = ck_zip_crc32(0, content, r->bytes);
	rc = ck_zip_put_local(&m->between, m->prefix, r, err);
	if (!rc)
		rc = ck_buf_add(&m->between, content, r->bytes, err);
	return rc ? rc : ck_zip_put_descriptor(&m->between, r, err);
}

static int plan_piece(struct making *m, const struct ck_pt_piece *p, struct ckpt_err *err)
{
	switch (p->kind) {
	case CK_SEG_STATE:
		return ck_plan_state(m->plan, m->saved.want->ix, p->state, p->dtype, p->first,
				     p->count, p->slot, err);
	case CK_SEG_OWN:
		return ck_plan_own_state(m->plan, p->state, p->first, p->count, err);
	case CK_SEG_ZERO:
		return ck_plan_zero(m->plan, p->count, err);
	case CK_SEG_FILE:
		return ck_plan_copy(m->plan, p->text, p->first, p->count, err);
	case CK_SEG_LITERAL:
		return ck_plan_literal(m->plan, p->text, p->count, err);
	default:
		return ck_fail(err, CKPT_E_USAGE, m->saved.want->name, CKPT_NO_OFFSET,
			       "unknown kind of piece: %u", p->kind);
	}
}

static int put_storage(struct making *m, uint32_t number, struct ckpt_err *err)
{
	const struct ck_pt_part *s = &m->saved.want->storage[m->saved.order[number]];
	struct ck_zip_rec *r = &m->rec[m->before + number];
	int rc = ck_zip_put_local(&m->between, m->prefix, r, err);

	m->crc[number] = CK_NONE;
	if (rc || !r->bytes)
		return rc;
	rc = flush(m, err);
	if (!rc)
		rc = ck_plan_crc_begin(m->plan, &m->crc[number], err);
	for (uint64_t i = 0; !rc && i < s->npieces; i++)
		rc = plan_piece(m, &s->piece[i], err);
	if (rc)
		return rc;
	ck_plan_crc_end(m->plan);
	ck_plan_crc_fill(m->plan, m->crc[number], m->base + r->data + r->bytes +
			 CK_ZIP_CRC_IN_DESCRIPTOR);
	ck_plan_crc_fill(m->plan, m->crc[number], m->base + r->central + CK_ZIP_CRC_IN_CENTRAL);
	return ck_zip_put_descriptor(&m->between, r, err);
}

static int put_all(struct making *m, struct ckpt_err *err)
{
	struct ck_zip_rec *behind = m->rec + m->nrecs - m->behind;
	int rc = 0;

	for (uint32_t i = 0; !rc && i < m->before; i++)
		rc = put_small(m, &m->rec[i], m->small[i], err);
	for (uint32_t i = 0; !rc && i < m->saved.nkeys; i++)
		rc = put_storage(m, i, err);
	for (uint32_t i = 0; !rc && i < m->behind; i++)
		rc = put_small(m, &behind[i], m->small[m->before + i], err);
	for (uint64_t i = 0; !rc && i < m->nrecs; i++)
		rc = ck_zip_put_central(&m->between, m->prefix, &m->rec[i], err);
	if (!rc)
		rc = ck_zip_put_end(&m->between, &m->ends, err);
	return rc ? rc : flush(m, err);
}

static int make_file(struct making *m, struct ckpt_err *err)
{
	const struct ck_pt_want *want = m->saved.want;
	const uint64_t n = want->nstorages;
	int rc;

	m->saved.bytes = ck_zalloc(n * sizeof(*m->saved.bytes));
	m->saved.key = ck_alloc_array(n, sizeof(*m->saved.key));
	m->saved.order = ck_alloc_array(n, sizeof(*m->saved.order));
	m->crc = ck_alloc_array(n, sizeof(*m->crc));
	if (n >= CK_NONE || !m->saved.bytes || !m->saved.key || !m->saved.order || !m->crc)
		return ck_fail_nomem(err, "storages", n);
	memset(m->saved.key, 0xff, n * sizeof(*m->saved.key));
	rc = measure(m, err);
	if (!rc)
		rc = choose_prefix(m, err);
	if (!rc)
		rc = ck_pt_save(&m->saved, &m->pickle, &m->pickle_bytes, err);
	if (rc)
		return rc;
	make_id(m);
	rc = list_records(m, err);
	if (want->append && m->plan->nfiles)
		m->base = m->plan->file[m->plan->nfiles - 1].bytes;
	else if (!rc)
		rc = ck_plan_file(m->plan, want->name, err);
	return rc ? rc : put_all(m, err);
}

int ck_pt_plan_file(const struct ck_pt_want *want, struct ck_plan *plan, struct ckpt_err *err)
{
	struct making m = {
		.saved.want = want, .plan = plan, .between = CK_BUF_INIT(SIZE_MAX / 8),
	};
	int rc = make_file(&m, err);

	ck_buf_release(&m.between);
	ck_free(m.rec);
	ck_free(m.crc);
	ck_free(m.pickle);
	ck_free(m.saved.bytes);
	ck_free(m.saved.key);
	ck_free(m.saved.order);
	return rc;
}
