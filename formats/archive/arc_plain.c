/*
 * arc_plain.c -- `unpack` of what other programs packed: tar, tar.gz, tar.zst, zip.
 *
 * libarchive reads the archive twice.  The first time every entry is looked at and nothing is
 * written; an entry that is refused refuses the archive.  The second time must say the same.
 */
#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "formats/archive/arc_dest.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"

#define WINDOW ((size_t)1 << 20)

struct plain {
	const struct ck_unpack_want *want;
	struct ck_src *src;
	uint64_t at;		/* in the archive */
	uint8_t *buf;
	struct archive *a;
	struct ckpt_err err;	/* of reading, inside libarchive */
	struct ck_arena arena;	/* names */
	struct arc_dest_file *file;
	uint64_t n, cap;
	uint64_t total;		/* bytes of files */
	uint64_t entries;	/* folders too */
	uint64_t done;
};

/* ------------------------------------------------------------------------ libarchive */

static la_ssize_t give_bytes(struct archive *a, void *arg, const void **p_out)
{
	struct plain *pl = arg;
	const uint64_t n = ck_min_u64(WINDOW, ck_src_size(pl->src) - pl->at);

	if (ck_src_read(pl->src, pl->at, pl->buf, n, &pl->err)) {
		archive_set_error(a, EIO, "%s", pl->err.msg);
		return -1;
	}
	pl->at += n;
	*p_out = pl->buf;
	return (la_ssize_t)n;
}

static la_int64_t skip_bytes(struct archive *a, void *arg, la_int64_t n)
{
	struct plain *pl = arg;

	(void)a;
	if (n < 0 || (uint64_t)n > ck_src_size(pl->src) - pl->at)
		return 0;
	pl->at += (uint64_t)n;
	return n;
}

static la_int64_t seek_to(struct archive *a, void *arg, la_int64_t off, int whence)
{
	struct plain *pl = arg;
	const la_int64_t size = (la_int64_t)ck_src_size(pl->src);
	const la_int64_t base = whence == SEEK_SET ? 0 : whence == SEEK_CUR ? (la_int64_t)pl->at :
				size;

	(void)a;
	if (off < -base || off > size - base)
		return ARCHIVE_FATAL;
	pl->at = (uint64_t)(base + off);
	return base + off;
}

static int fail_archive(struct plain *pl, struct ckpt_err *err)
{
	const char *why = archive_error_string(pl->a);

	if (pl->err.code) {
		if (err && !err->code)
			*err = pl->err;
		return -(int)pl->err.code;
	}
	return ck_fail(err, CKPT_E_CORRUPT, pl->want->path, CKPT_NO_OFFSET,
		       "the archive cannot be read: %s", why ? why : "no reason is given");
}

static int begin_reading(struct plain *pl, struct ckpt_err *err)
{
	const char *why;

	pl->at = 0;
	pl->a = archive_read_new();
	if (!pl->a)
		return ck_fail_nomem(err, "a reader of archives", 0);
	archive_read_support_filter_gzip(pl->a);
	archive_read_support_filter_zstd(pl->a);
	archive_read_support_format_tar(pl->a);
	archive_read_support_format_zip(pl->a);
	archive_read_set_read_callback(pl->a, give_bytes);
	archive_read_set_skip_callback(pl->a, skip_bytes);
	archive_read_set_seek_callback(pl->a, seek_to);
	archive_read_set_callback_data(pl->a, pl);
	if (archive_read_open1(pl->a) == ARCHIVE_OK)
		return 0;
	why = archive_error_string(pl->a);
	if (pl->err.code)
		return fail_archive(pl, err);
	return ck_fail(err, CKPT_E_FORMAT, pl->want->path, CKPT_NO_OFFSET,
		       "not a pack, .tar, .tar.gz, .tar.zst or .zip: %s",
		       why ? why : "not recognised");
}

static void end_reading(struct plain *pl)
{
	archive_read_free(pl->a);
	pl->a = NULL;
}

/* 1 = there is none left. */
static int next_header(struct plain *pl, struct archive_entry **e_out, struct ckpt_err *err)
{
	const int got = archive_read_next_header(pl->a, e_out);

	if (got == ARCHIVE_EOF)
		return 1;
	return got == ARCHIVE_OK || got == ARCHIVE_WARN ? 0 : fail_archive(pl, err);
}

static bool is_canceled(const struct plain *pl)
{
	return pl->want->run->cancel && *pl->want->run->cancel;
}

/* ------------------------------------------------------------------------ looking */

static int refuse(const struct plain *pl, const char *name, const char *what, struct ckpt_err *err)
{
	return ck_fail(err, CKPT_E_UNSAFE, pl->want->path, CKPT_NO_OFFSET,
		       "refused: the archive holds %s: %.120s", what, name);
}

/* What kind of thing is refused; NULL = a plain file or a folder. */
static const char *bad_kind(struct archive_entry *e)
{
	if (archive_entry_hardlink(e))
		return "a hard link";
	switch (archive_entry_filetype(e)) {
	case AE_IFREG:
	case AE_IFDIR:
		return archive_entry_symlink(e) ? "a symbolic link" : NULL;
	case AE_IFLNK:
		return "a symbolic link";
	case AE_IFCHR:
	case AE_IFBLK:
		return "a device";
	case AE_IFIFO:
		return "a fifo";
	case AE_IFSOCK:
		return "a socket";
	default:
		return "an entry that is neither a file nor a folder";
	}
}

/* Without "./" before it; of a folder also without the slash behind it. */
static const char *plain_name(const char *name, bool is_dir, size_t *n_out)
{
	size_t n;

	while (!strncmp(name, "./", 2))
		name += 2 + strspn(name + 2, "/");
	n = strlen(name);
	while (is_dir && n && name[n - 1] == '/')
		n--;
	if (is_dir && n == 1 && name[0] == '.')
		n = 0;
	*n_out = n;
	return name;
}

/* Bytes of a file whose header does not say: all of it is read. */
static int count_bytes(struct plain *pl, uint64_t most, uint64_t *bytes_out, struct ckpt_err *err)
{
	uint64_t bytes = 0;
	const void *p;
	la_int64_t off;
	size_t n;
	int got;

	while ((got = archive_read_data_block(pl->a, &p, &n, &off)) == ARCHIVE_OK) {
		if ((uint64_t)off != bytes || n > most - bytes)
			return ck_fail(err, CKPT_E_LIMIT, pl->want->path, CKPT_NO_OFFSET,
				       "a file in the archive has holes, or more than %" PRIu64
				       " bytes", most);
		bytes += n;
		if (is_canceled(pl))
			return ck_fail(err, CKPT_E_CANCELED, NULL, CKPT_NO_OFFSET, "canceled");
	}
	if (got != ARCHIVE_EOF)
		return fail_archive(pl, err);
	*bytes_out = bytes;
	return 0;
}

/* How many bytes files may have in all. */
static uint64_t most_bytes(const struct plain *pl)
{
	const struct ckpt_limits *limits = pl->want->limits;
	uint64_t most;

	if (ck_mul_over(ck_src_size(pl->src), limits->inflate_ratio, &most))
		most = INT64_MAX;
	return ck_max_u64(most, limits->inflate_bytes);
}

static int add_file(struct plain *pl, struct archive_entry *e, const char *name, size_t n,
		    struct ckpt_err *err)
{
	const uint64_t most = most_bytes(pl);
	struct arc_dest_file *f;
	uint64_t bytes = 0;
	int rc = ck_grow(&pl->file, &pl->cap, pl->n + 1, sizeof(*f), err);

	if (!rc && archive_entry_size_is_set(e))
		bytes = archive_entry_size(e) < 0 ? UINT64_MAX : (uint64_t)archive_entry_size(e);
	f = rc ? NULL : &pl->file[pl->n];
	if (f) {
		*f = (struct arc_dest_file){ .name = ck_arena_strndup(&pl->arena, name, n) };
		if (!f->name)
			rc = ck_fail_nomem(err, "a name", n);
	}
	if (!rc && !archive_entry_size_is_set(e))
		rc = count_bytes(pl, most - pl->total, &bytes, err);
	if (rc)
		return rc;
	if (bytes > most - pl->total)
		return ck_fail(err, CKPT_E_LIMIT, pl->want->path, CKPT_NO_OFFSET,
			       "the archive of %" PRIu64 " bytes would unpack to more than "
			       "%" PRIu64 " bytes", ck_src_size(pl->src), most);
	f->bytes = bytes;
	pl->total += bytes;
	pl->n++;
	return 0;
}

static int look_at(struct plain *pl, struct archive_entry *e, struct ckpt_err *err)
{
	const char *given = archive_entry_pathname(e), *what = bad_kind(e), *name;
	const bool is_dir = archive_entry_filetype(e) == AE_IFDIR;
	size_t n;
	int rc;

	if (++pl->entries > pl->want->limits->files)
		return ck_fail(err, CKPT_E_LIMIT, pl->want->path, CKPT_NO_OFFSET,
			       "the archive has more than %u entries", pl->want->limits->files);
	if (!given)
		return refuse(pl, "", "a name that is not UTF-8", err);
	if (what)
		return refuse(pl, given, what, err);
	name = plain_name(given, is_dir, &n);
	if (is_dir && !n)
		return 0;	/* the folder itself: "./" */
	rc = ck_arc_name_check(name, n, pl->want->path, err);
	if (rc || is_dir)
		return rc;
	if (archive_entry_is_encrypted(e) || archive_entry_sparse_count(e))
		return ck_fail(err, CKPT_E_UNSUPPORTED, pl->want->path, CKPT_NO_OFFSET,
			       "a file in the archive is %s: %.120s",
			       archive_entry_is_encrypted(e) ? "encrypted" : "sparse", given);
	return add_file(pl, e, name, n, err);
}

static int list_files(struct plain *pl, struct ckpt_err *err)
{
	struct archive_entry *e;
	int rc;

	while (!(rc = next_header(pl, &e, err))) {
		rc = is_canceled(pl) ?
		     ck_fail(err, CKPT_E_CANCELED, NULL, CKPT_NO_OFFSET, "canceled") :
		     look_at(pl, e, err);
		if (rc)
			return rc;
	}
	return rc < 0 ? rc : 0;
}

static const char *kind_of(struct archive *a)
{
	if ((archive_format(a) & ARCHIVE_FORMAT_BASE_MASK) == ARCHIVE_FORMAT_ZIP)
		return "zip";
	switch (archive_filter_code(a, 0)) {
	case ARCHIVE_FILTER_GZIP:
		return "tar.gz";
	case ARCHIVE_FILTER_ZSTD:
		return "tar.zst";
	default:
		return "tar";
	}
}

/* ------------------------------------------------------------------------ writing */

static int fail_changed(const struct plain *pl, struct ckpt_err *err)
{
	return ck_fail(err, CKPT_E_MISMATCH, pl->want->path, CKPT_NO_OFFSET,
		       "the archive changed between two reads: another program is writing "
		       "to it");
}

static int write_block(struct plain *pl, struct arc_dest *d, uint64_t i, uint64_t off,
		       const void *p, size_t n, struct ckpt_err *err)
{
	const struct ckpt_run_opts *run = pl->want->run;

	pl->done += n;
	if (run->progress) {
		const struct ckpt_progress now = { pl->done, pl->total };

		run->progress(run->progress_arg, &now);
	}
	if (is_canceled(pl))
		return ck_fail(err, CKPT_E_CANCELED, NULL, CKPT_NO_OFFSET, "canceled");
	return ck_stage_write(d->stage, d->number[i], off, p, n, err);
}

static int write_file(struct plain *pl, struct arc_dest *d, uint64_t i, struct ckpt_err *err)
{
	const struct arc_dest_file *f = &pl->file[i];
	uint64_t at = 0;
	const void *p;
	la_int64_t off;
	size_t n;
	int got, rc;

	while ((got = archive_read_data_block(pl->a, &p, &n, &off)) == ARCHIVE_OK) {
		if ((uint64_t)off != at || n > f->bytes - at)
			return fail_changed(pl, err);
		rc = n ? write_block(pl, d, i, at, p, n, err) : 0;
		if (rc)
			return rc;
		at += n;
	}
	if (got != ARCHIVE_EOF)
		return fail_archive(pl, err);
	return at == f->bytes ? 0 : fail_changed(pl, err);
}

static int write_all(struct plain *pl, struct arc_dest *d, struct ckpt_err *err)
{
	struct archive_entry *e;
	uint64_t i = 0;
	int rc;

	while (!(rc = next_header(pl, &e, err))) {
		const char *name = archive_entry_pathname(e);
		size_t n;

		if (archive_entry_filetype(e) == AE_IFDIR)
			continue;
		name = name && !bad_kind(e) ? plain_name(name, false, &n) : NULL;
		if (!name || i >= pl->n || strcmp(name, pl->file[i].name))
			return fail_changed(pl, err);
		rc = write_file(pl, d, i++, err);
		if (rc)
			return rc;
	}
	return rc < 0 ? rc : i == pl->n ? 0 : fail_changed(pl, err);
}

static int unpack(struct plain *pl, struct ck_pack_done *done, struct ckpt_err *err)
{
	struct arc_dest d = { .want = pl->want };
	bool settled = false;
	int rc = begin_reading(pl, err);

	if (!rc)
		rc = list_files(pl, err);
	if (!rc)
		done->kind = kind_of(pl->a);
	end_reading(pl);
	if (!rc)
		rc = ck_arc_dest_init(&d, pl->want, pl->file, pl->n, err);
	if (!rc)
		rc = ck_arc_dest_begin(&d, &settled, err);
	if (!rc && !settled && !(pl->want->flags & CKPT_WRITE_DRY_RUN)) {
		rc = begin_reading(pl, err);
		if (!rc)
			rc = write_all(pl, &d, err);
		end_reading(pl);
		if (!rc)
			rc = ck_arc_dest_commit(&d, err);
	}
	done->free = d.free;
	ck_arc_dest_release(&d, rc);
	return rc;
}

int ck_unpack_plain(const struct ck_unpack_want *want, struct ck_src *src,
		    struct ck_pack_done *done_out, struct ckpt_err *err)
{
	struct plain pl = { .want = want, .src = src, .buf = ck_alloc(WINDOW) };
	struct ck_pack_done done = { 0 };
	struct ck_tar_locale l;
	int rc = pl.buf ? 0 : ck_fail_nomem(err, "a buffer", WINDOW);

	ck_tar_locale_begin(&l);
	if (!rc)
		rc = unpack(&pl, &done, err);
	ck_tar_locale_end(&l);
	done.files = pl.n;
	done.bytes = pl.total;
	ck_arena_release(&pl.arena);
	ck_free(pl.file);
	ck_free(pl.buf);
	if (!rc)
		*done_out = done;
	return rc;
}
