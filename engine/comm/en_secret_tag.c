/*
 * en_secret_tag.c -- see en_secret.h: the one place that knows libcrypto.
 *
 * A keyed hash that others have studied for decades, of a library that every system maintains.  The
 * kernel's (AF_ALG) is no choice: many containers have no such sockets.
 */
#include "engine/comm/en_secret.h"

#include <errno.h>
#include <string.h>

#ifdef EN_CRYPTO

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

bool en_secret_is_built(void)
{
	return true;
}

int en_secret_tag(const void *key, size_t nkey, const char *what, const void *p, size_t n,
		  uint8_t tag[EN_TAG])
{
	uint8_t own[EN_TAG], out[EN_TAG];
	unsigned int len = 0;

	if (!HMAC(EVP_sha256(), nkey ? key : "", (int)nkey, (const uint8_t *)what, strlen(what),
		  own, &len) || len != EN_TAG ||
	    !HMAC(EVP_sha256(), own, EN_TAG, p, n, out, &len) || len != EN_TAG)
		return -EIO;
	memcpy(tag, out, EN_TAG);
	return 0;
}

bool en_secret_same(const uint8_t a[EN_TAG], const uint8_t b[EN_TAG])
{
	return !CRYPTO_memcmp(a, b, EN_TAG);
}

#else

/* Then there are no secrets: a stranger is recognised by its job alone. */
bool en_secret_is_built(void)
{
	return false;
}

int en_secret_tag(const void *key, size_t nkey, const char *what, const void *p, size_t n,
		  uint8_t tag[EN_TAG])
{
	(void)key, (void)nkey, (void)what, (void)p, (void)n;
	memset(tag, 0, EN_TAG);
	return 0;
}

bool en_secret_same(const uint8_t a[EN_TAG], const uint8_t b[EN_TAG])
{
	return !memcmp(a, b, EN_TAG);
}

#endif
