/* The walk over the corpus manifest, and the ways into one file of it; see t_corpus.h. */
#include "tests/lib/t_corpus.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/format/ck_limits.h"
#include "tests/lib/t_dir.h"

static cJSON *manifest;
static char *root;

bool t_corpus_load(void)
{
	const char *fixtures = getenv("ZCKPT_FIXTURES");
	char *path, *text;
	size_t n;

	if (!fixtures) {
		printf("skipped: ZCKPT_FIXTURES is not set\n");
		return false;
	}
	root = t_fmt("%s/formats", fixtures);
	path = t_fmt("%s/manifest.json", root);
	text = (char *)t_file_read(path, &n);
	manifest = text ? cJSON_ParseWithLength(text, n) : NULL;
	if (!manifest)
		t_die("%s cannot be read", path);
	free(text);
	free(path);
	return true;
}

void t_corpus_unload(void)
{
	cJSON_Delete(manifest);
	free(root);
	manifest = NULL;
	root = NULL;
}

const cJSON *t_corpus_rows(void)
{
	return manifest;
}

char *t_corpus_path(const cJSON *row)
{
	return t_fmt("%s/%s", root, t_corpus_text(row, "file"));
}

static const char *reason_to_skip(const struct t_corpus_known *known, const char *file)
{
	for (; known->file; known++)
		if (!strcmp(known->file, file))
			return known->reason;
	return NULL;
}

void t_corpus_walk(const char *kind, int at_least, const struct t_corpus_known *known,
		   t_corpus_judge *judge)
{
	int n = 0, wrong = 0, skipped = 0;
	const cJSON *row;

	cJSON_ArrayForEach(row, manifest) {
		const char *file = t_corpus_text(row, "file"), *what, *reason;
		char said[1400];

		if (strcmp(t_corpus_text(row, "kind"), kind))
			continue;
		n++;
		reason = reason_to_skip(known, file);
		what = judge(row, said, sizeof(said));
		if (what && reason) {
			print_message("skipped %s: %s\n", file, reason);
			skipped++;
		} else if (what) {
			print_error("%s: %s (%s wanted; %s)\n", file, what,
				    t_corpus_text(row, "class"), said);
			wrong++;
		} else if (reason) {
			print_error("%s is right, take it off the list\n", file);
			wrong++;
		}
	}
	print_message("%s: %d rows, %d wrong, %d not yet right\n", kind, n, wrong, skipped);
	assert_int_equal(wrong, 0);
	assert_true(n >= at_least);
}

void t_corpus_look(struct t_corpus_opened *o, const char *const *path)
{
	struct ck_src *src;

	memset(o, 0, sizeof(*o));
	o->in.path = path;
	o->in.npaths = 1;
	o->in.threads = 1;
	o->in.pool = ck_fdpool_new(4);
	ck_limits_fill(NULL, &o->in.limits);
	assert_int_equal(ck_index_init(&o->ix, o->in.limits.memory_bytes, NULL), 0);
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

void t_corpus_close(struct t_corpus_opened *o)
{
	ck_index_release(&o->ix);
	ck_findings_release(&o->f);
	ck_tree_release(&o->in.tree);
	ck_fdpool_free(o->in.pool);
}

bool t_corpus_tells_why(const struct t_corpus_opened *o)
{
	return !o->rc || (o->err.code && o->err.msg[0] && o->err.where[0]);
}

const char *t_corpus_text(const cJSON *row, const char *key)
{
	const cJSON *v = cJSON_GetObjectItemCaseSensitive(row, key);

	return cJSON_IsString(v) ? v->valuestring : NULL;
}

bool t_corpus_same_shape(const struct ck_tensor *t, const cJSON *shape)
{
	if ((int)t->ndim != cJSON_GetArraySize(shape))
		return false;
	for (uint32_t i = 0; i < t->ndim; i++)
		if ((double)t->shape[i] != cJSON_GetArrayItem(shape, (int)i)->valuedouble)
			return false;
	return true;
}
