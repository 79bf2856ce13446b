/* See t_damage_cases.h. */
#include "tests/lib/mutate/t_damage_cases.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/archive/t_st.h"
#include "tests/lib/fs/t_dir.h"
#include "tests/lib/mutate/t_damage_file.h"

/* Path of the optimizer shard or model file of a rank in a tag folder. */
static char *find_file(const char *dir, const char *tail, int rank)
{
	char *part = t_fmt("zero_pp_rank_%d_", rank), *path = NULL;
	char **names = t_dir_list(dir, NULL);

	for (size_t i = 0; names[i] && !path; i++)
		if (t_ends_with(names[i], tail) &&
		    (strstr(names[i], part) ||
		     (rank == 0 && !strncmp(names[i], "mp_rank_00", 10))))
			path = t_fmt("%s/%s", dir, names[i]);
	if (!path)
		t_die("%s has no %s of rank %d", dir, tail, rank);
	t_list_free(names);
	free(part);
	return path;
}

static char *file_of(const char *dir, const struct t_damage *d, int rank)
{
	return find_file(dir, d->file == T_MODEL ? "model_states.pt" : "optim_states.pt", rank);
}

/* The file that the damage is about. */
static char *target(const struct t_copy *k, const struct t_damage *d)
{
	return file_of(k->tag_dir, d, d->rank);
}

static void drop(const struct t_copy *k, const struct t_damage *d)
{
	char *path = target(k, d);

	t_damage_delete(path);
	free(path);
}

static void drop_both(const struct t_copy *k, const struct t_damage *d)
{
	struct t_damage second = *d;

	second.rank++;
	drop(k, d);
	drop(k, &second);
}

/* With the next rank's. */
static void swap(const struct t_copy *k, const struct t_damage *d)
{
	char *a = target(k, d), *b = file_of(k->tag_dir, d, d->rank + 1);

	t_damage_swap(a, b);
	free(a);
	free(b);
}

/* Rank 0's file is used for this one too. */
static void repeat(const struct t_copy *k, const struct t_damage *d)
{
	char *to = target(k, d), *from = file_of(k->tag_dir, d, 0);

	t_damage_delete(to);
	t_dir_copy(from, to);
	free(to);
	free(from);
}

/* The file of that rank in another fixture takes its place; or is put beside the others. */
static void replace(const struct t_copy *k, const struct t_damage *d)
{
	char *dir = t_fmt("%s/%s", k->fixtures, d->text), *from = file_of(dir, d, d->rank);
	char *to = target(k, d);

	t_damage_delete(to);
	t_dir_copy(from, to);
	free(to);
	free(from);
	free(dir);
}

static void add_from(const struct t_copy *k, const struct t_damage *d)
{
	char *dir = t_fmt("%s/%s", k->fixtures, d->text), *from = file_of(dir, d, d->rank);
	char *to = t_fmt("%s/%s", k->tag_dir, strrchr(from, '/') + 1);

	t_dir_copy(from, to);
	free(to);
	free(from);
	free(dir);
}

static void set_latest(const struct t_copy *k, const struct t_damage *d)
{
	char *path = t_fmt("%s/latest", k->root);

	t_file_write(path, d->text, strlen(d->text));
	free(path);
}

static void cut(const struct t_copy *k, const struct t_damage *d)
{
	char *path = target(k, d);

	t_damage_truncate(path, d->n);
	free(path);
}

/* As long as it was, but nothing was ever written: after a power cut. */
static void zero(const struct t_copy *k, const struct t_damage *d)
{
	char *path = target(k, d);
	size_t n;
	uint8_t *b = t_file_read(path, &n);

	memset(b, 0, n);
	t_file_write(path, b, n);
	free(b);
	free(path);
}

static void flip_pickle(const struct t_copy *k, const struct t_damage *d)
{
	char *path = target(k, d);
	size_t at, n;

	t_damage_pickle_at(path, &at, &n);
	t_damage_flip(path, at + n / 2, 0x04);
	free(path);
}

/* Only the meaning changes, at the key 'text'; CRCs are right. */
static void edit_pickle(const struct t_copy *k, const struct t_damage *d)
{
	char *path = target(k, d);

	t_damage_pickle(path, d->text, d->was, d->is, (size_t)d->n);
	free(path);
}

/* Changes the sign of element 'n' of NAME|STATE; quick looks at the first and last ones only. */
static void flip_sign(const struct t_copy *k, const struct t_damage *d)
{
	char *path = target(k, d), *truth_path = t_fmt("%s/%s/truth.safetensors", k->fixtures,
						       d->fixture);
	const struct t_st_tensor *t;
	struct t_st truth;
	size_t size;
	long at;

	if (t_st_open(&truth, truth_path) < 0)
		t_die("%s: %s", truth_path, truth.err);
	t = t_st_find(&truth, d->text);
	if (!t)
		t_die("%s has no %s", truth_path, d->text);
	size = t_st_itemsize(t->dtype);
	if ((size_t)d->n >= t->nbytes / size)
		t_die("%s has no such element of %s", truth_path, d->text);
	at = t_damage_find(path, t->data, t->nbytes < 64 ? t->nbytes : 64, 0);
	if (at < 0)
		t_die("%s does not hold the first elements of %s", path, d->text);
	t_damage_flip(path, (size_t)at + ((size_t)d->n + 1) * size - 1, 0x80);
	t_st_close(&truth);
	free(truth_path);
	free(path);
}

static void foreign_file(const struct t_copy *k, const struct t_damage *d)
{
	char *path = t_fmt("%s/%s", k->tag_dir, d->text);

	t_file_write(path, "keep this one\n", 14);
	free(path);
}

void t_damage_do(const struct t_damage_case *c, const struct t_copy *k)
{
	struct t_damage d = c->damage;

	d.fixture = c->fixture;
	d.run(k, &d);
}

static const char z2[] = "ds0.19.8-z2-bf16-w2", z3[] = "ds0.19.8-z3-bf16-w2";
static const char tags2[] = "ds0.19.8-z2-bf16-w2-twotags";

#define NOTHING T_NOTHING
#define HASH "MANIFEST_HASH_WRONG"
#define AS_ABOVE NULL, NULL, NULL

#define ON(what, kind, r) { .run = what, .file = T_##kind, .rank = r }
#define DROP(kind, r) ON(drop, kind, r)
#define FROM(what, kind, r, folder) { .run = what, .file = T_##kind, .rank = r, .text = folder }
#define LATEST(words) { .run = set_latest, .text = words }
#define CUT(kind, r, left) { .run = cut, .file = T_##kind, .rank = r, .n = left }
#define EDIT(kind, r, key, old, new, size) \
	{ edit_pickle, NULL, T_##kind, r, size, key, old, new }
#define FLIP(kind, key, element) { .run = flip_sign, .file = T_##kind, .text = key, .n = element }

/* emb.weight is 61 x 12. */
const struct t_damage_case t_damage_cases[] = {
	{ "the first shard is missing, stage 2", "ds0.19.8-z2-bf16-w4",
	  DROP(SHARD, 0), 3, "RANK_FILE_MISSING", "zero_pp_rank_0", AS_ABOVE },
	{ "a middle shard is missing, stage 2", "ds0.19.8-z2-bf16-w4",
	  DROP(SHARD, 2), 3, "RANK_FILE_MISSING", "zero_pp_rank_2", AS_ABOVE },
	{ "the last shard is missing, stage 2", "ds0.19.8-z2-bf16-w4",
	  DROP(SHARD, 3), 3, "RANK_FILE_MISSING", "zero_pp_rank_3", AS_ABOVE },
	{ "a middle shard is missing, stage 3", "ds0.19.8-z3-bf16-w3",
	  DROP(SHARD, 1), 3, "RANK_FILE_MISSING", "zero_pp_rank_1", AS_ABOVE },
	{ "the last shard is missing, stage 3", "ds0.19.8-z3-bf16-w3",
	  DROP(SHARD, 2), 3, "RANK_FILE_MISSING", "zero_pp_rank_2", AS_ABOVE },
	{ "the last shard is missing, BF16_Optimizer", "ds0.19.8-z1-bf16-w4-bf16opt",
	  DROP(SHARD, 3), 3, "RANK_FILE_MISSING", "zero_pp_rank_3", AS_ABOVE },
	{ "all shards are missing, stage 3", z3,
	  ON(drop_both, SHARD, 0), 3, "RANK_FILE_MISSING", NULL, AS_ABOVE },
	{ "the model file is missing, stage 2", z2,
	  DROP(MODEL, 0), 3, "MODEL_FILE_MISSING", "model_states", AS_ABOVE },
	{ "the first model file is missing, stage 3", z3,
	  DROP(MODEL, 0), 3, "MODEL_FILE_MISSING", "zero_pp_rank_0", AS_ABOVE },
	{ "the second model file is missing, stage 3", z3,
	  DROP(MODEL, 1), 3, "MODEL_FILE_MISSING", "zero_pp_rank_1", AS_ABOVE },
	{ "a shard of another world is added, stage 2", z2,
	  FROM(add_from, SHARD, 2, "ds0.19.8-z2-bf16-w3/ckpt/global_step3"),
	  3, "RANK_FILE_EXTRA", "zero_pp_rank_2", AS_ABOVE },
	{ "a shard of another world is added, stage 3", z3,
	  FROM(add_from, SHARD, 2, "ds0.19.8-z3-bf16-w3/ckpt/global_step3"),
	  3, "RANK_FILE_EXTRA", "zero_pp_rank_2", AS_ABOVE },
	{ "two shards are swapped, stage 2", z2,
	  ON(swap, SHARD, 0), 3, "RANK_FILE_SWAPPED", NULL, AS_ABOVE },
	{ "two shards are swapped, stage 3", z3,
	  ON(swap, SHARD, 0), 3, "RANK_FILE_SWAPPED", NULL, AS_ABOVE },
	{ "two model files are swapped, stage 3", z3,
	  ON(swap, MODEL, 0), 3, "RANK_FILE_SWAPPED", NULL, AS_ABOVE },
	{ "two shards that bear no name are swapped", "ds0.6.7-z2-bf16-w2",
	  ON(swap, SHARD, 0),
	  3, "RANK_FILE_SWAPPED|MASTER_WEIGHT_MISMATCH|LENGTH_WRONG", NULL, AS_ABOVE },
	{ "two legacy-stream shards are swapped", "ds0.19.8-z2-bf16-w2-legacy",
	  ON(swap, SHARD, 0),
	  3, "RANK_FILE_SWAPPED|MASTER_WEIGHT_MISMATCH|LENGTH_WRONG", NULL, AS_ABOVE },
	{ "both ranks have the same shard, stage 2", z2,
	  ON(repeat, SHARD, 1), 3, "RANK_FILE_SWAPPED", "zero_pp_rank_1", AS_ABOVE },
	{ "both ranks have the same shard, stage 3", z3,
	  ON(repeat, SHARD, 1), 3, "RANK_FILE_SWAPPED", "zero_pp_rank_1", AS_ABOVE },
	{ "a shard comes from an earlier step", tags2,
	  FROM(replace, SHARD, 1, "ds0.19.8-z2-bf16-w2-twotags/ckpt/global_step2"),
	  3, "STEP_MIXED", NULL, AS_ABOVE },
	{ "the model file comes from an earlier step", tags2,
	  FROM(replace, MODEL, 0, "ds0.19.8-z2-bf16-w2-twotags/ckpt/global_step2"),
	  3, "STEP_MIXED|MASTER_WEIGHT_MISMATCH", NULL, AS_ABOVE },
	{ "a shard comes from before the first step, stage 3", z3,
	  FROM(replace, SHARD, 1, "ds0.19.8-z3-bf16-w2-step0/ckpt/global_step0"),
	  3, "STEP_MIXED|RANKS_DISAGREE|LENGTH_WRONG", NULL, AS_ABOVE },
	{ "a model file comes from another world, stage 3", z3,
	  FROM(replace, MODEL, 1, "ds0.19.8-z3-bf16-w3/ckpt/global_step3"),
	  3, "RANKS_DISAGREE|STEP_MIXED", NULL, AS_ABOVE },
	{ "latest names a missing tag", z2,
	  LATEST("global_step99"), 3, "LATEST_LIES", "global_step99", AS_ABOVE },
	{ "latest is empty", z2,
	  LATEST(""), 3, "LATEST_LIES", NULL, AS_ABOVE },
	{ "a shard is cut in the middle", z2,
	  CUT(SHARD, 1, 9000), 3, "FILE_DAMAGED", "zero_pp_rank_1", AS_ABOVE },
	{ "a shard lacks its last byte", z3,
	  CUT(SHARD, 1, -1), 3, "FILE_DAMAGED", "zero_pp_rank_1", AS_ABOVE },
	{ "a legacy-stream shard is cut", "ds0.19.8-z2-bf16-w2-legacy",
	  CUT(SHARD, 1, 9000), 3, "FILE_DAMAGED", "zero_pp_rank_1", AS_ABOVE },
	{ "a shard is empty", z2,
	  CUT(SHARD, 1, 0), 3, "FILE_DAMAGED", "zero_pp_rank_1", AS_ABOVE },
	{ "a model file is empty", z3,
	  CUT(MODEL, 0, 0), 3, "FILE_DAMAGED", "zero_pp_rank_0", AS_ABOVE },
	{ "a shard holds zeros", z2,
	  ON(zero, SHARD, 0), 3, "FILE_DAMAGED", "zero_pp_rank_0", AS_ABOVE },
	{ "a bit of a shard's pickle is flipped", z2,
	  ON(flip_pickle, SHARD, 1), 3, "FILE_DAMAGED", "zero_pp_rank_1", AS_ABOVE },
	{ "a bit of a model file's pickle is flipped", z3,
	  ON(flip_pickle, MODEL, 0), 3, "FILE_DAMAGED", "zero_pp_rank_0", AS_ABOVE },
	{ "a shape is too wide, stage 2", z2,
	  EDIT(MODEL, 0, "param_shapes", "K=K\x0c", "K?K\x0c", 4),
	  3, "LENGTH_WRONG", NULL, AS_ABOVE },
	{ "a shape is too narrow, stage 2", z2,
	  EDIT(MODEL, 0, "param_shapes", "K=K\x0c", "K\x30K\x0c", 4),
	  3, "LENGTH_WRONG", NULL, AS_ABOVE },
	{ "a shape is too wide, stage 3", z3,
	  EDIT(MODEL, 0, "param_shapes", "K=K\x0c", "K?K\x0c", 4),
	  3, "LENGTH_WRONG|RANKS_DISAGREE", NULL, AS_ABOVE },
	{ "ranks state other partition counts, stage 2", z2,
	  EDIT(SHARD, 1, "partition_count", "K\x02", "K\x03", 2),
	  3, "RANKS_DISAGREE|RANK_FILE_MISSING", NULL, AS_ABOVE },
	{ "ranks state other partition counts, stage 3", z3,
	  EDIT(SHARD, 1, "partition_count", "K\x02", "K\x03", 2),
	  3, "RANKS_DISAGREE|RANK_FILE_MISSING", NULL, AS_ABOVE },
	{ "a master does not round to its weight", z2,
	  FLIP(SHARD, "emb.weight|master", 0),
	  3, "MASTER_WEIGHT_MISMATCH", "emb.weight", AS_ABOVE },
	{ "a weight is not what its master rounds to", z2,
	  FLIP(MODEL, "emb.weight|weight", 0),
	  3, "MASTER_WEIGHT_MISMATCH", "emb.weight", AS_ABOVE },
	/* bytes that a conversion does not read, or only reads: verify --full looks at them */
	{ "a moment has a flipped bit", z2,
	  FLIP(SHARD, "emb.weight|exp_avg", 300), 0, NULL, NULL, NOTHING, "CRC_WRONG", HASH },
	{ "the middle of a weight has a flipped bit", z2,
	  FLIP(MODEL, "emb.weight|weight", 300), 0, NULL, NULL, NOTHING, "CRC_WRONG", HASH },
	{ "the middle of a master has a flipped bit, stage 3", z3,
	  FLIP(SHARD, "emb.weight|master", 200),
	  3, "CRC_WRONG", "rank_0", NOTHING, NULL, HASH },
	{ "a master has a flipped bit, legacy stream", "ds0.19.8-z2-bf16-w2-legacy",
	  FLIP(SHARD, "emb.weight|master", 300),
	  3, "MASTER_WEIGHT_MISMATCH", "emb.weight", NOTHING, NULL, HASH },
	{ "a moment has a flipped bit, legacy stream", "ds0.19.8-z2-bf16-w2-legacy",
	  FLIP(SHARD, "emb.weight|exp_avg", 300), 0, NULL, NULL, NOTHING, NOTHING, HASH },
	/* no damage at all */
	{ "latest ends with a newline", z2,
	  LATEST("global_step3\n"), 0, NULL, NULL, AS_ABOVE },
	{ "a foreign file is added", z2,
	  { .run = foreign_file, .text = "notes.txt" },
	  0, NULL, NULL, NOTHING, NOTHING, "MANIFEST_FILE_EXTRA" },
	{ "the tag has brackets, a space and an umlaut", "ds0.19.8-z3-bf16-w2-oddtag",
	  { .run = foreign_file, .text = "notes.txt" },
	  0, NULL, NULL, NOTHING, NOTHING, "MANIFEST_FILE_EXTRA" },
};

const size_t t_ndamage_cases = sizeof(t_damage_cases) / sizeof(t_damage_cases[0]);
