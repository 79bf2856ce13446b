/* en_source_seams.c -- documents of a row, as mask and positions say them; see en_source_priv.h. */
#include "engine/data/en_source_priv.h"
#include "libckpt/base/ck_err.h"

struct place {
	const struct en_source *src;
	const char *what;	/* "row", "line" */
	uint64_t row;
	struct ckpt_err *err;
};

static int wrong(const struct place *p, enum ckpt_code code, const char *why)
{
	return ck_fail(p->err, code, p->src->path, CKPT_NO_OFFSET, "%s %llu: %s", p->what,
		       (unsigned long long)p->row, why);
}

static int wrong_value(const struct place *p, enum ckpt_code code, uint64_t i, const char *column,
		       int32_t has, const char *why)
{
	return ck_fail(p->err, code, p->src->path, CKPT_NO_OFFSET,
		       "%s %llu, position %llu: %s has %d; %s", p->what,
		       (unsigned long long)p->row, (unsigned long long)i, column, has, why);
}

/* Tokens before the padding; '*numbered_out': the mask counts documents. */
static int take_mask(const struct place *p, struct en_raw *raw, bool *numbered_out)
{
	const int32_t *m = raw->mask;
	uint64_t n = 0;

	for (uint64_t i = 0; i < raw->n; i++) {
		const int32_t before = i ? m[i - 1] : 1;

		if (m[i] && i > n)
			return wrong(p, CKPT_E_UNSUPPORTED,
				     "attention_mask has a 1 after a 0; padding is allowed at the "
				     "end only");
		if (m[i] && m[i] != before && (m[i] != before + 1 || !i))
			return wrong_value(p, CKPT_E_CORRUPT, i, "attention_mask", m[i],
					   "expected 1 for text and 0 for padding, or 1 for the "
					   "first document, 2 for the second, and so on");
		n += m[i] != 0;
	}
	if (!n)
		return wrong(p, CKPT_E_CORRUPT, "attention_mask leaves no token");
	*numbered_out = m[n - 1] > 1;
	raw->n = n;
	return 0;
}

static int take_positions(const struct place *p, const struct en_raw *raw, bool numbered)
{
	const int32_t *pos = raw->positions;

	for (uint64_t i = 0; i < raw->n; i++) {
		const bool begins = !pos[i];

		if (!begins && (!i || pos[i] != pos[i - 1] + 1))
			return wrong_value(p, CKPT_E_UNSUPPORTED, i, "position_ids", pos[i],
					   "expected 0, where a document begins, or one more than "
					   "before");
		if (numbered && i && begins != (raw->mask[i] != raw->mask[i - 1]))
			return wrong_value(p, CKPT_E_CORRUPT, i, "position_ids", pos[i],
					   "attention_mask has a document's beginning elsewhere");
	}
	return 0;
}

int en_raw_seams(const struct en_source *src, struct en_raw *raw, const char *what, uint64_t row,
		 uint64_t *documents_out, struct ckpt_err *err)
{
	const struct place p = { src, what, row, err };
	bool numbered = false;
	uint64_t documents = 0;
	int rc = raw->has_mask ? take_mask(&p, raw, &numbered) : 0;

	if (!rc && raw->has_positions)
		rc = take_positions(&p, raw, numbered);
	for (uint64_t i = 0; !rc && i < raw->n; i++) {
		const bool begins = !i || (raw->has_positions ? !raw->positions[i] :
					   numbered && raw->mask[i] != raw->mask[i - 1]);

		raw->starts[i] = begins ? (int32_t)i : raw->starts[i - 1];
		documents += begins;
		if (begins && i && !raw->has_labels)
			raw->labels[i] = EN_NO_LABEL;
	}
	if (!rc)
		*documents_out = documents;
	return rc;
}
