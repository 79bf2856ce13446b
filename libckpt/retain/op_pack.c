/*
 * op_pack.c -- the verbs `pack` and `unpack`: which files belong to a checkpoint, under which
 * names they go into an archive.  The driver of archives does the rest.
 */
#include "libckpt/retain/op_pack.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/ck_clock.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/format/ck_format.h"
#include "libckpt/format/ck_limits.h"
#include "libckpt/io/ck_mount.h"
#include "libckpt/reshard/ck_step_out.h"
#include "libckpt/run/ck_run.h"
#include "libckpt/run/ck_stated.h"
#include "libckpt/sums/ck_source_check.h"
#include "libckpt/verify/ck_folder.h"

#define LEVEL 3		/* zstd's own */
#define HIGHEST 19

struct packing {
	struct ckpt *ck;
	struct ck_folder folder;
	struct ck_arena arena;
	struct ck_pack_file *file;
	uint64_t n, cap;
	const char *top;	/* folder in the archive */
	struct ckpt_run_opts run;
	struct ck_source_check proof;
};

static int check_driver(const struct ck_archive_format *driver, struct ckpt_err *err)
{
	return driver ? 0 :
			ck_fail(err, CKPT_E_UNSUPPORTED, NULL, CKPT_NO_OFFSET,
				"this build cannot read or write packs: it was built without "
				"libarchive and libzstd");
}

/* The name of a folder as it goes into the archive: its own, also of "." or "..". */
static int name_top(struct packing *p, struct ckpt_err *err)
{
	const char *name = ck_fs_base(p->ck->ix.path);
	char real[PATH_MAX];

	if (!strcmp(name, ".") || !strcmp(name, "..") || !name[0])
		name = ck_sys.realpath(p->ck->ix.path, real) && real[1] ? ck_fs_base(real) : "step";
	p->top = ck_arena_strdup(&p->arena, name);
	return p->top ? 0 : ck_fail_nomem(err, "a file name", strlen(name));
}

static int add(struct packing *p, const char *name, const char *path, const char *text,
	       struct ckpt_err *err)
{
	int rc = ck_grow(&p->file, &p->cap, p->n + 1, sizeof(*p->file), err);

	if (rc)
		return rc;
	if (!name || (!path && !text))
		return ck_fail_nomem(err, "a file name", 0);
	p->file[p->n++] = (struct ck_pack_file){ name, path, text };
	return 0;
}

static int add_step(struct packing *p, bool is_dir, struct ckpt_err *err)
{
	enum ck_fs_kind kind;
	int rc = 0;

	for (uint64_t i = 0; !rc && i < p->folder.n; i++) {
		const struct ck_folder_file *f = &p->folder.file[i];

		rc = add(p, is_dir ? ck_arena_printf(&p->arena, "%s/%s", p->top, f->name) :
			 ck_arena_strdup(&p->arena, f->name), f->path, NULL, err);
	}
	if (!rc)
		rc = ck_look_kind(p->ck->pool, p->folder.manifest, &kind, NULL, err);
	if (!rc && kind == CK_FS_FILE)
		rc = add(p, is_dir ? ck_arena_printf(&p->arena, "%s/%s", p->top, CK_MANIFEST_NAME) :
			 ck_arena_strdup(&p->arena, ck_fs_base(p->folder.manifest)),
			 p->folder.manifest, NULL, err);
	return rc;
}

/* Other packs of the run may lie there, too. */
static bool is_left_out(const struct ck_tree_entry *e)
{
	const size_t n = strlen(e->name);

	if (n > 8 && !strcmp(e->name + n - 8, ".tar.zst"))
		return true;
	return e->is_dir || e->is_odd || e->name[0] == '.' || strstr(e->name, ".zckpt-") ||
	       !strcmp(e->name, "latest") || !strcmp(e->name, "latest_universal");
}

/* The folder above was given: what lies beside the step, and the file that names it. */
static int add_beside(struct packing *p, const char *root, struct ckpt_err *err)
{
	const struct ckpt *ck = p->ck;
	struct ck_tree tree = CK_TREE_INIT;
	int rc = ck_look_list(ck->pool, &tree, &root, 1, NULL, ck->limits.files, err);

	for (uint64_t i = 0; !rc && i < tree.n; i++) {
		const struct ck_tree_entry *e = &tree.entry[i];

		if (!is_left_out(e))
			rc = add(p, ck_arena_strdup(&p->arena, e->name),
				 ck_arena_strdup(&p->arena, e->path), NULL, err);
	}
	ck_tree_release(&tree);
	if (rc || (ck->driver->is_step && !ck->driver->latest))
		return rc;
	return add(p, ck->driver->is_step ? ck->driver->latest : "latest", NULL, p->top, err);
}

/* Whether the step was found below what was given, not given itself. */
static bool is_found(const struct ckpt *ck)
{
	const struct ck_mount *m = ck_fdpool_mount(ck->pool);
	const char *given = m ? m->root : ck->path[0];
	size_t n = strlen(given);

	while (n > 1 && given[n - 1] == '/')
		n--;
	return strlen(ck->ix.path) > n && !strncmp(ck->ix.path, given, n);
}

static int list_files(struct packing *p, struct ckpt_err *err)
{
	const struct ckpt *ck = p->ck;
	enum ck_fs_kind kind;
	char *root = NULL;
	int rc = ck_look_kind(ck->pool, ck->ix.path, &kind, NULL, err);

	if (!rc)
		rc = ck_folder_list(&p->folder, ck, err);
	if (!rc)
		rc = name_top(p, err);
	if (!rc)
		rc = add_step(p, kind == CK_FS_DIR, err);
	if (!rc && kind == CK_FS_DIR && is_found(ck)) {
		root = ck_fs_parent(ck->ix.path);
		rc = root ? add_beside(p, root, err) : ck_fail_nomem(err, "a path", 0);
	}
	ck_free(root);
	return rc;
}

/* ---- what passes is what it was ---- */

static int saw(void *arg, uint64_t file, uint64_t off, const void *p, size_t n,
	       struct ckpt_err *err)
{
	struct packing *pk = arg;
	const char *path = pk->file[file].path;

	return path ? ck_source_check_saw_file(&pk->proof, path, off, p, n, err) : 0;
}

static int check_proof(void *arg, struct ckpt_err *err)
{
	struct packing *p = arg;
	const struct ck_source_check_ask ask = {
		.ix = &p->ck->ix, .members = { .rest = CK_CRC_CHECK_WHOLE },
		.pieces = { .rest = CK_REST_WANTED, .threads = p->run.threads,
			    .cancel = p->run.cancel },
	};

	for (uint64_t i = 0; i < p->n; i++)
		if (p->file[i].path)
			ck_source_check_want_file(&p->proof, p->file[i].path, UINT64_MAX);
	return ck_source_check_check(&p->proof, &ask, &p->ck->findings, err);
}

static void report(const struct ck_pack_done *done, double began, struct ckpt_packed *out)
{
	if (!out)
		return;
	*out = (struct ckpt_packed){
		.files = done->files, .bytes = done->bytes, .archive_bytes = done->archive,
		.threads = done->threads, .seconds = ck_clock_seconds() - began,
		.would_write_bytes = done->to_write, .would_read_bytes = done->to_read,
		.free_bytes = done->free,
	};
	strncpy(out->kind, done->kind, sizeof(out->kind) - 1);
}

int ck_pack_step(struct ckpt *ck, const char *dst, const struct ckpt_pack_opts *opts,
		 struct ckpt_packed *packed_out, struct ckpt_err *err)
{
	struct packing p = { .ck = ck };
	const struct ck_archive_format *driver = ck->formats->archive;
	const struct ckpt_finding *f =
		ck_findings_worst(&ck->findings, opts->flags & CKPT_WRITE_STRICT ? CKPT_WARN :
				  CKPT_ERROR);
	struct ck_pack_want want = {
		.pool = ck->pool, .dst = strcmp(dst, "-") ? dst : NULL, .fd = opts->out_fd,
		.flags = opts->flags, .level = opts->level ? opts->level : LEVEL,
		.limits = &ck->limits, .saw = saw, .check = check_proof, .arg = &p,
	};
	const double began = ck_clock_seconds();
	struct ck_pack_done done = { 0 };
	int rc = check_driver(driver, err);

	ck_run_opts_fill(opts->run, &p.run);
	want.run = &p.run;
	if (!rc && f)
		rc = ck_findings_fail(f, err);
	if (!rc)
		rc = ck_stated_begin(ck, err);
	if (!rc)
		rc = ck_source_check_init(&p.proof, &ck->ix, &ck->limits, NULL, err);
	if (!rc && (want.level < 1 || want.level > HIGHEST))
		rc = ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			     "level %d is not between 1 and %d", want.level, HIGHEST);
	if (!rc)
		rc = list_files(&p, err);
	want.file = p.file;
	want.n = p.n;
	ck_fdpool_set_drop(ck->pool, true);
	if (!rc)
		rc = driver->pack(&want, &done, err);
	ck_fdpool_set_drop(ck->pool, false);
	if (!rc)
		report(&done, began, packed_out);
	ck_source_check_release(&p.proof);
	ck_free(p.file);
	ck_folder_release(&p.folder);
	ck_arena_release(&p.arena);
	return rc;
}

int ck_unpack_archive(const struct ck_archive_format *driver, const char *path, const char *dst,
		      const struct ckpt_unpack_opts *opts, struct ckpt_packed *packed_out,
		      struct ckpt_err *err)
{
	struct ckpt_limits limits;
	struct ckpt_run_opts run;
	struct ck_unpack_want want = {
		.path = path, .dst = dst, .flags = opts->flags, .run = &run, .limits = &limits,
	};
	const double began = ck_clock_seconds();
	struct ck_pack_done done = { 0 };
	int rc = check_driver(driver, err);

	ck_limits_fill(opts->limits, &limits);
	ck_run_opts_fill(opts->run, &run);
	if (!rc) {
		want.pool = ck_fdpool_new(0);
		rc = want.pool ? 0 : ck_fail_nomem(err, "a pool of files", 0);
	}
	if (!rc)
		rc = driver->unpack(&want, &done, err);
	if (!rc)
		report(&done, began, packed_out);
	ck_fdpool_free(want.pool);
	return rc;
}
