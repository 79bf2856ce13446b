/*
 * ck_stamp.c -- see ck_stamp.h.
 *
 * The kernel stamps a write with a clock that moves once a tick (1 to 10 ms).  Two writes within
 * one tick look like one, so a file whose ctime is of this tick could be written again and look the
 * same.  ck_stamps_note() waits until the tick is over: every later write shows.  From Linux 6.13
 * on the file systems in sharp[] give a write after a stat() another time, and nothing is waited
 * for.
 *
 * stat() of a network file system may answer from memory for a minute; open() asks the server.  So
 * there a file is opened to be looked at.
 */
#include "libckpt/io/ck_stamp.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_map.h"
#include "libckpt/base/ck_mem.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/io/ck_fs.h"

#define SECOND INT64_C(1000000000)
#define TICK (SECOND / 100)
#define COARSE (2 * SECOND)	/* of FAT */
#define LONGEST_WAIT (4 * SECOND)
#define MOST_TURNS 30

/* Likely cause and what to do: the end of every sentence. */
#define WHY "a trainer or a copy is writing to it; start again when that is finished"

/* How far the times of a file system can be relied on. */
enum disk { UNKNOWN, LOCAL, SHARP, REMOTE };

struct looked_at {
	struct ck_stamp stamp;
	enum ck_known known;
};

struct ck_stamps {
	pthread_mutex_t lock;	/* guards all below */
	struct ck_arena arena;	/* of paths */
	struct ck_map by_path;
	struct looked_at *file;	/* as numbered by the map */
	uint64_t cap;
	int64_t settled_ns;	/* ctimes up to here are over */
	dev_t dev;		/* of the file that was looked at last */
	enum disk disk;		/* of 'dev' */
	int64_t waited_ns;
};

/* Beyond the year 2262 it wraps, as files may have any time: times are compared, not counted. */
static int64_t ns_of(struct timespec t)
{
	return (int64_t)((uint64_t)t.tv_sec * (uint64_t)SECOND + (uint64_t)t.tv_nsec);
}

void ck_stamp_of(const struct stat *st, struct ck_stamp *out)
{
	*out = (struct ck_stamp){
		.dev = st->st_dev, .ino = st->st_ino, .nlink = st->st_nlink,
		.bytes = (uint64_t)st->st_size, .mtime_ns = ns_of(st->st_mtim),
		.ctime_ns = ns_of(st->st_ctim),
	};
}

struct ck_stamps *ck_stamps_new(void)
{
	struct ck_stamps *s = ck_zalloc(sizeof(*s));

	if (s)
		pthread_mutex_init(&s->lock, NULL);
	return s;
}

void ck_stamps_free(struct ck_stamps *s)
{
	if (!s)
		return;
	pthread_mutex_destroy(&s->lock);
	ck_map_release(&s->by_path);
	ck_free(s->file);
	ck_arena_release(&s->arena);
	ck_free(s);
}

/* ------------------------------------------------------------------- comparing */

#define TIME_TEXT 48

/* "2026-03-01 10:00:00.123456789" */
static const char *time_text(int64_t ns, char out[TIME_TEXT])
{
	const int64_t rest = (ns % SECOND + SECOND) % SECOND;
	const time_t sec = (time_t)((ns - rest) / SECOND);
	struct tm tm;
	size_t n = 0;

	if (gmtime_r(&sec, &tm))
		n = strftime(out, TIME_TEXT - 10, "%Y-%m-%d %H:%M:%S", &tm);
	snprintf(out + n, TIME_TEXT - n, ".%09" PRId64, rest);
	return out;
}

int ck_stamp_compare(const char *path, const struct ck_stamp *was, const struct ck_stamp *now,
		     struct ckpt_err *err)
{
	char a[TIME_TEXT], b[TIME_TEXT];

	if (was->dev != now->dev || was->ino != now->ino)
		return ck_fail(err, CKPT_E_MISMATCH, path, CKPT_NO_OFFSET,
			       "another file replaced this one while it was in use (inode "
			       "%" PRIu64
			       ", now %" PRIu64 "): " WHY, (uint64_t)was->ino, (uint64_t)now->ino);
	if (was->bytes != now->bytes)
		return ck_fail(err, CKPT_E_MISMATCH, path, CKPT_NO_OFFSET,
			       "the file had %" PRIu64 " bytes and has %" PRIu64 " now: " WHY,
			       was->bytes, now->bytes);
	if (was->mtime_ns != now->mtime_ns)
		return ck_fail(err, CKPT_E_MISMATCH, path, CKPT_NO_OFFSET,
			       "the file changed while it was read (mtime %s, now %s UTC): " WHY,
			       time_text(was->mtime_ns, a), time_text(now->mtime_ns, b));
	return 0;
}

/* A link that came or went explains a ctime, as checksums make it unimportant. */
static int compare_all(const char *path, const struct looked_at *f, const struct ck_stamp *now,
		       struct ckpt_err *err)
{
	const struct ck_stamp *was = &f->stamp;
	char a[TIME_TEXT], b[TIME_TEXT];
	int rc = ck_stamp_compare(path, was, now, err);

	if (rc || f->known == CK_KNOWN_SUMS || was->ctime_ns == now->ctime_ns ||
	    was->nlink != now->nlink)
		return rc;
	return ck_fail(err, CKPT_E_MISMATCH, path, CKPT_NO_OFFSET,
		       "the file's state changed while it was read (ctime %s, now %s UTC; size and "
		       "mtime did not): its mode or owner was changed, or a writer reset "
		       "the mtime; start again when that is finished",
		       time_text(was->ctime_ns, a), time_text(now->ctime_ns, b));
}

/* ------------------------------------------------------------------- looking */

/* stat() of these may be an old one, and their times are of another clock. */
static const unsigned long far_off[] = {
	0x6969 /* NFS */, 0x517b /* SMB */, 0xff534d42 /* CIFS */, 0xfe534d42 /* SMB2 */,
	0x65735546 /* FUSE */, 0x01021997 /* 9P */, 0x5346414f /* AFS */,
};
static const unsigned long sharp[] = {
	0xef53 /* ext4 */, 0x58465342 /* XFS */, 0x9123683e /* Btrfs */, 0x01021994 /* tmpfs */,
};

static bool is_among(unsigned long type, const unsigned long *kind, size_t n)
{
	while (n--)
		if (kind[n] == type)
			return true;
	return false;
}

static bool kernel_is_sharp(void)
{
	struct utsname u;
	int major = 0, minor = 0;

	return !uname(&u) && sscanf(u.release, "%d.%d", &major, &minor) == 2 &&
	       (major > 6 || (major == 6 && minor >= 13));
}

/* Asked once for all files of a device. */
static enum disk disk_of(struct ck_stamps *s, const char *path, dev_t dev)
{
	struct statfs st;

	if (s->disk && s->dev == dev)
		return s->disk;
	s->dev = dev;
	if (ck_sys.statfs(path, &st) ||
	    is_among((unsigned long)st.f_type, far_off, CK_ARRAY_LEN(far_off)))
		s->disk = REMOTE;
	else
		s->disk = kernel_is_sharp() && is_among((unsigned long)st.f_type, sharp,
							CK_ARRAY_LEN(sharp)) ? SHARP : LOCAL;
	return s->disk;
}

static int64_t now_ns(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return ns_of(ts);
}

/*
 * How long until a further write shows; 0 = it would.  A ctime in the future: the server has
 * another clock, or ours was put back.
 */
static int64_t wait_of(const struct ck_stamp *f, enum disk disk)
{
	const bool coarse = !(f->mtime_ns % SECOND) && !(f->ctime_ns % SECOND);
	const int64_t tick = coarse ? COARSE : TICK;
	int64_t age;

	if (disk == SHARP && !coarse)
		return 0;
	if (disk == LOCAL && !coarse)	/* the very clock that stamps */
		return f->ctime_ns < now_ns(CLOCK_REALTIME_COARSE) ? 0 : TICK / 10;
	age = now_ns(CLOCK_REALTIME) - f->ctime_ns;
	return age >= tick ? 0 : age < 0 ? tick : tick - age;
}

static int64_t wait_for(struct ck_stamps *s, const char *path, const struct ck_stamp *f)
{
	int64_t wait = 0;

	pthread_mutex_lock(&s->lock);
	if (f->ctime_ns > s->settled_ns && s->waited_ns < LONGEST_WAIT)
		wait = wait_of(f, disk_of(s, path, f->dev));
	s->waited_ns += wait;
	if (!wait && s->settled_ns < f->ctime_ns)
		s->settled_ns = f->ctime_ns;
	pthread_mutex_unlock(&s->lock);
	return wait;
}

/*
 * '*now': of the file as it was opened.  A file that is still written to afterwards is found by
 * ck_stamps_check().
 */
static int wait_settled(struct ck_stamps *s, const char *path, int fd, struct ck_stamp *now,
			struct ckpt_err *err)
{
	for (int i = 0;; i++) {
		const int64_t wait = wait_for(s, path, now);
		struct timespec nap = { 0 };
		struct stat st;

		if (!wait || i == MOST_TURNS)
			return 0;
		nap.tv_sec = (time_t)(wait / SECOND);
		nap.tv_nsec = (long)(wait % SECOND);
		nanosleep(&nap, NULL);
		if (ck_sys.fstat(fd, &st))
			return ck_fail_sys(err, errno, "fstat", path);
		ck_stamp_of(&st, now);
	}
}

static int add(struct ck_stamps *s, const char *path, const struct ck_stamp *now,
	       struct ckpt_err *err)
{
	const uint64_t n = s->by_path.n;
	const char *copy = ck_arena_strdup(&s->arena, path);
	int rc = copy ? ck_grow(&s->file, &s->cap, n + 1, sizeof(*s->file), err) :
		 ck_fail_nomem(err, "a path", strlen(path));

	if (!rc)
		rc = ck_map_add(&s->by_path, copy, strlen(copy), n, NULL, err);
	if (!rc)
		s->file[n] = (struct looked_at){ .stamp = *now };
	return rc;
}

int ck_stamps_note(struct ck_stamps *s, const char *path, int fd, struct ck_stamp *stamp,
		   struct ckpt_err *err)
{
	struct ck_stamp now = *stamp;
	uint64_t i;
	int rc = wait_settled(s, path, fd, &now, err);

	if (rc)
		return rc;
	pthread_mutex_lock(&s->lock);
	rc = ck_map_find(&s->by_path, path, strlen(path), &i) ?
	     compare_all(path, &s->file[i], &now, err) : add(s, path, &now, err);
	pthread_mutex_unlock(&s->lock);
	if (!rc)
		*stamp = now;
	return rc;
}

void ck_stamps_known(struct ck_stamps *s, const char *path, enum ck_known known)
{
	uint64_t i;

	pthread_mutex_lock(&s->lock);
	if (ck_map_find(&s->by_path, path, strlen(path), &i))
		s->file[i].known = known;
	pthread_mutex_unlock(&s->lock);
}

/* ------------------------------------------------------------------- once more */

/* 1 = there is no such file. */
static int look_again(const char *path, bool remote, struct stat *st, struct ckpt_err *err)
{
	int fd, rc = 0;

	if (ck_sys.stat(path, st))
		return errno == ENOENT || errno == ENOTDIR ? 1 :
		       ck_fail_sys(err, errno, "stat", path);
	if (!remote || !S_ISREG(st->st_mode))
		return 0;
	fd = ck_open(path, O_RDONLY | O_NONBLOCK, 0);
	if (fd < 0)
		return errno == ENOENT ? 1 : errno == EMFILE || errno == ENFILE ? 0 :
		       ck_fail_sys(err, errno, "open", path);
	if (ck_sys.fstat(fd, st))
		rc = ck_fail_sys(err, errno, "fstat", path);
	ck_close(fd);
	return rc;
}

struct checking {
	int (*held)(void *arg, const char *path);
	void *arg;
};

static int check_file(struct ck_stamps *s, const struct checking *c, const char *path,
		      const struct looked_at *f, struct ckpt_err *err)
{
	struct ck_stamp now;
	struct stat st;
	int fd, rc;

	rc = look_again(path, disk_of(s, path, f->stamp.dev) == REMOTE, &st, err);
	if (rc < 0)
		return rc;
	/* Removed, and what was read is all there still. */
	if (rc) {
		fd = c->held ? c->held(c->arg, path) : -1;
		if (fd < 0 || ck_sys.fstat(fd, &st))
			return ck_fail(err, CKPT_E_MISMATCH, path, CKPT_NO_OFFSET,
				       "the file was removed or renamed while it was in use");
	}
	ck_stamp_of(&st, &now);
	return compare_all(path, f, &now, err);
}

int ck_stamps_check(struct ck_stamps *s, int (*held)(void *arg, const char *path), void *arg,
		    struct ckpt_err *err)
{
	const struct checking c = { .held = held, .arg = arg };
	int rc = 0;

	pthread_mutex_lock(&s->lock);
	for (uint64_t i = 0; !rc && i < s->by_path.n; i++)
		rc = check_file(s, &c, s->by_path.entry[i].key, &s->file[i], err);
	pthread_mutex_unlock(&s->lock);
	return rc;
}

int ck_stamps_check_one(struct ck_stamps *s, const char *path,
			int (*held)(void *arg, const char *path), void *arg, struct ckpt_err *err)
{
	const struct checking c = { .held = held, .arg = arg };
	uint64_t i;
	int rc = 0;

	pthread_mutex_lock(&s->lock);
	if (ck_map_find(&s->by_path, path, strlen(path), &i))
		rc = check_file(s, &c, path, &s->file[i], err);
	pthread_mutex_unlock(&s->lock);
	return rc;
}

/* ------------------------------------------------------------------- marks */

static void add_mark(struct ck_hash128 *sum, const char *path, const uint64_t *part, size_t n)
{
	const char *name = ck_fs_base(path);
	uint8_t text[8 + 4 * 8];

	ck_put_le64(text, ck_hash64(name, strlen(name)));
	for (size_t i = 0; i < n; i++)
		ck_put_le64(text + 8 + 8 * i, part[i]);
	*sum = ck_hash128_add(*sum, ck_hash128(text, 8 + 8 * n));
}

void ck_stamps_marks(struct ck_stamps *s, struct ck_stamp_marks *out)
{
	struct ck_stamp_marks m = { 0 };

	pthread_mutex_lock(&s->lock);
	for (uint64_t i = 0; i < s->by_path.n; i++) {
		const struct ck_stamp *f = &s->file[i].stamp;
		const enum ck_known known = s->file[i].known;
		const char *path = s->by_path.entry[i].key;
		const uint64_t exact[4] = {
			f->ino, f->bytes, (uint64_t)f->mtime_ns,
			known == CK_KNOWN_SUMS ? 0 : (uint64_t)f->ctime_ns,
		};
		const uint64_t times[2] = { f->bytes, (uint64_t)f->mtime_ns };

		add_mark(&m.exact, path, exact, 4);
		add_mark(&m.inodes, path, exact, 1);
		if (known == CK_KNOWN_NOT)
			add_mark(&m.times, path, times, 2);
	}
	pthread_mutex_unlock(&s->lock);
	*out = m;
}
