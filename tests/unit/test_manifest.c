/*
 * Manifests that are not what verify has written: each is refused for what is wrong with it. If
 * this fails, a manifest that someone has edited vouches for a checkpoint that was changed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/format/ck_limits.h"
#include "libckpt/run/ck_ckpt.h"
#include "libckpt/verify/ck_manifest.h"
#include "tests/lib/fs/t_dir.h"

static char *dir;

/* The text with the sum that belongs to it, read. */
static int read_back(const char *text, bool summed, struct ckpt_err *err)
{
	const struct ck_hash128 h = ck_hash128(text, strlen(text));
	char hex[33], *path = t_fmt("%s/zckpt-manifest.json", dir), *whole;
	struct ck_manifest m = CK_MANIFEST_INIT;
	struct ckpt ck = { .path = NULL };
	int rc;

	ck_hash128_print(h, hex);
	whole = summed ? t_fmt("%s\"sum\":\"%s\"}\n", text, hex) : t_fmt("%s", text);
	t_file_write(path, whole, strlen(whole));
	ck_limits_fill(NULL, &ck.limits);
	memset(err, 0, sizeof(*err));
	rc = ck_manifest_read(&m, &ck, path, err);
	assert_true(m.there);
	if (!rc)
		assert_int_equal(m.n, 1);
	ck_manifest_release(&m);
	free(whole);
	free(path);
	return rc;
}

#define HASH "\"00112233445566778899aabbccddeeff\""
#define FILE_OF(name, bytes, hash, quick) "{\"name\":" name ",\"bytes\":" bytes \
	",\"xxh3_128\":" hash ",\"quick\":" quick "}"
#define HEAD(files) "{\"format\":\"zckpt-manifest/1\",\n\"files\":[" files "],\n"
#define GOOD HEAD(FILE_OF("\"a.pt\"", "5", HASH, HASH))

static void what_is_no_manifest_is_refused_for_what_is_wrong(void **state)
{
	static const char entry[] = "lacks its name, bytes or hashes";
	static const struct {
		const char *text, *says;
	} rows[] = {
		{ "{\"format\":\"zckpt-manifest/2\",\n\"files\":[],\n",
		  "not a manifest of a known version" },
		{ "{\"format\":7,\n\"files\":[],\n", "not a manifest of a known version" },
		{ "{\"files\":[],\n", "not a manifest of a known version" },
		{ "{\"format\":\"zckpt-manifest/1\",\n", "the list \"files\" is missing" },
		{ "{\"format\":\"zckpt-manifest/1\",\n\"files\":{},\n", "the list" },
		{ HEAD("7"), entry },
		{ HEAD("{}"), entry },
		{ HEAD(FILE_OF("\"\"", "5", HASH, HASH)), entry },
		{ HEAD(FILE_OF("7", "5", HASH, HASH)), entry },
		{ HEAD(FILE_OF("\"a\\u0000b\"", "5", HASH, HASH)), entry },
		{ HEAD(FILE_OF("\"a.pt\"", "-5", HASH, HASH)), entry },
		{ HEAD(FILE_OF("\"a.pt\"", "5.0", HASH, HASH)), entry },
		{ HEAD(FILE_OF("\"a.pt\"", "5", "\"0011\"", HASH)), entry },
		{ HEAD(FILE_OF("\"a.pt\"", "5", HASH, "7")), entry },
		{ HEAD(FILE_OF("\"a.pt\"", "5", HASH, "\"zz112233445566778899aabbccddeeff\"")),
		  entry },
	};
	struct ckpt_err err;

	(void)state;
	if (read_back(GOOD, true, &err))
		fail_msg("%s", err.msg);
	for (size_t i = 0; i < CK_ARRAY_LEN(rows); i++)
		if (read_back(rows[i].text, true, &err) != -CKPT_E_CORRUPT ||
		    !strstr(err.msg, rows[i].says))
			fail_msg("row %zu: code %d, '%s'", i, err.code, err.msg);
}

static void the_sum_is_of_every_byte_before_it(void **state)
{
	char *text = t_fmt(GOOD "\"sum\":" HASH "}\n"), *path = t_fmt("%s/folder", dir);
	struct ck_manifest m = CK_MANIFEST_INIT;
	struct ckpt ck = { .path = NULL };
	struct ckpt_err err;

	(void)state;
	assert_int_equal(read_back(text, false, &err), -CKPT_E_CORRUPT);
	assert_non_null(strstr(err.msg, "do not match its \"sum\""));
	assert_int_equal(read_back("{\"format\":\"zckpt-manifest/1\",\"files\":[]}", false, &err),
			 -CKPT_E_CORRUPT);
	assert_non_null(strstr(err.msg, "it has no \"sum\": it was cut short or edited"));
	assert_int_equal(read_back("[1]", false, &err), -CKPT_E_CORRUPT);
	assert_non_null(strstr(err.msg, "it is not a JSON object"));
	t_dir_make(path);
	ck_limits_fill(NULL, &ck.limits);
	memset(&err, 0, sizeof(err));
	assert_int_equal(ck_manifest_read(&m, &ck, path, &err), -CKPT_E_CORRUPT);
	assert_string_equal(err.msg, "it is not a file");
	ck_manifest_release(&m);
	free(path);
	free(text);
}

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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_no_manifest_is_refused_for_what_is_wrong),
		cmocka_unit_test(the_sum_is_of_every_byte_before_it),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
