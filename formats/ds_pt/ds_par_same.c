/* ds_par_same.c -- elements of two states compared, before the index has them. */
#include <string.h>

#include "formats/ds_pt/ds_par.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/tensor/ck_dtype.h"
#include "libckpt/tensor/ck_extents.h"

#define AT_ONCE 256u	/* elements */
#define MAX_BYTES 16u	/* of an element */
#define SAMPLES 5u

/* Elements [first, first + n) of a state, as they are in its files; false: not to be had so. */
static int read_elems(const struct ds_par *par, const struct ds_par_state *s, uint64_t first,
		      uint64_t n, uint8_t *out, bool *known, struct ckpt_err *err)
{
	const struct ck_index *ix = &s->pos->ix;
	const struct ck_state *state = &ix->state[s->state];
	const uint64_t es = ckpt_dtype_bits((enum ckpt_dtype)state->dtype) / 8;
	int rc = 0;

	*known = es && es <= MAX_BYTES;
	while (!rc && *known && n) {
		const struct ck_extent got = ck_extent_at(ix, state, first), *e = &got;
		const uint64_t skip = first - e->first, count = ck_min_u64(n, e->count - skip);
		const struct ck_source *src;

		if (e->runs > 1 || (e->flags & (CKPT_EXTENT_DEFLATED | CKPT_EXTENT_GATHER |
						CKPT_EXTENT_SWAPPED | CKPT_EXTENT_CONJ |
						CKPT_EXTENT_NEG))) {
			*known = false;
			break;
		}
		src = &par->whole->ix->source[s->pos->source[e->source]];
		rc = ck_src_read(src->src, e->off + skip * es, out, count * es, err);
		out += count * es;
		first += count;
		n -= count;
	}
	return rc;
}

int ck_ds_par_same(const struct ds_par *par, const struct ds_par_state *a,
		   const struct ds_par_state *b, uint64_t most, bool *same_out, bool *known_out,
		   struct ckpt_err *err)
{
	const struct ck_state *x = &a->pos->ix.state[a->state], *y = &b->pos->ix.state[b->state];
	const uint64_t es = ckpt_dtype_bits((enum ckpt_dtype)x->dtype) / 8;
	const bool all = a->numel <= most;
	const uint64_t parts = all ? (a->numel + AT_ONCE - 1) / AT_ONCE : SAMPLES;
	uint8_t mine[AT_ONCE * MAX_BYTES], theirs[AT_ONCE * MAX_BYTES];
	bool known = true;
	int rc = 0;

	*same_out = a->numel == b->numel && x->dtype == y->dtype;
	for (uint64_t i = 0; !rc && *same_out && known && i < parts; i++) {
		const uint64_t at = all ? i * AT_ONCE : (a->numel - AT_ONCE) / (SAMPLES - 1) * i;
		const uint64_t n = ck_min_u64(AT_ONCE, a->numel - at);

		rc = read_elems(par, a, at, n, mine, &known, err);
		if (!rc && known)
			rc = read_elems(par, b, at, n, theirs, &known, err);
		if (!rc && known)
			*same_out = !memcmp(mine, theirs, n * es);
	}
	*known_out = known;
	return rc;
}
