/* ck_scan.c -- see ck_scan.h: looking at files.  Reading them is in ck_scan_read.c. */
#include "libckpt/verify/ck_scan.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/ck_crc.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_pool.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/verify/ck_scan_priv.h"
#include "libckpt/zip/ck_zip_check.h"
#include "libckpt/zip/ck_zip_row.h"

static void odd(void *arg, uint64_t off, const char *what)
{
	struct ck_scan_file *f = arg;

	ck_findings_add(&f->notes, CK_FINDING_HEADER_ODD, f->file->path,
			"byte %" PRIu64 ": %s does not match the rest of the file; no value "
			"depends on it, but a bit may have flipped", off, what);
}

/* Opening the checkpoint has said it already. */
static bool is_known(const struct ck_findings *known, const char *path)
{
	const char *id = ck_finding_name(CK_FINDING_FILE_DAMAGED);
	const size_t n = strlen(path);

	for (uint64_t i = 0; i < known->n; i++)
		if (!strcmp(known->list[i].id, id) && !strncmp(known->list[i].where, path, n))
			return true;
	return false;
}

/* Damage is a finding and no failure, if it is the file that is at fault. */
static int note_damage(struct ck_scan *scan, struct ck_scan_file *f, int rc, struct ckpt_err *err)
{
	switch (-rc) {
	case CKPT_E_TRUNCATED:
	case CKPT_E_CORRUPT:
	case CKPT_E_FORMAT:
	case CKPT_E_UNSUPPORTED:
	case CKPT_E_LIMIT:
		break;
	default:
		return rc;
	}
	if (!is_known(&scan->ck->findings, f->file->path))
		ck_findings_add(&f->notes, CK_FINDING_FILE_DAMAGED, f->file->path, "byte %" PRIu64
				": %s", err->offset == CKPT_NO_OFFSET ? 0 : err->offset, err->msg);
	ck_err_clear(err);
	return 0;
}

/* ------------------------------------------------------------------------ archives */

static int add_member(struct ck_scan_file *f, const struct ck_zip_entry *e, uint64_t number,
		      uint64_t data, struct ckpt_err *err)
{
	int rc;

	if (e->method) {
		rc = ck_grow(&f->packed, &f->packed_cap, f->npacked + 1, sizeof(*f->packed), err);
		if (!rc)
			f->packed[f->npacked++] = (uint32_t)number;
		return rc;
	}
	if (!e->bytes)
		return 0;
	rc = ck_grow(&f->member, &f->member_cap, f->nmembers + 1, sizeof(*f->member), err);
	if (!rc)
		f->member[f->nmembers++] = (struct ck_scan_member){ data, e->bytes, e->crc,
								    (uint32_t)number };
	return rc;
}

static int by_place(const void *a, const void *b)
{
	const struct ck_scan_member *x = a, *y = b;

	return x->off < y->off ? -1 : x->off > y->off;
}

static int look_at_entries(struct ck_scan_file *f, const struct ck_zip *zip,
			   struct ckpt_err *err)
{
	int rc = ck_zip_check_directory(zip, odd, f, err);

	for (uint64_t i = 0; !rc && i < ck_zip_count(zip); i++) {
		const struct ck_zip_entry *e = ck_zip_entry_get(zip, i);
		uint64_t data = 0;

		rc = ck_zip_check_entry(zip, e, &data, odd, f, err);
		if (!rc)
			rc = add_member(f, e, f->nentries + i, data, err);
	}
	f->nentries += ck_zip_count(zip);
	return rc;
}

struct looking {
	struct ck_scan *scan;
	struct ck_scan_file *file;
	bool deep, later;
};

static int look_at_one(void *arg, const struct ck_zip *zip, struct ckpt_err *err)
{
	struct looking *l = arg;
	const struct ck_hash128 both[2] = { l->file->quick, ck_zip_fingerprint(zip) };

	l->file->quick = l->later ? ck_hash128(both, sizeof(both)) : both[1];
	l->later = true;
	return l->deep ? look_at_entries(l->file, zip, err) : 0;
}

static int look_at_archive(struct looking *l, struct ckpt_err *err)
{
	struct ck_scan_file *f = l->file;
	const int rc = ck_zip_each(f->src, &l->scan->ck->limits, look_at_one, l, err);

	if (f->nmembers)
		qsort(f->member, f->nmembers, sizeof(*f->member), by_place);
	return note_damage(l->scan, f, rc, err);
}

/* ---------------------------------------------------------------------------- all */

static int look_at_head(struct ck_scan_file *f, bool *is_zip, struct ckpt_err *err)
{
	const size_t n = (size_t)ck_min_u64(ck_src_size(f->src), CK_SCAN_HEAD);
	uint8_t *p = ck_alloc(n);
	int rc;

	if (!p)
		return ck_fail_nomem(err, "a file's head", n);
	rc = ck_src_read(f->src, 0, p, n, err);
	if (!rc) {
		f->quick = ck_hash128(p, n);
		*is_zip = n >= 4 && !memcmp(p, "PK\3\4", 4);
	}
	ck_free(p);
	return rc;
}

static int look_job(void *arg, uint64_t job, uint32_t worker, struct ckpt_err *err)
{
	struct looking one = *(const struct looking *)arg, *l = &one;
	struct ck_scan_file *f = &l->scan->file[job];
	bool is_zip = false;
	int rc = 0;

	(void)worker;
	l->file = f;
	if (f->file->source != CK_NONE) {
		f->src = l->scan->ck->ix.source[f->file->source].src;
	} else {
		rc = ck_src_open(l->scan->ck->pool, f->file->path, &f->own, err);
		f->src = f->own;
	}
	if (!rc)
		rc = look_at_head(f, &is_zip, err);
	if (!rc && is_zip)
		rc = look_at_archive(l, err);
	return rc;
}

int ck_scan_heads(struct ck_scan *scan, struct ckpt *ck, const struct ck_folder *folder,
		  const struct ckpt_run_opts *opts, bool deep, struct ckpt_err *err)
{
	struct looking l = { .scan = scan, .deep = deep };
	int rc;

	*scan = (struct ck_scan){ .ck = ck, .opts = opts };
	scan->file = ck_zalloc((folder->n + 1) * sizeof(*scan->file));
	if (!scan->file)
		return ck_fail_nomem(err, "a list of files", folder->n);
	for (; scan->n < folder->n; scan->n++) {
		scan->file[scan->n].file = &folder->file[scan->n];
		scan->file[scan->n].notes.as_warning = ck->findings.as_warning;
	}
	rc = ck_pool_run(opts->threads, scan->n, look_job, &l, err);
	for (uint64_t i = 0; !rc && i < scan->n; i++)
		ck_findings_merge(&ck->findings, &scan->file[i].notes, CK_FINDING_COUNT);
	return rc;
}

void ck_scan_release(struct ck_scan *scan)
{
	for (uint64_t i = 0; i < scan->n; i++) {
		struct ck_scan_file *f = &scan->file[i];

		ck_src_close(f->own);
		ck_findings_release(&f->notes);
		ck_free(f->member);
		ck_free(f->packed);
		ck_free(f->crc);
		ck_hasher_free(f->hasher);
	}
	ck_free(scan->file);
	memset(scan, 0, sizeof(*scan));
}
