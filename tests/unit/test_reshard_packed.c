/*
 * Steps whose archives another program packed again, and steps of a big-endian machine. If this
 * fails, resharding refuses them, or writes packed or turned bytes where tensors should be.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "formats/torch_pt/ck_pt.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/format/ck_limits.h"
#include "libckpt/zip/ck_zip.h"
#include "tests/lib/archive/t_zip.h"
#include "tests/lib/fs/t_dir.h"
#include "tests/lib/ops/t_step.h"

enum change { DEFLATED = 1, BIG = 2, BOTH = 3 };

/* Bytes of an element of the storage of that key. */
static size_t element_bytes(const struct ck_pt *pt, const char *key)
{
	for (uint64_t i = 0; i < pt->nstorages; i++)
		if (!strcmp(pt->storage[i].key, key))
			return ckpt_dtype_bits(pt->storage[i].dtype) / 8;
	return 1;
}

static void turn(uint8_t *p, size_t n, size_t es)
{
	for (size_t i = 0; i + es <= n; i += es)
		for (size_t k = 0; k < es / 2; k++) {
			const uint8_t t = p[i + k];

			p[i + k] = p[i + es - 1 - k];
			p[i + es - 1 - k] = t;
		}
}

static void add_entry(struct t_zip *out, const struct ck_pt *pt, const char *name, uint8_t *p,
		      size_t n, enum change change)
{
	const char *inner = strchr(name, '/') + 1;

	if (change & BIG && !strncmp(inner, "data/", 5))
		turn(p, n, element_bytes(pt, inner + 5));
	if (change & BIG && !strcmp(inner, "byteorder"))
		t_zip_add(out, name, "big", 3);
	else if (change & DEFLATED)
		t_zip_deflate(out, name, p, n);
	else
		t_zip_add(out, name, p, n);
}

/* The file again, changed; torch of before 2.1 did not say the byte order. */
static void repack(const char *path, enum change change)
{
	struct ck_fdpool *pool = ck_fdpool_new(4);
	struct ckpt_limits limits;
	struct ck_src *src;
	struct ck_pt *pt;
	struct ck_zip *zip;
	struct t_zip out = { 0 };
	char *order;

	ck_limits_fill(NULL, &limits);
	assert_int_equal(ck_src_open(pool, path, &src, NULL), 0);
	assert_int_equal(ck_pt_open(src, &limits, 0, NULL, &pt, NULL), 0);
	assert_int_equal(ck_zip_open(src, &limits, &zip, NULL), 0);
	order = t_fmt("%s/byteorder", pt->prefix);
	if (change & BIG && !ck_zip_entry_find(zip, order))
		t_zip_add(&out, order, "big", 3);
	for (uint64_t i = 0; i < ck_zip_count(zip); i++) {
		const struct ck_zip_entry *e = ck_zip_entry_get(zip, i);
		uint8_t *p;

		assert_int_equal(ck_zip_read(zip, e, 1 << 20, &p, NULL), 0);
		add_entry(&out, pt, e->name, p, e->bytes, change);
		ck_free(p);
	}
	t_zip_end(&out);
	ck_zip_close(zip);
	ck_pt_close(pt);
	ck_src_close(src);
	ck_fdpool_free(pool);
	t_file_write(path, out.p, out.n);
	free(out.p);
	free(order);
}

/* The step in DIR/ckpt. */
static void repack_step(const char *work, enum change change)
{
	char *root = t_fmt("%s/ckpt", work);
	char **tag = t_dir_list(root, NULL);

	for (size_t i = 0; tag[i]; i++) {
		char *dir = t_fmt("%s/%s", root, tag[i]);
		char **name = t_dir_list(dir, NULL);

		for (size_t k = 0; name[k]; k++) {
			char *path = t_fmt("%s/%s", dir, name[k]);

			if (t_ends_with(path, ".pt"))
				repack(path, change);
			free(path);
		}
		t_list_free(name);
		free(dir);
	}
	t_list_free(tag);
	free(root);
}

static char *reshard(const char *work, uint32_t world, int stage)
{
	const struct ckpt_run_opts run = { .size = sizeof(run), .sync = CKPT_SYNC_NONE };
	const struct ckpt_reshard_opts opts = {
		.size = sizeof(opts), .run = &run, .world = world, .stage = stage,
		.round_robin = -1,
	};
	char *root = t_fmt("%s/ckpt", work), *dst = t_fmt("%s/out", work);
	struct ckpt *ck = t_step_open(root, NULL);
	struct ckpt_err err = { 0 };

	if (ckpt_reshard(ck, dst, &opts, NULL, &err))
		fail_msg("%s: %s", err.where, err.msg);
	ckpt_close(ck);
	free(root);
	return dst;
}

static void same_tree(const char *a, const char *b)
{
	size_t n, m;

	if (t_is_dir(a)) {
		char **x = t_dir_list(a, &n), **y = t_dir_list(b, &m);

		assert_int_equal(n, m);
		for (size_t i = 0; i < n; i++) {
			char *p = t_fmt("%s/%s", a, x[i]), *q = t_fmt("%s/%s", b, y[i]);

			assert_string_equal(x[i], y[i]);
			same_tree(p, q);
			free(p);
			free(q);
		}
		t_list_free(x);
		t_list_free(y);
	} else {
		uint8_t *p = t_file_read(a, &n), *q = t_file_read(b, &m);

		assert_non_null(p);
		assert_non_null(q);
		assert_int_equal(n, m);
		assert_memory_equal(p, q, n);
		free(p);
		free(q);
	}
}

static void compare(const char *fixture, uint32_t world, int stage)
{
	char *work = t_step_copy(fixture);
	char *want = reshard(work, world, stage);

	for (int change = DEFLATED; change <= BOTH; change++) {
		char *other = t_step_copy(fixture), *got;

		repack_step(other, (enum change)change);
		got = reshard(other, world, stage);
		same_tree(got, want);
		t_dir_remove(other);
		free(other);
		free(got);
	}
	t_dir_remove(work);
	free(work);
	free(want);
}

static void stage_2_reads_packed_and_turned_bytes(void **state)
{
	(void)state;
	compare("ds0.19.8-z2-bf16-w2", 3, -1);
	compare("ds0.9.5-z2-bf16-w2", 1, -1);
}

static void stage_3_reads_packed_and_turned_bytes(void **state)
{
	(void)state;
	compare("ds0.19.8-z3-bf16-w2-client", 3, -1);
	compare("ds0.9.5-z3-fp32-w2", 1, -1);
}

static void stages_change_with_packed_and_turned_bytes(void **state)
{
	(void)state;
	compare("ds0.19.8-z3-bf16-w2", 4, 2);
	compare("ds0.19.8-z2-bf16-w2", 1, 3);
	compare("ds0.19.8-z2-bf16-w2", 1, 0);
	compare("ds0.19.8-z3-bf16-w2", 3, 0);
	compare("ds0.19.8-z0-fp32-w2", 2, 2);	/* shapes name its states */
	compare("ds0.19.8-z0-bf16-w2", 3, -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(stage_2_reads_packed_and_turned_bytes),
		cmocka_unit_test(stage_3_reads_packed_and_turned_bytes),
		cmocka_unit_test(stages_change_with_packed_and_turned_bytes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
