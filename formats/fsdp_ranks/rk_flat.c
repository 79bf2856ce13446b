/*
 * rk_flat.c -- states that are pieces of FSDP1's flat parameters.
 *
 * use_orig_params=True	an entry of the optimizer is a parameter.  A rank has of it what its chunk
 *			of the unit has; the pieces in the order of the ranks are the parameter.
 *			So the lengths must add up to the parameter's, and if that fits in more
 *			than one way, each length must be what a guess at the units gives.
 * False		an entry is a unit, and every rank has a chunk of it, padded with zeros
 *			at the end.  Where a parameter is in it only a guess at the units says.
 *
 * What fits in two ways that differ is left out.
 */
#include <inttypes.h>
#include <string.h>

#include "formats/fsdp_ranks/rk.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"

struct flat {
	struct rk *r;
	const uint64_t *first;	/* of each group */
	uint32_t *item;		/* tensors that may be parameters */
	uint64_t nitems;
	uint64_t *piece;	/* [nids][parts]: elements */
	uint32_t *kind, *entry;	/* of a search: [ntensors], [nids] */
	struct rk_place *place;	/* [ntensors] */
	/* The result of one guess: for each item, the entry that has it, and where. */
	uint32_t *of;		/* [ntensors] */
	uint64_t *start;	/* [ntensors] */
	uint32_t *scratch;	/* [nids] */
	/* The one that all guesses agree on. */
	uint32_t *best_of;
	uint64_t *best_start;
	uint32_t fitting;
	bool several, too_many;
	struct ck_map kinds;
	uint32_t nkinds;
};

/* ---- pieces ---- */

/* The first state of a parameter on a rank, or NULL. */
static const struct ck_tensor_ref *piece_of(const struct rk_id *id, uint32_t rank)
{
	struct ck_val *const *item;
	uint64_t n;

	if (!ck_val_pairs(id->of_rank[rank], &item, &n))
		return NULL;
	for (uint64_t i = 0; i < n; i++) {
		const char *name = ck_val_str(item[2 * i]);
		const struct ck_tensor_ref *t = ck_val_tensor(item[2 * i + 1]);

		if (name && t && t->ndim && strcmp(name, "step") != 0)
			return t;
	}
	return NULL;
}

/* Ranks that have the same part must have pieces of one length. */
static bool read_pieces(struct flat *f)
{
	const struct rk *r = f->r;

	for (uint32_t k = 0; k < r->world; k++)
		if (r->part[k] >= r->parts)	/* ranks do not agree how many there are */
			return false;
	for (uint64_t i = 0; i < r->nids; i++)
		for (uint32_t k = 0; k < r->world; k++) {
			const struct ck_tensor_ref *t = piece_of(&r->id[i], k);
			uint64_t *piece = &f->piece[i * r->parts + r->part[k]];

			if (t && *piece && *piece != t->numel)
				return false;
			if (t)
				*piece = t->numel;
		}
	return true;
}

/* Every rank has as much of each parameter: chunks of units. */
static bool are_chunks(const struct flat *f)
{
	const uint32_t parts = f->r->parts;

	for (uint64_t i = 0; i < f->r->nids; i++)
		for (uint32_t k = 1; k < parts; k++)
			if (f->piece[i * parts + k] != f->piece[i * parts])
				return false;
	return true;
}

/* ---- kinds ---- */

static int kind_of(struct flat *f, const uint64_t *numbers, uint64_t n, uint32_t *out,
		   struct ckpt_err *err)
{
	const size_t bytes = n * sizeof(*numbers);
	char *key = ck_arena_alloc(&f->r->arena, bytes);
	uint64_t at = f->nkinds;
	int rc;

	if (!key)
		return ck_fail_nomem(err, "lengths", bytes);
	memcpy(key, numbers, bytes);
	rc = ck_map_add(&f->kinds, key, bytes, f->nkinds, &at, err);
	if (rc < 0)
		return rc;
	*out = rc ? (uint32_t)at : f->nkinds++;
	return 0;
}

static int search(struct flat *f, uint64_t nitems, enum ck_step_verdict *out, struct ckpt_err *err)
{
	const struct ck_step_match m = {
		.item = f->kind, .nitems = nitems, .entry = f->entry, .nentries = f->r->nids,
		.first = f->first, .ngroups = f->r->ngroups,
	};
	const int rc = ck_step_match_run(&m, f->scratch, out, err);

	f->several |= *out == CK_MATCH_SEVERAL;
	f->too_many |= *out == CK_MATCH_TOO_MANY;
	return rc;
}

/* The result of a guess that fits: the same as those before, or all is uncertain. */
static void agree(struct flat *f)
{
	for (uint64_t i = 0; f->fitting && i < f->nitems; i++)
		if (f->of[i] != f->best_of[i] ||
		    (f->of[i] != CK_NONE && f->start[i] != f->best_start[i]))
			f->several = true;
	memcpy(f->best_of, f->of, f->nitems * sizeof(*f->of));
	memcpy(f->best_start, f->start, f->nitems * sizeof(*f->start));
	f->fitting++;
}

/* ---- an entry is a parameter ---- */

static void take_params(struct flat *f)
{
	memset(f->of, 0xff, f->nitems * sizeof(*f->of));
	memset(f->start, 0, f->nitems * sizeof(*f->start));
	for (uint64_t i = 0; i < f->r->nids; i++)
		if (f->scratch[i] != CK_NONE && f->r->id[i].has_state)
			f->of[f->scratch[i]] = (uint32_t)i;
	agree(f);
}

static int try_sums(struct flat *f, enum ck_step_verdict *verdict, struct ckpt_err *err)
{
	const uint32_t parts = f->r->parts;
	int rc = 0;

	for (uint64_t i = 0; !rc && i < f->nitems; i++)
		rc = kind_of(f, &f->r->tensor[f->item[i]].weight.numel, 1, &f->kind[i], err);
	for (uint64_t i = 0; !rc && i < f->r->nids; i++) {
		uint64_t sum = 0;

		for (uint32_t k = 0; k < parts; k++)
			sum += f->piece[i * parts + k];
		f->entry[i] = CK_MATCH_ANY;
		if (sum)
			rc = kind_of(f, &sum, 1, &f->entry[i], err);
	}
	if (!rc)
		rc = search(f, f->nitems, verdict, err);
	if (!rc && *verdict == CK_MATCH_UNIQUE)
		take_params(f);
	return rc;
}

/* Elements [start, start + n) that are in part k of chunks. */
static uint64_t within(uint64_t start, uint64_t n, uint64_t chunk, uint64_t k, uint64_t *from_out)
{
	const uint64_t lo = k * chunk > start ? k * chunk : start;
	const uint64_t hi = ck_min_u64((k + 1) * chunk, start + n);

	*from_out = lo;
	return hi > lo ? hi - lo : 0;
}

static int try_pieces(struct flat *f, uint32_t guess, struct ckpt_err *err)
{
	const uint32_t parts = f->r->parts;
	uint64_t *length = ck_arena_zalloc(&f->r->arena, parts * sizeof(*length)), from;
	struct rk_unit *unit;
	enum ck_step_verdict verdict = CK_MATCH_NONE;
	uint32_t nunits;
	int rc = ck_rk_units_guess(f->r, guess, true, f->item, f->nitems, f->place, &unit, &nunits,
				err);

	if (!length)
		return ck_fail_nomem(err, "lengths", parts);
	for (uint64_t i = 0; !rc && i < f->nitems; i++) {
		for (uint32_t k = 0; k < parts; k++)
			length[k] = within(f->place[i].start, f->r->tensor[f->item[i]].weight.numel,
					   unit[f->place[i].unit].chunk, k, &from);
		rc = kind_of(f, length, parts, &f->kind[i], err);
	}
	for (uint64_t i = 0; !rc && i < f->r->nids; i++) {
		f->entry[i] = CK_MATCH_ANY;
		if (f->r->id[i].has_state)
			rc = kind_of(f, f->piece + i * parts, parts, &f->entry[i], err);
	}
	if (!rc)
		rc = search(f, f->nitems, &verdict, err);
	if (!rc && verdict == CK_MATCH_UNIQUE)
		take_params(f);
	return rc;
}

static int find_params(struct flat *f, struct ckpt_err *err)
{
	enum ck_step_verdict verdict = CK_MATCH_NONE;
	int rc = try_sums(f, &verdict, err);

	if (rc || verdict != CK_MATCH_SEVERAL)
		return rc;
	f->several = false;
	for (uint32_t guess = 0; !rc && guess < RK_UNIT_GUESSES; guess++)
		rc = try_pieces(f, guess, err);
	f->several |= !f->fitting;	/* no guess has decided */
	return rc;
}

/* ---- an entry is a unit ---- */

static int try_units(struct flat *f, uint32_t guess, struct ckpt_err *err)
{
	struct rk_unit *unit;
	enum ck_step_verdict verdict = CK_MATCH_NONE;
	uint32_t nunits = 0, *entry_of;
	int rc = ck_rk_units_guess(f->r, guess, false, f->item, f->nitems, f->place, &unit, &nunits,
				err);

	if (rc || nunits < f->r->nids)
		return rc;
	entry_of = ck_arena_alloc(&f->r->arena, nunits * sizeof(*entry_of));
	if (!entry_of)
		return ck_fail_nomem(err, "units", nunits);
	for (uint32_t i = 0; !rc && i < nunits; i++)
		rc = kind_of(f, &unit[i].chunk, 1, &f->kind[i], err);
	for (uint64_t i = 0; !rc && i < f->r->nids; i++) {
		f->entry[i] = CK_MATCH_ANY;
		if (f->r->id[i].has_state)
			rc = kind_of(f, &f->piece[i * f->r->parts], 1, &f->entry[i], err);
	}
	if (!rc)
		rc = search(f, nunits, &verdict, err);
	if (rc || verdict != CK_MATCH_UNIQUE)
		return rc;
	memset(entry_of, 0xff, nunits * sizeof(*entry_of));
	for (uint64_t i = 0; i < f->r->nids; i++)
		if (f->scratch[i] != CK_NONE && f->r->id[i].has_state)
			entry_of[f->scratch[i]] = (uint32_t)i;
	for (uint64_t i = 0; i < f->nitems; i++) {
		f->of[i] = entry_of[f->place[i].unit];
		f->start[i] = f->place[i].start;
	}
	agree(f);
	return 0;
}

static int find_units(struct flat *f, struct ckpt_err *err)
{
	int rc = 0;

	for (uint32_t guess = 0; !rc && guess < RK_UNIT_GUESSES; guess++)
		rc = try_units(f, guess, err);
	return rc;
}

/* ---- the states ---- */

static int add_run(struct rk *r, struct rk_tensor *t, const char *name, const struct rk_file *file,
		   const struct ck_tensor_ref *ref, uint64_t begin, uint64_t first, uint64_t n,
		   struct ckpt_err *err)
{
	uint64_t *at = ck_arena_alloc(&r->arena, 3 * sizeof(*at)), before = 0;
	struct rk_state *s = NULL;
	int rc = at ? ck_rk_optim_state(r, t, name, &s, err) : ck_fail_nomem(err, "a run", 0);

	if (!rc) {
		at[0] = first;
		at[1] = n;
		at[2] = t->weight.numel;
		s->flat = true;
		before = s->nblocks;
		rc = ck_rk_state_add(r, s, t->name, file, &(struct rk_value){
			.is_tensor = true, .dtype = ref->dtype, .ndim = 1, .shape = &at[2],
			.offset = &at[0], .size = &at[1], .numel = n, .t = ref,
		}, err);
	}
	if (!rc && s->nblocks > before)
		s->block[before].begin = begin;
	return rc;
}

/* All states that a rank has of an entry, cut to a parameter. */
static int add_rank(struct rk *r, struct rk_tensor *t, const struct rk_id *id, uint32_t rank,
		    uint64_t piece, uint64_t begin, uint64_t first, uint64_t n,
		    struct ckpt_err *err)
{
	struct ck_val *const *item;
	uint64_t npairs = 0;
	int rc = 0;

	ck_val_pairs(id->of_rank[rank], &item, &npairs);
	for (uint64_t i = 0; !rc && i < npairs; i++) {
		const char *name = ck_val_str(item[2 * i]);
		const struct ck_tensor_ref *ref = ck_val_tensor(item[2 * i + 1]);

		if (!name || !ref || !ref->ndim || !strcmp(name, "step"))
			continue;
		if (ref->ndim == 1 && ref->numel == piece) {
			rc = add_run(r, t, name, r->optim[rank], ref, begin, first, n, err);
			continue;
		}
		ck_findings_add(r->f, CK_FINDING_LENGTH_WRONG, r->optim[rank]->path,
				"%s of %s has %" PRIu64 " elements here, other states %" PRIu64,
				name, t->name, ref->numel, piece);
	}
	return rc;
}

static int add_tensor(struct flat *f, uint64_t i, bool chunks, struct ckpt_err *err)
{
	struct rk *r = f->r;
	struct rk_tensor *t = &r->tensor[f->item[i]];
	const uint32_t entry = f->best_of[i];
	const uint64_t *piece = f->piece + (uint64_t)entry * r->parts;
	int rc = 0;

	t->group = (int32_t)r->id[entry].group;
	t->entry = chunks ? i : entry;	/* a unit is no parameter: the model's order */
	for (uint32_t k = 0; !rc && k < r->world; k++) {
		const uint32_t part = r->part[k];
		uint64_t first = 0, n = piece[part], from = 0;

		for (uint32_t p = 0; p < part; p++)
			first += piece[p];
		if (chunks) {
			n = within(f->best_start[i], t->weight.numel, piece[part], part, &from);
			first = from - f->best_start[i];
			from -= part * piece[part];
		}
		if (n)
			rc = add_rank(r, t, &r->id[entry], k, piece[part], from, first, n, err);
	}
	return rc;
}

static int allocate(struct flat *f, struct ckpt_err *err)
{
	struct rk *r = f->r;
	struct ck_arena *a = &r->arena;
	const uint64_t n = r->ntensors + 1, m = r->nids + 1;

	f->first = ck_rk_numbers_firsts(r);
	f->item = ck_arena_zalloc(a, n * sizeof(*f->item));
	f->piece = ck_arena_zalloc(a, m * r->parts * sizeof(*f->piece));
	f->kind = ck_arena_zalloc(a, n * sizeof(*f->kind));
	f->entry = ck_arena_zalloc(a, m * sizeof(*f->entry));
	f->place = ck_arena_zalloc(a, n * sizeof(*f->place));
	f->of = ck_arena_zalloc(a, n * sizeof(*f->of));
	f->start = ck_arena_zalloc(a, n * sizeof(*f->start));
	f->scratch = ck_arena_zalloc(a, m * sizeof(*f->scratch));
	f->best_of = ck_arena_zalloc(a, n * sizeof(*f->best_of));
	f->best_start = ck_arena_zalloc(a, n * sizeof(*f->best_start));
	return f->first && f->item && f->piece && f->kind && f->entry && f->place && f->of &&
	       f->start && f->scratch && f->best_of && f->best_start ? 0 :
	       ck_fail_nomem(err, "a search", n);
}

/* Tied names take no room in a flat parameter, and the optimizer has no entry for them. */
static void list_items(struct flat *f, const uint32_t *twin, bool chunks)
{
	uint64_t n = 0;

	if (!chunks) {
		f->nitems = ck_rk_numbers_items(f->r, twin, f->item);
		return;
	}
	for (uint32_t i = 0; i < f->r->ntensors; i++)
		if (f->r->tensor[i].sharded && twin[i] == CK_NONE)
			f->item[n++] = i;
	f->nitems = n;
}

int ck_rk_flat_states(struct rk *r, const uint32_t *twin, const char **why_out,
		      struct ckpt_err *err)
{
	struct flat f = { .r = r };
	bool chunks;
	int rc = allocate(&f, err);

	*why_out = "have several lengths for one part";
	if (rc || !read_pieces(&f))
		return rc;
	chunks = are_chunks(&f);
	if (chunks) {
		list_items(&f, twin, true);
		rc = find_units(&f, err);
	}
	if (!rc && (!chunks || (r->parts == 1 && !f.fitting && !f.several))) {
		chunks = false;
		list_items(&f, twin, false);
		rc = find_params(&f, err);
	}
	*why_out = f.several ? ck_step_match_why(CK_MATCH_SEVERAL) : f.fitting ? NULL :
		   ck_step_match_why(f.too_many ? CK_MATCH_TOO_MANY : CK_MATCH_NONE);
	for (uint64_t i = 0; !rc && !*why_out && i < f.nitems; i++)
		if (f.best_of[i] != CK_NONE)
			rc = add_tensor(&f, i, chunks, err);
	ck_map_release(&f.kinds);
	return rc;
}
