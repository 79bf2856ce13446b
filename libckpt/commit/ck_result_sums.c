/* ck_result_sums.c -- see ck_result_sums.h. */
#include "libckpt/commit/ck_result_sums.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/ck_crc.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_hash.h"
#include "libckpt/base/ck_search.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/io/ck_tree.h"

#define MAX_DEPTH 64u

/* A file of the result; records know it by the hash of its name. */
struct named {
	uint64_t hash;
	const char *name;
};

struct filling {
	const struct ck_commit *c;
	struct ck_crc_piece *piece;
	uint64_t npieces, piece_cap;
	struct ck_record_sum *term;	/* of 128 bits; sorted by sum */
	uint64_t nterms, term_cap;
	struct ck_record_sum *place;	/* by file, hashes of headers last, then offset */
	uint64_t nplaces, place_cap;
	struct ck_arena names;
	struct named *file;	/* sorted by hash */
	uint64_t nfiles, file_cap;
};

static int take_sum(struct filling *f, const struct ck_record_sum *s, struct ckpt_err *err)
{
	int rc;

	if (s->kind >= CK_RECORD_READ_CRC)
		return 0;	/* of the source: ck_source_sums.h */
	if (s->sum >= UINT32_MAX && s->kind != CK_RECORD_HEAD)
		return ck_fail(err, CKPT_E_CORRUPT, f->c->partial, CKPT_NO_OFFSET,
			       "a record is damaged: it names checksum number %" PRIu64, s->sum);
	if (s->place) {
		rc = ck_grow(&f->place, &f->place_cap, f->nplaces + 1, sizeof(*f->place), err);
		if (!rc)
			f->place[f->nplaces++] = *s;
		return rc;
	}
	if (s->kind == CK_RECORD_SUM128) {
		rc = ck_grow(&f->term, &f->term_cap, f->nterms + 1, sizeof(*f->term), err);
		if (!rc)
			f->term[f->nterms++] = *s;
		return rc;
	}
	rc = ck_grow(&f->piece, &f->piece_cap, f->npieces + 1, sizeof(*f->piece), err);
	if (!rc)
		f->piece[f->npieces++] = (struct ck_crc_piece){ s->off, s->bytes, (uint32_t)s->sum,
								s->crc };
	return rc;
}

static int read_part(struct filling *f, uint32_t part, struct ckpt_err *err)
{
	char *path = ck_commit_record_path(f->c, part);
	struct ck_record_sum *sums = NULL;
	uint64_t n = 0;
	int rc = path ? ck_record_sums(path, &sums, &n, err) : ck_fail_nomem(err, "a file name", 0);

	for (uint64_t i = 0; !rc && i < n; i++)
		rc = take_sum(f, &sums[i], err);
	ck_free(sums);
	ck_free(path);
	return rc;
}

/* A piece of no bytes, which says where the sum ends, comes behind the last one. */
static int piece_order(const void *a, const void *b)
{
	const struct ck_crc_piece *x = a, *y = b;
	const int order = ck_crc_order(a, b);

	return order ? order : (x->bytes < y->bytes) - (x->bytes > y->bytes);
}

static int place_order(const void *a, const void *b)
{
	const struct ck_record_sum *x = a, *y = b;

	if (x->bytes != y->bytes)
		return x->bytes < y->bytes ? -1 : 1;
	if ((x->kind == CK_RECORD_HEAD) != (y->kind == CK_RECORD_HEAD))
		return x->kind == CK_RECORD_HEAD ? 1 : -1;
	return x->off < y->off ? -1 : x->off > y->off;
}

/* The pieces of one sum. */
static int join(const struct filling *f, uint32_t sum, uint32_t *crc_out, struct ckpt_err *err)
{
	uint64_t lo, n = 0;

	CK_LOWER_BOUND(lo, f->npieces, f->piece[lo].slot < sum);
	while (lo + n < f->npieces && f->piece[lo + n].slot == sum)
		n++;
	if (!n || f->piece[lo + n - 1].bytes)
		return ck_fail(err, CKPT_E_CORRUPT, f->c->partial, CKPT_NO_OFFSET,
			       "the records lack the length of checksum %u", sum);
	return ck_crc_join(f->piece + lo, n, f->piece[lo + n - 1].off, crc_out, err);
}

static int term_order(const void *a, const void *b)
{
	const struct ck_record_sum *x = a, *y = b;

	return (x->sum > y->sum) - (x->sum < y->sum);
}

/* No term: of no bytes, or of none that were hashed. */
static void join_terms(const struct filling *f, uint64_t sum, char text[33])
{
	struct ck_hash128 all = { 0 };
	uint64_t i;

	CK_LOWER_BOUND(i, f->nterms, f->term[i].sum < sum);
	for (; i < f->nterms && f->term[i].sum == sum; i++)
		all = ck_hash128_add(all, (struct ck_hash128){ .lo = f->term[i].off,
							       .hi = f->term[i].bytes });
	ck_hash128_print(all, text);
}

/* Files below a folder of the result, at any depth; 'sub' NULL = the result itself. */
static int list_files(struct filling *f, const char *sub, uint32_t depth, struct ckpt_err *err)
{
	struct ck_tree tree = CK_TREE_INIT;
	const char *data = f->c->data;
	int rc = depth > MAX_DEPTH ? ck_fail(err, CKPT_E_LIMIT, sub, CKPT_NO_OFFSET,
					     "folders are nested more than %u levels deep",
					     MAX_DEPTH) :
		 ck_tree_list(&tree, &data, 1, sub, UINT64_MAX, err);

	for (uint64_t i = 0; !rc && i < tree.n; i++) {
		const struct ck_tree_entry *e = &tree.entry[i];
		const char *name = ck_arena_printf(&f->names, "%s%s%s", sub ? sub : "",
						   sub ? "/" : "", e->name);

		if (!name)
			rc = ck_fail_nomem(err, "a file name", 0);
		else if (e->is_dir)
			rc = list_files(f, name, depth + 1, err);
		else
			rc = ck_grow(&f->file, &f->file_cap, f->nfiles + 1, sizeof(*f->file), err);
		if (!rc && !e->is_dir)
			f->file[f->nfiles++] = (struct named){
				ck_hash64(name, strlen(name)), name,
			};
	}
	ck_tree_release(&tree);
	return rc;
}

static int file_order(const void *a, const void *b)
{
	const struct named *x = a, *y = b;

	return (x->hash > y->hash) - (x->hash < y->hash);
}

/* The path of the file of that name hash. */
static int path_of(const struct filling *f, uint64_t hash, char **path_out, struct ckpt_err *err)
{
	const struct named key = { .hash = hash };
	const struct named *found = f->nfiles ? bsearch(&key, f->file, f->nfiles,
							sizeof(*f->file), file_order) : NULL;

	if (!found)
		return ck_fail(err, CKPT_E_CORRUPT, f->c->data, CKPT_NO_OFFSET,
			       "a file that a record names is missing");
	*path_out = ck_asprintf("%s/%s", f->c->data, found->name);
	return *path_out ? 0 : ck_fail_nomem(err, "a file name", strlen(found->name));
}

static int write_at(int fd, uint64_t off, const uint8_t *p, size_t n, const char *path,
		    struct ckpt_err *err)
{
	while (n) {
		const ssize_t k = ck_sys.pwrite(fd, p, n, (off_t)off);

		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			return ck_fail_sys(err, k ? errno : EIO, "write", path);
		p += k;
		off += (uint64_t)k;
		n -= (size_t)k;
	}
	return 0;
}

static int check_head(const char *path, int fd, const struct ck_record_sum *s,
		      struct ckpt_err *err)
{
	struct stat st;

	if (ck_sys.fstat(fd, &st))
		return ck_fail_sys(err, errno, "stat", path);
	if (s->sum < 32 || s->off > s->sum - 32 || s->sum > (uint64_t)st.st_size)
		return ck_fail(err, CKPT_E_CORRUPT, path, CKPT_NO_OFFSET,
			       "a record names a hash at byte %" PRIu64 " of %" PRIu64 ", but "
			       "the file has %" PRIu64 " bytes",
			       s->off, s->sum, (uint64_t)st.st_size);
	return 0;
}

static int hash_head(const char *path, int fd, const struct ck_record_sum *s, char text[33],
		     struct ckpt_err *err)
{
	int rc = check_head(path, fd, s, err);
	uint64_t at = 0;
	char *p;

	if (rc)
		return rc;
	p = ck_alloc(s->sum);
	if (!p)
		return ck_fail_nomem(err, "a header", s->sum);
	while (!rc && at < s->sum) {
		const ssize_t k = ck_sys.pread(fd, p + at, s->sum - at, (off_t)at);

		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			rc = ck_fail_sys(err, k ? errno : EIO, "read", path);
		else
			at += (uint64_t)k;
	}
	if (!rc) {
		memset(p + s->off, '0', 32);
		ck_hash128_print(ck_hash128(p, s->sum), text);
	}
	ck_free(p);
	return rc;
}

static int write_crc(const struct filling *f, const struct ck_record_sum *s, const char *path,
		     int fd, struct ckpt_err *err)
{
	uint32_t crc = 0;
	uint8_t p[4];
	int rc = join(f, (uint32_t)s->sum, &crc, err);

	ck_put_le32(p, crc);
	return rc ? rc : write_at(fd, s->off, p, sizeof(p), path, err);
}

static int write_sums(const struct filling *f, const char *path, int fd, uint64_t first,
		      uint64_t n, struct ckpt_err *err)
{
	int rc = 0;

	for (uint64_t i = first; !rc && i < first + n; i++) {
		const struct ck_record_sum *s = &f->place[i];
		char text[33];

		if (s->kind == CK_RECORD_CRC) {
			rc = write_crc(f, s, path, fd, err);
			continue;
		}
		if (s->kind == CK_RECORD_HEAD)
			rc = hash_head(path, fd, s, text, err);
		else
			join_terms(f, s->sum, text);
		if (!rc)
			rc = write_at(fd, s->off, (const uint8_t *)text, 32, path, err);
	}
	return rc;
}

/* The places first .. first + n of one file. */
static int fill_file(const struct filling *f, uint64_t first, uint64_t n, enum ckpt_sync sync,
		     struct ckpt_err *err)
{
	char *path = NULL;
	int fd, rc = path_of(f, f->place[first].bytes, &path, err);

	if (rc)
		return rc;
	fd = ck_open(path, O_RDWR | O_NOFOLLOW, 0);
	if (fd < 0) {
		rc = ck_fail_sys(err, errno, "open", path);
		ck_free(path);
		return rc;
	}
	rc = write_sums(f, path, fd, first, n, err);
	if (!rc && sync != CKPT_SYNC_NONE && ck_fdatasync(fd, CK_SYNCED_SUMS))
		rc = ck_fail_sys(err, errno, "sync", path);
	if (ck_close(fd) && !rc)
		rc = ck_fail_sys(err, errno, "close", path);
	ck_free(path);
	return rc;
}

static int fill_files(struct filling *f, enum ckpt_sync sync, struct ckpt_err *err)
{
	int rc = 0;

	for (uint64_t i = 0, n; !rc && i < f->nplaces; i += n) {
		for (n = 1; i + n < f->nplaces && f->place[i + n].bytes == f->place[i].bytes; n++)
			;
		rc = fill_file(f, i, n, sync, err);
	}
	return rc;
}

int ck_result_sums_fill(const struct ck_commit *c, uint32_t nparts, enum ckpt_sync sync,
			struct ckpt_err *err)
{
	struct filling f = { .c = c };
	int rc = 0;

	for (uint32_t part = 0; !rc && part < nparts; part++)
		rc = read_part(&f, part, err);
	if (!rc && f.nplaces) {
		if (f.npieces)
			qsort(f.piece, f.npieces, sizeof(*f.piece), piece_order);
		if (f.nterms)
			qsort(f.term, f.nterms, sizeof(*f.term), term_order);
		qsort(f.place, f.nplaces, sizeof(*f.place), place_order);
		rc = list_files(&f, NULL, 0, err);
		if (!rc && f.nfiles)
			qsort(f.file, f.nfiles, sizeof(*f.file), file_order);
		if (!rc)
			rc = fill_files(&f, sync, err);
	}
	ck_free(f.piece);
	ck_free(f.term);
	ck_free(f.place);
	ck_free(f.file);
	ck_arena_release(&f.names);
	return rc;
}
