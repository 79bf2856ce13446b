/*
 * ck_manifest.h -- zckpt-manifest.json: what a checkpoint was made of (docs/formats/manifest.md).
 */
#ifndef CK_MANIFEST_H
#define CK_MANIFEST_H

#include "libckpt/base/ck_hash.h"
#include "libckpt/base/ck_map.h"
#include "libckpt/verify/ck_scan.h"

struct ck_manifest_file {
	const char *name;
	uint64_t bytes;
	struct ck_hash128 hash, quick;
};

struct ck_manifest {
	struct ck_arena arena;
	struct ck_manifest_file *file;
	uint64_t n;
	const char *tag;	/* of the step; "" = it says none */
	bool there;
};

#define CK_MANIFEST_INIT { .file = NULL }

/*
 * Read what lies at 'path'; nothing there is no failure.  One that is damaged is a failure
 * of CKPT_E_CORRUPT.
 */
int ck_manifest_read(struct ck_manifest *m, const struct ckpt *ck, const char *path,
		     struct ckpt_err *err);
void ck_manifest_release(struct ck_manifest *m);
/* Hold files against it; 'hashed': whole ones.  Findings go to the scan's checkpoint. */
int ck_manifest_compare(const struct ck_manifest *m, const struct ck_folder *folder,
			const struct ck_scan *scan, bool hashed, struct ckpt_err *err);
/*
 * Write it whole or not at all: files of the scan, which are hashed, tensors of the index,
 * digests of their states (may have no lines).
 */
int ck_manifest_write(const char *path, const struct ck_scan *scan,
		      const struct ckpt_digests *digests, enum ckpt_sync sync,
		      struct ckpt_err *err);

#endif
