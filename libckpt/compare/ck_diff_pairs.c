/*
 * ck_diff_pairs.c -- which states of two checkpoints belong together, and what can be said of them
 * without reading an element.
 */
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_map.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/compare/ck_diff.h"
#include "libckpt/select/ck_select.h"
#include "libckpt/select/ck_states.h"
#include "libckpt/tensor/ck_dtype.h"
#include "libckpt/tensor/ck_extents.h"

struct pairing {
	struct ck_diff *d;
	struct ck_selection a, b;
	struct ck_map names_b;		/* as written -> pick of b */
	uint8_t *met;			/* per pick of b */
	uint32_t *with;			/* per tensor of a: that of b it was compared with */
	uint64_t *source_b;		/* per source of a: that of b that is the same file, + 1 */
};

/*
 * How elements of the two types are compared: '*dtype_out' is the wider one.  False if there is
 * no distance between them, or none that is exact enough to find every difference.
 */
static bool common_type(enum ckpt_dtype a, enum ckpt_dtype b, enum ckpt_dtype *dtype_out)
{
	const struct ck_elem_type x = ck_elem_type_of(a), y = ck_elem_type_of(b);
	const bool wide_x = x.type == KN_NUM_I64 || x.type == KN_NUM_U64;
	const bool wide_y = y.type == KN_NUM_I64 || y.type == KN_NUM_U64;

	if (a == b) {
		*dtype_out = a;
		return true;
	}
	if (x.type == KN_NUM_BYTE || y.type == KN_NUM_BYTE || x.parts != y.parts)
		return false;
	if (ck_elem_type_is_castable(x.type) && ck_elem_type_is_castable(y.type)) {
		const bool f64 = x.type == KN_NUM_F64 || y.type == KN_NUM_F64;

		*dtype_out = x.parts == 2 ? (f64 ? CKPT_C128 : CKPT_C64) :
					    (f64 ? CKPT_F64 : CKPT_F32);
		return true;
	}
	/* beyond 2^53 a double is not every integer: only a shorter integer never meets those */
	if ((wide_x || wide_y) &&
	    ((wide_x && wide_y) || x.type < KN_NUM_I8 || y.type < KN_NUM_I8))
		return false;
	*dtype_out = CKPT_F64;
	return true;
}

/* ---------------------------------------------------------------- rows */

static int add_row(struct ck_diff *d, const char *name, enum ckpt_diff_what what,
		   struct ckpt_diff_row **row_out, struct ckpt_err *err)
{
	struct ckpt_diff_row *row;
	int rc = ck_grow(&d->row, &d->row_cap, d->nrows + 1, sizeof(*d->row), err);

	if (rc)
		return rc;
	row = &d->row[d->nrows];
	*row = (struct ckpt_diff_row){ .what = what };
	row->name = ck_arena_strdup(d->arena, name);
	if (!row->name)
		return ck_fail_nomem(err, "a name", strlen(name));
	d->nrows++;
	*row_out = row;
	return 0;
}

static const uint64_t no_dims[1];	/* NULL means that there is no tensor */

static void set_side_a(struct ckpt_diff_row *row, const struct ck_tensor *t,
		       const struct ck_state *s)
{
	row->ndim_a = t->ndim;
	row->shape_a = t->ndim ? t->shape : no_dims;
	row->numel = t->numel;
	if (!s)
		return;
	row->state_a = s->name;
	row->dtype_a = (enum ckpt_dtype)s->dtype;
	row->flags |= s->flags & CKPT_STATE_DERIVED ? CKPT_DIFF_DERIVED_A : 0;
	row->flags |= s->flags & CKPT_STATE_PER_RANK ? CKPT_DIFF_PER_RANK : 0;
}

static void set_side_b(struct ckpt_diff_row *row, const struct ck_tensor *t,
		       const struct ck_state *s)
{
	row->ndim_b = t->ndim;
	row->shape_b = t->ndim ? t->shape : no_dims;
	row->numel = t->numel;
	if (!s)
		return;
	row->state_b = s->name;
	row->dtype_b = (enum ckpt_dtype)s->dtype;
	row->flags |= s->flags & CKPT_STATE_DERIVED ? CKPT_DIFF_DERIVED_B : 0;
	row->flags |= s->flags & CKPT_STATE_PER_RANK ? CKPT_DIFF_PER_RANK : 0;
}

/* ---------------------------------------------------------------- one source */

/* Files of both that are one file, however they are called. */
static int find_same_files(struct pairing *p, struct ckpt_err *err)
{
	const struct ck_index *a = &p->d->a->ix, *b = &p->d->b->ix;
	struct ck_map map = CK_MAP_INIT;
	struct stat st;
	uint64_t (*id)[2] = ck_alloc_array(b->nsources, sizeof(*id)), mine[2], other;
	int rc = 0;

	p->source_b = ck_zalloc(a->nsources * sizeof(*p->source_b));
	if (!id || !p->source_b)
		rc = ck_fail_nomem(err, "a list of files", b->nsources);
	for (uint64_t i = 0; !rc && i < b->nsources; i++) {
		if (ck_sys.stat(b->source[i].path, &st))
			continue;
		id[i][0] = (uint64_t)st.st_dev;
		id[i][1] = (uint64_t)st.st_ino;
		rc = ck_map_add(&map, (const char *)id[i], sizeof(id[i]), i, NULL, err);
		rc = rc < 0 ? rc : 0;
	}
	for (uint64_t i = 0; !rc && i < a->nsources; i++) {
		if (ck_sys.stat(a->source[i].path, &st))
			continue;
		mine[0] = (uint64_t)st.st_dev;
		mine[1] = (uint64_t)st.st_ino;
		if (ck_map_find(&map, (const char *)mine, sizeof(mine), &other))
			p->source_b[i] = other + 1;
	}
	ck_map_release(&map);
	ck_free(id);
	return rc;
}

static bool same_bytes(const struct pairing *p, const struct ck_extent *x,
		       const struct ck_extent *y)
{
	const struct ck_index *a = &p->d->a->ix, *b = &p->d->b->ix;

	if (p->source_b[x->source] != (uint64_t)y->source + 1 || x->first != y->first ||
	    x->count != y->count || x->off != y->off || x->runs != y->runs ||
	    x->src_stride != y->src_stride || x->dtype != y->dtype || x->flags != y->flags ||
	    (x->flags & CKPT_EXTENT_GATHER))
		return false;
	return x->member == CK_NONE || a->member[x->member].off == b->member[y->member].off;
}

static bool is_one_source(const struct pairing *p, const struct ck_state *x,
			  const struct ck_state *y)
{
	const struct ck_index *a = &p->d->a->ix, *b = &p->d->b->ix;

	if (x->dtype != y->dtype || !ck_weaves_equal(a, x, b, y))
		return false;
	for (uint64_t i = 0; i < x->nstored; i++)
		if (!same_bytes(p, ck_extent_stored(a, x, i), ck_extent_stored(b, y, i)))
			return false;
	return true;
}

/* ---------------------------------------------------------------- states */

static uint64_t count_parts(const struct ck_tensor *t, enum ckpt_dtype dtype)
{
	const uint32_t bits = ckpt_dtype_bits(dtype);

	return bits < 8 ? t->numel / 8 * bits + t->numel % 8 * bits / 8 :
			  t->numel * ck_elem_type_of(dtype).parts;
}

/* The training state's side, read as convert would have written it to the export. */
static enum ckpt_dtype as_exported(enum ckpt_dtype own, enum ckpt_dtype exported,
				   struct ckpt_diff_row *row, unsigned flag)
{
	if (own == exported || !ck_dtype_is_castable(own) || !ck_dtype_is_castable(exported))
		return own;
	row->flags |= flag;
	return exported;
}

static int compare_states(struct pairing *p, const char *name, unsigned flags, uint32_t a,
			  uint32_t b, struct ckpt_err *err)
{
	struct ck_diff *d = p->d;
	const struct ck_state *x = &d->a->ix.state[a], *y = &d->b->ix.state[b];
	const struct ck_tensor *t = &d->a->ix.tensor[x->tensor];
	struct ckpt_diff_row *row;
	enum ckpt_dtype as = 0, read_a, read_b;
	struct ck_diff_pair *pair;
	int rc = add_row(d, name, CKPT_DIFF_SAME, &row, err);

	if (rc)
		return rc;
	set_side_a(row, t, x);
	set_side_b(row, &d->b->ix.tensor[y->tensor], y);
	row->flags |= flags | (d->export_a || d->export_b ? CKPT_DIFF_OF_EXPORT : 0);
	read_a = (enum ckpt_dtype)x->dtype;
	read_b = (enum ckpt_dtype)y->dtype;
	if (p->d->export_b)
		read_a = as_exported(read_a, read_b, row, CKPT_DIFF_EXPORTED_A);
	else if (p->d->export_a)
		read_b = as_exported(read_b, read_a, row, CKPT_DIFF_EXPORTED_B);
	if (!common_type(read_a, read_b, &as)) {
		row->what = CKPT_DIFF_TYPES;
		return 0;
	}
	row->dtype = as;
	if (ck_elem_type_of(as).type == KN_NUM_BYTE)
		row->flags |= CKPT_DIFF_BYTES;
	if (is_one_source(p, x, y)) {
		row->flags |= CKPT_DIFF_ONE_SOURCE;
		return 0;
	}
	if (!t->numel)
		return 0;
	rc = ck_grow(&d->pair, &d->pair_cap, d->npairs + 1, sizeof(*d->pair), err);
	if (rc)
		return rc;
	pair = &d->pair[d->npairs++];
	*pair = (struct ck_diff_pair){
		.row = d->nrows - 1, .state_a = a, .state_b = b, .read_a = read_a,
		.read_b = read_b, .a = ck_elem_type_of(read_a), .b = ck_elem_type_of(read_b),
		.as = ck_elem_type_of(as), .nparts = count_parts(t, as),
	};
	return 0;
}

static int lone_state(struct ck_diff *d, const char *name, const struct ck_tensor *t,
		      const struct ck_state *s, bool of_a, struct ckpt_err *err)
{
	struct ckpt_diff_row *row;
	int rc = add_row(d, name, of_a ? CKPT_DIFF_STATE_A : CKPT_DIFF_STATE_B, &row, err);

	if (rc)
		return rc;
	if (of_a)
		set_side_a(row, t, s);
	else
		set_side_b(row, t, s);
	return 0;
}

/* The one state, of whichever side has it; CK_NONE where there is none. */
static int compare_or_tell(struct pairing *p, const char *name, unsigned flags, uint32_t ta,
			   uint32_t tb, uint32_t a, uint32_t b, struct ckpt_err *err)
{
	const struct ck_index *x = &p->d->a->ix, *y = &p->d->b->ix;

	if (a != CK_NONE && b != CK_NONE)
		return compare_states(p, name, flags, a, b, err);
	if (a != CK_NONE)
		return lone_state(p->d, name, &x->tensor[ta], &x->state[a], true, err);
	if (b != CK_NONE)
		return lone_state(p->d, name, &y->tensor[tb], &y->state[b], false, err);
	return 0;
}

/* Made on both sides from masters that are compared: nothing new would come of it. */
static bool follows(const struct ck_diff *d, uint32_t ta, uint32_t tb, uint32_t a, uint32_t b)
{
	const struct ck_state *x = &d->a->ix.state[a], *y = &d->b->ix.state[b];

	return (x->flags & CKPT_STATE_DERIVED) && (y->flags & CKPT_STATE_DERIVED) &&
	       x->dtype == y->dtype && ck_index_state_find(&d->a->ix, ta, "master") != CK_NONE &&
	       ck_index_state_find(&d->b->ix, tb, "master") != CK_NONE;
}

/* The master where there is one, else the weight: what convert takes. */
static uint32_t exported_state(const struct ck_index *ix, uint32_t tensor)
{
	const uint32_t master = ck_index_state_find(ix, tensor, "master");

	if (master != CK_NONE && ck_dtype_is_castable((enum ckpt_dtype)ix->state[master].dtype))
		return master;
	return ck_index_state_find(ix, tensor, "weight");
}

/* A weight of an export and what it was made of. */
static int compare_exported(struct pairing *p, const char *name, unsigned flags, uint32_t ta,
			    uint32_t tb, struct ckpt_err *err)
{
	const struct ck_index *x = &p->d->a->ix, *y = &p->d->b->ix;
	const struct ck_index *whole = p->d->export_b ? x : y;
	const uint32_t a = p->d->export_b ? exported_state(x, ta) :
					    ck_index_state_find(x, ta, "weight");
	const uint32_t b = p->d->export_b ? ck_index_state_find(y, tb, "weight") :
					    exported_state(y, tb);
	const uint32_t used = p->d->export_b ? a : b;

	for (uint32_t s = whole->tensor[p->d->export_b ? ta : tb].first_state; s != CK_NONE;
	     s = whole->state[s].next)
		p->d->nbeside += s != used && strcmp(whole->state[s].name, "weight") &&
				 strcmp(whole->state[s].name, "master");
	return compare_or_tell(p, name, flags, ta, tb, a, b, err);
}

/* Every state of either. */
static int compare_all(struct pairing *p, const char *name, unsigned flags, uint32_t ta,
		       uint32_t tb, struct ckpt_err *err)
{
	const struct ck_index *x = &p->d->a->ix, *y = &p->d->b->ix;
	int rc = 0;

	for (uint32_t s = x->tensor[ta].first_state; !rc && s != CK_NONE; s = x->state[s].next) {
		const uint32_t other = ck_index_state_find(y, tb, x->state[s].name);

		if (other != CK_NONE && follows(p->d, ta, tb, s, other))
			p->d->nderived++;
		else
			rc = compare_or_tell(p, name, flags, ta, tb, s, other, err);
	}
	for (uint32_t s = y->tensor[tb].first_state; !rc && s != CK_NONE; s = y->state[s].next)
		if (ck_index_state_find(x, ta, y->state[s].name) == CK_NONE)
			rc = compare_or_tell(p, name, flags, ta, tb, CK_NONE, s, err);
	return rc;
}

/* Those of the list: "NAME", or "NAME=OTHER". */
static int compare_listed(struct pairing *p, const char *name, unsigned flags, uint32_t ta,
			  uint32_t tb, struct ckpt_err *err)
{
	int rc = 0;

	for (const char *const *word = p->d->opts->states; !rc && *word; word++) {
		const char *other = strchr(*word, '=');
		char first[128];
		uint32_t a, b;

		if (!other) {
			a = ck_index_state_find(&p->d->a->ix, ta, *word);
			b = ck_index_state_find(&p->d->b->ix, tb, *word);
		} else {
			memcpy(first, *word, (size_t)(other - *word));
			first[other - *word] = 0;
			a = ck_index_state_find(&p->d->a->ix, ta, first);
			b = ck_index_state_find(&p->d->b->ix, tb, other + 1);
		}
		rc = compare_or_tell(p, name, flags, ta, tb, a, b, err);
	}
	return rc;
}

static int check_one(const struct ckpt *ck, const char *name, struct ckpt_err *err)
{
	const char *const list[] = { name, NULL };

	return ck_states_check(&ck->ix, list, err);
}

static int check_listed(const struct ck_diff *d, struct ckpt_err *err)
{
	int rc = 0;

	if (ck_diff_is_all(d->opts))
		return 0;
	if (!d->opts->states[0])
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "the list of states is empty");
	for (const char *const *word = d->opts->states; !rc && *word; word++) {
		const char *other = strchr(*word, '=');
		char first[128] = "";

		if (!other) {
			if (check_one(d->b, *word, NULL))
				rc = check_one(d->a, *word, err);
			continue;
		}
		if ((size_t)(other - *word) >= sizeof(first))
			return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
				       "the name of a state has %zu characters, which is too "
				       "long", other - *word);
		memcpy(first, *word, (size_t)(other - *word));
		rc = check_one(d->a, first, err);
		if (!rc)
			rc = check_one(d->b, other + 1, err);
	}
	return rc;
}

/* ---------------------------------------------------------------- tensors */

static bool is_alias(const struct ck_index *ix, const char *stored)
{
	uint32_t t;

	return ck_index_find(ix, stored, &t) && ix->tensor[t].role == CKPT_ROLE_ALIAS;
}

static bool same_shape(const struct ck_tensor *a, const struct ck_tensor *b)
{
	return a->ndim == b->ndim &&
	       (!a->ndim || !memcmp(a->shape, b->shape, a->ndim * sizeof(*a->shape)));
}

static int compare_tensors(struct pairing *p, const struct ck_pick *a, const struct ck_pick *b,
			   struct ckpt_err *err)
{
	struct ck_diff *d = p->d;
	const struct ck_tensor *x = &d->a->ix.tensor[a->tensor], *y = &d->b->ix.tensor[b->tensor];
	const bool alias_a = is_alias(&d->a->ix, a->stored);
	const bool alias_b = is_alias(&d->b->ix, b->stored);
	unsigned flags = alias_a == alias_b ? 0 : alias_a ? CKPT_DIFF_TIED_A : CKPT_DIFF_TIED_B;
	struct ckpt_diff_row *row;
	int rc;

	if (p->with[a->tensor] == b->tensor)	/* by another name */
		return 0;
	p->with[a->tensor] = b->tensor;
	d->met_a[a->tensor] = d->met_b[b->tensor] = 1;
	if (same_shape(x, y) && (d->export_a || d->export_b))
		return compare_exported(p, a->name, flags, a->tensor, b->tensor, err);
	if (same_shape(x, y))
		return ck_diff_is_all(d->opts) ?
		       compare_all(p, a->name, flags, a->tensor, b->tensor, err) :
		       compare_listed(p, a->name, flags, a->tensor, b->tensor, err);
	rc = add_row(d, a->name, CKPT_DIFF_SHAPE, &row, err);
	if (rc)
		return rc;
	set_side_a(row, x, NULL);
	set_side_b(row, y, NULL);
	row->numel = 0;
	row->flags |= flags;
	return 0;
}

static int lone_name(struct ck_diff *d, const struct ck_pick *pick, bool of_a, bool tied,
		     struct ckpt_err *err)
{
	const struct ck_index *ix = of_a ? &d->a->ix : &d->b->ix;
	const struct ck_tensor *t = &ix->tensor[pick->tensor];
	const enum ckpt_diff_what what = tied ? CKPT_DIFF_TIED_ONLY_A : CKPT_DIFF_ONLY_A;
	struct ckpt_diff_row *row;
	int rc = add_row(d, pick->name, of_a ? what : what + 1, &row, err);

	if (rc)
		return rc;
	if (of_a)
		set_side_a(row, t, NULL);
	else
		set_side_b(row, t, NULL);
	if (tied)
		return 0;
	rc = ck_grow(&d->lone, &d->lone_cap, d->nlones + 1, sizeof(*d->lone), err);
	if (!rc)
		d->lone[d->nlones++] = (struct ck_diff_lone){ d->nrows - 1, pick->tensor, of_a };
	return rc;
}

static unsigned only_bit(const struct ck_index *ix, const struct ck_pick *pick)
{
	if (!pick)
		return 0;
	switch ((enum ckpt_role)ix->tensor[pick->tensor].role) {
	case CKPT_ROLE_FROZEN:
		return CKPT_ONLY_FROZEN;
	case CKPT_ROLE_BUFFER:
		return CKPT_ONLY_BUFFERS;
	case CKPT_ROLE_TRAINABLE:
	case CKPT_ROLE_UNTRAINED:
		return CKPT_ONLY_TRAINABLE;
	case CKPT_ROLE_ALIAS:
	case CKPT_ROLE_PLAIN:
		break;
	}
	return 0;
}

/* Whether one of the sides says that it is what was asked for. */
static bool is_wanted(const struct ck_diff *d, const struct ck_pick *a, const struct ck_pick *b)
{
	const unsigned only = d->opts->select->only;

	return !only || (only & (only_bit(&d->a->ix, a) | only_bit(&d->b->ix, b)));
}

static bool knows_roles(const struct ck_index *ix)
{
	for (uint64_t i = 0; i < ix->ntensors; i++)
		if (ix->tensor[i].role != CKPT_ROLE_PLAIN && ix->tensor[i].role != CKPT_ROLE_ALIAS)
			return true;
	return false;
}

static int select_both(struct pairing *p, struct ckpt_err *err)
{
	struct ckpt_select select = *p->d->opts->select;
	struct ck_naming a = CK_NAMING_INIT, b = CK_NAMING_INIT;
	int rc;

	select.tied = CKPT_TIED_DUP;
	select.skip = 0;
	/* is_wanted() looks; where neither knows, ck_select() says so */
	if (knows_roles(&p->d->a->ix) || knows_roles(&p->d->b->ix))
		select.only = 0;
	rc = ck_diff_names(p->d, &a, &b, err);
	if (!rc)
		rc = ck_select_published(&p->d->a->ix, &select, a.rule, &p->a, err);
	if (!rc)
		rc = ck_select_published(&p->d->b->ix, &select, b.rule, &p->b, err);
	ck_naming_release(&a);
	ck_naming_release(&b);
	for (uint64_t i = 0; rc >= 0 && i < p->b.npicks; i++)
		rc = ck_map_add(&p->names_b, p->b.pick[i].name, strlen(p->b.pick[i].name), i,
				NULL, err);
	return rc < 0 ? rc : 0;
}

/* What both have first: then it is known which lone names are second ones of that. */
static int walk(struct pairing *p, struct ckpt_err *err)
{
	struct ck_diff *d = p->d;
	uint64_t taken = 0, k;
	int rc = 0;

	for (uint64_t i = 0; !rc && i < p->a.npicks; i++) {
		const struct ck_pick *a = &p->a.pick[i], *b;

		if (!ck_map_find(&p->names_b, a->name, strlen(a->name), &k))
			continue;
		b = &p->b.pick[k];
		p->met[k] = 1;
		if (!is_wanted(d, a, b))
			continue;
		taken++;
		rc = compare_tensors(p, a, b, err);
	}
	for (uint64_t i = 0; !rc && i < p->a.npicks; i++) {
		const struct ck_pick *a = &p->a.pick[i];

		if (!is_wanted(d, a, NULL) ||
		    ck_map_find(&p->names_b, a->name, strlen(a->name), NULL))
			continue;
		taken++;
		rc = lone_name(d, a, true, p->with[a->tensor] != CK_NONE, err);
	}
	for (uint64_t i = 0; !rc && i < p->b.npicks; i++) {
		const struct ck_pick *b = &p->b.pick[i];

		if (p->met[i] || !is_wanted(d, NULL, b))
			continue;
		taken++;
		rc = lone_name(d, b, false, d->met_b[b->tensor], err);
	}
	if (!rc && !taken)
		rc = ck_select_fail_empty(&d->a->ix, err);
	return rc;
}

int ck_diff_pairs(struct ck_diff *d, struct ckpt_err *err)
{
	struct pairing p = {
		.d = d, .a = CK_SELECTION_INIT, .b = CK_SELECTION_INIT, .names_b = CK_MAP_INIT,
	};
	int rc = check_listed(d, err);

	if (!rc)
		rc = select_both(&p, err);
	if (!rc)
		rc = find_same_files(&p, err);
	if (!rc) {
		p.met = ck_zalloc(p.b.npicks);
		d->met_a = ck_zalloc(d->a->ix.ntensors);
		d->met_b = ck_zalloc(d->b->ix.ntensors);
		p.with = ck_alloc_array(d->a->ix.ntensors, sizeof(*p.with));
		if (!p.met || !d->met_a || !d->met_b || !p.with)
			rc = ck_fail_nomem(err, "pairs", d->a->ix.ntensors);
	}
	for (uint64_t i = 0; !rc && i < d->a->ix.ntensors; i++)
		p.with[i] = CK_NONE;
	if (!rc)
		rc = walk(&p, err);
	ck_free(p.met);
	ck_free(p.with);
	ck_free(p.source_b);
	ck_map_release(&p.names_b);
	ck_selection_release(&p.b);
	ck_selection_release(&p.a);
	return rc;
}
