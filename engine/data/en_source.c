/* en_source.c -- what all sources share, and the one that is made up; see en_source.h. */
#include "engine/data/en_source.h"

#include <string.h>
#include <strings.h>

#include "engine/data/en_mix.h"
#include "engine/data/en_source_priv.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_hash.h"
#include "libckpt/base/ck_sys.h"

/* Rows that a fingerprint looks at. */
#define FINGERPRINT_ROWS 64

/* ---- what kinds share ---- */

int en_raw_room(struct en_raw *raw, uint64_t n, struct ckpt_err *err)
{
	int32_t **const array[] = { &raw->ids, &raw->labels, &raw->starts, &raw->positions,
				    &raw->mask };
	uint64_t cap = 0;
	int rc = 0;

	if (n <= raw->cap)
		return 0;
	for (size_t i = 0; !rc && i < CK_ARRAY_LEN(array); i++) {
		cap = raw->cap;
		rc = ck_grow(array[i], &cap, n, sizeof(**array[i]), err);
	}
	if (!rc)
		raw->cap = cap;
	return rc;
}

void en_raw_release(struct en_raw *raw)
{
	ck_free(raw->ids);
	ck_free(raw->labels);
	ck_free(raw->starts);
	ck_free(raw->positions);
	ck_free(raw->mask);
	memset(raw, 0, sizeof(*raw));
}

int en_raw_check(const struct en_source *src, const int32_t *ids, const int32_t *labels,
		 uint64_t n, const char *what, uint64_t row, struct ckpt_err *err)
{
	const uint32_t vocab = src->opts.vocab;

	for (uint64_t i = 0; i < n; i++) {
		const bool bad_id = (uint32_t)ids[i] >= vocab;

		if (!bad_id && (labels[i] == EN_NO_LABEL || (uint32_t)labels[i] < vocab))
			continue;
		return ck_fail(err, CKPT_E_MISMATCH, src->path, CKPT_NO_OFFSET,
			       "%s %llu, position %llu: the %s is %lld, outside the model's "
			       "vocabulary of %u (0 to %u)%s",
			       what, (unsigned long long)row, (unsigned long long)i,
			       bad_id ? "token" : "label",
			       bad_id ? (long long)(uint32_t)ids[i] : (long long)labels[i], vocab,
			       vocab - 1,
			       bad_id ? "; was it made with another tokenizer?" :
					"; use -100 for labels to ignore");
	}
	return 0;
}

void en_raw_fit(const struct en_source *src, const struct en_raw *raw, int32_t *ids,
		int32_t *labels, int32_t *starts)
{
	const uint32_t tokens = src->info.tokens;
	const uint64_t n = ck_min_u64(raw->n, tokens);

	memcpy(ids, raw->ids, n * sizeof(*ids));
	memcpy(labels, raw->labels, n * sizeof(*labels));
	if (src->info.packed)
		memcpy(starts, raw->starts, n * sizeof(*starts));
	for (uint64_t i = n; i < tokens; i++) {
		ids[i] = src->opts.pad_id;
		labels[i] = EN_NO_LABEL;
		starts[i] = src->info.packed ? (int32_t)n : 0;
	}
}

static uint32_t stride(const struct en_source *src)
{
	return src->info.tokens - (src->opts.overlap ? 1 : 0);
}

int en_source_cut(struct en_source *src, uint64_t total, struct ckpt_err *err)
{
	const uint32_t tokens = src->info.tokens;

	if (total < tokens)
		return ck_fail(err, CKPT_E_TRUNCATED, src->path, CKPT_NO_OFFSET,
			       "%llu tokens are fewer than one row of %u; use shorter rows (--seq) "
			       "or more data",
			       (unsigned long long)total, tokens);
	src->info.rows = (total - tokens) / stride(src) + 1;
	src->info.unused = total - tokens - (src->info.rows - 1) * stride(src);
	return 0;
}

uint64_t en_source_first(const struct en_source *src, uint64_t row)
{
	return row * stride(src);
}

/* ---- made up ---- */

static int made_open(struct en_source *src, struct ckpt_err *err)
{
	if (!src->opts.rows || src->opts.rows > (uint64_t)1 << 62)
		return ck_fail(err, CKPT_E_USAGE, src->path, CKPT_NO_OFFSET,
			       "%llu rows of synthetic data; expected 1 to 2^62",
			       (unsigned long long)src->opts.rows);
	src->info.rows = src->opts.rows;
	return 0;
}

static void made_close(struct en_source *src)
{
	(void)src;
}

static int made_row(struct en_source *src, uint64_t row, int32_t *ids, int32_t *labels,
		    int32_t *starts, struct ckpt_err *err)
{
	const uint64_t key = en_mix2(src->opts.seed, row);

	(void)starts;
	(void)err;
	for (uint32_t t = 0; t < src->info.tokens; t++) {
		/* The upper 32 bits, scaled: a vocabulary is far too small to show the bias. */
		ids[t] = (int32_t)((en_mix2(key, t) >> 32) * src->opts.vocab >> 32);
		labels[t] = ids[t];
	}
	return 0;
}

static const struct en_source_ops made = { made_open, made_close, made_row };

/* ---- any ---- */

/* '*guessed_out': tokens of 4 bytes would be called so as well. */
static enum en_source_kind kind_of(const char *path, bool *guessed_out)
{
	static const struct { const char *end; enum en_source_kind kind; bool guess; } end[] = {
		{ ".jsonl", EN_SOURCE_JSONL, false }, { ".ndjson", EN_SOURCE_JSONL, false },
		{ ".json", EN_SOURCE_JSONL, false }, { ".u32", EN_SOURCE_U32, false },
		{ ".u16", EN_SOURCE_U16, false }, { ".bin", EN_SOURCE_U16, true },
		{ ".tok", EN_SOURCE_U16, true },
		{ ".safetensors", EN_SOURCE_SAFETENSORS, false },
	};
	const size_t n = strlen(path);

	for (size_t i = 0; i < CK_ARRAY_LEN(end); i++) {
		const size_t m = strlen(end[i].end);

		if (n <= m || strcasecmp(path + n - m, end[i].end))
			continue;
		*guessed_out = end[i].guess;
		return end[i].kind;
	}
	return (enum en_source_kind)0;
}

static int refuse(const struct en_source *src, struct ckpt_err *err, const char *why)
{
	return ck_fail(err, CKPT_E_USAGE, src->path, CKPT_NO_OFFSET, "%s", why);
}

static int check_opts(const struct en_source *src, struct ckpt_err *err)
{
	const struct en_source_opts *o = &src->opts;
	const bool is_text = o->kind == EN_SOURCE_JSONL;
	const bool is_rows = is_text || o->kind == EN_SOURCE_SAFETENSORS;

	if (!o->vocab || o->vocab > INT32_MAX)
		return refuse(src, err, "a vocabulary has 1 to 2^31 - 1 tokens");
	if (o->pad_id < 0 || (uint32_t)o->pad_id >= o->vocab)
		return refuse(src, err, "--pad-id is not in the vocabulary");
	if (o->tokens > EN_MAX_ROW || o->tokens == 1)
		return refuse(src, err, "a row has 2 to 16777216 tokens");
	if (!o->tokens && (!is_rows || o->pack || o->pack_documents))
		return refuse(src, err, "this data has no rows: give the tokens in a row (--seq)");
	if (o->pack && !is_text)
		return refuse(src, err, "--pack is for JSON lines only");
	if (o->pack_documents && !is_text)
		return refuse(src, err, "--pack-documents is for JSON lines only; other data says "
			      "its documents by position_ids or attention_mask");
	if (o->pack_documents && o->pack)
		return refuse(src, err, "--pack cuts documents where a row ends, --pack-documents "
			      "keeps them whole: give one of the two");
	if (o->overlap && is_rows && !o->pack)
		return refuse(src, err, "--overlap needs a stream of tokens; this data has rows");
	return 0;
}

static const struct en_source_ops *ops_of(enum en_source_kind kind)
{
	switch (kind) {
	case EN_SOURCE_JSONL:
		return &en_source_jsonl;
	case EN_SOURCE_SAFETENSORS:
		return &en_source_st;
	case EN_SOURCE_SYNTHETIC:
		return &made;
	default:
		return &en_source_bin;
	}
}

/* Of kinds that have not read everything: rows spread over the data. */
static int fingerprint(struct en_source *src, struct ckpt_err *err)
{
	const uint64_t rows = src->info.rows, looks = ck_min_u64(rows, FINGERPRINT_ROWS);
	const uint64_t n = src->info.tokens;
	const uint64_t head[4] = { src->opts.kind, rows, n, src->opts.overlap };
	const uint64_t values = (src->info.packed ? 3 : 2) * n;
	int32_t *row = ck_alloc_array(3 * n, sizeof(*row));
	struct ck_hasher *h = ck_hasher_new();
	int rc = 0;

	if (!row || !h)
		rc = ck_fail_nomem(err, "a row of data", 3 * n * sizeof(*row));
	else
		ck_hasher_add(h, head, sizeof(head));
	for (uint64_t i = 0; !rc && i < looks; i++) {
		const uint64_t at = looks == 1 ? 0 : (rows - 1) / (looks - 1) * i;

		rc = en_source_row(src, at, row, row + n, row + 2 * n, err);
		if (!rc)
			ck_hasher_add(h, row, values * sizeof(*row));
	}
	if (!rc)
		ck_hash128_print(ck_hasher_sum(h), src->info.fingerprint);
	ck_hasher_free(h);
	ck_free(row);
	return rc;
}

static int open_kind(struct en_source *src, struct ckpt_err *err)
{
	int rc;

	if (!src->opts.kind)
		src->opts.kind = kind_of(src->path, &src->guessed);
	if (!src->opts.kind)
		return refuse(src, err,
			      "unknown suffix; expected .bin, .u16, .u32, .jsonl or .safetensors, "
			      "or --data-kind; text is tokenised beforehand");
	rc = check_opts(src, err);
	if (rc)
		return rc;
	src->info.kind = src->opts.kind;
	src->info.path = src->path;
	src->info.tokens = src->opts.tokens;
	src->ops = ops_of(src->opts.kind);
	rc = src->ops->open(src, err);
	if (rc)
		return rc;
	src->starts = ck_alloc_array(src->info.tokens, sizeof(*src->starts));
	if (!src->starts)
		return ck_fail_nomem(err, "a row of data", src->info.tokens);
	if (!src->info.fingerprint[0])
		rc = fingerprint(src, err);
	return rc;
}

int en_source_open(struct en_source **src_out, const char *path,
		   const struct en_source_opts *opts, struct ckpt_err *err)
{
	struct en_source *src = ck_zalloc(sizeof(*src));
	int rc = 0;

	if (src)
		src->path = ck_strdup(opts->kind == EN_SOURCE_SYNTHETIC ? "synthetic" : path);
	if (!src || !src->path)
		rc = ck_fail_nomem(err, "a source of data", sizeof(*src));
	if (!rc) {
		src->opts = *opts;
		rc = open_kind(src, err);
	}
	if (rc)
		en_source_close(src);
	else
		*src_out = src;
	return rc;
}

void en_source_close(struct en_source *src)
{
	if (!src)
		return;
	if (src->ops)
		src->ops->close(src);
	ck_free(src->starts);
	ck_free(src->path);
	ck_free(src);
}

void en_source_info_get(const struct en_source *src, struct en_source_info *out)
{
	*out = src->info;
}

int en_source_row(struct en_source *src, uint64_t row, int32_t *ids, int32_t *labels,
		  int32_t *starts, struct ckpt_err *err)
{
	if (row >= src->info.rows)
		return ck_fail(err, CKPT_E_USAGE, src->path, CKPT_NO_OFFSET,
			       "row %llu is out of range: the data has %llu",
			       (unsigned long long)row, (unsigned long long)src->info.rows);
	if (!starts)
		starts = src->starts;
	memset(starts, 0, src->info.tokens * sizeof(*starts));
	return src->ops->row(src, row, ids, labels, starts, err);
}
