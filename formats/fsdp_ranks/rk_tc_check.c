/*
 * rk_tc_check.c -- entries of torch_checkpointing's index against the tensors in the files.
 *
 * An entry has the type and the full shape of a tensor, its ranks, a mesh and a placement for each
 * of its axes.  A file says all that of itself; where the two differ, one of them is of another
 * save.  A whole tensor is listed as Replicate over its ranks.
 */
#include "formats/fsdp_ranks/rk_tc.h"

#include <inttypes.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/json/ck_json.h"
#include "libckpt/tensor/ck_dtype.h"

/* What an entry says of one rank after the other. */
struct entry {
	const uint64_t *shape;
	uint32_t ndim, naxes;
	uint64_t axis[RK_MOST_AXES];
	int32_t cuts[RK_MOST_AXES];	/* the dimension, -1 = none */
	bool known;			/* the placements give the block */
	const uint64_t *rank, *place;	/* [n] of them; [nplaces] of the mesh */
	uint64_t nranks, nplaces;
};

struct check {
	struct rk *r;
	struct entry *entry;	/* of the tensor at hand */
	uint64_t entry_cap;
	uint32_t *entry_of, *place_of;	/* [world], number + 1; 0 = none */
	const char *text;	/* the path */
	bool odd;		/* a finding says so */
};

static void differs(struct check *c, const char *what, uint32_t rank)
{
	if (!c->odd && rank == UINT32_MAX)
		ck_findings_add(c->r->f, CK_FINDING_NAMES_WRONG, c->text,
				"%s in %s and in the files (files of two saves in one folder?)",
				what, c->r->tc->path);
	else if (!c->odd)
		ck_findings_add(c->r->f, CK_FINDING_NAMES_WRONG, c->text,
				"%s in %s and in the file of rank %u (files of two saves in one "
				"folder?)", what, c->r->tc->path, rank);
	c->odd = true;
}

/* ---- an entry ---- */

static int bad(const struct check *c, const char *what, struct ckpt_err *err)
{
	return ck_fail(err, CKPT_E_CORRUPT, c->r->tc->path, CKPT_NO_OFFSET,
		       "the entry of %.120s has no %s", c->text, what);
}

/* Numbers of a list of any length. */
static bool counts(struct rk *r, const struct ck_val *v, const uint64_t **out, uint64_t *n_out)
{
	struct ck_val *const *item;
	uint64_t *a, n;
	int64_t one;

	if (!ck_val_seq(v, &item, &n))
		return false;
	a = ck_arena_alloc(&r->arena, (n + 1) * sizeof(*a));
	for (uint64_t i = 0; a && i < n; i++) {
		if (!ck_val_int(item[i], &one) || one < 0)
			return false;
		a[i] = (uint64_t)one;
	}
	*out = a;
	*n_out = n;
	return a != NULL;
}

/* Shard and Replicate give the block, unless two axes cut one dimension: in which order? */
static int read_placements(struct check *c, const struct ck_val *data, struct entry *e,
			   struct ckpt_err *err)
{
	struct ck_val *const *item;
	uint64_t n;
	int64_t dim;

	if (!ck_val_seq(ck_val_get(data, "placements"), &item, &n) || n != e->naxes)
		return bad(c, "placement for each axis of its mesh", err);
	e->known = true;
	for (uint32_t k = 0; k < e->naxes; k++) {
		const struct ck_val *type = ck_val_get(item[k], "type");

		e->cuts[k] = -1;
		if (ck_val_is_str(type, "Replicate"))
			continue;
		if (!ck_val_is_str(type, "Shard")) {
			if (!ck_val_is_str(type, "StridedShard"))
				return bad(c, "known type of placement", err);
			e->known = false;
			continue;
		}
		if (!ck_val_int(ck_val_get(item[k], "dim"), &dim) || dim < 0 ||
		    dim >= (int64_t)e->ndim)
			return bad(c, "dimension that its Shard cuts", err);
		e->cuts[k] = (int32_t)dim;
		for (uint32_t i = 0; i < k; i++)
			e->known &= e->cuts[i] != e->cuts[k];
	}
	return 0;
}

static int read_entry(struct check *c, const struct ck_val *v, struct entry *e,
		      enum ckpt_dtype *dtype, struct ckpt_err *err)
{
	const struct ck_val *sharding = ck_val_get(v, "sharding_metadata");
	const struct ck_val *data = ck_val_get(sharding, "data");
	const struct ck_val *mesh = ck_val_get(data, "mesh_spec");
	const char *name = ck_val_str(ck_val_get(data, "dtype"));
	const char *type = ck_val_str(ck_val_get(sharding, "type"));
	const uint64_t *axis;
	uint64_t n, total = 1;

	*e = (struct entry){ .shape = NULL };
	if (!type)
		return bad(c, "type", err);
	/* A part whose file does not say so. */
	if (strcmp(type, "DTensorShardingMetadata") != 0)
		return ck_fail(err, CKPT_E_UNSUPPORTED, c->r->tc->path, CKPT_NO_OFFSET,
			       "the entry of %.120s is %.60s; zckpt reads DTensorShardingMetadata",
			       c->text, type);
	if (!ck_rk_counts(c->r, ck_val_get(data, "global_shape"), &e->shape, &n))
		return bad(c, "global_shape", err);
	e->ndim = (uint32_t)n;
	*dtype = name && !strncmp(name, "torch.", 6) ? ck_dtype_by_torch_name(name + 6) : 0;
	if (!*dtype)
		return bad(c, "known dtype", err);
	if (!ck_rk_counts(c->r, ck_val_get(mesh, "mesh_shape"), &axis, &n) || n > RK_MOST_AXES ||
	    !counts(c->r, ck_val_get(mesh, "mesh_data"), &e->place, &e->nplaces) ||
	    !counts(c->r, ck_val_get(v, "ranks"), &e->rank, &e->nranks))
		return bad(c, "mesh and ranks", err);
	e->naxes = (uint32_t)n;
	for (uint32_t k = 0; k < n; k++) {
		e->axis[k] = axis[k];
		total = axis[k] && total <= e->nplaces ? total * axis[k] : 0;
	}
	if (total != e->nplaces)
		return bad(c, "mesh of as many ranks as its shape says", err);
	return read_placements(c, data, e, err);
}

/* ---- a block ---- */

/* The block of a place on the mesh; false if it is another one. */
static bool same_block(const struct rk_state *s, const struct rk_block *b, const struct entry *e,
		       uint64_t place)
{
	uint64_t offset[RK_MOST_DIMS] = { 0 }, size[RK_MOST_DIMS], numel = 1;

	if (s->ndim)
		memcpy(size, s->shape, s->ndim * sizeof(*size));
	for (uint32_t k = e->naxes; k > 0; k--) {
		const uint64_t at = place % e->axis[k - 1];

		place /= e->axis[k - 1];
		if (e->cuts[k - 1] >= 0)
			ck_rk_mesh_cut(&offset[e->cuts[k - 1]], &size[e->cuts[k - 1]],
				       e->axis[k - 1], at);
	}
	for (uint32_t k = 0; k < s->ndim; k++)
		numel = size[k] ? numel : 0;
	if (!numel || !b->numel)
		return !numel && !b->numel;
	return !s->ndim || (!memcmp(offset, b->offset, s->ndim * sizeof(*offset)) &&
			    !memcmp(size, b->size, s->ndim * sizeof(*size)));
}

static void check_blocks(struct check *c, const struct rk_state *s, uint64_t nlisted)
{
	for (uint64_t i = 0; i < s->nblocks; i++) {
		const struct rk_block *b = &s->block[i];
		const uint32_t rank = b->file->id.rank;
		const struct entry *e = c->entry_of[rank] ? &c->entry[c->entry_of[rank] - 1] : NULL;

		if (!e)
			differs(c, "its ranks differ", rank);
		else if (e->known && (!c->place_of[rank] ||
				      !same_block(s, b, e, c->place_of[rank] - 1)))
			differs(c, "the part of it differs", rank);
	}
	if (s->nblocks != nlisted && !c->r->incomplete)
		differs(c, "the number of its ranks differs", UINT32_MAX);
}

/* ---- a state of a tensor ---- */

/* Which entry each rank has, and where it is on that one's mesh. */
static int place_ranks(struct check *c, uint32_t n, uint64_t *nlisted, struct ckpt_err *err)
{
	memset(c->entry_of, 0, c->r->world * sizeof(*c->entry_of));
	memset(c->place_of, 0, c->r->world * sizeof(*c->place_of));
	*nlisted = 0;
	for (uint32_t k = 0; k < n; k++) {
		const struct entry *e = &c->entry[k];

		for (uint64_t i = 0; i < e->nranks; i++) {
			if (e->rank[i] >= c->r->world || c->entry_of[e->rank[i]])
				return bad(c, "ranks that are of the world, each once", err);
			c->entry_of[e->rank[i]] = k + 1;
			++*nlisted;
		}
		for (uint64_t i = 0; i < e->nplaces; i++)
			if (e->place[i] < c->r->world && c->entry_of[e->place[i]] == k + 1)
				c->place_of[e->place[i]] = (uint32_t)i + 1;
	}
	return 0;
}

static int check_state(struct check *c, const struct rk_state *s, const struct ck_val *list,
		       struct ckpt_err *err)
{
	struct ck_val *const *item;
	uint64_t n, nlisted;
	int rc = 0;

	c->odd = false;
	if (!ck_val_seq(list, &item, &n) || !n)
		return bad(c, "list", err);
	rc = ck_grow(&c->entry, &c->entry_cap, n, sizeof(*c->entry), err);
	for (uint64_t i = 0; !rc && i < n; i++) {
		struct entry *e = &c->entry[i];
		enum ckpt_dtype dtype = 0;

		rc = read_entry(c, item[i], e, &dtype, err);
		if (!rc && (dtype != s->dtype || e->ndim != s->ndim ||
			    (s->ndim && memcmp(e->shape, s->shape, s->ndim * sizeof(*s->shape)))))
			differs(c, "its type or shape differs", UINT32_MAX);
	}
	if (rc || c->odd)
		return rc;
	rc = place_ranks(c, (uint32_t)n, &nlisted, err);
	if (!rc)
		check_blocks(c, s, nlisted);
	return rc;
}

/* ---- names ---- */

static struct rk_tensor *find_tensor(struct rk *r, const char *name, bool of_state)
{
	const char *clean = ck_rk_name_clean(r, name, strlen(name));
	struct rk_tensor *t;
	uint64_t at;

	if (!clean || !ck_map_find(&r->by_name, clean, strlen(clean), &at))
		return NULL;
	t = &r->tensor[at];
	return of_state && t->alias_of != CK_NONE ? &r->tensor[t->alias_of] : t;
}

/*
 * What a path is of; NULL with '*skip' for values that are no tensor of the index: param_groups,
 * steps, and states of one number.
 */
static struct rk_state *find_state(struct rk *r, const struct ck_json *doc, bool optim,
				   const struct ck_val *list, bool *skip)
{
	const struct ck_json_tok *part = doc->tok + 1;
	struct ck_val *const *dim;
	struct rk_tensor *t;
	struct rk_state *s;
	uint64_t n;

	*skip = false;
	if (!optim) {
		t = doc->tok[0].n == 1 ? find_tensor(r, part[0].str, false) : NULL;
		return t ? &t->weight : NULL;
	}
	*skip = doc->tok[0].n != 3 || strcmp(part[0].str, "state") != 0 ||
		!strcmp(part[2].str, "step") ||
		(ck_val_seq(ck_val_get(ck_val_get(ck_val_get(ck_val_at(list, 0),
							     "sharding_metadata"), "data"),
				       "global_shape"), &dim, &n) && !n);
	t = *skip ? NULL : find_tensor(r, part[1].str, true);
	for (s = t ? t->state : NULL; s && strcmp(s->name, part[2].str) != 0;)
		s = s->next;
	return s;
}

static int check_path(struct check *c, const struct ck_val *key, const struct ck_val *list,
		      bool optim, struct ckpt_err *err)
{
	struct ck_json doc = CK_JSON_INIT;
	struct ckpt_err why = { 0 };
	struct rk_state *s;
	bool skip, ok;
	int rc;

	c->text = ck_val_str(key);
	if (!c->text)
		return ck_fail(err, CKPT_E_CORRUPT, c->r->tc->path, CKPT_NO_OFFSET,
			       "a path in it is no string");
	rc = ck_json_parse(&doc, c->text, strlen(c->text), &c->r->in->limits, 0, c->r->tc->path,
			   &why);
	if (rc == -CKPT_E_NOMEM)
		rc = ck_fail_nomem(err, "a path", 0);
	ok = !rc && doc.tok[0].type == CK_JSON_ARRAY && doc.tok[0].n;
	for (uint32_t i = 0; ok && i < doc.tok[0].n; i++)
		ok = doc.tok[1 + i].type == CK_JSON_STRING || (doc.tok[1 + i].type ==
							       CK_JSON_NUMBER && i);
	if (rc != -CKPT_E_NOMEM && !ok)
		rc = ck_fail(err, CKPT_E_CORRUPT, c->r->tc->path, CKPT_NO_OFFSET,
			     "%.120s is no path of names", c->text);
	if (!rc && optim && !strcmp(doc.tok[1].str, "state"))
		for (uint32_t i = 1; !rc && i < 3 && i < doc.tok[0].n; i++)
			if (doc.tok[1 + i].type != CK_JSON_STRING)
				rc = bad(c, "name", err);
	if (!rc) {
		s = find_state(c->r, &doc, optim, list, &skip);
		if (s)
			s->listed = true;
		if (s)
			rc = check_state(c, s, list, err);
		else if (!skip && !c->r->incomplete)
			ck_findings_add(c->r->f, CK_FINDING_NAMES_WRONG, c->text,
					"%s lists it, but the files have no such tensor",
					c->r->tc->path);
	}
	ck_json_release(&doc);
	return rc;
}

static void check_listed(struct rk *r)
{
	for (uint64_t i = 0; i < r->ntensors; i++) {
		if (!r->tensor[i].weight.listed)
			ck_findings_add(r->f, CK_FINDING_NAMES_WRONG, r->tensor[i].full,
					"the files have it, but %s does not list it", r->tc->path);
		for (const struct rk_state *s = r->tensor[i].state; s; s = s->next)
			if (!s->listed)
				ck_findings_add(r->f, CK_FINDING_NAMES_WRONG, r->tensor[i].full,
						"the files have its %s, but %s does not list it",
						s->name, r->tc->path);
	}
}

int ck_rk_tc_check(struct rk *r, struct ckpt_err *err)
{
	struct check c = {
		.r = r,
		.entry_of = ck_arena_alloc(&r->arena, r->world * sizeof(*c.entry_of)),
		.place_of = ck_arena_alloc(&r->arena, r->world * sizeof(*c.place_of)),
	};
	int rc = c.entry_of && c.place_of ? 0 : ck_fail_nomem(err, "a list of ranks", r->world);

	for (uint64_t k = 0; k < r->tc->nitems; k++) {
		const struct rk_tc_item *item = &r->tc->item[k];
		struct ck_val *const *pair;
		uint64_t n = 0;

		if (item->kind == RK_EXTRA)
			continue;
		ck_val_pairs(item->paths, &pair, &n);
		for (uint64_t i = 0; !rc && i < n; i++)
			rc = check_path(&c, pair[2 * i], pair[2 * i + 1], item->kind == RK_OPTIM,
					err);
	}
	if (!rc)
		check_listed(r);
	ck_free(c.entry);
	return rc;
}
