/*
 * sv_join.c -- rank 0's work when all ranks have written: is every element there, once; and the
 * sums of all.
 *
 * A block of a digest that two puts share, or two pieces, was hashed by nobody: its bytes are read
 * back here.  There are few: two for each put that does not begin and end at blocks.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/save/ck_save.h"
#include "libckpt/sums/ck_digest_fill.h"

struct joining {
	const struct sv_join *j;
	struct sv_range *range;	/* of all ranks, by state and first */
	uint64_t n;
	struct ck_hash128 *sum;	/* by slot */
	uint64_t *block;	/* of one state, that nobody hashed */
	uint64_t nblocks, block_cap;
	uint8_t bytes[CK_DIGEST_BLOCK];
};

static const struct ck_tensor *tensor_of(const struct sv_join *j, uint32_t state)
{
	return &j->spec->ix.tensor[j->spec->ix.state[state].tensor];
}

/* ---- what was put ---- */

static int by_state(const void *a, const void *b)
{
	const struct sv_range *x = a, *y = b;

	if (x->state != y->state)
		return x->state < y->state ? -1 : 1;
	if (x->first != y->first)
		return x->first < y->first ? -1 : 1;
	return (x->rank > y->rank) - (x->rank < y->rank);
}

static int gather(struct joining *g, struct ckpt_err *err)
{
	const struct sv_join *j = g->j;
	uint64_t n = 0;

	for (uint32_t i = 0; i < j->nparts; i++)
		n += j->part[i].nranges;
	g->range = ck_alloc_array(n, sizeof(*g->range));
	if (!g->range)
		return ck_fail_nomem(err, "ranges", n);
	for (uint32_t i = 0; i < j->nparts; i++)
		for (uint64_t k = 0; k < j->part[i].nranges; k++) {
			g->range[g->n] = j->part[i].range[k];
			g->range[g->n++].rank = i;
		}
	if (g->n)
		qsort(g->range, g->n, sizeof(*g->range), by_state);
	return 0;
}

static int fail_hole(const struct sv_join *j, uint32_t state, uint64_t from, uint64_t to,
		     struct ckpt_err *err)
{
	return ck_fail(err, CKPT_E_INCOMPLETE, tensor_of(j, state)->name, CKPT_NO_OFFSET,
		       "no rank put elements %" PRIu64 " to %" PRIu64 " of its %.60s (of %" PRIu64
		       "), so the step was not saved", from, to - 1, j->spec->ix.state[state].name,
		       tensor_of(j, state)->numel);
}

static int fail_twice(const struct sv_join *j, const struct sv_range *a, const struct sv_range *b,
		      struct ckpt_err *err)
{
	return ck_fail(err, CKPT_E_MISMATCH, tensor_of(j, a->state)->name, CKPT_NO_OFFSET,
		       "ranks %" PRIu32 " and %" PRIu32 " both put element %" PRIu64 " of its "
		       "%.60s, so the step was not saved", a->rank, b->rank, b->first,
		       j->spec->ix.state[a->state].name);
}

/* Of a part on storage of its own. */
static int fail_own(const struct sv_join *j, uint32_t state, uint64_t element, const char *what,
		    struct ckpt_err *err)
{
	return ck_fail(err, what[0] == 'w' ? CKPT_E_INCOMPLETE : CKPT_E_MISMATCH,
		       tensor_of(j, state)->name, CKPT_NO_OFFSET,
		       "this rank holds element %" PRIu64 " of its %.60s, which %s, so its part "
		       "of the step was not saved", element, j->spec->ix.state[state].name, what);
}

/* The ranges [from, to) are those of a state that the step keeps. */
static int check_state(const struct joining *g, uint32_t state, uint64_t from, uint64_t to,
		       struct ckpt_err *err)
{
	const uint64_t numel = tensor_of(g->j, state)->numel;
	uint64_t at = 0;

	for (uint64_t i = from; i < to; i++) {
		const struct sv_range *r = &g->range[i];

		if (r->first < at)
			return fail_twice(g->j, &g->range[i - 1], r, err);
		if (r->first > at)
			return fail_hole(g->j, state, at, r->first, err);
		at += r->count;
	}
	return at == numel ? 0 : fail_hole(g->j, state, at, numel, err);
}

/* What is to be put is what lies in this rank's pieces. */
static int check_pieces(const struct joining *g, uint32_t state, uint64_t from, uint64_t to,
			struct ckpt_err *err)
{
	const struct sv_refs *refs = g->j->refs;
	uint64_t i = from, end = 0;

	for (uint64_t k = from + 1; k < to; k++)
		if (g->range[k].first < g->range[k - 1].first + g->range[k - 1].count)
			return fail_own(g->j, state, g->range[k].first, "is put twice", err);
	for (uint64_t k = refs->of[state]; k < refs->of[state + 1]; k++) {
		const struct sv_ref *ref = &refs->ref[k];

		if (ref->first < end)
			return fail_own(g->j, state, ref->first, "is in two ranges", err);
		end = ref->first + ref->count;
		for (uint64_t at = ref->first; at < end; ) {
			while (i < to && g->range[i].first + g->range[i].count <= at)
				i++;
			if (i == to || g->range[i].first > at)
				return fail_own(g->j, state, at, "was not put", err);
			at = ck_min_u64(end, g->range[i].first + g->range[i].count);
		}
	}
	return 0;
}

/* ---- blocks that nobody hashed ---- */

static int add_block(struct joining *g, uint32_t state, uint64_t at, struct ckpt_err *err)
{
	const uint64_t grain = ck_sv_grain(g->j->refs, state);
	int rc;

	if (!(at % grain))
		return 0;
	rc = ck_grow(&g->block, &g->block_cap, g->nblocks + 1, sizeof(*g->block), err);
	if (!rc)
		g->block[g->nblocks++] = at / grain;
	return rc;
}

static int by_number(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* Where a put or a piece begins within a block. */
static int find_blocks(struct joining *g, uint32_t state, uint64_t from, uint64_t to,
		       struct ckpt_err *err)
{
	const struct sv_refs *refs = g->j->refs;
	uint64_t kept = 0;
	int rc = 0;

	g->nblocks = 0;
	for (uint64_t i = from; !rc && i < to; i++)
		rc = add_block(g, state, g->range[i].first, err);
	for (uint64_t i = refs->of[state]; !rc && i < refs->of[state + 1]; i++)
		rc = add_block(g, state, refs->ref[i].first, err);
	if (g->nblocks)
		qsort(g->block, g->nblocks, sizeof(*g->block), by_number);
	for (uint64_t i = 0; i < g->nblocks; i++)
		if (!kept || g->block[kept - 1] != g->block[i])
			g->block[kept++] = g->block[i];
	g->nblocks = kept;
	return rc;
}

/* Elements of a state out of the pieces; '*piece_out': the only one they lie in, or NULL. */
static int read_elements(const struct sv_join *j, uint32_t state, uint64_t first, uint64_t count,
			 uint8_t *to, const struct sv_ref **piece_out, struct ckpt_err *err)
{
	const uint64_t es = ck_sv_size(j->refs, state);
	const uint64_t end = first + count;
	uint64_t at = first;
	int rc = 0;

	*piece_out = NULL;
	for (uint64_t i = j->refs->of[state]; !rc && at < end && i < j->refs->of[state + 1]; i++) {
		const struct sv_ref *r = &j->refs->ref[i];
		const struct ck_seg *seg = &j->plan->seg[r->seg];
		const uint64_t upto = ck_min_u64(end, r->first + r->count);

		if (seg->slot == CK_NONE || r->first > at || upto <= at)
			continue;
		rc = ck_stage_read(j->stage, j->stage_file[r->file],
				   seg->off + (at - r->first) * es, to + (at - first) * es,
				   (upto - at) * es, err);
		if (at == first && upto == end)
			*piece_out = r;
		at = upto;
	}
	return rc;
}

/* All of them lie in one piece of this rank's. */
static bool is_held(const struct sv_join *j, uint32_t state, uint64_t first, uint64_t count)
{
	for (uint64_t i = j->refs->of[state]; i < j->refs->of[state + 1]; i++)
		if (j->refs->ref[i].first <= first &&
		    first + count <= j->refs->ref[i].first + j->refs->ref[i].count)
			return true;
	return false;
}

static int hash_block(struct joining *g, uint32_t state, uint64_t block, struct ckpt_err *err)
{
	const struct sv_join *j = g->j;
	const uint64_t es = ck_sv_size(j->refs, state);
	const uint64_t grain = ck_sv_grain(j->refs, state), first = block * grain;
	const uint64_t n = ck_min_u64(grain, tensor_of(j, state)->numel - first);
	const struct sv_ref *piece;
	struct ck_hash128 term;
	uint32_t slot;
	int rc;

	if (j->alone && !is_held(j, state, first, n))	/* its bytes are among the ends */
		return 0;
	rc = read_elements(j, state, first, n, g->bytes, &piece, err);
	if (rc)
		return rc;
	term = ck_digest_blocks(g->bytes, n * es, block);
	slot = j->plan->seg[(piece ? piece : &j->refs->ref[j->refs->of[state]])->seg].slot;
	if (!piece)
		slot = j->plan->slot[slot].whole - 1;
	g->sum[slot] = ck_hash128_add(g->sum[slot], term);
	return 0;
}

/* Is the state one whose pieces have sums? */
static bool has_sums(const struct sv_join *j, uint32_t state)
{
	const struct sv_refs *refs = j->refs;

	return refs->of[state] < refs->of[state + 1] &&
	       j->plan->seg[refs->ref[refs->of[state]].seg].slot != CK_NONE;
}

static int join_state(struct joining *g, uint32_t state, uint64_t from, uint64_t to,
		      struct ckpt_err *err)
{
	const struct sv_refs *refs = g->j->refs;
	int rc;

	if (refs->of[state] == refs->of[state + 1])	/* the layout does not keep it */
		return 0;
	rc = g->j->alone ? check_pieces(g, state, from, to, err) :
	     check_state(g, state, from, to, err);
	if (rc || !has_sums(g->j, state))
		return rc;
	rc = find_blocks(g, state, from, to, err);
	for (uint64_t i = 0; !rc && i < g->nblocks; i++)
		rc = hash_block(g, state, g->block[i], err);
	return rc;
}

/* ---- terms ---- */

static const struct sv_ref *piece_at(const struct sv_join *j, uint32_t state, uint64_t first)
{
	for (uint64_t i = j->refs->of[state]; i < j->refs->of[state + 1]; i++)
		if (j->refs->ref[i].first == first &&
		    j->plan->seg[j->refs->ref[i].seg].slot != CK_NONE)
			return &j->refs->ref[i];
	return NULL;
}

static int add_terms(struct joining *g, const struct sv_part *p, struct ckpt_err *err)
{
	for (uint64_t i = 0; i < p->nterms; i++) {
		const struct sv_term *t = &p->term[i];
		const struct sv_ref *r = t->state < g->j->spec->ix.nstates ?
					 piece_at(g->j, t->state, t->first) : NULL;
		uint32_t slot;

		if (!r)
			return ck_fail(err, CKPT_E_CORRUPT, g->j->spec->tag, CKPT_NO_OFFSET,
				       "rank %" PRIu32 " has a checksum of a piece that the "
				       "step does not have", p->rank);
		slot = g->j->plan->seg[r->seg].slot;
		g->sum[slot] = ck_hash128_add(g->sum[slot], t->sum);
	}
	return 0;
}

/* ---- the ends of pieces that cut blocks ---- */

static int hash_run(struct joining *g, struct ck_hasher *h, uint32_t state, uint64_t from,
		    uint64_t to, struct ckpt_err *err)
{
	const uint64_t es = ck_sv_size(g->j->refs, state);
	const struct sv_ref *piece;
	int rc = to > from ? read_elements(g->j, state, from, to - from, g->bytes, &piece, err) : 0;

	if (!rc && to > from)
		ck_hasher_add(h, g->bytes, (to - from) * es);
	return rc;
}

static int fill_ends(struct joining *g, struct ck_hasher *h, const struct sv_ref *r,
		     struct ckpt_err *err)
{
	const struct sv_join *j = g->j;
	const struct ck_slot *slot = &j->plan->slot[j->plan->seg[r->seg].slot];
	const uint64_t grain = ck_sv_grain(j->refs, r->state), end = r->first + r->count;
	const uint64_t numel = tensor_of(j, r->state)->numel;
	const uint64_t head = ck_min_u64(end, (r->first + grain - 1) / grain * grain);
	const uint64_t tail = end == numel ? end : ck_max_u64(head, end - end % grain);
	char text[33];
	int rc;

	ck_hasher_reset(h);
	rc = hash_run(g, h, r->state, r->first, head, err);
	if (!rc)
		rc = hash_run(g, h, r->state, tail, end, err);
	ck_hash128_print(ck_hasher_sum(h), text);
	return rc ? rc : ck_stage_write(j->stage, j->stage_file[slot->file], slot->ends, text, 32,
					err);
}

static int fill_all_ends(struct joining *g, struct ckpt_err *err)
{
	const struct sv_join *j = g->j;
	struct ck_hasher *h = ck_hasher_new();
	int rc = h ? 0 : ck_fail_nomem(err, "a hash", 0);

	for (uint64_t i = 0; !rc && i < j->refs->n; i++) {
		const uint32_t slot = j->plan->seg[j->refs->ref[i].seg].slot;

		if (slot != CK_NONE && j->plan->slot[slot].whole &&
		    j->plan->slot[slot].ends != UINT64_MAX)
			rc = fill_ends(g, h, &j->refs->ref[i], err);
	}
	ck_hasher_free(h);
	return rc;
}

/* ---- CRCs ---- */

static int gather_crcs(const struct sv_join *j, struct ck_crc_piece **out, uint64_t *n_out,
		       struct ckpt_err *err)
{
	struct ck_crc_piece *all;
	uint64_t n = 0, at = 0;

	for (uint32_t i = 0; i < j->nparts; i++)
		n += j->part[i].ncrcs;
	all = ck_alloc_array(n, sizeof(*all));
	if (!all)
		return ck_fail_nomem(err, "checksums", n);
	for (uint32_t i = 0; i < j->nparts; i++) {
		if (j->part[i].ncrcs)
			memcpy(all + at, j->part[i].crc, j->part[i].ncrcs * sizeof(*all));
		at += j->part[i].ncrcs;
	}
	if (n)
		qsort(all, n, sizeof(*all), ck_crc_order);
	*out = all;
	*n_out = n;
	return 0;
}

static int fill_crcs(const struct sv_join *j, struct ckpt_err *err)
{
	struct ck_crc_piece *all = NULL;
	uint64_t n = 0, at = 0;
	int rc = gather_crcs(j, &all, &n, err);

	for (uint32_t i = 0; !rc && i < j->plan->ncrcs; i++) {
		const struct ck_plan_crc *c = &j->plan->crc[i];
		const uint64_t first = at;
		uint32_t crc = 0;
		uint8_t p[4];

		if (j->alone && !ck_sv_is_mine(j->alone, c->file))
			continue;	/* rank 0 writes it */
		while (at < n && all[at].slot == i)
			at++;
		rc = ck_crc_join(all + first, at - first, c->bytes, &crc, err);
		ck_put_le32(p, crc);
		for (uint32_t k = 0; !rc && k < c->nfills; k++)
			rc = ck_stage_write(j->stage, j->stage_file[c->file], c->fill[k], p,
					    sizeof(p), err);
	}
	ck_free(all);
	return rc;
}

/* ---- small files beside the weights, which are read back ---- */

static int sum_bytes(struct joining *g, uint32_t file, const struct ck_seg *seg,
		     struct ckpt_err *err)
{
	int rc = 0;

	for (uint64_t at = 0, n; !rc && at < seg->bytes; at += n) {
		n = ck_min_u64(seg->bytes - at, sizeof(g->bytes));
		rc = ck_stage_read(g->j->stage, g->j->stage_file[file], seg->off + at, g->bytes,
				   n, err);
		if (!rc)
			g->sum[seg->slot] = ck_hash128_add(g->sum[seg->slot],
				ck_digest_blocks(g->bytes, n, at / CK_DIGEST_BLOCK));
	}
	return rc;
}

static int sum_beside(struct joining *g, struct ckpt_err *err)
{
	const struct ck_plan *plan = g->j->plan;
	int rc = 0;

	for (uint32_t f = 0; f < plan->nfiles; f++)
		for (uint64_t i = 0; !rc && i < plan->file[f].nsegs; i++) {
			const struct ck_seg *seg = &plan->seg[plan->file[f].seg + i];

			if (seg->slot != CK_NONE &&
			    (seg->kind == CK_SEG_LITERAL || seg->kind == CK_SEG_FILE))
				rc = sum_bytes(g, f, seg, err);
		}
	return rc;
}

/* ---- the whole ---- */

static int join_states(struct joining *g, struct ckpt_err *err)
{
	uint64_t at = 0;
	int rc = 0;

	for (uint32_t s = 0; !rc && s < g->j->spec->ix.nstates; s++) {
		const uint64_t from = at;

		while (at < g->n && g->range[at].state == s)
			at++;
		rc = join_state(g, s, from, at, err);
	}
	return rc;
}

int ck_sv_join(const struct sv_join *j, struct ckpt_err *err)
{
	struct joining *g = ck_zalloc(sizeof(*g));
	int rc;

	if (!g)
		return ck_fail_nomem(err, "sums", sizeof(*g));
	g->j = j;
	g->sum = ck_zalloc((j->plan->nslots + 1) * sizeof(*g->sum));
	rc = g->sum ? gather(g, err) : ck_fail_nomem(err, "sums", j->plan->nslots);
	if (!rc)
		rc = join_states(g, err);
	for (uint32_t i = 0; !rc && i < j->nparts; i++)
		rc = add_terms(g, &j->part[i], err);
	if (!rc)
		rc = fill_all_ends(g, err);
	if (!rc)
		rc = fill_crcs(j, err);
	if (!rc)
		rc = sum_beside(g, err);
	if (!rc) {
		ck_digest_fill_close(j->plan, g->sum);
		rc = ck_digest_fill(j->plan, g->sum, j->stage, j->stage_file, err);
	}
	ck_free(g->range);
	ck_free(g->block);
	ck_free(g->sum);
	ck_free(g);
	return rc;
}
