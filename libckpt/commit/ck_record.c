/*
 * ck_record.c -- see ck_record.h; bytes are drawn in docs/formats/partial.md.
 *
 * A record is appended to and never synced during a run, because it is only a hint: a unit
 * counts as written if the bytes in the data have the hash that the entry gives.  An entry that
 * reached the disk before its data, or the reverse, costs that unit and nothing else.  Two entries
 * are believed without such a proof: the end of a part, which is appended after the part's files
 * were synced, and the rename to come, which is synced before the rename.
 *
 * The check of an entry is seeded with the plan's hash, so an entry of another plan is no entry of
 * this record, wherever it came from: the record ends there.
 */
#include "libckpt/commit/ck_record.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"

#define HEAD_BYTES 128
#define ENTRY_BYTES 40
#define VERSION 1
#define UNIT_END UINT64_MAX
#define UNIT_PLACE (UINT64_MAX - 1)
#define CRC_IS_THERE 1u
#define IS_PIECE 2u
#define IS_PLACE 4u
#define IS_TERM 8u
#define IS_TERM_PLACE 16u
#define IS_HEAD 32u
#define IS_READ_CRC 64u
#define IS_READ_SUM 128u
#define IS_WANT_CRC 256u
#define IS_WANT_SUM 512u
#define IS_TEXT 1024u
#define ENTRIES_AT_ONCE 128
#define MAX_PARTS 65535

struct noted {
	uint64_t unit;
	struct ck_hash128 hash;
};

struct ck_record {
	int fd;
	char *path;
	uint64_t tail;		/* where the next entry goes */
	uint64_t units_end;	/* of the entries of units, which come first */
	uint64_t seed;		/* of entry checks: first half of the plan hash */
	bool is_new;
	struct noted *noted;	/* sorted by unit */
	uint64_t n, cap;
	struct ck_record_sum *sum;
	uint64_t nsums, sums_cap;
	pthread_mutex_t lock;	/* guards tail */
};

static uint64_t entry_check(const uint8_t *e, uint64_t seed)
{
	uint8_t text[40];

	memcpy(text, e, 32);
	ck_put_le64(text + 32, seed);
	return ck_hash64(text, sizeof(text));
}

static void put_hash(uint8_t *p, struct ck_hash128 h)
{
	ck_put_le64(p, h.lo);
	ck_put_le64(p + 8, h.hi);
}

static struct ck_hash128 get_hash(const uint8_t *p)
{
	return (struct ck_hash128){ .lo = ck_le64(p), .hi = ck_le64(p + 8) };
}

static void head_pack(const struct ck_record_head *h, uint8_t p[HEAD_BYTES])
{
	memset(p, 0, HEAD_BYTES);
	memcpy(p, "ZCKPTREC", 8);
	ck_put_le32(p + 8, VERSION);
	ck_put_le32(p + 12, h->flags);
	ck_put_le32(p + 16, h->part);
	ck_put_le32(p + 20, h->nparts);
	ck_put_le64(p + 24, h->nunits);
	put_hash(p + 32, h->plan);
	put_hash(p + 48, h->fingerprint);
	ck_put_le64(p + 64, h->pid);
	ck_put_le64(p + 72, h->step);
	put_hash(p + 80, h->exact);
	put_hash(p + 96, h->inodes);
	ck_put_le64(p + 120, ck_hash64(p, 120));
}

/*
 * CKPT_E_CORRUPT if the bytes are no header that was written whole, CKPT_E_UNSUPPORTED if
 * a newer version wrote it.
 */
static int head_unpack(const uint8_t p[HEAD_BYTES], struct ck_record_head *h, const char *path,
		       struct ckpt_err *err)
{
	if (memcmp(p, "ZCKPTREC", 8) || ck_le64(p + 120) != ck_hash64(p, 120))
		return ck_fail(err, CKPT_E_CORRUPT, path, 0, "this file is not the record of a "
			       "zckpt run, or it is damaged");
	if (ck_le32(p + 8) != VERSION)
		return ck_fail(err, CKPT_E_UNSUPPORTED, path, 8,
			       "the record has version %u, but zckpt reads version %u; "
			       "--restart deletes it", ck_le32(p + 8), VERSION);
	h->flags = ck_le32(p + 12);
	h->part = ck_le32(p + 16);
	h->nparts = ck_le32(p + 20);
	h->nunits = ck_le64(p + 24);
	h->plan = get_hash(p + 32);
	h->fingerprint = get_hash(p + 48);
	h->pid = ck_le64(p + 64);
	h->step = h->flags & CK_RECORD_INTO ? ck_le64(p + 72) : 0;
	h->exact = get_hash(p + 80);
	h->inodes = get_hash(p + 96);
	if (!h->nparts || h->nparts > MAX_PARTS || h->part >= h->nparts ||
	    (h->flags & ~(CK_RECORD_DIR | CK_RECORD_FORCE | CK_RECORD_INTO | CK_RECORD_SESSION)))
		return ck_fail(err, CKPT_E_CORRUPT, path, 12,
			       "the record names part %u of %u with flags %u, which does not "
			       "exist: it is damaged", h->part, h->nparts, h->flags);
	return 0;
}

/* Bytes read at 'off', less than 'n' at the end of the file; -1 and errno. */
static ssize_t read_at(int fd, uint64_t off, uint8_t *p, size_t n)
{
	size_t got = 0;

	while (got < n) {
		const ssize_t k = ck_sys.pread(fd, p + got, n - got, (off_t)(off + got));

		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			return -1;
		if (!k)
			break;
		got += (size_t)k;
	}
	return (ssize_t)got;
}

static int write_at(struct ck_record *rec, uint64_t off, const uint8_t *p, size_t n,
		    struct ckpt_err *err)
{
	size_t done = 0;

	while (done < n) {
		const ssize_t k = ck_sys.pwrite(rec->fd, p + done, n - done,
						(off_t)(off + done));

		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			return ck_fail_sys(err, k ? errno : EIO, "write", rec->path);
		done += (size_t)k;
	}
	return 0;
}

static int noted_order(const void *a, const void *b)
{
	const struct noted *x = a, *y = b;

	return x->unit < y->unit ? -1 : x->unit > y->unit;
}

/* Of kinds CK_RECORD_READ_CRC and on. */
static const uint32_t read_flags[] = {
	IS_READ_CRC, IS_READ_SUM, IS_WANT_CRC, IS_WANT_SUM, IS_TEXT,
};

static uint8_t kind_of(uint32_t flags)
{
	for (uint8_t i = 0; i < sizeof(read_flags) / sizeof(*read_flags); i++)
		if (flags == read_flags[i])
			return (uint8_t)(CK_RECORD_READ_CRC + i);
	return flags == IS_HEAD ? CK_RECORD_HEAD :
	       flags & (IS_TERM | IS_TERM_PLACE) ? CK_RECORD_SUM128 : CK_RECORD_CRC;
}

/* An entry of a sum. */
static bool take_sum(struct ck_record *rec, const uint8_t *e, int *rc, struct ckpt_err *err)
{
	*rc = ck_grow(&rec->sum, &rec->sums_cap, rec->nsums + 1, sizeof(*rec->sum), err);
	if (*rc)
		return false;
	rec->sum[rec->nsums++] = (struct ck_record_sum){
		.sum = ck_le64(e), .off = ck_le64(e + 16), .bytes = ck_le64(e + 24),
		.crc = ck_le32(e + 8),
		.place = ck_le32(e + 12) & (IS_PLACE | IS_TERM_PLACE | IS_HEAD),
		.kind = kind_of(ck_le32(e + 12)),
	};
	return true;
}

/* Flags have one bit, or none. */
static bool is_sum(uint32_t flags)
{
	return flags == IS_PIECE || flags == IS_PLACE || flags == IS_TERM ||
	       flags == IS_TERM_PLACE || flags == IS_HEAD ||
	       kind_of(flags) >= CK_RECORD_READ_CRC;
}

/* What one entry says; false if it ends the record. */
static bool take_entry(struct ck_record *rec, const uint8_t *e, struct ck_record_seen *seen,
		       int *rc, struct ckpt_err *err)
{
	const uint64_t unit = ck_le64(e);
	const uint32_t flags = ck_le32(e + 12);

	if (ck_le64(e + 32) != entry_check(e, rec->seed) ||
	    (flags & ~CRC_IS_THERE && !is_sum(flags)))
		return false;
	if (is_sum(flags))
		return !seen->ended && take_sum(rec, e, rc, err);
	if (unit == UNIT_END) {
		seen->ended = true;
		return true;
	}
	if (unit == UNIT_PLACE) {
		seen->placing = ck_le64(e + 16);
		return true;
	}
	if (unit >= seen->head.nunits || seen->ended || rec->nsums)
		return false;
	*rc = ck_grow(&rec->noted, &rec->cap, rec->n + 1, sizeof(*rec->noted), err);
	if (*rc)
		return false;
	rec->noted[rec->n++] = (struct noted){ unit, get_hash(e + 16) };
	rec->units_end = rec->tail + ENTRY_BYTES;
	return true;
}

/* Read entries until one is cut or damaged. */
static int load_entries(struct ck_record *rec, struct ck_record_seen *seen, struct ckpt_err *err)
{
	uint8_t p[ENTRIES_AT_ONCE * ENTRY_BYTES];
	bool more = true;
	int rc = 0;

	rec->units_end = rec->tail;
	while (more) {
		const ssize_t k = read_at(rec->fd, rec->tail, p, sizeof(p));

		if (k < 0)
			return ck_fail_sys(err, errno, "read", rec->path);
		more = k == (ssize_t)sizeof(p);
		for (ssize_t at = 0; at + ENTRY_BYTES <= k; at += ENTRY_BYTES) {
			if (!take_entry(rec, p + at, seen, &rc, err)) {
				more = false;
				break;
			}
			rec->tail += ENTRY_BYTES;
		}
	}
	if (rec->n)
		qsort(rec->noted, rec->n, sizeof(*rec->noted), noted_order);
	return rc;
}

/* The header, then all entries. */
static int load(struct ck_record *rec, struct ck_record_seen *seen, struct ckpt_err *err)
{
	uint8_t p[HEAD_BYTES];
	const ssize_t k = read_at(rec->fd, 0, p, sizeof(p));
	int rc;

	if (k < 0)
		return ck_fail_sys(err, errno, "read", rec->path);
	if (k < HEAD_BYTES)
		return ck_fail(err, CKPT_E_CORRUPT, rec->path, (uint64_t)k,
			       "the record has %zd bytes, but its header alone takes %d",
			       k, HEAD_BYTES);
	rc = head_unpack(p, &seen->head, rec->path, err);
	if (rc)
		return rc;
	rec->seed = seen->head.plan.lo;
	return load_entries(rec, seen, err);
}

static int fail_busy(const struct ck_record *rec, struct ckpt_err *err)
{
	struct ck_record_head h = { 0 };
	uint8_t p[HEAD_BYTES];

	if (read_at(rec->fd, 0, p, sizeof(p)) == HEAD_BYTES && !head_unpack(p, &h, "", NULL))
		return ck_fail(err, CKPT_E_BUSY, rec->path, CKPT_NO_OFFSET,
			       "process %" PRIu64 " is writing this result now", h.pid);
	return ck_fail(err, CKPT_E_BUSY, rec->path, CKPT_NO_OFFSET,
		       "another process is writing this result now");
}

/*
 * A file system without locks is used without: then nothing keeps two runs apart.  A record
 * that was removed between open and lock belongs to a run that has just ended.
 */
static int lock_record(struct ck_record *rec, struct ckpt_err *err)
{
	struct stat ours, now;
	bool gone;

	if (ck_flock(rec->fd, LOCK_EX | LOCK_NB)) {
		if (errno == EWOULDBLOCK)
			return fail_busy(rec, err);
		if (errno != ENOSYS && errno != ENOLCK && errno != EOPNOTSUPP)
			return ck_fail_sys(err, errno, "lock", rec->path);
	}
	if (ck_sys.fstat(rec->fd, &ours))
		return ck_fail_sys(err, errno, "fstat", rec->path);
	gone = ck_sys.stat(rec->path, &now);
	if (gone && errno != ENOENT)
		return ck_fail_sys(err, errno, "stat", rec->path);
	if (gone || ours.st_ino != now.st_ino || ours.st_dev != now.st_dev)
		return ck_fail(err, CKPT_E_BUSY, rec->path, CKPT_NO_OFFSET,
			       "another run has just finished here; start this one again");
	return 0;
}

static bool same_run(const struct ck_record_head *a, const struct ck_record_head *b)
{
	return a->flags == b->flags && a->part == b->part && a->nparts == b->nparts &&
	       a->nunits == b->nunits && ck_hash128_equal(a->plan, b->plan) &&
	       ck_hash128_equal(a->fingerprint, b->fingerprint);
}

/* Copies of a source on other machines have inodes and ctimes of their own. */
bool ck_record_same_files(const struct ck_record_head *a, const struct ck_record_head *b)
{
	return !ck_hash128_equal(a->inodes, b->inodes) || ck_hash128_equal(a->exact, b->exact);
}

/* Nothing is taken over. */
static int begin_anew(struct ck_record *rec, struct ckpt_err *err)
{
	ck_free(rec->noted);
	rec->noted = NULL;
	rec->n = rec->cap = 0;
	rec->nsums = 0;
	rec->units_end = HEAD_BYTES;
	rec->is_new = true;
	if (ck_ftruncate(rec->fd, 0))
		return ck_fail_sys(err, errno, "truncate", rec->path);
	return 0;
}

/*
 * Take over what is there, or begin anew.  Entries behind those of units go: the part has
 * not ended, and nothing stale may follow what is appended.
 */
static int adopt(struct ck_record *rec, const struct ck_record_head *head,
		 struct ckpt_err *err)
{
	struct ck_record_seen old = { 0 };
	struct ckpt_err inner = { 0 };
	uint8_t p[HEAD_BYTES];
	int rc = load(rec, &old, &inner);

	if (rc == -CKPT_E_CORRUPT) {
		rc = begin_anew(rec, err);
	} else if (rc) {
		if (err && !err->code)
			*err = inner;
	} else if (!same_run(&old.head, head)) {
		rc = ck_fail(err, CKPT_E_EXISTS, rec->path, CKPT_NO_OFFSET,
			     "a run with %s is unfinished here; %s deletes its output",
			     ck_hash128_equal(old.head.fingerprint, head->fingerprint) ?
			     "other options" : "another source",
			     head->nparts > 1 ? "zckpt commit --discard" : "--restart");
	} else if (!ck_hash128_equal(old.head.exact, head->exact)) {
		rc = begin_anew(rec, err);	/* the source was written to, or is another one */
	}
	if (rc)
		return rc;
	rec->tail = rec->units_end;
	if (!rec->is_new && ck_ftruncate(rec->fd, (off_t)rec->tail))
		return ck_fail_sys(err, errno, "truncate", rec->path);
	head_pack(head, p);
	rec->seed = head->plan.lo;
	return write_at(rec, 0, p, sizeof(p), err);
}

/* Open and lock. */
static int record_new(const char *path, int flags, struct ck_record **rec_out,
		      struct ckpt_err *err)
{
	struct ck_record *rec = ck_zalloc(sizeof(*rec));
	int rc = 0;

	if (!rec)
		return ck_fail_nomem(err, "a record", sizeof(*rec));
	pthread_mutex_init(&rec->lock, NULL);
	rec->tail = HEAD_BYTES;
	rec->fd = -1;
	rec->path = ck_strdup(path);
	if (!rec->path)
		rc = ck_fail_nomem(err, "a file name", strlen(path));
	if (!rc) {
		rec->fd = ck_open(path, flags | O_RDWR | O_NOFOLLOW, 0666);
		if (rec->fd < 0)
			rc = ck_fail_sys(err, errno, "open", path);
	}
	if (!rc)
		rc = lock_record(rec, err);
	if (rc) {
		ck_record_close(rec);
		return rc;
	}
	*rec_out = rec;
	return 0;
}

int ck_record_open(const char *path, const struct ck_record_head *head,
		   struct ck_record **rec_out, struct ckpt_err *err)
{
	struct ck_record *rec;
	int rc = record_new(path, O_CREAT, &rec, err);

	if (rc)
		return rc;
	rc = adopt(rec, head, err);
	if (rc) {
		ck_record_close(rec);
		return rc;
	}
	*rec_out = rec;
	return 0;
}

int ck_record_claim(const char *path, struct ck_record **rec_out,
		    struct ck_record_seen *seen_out, struct ckpt_err *err)
{
	struct ck_record_seen seen = { 0 };
	struct ck_record *rec;
	int rc = record_new(path, 0, &rec, err);

	if (rc)
		return rc;
	rc = load(rec, &seen, err);
	if (rc) {
		ck_record_close(rec);
		return rc;
	}
	*rec_out = rec;
	*seen_out = seen;
	return 0;
}

bool ck_record_is_new(const struct ck_record *rec)
{
	return rec->is_new;
}

void ck_record_close(struct ck_record *rec)
{
	if (!rec)
		return;
	if (rec->fd >= 0)
		ck_close(rec->fd);
	pthread_mutex_destroy(&rec->lock);
	ck_free(rec->noted);
	ck_free(rec->sum);
	ck_free(rec->path);
	ck_free(rec);
}

static int append_entry(struct ck_record *rec, uint8_t *e, struct ckpt_err *err)
{
	int rc;

	ck_put_le64(e + 32, entry_check(e, rec->seed));
	pthread_mutex_lock(&rec->lock);
	rc = write_at(rec, rec->tail, e, ENTRY_BYTES, err);
	if (!rc)
		rec->tail += ENTRY_BYTES;
	pthread_mutex_unlock(&rec->lock);
	return rc;
}

static int append(struct ck_record *rec, uint64_t unit, struct ck_hash128 hash,
		  struct ckpt_err *err)
{
	uint8_t e[ENTRY_BYTES] = { 0 };

	ck_put_le64(e, unit);
	put_hash(e + 16, hash);
	return append_entry(rec, e, err);
}

static uint32_t flags_of(const struct ck_record_sum *sum)
{
	if (sum->kind >= CK_RECORD_READ_CRC)
		return read_flags[sum->kind - CK_RECORD_READ_CRC];
	if (sum->kind == CK_RECORD_HEAD)
		return IS_HEAD;
	if (sum->kind == CK_RECORD_SUM128)
		return sum->place ? IS_TERM_PLACE : IS_TERM;
	return sum->place ? IS_PLACE : IS_PIECE;
}

int ck_record_sum(struct ck_record *rec, const struct ck_record_sum *sum, struct ckpt_err *err)
{
	uint8_t e[ENTRY_BYTES] = { 0 };

	ck_put_le64(e, sum->sum);
	ck_put_le32(e + 8, sum->crc);
	ck_put_le32(e + 12, flags_of(sum));
	ck_put_le64(e + 16, sum->off);
	ck_put_le64(e + 24, sum->bytes);
	return append_entry(rec, e, err);
}

int ck_record_note(struct ck_record *rec, uint64_t unit, struct ck_hash128 hash,
		   struct ckpt_err *err)
{
	return append(rec, unit, hash, err);
}

int ck_record_end(struct ck_record *rec, struct ckpt_err *err)
{
	return append(rec, UNIT_END, (struct ck_hash128){ 0 }, err);
}

int ck_record_place(struct ck_record *rec, uint64_t inode, bool sync, struct ckpt_err *err)
{
	int rc = append(rec, UNIT_PLACE, (struct ck_hash128){ .lo = inode }, err);

	if (!rc && sync && ck_fsync(rec->fd, CK_SYNCED_ENTRY))
		rc = ck_fail_sys(err, errno, "sync", rec->path);
	return rc;
}

bool ck_record_find(const struct ck_record *rec, uint64_t unit, struct ck_hash128 *hash_out)
{
	const struct noted key = { .unit = unit };
	const struct noted *found = NULL;

	if (rec->n)
		found = bsearch(&key, rec->noted, rec->n, sizeof(key), noted_order);
	if (found)
		*hash_out = found->hash;
	return found;
}

/* Read without locking.  The caller frees rec->noted and rec->sum. */
static int peek(struct ck_record *rec, struct ck_record_seen *seen, struct ckpt_err *err)
{
	int rc;

	rec->fd = ck_open(rec->path, O_RDONLY | O_NOFOLLOW, 0);
	if (rec->fd < 0)
		return ck_fail_sys(err, errno, "open", rec->path);
	rc = load(rec, seen, err);
	ck_close(rec->fd);
	return rc;
}

int ck_record_peek(const char *path, struct ck_record_seen *seen_out, struct ckpt_err *err)
{
	struct ck_record rec = { .tail = HEAD_BYTES, .path = (char *)(uintptr_t)path };
	struct ck_record_seen seen = { 0 };
	int rc = peek(&rec, &seen, err);

	if (!rc)
		*seen_out = seen;
	ck_free(rec.noted);
	ck_free(rec.sum);
	return rc;
}

int ck_record_sums(const char *path, struct ck_record_sum **sums_out, uint64_t *n_out,
		   struct ckpt_err *err)
{
	struct ck_record rec = { .tail = HEAD_BYTES, .path = (char *)(uintptr_t)path };
	struct ck_record_seen seen = { 0 };
	int rc = peek(&rec, &seen, err);

	if (rc) {
		ck_free(rec.sum);
	} else {
		*sums_out = rec.sum;
		*n_out = rec.nsums;
	}
	ck_free(rec.noted);
	return rc;
}
