/*
 * ds_par_join.c -- the positions' tensors as those of the whole step.  Pieces of a tensor that
 * tensor ranks have become tiles of it; what every rank has is a tensor and further copies of it.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/ds_pt/ds_par.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/tensor/ck_block.h"
#include "libckpt/tensor/ck_dtype.h"
#include "libckpt/tensor/ck_extents.h"

#define ALL_COMPARED ((uint64_t)1 << 26)	/* elements of a mean that must be no mean */
#define MOST_COMPARED 4096u

struct join {
	struct ds_par *par;
	struct ck_index *ix;
	struct ck_tiles tiles;
	uint32_t *local;	/* the tensor's number on each tensor rank */
	uint32_t *state;
	const uint64_t **shape;
};

uint32_t ck_ds_par_rank(const struct ds_par *par, const struct ds_pos *pos, uint32_t dp)
{
	return (pos->pp * pos->ds->world + dp) * par->ntp + pos->tp;
}

/* An error says which files of the stage are of no use, and what they lack follows from it. */
static bool is_incomplete(const struct ds_par *par, uint32_t pp)
{
	for (uint32_t t = 0; t < par->ntp; t++)
		if (ck_ds_pos(par, pp, t)->incomplete)
			return true;
	return false;
}

/* ---- files ---- */

static uint32_t *new_numbers(uint64_t n)
{
	uint32_t *p = ck_alloc_array(n + 1, sizeof(*p));

	if (p)
		memset(p, 0xff, (n + 1) * sizeof(*p));
	return p;
}

static int move_sources(struct ds_par *par, struct ds_pos *pos, struct ckpt_err *err)
{
	struct ck_index *ix = par->whole->ix;
	const struct ck_hash128 sum = ck_hasher_sum(pos->ix.fingerprint);
	uint8_t bytes[16];
	int rc = 0;

	pos->source = new_numbers(pos->ix.nsources);
	pos->member = new_numbers(pos->ix.nmembers);
	pos->view = new_numbers(pos->ix.nviews);
	if (!pos->source || !pos->member || !pos->view)
		return ck_fail_nomem(err, "numbers", pos->ix.nsources);
	for (uint64_t i = 0; !rc && i < pos->ix.nsources; i++) {
		struct ck_source *s = &pos->ix.source[i];
		struct ck_src *src = s->src;
		const int32_t rank = s->rank < 0 ? -1 :
				     (int32_t)ck_ds_par_rank(par, pos, (uint32_t)s->rank);

		s->src = NULL;
		rc = ck_index_add_source(ix, s->path, src, rank, &pos->source[i], err);
	}
	ck_put_le64(bytes, sum.lo);
	ck_put_le64(bytes + 8, sum.hi);
	ck_hasher_add(ix->fingerprint, bytes, sizeof(bytes));
	return rc;
}

/* An extent of a position, as the whole index has it. */
static int translate(struct join *j, struct ds_pos *pos, struct ck_extent *e, struct ckpt_err *err)
{
	int rc = 0;

	if (e->member != CK_NONE && pos->member[e->member] == CK_NONE) {
		struct ck_member m = pos->ix.member[e->member];

		m.source = pos->source[m.source];
		rc = ck_index_add_member(j->ix, &m, &pos->member[e->member], err);
	}
	if (!rc && e->view != CK_NONE && pos->view[e->view] == CK_NONE) {
		const struct ck_view *v = &pos->ix.view[e->view];

		rc = ck_index_add_view(j->ix, v->shape, v->stride, v->ndim, &pos->view[e->view],
				       err);
	}
	if (rc)
		return rc;
	if (e->member != CK_NONE)
		e->member = pos->member[e->member];
	if (e->view != CK_NONE)
		e->view = pos->view[e->view];
	e->source = pos->source[e->source];
	e->rank = j->ix->source[e->source].rank;
	return 0;
}

static int move_pads(struct join *j, struct ds_pos *pos, struct ckpt_err *err)
{
	int rc = 0;

	for (uint64_t i = 0; !rc && i < pos->ix.npads; i++) {
		struct ck_pad pad = pos->ix.pad[i];

		pad.source = pos->source[pad.source];
		rc = ck_index_add_pad(j->ix, &pad, err);
	}
	return rc;
}

/* ---- tiles ---- */

/* Elements of extent 'e' that are in part 'part' of a rank's tensor, rows [lo, lo + width). */
static int add_part(struct join *j, const struct ds_tp_cut *cut, const struct ck_block *block,
		    uint64_t lo, const struct ck_extent *e, struct ckpt_err *err)
{
	const uint64_t n = e->count * e->runs;
	const uint64_t es = ckpt_dtype_bits((enum ckpt_dtype)e->dtype) / 8;
	struct ck_extent cutout = *e;
	uint64_t inner = 1, from, to;

	for (uint32_t d = 1; d < cut->ndim; d++)
		inner *= cut->shape[d];
	from = ck_max_u64(e->first, lo * inner);
	to = ck_min_u64(e->first + n, (lo + block->size[0]) * inner);
	if (from >= to)
		return 0;
	if ((from != e->first || to != e->first + n) && (e->runs > 1 || e->view != CK_NONE))
		return ck_fail(err, CKPT_E_LAYOUT, j->tiles.name, CKPT_NO_OFFSET,
			       "LAYOUT_UNSUPPORTED: it has parts, and a rank stored it as a "
			       "strided view");
	cutout.off += (from - e->first) * es;
	return ck_tiles_add(&j->tiles, block, from - lo * inner, to - from, &cutout, err);
}

static int add_extent(struct join *j, const struct ds_tp_cut *cut, uint32_t tp,
		      const uint64_t *local, const struct ck_extent *e, struct ckpt_err *err)
{
	uint64_t zero[64] = { 0 }, size[64], here = 0, there = 0;
	const struct ck_block block = { .offset = zero, .size = size };
	int rc = 0;

	if (!cut->nparts)
		return ck_tiles_add(&j->tiles, NULL, e->first, e->count * e->runs, e, err);
	memcpy(size, local, cut->ndim * sizeof(*size));
	for (uint32_t k = 0; !rc && k < cut->nparts; k++) {
		const uint64_t *w = cut->width + (uint64_t)k * cut->tp;

		zero[cut->axis] = there;
		for (uint32_t t = 0; t < tp; t++)
			zero[cut->axis] += w[t];
		size[cut->axis] = w[tp];
		if (cut->nparts > 1)
			rc = add_part(j, cut, &block, here, e, err);
		else
			rc = ck_tiles_add(&j->tiles, &block, e->first, e->count * e->runs, e, err);
		here += w[tp];
		for (uint32_t t = 0; t < cut->tp; t++)
			there += w[t];
	}
	return rc;
}

/* All of a state that one position has. */
static int add_local(struct join *j, const struct ds_tp_cut *cut, struct ds_pos *pos,
		     uint32_t tensor, uint32_t state, struct ckpt_err *err)
{
	const struct ck_state *s = &pos->ix.state[state];
	int rc = 0;

	for (uint64_t i = 0; !rc && i < s->nstored; i++) {	/* a position has no weaves */
		struct ck_extent e = *ck_extent_stored(&pos->ix, s, i);

		if (!e.runs)
			e.runs = 1;
		rc = translate(j, pos, &e, err);
		if (!rc)
			rc = add_extent(j, cut, pos->tp, pos->ix.tensor[tensor].shape, &e, err);
	}
	return rc;
}

static int put(struct join *j, uint32_t tensor, const char *name, enum ckpt_dtype dtype,
	       struct ckpt_err *err)
{
	const struct ck_tensor *t = &j->ix->tensor[tensor];
	uint64_t zero[64] = { 0 };
	const struct ck_block box = { .offset = zero, .size = t->shape };
	int rc;

	if (t->numel == j->tiles.numel)
		return ck_tiles_put(&j->tiles, j->ix, tensor, name, dtype, err);
	rc = ck_index_state_begin(j->ix, tensor, name, dtype, 0, err);	/* rows of padding */
	if (!rc)
		rc = ck_tiles_append(&j->tiles, &box, j->ix, err);
	if (rc) {
		ck_index_state_cancel(j->ix);
		return rc;
	}
	return ck_index_state_end(j->ix, NULL, err);
}

/* ---- states ---- */

static const struct ds_pos *odd_one(struct join *j, uint32_t pp, const char *name, bool *dtype_out)
{
	const struct ds_pos *first = ck_ds_pos(j->par, pp, 0);

	for (uint32_t t = 0; t < j->par->ntp; t++) {
		const struct ds_pos *pos = ck_ds_pos(j->par, pp, t);

		j->state[t] = ck_index_state_find(&pos->ix, j->local[t], name);
		*dtype_out = j->state[t] != CK_NONE;
		if (!*dtype_out || pos->ix.state[j->state[t]].dtype !=
		    first->ix.state[j->state[0]].dtype)
			return pos;
	}
	return NULL;
}

/*
 * Is the mean of the ranks' values the value of each, or what all ranks have the same on all?
 * 'doubt': the answer where it is not known.
 */
static int check_equal(struct join *j, uint32_t pp, uint64_t numel, uint64_t most, bool doubt,
		       bool *same_out, struct ckpt_err *err)
{
	const struct ds_par_state first = { ck_ds_pos(j->par, pp, 0), j->state[0], numel };
	int rc = 0;

	*same_out = true;
	for (uint32_t t = 1; !rc && *same_out && t < j->par->ntp; t++) {
		const struct ds_par_state one = { ck_ds_pos(j->par, pp, t), j->state[t], numel };
		bool known;

		rc = ck_ds_par_same(j->par, &first, &one, most, same_out, &known, err);
		*same_out = known ? *same_out : doubt;
	}
	return rc;
}

static int join_copy(struct join *j, uint32_t pp, const struct ds_tp_cut *cut, uint32_t tensor,
		     const char *name, struct ckpt_err *err)
{
	const struct ds_pos *first = ck_ds_pos(j->par, pp, 0);
	const enum ckpt_dtype dtype = (enum ckpt_dtype)first->ix.state[j->state[0]].dtype;
	int rc = 0;

	for (uint32_t t = 0; !rc && t < j->par->ntp; t++) {
		if (!t || !cut->nparts)
			rc = ck_tiles_begin(&j->tiles, j->ix->tensor[tensor].name, cut->shape,
					    cut->ndim, err);
		if (!rc)
			rc = add_local(j, cut, ck_ds_pos(j->par, pp, t), j->local[t], j->state[t],
				       err);
		if (!rc && (!cut->nparts || t + 1 == j->par->ntp))
			rc = put(j, tensor, name, dtype, err);
	}
	return rc;
}

static int join_state(struct join *j, uint32_t pp, const struct ds_tp_cut *cut, uint32_t tensor,
		      const char *name, struct ckpt_err *err)
{
	const struct ck_tensor *t = &j->ix->tensor[tensor];
	struct ck_findings *f = j->par->whole->f;
	bool same = true, has;
	const struct ds_pos *odd = odd_one(j, pp, name, &has);
	int rc = 0;

	if (odd && !has && is_incomplete(j->par, pp))
		return 0;
	if (odd) {
		ck_findings_add(f, CK_FINDING_RANKS_DISAGREE, odd->ds->model_file->path,
				"%s of %s %s on tensor rank %u", name, t->name,
				has ? "has another type" : "is missing", odd->tp);
		return 0;
	}
	if (cut->kind == DS_TP_AVERAGE)
		rc = check_equal(j, pp, t->numel, ALL_COMPARED, false, &same, err);
	else if (!cut->nparts && t->role == CKPT_ROLE_BUFFER && j->par->ntp > 1)
		rc = check_equal(j, pp, t->numel, MOST_COMPARED, false, &same, err);
	else if (cut->kind == DS_TP_REPLICATED && j->par->given.given && j->par->ntp > 1)
		rc = check_equal(j, pp, t->numel, MOST_COMPARED, true, &same, err);
	if (!rc && !same && cut->kind == DS_TP_REPLICATED && t->role != CKPT_ROLE_BUFFER)
		return ck_fail(err, CKPT_E_MISMATCH, t->name, CKPT_NO_OFFSET,
			       "NAMES_WRONG: its %s differs between %u tensor ranks, but by %s "
			       "each of them has all of it (a wrong pattern, or a damaged file)",
			       name, j->par->ntp, j->par->given.where);
	if (!rc && !same && cut->kind == DS_TP_AVERAGE)
		return ck_fail(err, CKPT_E_LAYOUT, t->name, CKPT_NO_OFFSET,
			       "LAYOUT_UNSUPPORTED: parameter_to_average_patterns asks for the "
			       "mean of %u tensor ranks, whose values of its %s differ; zckpt "
			       "computes no means", j->par->ntp, name);
	if (!rc && !same) {
		ck_findings_add(f, CK_FINDING_NOT_IN_CHECKPOINT, t->name,
				"a buffer that differs between tensor ranks, and no pattern says "
				"how it is cut; it is left out");
		return 0;
	}
	return rc ? rc : join_copy(j, pp, cut, tensor, name, err);
}

/* States that the first tensor rank lacks. */
static void check_states(struct join *j, uint32_t pp, const char *name)
{
	const struct ds_pos *first = ck_ds_pos(j->par, pp, 0);

	for (uint32_t t = 1; !is_incomplete(j->par, pp) && t < j->par->ntp; t++) {
		const struct ck_index *ix = &ck_ds_pos(j->par, pp, t)->ix;

		for (uint32_t s = ix->tensor[j->local[t]].first_state; s != CK_NONE;
		     s = ix->state[s].next)
			if (ck_index_state_find(&first->ix, j->local[0], ix->state[s].name) ==
			    CK_NONE)
				ck_findings_add(j->par->whole->f, CK_FINDING_RANKS_DISAGREE,
						first->ds->model_file->path, "%s of %.100s is "
						"missing on tensor rank 0, and tensor rank %u has "
						"it", ix->state[s].name, name, t);
	}
}

static int join_states(struct join *j, uint32_t pp, const struct ds_tp_cut *cut, uint32_t tensor,
		       struct ckpt_err *err)
{
	const struct ck_index *base = &ck_ds_pos(j->par, pp, 0)->ix;
	int rc = 0;

	check_states(j, pp, j->ix->tensor[tensor].name);
	for (uint32_t s = base->tensor[j->local[0]].first_state; !rc && s != CK_NONE;
	     s = base->state[s].next)
		rc = join_state(j, pp, cut, tensor, base->state[s].name, err);
	return rc;
}

/* ---- tensors ---- */

/* The tensor's numbers and shapes on every tensor rank of a stage; false after a finding. */
static bool find_locals(struct join *j, uint32_t pp, const char *name)
{
	const struct ck_index *base = &ck_ds_pos(j->par, pp, 0)->ix;

	for (uint32_t t = 0; t < j->par->ntp; t++) {
		const struct ds_pos *pos = ck_ds_pos(j->par, pp, t);
		const bool found = ck_index_find(&pos->ix, name, &j->local[t]);

		if (found && pos->ix.tensor[j->local[t]].ndim ==
			     base->tensor[j->local[0]].ndim &&
		    pos->ix.tensor[j->local[t]].role == base->tensor[j->local[0]].role) {
			j->shape[t] = pos->ix.tensor[j->local[t]].shape;
			continue;
		}
		if (!found && is_incomplete(j->par, pp))
			return false;
		ck_findings_add(j->par->whole->f, CK_FINDING_RANKS_DISAGREE,
				pos->ds->model_file->path, "%.100s %s on tensor rank %u", name,
				found ? "has another number of dimensions or another role" :
					"is missing", t);
		return false;
	}
	return true;
}

/* DeepSpeed keeps only some attributes of a tied module equal on its stages. */
static int is_same_copy(struct join *j, uint32_t pp, uint32_t low, const char *name, bool *same_out,
			struct ckpt_err *err)
{
	bool known = true;
	int rc = 0;

	*same_out = true;
	for (uint32_t t = 0; !rc && *same_out && known && t < j->par->ntp; t++) {
		const struct ds_pos *a = ck_ds_pos(j->par, low, t), *b = ck_ds_pos(j->par, pp, t);
		const struct ck_tensor *y = &b->ix.tensor[j->local[t]];
		uint32_t mine;

		if (!ck_index_find(&a->ix, name, &mine))
			continue;
		for (uint32_t s = y->first_state; !rc && *same_out && s != CK_NONE;
		     s = b->ix.state[s].next) {
			const uint32_t o = ck_index_state_find(&a->ix, mine, b->ix.state[s].name);
			const struct ds_par_state x = { a, o, a->ix.tensor[mine].numel };
			const struct ds_par_state z = { b, s, y->numel };

			if (o != CK_NONE && known)
				rc = ck_ds_par_same(j->par, &x, &z, MOST_COMPARED, same_out,
						    &known, err);
		}
	}
	*same_out &= known;
	return rc;
}

static int join_again(struct join *j, uint32_t pp, const struct ds_tp_cut *cut, uint32_t tensor,
		      struct ckpt_err *err)
{
	const char *name = j->ix->tensor[tensor].name;
	uint32_t low = 0, n;
	bool same;
	int rc;

	while (low < pp && !ck_index_find(&ck_ds_pos(j->par, low, 0)->ix, name, &n))
		low++;
	rc = is_same_copy(j, pp, low, name, &same, err);
	if (rc)
		return rc;
	if (same)
		return join_states(j, pp, cut, tensor, err);
	ck_findings_add(j->par->whole->f, CK_FINDING_TIED_DIFFERS, name,
			"the copies on pipeline stages %u and %u differ, and stage %u's is used: "
			"DeepSpeed keeps equal what tied_weight_attr of a tied module names, "
			"and each stage trains the rest alone", low, pp, low);
	return 0;
}

static int join_tensor(struct join *j, uint32_t pp, uint32_t number, struct ckpt_err *err)
{
	const struct ck_index *base = &ck_ds_pos(j->par, pp, 0)->ix;
	const struct ck_tensor *t = &base->tensor[number];
	const bool alias = t->role == CKPT_ROLE_ALIAS;
	const struct ds_tp_local local = {
		.name = alias ? base->tensor[t->alias_of].name : t->name, .shape = j->shape,
		.ndim = t->ndim, .tp = j->par->ntp, .buffer = t->role == CKPT_ROLE_BUFFER,
	};
	uint64_t shape[64];	/* a vocabulary's may be shorter than what is cut */
	struct ds_tp_cut cut;
	uint32_t tensor;
	int rc;

	if (!find_locals(j, pp, t->name))
		return 0;
	if (t->ndim > 64)
		return ck_fail(err, CKPT_E_LIMIT, t->name, CKPT_NO_OFFSET, "it has %u dimensions",
			       t->ndim);
	rc = ck_ds_par_cut(j->par, pp, &local, &cut, err);
	if (rc)
		return rc;
	if (cut.ndim) {
		memcpy(shape, cut.shape, cut.ndim * sizeof(*shape));
		rc = ck_ds_par_rows(j->par, pp, local.name, cut.shape[0], &shape[0], err);
	}
	if (!rc)
		rc = ck_index_add_tensor(j->ix, t->name, shape, cut.ndim, (enum ckpt_role)t->role,
					 &tensor, err);
	if (rc == 1)
		return join_again(j, pp, &cut, tensor, err);
	if (rc)
		return rc;
	j->ix->tensor[tensor].group = t->group;
	return alias ? 0 : join_states(j, pp, &cut, tensor, err);
}

/* Names that the first tensor rank lacks; aliases to what they are of. */
static void finish_stage(struct join *j, uint32_t pp)
{
	const struct ck_index *base = &ck_ds_pos(j->par, pp, 0)->ix;
	uint32_t n, kept;

	for (uint32_t t = 1; t < j->par->ntp; t++) {
		const struct ds_pos *pos = ck_ds_pos(j->par, pp, t);

		for (uint64_t i = 0; !is_incomplete(j->par, pp) && i < pos->ix.ntensors; i++)
			if (!ck_index_find(base, pos->ix.tensor[i].name, &n))
				ck_findings_add(j->par->whole->f, CK_FINDING_RANKS_DISAGREE,
						pos->ds->model_file->path,
						"%.100s is missing on tensor rank 0",
						pos->ix.tensor[i].name);
	}
	for (uint64_t i = 0; i < base->ntensors; i++) {
		const struct ck_tensor *t = &base->tensor[i];

		if (t->role == CKPT_ROLE_ALIAS && ck_index_find(j->ix, t->name, &n) &&
		    ck_index_find(j->ix, base->tensor[t->alias_of].name, &kept))
			j->ix->tensor[n].alias_of = kept;
	}
}

static int join_all(struct join *j, struct ckpt_err *err)
{
	struct ds_par *par = j->par;
	int rc = 0;

	for (uint32_t i = 0; !rc && i < par->npos; i++)
		rc = move_sources(par, &par->pos[i], err);
	for (uint32_t pp = 0; !rc && pp < par->npp; pp++) {
		const struct ck_index *base = &ck_ds_pos(par, pp, 0)->ix;

		for (uint64_t i = 0; !rc && i < base->ntensors; i++)
			rc = join_tensor(j, pp, (uint32_t)i, err);
		if (!rc)
			finish_stage(j, pp);
	}
	for (uint32_t i = 0; !rc && i < par->npos; i++)
		rc = move_pads(j, &par->pos[i], err);
	return rc;
}

int ck_ds_par_join(struct ds_par *par, struct ckpt_err *err)
{
	struct join j = { .par = par, .ix = par->whole->ix };
	struct ck_arena *a = &par->whole->arena;
	int rc;

	j.local = ck_arena_zalloc(a, par->ntp * sizeof(*j.local));
	j.state = ck_arena_zalloc(a, par->ntp * sizeof(*j.state));
	j.shape = ck_arena_zalloc(a, par->ntp * sizeof(*j.shape));
	if (!j.local || !j.state || !j.shape)
		return ck_fail_nomem(err, "tensor ranks", par->ntp);
	ck_tiles_init(&j.tiles, par->whole->in->limits.memory_bytes);
	rc = join_all(&j, err);
	ck_tiles_release(&j.tiles);
	if (!rc)
		ck_ds_tp_rules_check(&par->given, par->whole->f);
	return rc;
}

int ck_ds_par_add_layout(struct ds_par *par, uint32_t dp, struct ckpt_err *err)
{
	const uint32_t n[] = { par->ntp, par->npp, dp };
	static const char *const name[] = { "tp", "pp", "dp" };
	char text[80] = "";

	for (size_t i = 0; i < CK_ARRAY_LEN(n); i++)
		if (n[i] > 1)
			snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%s %u",
				 *text ? " x " : "", name[i], n[i]);
	return *text ? ck_index_add_fact(par->whole->ix, err, "layout", "%s", text) : 0;
}
