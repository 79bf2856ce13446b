/* ck_json_out.c -- see ck_json_out.h. */
#include "libckpt/json/ck_json_out.h"

#include <inttypes.h>
#include <string.h>

#include "libckpt/base/ck_err.h"

void ck_json_out_raw(struct ck_json_out *out, const char *text)
{
	if (!out->rc)
		out->rc = ck_buf_adds(&out->buf, text, out->err);
}

void ck_json_out_str(struct ck_json_out *out, const char *key, const char *text)
{
	const char *s = text ? text : "";
	uint64_t bad;

	ck_json_out_raw(out, key);
	if (!out->rc && !ck_utf8_valid(s, strlen(s), &bad))
		out->rc = ck_fail(out->err, CKPT_E_UNSUPPORTED, s, CKPT_NO_OFFSET,
				  "byte %" PRIu64 " of this name is not UTF-8, so a manifest "
				  "cannot list it", bad);
	if (!out->rc)
		out->rc = ck_buf_add_json(&out->buf, s, strlen(s), out->err);
}

void ck_json_out_int(struct ck_json_out *out, const char *key, int64_t n)
{
	if (!out->rc)
		out->rc = ck_buf_addf(&out->buf, out->err, "%s%" PRId64, key, n);
}

void ck_json_out_hash(struct ck_json_out *out, const char *key, struct ck_hash128 hash)
{
	char text[33];

	ck_hash128_print(hash, text);
	ck_json_out_str(out, key, text);
}

void ck_json_out_shape(struct ck_json_out *out, const char *key, const uint64_t *shape,
		       uint32_t ndim)
{
	ck_json_out_raw(out, key);
	ck_json_out_raw(out, "[");
	for (uint32_t d = 0; d < ndim; d++)
		ck_json_out_int(out, d ? ", " : "", (int64_t)shape[d]);
	ck_json_out_raw(out, "]");
}

uint64_t ck_json_out_digits(const struct ck_json_out *out)
{
	return out->buf.len - 33;
}
