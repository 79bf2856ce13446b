/*
 * ck_pt_index.c -- every tensor of a value tree, by its path, into an index.
 *
 * The walk is depth first and bounded.  A node on the way down is marked, so a knot is
 * not followed; a node below which nothing was found is marked too and never entered
 * again, so sharing without tensors costs nothing.  Sharing with tensors is what tied
 * containers are: there may be MORE_PATHS to a value, on the average.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/torch_pt/ck_pt_priv.h"
#include "libckpt/base/ck_buf.h"
#include "libckpt/base/ck_sys.h"

#define MORE_PATHS 16u
#define FREE_PATHS 10000u
#define COMPARED ((uint64_t)50000000)	/* keys, where some are doubled */

enum { ON_PATH = 1, BARREN = 2 };

struct indexer {
	const struct ck_pt *pt;
	uint32_t source;
	uint32_t max_depth, name_bytes;
	struct ck_index *ix;
	struct ck_findings *findings;
	struct ck_buf name;		/* steps so far, joined by dots */
	size_t *cut;			/* where each step begins in 'name' */
	uint64_t ncuts, cut_cap;
	struct ck_map views;		/* elements -> tensor */
	struct ck_map numbers;		/* name -> what to number the next one by (uint32_t *) */
	struct ck_arena keys;		/* of these two */
	struct ck_val **barren;
	uint64_t nbarren, barren_cap;
	uint64_t visits, found, compared;
	uint64_t before;		/* tensors that were in the index already */
	bool odd;			/* a step was escaped */
};

static int walk(struct indexer *w, struct ck_val *v, uint32_t depth, struct ckpt_err *err);

/* ---- steps ---- */

static int put_text(struct indexer *w, const char *p, uint64_t n, struct ckpt_err *err)
{
	int rc = 0;

	if (n > w->name_bytes || w->name.len > w->name_bytes - n)
		return ck_fail_limit(err, w->pt->where, CKPT_NO_OFFSET, "name_bytes",
				     w->name_bytes, "a tensor's name, made of keys, has %zu "
					     "bytes",
				     w->name.len + (size_t)n);
	for (uint64_t i = 0; !rc && i < n; i++) {
		const uint8_t c = (uint8_t)p[i];

		/* 0xED 0xA0..0xBF begins a lone surrogate, which is no UTF-8. */
		if (c < 0x20 || c == 0x7f ||
		    (c == 0xed && i + 1 < n && (uint8_t)p[i + 1] >= 0xa0)) {
			w->odd = true;
			rc = ck_buf_addf(&w->name, err, "\\x%02x", c);
			for (int k = 0; !rc && c == 0xed && k < 2 && i + 1 < n; k++)
				rc = ck_buf_addf(&w->name, err, "\\x%02x", (uint8_t)p[++i]);
		} else {
			rc = ck_buf_add(&w->name, p + i, 1, err);
		}
	}
	return rc;
}

static int put_key(struct indexer *w, const struct ck_val *k, unsigned depth,
		   struct ckpt_err *err)
{
	int rc;

	switch ((enum ck_val_kind)k->kind) {
	case CK_VAL_STR:
		return put_text(w, k->u.str.p, k->u.str.len, err);
	case CK_VAL_INT:
		return ck_buf_addf(&w->name, err, "%" PRId64, k->u.i);
	case CK_VAL_BOOL:
		return ck_buf_adds(&w->name, k->u.b ? "True" : "False", err);
	case CK_VAL_NONE:
		return ck_buf_adds(&w->name, "None", err);
	case CK_VAL_FLOAT:
		return ck_buf_addf(&w->name, err, "%.17g", k->u.f);
	case CK_VAL_BIGINT:
	case CK_VAL_BYTES:
		rc = ck_buf_adds(&w->name, k->kind == CK_VAL_BYTES ? "b'" : "int'", err);
		for (uint64_t i = 0; !rc && i < k->u.str.len && i < 64; i++)
			rc = ck_buf_addf(&w->name, err, "%02x", (uint8_t)k->u.str.p[i]);
		return rc ? rc : ck_buf_adds(&w->name, "'", err);
	case CK_VAL_TUPLE:
		rc = ck_buf_adds(&w->name, "(", err);
		for (uint64_t i = 0; !rc && depth && i < k->u.seq.n && i < 16; i++) {
			rc = i ? ck_buf_adds(&w->name, ", ", err) : 0;
			if (!rc)
				rc = put_key(w, k->u.seq.item[i], depth - 1, err);
		}
		return rc ? rc : ck_buf_adds(&w->name, ")", err);
	case CK_VAL_GLOBAL:
		return ck_buf_addf(&w->name, err, "%s.%s", k->u.global.module, k->u.global.name);
	default:
		return ck_buf_adds(&w->name, "object", err);
	}
}

static int step_begin(struct indexer *w, struct ckpt_err *err)
{
	int rc = ck_grow(&w->cut, &w->cut_cap, w->ncuts + 1, sizeof(*w->cut), err);

	if (!rc && w->ncuts)
		rc = ck_buf_adds(&w->name, ".", err);
	if (!rc)
		w->cut[w->ncuts++] = w->name.len;
	return rc;
}

static void step_end(struct indexer *w)
{
	const size_t at = w->cut[--w->ncuts];

	w->name.len = at ? at - !!w->ncuts : 0;
	if (w->name.p)
		w->name.p[w->name.len] = 0;
}

/* ---- tensors ---- */

/* The steps with their own dots and backslashes escaped: no two paths give the same. */
static int escaped_name(const struct indexer *w, struct ck_buf *out, struct ckpt_err *err)
{
	uint64_t next = 1;
	int rc = 0;

	for (size_t i = 0; !rc && i < w->name.len; i++) {
		const char c = w->name.p[i];
		const bool join = next < w->ncuts && i + 1 == w->cut[next];

		next += join;
		if (!join && (c == '.' || c == '\\'))
			rc = ck_buf_adds(out, "\\", err);
		if (!rc)
			rc = ck_buf_add(out, &c, 1, err);
	}
	return rc;
}

/* A tensor of another file has the name: 1, and the first one counts. */
static int is_foreign(struct indexer *w, uint32_t tensor, struct ckpt_err *err)
{
	const char *name = w->ix->tensor[tensor].name;

	if (tensor >= w->before)
		return 0;
	if (!w->findings)
		return ck_fail(err, CKPT_E_MISMATCH, name, CKPT_NO_OFFSET,
			       "two files hold a tensor of this name");
	ck_findings_add(w->findings, CK_FINDING_TENSOR_DUPLICATE, name,
			"it is in %s and in an earlier file", ck_src_name(w->pt->src));
	return 1;
}

/* The path as a name: a single step is itself, so that a flat state dict keeps its names. */
static int path_name(const struct indexer *w, struct ck_buf *out, struct ckpt_err *err)
{
	if (!w->ncuts)
		return ck_buf_adds(out, "tensor", err);
	if (w->ncuts == 1)
		return ck_buf_add(out, w->name.p ? w->name.p : "", w->name.len, err);
	return escaped_name(w, out, err);
}

/* With which number to begin; names that clash by the thousand would else be tried one by one. */
static uint32_t *number_of(struct indexer *w, const struct ck_buf *name, struct ckpt_err *err)
{
	const char *p = name->p ? name->p : "";
	uint64_t at = 0;
	uint32_t *number;
	char *key;

	if (ck_map_find(&w->numbers, p, name->len, &at))
		return (uint32_t *)(uintptr_t)at;
	key = ck_arena_strndup(&w->keys, p, name->len);
	number = ck_arena_alloc(&w->keys, sizeof(*number));
	if (!key || !number) {
		ck_fail_nomem(err, "a name", name->len);
		return NULL;
	}
	*number = 2;
	return ck_map_add(&w->numbers, key, name->len, (uint64_t)(uintptr_t)number, NULL, err) ?
	       NULL : number;
}

/* Another tensor has the name: number this one. */
static int numbered_name(struct indexer *w, struct ck_buf *name, const struct ck_tensor_ref *t,
			 enum ckpt_role role, uint32_t *out, struct ckpt_err *err)
{
	const size_t len = name->len;
	uint32_t *number = number_of(w, name, err);
	int rc = number ? 1 : -CKPT_E_NOMEM;

	while (rc == 1) {
		name->len = len;
		rc = ck_buf_addf(name, err, "~%u", (*number)++);
		if (!rc)
			rc = ck_index_add_tensor(w->ix, name->p, t->shape, t->ndim, role, out, err);
	}
	if (!rc && w->findings)
		ck_findings_add(w->findings, CK_FINDING_NAME_ODD, name->p,
				"two tensors have the path '%.*s'; this is the later one", (int)len,
				name->p);
	return rc;
}

/* Add the tensor under its path; 1 if it is not to be filled. */
static int tensor_name(struct indexer *w, const struct ck_tensor_ref *t, enum ckpt_role role,
		       uint32_t *out, struct ckpt_err *err)
{
	struct ck_buf name = CK_BUF_INIT(2 * w->name.limit + 4096);
	int rc = path_name(w, &name, err);

	if (!rc)
		rc = ck_index_add_tensor(w->ix, name.p ? name.p : "", t->shape, t->ndim, role, out,
					 err);
	if (rc == 1) {
		rc = is_foreign(w, *out, err);
		if (!rc)
			rc = numbered_name(w, &name, t, role, out, err);
	}
	ck_buf_release(&name);
	return rc;
}

int ck_pt_add_state(const struct ck_pt *pt, const struct ck_tensor_ref *t, uint32_t tensor,
		    const char *state, uint32_t source, struct ck_index *ix, struct ckpt_err *err)
{
	struct ck_extent e;
	int rc = ck_index_state_begin(ix, tensor, state, t->dtype, 0, err);

	if (rc)
		return rc;
	if (t->numel) {
		rc = ck_pt_extent(pt, t, 0, t->numel, 0, source, ix->source[source].rank, ix, &e,
				  err);
		if (!rc)
			rc = ck_index_state_extent(ix, &e, err);
	}
	if (rc) {
		ck_index_state_cancel(ix);
		return rc;
	}
	return ck_index_state_end(ix, NULL, err);
}

static int tensor_add(struct indexer *w, const struct ck_tensor_ref *t, struct ckpt_err *err)
{
	uint64_t same = 0;
	uint32_t tensor;
	bool alias;
	size_t n;
	/* empty ones are all different */
	const char *key = ck_pt_view_key(&w->keys, t, (uint64_t)(uintptr_t)t, &n);
	int rc;

	if (!key)
		return ck_fail_nomem(err, "a tensor", 0);
	alias = ck_map_find(&w->views, key, n, &same);
	rc = tensor_name(w, t, alias ? CKPT_ROLE_ALIAS : CKPT_ROLE_PLAIN, &tensor, err);
	if (rc)
		return rc < 0 ? rc : 0;
	if (w->odd && w->findings)
		ck_findings_add(w->findings, CK_FINDING_NAME_ODD, w->ix->tensor[tensor].name,
				"the name has characters that zckpt shows escaped");
	if (alias) {
		w->ix->tensor[tensor].alias_of = same;
		return 0;
	}
	rc = ck_map_add(&w->views, key, n, tensor, NULL, err);
	return rc < 0 ? rc : ck_pt_add_state(w->pt, t, tensor, "weight", w->source, w->ix, err);
}

static int leaf(struct indexer *w, const struct ck_val *v, struct ckpt_err *err)
{
	w->found++;
	if (v->u.obj->tensor)
		return tensor_add(w, v->u.obj->tensor, err);
	if (w->findings)
		ck_findings_add(w->findings, CK_FINDING_TENSOR_OPAQUE,
				w->name.p ? w->name.p : "", "%s: not converted",
				ck_pt_opaque_name(v));
	return 0;
}

/* ---- containers ---- */

static int child(struct indexer *w, struct ck_val *v, uint32_t depth, struct ckpt_err *err)
{
	const bool odd = w->odd;
	int rc = walk(w, v, depth + 1, err);

	step_end(w);
	w->odd = odd;
	return rc;
}

static int walk_seq(struct indexer *w, struct ck_val *const *item, uint64_t n, const char *step,
		    uint32_t depth, struct ckpt_err *err)
{
	int rc = 0;

	for (uint64_t i = 0; !rc && i < n; i++) {
		if (item[i]->kind < CK_VAL_TUPLE || item[i]->kind == CK_VAL_GLOBAL)
			continue;
		rc = step_begin(w, err);
		if (!rc)
			rc = ck_buf_addf(&w->name, err, "%s%" PRIu64, step, i);
		if (!rc)
			rc = child(w, item[i], depth, err);
	}
	return rc;
}

static bool is_later(struct ck_val *const *item, uint64_t n, uint64_t i)
{
	const struct ck_val *k = item[i];

	for (uint64_t j = i + 2; j < n; j += 2) {
		if (item[j]->kind != k->kind)
			continue;
		if (k->kind == CK_VAL_INT ? item[j]->u.i == k->u.i :
		    k->kind == CK_VAL_STR && item[j]->u.str.len == k->u.str.len &&
		    !memcmp(item[j]->u.str.p, k->u.str.p, k->u.str.len))
			return true;
	}
	return false;
}

static int walk_pairs(struct indexer *w, struct ck_val *const *item, uint64_t n, uint32_t depth,
		      struct ckpt_err *err)
{
	const bool odd = w->odd;
	int rc = 0;

	for (uint64_t i = 0; !rc && i < n; i += 2) {
		const struct ck_val *v = item[i + 1];

		if (v->kind < CK_VAL_TUPLE || v->kind == CK_VAL_GLOBAL)
			continue;
		if (w->pt->doubled && (w->compared += n - i) > COMPARED)
			return ck_fail(err, CKPT_E_LIMIT, w->pt->where, CKPT_NO_OFFSET,
				       "dicts with a key twice have too many pairs");
		if (w->pt->doubled && is_later(item, n, i))
			continue;
		rc = step_begin(w, err);
		if (!rc)
			rc = put_key(w, item[i], 3, err);
		if (!rc)
			rc = child(w, item[i + 1], depth, err);
		w->odd = odd;
	}
	return rc;
}

/* Attributes: a dict, or the pair (dict, slots) of classes with __slots__. */
static int walk_state(struct indexer *w, struct ck_val *s, uint32_t depth, struct ckpt_err *err)
{
	int rc = 0;

	if (!s)
		return 0;
	if (s->kind == CK_VAL_DICT)
		return walk_pairs(w, s->u.seq.item, s->u.seq.n, depth, err);
	if (s->kind != CK_VAL_TUPLE)
		return 0;
	for (uint64_t i = 0; !rc && i < s->u.seq.n; i++)
		if (s->u.seq.item[i]->kind == CK_VAL_DICT)
			rc = walk_state(w, s->u.seq.item[i], depth, err);
	return rc;
}

static int walk_object(struct indexer *w, const struct ck_obj *o, uint32_t depth,
		       struct ckpt_err *err)
{
	struct ck_val *const *item;
	uint64_t n;
	int rc = 0;

	if (ck_val_seq(o->args, &item, &n))
		rc = walk_seq(w, item, n, "args", depth, err);
	if (!rc && o->kwargs)
		rc = walk_state(w, o->kwargs, depth, err);
	if (!rc)
		rc = walk_state(w, o->state, depth, err);
	if (!rc)
		rc = walk_seq(w, o->list, o->nlist, "", depth, err);
	return rc ? rc : walk_pairs(w, o->dict, o->ndict, depth, err);
}

static int walk_inside(struct indexer *w, struct ck_val *v, uint32_t depth, struct ckpt_err *err)
{
	switch ((enum ck_val_kind)v->kind) {
	case CK_VAL_DICT:
		return walk_pairs(w, v->u.seq.item, v->u.seq.n, depth, err);
	case CK_VAL_TUPLE:
	case CK_VAL_LIST:
	case CK_VAL_SET:
	case CK_VAL_FROZENSET:
		return walk_seq(w, v->u.seq.item, v->u.seq.n, "", depth, err);
	case CK_VAL_OBJECT:
		return walk_object(w, v->u.obj, depth, err);
	default:
		return 0;
	}
}

static int walk(struct indexer *w, struct ck_val *v, uint32_t depth, struct ckpt_err *err)
{
	const uint64_t found = w->found;
	const uint64_t most = FREE_PATHS + MORE_PATHS * (uint64_t)w->pt->doc.nodes;
	int rc;

	if (++w->visits > most)
		return ck_fail(err, CKPT_E_LIMIT, w->pt->where, CKPT_NO_OFFSET,
			       "more than %" PRIu64 " paths lead through the %u values", most,
			       w->pt->doc.nodes);
	if (ck_pt_call_of(v) != CK_PT_NONE)
		return leaf(w, v, err);
	if (v->mark || v->kind < CK_VAL_TUPLE)
		return 0;
	if (depth > w->max_depth)
		return ck_fail_limit(err, w->pt->where, CKPT_NO_OFFSET, "pickle_depth",
				     w->max_depth, "values are nested too deeply");
	v->mark = ON_PATH;
	rc = walk_inside(w, v, depth, err);
	v->mark = 0;
	if (rc || w->found != found)
		return rc;
	rc = ck_grow(&w->barren, &w->barren_cap, w->nbarren + 1, sizeof(struct ck_val *), err);
	if (rc)
		return rc;
	v->mark = BARREN;
	w->barren[w->nbarren++] = v;
	return 0;
}

int ck_pt_index(const struct ck_pt *pt, uint32_t source, const struct ckpt_limits *limits,
		struct ck_index *ix, struct ck_findings *findings, struct ckpt_err *err)
{
	return ck_pt_index_below(pt, pt->doc.root, source, limits, ix, findings, err);
}

int ck_pt_index_below(const struct ck_pt *pt, struct ck_val *root, uint32_t source,
		      const struct ckpt_limits *limits, struct ck_index *ix,
		      struct ck_findings *findings, struct ckpt_err *err)
{
	struct indexer w = {
		.pt = pt, .source = source, .max_depth = limits->pickle_depth, .ix = ix,
		.findings = findings, .name_bytes = limits->name_bytes,
		.name = CK_BUF_INIT(16 * (size_t)limits->name_bytes + 65536),
	};
	int rc;

	w.keys.limit = limits->memory_bytes;
	w.before = ix->ntensors;
	rc = ck_arena_why(&w.keys, walk(&w, root, 0, err), pt->where, err);
	for (uint64_t i = 0; i < w.nbarren; i++)
		w.barren[i]->mark = 0;
	ck_free(w.barren);
	ck_free(w.cut);
	ck_buf_release(&w.name);
	ck_map_release(&w.views);
	ck_map_release(&w.numbers);
	ck_arena_release(&w.keys);
	if (!rc)
		ck_hasher_add(ix->fingerprint, &pt->fingerprint, sizeof(pt->fingerprint));
	return rc;
}
