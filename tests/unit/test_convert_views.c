/*
 * Odd ways to hold tensors, converted. If this fails, parts of one storage come out as each
 * other, or shards of mixed types are read with the wrong one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "tests/lib/archive/t_pt.h"
#include "tests/lib/fs/t_dir.h"
#include "tests/lib/ops/t_convert.h"

static const struct ckpt_run_opts run = { .size = sizeof(run) };
static const struct ckpt_convert_opts keep = {
	.size = sizeof(keep), .run = &run, .dtype = CKPT_KEEP,
};

/* No tensor covers its storage: each gets a copy of its own part, whatever they share. */
static void partial_views_of_one_storage_are_copied_each(void **state)
{
	char *dir = t_dir_new(), *pt = t_fmt("%s/m.pt", dir), *out = t_fmt("%s/o.safetensors", dir);
	struct t_pkl b = { 0 };
	struct t_pt o;
	struct t_st st;
	float v[12];

	(void)state;
	T_PKL_PUT(&b, "\x80\x02}(");
	t_pt_str(&b, "head");
	t_pt_tensor(&b, "0", 24, 0, 2, 6, 6, 1);
	t_pt_str(&b, "middle");
	t_pt_tensor(&b, "0", 24, 6, 2, 6, 6, 1);
	t_pt_str(&b, "columns");
	t_pt_tensor(&b, "0", 24, 4, 4, 2, 6, 1);
	T_PKL_PUT(&b, "u.");
	t_pt_open(&o, &b, NULL);
	t_file_write(pt, o.zip.p, o.zip.n);
	t_pt_close(&o);
	t_convert(pt, out, &keep, 0, NULL, NULL);
	t_convert_result(&st, dir, "o.safetensors");
	assert_int_equal(st.n_tensors, 3);
	memcpy(v, t_convert_tensor(&st, "head", "F32 [2,6]")->data, 48);
	for (int i = 0; i < 12; i++)
		assert_true(v[i] == (float)i);
	memcpy(v, t_convert_tensor(&st, "middle", "F32 [2,6]")->data, 48);
	for (int i = 0; i < 12; i++)
		assert_true(v[i] == (float)(i + 6));
	memcpy(v, t_convert_tensor(&st, "columns", "F32 [4,2]")->data, 32);
	for (int i = 0; i < 8; i++)
		assert_true(v[i] == (float)(4 + i / 2 * 6 + i % 2));
	t_st_close(&st);
	t_dir_end(dir);
	free(pt);
	free(out);
}

/* Types may differ from shard to shard and within one; U8 that packs 4-bit weights is U8. */
static void shards_of_mixed_types_are_read_as_they_are(void **state)
{
	static const uint8_t packed[] = { 0x1f, 0xa0, 0x00, 0xff, 0x77, 0x80 };
	static const struct t_part first[] = {
		{ "h", "BF16", 3, 2, NULL }, { "n", "F32", 5, 0, NULL }, { 0 },
	};
	static const struct t_part second[] = {
		{ "q", "U8", 3, 2, packed }, { "s", "I64", 2, 0, NULL }, { 0 },
	};
	static const char index[] =
		"{\"metadata\":{\"total_size\":54},\"weight_map\":{\"h\":\"a.safetensors\","
		"\"n\":\"a.safetensors\",\"q\":\"b.safetensors\",\"s\":\"b.safetensors\"}}";
	char *dir = t_dir_new(), *model = t_fmt("%s/model", dir);
	char *a = t_fmt("%s/a.safetensors", model), *b = t_fmt("%s/b.safetensors", model);
	char *i = t_fmt("%s/model.safetensors.index.json", model);
	char *out = t_fmt("%s/o.safetensors", dir);
	struct t_st st, from;

	(void)state;
	t_dir_make(model);
	t_convert_source(a, first);
	t_convert_source(b, second);
	t_file_write(i, index, strlen(index));
	t_convert(model, out, &keep, 0, NULL, NULL);
	t_convert_result(&st, dir, "o.safetensors");
	t_convert_result(&from, model, "a.safetensors");
	assert_int_equal(st.n_tensors, 4);
	assert_memory_equal(t_convert_tensor(&st, "q", "U8 [3,2]")->data, packed, sizeof(packed));
	assert_memory_equal(t_convert_tensor(&st, "h", "BF16 [3,2]")->data,
			    t_convert_tensor(&from, "h", "BF16 [3,2]")->data, 12);
	assert_memory_equal(t_convert_tensor(&st, "n", "F32 [5]")->data,
			    t_convert_tensor(&from, "n", "F32 [5]")->data, 20);
	t_convert_tensor(&st, "s", "I64 [2]");
	t_st_close(&st);
	t_st_close(&from);
	t_dir_end(dir);
	free(model);
	free(a);
	free(b);
	free(i);
	free(out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(partial_views_of_one_storage_are_copied_each),
		cmocka_unit_test(shards_of_mixed_types_are_read_as_they_are),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
