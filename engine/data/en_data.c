/* en_data.c -- see en_data.h. */
#include "engine/data/en_data.h"

#include <string.h>

#include "engine/base/en_json.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"

#define STATE "the state of the data"
#define MAX_STATE_NODES 1000

int en_data_split(uint64_t rows, uint64_t held_out, uint64_t *train_out, struct ckpt_err *err)
{
	if (held_out >= rows)
		return ck_fail(err, CKPT_E_USAGE, "data", CKPT_NO_OFFSET,
			       "%llu evaluation rows to hold out, but the data has only %llu rows",
			       (unsigned long long)held_out, (unsigned long long)rows);
	*train_out = rows - held_out;
	return 0;
}

int en_data_init(struct en_data *d, struct en_source *src, uint64_t first, uint64_t rows,
		 const struct en_samples_opts *opts, struct ckpt_err *err)
{
	struct en_data now = { .src = src, .first = first };
	int rc;

	en_source_info_get(src, &now.info);
	if (first >= now.info.rows || rows > now.info.rows - first)
		return ck_fail(err, CKPT_E_USAGE, now.info.path, CKPT_NO_OFFSET,
			       "rows %llu to %llu requested; the data has %llu",
			       (unsigned long long)first, (unsigned long long)(first + rows),
			       (unsigned long long)now.info.rows);
	now.rows = rows ? rows : now.info.rows - first;
	rc = en_samples_init(&now.samples, now.rows, opts, err);
	if (rc)
		return rc;
	now.number = ck_alloc_array(opts->micro, sizeof(*now.number));
	if (!now.number) {
		en_samples_release(&now.samples);
		return ck_fail_nomem(err, "the rows of a unit", opts->micro * sizeof(*now.number));
	}
	*d = now;
	return 0;
}

void en_data_release(struct en_data *d)
{
	en_samples_release(&d->samples);
	ck_free(d->number);
	memset(d, 0, sizeof(*d));
}

static uint64_t count(const int32_t *labels, uint32_t tokens)
{
	uint64_t n = 0;

	for (uint32_t t = 1; t < tokens; t++)
		n += labels[t] != EN_NO_LABEL;
	return n;
}

int en_data_rows(struct en_data *d, uint64_t start, uint64_t unit, int32_t *ids, int32_t *labels,
		 int32_t *starts, struct en_unit *unit_out, struct ckpt_err *err)
{
	const uint32_t tokens = d->info.tokens;
	struct en_unit out = { .number = d->number };
	int rc = en_samples_unit(&d->samples, start, unit, d->number, &out.rows, err);

	for (uint64_t i = 0; !rc && i < out.rows; i++) {
		d->number[i] += d->first;
		rc = en_source_row(d->src, d->number[i], ids + i * tokens, labels + i * tokens,
				   starts ? starts + i * tokens : NULL, err);
		if (!rc)
			out.counted += count(labels + i * tokens, tokens);
	}
	if (!rc)
		*unit_out = out;
	return rc;
}

/* ---- state ---- */

int en_data_state(const struct en_data *d, uint64_t consumed, struct ck_buf *buf,
		  struct ckpt_err *err)
{
	const struct en_samples *s = &d->samples;

	return ck_buf_addf(buf, err,
			   "{\"consumed\": %llu, \"batch\": %llu, \"first\": %llu, \"rows\": %llu, "
			   "\"tokens\": %u, \"order\": \"%s\", \"seed\": %llu, \"tail\": \"%s\", "
			   "\"fingerprint\": \"%s\"}",
			   (unsigned long long)consumed, (unsigned long long)s->batch,
			   (unsigned long long)d->first, (unsigned long long)d->rows,
			   d->info.tokens, en_order_name(s->opts.order),
			   (unsigned long long)s->opts.seed, en_last_name(s->opts.last),
			   d->info.fingerprint);
}

static int want_number(const struct ck_json *doc, const char *key, uint64_t *out,
		       struct ckpt_err *err)
{
	const uint64_t tok = ck_json_get(doc, 0, key);
	char text[EN_JSON_TEXT];

	if (ck_json_u64(doc, tok, out))
		return 0;
	en_json_text(doc, tok, text);
	return ck_fail(err, CKPT_E_CORRUPT, STATE, CKPT_NO_OFFSET,
		       "%s is %s, expected a whole number", key, text);
}

static int same_number(const struct ck_json *doc, const char *key, const char *what,
		       uint64_t now, struct ckpt_err *err)
{
	uint64_t was;
	int rc = want_number(doc, key, &was, err);

	if (!rc && was != now)
		rc = ck_fail(err, CKPT_E_MISMATCH, STATE, CKPT_NO_OFFSET,
			     "%s: %llu in the saved run, %llu now; give the saved value to "
			     "continue with the same samples, or --new-data",
			     what, (unsigned long long)was, (unsigned long long)now);
	return rc;
}

static int same_text(const struct ck_json *doc, const char *key, const char *now,
		     struct ckpt_err *err)
{
	const uint64_t tok = ck_json_get(doc, 0, key);

	if (tok == UINT64_MAX || doc->tok[tok].type != CK_JSON_STRING)
		return ck_fail(err, CKPT_E_CORRUPT, STATE, CKPT_NO_OFFSET, "missing: %s", key);
	if (!strcmp(doc->tok[tok].str, now))
		return 0;
	return ck_fail(err, CKPT_E_MISMATCH, STATE, CKPT_NO_OFFSET,
		       "%s: '%.60s' in the saved run, '%s' now%s", key, doc->tok[tok].str, now,
		       strcmp(key, "fingerprint") ? "" : ": --data is another file, or it changed; "
		       "--new-data begins at its first row");
}

static int compare(const struct en_data *d, const struct ck_json *doc, struct ckpt_err *err)
{
	const struct en_samples *s = &d->samples;
	int rc = same_number(doc, "tokens", "tokens of a row (--seq)", d->info.tokens, err);

	if (!rc)
		rc = same_number(doc, "rows", "rows", d->rows, err);
	if (!rc)
		rc = same_number(doc, "first", "first row", d->first, err);
	if (!rc)
		rc = same_text(doc, "order", en_order_name(s->opts.order), err);
	if (!rc && s->opts.order != EN_ORDER_SEQUENTIAL)
		rc = same_number(doc, "seed", "seed", s->opts.seed, err);
	if (!rc)
		rc = same_text(doc, "tail", en_last_name(s->opts.last), err);
	if (!rc && s->opts.last != EN_LAST_FLOW)
		rc = same_number(doc, "batch", "rows of a step", s->batch, err);
	return rc ? rc : same_text(doc, "fingerprint", d->info.fingerprint, err);
}

int en_data_resume(const struct en_data *d, const char *text, uint64_t len,
		   uint64_t *consumed_out, struct ckpt_err *err)
{
	struct ck_json doc = CK_JSON_INIT;
	uint64_t consumed = 0;
	int rc = en_json_parse(&doc, text, len, MAX_STATE_NODES, STATE, err);

	if (!rc && doc.tok[0].type != CK_JSON_OBJECT)
		rc = ck_fail(err, CKPT_E_CORRUPT, STATE, CKPT_NO_OFFSET, "not a JSON object");
	if (!rc)
		rc = want_number(&doc, "consumed", &consumed, err);
	if (!rc)
		rc = compare(d, &doc, err);
	if (!rc && d->samples.opts.last != EN_LAST_FLOW && consumed % d->samples.batch)
		rc = ck_fail(err, CKPT_E_CORRUPT, STATE, CKPT_NO_OFFSET,
			     "%llu samples consumed, not a multiple of the batch of %llu",
			     (unsigned long long)consumed, (unsigned long long)d->samples.batch);
	if (!rc)
		*consumed_out = consumed;
	ck_json_release(&doc);
	return rc;
}
