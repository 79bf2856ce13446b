/*
 * dcp_meta.c -- '.metadata': a pickle of objects that are read by the last part of their class's
 * name and by the keys of their state, because versions of torch move the classes.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/dcp_files/ck_dcp_files.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/io/ck_mount.h"
#include "libckpt/tensor/ck_dtype.h"

struct reading {
	struct dcp_files *fs;
	struct dcp_part *part;
	uint32_t number;		/* of the part */
};

static int fail(const struct dcp_part *part, struct ckpt_err *err, const char *name,
		const char *what)
{
	return ck_fail(err, CKPT_E_CORRUPT, part->path, CKPT_NO_OFFSET,
		       "the entry of '%.200s': %s", name, what);
}

/* ---- objects ---- */

static bool is_object(const struct ck_val *v, const char *cls)
{
	return v && v->kind == CK_VAL_OBJECT && v->u.obj->fn &&
	       v->u.obj->fn->kind == CK_VAL_GLOBAL && !strcmp(v->u.obj->fn->u.global.name, cls);
}

const struct ck_val *ck_dcp_state_of(const struct ck_val *v)
{
	return v && v->kind == CK_VAL_OBJECT ? v->u.obj->state : NULL;
}

/* torch.Size of numbers that are 0 or more. */
bool ck_dcp_sizes_of(struct dcp_files *fs, const struct ck_val *v, const uint64_t **out,
		     uint64_t *n_out)
{
	struct ck_val *const *item;
	uint64_t n, *size;

	if (!ck_val_seq(v, &item, &n) || n > UINT8_MAX)
		return false;
	size = ck_arena_alloc(&fs->arena, (n + 1) * sizeof(*size));
	if (!size)
		return false;
	for (uint64_t i = 0; i < n; i++) {
		int64_t one;

		if (!item[i] || item[i]->kind != CK_VAL_INT || !ck_val_int(item[i], &one) ||
		    one < 0)
			return false;
		size[i] = (uint64_t)one;
	}
	*out = size;
	*n_out = n;
	return true;
}

/* "NAME", a NUL, and the offsets: what a chunk is found by. */
static char *place_key(struct dcp_files *fs, const char *name, const uint64_t *offset, uint64_t n,
		       size_t *len_out)
{
	const size_t len = strlen(name) + 1;
	char *key = ck_arena_alloc(&fs->arena, len + n * sizeof(*offset) + 1);

	if (!key)
		return NULL;
	memcpy(key, name, len);
	if (n)
		memcpy(key + len, offset, n * sizeof(*offset));
	*len_out = len + n * sizeof(*offset);
	return key;
}

/* ---- data files ---- */

/* R of "__R_N.distcp". */
static int32_t rank_of(const char *name)
{
	int32_t rank = 0;
	size_t digits = 0;

	if (strncmp(name, "__", 2))
		return -1;
	for (name += 2; *name >= '0' && *name <= '9' && digits < 7; name++, digits++)
		rank = rank * 10 + (*name - '0');
	return digits && *name == '_' ? rank : -1;
}

static int file_of(struct reading *r, const char *relative, uint32_t *file_out,
		   struct ckpt_err *err)
{
	const struct dcp_part *part = r->part;
	struct dcp_files *fs = r->fs;
	const struct ck_tree_entry *e;
	struct dcp_file *file;
	const char *name;
	uint64_t i;
	int rc;

	if (!*relative || strchr(relative, '/') || !strcmp(relative, ".") ||
	    !strcmp(relative, ".."))
		return ck_fail(err, CKPT_E_UNSAFE, part->path, CKPT_NO_OFFSET,
			       "an item is said to be in '%.200s', which is no file of this "
			       "folder", relative);
	name = *part->sub ? ck_arena_printf(&fs->arena, "%s/%s", part->sub, relative) :
	       ck_arena_strdup(&fs->arena, relative);
	if (!name)
		return ck_fail_nomem(err, "a name", strlen(relative));
	rc = ck_map_add(&fs->by_file, name, strlen(name), fs->nfiles, &i, err);
	if (rc) {
		*file_out = (uint32_t)i;
		return rc < 0 ? rc : 0;
	}
	rc = ck_grow(&fs->file, &fs->file_cap, fs->nfiles + 1, sizeof(*fs->file), err);
	if (rc)
		return rc;
	e = ck_tree_find(&part->tree, relative);
	file = &fs->file[fs->nfiles];
	*file = (struct dcp_file){ .name = name, .rank = rank_of(relative), .source = CK_NONE };
	if (e && !e->is_dir && !e->is_odd) {
		file->path = ck_arena_strdup(&fs->arena, e->path);
		file->bytes = e->bytes;
	}
	*file_out = (uint32_t)fs->nfiles++;
	return 0;
}

/* ---- storage_data: where the chunks are ---- */

static bool number_at(const struct ck_val *dict, const char *key, uint64_t *out)
{
	int64_t n;

	if (!ck_val_int(ck_val_get(dict, key), &n) || n < 0)
		return false;
	*out = (uint64_t)n;
	return true;
}

static int add_place(struct reading *r, const struct ck_val *index, const struct ck_val *info,
		     struct ckpt_err *err)
{
	const struct ck_val *key = ck_dcp_state_of(index), *at = ck_dcp_state_of(info);
	const char *name = ck_val_str(ck_val_get(key, "fqn"));
	const struct ck_val *offset = ck_val_get(key, "offset");
	const char *relative = ck_val_str(ck_val_get(at, "relative_path"));
	struct ck_val *const *list;
	struct dcp_part *part = r->part;
	struct dcp_place place = { .file = CK_NONE };
	const uint64_t *where = NULL;
	uint64_t n = 0, old;
	size_t len;
	char *text;
	int rc;

	if (!is_object(index, "MetadataIndex") || !name || !is_object(info, "_StorageInfo") ||
	    !relative || !number_at(at, "offset", &place.begin) ||
	    !number_at(at, "length", &place.bytes) ||
	    (offset && !ck_val_is_none(offset) && !ck_dcp_sizes_of(r->fs, offset, &where, &n)))
		return fail(part, err, name ? name : "?", "storage_data does not say where it is");
	if (ck_val_seq(ck_val_get(at, "transform_descriptors"), &list, &old) && old)
		return ck_fail(err, CKPT_E_UNSUPPORTED, part->path, CKPT_NO_OFFSET,
			       "'%.200s' was written through a transform (compressed or "
			       "encrypted); zckpt reads items as torch.save writes them", name);
	rc = file_of(r, relative, &place.file, err);
	if (rc)
		return rc;
	text = place_key(r->fs, name, where, n, &len);
	if (!text)
		return ck_fail_nomem(err, "a place", n);
	rc = ck_map_add(&part->by_place, text, len, part->nplaces, &old, err);
	if (rc > 0)
		return fail(part, err, name, "storage_data has one block of it twice");
	if (!rc)
		rc = ck_grow(&part->place, &part->place_cap, part->nplaces + 1,
			     sizeof(*part->place), err);
	if (!rc)
		part->place[part->nplaces++] = place;
	return rc;
}

static int by_place(const void *a, const void *b)
{
	const struct dcp_place *x = a, *y = b;

	if (x->file != y->file)
		return x->file < y->file ? -1 : 1;
	return x->begin < y->begin ? -1 : x->begin > y->begin;
}

/* Each item has bytes of its own: a small file cannot be named a million times. */
static int check_places(const struct reading *r, struct ckpt_err *err)
{
	const struct dcp_part *part = r->part;
	struct dcp_place *p = ck_alloc_array(part->nplaces + 1, sizeof(*p));
	int rc = 0;

	if (!p)
		return ck_fail_nomem(err, "places", part->nplaces);
	if (part->nplaces) {
		memcpy(p, part->place, part->nplaces * sizeof(*p));
		qsort(p, part->nplaces, sizeof(*p), by_place);
	}
	for (uint64_t i = 1; !rc && i < part->nplaces; i++)
		if (p[i].file == p[i - 1].file && p[i].begin - p[i - 1].begin < p[i - 1].bytes)
			rc = ck_fail(err, CKPT_E_CORRUPT, part->path, CKPT_NO_OFFSET,
				     "two items share bytes of %s at byte %" PRIu64,
				     r->fs->file[p[i].file].name, p[i].begin);
	ck_free(p);
	return rc;
}

static int read_places(struct reading *r, const struct ck_val *storage, struct ckpt_err *err)
{
	struct ck_val *const *item;
	uint64_t n;
	int rc = 0;

	if (!ck_val_pairs(storage, &item, &n))
		return ck_fail(err, CKPT_E_CORRUPT, r->part->path, CKPT_NO_OFFSET,
			       "storage_data is no dictionary: not written by the file system "
			       "writer of torch.distributed.checkpoint");
	for (uint64_t i = 0; !rc && i < n; i++)
		rc = add_place(r, item[2 * i], item[2 * i + 1], err);
	return rc ? rc : check_places(r, err);
}

static int take_place(struct reading *r, const struct dcp_item *it, struct dcp_chunk *c,
		      const uint64_t *offset, uint64_t n, struct ckpt_err *err)
{
	size_t len;
	const char *key = place_key(r->fs, it->flat, offset, n, &len);
	uint64_t i;

	c->at.file = CK_NONE;
	if (!key)
		return ck_fail_nomem(err, "a place", n);
	if (!ck_map_find(&r->part->by_place, key, len, &i)) {
		ck_findings_add(r->fs->f, CK_FINDING_LENGTH_WRONG, it->flat,
				"'.metadata' does not say in which file a block of it is (was it "
				"written by another program?)");
		return 0;
	}
	r->part->place[i].is_named = true;
	c->at = r->part->place[i];
	r->fs->file[c->at.file].items++;
	return 0;
}

/* An item that is lost from state_dict_metadata has its places still. */
static void look_for_lost(struct reading *r, const struct ck_val *storage)
{
	struct ck_val *const *item;
	uint64_t n;

	if (!ck_val_pairs(storage, &item, &n))
		return;
	for (uint64_t i = 0; i < n && i < r->part->nplaces; i++)
		if (!r->part->place[i].is_named)
			ck_findings_add(r->fs->f, CK_FINDING_NAMES_WRONG,
					ck_val_str(ck_val_get(ck_dcp_state_of(item[2 * i]), "fqn")),
					"'.metadata' has a place for it in storage_data, but no "
					"such block in state_dict_metadata (is the file damaged?)");
}

/* ---- state_dict_metadata: the items ---- */

/* torch before 2.4 has the class elsewhere. */
static bool is_old(const struct ck_val *properties)
{
	return is_object(properties, "TensorProperties") &&
	       strstr(properties->u.obj->fn->u.global.module, "_shard.") != NULL;
}

static enum ckpt_dtype dtype_of(const struct ck_val *properties)
{
	const struct ck_val *v = ck_val_at(ck_dcp_state_of(properties), 0);

	if (!v || v->kind != CK_VAL_GLOBAL || strcmp(v->u.global.module, "torch"))
		return 0;
	return ck_dtype_by_torch_name(v->u.global.name);
}

/* In the tensor, as wide as it says; an empty one may begin at the end. */
static bool fits(const struct dcp_item *it, const struct dcp_chunk *c)
{
	for (uint32_t k = 0; k < it->ndim; k++)
		if (c->offset[k] > it->shape[k] || c->size[k] > it->shape[k] - c->offset[k])
			return false;
	return true;
}

static int add_chunk(struct reading *r, struct dcp_item *it, const struct ck_val *v,
		     struct ckpt_err *err)
{
	struct dcp_chunk *c = &it->chunk[it->nchunks];
	uint64_t n, m;

	if (!is_object(v, "ChunkStorageMetadata") ||
	    !ck_dcp_sizes_of(r->fs, ck_val_get(ck_dcp_state_of(v), "offsets"), &c->offset, &n) ||
	    !ck_dcp_sizes_of(r->fs, ck_val_get(ck_dcp_state_of(v), "sizes"), &c->size, &m) ||
	    n != it->ndim ||
	    m != n || ck_shape_numel(c->size, it->ndim, &c->numel, NULL) || !fits(it, c))
		return fail(r->part, err, it->flat, "a block is not within the tensor's shape");
	it->nchunks++;
	return take_place(r, it, c, c->offset, n, err);
}

static int take_tensor(struct reading *r, struct dcp_item *it, const struct ck_val *v,
		       struct ckpt_err *err)
{
	const struct ck_val *state = ck_dcp_state_of(v);
	struct ck_val *const *chunk;
	uint64_t ndim, n;
	int rc = 0;

	it->is_tensor = true;
	it->dtype = (uint8_t)dtype_of(ck_val_get(state, "properties"));
	r->fs->is_old |= is_old(ck_val_get(state, "properties"));
	if (!it->dtype)
		return fail(r->part, err, it->flat, "zckpt does not know its type");
	if (!ck_dcp_sizes_of(r->fs, ck_val_get(state, "size"), &it->shape, &ndim) ||
	    !ck_val_seq(ck_val_get(state, "chunks"), &chunk, &n))
		return fail(r->part, err, it->flat, "it has no shape or no blocks");
	it->ndim = (uint32_t)ndim;
	if (ck_shape_numel(it->shape, it->ndim, &it->numel, NULL))
		return fail(r->part, err, it->flat, "its shape has too many elements");
	it->chunk = ck_arena_zalloc(&r->fs->arena, (n + 1) * sizeof(*it->chunk));
	if (!it->chunk)
		return ck_fail_nomem(err, "blocks of a tensor", n);
	for (uint64_t i = 0; !rc && i < n; i++)
		rc = add_chunk(r, it, chunk[i], err);
	return rc;
}

static int take_value(struct reading *r, struct dcp_item *it, struct ckpt_err *err)
{
	it->chunk = ck_arena_zalloc(&r->fs->arena, sizeof(*it->chunk));
	if (!it->chunk)
		return ck_fail_nomem(err, "a value", 0);
	it->nchunks = 1;
	return take_place(r, it, it->chunk, NULL, 0, err);
}

static int add_item(struct reading *r, const char *name, const struct ck_val *v,
		    struct ckpt_err *err)
{
	struct dcp_files *fs = r->fs;
	const char *key = ck_arena_printf(&fs->arena, "%u:%s", r->number, name);
	struct dcp_item *it;
	int rc;

	if (!key)
		return ck_fail_nomem(err, "a name", strlen(name));
	rc = ck_map_add(&fs->by_flat, key, strlen(key), fs->nitems, NULL, err);
	if (rc > 0)
		return fail(r->part, err, name, "the name is there twice");
	if (!rc)
		rc = ck_grow(&fs->item, &fs->item_cap, fs->nitems + 1, sizeof(*fs->item), err);
	if (rc)
		return rc;
	it = &fs->item[fs->nitems++];
	*it = (struct dcp_item){ .flat = name, .part = r->number };
	if (is_object(v, "TensorStorageMetadata"))
		return take_tensor(r, it, v, err);
	if (is_object(v, "BytesStorageMetadata"))
		return take_value(r, it, err);
	return fail(r->part, err, name, "it is neither a tensor nor a value");
}

static int read_items(struct reading *r, const struct ck_val *items, struct ckpt_err *err)
{
	struct ck_val *const *item;
	uint64_t n;
	int rc = 0;

	if (!ck_val_pairs(items, &item, &n))
		return ck_fail(err, CKPT_E_CORRUPT, r->part->path, CKPT_NO_OFFSET,
			       "state_dict_metadata is no dictionary: not a '.metadata' of "
			       "torch.distributed.checkpoint");
	for (uint64_t i = 0; !rc && i < n; i++) {
		const char *name = ck_val_str(item[2 * i]);

		if (!name || !*name)
			return ck_fail(err, CKPT_E_CORRUPT, r->part->path, CKPT_NO_OFFSET,
				       "an item has no name");
		rc = add_item(r, name, item[2 * i + 1], err);
	}
	return rc;
}

/* ---- planner_data: the path to each item ---- */

/* torch joins the steps of a path by dots to a flat name. */
static bool gives_name(struct ck_val *const *step, uint64_t n, const char *name)
{
	for (uint64_t i = 0; i < n; i++) {
		char number[24] = "";
		const char *text = ck_val_str(step[i]);
		int64_t k;
		size_t len;

		if (!text && step[i]->kind == CK_VAL_INT && ck_val_int(step[i], &k))
			snprintf(number, sizeof(number), "%" PRId64, k);
		text = text ? text : number;
		len = strlen(text);
		if ((i && *name++ != '.') || strncmp(name, text, len))
			return false;
		name += len;
	}
	return !*name;
}

/* All but the last step joined by dots: where it is; the last is its key there. */
static int take_path(struct dcp_files *fs, struct dcp_item *it, const struct ck_val *path,
		     struct ckpt_err *err)
{
	struct ck_val *const *step;
	uint64_t n = 0;
	size_t cut;

	it->box = "";
	it->key = it->flat;
	if (!ck_val_seq(path, &step, &n) || !n)
		return 0;
	if (!gives_name(step, n, it->flat)) {
		ck_findings_add(fs->f, CK_FINDING_NAMES_WRONG, it->flat,
				"'.metadata' has another path for it in planner_data (is the file "
				"damaged?)");
		return 0;
	}
	it->path = path;
	/* a number is a position in a list */
	cut = ck_val_str(step[n - 1]) ? strlen(ck_val_str(step[n - 1])) :
	      strrchr(it->flat, '.') ? strlen(strrchr(it->flat, '.')) - 1 : 0;
	if (n == 1 || !cut || cut + 1 >= strlen(it->flat))
		return 0;
	it->key = it->flat + strlen(it->flat) - cut;
	it->box = ck_arena_strndup(&fs->arena, it->flat, strlen(it->flat) - cut - 1);
	return it->box ? 0 : ck_fail_nomem(err, "a name", cut);
}

static int read_paths(struct reading *r, uint64_t first, const struct ck_val *planner,
		      struct ckpt_err *err)
{
	struct ck_map by_name = CK_MAP_INIT;
	struct ck_val *const *item = NULL;
	uint64_t n = 0, i, found = 0;
	int rc = 0;

	ck_val_pairs(planner, &item, &n);
	for (i = 0; rc >= 0 && i < n; i++)
		if (ck_val_str(item[2 * i]))
			rc = ck_map_add(&by_name, ck_val_str(item[2 * i]),
					strlen(ck_val_str(item[2 * i])), i, NULL, err);
	rc = rc < 0 ? rc : 0;
	for (uint64_t k = first; !rc && k < r->fs->nitems; k++) {
		struct dcp_item *it = &r->fs->item[k];
		const bool is_there = ck_map_find(&by_name, it->flat, strlen(it->flat), &i);

		found += is_there;
		it->order = is_there ? i : k;
		if (n && !is_there)
			ck_findings_add(r->fs->f, CK_FINDING_NAMES_WRONG, it->flat,
					"'.metadata' has no path for it in planner_data, but for "
					"others (is the file damaged?)");
		rc = take_path(r->fs, it, is_there ? item[2 * i + 1] : NULL, err);
	}
	if (!rc && found < n)
		ck_findings_add(r->fs->f, CK_FINDING_NAMES_WRONG, r->part->path,
				"it has paths for %" PRIu64 " items in planner_data, of which %"
				PRIu64 " are in state_dict_metadata (is the file damaged?)", n,
				found);
	ck_map_release(&by_name);
	return rc;
}

/* ---- */

static int load_pickle(struct dcp_files *fs, struct dcp_part *part, struct ckpt_err *err)
{
	const struct ckpt_limits *limits = &fs->in->limits;
	uint8_t *p;
	int rc;

	part->bytes = ck_src_size(part->src);
	if (part->bytes > limits->pickle_bytes)
		return ck_fail_limit(err, part->path, CKPT_NO_OFFSET, "pickle_bytes",
				     limits->pickle_bytes, "the file has %" PRIu64 " bytes",
				     part->bytes);
	p = ck_alloc((size_t)part->bytes + 1);
	if (!p)
		return ck_fail_nomem(err, "a pickle", part->bytes);
	rc = ck_src_read(part->src, 0, p, (size_t)part->bytes, err);
	if (!rc)
		rc = ck_pkl_load(&part->doc, p, part->bytes, limits, 0, part->path, err);
	if (!rc) {
		const struct ck_hash128 h = ck_hash128(p, (size_t)part->bytes);

		ck_hasher_add(fs->ix->fingerprint, part->sub, strlen(part->sub) + 1);
		ck_hasher_add(fs->ix->fingerprint, &h, sizeof(h));
	}
	ck_free(p);
	return rc;
}

int ck_dcp_meta_read(struct dcp_files *fs, struct dcp_part *part, struct ckpt_err *err)
{
	struct reading r = { fs, part, (uint32_t)(part - fs->part) };
	const uint64_t first = fs->nitems;
	const struct ck_val *state;
	int rc = load_pickle(fs, part, err);

	if (rc)
		return rc;
	state = ck_dcp_state_of(part->doc.root);
	if ((!is_object(part->doc.root, "Metadata") &&
	     !is_object(part->doc.root, "MCoreMetadata")) || !state)
		return ck_fail(err, CKPT_E_FORMAT, part->path, CKPT_NO_OFFSET,
			       "not a '.metadata' of torch.distributed.checkpoint: its pickle "
			       "is no Metadata");
	rc = read_places(&r, ck_val_get(state, "storage_data"), err);
	if (!rc)
		rc = read_items(&r, ck_val_get(state, "state_dict_metadata"), err);
	if (!rc)
		look_for_lost(&r, ck_val_get(state, "storage_data"));
	if (!rc)
		rc = read_paths(&r, first, ck_val_get(state, "planner_data"), err);
	return rc;
}
