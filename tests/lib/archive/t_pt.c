/* See t_pt.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "libckpt/format/ck_limits.h"
#include "libckpt/tensor/ck_extents.h"
#include "tests/lib/archive/t_pt.h"
#include "tests/lib/fs/t_dir.h"

void t_pt_int(struct t_pkl *b, int v)
{
	uint8_t t[5] = { 'J' };

	t_put32(t + 1, (uint32_t)v);
	t_pkl_put(b, t, sizeof(t));
}

void t_pt_str(struct t_pkl *b, const char *s)
{
	t_pkl_str(b, s, strlen(s));
}

void t_pt_dims(struct t_pkl *b, const int *d, int n)
{
	T_PKL_PUT(b, "(");
	for (int i = 0; i < n; i++)
		t_pt_int(b, d[i]);
	T_PKL_PUT(b, "t");
}

void t_pt_tensor(struct t_pkl *b, const char *key, int numel, int offset, int d0, int d1,
		 int s0, int s1)
{
	T_PKL_PUT(b, "ctorch._utils\n_rebuild_tensor_v2\n((");
	t_pt_str(b, "storage");
	T_PKL_PUT(b, "ctorch\nFloatStorage\n");
	t_pt_str(b, key);
	t_pt_str(b, "cpu");
	t_pt_int(b, numel);
	T_PKL_PUT(b, "tQ");
	t_pt_int(b, offset);
	t_pt_dims(b, (const int[]){ d0, d1 }, 2);
	t_pt_dims(b, (const int[]){ s0, s1 }, 2);
	T_PKL_PUT(b, "\x89NtR");
}

void t_pt_open_bytes(struct t_pt *o, const void *p, size_t n)
{
	struct ck_src *again;
	uint32_t source;

	memset(o, 0, sizeof(*o));
	ck_limits_fill(NULL, &o->limits);
	assert_int_equal(ck_src_mem(p, n, "m.pt", &o->src, NULL), 0);
	o->rc = ck_pt_open(o->src, &o->limits, 0, &o->f, &o->pt, &o->err);
	assert_true(!o->rc == !o->err.code);
	if (o->rc)
		return;
	assert_int_equal(ck_index_init(&o->ix, o->limits.memory_bytes, NULL), 0);
	assert_int_equal(ck_src_mem(p, n, "m.pt", &again, NULL), 0);
	assert_int_equal(ck_index_add_source(&o->ix, "m.pt", again, -1, &source, NULL), 0);
	o->rc = ck_pt_index(o->pt, source, &o->limits, &o->ix, &o->f, &o->err);
}

void t_pt_open(struct t_pt *o, struct t_pkl *b, const char *byteorder)
{
	struct t_zip zip = { 0 };
	float data[24];

	for (int i = 0; i < 24; i++)
		data[i] = (float)i;
	t_zip_add(&zip, "m/data.pkl", b->p, b->n);
	t_zip_add(&zip, "m/version", "3\n", 2);
	if (byteorder)
		t_zip_add(&zip, "m/byteorder", byteorder, strlen(byteorder));
	t_zip_add(&zip, "m/data/0", data, sizeof(data));
	t_zip_deflate(&zip, "m/data/1", data, 24);
	t_zip_end(&zip);
	free(b->p);
	memset(b, 0, sizeof(*b));
	t_pt_open_bytes(o, zip.p, zip.n);
	o->zip = zip;
}

void t_pt_close(struct t_pt *o)
{
	if (o->pt)
		ck_index_release(&o->ix);
	ck_pt_close(o->pt);
	ck_src_close(o->src);
	ck_findings_release(&o->f);
	free(o->zip.p);
}

const struct ck_extent *t_pt_extent(const struct t_pt *o, const char *name)
{
	const struct ck_state *s;
	uint32_t t;

	if (!ck_index_find(&o->ix, name, &t))
		fail_msg("no tensor '%s'", name);
	assert_int_not_equal(o->ix.tensor[t].first_state, CK_NONE);
	s = &o->ix.state[o->ix.tensor[t].first_state];
	assert_int_equal(s->nextents, 1);
	return ck_extent_stored(&o->ix, s, 0);
}
