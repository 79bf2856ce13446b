/*
 * torch files: where each tensor's elements lie and what it is called. If this is wrong,
 * weights come out permuted, cut or under another's name, or a file made for it makes the
 * program read beyond a storage.
 *
 * long on purpose: one builder of files, and every geometry tried on it
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/torch_pt/ck_pt.h"
#include "formats/torch_pt/ck_pt_driver.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/format/ck_limits.h"
#include "tests/lib/t_dir.h"
#include "tests/lib/t_zip.h"

static struct ckpt_limits limits;

/* ------------------------------------------------------------- pickles by hand */

struct pkl {
	char p[4000];
	size_t n;
};

static void put(struct pkl *b, const void *p, size_t n)
{
	assert_true(b->n + n <= sizeof(b->p));
	memcpy(b->p + b->n, p, n);
	b->n += n;
}
#define PUT(b, text) put(b, text, sizeof(text) - 1)

static void put_int(struct pkl *b, int32_t v)
{
	uint8_t t[5] = { 'J' };

	t_put32(t + 1, (uint32_t)v);
	put(b, t, sizeof(t));
}

static void put_str(struct pkl *b, const char *s)
{
	uint8_t t[5] = { 'X' };

	t_put32(t + 1, (uint32_t)strlen(s));
	put(b, t, sizeof(t));
	put(b, s, strlen(s));
}

static void put_dims(struct pkl *b, const int *d, int n)
{
	PUT(b, "(");
	for (int i = 0; i < n; i++)
		put_int(b, d[i]);
	PUT(b, "t");
}

/* A float32 tensor of two dimensions in storage 'key' of 'numel' elements. */
static void put_tensor(struct pkl *b, const char *key, int numel, int offset, int d0, int d1,
		       int s0, int s1)
{
	PUT(b, "ctorch._utils\n_rebuild_tensor_v2\n((");
	put_str(b, "storage");
	PUT(b, "ctorch\nFloatStorage\n");
	put_str(b, key);
	put_str(b, "cpu");
	put_int(b, numel);
	PUT(b, "tQ");
	put_int(b, offset);
	put_dims(b, (const int[]){ d0, d1 }, 2);
	put_dims(b, (const int[]){ s0, s1 }, 2);
	PUT(b, "\x89NtR");
}

/* ------------------------------------------------------------------ opened file */

struct opened {
	struct t_zip zip;
	struct ck_src *src;
	struct ck_pt *pt;
	struct ck_index ix;
	struct ck_findings f;
	struct ckpt_err err;
	int rc;
};

static void open_bytes(struct opened *o, const void *p, size_t n)
{
	struct ck_src *again;
	uint32_t source;

	assert_int_equal(ck_src_mem(p, n, "m.pt", &o->src, NULL), 0);
	o->rc = ck_pt_open(o->src, &limits, 0, &o->f, &o->pt, &o->err);
	assert_true(!o->rc == !o->err.code);
	if (o->rc)
		return;
	assert_int_equal(ck_index_init(&o->ix, limits.memory_bytes, NULL), 0);
	assert_int_equal(ck_src_mem(p, n, "m.pt", &again, NULL), 0);
	assert_int_equal(ck_index_add_source(&o->ix, "m.pt", again, -1, &source, NULL), 0);
	o->rc = ck_pt_index(o->pt, source, &limits, &o->ix, &o->f, &o->err);
}

/* The pickle in an archive with storages "0" of 24 floats and "1", packed, of 6. */
static void open_pickle(struct opened *o, const struct pkl *b, const char *byteorder)
{
	float data[24];

	memset(o, 0, sizeof(*o));
	for (int i = 0; i < 24; i++)
		data[i] = (float)i;
	t_zip_add(&o->zip, "m/data.pkl", b->p, b->n);
	t_zip_add(&o->zip, "m/version", "3\n", 2);
	if (byteorder)
		t_zip_add(&o->zip, "m/byteorder", byteorder, strlen(byteorder));
	t_zip_add(&o->zip, "m/data/0", data, sizeof(data));
	t_zip_deflate(&o->zip, "m/data/1", data, 24);
	t_zip_end(&o->zip);
	open_bytes(o, o->zip.p, o->zip.n);
}

static void close_all(struct opened *o)
{
	if (o->pt)
		ck_index_release(&o->ix);
	ck_pt_close(o->pt);
	ck_src_close(o->src);
	ck_findings_release(&o->f);
	free(o->zip.p);
}

static const struct ck_extent *extent_of(const struct opened *o, const char *name)
{
	const struct ck_state *s;
	uint32_t t;

	if (!ck_index_find(&o->ix, name, &t))
		fail_msg("no tensor '%s'", name);
	assert_int_not_equal(o->ix.tensor[t].first_state, CK_NONE);
	s = &o->ix.state[o->ix.tensor[t].first_state];
	assert_int_equal(s->nextents, 1);
	return &o->ix.extent[s->extent];
}

static void open_one(struct opened *o, int offset, int d0, int d1, int s0, int s1)
{
	struct pkl b = { .n = 0 };

	PUT(&b, "\x80\x02}");
	put_str(&b, "w");
	put_tensor(&b, "0", 24, offset, d0, d1, s0, s1);
	PUT(&b, "s.");
	open_pickle(o, &b, NULL);
}

/* ---------------------------------------------------------------------- extents */

static void a_contiguous_tensor_is_one_run(void **state)
{
	const struct ck_extent *e;
	struct opened o;

	(void)state;
	open_one(&o, 3, 4, 5, 5, 1);
	assert_int_equal(o.rc, 0);
	e = extent_of(&o, "w");
	assert_int_equal(e->runs, 1);
	assert_int_equal(e->count, 20);
	assert_int_equal(e->off, o.zip.entry[2].data + 12);
	assert_int_equal(e->flags, 0);
	assert_int_equal(e->dtype, CKPT_F32);
	close_all(&o);
}

static void a_slice_of_columns_is_runs(void **state)
{
	const struct ck_extent *e;
	struct opened o;

	(void)state;
	open_one(&o, 2, 4, 3, 6, 1);
	e = extent_of(&o, "w");
	assert_int_equal(e->runs, 4);
	assert_int_equal(e->count, 3);
	assert_int_equal(e->src_stride, 24);
	assert_int_equal(e->off, o.zip.entry[2].data + 8);
	assert_int_equal(e->flags, 0);
	close_all(&o);
}

static void a_transposed_tensor_is_gathered(void **state)
{
	const struct ck_extent *e;
	struct opened o;

	(void)state;
	open_one(&o, 0, 4, 6, 1, 4);
	e = extent_of(&o, "w");
	assert_int_equal(e->flags, CKPT_EXTENT_GATHER);
	assert_int_equal(o.ix.view[e->view].ndim, 2);
	assert_int_equal(o.ix.view[e->view].stride[1], 4);
	close_all(&o);
}

static void dimensions_of_size_1_do_not_matter(void **state)
{
	struct opened o;

	(void)state;
	open_one(&o, 0, 1, 24, 7, 1);
	assert_int_equal(extent_of(&o, "w")->flags, 0);
	close_all(&o);
	open_one(&o, 0, 24, 1, 1, 99);
	assert_int_equal(extent_of(&o, "w")->flags, 0);
	close_all(&o);
}

static const struct ck_tensor_ref *ref_of(const struct opened *o)
{
	return ck_val_tensor(ck_val_get(o->pt->doc.root, "w"));
}

static void ranges_of_a_tensor_lie_where_they_should(void **state)
{
	struct ck_extent e;
	struct opened o;
	uint64_t base;

	(void)state;
	open_one(&o, 1, 4, 5, 5, 1);
	base = o.zip.entry[2].data + 4;
	assert_int_equal(ck_pt_extent(o.pt, ref_of(&o), 7, 6, 100, 0, 3, &o.ix, &e, NULL), 0);
	assert_int_equal(e.off, base + 28);
	assert_int_equal(e.count, 6);
	assert_int_equal(e.first, 100);
	assert_int_equal(e.rank, 3);
	assert_int_equal(ck_pt_extent(o.pt, ref_of(&o), 15, 6, 0, 0, 0, &o.ix, &e, NULL),
			 -CKPT_E_USAGE);
	close_all(&o);
	open_one(&o, 0, 4, 3, 6, 1);
	base = o.zip.entry[2].data;
	assert_int_equal(ck_pt_extent(o.pt, ref_of(&o), 4, 2, 0, 0, 0, &o.ix, &e, NULL), 0);
	assert_int_equal(e.off, base + 28);	/* row 1, column 1 */
	assert_int_equal(e.runs, 1);
	assert_int_equal(ck_pt_extent(o.pt, ref_of(&o), 3, 6, 0, 0, 0, &o.ix, &e, NULL), 0);
	assert_int_equal(e.off, base + 24);
	assert_int_equal(e.runs, 2);
	assert_int_equal(ck_pt_extent(o.pt, ref_of(&o), 2, 2, 0, 0, 0, &o.ix, &e, NULL),
			 -CKPT_E_UNSUPPORTED);
	close_all(&o);
}

static void elements_beyond_the_storage_are_refused(void **state)
{
	static const int bad[][5] = {
		{ 5, 4, 5, 5, 1 }, { 0, 5, 5, 5, 1 }, { 0, 4, 6, 7, 1 }, { 24, 1, 1, 1, 1 },
		{ -1, 1, 1, 1, 1 }, { 0, -1, 1, 1, 1 }, { 0, 2, 2, -1, 1 },
	};
	struct opened o;

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		open_one(&o, bad[i][0], bad[i][1], bad[i][2], bad[i][3], bad[i][4]);
		assert_int_equal(o.rc, -CKPT_E_CORRUPT);
		assert_true(strstr(o.err.where, "m.pt!m/data.pkl") != NULL);
		close_all(&o);
	}
	open_one(&o, 4, 4, 5, 5, 1);	/* the last element is the storage's last */
	assert_int_equal(o.rc, 0);
	close_all(&o);
}

static void big_endian_and_packed_storages_are_marked(void **state)
{
	struct pkl b = { .n = 0 };
	const struct ck_extent *e;
	struct opened o;

	(void)state;
	PUT(&b, "\x80\x02](");
	put_tensor(&b, "1", 6, 0, 1, 3, 3, 1);
	put_tensor(&b, "1", 6, 3, 1, 3, 3, 1);
	put_tensor(&b, "0", 24, 0, 1, 3, 3, 1);
	PUT(&b, "e.");
	open_pickle(&o, &b, "big");
	assert_int_equal(o.rc, 0);
	e = extent_of(&o, "1");
	assert_int_equal(e->flags, CKPT_EXTENT_DEFLATED | CKPT_EXTENT_SWAPPED);
	assert_int_equal(e->off, 12);
	assert_int_equal(e->member, extent_of(&o, "0")->member);
	assert_int_equal(o.ix.nmembers, 1);
	assert_int_equal(o.ix.member[0].bytes, 24);
	assert_int_equal(o.ix.member[0].off, o.zip.entry[4].data);
	assert_int_equal(extent_of(&o, "2")->flags, CKPT_EXTENT_SWAPPED);
	close_all(&o);
}

/* ------------------------------------------------------------------------ names */

static void paths_are_joined_by_dots_and_stay_apart(void **state)
{
	struct pkl b = { .n = 0 };
	uint32_t t;
	struct opened o;

	(void)state;
	/* {"a.b": t0, "a": {"b": t1, 7: [t2], "x.y\\": t3}} */
	PUT(&b, "\x80\x02}(");
	put_str(&b, "a.b");
	put_tensor(&b, "0", 24, 0, 1, 1, 1, 1);
	put_str(&b, "a");
	PUT(&b, "}(");
	put_str(&b, "b");
	put_tensor(&b, "0", 24, 1, 1, 1, 1, 1);
	put_int(&b, 7);
	PUT(&b, "]");
	put_tensor(&b, "0", 24, 2, 1, 1, 1, 1);
	PUT(&b, "a");
	put_str(&b, "x.y\\");
	put_tensor(&b, "0", 24, 3, 1, 1, 1, 1);
	PUT(&b, "uu.");
	open_pickle(&o, &b, NULL);
	assert_int_equal(o.rc, 0);
	assert_int_equal(o.ix.ntensors, 4);
	assert_int_equal(extent_of(&o, "a.x\\.y\\\\")->off, o.zip.entry[2].data + 12);
	assert_int_equal(extent_of(&o, "a.b")->off, o.zip.entry[2].data);
	assert_int_equal(extent_of(&o, "a.7.0")->off, o.zip.entry[2].data + 8);
	assert_true(ck_index_find(&o.ix, "a.b~2", &t));
	assert_int_equal(extent_of(&o, "a.b~2")->off, o.zip.entry[2].data + 4);
	close_all(&o);
}

static void tied_tensors_are_one_tensor_and_an_alias(void **state)
{
	struct pkl b = { .n = 0 };
	uint32_t first, second, other;
	struct opened o;

	(void)state;
	PUT(&b, "\x80\x02}(");
	put_str(&b, "emb");
	put_tensor(&b, "0", 24, 0, 4, 6, 6, 1);
	put_str(&b, "head");
	put_tensor(&b, "0", 24, 0, 4, 6, 6, 1);
	put_str(&b, "part");
	put_tensor(&b, "0", 24, 0, 2, 6, 6, 1);
	PUT(&b, "u.");
	open_pickle(&o, &b, NULL);
	assert_true(ck_index_find(&o.ix, "emb", &first));
	assert_true(ck_index_find(&o.ix, "head", &second));
	assert_true(ck_index_find(&o.ix, "part", &other));
	assert_int_equal(o.ix.tensor[first].role, CKPT_ROLE_PLAIN);
	assert_int_equal(o.ix.tensor[second].role, CKPT_ROLE_ALIAS);
	assert_int_equal(o.ix.tensor[second].alias_of, first);
	assert_int_equal(o.ix.tensor[other].role, CKPT_ROLE_PLAIN);
	close_all(&o);
}

static void a_distributed_tensor_is_not_shown_as_the_full_one(void **state)
{
	struct pkl b = { .n = 0 };
	struct opened o;

	(void)state;
	/* _rebuild_from_type_v2(_rebuild_wrapper_subclass, DTensor, (...), {"_local": t}) */
	PUT(&b, "\x80\x02}");
	put_str(&b, "w");
	PUT(&b, "ctorch._tensor\n_rebuild_from_type_v2\n(ctorch._utils\n"
		"_rebuild_wrapper_subclass\nctorch.distributed.tensor\nDTensor\n(Nt}");
	put_str(&b, "_local_tensor");
	put_tensor(&b, "0", 24, 0, 4, 6, 6, 1);
	PUT(&b, "stRs.");
	open_pickle(&o, &b, NULL);
	assert_int_equal(o.rc, 0);
	assert_int_equal(o.ix.ntensors, 0);
	assert_int_equal(o.f.n, 2);	/* and the record that is packed is not used */
	assert_string_equal(o.f.list[1].id, "TENSOR_OPAQUE");
	assert_string_equal(o.f.list[1].where, "w");
	close_all(&o);
}

/* Nothing in the corpus was written by a torch that old. */
static void a_tensor_of_the_time_before_1_0_is_read(void **state)
{
	struct pkl b = { .n = 0 };
	const struct ck_extent *e;
	struct opened o;

	(void)state;
	PUT(&b, "\x80\x02}");
	put_str(&b, "w");
	PUT(&b, "ctorch\nFloatTensor\n)\x81((");
	put_str(&b, "storage");
	PUT(&b, "ctorch\nFloatStorage\n");
	put_str(&b, "0");
	put_str(&b, "cpu");
	put_int(&b, 24);
	PUT(&b, "tQ");
	put_int(&b, 2);
	put_dims(&b, (const int[]){ 3, 2 }, 2);
	put_dims(&b, (const int[]){ 2, 1 }, 2);
	PUT(&b, "tbs.");
	open_pickle(&o, &b, NULL);
	assert_int_equal(o.rc, 0);
	e = extent_of(&o, "w");
	assert_int_equal(e->off, o.zip.entry[2].data + 8);
	assert_int_equal(e->count, 6);
	assert_int_equal(e->dtype, CKPT_F32);
	close_all(&o);
}

static void items_put_into_a_tensor_are_refused(void **state)
{
	struct pkl b = { .n = 0 };
	struct opened o;

	(void)state;
	put_tensor(&b, "0", 24, 0, 4, 6, 6, 1);
	put_str(&b, "k");
	PUT(&b, "Ns.");
	open_pickle(&o, &b, NULL);
	assert_int_equal(o.rc, -CKPT_E_CORRUPT);
	close_all(&o);
}

static void two_mentions_of_a_storage_must_agree(void **state)
{
	struct pkl b = { .n = 0 };
	struct opened o;

	(void)state;
	PUT(&b, "](");
	put_tensor(&b, "0", 24, 0, 4, 6, 6, 1);
	put_tensor(&b, "0", 23, 0, 1, 6, 6, 1);
	PUT(&b, "e.");
	open_pickle(&o, &b, NULL);
	assert_int_equal(o.rc, -CKPT_E_CORRUPT);
	assert_non_null(strstr(o.err.msg, "23"));
	close_all(&o);
}

static void a_hostile_call_in_an_archive_is_refused_with_its_name(void **state)
{
	struct pkl b = { .n = 0 };
	struct opened o;

	(void)state;
	PUT(&b, "cposix\nsystem\nX\x04\0\0\0true\x85R.");
	open_pickle(&o, &b, NULL);
	assert_int_equal(o.rc, -CKPT_E_UNSAFE);
	assert_non_null(strstr(o.err.msg, "posix.system"));
	close_all(&o);
}

/* ----------------------------------------------------------------------- legacy */

#define MAGIC "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19." "\x80\x02M\xe9\x03."

/* A stream whose object pickle is larger than the first window of the reader. */
static void a_legacy_stream_with_a_long_pickle_is_read(void **state)
{
	const size_t text = 3u << 20;
	struct pkl head = { .n = 0 }, tail = { .n = 0 };
	uint8_t *p = t_alloc(text + 8192), count[8] = { 3 };
	const float data[3] = { 1, 2, 3 };
	struct opened o;
	size_t n;

	(void)state;
	memset(&o, 0, sizeof(o));
	PUT(&head, MAGIC "\x80\x02}.\x80\x02}(X\x01\0\0\0aX");
	put(&head, "\x00\x00\x30\x00", 4);
	memcpy(p, head.p, head.n);
	memset(p + head.n, 'x', text);
	put_str(&tail, "w");
	PUT(&tail, "ctorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storagectorch\nFloatStorage\n"
		   "X\x02\0\0\0" "99X\x03\0\0\0cpuK\x03NtQK\x01K\x02\x85K\x01\x85\x89NtRu.");
	PUT(&tail, "\x80\x02]X\x02\0\0\0" "99a.");
	put(&tail, count, 8);
	put(&tail, data, sizeof(data));
	memcpy(p + head.n + text, tail.p, tail.n);
	n = head.n + text + tail.n;
	assert_true(ck_pt_probe(p, 512));
	open_bytes(&o, p, n);
	if (o.rc)
		fail_msg("%s", o.err.msg);
	assert_true(o.pt->legacy);
	assert_int_equal(extent_of(&o, "w")->off, n - 8);
	close_all(&o);
	/* One byte less, and the storage is not whole. */
	memset(&o, 0, sizeof(o));
	open_bytes(&o, p, n - 1);
	assert_int_equal(o.rc, -CKPT_E_TRUNCATED);
	close_all(&o);
	free(p);
}

static void other_files_are_named_for_what_they_are(void **state)
{
	uint8_t tar[512] = "sys_info";
	struct opened o;

	(void)state;
	memcpy(tar + 257, "ustar", 5);
	memset(&o, 0, sizeof(o));
	open_bytes(&o, tar, sizeof(tar));
	assert_int_equal(o.rc, -CKPT_E_UNSUPPORTED);
	assert_non_null(strstr(o.err.msg, "tar"));
	close_all(&o);
	memset(&o, 0, sizeof(o));
	open_bytes(&o, "\x80\x02}.", 4);
	assert_int_equal(o.rc, -CKPT_E_FORMAT);
	close_all(&o);
	assert_false(ck_pt_probe((const uint8_t *)"\x80\x02}.", 4));
	memset(&o, 0, sizeof(o));
	t_zip_add(&o.zip, "m/data.pkl", "N.", 2);
	t_zip_add(&o.zip, "m/constants.pkl", "N.", 2);
	t_zip_end(&o.zip);
	open_bytes(&o, o.zip.p, o.zip.n);
	assert_int_equal(o.rc, -CKPT_E_UNSUPPORTED);
	assert_non_null(strstr(o.err.msg, "TorchScript"));
	close_all(&o);
}

/* ----------------------------------------------------------------------- memory */

static long until_failure, held;

static void *failing_realloc(void *p, size_t n)
{
	void *q;

	if (until_failure-- == 0)
		return NULL;
	q = realloc(p, n);
	held += q && !p;
	return q;
}

static void counting_free(void *p)
{
	held -= p != NULL;
	free(p);
}

static int open_and_index(const struct t_zip *z, struct ckpt_err *err)
{
	struct ck_src *src = NULL, *again = NULL;
	struct ck_pt *pt = NULL;
	struct ck_index ix;
	uint32_t source;
	int rc = ck_src_mem(z->p, z->n, "m.pt", &src, err);

	if (!rc)
		rc = ck_pt_open(src, &limits, 0, NULL, &pt, err);
	if (!rc) {
		memset(&ix, 0, sizeof(ix));
		rc = ck_index_init(&ix, limits.memory_bytes, err);
		if (!rc)
			rc = ck_src_mem(z->p, z->n, "m.pt", &again, err);
		if (!rc)
			rc = ck_index_add_source(&ix, "m.pt", again, -1, &source, err);
		if (!rc)
			rc = ck_pt_index(pt, source, &limits, &ix, NULL, err);
		ck_index_release(&ix);
	}
	ck_pt_close(pt);
	ck_src_close(src);
	return rc;
}

static void running_out_of_memory_anywhere_is_an_error_and_leaks_nothing(void **state)
{
	const struct ck_sys old = ck_sys;
	struct pkl b = { .n = 0 };
	struct opened o;
	long n;

	(void)state;
	PUT(&b, "\x80\x02}(");
	put_str(&b, "a");
	put_tensor(&b, "0", 24, 0, 4, 6, 1, 4);
	put_str(&b, "b");
	put_tensor(&b, "1", 6, 0, 1, 6, 6, 1);
	PUT(&b, "u.");
	open_pickle(&o, &b, "little");
	assert_int_equal(o.rc, 0);
	ck_sys.realloc = failing_realloc;
	ck_sys.free = counting_free;
	for (n = 0; n < 10000; n++) {
		struct ckpt_err err = { 0 };
		int rc;

		until_failure = n;
		held = 0;
		rc = open_and_index(&o.zip, &err);
		if (held)
			fail_msg("%ld blocks left after failure of allocation %ld", held, n);
		if (!rc)
			break;
		if (rc != -CKPT_E_NOMEM && rc != -CKPT_E_LIMIT)
			fail_msg("allocation %ld: %s", n, err.msg);
	}
	ck_sys = old;
	assert_in_range(n, 20, 9999);
	close_all(&o);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_contiguous_tensor_is_one_run),
		cmocka_unit_test(a_slice_of_columns_is_runs),
		cmocka_unit_test(a_transposed_tensor_is_gathered),
		cmocka_unit_test(dimensions_of_size_1_do_not_matter),
		cmocka_unit_test(ranges_of_a_tensor_lie_where_they_should),
		cmocka_unit_test(elements_beyond_the_storage_are_refused),
		cmocka_unit_test(big_endian_and_packed_storages_are_marked),
		cmocka_unit_test(paths_are_joined_by_dots_and_stay_apart),
		cmocka_unit_test(tied_tensors_are_one_tensor_and_an_alias),
		cmocka_unit_test(a_distributed_tensor_is_not_shown_as_the_full_one),
		cmocka_unit_test(a_tensor_of_the_time_before_1_0_is_read),
		cmocka_unit_test(items_put_into_a_tensor_are_refused),
		cmocka_unit_test(two_mentions_of_a_storage_must_agree),
		cmocka_unit_test(a_hostile_call_in_an_archive_is_refused_with_its_name),
		cmocka_unit_test(a_legacy_stream_with_a_long_pickle_is_read),
		cmocka_unit_test(other_files_are_named_for_what_they_are),
		cmocka_unit_test(running_out_of_memory_anywhere_is_an_error_and_leaks_nothing),
	};

	ck_limits_fill(NULL, &limits);
	return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
