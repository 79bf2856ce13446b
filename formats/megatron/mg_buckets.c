/*
 * mg_buckets.c -- states in buckets of the optimizer, which have no names: found by content, where
 * the caller asks for it (docs/formats/megatron.md).
 */
#include <inttypes.h>
#include <string.h>

#include "formats/megatron/mg_buckets.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"

static const enum mg_which which[MG_IN_BUCKET] = { MG_MASTER, MG_EXP_AVG, MG_EXP_AVG_SQ };

/* Elements [at, at + n) of a row, as pieces of the state of a block. */
static int add_pieces(struct mg_find *s, const struct mg_spot *spot, enum mg_which state,
		      const struct mg_row *row, uint64_t at, uint64_t n, struct ckpt_err *err)
{
	struct mg_param *p = &s->mg->param[spot->param];
	const struct mg_piece *block = &p->state[MG_W].piece[spot->piece];
	const uint64_t es = ckpt_dtype_bits((enum ckpt_dtype)row->dtype) / 8;
	int rc = 0;

	for (uint64_t i = 0; !rc && i < row->n; i++) {
		const struct mgp_run *r = &row->run[i];
		const uint64_t lo = ck_max_u64(at, r->first);
		const uint64_t hi = ck_min_u64(at + n, r->first + r->count);
		const struct mg_piece piece = {
			.offset = block->offset, .size = block->size,
			.first = lo - at, .count = hi > lo ? hi - lo : 0,
			.extent = {
				.off = r->off + (lo - r->first) * es, .runs = 1,
				.count = hi > lo ? hi - lo : 0,
				.source = row->file[i]->source, .rank = row->file[i]->rank,
				.member = CK_NONE, .view = CK_NONE, .dtype = row->dtype,
			},
		};

		if (hi > lo)
			rc = ck_mg_piece_add(s->mg, p, state, &piece, err);
	}
	return rc;
}

/* Have two tiles of a block the same states? */
static int are_same(struct mg_find *s, const struct mgp_tile *a, const struct mgp_tile *b,
		    uint64_t n, bool *out, struct ckpt_err *err)
{
	struct mgp *p = &s->places;
	int rc = 0;

	*out = true;
	for (uint32_t k = 0; !rc && *out && k < MG_IN_BUCKET; k++) {
		const struct mg_row *x = &s->bucket[a->bucket].row[k];
		const struct mg_row *y = &s->bucket[b->bucket].row[k];
		const size_t es = ckpt_dtype_bits((enum ckpt_dtype)x->dtype) / 8;

		*out = x->dtype == y->dtype && !x->n == !y->n;
		if (!x->n || es > sizeof(uint64_t))
			continue;
		for (uint64_t at = 0; !rc && *out && at < n; at += MGP_BLOCK) {
			const uint64_t m = ck_min_u64(MGP_BLOCK, n - at);

			rc = ck_mgp_read(x->run, x->n, es, a->at + at, m, p->raw, err);
			if (!rc)
				rc = ck_mgp_read(y->run, y->n, es, b->at + at, m, p->cast, err);
			if (!rc)
				*out = !memcmp(p->raw, p->cast, m * es);
		}
	}
	return rc;
}

/* All tiles of a block agree, and it gets the states of the first. */
static int give_states(struct mg_find *s, uint32_t chunk, bool *done_out, struct ckpt_err *err)
{
	const struct mgp *p = &s->places;
	const struct mgp_chunk *c = &p->chunk[chunk];
	const struct mgp_tile *t = &p->tile[c->tile];
	bool same = true;
	int rc = 0;

	for (uint32_t o = t->next; !rc && same && o != MGP_NONE; o = p->tile[o].next) {
		struct ckpt_err inner = { 0 };

		rc = are_same(s, t, &p->tile[o], c->numel, &same, &inner);
		if (rc) {
			same = false;
			rc = ck_err_take_system(rc, &inner, err);
		}
	}
	for (uint32_t k = 0; !rc && same && k < MG_IN_BUCKET; k++) {
		const struct mg_row *row = &s->bucket[t->bucket].row[k];

		if (row->n && row->numel == s->bucket[t->bucket].row[0].numel)
			rc = add_pieces(s, &s->spot[chunk], which[k], row, t->at, c->numel, err);
	}
	*done_out = !rc && same;
	return rc;
}

/* Blocks of a parameter: how many have states, and of how many they are unknown. */
struct tally {
	uint64_t found, odd, equal;
};

static void report_param(struct mg_find *s, uint64_t param, const struct tally *t, bool all_known)
{
	struct mg_param *p = &s->mg->param[param];
	const uint64_t n = p->state[MG_W].n;

	if (t->found == n || (!t->found && !t->odd && !t->equal && all_known))
		return;
	if (!t->found)
		p->no_states = "it is unknown where they are in the optimizer's buckets";
	p->has_some_states = true;
	ck_findings_add(s->mg->fs.f, CK_FINDING_STATES_UNNAMED, p->key,
			"of %" PRIu64 " of %" PRIu64 " blocks it is unknown where their states "
			"are: %s", n - t->found, n,
			t->odd ? "copies of their states differ" :
			t->equal ? "other weights have the same elements" :
				   "no bucket that is known has them");
}

static int give_all(struct mg_find *s, bool all_known, struct ckpt_err *err)
{
	const struct mgp *p = &s->places;
	struct tally *t = ck_zalloc((s->mg->nparams + 1) * sizeof(*t));
	int rc = t ? 0 : ck_fail_nomem(err, "counts of blocks", s->mg->nparams);

	for (uint32_t i = 0; !rc && i < p->nchunks; i++) {
		const struct mgp_chunk *c = &p->chunk[i];
		struct tally *of = &t[s->spot[i].param];
		bool done = false;

		if (c->tile == MGP_NONE) {
			of->equal += c->class != MGP_NONE &&
				     (p->class[c->class].nchunks > 1 || p->class[c->class].is_odd);
			continue;
		}
		rc = give_states(s, i, &done, err);
		of->found += done;
		of->odd += !done;
	}
	for (uint64_t i = 0; !rc && i < s->mg->nparams; i++)
		report_param(s, i, &t[i], all_known);
	ck_free(t);
	return rc;
}

/* Buckets of which nothing is known. */
static bool report_buckets(const struct mg_find *s)
{
	bool all = true;

	for (uint32_t i = 0; i < s->places.nbuckets; i++) {
		const struct mgp_bucket *b = &s->places.bucket[i];

		if (!b->why)
			continue;
		all = false;
		ck_findings_add(s->mg->fs.f, CK_FINDING_STATES_UNNAMED, s->bucket[i].name,
				"the states in this bucket are left out: %s (element %" PRIu64
				" of %" PRIu64 ")", b->why, b->at, b->numel);
	}
	return all;
}

static int search(struct mg *mg, struct ckpt_err *err)
{
	struct mg_find s = { .mg = mg };
	int rc;

	s.arena.limit = mg->fs.in->limits.memory_bytes;
	s.places.arena.limit = s.arena.limit;
	rc = ck_mg_buckets_read(&s, err);
	if (!rc)
		rc = ck_mg_spots_make(&s, err);
	if (!rc)
		rc = ck_mgp_find(&s.places, err);
	if (!rc)
		rc = give_all(&s, report_buckets(&s), err);
	rc = ck_arena_why(&s.arena, rc, mg->fs.at.where, err);
	rc = ck_arena_why(&s.places.arena, rc, mg->fs.at.where, err);
	ck_free(s.places.chunk);
	ck_mgp_release(&s.places);
	ck_free(s.bucket);
	ck_free(s.spot);
	ck_map_release(&s.by_name);
	ck_map_release(&s.families);
	ck_arena_release(&s.arena);
	return rc;
}

int ck_mg_buckets_find(struct mg *mg, struct ckpt_err *err)
{
	uint64_t bytes, n = ck_mg_buckets_count(mg, &bytes);

	if (!n)
		return 0;
	if (mg->fs.in->find_states)
		return search(mg, err);
	for (uint64_t i = 0; i < mg->nparams; i++)
		mg->param[i].no_states = "they are in buckets without names";
	ck_findings_add(mg->fs.f, CK_FINDING_STATES_UNSEARCHED, mg->fs.at.where,
			"the optimizer's states are in %" PRIu64 " items without names and are "
			"left out; --find-states finds them by content (it reads all weights and "
			"%" PRIu64 " bytes of masters)", n, bytes);
	return 0;
}
