/*
 * mg_shifted.c -- states that Megatron-Core has written wrong, 0.15.3 to 0.19.0 at least.
 *
 * fully_reshardable joins the buckets of a buffer without the padding at their ends, and looks the
 * parameters up at places that count it.  So the states of every parameter of the buckets after a
 * padded one are shifted, and Megatron-Core loads them back so.  A bucket is padded to a multiple
 * of lcm(data parallel ranks, 128) elements.
 *
 * The master of a parameter, rounded to 16 bits, is its weight; a shifted one is not.  Elements at
 * both ends of each chunk are compared.  Where the weights compared are all the same value, a shift
 * does not show: such a parameter counts as shifted if any other one is.
 */
#include <inttypes.h>
#include <string.h>

#include "formats/megatron/mg.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/tensor/ck_dtype.h"

#define WINDOW 64u	/* elements at either end of a chunk */
#define UNIT 128u	/* elements that a bucket is a multiple of */

static const char why_shifted[] =
	"its states were written shifted by Megatron-Core (fully_reshardable, several buckets)";

/* ---- can it be? ---- */

static uint64_t multiple(uint64_t a, uint64_t b)
{
	uint64_t x = a, y = b;

	while (y) {
		const uint64_t rest = x % y;

		x = y;
		y = rest;
	}
	return a / x > UINT32_MAX / b ? 0 : a / x * b;
}

/* What every bucket's length is a multiple of; 0 = not known. */
static uint64_t unit_of(const struct mg *mg)
{
	const struct mg_model *m = &mg->model;
	const uint64_t dp = m->dp * (m->cp ? m->cp : 1);
	int64_t pad;

	if (!dp || dp > UINT32_MAX || m->ep > UINT32_MAX || m->tp > UINT32_MAX ||
	    (ck_val_int(ck_val_get(mg->args, "pad_buckets_for_high_nccl_busbw"), &pad) && pad))
		return 0;
	/* Experts have dp * tp / (ep * etp) such ranks, which divides this. */
	return multiple(multiple(dp, UNIT), dp * (m->tp ? m->tp : 1));
}

/* No bucket is padded if each parameter of each rank is a multiple of what it is padded to. */
static bool may_be_padded(const struct mg *mg)
{
	const uint64_t unit = unit_of(mg);

	for (uint64_t i = 0; unit && i < mg->nparams; i++) {
		const struct dcp_item *it = mg->param[i].state[MG_MASTER].item;

		for (uint64_t k = 0; it && k < it->nchunks; k++)
			if (it->chunk[k].numel % unit)
				return true;
	}
	return !unit;
}

/* ---- compare ---- */

static int read_at(const struct mg *mg, const struct ck_extent *e, uint64_t first, uint64_t n,
		   uint8_t *out, struct ckpt_err *err)
{
	const uint64_t es = ckpt_dtype_bits((enum ckpt_dtype)e->dtype) / 8;

	return ck_src_read(mg->fs.ix->source[e->source].src, e->off + first * es, out, n * es, err);
}

/* Nearest 16-bit float to a float, ties to even. */
static uint16_t to_bf16(uint32_t bits)
{
	if ((bits & 0x7fffffffu) > 0x7f800000u)
		return (uint16_t)(bits >> 16 | 0x40);
	return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

static uint16_t to_fp16(uint32_t bits)
{
	const uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
	const uint32_t a = bits & 0x7fffffffu;
	uint32_t m, shift;

	if (a > 0x7f800000u)
		return (uint16_t)(sign | 0x7e00);
	if (a >= 0x47800000u)
		return (uint16_t)(sign | 0x7c00);
	if (a >= 0x38800000u)	/* normal */
		return (uint16_t)(sign | ((a - 0x38000000u + 0xfffu + (a >> 13 & 1)) >> 13));
	if (a < 0x33000000u)
		return sign;
	m = (a & 0x7fffffu) | 0x800000u;
	shift = 126 - (a >> 23);
	return (uint16_t)(sign | ((m + (1u << (shift - 1)) - 1 + (m >> shift & 1)) >> shift));
}

static bool is_nan16(uint16_t v, bool is_bf16)
{
	return is_bf16 ? (v & 0x7fff) > 0x7f80 : (v & 0x7fff) > 0x7c00;
}

/* Elements [first, first + n) of a chunk. */
static int compare(const struct mg *mg, const struct mg_piece *m, const struct mg_piece *w,
		   uint64_t first, uint64_t n, bool *differs, bool *varied, struct ckpt_err *err)
{
	const bool is_bf16 = w->extent.dtype == CKPT_BF16;
	uint8_t master[WINDOW * 4], weight[WINDOW * 2];
	int rc = read_at(mg, &m->extent, first, n, master, err);

	if (!rc)
		rc = read_at(mg, &w->extent, first, n, weight, err);
	for (uint64_t i = 0; !rc && i < n; i++) {
		const uint32_t bits = ck_le32(master + 4 * i);
		const uint16_t mine = is_bf16 ? to_bf16(bits) : to_fp16(bits);
		const uint16_t theirs = ck_le16(weight + 2 * i);

		*varied |= i && theirs != ck_le16(weight);
		*differs |= mine != theirs && !(is_nan16(mine, is_bf16) &&
						is_nan16(theirs, is_bf16));
	}
	return rc;
}

static bool same_block(const struct mg_param *p, const struct mg_piece *a, const struct mg_piece *b)
{
	return !memcmp(a->offset, b->offset, p->ndim * sizeof(*a->offset)) &&
	       !memcmp(a->size, b->size, p->ndim * sizeof(*a->size));
}

/* Weight and master are chunked in the same way, in any order. */
static int map_chunks(const struct mg_param *p, struct ck_map *map, struct ckpt_err *err)
{
	const struct mg_state *w = &p->state[MG_W];
	int rc = 0;

	for (uint64_t i = 0; rc >= 0 && i < w->n; i++)
		rc = ck_map_add(map, (const char *)w->piece[i].offset,
				p->ndim * sizeof(*w->piece[i].offset), i, NULL, err);
	return rc < 0 ? rc : 0;
}

/* '*known' is false where the chunks do not match, so that nothing can be compared. */
static int compare_param(const struct mg *mg, const struct mg_param *p, bool *differs,
			 bool *known, struct ckpt_err *err)
{
	const struct mg_state *m = &p->state[MG_MASTER], *w = &p->state[MG_W];
	struct ck_map map = CK_MAP_INIT;
	bool varied = false;
	int rc = map_chunks(p, &map, err);

	*differs = false;
	*known = true;
	for (uint64_t i = 0; !rc && !*differs && i < m->n; i++) {
		const struct mg_piece *one = &m->piece[i];
		const uint64_t n = one->count < WINDOW ? one->count : WINDOW;
		uint64_t at;

		if (!ck_map_find(&map, (const char *)one->offset, p->ndim * sizeof(*one->offset),
				 &at) || !same_block(p, one, &w->piece[at])) {
			*known = false;
			continue;
		}
		rc = compare(mg, one, &w->piece[at], 0, n, differs, &varied, err);
		if (!rc && !*differs && one->count > n)
			rc = compare(mg, one, &w->piece[at], one->count - n, n, differs, &varied,
				     err);
	}
	ck_map_release(&map);
	*known &= varied;
	return rc;
}

static bool is_pair(const struct mg_param *p)
{
	const uint8_t w = p->state[MG_W].dtype;

	return (w == CKPT_BF16 || w == CKPT_F16) && p->state[MG_MASTER].dtype == CKPT_F32;
}

static void report(struct mg *mg, struct mg_param *p)
{
	p->no_states = why_shifted;
	ck_findings_add(mg->fs.f, CK_FINDING_STATES_SHIFTED, p->key,
			"master and moments are left out: the weight is not the rounded master. "
			"Megatron-Core 0.15 to 0.19 shifts states after a padded bucket "
			"(fully_reshardable). The weight is right; save the run again with "
			"dp_reshardable");
}

int ck_mg_shifted_find(struct mg *mg, struct ckpt_err *err)
{
	bool *unsure, any = false;
	int rc = 0;

	if (mg->layout != MG_FULLY_RESHARDABLE || !may_be_padded(mg))
		return 0;
	unsure = ck_arena_zalloc(&mg->fs.arena, mg->nparams + 1);
	if (!unsure)
		return ck_fail_nomem(err, "parameters", mg->nparams);
	for (uint64_t i = 0; !rc && i < mg->nparams; i++) {
		struct mg_param *p = &mg->param[i];
		bool differs = false, known = true;

		if (!is_pair(p))
			continue;
		rc = compare_param(mg, p, &differs, &known, err);
		if (!rc && differs)
			report(mg, p);
		any |= differs;
		unsure[i] = !known;
	}
	for (uint64_t i = 0; !rc && any && i < mg->nparams; i++)
		if (unsure[i] && !mg->param[i].no_states)
			report(mg, &mg->param[i]);
	return rc;
}
