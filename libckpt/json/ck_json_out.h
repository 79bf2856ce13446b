/*
 * ck_json_out.h -- JSON text being written: the first failure stays, later calls do nothing.
 *
 * 'key' is put as it is, with its quotes, colon and what separates it: "\"name\": ".
 */
#ifndef CK_JSON_OUT_H
#define CK_JSON_OUT_H

#include "libckpt/base/ck_buf.h"
#include "libckpt/base/ck_hash.h"
#include "libckpt/json/ck_json.h"

struct ck_json_out {
	struct ck_buf buf;
	struct ckpt_err *err;
	int rc;
};

/* A text as it is. */
void ck_json_out_raw(struct ck_json_out *out, const char *text);
/* NULL is "".  CKPT_E_UNSUPPORTED if it is not UTF-8. */
void ck_json_out_str(struct ck_json_out *out, const char *key, const char *text);
void ck_json_out_int(struct ck_json_out *out, const char *key, int64_t n);
/* 32 hexadecimal digits in quotes. */
void ck_json_out_hash(struct ck_json_out *out, const char *key, struct ck_hash128 hash);
/* [d0, d1, ...] */
void ck_json_out_shape(struct ck_json_out *out, const char *key, const uint64_t *shape,
		       uint32_t ndim);
/* The place inside the quotes of the 32 digits put last. */
uint64_t ck_json_out_digits(const struct ck_json_out *out);

/* ck_json_sum.c: reading.  The value of a token that is 32 hexadecimal digits in quotes. */
bool ck_json_hash(const struct ck_json *doc, uint64_t tok, struct ck_hash128 *out);
/*
 * The root's last member "sum" is the XXH3-128 of every byte of the text before its line.
 * CKPT_E_CORRUPT.
 */
int ck_json_check_sum(const struct ck_json *doc, const char *where, struct ckpt_err *err);

#endif
