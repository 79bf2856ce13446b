/* ck_plan.c -- see ck_plan.h. */
#include "libckpt/format/ck_plan.h"

#include <inttypes.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/tensor/ck_dtype.h"

int ck_plan_file(struct ck_plan *plan, const char *name, struct ckpt_err *err)
{
	struct ck_outfile *f;
	int rc = ck_grow(&plan->file, &plan->file_cap, plan->nfiles + 1, sizeof(*f), err);

	if (rc)
		return rc;
	f = &plan->file[plan->nfiles];
	*f = (struct ck_outfile){ .seg = plan->nsegs };
	f->name = ck_arena_strdup(&plan->arena, name);
	if (!f->name)
		return ck_fail_nomem(err, "a file name", strlen(name));
	plan->crc_open = 0;
	plan->nfiles++;
	return 0;
}

void ck_plan_drop_file(struct ck_plan *plan)
{
	plan->nsegs = plan->file[--plan->nfiles].seg;
	while (plan->ncrcs && plan->crc[plan->ncrcs - 1].file == plan->nfiles)
		plan->ncrcs--;
	plan->crc_open = 0;
}

static int add_seg(struct ck_plan *plan, const struct ck_seg *seg, struct ckpt_err *err)
{
	struct ck_outfile *f = &plan->file[plan->nfiles - 1];
	uint64_t end;
	int rc;

	if (!seg->bytes)
		return 0;
	if (ck_add_over(f->bytes, seg->bytes, &end) || end > INT64_MAX)
		return ck_fail(err, CKPT_E_LIMIT, f->name, CKPT_NO_OFFSET,
			       "the file would exceed 2^63 bytes");
	rc = ck_grow(&plan->seg, &plan->seg_cap, plan->nsegs + 1, sizeof(*seg), err);
	if (rc)
		return rc;
	plan->seg[plan->nsegs] = *seg;
	plan->seg[plan->nsegs].crc = plan->crc_open ? (uint32_t)(plan->crc_open - 1) : CK_NONE;
	plan->seg[plan->nsegs++].off = f->bytes;
	if (plan->crc_open)
		plan->crc[plan->crc_open - 1].bytes += seg->bytes;
	f->bytes = end;
	f->nsegs++;
	return 0;
}

int ck_plan_literal(struct ck_plan *plan, const void *p, uint64_t n, struct ckpt_err *err)
{
	struct ck_seg seg = { .kind = CK_SEG_LITERAL, .bytes = n, .slot = CK_NONE };
	void *copy = ck_arena_alloc(&plan->arena, n);

	if (!copy)
		return ck_fail_nomem(err, "a header", n);
	if (n)
		memcpy(copy, p, n);
	seg.text = copy;
	return add_seg(plan, &seg, err);
}

int ck_plan_zero(struct ck_plan *plan, uint64_t n, struct ckpt_err *err)
{
	const struct ck_seg seg = { .kind = CK_SEG_ZERO, .bytes = n, .slot = CK_NONE };

	return add_seg(plan, &seg, err);
}

int ck_plan_zero_state(struct ck_plan *plan, enum ckpt_dtype dtype, uint64_t first,
		       uint64_t count, uint32_t slot, struct ckpt_err *err)
{
	struct ck_seg seg = {
		.kind = CK_SEG_ZERO, .dtype = (uint8_t)dtype, .first = first, .slot = slot,
	};
	const int rc = ck_dtype_bytes(dtype, count, &seg.bytes, err);

	return rc ? rc : add_seg(plan, &seg, err);
}

int ck_plan_state(struct ck_plan *plan, const struct ck_index *ix, uint32_t state,
		  enum ckpt_dtype dtype, uint64_t first, uint64_t count, uint32_t slot,
		  struct ckpt_err *err)
{
	const uint64_t numel = ix->tensor[ix->state[state].tensor].numel;
	struct ck_seg seg = {
		.kind = CK_SEG_STATE, .state = state, .dtype = (uint8_t)dtype, .first = first,
		.slot = slot,
	};
	int rc;

	if (ckpt_dtype_bits(dtype) < 8 && (first || count != numel))
		return ck_fail(err, CKPT_E_UNSUPPORTED, ix->tensor[ix->state[state].tensor].name,
			       CKPT_NO_OFFSET, "a tensor of %u-bit elements cannot be split",
			       ckpt_dtype_bits(dtype));
	rc = ck_dtype_bytes(dtype, count, &seg.bytes, err);
	if (rc)
		return rc;
	return add_seg(plan, &seg, err);
}

int ck_plan_own(struct ck_plan *plan, uint64_t memory_limit, struct ck_index **out,
		struct ckpt_err *err)
{
	int rc = 0;

	if (!plan->own) {
		plan->own = ck_zalloc(sizeof(*plan->own));
		if (!plan->own)
			return ck_fail_nomem(err, "an index", sizeof(*plan->own));
		rc = ck_index_init(plan->own, memory_limit, err);
		if (rc) {
			ck_free(plan->own);
			plan->own = NULL;
			return rc;
		}
	}
	*out = plan->own;
	return 0;
}

int ck_plan_own_state(struct ck_plan *plan, uint32_t state, uint64_t first, uint64_t count,
		      struct ckpt_err *err)
{
	struct ck_seg seg = {
		.kind = CK_SEG_OWN, .state = state, .dtype = plan->own->state[state].dtype,
		.first = first, .slot = CK_NONE,
	};
	int rc = ck_dtype_bytes(seg.dtype, count, &seg.bytes, err);

	return rc ? rc : add_seg(plan, &seg, err);
}

int ck_plan_copy(struct ck_plan *plan, const char *path, uint64_t first, uint64_t bytes,
		 struct ckpt_err *err)
{
	struct ck_seg seg = { .kind = CK_SEG_FILE, .first = first, .bytes = bytes,
			      .slot = CK_NONE };

	seg.text = ck_arena_strdup(&plan->arena, path);
	if (!seg.text)
		return ck_fail_nomem(err, "a file name", strlen(path));
	return add_seg(plan, &seg, err);
}

/* Pairs of 4-bit floats as safetensors counts them: one by one. */
static int unpack_f4(struct ck_plan *plan, struct ck_slot *s, struct ckpt_err *err)
{
	uint64_t *dim = ck_arena_alloc(&plan->arena, (uint64_t)s->ndim * sizeof(*dim));

	if (!dim)
		return ck_fail_nomem(err, "a shape", s->ndim);
	memcpy(dim, s->shape, s->ndim * sizeof(*dim));
	dim[s->ndim - 1] *= 2;
	s->shape = dim;
	s->dtype = CKPT_F4;
	return 0;
}

int ck_plan_slot(struct ck_plan *plan, const struct ck_slot *slot, uint32_t *slot_out,
		 struct ckpt_err *err)
{
	struct ck_slot *s;
	int rc = ck_grow(&plan->slot, &plan->slot_cap, plan->nslots + 1, sizeof(*s), err);

	if (rc)
		return rc;
	s = &plan->slot[plan->nslots];
	*s = *slot;
	s->name = ck_arena_strdup(&plan->arena, slot->name);
	s->state = ck_arena_strdup(&plan->arena, slot->state);
	if (!s->name || !s->state)
		return ck_fail_nomem(err, "a digest", 0);
	if (s->dtype == CKPT_F4X2 && s->ndim) {
		rc = unpack_f4(plan, s, err);
		if (rc)
			return rc;
	}
	*slot_out = (uint32_t)plan->nslots++;
	return 0;
}

int ck_plan_head(struct ck_plan *plan, uint64_t bytes, uint64_t sum, struct ckpt_err *err)
{
	int rc = ck_grow(&plan->head, &plan->head_cap, plan->nheads + 1, sizeof(*plan->head), err);

	if (!rc)
		plan->head[plan->nheads++] = (struct ck_plan_head){
			.bytes = bytes, .sum = sum, .file = (uint32_t)(plan->nfiles - 1),
		};
	return rc;
}

int ck_plan_beside(struct ck_plan *plan, const char *name, uint64_t fill, struct ckpt_err *err)
{
	int rc = ck_grow(&plan->beside, &plan->beside_cap, plan->nbeside + 1,
			 sizeof(*plan->beside), err);
	struct ck_plan_beside b = { .fill = fill, .file = (uint32_t)(plan->nfiles - 1) };

	if (rc)
		return rc;
	b.name = ck_arena_strdup(&plan->arena, name);
	if (!b.name)
		return ck_fail_nomem(err, "a file name", strlen(name));
	plan->beside[plan->nbeside++] = b;
	return 0;
}

int ck_plan_sum_file(struct ck_plan *plan, struct ckpt_err *err)
{
	const struct ck_outfile *f = &plan->file[plan->nfiles - 1];

	for (uint64_t k = 0; k < plan->nbeside; k++) {
		const uint64_t i = (plan->beside_at + k) % plan->nbeside;
		const struct ck_plan_beside *b = &plan->beside[i];
		const struct ck_slot slot = {
			.name = "", .state = "", .file = b->file, .fill = b->fill,
			.whole = CK_SLOT_SUM, .ends = UINT64_MAX,
		};

		if (strcmp(b->name, f->name))
			continue;
		plan->beside_at = i + 1;
		/* an empty file has the sum that is there */
		return f->nsegs == 1 ? ck_plan_slot(plan, &slot, &plan->seg[f->seg].slot, err) : 0;
	}
	return 0;
}

int ck_plan_crc_begin(struct ck_plan *plan, uint32_t *crc_out, struct ckpt_err *err)
{
	int rc = ck_grow(&plan->crc, &plan->crc_cap, plan->ncrcs + 1, sizeof(*plan->crc), err);

	if (rc)
		return rc;
	plan->crc[plan->ncrcs] = (struct ck_plan_crc){
		.begin = plan->file[plan->nfiles - 1].bytes,
		.file = (uint32_t)(plan->nfiles - 1),
	};
	*crc_out = (uint32_t)plan->ncrcs++;
	plan->crc_open = plan->ncrcs;
	return 0;
}

void ck_plan_crc_end(struct ck_plan *plan)
{
	plan->crc_open = 0;
}

void ck_plan_crc_fill(struct ck_plan *plan, uint32_t crc, uint64_t off)
{
	struct ck_plan_crc *c = &plan->crc[crc];

	c->fill[c->nfills++] = off;
}

static int add_unit(struct ck_plan *plan, const struct ck_unit *unit, struct ckpt_err *err)
{
	int rc = ck_grow(&plan->unit, &plan->unit_cap, plan->nunits + 1, sizeof(*unit), err);

	if (!rc)
		plan->unit[plan->nunits++] = *unit;
	return rc;
}

/* A segment larger than a unit: slices, counted from its own beginning. */
static int cut_large(struct ck_plan *plan, uint32_t file, uint64_t seg, struct ckpt_err *err)
{
	const struct ck_seg *s = &plan->seg[seg];
	int rc = 0;

	for (uint64_t at = 0; !rc && at < s->bytes; at += CK_UNIT_BYTES) {
		const struct ck_unit u = {
			.file = file, .seg = seg, .skip = at, .off = s->off + at,
			.bytes = (uint32_t)ck_min_u64(CK_UNIT_BYTES, s->bytes - at),
		};

		rc = add_unit(plan, &u, err);
	}
	return rc;
}

static int cut_file(struct ck_plan *plan, uint32_t file, struct ckpt_err *err)
{
	const struct ck_outfile *f = &plan->file[file];
	struct ck_unit u = { .file = file };
	int rc = 0;

	for (uint64_t i = f->seg; !rc && i < f->seg + f->nsegs; i++) {
		const struct ck_seg *s = &plan->seg[i];

		if (u.bytes && u.bytes + s->bytes > CK_UNIT_BYTES) {
			rc = add_unit(plan, &u, err);
			u.bytes = 0;
		}
		if (!rc && s->bytes > CK_UNIT_BYTES) {
			rc = cut_large(plan, file, i, err);
			continue;
		}
		if (!u.bytes) {
			u.seg = i;
			u.off = s->off;
		}
		u.bytes += (uint32_t)s->bytes;
	}
	if (!rc && u.bytes)
		rc = add_unit(plan, &u, err);
	return rc;
}

int ck_plan_finish(struct ck_plan *plan, struct ckpt_err *err)
{
	int rc = 0;

	for (uint32_t i = 0; !rc && i < plan->nfiles; i++)
		rc = cut_file(plan, i, err);
	return rc;
}

uint64_t ck_plan_bytes(const struct ck_plan *plan)
{
	uint64_t sum = 0;

	for (uint64_t i = 0; i < plan->nfiles; i++)
		sum += plan->file[i].bytes;
	return sum;
}

static void hash_u64(struct ck_hasher *h, uint64_t v)
{
	uint8_t p[8];

	ck_put_le64(p, v);
	ck_hasher_add(h, p, sizeof(p));
}

static void hash_text(struct ck_hasher *h, const void *p, uint64_t n)
{
	hash_u64(h, n);
	ck_hasher_add(h, p, n);
}

static void hash_seg(struct ck_hasher *h, const struct ck_seg *s)
{
	hash_u64(h, s->kind);
	hash_u64(h, s->bytes);
	hash_u64(h, s->first);
	hash_u64(h, (uint64_t)s->state << 8 | s->dtype);
	hash_u64(h, s->slot);
	if (s->kind == CK_SEG_LITERAL)
		hash_text(h, s->text, s->bytes);
	if (s->kind == CK_SEG_FILE)
		hash_text(h, s->text, strlen(s->text));
}

int ck_plan_hash(const struct ck_plan *plan, uint32_t nparts, struct ck_hash128 *out,
		 struct ckpt_err *err)
{
	struct ck_hasher *h = ck_hasher_new();

	if (!h)
		return ck_fail_nomem(err, "a hash", 0);
	hash_u64(h, CK_UNIT_BYTES);
	hash_u64(h, nparts);
	for (uint64_t i = 0; i < plan->nfiles; i++) {
		const struct ck_outfile *f = &plan->file[i];

		hash_text(h, f->name, strlen(f->name));
		hash_u64(h, f->nsegs);
		for (uint64_t k = f->seg; k < f->seg + f->nsegs; k++)
			hash_seg(h, &plan->seg[k]);
	}
	for (uint64_t i = 0; i < plan->ncrcs; i++) {
		hash_u64(h, plan->crc[i].file);
		hash_u64(h, plan->crc[i].begin);
		hash_u64(h, plan->crc[i].bytes);
		for (uint32_t k = 0; k < plan->crc[i].nfills; k++)
			hash_u64(h, plan->crc[i].fill[k]);
	}
	for (uint64_t i = 0; i < plan->nheads; i++) {
		hash_u64(h, plan->head[i].file);
		hash_u64(h, plan->head[i].bytes);
		hash_u64(h, plan->head[i].sum);
	}
	if (plan->seal.wanted) {
		hash_u64(h, plan->seal.file);
		hash_u64(h, plan->seal.root);
		hash_u64(h, plan->seal.sum);
	}
	*out = ck_hasher_sum(h);
	ck_hasher_free(h);
	return 0;
}

void ck_plan_release(struct ck_plan *plan)
{
	ck_arena_release(&plan->arena);
	ck_free(plan->seg);
	ck_free(plan->file);
	ck_free(plan->slot);
	ck_free(plan->crc);
	ck_free(plan->head);
	ck_free(plan->beside);
	ck_free(plan->unit);
	if (plan->own)
		ck_index_release(plan->own);
	ck_free(plan->own);
	memset(plan, 0, sizeof(*plan));
}

bool ck_plan_is_taken_key(const char *name)
{
	return !strcmp(name, "format") || !strncmp(name, "zckpt.", 6) ||
	       !strcmp(name, "DCP_SHARDING_INFO");
}
