/*
 * The pickle machine. If this is wrong, a hostile file runs code or exhausts memory, or
 * the step, the scaler or a user's own state comes back as another value.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/format/ck_limits.h"
#include "libckpt/pickle/ck_pkl.h"
#include "tests/lib/fs/t_dir.h"

static struct ckpt_limits limits;
static struct ck_pkl doc;
static struct ckpt_err err;

static int load_flags(const void *p, size_t n, unsigned flags)
{
	/* A copy of exactly this size, so that a sanitizer sees a byte too far. */
	uint8_t *copy = t_alloc(n);
	int rc;

	memcpy(copy, p, n);
	memset(&err, 0, sizeof(err));
	rc = ck_pkl_load(&doc, copy, n, &limits, flags, "test.pkl", &err);
	free(copy);
	assert_true(!rc == !err.code && !rc == !!doc.root && (!rc || err.msg[0]));
	return rc;
}

static int load(const void *p, size_t n)
{
	return load_flags(p, n, 0);
}

/* A literal without its NUL. */
#define LOAD(text) load(text, sizeof(text) - 1)

/* The root of a pickle that must load. */
static struct ck_val *root_of(const void *p, size_t n)
{
	if (load(p, n))
		fail_msg("%s at %llu", err.msg, (unsigned long long)err.offset);
	return doc.root;
}
#define ROOT(text) root_of(text, sizeof(text) - 1)

static void expect_kind(struct ck_val *v, enum ck_val_kind kind)
{
	assert_int_equal(v->kind, kind);
}

static void expect_int(struct ck_val *v, int64_t want)
{
	expect_kind(v, CK_VAL_INT);
	assert_true(v->u.i == want);
	ck_pkl_release(&doc);
}

static void integers_of_every_spelling_keep_their_value(void **state)
{
	(void)state;
	expect_int(ROOT("K\xff."), 255);
	expect_int(ROOT("M\x34\x12."), 0x1234);
	expect_int(ROOT("J\xfe\xff\xff\xff."), -2);
	expect_int(ROOT("\x8a\x00."), 0);
	expect_int(ROOT("\x8a\x01\x80."), -128);
	expect_int(ROOT("\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x80."), INT64_MIN);
	expect_int(ROOT("\x8a\x09\xff\xff\xff\xff\xff\xff\xff\x7f\x00."), INT64_MAX);
	expect_int(ROOT("\x8b\x02\x00\x00\x00\x00\x01."), 256);
	expect_int(ROOT("I-12\n."), -12);
	expect_int(ROOT("L123456789012L\n."), 123456789012);
	expect_int(ROOT("L-9223372036854775808L\n."), INT64_MIN);
	expect_kind(ROOT("I01\n."), CK_VAL_BOOL);
	assert_true(doc.root->u.b);
	ck_pkl_release(&doc);
}

static void integers_beyond_64_bits_keep_all_bytes(void **state)
{
	struct ck_val *v = ROOT("\x8a\x09\x01\x02\x03\x04\x05\x06\x07\x08\x09.");

	(void)state;
	expect_kind(v, CK_VAL_BIGINT);
	assert_int_equal(v->u.str.len, 9);
	assert_memory_equal(v->u.str.p, "\x01\x02\x03\x04\x05\x06\x07\x08\x09", 9);
	ck_pkl_release(&doc);
	/* 2**64, as text and as bytes with idle sign bytes. */
	v = ROOT("L18446744073709551616\n.");
	assert_int_equal(v->u.str.len, 9);
	assert_memory_equal(v->u.str.p, "\0\0\0\0\0\0\0\0\x01", 9);
	ck_pkl_release(&doc);
	v = ROOT("\x8a\x0b\0\0\0\0\0\0\0\0\x01\0\0.");
	assert_int_equal(v->u.str.len, 9);
	ck_pkl_release(&doc);
}

static void floats_keep_their_bits(void **state)
{
	struct ck_val *v = ROOT("G\x7f\xf8\x00\x00\x00\x00\x12\x34.");
	uint64_t bits;

	(void)state;
	memcpy(&bits, &v->u.f, 8);
	assert_true(bits == 0x7ff8000000001234);
	ck_pkl_release(&doc);
	v = ROOT("F-0.0\n.");
	assert_true(v->u.f == 0 && signbit(v->u.f));
	ck_pkl_release(&doc);
	v = ROOT("Finf\n.");
	assert_true(isinf(v->u.f));
	ck_pkl_release(&doc);
	v = ROOT("F1e-3\n.");
	assert_true(v->u.f == 1e-3);
	ck_pkl_release(&doc);
}

static void expect_str(struct ck_val *v, const char *want, size_t n)
{
	expect_kind(v, CK_VAL_STR);
	assert_int_equal(v->u.str.len, n);
	assert_memory_equal(v->u.str.p, want, n + 1);	/* with its NUL */
	ck_pkl_release(&doc);
}

static void strings_keep_every_byte(void **state)
{
	(void)state;
	expect_str(ROOT("X\x03\x00\x00\x00" "a\0b."), "a\0b", 3);
	expect_str(ROOT("\x8c\x02\xc3\xa9."), "\xc3\xa9", 2);
	expect_str(ROOT("X\x03\x00\x00\x00\xed\xa0\x80."), "\xed\xa0\x80", 3);
	expect_str(ROOT("U\x02hi."), "hi", 2);
	expect_str(ROOT("S'a\\n\\x41\\101\\''\n."), "a\nAA'", 5);
	expect_str(ROOT("Va\\u20ac\xe9\n."), "a\xe2\x82\xac\xc3\xa9", 6);
	expect_str(ROOT("V\\U0001f642\n."), "\xf0\x9f\x99\x82", 4);
	assert_int_equal(LOAD("X\x01\x00\x00\x00\xff."), -CKPT_E_CORRUPT);
	assert_int_equal(LOAD("X\x02\x00\x00\x00\xc0\x80."), -CKPT_E_CORRUPT);
}

static void python_2_strings_that_are_not_utf8_become_latin1_with_a_note(void **state)
{
	(void)state;
	assert_int_equal(LOAD("U\x02" "a\xe9."), 0);
	assert_int_equal(doc.notes, CK_PKL_NOTE_LATIN1);
	expect_str(doc.root, "a\xc3\xa9", 3);
}

static void containers_keep_order_and_sharing(void **state)
{
	/* [(1, 2), {"k": same tuple}, set, frozenset] */
	struct ck_val *v = ROOT("\x80\x04](K\x01K\x02\x86\x94}X\x01\0\0\0kh\x00s\x8f(K\x05\x90"
				"(K\x06\x91" "e.");
	struct ck_val *t = v->u.seq.item[0];

	(void)state;
	assert_int_equal(v->u.seq.n, 4);
	expect_kind(t, CK_VAL_TUPLE);
	assert_ptr_equal(ck_val_get(v->u.seq.item[1], "k"), t);
	expect_kind(v->u.seq.item[2], CK_VAL_SET);
	assert_true(v->u.seq.item[2]->u.seq.item[0]->u.i == 5);
	expect_kind(v->u.seq.item[3], CK_VAL_FROZENSET);
	ck_pkl_release(&doc);
}

static void a_list_may_contain_itself(void **state)
{
	struct ck_val *v = ROOT("]q\x00h\x00" "a.");

	(void)state;
	assert_ptr_equal(v->u.seq.item[0], v);
	ck_pkl_release(&doc);
}

static void calls_that_spell_plain_values_become_them(void **state)
{
	struct ck_val *v = ROOT("\x80\x02" "c__builtin__\nset\n](K\x01K\x02" "e\x85R.");

	(void)state;
	expect_kind(v, CK_VAL_SET);
	assert_int_equal(v->u.seq.n, 2);
	ck_pkl_release(&doc);
	v = ROOT("c_codecs\nencode\nX\x03\0\0\0" "a\xc3\xbfX\x06\0\0\0latin1\x86R.");
	expect_kind(v, CK_VAL_BYTES);
	assert_int_equal(v->u.str.len, 2);
	assert_memory_equal(v->u.str.p, "a\xff", 3);
	ck_pkl_release(&doc);
	v = ROOT("c__builtin__\nbytes\n)R.");
	expect_kind(v, CK_VAL_BYTES);
	assert_int_equal(v->u.str.len, 0);
	ck_pkl_release(&doc);
	v = ROOT("c__builtin__\nbytearray\nC\x02xy\x85R.");
	expect_kind(v, CK_VAL_BYTEARRAY);
	ck_pkl_release(&doc);
	v = ROOT("c__builtin__\ncomplex\nG\0\0\0\0\0\0\0\0G\0\0\0\0\0\0\0\0\x86R.");
	expect_kind(v, CK_VAL_OBJECT);
	assert_true(ck_val_is_call(v, "builtins", "complex"));
	ck_pkl_release(&doc);
	assert_int_equal(LOAD("c_codecs\nencode\nX\x02\0\0\0\xc4\x80X\x06\0\0\0latin1\x86R."),
			 -CKPT_E_CORRUPT);
	assert_int_equal(LOAD("c__builtin__\nset\nK\x01\x85R."), -CKPT_E_CORRUPT);
}

static void an_ordered_dict_has_its_pairs_and_its_state(void **state)
{
	struct ck_val *const *item;
	struct ck_val *v = ROOT("ccollections\nOrderedDict\n)R(X\x01\0\0\0bK\x01X\x01\0\0\0aK\x02u"
				"}X\x09\0\0\0_metadataNsb.");
	uint64_t n;

	(void)state;
	assert_true(ck_val_pairs(v, &item, &n));
	assert_int_equal(n, 2);
	assert_true(ck_val_is_str(item[0], "b"));
	assert_non_null(ck_val_get(v->u.obj->state, "_metadata"));
	ck_pkl_release(&doc);
}

static void python_2_pairs_become_items(void **state)
{
	struct ck_val *v = ROOT("ccollections\nOrderedDict\n](](X\x01\0\0\0bK\x01" "e]("
				"X\x01\0\0\0" "aK\x02" "ee\x85R.");

	(void)state;
	assert_int_equal(v->u.obj->ndict, 4);
	assert_int_equal(v->u.obj->args->u.seq.n, 0);
	assert_true(ck_val_get(v, "a")->u.i == 2);
	ck_pkl_release(&doc);
}

static void unknown_classes_are_kept_whole(void **state)
{
	struct ck_val *v = ROOT("\x80\x02" "cmy.mod\nCls\nK\x07\x85\x81}X\x01\0\0\0xK\x01sb.");

	(void)state;
	expect_kind(v, CK_VAL_OBJECT);
	assert_true(ck_val_is_call(v, "my.mod", "Cls"));
	assert_int_equal(v->u.obj->how, CK_HOW_NEWOBJ);
	assert_true(v->u.obj->args->u.seq.item[0]->u.i == 7);
	assert_true(ck_val_get(v->u.obj->state, "x")->u.i == 1);
	assert_int_equal(doc.nnames, 1);
	assert_int_equal(doc.name[0].cls, CK_PKL_OPAQUE);
	assert_true(doc.name[0].called && doc.name[0].offset == 2);
	ck_pkl_release(&doc);
}

/* Every way in which a stream can ask for os.system. */
static void a_refused_name_ends_the_reading_wherever_it_is_called(void **state)
{
	static const struct {
		const char *p;
		size_t n;
	} streams[] = {
#define S(text) { text, sizeof(text) - 1 }
		S("cos\nsystem\nX\x01\0\0\0x\x85R."),
		S("cposix\nsystem\nX\x01\0\0\0x\x85R."),
		S("(cos\nsystem\nX\x01\0\0\0xo."),
		S("(X\x01\0\0\0xios\nsystem\n."),
		S("\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x01x\x85R."),
		S("\x80\x04\x8c\x05torch\x8c\x09os.system\x93\x8c\x01x\x85R."),
		S("csubprocess\nPopen\n)\x81."),
		S("csubprocess\nPopen\n)}\x92."),
		S("c__builtin__\neval\nX\x01\0\0\0x\x85R."),
		S("c__builtin__\nexecfile\nX\x01\0\0\0x\x85R."),
		S("ccommands\ngetoutput\nX\x01\0\0\0x\x85R."),
		S("cbuiltins\ngetattr\nX\x01\0\0\0x\x85R."),
		S("cimportlib.util\nfind_spec\nX\x01\0\0\0x\x85R."),
		S("coperator\nattrgetter\nX\x01\0\0\0x\x85R."),
		S("ctorch.serialization\nload\nX\x01\0\0\0x\x85R."),
		S("cos\r\nsystem\nX\x01\0\0\0x\x85R."),
		S("cfunctools\npartial\ncos\nsystem\n\x85R."),
		S("ctorch._tensor\n_rebuild_from_type_v2\n(cos\nsystem\nNNNtR."),
		S("cargparse\nNamespace\n)\x81}X\x09\0\0\0__class__cos\nsystem\nsb."),
		S("cargparse\nNamespace\n)\x81}X\x0c\0\0\0__setstate__cos\nsystem\nsb."),
		S("(X\x07\0\0\0storagecos\nFloatStorage\ntQ."),
		S("]cos\nsystem\n)R0."),
#undef S
	};

	(void)state;
	for (size_t i = 0; i < sizeof(streams) / sizeof(streams[0]); i++)
		if (load(streams[i].p, streams[i].n) != -CKPT_E_UNSAFE)
			fail_msg("stream %zu was not refused: %s", i, err.msg);
}

static void an_audit_writes_refused_calls_down(void **state)
{
	static const char p[] = "cos\nsystem\nX\x01\0\0\0x\x85R.";

	(void)state;
	assert_int_equal(load_flags(p, sizeof(p) - 1, CK_PKL_AUDIT), 0);
	assert_int_equal(doc.nnames, 1);
	assert_int_equal(doc.name[0].cls, CK_PKL_REFUSED);
	assert_true(doc.name[0].called);
	ck_pkl_release(&doc);
}

static void a_refused_name_that_is_not_called_is_noted(void **state)
{
	(void)state;
	assert_int_equal(LOAD("](cos\nsystem\nK\x01" "e."), 0);
	assert_int_equal(doc.notes, CK_PKL_NOTE_MENTION);
	ck_pkl_release(&doc);
}

static void names_fall_into_their_sets(void **state)
{
	(void)state;
	assert_int_equal(ck_pkl_class_of("collections", "OrderedDict"), CK_PKL_DATA);
	assert_int_equal(ck_pkl_class_of("torch", "BFloat16Storage"), CK_PKL_DATA);
	assert_int_equal(ck_pkl_class_of("torch", "float8_e4m3fn"), CK_PKL_DATA);
	assert_int_equal(ck_pkl_class_of("torch", "load"), CK_PKL_REFUSED);
	assert_int_equal(ck_pkl_class_of("os.path", "join"), CK_PKL_REFUSED);
	assert_int_equal(ck_pkl_class_of("oslo", "thing"), CK_PKL_OPAQUE);
	assert_int_equal(ck_pkl_class_of("megatron.enums", "ModelType"), CK_PKL_OPAQUE);
	assert_int_equal(ck_pkl_class_of("\xef\xbd\x8fs", "system"), CK_PKL_REFUSED);
	assert_int_equal(ck_pkl_class_of("x", "y.__globals__"), CK_PKL_REFUSED);
}

static void a_known_name_cut_elsewhere_is_the_known_name(void **state)
{
	(void)state;
	assert_int_equal(LOAD("ctorch\n_utils._rebuild_tensor_v2\n."), 0);
	assert_true(ck_val_is_global(doc.root, "torch._utils", "_rebuild_tensor_v2"));
	assert_int_equal(doc.notes, CK_PKL_NOTE_SPLIT);
	ck_pkl_release(&doc);
}

static void streams_that_make_no_sense_are_refused(void **state)
{
	static const struct {
		const char *p;
		size_t n;
		enum ckpt_code code;
	} streams[] = {
#define S(text, code) { text, sizeof(text) - 1, code }
		S("", CKPT_E_TRUNCATED), S("N", CKPT_E_TRUNCATED), S(".", CKPT_E_CORRUPT),
		S("(.", CKPT_E_CORRUPT), S("0.", CKPT_E_CORRUPT), S("N\x87.", CKPT_E_CORRUPT),
		S("N(N\x86.", CKPT_E_CORRUPT), S("h\x00.", CKPT_E_CORRUPT),
		S("q\x00.", CKPT_E_CORRUPT), S("Nt.", CKPT_E_CORRUPT),
		S("}(Nu.", CKPT_E_CORRUPT), S("}]Ns.", CKPT_E_CORRUPT),
		S("]NNs.", CKPT_E_CORRUPT), S("}Na.", CKPT_E_CORRUPT), S("NNb.", CKPT_E_CORRUPT),
		S("X\x01\0\0\0x)R.", CKPT_E_CORRUPT), S("ca\nb\nK\x01R.", CKPT_E_CORRUPT),
		S("ca\nb\n]R.", CKPT_E_CORRUPT), S("ca\nb", CKPT_E_TRUNCATED),
		S("c\n\n.", CKPT_E_CORRUPT), S("\x80\x09N.", CKPT_E_UNSUPPORTED),
		S("\x82\x01.", CKPT_E_UNSUPPORTED), S("\x97.", CKPT_E_UNSUPPORTED),
		S("\xf0.", CKPT_E_CORRUPT), S("X\xff\xff\xff\xff.", CKPT_E_TRUNCATED),
		S("\x8e\0\0\0\0\0\0\0\x40.", CKPT_E_TRUNCATED), S("J\x01.", CKPT_E_TRUNCATED),
		S("\x95\xff\xff\xff\xff\xff\xff\xff\xffN.", CKPT_E_TRUNCATED),
		S("\x95\x0a\0\0\0\0\0\0\0\x95\1\0\0\0\0\0\0\0N.", CKPT_E_CORRUPT),
		S("\x95\2\0\0\0\0\0\0\0K\x01.", 0),
		S("\x95\1\0\0\0\0\0\0\0K\x01.", CKPT_E_CORRUPT),
		S("\x95\1\0\0\0\0\0\0\0N\x95\1\0\0\0\0\0\0\0.", 0),
		S("Nr\xff\xff\xff\xff.", 0),	/* any index: torch loads it */
		S("Fx\n.", CKPT_E_CORRUPT),
		S("F0x10\n.", CKPT_E_CORRUPT), S("I1x\n.", CKPT_E_CORRUPT),
		S("Sx\n.", CKPT_E_CORRUPT), S("Np-1\n.", CKPT_E_CORRUPT),
#undef S
	};

	(void)state;
	for (size_t i = 0; i < sizeof(streams) / sizeof(streams[0]); i++) {
		if (load(streams[i].p, streams[i].n) != -(int)streams[i].code)
			fail_msg("stream %zu: code %d, '%s'", i, (int)err.code, err.msg);
		ck_pkl_release(&doc);
	}
}

static void an_error_names_the_byte_of_its_opcode(void **state)
{
	(void)state;
	assert_int_equal(LOAD("\x80\x02NN\xf0."), -CKPT_E_CORRUPT);
	assert_int_equal(err.offset, 4);
	assert_string_equal(err.where, "test.pkl");
}

static void nesting_beyond_the_limit_is_refused(void **state)
{
	const size_t n = 5000;
	char *p = t_alloc(2 * n + 1);

	(void)state;
	memset(p, ']', n);
	memset(p + n, 'a', n - 1);
	p[2 * n - 1] = '.';
	assert_int_equal(load(p, 2 * n), -CKPT_E_LIMIT);
	memset(p, ')', 1);
	memset(p + 1, 0x85, n);
	p[n + 1] = '.';
	assert_int_equal(load(p, n + 2), -CKPT_E_LIMIT);
	p[900] = '.';
	assert_int_equal(load(p, 901), 0);
	ck_pkl_release(&doc);
	free(p);
}

static void more_values_than_the_limit_are_refused(void **state)
{
	const struct ckpt_limits old = limits;

	(void)state;
	limits.pickle_nodes = 6;
	assert_int_equal(LOAD("(]]]]]]]]l."), -CKPT_E_LIMIT);
	limits = old;
	limits.memory_bytes = 1000;
	assert_int_equal(LOAD("(]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]l."), -CKPT_E_LIMIT);
	limits = old;
	limits.pickle_bytes = 3;
	assert_int_equal(LOAD("NN0."), -CKPT_E_LIMIT);
	limits = old;
}

/* Any index that torch takes; a short stream gets no large array for it. */
static void memo_entries_may_have_any_number(void **state)
{
	const struct ckpt_limits old = limits;

	(void)state;
	limits.memory_bytes = 100000;
	expect_int(ROOT("K\x07r\x40\x42\x0f\0K\x08r\xff\xff\xff\xff" "0j\x40\x42\x0f\0."), 7);
	expect_int(ROOT("K\x07r\x40\x42\x0f\0K\x08r\xff\xff\xff\xff" "0j\xff\xff\xff\xff."), 8);
	expect_int(ROOT("K\x07p1000000\n0K\x09p1000000\n0g1000000\n."), 9);
	assert_int_equal(LOAD("K\x07r\x40\x42\x0f\x00" "0j\x41\x42\x0f\x00."), -CKPT_E_CORRUPT);
	limits.pickle_nodes = 280;	/* the constants and small integers are among them */
	assert_int_equal(LOAD("Nr\xff\xff\xff\xff."), 0);
	ck_pkl_release(&doc);
	limits = old;
}

/*
 * Indexes whose products with the constant of Fibonacci hashing end alike: a map that goes by
 * these bits has all of them in one place, and compares each with all before it.
 */
static void no_memo_entries_meet_in_one_place(void **state)
{
	enum { ENTRIES = 1000000, BITS = 22, LONGEST = 24 };
	char *p = t_alloc((size_t)ENTRIES * LONGEST);
	uint64_t inverse = 1, h = 1;
	size_t n = 3;
	int made = 0;

	(void)state;
	for (int i = 0; i < 6; i++)	/* Newton's, modulo 2^64 */
		inverse *= 2 - inverse * UINT64_C(0x9e3779b97f4a7c15);
	memcpy(p, "\x80\x02N", 3);
	while (made < ENTRIES - 1) {
		uint64_t i, at;

		h = h * UINT64_C(6364136223846793005) + 1442695040888963407;
		at = h >> BITS << BITS | (h >> 29 & ((UINT64_C(1) << BITS) - 1));
		i = at * inverse;
		i ^= i >> 32;
		if (i >= UINT64_C(1000000000) * 1000000000)
			continue;
		n += (size_t)snprintf(p + n, LONGEST, "p%" PRIu64 "\n", i);
		made++;
	}
	p[n++] = '.';
	assert_int_equal(load(p, n), 0);
	ck_pkl_release(&doc);
	free(p);
}

static void oddities_are_noted(void **state)
{
	(void)state;
	assert_int_equal(LOAD("\x80\x02N\x80\x02."), 0);
	assert_int_equal(doc.notes, CK_PKL_NOTE_PROTO);
	ck_pkl_release(&doc);
	assert_int_equal(LOAD("NN."), 0);
	assert_int_equal(doc.notes, CK_PKL_NOTE_LEFT);
	ck_pkl_release(&doc);
	assert_int_equal(LOAD("NN0."), 0);
	assert_int_equal(doc.notes, CK_PKL_NOTE_POP);
	ck_pkl_release(&doc);
	assert_int_equal(LOAD("\x80\x02N.xyz"), 0);
	assert_int_equal(doc.notes, 0);
	assert_int_equal(doc.used, 4);
	assert_int_equal(doc.protocol, 2);
	ck_pkl_release(&doc);
}

/* A stream with most opcodes: no bit and no cut may crash or read beyond the end. */
static void no_damage_breaks_the_machine(void **state)
{
	static const char base[] =
		"\x80\x04\x95\x11\0\0\0\0\0\0\0}q\x00(X\x01\0\0\0k](K\x01M\x02\x03J\1\2\3\4"
		"G\0\0\0\0\0\0\0\0e\x8c\x01m"
		"ccollections\nOrderedDict\n)R(\x8c\x01" "aNK\x05\x89u}\x8c\x01xNsb"
		"\x8c\x01pc_codecs\nencode\nX\x02\0\0\0\xc3\xbfX\x06\0\0\0latin1\x86R\x8c\x01q"
		"(X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\0" "0X\x03\0\0\0cpuK\x04tQ"
		"\x8c\x01s\x8f(K\x05\x90\x8c\x01l\x8a\x02\xff\x7fu.";
	const size_t n = sizeof(base) - 1;
	char copy[sizeof(base)];

	(void)state;
	assert_int_equal(load(base, n), 0);
	ck_pkl_release(&doc);
	for (size_t i = 0; i < n; i++)
		assert_int_not_equal(load(base, i), 0);
	memcpy(copy, base, sizeof(base));
	for (size_t i = 0; i < n; i++)
		for (unsigned v = 0; v < 256; v++) {
			copy[i] = (char)v;
			if (!load(copy, n))
				ck_pkl_release(&doc);
			copy[i] = base[i];
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(integers_of_every_spelling_keep_their_value),
		cmocka_unit_test(integers_beyond_64_bits_keep_all_bytes),
		cmocka_unit_test(floats_keep_their_bits),
		cmocka_unit_test(strings_keep_every_byte),
		cmocka_unit_test(python_2_strings_that_are_not_utf8_become_latin1_with_a_note),
		cmocka_unit_test(containers_keep_order_and_sharing),
		cmocka_unit_test(a_list_may_contain_itself),
		cmocka_unit_test(calls_that_spell_plain_values_become_them),
		cmocka_unit_test(an_ordered_dict_has_its_pairs_and_its_state),
		cmocka_unit_test(python_2_pairs_become_items),
		cmocka_unit_test(unknown_classes_are_kept_whole),
		cmocka_unit_test(a_refused_name_ends_the_reading_wherever_it_is_called),
		cmocka_unit_test(an_audit_writes_refused_calls_down),
		cmocka_unit_test(a_refused_name_that_is_not_called_is_noted),
		cmocka_unit_test(names_fall_into_their_sets),
		cmocka_unit_test(a_known_name_cut_elsewhere_is_the_known_name),
		cmocka_unit_test(streams_that_make_no_sense_are_refused),
		cmocka_unit_test(an_error_names_the_byte_of_its_opcode),
		cmocka_unit_test(nesting_beyond_the_limit_is_refused),
		cmocka_unit_test(more_values_than_the_limit_are_refused),
		cmocka_unit_test(memo_entries_may_have_any_number),
		cmocka_unit_test(no_memo_entries_meet_in_one_place),
		cmocka_unit_test(oddities_are_noted),
		cmocka_unit_test(no_damage_breaks_the_machine),
	};

	ck_limits_fill(NULL, &limits);
	return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
