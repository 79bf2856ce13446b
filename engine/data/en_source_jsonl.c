/*
 * en_source_jsonl.c -- a row a line, in JSON; docs/ztrain/data.md, "JSON lines".
 *
 * Opening reads the whole file: lines are checked, and their places and lengths kept.  A row is
 * read and parsed again when it is wanted.
 */
#include <string.h>

#include "engine/base/en_json.h"
#include "engine/data/en_fit.h"
#include "engine/data/en_source_priv.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_hash.h"
#include "libckpt/base/ck_search.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/io/ck_src.h"

#define WINDOW ((size_t)1 << 20)

struct line {
	uint64_t off;		/* byte in the file */
	uint32_t len;		/* without its end */
	uint32_t number;	/* from 1; beyond 2^32 - 1 it stays there */
	uint64_t first;		/* tokens of the lines before it */
};

struct jsonl {
	struct ck_fdpool *pool;
	struct ck_src *file;
	struct line *line;
	uint64_t n, cap;
	uint64_t tokens;	/* of all lines */
	uint64_t longest;
	char *text;		/* a line */
	uint64_t text_cap;
	struct en_raw raw;	/* a row */
	struct en_fit fit;	/* of documents */
};

static void jsonl_close(struct en_source *src)
{
	struct jsonl *j = src->own;

	if (!j)
		return;
	ck_src_close(j->file);
	ck_fdpool_free(j->pool);
	en_raw_release(&j->raw);
	en_fit_release(&j->fit);
	ck_free(j->line);
	ck_free(j->text);
	ck_free(j);
}

/* ---- a line ---- */

struct parsed {
	const struct en_source *src;
	const struct ck_json *doc;
	uint64_t number;	/* of the line */
	struct ckpt_err *err;
};

static int wrong(const struct parsed *p, enum ckpt_code code, const char *why)
{
	return ck_fail(p->err, code, p->src->path, CKPT_NO_OFFSET, "line %llu: %s",
		       (unsigned long long)p->number, why);
}

/* Numbers of an array, which all fit 32 bits; their range is judged later. */
static int take_numbers(const struct parsed *p, uint64_t tok, const char *what, int32_t *out)
{
	const uint32_t n = p->doc->tok[tok].n;

	for (uint32_t i = 0; i < n; i++) {
		const uint64_t at = tok + 1 + i; /* right as long as all before are numbers */
		char text[EN_JSON_TEXT];
		int64_t v;

		if (!ck_json_i64(p->doc, at, &v)) {
			en_json_text(p->doc, at, text);
			return ck_fail(p->err, CKPT_E_CORRUPT, p->src->path, CKPT_NO_OFFSET,
				       "line %llu, position %u: %s has %s, expected a whole "
				       "number%s",
				       (unsigned long long)p->number, i, what, text,
				       p->doc->tok[at].type == CK_JSON_OBJECT ?
					       " (write one object per line, not an array)" : "");
		}
		if (v < INT32_MIN || v > INT32_MAX)
			return ck_fail(p->err, CKPT_E_MISMATCH, p->src->path, CKPT_NO_OFFSET,
				       "line %llu, position %u: %s has %lld, outside the model's "
				       "vocabulary of %u",
				       (unsigned long long)p->number, i, what, (long long)v,
				       p->src->opts.vocab);
		out[i] = (int32_t)v;
	}
	return 0;
}

/* An array of as many values as there are ids; '*tok_out' is UINT64_MAX where there is none. */
static int find_array(const struct parsed *p, const char *key, uint64_t n, uint64_t *tok_out)
{
	const uint64_t tok = ck_json_get(p->doc, 0, key);

	*tok_out = tok;
	if (tok == UINT64_MAX || p->doc->tok[tok].type == CK_JSON_NULL) {
		*tok_out = UINT64_MAX;
		return 0;
	}
	if (p->doc->tok[tok].type != CK_JSON_ARRAY)
		return ck_fail(p->err, CKPT_E_CORRUPT, p->src->path, CKPT_NO_OFFSET,
			       "line %llu: %s is not a list", (unsigned long long)p->number, key);
	if (p->doc->tok[tok].n != n)
		return ck_fail(p->err, CKPT_E_CORRUPT, p->src->path, CKPT_NO_OFFSET,
			       "line %llu: %u values in %s, %llu in input_ids",
			       (unsigned long long)p->number, p->doc->tok[tok].n, key,
			       (unsigned long long)n);
	return 0;
}

/* cu_seqlens: 0, where the second document begins, ..., the number of ids.  As positions. */
static int take_lengths(const struct parsed *p, uint64_t tok, struct en_raw *raw)
{
	const uint32_t n = p->doc->tok[tok].n;
	uint64_t at = 0, end;

	for (uint32_t i = 0; i < n; i++) {
		if (!ck_json_u64(p->doc, tok + 1 + i, &end) || end > raw->n ||
		    (i ? end <= at : end != 0))
			return ck_fail(p->err, CKPT_E_CORRUPT, p->src->path, CKPT_NO_OFFSET,
				       "line %llu: value %u of cu_seqlens is not %s",
				       (unsigned long long)p->number, i,
				       i ? "above the one before it and within input_ids" : "0");
		for (uint64_t k = at; k < end; k++)
			raw->positions[k] = (int32_t)(k - at);
		at = end;
	}
	if (at != raw->n)
		return ck_fail(p->err, CKPT_E_CORRUPT, p->src->path, CKPT_NO_OFFSET,
			       "line %llu: cu_seqlens ends at %llu, input_ids has %llu values",
			       (unsigned long long)p->number, (unsigned long long)at,
			       (unsigned long long)raw->n);
	return 0;
}

/* position_ids, or cu_seqlens, which says the same in fewer numbers. */
static int take_positions(const struct parsed *p, struct en_raw *raw)
{
	const uint64_t lengths = ck_json_get(p->doc, 0, "cu_seqlens");
	uint64_t tok;
	int rc = find_array(p, "position_ids", raw->n, &tok);

	if (rc)
		return rc;
	raw->has_positions = true;
	if (tok != UINT64_MAX)
		return take_numbers(p, tok, "position_ids", raw->positions);
	if (lengths != UINT64_MAX && p->doc->tok[lengths].type == CK_JSON_ARRAY)
		return take_lengths(p, lengths, raw);
	raw->has_positions = false;
	return 0;
}

static int take_object(const struct parsed *p, struct en_raw *raw)
{
	uint64_t tok;
	int rc = find_array(p, "labels", raw->n, &tok);

	if (rc)
		return rc;
	raw->has_labels = tok != UINT64_MAX;
	if (raw->has_labels)
		rc = take_numbers(p, tok, "labels", raw->labels);
	if (!rc)
		rc = take_positions(p, raw);
	if (!rc)
		rc = find_array(p, "attention_mask", raw->n, &tok);
	raw->has_mask = !rc && tok != UINT64_MAX;
	if (raw->has_mask)
		rc = take_numbers(p, tok, "attention_mask", raw->mask);
	return rc;
}

static int take_line(const struct parsed *p, struct en_raw *raw, uint64_t *documents_out)
{
	const struct ck_json *doc = p->doc;
	const bool is_object = doc->tok[0].type == CK_JSON_OBJECT;
	const uint64_t ids = is_object ? ck_json_get(doc, 0, "input_ids") : 0;
	int rc;

	if (ids == UINT64_MAX)
		return wrong(p, CKPT_E_CORRUPT,
			     "the object has no input_ids; text is tokenised beforehand");
	if (doc->tok[ids].type != CK_JSON_ARRAY)
		return wrong(p, CKPT_E_CORRUPT,
			     is_object ? "input_ids is not a list" :
					 "neither a list of tokens nor an object with input_ids");
	raw->n = doc->tok[ids].n;
	if (!raw->n)
		return wrong(p, CKPT_E_CORRUPT, "no tokens");
	rc = en_raw_room(raw, raw->n, p->err);
	if (!rc)
		rc = take_numbers(p, ids, is_object ? "input_ids" : "the list", raw->ids);
	if (rc)
		return rc;
	raw->has_labels = raw->has_positions = raw->has_mask = false;
	if (is_object)
		rc = take_object(p, raw);
	if (!rc && !raw->has_labels)
		memcpy(raw->labels, raw->ids, raw->n * sizeof(*raw->ids));
	if (!rc)
		rc = en_raw_seams(p->src, raw, "line", p->number, documents_out, p->err);
	return rc ? rc : en_raw_check(p->src, raw->ids, raw->labels, raw->n, "line", p->number,
				      p->err);
}

/* A line into src's 'raw'; '*documents_out' of them. */
static int parse_line(const struct en_source *src, const char *text, uint64_t len, uint64_t number,
		      struct en_raw *raw, uint64_t *documents_out, struct ckpt_err *err)
{
	struct ck_json doc = CK_JSON_INIT;
	const struct parsed p = { src, &doc, number, err };
	struct ckpt_err local = { 0 };
	int rc = en_json_parse(&doc, text, len, len + 16, src->path, &local);

	if (rc == -CKPT_E_CORRUPT)
		rc = ck_fail(err, CKPT_E_CORRUPT, src->path, CKPT_NO_OFFSET,
			     "line %llu, byte %llu: %.200s; expected one JSON value per line",
			     (unsigned long long)number, (unsigned long long)local.offset,
			     local.msg);
	else if (rc)
		rc = ck_fail(err, local.code, src->path, CKPT_NO_OFFSET, "line %llu: %.300s",
			     (unsigned long long)number, local.msg);
	else
		rc = take_line(&p, raw, documents_out);
	ck_json_release(&doc);
	return rc;
}

/* ---- the file ---- */

static bool is_blank(const char *p, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++)
		if (p[i] != ' ' && p[i] != '\t' && p[i] != '\r')
			return false;
	return true;
}

static int too_long(const struct en_source *src, uint64_t number, uint64_t n, struct ckpt_err *err)
{
	return ck_fail(err, CKPT_E_MISMATCH, src->path, CKPT_NO_OFFSET,
		       "line %llu has %llu tokens, a row has %u; use --cut, or a larger --seq",
		       (unsigned long long)number, (unsigned long long)n, src->opts.tokens);
}

/* What is kept of a line that was read. */
static int note_line(struct en_source *src, uint64_t off, uint64_t len, uint64_t number,
		     struct ckpt_err *err)
{
	struct jsonl *j = src->own;
	const uint64_t n = j->raw.n;
	const uint32_t want = src->opts.tokens;
	int rc;

	if (n > EN_MAX_ROW)
		return ck_fail(err, CKPT_E_LIMIT, src->path, CKPT_NO_OFFSET,
			       "line %llu has %llu tokens; the limit is %u",
			       (unsigned long long)number, (unsigned long long)n, EN_MAX_ROW);
	if (want && n > want && !src->opts.pack) {
		if (!src->opts.cut)
			return too_long(src, number, n, err);
		src->info.cut++;
	}
	rc = ck_grow(&j->line, &j->cap, j->n + 1, sizeof(*j->line), err);
	if (rc)
		return rc;
	j->line[j->n++] = (struct line){ off, (uint32_t)len,
					 (uint32_t)ck_min_u64(number, UINT32_MAX), j->tokens };
	j->tokens += n;
	j->longest = ck_max_u64(j->longest, n);
	src->info.has_labels |= j->raw.has_labels;
	return 0;
}

static int take_text(struct en_source *src, const char *p, uint64_t len, uint64_t off,
		     uint64_t number, struct ckpt_err *err)
{
	struct jsonl *j = src->own;
	uint64_t documents;
	int rc;

	if (is_blank(p, len))
		return 0;
	rc = parse_line(src, p, len, number, &j->raw, &documents, err);
	if (!rc && documents > 1 && src->opts.pack)
		rc = ck_fail(err, CKPT_E_UNSUPPORTED, src->path, CKPT_NO_OFFSET,
			     "line %llu holds %llu documents, and --pack joins lines without "
			     "seams; use --pack-documents, or neither",
			     (unsigned long long)number, (unsigned long long)documents);
	src->info.packed |= !rc && documents > 1;
	return rc ? rc : note_line(src, off, len, number, err);
}

/* Bytes of a line that continues in the next window are moved to the front. */
struct scan {
	uint64_t off;		/* in the file, of the first byte kept */
	uint64_t have;		/* bytes kept */
	uint64_t number;	/* of the line that begins there */
};

static int take_window(struct en_source *src, struct scan *s, bool last, struct ckpt_err *err)
{
	struct jsonl *j = src->own;
	uint64_t at = 0;
	int rc = 0;

	while (!rc && at < s->have) {
		const char *end = memchr(j->text + at, '\n', s->have - at);
		const uint64_t len = end ? (uint64_t)(end - (j->text + at)) : s->have - at;

		if (!end && !last)
			break;
		rc = take_text(src, j->text + at, len, s->off + at, s->number, err);
		s->number++;
		at += len + (end != NULL);
	}
	memmove(j->text, j->text + at, s->have - at);
	s->have -= at;
	s->off += at;
	return rc;
}

static int room_for_text(struct en_source *src, uint64_t n, uint64_t number, struct ckpt_err *err)
{
	struct jsonl *j = src->own;

	if (n > EN_MAX_LINE + WINDOW)
		return ck_fail(err, CKPT_E_LIMIT, src->path, CKPT_NO_OFFSET,
			       "line %llu is longer than 64 MiB; each line is one row",
			       (unsigned long long)number);
	return ck_grow(&j->text, &j->text_cap, n, 1, err);
}

static int scan(struct en_source *src, struct ck_hasher *h, struct ckpt_err *err)
{
	struct jsonl *j = src->own;
	const uint64_t size = ck_src_size(j->file);
	struct scan s = { .number = 1 };
	uint64_t read = 0;
	int rc = 0;

	while (!rc && read < size) {
		const size_t n = (size_t)ck_min_u64(WINDOW, size - read);

		rc = room_for_text(src, s.have + n, s.number, err);
		if (!rc)
			rc = ck_src_read(j->file, read, j->text + s.have, n, err);
		if (rc)
			break;
		ck_hasher_add(h, j->text + s.have, n);
		read += n;
		s.have += n;
		rc = take_window(src, &s, read == size, err);
	}
	return rc;
}

static uint64_t line_tokens(const struct jsonl *j, uint64_t i)
{
	return (i + 1 < j->n ? j->line[i + 1].first : j->tokens) - j->line[i].first;
}

/* Whole lines in a row, as many as fit. */
static int fit_documents(struct en_source *src, struct ckpt_err *err)
{
	struct jsonl *j = src->own;
	uint64_t *length = ck_alloc_array(j->n, sizeof(*length));
	int rc;

	if (!length)
		return ck_fail_nomem(err, "lengths of documents", j->n * sizeof(*length));
	for (uint64_t i = 0; i < j->n; i++)
		length[i] = line_tokens(j, i);
	rc = en_fit_init(&j->fit, length, j->n, src->info.tokens, err);
	ck_free(length);
	src->info.rows = j->fit.rows;
	src->info.padded = j->fit.short_rows;
	return rc;
}

/* How the lines become rows. */
static int settle(struct en_source *src, struct ckpt_err *err)
{
	struct jsonl *j = src->own;

	if (!j->n)
		return ck_fail(err, CKPT_E_TRUNCATED, src->path, 0, "%s",
			       ck_src_size(j->file) ? "the file has blank lines only" :
			       "the file is empty");
	if (src->opts.pack)
		return en_source_cut(src, j->tokens, err);
	src->info.packed |= src->opts.pack_documents;
	if (src->opts.pack_documents)
		return fit_documents(src, err);
	if (!src->info.tokens)
		src->info.tokens = (uint32_t)ck_max_u64(2, j->longest);
	src->info.rows = j->n;
	for (uint64_t i = 0; i < j->n; i++)
		src->info.padded += line_tokens(j, i) < src->info.tokens;
	return 0;
}

static int jsonl_open(struct en_source *src, struct ckpt_err *err)
{
	struct jsonl *j = ck_zalloc(sizeof(*j));
	struct ck_hasher *h = ck_hasher_new();
	int rc = 0;

	src->own = j;
	if (j)
		j->pool = ck_fdpool_new(1);
	if (!j || !j->pool || !h)
		rc = ck_fail_nomem(err, "a file of JSON lines", sizeof(*j));
	if (!rc)
		rc = ck_src_open(j->pool, src->path, &j->file, err);
	if (!rc)
		rc = scan(src, h, err);
	if (!rc)
		rc = settle(src, err);
	if (!rc && src->opts.pack_documents)	/* as many rows of a file may hold others */
		ck_hasher_add(h, "documents", 9);
	if (!rc)
		ck_hash128_print(ck_hasher_sum(h), src->info.fingerprint);
	ck_hasher_free(h);
	return rc;
}

/* ---- rows ---- */

/* Line 'i' into j->raw; it must be as it was. */
static int load_line(struct en_source *src, uint64_t i, struct ckpt_err *err)
{
	struct jsonl *j = src->own;
	const struct line *l = &j->line[i];
	const uint64_t end = i + 1 < j->n ? j->line[i + 1].first : j->tokens;
	uint64_t documents;
	int rc = room_for_text(src, l->len, l->number, err);

	if (!rc)
		rc = ck_src_read(j->file, l->off, j->text, l->len, err);
	if (!rc)
		rc = parse_line(src, j->text, l->len, l->number, &j->raw, &documents, err);
	if (!rc && j->raw.n != end - l->first)
		rc = ck_fail(err, CKPT_E_MISMATCH, src->path, CKPT_NO_OFFSET,
			     "line %u has %llu tokens, and had %llu at the start: the file changed "
			     "during the run",
			     l->number, (unsigned long long)j->raw.n,
			     (unsigned long long)(end - l->first));
	return rc;
}

/* The line that holds a token of the packed text. */
static uint64_t line_of(const struct jsonl *j, uint64_t token)
{
	uint64_t i;

	CK_LOWER_BOUND(i, j->n, j->line[i].first <= token);
	return i ? i - 1 : 0;
}

static int packed_row(struct en_source *src, uint64_t row, int32_t *ids, int32_t *labels,
		      struct ckpt_err *err)
{
	struct jsonl *j = src->own;
	const uint64_t first = en_source_first(src, row), tokens = src->info.tokens;
	uint64_t done = 0;
	int rc = 0;

	for (uint64_t i = line_of(j, first); !rc && done < tokens; i++) {
		const uint64_t skip = first + done - j->line[i].first;
		uint64_t n;

		rc = load_line(src, i, err);
		if (rc)
			break;
		n = ck_min_u64(j->raw.n - skip, tokens - done);
		memcpy(ids + done, j->raw.ids + skip, n * sizeof(*ids));
		memcpy(labels + done, j->raw.labels + skip, n * sizeof(*labels));
		done += n;
	}
	return rc;
}

/* The first token of a document is no target, as in a row of its own. */
static int documents_row(struct en_source *src, uint64_t row, int32_t *ids, int32_t *labels,
			 int32_t *starts, struct ckpt_err *err)
{
	struct jsonl *j = src->own;
	const struct en_raw *raw = &j->raw;
	const uint64_t tokens = src->info.tokens;
	uint64_t done = 0, n;

	for (uint64_t i = j->fit.first[row]; i < j->fit.first[row + 1]; i++, done += n) {
		int rc = load_line(src, j->fit.member[i], err);

		if (rc)
			return rc;
		n = ck_min_u64(raw->n, tokens - done);
		memcpy(ids + done, raw->ids, n * sizeof(*ids));
		memcpy(labels + done, raw->labels, n * sizeof(*labels));
		labels[done] = EN_NO_LABEL;
		for (uint64_t t = 0; t < n; t++)
			starts[done + t] = (int32_t)done + raw->starts[t];
	}
	for (uint64_t t = done; t < tokens; t++) {
		ids[t] = src->opts.pad_id;
		labels[t] = EN_NO_LABEL;
		starts[t] = (int32_t)done;
	}
	return 0;
}

static int jsonl_row(struct en_source *src, uint64_t row, int32_t *ids, int32_t *labels,
		     int32_t *starts, struct ckpt_err *err)
{
	struct jsonl *j = src->own;
	int rc;

	if (src->opts.pack)
		return packed_row(src, row, ids, labels, err);
	if (src->opts.pack_documents)
		return documents_row(src, row, ids, labels, starts, err);
	rc = load_line(src, row, err);
	if (!rc)
		en_raw_fit(src, &j->raw, ids, labels, starts);
	return rc;
}

const struct en_source_ops en_source_jsonl = { jsonl_open, jsonl_close, jsonl_row };
