/*
 * getattr in pickles. If this is wrong, no ZeRO step that Python 3.11.2 saved can be read, or a
 * hostile file reaches a function by a class that has it as an attribute.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

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
	return rc;
}

#define SHARDED "ctorch.distributed._shard.sharded_tensor.api\nShardedTensor\n"
#define NESTED "X\x11\0\0\0ProcessGroupState"

/* What is wrong with a pickle that asks for getattr in this way; NULL = nothing. */
static const char *said_of(const void *p, size_t n)
{
	const char *text = NULL;

	if (load_flags(p, n, CK_PKL_KEEP))
		text = err.code == CKPT_E_UNSAFE ? "unsafe" : "bad";
	ck_pkl_release(&doc);
	return text;
}
#define SAID(text) said_of(text, sizeof(text) - 1)

#define GETATTR "cbuiltins\ngetattr\n"
#define X(n, text) "X" n "\0\0\0" text
#define MODE "czoo\nMode\n"
#define FAST MODE X("\4", "fast") "\x86R"		/* Mode.fast */
#define MEMBER GETATTR FAST

/* torch.save of FSDP1's ShardedTensor calls the class that it fetches, and no other may be. */
static void the_class_that_torch_fetches_is_called_and_no_other(void **state)
{
	(void)state;
	assert_null(SAID("\x80\2" GETATTR SHARDED NESTED "\x86R."));
	assert_null(SAID("\x80\2c__builtin__\ngetattr\n" SHARDED NESTED "\x86R)\x81}"
			 "X\1\0\0\0aK\1sb."));
	assert_string_equal(SAID(GETATTR SHARDED NESTED "\x86R}X\1\0\0\0aK\1sb."), "unsafe");
	assert_string_equal(SAID(GETATTR SHARDED NESTED "\x86R" "cos\nsystem\n\x85R."), "unsafe");
	assert_string_equal(SAID(GETATTR SHARDED X("\5", "Other") "\x86R)\x81."), "unsafe");
	assert_string_equal(SAID(GETATTR "czoo\nShardedTensor\n" NESTED "\x86R)\x81."), "unsafe");
}

static enum ck_pkl_class set_of(const void *p, size_t n, const char *name)
{
	enum ck_pkl_class cls = 0;

	assert_int_equal(load_flags(p, n, CK_PKL_AUDIT), 0);
	for (uint64_t i = 0; i < doc.nnames; i++)
		if (!strcmp(doc.name[i].name, name))
			cls = doc.name[i].cls;
	ck_pkl_release(&doc);
	return cls;
}
#define SET_OF(text, name) set_of(text, sizeof(text) - 1, name)

/* An audit calls FSDP1's files safe; a getattr that fetches anything else too is not. */
static void that_class_alone_makes_getattr_data(void **state)
{
	static const char alone[] = GETATTR SHARDED NESTED "\x86R.";
	static const char both[] = "(" GETATTR SHARDED NESTED "\x86R" MEMBER "t.";
	static const char other[] = GETATTR SHARDED X("\5", "Other") "\x86R.";
	static const char called[] = "(" GETATTR SHARDED NESTED "\x86R" GETATTR "cos\nsystem\n"
				     X("\1", "a") "\x86Rt.";

	(void)state;
	assert_int_equal(SET_OF(alone, "getattr"), CK_PKL_DATA);
	assert_int_equal(SET_OF(alone, "ShardedTensor.ProcessGroupState"), CK_PKL_DATA);
	assert_int_equal(SET_OF(both, "getattr"), CK_PKL_OPAQUE);
	assert_int_equal(SET_OF(both, "Mode.fast"), CK_PKL_OPAQUE);
	assert_int_equal(SET_OF(other, "getattr"), CK_PKL_OPAQUE);
	assert_int_equal(SET_OF(other, "ShardedTensor.Other"), CK_PKL_OPAQUE);
	assert_int_equal(SET_OF(called, "getattr"), CK_PKL_REFUSED);
}

/* Python 3.11.2: pickle.dumps({'mode': Mode.FAST, 'inner': Outer.Inner.SLOW}, protocol=2) */
static const char enum_2[] =
	"\x80\x02}q\x00(X\x04\0\0\0modeq\x01" "c__builtin__\ngetattr\nq\x02" "czoo\nMode\nq\x03"
	"X\x04\0\0\0FASTq\x04\x86q\x05Rq\x06X\x05\0\0\0innerq\x07h\x02h\x02" "czoo\nOuter\nq\x08"
	"X\x05\0\0\0Innerq\x09\x86q\x0aRq\x0bX\x04\0\0\0SLOWq\x0c\x86q\x0dRq\x0eu.";

/* Python 3.11.2: pickle.dumps(Flag.A | Flag.B | Flag.C, protocol=2) */
static const char flag_2[] =
	"\x80\x02" "c_operator\nor_\nq\x00h\x00" "c__builtin__\ngetattr\nq\x01" "czoo\nFlag\n"
	"q\x02"
	"X\x01\0\0\0Cq\x03\x86q\x04Rq\x05h\x01h\x02X\x01\0\0\0Bq\x06\x86q\x07Rq\x08\x86q\tRq\n"
	"h\x01h\x02X\x01\0\0\0Aq\x0b\x86q\x0cRq\r\x86q\x0eRq\x0f.";

static void members_of_enums_are_data(void **state)
{
	static const struct {
		const char *p;
		size_t n;
	} streams[] = {
#define S(text) { text, sizeof(text) - 1 }
		{ enum_2, sizeof(enum_2) - 1 },
		{ flag_2, sizeof(flag_2) - 1 },
		S(MEMBER "."),
		S("]" MEMBER "a."),
		S("(" MEMBER "K\1d."),				/* a key */
		S(MEMBER "\x85."),
		S(GETATTR "czoo\n_Mode\n" X("\2", "a1") "\x86R."),
		S(GETATTR "czoo\nOuter.Mode\n" X("\2", "a1") "\x86R."),
		S(GETATTR GETATTR "czoo\nOuter\n" X("\5", "Inner") "\x86R" X("\1", "A")
		  "\x86R."),
		S("cargparse\nNamespace\n)\x81}" X("\1", "a") MEMBER "sb."),	/* a state */
		S("czoo\nProperties\n)\x81" MEMBER "N\x86" "b."),	/* of a class's own make */
		S("czoo\nProperties\n" MEMBER "\x85\x81."),		/* a named tuple */
		S("c_operator\nor_\n" "czoo\nFlag\nK\1\x85R" MEMBER "\x86R."),
		S("\x80\4\x8c\x8" "builtins\x8c\7getattr\x93\x8c\3zoo\x8c\4Mode\x93"
		  "\x8c\4FAST\x86R."),
#undef S
	};

	(void)state;
	for (size_t i = 0; i < sizeof(streams) / sizeof(streams[0]); i++)
		if (said_of(streams[i].p, streams[i].n))
			fail_msg("stream %zu: %s", i, err.msg);
	assert_int_equal(load_flags(enum_2, sizeof(enum_2) - 1, CK_PKL_AUDIT), 0);
	assert_string_equal(doc.name[0].name, "getattr");
	assert_int_equal(doc.name[0].cls, CK_PKL_OPAQUE);
	assert_int_equal(doc.nnames, 6);
	assert_string_equal(doc.name[2].name, "Mode.FAST");
	assert_true(doc.name[2].attribute);
	assert_string_equal(doc.name[5].module, "zoo");
	assert_string_equal(doc.name[5].name, "Outer.Inner.SLOW");
	for (uint64_t i = 0; i < doc.nnames; i++)
		assert_int_equal(doc.name[i].cls, CK_PKL_OPAQUE);
	ck_pkl_release(&doc);
}

static void getattr_of_anything_but_a_class_is_refused(void **state)
{
	static const struct {
		const char *p;
		size_t n;
	} streams[] = {
#define S(text) { text, sizeof(text) - 1 }
		S(GETATTR "cos\nsystem\n" NESTED "\x86R."),
		S(GETATTR "cos\nOs\n" X("\6", "system") "\x86R."),
		S(GETATTR "csubprocess\nPopen\n" X("\4", "wait") "\x86R."),
		S(GETATTR "czoo\nsubprocess.Popen\n" X("\4", "wait") "\x86R."),
		S(GETATTR "ctorch\nos\n" X("\6", "system") "\x86R."),	/* no capital */
		S(GETATTR "czoo\nMode.os\n" X("\6", "system") "\x86R."),
		S(GETATTR "czoo\n__Mode\n" X("\1", "a") "\x86R."),
		S(GETATTR "ctorch\nFloatStorage\n" X("\x9", "from_file") "\x86R."),
		S(GETATTR MODE X("\x8", "__init__") "\x86R."),
		S(GETATTR MODE X("\2", "_a") "\x86R."),
		S(GETATTR MODE X("\2", "1a") "\x86R."),
		S(GETATTR MODE X("\3", "a.b") "\x86R."),
		S(GETATTR MODE X("\3", "a\0b") "\x86R."),
		S(GETATTR MODE X("\0", "") "\x86R."),
		S(GETATTR MODE X("\2", "\xc3\xa9") "\x86R."),
		S(GETATTR MODE "C\1a\x86R."),				/* bytes */
		S(GETATTR MODE X("\1", "a") "N\x87R."),			/* a default */
		S(GETATTR MODE "\x85R."),
		S(GETATTR MODE X("\1", "a") "\x86\x81."),
		S(GETATTR MODE X("\1", "a") "\x86}\x92."),
		S("(" MODE X("\1", "a") "ibuiltins\ngetattr\n."),
		S("(" GETATTR MODE X("\1", "a") "o."),
		S(GETATTR X("\4", "Mode") X("\1", "a") "\x86R."),	/* of a string */
		S(GETATTR "czoo\nMode\n)\x81" X("\1", "a") "\x86R."),	/* of an object */
		S(GETATTR "czoo\nmake\n)R" X("\1", "a") "\x86R."),
		S(GETATTR MODE "Q" X("\1", "a") "\x86R."),
		S(GETATTR GETATTR X("\1", "a") "\x86R."),
		S(GETATTR GETATTR FAST X("\6", "system") "\x86R."),	/* of a member */
		S(GETATTR GETATTR "cos\nPath\n" X("\1", "A") "\x86R" X("\1", "a") "\x86R."),
		S("cfunctools\npartial\n" GETATTR "\x85R."),
		S(GETATTR "czoo\nMode\nX\x10\0\0\0os.system       \x86R."),
#undef S
	};

	(void)state;
	for (size_t i = 0; i < sizeof(streams) / sizeof(streams[0]); i++) {
		const char *said = said_of(streams[i].p, streams[i].n);

		if (!said || strcmp(said, "unsafe"))
			fail_msg("stream %zu: %s", i, said ? err.msg : "is read");
	}
}

/* A member that is called, changed, or given to what may call it: the mutants of honest files. */
static void an_attribute_is_never_more_than_data(void **state)
{
	static const struct {
		const char *p;
		size_t n;
	} streams[] = {
#define S(text) { text, sizeof(text) - 1 }
		S(MEMBER ")R."),
		S(MEMBER ")\x81."),
		S(MEMBER ")}\x92."),
		S("(" MEMBER "o."),
		S(MEMBER "q\1" "0h\1)R."),				/* by the memo */
		S(MEMBER "2)R."),					/* and by DUP */
		S("]" MEMBER "q\1" "ah\1)R."),
		S(GETATTR GETATTR "czoo\nOuter\n" X("\5", "Inner") "\x86R" X("\1", "A")
		  "\x86R)R."),
		S(GETATTR "czoo\nOuter\n" X("\5", "Inner") "\x86RK\1\x85R."),
		S(MEMBER "}X\1\0\0\0aK\1sb."),				/* BUILD */
		S(MEMBER "Nb."),
		S(MEMBER "K\1K\2s."),
		S(MEMBER "(K\1K\2u."),
		S(MEMBER "K\1" "a."),
		S(MEMBER "(K\1" "e."),
		S(MEMBER "(K\1\x90."),
		S("cfunctools\npartial\n" MEMBER "\x85R."),
		S("cbuiltins\nmap\n" MEMBER "]\x86R."),
		S("czoo\nPool\nK\1" MEMBER "\x86R."),			/* an initializer */
		S("(K\1" MEMBER "izoo\nPool\n."),
		S("ccollections\ndefaultdict\n" MEMBER "\x85R."),
		S("cfunctools\npartial\n)}" X("\1", "f") MEMBER "s\x92."),
		S("ccopy_reg\n_reconstructor\n" MEMBER "c__builtin__\nobject\nN\x87R."),
		S("ctorch._tensor\n_rebuild_from_type_v2\n(" MEMBER "NNNtR."),
		S("cfunctools\npartial\ncbuiltins\nprint\n\x85R(" MEMBER ")}Ntb."),
		S("cargparse\nNamespace\n)\x81}X\x09\0\0\0__class__" MEMBER "sb."),
		S("cargparse\nNamespace\n)\x81}X\x0c\0\0\0__setstate__" MEMBER "sb."),
		S("cargparse\nNamespace\n)\x81" MEMBER "b."),
		S("(X\x06\0\0\0module" MEMBER "X\1\0\0\0fX\1\0\0\0stQ)R."),
		S(MEMBER "Q)R."),
		S("c_operator\nor_\n" MEMBER "\x85\x81."),
#undef S
	};

	(void)state;
	for (size_t i = 0; i < sizeof(streams) / sizeof(streams[0]); i++) {
		const char *said = said_of(streams[i].p, streams[i].n);

		if (!said || strcmp(said, "unsafe"))
			fail_msg("stream %zu: %s", i, said ? err.msg : "is read");
		if (load_flags(streams[i].p, streams[i].n, CK_PKL_AUDIT))
			continue;
		said = NULL;
		for (uint64_t k = 0; k < doc.nnames; k++)
			if (doc.name[k].cls == CK_PKL_REFUSED && doc.name[k].called)
				said = doc.name[k].name;
		assert_non_null(said);
		ck_pkl_release(&doc);
	}
}

static void one_abuse_of_getattr_makes_all_its_calls_refused(void **state)
{
	static const char both[] = "(" MEMBER GETATTR MODE X("\2", "_x") "\x86Rl.";

	(void)state;
	assert_int_equal(load_flags(both, sizeof(both) - 1, CK_PKL_AUDIT), 0);
	assert_int_equal(doc.name[0].cls, CK_PKL_REFUSED);
	assert_true(doc.name[0].called);
	ck_pkl_release(&doc);
}

/* No bit, byte or cut of an honest pickle crashes, or calls what it fetched. */
static void no_damage_makes_a_call_of_it(void **state)
{
	const size_t n = sizeof(enum_2) - 1;
	char copy[sizeof(enum_2)];

	(void)state;
	for (size_t i = 0; i < n; i++)
		assert_int_not_equal(load_flags(enum_2, i, 0), 0);
	memcpy(copy, enum_2, sizeof(enum_2));
	for (size_t i = 0; i < n; i++)
		for (unsigned v = 0; v < 256; v++) {
			copy[i] = (char)v;
			if (!load_flags(copy, n, 0))
				for (uint64_t k = 0; k < doc.nnames; k++)
					if (doc.name[k].cls == CK_PKL_REFUSED)
						assert_false(doc.name[k].called);
			ck_pkl_release(&doc);
			copy[i] = enum_2[i];
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_class_that_torch_fetches_is_called_and_no_other),
		cmocka_unit_test(that_class_alone_makes_getattr_data),
		cmocka_unit_test(members_of_enums_are_data),
		cmocka_unit_test(getattr_of_anything_but_a_class_is_refused),
		cmocka_unit_test(an_attribute_is_never_more_than_data),
		cmocka_unit_test(one_abuse_of_getattr_makes_all_its_calls_refused),
		cmocka_unit_test(no_damage_makes_a_call_of_it),
	};

	ck_limits_fill(NULL, &limits);
	return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
