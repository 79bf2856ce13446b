/*
 * Safetensors files of torch.distributed.checkpoint, one a rank: how pieces join, and which folders
 * are refused. If this is wrong, a user gets a tensor with rows of another save, or one that is
 * shorter than it was.
 *
 * The values of the real folders are compared in tests/cli/test_truth_fsdp.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/fs/t_dir.h"
#include "tests/lib/mutate/t_flip.h"
#include "tests/lib/ops/t_step.h"

static const struct ckpt_run_opts run = {
	.size = sizeof(run), .threads = 1, .sync = CKPT_SYNC_NONE,
};
static char *dir;

static int setup(void **state)
{
	(void)state;
	dir = t_dir_new();
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	t_dir_end(dir);
	return 0;
}

/* ---- files ---- */

/* A piece: elements 'first', 'first' + 1, ... in 4 bytes each; F32 unless 'dtype' says so. */
struct piece {
	const char *name, *shape, *place;
	size_t n;
	float first;
	const char *dtype;
};

#define TENSOR_W "\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}"
#define W "\\\"w\\\": {\\\"saved_offsets\\\": "	/* in a text in JSON */
#define NAME(number, of, rank) "shard-0000" #rank "-model-0000" #number "-of-0000" #of \
	".safetensors"
#define ONE(rank) NAME(1, 1, rank)

static void append(char **text, const char *more)
{
	char *both = t_fmt("%s%s", *text, more);

	free(*text);
	*text = both;
}

static void write_file(const char *name, const char *header, const float *value, size_t n)
{
	const uint64_t len = strlen(header);
	char *path = t_fmt("%s/%s", dir, name);
	uint8_t *p = t_alloc(8 + len + n * 4);

	for (int i = 0; i < 8; i++)
		p[i] = (uint8_t)(len >> (8 * i));
	memcpy(p + 8, header, len);
	if (n)
		memcpy(p + 8 + len, value, n * 4);
	t_file_write(path, p, 8 + len + n * 4);
	free(p);
	free(path);
}

/* 'info': DCP_SHARDING_INFO, or NULL to make it of the pieces' places. */
static void save_as(const char *name, const struct piece *piece, size_t n, const char *info)
{
	char *places = t_fmt("%s", ""), *tensors = t_fmt("%s", ""), *header;
	float value[256];
	size_t at = 0;

	for (size_t i = 0; i < n; i++) {
		char *one = t_fmt("%s\\\"%s\\\": {\\\"saved_offsets\\\": %s}", i ? ", " : "",
				  piece[i].name, piece[i].place);
		char *two = t_fmt(",\"%s\":{\"dtype\":\"%s\",\"shape\":%s,"
				  "\"data_offsets\":[%zu,%zu]}", piece[i].name,
				  piece[i].dtype ? piece[i].dtype : "F32",
				  piece[i].shape, at * 4, (at + piece[i].n) * 4);

		append(&places, one);
		append(&tensors, two);
		free(one);
		free(two);
		for (size_t k = 0; k < piece[i].n; k++)
			value[at++] = piece[i].first + (float)k;
	}
	header = t_fmt("{\"__metadata__\":{\"DCP_VERSION\":\"1.0\",\"format\":\"pt\","
		       "\"DCP_SHARDING_INFO\":\"{%s}\"}%s}", info ? info : places, tensors);
	write_file(name, header, value, at);
	free(header);
	free(places);
	free(tensors);
}

#define SAVE(name, ...) \
	save_as(name, (const struct piece[]){ __VA_ARGS__ }, \
		sizeof((const struct piece[]){ __VA_ARGS__ }) / sizeof(struct piece), NULL)

static void save_text(const char *name, const char *text)
{
	char *path = t_fmt("%s/%s", dir, name);

	t_file_write(path, text, strlen(text));
	free(path);
}

static void drop(const char *name)
{
	char *path = t_fmt("%s/%s", dir, name);

	t_dir_remove(path);
	free(path);
}

static void finds(const char *id, const char *words)
{
	struct ckpt *ck = t_step_open(dir, NULL);

	if (!t_step_finding(ck, id, words))
		fail_msg("no %s with '%s'", id, words);
	ckpt_close(ck);
}

static void is_whole(struct ckpt *ck)
{
	struct ckpt_info info;

	ckpt_info_get(ck, &info);
	for (uint64_t i = 0; i < info.nfindings; i++) {
		struct ckpt_finding f;

		ckpt_finding_get(ck, i, &f, NULL);
		if (f.severity >= CKPT_ERROR)
			fail_msg("%s: %s: %s", f.id, f.where, f.text);
	}
}

/* ---- joining ---- */

static void blocks_on_two_axes_join(void **state)
{
	struct ckpt *ck;
	struct ckpt_tensor_info t;

	(void)state;
	SAVE(ONE(1), { "w", "[2, 2]", "[0, 0]", 4, 0, 0 }, { "b", "[3]", "[0]", 3, 70, 0 });
	SAVE(ONE(2), { "w", "[2, 1]", "[0, 2]", 2, 10, 0 });
	SAVE(ONE(3), { "w", "[1, 2]", "[2, 0]", 2, 20, 0 }, { "s", "[]", "[]", 1, 80, 0 });
	SAVE(ONE(4), { "w", "[1, 1]", "[2, 2]", 1, 30, 0 });
	ck = t_step_open(dir, NULL);
	is_whole(ck);
	t = t_step_tensor(ck, "w");
	assert_int_equal(t.ndim, 2);
	assert_int_equal(t.numel, 9);
	for (int i = 0; i < 9; i++) {
		static const float want[] = { 0, 1, 10, 2, 3, 11, 20, 21, 30 };

		assert_true(t_step_value(ck, "w", "weight", (uint64_t)i) == want[i]);
	}
	assert_true(t_step_value(ck, "b", "weight", 2) == 72);
	assert_true(t_step_value(ck, "s", "weight", 0) == 80);
	assert_int_equal(t_step_tensor(ck, "s").ndim, 0);
	ckpt_close(ck);
}

static void ranks_without_rows_have_empty_pieces(void **state)
{
	struct ckpt *ck;

	(void)state;
	for (int i = 0; i < 7; i++) {
		char *name = t_fmt("shard-%05d-model-00001-of-00001.safetensors", i + 1);
		char *place = t_fmt("[%d, 0]", i < 5 ? i : 5);

		SAVE(name, { "w", i < 5 ? "[1, 2]" : "[0, 2]", place, i < 5 ? 2 : 0, (float)i * 2,
			     0 });
		free(name);
		free(place);
	}
	ck = t_step_open(dir, NULL);
	is_whole(ck);
	assert_int_equal(t_step_tensor(ck, "w").numel, 10);
	for (uint64_t i = 0; i < 10; i++)
		assert_true(t_step_value(ck, "w", "weight", i) == (float)i);
	ckpt_close(ck);
	drop(ONE(5));	/* the empty ones say that there was a fifth row */
	finds("RANK_FILE_MISSING", ONE(5));
	finds("LENGTH_WRONG", "leave out element 8 of 10");
}

static void one_rank_with_two_files_is_a_world_of_one(void **state)
{
	struct ckpt_info info;
	struct ckpt *ck;

	(void)state;
	SAVE(NAME(1, 2, 1), { "a", "[2]", "[0]", 2, 1, 0 });
	SAVE(NAME(2, 2, 1), { "b", "[2]", "[0]", 2, 3, 0 }, { "e", "[0]", "[0]", 0, 0, 0 });
	ck = t_step_open(dir, NULL);
	is_whole(ck);
	assert_non_null(t_step_finding(ck, "RANKS_UNCOUNTED", "1 rank has files"));
	ckpt_info_get(ck, &info);
	assert_int_equal(info.world, 1);
	assert_int_equal(info.ntensors, 3);
	assert_true(t_step_value(ck, "b", "weight", 1) == 4);
	ckpt_close(ck);
}

/* The bytes say where they belong: which file they are in does not matter. */
static void files_whose_names_were_exchanged_join_the_same(void **state)
{
	struct ckpt *ck;

	(void)state;
	SAVE(ONE(1), { "w", "[2]", "[2]", 2, 3, 0 });
	SAVE(ONE(2), { "w", "[2]", "[0]", 2, 1, 0 });
	ck = t_step_open(dir, NULL);
	is_whole(ck);
	for (uint64_t i = 0; i < 4; i++)
		assert_true(t_step_value(ck, "w", "weight", i) == (float)i + 1);
	ckpt_close(ck);
}

/* ---- folders that are refused ---- */

static void save_two(void)
{
	SAVE(NAME(1, 2, 1), { "w", "[2]", "[0]", 2, 1, 0 });
	SAVE(NAME(1, 2, 2), { "w", "[2]", "[2]", 2, 3, 0 });
	SAVE(NAME(2, 2, 1), { "v", "[2]", "[0]", 2, 1, 0 });
	SAVE(NAME(2, 2, 2), { "v", "[2]", "[2]", 2, 3, 0 });
}

static void a_missing_last_rank_is_seen(void **state)
{
	(void)state;
	save_two();
	drop(NAME(2, 2, 2));
	finds("RANK_FILE_MISSING", NAME(2, 2, 2));
	drop(NAME(2, 2, 1));
	finds("RANK_FILE_MISSING", NAME(2, 2, 1));
}

/* Where no number has a file of it, only an index tells. */
static void an_index_knows_the_bytes_and_the_names(void **state)
{
	struct ckpt *ck;
	char *below = t_fmt("%s/sharded", dir), *above = dir;

	(void)state;
	t_dir_make(below);
	save_text("model.safetensors.index.json",
		  "{\"metadata\":{\"total_size\":32},\"weight_map\":{\"w\":\"x\",\"v\":\"x\"}}");
	dir = below;
	save_two();
	ck = t_step_open(dir, NULL);
	is_whole(ck);
	ckpt_close(ck);
	ck = t_step_open(dir, NULL);
	assert_null(t_step_finding(ck, "RANKS_UNCOUNTED", ""));
	ckpt_close(ck);
	drop(NAME(1, 2, 2));
	drop(NAME(2, 2, 2));
	finds("LENGTH_WRONG", "total_size says 32 bytes, the tensors joined of the pieces have 16");
	save_two();
	SAVE(NAME(2, 2, 1), { "v", "[4]", "[0]", 4, 1, 0 });	/* all of it */
	drop(NAME(2, 2, 2));
	ck = t_step_open(dir, NULL);
	is_whole(ck);
	ckpt_close(ck);
	SAVE(NAME(2, 2, 1), { "v", "[2]", "[0]", 2, 1, 0 });
	finds("RANK_FILE_MISSING", NAME(2, 2, 2));
	save_two();
	dir = above;
	save_text("model.safetensors.index.json",
		  "{\"metadata\":{\"total_size\":32},\"weight_map\":{\"w\":\"x\",\"u\":\"x\"}}");
	dir = below;
	finds("NAMES_WRONG", "no rank's file has it");
	dir = above;
	save_text("model.safetensors.index.json", "[]");
	dir = below;
	finds("FORMAT_NOTE", "it is no index");
	dir = above;
	free(below);
}

static void files_of_two_saves_are_seen(void **state)
{
	(void)state;
	save_two();
	SAVE(ONE(1), { "w", "[4]", "[0]", 4, 1, 0 });
	finds("RANK_FILE_EXTRA", "files of two saves");
	drop(ONE(1));
	SAVE(NAME(1, 2, 3), { "w", "[1]", "[3]", 1, 9, 0 });
	SAVE(NAME(2, 2, 3), { "v", "[1]", "[5]", 1, 9, 0 });
	finds("LENGTH_WRONG", "overlap at element 3 of 4");
	finds("LENGTH_WRONG", "leave out element 4 of 6");
	SAVE(NAME(1, 2, 3), { "w", "[4]", "[4]", 4, 9, "I32" });
	SAVE(NAME(2, 2, 3), { "v", "[1, 1]", "[4, 0]", 1, 9, 0 });
	finds("RANKS_DISAGREE", "F32 with 1 dimensions");
	finds("RANKS_DISAGREE", "F32 with 2 in");
	SAVE(NAME(1, 2, 3), { "v", "[1]", "[4]", 1, 9, 0 });
	finds("TENSOR_DUPLICATE", NAME(1, 2, 3));
	SAVE("shard-000001-model-00001-of-00002.safetensors", { "w", "[2]", "[0]", 2, 1, 0 });
	finds("RANK_FILE_EXTRA", "a second file 1 of rank 1");
}

static void the_same_piece_twice_overlaps(void **state)
{
	(void)state;
	save_two();
	t_dir_copy_in(dir, NAME(1, 2, 1), "again");
	drop(NAME(1, 2, 2));
	t_dir_copy_in(dir, "again", NAME(1, 2, 2));
	finds("LENGTH_WRONG", "overlap at element 0 of 2");
}

static void places_that_no_tensor_has_are_refused(void **state)
{
	static const struct {
		const char *info, *words;
	} cases[] = {
		{ W "[-2]}", "no count" },
		{ W "[2.0]}", "no count" },
		{ W "[\\\"2\\\"]}", "no count" },
		{ W "[[2]]}", "no count" },
		{ W "[99999999999999999999]}", "no count" },
		{ W "[9223372036854775807]}", "no tensor reaches" },
		{ W "[2, 0]}", "has 2 saved_offsets" },
		{ W "[]}", "has 0 saved_offsets" },
		{ W "2}", "no saved_offsets" },
		{ "\\\"w\\\": {\\\"offsets\\\": [2]}", "no saved_offsets" },
		{ "\\\"w\\\": [2]", "no saved_offsets" },
		{ "\\\"v\\\": {\\\"saved_offsets\\\": [2]}", "no tensor of the file" },
		{ "", "is missing" },
		{ W "[2]}, " W "[4]}",
		  "twice" },
		{ "\\\"w\\\"", "DCP_SHARDING_INFO" },
	};

	(void)state;
	SAVE(ONE(1), { "w", "[2]", "[0]", 2, 1, 0 });
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct piece w = { "w", "[2]", "[2]", 2, 3, 0 };
		struct ckpt *ck;

		save_as(ONE(2), &w, 1, cases[i].info);
		finds("FILE_DAMAGED", cases[i].words);
		ck = t_step_open(dir, NULL);	/* how long it is, the damaged file would say */
		assert_int_equal(t_step_count(ck, "weight"), 0);
		ckpt_close(ck);
	}
	SAVE(ONE(2), { "w", "[2]", "[4611686018427387904]", 2, 3, 0 });
	finds("LENGTH_WRONG", "leave out element 2");
	SAVE(ONE(1), { "w", "[1, 2]", "[0, 0]", 2, 1, 0 });
	SAVE(ONE(2), { "w", "[1, 2]", "[4611686018427387904, 4]", 2, 3, 0 });
	finds("LENGTH_WRONG", "further than the elements of any tensor");
}

static void a_shard_without_places_is_damage(void **state)
{
	const float value[2] = { 1, 2 };

	(void)state;
	SAVE(ONE(1), { "w", "[2]", "[0]", 2, 1, 0 });
	write_file(ONE(2), "{" TENSOR_W, value, 2);
	finds("FILE_DAMAGED", "no DCP_SHARDING_INFO");
	write_file(ONE(2), "{\"__metadata__\":{\"DCP_VERSION\":\"1.0\"},"
		   TENSOR_W, value, 2);
	finds("FILE_DAMAGED", "but no DCP_SHARDING_INFO");
	write_file(ONE(2), "{\"__metadata__\":{\"DCP_VERSION\":\"2.0\","
		   "\"DCP_SHARDING_INFO\":\"{}\"}," TENSOR_W, value, 2);
	t_step_fails(dir, NULL, CKPT_E_UNSUPPORTED, "DCP_VERSION|2.0");
}

static void names_that_count_too_far_are_refused(void **state)
{
	(void)state;
	SAVE("shard-9999999-model-00001-of-9999999.safetensors", { "w", "[2]", "[0]", 2, 1, 0 });
	t_step_fails(dir, NULL, CKPT_E_LIMIT, "9999999 ranks");
}

static void a_piece_alone_is_never_a_model(void **state)
{
	char *path = t_fmt("%s/" ONE(1), dir), *other = t_fmt("%s/model.safetensors", dir);

	(void)state;
	SAVE(ONE(1), { "w", "[2]", "[0]", 2, 1, 0 });
	SAVE("model.safetensors", { "w", "[2]", "[0]", 2, 1, 0 });
	t_step_fails(path, NULL, CKPT_E_UNSUPPORTED, "one piece|rank 1");
	t_step_fails(other, NULL, CKPT_E_UNSUPPORTED, "one piece|does not say");
	t_step_fails(dir, NULL, CKPT_E_UNSUPPORTED, "one piece|does not say");
	free(path);
	free(other);
}

/* Without save_distributed=True one rank writes whole tensors, with places that are all 0. */
static void whole_tensors_of_one_rank_are_read(void **state)
{
	static const char index[] = "{\"metadata\":{\"total_size\":%d},\"weight_map\":{"
				    "\"w\":\"model-00001-of-00001.safetensors\"}}";
	char *text = t_fmt(index, 8), *path;
	struct ckpt *ck;

	(void)state;
	SAVE("model-00001-of-00001.safetensors", { "w", "[2]", "[0]", 2, 1, 0 });
	t_step_fails(dir, NULL, CKPT_E_INCOMPLETE, "index");
	save_text("model.safetensors.index.json", text);
	ck = t_step_open(dir, NULL);
	is_whole(ck);
	assert_true(t_step_value(ck, "w", "weight", 1) == 2);
	assert_null(t_step_fact(ck, "metadata.DCP_SHARDING_INFO"));
	ckpt_close(ck);
	free(text);
	text = t_fmt(index, 16);
	save_text("model.safetensors.index.json", text);
	finds("LENGTH_WRONG", "save_distributed");
	SAVE("model-00001-of-00001.safetensors", { "w", "[2]", "[2]", 2, 1, 0 });
	path = t_fmt("%s/model-00001-of-00001.safetensors", dir);
	t_step_fails(path, NULL, CKPT_E_UNSUPPORTED, "does not begin where");
	free(path);
	free(text);
}

/* ---- damage ---- */

/* Right values, or an error. */
static void judge(const char *what, size_t at, uint64_t whole)
{
	struct ckpt_err err = { 0 };
	struct ckpt_info info;
	struct ckpt *ck;
	uint64_t hash = 0;
	bool wrong = false;

	if (t_flip_digest(dir, &run, &hash, &err) || hash == whole)
		return;
	ck = t_step_open(dir, NULL);
	ckpt_info_get(ck, &info);
	for (uint64_t i = 0; i < info.nfindings; i++) {
		struct ckpt_finding f;

		ckpt_finding_get(ck, i, &f, NULL);
		wrong |= f.severity >= CKPT_ERROR;
	}
	if (!wrong)
		fail_msg("%s, byte %zu: other values, and no error", what, at);
	ckpt_close(ck);
}

static void damage_of(const char *name)
{
	char *path = t_fmt("%s/%s", dir, name);
	struct ckpt_err err = { 0 };
	uint64_t whole;
	size_t n, header;
	uint8_t *p = t_file_read(path, &n);

	assert_int_equal(t_flip_digest(dir, &run, &whole, &err), 0);
	header = 8 + p[0] + (size_t)p[1] * 256;
	for (size_t i = 0; i < header; i++)
		for (unsigned bit = 0; bit < 8; bit += 2 + i % 3) {
			p[i] ^= (uint8_t)(1u << bit);
			t_file_write(path, p, n);
			judge("flipped", i, whole);
			p[i] ^= (uint8_t)(1u << bit);
		}
	for (size_t i = 0; i < n; i += 1 + i / 64) {
		t_file_write(path, p, i);
		finds("FILE_DAMAGED", name);
		judge("cut", i, whole);
	}
	t_file_write(path, p, n);
	free(p);
	free(path);
}

static void damage_is_an_error_or_does_not_matter(void **state)
{
	(void)state;
	SAVE(ONE(1), { "w", "[2, 2]", "[0, 0]", 4, 1, 0 }, { "x.y", "[2]", "[0]", 2, 5, 0 });
	SAVE(ONE(2), { "w", "[1, 2]", "[2, 0]", 2, 5, 0 }, { "s", "[]", "[]", 1, 7, "I32" });
	damage_of(ONE(1));
	damage_of(ONE(2));
}

static void damage_of_a_real_folder_is_an_error(void **state)
{
	char *from = t_fixture("fsdp/t2.11-fsdp2-hfs-w2-cons/ckpt/sharded");

	(void)state;
	t_dir_remove(dir);
	t_dir_copy(from, dir);
	damage_of(NAME(2, 2, 2));
	free(from);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest made[] = {
		TEST(blocks_on_two_axes_join),
		TEST(ranks_without_rows_have_empty_pieces),
		TEST(one_rank_with_two_files_is_a_world_of_one),
		TEST(files_whose_names_were_exchanged_join_the_same),
		TEST(a_missing_last_rank_is_seen),
		TEST(an_index_knows_the_bytes_and_the_names),
		TEST(files_of_two_saves_are_seen),
		TEST(the_same_piece_twice_overlaps),
		TEST(places_that_no_tensor_has_are_refused),
		TEST(a_shard_without_places_is_damage),
		TEST(names_that_count_too_far_are_refused),
		TEST(a_piece_alone_is_never_a_model),
		TEST(whole_tensors_of_one_rank_are_read),
		TEST(damage_is_an_error_or_does_not_matter),
	};
	const struct CMUnitTest real[] = {
		TEST(damage_of_a_real_folder_is_an_error),
	};
	int bad = cmocka_run_group_tests_name("made", made, NULL, NULL);

	if (getenv("ZCKPT_FIXTURES"))
		bad += cmocka_run_group_tests_name("real", real, NULL, NULL);
	else
		printf("skipped: the real folders: ZCKPT_FIXTURES is not set\n");
	return bad;
}
