/* SHA-256 (FIPS 180-4), to compare bytes with the manifests of the fixtures. */
#ifndef T_SHA256_H
#define T_SHA256_H

#include <stddef.h>
#include <stdint.h>

struct t_sha256 {
	uint32_t h[8];
	uint8_t block[64];
	size_t fill;		/* bytes in 'block' */
	uint64_t bytes;		/* all so far */
};

void t_sha256_begin(struct t_sha256 *s);
void t_sha256_add(struct t_sha256 *s, const void *p, size_t n);
/* 64 hex digits and a NUL. */
void t_sha256_end(struct t_sha256 *s, char out[65]);
/* All at once. */
void t_sha256_of(const void *p, size_t n, char out[65]);

#endif
