/*
 * op_verify.c -- `verify`: is everything there, does it belong together, is every byte what was
 * written?  Writes nothing but a manifest, if asked.
 */
#include "libckpt/verify/op_verify.h"

#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/compare/ck_diff.h"
#include "libckpt/io/ck_mount.h"
#include "libckpt/run/ck_master_check.h"
#include "libckpt/run/ck_buffers.h"
#include "libckpt/run/ck_stated.h"
#include "libckpt/verify/ck_manifest.h"

struct verifying {
	struct ckpt *ck;
	struct ckpt_run_opts run;
	unsigned flags;
	struct ck_folder folder;
	struct ck_manifest manifest;
	struct ck_scan scan;
	struct ck_copy_check *watch;
	struct ck_sum_check *passed;
	struct ckpt_verified out;
};

static bool is_whole(const struct verifying *v)
{
	return !ck_findings_worst(&v->ck->findings, CKPT_ERROR);
}

static bool is_full(const struct verifying *v)
{
	return v->flags & CKPT_VERIFY_FULL;
}

static int read_manifest(struct verifying *v, struct ckpt_err *err)
{
	int rc = 0;

	if (v->flags & CKPT_VERIFY_FORCE)
		return 0;
	rc = ck_manifest_read(&v->manifest, v->ck, v->folder.manifest, err);
	if (rc == -CKPT_E_CORRUPT || rc == -CKPT_E_LIMIT) {
		ck_findings_add(&v->ck->findings, CK_FINDING_MANIFEST_DAMAGED,
				v->folder.manifest, "%s", err->msg);
		ck_err_clear(err);
		v->manifest.n = 0;
		v->manifest.there = false;
		rc = 0;
	}
	v->out.manifest = v->manifest.there;
	return rc;
}

static int list(struct verifying *v, struct ckpt_err *err)
{
	int rc = ck_folder_list(&v->folder, v->ck, err);

	if (rc)
		return rc;
	if (strlen(v->folder.manifest) < sizeof(v->out.manifest_path))
		memcpy(v->out.manifest_path, v->folder.manifest, strlen(v->folder.manifest));
	v->out.files = v->folder.n;
	for (uint64_t i = 0; i < v->folder.n; i++)
		v->out.file_bytes += v->folder.file[i].bytes;
	return read_manifest(v, err);
}

/* Ends only: the metadata is in memory, and no bulk data is read. */
static int compare_ends(struct verifying *v, struct ckpt_err *err)
{
	int rc;

	if (!v->out.agreed)
		return 0;
	rc = ck_master_check(v->ck, v->run.threads, false, err);
	return rc ? rc : ck_buffers_compare(v->ck, err);
}

static int read_all(struct verifying *v, struct ckpt_err *err)
{
	const bool hash = v->manifest.there || (v->flags & CKPT_VERIFY_WRITE_MANIFEST);
	struct ck_copy_check_counts counts = { 0 };
	int rc = ck_copy_check_new(v->ck, v->run.threads, v->out.agreed, &v->watch, err);

	if (!rc && v->ck->ix.nstated_sums)
		rc = ck_sum_check_new(&v->ck->ix, NULL, &v->passed, err);
	v->scan.passed = v->passed;
	if (!rc)
		rc = ck_scan_read(&v->scan, v->watch, hash, err);
	if (!rc)
		rc = ck_copy_check_rest(v->watch, v->run.threads, v->run.cancel, err);
	if (rc)
		return rc;
	ck_copy_check_report(v->watch, &counts);
	v->out.read_bytes = v->scan.counts.read_bytes;
	v->out.checksums = v->scan.counts.members;
	v->out.unsummed = v->scan.counts.unsummed;
	v->out.elements = counts.elements;
	v->out.copies = counts.copies;
	v->out.pad_bytes = counts.pad_bytes;
	return 0;
}

/* Whatever is wrong must not become what the manifest says. */
static int write_manifest(struct verifying *v, struct ckpt_err *err)
{
	const struct ckpt_digest_opts opts = { .size = sizeof(opts), .run = &v->run };
	struct ckpt_digests digests = { 0 };
	int rc = 0;

	if (!(v->flags & CKPT_VERIFY_WRITE_MANIFEST) || !is_whole(v))
		return 0;
	if (v->ck->ix.nstates)
		rc = ck_digest(v->ck, &opts, &digests, err);
	if (!rc)
		rc = ck_manifest_write(v->folder.manifest, &v->scan, &digests, v->run.sync, err);
	ck_arena_free(digests.memory);
	if (!rc)
		v->out.manifest = 2;
	return rc;
}

/* An archive is looked through as such before its files are. */
static int check_archive(struct verifying *v, struct ckpt_err *err)
{
	const struct ck_mount *m = ck_fdpool_mount(v->ck->pool);
	struct ckpt_err why = { 0 };
	int rc = m && is_full(v) ? m->check(m->arg, v->run.threads, &why) : 0;

	if (rc == -CKPT_E_CORRUPT || rc == -CKPT_E_TRUNCATED) {
		ck_findings_add(&v->ck->findings, CK_FINDING_FILE_DAMAGED, m->at, "%s", why.msg);
		return 1;
	}
	if (rc && err && !err->code)
		*err = why;
	return rc;
}

static int verify(struct verifying *v, struct ckpt_err *err)
{
	int rc = list(v, err);

	if (!rc)
		rc = check_archive(v, err);
	if (rc)
		return rc < 0 ? rc : 0;

	v->out.agreed = is_whole(v);
	rc = ck_scan_heads(&v->scan, v->ck, &v->folder, &v->run, is_full(v), err);
	if (!rc)
		rc = is_full(v) ? read_all(v, err) : compare_ends(v, err);
	if (!rc)
		rc = ck_stated_heads(v->ck, err);
	if (!rc)
		rc = ck_stated_files(v->ck, err);
	if (!rc && is_full(v))
		rc = ck_stated_sums(v->ck, v->passed, &v->run, err);
	v->out.sums = is_full(v) ? v->ck->ix.nstated_sums : 0;
	v->out.without_sums = v->ck->ix.nunsummed;
	if (!rc && v->manifest.there)
		rc = ck_manifest_compare(&v->manifest, &v->folder, &v->scan, is_full(v), err);
	rc = ck_fdpool_check(v->ck->pool, rc, err);
	return rc ? rc : write_manifest(v, err);
}

int ck_verify(struct ckpt *ck, const struct ckpt_verify_opts *opts, struct ckpt_verified *out,
	      struct ckpt_err *err)
{
	struct verifying v = { .ck = ck, .flags = opts->flags };
	struct ckpt_err own = { 0 };	/* what is settled must not be lost where none is given */
	int rc;

	if (v.flags & CKPT_VERIFY_WRITE_MANIFEST)
		v.flags |= CKPT_VERIFY_FULL;
	ck_run_opts_fill(opts->run, &v.run);
	if (v.flags & CKPT_VERIFY_WRITE_MANIFEST && ck_fdpool_mount(ck->pool))
		return ck_fail(err, CKPT_E_USAGE, ck->path[0], CKPT_NO_OFFSET,
			       "a manifest cannot be added to a pack: write it before packing");
	rc = verify(&v, err ? err : &own);
	ck_copy_check_free(v.watch);
	ck_sum_check_free(v.passed);
	ck_scan_release(&v.scan);
	ck_manifest_release(&v.manifest);
	ck_folder_release(&v.folder);
	if (!rc)
		*out = v.out;
	return rc;
}
