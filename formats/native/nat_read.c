/*
 * nat_read.c -- the manifest into an index.  Every rule of docs/formats/native.md, 5, that can be
 * checked without reading other files is checked here.
 */
#include <inttypes.h>
#include <string.h>

#include "formats/native/ck_nat.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_map.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/io/ck_mount.h"
#include "libckpt/json/ck_json_out.h"
#include "libckpt/tensor/ck_dtype.h"

struct reading {
	struct ck_nat *nat;
	const struct ck_tree *tree;
	const struct ckpt_limits *limits;
	struct ck_fdpool *pool;
	struct ck_index *ix;
	struct ck_findings *f;
	const char *path;	/* of the manifest */
	struct ck_json doc;
	uint64_t *tensor_tok;	/* of each tensor of the index */
};

static int bad(const struct reading *r, uint64_t tok, const char *what, struct ckpt_err *err)
{
	return ck_fail(err, CKPT_E_CORRUPT, r->path,
		       tok < r->doc.n ? r->doc.tok[tok].off : CKPT_NO_OFFSET, "%s", what);
}

/* ---- members ---- */

/* A string without NUL, or NULL. */
static const char *text_at(const struct ck_json *d, uint64_t tok)
{
	if (tok == UINT64_MAX || d->tok[tok].type != CK_JSON_STRING ||
	    strlen(d->tok[tok].str) != d->tok[tok].str_len)
		return NULL;
	return d->tok[tok].str;
}

static const char *member_text(const struct reading *r, uint64_t obj, const char *key)
{
	return text_at(&r->doc, ck_json_get(&r->doc, obj, key));
}

static bool member_u64(const struct reading *r, uint64_t obj, const char *key, uint64_t *out)
{
	const uint64_t t = ck_json_get(&r->doc, obj, key);

	return t != UINT64_MAX && ck_json_u64(&r->doc, t, out);
}

static bool member_i64(const struct reading *r, uint64_t obj, const char *key, int64_t *out)
{
	const uint64_t t = ck_json_get(&r->doc, obj, key);

	return t != UINT64_MAX && ck_json_i64(&r->doc, t, out);
}

/* The value of a member of that type, or UINT64_MAX. */
static uint64_t member(const struct reading *r, uint64_t obj, const char *key,
		       enum ck_json_type type)
{
	const uint64_t t = ck_json_get(&r->doc, obj, key);

	return t != UINT64_MAX && r->doc.tok[t].type == type ? t : UINT64_MAX;
}

static bool member_true(const struct reading *r, uint64_t obj, const char *key)
{
	return member(r, obj, key, CK_JSON_TRUE) != UINT64_MAX;
}

/* ---- what the step is ---- */

static int check_format(const struct reading *r, struct ckpt_err *err)
{
	static const char prefix[] = "zckpt-native/";
	const char *format = member_text(r, 0, "format");

	if (!format || strncmp(format, prefix, sizeof(prefix) - 1))
		return ck_fail(err, CKPT_E_FORMAT, r->path, CKPT_NO_OFFSET,
			       "this is not the manifest of a native step");
	if (!strcmp(format, CK_NAT_FORMAT))
		return 0;
	return ck_fail(err, CKPT_E_UNSUPPORTED, r->path, CKPT_NO_OFFSET,
		       "%.60s was written by a newer version; this one reads " CK_NAT_FORMAT,
		       format);
}

static const char *lend(struct ck_index *ix, const char *text)
{
	return text && text[0] ? ck_arena_strdup(&ix->arena, text) : NULL;
}

static int take_checkpoint(struct reading *r, struct ckpt_err *err)
{
	const uint64_t c = member(r, 0, "checkpoint", CK_JSON_OBJECT);
	struct ck_index *ix = r->ix;
	int64_t stage, step;
	uint64_t world, groups;

	if (c == UINT64_MAX || !member_i64(r, c, "stage", &stage) ||
	    !member_i64(r, c, "step", &step) || !member_u64(r, c, "world", &world) ||
	    !member_u64(r, c, "groups", &groups) || stage < -1 || stage > 3 || step < -1 ||
	    world > UINT32_MAX || groups > INT32_MAX)
		return bad(r, c, "\"checkpoint\" lacks its stage, step, world or groups, or they "
			   "are out of range", err);
	ix->stage = (int32_t)stage;
	ix->step = step;
	ix->world = (uint32_t)world;
	ix->ngroups = groups;
	ix->writer = lend(ix, member_text(r, c, "writer"));
	ix->optimizer = lend(ix, member_text(r, c, "optimizer"));
	return 0;
}

static int take_facts(struct reading *r, struct ckpt_err *err)
{
	const struct ck_json *d = &r->doc;
	const uint64_t list = member(r, 0, "facts", CK_JSON_ARRAY);
	int rc = 0;

	if (list == UINT64_MAX)
		return bad(r, 0, "it has no list \"facts\"", err);
	for (uint64_t i = list + 1; !rc && i < d->tok[list].next; i = d->tok[i].next) {
		const bool pair = d->tok[i].type == CK_JSON_ARRAY && d->tok[i].n == 2;
		const char *key = pair ? text_at(d, i + 1) : NULL;
		const char *value = pair ? text_at(d, i + 2) : NULL;

		rc = key && value ? ck_index_add_fact(r->ix, err, key, "%s", value) :
		     bad(r, i, "a fact is no pair of strings", err);
	}
	return rc;
}

/* ---- files ---- */

static int open_file(struct reading *r, struct ck_nat_file *f, const struct ck_tree_entry *e,
		     struct ckpt_err *err)
{
	struct ck_src *src;
	uint8_t size[8];
	int rc = ck_src_open(r->pool, e->path, &src, err);

	if (rc)
		return rc;
	ck_put_le64(size, f->bytes);
	ck_hasher_add(r->ix->fingerprint, f->name, strlen(f->name) + 1);
	ck_hasher_add(r->ix->fingerprint, size, sizeof(size));
	return ck_index_add_source(r->ix, e->path, src, f->rank, &f->source, err);
}

static int find_file(struct reading *r, struct ck_nat_file *f, struct ckpt_err *err)
{
	const struct ck_tree_entry *e = ck_tree_find(r->tree, f->name);

	f->source = CK_NONE;
	if (!e || e->is_dir || e->is_odd) {
		ck_findings_add(r->f, CK_FINDING_RANK_FILE_MISSING, f->name,
				"absent; the manifest lists it with %" PRIu64 " bytes (a copy that "
				"was cut short?)", f->bytes);
		return 0;
	}
	if (e->bytes != f->bytes) {
		ck_findings_add(r->f, CK_FINDING_LENGTH_WRONG, f->name,
				"it has %" PRIu64 " bytes, the manifest says %" PRIu64 " (a copy "
				"that was cut short, or a file of another step?)", e->bytes,
				f->bytes);
		return 0;
	}
	return open_file(r, f, e, err);
}

static int state_head(struct reading *r, const struct ck_nat_file *f, struct ckpt_err *err)
{
	const struct ck_stated_head head = {
		.bytes = f->head, .hash = f->hash, .source = f->source,
	};

	return f->head && f->source != CK_NONE ? ck_index_add_stated_head(r->ix, &head, err) : 0;
}

static int take_file(struct reading *r, uint64_t obj, struct ck_map *seen, struct ckpt_err *err)
{
	struct ck_nat_file *f = &r->nat->file[r->nat->nfiles];
	const char *name = NULL;
	uint64_t rank;
	int rc;

	if (r->doc.tok[obj].type == CK_JSON_OBJECT)
		name = member_text(r, obj, "name");
	if (!name || !name[0] || strchr(name, '/') || !strcmp(name, ".") || !strcmp(name, "..") ||
	    !member_u64(r, obj, "bytes", &f->bytes) || !member_u64(r, obj, "rank", &rank) ||
	    !member_u64(r, obj, "head", &f->head) || rank > INT32_MAX || f->head > f->bytes ||
	    (f->head && !ck_json_hash(&r->doc, ck_json_get(&r->doc, obj, "hash"), &f->hash)))
		return bad(r, obj, "an entry of \"files\" lacks its name, bytes, rank, head or "
			   "hash, or they are out of range", err);
	f->rank = (int32_t)rank;
	f->name = ck_arena_strdup(&r->nat->arena, name);
	if (!f->name)
		return ck_fail_nomem(err, "a file name", strlen(name));
	rc = ck_map_add(seen, f->name, strlen(f->name), r->nat->nfiles, NULL, err);
	if (rc > 0)
		return bad(r, obj, "\"files\" has this name twice", err);
	if (!rc)
		rc = find_file(r, f, err);
	r->nat->nfiles += !rc;
	return rc ? rc : state_head(r, f, err);
}

static int take_files(struct reading *r, struct ckpt_err *err)
{
	const uint64_t list = member(r, 0, "files", CK_JSON_ARRAY);
	struct ck_map seen = CK_MAP_INIT;
	int rc = 0;

	if (list == UINT64_MAX)
		return bad(r, 0, "it has no list \"files\"", err);
	if (r->doc.tok[list].n > r->limits->files)
		return ck_fail_limit(err, r->path, r->doc.tok[list].off, "files",
				     r->limits->files, "%" PRIu32 " files", r->doc.tok[list].n);
	r->nat->file = ck_arena_zalloc(&r->nat->arena,
				       (r->doc.tok[list].n + 1ull) * sizeof(*r->nat->file));
	if (!r->nat->file)
		return ck_fail_nomem(err, "a list of files", r->doc.tok[list].n);
	for (uint64_t i = list + 1; !rc && i < r->doc.tok[list].next; i = r->doc.tok[i].next)
		rc = take_file(r, i, &seen, err);
	ck_map_release(&seen);
	return rc;
}

/* ---- tensors ---- */

static int take_shape(struct reading *r, uint64_t obj, const uint64_t **shape_out,
		      uint32_t *ndim_out, struct ckpt_err *err)
{
	const uint64_t list = member(r, obj, "shape", CK_JSON_ARRAY);
	const uint32_t n = list == UINT64_MAX ? 0 : r->doc.tok[list].n;
	uint64_t *shape;

	if (list == UINT64_MAX)
		return bad(r, obj, "a tensor has no shape", err);
	if (n > r->limits->tensor_dims)
		return ck_fail_limit(err, r->path, r->doc.tok[list].off, "tensor_dims",
				     r->limits->tensor_dims,
				     "a tensor of %" PRIu32 " dimensions", n);
	shape = ck_arena_alloc(&r->nat->arena, (n + 1ull) * sizeof(*shape));
	if (!shape)
		return ck_fail_nomem(err, "a shape", n);
	for (uint32_t d = 0; d < n; d++)	/* items are scalars, or this fails */
		if (!ck_json_u64(&r->doc, list + 1 + d, &shape[d]))
			return bad(r, list, "a shape is no list of sizes", err);
	*shape_out = shape;
	*ndim_out = n;
	return 0;
}

static int take_tensor(struct reading *r, uint64_t obj, struct ckpt_err *err)
{
	const bool is_object = r->doc.tok[obj].type == CK_JSON_OBJECT;
	const char *name = is_object ? member_text(r, obj, "name") : NULL;
	const char *role = is_object ? member_text(r, obj, "role") : NULL;
	const uint64_t *shape = NULL;
	int64_t group;
	uint32_t ndim = 0, number;
	int rc;

	if (!name || !role || !ck_role_parse(role) || !member_i64(r, obj, "group", &group) ||
	    group < -1 || (group >= 0 && (uint64_t)group >= r->ix->ngroups))
		return bad(r, obj, "a tensor lacks its name, role or group, or they are out of "
			   "range", err);
	rc = take_shape(r, obj, &shape, &ndim, err);
	if (!rc)
		rc = ck_index_add_tensor(r->ix, name, shape, ndim, (enum ckpt_role)
					 ck_role_parse(role), &number, err);
	if (rc > 0)
		return bad(r, obj, "\"tensors\" has this name twice", err);
	if (rc)
		return rc;
	r->ix->tensor[number].group = (int32_t)group;
	r->tensor_tok[number] = obj;
	return 0;
}

static int take_alias(struct reading *r, uint32_t number, struct ckpt_err *err)
{
	const char *of = member_text(r, r->tensor_tok[number], "alias_of");
	struct ck_tensor *t = &r->ix->tensor[number];
	uint32_t target;

	if (t->role != CKPT_ROLE_ALIAS)
		return 0;
	if (!of || !ck_index_find(r->ix, of, &target) ||
	    r->ix->tensor[target].role == CKPT_ROLE_ALIAS ||
	    r->ix->tensor[target].numel != t->numel)
		return bad(r, r->tensor_tok[number], "an alias of no tensor, of another alias, or "
			   "of one with another number of elements", err);
	t->alias_of = target;
	return 0;
}

/* ---- states ---- */

static int take_piece(struct reading *r, uint32_t tensor, uint64_t list, enum ckpt_dtype dtype,
		      bool *gone, struct ckpt_err *err)
{
	const struct ck_json *d = &r->doc;
	struct ck_extent e = { .runs = 1, .member = CK_NONE, .view = CK_NONE, .dtype = dtype };
	struct ck_stated_sum sum = { .state = (uint32_t)r->ix->nstates };
	const struct ck_nat_file *f;
	uint64_t file, bytes, end;
	int rc;

	if (d->tok[list].type != CK_JSON_ARRAY || d->tok[list].n < 6 ||
	    !ck_json_u64(d, list + 1, &file) || !ck_json_u64(d, list + 2, &e.off) ||
	    !ck_json_u64(d, list + 3, &e.first) || !ck_json_u64(d, list + 4, &e.count) ||
	    file >= r->nat->nfiles || !e.count)
		return bad(r, list, "a piece is no [file, offset, first, count, sum, ends] with "
			   "elements in a file of the list", err);
	f = &r->nat->file[file];
	rc = ck_dtype_bytes(dtype, e.count, &bytes, err);
	if (rc)
		return rc;
	if (e.off < f->head || ck_add_over(e.off, bytes, &end) || end > f->bytes)
		return ck_fail(err, CKPT_E_CORRUPT, r->path, d->tok[list].off,
			       "a piece of %s at byte %" PRIu64 " of %s has %" PRIu64 " bytes; the "
			       "file has %" PRIu64, r->ix->tensor[tensor].name, e.off, f->name,
			       bytes, f->bytes);
	if (f->source == CK_NONE) {
		*gone = true;	/* a finding says so */
		return 0;
	}
	e.source = f->source;
	e.rank = f->rank;
	sum.first = e.first;
	sum.count = e.count;
	sum.has_ends = ck_json_hash(d, list + 6, &sum.ends);
	rc = ck_index_state_extent(r->ix, &e, err);
	if (!rc && ck_json_hash(d, list + 5, &sum.sum))
		rc = ck_index_add_stated_sum(r->ix, &sum, err);
	return rc;
}

static int take_pieces(struct reading *r, uint32_t tensor, uint64_t list, enum ckpt_dtype dtype,
		       struct ckpt_err *err)
{
	const uint64_t nsums = r->ix->nstated_sums;
	bool gone = false;
	uint32_t state;
	int rc = 0;

	for (uint64_t i = list + 1; !rc && i < r->doc.tok[list].next; i = r->doc.tok[i].next)
		rc = take_piece(r, tensor, i, dtype, &gone, err);
	if (rc || gone) {
		ck_index_state_cancel(r->ix);
		r->ix->nstated_sums = nsums;
		return rc;
	}
	return ck_index_state_end(r->ix, &state, err);
}

static int derive(struct reading *r, uint32_t tensor, const char *name, enum ckpt_dtype dtype,
		  struct ckpt_err *err)
{
	const uint32_t master = ck_index_state_find(r->ix, tensor, "master");

	return master == CK_NONE ? 0 : ck_index_state_derive(r->ix, master, name, dtype, err);
}

static int take_state(struct reading *r, uint32_t tensor, uint64_t obj, bool derived,
		      struct ckpt_err *err)
{
	const bool is_object = r->doc.tok[obj].type == CK_JSON_OBJECT;
	const char *name = is_object ? member_text(r, obj, "name") : NULL;
	const char *type = is_object ? member_text(r, obj, "dtype") : NULL;
	const uint64_t list = is_object ? member(r, obj, "pieces", CK_JSON_ARRAY) : UINT64_MAX;
	const enum ckpt_dtype dtype = type ? ckpt_dtype_parse(type) : 0;
	int rc;

	if (!name || !name[0] || !dtype || list == UINT64_MAX)
		return bad(r, obj, "a state lacks its name, dtype or pieces", err);
	if (member_true(r, obj, "derived") != derived)
		return 0;	/* derived ones in a second round */
	if (ck_index_state_find(r->ix, tensor, name) != CK_NONE)
		return bad(r, obj, "a tensor has two states of this name", err);
	if (derived)
		return derive(r, tensor, name, dtype, err);
	rc = ck_index_state_begin(r->ix, tensor, name, dtype, member_true(r, obj, "per_rank") ?
				  CKPT_STATE_PER_RANK : 0, err);
	return rc ? rc : take_pieces(r, tensor, list, dtype, err);
}

static int take_states(struct reading *r, uint32_t tensor, struct ckpt_err *err)
{
	const uint64_t obj = r->tensor_tok[tensor];
	const uint64_t list = member(r, obj, "states", CK_JSON_ARRAY);
	int rc = 0;

	if (list == UINT64_MAX)
		return bad(r, obj, "a tensor has no list \"states\"", err);
	if (r->ix->tensor[tensor].role == CKPT_ROLE_ALIAS && r->doc.tok[list].n)
		return bad(r, obj, "an alias has states of its own", err);
	for (int derived = 0; derived < 2; derived++)
		for (uint64_t i = list + 1; !rc && i < r->doc.tok[list].next;
		     i = r->doc.tok[i].next)
			rc = take_state(r, tensor, i, derived, err);
	return rc;
}

static int take_tensors(struct reading *r, struct ckpt_err *err)
{
	const uint64_t list = member(r, 0, "tensors", CK_JSON_ARRAY);
	int rc = 0;

	if (list == UINT64_MAX)
		return bad(r, 0, "it has no list \"tensors\"", err);
	r->tensor_tok = ck_arena_zalloc(&r->nat->arena,
					(r->doc.tok[list].n + 1ull) * sizeof(*r->tensor_tok));
	if (!r->tensor_tok)
		return ck_fail_nomem(err, "tensors", r->doc.tok[list].n);
	for (uint64_t i = list + 1; !rc && i < r->doc.tok[list].next; i = r->doc.tok[i].next)
		rc = take_tensor(r, i, err);
	for (uint32_t t = 0; !rc && t < r->ix->ntensors; t++)
		rc = take_alias(r, t, err);
	for (uint32_t t = 0; !rc && t < r->ix->ntensors; t++)
		rc = take_states(r, t, err);
	return rc;
}

/* ---- */

static int take_all(struct reading *r, struct ckpt_err *err)
{
	const char *id;
	int rc = check_format(r, err);

	if (!rc)
		rc = ck_json_check_sum(&r->doc, r->path, err);
	if (rc)
		return rc;
	id = member_text(r, 0, "id");
	if (!id || strlen(id) != 32)
		return bad(r, 0, "it has no id of 32 digits", err);
	r->nat->id = ck_arena_strdup(&r->nat->arena, id);
	if (!r->nat->id)
		return ck_fail_nomem(err, "an id", 32);
	rc = take_checkpoint(r, err);
	if (!rc)
		rc = take_facts(r, err);
	if (!rc)
		rc = take_files(r, err);
	return rc ? rc : take_tensors(r, err);
}

bool ck_nat_is_step(const struct ck_tree *tree)
{
	return ck_tree_find(tree, "rest.pt") &&
	       (ck_tree_find(tree, CK_NAT_MANIFEST) ||
		ck_tree_find(tree, "rank-00000.safetensors"));
}

int ck_nat_read(struct ck_nat *nat, const struct ck_tree *tree, const char *where,
		const struct ckpt_limits *limits, struct ck_fdpool *pool, struct ck_index *ix,
		struct ck_findings *f, struct ckpt_err *err)
{
	struct reading r = {
		.nat = nat, .tree = tree, .limits = limits, .pool = pool, .ix = ix, .f = f,
		.path = where, .doc = CK_JSON_INIT,
	};
	const struct ck_tree_entry *e = ck_tree_find(tree, CK_NAT_MANIFEST);
	char *text = NULL;
	uint64_t len;
	int rc;

	if (!e || e->is_dir)
		return ck_fail(err, CKPT_E_INCOMPLETE, where, CKPT_NO_OFFSET,
			       "no " CK_NAT_MANIFEST " here, which a save puts there last: this "
			       "one never ended");
	r.path = e->path;
	nat->arena.limit = limits->memory_bytes;
	rc = ck_look_read(pool, e->path, limits->header_bytes, &text, &len, err);
	if (!rc)
		rc = ck_json_parse(&r.doc, text, len, limits, 0, r.path, err);
	if (!rc && r.doc.tok[0].type != CK_JSON_OBJECT)
		rc = bad(&r, 0, "it is no JSON object", err);
	if (!rc)
		rc = take_all(&r, err);
	ck_json_release(&r.doc);
	ck_free(text);
	return rc;
}

void ck_nat_release(struct ck_nat *nat)
{
	ck_arena_release(&nat->arena);
	memset(nat, 0, sizeof(*nat));
}
