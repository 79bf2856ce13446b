/*
 * Writing pickles. If this is wrong, a resharded checkpoint loses a user's own state, its
 * loss scaler or its sharing, or DeepSpeed cannot unpickle it at all.
 *
 * ZCKPT_PKL_OUT=DIR leaves every pickle of the fixtures as it was written again in DIR, for
 * tests/interop/reemit.py, which asks Python whether both make the same objects.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/ck_sys.h"
#include "libckpt/format/ck_limits.h"
#include "libckpt/pickle/ck_pkl.h"
#include "libckpt/pickle/ck_pkl_emit.h"
#include "libckpt/tensor/ck_val_new.h"
#include "libckpt/zip/ck_zip.h"
#include "tests/lib/archive/t_same_graph.h"
#include "tests/lib/fs/t_dir.h"

static struct ckpt_limits limits;

static void expect_same(const struct ck_val *a, const struct ck_val *b, const char *where)
{
	const char *why = t_graphs_differ(a, b);

	if (why)
		fail_msg("%s: %s", where, why);
}

/* ---------------------------------------------------------------- once more, by hand */

struct bytes {
	char *p;
	uint64_t n;
};

static struct bytes emit(const struct ck_val *root)
{
	struct ckpt_err err = { 0 };
	struct bytes b = { NULL, 0 };

	if (ck_pkl_emit(root, &limits, NULL, NULL, &b.p, &b.n, &err))
		fail_msg("not written: %s", err.msg);
	return b;
}

static void load(struct ck_pkl *doc, const void *p, uint64_t n)
{
	struct ckpt_err err = { 0 };

	if (ck_pkl_load(doc, p, n, &limits, 0, "test.pkl", &err))
		fail_msg("not read: %s at %llu", err.msg, (unsigned long long)err.offset);
}

/* Read, written, read: the same graph, and nothing changes any more. */
static struct bytes round_trip(const void *p, uint64_t n, const char *where)
{
	struct ck_pkl one, two;
	struct bytes b, c;

	load(&one, p, n);
	b = emit(one.root);
	load(&two, b.p, b.n);
	assert_int_equal(two.used, b.n);
	assert_int_equal(two.protocol, 2);
	expect_same(one.root, two.root, where);
	c = emit(two.root);
	if (c.n != b.n || memcmp(c.p, b.p, b.n))
		fail_msg("%s: written a second time it is another pickle", where);
	ck_free(c.p);
	ck_pkl_release(&one);
	ck_pkl_release(&two);
	return b;
}

static void becomes(const void *p, size_t n, const void *want, size_t want_n)
{
	struct bytes b = round_trip(p, n, "by hand");

	assert_int_equal(b.n, want_n);
	assert_memory_equal(b.p, want, want_n);
	ck_free(b.p);
}
#define BECOMES(from, to) becomes(from, sizeof(from) - 1, to, sizeof(to) - 1)
/* What CPython's pickler writes at protocol 2 stays as it is. */
#define STAYS(text) BECOMES(text, text)

static void what_python_writes_at_protocol_2_stays_byte_for_byte(void **state)
{
	(void)state;
	STAYS("\x80\x02(NK\x01M\x00\x01J\x00\x00\x01\x00J\xff\xff\xff\xff"
	      "\x8a\x05\x00\x00\x00\x80\x00tq\x00.");
	STAYS("\x80\x02(\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x80"
	      "\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x80\x00"
	      "\x8a\x05\xff\xff\xff\x7f\xff\x88\x89tq\x00.");
	STAYS("\x80\x02G\x3f\xb9\x99\x99\x99\x99\x99\x9a.");
	STAYS("\x80\x02]q\x00(K\x01]q\x01K\x02" "a)h\x01" "e.");
	STAYS("\x80\x02}q\x00X\x01\x00\x00\x00" "aq\x01h\x01s.");
	STAYS("\x80\x02" "c_codecs\nencode\nq\x00X\x04\x00\x00\x00" "ab\xc3\xbfq\x01"
	      "X\x06\x00\x00\x00latin1q\x02\x86q\x03Rq\x04.");
	STAYS("\x80\x02" "c__builtin__\nbytes\nq\x00)Rq\x01.");
	STAYS("\x80\x02" "c__builtin__\nset\nq\x00]q\x01(K\x01K\x02" "e\x85q\x02Rq\x03.");
	STAYS("\x80\x02" "ccollections\nOrderedDict\nq\x00)Rq\x01X\x01\x00\x00\x00" "aq\x02K\x01s"
	      "}q\x03X\x01\x00\x00\x00" "bq\x04K\x02sb.");
	/* members of enums, also within a class, as Python 3.11.2 writes them */
	STAYS("\x80\x02}q\x00(X\x04\0\0\0modeq\x01" "c__builtin__\ngetattr\nq\x02" "czoo\nMode\n"
	      "q\x03X\x04\0\0\0FASTq\x04\x86q\x05Rq\x06X\x05\0\0\0innerq\x07h\x02h\x02"
	      "czoo\nOuter\nq\x08X\x05\0\0\0Innerq\x09\x86q\x0aRq\x0bX\x04\0\0\0SLOWq\x0c\x86"
	      "q\x0dRq\x0eu.");
	STAYS("\x80\x02" "czoo\nState\nq\x00)\x81q\x01}q\x02X\x01\x00\x00\x00" "aq\x03h\x01sb.");
	STAYS("\x80\x02" "c__builtin__\ncomplex\nq\x00G\x00\x00\x00\x00\x00\x00\x00\x00"
	      "G\x3f\xf0\x00\x00\x00\x00\x00\x00\x86q\x01Rq\x02.");
}

static void other_protocols_become_protocol_2(void **state)
{
	(void)state;
	BECOMES("\x80\x04\x95\x05\0\0\0\0\0\0\0\x8c\x01" "a\x94.",
		"\x80\x02X\x01\x00\x00\x00" "aq\x00.");
	BECOMES("\x80\x04\x8f\x94(K\x01\x90.", "\x80\x02" "c__builtin__\nset\nq\x00]q\x01K\x01"
		"a\x85q\x02Rq\x03.");
	BECOMES("\x80\x03" "C\x01x.", "\x80\x02" "c_codecs\nencode\nq\x00X\x01\x00\x00\x00xq\x01"
		"X\x06\x00\x00\x00latin1q\x02\x86q\x03Rq\x04.");
	BECOMES("\x80\x03" "cbuiltins\nrange\nK\x01\x85R.",
		"\x80\x02" "c__builtin__\nxrange\nq\x00K\x01\x85q\x01Rq\x02.");
	BECOMES("\x80\x04" "czoo\nState\n)}\x8c\x01kK\x01s\x92.",
		"\x80\x02" "ccopy_reg\n__newobj_ex__\nq\x00" "czoo\nState\nq\x01)}q\x02"
		"X\x01\x00\x00\x00kq\x03K\x01s\x87q\x04Rq\x05.");
	BECOMES("(izoo\nOld\n.", "\x80\x02(czoo\nOld\nq\x00oq\x01.");
	BECOMES("\x80\x05\x96\x01\0\0\0\0\0\0\0x.",
		"\x80\x02" "c__builtin__\nbytearray\nq\x00" "c_codecs\nencode\nq\x01"
		"X\x01\x00\x00\x00xq\x02X\x06\x00\x00\x00latin1q\x03\x86q\x04Rq\x05"
		"\x85q\x06Rq\x07.");
}

static void what_contains_itself_comes_back_knotted(void **state)
{
	(void)state;
	STAYS("\x80\x02]q\x00h\x00" "a.");
	STAYS("\x80\x02}q\x00K\x01h\x00s.");
	/* a tuple of a list of the tuple, as Python writes it */
	STAYS("\x80\x02]q\x00h\x00\x85q\x01" "a0h\x01.");
	/* an object whose argument is a list of the object */
	STAYS("\x80\x02" "czoo\nState\nq\x00]q\x01h\x00h\x01\x85q\x02Rq\x03"
	      "a0h\x02R0h\x03.");
}

static void count_batches(const struct ck_val *v, unsigned marks_want, unsigned singles_want)
{
	struct bytes b = emit(v);
	unsigned marks = 0, singles = 0;

	for (uint64_t i = 0; i < b.n; i++) {
		marks += b.p[i] == '(';
		singles += b.p[i] == 'a' || b.p[i] == 's';
	}
	assert_int_equal(marks, marks_want);
	assert_int_equal(singles, singles_want);
	ck_free(b.p);
}

/* CPython's rules: pickle.dumps(dict of 1000) ends in "u(u.", of an OrderedDict in "u.". */
static void items_go_in_batches_of_a_thousand(void **state)
{
	static const struct {
		uint64_t n;
		unsigned list[2], dict[2], ordered[2];	/* MARKs, single items */
	} rows[] = {
		{ 1, { 0, 1 }, { 0, 1 }, { 0, 1 } },
		{ 2, { 1, 0 }, { 1, 0 }, { 1, 0 } },
		{ 1000, { 1, 0 }, { 2, 0 }, { 1, 0 } },
		{ 1001, { 2, 0 }, { 2, 0 }, { 1, 1 } },
		{ 2001, { 3, 0 }, { 3, 0 }, { 2, 1 } },
	};

	(void)state;
	for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); r++) {
		struct ck_arena arena = CK_ARENA_INIT;
		struct ck_val *list = ck_val_new_list(&arena), *dict = ck_val_new_dict(&arena);
		struct ck_val *odd = ck_val_new_object(
			&arena, CK_HOW_REDUCE, ck_val_new_global(&arena, "zoo", "Bbg"),
			ck_val_new_tuple(&arena, NULL, 0));

		for (uint64_t i = 0; i < rows[r].n; i++) {
			ck_val_list_add(&arena, list, ck_val_new_none(&arena));
			ck_val_dict_add(&arena, dict, ck_val_new_bool(&arena, true),
					ck_val_new_none(&arena));
			ck_val_dict_add(&arena, odd, ck_val_new_bool(&arena, true),
					ck_val_new_none(&arena));
		}
		count_batches(list, rows[r].list[0], rows[r].list[1]);
		count_batches(dict, rows[r].dict[0], rows[r].dict[1]);
		count_batches(odd, rows[r].ordered[0], rows[r].ordered[1]);
		ck_arena_release(&arena);
	}
}

static void the_257th_number_takes_the_long_form(void **state)
{
	struct ck_arena arena = CK_ARENA_INIT;
	struct ck_val *list = ck_val_new_list(&arena), *last = NULL;
	struct bytes b, c;

	(void)state;
	for (int i = 0; i < 256; i++) {
		last = ck_val_new_str(&arena, "x");
		ck_val_list_add(&arena, list, last);
	}
	ck_val_list_add(&arena, list, last);
	b = emit(list);
	assert_memory_equal(b.p + b.n - 12, "r\x00\x01\x00\x00j\x00\x01\x00\x00" "e.", 12);
	c = round_trip(b.p, b.n, "long memo");
	assert_int_equal(c.n, b.n);
	ck_free(b.p);
	ck_free(c.p);
	ck_arena_release(&arena);
}

static int emit_code(const struct ck_val *root, const struct ckpt_limits *l)
{
	struct ckpt_err err = { 0 };
	struct bytes b = { NULL, 0 };
	const int rc = ck_pkl_emit(root, l, NULL, NULL, &b.p, &b.n, &err);

	assert_true(rc < 0 && (int)err.code == -rc && err.msg[0] && !b.p);
	return rc;
}

static void names_that_run_code_are_not_written(void **state)
{
	struct ck_arena arena = CK_ARENA_INIT;

	(void)state;
	assert_int_equal(emit_code(ck_val_new_global(&arena, "os", "system"), &limits),
			 -CKPT_E_UNSAFE);
	assert_int_equal(emit_code(ck_val_new_global(&arena, "builtins", "eval"), &limits),
			 -CKPT_E_UNSAFE);
	assert_int_equal(emit_code(ck_val_new_global(&arena, "zoo", "a\nb"), &limits),
			 -CKPT_E_UNSAFE);
	assert_int_equal(emit_code(ck_val_new_global(&arena, "zoo", "Outer.Inner"), &limits),
			 -CKPT_E_UNSUPPORTED);
	ck_arena_release(&arena);
}

static void depth_and_length_are_bounded(void **state)
{
	struct ck_arena arena = CK_ARENA_INIT;
	struct ckpt_limits tight = limits;
	struct ck_val *v = ck_val_new_none(&arena);

	(void)state;
	for (int i = 0; i < 100000; i++)
		v = ck_val_new_tuple(&arena, &v, 1);
	assert_int_equal(emit_code(v, &limits), -CKPT_E_LIMIT);
	tight.pickle_bytes = 16;
	assert_int_equal(emit_code(ck_val_new_str(&arena, "longer than sixteen bytes"), &tight),
			 -CKPT_E_LIMIT);
	ck_arena_release(&arena);
}

/* -------------------------------------------------------------------- edited trees */

static void an_edited_clone_leaves_its_source_as_it_was(void **state)
{
	static const char text[] = "\x80\x02}q\x00(X\x01\x00\x00\x00" "aq\x01K\x01"
				   "X\x01\x00\x00\x00" "bq\x02]q\x03K\x02" "au.";
	struct ck_arena arena = CK_ARENA_INIT;
	struct ck_val *copy, *list;
	struct ck_pkl doc;
	struct bytes b;

	(void)state;
	load(&doc, text, sizeof(text) - 1);
	copy = ck_val_clone(&arena, doc.root);
	list = ck_val_clone(&arena, ck_val_get(copy, "b"));
	assert_non_null(ck_val_list_add(&arena, list, ck_val_new_int(&arena, 7)));
	assert_non_null(ck_val_dict_sets(&arena, copy, "b", list));
	assert_non_null(ck_val_dict_sets(&arena, copy, "c", ck_val_new_none(&arena)));
	assert_true(ck_val_dict_drop(copy, "a"));
	assert_false(ck_val_dict_drop(copy, "a"));
	b = emit(doc.root);
	assert_int_equal(b.n, sizeof(text) - 1);
	assert_memory_equal(b.p, text, b.n);
	ck_free(b.p);
	assert_int_equal(copy->u.seq.n, 4);
	assert_int_equal(ck_val_get(copy, "b")->u.seq.n, 2);
	assert_non_null(ck_val_get(copy, "c"));
	ck_pkl_release(&doc);
	ck_arena_release(&arena);
}

static void a_missing_node_fails_the_whole_tree(void **state)
{
	struct ck_arena arena = { .limit = 40 };
	struct ck_val *v = ck_val_new_list(&arena);

	(void)state;
	assert_null(ck_val_list_add(&arena, v, ck_val_new_str(&arena, "there is no room")));
	assert_null(ck_val_new_tuple(&arena, &(struct ck_val *){ NULL }, 1));
	assert_null(ck_val_dict_sets(&arena, v, "k", v));
	assert_null(ck_val_clone(&arena, NULL));
	ck_arena_release(&arena);
}

/* ---------------------------------------------------------------------- every fixture */

struct tour {
	const char *out;	/* ZCKPT_PKL_OUT or NULL */
	const char *stem;	/* of files there */
	unsigned pickles, kept;
};

/* data.pkl of an archive, or NULL. */
static uint8_t *data_pkl(const char *path, uint64_t *n_out)
{
	struct ck_fdpool *pool = ck_fdpool_new(2);
	const struct ck_zip_entry *e = NULL;
	struct ck_src *src = NULL;
	struct ck_zip *zip = NULL;
	uint8_t *p = NULL;

	if (!ck_src_open(pool, path, &src, NULL) && !ck_zip_open(src, &limits, &zip, NULL))
		for (uint64_t i = 0; i < ck_zip_count(zip) && !e; i++) {
			const struct ck_zip_entry *at = ck_zip_entry_get(zip, i);
			const char *slash = strchr(at->name, '/');

			if (slash && !strcmp(slash, "/data.pkl"))
				e = at;
		}
	if (e && !ck_zip_read(zip, e, limits.pickle_bytes, &p, NULL))
		*n_out = e->bytes;
	ck_zip_close(zip);
	ck_src_close(src);
	ck_fdpool_free(pool);
	return p;
}

static void leave(const struct tour *tour, const char *path, const struct bytes *b)
{
	char *name = t_fmt("%s/%s%05u", tour->out, tour->stem, tour->pickles);
	char *pkl = t_fmt("%s.pkl", name), *from = t_fmt("%s.from", name);

	t_file_write(pkl, b->p, b->n);
	t_file_write(from, path, strlen(path));
	free(pkl);
	free(from);
	free(name);
}

/* What our reader takes must come out again; torch's own pickles byte for byte. */
static void visit(struct tour *tour, const char *path)
{
	struct ckpt_err err = { 0 };
	struct ck_pkl doc = CK_PKL_INIT;
	struct bytes b;
	uint64_t n = 0;
	uint8_t *p = data_pkl(path, &n);
	char *text = NULL;
	uint64_t text_n;
	int rc = p ? ck_pkl_load(&doc, p, n, &limits, 0, path, NULL) : -1;

	/* names within a class, and such as are mentioned but not called */
	if (!rc)
		rc = ck_pkl_emit(doc.root, &limits, NULL, NULL, &text, &text_n, &err);
	if (err.code)
		assert_true(err.code == CKPT_E_UNSAFE || err.code == CKPT_E_UNSUPPORTED);
	ck_free(text);
	ck_pkl_release(&doc);
	if (!rc) {
		b = round_trip(p, n, path);
		tour->pickles++;
		tour->kept += b.n == n && !memcmp(b.p, p, n);
		if (tour->out)
			leave(tour, path, &b);
		ck_free(b.p);
	}
	ck_free(p);
}

static void walk(struct tour *tour, const char *dir)
{
	char **list = t_dir_list(dir, NULL);

	for (char **name = list; *name; name++) {
		char *path = t_fmt("%s/%s", dir, *name);

		if (t_is_dir(path))
			walk(tour, path);
		else if (t_ends_with(path, ".pt") || t_ends_with(path, ".pth"))
			visit(tour, path);
		free(path);
	}
	t_list_free(list);
}

static void pickles_of_deepspeed_come_out_byte_for_byte(void **state)
{
	struct tour tour = { .out = getenv("ZCKPT_PKL_OUT"), .stem = "deepspeed" };
	char *dir = t_fmt("%s/deepspeed", getenv("ZCKPT_FIXTURES"));

	(void)state;
	walk(&tour, dir);
	print_message("%u of %u pickles\n", tour.kept, tour.pickles);
	assert_true(tour.pickles > 500);
	assert_int_equal(tour.kept, tour.pickles);
	free(dir);
}

static void every_pickle_of_the_format_corpus_comes_back_as_the_same_graph(void **state)
{
	struct tour tour = { .out = getenv("ZCKPT_PKL_OUT"), .stem = "torch" };
	char *dir = t_fmt("%s/formats/torch", getenv("ZCKPT_FIXTURES"));

	(void)state;
	walk(&tour, dir);
	print_message("%u of %u pickles\n", tour.kept, tour.pickles);
	assert_true(tour.kept > 100);
	free(dir);
	tour.out = NULL;
	dir = t_fmt("%s/formats/pickle", getenv("ZCKPT_FIXTURES"));
	walk(&tour, dir);
	free(dir);
	assert_true(tour.pickles > 300);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_python_writes_at_protocol_2_stays_byte_for_byte),
		cmocka_unit_test(other_protocols_become_protocol_2),
		cmocka_unit_test(what_contains_itself_comes_back_knotted),
		cmocka_unit_test(items_go_in_batches_of_a_thousand),
		cmocka_unit_test(the_257th_number_takes_the_long_form),
		cmocka_unit_test(names_that_run_code_are_not_written),
		cmocka_unit_test(depth_and_length_are_bounded),
		cmocka_unit_test(an_edited_clone_leaves_its_source_as_it_was),
		cmocka_unit_test(a_missing_node_fails_the_whole_tree),
		cmocka_unit_test(pickles_of_deepspeed_come_out_byte_for_byte),
		cmocka_unit_test(every_pickle_of_the_format_corpus_comes_back_as_the_same_graph),
	};

	ck_limits_fill(NULL, &limits);
	if (!getenv("ZCKPT_FIXTURES"))
		return 77;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
