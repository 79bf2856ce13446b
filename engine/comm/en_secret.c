/* en_secret.c -- see en_secret.h. */
#include "engine/comm/en_secret.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libckpt/base/ck_base.h"
#include "libckpt/base/ck_err.h"

#define TEXT (2 * EN_TAG + 1)	/* a secret of this host as digits, and a newline */
#define TRIES 20

const char *en_secret_name(enum en_secret_kind kind)
{
	static const char *const names[EN_SECRET_KINDS] = {
		[EN_SECRET_NONE] = "no secret",
		[EN_SECRET_GIVEN] = "a secret (ZTRAIN_SECRET, ZTRAIN_SECRET_FILE or --secret-file)",
		[EN_SECRET_LAUNCHER] = "the launcher's run id as its secret",
		[EN_SECRET_HOST] = "a secret file of its host",
	};

	return (unsigned)kind < EN_SECRET_KINDS ? names[kind] : "a secret of an unknown kind";
}

static const char *variable(const char *name)
{
	const char *text = getenv(name);

	return text && *text ? text : NULL;
}

int en_secret_random(uint8_t *out, size_t n)
{
	while (n) {
		const ssize_t got = getrandom(out, n, 0);

		if (got < 0 && errno != EINTR)
			return -errno;
		if (got > 0) {
			out += got;
			n -= (size_t)got;
		}
	}
	return 0;
}

/* ---------------------------------------------------------------- a secret that is given */

static int set_secret(struct en_secret *s, const char *name, const char *text, size_t n,
		      struct ckpt_err *err)
{
	static const char make[] = "make one with: (umask 077; head -c 32 /dev/urandom | base64 "
				   "> FILE), and give it to all ranks";

	while (n && strchr(" \t\r\n", text[n - 1]))
		n--;
	if (n < EN_SECRET_LEAST || n > EN_SECRET_MOST)
		return ck_fail(err, CKPT_E_USAGE, name, CKPT_NO_OFFSET,
			       "the secret has %zu bytes, expected %u to %u; %s", n,
			       EN_SECRET_LEAST, EN_SECRET_MOST, make);
	if (!en_secret_is_built())
		return ck_fail(err, CKPT_E_USAGE, name, CKPT_NO_OFFSET,
			       "built without libcrypto, which a secret needs; rebuild with "
			       "libcrypto (tools/deps.sh), or give no secret");
	s->kind = EN_SECRET_GIVEN;
	s->n = n;
	memcpy(s->bytes, text, n);
	return 0;
}

/* Whoever may read or write it knows the secret. */
static int judge(const char *path, const struct stat *st, struct ckpt_err *err)
{
	if (!S_ISREG(st->st_mode))
		return ck_fail(err, CKPT_E_USAGE, path, CKPT_NO_OFFSET,
			       "the secret is not a regular file");
	if (st->st_uid != geteuid() && st->st_uid)
		return ck_fail(err, CKPT_E_USAGE, path, CKPT_NO_OFFSET,
			       "the secret belongs to user %lu, ztrain runs as %lu: use a file of "
			       "your own",
			       (unsigned long)st->st_uid, (unsigned long)geteuid());
	if (st->st_mode & 077)
		return ck_fail(err, CKPT_E_USAGE, path, CKPT_NO_OFFSET,
			       "mode %03o lets other users read the secret; run: chmod 600 %s",
			       (unsigned)st->st_mode & 0777u, path);
	return 0;
}

/* All of it, at most 'room' bytes.  0, or -errno. */
static int read_all(int fd, char *out, size_t room, size_t *n_out)
{
	size_t have = 0;

	while (have < room) {
		const ssize_t n = read(fd, out + have, room - have);

		if (n < 0 && errno != EINTR)
			return -errno;
		if (!n)
			break;
		have += n > 0 ? (size_t)n : 0;
	}
	*n_out = have;
	return 0;
}

static int from_file(struct en_secret *s, const char *path, struct ckpt_err *err)
{
	char text[EN_SECRET_MOST + 8];
	const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat st;
	size_t n = 0;
	int rc = fd < 0 || fstat(fd, &st) ? -errno : 0;

	if (!rc) {
		rc = judge(path, &st, err);
		if (rc) {
			close(fd);
			return rc;
		}
		rc = read_all(fd, text, sizeof(text), &n);
	}
	if (fd >= 0)
		close(fd);
	if (rc)
		return ck_fail(err, CKPT_E_IO, path, CKPT_NO_OFFSET,
			       "the secret cannot be read: %s", strerror(-rc));
	rc = set_secret(s, path, text, n, err);
	explicit_bzero(text, sizeof(text));
	return rc;
}

/* ---------------------------------------------------------------- without an option */

/* 32 hexadecimal digits or more, as a UUID has them: too many to guess. */
static bool is_random(const char *text)
{
	size_t digits = 0;

	for (; *text; text++) {
		if (strchr("0123456789abcdefABCDEF", *text))
			digits++;
		else if (*text != '-')
			return false;
	}
	return digits >= 32;
}

/* A folder that this user alone gets at. */
static bool is_own(const struct stat *st)
{
	return S_ISDIR(st->st_mode) && st->st_uid == geteuid() && (st->st_mode & 0377) == 0300;
}

/* Another user may have made it, so that this one's ranks meet without a secret: that is said. */
static int fail_dir(const char *dir, const struct stat *st, struct ckpt_err *err)
{
	return ck_fail(err, CKPT_E_USAGE, dir, CKPT_NO_OFFSET,
		       "folder for the ranks' secret: expected owner %lu and mode 700, found owner "
		       "%lu, mode %03o; remove it, or set ZTRAIN_SECRET_FILE",
		       (unsigned long)geteuid(), (unsigned long)st->st_uid,
		       (unsigned)st->st_mode & 0777u);
}

/* The same on all ranks of a host: nothing of it depends on the rank.  "": it cannot be made. */
static int find_dir(char *out, size_t n, struct ckpt_err *err)
{
	const char *run = variable("XDG_RUNTIME_DIR");
	struct stat st;

	if (run && *run == '/' && strlen(run) < n && !lstat(run, &st) && is_own(&st) &&
	    !access(run, W_OK)) {
		snprintf(out, n, "%s", run);
		return 0;
	}
	snprintf(out, n, "/tmp/ztrain-%lu", (unsigned long)geteuid());
	/* a job that ends takes the folder away, if it is empty */
	for (int i = 0; i < TRIES; i++) {
		if (mkdir(out, 0700) && errno != EEXIST)
			break;
		if (!lstat(out, &st))
			return is_own(&st) ? 0 : fail_dir(out, &st, err);
	}
	*out = '\0';
	return 0;
}

static int from_host(struct en_secret *s, bool local, struct ckpt_err *err)
{
	const char *id = variable("TORCHELASTIC_RUN_ID");
	const int rc = local ? find_dir(s->dir, sizeof(s->dir), err) : 0;

	if (rc)
		return rc;
	if (*s->dir) {
		s->kind = EN_SECRET_HOST;
	} else if (id && is_random(id) && strlen(id) < sizeof(s->bytes)) {
		s->kind = EN_SECRET_LAUNCHER;
		s->n = strlen(id);
		memcpy(s->bytes, id, s->n);
	}
	return 0;
}

int en_secret_find(const char *file, bool local, struct en_secret *out, struct ckpt_err *err)
{
	const char *text = variable("ZTRAIN_SECRET");
	struct en_secret s = { .kind = EN_SECRET_NONE };
	int rc = 0;

	if (!file) {
		file = variable("ZTRAIN_SECRET_FILE");
		if (file && text)
			return ck_fail(err, CKPT_E_USAGE, "ZTRAIN_SECRET", CKPT_NO_OFFSET,
				       "both ZTRAIN_SECRET and ZTRAIN_SECRET_FILE are set: unset "
				       "one of them");
	}
	if (file)
		rc = from_file(&s, file, err);
	else if (text)
		rc = set_secret(&s, "ZTRAIN_SECRET", text, strlen(text), err);
	else if (en_secret_is_built())
		rc = from_host(&s, local, err);
	if (!rc)
		*out = s;
	return rc;
}

/* ---------------------------------------------------------------- the file of a host */

void en_secret_path(const struct en_secret *s, uint64_t job, uint16_t port, char *text, size_t n)
{
	snprintf(text, n, "%s/ztrain-%016llx-%u", s->dir, (unsigned long long)job, port);
}

static int create(const char *path)
{
	char dir[512];
	char *slash;

	snprintf(dir, sizeof(dir), "%s", path);
	slash = strrchr(dir, '/');
	*slash = '\0';
	for (int i = 0; i < TRIES; i++) {
		const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW,
				    0600);

		if (fd >= 0)
			return fd;
		if (errno == EEXIST)
			unlink(path);	/* of a job that was killed: the port is ours */
		else if (errno == ENOENT)
			mkdir(dir, 0700);
		else
			break;
	}
	return -errno;
}

int en_secret_write(const char *path, uint8_t secret[EN_TAG])
{
	uint8_t bytes[EN_TAG];
	char text[TEXT + 1];
	int fd, rc = en_secret_random(bytes, sizeof(bytes));

	if (rc)
		return rc;
	for (size_t i = 0; i < EN_TAG; i++)
		snprintf(text + 2 * i, 3, "%02x", bytes[i]);
	text[TEXT - 1] = '\n';
	fd = create(path);
	if (fd < 0)
		return fd;
	if (write(fd, text, TEXT) != (ssize_t)TEXT)
		rc = errno ? -errno : -EIO;
	if (close(fd) && !rc)
		rc = -errno;
	if (rc)
		unlink(path);
	else
		memcpy(secret, bytes, EN_TAG);
	return rc;
}

static int digit(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int en_secret_read(const char *path, uint8_t secret[EN_TAG])
{
	const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	uint8_t bytes[EN_TAG];
	char text[TEXT + 1];
	struct stat st;
	size_t n = 0;
	int rc = fd < 0 || fstat(fd, &st) ? -errno : 0;

	if (!rc && (!S_ISREG(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 077)))
		rc = -EPERM;
	if (!rc)
		rc = read_all(fd, text, sizeof(text), &n);
	if (fd >= 0)
		close(fd);
	/* rank 0 may be writing it */
	if (!rc && n != TEXT)
		rc = -EAGAIN;
	for (size_t i = 0; !rc && i < EN_TAG; i++) {
		const int high = digit(text[2 * i]), low = digit(text[2 * i + 1]);

		if (high < 0 || low < 0)
			rc = -EAGAIN;
		else
			bytes[i] = (uint8_t)(high << 4 | low);
	}
	if (!rc)
		memcpy(secret, bytes, EN_TAG);
	return rc;
}

void en_secret_remove(const struct en_secret *s, const char *path)
{
	unlink(path);
	if (!strncmp(s->dir, "/tmp/", 5))
		rmdir(s->dir);
}
