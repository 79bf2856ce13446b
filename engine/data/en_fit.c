/* en_fit.c -- see en_fit.h. */
#include "engine/data/en_fit.h"

#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"

struct open_rows {
	uint64_t room[EN_FIT_OPEN], row[EN_FIT_OPEN];
	uint32_t n;
};

/* The first row with room for 'n' tokens, or a new one; the oldest is closed for it. */
static uint32_t find_room(struct open_rows *o, uint64_t n, uint64_t tokens, uint64_t *rows)
{
	uint32_t k = 0;

	while (k < o->n && o->room[k] < n)
		k++;
	if (k < o->n)
		return k;
	if (k == EN_FIT_OPEN) {
		memmove(o->room, o->room + 1, (EN_FIT_OPEN - 1) * sizeof(*o->room));
		memmove(o->row, o->row + 1, (EN_FIT_OPEN - 1) * sizeof(*o->row));
		k = --o->n;
	}
	o->room[k] = tokens;
	o->row[k] = (*rows)++;
	o->n++;
	return k;
}

static void choose(struct en_fit *fit, const uint64_t *length, uint64_t n, uint64_t tokens,
		   uint64_t *row_of)
{
	struct open_rows o = { .n = 0 };
	uint64_t full = 0;

	for (uint64_t i = 0; i < n; i++) {
		const uint64_t need = ck_min_u64(length[i], tokens);
		const uint32_t k = find_room(&o, need, tokens, &fit->rows);

		o.room[k] -= need;
		row_of[i] = o.row[k];
		full += !o.room[k];
	}
	fit->short_rows = fit->rows - full;
}

/* Documents by row: how many each row has, where its first is, then the documents in order. */
static void list(struct en_fit *fit, const uint64_t *row_of, uint64_t n)
{
	uint64_t at = 0;

	for (uint64_t i = 0; i < n; i++)
		fit->first[row_of[i]]++;
	for (uint64_t r = 0; r <= fit->rows; r++) {
		const uint64_t count = fit->first[r];

		fit->first[r] = at;
		at += count;
	}
	for (uint64_t i = 0; i < n; i++)
		fit->member[fit->first[row_of[i]]++] = i;
	memmove(fit->first + 1, fit->first, fit->rows * sizeof(*fit->first));
	fit->first[0] = 0;
}

int en_fit_init(struct en_fit *fit, const uint64_t *length, uint64_t n, uint64_t tokens,
		struct ckpt_err *err)
{
	struct en_fit now = { .member = ck_alloc_array(n, sizeof(*now.member)) };
	uint64_t *row_of = ck_alloc_array(n, sizeof(*row_of));

	if (row_of && now.member) {
		choose(&now, length, n, tokens, row_of);
		now.first = ck_zalloc((now.rows + 1) * sizeof(*now.first));
	}
	if (!now.first) {
		ck_free(row_of);
		en_fit_release(&now);
		return ck_fail_nomem(err, "rows of documents", n * sizeof(*row_of));
	}
	list(&now, row_of, n);
	ck_free(row_of);
	*fit = now;
	return 0;
}

void en_fit_release(struct en_fit *fit)
{
	ck_free(fit->first);
	ck_free(fit->member);
	memset(fit, 0, sizeof(*fit));
}
