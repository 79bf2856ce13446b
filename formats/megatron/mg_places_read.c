/*
 * mg_places_read.c -- blocks of weights by their content, and masters rounded to compare with them.
 *
 * Blocks of the same type, length and hash of 128 bits are a class: no content tells them apart.
 */
#include <string.h>

#include "formats/megatron/mg_places.h"
#include "kernels/include/kn.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/tensor/ck_dtype.h"

/* Of by_start and by_content. */
struct key {
	uint64_t numel, dtype;
	struct ck_hash128 hash;
};

static enum kn_type kn_type_of(uint8_t dtype)
{
	return dtype == CKPT_F64 ? KN_F64 : dtype == CKPT_F16 ? KN_F16 :
	       dtype == CKPT_BF16 ? KN_BF16 : KN_F32;
}

static size_t size_of(uint8_t dtype)
{
	return kn_type_size(kn_type_of(dtype));
}

int ck_mgp_read(const struct mgp_run *run, uint64_t nruns, size_t elem, uint64_t first,
		uint64_t count, void *out, struct ckpt_err *err)
{
	uint64_t lo = 0, hi = nruns;
	uint8_t *to = out;
	int rc = 0;

	while (hi - lo > 1) {
		const uint64_t mid = lo + (hi - lo) / 2;

		if (run[mid].first <= first)
			lo = mid;
		else
			hi = mid;
	}
	for (; !rc && count && lo < nruns; lo++) {
		const uint64_t skip = first - run[lo].first;
		const uint64_t n = ck_min_u64(count, run[lo].count - skip);

		rc = ck_src_read(run[lo].src, run[lo].off + skip * elem, to, n * elem, err);
		to += n * elem;
		first += n;
		count -= n;
	}
	return rc;
}

static int key_add(struct mgp *p, struct ck_map *map, const struct key *key, uint64_t value,
		   uint64_t *old_out, struct ckpt_err *err)
{
	struct key *mine = ck_arena_alloc(&p->arena, sizeof(*mine));

	if (!mine)
		return ck_fail_nomem(err, "a block's key", sizeof(*mine));
	*mine = *key;
	return ck_map_add(map, (const char *)mine, sizeof(*mine), value, old_out, err);
}

static int kind_add(struct mgp *p, const struct mgp_chunk *c, struct ckpt_err *err)
{
	uint64_t i = 0;
	int rc;

	while (i < p->nkinds && (p->kind[i].numel != c->numel || p->kind[i].dtype != c->dtype))
		i++;
	if (i == p->nkinds) {
		rc = ck_grow(&p->kind, &p->kind_cap, p->nkinds + 1, sizeof(*p->kind), err);
		if (rc)
			return rc;
		p->kind[p->nkinds++] = (struct mgp_kind){ .numel = c->numel, .dtype = c->dtype };
	}
	p->kind[i].has_halves |= c->half != MGP_NONE;
	return 0;
}

/* The block's elements, hashed: the first ones alone, and all. */
static int hash_chunk(struct mgp *p, const struct mgp_chunk *c, struct ck_hash128 *start_out,
		      struct ck_hash128 *all_out, struct ckpt_err *err)
{
	const size_t es = size_of(c->dtype);
	int rc = 0;

	ck_hasher_reset(p->hasher);
	for (uint64_t at = 0; !rc && at < c->numel; at += MGP_BLOCK) {
		const uint64_t n = ck_min_u64(MGP_BLOCK, c->numel - at);

		rc = ck_src_read(c->src, c->off + at * es, p->raw, n * es, err);
		if (rc)
			break;
		if (!at)
			*start_out = ck_hash128(p->raw, ck_min_u64(n, MGP_START) * es);
		ck_hasher_add(p->hasher, p->raw, n * es);
	}
	*all_out = ck_hasher_sum(p->hasher);
	return rc;
}

static int class_of(struct mgp *p, uint32_t i, const struct key *all, struct ckpt_err *err)
{
	struct mgp_chunk *c = &p->chunk[i];
	uint64_t id = p->nclasses;
	int rc = key_add(p, &p->by_content, all, id, &id, err);

	if (rc < 0)
		return rc;
	if (!rc) {
		rc = ck_grow(&p->class, &p->class_cap, p->nclasses + 1, sizeof(*p->class), err);
		if (rc)
			return rc;
		p->class[p->nclasses++] = (struct mgp_class){
			.numel = c->numel, .dtype = c->dtype, .chunk = MGP_NONE,
		};
	}
	c->class = (uint32_t)id;
	c->like = p->class[id].chunk;
	p->class[id].chunk = i;
	p->class[id].nchunks++;
	return 0;
}

int ck_mgp_classes_make(struct mgp *p, struct ckpt_err *err)
{
	int rc = 0;

	for (uint32_t i = 0; rc >= 0 && i < p->nchunks; i++) {
		struct mgp_chunk *c = &p->chunk[i];
		struct key start = { .numel = c->numel, .dtype = c->dtype }, all = start;
		struct ckpt_err inner = { 0 };

		c->class = c->like = c->tile = MGP_NONE;
		if (!c->numel || !ck_dtype_is_castable((enum ckpt_dtype)c->dtype))
			continue;
		rc = hash_chunk(p, c, &start.hash, &all.hash, &inner);
		if (rc) {	/* a damaged file: the reader of the index reports it */
			rc = ck_err_take_system(rc, &inner, err);
			continue;
		}
		rc = kind_add(p, c, err);
		if (!rc)
			rc = key_add(p, &p->by_start, &start, 0, NULL, err);
		if (rc >= 0)
			rc = class_of(p, i, &all, err);
	}
	return rc < 0 ? rc : 0;
}

bool ck_mgp_may_start(struct mgp *p, const struct mgp_bucket *b, uint64_t n,
		      const struct mgp_kind *kind)
{
	struct key key = { .numel = kind->numel, .dtype = kind->dtype };
	uint64_t value;

	n = ck_min_u64(n, kind->numel);
	kn_cast(p->cast, kn_type_of(kind->dtype), p->raw, kn_type_of(b->dtype), n, NULL);
	key.hash = ck_hash128(p->cast, n * size_of(kind->dtype));
	return ck_map_find(&p->by_start, (const char *)&key, sizeof(key), &value);
}

int ck_mgp_class_at(struct mgp *p, const struct mgp_bucket *b, uint64_t at,
		    const struct mgp_kind *kind, uint32_t *class_out, struct ckpt_err *err)
{
	const size_t from = size_of(b->dtype), to = size_of(kind->dtype);
	struct key key = { .numel = kind->numel, .dtype = kind->dtype };
	uint64_t value;
	int rc = 0;

	ck_hasher_reset(p->hasher);
	for (uint64_t done = 0; !rc && done < kind->numel; done += MGP_BLOCK) {
		const uint64_t n = ck_min_u64(MGP_BLOCK, kind->numel - done);

		rc = ck_mgp_read(b->run, b->nruns, from, at + done, n, p->raw, err);
		if (rc)
			return rc;
		kn_cast(p->cast, kn_type_of(kind->dtype), p->raw, kn_type_of(b->dtype), n, NULL);
		ck_hasher_add(p->hasher, p->cast, n * to);
	}
	key.hash = ck_hasher_sum(p->hasher);
	*class_out = ck_map_find(&p->by_content, (const char *)&key, sizeof(key), &value) ?
			     (uint32_t)value : MGP_NONE;
	return 0;
}
