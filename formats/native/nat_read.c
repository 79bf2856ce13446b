/*
 * nat_read.c -- the manifest, or those of ranks that share no storage, into an index.  Every rule
 * of docs/formats/native.md, 6, that can be checked without reading other files is checked here and
 * in nat_tensors.c.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ckpt_zero.h>

#include "formats/native/ck_nat_read.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_map.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/io/ck_fs.h"
#include "libckpt/io/ck_mount.h"
#include "libckpt/json/ck_json_out.h"

#define MOST_NAME 255u

void ck_nat_turn_to(struct ck_nat_reading *r, uint32_t part)
{
	r->path = r->part[part].path;
	r->doc = &r->part[part].doc;
	r->tensor_tok = r->part[part].tensor_tok;
}

int ck_nat_bad(const struct ck_nat_reading *r, uint64_t tok, const char *what, struct ckpt_err *err)
{
	return ck_fail(err, CKPT_E_CORRUPT, r->path,
		       tok < r->doc->n ? r->doc->tok[tok].off : CKPT_NO_OFFSET, "%s", what);
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

const char *ck_nat_text_of(const struct ck_nat_reading *r, uint64_t obj, const char *key)
{
	return text_at(r->doc, ck_json_get(r->doc, obj, key));
}

bool ck_nat_u64_of(const struct ck_nat_reading *r, uint64_t obj, const char *key, uint64_t *out)
{
	const uint64_t t = ck_json_get(r->doc, obj, key);

	return t != UINT64_MAX && ck_json_u64(r->doc, t, out);
}

bool ck_nat_i64_of(const struct ck_nat_reading *r, uint64_t obj, const char *key, int64_t *out)
{
	const uint64_t t = ck_json_get(r->doc, obj, key);

	return t != UINT64_MAX && ck_json_i64(r->doc, t, out);
}

/* The value of a member of that type, or UINT64_MAX. */
uint64_t ck_nat_member(const struct ck_nat_reading *r, uint64_t obj, const char *key,
		       enum ck_json_type type)
{
	const uint64_t t = ck_json_get(r->doc, obj, key);

	return t != UINT64_MAX && r->doc->tok[t].type == type ? t : UINT64_MAX;
}

bool ck_nat_same_text(const struct ck_nat_reading *r, uint64_t obj, const char *key,
		      const char *want)
{
	const char *text = r->doc->tok[obj].type == CK_JSON_OBJECT ? ck_nat_text_of(r, obj, key) :
			   NULL;

	return text && !strcmp(text, want);
}

bool ck_nat_is_true(const struct ck_nat_reading *r, uint64_t obj, const char *key)
{
	return ck_nat_member(r, obj, key, CK_JSON_TRUE) != UINT64_MAX;
}

/* ---- what the step is ---- */

static int check_format(const struct ck_nat_reading *r, struct ckpt_err *err)
{
	static const char prefix[] = "zckpt-native/";
	const char *format = ck_nat_text_of(r, 0, "format");

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

static int take_checkpoint(struct ck_nat_reading *r, struct ckpt_err *err)
{
	const uint64_t c = ck_nat_member(r, 0, "checkpoint", CK_JSON_OBJECT);
	struct ck_index *ix = r->ix;
	int64_t stage, step;
	uint64_t world, groups;

	if (c == UINT64_MAX || !ck_nat_i64_of(r, c, "stage", &stage) ||
	    !ck_nat_i64_of(r, c, "step", &step) || !ck_nat_u64_of(r, c, "world", &world) ||
	    !ck_nat_u64_of(r, c, "groups", &groups) || stage < -1 || stage > 3 || step < -1 ||
	    world > UINT32_MAX || groups > INT32_MAX)
		return ck_nat_bad(r, c, "\"checkpoint\" lacks its stage, step, world or groups, or "
				  "they are out of range", err);
	ix->stage = (int32_t)stage;
	ix->step = step;
	ix->world = (uint32_t)world;
	ix->ngroups = groups;
	ix->writer = lend(ix, ck_nat_text_of(r, c, "writer"));
	ix->optimizer = lend(ix, ck_nat_text_of(r, c, "optimizer"));
	return 0;
}

static int take_facts(struct ck_nat_reading *r, struct ckpt_err *err)
{
	const struct ck_json *d = r->doc;
	const uint64_t list = ck_nat_member(r, 0, "facts", CK_JSON_ARRAY);
	int rc = 0;

	if (list == UINT64_MAX)
		return ck_nat_bad(r, 0, "the list \"facts\" is missing", err);
	for (uint64_t i = list + 1; !rc && i < d->tok[list].next; i = d->tok[i].next) {
		const bool pair = d->tok[i].type == CK_JSON_ARRAY && d->tok[i].n == 2;
		const char *key = pair ? text_at(d, i + 1) : NULL;
		const char *value = pair ? text_at(d, i + 2) : NULL;

		rc = key && value ? ck_index_add_fact(r->ix, err, key, "%s", value) :
		     ck_nat_bad(r, i, "an entry of \"facts\" is not a pair of strings", err);
	}
	return rc;
}

/* ---- files ---- */

static int open_file(struct ck_nat_reading *r, struct ck_nat_file *f, const struct ck_tree_entry *e,
		     struct ckpt_err *err)
{
	struct ck_src *src;
	uint8_t size[8];
	int rc = ck_src_open(r->pool, e->path, &src, err);

	if (rc)
		return rc;
	if (f->head)
		ck_src_known(src, CK_KNOWN_SUMS);
	ck_put_le64(size, f->bytes);
	ck_hasher_add(r->ix->fingerprint, f->name, strlen(f->name) + 1);
	ck_hasher_add(r->ix->fingerprint, size, sizeof(size));
	return ck_index_add_source(r->ix, e->path, src, f->rank, &f->source, err);
}

static int find_file(struct ck_nat_reading *r, struct ck_nat_file *f, struct ckpt_err *err)
{
	const struct ck_tree_entry *e = ck_tree_find(r->tree, f->name);

	f->source = CK_NONE;
	if (!e || e->is_dir || e->is_odd) {
		ck_findings_add(r->f, CK_FINDING_RANK_FILE_MISSING, f->name,
				"missing; the manifest lists it with %" PRIu64 " bytes (was "
				"the copy interrupted?)", f->bytes);
		return 0;
	}
	if (e->bytes != f->bytes) {
		ck_findings_add(r->f, CK_FINDING_LENGTH_WRONG, f->name,
				"it has %" PRIu64 " bytes, the manifest says %" PRIu64 " "
				"(was the copy interrupted, or is it a file of another "
				"step?)", e->bytes,
				f->bytes);
		return 0;
	}
	return open_file(r, f, e, err);
}

static int state_head(struct ck_nat_reading *r, const struct ck_nat_file *f, struct ckpt_err *err)
{
	const struct ck_stated_head head = {
		.bytes = f->head, .hash = f->hash, .source = f->source,
	};

	return f->head && f->source != CK_NONE ? ck_index_add_stated_head(r->ix, &head, err) : 0;
}

static int take_file(struct ck_nat_reading *r, uint64_t obj, struct ck_map *seen, uint64_t base,
		     struct ckpt_err *err)
{
	struct ck_nat_file *f = &r->nat->file[r->nat->nfiles];
	const char *name = NULL;
	uint64_t rank, at = 0;
	int rc;

	if (r->doc->tok[obj].type == CK_JSON_OBJECT)
		name = ck_nat_text_of(r, obj, "name");
	if (!name || !name[0] || strchr(name, '/') || !strcmp(name, ".") || !strcmp(name, "..") ||
	    !ck_nat_u64_of(r, obj, "bytes", &f->bytes) || !ck_nat_u64_of(r, obj, "rank", &rank) ||
	    !ck_nat_u64_of(r, obj, "head", &f->head) || rank > INT32_MAX || f->head > f->bytes ||
	    (f->head && !ck_json_hash(r->doc, ck_json_get(r->doc, obj, "hash"), &f->hash)))
		return ck_nat_bad(r, obj, "an entry of \"files\" lacks its name, bytes, rank, head "
				  "or hash, or they are out of range", err);
	f->rank = (int32_t)rank;
	f->name = ck_arena_strdup(&r->nat->arena, name);
	if (!f->name)
		return ck_fail_nomem(err, "a file name", strlen(name));
	rc = ck_map_add(seen, f->name, strlen(f->name), r->nat->nfiles, &at, err);
	if (rc > 0 && (r->nparts == 1 || f->head || at >= base ||
		       r->nat->file[at].bytes != f->bytes))
		return ck_nat_bad(r, obj, "\"files\" has this name twice", err);
	f->again = rc > 0;	/* values of rank 0, which all parts know of */
	f->source = f->again ? r->nat->file[at].source : CK_NONE;
	rc = rc > 0 ? 0 : rc;
	if (!rc && !f->again)
		rc = find_file(r, f, err);
	r->nat->nfiles += !rc;
	return rc ? rc : state_head(r, f, err);
}

static int take_part_files(struct ck_nat_reading *r, uint32_t part, struct ck_map *seen,
			   struct ckpt_err *err)
{
	const uint64_t list = ck_nat_member(r, 0, "files", CK_JSON_ARRAY), base = r->nat->nfiles;
	int rc = 0;

	r->part[part].files = base;
	for (uint64_t i = list + 1; !rc && i < r->doc->tok[list].next; i = r->doc->tok[i].next)
		rc = take_file(r, i, seen, base, err);
	r->part[part].nfiles = r->nat->nfiles - base;
	return rc;
}

static int count_files(struct ck_nat_reading *r, uint64_t *n_out, struct ckpt_err *err)
{
	uint64_t n = 0;

	for (uint32_t p = 0; p < r->nparts; p++) {
		uint64_t list;

		ck_nat_turn_to(r, p);
		list = ck_nat_member(r, 0, "files", CK_JSON_ARRAY);
		if (list == UINT64_MAX)
			return ck_nat_bad(r, 0, "the list \"files\" is missing", err);
		n += r->doc->tok[list].n;
		if (n > r->limits->files)
			return ck_fail_limit(err, r->path, r->doc->tok[list].off, "files",
					     r->limits->files, "the manifest lists %" PRIu64 " "
						     "files", n);
	}
	*n_out = n;
	return 0;
}

static int take_files(struct ck_nat_reading *r, struct ckpt_err *err)
{
	struct ck_map seen = CK_MAP_INIT;
	uint64_t n = 0;
	int rc = count_files(r, &n, err);

	if (rc)
		return rc;
	r->nat->file = ck_arena_zalloc(&r->nat->arena, (n + 1) * sizeof(*r->nat->file));
	if (!r->nat->file)
		return ck_fail_nomem(err, "a list of files", n);
	for (uint32_t p = 0; !rc && p < r->nparts; p++) {
		ck_nat_turn_to(r, p);
		rc = take_part_files(r, p, &seen, err);
	}
	ck_map_release(&seen);
	return rc;
}

/* ---- files that go along ---- */

/* Below a folder: not absolute, and no component that is empty, '.', '..' or too long. */
static bool is_below(const char *name)
{
	for (const char *p = name; ; p++) {
		const size_t n = strcspn(p, "/");

		if (!n || n > MOST_NAME || (n <= 2 && !strncmp(p, "..", n)))
			return false;
		p += n;
		if (!*p)
			return true;
	}
}

static int take_along(struct ck_nat_reading *r, uint64_t obj, const char *dir, struct ckpt_err *err)
{
	struct ck_stated_file f = { .dir = dir };

	if (r->doc->tok[obj].type == CK_JSON_OBJECT)
		f.name = ck_nat_text_of(r, obj, "name");
	if (!f.name || !is_below(f.name) || !ck_nat_u64_of(r, obj, "bytes", &f.bytes) ||
	    f.bytes > INT64_MAX || !ck_json_hash(r->doc, ck_json_get(r->doc, obj, "sum"), &f.sum))
		return ck_nat_bad(r, obj, "an entry of \"beside\" lacks its name, bytes or sum, or "
				  "they are out of range", err);
	return ck_index_add_stated_file(r->ix, &f, err);
}

static int take_beside(struct ck_nat_reading *r, struct ckpt_err *err)
{
	const struct ck_json *d = r->doc;
	const uint64_t list = ck_json_get(d, 0, "beside");
	char *parent;
	const char *dir;
	int rc;

	if (list == UINT64_MAX)
		return 0;
	if (d->tok[list].type != CK_JSON_ARRAY)
		return ck_nat_bad(r, list, "\"beside\" is not a list", err);
	if (d->tok[list].n > r->limits->files)
		return ck_fail_limit(err, r->path, d->tok[list].off, "files", r->limits->files,
				     "the manifest lists %" PRIu32 " files beside the step's",
				     d->tok[list].n);
	parent = ck_fs_parent(r->path);
	dir = parent ? ck_arena_strdup(&r->ix->arena, parent) : NULL;
	rc = dir ? 0 : ck_fail_nomem(err, "a path", 0);
	for (uint64_t i = list + 1; !rc && i < d->tok[list].next; i = d->tok[i].next)
		rc = take_along(r, i, dir, err);
	ck_free(parent);
	return rc;
}

static int take_all_beside(struct ck_nat_reading *r, struct ckpt_err *err)
{
	int rc = 0;

	for (uint32_t p = 0; !rc && p < r->nparts; p++) {
		ck_nat_turn_to(r, p);
		rc = take_beside(r, err);
	}
	return rc;
}

/* ---- */

static int take_all(struct ck_nat_reading *r, struct ckpt_err *err)
{
	int rc;

	ck_nat_turn_to(r, 0);
	r->nat->id = ck_arena_strdup(&r->nat->arena, r->part[0].id);
	if (!r->nat->id)
		return ck_fail_nomem(err, "an id", 32);
	/* With ids and sums: what they tell of. */
	for (uint32_t p = 0; p < r->nparts; p++) {
		const struct ck_hash128 hash = ck_hash128(r->part[p].text, r->part[p].len);

		ck_hasher_add(r->ix->fingerprint, &hash, sizeof(hash));
	}
	rc = take_checkpoint(r, err);
	if (!rc)
		rc = take_facts(r, err);
	if (!rc)
		rc = take_files(r, err);
	if (!rc)
		rc = take_all_beside(r, err);
	return rc ? rc : ck_nat_tensors(r, err);
}

/* The manifest, or a rank's: whole, and of this version. */
static int open_part(struct ck_nat_reading *r, const struct ck_tree_entry *e, struct ck_nat_part *p,
		     struct ckpt_err *err)
{
	int rc;

	r->path = p->path = e->path;
	r->doc = &p->doc;
	rc = ck_src_watch(r->pool, e->path, err);
	if (!rc)
		rc = ck_look_read(r->pool, e->path, r->limits->header_bytes, &p->text,
				  &p->len, err);
	if (!rc)
		rc = ck_json_parse(&p->doc, p->text, p->len, r->limits, 0, r->path, err);
	if (!rc && p->doc.tok[0].type != CK_JSON_OBJECT)
		rc = ck_nat_bad(r, 0, "it is not a JSON object", err);
	if (!rc)
		rc = check_format(r, err);
	if (!rc)
		rc = ck_json_check_sum(&p->doc, r->path, err);
	if (rc)
		return rc;
	p->id = ck_nat_text_of(r, 0, "id");
	return p->id && strlen(p->id) == 32 ? 0 :
	       ck_nat_bad(r, 0, "it has no id of 32 digits", err);
}

static void close_part(struct ck_nat_part *p)
{
	ck_json_release(&p->doc);
	ck_free(p->text);
}

/* "manifest-00003.json" */
static bool is_part(const struct ck_tree_entry *e)
{
	const char *end = strncmp(e->name, "manifest-", 9) ? NULL :
			  e->name + 9 + strspn(e->name + 9, "0123456789");

	return end && end - e->name >= 14 && !strcmp(end, ".json") && !e->is_dir && !e->is_odd;
}

static bool has_part(const struct ck_tree *tree)
{
	for (uint64_t i = 0; i < tree->n; i++)
		if (is_part(&tree->entry[i]))
			return true;
	return false;
}

/* Two of the three: what lacks one is a step that is damaged, and no other thing. */
bool ck_nat_is_step(const struct ck_tree *tree)
{
	return !!ck_tree_find(tree, "rest.pt") + !!ck_tree_find(tree, CK_NAT_MANIFEST) +
	       !!ck_tree_find(tree, "rank-00000.safetensors") > 1 || has_part(tree);
}

/* ---- manifests of ranks that share no storage ---- */

static int add_part(struct ck_nat_reading *r, const struct ck_tree_entry *e, struct ckpt_err *err)
{
	int rc = ck_grow(&r->part, &r->part_cap, r->nparts + 1ull, sizeof(*r->part), err);

	if (rc)
		return rc;
	r->part[r->nparts] = (struct ck_nat_part){ .doc = CK_JSON_INIT };
	return open_part(r, e, &r->part[r->nparts++], err);
}

/* "part": the rank and the ranks of the save.  A part of another save is left out. */
static int check_part(struct ck_nat_reading *r, const char *name, uint32_t *ranks,
		      struct ckpt_err *err)
{
	const struct ck_nat_part *p = &r->part[r->nparts - 1];
	const uint64_t list = ck_nat_member(r, 0, "part", CK_JSON_ARRAY);
	uint64_t rank, n;

	if (list == UINT64_MAX || p->doc.tok[list].n != 2 ||
	    !ck_json_u64(&p->doc, list + 1, &rank) || !ck_json_u64(&p->doc, list + 2, &n) ||
	    rank >= n || n > CKPT_ZERO_MAX_WORLD)
		return ck_nat_bad(r, 0, "\"part\" is not [rank, ranks]", err);
	if (rank != strtoul(name + 9, NULL, 10))
		ck_findings_add(r->f, CK_FINDING_RANK_FILE_SWAPPED, name,
				"by its contents this is the manifest of rank %" PRIu64, rank);
	else if (r->nparts > 1 && (strcmp(p->id, r->part[0].id) || n != *ranks))
		ck_findings_add(r->f, CK_FINDING_STEP_MIXED, name,
				"it is of save %.32s by %" PRIu64 " ranks, %s is of save %.32s "
				"by %" PRIu32 " (folders of two saves?)", p->id, n,
				ck_fs_base(r->part[0].path), r->part[0].id, *ranks);
	else {
		*ranks = (uint32_t)n;
		return 0;
	}
	close_part(&r->part[--r->nparts]);
	r->lacks = true;
	return 0;
}

static void name_missing(struct ck_nat_reading *r, uint32_t ranks)
{
	for (uint32_t k = 0; k < ranks; k++) {
		char name[32];

		snprintf(name, sizeof(name), "manifest-%05" PRIu32 ".json", k);
		if (ck_tree_find(r->tree, name))
			continue;
		r->lacks = true;
		ck_findings_add(r->f, CK_FINDING_RANK_FILE_MISSING, name,
				"missing; each of %" PRIu32 " ranks saved this step on storage "
				"of its own (give the folders of all ranks, or copy their files "
				"into one)", ranks);
	}
}

static int open_parts(struct ck_nat_reading *r, struct ckpt_err *err)
{
	uint32_t ranks = 0;
	int rc = 0;

	for (uint64_t i = 0; !rc && i < r->tree->n; i++) {
		const struct ck_tree_entry *e = &r->tree->entry[i];

		if (!is_part(e))
			continue;
		rc = add_part(r, e, err);
		if (!rc)
			rc = check_part(r, e->name, &ranks, err);
	}
	if (!rc)
		name_missing(r, ranks);
	if (!rc && !r->nparts)
		rc = ck_fail(err, CKPT_E_INCOMPLETE, r->path, CKPT_NO_OFFSET,
			     "every manifest here names another rank than its file name: "
			     "were they renamed?");
	return rc;
}

int ck_nat_read(struct ck_nat *nat, const struct ck_tree *tree, const char *where,
		const struct ckpt_limits *limits, struct ck_fdpool *pool, struct ck_index *ix,
		struct ck_findings *f, struct ckpt_err *err)
{
	struct ck_nat_reading r = {
		.nat = nat, .tree = tree, .limits = limits, .pool = pool, .ix = ix, .f = f,
		.path = where,
	};
	const struct ck_tree_entry *e = ck_tree_find(tree, CK_NAT_MANIFEST);
	int rc;

	nat->arena.limit = limits->memory_bytes;
	if ((!e || e->is_dir) && !has_part(tree))
		return ck_fail(err, CKPT_E_INCOMPLETE, where, CKPT_NO_OFFSET,
			       "no " CK_NAT_MANIFEST " here, which a save writes last: this "
			       "save did not finish");
	rc = e && !e->is_dir ? add_part(&r, e, err) : open_parts(&r, err);
	if (!rc)
		rc = take_all(&r, err);
	for (uint32_t p = 0; p < r.nparts; p++)
		close_part(&r.part[p]);
	ck_free(r.part);
	ck_free(r.piece);
	return rc;
}

void ck_nat_release(struct ck_nat *nat)
{
	ck_arena_release(&nat->arena);
	memset(nat, 0, sizeof(*nat));
}
