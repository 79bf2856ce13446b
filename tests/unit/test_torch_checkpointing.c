/*
 * Folders of torch_checkpointing: its index, and files of ranks that do not fit it. If this is
 * wrong, a user gets a model of two saves, or without the rank whose file was not copied.
 *
 * The values of a real folder are compared in tests/cli/test_truth_fsdp.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/archive/t_pkl.h"
#include "tests/lib/fs/t_dir.h"
#include "tests/lib/mutate/t_flip.h"
#include "tests/lib/ops/t_raw.h"
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

static void save(const char *name, const char *text)
{
	char *path = t_fmt("%s/%s", dir, name);

	t_pkl_save(path, text);
	free(path);
}

static void drop(const char *name)
{
	char *path = t_fmt("%s/%s", dir, name);

	t_dir_remove(path);
	free(path);
}

/* The value that 'text' describes, as t_pkl_save() has it but without tensors; 'G': a name. */
static const char *put(struct t_pkl *b, const char *p)
{
	static const char open[] = "{[(", *const close[] = { "}", "]", ")" };
	const char *kind;

	p += strspn(p, " ");
	kind = strchr(open, *p);
	if (*p == '\'') {
		const size_t n = strcspn(p + 1, "'");

		t_pkl_str(b, p + 1, n);
		return p + n + 2;
	}
	if (kind) {
		static const char *const begin[] = { "}(", "](", "(" };
		static const char *const end[] = { "u", "e", "t" };
		const size_t k = (size_t)(kind - open);

		t_pkl_put(b, begin[k], strlen(begin[k]));
		for (p++; p += strspn(p, " "), *p != *close[k];)
			p = put(b, p);
		t_pkl_put(b, end[k], 1);
		return p + 1;
	}
	if (*p == 'N' || *p == 'G') {
		t_pkl_put(b, *p == 'N' ? "N" : "cfoo\nbar\n", *p == 'N' ? 1 : 9);
		return p + 1;
	}
	t_pkl_put(b, "I", 1);
	t_pkl_put(b, p, strspn(p, "0123456789"));
	t_pkl_put(b, "\n", 1);
	return p + strspn(p, "0123456789");
}

static void save_index_text(const char *text, const char *after)
{
	char *path = t_fmt("%s/metadata.pkl", dir);
	struct t_pkl b = { 0 };

	T_PKL_PUT(&b, "\200\002");
	put(&b, text);
	T_PKL_PUT(&b, ".");
	t_pkl_put(&b, after, strlen(after));
	t_file_write(path, b.p, b.n);
	free(b.p);
	free(path);
}

static void save_index(const char *items, const char *rest)
{
	char *text = t_fmt("{ 'metadata' { %s } %s }", items, rest);

	save_index_text(text, "");
	free(text);
}

#define REST "'world_size' 2 'version' '2.0'"
#define ITEM(name, paths) "'" name "' { 'nested_path_to_metadata' { " paths " } " \
	"'rank_to_layout_info' { 0 N 1 N } } "
#define ENTRY(shape, dtype, place, ranks) "{ 'sharding_metadata' { 'type' " \
	"'DTensorShardingMetadata' 'data' { 'global_shape' [ " shape " ] 'dtype' '" dtype "' " \
	"'mesh_spec' { 'mesh_shape' ( 2 ) 'mesh_data' ( 0 1 ) } 'placements' [ " place " ] } } " \
	"'ranks' ( " ranks " ) } "
#define WHOLE "{ 'type' 'Replicate' } "
#define PLAIN(path, shape) "'" path "' [ " ENTRY(shape, "torch.float32", WHOLE, "0 1") "] "
#define STATES(name, shape) PLAIN("[\"state\",\"" name "\",\"exp_avg\"]", shape) \
	PLAIN("[\"state\",\"" name "\",\"step\"]", "")
#define MODEL ITEM("model", PLAIN("[\"a.w\"]", "2 3") PLAIN("[\"b\"]", "2"))
#define OPTIM ITEM("optimizer", STATES("a.w", "2 3"))

static void save_folder(void)
{
	for (int i = 0; i < 2; i++) {
		static const struct {
			const char *item, *text;
		} files[] = {
			{ "model", "{ 'a.w' <f32 2 3 @1> 'b' <f32 2 @20> }" },
			{ "optimizer", "{ 'state' { 'a.w' { 'step' 3 'exp_avg' <f32 2 3 @7> } } "
			  "'param_groups' [ { 'lr' 0.5 'params' [ 'a.w' ] } ] }" },
			{ "step", "12" },
			{ "lr_scheduler", "{ 'last_epoch' 4 }" },
		};

		for (size_t k = 0; k < sizeof(files) / sizeof(files[0]); k++) {
			char *name = t_fmt("%s_%d.pt", files[k].item, i);

			save(name, files[k].text);
			free(name);
		}
	}
	save_index(MODEL OPTIM, REST);
}

static void finds(const char *id, const char *words)
{
	struct ckpt *ck = t_step_open(dir, NULL);

	if (!t_step_finding(ck, id, words))
		fail_msg("no %s with '%s'", id, words);
	ckpt_close(ck);
}

static bool has_error(struct ckpt *ck)
{
	struct ckpt_info info;

	ckpt_info_get(ck, &info);
	for (uint64_t i = 0; i < info.nfindings; i++) {
		struct ckpt_finding f;

		ckpt_finding_get(ck, i, &f, NULL);
		if (f.severity >= CKPT_ERROR)
			printf("%s: %s: %s\n", f.id, f.where, f.text);
		if (f.severity >= CKPT_ERROR)
			return true;
	}
	return false;
}

/* ---- folders ---- */

static void items_are_a_model_its_optimizer_and_a_step(void **state)
{
	struct ckpt_info info;
	struct ckpt *ck;

	(void)state;
	save_folder();
	ck = t_step_open(dir, NULL);
	assert_false(has_error(ck));
	ckpt_info_get(ck, &info);
	assert_int_equal(info.world, 2);
	assert_int_equal(info.step, 12);
	assert_true(t_step_value(ck, "a.w", "weight", 5) == 6);
	assert_true(t_step_value(ck, "a.w", "exp_avg", 5) == 12);
	assert_true(t_step_value(ck, "b", "weight", 1) == 21);
	assert_string_equal(t_step_fact(ck, "group.0.lr"), "0.5");
	assert_string_equal(t_step_fact(ck, "group.0.step"), "3");
	assert_string_equal(t_step_fact(ck, "scheduler.last_epoch"), "4");
	ckpt_close(ck);
}

static void items_may_have_other_names(void **state)
{
	static const char *const names[][2] = { { "model", "net" }, { "optimizer", "opt" } };
	struct ckpt *ck;

	(void)state;
	save_folder();
	for (int i = 0; i < 4; i++) {
		char *from = t_fmt("%s_%d.pt", names[i / 2][0], i % 2);
		char *to = t_fmt("%s_%d.pt", names[i / 2][1], i % 2);

		t_dir_copy_in(dir, from, to);
		drop(from);
		free(from);
		free(to);
	}
	save_index(ITEM("opt", STATES("a.w", "2 3"))
		   ITEM("net", PLAIN("[\"a.w\"]", "2 3") PLAIN("[\"b\"]", "2"))
		   ITEM("ema", PLAIN("[\"a.w\"]", "2 3")), REST);
	save("ema_0.pt", "{ 'a.w' <f32 2 3 @90> }");
	save("ema_1.pt", "{ 'a.w' <f32 2 3 @90> }");
	ck = t_step_open(dir, NULL);
	assert_false(has_error(ck));
	assert_true(t_step_value(ck, "a.w", "weight", 0) == 1);
	assert_true(t_step_value(ck, "a.w", "exp_avg", 0) == 7);
	assert_non_null(t_step_finding(ck, "SUBTREE_CHOICE", "ema"));
	ckpt_close(ck);
}

static void a_missing_file_of_any_item_is_an_error(void **state)
{
	static const char *const files[] = {
		"model_1.pt", "optimizer_0.pt", "step_1.pt", "lr_scheduler_0.pt",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		save_folder();
		drop(files[i]);
		finds("RANK_FILE_MISSING", files[i]);
	}
	save_folder();
	save_index(MODEL OPTIM ITEM("ema", PLAIN("[\"b\"]", "2")), REST);
	finds("RANK_FILE_MISSING", "ema_0.pt");
	finds("RANK_FILE_MISSING", "ema_1.pt");
}

static void files_of_ranks_beyond_the_world_are_too_many(void **state)
{
	(void)state;
	save_folder();
	save("model_2.pt", "{ 'a.w' <f32 2 3 @1> 'b' <f32 2 @20> }");
	finds("RANK_FILE_EXTRA", "model_2.pt");
	drop("model_2.pt");
	save("step_2.pt", "12");
	finds("RANK_FILE_EXTRA", "step_2.pt");
	drop("step_2.pt");
	save("notes_7.pt", "12");
	finds("FILE_UNKNOWN", "notes_7.pt");
}

static void ranks_of_two_saves_differ(void **state)
{
	(void)state;
	save_folder();
	save("step_1.pt", "13");
	finds("STEP_MIXED", "its step is 13, rank 0's 12");
	save("lr_scheduler_1.pt", "{ 'last_epoch' 5 }");
	finds("RANKS_DISAGREE", "lr_scheduler_1.pt");
	save("model_1.pt", "{ 'a.w' <f32 3 2 @1> 'b' <f32 2 @20> }");
	finds("RANKS_DISAGREE", "a.w");
	save("model_1.pt", "{ 'a.w' <f32 2 3 @1> }");
	finds("NAMES_WRONG", "the number of its ranks differs");
}

/* ---- the index ---- */

static void entries_that_the_files_do_not_fit_are_errors(void **state)
{
	static const struct {
		const char *entry, *words;
	} cases[] = {
		{ ENTRY("3 2", "torch.float32", WHOLE, "0 1"), "type or shape" },
		{ ENTRY("2 3", "torch.int32", WHOLE, "0 1"), "type or shape" },
		{ ENTRY("2 3", "torch.float32", WHOLE, "0"), "its ranks differ" },
		{ ENTRY("2 3", "torch.float32", "{ 'type' 'Shard' 'dim' 0 }", "0 1"),
		  "the part of it differs" },
		{ ENTRY("2 3", "torch.float32", WHOLE, "0") ENTRY("2", "torch.float32", WHOLE, "1"),
		  "type or shape" },
	};

	struct ckpt *ck;

	(void)state;
	save_folder();
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char *items = t_fmt("'model' { 'nested_path_to_metadata' { '[\"a.w\"]' [ %s ] "
				    PLAIN("[\"b\"]", "2") "} } " OPTIM, cases[i].entry);

		save_index(items, REST);
		finds("NAMES_WRONG", cases[i].words);
		free(items);
	}
	save_index(ITEM("model", PLAIN("[\"a.w\"]", "2 3")) OPTIM, REST);
	finds("NAMES_WRONG", "does not list it");
	save_index(ITEM("model", PLAIN("[\"a.w\"]", "2 3") PLAIN("[\"b\"]", "2")
			PLAIN("[\"c\"]", "2")) OPTIM, REST);
	finds("NAMES_WRONG", "the files have no such tensor");
	save_index(MODEL ITEM("optimizer", STATES("b", "2")), REST);
	finds("NAMES_WRONG", "the files have no such tensor");
	finds("NAMES_WRONG", "the files have its exp_avg");
	save_index(ITEM("model", "'[\"a.w\"]' [ " ENTRY("2 3", "torch.float32", WHOLE, "0")
			ENTRY("2 3", "torch.float32", WHOLE, "1") "] " PLAIN("[\"b\"]", "2"))
		   OPTIM, REST);
	ck = t_step_open(dir, NULL);
	assert_false(has_error(ck));
	ckpt_close(ck);
	/* Which part that is, the DTensor says. */
	save_index(ITEM("model", "'[\"a.w\"]' [ " ENTRY("2 3", "torch.float32", "{ 'type' "
			"'StridedShard' 'dim' 0 'split_factor' 2 }", "0 1") "] "
			PLAIN("[\"b\"]", "2")) OPTIM, REST);
	ck = t_step_open(dir, NULL);
	assert_false(has_error(ck));
	ckpt_close(ck);
}

static void an_index_that_is_none_is_refused(void **state)
{
	static const struct {
		const char *items, *rest, *words;
		int code;
	} cases[] = {
		{ MODEL, "'world_size' 2 'version' '3.0'", "3.0", CKPT_E_UNSUPPORTED },
		{ MODEL, "'world_size' 2", "no version", CKPT_E_CORRUPT },
		{ MODEL, "'version' '2.0'", "no world_size", CKPT_E_CORRUPT },
		{ MODEL, "'world_size' 0 'version' '2.0'", "no world_size", CKPT_E_CORRUPT },
		{ MODEL, "'world_size' 4294967297 'version' '2.0'", "world_size", CKPT_E_CORRUPT },
		{ MODEL, "'world_size' 900000 'version' '2.0'", "900000 ranks", CKPT_E_LIMIT },
		{ "", REST, "no metadata", CKPT_E_CORRUPT },
		{ "'model' { }", REST, "nested_path_to_metadata", CKPT_E_CORRUPT },
		{ MODEL MODEL, REST, "twice", CKPT_E_CORRUPT },
		{ OPTIM, REST, "the tensors of a model", CKPT_E_CORRUPT },
		{ MODEL "'x' G", REST, "foo.bar", CKPT_E_CORRUPT },
		{ ITEM("model", "'[\"a.w\"' [ " ENTRY("2 3", "torch.float32", WHOLE, "0 1") "]"),
		  REST, "no path of names", CKPT_E_CORRUPT },
		{ ITEM("model", "'[\"a.w\"]' [ ]"), REST, "no list", CKPT_E_CORRUPT },
		{ ITEM("model", "'[\"a.w\"]' [ { } ]"), REST, "no type", CKPT_E_CORRUPT },
		{ ITEM("model", "'[\"a.w\"]' [ { 'sharding_metadata' { 'type' "
		       "'DefaultShardingMetadata' } } ]"), REST, "DefaultShardingMetadata",
		  CKPT_E_UNSUPPORTED },
		{ "'model' { 'nested_path_to_metadata' { } 'rank_to_layout_info' { 0 { } } }", REST,
		  "layout of its own", CKPT_E_UNSUPPORTED },
		{ ITEM("model", "'[\"a.w\"]' [ " ENTRY("2 3", "torch.float32", "", "0 1") "]"),
		  REST, "placement for each axis", CKPT_E_CORRUPT },
		{ ITEM("model", "'[\"a.w\"]' [ " ENTRY("2 3", "torch.float32",
						   "{ 'type' 'Shard' 'dim' 2 }", "0 1") "]"),
		  REST, "dimension that its Shard", CKPT_E_CORRUPT },
		{ ITEM("model", "'[\"a.w\"]' [ " ENTRY("2 3", "torch.float32", WHOLE, "0 0") "]"),
		  REST, "each once", CKPT_E_CORRUPT },
		{ ITEM("model", "'[\"a.w\"]' [ " ENTRY("2 3", "torch.float32", WHOLE, "0 9") "]"),
		  REST, "each once", CKPT_E_CORRUPT },
	};

	(void)state;
	save_folder();
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		save_index(cases[i].items, cases[i].rest);
		t_step_fails(dir, NULL, cases[i].code, cases[i].words);
	}
	save_index_text("{ }", "more");
	t_step_fails(dir, NULL, CKPT_E_CORRUPT, "4 bytes follow");
	save_index_text("3", "");
	t_step_fails(dir, NULL, CKPT_E_CORRUPT, "no index");
}

/* ---- a real folder ---- */

#define CASE "fsdp/t2.11-fsdp2-tc-w2/ckpt"
#define FLIPS 400u
#define FLIPS_LONG 20000u

static void copy_real(void)
{
	char *from = t_fixture(CASE);

	t_dir_remove(dir);
	t_dir_copy(from, dir);
	free(from);
}

/* Right values, or an error. */
static void judge(const char *name, uint64_t at, uint64_t whole)
{
	struct ckpt_err err = { 0 };
	struct ckpt *ck;
	uint64_t hash = 0;

	if (t_flip_digest(dir, &run, &hash, &err) || hash == whole)
		return;
	ck = t_step_open(dir, NULL);
	if (!has_error(ck))
		fail_msg("%s, byte %llu: other values, and no error", name,
			 (unsigned long long)at);
	ckpt_close(ck);
}

static void damage_of(const char *name, bool has_sums)
{
	char *path = t_fmt("%s/%s", dir, name);
	struct ckpt_err err = { 0 };
	const char *text = getenv("ZCKPT_SEED");
	uint64_t whole, random = text ? strtoull(text, NULL, 10) : 1;
	size_t n;
	uint8_t *p = t_file_read(path, &n);

	printf("ZCKPT_SEED=%llu\n", (unsigned long long)random);
	assert_int_equal(t_flip_digest(dir, &run, &whole, &err), 0);
	for (unsigned i = 0; !has_sums && i < (getenv("ZCKPT_LONG") ? FLIPS_LONG : FLIPS); i++) {
		const uint64_t at = t_random(&random) % n;
		const uint8_t bit = (uint8_t)(1u << (t_random(&random) % 8));

		p[at] ^= bit;
		t_file_write(path, p, n);
		judge(name, at, whole);
		p[at] ^= bit;
	}
	for (size_t i = 0; i < 40; i++) {
		t_file_write(path, p, n * i / 40);
		judge(name, n * i / 40, whole);
	}
	t_file_write(path, p, n);
	free(p);
	free(path);
}

static void damage_is_an_error_or_does_not_matter(void **state)
{
	(void)state;
	copy_real();
	damage_of("metadata.pkl", false);
	damage_of("model_1.pt", true);
	damage_of("optimizer_0.pt", true);
	damage_of("step_1.pt", true);
}

static void files_whose_names_were_exchanged_are_an_error(void **state)
{
	(void)state;
	copy_real();
	t_dir_copy_in(dir, "model_0.pt", "x");
	drop("model_0.pt");
	t_dir_copy_in(dir, "model_1.pt", "model_0.pt");
	drop("model_1.pt");
	t_dir_copy_in(dir, "x", "model_1.pt");
	finds("RANK_FILE_SWAPPED", "model_0.pt");
}

static void the_case_without_a_file_is_refused(void **state)
{
	char *path = t_fixture("fsdp/bad-2.11-fsdp2-tc-w2-missing-item/ckpt");
	struct ckpt *ck = t_step_open(path, NULL);

	(void)state;
	assert_non_null(t_step_finding(ck, "RANK_FILE_MISSING", "model_1.pt"));
	ckpt_close(ck);
	free(path);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest made[] = {
		TEST(items_are_a_model_its_optimizer_and_a_step),
		TEST(items_may_have_other_names),
		TEST(a_missing_file_of_any_item_is_an_error),
		TEST(files_of_ranks_beyond_the_world_are_too_many),
		TEST(ranks_of_two_saves_differ),
		TEST(entries_that_the_files_do_not_fit_are_errors),
		TEST(an_index_that_is_none_is_refused),
	};
	const struct CMUnitTest real[] = {
		TEST(damage_is_an_error_or_does_not_matter),
		TEST(files_whose_names_were_exchanged_are_an_error),
		TEST(the_case_without_a_file_is_refused),
	};
	int bad = cmocka_run_group_tests_name("made", made, NULL, NULL);

	if (getenv("ZCKPT_FIXTURES"))
		bad += cmocka_run_group_tests_name("real", real, NULL, NULL);
	else
		printf("skipped: the real folders: ZCKPT_FIXTURES is not set\n");
	return bad;
}
