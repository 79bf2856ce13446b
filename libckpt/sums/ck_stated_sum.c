/* ck_stated_sum.c -- see ck_stated_sum.h. */
#include "libckpt/sums/ck_stated_sum.h"

#include <inttypes.h>

#include "libckpt/base/ck_sys.h"
#include "libckpt/tensor/ck_extents.h"

bool ck_stated_blocks(const struct ck_index *ix, const struct ck_stated_sum *s,
		      uint64_t *first_out, uint64_t *count_out)
{
	const struct ck_state *state = &ix->state[s->state];
	const uint32_t bits = ckpt_dtype_bits((enum ckpt_dtype)state->dtype);
	const uint64_t grain = bits < 8 ? 1 : CK_DIGEST_BLOCK / (bits / 8);
	const uint64_t over = s->first % grain, skip = over ? grain - over : 0;
	uint64_t end = s->first + s->count;

	if (end != ix->tensor[state->tensor].numel)
		end -= end % grain;
	*first_out = s->first + skip;
	*count_out = end > *first_out ? end - *first_out : 0;
	return *count_out != 0;
}

bool ck_stated_is(const struct ck_index *ix, const struct ck_stated_sum *s, struct ck_hash128 sum)
{
	const struct ck_state *state = &ix->state[s->state];
	const struct ck_tensor *t = &ix->tensor[state->tensor];

	if (s->closed)
		sum = ck_digest_close(ckpt_dtype_name((enum ckpt_dtype)state->dtype), t->shape,
				      t->ndim, sum);
	return ck_hash128_equal(sum, s->sum);
}

void ck_stated_wrong(struct ck_findings *findings, const struct ck_index *ix,
		    const struct ck_stated_sum *s)
{
	const struct ck_state *state = &ix->state[s->state];
	const char *path = ix->source[ck_extent_at(ix, state, s->first).source].path;

	if (s->of_file) {
		ck_findings_add(findings, CK_FINDING_SUM_WRONG,
				ix->tensor[state->tensor].name,
				"its bytes in %s differ from those that were written there: "
				"damage, or another program changed them and kept the metadata "
				"(then --as-warning SUM_WRONG)",
				path);
		return;
	}
	ck_findings_add(findings, CK_FINDING_MANIFEST_HASH_WRONG, ix->tensor[state->tensor].name,
			"%s, elements %" PRIu64 " to %" PRIu64 " in %s: the bytes differ "
			"from the manifest", state->name, s->first, s->first + s->count - 1,
			path);
}
