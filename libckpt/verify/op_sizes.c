/*
 * op_sizes.c -- what the bytes of a checkpoint are for, to the byte.
 *
 * Each extent of each state, copies included, is a range of its file with a label.  A file
 * is swept once: sorted ranges, a byte that two tensors share counted for the first.  What
 * lies between ranges but in a storage of an archive is padding where optimizer states use
 * the rest of it, bloat where weights do, and a tensor of another kind where nothing does.
 * The rest of an archive is its pickle and its own structure.
 */
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_search.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/io/ck_mount.h"
#include "libckpt/tensor/ck_dtype.h"
#include "libckpt/tensor/ck_extents.h"
#include "libckpt/verify/op_verify.h"
#include "libckpt/zip/ck_zip_row.h"

#define DEPTH 12
#define MAX_RUNS 4096	/* of an extent that are told apart */

struct range {
	uint64_t begin, end;
	uint32_t source;
	uint32_t part;
};

struct sizing {
	struct ckpt *ck;
	struct ckpt_size *part;
	uint64_t n, cap;
	struct range *range;
	uint64_t nranges, range_cap;
	struct ck_map known;	/* paths of the index's files */
	uint64_t files;
};

/* ---- parts ---- */

static int part_get(struct sizing *s, const struct ckpt_size *like, uint32_t *out,
		    struct ckpt_err *err)
{
	int rc;

	for (uint64_t i = 0; i < s->n; i++) {
		const struct ckpt_size *p = &s->part[i];

		if (p->kind == like->kind && p->role == like->role && p->dtype == like->dtype &&
		    !strcmp(p->state, like->state)) {
			*out = (uint32_t)i;
			return 0;
		}
	}
	rc = ck_grow(&s->part, &s->cap, s->n + 1, sizeof(*s->part), err);
	if (rc)
		return rc;
	s->part[s->n] = *like;
	*out = (uint32_t)s->n++;
	return 0;
}

static int add_bytes(struct sizing *s, enum ckpt_size_kind kind, uint64_t bytes,
		     struct ckpt_err *err)
{
	const struct ckpt_size like = { .kind = kind, .state = "" };
	uint32_t part;
	int rc = bytes ? part_get(s, &like, &part, err) : 0;

	if (!rc && bytes)
		s->part[part].bytes += bytes;
	return rc;
}

/* ---- ranges ---- */

static int add_range(struct sizing *s, uint32_t source, uint64_t begin, uint64_t bytes,
		     uint32_t part, struct ckpt_err *err)
{
	int rc = ck_grow(&s->range, &s->range_cap, s->nranges + 1, sizeof(*s->range), err);

	if (!rc && bytes)
		s->range[s->nranges++] = (struct range){ begin, begin + bytes, source, part };
	return rc;
}

/* Elements from the first to the last that a view reaches. */
static uint64_t view_span(const struct ck_view *v)
{
	uint64_t span = 1;

	for (uint32_t d = 0; d < v->ndim; d++) {
		if (!v->shape[d])
			return 0;
		span += (v->shape[d] - 1) * v->stride[d];
	}
	return span;
}

static int add_extent(struct sizing *s, const struct ck_extent *e, uint32_t part,
		      struct ckpt_err *err)
{
	const uint64_t size = ckpt_dtype_bits(e->dtype) / 8, run = e->count * size;
	int rc = 0;

	if (e->member != CK_NONE || !e->count || !e->runs)
		return 0;
	if (e->view != CK_NONE)
		return add_range(s, e->source, e->off,
				 view_span(&s->ck->ix.view[e->view]) * size, part, err);
	if (e->runs > MAX_RUNS || e->src_stride == run)
		return add_range(s, e->source, e->off, (e->runs - 1) * e->src_stride + run, part,
				 err);
	for (uint64_t k = 0; !rc && k < e->runs; k++)
		rc = add_range(s, e->source, e->off + k * e->src_stride, run, part, err);
	return rc;
}

static int add_state(struct sizing *s, const struct ck_state *state, bool copy,
		     struct ckpt_err *err)
{
	const struct ck_index *ix = &s->ck->ix;
	const struct ck_tensor *t = &ix->tensor[state->tensor];
	const struct ckpt_size like = {
		.kind = copy ? CKPT_SIZE_REPLICA : CKPT_SIZE_STATE, .state = state->name,
		.role = (enum ckpt_role)t->role, .dtype = (enum ckpt_dtype)state->dtype,
	};
	struct ck_spans spans;
	struct ck_span span;
	uint32_t part;
	int rc;

	if (state->flags & CKPT_STATE_DERIVED)
		return 0;
	rc = part_get(s, &like, &part, err);
	if (!rc)
		s->part[part].elements += t->numel;
	ck_spans_begin(&spans, ix, state, 0, t->numel);
	while (!rc && ck_spans_next(&spans, &span))
		rc = add_extent(s, span.e, part, err);
	return rc;
}

static int add_states(struct sizing *s, struct ckpt_err *err)
{
	const struct ck_index *ix = &s->ck->ix;
	int rc = 0;

	for (uint64_t t = 0; !rc && t < ix->ntensors; t++)
		for (uint32_t i = ix->tensor[t].first_state; !rc && i != CK_NONE;
		     i = ix->state[i].next) {
			rc = add_state(s, &ix->state[i], false, err);
			for (uint32_t r = ix->state[i].replica; !rc && r != CK_NONE;
			     r = ix->state[r].replica)
				rc = add_state(s, &ix->state[r], true, err);
		}
	return rc;
}

/* By file and place; at one place, what is no copy first. */
static int by_place(const void *a, const void *b)
{
	const struct range *x = a, *y = b;

	if (x->source != y->source)
		return x->source < y->source ? -1 : 1;
	if (x->begin != y->begin)
		return x->begin < y->begin ? -1 : 1;
	return x->part < y->part ? -1 : x->part > y->part;
}

/* ---- a file ---- */

struct file {
	uint64_t first, end;	/* its ranges */
	uint64_t size;
	uint64_t used;		/* bytes in ranges */
};

/* Each byte of a range counts for the first range that has it. */
static void sweep(struct sizing *s, struct file *f)
{
	uint64_t at = 0;

	for (uint64_t i = f->first; i < f->end; i++) {
		struct range *r = &s->range[i];

		r->begin = ck_max_u64(r->begin, at);
		r->end = ck_min_u64(ck_max_u64(r->end, r->begin), f->size);
		r->begin = ck_min_u64(r->begin, r->end);
		at = ck_max_u64(at, r->end);
		s->part[r->part].bytes += r->end - r->begin;
		f->used += r->end - r->begin;
	}
}

/* Bytes of [begin, end) in ranges, and what they are: weights or optimizer states. */
static uint64_t used_in(const struct sizing *s, const struct file *f, uint64_t begin,
			uint64_t end, bool *weights_out)
{
	uint64_t i, used = 0;

	CK_LOWER_BOUND(i, f->end - f->first, s->range[f->first + i].end <= begin);
	for (i += f->first; i < f->end && s->range[i].begin < end; i++) {
		const struct range *r = &s->range[i];
		const uint64_t from = ck_max_u64(r->begin, begin), to = ck_min_u64(r->end, end);

		if (from >= to)
			continue;
		used += to - from;
		if (!strcmp(s->part[r->part].state, "weight"))
			*weights_out = true;
	}
	return used;
}

static bool is_record(const struct ck_zip_entry *e, const char *what)
{
	const char *slash = strchr(e->name, '/');

	return slash && !strncmp(slash + 1, what, strlen(what));
}

/* A storage: what no range uses of it. */
static int storage(struct sizing *s, const struct file *f, const struct ck_zip *zip,
		   const struct ck_zip_entry *e, struct ckpt_err *err)
{
	uint64_t off, used;
	bool weights = false;
	int rc = ck_zip_data_offset(zip, e, &off, err);

	if (rc)
		return rc;
	if (e->method)
		return add_bytes(s, CKPT_SIZE_COMPRESSED, e->packed, err);
	used = used_in(s, f, off, off + e->bytes, &weights);
	return add_bytes(s, !used ? CKPT_SIZE_OTHER_TENSORS : weights ? CKPT_SIZE_BLOAT :
			 CKPT_SIZE_PADDING, e->bytes - used, err);
}

struct unpacking {
	struct sizing *s;
	struct file *f;
};

static int records_of(void *arg, const struct ck_zip *zip, struct ckpt_err *err)
{
	const struct unpacking *u = arg;
	int rc = 0;

	for (uint64_t i = 0; !rc && i < ck_zip_count(zip); i++) {
		const struct ck_zip_entry *e = ck_zip_entry_get(zip, i);

		if (is_record(e, "data/"))
			rc = storage(u->s, u->f, zip, e, err);
		else if (is_record(e, "data.pkl"))
			rc = add_bytes(u->s, CKPT_SIZE_PICKLE, e->packed, err);
	}
	return rc;
}

static int archive(struct sizing *s, struct ck_src *src, struct file *f, struct ckpt_err *err)
{
	struct unpacking u = { s, f };
	uint64_t left = f->size - f->used, before = 0, after = 0;
	int rc;

	for (uint64_t i = 0; i < s->n; i++)
		before += s->part[i].bytes;
	rc = ck_zip_each(src, &s->ck->limits, records_of, &u, err);
	for (uint64_t i = 0; i < s->n; i++)
		after += s->part[i].bytes;
	/* members that overlap, which no writer makes, could take more than there is */
	if (!rc && after - before > left)
		rc = ck_fail(err, CKPT_E_CORRUPT, ck_src_name(src), CKPT_NO_OFFSET,
			     "members of the archive overlap");
	return rc ? rc : add_bytes(s, CKPT_SIZE_ARCHIVE, left - (after - before), err);
}

static int one_file(struct sizing *s, uint32_t source, uint64_t *at, struct ckpt_err *err)
{
	struct ck_source *from = &s->ck->ix.source[source];
	struct file f = { .first = *at, .end = *at, .size = from->bytes };
	uint8_t sig[4] = { 0 };
	int rc = ck_src_read(from->src, 0, sig, (size_t)ck_min_u64(4, from->bytes), err);

	while (f.end < s->nranges && s->range[f.end].source == source)
		f.end++;
	*at = f.end;
	s->files++;
	sweep(s, &f);
	if (!rc && ck_le32(sig) == 0x04034b50u)
		return archive(s, from->src, &f, err);
	return rc ? rc : add_bytes(s, CKPT_SIZE_PICKLE, f.size - f.used, err);
}

/* ---- other files ---- */

static int other_files(struct sizing *s, const char *dir, unsigned depth, struct ckpt_err *err)
{
	struct ck_tree tree = CK_TREE_INIT;
	int rc = ck_look_list(s->ck->pool, &tree, &dir, 1, NULL, s->ck->limits.files, err);

	for (uint64_t i = 0; !rc && i < tree.n; i++) {
		const struct ck_tree_entry *e = &tree.entry[i];
		uint64_t known;

		if (e->is_dir && depth < DEPTH)
			rc = other_files(s, e->path, depth + 1, err);
		if (e->is_dir || e->is_odd ||
		    ck_map_find(&s->known, e->path, strlen(e->path), &known))
			continue;
		s->files++;
		rc = add_bytes(s, CKPT_SIZE_OTHER_FILES, e->bytes, err);
	}
	ck_tree_release(&tree);
	return rc;
}

/* The step's folder, below each of the paths that were given. */
static int folders(struct sizing *s, struct ckpt_err *err)
{
	const char *path = s->ck->ix.path, *first = s->ck->path[0];
	size_t n = strlen(first);
	int rc = 0;

	while (n > 1 && first[n - 1] == '/')
		n--;
	for (size_t i = 0; !rc && path && i < s->ck->npaths; i++) {
		char *dir = i ? ck_asprintf("%s%s", s->ck->path[i],
					    strncmp(path, first, n) ? "" : path + n) :
				ck_strdup(path);
		enum ck_fs_kind kind;

		if (!dir)
			return ck_fail_nomem(err, "a path", 0);
		rc = ck_look_kind(s->ck->pool, dir, &kind, NULL, err);
		if (!rc && kind == CK_FS_DIR)
			rc = other_files(s, dir, 0, err);
		ck_free(dir);
	}
	return rc;
}

static int remember_files(struct sizing *s, struct ckpt_err *err)
{
	const struct ck_index *ix = &s->ck->ix;

	for (uint64_t i = 0; i < ix->nsources; i++) {
		const char *path = ix->source[i].path;

		if (ck_map_add(&s->known, path, strlen(path), i, NULL, err) < 0)
			return -CKPT_E_NOMEM;
	}
	return 0;
}

/* ---- all ---- */

static int by_kind(const void *a, const void *b)
{
	const struct ckpt_size *x = a, *y = b;

	if (x->kind != y->kind)
		return x->kind < y->kind ? -1 : 1;
	if (x->role != y->role)
		return x->role < y->role ? -1 : 1;
	return x->bytes > y->bytes ? -1 : x->bytes < y->bytes;
}

static int hand_over(struct sizing *s, struct ckpt_sizes *out, struct ckpt_err *err)
{
	struct ck_arena *arena = ck_zalloc(sizeof(*arena));
	struct ckpt_size *copy = arena ? ck_arena_alloc(arena, (s->n + 1) * sizeof(*copy)) : NULL;
	struct ckpt_sizes made = { .nfiles = s->files, .part = copy, .memory = arena };

	if (!copy) {
		ck_free(arena);
		return ck_fail_nomem(err, "sizes", s->n);
	}
	for (uint64_t i = 0; i < s->n; i++) {
		if (!s->part[i].bytes)
			continue;
		copy[made.nparts++] = s->part[i];
		made.bytes += s->part[i].bytes;
	}
	qsort(copy, made.nparts, sizeof(*copy), by_kind);
	*out = made;
	return 0;
}

int ck_sizes(struct ckpt *ck, struct ckpt_sizes *out, struct ckpt_err *err)
{
	struct sizing s = { .ck = ck, .known = CK_MAP_INIT };
	uint64_t at = 0;
	int rc = add_states(&s, err);

	if (!rc)
		rc = remember_files(&s, err);
	if (!rc && s.nranges)
		qsort(s.range, s.nranges, sizeof(*s.range), by_place);
	for (uint32_t i = 0; !rc && i < ck->ix.nsources; i++)
		rc = one_file(&s, i, &at, err);
	if (!rc)
		rc = folders(&s, err);
	if (!rc)
		rc = hand_over(&s, out, err);
	ck_map_release(&s.known);
	ck_free(s.range);
	ck_free(s.part);
	return rc;
}
