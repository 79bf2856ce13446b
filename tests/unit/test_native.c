/*
 * Native steps whose manifest is not what was written, with a sum that is right for it: each is
 * refused for what is wrong with it, or says so as a finding. If this fails, an edited manifest
 * makes a reader take bytes for elements that they are not.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "libckpt/base/ck_hash.h"
#include "libckpt/include/ckpt.h"
#include "tests/lib/fs/t_dir.h"
#include "tests/lib/ops/t_step.h"

#define L64 "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static char *dir, *manifest, *good;

static int open_step(struct ckpt **ck_out, struct ckpt_err *err)
{
	char *path = t_fmt("%s/out", dir);
	const char *paths[] = { path };
	const int rc = ckpt_open(paths, 1, NULL, ck_out, err);

	free(path);
	return rc;
}

/* The text with the sum that belongs to it. */
static void put(const char *text)
{
	const char *at = strstr(text, "\n\"sum\":");
	char hex[33], *whole;

	assert_non_null(at);
	ck_hash128_print(ck_hash128(text, (size_t)(at + 1 - text)), hex);
	whole = t_fmt("%.*s\n\"sum\": \"%s\"\n}\n", (int)(at - text), text, hex);
	t_file_write(manifest, whole, strlen(whole));
	free(whole);
}

/* The first 'from' becomes 'to'. */
static void put_edited(const char *from, const char *to)
{
	const char *at = strstr(good, from);
	char *text;

	if (!at)
		fail_msg("no %s in the manifest", from);
	text = t_fmt("%.*s%s%s", (int)(at - good), good, to, at + strlen(from));
	put(text);
	free(text);
}

static int setup(void **state)
{
	const struct ckpt_reshard_opts opts = {
		.size = sizeof(opts), .world = 2, .stage = -1, .round_robin = -1,
		.to = CKPT_TO_NATIVE,
	};
	struct ckpt_err err = { 0 };
	struct ckpt *ck;
	char *from, *dst, *along;
	size_t n;

	(void)state;
	dir = t_step_copy("ds0.19.8-z3-bf16-w2");
	from = t_fmt("%s/ckpt", dir);
	dst = t_fmt("%s/out", dir);
	along = t_fmt("%s/global_step3/config.json", from);
	t_file_write(along, "{}", 2);
	free(along);
	ck = t_step_open(from, NULL);
	if (ckpt_reshard(ck, dst, &opts, NULL, &err))
		fail_msg("%s: %s", err.where, err.msg);
	ckpt_close(ck);
	manifest = t_fmt("%s/global_step3/manifest.json", dst);
	good = (char *)t_file_read(manifest, &n);
	free(dst);
	free(from);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	free(good);
	free(manifest);
	t_dir_end(dir);
	return 0;
}

static void what_a_manifest_must_not_say_is_refused(void **state)
{
	static const char files[] = "\"files\" lacks", tensor[] = "a tensor lacks";
	static const char beside[] = "\"beside\" lacks";
	static const char piece[] = "a piece is not [file", *const head = "\"checkpoint\" lacks";
	static const struct {
		const char *from, *to, *says;
		enum ckpt_code code;
	} rows[] = {
		{ "zckpt-native/1", "zckpt-native/2", "newer version", CKPT_E_UNSUPPORTED },
		{ "zckpt-native/1", "zckpt-other/1", "not the manifest", CKPT_E_FORMAT },
		{ "\"id\": \"", "\"id\": \"0", "no id of 32", CKPT_E_CORRUPT },
		{ "\"stage\": 3", "\"stage\": 4", head, CKPT_E_CORRUPT },
		{ "\"stage\": 3", "\"stage\": -2", head, CKPT_E_CORRUPT },
		{ "\"world\": 2", "\"world\": 2.0", head, CKPT_E_CORRUPT },
		{ "\"world\": 2", "\"world\": 4097", "1 to 4096", CKPT_E_CORRUPT },
		{ "\"facts\"", "\"faxes\"", "the list \"facts\" is missing", CKPT_E_CORRUPT },
		{ "[\"global_steps\", \"3\"]", "[\"global_steps\", 3]", "pair of strings",
		  CKPT_E_CORRUPT },
		{ "\"files\"", "\"flies\"", "the list \"files\" is", CKPT_E_CORRUPT },
		{ "\"name\": \"rest.pt\"", "\"name\": \"../rest.pt\"", files, CKPT_E_CORRUPT },
		{ "\"name\": \"rest.pt\"", "\"name\": \"\"", files, CKPT_E_CORRUPT },
		{ "\"name\": \"rank-00001.safetensors\"", "\"name\": \"rank-00000.safetensors\"",
		  "has this name twice", CKPT_E_CORRUPT },
		{ "\"head\": 4096", "\"head\": 9999999999", files, CKPT_E_CORRUPT },
		{ "\"head\": 4096, \"hash\": \"", "\"head\": 4096, \"hash\": \"z", files,
		  CKPT_E_CORRUPT },
		{ "\"rank\": 1", "\"rank\": 7", "2 ranks wrote the step", CKPT_E_CORRUPT },
		{ "\"beside\": [", "\"beside\": 5, \"x\": [", "is not a list", CKPT_E_CORRUPT },
		{ "\"beside\": [", "\"beside\": [null, ", beside, CKPT_E_CORRUPT },
		{ "\"config.json\"", "\"../config.json\"", beside, CKPT_E_CORRUPT },
		{ "\"config.json\"", "\"/config.json\"", beside, CKPT_E_CORRUPT },
		{ "\"config.json\"", "\"a/../../config.json\"", beside, CKPT_E_CORRUPT },
		{ "\"config.json\"", "\"a//config.json\"", beside, CKPT_E_CORRUPT },
		{ "\"config.json\"", "\"a/./config.json\"", beside, CKPT_E_CORRUPT },
		{ "\"config.json\"", "\"a/..\"", beside, CKPT_E_CORRUPT },
		{ "\"config.json\"", "\"a/\"", beside, CKPT_E_CORRUPT },
		{ "\"config.json\"", "\"a/" L64 L64 L64 L64 "\"", beside, CKPT_E_CORRUPT },
		{ "\"config.json\"", "\"\"", beside, CKPT_E_CORRUPT },
		{ "\"config.json\"", "7", beside, CKPT_E_CORRUPT },
		{ "\"bytes\": 2,", "\"bytes\": -2,", beside, CKPT_E_CORRUPT },
		{ "\"bytes\": 2,", "\"bytes\": 18446744073709551615,", beside, CKPT_E_CORRUPT },
		{ "\"bytes\": 2, \"sum\": \"", "\"bytes\": 2, \"sum\": \"z", beside,
		  CKPT_E_CORRUPT },
		{ "\"tensors\"", "\"sensors\"", "the list \"tensors\" is missing", CKPT_E_CORRUPT },
		{ "\"role\": \"trainable\"", "\"role\": \"trained\"", tensor, CKPT_E_CORRUPT },
		{ "\"group\": 0", "\"group\": 2", tensor, CKPT_E_CORRUPT },
		{ "\"name\": \"emb.weight\"", "\"name\": 5", tensor, CKPT_E_CORRUPT },
		{ "\"shape\": [", "\"shape\": [-", "not a list of sizes", CKPT_E_CORRUPT },
		{ "\"shape\": [", "\"shape\": [2, ", "another number of elements", CKPT_E_CORRUPT },
		{ "\"norm.bias\", \"role\": \"trainable\", \"shape\": [",
		  "\"norm.bias\", \"role\": \"trainable\", \"shape\": [2, ", "the shape has",
		  CKPT_E_MISMATCH },
		{ "\"role\": \"trainable\"", "\"role\": \"alias\"", "an alias refers to no tensor",
		  CKPT_E_CORRUPT },
		{ "\"dtype\": \"F32\"", "\"dtype\": \"F33\"", "a state lacks", CKPT_E_CORRUPT },
		{ "\"states\"", "\"stages\"", "the list \"states\" of a tensor", CKPT_E_CORRUPT },
		{ "\"name\": \"exp_avg_sq\"", "\"name\": \"exp_avg\"", "two states of this name",
		  CKPT_E_CORRUPT },
		{ "\"pieces\": [[", "\"pieces\": [[9", piece, CKPT_E_CORRUPT },
		{ "\"pieces\": [[", "\"pieces\": [7, [", piece, CKPT_E_CORRUPT },
		{ ", 4096, 0, ", ", 4000, 0, ", "a piece of", CKPT_E_CORRUPT },
		{ ", 4096, 0, ", ", 18446744073709551615, 0, ", "a piece of", CKPT_E_CORRUPT },
		{ ", 4096, 0, ", ", 99999999, 0, ", "a piece of", CKPT_E_CORRUPT },
		{ ", 4096, 0, ", ", 4096, 1, ", "are missing from the files", CKPT_E_MISMATCH },
		{ ", 4096, 0, ", ", 4096, 0, 1", "the files hold", CKPT_E_MISMATCH },
		{ ", 4096, 0, ", ", 4096, 0, 99999", "a piece of", CKPT_E_CORRUPT },
		{ ", 4096, 0, ", ", 4096, 0, 0, ", piece, CKPT_E_CORRUPT },
		{ "[[2, 4104, 0, 732, ", "[[0, 4104, 0, 732, ", "a file of values",
		  CKPT_E_CORRUPT },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct ckpt_err err = { 0 };
		struct ckpt *ck = NULL;

		put_edited(rows[i].from, rows[i].to);
		if (open_step(&ck, &err) != -(int)rows[i].code || !strstr(err.msg, rows[i].says))
			fail_msg("row %zu: code %d, %s: '%s'", i, err.code, err.where, err.msg);
	}
}

/* Members that are not known, more of a list that may grow, and no digests are no faults. */
static void what_a_later_version_may_add_is_passed_over(void **state)
{
	static const char *const rows[][2] = {
		{ "\"files\"", "\"later\": {\"a\": [1, null]},\n\"files\"" },
		{ "\"role\"", "\"later\": [], \"role\"" },
		{ "\"digest\": \"", "\"digest\": \"\", \"was\": \"" },
		{ "\"\"]]", "\"\", 5, {}]]" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct ckpt_err err = { 0 };
		struct ckpt *ck = NULL;
		struct ckpt_info info;

		put_edited(rows[i][0], rows[i][1]);
		if (open_step(&ck, &err))
			fail_msg("row %zu: %s: %s", i, err.where, err.msg);
		ckpt_info_get(ck, &info);
		assert_int_equal(info.nfindings, 0);
		assert_int_equal(info.world, 2);
		ckpt_close(ck);
	}
}

/* Every cut of the text, and every byte of it changed: the sum tells. */
static void a_manifest_that_was_changed_is_damaged(void **state)
{
	const size_t n = strlen(good);
	char *text = t_fmt("%s", good);

	(void)state;
	for (size_t i = 0; i + 2 < n; i += 97) {
		struct ckpt_err err = { 0 };
		struct ckpt *ck = NULL;

		text[i] = (char)(text[i] ^ 4);
		t_file_write(manifest, text, n);
		text[i] = good[i];
		if (!open_step(&ck, &err) || !err.msg[0])
			fail_msg("byte %zu is changed, and nobody says so", i);
		t_file_write(manifest, text, i);
		err = (struct ckpt_err){ 0 };
		if (!open_step(&ck, &err) || !err.msg[0])
			fail_msg("cut to %zu bytes, and nobody says so", i);
	}
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_a_manifest_must_not_say_is_refused),
		cmocka_unit_test(what_a_later_version_may_add_is_passed_over),
		cmocka_unit_test(a_manifest_that_was_changed_is_damaged),
	};

	return cmocka_run_group_tests(tests, setup, teardown) ? 1 : 0;
}
