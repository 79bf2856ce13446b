/*
 * en_source_bin.c -- files of tokens of 2 or 4 bytes; docs/ztrain/data.md, "Token files".
 *
 * Bare tokens, as nanoGPT writes them, or with the 1 KiB header of llm.c (dev/data/data_common.py):
 * 256 words of 32 bits, of which the first three are magic, version and number of tokens.
 */
#include <string.h>

#include "engine/data/en_source_priv.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/io/ck_src.h"

#define HEADER_BYTES 1024
/* Tokens of a bare file that are looked at to see whether their size is right. */
#define LOOK 4096

struct bin {
	struct ck_fdpool *pool;
	struct ck_src *file;
	uint64_t data;		/* byte of the first token */
	uint32_t width;		/* bytes of a token */
	uint8_t *raw;		/* a row */
};

static const struct header {
	uint32_t magic, version, width;
} headers[] = {
	{ 20240520, 1, 2 },	/* GPT-2 */
	{ 20240801, 7, 4 },	/* Llama 3 */
};

static void bin_close(struct en_source *src)
{
	struct bin *b = src->own;

	if (!b)
		return;
	ck_src_close(b->file);
	ck_fdpool_free(b->pool);
	ck_free(b->raw);
	ck_free(b);
}

static int take_header(struct en_source *src, struct bin *b, const struct header *h,
		       const uint8_t *head, struct ckpt_err *err)
{
	const uint32_t version = ck_le32(head + 4), tokens = ck_le32(head + 8);
	const uint64_t left = ck_src_size(b->file) - HEADER_BYTES;

	if (version != h->version)
		return ck_fail(err, CKPT_E_UNSUPPORTED, src->path, 4,
			       "llm.c header of version %u; only %u is supported", version,
			       h->version);
	if (h->width != b->width && !src->guessed)
		return ck_fail(err, CKPT_E_MISMATCH, src->path, 0,
			       "the header says tokens of %u bytes, --data-kind says %u", h->width,
			       b->width);
	b->width = h->width;
	b->data = HEADER_BYTES;
	if ((uint64_t)tokens * h->width != left)
		return ck_fail(err, CKPT_E_CORRUPT, src->path, 8,
			       "the header says %u tokens of %u bytes, but %llu bytes follow",
			       tokens, h->width, (unsigned long long)left);
	return 0;
}

static int find_header(struct en_source *src, struct bin *b, struct ckpt_err *err)
{
	uint8_t head[12];
	int rc;

	if (ck_src_size(b->file) < HEADER_BYTES)
		return 0;
	rc = ck_src_read(b->file, 0, head, sizeof(head), err);
	for (size_t i = 0; !rc && i < CK_ARRAY_LEN(headers); i++)
		if (ck_le32(head) == headers[i].magic)
			return take_header(src, b, &headers[i], head, err);
	return rc;
}

/* Tokens of 4 bytes read as 2 would be every second one 0: that is no text. */
static int look_for_width(struct en_source *src, struct bin *b, struct ckpt_err *err)
{
	const uint64_t n = ck_min_u64(LOOK, ck_src_size(b->file) / 4);
	uint8_t *p = ck_alloc(4 * n);
	bool even = false, odd = false;
	int rc = p ? ck_src_read(b->file, 0, p, 4 * n, err) :
		 ck_fail_nomem(err, "tokens", 4 * n);

	for (uint64_t i = 0; !rc && i < n; i++) {
		even |= p[4 * i] || p[4 * i + 1];
		odd |= p[4 * i + 2] || p[4 * i + 3];
	}
	ck_free(p);
	if (!rc && n >= 16 && even && !odd)
		return ck_fail(err, CKPT_E_MISMATCH, src->path, 0,
			       "of the first %llu tokens every second is 0: probably 4-byte "
			       "tokens; give --data-kind u32",
			       (unsigned long long)(2 * n));
	return rc;
}

static int check_size(struct en_source *src, struct bin *b, struct ckpt_err *err)
{
	const uint64_t bytes = ck_src_size(b->file);

	if (!bytes)
		return ck_fail(err, CKPT_E_TRUNCATED, src->path, 0, "the file is empty");
	if ((bytes - b->data) % b->width)
		return ck_fail(err, CKPT_E_TRUNCATED, src->path, bytes,
			       "%llu bytes are not a multiple of the token size, %u: cut short, or "
			       "another token size",
			       (unsigned long long)(bytes - b->data), b->width);
	if (!b->data && src->guessed && src->opts.vocab > 65536)
		return ck_fail(err, CKPT_E_USAGE, src->path, CKPT_NO_OFFSET,
			       "the vocabulary of %u does not fit 2-byte tokens, and the file does "
			       "not show their size: give --data-kind u16 or u32",
			       src->opts.vocab);
	return 0;
}

static int bin_open(struct en_source *src, struct ckpt_err *err)
{
	struct bin *b = ck_zalloc(sizeof(*b));
	int rc;

	src->own = b;
	if (b)
		b->pool = ck_fdpool_new(1);
	if (!b || !b->pool)
		return ck_fail_nomem(err, "a file of tokens", sizeof(*b));
	b->width = src->opts.kind == EN_SOURCE_U32 ? 4 : 2;
	rc = ck_src_open(b->pool, src->path, &b->file, err);
	if (!rc)
		rc = find_header(src, b, err);
	if (!rc)
		rc = check_size(src, b, err);
	if (!rc && !b->data && b->width == 2)
		rc = look_for_width(src, b, err);
	if (!rc)
		rc = en_source_cut(src, (ck_src_size(b->file) - b->data) / b->width, err);
	if (rc)
		return rc;
	src->info.kind = src->opts.kind = b->width == 4 ? EN_SOURCE_U32 : EN_SOURCE_U16;
	b->raw = ck_alloc_array(src->info.tokens, b->width);
	return b->raw ? 0 : ck_fail_nomem(err, "a row of data",
					  (uint64_t)src->info.tokens * b->width);
}

static int bin_row(struct en_source *src, uint64_t row, int32_t *ids, int32_t *labels,
		   int32_t *starts, struct ckpt_err *err)
{
	const struct bin *b = src->own;
	const uint32_t n = src->info.tokens;
	const uint64_t first = en_source_first(src, row);
	int rc = ck_src_read(b->file, b->data + first * b->width, b->raw, (size_t)n * b->width,
			     err);

	(void)starts;
	if (rc)
		return rc;
	for (uint32_t t = 0; t < n; t++)
		ids[t] = b->width == 2 ? ck_le16(b->raw + 2 * (size_t)t) :
			 (int32_t)ck_le32(b->raw + 4 * (size_t)t);
	memcpy(labels, ids, n * sizeof(*ids));
	return en_raw_check(src, ids, labels, n, "row", row, err);
}

const struct en_source_ops en_source_bin = { bin_open, bin_close, bin_row };
