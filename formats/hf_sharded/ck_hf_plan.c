/* ck_hf_plan.c -- see ck_hf_plan.h. */
#include "formats/hf_sharded/ck_hf_plan.h"

#include <inttypes.h>
#include <string.h>

#include "formats/hf_sharded/ck_hf.h"
#include "formats/safetensors/ck_st_plan.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/tensor/ck_dtype.h"

struct sharding {
	const struct ck_want *want;
	uint64_t *bytes;		/* per item */
	uint32_t *shard;		/* per item */
	uint32_t *number;		/* items by shard */
	uint32_t nshards;
	uint64_t total;
};

static int measure(struct sharding *s, struct ckpt_err *err)
{
	const struct ck_want *want = s->want;

	for (uint64_t i = 0; i < want->nitems; i++) {
		int rc = ck_dtype_bytes(want->item[i].dtype,
					want->ix->tensor[want->item[i].tensor].numel,
					&s->bytes[i], err);

		if (!rc && ck_add_over(s->total, s->bytes[i], &s->total))
			rc = ck_fail(err, CKPT_E_LIMIT, want->stem, CKPT_NO_OFFSET,
				     "all tensors together exceed 2^64 bytes");
		if (rc)
			return rc;
	}
	return ck_hf_split(s->bytes, want->nitems, want->max_shard_bytes, s->shard, &s->nshards,
			   err);
}

/* Items by shard, in their order: end[k] is behind the last one of shard k. */
static void sort_items(struct sharding *s, uint64_t *end)
{
	const uint64_t n = s->want->nitems;
	uint64_t at = 0;

	for (uint64_t i = 0; i < n; i++)
		end[s->shard[i]]++;
	for (uint32_t k = 0; k < s->nshards; k++) {
		const uint64_t count = end[k];

		end[k] = at;
		at += count;
	}
	for (uint64_t i = 0; i < n; i++)
		s->number[end[s->shard[i]]++] = (uint32_t)i;
}

/* The first shard keeps the sums of the other files, also of the index. */
static int list_beside(const struct sharding *s, const char *index, struct ck_want *want,
		       struct ckpt_err *err)
{
	const char **all = ck_alloc_array(want->nbeside + 1, sizeof(*all));

	if (!all || !index) {
		ck_free(all);
		return ck_fail_nomem(err, "file names", want->nbeside);
	}
	if (want->nbeside)
		memcpy(all, want->beside, want->nbeside * sizeof(*all));
	if (s->nshards > 1)
		all[want->nbeside++] = index;
	want->beside = all;
	return 0;
}

static int plan_shards(struct sharding *s, struct ck_plan *plan, struct ckpt_err *err)
{
	uint64_t *end = ck_zalloc((size_t)s->nshards * sizeof(*end));
	char *index = ck_hf_index_name(s->want->stem);
	struct ck_want want = *s->want;
	const char *const *beside = NULL;
	uint64_t begin = 0;
	int rc = end ? list_beside(s, index, &want, err) : ck_fail_nomem(err, "shards", s->nshards);

	if (!rc) {
		sort_items(s, end);
		beside = want.beside;
	}
	for (uint32_t k = 0; !rc && k < s->nshards; k++) {
		char *name = ck_hf_shard_name(s->want->stem, k, s->nshards);

		rc = name ? ck_st_plan_file(&want, s->number + begin, end[k] - begin, name,
					    plan, err) :
			    ck_fail_nomem(err, "a file name", 0);
		ck_free(name);
		begin = end[k];
		want.nbeside = 0;
	}
	ck_free((void *)(uintptr_t)beside);
	ck_free(index);
	ck_free(end);
	return rc;
}

/* The index says what the files say, but for "format", which is theirs. */
static int index_text(const struct sharding *s, const char *const *name, char **text_out,
		      uint64_t *len_out, struct ckpt_err *err)
{
	const struct ck_want *want = s->want;
	struct ck_fact *meta = ck_alloc_array(want->nmeta, sizeof(*meta));
	uint64_t n = 0;
	int rc;

	if (!meta)
		return ck_fail_nomem(err, "metadata", want->nmeta);
	for (uint64_t i = 0; i < want->nmeta; i++)
		if (strcmp(want->meta[i].key, "format") &&
		    strcmp(want->meta[i].key, "total_size"))
			meta[n++] = want->meta[i];
	rc = ck_hf_index_json(want->stem, name, s->shard, want->nitems, s->nshards, s->total,
			      meta, n, text_out, len_out, err);
	ck_free(meta);
	return rc;
}

static int plan_index(const struct sharding *s, struct ck_plan *plan, struct ckpt_err *err)
{
	const uint64_t n = s->want->nitems;
	const char **name = ck_alloc_array(n, sizeof(*name));
	char *file = ck_hf_index_name(s->want->stem), *text = NULL;
	uint64_t len = 0;
	int rc = 0;

	if (!name || !file)
		rc = ck_fail_nomem(err, "an index", n);
	for (uint64_t i = 0; !rc && i < n; i++)
		name[i] = s->want->item[i].name;
	if (!rc)
		rc = index_text(s, name, &text, &len, err);
	if (!rc)
		rc = ck_plan_file(plan, file, err);
	if (!rc)
		rc = ck_plan_literal(plan, text, len, err);
	if (!rc)
		rc = ck_plan_sum_file(plan, err);
	ck_free(text);
	ck_free(file);
	ck_free(name);
	return rc;
}

int ck_hf_plan(const struct ck_want *want, struct ck_plan *plan, struct ckpt_err *err)
{
	struct sharding s = {
		.want = want,
		.bytes = ck_alloc_array(want->nitems, sizeof(*s.bytes)),
		.shard = ck_alloc_array(want->nitems, sizeof(*s.shard)),
		.number = ck_alloc_array(want->nitems, sizeof(*s.number)),
	};
	int rc = 0;

	if (!s.bytes || !s.shard || !s.number)
		rc = ck_fail_nomem(err, "shards", want->nitems);
	if (!rc)
		rc = measure(&s, err);
	if (!rc)
		rc = plan_shards(&s, plan, err);
	if (!rc && s.nshards > 1)
		rc = plan_index(&s, plan, err);
	ck_free(s.bytes);
	ck_free(s.shard);
	ck_free(s.number);
	return rc;
}
