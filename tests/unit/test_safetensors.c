/*
 * Headers of safetensors files, read and written. If reading is wrong, a damaged or hostile
 * file becomes a model of wrong numbers; if writing is wrong, no other program opens what
 * was converted. (The corpus of whole files is test_formats_corpus_safetensors.c.)
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/safetensors/ck_st.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/format/ck_limits.h"
#include "tests/lib/fs/t_dir.h"

static struct ckpt_limits limits;

/* The file of this header with 'data' bytes behind it; the copy has no byte to spare. */
static int open_bytes(const void *file, size_t n, struct ck_st **st_out, struct ckpt_err *err)
{
	char *copy = t_alloc(n ? n : 1);
	struct ck_src *src;
	int rc;

	memcpy(copy, file, n);
	assert_int_equal(ck_src_mem(copy, n, "t.safetensors", &src, NULL), 0);
	rc = ck_st_open(src, &limits, st_out, err);
	ck_src_close(src);
	free(copy);
	return rc;
}

static char *make_file(const char *header, size_t data, size_t *n_out)
{
	const size_t len = strlen(header);
	char *file = t_alloc(8 + len + data);

	ck_put_le64((uint8_t *)file, len);
	memcpy(file + 8, header, len);
	memset(file + 8 + len, 7, data);
	*n_out = 8 + len + data;
	return file;
}

static int open_header(const char *header, size_t data, struct ck_st **st_out,
		       struct ckpt_err *err)
{
	size_t n;
	char *file = make_file(header, data, &n);
	int rc = open_bytes(file, n, st_out, err);

	free(file);
	return rc;
}

#define TWO                                                                                \
	"{\"b\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[8,20]},"             \
	"\"a\":{\"shape\":[],\"data_offsets\":[0,8],\"dtype\":\"I64\"}}"

static void tensors_come_in_the_order_of_their_bytes(void **state)
{
	struct ck_st *st = NULL;

	(void)state;
	assert_int_equal(open_header(TWO, 20, &st, NULL), 0);
	assert_int_equal(st->ntensors, 2);
	assert_string_equal(st->tensor[0].name, "a");
	assert_int_equal(st->tensor[0].off, 8 + strlen(TWO));
	assert_int_equal(st->tensor[0].numel, 1);
	assert_int_equal(st->tensor[0].ndim, 0);
	assert_int_equal(st->tensor[1].off, 16 + strlen(TWO));
	assert_int_equal(st->tensor[1].dtype, CKPT_BF16);
	assert_int_equal(st->tensor[1].shape[1], 3);
	assert_int_equal(st->tensor[1].bytes, 12);
	ck_st_close(st);
}

static void every_cut_and_every_byte_added_is_refused(void **state)
{
	size_t n;
	char *file = make_file(TWO, 20, &n), *longer = t_alloc(n + 1);
	struct ck_st *st = NULL;

	(void)state;
	for (size_t i = 0; i < n; i++) {
		struct ckpt_err err = { 0 };

		if (!open_bytes(file, i, &st, &err))
			fail_msg("the first %zu bytes were accepted", i);
		assert_true(err.msg[0] && err.where[0]);
	}
	memcpy(longer, file, n);
	longer[n] = 0;
	assert_int_equal(open_bytes(longer, n + 1, &st, NULL), -CKPT_E_CORRUPT);
	assert_null(st);
	free(file);
	free(longer);
}

static void no_flipped_bit_of_a_header_breaks_the_reader(void **state)
{
	size_t n;
	char *file = make_file(TWO, 20, &n);

	(void)state;
	for (size_t i = 0; i < (n - 20) * 8; i++) {
		struct ck_st *st = NULL;
		uint64_t end = 0;

		file[i / 8] ^= (char)(1 << i % 8);
		if (!open_bytes(file, n, &st, NULL)) {	/* then it still covers the buffer */
			for (uint64_t k = 0; k < st->ntensors; k++) {
				assert_int_equal(st->tensor[k].off, k ? end : st->data);
				end = st->tensor[k].off + st->tensor[k].bytes;
			}
			assert_int_equal(end, n);
			ck_st_close(st);
		}
		file[i / 8] ^= (char)(1 << i % 8);
	}
	free(file);
}

static void refusals_carry_their_code(void **state)
{
	static const struct {
		const char *header;
		size_t data;
		int code;
	} t[] = {
		{ "{\"a\":{\"dtype\":\"F99\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
		  CKPT_E_UNSUPPORTED },
		{ "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 3,
		  CKPT_E_TRUNCATED },
		{ "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 5,
		  CKPT_E_CORRUPT },
		{ "{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904],"
		  "\"data_offsets\":[0,0]}}", 0, CKPT_E_LIMIT },
		{ "{\"a\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,1]}}", 1,
		  CKPT_E_CORRUPT },
		{ "{\"a\":[\"F32\",[1],[0,4]]}", 4, CKPT_E_CORRUPT },
		{ "{\"a\\u0000\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
		  CKPT_E_CORRUPT },
		{ "{\"__metadata__\":{\"a\":\"x\\u0000\"}}", 0, CKPT_E_CORRUPT },
		{ "{\"__metadata__\":{\"a\":1}}", 0, CKPT_E_CORRUPT },
		{ "[]", 0, CKPT_E_CORRUPT },
	};

	(void)state;
	for (size_t i = 0; i < CK_ARRAY_LEN(t); i++) {
		struct ckpt_err err = { 0 };
		struct ck_st *st = NULL;

		if (open_header(t[i].header, t[i].data, &st, &err) != -t[i].code)
			fail_msg("%s: %d %s", t[i].header, err.code, err.msg);
	}
}

static void a_file_that_is_something_else_is_named(void **state)
{
	struct ck_st *st = NULL;
	struct ckpt_err err = { 0 };

	(void)state;
	assert_int_equal(open_bytes("version https://git-lfs.github.com/spec/v1\n", 43, &st, &err),
			 -CKPT_E_FORMAT);
	assert_non_null(strstr(err.msg, "git-lfs"));
	memset(&err, 0, sizeof(err));
	assert_int_equal(open_bytes("PK\3\4\0\0\0\0\0\0\0\0", 12, &st, &err), -CKPT_E_TRUNCATED);
	memset(&err, 0, sizeof(err));
	assert_int_equal(open_bytes("PK\3\4\024\0\010\010\0\0\0\0", 12, &st, &err), -CKPT_E_FORMAT);
	assert_non_null(strstr(err.msg, "zip"));
}

static void limits_of_the_caller_hold(void **state)
{
	struct ck_st *st = NULL;

	(void)state;
	limits.header_bytes = strlen(TWO) - 1;
	assert_int_equal(open_header(TWO, 20, &st, NULL), -CKPT_E_LIMIT);
	ck_limits_fill(NULL, &limits);
	limits.tensor_dims = 1;
	assert_int_equal(open_header(TWO, 20, &st, NULL), -CKPT_E_LIMIT);
	ck_limits_fill(NULL, &limits);
}

static void a_header_of_exactly_the_largest_size_is_read(void **state)
{
	const size_t n = 8 + (size_t)CK_ST_MAX_HEADER;
	char *file = malloc(n + 1);
	struct ck_src *src;
	struct ck_st *st = NULL;

	(void)state;
	assert_non_null(file);
	memset(file, ' ', n + 1);
	memcpy(file + 8, "{}", 2);
	ck_put_le64((uint8_t *)file, CK_ST_MAX_HEADER);
	assert_int_equal(ck_src_mem(file, n, "big", &src, NULL), 0);
	assert_int_equal(ck_st_open(src, &limits, &st, NULL), 0);
	assert_int_equal(st->ntensors, 0);
	ck_st_close(st);
	ck_src_close(src);
	ck_put_le64((uint8_t *)file, (uint64_t)CK_ST_MAX_HEADER + 1);
	assert_int_equal(ck_src_mem(file, n + 1, "big", &src, NULL), 0);
	assert_int_equal(ck_st_open(src, &limits, &st, NULL), -CKPT_E_FORMAT);
	ck_src_close(src);
	free(file);
}

/* A header of 0x04034b50 bytes begins the file with "PK\3\4", as an archive does. */
static void a_length_that_looks_like_an_archive_is_a_length(void **state)
{
	const size_t len = 0x04034b50;
	char *dir = t_dir_new(), *path = t_fmt("%s/pk.safetensors", dir);
	const char *paths[] = { path };
	char *file = t_alloc(8 + len + 2);
	struct ckpt *ck = NULL;
	struct ckpt_err err = { 0 };
	struct ckpt_info info;

	(void)state;
	memset(file, ' ', 8 + len);
	memcpy(file + 8, "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}", 53);
	ck_put_le64((uint8_t *)file, len);
	t_file_write(path, file, 8 + len + 2);
	free(file);
	if (ckpt_open(paths, 1, NULL, &ck, &err))
		fail_msg("%s", err.msg);
	ckpt_info_get(ck, &info);
	assert_string_equal(info.format, "safetensors");
	assert_int_equal(info.ntensors, 1);
	ckpt_close(ck);
	t_dir_end(dir);
	free(path);
}

static void offsets_beyond_four_gib_are_kept(void **state)
{
	static const char header[] =
		"{\"a\":{\"dtype\":\"U8\",\"shape\":[4294967304],\"data_offsets\":[0,4294967304]},"
		"\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4294967304,4294967312]}}";
	char *dir = t_dir_new(), *path = t_fmt("%s/big.safetensors", dir), *file;
	struct ck_fdpool *pool = ck_fdpool_new(2);
	struct ck_src *src;
	struct ck_st *st = NULL;
	size_t n;

	(void)state;
	file = make_file(header, 0, &n);
	t_file_write(path, file, n);
	if (truncate(path, (off_t)(n + 4294967312)))
		t_die("a sparse file cannot be made");
	assert_int_equal(ck_src_open(pool, path, &src, NULL), 0);
	assert_int_equal(ck_st_open(src, &limits, &st, NULL), 0);
	assert_true(st->tensor[1].off == n + 4294967304);
	ck_st_close(st);
	ck_src_close(src);
	ck_fdpool_free(pool);
	t_dir_remove(dir);
	free(dir);
	free(path);
	free(file);
}

/* ------------------------------------------------------------------- index */

static int index_header(const char *header, size_t data, struct ck_index *ix,
			struct ck_findings *f, struct ckpt_err *err)
{
	struct ck_st *st = NULL;
	int rc;

	assert_int_equal(open_header(header, data, &st, NULL), 0);
	rc = ck_st_index(st, 0, "weight", ix, f, err);
	ck_st_close(st);
	return rc;
}

static void an_index_has_extents_facts_and_findings(void **state)
{
	static const char header[] =
		"{\"__metadata__\":{\"format\":\"pt\"},"
		"\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8],\"x\":0},"
		"\"\":{\"dtype\":\"U8\",\"shape\":[0,5],\"data_offsets\":[8,8]}}";
	struct ck_index ix;
	struct ck_findings f = { 0 };
	struct ck_src *src;
	uint32_t t, source;

	(void)state;
	assert_int_equal(ck_index_init(&ix, 1 << 30, NULL), 0);
	assert_int_equal(ck_src_mem("", 0, "one", &src, NULL), 0);
	assert_int_equal(ck_index_add_source(&ix, "one", src, -1, &source, NULL), 0);
	assert_int_equal(index_header(header, 8, &ix, &f, NULL), 0);
	assert_true(ck_index_find(&ix, "a", &t));
	assert_int_equal(ix.tensor[t].role, CKPT_ROLE_PLAIN);
	assert_int_equal(ix.stored[0].off, 8 + sizeof(header) - 1);
	assert_int_equal(ix.stored[0].count, 2);
	assert_true(ck_index_find(&ix, "", &t));
	assert_int_equal(ck_index_state_find(&ix, t, "weight"), ix.tensor[t].first_state);
	assert_string_equal(ck_index_fact(&ix, "metadata.format"), "pt");
	assert_int_equal(f.n, 2);	/* an unknown field, an empty name */
	assert_null(ck_findings_worst(&f, CKPT_ERROR));
	/* the same file again: duplicates, and facts once */
	assert_int_equal(index_header(header, 8, &ix, &f, NULL), 0);
	assert_string_equal(ck_findings_worst(&f, CKPT_ERROR)->id, "TENSOR_DUPLICATE");
	assert_int_equal(ix.nfacts, 1);
	assert_int_equal(ix.ntensors, 2);
	ck_findings_release(&f);
	ck_index_release(&ix);
}

static void a_piece_of_a_distributed_checkpoint_is_refused_by_name(void **state)
{
	struct ck_index ix;
	struct ck_findings f = { 0 };
	struct ckpt_err err = { 0 };

	(void)state;
	assert_int_equal(ck_index_init(&ix, 1 << 30, NULL), 0);
	assert_int_equal(index_header("{\"__metadata__\":{\"DCP_SHARDING_INFO\":\"{}\"}}", 0, &ix,
				      &f, &err), -CKPT_E_UNSUPPORTED);
	assert_non_null(strstr(err.msg, "DCP_SHARDING_INFO"));
	ck_findings_release(&f);
	ck_index_release(&ix);
}

/* ------------------------------------------------------------------- writing */

/*
 * As many tensors as a header may name: an entry takes 65 characters and more, so 1.4 million are
 * what 100,000,000 bytes hold. They must neither take long nor more memory than the limits say.
 */
static void a_header_of_tiny_entries_is_read(void **state)
{
	const size_t n = getenv("ZCKPT_LONG") ? 1400000 : 100000;
	char *header = t_alloc(n * 80 + 8), *at = header;
	struct ck_st *st = NULL;
	struct ckpt_err err = { 0 };

	(void)state;
	*at++ = '{';
	for (size_t i = 0; i < n; i++)
		at += snprintf(at, 80, "%s\"%zx\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":"
			       "[%zu,%zu]}", i ? "," : "", i, i, i + 1);
	*at = '}';
	if (open_header(header, n, &st, &err))
		fail_msg("%s", err.msg);
	assert_int_equal(st->ntensors, n);
	assert_int_equal(st->tensor[n - 1].off, 8 + strlen(header) + n - 1);
	ck_st_close(st);
	free(header);
}

static void headers_are_written_as_the_reference_writes_them(void **state)
{
	struct ck_st_writer *w;
	const uint64_t shape[] = { 1, 2, 3 };
	uint64_t n, off;
	char *h;

	(void)state;
	assert_int_equal(ck_st_writer_new(&w, NULL), 0);
	assert_int_equal(ck_st_writer_finish(w, 0, &h, &n, NULL, NULL, NULL), 0);
	assert_int_equal(n, 16);
	assert_memory_equal(h, "\10\0\0\0\0\0\0\0{}      ", 16);
	ck_free(h);
	ck_st_writer_free(w);

	assert_int_equal(ck_st_writer_new(&w, NULL), 0);
	assert_int_equal(ck_st_writer_meta(w, "framework", "pt", NULL), 0);
	assert_int_equal(ck_st_writer_finish(w, 8, &h, &n, NULL, NULL, NULL), 0);
	assert_int_equal(n, 48);
	assert_memory_equal(h + 8, "{\"__metadata__\":{\"framework\":\"pt\"}}     ", 40);
	ck_free(h);
	ck_st_writer_free(w);

	assert_int_equal(ck_st_writer_new(&w, NULL), 0);
	assert_int_equal(ck_st_writer_tensor(w, "attn.0", CKPT_F32, shape, 3, &off, NULL), 0);
	assert_int_equal(ck_st_writer_finish(w, 8, &h, &n, NULL, NULL, NULL), 0);
	assert_int_equal(n, 72);
	assert_memory_equal(h + 8, "{\"attn.0\":{\"dtype\":\"F32\",\"shape\":[1,2,3],"
				   "\"data_offsets\":[0,24]}}", 64);
	ck_free(h);
	ck_st_writer_free(w);
}

static void what_is_written_is_read_back(void **state)
{
	static const char name[] = "a\"\\/\xc3\xa9\t\xf0\x9f\x99\x82";
	const uint64_t shape[] = { 3, 5 };
	struct ck_st_writer *w;
	struct ck_st *st = NULL;
	uint64_t n, off = 9, fill = 0;
	char *h, *file;

	(void)state;
	assert_int_equal(ck_st_writer_new(&w, NULL), 0);
	assert_int_equal(ck_st_writer_meta(w, "z", "0000", NULL), 0);
	assert_int_equal(ck_st_writer_meta(w, "b", "line\nend", NULL), 0);
	assert_int_equal(ck_st_writer_meta(w, "b", "again", NULL), -CKPT_E_USAGE);
	assert_int_equal(ck_st_writer_tensor(w, "f4", CKPT_F4X2, shape, 2, &off, NULL), 0);
	assert_int_equal(off, 0);
	assert_int_equal(ck_st_writer_tensor(w, name, CKPT_U8, shape, 0, &off, NULL), 0);
	assert_int_equal(off, 15);
	assert_int_equal(ck_st_writer_tensor(w, name, CKPT_U8, shape, 0, &off, NULL),
			 -CKPT_E_USAGE);
	assert_int_equal(ck_st_writer_finish(w, 4096, &h, &n, "z", &fill, NULL), 0);
	assert_int_equal(n % 4096, 0);
	assert_memory_equal(h + fill, "0000\"", 5);
	assert_true(ck_st_writer_value_at(w, "z", &off));
	assert_int_equal(off, fill);
	assert_false(ck_st_writer_value_at(w, "b", &off));	/* needs an escape */
	assert_false(ck_st_writer_value_at(w, "none", &off));
	memcpy(h + fill, "wxyz", 4);
	file = t_alloc(n + 16);
	memcpy(file, h, n);
	memset(file + n, 1, 16);
	assert_int_equal(open_bytes(file, n + 16, &st, NULL), 0);
	assert_int_equal(st->nmeta, 2);
	assert_string_equal(st->meta[0].key, "b");
	assert_string_equal(st->meta[0].value, "line\nend");
	assert_string_equal(st->meta[1].value, "wxyz");
	assert_int_equal(st->tensor[0].dtype, CKPT_F4);
	assert_int_equal(st->tensor[0].shape[1], 10);
	assert_string_equal(st->tensor[1].name, name);
	ck_st_close(st);
	ck_free(h);
	ck_st_writer_free(w);
	free(file);
}

static void what_no_reader_would_take_is_not_written(void **state)
{
	const uint64_t shape[] = { 3 };
	struct ck_st_writer *w;
	uint64_t n, off, fill;
	char *h;

	(void)state;
	assert_int_equal(ck_st_writer_new(&w, NULL), 0);
	assert_int_equal(ck_st_writer_tensor(w, "a\x1b", CKPT_U8, shape, 1, &off, NULL),
			 -CKPT_E_UNSUPPORTED);
	assert_int_equal(ck_st_writer_tensor(w, "\xff", CKPT_U8, shape, 1, &off, NULL),
			 -CKPT_E_UNSUPPORTED);
	assert_int_equal(ck_st_writer_tensor(w, "__metadata__", CKPT_U8, shape, 1, &off, NULL),
			 -CKPT_E_UNSUPPORTED);
	assert_int_equal(ck_st_writer_tensor(w, "c", CKPT_C128, shape, 1, &off, NULL),
			 -CKPT_E_UNSUPPORTED);
	assert_int_equal(ck_st_writer_tensor(w, "c", CKPT_F4X2, shape, 0, &off, NULL),
			 -CKPT_E_UNSUPPORTED);
	assert_int_equal(ck_st_writer_tensor(w, "c", CKPT_F4, shape, 1, &off, NULL),
			 -CKPT_E_CORRUPT);
	assert_int_equal(ck_st_writer_finish(w, 24, &h, &n, NULL, NULL, NULL), -CKPT_E_USAGE);
	assert_int_equal(ck_st_writer_finish(w, 8192, &h, &n, NULL, NULL, NULL), -CKPT_E_USAGE);
	assert_int_equal(ck_st_writer_finish(w, 8, &h, &n, "none", &fill, NULL), -CKPT_E_USAGE);
	ck_st_writer_free(w);
}

static void the_order_is_widest_first_then_name(void **state)
{
	(void)state;
	assert_true(ck_st_order(CKPT_U64, "b", CKPT_F32, "a") < 0);
	assert_true(ck_st_order(CKPT_BF16, "b", CKPT_F16, "a") < 0);
	assert_true(ck_st_order(CKPT_BOOL, "a", CKPT_F4X2, "b") > 0);
	assert_true(ck_st_order(CKPT_F32, "a", CKPT_F32, "b") < 0);
	assert_int_equal(ck_st_order(CKPT_F4, "a", CKPT_F4X2, "a"), 0);
}

static void the_probe_wants_a_length_that_fits_and_a_brace(void **state)
{
	const uint8_t good[] = { 2, 0, 0, 0, 0, 0, 0, 0, '{', '}' };
	const uint8_t other[] = { 2, 0, 0, 0, 0, 0, 0, 0, 'x', '}' };

	(void)state;
	assert_true(ck_st_probe(good, 10, 10));
	assert_false(ck_st_probe(good, 10, 9));
	assert_false(ck_st_probe(good, 8, 10));
	assert_false(ck_st_probe(other, 10, 10));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tensors_come_in_the_order_of_their_bytes),
		cmocka_unit_test(every_cut_and_every_byte_added_is_refused),
		cmocka_unit_test(no_flipped_bit_of_a_header_breaks_the_reader),
		cmocka_unit_test(refusals_carry_their_code),
		cmocka_unit_test(a_file_that_is_something_else_is_named),
		cmocka_unit_test(limits_of_the_caller_hold),
		cmocka_unit_test(a_header_of_exactly_the_largest_size_is_read),
		cmocka_unit_test(a_length_that_looks_like_an_archive_is_a_length),
		cmocka_unit_test(offsets_beyond_four_gib_are_kept),
		cmocka_unit_test(an_index_has_extents_facts_and_findings),
		cmocka_unit_test(a_piece_of_a_distributed_checkpoint_is_refused_by_name),
		cmocka_unit_test(a_header_of_tiny_entries_is_read),
		cmocka_unit_test(headers_are_written_as_the_reference_writes_them),
		cmocka_unit_test(what_is_written_is_read_back),
		cmocka_unit_test(what_no_reader_would_take_is_not_written),
		cmocka_unit_test(the_order_is_widest_first_then_name),
		cmocka_unit_test(the_probe_wants_a_length_that_fits_and_a_brace),
	};

	ck_limits_fill(NULL, &limits);
	return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
