/*
 * nat_plan.c -- the files of pieces: which rank holds which elements, and where.
 *
 * Blocks of CK_NAT_GRAIN elements of all tensors of a kind stand in one row, which is cut into as
 * many equal runs as there are ranks; unless the caller says who holds what (want->cut).  Frozen
 * parameters have files of their own without the id of the saving: those of two steps are the same
 * bytes, so that one can be a link to the other.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/native/ck_nat.h"
#include "formats/safetensors/ck_st.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/tensor/ck_dtype.h"

#define DATA_ALIGN 4096

/* A state's elements that lie in the file being made. */
struct cell {
	uint64_t first, count;
	uint32_t tensor;	/* in want->tensor */
	uint32_t state;
	uint64_t off;		/* in the data of the file */
};

/* The tensors of one kind. */
struct row {
	uint64_t begin, end;	/* in want->tensor */
	bool frozen;		/* those of them that are, or the others */
	uint64_t blocks;
};

/* The rows that a file of each rank has runs of. */
struct kind {
	const char *stem;
	struct row row[2];
	bool same;		/* for every step that holds the same */
};

static const struct ck_tensor *tensor_of(const struct nat_out *o, uint32_t tensor)
{
	return &o->want->ix->tensor[o->want->tensor[tensor].tensor];
}

static uint64_t blocks_of(const struct ck_tensor *t)
{
	return t->numel / CK_NAT_GRAIN + (t->numel % CK_NAT_GRAIN != 0);
}

static const struct ck_nat_state *state_of(const struct nat_out *o, const struct cell *c)
{
	return &o->want->tensor[c->tensor].state[c->state];
}

static bool is_stored(const struct ck_nat_state *s)
{
	return !(s->flags & CKPT_STATE_DERIVED);
}

/* Elements of less than a byte are not cut: the state goes where its first block does. */
static bool take_elements(const struct ck_tensor *t, const struct ck_nat_state *s, uint64_t b0,
			  uint64_t b1, struct cell *c)
{
	if (ckpt_dtype_bits((enum ckpt_dtype)s->dtype) < 8 && b0)
		return false;
	c->first = b0 * CK_NAT_GRAIN;
	c->count = ck_min_u64(b1 * CK_NAT_GRAIN, t->numel) - c->first;
	if (ckpt_dtype_bits((enum ckpt_dtype)s->dtype) < 8)
		c->count = t->numel;
	return true;
}

static bool is_of(const struct nat_out *o, const struct row *row, uint64_t i)
{
	const bool frozen = i >= o->want->ntrained &&
			    tensor_of(o, (uint32_t)i)->role == CKPT_ROLE_FROZEN;

	return frozen == row->frozen;
}

/* The same of what 'rank' is to hold by want->cut. */
static void take_cut(const struct nat_out *o, const struct row *row, uint32_t rank,
		     struct cell *cell, uint64_t *n)
{
	for (uint64_t k = 0; k < o->want->ncuts; k++) {
		const struct ck_cut *cut = &o->want->cut[k];
		const uint32_t i = o->place[cut->tensor];

		if (cut->rank != rank || i < row->begin || i >= row->end || !cut->count ||
		    !is_of(o, row, i))
			continue;
		for (uint32_t s = 0; s < o->want->tensor[i].nstates; s++) {
			if (!is_stored(&o->want->tensor[i].state[s]))
				continue;
			if (cell)
				cell[*n] = (struct cell){
					.first = cut->first, .count = cut->count, .tensor = i,
					.state = s,
				};
			++*n;
		}
	}
}

/* Cells of the rank's run of the row, in its order; '*n' more of them (may be counted only). */
static void take_run(const struct nat_out *o, const struct row *row, uint32_t rank,
		       struct cell *cell, uint64_t *n)
{
	const uint64_t from = row->blocks * rank / o->want->world,
		       to = row->blocks * (rank + 1ull) / o->want->world;
	uint64_t at = 0;

	for (uint64_t i = row->begin; i < row->end && at < to; i++) {
		const struct ck_tensor *t = tensor_of(o, (uint32_t)i);
		const uint64_t nb = is_of(o, row, i) ? blocks_of(t) : 0,
			       b0 = ck_max_u64(from, at), b1 = ck_min_u64(to, at + nb);

		for (uint32_t s = 0; b0 < b1 && s < o->want->tensor[i].nstates; s++) {
			struct cell c = { .tensor = (uint32_t)i, .state = s };

			if (!is_stored(&o->want->tensor[i].state[s]) ||
			    !take_elements(t, &o->want->tensor[i].state[s], b0 - at, b1 - at, &c))
				continue;
			if (cell)
				cell[*n] = c;
			++*n;
		}
		at += nb;
	}
}

static void take_cells(const struct nat_out *o, const struct row *row, uint32_t rank,
		       struct cell *cell, uint64_t *n)
{
	if (o->want->cut)
		take_cut(o, row, rank, cell, n);
	else
		take_run(o, row, rank, cell, n);
}

/* Widest type first, so that each begins at a multiple of its size. */
static void sort_cells(const struct nat_out *o, struct cell *cell, struct cell *scratch, uint64_t n)
{
	uint64_t k = 0;

	for (uint32_t bits = 128; bits; bits--)
		for (uint64_t i = 0; i < n; i++)
			if (ckpt_dtype_bits((enum ckpt_dtype)state_of(o, &cell[i])->dtype) == bits)
				scratch[k++] = cell[i];
	memcpy(cell, scratch, n * sizeof(*cell));
}

static int add_name(const struct nat_out *o, struct ck_st_writer *w, struct cell *c,
		    struct ckpt_err *err)
{
	const struct ck_tensor *t = tensor_of(o, c->tensor);
	const struct ck_nat_state *s = state_of(o, c);
	const bool whole = c->count == t->numel;
	char *name = whole ? ck_asprintf("%s/%s", s->name, t->name) :
		     ck_asprintf("%s/%s@%" PRIu64, s->name, t->name, c->first);
	int rc = name ? ck_st_writer_tensor(w, name, (enum ckpt_dtype)s->dtype,
					    whole ? t->shape : &c->count, whole ? t->ndim : 1,
					    &c->off, err) :
		 ck_fail_nomem(err, "a name", strlen(t->name));

	ck_free(name);
	return rc;
}

static int make_header(const struct nat_out *o, const struct kind *kind, uint32_t rank,
		       struct cell *cell, uint64_t n, char **header_out, uint64_t *len_out,
		       struct ckpt_err *err)
{
	struct ck_st_writer *w;
	char id[33], number[16];
	int rc = ck_st_writer_new(&w, err);

	if (rc)
		return rc;
	ck_hash128_print(o->want->id, id);
	snprintf(number, sizeof(number), "%" PRIu32, rank);
	rc = ck_st_writer_meta(w, "format", "pt", err);
	if (!rc)
		rc = ck_st_writer_meta(w, "zckpt.native", "1", err);
	if (!rc && !kind->same)
		rc = ck_st_writer_meta(w, "zckpt.id", id, err);
	if (!rc)
		rc = ck_st_writer_meta(w, "zckpt.rank", number, err);
	for (uint64_t i = 0; !rc && i < n; i++)
		rc = add_name(o, w, &cell[i], err);
	if (!rc)
		rc = ck_st_writer_finish(w, DATA_ALIGN, header_out, len_out, NULL, NULL, err);
	ck_st_writer_free(w);
	return rc;
}

/* ---- digests ---- */

static int whole_slot(struct nat_out *o, const struct cell *c, struct ckpt_err *err)
{
	const struct ck_tensor *t = tensor_of(o, c->tensor);
	const struct ck_nat_state *s = state_of(o, c);
	const struct ck_slot slot = {
		.name = t->name, .state = s->name, .shape = t->shape, .ndim = t->ndim,
		.dtype = s->dtype, .fill = UINT64_MAX, .ends = UINT64_MAX,
	};

	return ck_plan_slot(o->plan, &slot, &o->slot[c->tensor][c->state], err);
}

static int piece_slot(struct nat_out *o, const struct cell *c, uint32_t *slot_out,
		      struct ckpt_err *err)
{
	struct ck_slot slot = { .name = "", .state = "", .fill = UINT64_MAX,
				.ends = UINT64_MAX };
	int rc = o->slot[c->tensor][c->state] == CK_NONE ? whole_slot(o, c, err) : 0;

	if (rc)
		return rc;
	slot.whole = o->slot[c->tensor][c->state] + 1;
	return ck_plan_slot(o->plan, &slot, slot_out, err);
}

/* ---- a file ---- */

static int add_piece(struct nat_out *o, const struct cell *c, uint64_t data, struct ckpt_err *err)
{
	const struct ck_nat_state *s = state_of(o, c);
	struct nat_piece p = {
		.off = data + c->off, .first = c->first, .count = c->count, .tensor = c->tensor,
		.state = c->state, .file = (uint32_t)(o->plan->nfiles - 1),
	};
	int rc = ck_grow(&o->piece, &o->piece_cap, o->npieces + 1, sizeof(p), err);

	if (!rc)
		rc = piece_slot(o, c, &p.slot, err);
	if (rc)
		return rc;
	o->piece[o->npieces++] = p;
	if (s->state == CK_NONE)
		return ck_plan_zero_state(o->plan, (enum ckpt_dtype)s->dtype, c->first, c->count,
					  p.slot, err);
	return ck_plan_state(o->plan, o->want->ix, s->state, (enum ckpt_dtype)s->dtype, c->first,
			     c->count, p.slot, err);
}

static int add_file(struct nat_out *o, const struct kind *kind, uint32_t rank, struct cell *cell,
		    uint64_t n, struct ckpt_err *err)
{
	char *header = NULL;
	uint64_t len = 0;
	char *name = ck_asprintf("%s/%s-%05" PRIu32 ".safetensors", o->want->tag, kind->stem, rank);
	int rc = name ? make_header(o, kind, rank, cell, n, &header, &len, err) :
		 ck_fail_nomem(err, "a file name", 0);

	if (!rc)
		rc = ck_plan_file(o->plan, name, err);
	if (!rc)
		rc = ck_plan_literal(o->plan, header, len, err);
	for (uint64_t i = 0; !rc && i < n; i++)
		rc = add_piece(o, &cell[i], len, err);
	if (!rc) {
		o->head[o->plan->nfiles - 1] = ck_hash128(header, len);
		o->head_len[o->plan->nfiles - 1] = len;
		o->rank[o->plan->nfiles - 1] = rank;
		o->plan->file[o->plan->nfiles - 1].ntensors = n;
	}
	ck_free(header);
	ck_free(name);
	return rc;
}

static int add_rank(struct nat_out *o, const struct kind *kind, uint32_t rank, struct ckpt_err *err)
{
	struct cell *cell;
	uint64_t n = 0, have = 0;
	int rc;

	for (size_t i = 0; i < CK_ARRAY_LEN(kind->row); i++)
		take_cells(o, &kind->row[i], rank, NULL, &n);
	if (!n && o->want->cut && kind->same)	/* this rank holds nothing frozen */
		return 0;
	cell = ck_alloc_array(2 * n, sizeof(*cell));
	if (!cell)
		return ck_fail_nomem(err, "pieces", n);
	for (size_t i = 0; i < CK_ARRAY_LEN(kind->row); i++)
		take_cells(o, &kind->row[i], rank, cell, &have);
	sort_cells(o, cell, cell + n, n);
	rc = add_file(o, kind, rank, cell, n, err);
	ck_free(cell);
	return rc;
}

static void count_blocks(const struct nat_out *o, struct row *row)
{
	for (uint64_t i = row->begin; i < row->end; i++)
		if (is_of(o, row, i))
			row->blocks += blocks_of(tensor_of(o, (uint32_t)i));
}

/* A kind may have nothing to write: frozen parameters are rare. */
static int add_kind(struct nat_out *o, struct kind kind, struct ckpt_err *err)
{
	int rc = 0;

	for (size_t i = 0; i < CK_ARRAY_LEN(kind.row); i++)
		count_blocks(o, &kind.row[i]);
	if (kind.same && !kind.row[0].blocks)
		return 0;
	for (uint32_t r = 0; !rc && r < o->want->world; r++)
		if (!o->want->cut || o->want->cut_rank < 0 || (uint32_t)o->want->cut_rank == r)
			rc = add_rank(o, &kind, r, err);
	return rc;
}

static int make_room(struct nat_out *o, struct ckpt_err *err)
{
	const uint64_t files = o->plan->nfiles + 2ull * o->want->world;
	struct ck_arena *a = &o->arena;

	o->slot = ck_arena_zalloc(a, (o->want->n + 1) * sizeof(*o->slot));
	o->head = ck_arena_zalloc(a, files * sizeof(*o->head));
	o->head_len = ck_arena_zalloc(a, files * sizeof(*o->head_len));
	o->rank = ck_arena_zalloc(a, files * sizeof(*o->rank));
	o->place = ck_arena_zalloc(a, (o->want->ix->ntensors + 1) * sizeof(*o->place));
	o->along = ck_arena_zalloc(a, (o->want->nalong + 1) * sizeof(*o->along));
	if (!o->slot || !o->head || !o->head_len || !o->rank || !o->place || !o->along)
		return ck_fail_nomem(err, "a manifest", o->want->n);
	for (uint64_t i = 0; i < o->want->n; i++)
		o->place[o->want->tensor[i].tensor] = (uint32_t)i;
	for (uint64_t i = 0; i < o->want->n; i++) {
		const uint32_t n = o->want->tensor[i].nstates;

		o->slot[i] = ck_arena_alloc(a, (n + 1ull) * sizeof(**o->slot));
		if (!o->slot[i])
			return ck_fail_nomem(err, "pieces", n);
		for (uint32_t s = 0; s < n; s++)
			o->slot[i][s] = CK_NONE;
	}
	return 0;
}

int ck_nat_plan(const struct ck_nat_want *want, struct ck_plan *plan, struct ckpt_err *err)
{
	struct nat_out o = { .want = want, .plan = plan };
	const struct kind changing = {
		.stem = "rank",
		.row = { { .end = want->ntrained }, { .begin = want->ntrained, .end = want->n } },
	};
	const struct kind frozen = {
		.stem = "frozen", .same = true,
		.row = { { .begin = want->ntrained, .end = want->n, .frozen = true } },
	};
	int rc = make_room(&o, err);

	if (!rc)
		rc = add_kind(&o, changing, err);
	if (!rc)
		rc = add_kind(&o, frozen, err);
	if (!rc && (want->alone || !(want->cut && want->cut_rank >= 0)))
		rc = ck_nat_text(&o, err);
	ck_free(o.piece);
	ck_arena_release(&o.arena);
	return rc;
}
