/*
 * Every safetensors file, Hugging Face folder and foreign file of the format corpus against
 * its manifest. If a row is wrong, a user gets other numbers than the file holds, or a
 * damaged or hostile file goes through.
 *
 * Rows of kind dcp-folder and dcp-hf-folder are not read here: there is no driver for
 * distributed checkpoints; that their pieces are refused is checked in test_safetensors.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/hf_sharded/ck_hf.h"
#include "formats/safetensors/ck_st.h"
#include "formats/safetensors/ck_st_driver.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/format/ck_limits.h"
#include "libckpt/tensor/ck_dtype.h"
#include "tests/lib/t_dir.h"
#include "tests/lib/t_sha256.h"

static cJSON *manifest;
static char *root;

/* Rows that are not right yet, each with its reason. */
static const struct {
	const char *file, *reason;
} known[] = {
	{ "hf/index-empty", "the row speaks of an index of 0 bytes, but the corpus holds a sound "
			    "one of 411 bytes; test_hf.c reads a really empty one" },
	{ NULL, NULL },
};

static const char *reason_to_skip(const char *file)
{
	for (int i = 0; known[i].file; i++)
		if (!strcmp(known[i].file, file))
			return known[i].reason;
	return NULL;
}

/* ------------------------------------------------------------ one checkpoint */

struct opened {
	struct ck_input in;
	struct ck_index ix;
	struct ck_findings f;
	struct ckpt_err err;
	int rc;
};

static void look(struct opened *o, const char *const *path)
{
	struct ck_src *src;

	o->in.path = path;
	o->in.npaths = 1;
	o->in.threads = 1;
	o->in.pool = ck_fdpool_new(4);
	ck_limits_fill(NULL, &o->in.limits);
	o->in.is_dir = t_is_dir(*path);
	if (o->in.is_dir) {
		assert_int_equal(ck_tree_list(&o->in.tree, path, 1, NULL, 1000, NULL), 0);
		return;
	}
	assert_int_equal(ck_src_open(o->in.pool, *path, &src, NULL), 0);
	o->in.bytes = ck_src_size(src);
	o->in.head_len = o->in.bytes < sizeof(o->in.head) ? o->in.bytes : sizeof(o->in.head);
	assert_int_equal(ck_src_read(src, 0, o->in.head, o->in.head_len, NULL), 0);
	ck_src_close(src);
}

static void open_path(struct opened *o, const char *const *path)
{
	const struct ck_format *fmt = &ck_format_hf;

	memset(o, 0, sizeof(*o));
	look(o, path);
	if (ck_format_safetensors.probe(&o->in) > fmt->probe(&o->in))
		fmt = &ck_format_safetensors;
	assert_int_equal(ck_index_init(&o->ix, o->in.limits.memory_bytes, NULL), 0);
	if (fmt->probe(&o->in))
		o->rc = fmt->index(&o->in, &o->ix, &o->f, &o->err);
	else
		o->rc = ck_fail(&o->err, CKPT_E_FORMAT, *path, CKPT_NO_OFFSET, "no bid");
}

static void close_path(struct opened *o)
{
	ck_index_release(&o->ix);
	ck_findings_release(&o->f);
	ck_tree_release(&o->in.tree);
	ck_fdpool_free(o->in.pool);
}

static const char *verdict(const struct opened *o)
{
	if (o->rc || ck_findings_worst(&o->f, CKPT_ERROR))
		return "must-refuse";
	return o->f.n ? "must-warn" : "valid";
}

/* --------------------------------------------------------------------- values */

static const char *text_of(const cJSON *row, const char *key)
{
	const cJSON *v = cJSON_GetObjectItemCaseSensitive(row, key);

	return cJSON_IsString(v) ? v->valuestring : NULL;
}

/* SHA-256 over the extents of state "weight"; false if they are not plain runs. */
static bool hash_tensor(const struct ck_index *ix, const struct ck_tensor *t, char out[65])
{
	struct t_sha256 s;
	uint32_t number;

	if (t->role == CKPT_ROLE_ALIAS)
		t = &ix->tensor[t->alias_of];
	number = ck_index_state_find(ix, (uint32_t)(t - ix->tensor), "weight");
	if (number == CK_NONE)
		return false;
	t_sha256_begin(&s);
	for (uint64_t i = 0; i < ix->state[number].nextents; i++) {
		const struct ck_extent *e = &ix->extent[ix->state[number].extent + i];
		uint64_t n;
		uint8_t *buf;

		if (e->flags || e->runs != 1 ||
		    ck_dtype_bytes((enum ckpt_dtype)e->dtype, e->count, &n, NULL))
			return false;
		buf = t_alloc(n + 1);
		assert_int_equal(ck_src_read(ix->source[e->source].src, e->off, buf, n, NULL), 0);
		t_sha256_add(&s, buf, n);
		free(buf);
	}
	t_sha256_end(&s, out);
	return true;
}

/* cJSON holds numbers as double: compare those that doubles hold, and 2^63. */
static bool same_shape(const struct ck_tensor *t, const cJSON *shape)
{
	if ((int)t->ndim != cJSON_GetArraySize(shape))
		return false;
	for (uint32_t i = 0; i < t->ndim; i++)
		if ((double)t->shape[i] != cJSON_GetArrayItem(shape, (int)i)->valuedouble)
			return false;
	return true;
}

static const char *compare_tensor(const struct ck_index *ix, const cJSON *want, bool file_names)
{
	const char *name = cJSON_GetArrayItem(cJSON_GetObjectItem(want, "path"), 0)->valuestring;
	const char *sha = text_of(want, "sha256");
	enum ckpt_dtype dtype;
	const struct ck_tensor *t, *data;
	char got[65];
	uint32_t number;

	if (!ck_index_find(ix, name, &number))
		return "a tensor is missing";
	t = &ix->tensor[number];
	data = t->role == CKPT_ROLE_ALIAS ? &ix->tensor[t->alias_of] : t;
	if (!same_shape(t, cJSON_GetObjectItem(want, "shape")))
		return "a shape differs";
	dtype = (enum ckpt_dtype)ix->state[data->first_state].dtype;
	if (strcmp(file_names ? ckpt_dtype_name(dtype) : ckpt_dtype_torch_name(dtype),
		   text_of(want, "dtype")))
		return "a dtype differs";
	if (!hash_tensor(ix, t, got))
		return "the bytes cannot be read";
	return sha && !strcmp(sha, got) ? NULL : "the bytes differ";
}

static const char *compare_tensors(const struct ck_index *ix, const cJSON *expect, bool file_names)
{
	const cJSON *list = cJSON_GetObjectItem(expect, "tensors"), *one;

	if (!list)
		return NULL;
	if ((uint64_t)cJSON_GetArraySize(list) != ix->ntensors)
		return "the number of tensors differs";
	cJSON_ArrayForEach(one, list) {
		const char *what = compare_tensor(ix, one, file_names);

		if (what)
			return what;
	}
	return NULL;
}

static const char *compare_metadata(struct opened *o, const cJSON *expect)
{
	const cJSON *meta = cJSON_GetObjectItem(expect, "metadata");
	struct ck_st *st;
	const char *what = NULL;

	if (!meta)
		return NULL;
	assert_int_equal(ck_st_open(o->ix.source[0].src, &o->in.limits, &st, NULL), 0);
	if (strstr(st->name, "/meta-big.")) {	/* the manifest leaves its text out */
		if (st->nmeta != 1 || strlen(st->meta[0].value) != 200000)
			what = "the long metadata value is not whole";
	} else if ((int)st->nmeta != cJSON_GetArraySize(meta))
		what = "the number of metadata entries differs";
	for (uint64_t i = 0; !what && meta->child && i < st->nmeta; i++) {
		const char *v = text_of(meta, st->meta[i].key);

		if (!v || strcmp(v, st->meta[i].value))
			what = "a metadata value differs";
	}
	ck_st_close(st);
	return what;
}

/* ----------------------------------------------------------------------- rows */

/* NULL if the row is right. */
static const char *judge(const cJSON *row, char *said, size_t said_n)
{
	const char *class = text_of(row, "class"), *alt = text_of(row, "alt"), *got, *what = NULL;
	char *path = t_fmt("%s/%s", root, text_of(row, "file"));
	const char *const paths[] = { path };
	const cJSON *expect = cJSON_GetObjectItem(row, "expect");
	struct opened o;

	open_path(&o, paths);
	got = verdict(&o);
	snprintf(said, said_n, "%s: %s %s", got, o.err.msg,
		 o.f.n ? o.f.list[0].text : "");
	if (strcmp(got, class) && (!alt || strcmp(got, alt)))
		what = "the verdict differs";
	else if (!o.rc && !strcmp(got, "must-refuse"))
		what = NULL;
	else if (!o.rc && expect)
		what = compare_tensors(&o.ix, expect,
				       !strncmp(text_of(row, "file"), "safetensors/", 12));
	if (!what && !o.rc && expect && !o.in.is_dir)
		what = compare_metadata(&o, expect);
	if (!what && o.rc && (!o.err.code || !o.err.msg[0] || !o.err.where[0]))
		what = "the refusal has no place or no sentence";
	close_path(&o);
	free(path);
	return what;
}

static bool is_mine(const cJSON *row, const char *kind)
{
	const char *file = text_of(row, "file");

	if (!strcmp(kind, "other"))	/* foreign files, wherever they lie */
		return !strcmp(text_of(row, "kind"), "other");
	return !strcmp(text_of(row, "kind"), kind) && file;
}

static void walk(const char *kind, int at_least)
{
	int n = 0, wrong = 0, skipped = 0;
	const cJSON *row;

	cJSON_ArrayForEach(row, manifest) {
		const char *file = text_of(row, "file"), *what, *reason = reason_to_skip(file);
		char said[900];

		if (!is_mine(row, kind))
			continue;
		n++;
		what = judge(row, said, sizeof(said));
		if (!what && reason)
			print_error("%s is right, take it off the list\n", file);
		if (what && reason) {
			print_message("skipped %s: %s\n", file, reason);
			skipped++;
			continue;
		}
		if (what || reason) {
			print_error("%s: %s (%s wanted; %s)\n", file, what ? what : "",
				    text_of(row, "class"), said);
			wrong++;
		}
	}
	print_message("%s: %d rows, %d wrong, %d not yet right\n", kind, n, wrong, skipped);
	assert_int_equal(wrong, 0);
	assert_true(n >= at_least);
}

static void safetensors_files_read_as_the_manifest_says(void **state)
{
	(void)state;
	walk("safetensors", 200);
}

static void model_folders_read_as_the_manifest_says(void **state)
{
	(void)state;
	walk("hf-folder", 50);
}

static void files_of_other_formats_are_refused(void **state)
{
	(void)state;
	walk("other", 20);
}

static void sha256_is_the_standards(void **state)
{
	char out[65];

	(void)state;
	t_sha256_of("abc", 3, out);
	assert_string_equal(out,
			    "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sha256_is_the_standards),
		cmocka_unit_test(safetensors_files_read_as_the_manifest_says),
		cmocka_unit_test(model_folders_read_as_the_manifest_says),
		cmocka_unit_test(files_of_other_formats_are_refused),
	};
	const char *fixtures = getenv("ZCKPT_FIXTURES");
	char *path, *text;
	size_t n;
	int rc;

	if (!fixtures) {
		printf("skipped: ZCKPT_FIXTURES is not set\n");
		return 77;
	}
	root = t_fmt("%s/formats", fixtures);
	path = t_fmt("%s/manifest.json", root);
	text = (char *)t_file_read(path, &n);
	manifest = text ? cJSON_ParseWithLength(text, n) : NULL;
	if (!manifest)
		t_die("%s cannot be read", path);
	rc = cmocka_run_group_tests(tests, NULL, NULL);
	cJSON_Delete(manifest);
	free(text);
	free(path);
	free(root);
	return rc ? 1 : 0;
}
