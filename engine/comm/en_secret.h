/*
 * en_secret.h -- the secret that the ranks of a job share, and the tags that prove it.
 *
 * HMAC-SHA256 is libcrypto's.  A program that was built without it (CRYPTO=0) refuses a given
 * secret, and runs the rendezvous without one otherwise.  docs/ztrain/rendezvous.md has the
 * reasons.
 */
#ifndef EN_SECRET_H
#define EN_SECRET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ckpt.h>

#define EN_TAG 32u			/* bytes of a tag, a key and a nonce */
#define EN_SECRET_LEAST 16u		/* bytes of a secret that somebody gives */
#define EN_SECRET_MOST 4096u

/* Where a secret comes from: all ranks of a job say the same. */
enum en_secret_kind {
	EN_SECRET_NONE,			/* any program that reaches the port is accepted */
	EN_SECRET_GIVEN,		/* --secret-file, ZTRAIN_SECRET_FILE, ZTRAIN_SECRET */
	EN_SECRET_LAUNCHER,		/* a random TORCHELASTIC_RUN_ID */
	EN_SECRET_HOST,			/* rank 0 writes it to a file of this user on this host */
	EN_SECRET_KINDS,
};

struct en_secret {
	enum en_secret_kind kind;
	size_t n;
	uint8_t bytes[EN_SECRET_MOST];	/* of GIVEN and LAUNCHER */
	char dir[256];			/* of HOST: the folder that the file is in */
};

/* "no secret", "a secret of ZTRAIN_SECRET or a file", ...; constant text. */
const char *en_secret_name(enum en_secret_kind kind);
bool en_secret_is_built(void);

/*
 * The secret of this job.  'file' (or NULL) overrides ZTRAIN_SECRET_FILE and ZTRAIN_SECRET.
 * 'local': all ranks are of this host.  Reads the environment and the file, and makes the folder of
 * EN_SECRET_HOST.
 *	CKPT_E_USAGE  both variables; too short or too long; a file that others may read or that
 *		      another user owns; /tmp/ztrain-UID is such a folder; a secret, and the
 *		      program was built without libcrypto
 *	CKPT_E_IO     the file cannot be read
 */
int en_secret_find(const char *file, bool local, struct en_secret *out, struct ckpt_err *err);

/* Of EN_SECRET_HOST: its file for a job and a port.  'text' [n] */
void en_secret_path(const struct en_secret *s, uint64_t job, uint16_t port, char *text, size_t n);
/* Rank 0 makes it.  0, or -errno. */
int en_secret_write(const char *path, uint8_t secret[EN_TAG]);
/* 0, or -errno; -EPERM: it is no file of this user alone. */
int en_secret_read(const char *path, uint8_t secret[EN_TAG]);
/* The file, and its folder if that is empty now. */
void en_secret_remove(const struct en_secret *s, const char *path);

/* Random bytes of the system.  0, or -errno. */
int en_secret_random(uint8_t *out, size_t n);

/*
 * HMAC-SHA256(HMAC-SHA256(key, what), p): a tag for one use is none for another.  Without libcrypto
 * it is zeros.  0, or -EIO: libcrypto failed, and 'tag' is nothing that a peer may be believed by.
 */
int en_secret_tag(const void *key, size_t nkey, const char *what, const void *p, size_t n,
		  uint8_t tag[EN_TAG]);
/* In constant time. */
bool en_secret_same(const uint8_t a[EN_TAG], const uint8_t b[EN_TAG]);

#endif
