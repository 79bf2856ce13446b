/* The walk over the corpus manifest, and the ways into one file of it; see t_corpus.h. */
#include "tests/lib/t_corpus.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libckpt/base/ck_sys.h"
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

/* ---- bounds ---- */

static struct ck_sys real;
static size_t live, peak;
static const char *at_work;

static void *counted_realloc(void *p, size_t n)
{
	const size_t old = p ? malloc_usable_size(p) : 0;
	void *q;

	peak = live - old + n > peak || n > SIZE_MAX / 2 ? live - old + n : peak;
	q = n > T_CORPUS_BYTES ? NULL : real.realloc(p, n);
	if (q)
		live += malloc_usable_size(q) - old;
	return q;
}

static void counted_free(void *p)
{
	live -= p ? malloc_usable_size(p) : 0;
	real.free(p);
}

static void too_late(int signal)
{
	static const char text[] = ": this row hangs\n";

	(void)signal;
	if (write(2, at_work, strlen(at_work)) >= 0 && write(2, text, sizeof(text) - 1) >= 0)
		_exit(1);
	_exit(2);
}

static const char *judge_bounded(const cJSON *row, t_corpus_judge *judge,
				 struct t_corpus_verdict *v)
{
	const char *what;

	real = ck_sys;
	ck_sys.realloc = counted_realloc;
	ck_sys.free = counted_free;
	live = peak = 0;
	at_work = t_corpus_text(row, "file");
	signal(SIGALRM, too_late);
	alarm(T_CORPUS_SECONDS);
	what = judge(row, v);
	alarm(0);
	ck_sys = real;
	if (peak > T_CORPUS_BYTES)
		return "more memory is asked for than a row may take";
	return !what && live ? "memory is held afterwards" : what;
}

/* ---- the walk ---- */

static const char *reason_of(const struct t_corpus_other *others, const char *file)
{
	for (; others->file; others++)
		if (!strcmp(others->file, file))
			return others->reason;
	return NULL;
}

/* The class is the manifest's, or the other one that it allows, with a reason of ours. */
static const char *judge_class(const cJSON *row, const char *got, const char *reason)
{
	const char *alt = t_corpus_text(row, "alt");

	if (!strcmp(got, T_CORPUS_SKIPPED))
		return NULL;
	if (!strcmp(got, t_corpus_text(row, "class")))
		return reason ? "its class is the manifest's, take it off the list" : NULL;
	if (!alt || strcmp(got, alt))
		return "the verdict differs";
	return reason ? NULL : "its class is the other one, and the test does not say why";
}

void t_corpus_walk(const char *kind, int at_least, const struct t_corpus_other *others,
		   t_corpus_judge *judge)
{
	int n = 0, wrong = 0, other = 0, valid = 0, warned = 0, refused = 0, skipped = 0;
	const cJSON *row;

	cJSON_ArrayForEach(row, manifest) {
		const char *file = t_corpus_text(row, "file"), *what, *reason;
		struct t_corpus_verdict v = { .got = "nothing" };

		if (strcmp(t_corpus_text(row, "kind"), kind))
			continue;
		n++;
		reason = reason_of(others, file);
		other += reason != NULL;
		what = judge_bounded(row, judge, &v);
		if (!what)
			what = judge_class(row, v.got, reason);
		valid += !strcmp(v.got, "valid");
		warned += !strcmp(v.got, "must-warn");
		refused += !strcmp(v.got, "must-refuse");
		skipped += !strcmp(v.got, T_CORPUS_SKIPPED);
		if (what) {
			print_error("%s: %s (%s wanted; %s: %s)\n", file, what,
				    t_corpus_text(row, "class"), v.got, v.said);
			wrong++;
		}
	}
	print_message("%s: %d rows: %d valid, %d with a warning, %d refused, %d skipped; %d of the "
		      "other class that is acceptable, %d wrong\n", kind, n, valid, warned, refused,
		      skipped, other, wrong);
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

/* ---- recipes ---- */

static uint8_t nibble(char c)
{
	return (uint8_t)(c <= '9' ? c - '0' : c - 'a' + 10);
}

static size_t unhex(const char *s, uint8_t *out)
{
	const size_t n = strlen(s) / 2;

	for (size_t i = 0; i < n; i++)
		out[i] = (uint8_t)(nibble(s[2 * i]) << 4 | nibble(s[2 * i + 1]));
	return n;
}

void t_corpus_recipe(const cJSON *row, const char *path)
{
	size_t len;
	char *recipe = t_corpus_path(row);
	char *text = (char *)t_file_read(recipe, &len);
	cJSON *r = cJSON_Parse(text), *seg;
	int fd = open(path, O_CREAT | O_WRONLY | O_EXCL, 0600);

	assert_true(r && fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)cJSON_GetObjectItem(r, "size")->valuedouble), 0);
	cJSON_ArrayForEach(seg, cJSON_GetObjectItem(r, "segments")) {
		const char *hex = cJSON_GetArrayItem(seg, 1)->valuestring;
		uint8_t *b = t_alloc(strlen(hex) / 2 + 1);
		const size_t n = unhex(hex, b);

		assert_int_equal(pwrite(fd, b, n, (off_t)cJSON_GetArrayItem(seg, 0)->valuedouble),
				 (ssize_t)n);
		free(b);
	}
	close(fd);
	cJSON_Delete(r);
	free(text);
	free(recipe);
}

static void probe_tensor(const struct t_corpus_opened *o, const cJSON *want, char *name)
{
	const cJSON *off = cJSON_GetObjectItem(want, "file_offset"), *probe;
	const struct ck_tensor *t;
	const struct ck_state *s;
	const struct ck_extent *e;
	uint32_t number;

	assert_true(ck_index_find(&o->ix, name, &number));
	t = &o->ix.tensor[number];
	s = &o->ix.state[t->first_state];
	assert_true(t_corpus_same_shape(t, cJSON_GetObjectItem(want, "shape")));
	if (!t->numel)
		return;
	assert_int_equal(s->nextents, 1);
	e = &o->ix.extent[s->extent];
	if (off)
		assert_true((double)e->off == off->valuedouble);
	cJSON_ArrayForEach(probe, cJSON_GetObjectItem(want, "probes")) {
		const uint64_t at = (uint64_t)cJSON_GetArrayItem(probe, 0)->valuedouble;
		uint8_t want_bytes[64], got[64];
		const size_t n = unhex(cJSON_GetArrayItem(probe, 1)->valuestring, want_bytes);

		assert_int_equal(ck_src_read(o->ix.source[0].src, e->off + at, got, n, NULL), 0);
		assert_memory_equal(got, want_bytes, n);
	}
}

void t_corpus_probe(const struct t_corpus_opened *o, const cJSON *row,
		    char *(*name_of)(const cJSON *path))
{
	const cJSON *list = cJSON_GetObjectItem(cJSON_GetObjectItem(row, "expect"), "tensors");
	const cJSON *one;

	assert_int_equal(o->ix.ntensors, cJSON_GetArraySize(list));
	cJSON_ArrayForEach(one, list) {
		char *name = name_of(cJSON_GetObjectItem(one, "path"));

		probe_tensor(o, one, name);
		free(name);
	}
}
