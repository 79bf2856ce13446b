/*
 * ds_twins.c -- stage 3: ranks that the names in their files do not tell apart.
 *
 * An archive that was saved through a file object, or under a path that is not ASCII, and a legacy
 * stream do not say which rank wrote them.  At stages 1 and 2 the weights in the model file show a
 * shard in a wrong place; at stage 3 nothing else holds them.  So two shards that were exchanged
 * cannot be seen, and one that was copied over another can: no two ranks hold the same elements.
 *
 * Some do, in an honest step: ranks that hold padding alone, or parts of parameters that are one
 * value throughout (biases and norms before the first step).  Then a copy changes nothing, and only
 * what varies within the part of one parameter counts.
 */
#include <inttypes.h>
#include <string.h>

#include "formats/deepspeed/ds_driver.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/tensor/ck_dtype.h"
#include "libckpt/tensor/ck_extents.h"

#define BLOCK 4096u	/* bytes that are looked at of a part, and of a sample */
#define SAMPLES 16u
#define VARIED 8u	/* neighbours that differ: no accident */
#define COMPARED ((uint64_t)1 << 20)

/* What two copies have in common, and few others: a key in bytes. */
struct twin_key {
	struct ck_hash128 fingerprint, sample;
	uint64_t bytes, kind;
};

static struct ck_src *src_of(const struct ds_step *ds, const struct ds_file *file)
{
	return ds->ix->source[file->source].src;
}

/* A directory of CRC-32s says all of the contents. */
static bool has_sums(const struct ds_file *file)
{
	return !file->legacy && !file->notes.of_kind[CK_FINDING_CRC_NOT_COMPUTED];
}

static int key_of(const struct ds_step *ds, const struct ds_file *file, struct twin_key *key,
		  struct ckpt_err *err)
{
	const uint64_t n = ck_min_u64(file->bytes, BLOCK);
	struct ck_hash128 sample[SAMPLES];
	uint8_t block[BLOCK];
	int rc = 0;

	*key = (struct twin_key){
		.fingerprint = file->fingerprint, .bytes = file->bytes, .kind = file->id.kind,
	};
	if (has_sums(file))
		return 0;
	for (uint64_t i = 0; !rc && i < SAMPLES; i++) {
		memset(block, 0, sizeof(block));
		rc = ck_src_read(src_of(ds, file), (file->bytes - n) / (SAMPLES - 1) * i, block, n,
				 err);
		sample[i] = ck_hash128(block, n);
	}
	key->sample = ck_hash128(sample, sizeof(sample));
	return rc;
}

/* Are the two files the same bytes? */
static int same_bytes(const struct ds_step *ds, const struct ds_file *a, const struct ds_file *b,
		      bool *out, struct ckpt_err *err)
{
	uint8_t *x, *y;
	int rc = 0;

	*out = a->bytes == b->bytes;
	if (has_sums(a) && has_sums(b))
		return 0;
	x = ck_alloc_array(COMPARED, 1);
	y = ck_alloc_array(COMPARED, 1);
	if (!x || !y)
		rc = ck_fail_nomem(err, "bytes to compare", COMPARED);
	for (uint64_t at = 0, n; !rc && *out && at < a->bytes; at += n) {
		n = ck_min_u64(a->bytes - at, COMPARED);
		rc = ck_src_read(src_of(ds, a), at, x, n, err);
		if (!rc)
			rc = ck_src_read(src_of(ds, b), at, y, n, err);
		*out = !rc && !memcmp(x, y, n);
	}
	ck_free(x);
	ck_free(y);
	return rc;
}

/* How many elements at the beginning of an extent differ from the one before. */
static int count_changes(const struct ds_step *ds, const struct ck_extent *e, uint32_t *out,
			 struct ckpt_err *err)
{
	const uint64_t es = ckpt_dtype_bits((enum ckpt_dtype)e->dtype) / 8;
	const uint64_t n = es ? ck_min_u64(e->count, BLOCK / es) : 0;
	uint8_t p[BLOCK];
	int rc = 0;

	if (n < 2 || (e->flags & (CKPT_EXTENT_DEFLATED | CKPT_EXTENT_GATHER)))
		return 0;
	rc = ck_src_read(ds->ix->source[e->source].src, e->off, p, n * es, err);
	for (uint64_t i = 1; !rc && i < n; i++)
		*out += memcmp(p + i * es, p + (i - 1) * es, es) != 0;
	return rc;
}

/* Does the file hold parts of parameters that vary?  Buffers are alike on all ranks. */
static int is_varied(const struct ds_step *ds, const struct ds_file *file, bool *out,
		     struct ckpt_err *err)
{
	const struct ck_index *ix = ds->ix;
	uint32_t changes = 0;
	int rc = 0;

	for (uint64_t i = 0; !rc && changes < VARIED && i < ix->nstates; i++) {
		const struct ck_state *s = &ix->state[i];

		if (ix->tensor[s->tensor].role == CKPT_ROLE_BUFFER)
			continue;
		for (uint64_t k = 0; !rc && k < s->nstored; k++)
			if (ck_extent_stored(ix, s, k)->source == file->source)
				rc = count_changes(ds, ck_extent_stored(ix, s, k), &changes, err);
	}
	*out = changes >= VARIED;
	return rc;
}

static int check_twin(struct ds_step *ds, const struct ds_file *first, const struct ds_file *file,
		      struct ckpt_err *err)
{
	bool same, varied = false;
	int rc = same_bytes(ds, first, file, &same, err);

	if (!rc && same)
		rc = is_varied(ds, file, &varied, err);
	if (!rc && varied)
		ck_findings_add(ds->f, CK_FINDING_RANK_FILE_SWAPPED, file->path,
				"it holds the same bytes as %s, but no two ranks have the "
				"same part (was one copied over the other?)", first->name);
	return rc;
}

/* A file that does not say whose it is, of a rank that the step has. */
static bool is_unnamed(const struct ds_step *ds, const struct ds_file *file)
{
	return file->ok && !file->named && file->id.rank < ds->world &&
	       (file->id.kind == DS_OPTIM || file->id.kind == DS_MODEL_RANK);
}

static int look_for_twins(struct ds_step *ds, struct ck_map *map, struct ckpt_err *err)
{
	int rc = 0;

	for (uint64_t i = 0; rc >= 0 && i < ds->nfiles; i++) {
		struct twin_key *key;
		uint64_t first;

		if (!is_unnamed(ds, &ds->file[i]))
			continue;
		key = ck_arena_zalloc(&ds->arena, sizeof(*key));
		if (!key)
			return ck_fail_nomem(err, "a file's key", sizeof(*key));
		rc = key_of(ds, &ds->file[i], key, err);
		if (!rc)
			rc = ck_map_add(map, (const char *)key, sizeof(*key), i, &first, err);
		if (rc == 1)
			rc = check_twin(ds, &ds->file[first], &ds->file[i], err);
	}
	return rc < 0 ? rc : 0;
}

/* Files of which two could change places without a word. */
static uint64_t count_unnamed(const struct ds_step *ds, enum ds_kind kind)
{
	uint64_t n = 0;

	for (uint64_t i = 0; i < ds->nfiles; i++)
		n += ds->file[i].id.kind == kind && is_unnamed(ds, &ds->file[i]);
	return n;
}

int ck_ds_tell_ranks(struct ds_step *ds, struct ckpt_err *err)
{
	struct ck_map map = CK_MAP_INIT;
	uint64_t shards, models;
	int rc;

	if (ds->stage != 3 || !ds->model_rank || ds->world < 2)
		return 0;
	rc = look_for_twins(ds, &map, err);
	ck_map_release(&map);
	shards = ds->optim ? count_unnamed(ds, DS_OPTIM) : 0;
	models = ds->nfrozen ? count_unnamed(ds, DS_MODEL_RANK) : 0;
	if (!rc && (shards > 1 || models > 1))
		ck_findings_add(ds->f, CK_FINDING_RANKS_UNNAMED, ds->at.where,
				"%" PRIu64 " files do not record the rank that wrote them, "
				"so a swap of two files cannot be detected", shards + models);
	return rc;
}
