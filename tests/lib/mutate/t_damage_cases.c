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

static char *shard(const char *dir, int rank)
{
	return find_file(dir, "optim_states.pt", rank);
}

static char *model(const char *dir, int rank)
{
	return find_file(dir, "model_states.pt", rank);
}

/* The tag folder of another fixture, as it came. */
static char *other(const struct t_copy *k, const char *name, const char *tag)
{
	return t_fmt("%s/%s/ckpt/%s", k->fixtures, name, tag);
}

static void drop(char *path)
{
	t_damage_delete(path);
	free(path);
}

static void swap(char *a, char *b)
{
	t_damage_swap(a, b);
	free(a);
	free(b);
}

/* Puts FROM, a file of another checkpoint, in place of TO. */
static void replace(char *to, char *from, char *dir)
{
	t_damage_delete(to);
	t_dir_copy(from, to);
	free(to);
	free(from);
	free(dir);
}

static void no_shard_0(const struct t_copy *k) { drop(shard(k->tag_dir, 0)); }
static void no_shard_1(const struct t_copy *k) { drop(shard(k->tag_dir, 1)); }
static void no_shard_2(const struct t_copy *k) { drop(shard(k->tag_dir, 2)); }
static void no_shard_3(const struct t_copy *k) { drop(shard(k->tag_dir, 3)); }
static void no_model_0(const struct t_copy *k) { drop(model(k->tag_dir, 0)); }
static void no_model_1(const struct t_copy *k) { drop(model(k->tag_dir, 1)); }

static void no_shards(const struct t_copy *k)
{
	drop(shard(k->tag_dir, 0));
	drop(shard(k->tag_dir, 1));
}

static void swap_shards(const struct t_copy *k)
{
	swap(shard(k->tag_dir, 0), shard(k->tag_dir, 1));
}

static void swap_models(const struct t_copy *k)
{
	swap(model(k->tag_dir, 0), model(k->tag_dir, 1));
}

static void twice_rank_0(const struct t_copy *k)
{
	replace(shard(k->tag_dir, 1), shard(k->tag_dir, 0), NULL);
}

static void stale_shard(const struct t_copy *k, const char *from)
{
	char *dir = other(k, from, "global_step3"), *src = shard(dir, 2);
	char *dst = t_fmt("%s/%s", k->tag_dir, strrchr(src, '/') + 1);

	t_dir_copy(src, dst);
	free(dst);
	free(src);
	free(dir);
}

static void stale_z2(const struct t_copy *k) { stale_shard(k, "ds0.19.8-z2-bf16-w3"); }
static void stale_z3(const struct t_copy *k) { stale_shard(k, "ds0.19.8-z3-bf16-w3"); }

static void shard_of_step_2(const struct t_copy *k)
{
	char *dir = other(k, "ds0.19.8-z2-bf16-w2-twotags", "global_step2");

	replace(shard(k->tag_dir, 1), shard(dir, 1), dir);
}

static void model_of_step_2(const struct t_copy *k)
{
	char *dir = other(k, "ds0.19.8-z2-bf16-w2-twotags", "global_step2");

	replace(model(k->tag_dir, 0), model(dir, 0), dir);
}

static void shard_of_step_0(const struct t_copy *k)
{
	char *dir = other(k, "ds0.19.8-z3-bf16-w2-step0", "global_step0");

	replace(shard(k->tag_dir, 1), shard(dir, 1), dir);
}

static void model_of_world_3(const struct t_copy *k)
{
	char *dir = other(k, "ds0.19.8-z3-bf16-w3", "global_step3");

	replace(model(k->tag_dir, 1), model(dir, 1), dir);
}

static void set_latest(const struct t_copy *k, const char *text)
{
	char *path = t_fmt("%s/latest", k->root);

	t_file_write(path, text, strlen(text));
	free(path);
}

static void latest_lies(const struct t_copy *k) { set_latest(k, "global_step99"); }
static void latest_empty(const struct t_copy *k) { set_latest(k, ""); }
static void latest_newline(const struct t_copy *k) { set_latest(k, "global_step3\n"); }

static void half_shard(const struct t_copy *k)
{
	char *path = shard(k->tag_dir, 1);

	t_damage_truncate(path, 9000);
	free(path);
}

static void shard_less_one_byte(const struct t_copy *k)
{
	char *path = shard(k->tag_dir, 1);

	t_damage_truncate(path, -1);
	free(path);
}

static void empty_shard(const struct t_copy *k)
{
	char *path = shard(k->tag_dir, 1);

	t_damage_truncate(path, 0);
	free(path);
}

static void empty_model(const struct t_copy *k)
{
	char *path = model(k->tag_dir, 0);

	t_damage_truncate(path, 0);
	free(path);
}

/* As long as it was, but nothing was ever written: after a power cut. */
static void zero_shard(const struct t_copy *k)
{
	char *path = shard(k->tag_dir, 0);
	size_t n;
	uint8_t *b = t_file_read(path, &n);

	memset(b, 0, n);
	t_file_write(path, b, n);
	free(b);
	free(path);
}

static void flip_pickle(char *path)
{
	size_t at, n;

	t_damage_pickle_at(path, &at, &n);
	t_damage_flip(path, at + n / 2, 0x04);
	free(path);
}

static void flip_shard_pickle(const struct t_copy *k) { flip_pickle(shard(k->tag_dir, 1)); }
static void flip_model_pickle(const struct t_copy *k) { flip_pickle(model(k->tag_dir, 0)); }

/* Only the meaning changes; CRCs are right. emb.weight is 61 x 12. */
static void wider_shape(const struct t_copy *k)
{
	char *path = model(k->tag_dir, 0);

	t_damage_pickle(path, "param_shapes", "K=K\x0c", "K?K\x0c", 4);
	free(path);
}

static void narrower_shape(const struct t_copy *k)
{
	char *path = model(k->tag_dir, 0);

	t_damage_pickle(path, "param_shapes", "K=K\x0c", "K\x30K\x0c", 4);
	free(path);
}

static void other_partition_count(const struct t_copy *k)
{
	char *path = shard(k->tag_dir, 1);

	t_damage_pickle(path, "partition_count", "K\x02", "K\x03", 2);
	free(path);
}

/* Changes the sign of the first element of NAME|STATE wherever it is stored. */
static void flip_value(const struct t_copy *k, const char *fixture, const char *key, char *path)
{
	char *truth_path = t_fmt("%s/%s/truth.safetensors", k->fixtures, fixture);
	struct t_st truth;
	const struct t_st_tensor *t;
	size_t n;
	long at;

	if (t_st_open(&truth, truth_path) < 0)
		t_die("%s: %s", truth_path, truth.err);
	t = t_st_find(&truth, key);
	if (!t)
		t_die("%s has no %s", truth_path, key);
	n = t->nbytes < 64 ? t->nbytes : 64;
	at = t_damage_find(path, t->data, n, 0);
	if (at < 0)
		t_die("%s does not hold the first elements of %s", path, key);
	t_damage_flip(path, (size_t)at + t_st_itemsize(t->dtype) - 1, 0x80);
	t_st_close(&truth);
	free(truth_path);
	free(path);
}

static void flip_master(const struct t_copy *k)
{
	flip_value(k, "ds0.19.8-z2-bf16-w2", "emb.weight|master", shard(k->tag_dir, 0));
}

static void flip_weight(const struct t_copy *k)
{
	flip_value(k, "ds0.19.8-z2-bf16-w2", "emb.weight|weight", model(k->tag_dir, 0));
}

/* The sign of element 'elem' of NAME|STATE, of which quick looks at the ends only. */
static void flip_inside(const struct t_copy *k, const char *fixture, const char *key,
			size_t elem, char *path)
{
	char *truth_path = t_fmt("%s/%s/truth.safetensors", k->fixtures, fixture);
	struct t_st truth;
	const struct t_st_tensor *t;
	long at;

	if (t_st_open(&truth, truth_path) < 0)
		t_die("%s: %s", truth_path, truth.err);
	t = t_st_find(&truth, key);
	if (!t || elem >= t->nbytes / t_st_itemsize(t->dtype))
		t_die("%s has no such %s", truth_path, key);
	at = t_damage_find(path, t->data, 64, 0);
	if (at < 0)
		t_die("%s does not hold the first elements of %s", path, key);
	t_damage_flip(path, (size_t)at + (elem + 1) * t_st_itemsize(t->dtype) - 1, 0x80);
	t_st_close(&truth);
	free(truth_path);
	free(path);
}

static void flip_moment(const struct t_copy *k)
{
	flip_inside(k, "ds0.19.8-z2-bf16-w2", "emb.weight|exp_avg", 300, shard(k->tag_dir, 0));
}

static void flip_inner_weight(const struct t_copy *k)
{
	flip_inside(k, "ds0.19.8-z2-bf16-w2", "emb.weight|weight", 300, model(k->tag_dir, 0));
}

static void flip_legacy_moment(const struct t_copy *k)
{
	flip_inside(k, "ds0.19.8-z2-bf16-w2-legacy", "emb.weight|exp_avg", 300,
		    shard(k->tag_dir, 0));
}

static void flip_legacy_master(const struct t_copy *k)
{
	flip_inside(k, "ds0.19.8-z2-bf16-w2-legacy", "emb.weight|master", 300,
		    shard(k->tag_dir, 0));
}

static void flip_z3_master(const struct t_copy *k)
{
	flip_inside(k, "ds0.19.8-z3-bf16-w2", "emb.weight|master", 200, shard(k->tag_dir, 0));
}

static void foreign_file(const struct t_copy *k)
{
	char *path = t_fmt("%s/notes.txt", k->tag_dir);

	t_file_write(path, "keep this one\n", 14);
	free(path);
}

static const char z2[] = "ds0.19.8-z2-bf16-w2", z3[] = "ds0.19.8-z3-bf16-w2";
static const char tags2[] = "ds0.19.8-z2-bf16-w2-twotags";

#define NOTHING T_NOTHING
#define HASH "MANIFEST_HASH_WRONG"
#define AS_ABOVE NULL, NULL, NULL

const struct t_damage_case t_damage_cases[] = {
	{ "the first shard is missing, stage 2", "ds0.19.8-z2-bf16-w4", no_shard_0,
	  3, "RANK_FILE_MISSING", "zero_pp_rank_0", AS_ABOVE },
	{ "a middle shard is missing, stage 2", "ds0.19.8-z2-bf16-w4", no_shard_2,
	  3, "RANK_FILE_MISSING", "zero_pp_rank_2", AS_ABOVE },
	{ "the last shard is missing, stage 2", "ds0.19.8-z2-bf16-w4", no_shard_3,
	  3, "RANK_FILE_MISSING", "zero_pp_rank_3", AS_ABOVE },
	{ "a middle shard is missing, stage 3", "ds0.19.8-z3-bf16-w3", no_shard_1,
	  3, "RANK_FILE_MISSING", "zero_pp_rank_1", AS_ABOVE },
	{ "the last shard is missing, stage 3", "ds0.19.8-z3-bf16-w3", no_shard_2,
	  3, "RANK_FILE_MISSING", "zero_pp_rank_2", AS_ABOVE },
	{ "the last shard is missing, BF16_Optimizer", "ds0.19.8-z1-bf16-w4-bf16opt",
	  no_shard_3, 3, "RANK_FILE_MISSING", "zero_pp_rank_3", AS_ABOVE },
	{ "all shards are missing, stage 3", z3, no_shards,
	  3, "RANK_FILE_MISSING", NULL, AS_ABOVE },
	{ "the model file is missing, stage 2", z2, no_model_0,
	  3, "MODEL_FILE_MISSING", "model_states", AS_ABOVE },
	{ "the first model file is missing, stage 3", z3, no_model_0,
	  3, "MODEL_FILE_MISSING", "zero_pp_rank_0", AS_ABOVE },
	{ "the second model file is missing, stage 3", z3, no_model_1,
	  3, "MODEL_FILE_MISSING", "zero_pp_rank_1", AS_ABOVE },
	{ "a shard of another world is added, stage 2", z2, stale_z2,
	  3, "RANK_FILE_EXTRA", "zero_pp_rank_2", AS_ABOVE },
	{ "a shard of another world is added, stage 3", z3, stale_z3,
	  3, "RANK_FILE_EXTRA", "zero_pp_rank_2", AS_ABOVE },
	{ "two shards are swapped, stage 2", z2, swap_shards,
	  3, "RANK_FILE_SWAPPED", NULL, AS_ABOVE },
	{ "two shards are swapped, stage 3", z3, swap_shards,
	  3, "RANK_FILE_SWAPPED", NULL, AS_ABOVE },
	{ "two model files are swapped, stage 3", z3, swap_models,
	  3, "RANK_FILE_SWAPPED", NULL, AS_ABOVE },
	{ "two shards that bear no name are swapped", "ds0.6.7-z2-bf16-w2",
	  swap_shards, 3, "RANK_FILE_SWAPPED|MASTER_WEIGHT_MISMATCH|LENGTH_WRONG",
	  NULL, AS_ABOVE },
	{ "two legacy-stream shards are swapped", "ds0.19.8-z2-bf16-w2-legacy",
	  swap_shards, 3, "RANK_FILE_SWAPPED|MASTER_WEIGHT_MISMATCH|LENGTH_WRONG",
	  NULL, AS_ABOVE },
	{ "one shard stands for both ranks, stage 2", z2, twice_rank_0,
	  3, "RANK_FILE_SWAPPED", "zero_pp_rank_1", AS_ABOVE },
	{ "one shard stands for both ranks, stage 3", z3, twice_rank_0,
	  3, "RANK_FILE_SWAPPED", "zero_pp_rank_1", AS_ABOVE },
	{ "a shard comes from an earlier step", tags2, shard_of_step_2,
	  3, "STEP_MIXED", NULL, AS_ABOVE },
	{ "the model file comes from an earlier step", tags2, model_of_step_2,
	  3, "STEP_MIXED|MASTER_WEIGHT_MISMATCH", NULL, AS_ABOVE },
	{ "a shard comes from before the first step, stage 3", z3, shard_of_step_0,
	  3, "STEP_MIXED|RANKS_DISAGREE|LENGTH_WRONG", NULL, AS_ABOVE },
	{ "a model file comes from another world, stage 3", z3, model_of_world_3,
	  3, "RANKS_DISAGREE|STEP_MIXED", NULL, AS_ABOVE },
	{ "latest names a tag that is not there", z2, latest_lies,
	  3, "LATEST_LIES", "global_step99", AS_ABOVE },
	{ "latest is empty", z2, latest_empty, 3, "LATEST_LIES", NULL,
	  AS_ABOVE },
	{ "a shard is cut in the middle", z2, half_shard,
	  3, "FILE_DAMAGED", "zero_pp_rank_1", AS_ABOVE },
	{ "a shard lacks its last byte", z3, shard_less_one_byte,
	  3, "FILE_DAMAGED", "zero_pp_rank_1", AS_ABOVE },
	{ "a legacy-stream shard is cut", "ds0.19.8-z2-bf16-w2-legacy", half_shard,
	  3, "FILE_DAMAGED", "zero_pp_rank_1", AS_ABOVE },
	{ "a shard is empty", z2, empty_shard, 3, "FILE_DAMAGED", "zero_pp_rank_1",
	  AS_ABOVE },
	{ "a model file is empty", z3, empty_model,
	  3, "FILE_DAMAGED", "zero_pp_rank_0", AS_ABOVE },
	{ "a shard holds zeros", z2, zero_shard,
	  3, "FILE_DAMAGED", "zero_pp_rank_0", AS_ABOVE },
	{ "a bit of a shard's pickle is flipped", z2, flip_shard_pickle,
	  3, "FILE_DAMAGED", "zero_pp_rank_1", AS_ABOVE },
	{ "a bit of a model file's pickle is flipped", z3, flip_model_pickle,
	  3, "FILE_DAMAGED", "zero_pp_rank_0", AS_ABOVE },
	{ "a shape is too wide, stage 2", z2, wider_shape,
	  3, "LENGTH_WRONG", NULL, AS_ABOVE },
	{ "a shape is too narrow, stage 2", z2, narrower_shape,
	  3, "LENGTH_WRONG", NULL, AS_ABOVE },
	{ "a shape is too wide, stage 3", z3, wider_shape,
	  3, "LENGTH_WRONG|RANKS_DISAGREE", NULL, AS_ABOVE },
	{ "ranks state other partition counts, stage 2", z2, other_partition_count,
	  3, "RANKS_DISAGREE|RANK_FILE_MISSING", NULL, AS_ABOVE },
	{ "ranks state other partition counts, stage 3", z3, other_partition_count,
	  3, "RANKS_DISAGREE|RANK_FILE_MISSING", NULL, AS_ABOVE },
	{ "a master does not round to its weight", z2, flip_master,
	  3, "MASTER_WEIGHT_MISMATCH", "emb.weight", AS_ABOVE },
	{ "a weight is not what its master rounds to", z2, flip_weight,
	  3, "MASTER_WEIGHT_MISMATCH", "emb.weight", AS_ABOVE },
	/* bytes that a conversion does not read, or only reads: verify --full looks at them */
	{ "a moment has a flipped bit", z2, flip_moment, 0, NULL, NULL,
	  NOTHING, "CRC_WRONG", HASH },
	{ "the middle of a weight has a flipped bit", z2, flip_inner_weight, 0, NULL, NULL,
	  NOTHING, "CRC_WRONG", HASH },
	{ "the middle of a master has a flipped bit, stage 3", z3, flip_z3_master,
	  3, "CRC_WRONG", "rank_0", NOTHING, NULL, HASH },
	{ "a master has a flipped bit, legacy stream", "ds0.19.8-z2-bf16-w2-legacy",
	  flip_legacy_master, 3, "MASTER_WEIGHT_MISMATCH", "emb.weight", NOTHING, NULL, HASH },
	{ "a moment has a flipped bit, legacy stream", "ds0.19.8-z2-bf16-w2-legacy",
	  flip_legacy_moment, 0, NULL, NULL, NOTHING, NOTHING, HASH },
	/* no damage at all */
	{ "latest ends with a newline", z2, latest_newline, 0, NULL, NULL,
	  AS_ABOVE },
	{ "a foreign file is added", z2, foreign_file, 0, NULL, NULL,
	  NOTHING, NOTHING, "MANIFEST_FILE_EXTRA" },
	{ "the tag has brackets, a space and an umlaut",
	  "ds0.19.8-z3-bf16-w2-oddtag", foreign_file, 0, NULL, NULL,
	  NOTHING, NOTHING, "MANIFEST_FILE_EXTRA" },
};

const size_t t_ndamage_cases = sizeof(t_damage_cases) / sizeof(t_damage_cases[0]);
