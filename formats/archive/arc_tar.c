/*
 * arc_tar.c -- the tar headers of a pack, made and read by libarchive.
 *
 * Where every file lies is known before a byte of it is read, so libarchive makes one header at
 * a time, and reads a stream of which the files' own bytes are skipped.
 */
#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <inttypes.h>
#include <locale.h>
#include <string.h>

#include "formats/archive/ck_pack.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"

#define PASS ((size_t)256 << 10)

/* libarchive translates names from and to the locale of the thread. */
void ck_tar_locale_begin(struct ck_tar_locale *l)
{
	l->ours = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
	l->before = l->ours ? uselocale(l->ours) : NULL;
}

void ck_tar_locale_end(struct ck_tar_locale *l)
{
	if (!l->ours)
		return;
	uselocale(l->before);
	freelocale(l->ours);
}

/* ------------------------------------------------------------------------ making */

struct making {
	struct ck_buf *out;
	struct ckpt_err *err;
	bool past;		/* the header is made: what comes is the file's */
	int rc;
};

/* A failure is told later: a writer that fails does not free all it holds. */
static la_ssize_t take_bytes(struct archive *a, void *arg, const void *p, size_t n)
{
	struct making *m = arg;

	(void)a;
	if (!m->past && !m->rc)
		m->rc = ck_buf_add(m->out, p, n, m->err);
	return (la_ssize_t)n;
}

static struct archive_entry *make_entry(const struct ck_tar_file *file)
{
	struct archive_entry *e = archive_entry_new();
	const int64_t s = file->mtime_ns / 1000000000 - (file->mtime_ns % 1000000000 < 0);

	if (!e)
		return NULL;
	archive_entry_set_pathname(e, file->name);
	archive_entry_set_size(e, (int64_t)file->bytes);
	archive_entry_set_filetype(e, AE_IFREG);
	archive_entry_set_perm(e, file->executable ? 0755 : 0644);
	archive_entry_set_mtime(e, s, (long)(file->mtime_ns - s * 1000000000));
	return e;
}

/* A writer ends in order when it has had the file's bytes: zeros for them, which go nowhere. */
static int pass_over(struct archive *a, uint64_t bytes)
{
	uint8_t *zeros = ck_zalloc(PASS);
	bool ok = zeros;

	while (ok && bytes) {
		const size_t n = (size_t)ck_min_u64(bytes, PASS);

		ok = archive_write_data(a, zeros, n) == (la_ssize_t)n;
		bytes -= n;
	}
	ck_free(zeros);
	return ok ? ARCHIVE_OK : ARCHIVE_FATAL;
}

/* A writer of its own for each header. */
static int make_header(struct archive *a, const struct ck_tar_file *file, struct making *m)
{
	struct archive_entry *e = make_entry(file);
	int rc = e ? ARCHIVE_OK : ARCHIVE_FATAL;

	if (!rc)
		rc = archive_write_set_format_pax_restricted(a);
	if (!rc)
		rc = archive_write_set_bytes_per_block(a, 0);
	if (!rc)
		rc = archive_write_open(a, m, NULL, take_bytes, NULL);
	if (!rc)
		rc = archive_write_header(a, e);
	m->past = true;
	if (!rc)
		rc = pass_over(a, file->bytes);
	archive_entry_free(e);
	return rc;
}

int ck_tar_header(const struct ck_tar_file *file, struct ck_buf *out, struct ckpt_err *err)
{
	struct making m = { .out = out, .err = err };
	struct archive *a = archive_write_new();
	struct ck_tar_locale l;
	int rc;

	if (!a)
		return ck_fail_nomem(err, "a tar header", 0);
	ck_tar_locale_begin(&l);
	rc = make_header(a, file, &m);
	ck_tar_locale_end(&l);
	if (m.rc)
		rc = m.rc;
	else if (rc)
		rc = ck_fail(err, CKPT_E_UNSUPPORTED, file->name, CKPT_NO_OFFSET,
			     "a tar archive cannot hold this file name: %s",
			     archive_error_string(a) ? archive_error_string(a) : "no memory");
	archive_write_free(a);
	return rc;
}

/* ------------------------------------------------------------------------ gaps */

int ck_tar_gaps_init(struct ck_tar_gaps *gaps, const struct ck_pack_index *ix, uint64_t limit,
		     struct ckpt_err *err)
{
	struct ck_tar_gaps g = { .at = ck_alloc_array(ix->n + 1, sizeof(*g.at)),
				 .pos = ck_alloc_array(ix->n + 2, sizeof(*g.pos)) };
	uint64_t at = 0, pos = 0;

	if (g.at && g.pos) {
		for (uint64_t i = 0; i <= ix->n; i++) {
			g.at[i] = at;
			g.pos[i] = pos;
			pos += (i < ix->n ? ix->entry[i].at : ix->content) - at;
			at = i < ix->n ? ix->entry[i].at + ix->entry[i].bytes : ix->content;
		}
		g.pos[ix->n + 1] = pos;
		if (pos <= limit)
			g.bytes = ck_alloc(pos);
	}
	if (g.bytes) {
		*gaps = g;
		return 0;
	}
	ck_tar_gaps_release(&g);
	return pos > limit ? ck_fail(err, CKPT_E_LIMIT, NULL, CKPT_NO_OFFSET,
				     "the tar headers take %" PRIu64 " bytes, more than zckpt "
				     "reads", pos) :
	       ck_fail_nomem(err, "tar headers", pos);
}

void ck_tar_gaps_release(struct ck_tar_gaps *gaps)
{
	ck_free(gaps->at);
	ck_free(gaps->pos);
	ck_free(gaps->bytes);
	memset(gaps, 0, sizeof(*gaps));
}

/* ------------------------------------------------------------------------ reading */

struct checking {
	const struct ck_pack_index *ix;
	const struct ck_tar_gaps *gaps;
	uint64_t at;		/* in the tar stream: what is read next */
	uint64_t gap;		/* the one that 'at' lies in, or behind */
};

static uint64_t gap_end(const struct checking *c, uint64_t gap)
{
	return c->gaps->at[gap] + (c->gaps->pos[gap + 1] - c->gaps->pos[gap]);
}

static la_ssize_t give_bytes(struct archive *a, void *arg, const void **p_out)
{
	struct checking *c = arg;
	uint64_t end;

	while (c->gap <= c->ix->n && c->at >= gap_end(c, c->gap))
		c->gap++;
	if (c->gap > c->ix->n)
		return 0;
	if (c->at < c->gaps->at[c->gap]) {
		archive_set_error(a, EINVAL, "a header inside a file");
		return -1;
	}
	end = gap_end(c, c->gap);
	*p_out = c->gaps->bytes + c->gaps->pos[c->gap] + (c->at - c->gaps->at[c->gap]);
	end -= c->at;
	c->at += end;
	return (la_ssize_t)end;
}

static la_int64_t skip_bytes(struct archive *a, void *arg, la_int64_t n)
{
	struct checking *c = arg;

	(void)a;
	if (n < 0 || (uint64_t)n > c->ix->content - c->at)
		return 0;
	c->at += (uint64_t)n;
	return n;
}

static int differs(const struct ck_pack_entry *e, const char *where, const char *what,
		   const char *more, struct ckpt_err *err)
{
	return ck_fail(err, CKPT_E_CORRUPT, where, CKPT_NO_OFFSET,
		       "the pack's index and its tar headers disagree about %.100s: %s%.80s",
		       e ? e->name : "the end", what, more ? more : "");
}

static int compare(const struct ck_pack_entry *e, struct archive_entry *h, const char *where,
		   struct ckpt_err *err)
{
	const char *name = archive_entry_pathname(h);

	if (!name || strcmp(name, e->name))
		return differs(e, where, "the header names ", name, err);
	if (archive_entry_filetype(h) != AE_IFREG || archive_entry_hardlink(h) ||
	    archive_entry_symlink(h) || archive_entry_sparse_count(h))
		return differs(e, where, "the header is not of a regular file", NULL, err);
	if (!archive_entry_size_is_set(h) || archive_entry_size(h) < 0 ||
	    (uint64_t)archive_entry_size(h) != e->bytes)
		return differs(e, where, "the header has another size", NULL, err);
	return 0;
}

static int read_headers(struct archive *a, const struct checking *c, const char *where,
			struct ckpt_err *err)
{
	struct archive_entry *h;
	uint64_t i = 0;
	int rc = 0, got;

	for (; !rc; i++) {
		got = archive_read_next_header(a, &h);
		if (got == ARCHIVE_EOF)
			break;
		if (got != ARCHIVE_OK)
			rc = differs(i < c->ix->n ? &c->ix->entry[i] : NULL, where, "",
				     archive_error_string(a), err);
		else if (i >= c->ix->n)
			rc = differs(NULL, where, "more headers than files", NULL, err);
		else if (c->at != c->ix->entry[i].at)
			rc = differs(&c->ix->entry[i], where, "its header is at another place",
				     NULL, err);
		else
			rc = compare(&c->ix->entry[i], h, where, err);
	}
	if (!rc && i != c->ix->n)
		rc = differs(&c->ix->entry[i], where, "it has no header", NULL, err);
	return rc;
}

int ck_tar_check(const struct ck_pack_index *ix, const struct ck_tar_gaps *gaps,
		 const char *where, struct ckpt_err *err)
{
	struct checking c = { .ix = ix, .gaps = gaps };
	struct archive *a = archive_read_new();
	struct ck_tar_locale l;
	int rc;

	if (!a)
		return ck_fail_nomem(err, "a tar reader", 0);
	ck_tar_locale_begin(&l);
	archive_read_support_format_tar(a);
	rc = archive_read_open2(a, &c, NULL, give_bytes, skip_bytes, NULL);
	if (rc)
		rc = differs(NULL, where, "this is not a tar stream", NULL, err);
	else
		rc = read_headers(a, &c, where, err);
	archive_read_free(a);
	ck_tar_locale_end(&l);
	return rc;
}
