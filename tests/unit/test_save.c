/*
 * Save sessions: what ranks put by element ranges stands there whole, in every layout, however the
 * ranks hold it; and is the same files that `reshard` makes of it.  If this fails, a trainer's
 * checkpoint is not its state.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "tests/lib/fs/t_dir.h"
#include "tests/lib/fs/t_tree.h"
#include "tests/lib/ops/t_ranks.h"
#include "tests/lib/ops/t_save.h"
#include "tests/lib/ops/t_save_root.h"
#include "tests/lib/ops/t_step.h"

/* The step of that tag: sound to the last byte, and with the elements of 't'. */
static void check(const struct t_trainer *t, const char *tag, const char *format)
{
	const struct ckpt_open_opts oo = { .size = sizeof(oo), .tag = tag };
	const struct ckpt_verify_opts vo = { .size = sizeof(vo), .flags = CKPT_VERIFY_FULL };
	struct ckpt_verified v;
	struct ckpt_info info;
	struct ckpt_err err = { 0 };
	struct ckpt *ck;

	t_must(ckpt_open((const char *const *)&t->root, 1, &oo, &ck, &err), &err);
	t_must(ckpt_verify(ck, &vo, &v, &err), &err);
	ckpt_info_get(ck, &info);
	for (uint64_t i = 0; i < info.nfindings; i++) {
		struct ckpt_finding f;

		ckpt_finding_get(ck, i, &f, &err);
		fail_msg("%s %s: %s", f.id, f.where, f.text);
	}
	assert_string_equal(info.format, format);
	assert_string_equal(info.tag, tag);
	assert_int_equal(info.step, 42);
	t_save_check(t, ck);
	ckpt_close(ck);
}

/* ---- native ---- */

static const uint32_t worlds[] = { 1, 2, 3, 4, 7 };

static void native_by(enum t_held held, bool own, bool derived)
{
	char first[33] = "", now[33];

	for (size_t i = 0; i < sizeof(worlds) / sizeof(worlds[0]); i++) {
		struct t_trainer t = {
			.root = t_root, .nranks = worlds[i], .held = held, .own = own,
			.derived = derived,
		};
		struct ckpt_err err = { 0 };
		char *tag = t_fmt("step%u", worlds[i]);

		t_must(t_save_all(&t, t_save_step(&t, tag, CKPT_TO_NATIVE, 3, 0), &err), &err);
		check(&t, tag, "native");
		if (!first[0])
			t_step_digest_at(t_root, tag, first);
		t_step_digest_at(t_root, tag, now);
		assert_string_equal(now, first);
		free(tag);
	}
}

static void native_in_equal_shares(void **state)
{
	(void)state;
	for (int held = T_HELD_EVEN; held <= T_HELD_FIRST; held++) {
		native_by((enum t_held)held, false, held & 1);
		t_dir_remove(t_root);
	}
}

static void native_as_held(void **state)
{
	(void)state;
	for (int held = T_HELD_EVEN; held <= T_HELD_FIRST; held++) {
		native_by((enum t_held)held, true, held & 1);
		t_dir_remove(t_root);
	}
}

/* Is something wrong with the step, said by verify --full? */
static bool is_damaged(void)
{
	const struct ckpt_verify_opts vo = { .size = sizeof(vo), .flags = CKPT_VERIFY_FULL };
	struct ckpt_verified v;
	struct ckpt_info info;
	struct ckpt_err err = { 0 };
	struct ckpt *ck;

	t_must(ckpt_open((const char *const *)&t_root, 1, NULL, &ck, &err), &err);
	t_must(ckpt_verify(ck, &vo, &v, &err), &err);
	ckpt_info_get(ck, &info);
	ckpt_close(ck);
	return info.nfindings > 0;
}

/* Pieces end within blocks here: bytes at their ends have a sum as well. */
static void every_byte_is_summed(void **state)
{
	const struct t_trainer t = {
		.root = t_root, .nranks = 3, .held = T_HELD_EVEN, .own = true,
	};
	struct ckpt_err err = { 0 };
	char *path = t_fmt("%s/s/rank-00001.safetensors", t_root);
	uint8_t *p;
	size_t n;

	(void)state;
	t_must(t_save_all(&t, t_save_step(&t, "s", CKPT_TO_NATIVE, 2, 0), &err), &err);
	assert_false(is_damaged());
	p = t_file_read(path, &n);
	for (size_t at = 4096; at < n; at += at < 4300 || at + 300 > n ? 7 : 1999) {
		p[at] ^= 4;
		t_file_write(path, p, n);
		if (!is_damaged())
			fail_msg("byte %zu of %zu", at, n);
		p[at] ^= 4;
	}
	t_file_write(path, p, n);
	assert_false(is_damaged());
	free(p);
	free(path);
}

/* ---- DeepSpeed ---- */

static void same_bytes(const char *a, const char *b)
{
	struct t_tree x, y;

	t_tree_take(a, &x);
	t_tree_take(b, &y);
	for (size_t i = 0; i < x.n && i < y.n; i++)
		if (!t_tree_node_same(&x.node[i], &y.node[i]))
			fail_msg("%s/%s and %s/%s differ", a, x.node[i].name, b, y.node[i].name);
	assert_int_equal(x.n, y.n);
	t_tree_free(&x);
	t_tree_free(&y);
}

/* The same step as `reshard` makes it of a native one. */
static void reshard_to(const char *from, const char *tag, const char *to, int kind, int stage,
		       uint32_t world)
{
	const struct ckpt_open_opts oo = { .size = sizeof(oo), .tag = tag };
	const struct ckpt_reshard_opts ro = {
		.size = sizeof(ro), .world = world, .stage = stage, .to = kind, .nparts = 1,
		.round_robin = -1, .tag = "s",
	};
	struct ckpt_err err = { 0 };
	struct ckpt *ck;

	t_must(ckpt_open(&from, 1, &oo, &ck, &err), &err);
	t_must(ckpt_reshard(ck, to, &ro, NULL, &err), &err);
	ckpt_close(ck);
}

static void deepspeed_at(int kind, int stage, uint32_t nranks, uint32_t world, enum t_held held)
{
	const struct t_trainer t = {
		.root = t_root, .nranks = nranks, .held = held, .derived = stage == 3,
	};
	struct ckpt_err err = { 0 };
	char *native = t_fmt("%s/native", t_scratch), *other = t_fmt("%s/other", t_scratch);
	struct t_trainer n = t;

	t_must(t_save_all(&t, t_save_step(&t, "s", kind, stage, world), &err), &err);
	check(&t, "s", kind == CKPT_TO_UNIVERSAL ? "universal" : "deepspeed");
	n.root = native;
	t_must(t_save_all(&n, t_save_step(&n, "n", CKPT_TO_NATIVE, stage, world), &err), &err);
	reshard_to(native, "n", other, kind, stage, world);
	same_bytes(t_root, other);
	t_dir_remove(t_root);
	t_dir_remove(native);
	t_dir_remove(other);
	free(native);
	free(other);
}

static void deepspeed_is_what_reshard_makes(void **state)
{
	(void)state;
	deepspeed_at(CKPT_TO_DEEPSPEED, 0, 2, 2, T_HELD_EVEN);
	deepspeed_at(CKPT_TO_DEEPSPEED, 2, 1, 1, T_HELD_EVEN);
	deepspeed_at(CKPT_TO_DEEPSPEED, 2, 3, 4, T_HELD_EVEN);
	deepspeed_at(CKPT_TO_DEEPSPEED, 3, 4, 4, T_HELD_EVEN);
	deepspeed_at(CKPT_TO_DEEPSPEED, 3, 2, 7, T_HELD_BLOCKS);
	deepspeed_at(CKPT_TO_DEEPSPEED, 1, 4, 2, T_HELD_WHOLE);
	deepspeed_at(CKPT_TO_DEEPSPEED, 4, 2, 2, T_HELD_EVEN);
	deepspeed_at(CKPT_TO_UNIVERSAL, 2, 4, 4, T_HELD_EVEN);
}

/* ---- DCP ---- */

/* Bytes of the data files; items are in another order there, each of the same bytes. */
static uint64_t data_bytes(const char *step, uint64_t *nfiles_out)
{
	struct t_tree tree;
	uint64_t bytes = 0;

	*nfiles_out = 0;
	t_tree_take(step, &tree);
	for (size_t i = 0; i < tree.n; i++) {
		const size_t len = strlen(tree.node[i].name);

		if (len < 7 || strcmp(tree.node[i].name + len - 7, ".distcp"))
			continue;
		bytes += tree.node[i].n;
		++*nfiles_out;
	}
	t_tree_free(&tree);
	return bytes;
}

/* The folder has the elements and values that `reshard` makes of a native step. */
static void dcp_at(uint32_t nranks, uint32_t world, enum t_held held, enum ckpt_dtype weight)
{
	const struct t_trainer t = {
		.root = t_root, .nranks = nranks, .held = held, .derived = true, .weight = weight,
	};
	struct ckpt_err err = { 0 };
	char *native = t_fmt("%s/native", t_scratch), *other = t_fmt("%s/other", t_scratch);
	char *saved = t_fmt("%s/s", t_root), *resharded = t_fmt("%s/other/s", t_scratch);
	char *latest = t_fmt("%s/latest", t_root), now[33], want[33];
	struct t_trainer n = t;
	uint64_t nsaved, nresharded;
	uint8_t *p;
	size_t len;

	t_must(t_save_all(&t, t_save_step(&t, "s", CKPT_TO_DCP, 2, world), &err), &err);
	check(&t, "s", "dcp");
	n.root = native;
	t_must(t_save_all(&n, t_save_step(&n, "n", CKPT_TO_NATIVE, 2, world), &err), &err);
	reshard_to(native, "n", other, CKPT_TO_DCP, 2, world);
	t_step_digest_at(t_root, "s", now);
	t_step_digest_at(other, "s", want);
	assert_string_equal(now, want);
	assert_int_equal(data_bytes(saved, &nsaved), data_bytes(resharded, &nresharded));
	assert_int_equal(nsaved, nresharded);
	assert_int_equal(nsaved, world);
	p = t_file_read(latest, &len);
	assert_int_equal(len, 1);
	assert_int_equal(p[0], 's');
	free(p);
	t_dir_remove(t_root);
	t_dir_remove(native);
	t_dir_remove(other);
	free(native);
	free(other);
	free(saved);
	free(resharded);
	free(latest);
}

static void dcp_has_what_reshard_makes(void **state)
{
	(void)state;
	dcp_at(1, 1, T_HELD_EVEN, 0);
	dcp_at(2, 2, T_HELD_EVEN, CKPT_F32);
	dcp_at(3, 4, T_HELD_EVEN, 0);
	dcp_at(4, 1, T_HELD_WHOLE, 0);
	dcp_at(7, 7, T_HELD_BLOCKS, CKPT_F32);
	dcp_at(2, 3, T_HELD_FIRST, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, t_root_setup, t_root_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(native_in_equal_shares),
		TEST(native_as_held),
		TEST(every_byte_is_summed),
		TEST(deepspeed_is_what_reshard_makes),
		TEST(dcp_has_what_reshard_makes),
	};

	t_dir_in_memory();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
