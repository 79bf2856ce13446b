/*
 * arc_mount.c -- a pack as a source: its files are listed and opened as if it were a folder
 * (ck_mount.h), so that every driver reads from it.
 */
#include <stdlib.h>
#include <string.h>

#include "formats/archive/ck_pack.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/format/ck_format.h"
#include "libckpt/io/ck_mount.h"

struct mounted {
	struct ck_mount mount;	/* first: what the pool knows */
	struct ck_src *src;
	struct ck_pack *pack;
	struct ck_mount_file *file;
	char *at, *root;
	struct ckpt_limits limits;
};

static void unmount(struct ck_mount *mount)
{
	struct mounted *m = (struct mounted *)mount;

	ck_pack_close(m->pack);
	ck_src_close(m->src);
	ck_free(m->file);
	ck_free(m->at);
	ck_free(m->root);
	ck_free(m);
}

static int check(void *arg, uint32_t threads, struct ckpt_err *err)
{
	const struct ckpt_run_opts run = { .threads = threads, .mem_limit = (uint64_t)256 << 20 };
	struct mounted *m = arg;

	return ck_pack_walk(m->pack, &run, m->limits.zip_dir_bytes, NULL, NULL, err);
}

static int read_at(void *arg, uint64_t at, void *buf, size_t n, struct ckpt_err *err)
{
	const struct mounted *m = arg;

	return ck_pack_read(m->pack, at, buf, n, err);
}

static int by_name(const void *a, const void *b)
{
	const struct ck_mount_file *x = a, *y = b;

	return strcmp(x->name, y->name);
}

static int make_table(struct mounted *m, const char *path, struct ckpt_err *err)
{
	const struct ck_pack_index *ix = ck_pack_index(m->pack);

	m->file = ck_alloc_array(ix->n + 1, sizeof(*m->file));
	m->at = ck_strdup(path);
	if (!m->file || !m->at)
		return ck_fail_nomem(err, "a list of files", ix->n);
	for (uint64_t i = 0; i < ix->n; i++)
		m->file[i] = (struct ck_mount_file){
			.name = ix->entry[i].name, .bytes = ix->entry[i].bytes,
			.at = ix->entry[i].at, .mtime_ns = ix->entry[i].mtime_ns,
			.mount = &m->mount,
		};
	if (ix->n)
		qsort(m->file, ix->n, sizeof(*m->file), by_name);
	m->root = ck_mount_root(path, m->file, ix->n);
	if (!m->root)
		return ck_fail_nomem(err, "a path", strlen(path));
	m->mount = (struct ck_mount){
		.at = m->at, .root = m->root, .file = m->file, .n = ix->n, .arg = m,
		.read = read_at, .check = check, .free = unmount,
	};
	return 0;
}

int ck_pack_mount(const struct ck_input *in, struct ckpt_err *err)
{
	struct mounted *m = ck_zalloc(sizeof(*m));
	int rc;

	if (!m)
		return ck_fail_nomem(err, "a pack", sizeof(*m));
	m->limits = in->limits;
	rc = ck_src_open(in->pool, in->path[0], &m->src, err);
	if (!rc)
		rc = ck_pack_open(m->src, &in->limits, &m->pack, err);
	if (!rc && !m->pack)
		rc = ck_fail(err, CKPT_E_FORMAT, in->path[0], CKPT_NO_OFFSET,
			     "this zstd file has no index of a pack (cut short, or made by "
			     "another program?); zckpt unpack or zstd -d unpacks it");
	if (!rc)
		rc = make_table(m, in->path[0], err);
	if (rc)
		unmount(&m->mount);
	else
		ck_fdpool_set_mount(in->pool, &m->mount);
	return rc;
}
