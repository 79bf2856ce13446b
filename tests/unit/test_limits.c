/*
 * The bounds of struct ckpt_limits. For each an input that needs exactly so much is opened,
 * read, verified or audited: with that bound it must pass, with one less it must be refused by
 * a sentence that names the bound and how to raise it. If this fails, a hostile file takes
 * more than it was given, or an honest one is refused and nobody can say what to change.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <ckpt.h>

#include "libckpt/base/ck_base.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/format/ck_findings.h"
#include "libckpt/format/ck_limits.h"
#include "tests/lib/archive/t_pkl.h"
#include "tests/lib/archive/t_pt.h"
#include "tests/lib/archive/t_zip.h"
#include "tests/lib/fs/t_dir.h"

static char *dir;

/* ---- inputs, each in a place of its own below 'dir' ---- */

static void small(const char *path)
{
	t_pkl_save(path, "{'w' <f32 2 3 @1> 'b' <f32 4 @9>}");
}

static void nested(const char *path)
{
	t_pkl_save(path, "{'a' [[[[[<f32 2 @1>]]]]]}");
}

static void dims(const char *path)
{
	t_pkl_save(path, "{'w' <f32 2 1 3 1 1 @1>}");
}

static void long_name(const char *path)
{
	t_pkl_save(path, "{'abcdefgh' {'ijkl' <f32 2 @1>}}");
}

static void packed(const char *path)
{
	char *text = t_fmt("{'w' <f32 300 @1> 's' '%0900d'}", 0);

	t_pkl_save(path, text);
	t_pkl_deflate(path);
	free(text);
}

/* A view of 3 x 2 elements with strides 1 and 7, which no run of bytes is. */
static void strided(const char *path)
{
	struct t_pkl b = { 0 };
	struct t_zip zip = { 0 };
	const float data[24] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 };

	T_PKL_PUT(&b, "\x80\x02}");
	t_pt_str(&b, "w");
	t_pt_tensor(&b, "0", 24, 0, 3, 2, 1, 7);
	T_PKL_PUT(&b, "s.");
	t_zip_add(&zip, "m/data.pkl", b.p, b.n);
	t_zip_add(&zip, "m/version", "3\n", 2);
	t_zip_add(&zip, "m/data/0", data, sizeof(data));
	t_zip_end(&zip);
	t_file_write(path, zip.p, zip.n);
	free(zip.p);
	free(b.p);
}

static void safetensors(const char *path)
{
	static const char head[] =
		"{\"w\":{\"dtype\":\"U8\",\"shape\":[1,2,1],\"data_offsets\":[0,2]}} ";
	const size_t n = sizeof(head) - 1;
	uint8_t *p = calloc(1, 8 + n + 2);

	t_put32(p, (uint32_t)n);
	memcpy(p + 8, head, n);
	t_file_write(path, p, 8 + n + 2);
	free(p);
}

static void hf_folder(const char *path)
{
	static const char index[] =
		"{\"weight_map\":{\"w\":\"model-00001-of-00001.safetensors\"},"
		"\"metadata\":{}}";
	char *file = t_fmt("%s/model-00001-of-00001.safetensors", path);
	char *json = t_fmt("%s/model.safetensors.index.json", path);

	t_dir_make(path);
	safetensors(file);
	t_file_write(json, index, sizeof(index) - 1);
	free(json);
	free(file);
}

/* Folders a/b/c/d/e, a pickle in the deepest. */
static void deep_folders(const char *path)
{
	char *at = t_fmt("%s", path), *next;

	t_dir_make(at);
	for (char c = 'a'; c <= 'e'; c++) {
		next = t_fmt("%s/%c", at, c);
		t_dir_make(next);
		free(at);
		at = next;
	}
	next = t_fmt("%s/x.pkl", at);
	t_file_write(next, "\x80\x02N.", 4);
	free(next);
	free(at);
}

/* Longer than what is read at first, and with no end in it. */
static void long_stream(const char *path)
{
	struct t_pkl b = { 0 };
	char *text = t_alloc(3 << 20);

	memset(text, 'x', 3 << 20);
	T_PKL_PUT(&b, "\x80\x02");
	t_pkl_str(&b, text, 3 << 20);
	T_PKL_PUT(&b, ".");
	t_file_write(path, b.p, b.n);
	free(text);
	free(b.p);
}

static void three_pickles(const char *path)
{
	t_file_write(path, "\x80\x02N.\x80\x02N.\x80\x02N.", 12);
}

static void fixture(const char *name, const char *path)
{
	const char *root = getenv("ZCKPT_FIXTURES");
	char *from = t_fmt("%s/deepspeed/%s", root ? root : "build/fixtures", name);

	t_dir_copy(from, path);
	free(from);
}

static void step(const char *path)
{
	fixture("ds0.19.8-z2-bf16-w2/ckpt", path);
}

static void step_of_stage_3(const char *path)
{
	fixture("ds0.19.8-z3-bf16-w2/ckpt", path);
}

#define SAYS " 'buffer_names' [ ] 'global_steps' 7 'dp_world_size' 1 'mp_world_size' 1 " \
	" 'ds_version' '0.19.8' "

static void save_in(const char *path, const char *name, const char *text)
{
	char *file = t_fmt("%s/global_step7/%s", path, name);

	if (!t_is_dir(path)) {
		t_dir_make(path);
		t_dir_make_in(path, "global_step7");
	}
	t_pkl_save(file, text);
	free(file);
}

static void groups_of_stage_0(const char *path)
{
	save_in(path, "mp_rank_00_model_states.pt", "{ 'module' { 'v' <f32 2 @20> }" SAYS
		"'optimizer' { 'state' { } 'param_groups' [ { 'params' [ 0 ] } { 'params' [ ] } "
		"{ 'params' [ ] } ] } }");
}

static void groups_of_stage_2(const char *path)
{
	save_in(path, "mp_rank_00_model_states.pt", "{ 'module' { 'v' <f32 2 @20> }"
		" 'param_shapes' [ { 'v' ( 2 ) } ]" SAYS "}");
	save_in(path, "zero_pp_rank_0_mp_rank_00_optim_states.pt",
		"{ 'optimizer_state_dict' { 'base_optimizer_state' { 'state' { } 'param_groups' "
		"[ { 'params' [ 0 ] } { 'params' [ 1 ] } { 'params' [ 2 ] } { 'params' [ 3 ] } ] }"
		" 'single_partition_of_fp32_groups' [ <f32 2 @20> ] 'partition_count' [ 1 ] "
		"'zero_stage' 2 'ds_version' '0.19.8' } }");
}

/* Names of two sub-groups; the optimizer lists five, and each group may list them twice. */
static void groups_of_stage_3(const char *path)
{
	save_in(path, "zero_pp_rank_0_mp_rank_00_model_states.pt",
		"{ 'module' { 'v' <f32 2 @20> 'w' <f32 2 @30> } 'param_shapes' "
		"[ { 'v' ( 2 ) } { 'w' ( 2 ) } ]" SAYS "}");
	save_in(path, "zero_pp_rank_0_mp_rank_00_optim_states.pt",
		"{ 'optimizer_state_dict' { 'optimizer_state_dict' { 'state' { } 'param_groups' "
		"[ { 'params' [ 0 1 2 3 4 ] } ] } 'fp32_flat_groups' [ <f32 2 @20> <f32 2 @30> ] "
		"'partition_count' 1 'zero_stage' 3 'ds_version' '0.19.8' } }");
}

static void sub_groups_of_stage_3(const char *path)
{
	save_in(path, "zero_pp_rank_0_mp_rank_00_model_states.pt",
		"{ 'module' { 'v' <f32 2 @20> } 'param_shapes' "
		"[ { 'v' ( 2 ) } { } { } { } { } { } ]" SAYS "}");
	save_in(path, "zero_pp_rank_0_mp_rank_00_optim_states.pt",
		"{ 'optimizer_state_dict' { 'optimizer_state_dict' { 'state' { } 'param_groups' "
		"[ { 'params' [ 0 ] } ] } 'fp32_flat_groups' [ <f32 2 @20> ] "
		"'partition_count' 1 'zero_stage' 3 'ds_version' '0.19.8' } }");
}

/* ---- what is done with them ---- */

static int open_it(const char *path, const struct ckpt_limits *limits, struct ckpt **ck,
		   struct ckpt_err *err)
{
	const struct ckpt_open_opts opts = { .size = sizeof(opts), .limits = limits };

	return ckpt_open(&path, 1, &opts, ck, err);
}

static int only_open(const char *path, const struct ckpt_limits *limits, struct ckpt_err *err)
{
	struct ckpt *ck = NULL;
	const int rc = open_it(path, limits, &ck, err);

	ckpt_close(ck);
	return rc;
}

/* The first tensor, whole. */
static int read_it(const char *path, const struct ckpt_limits *limits, struct ckpt_err *err)
{
	struct ckpt *ck = NULL;
	struct ckpt_tensor_info t;
	float out[300];
	int rc = open_it(path, limits, &ck, err);

	if (!rc) {
		assert_int_equal(ckpt_tensor_get(ck, 0, &t, NULL), 0);
		assert_true(t.numel <= CK_ARRAY_LEN(out));
		rc = ckpt_read(ck, 0, 0, 0, t.numel, CKPT_F32, out, t.numel * 4, err);
	}
	ckpt_close(ck);
	return rc;
}

static int verify_it(const char *path, const struct ckpt_limits *limits, struct ckpt_err *err)
{
	const struct ckpt_verify_opts opts = { .size = sizeof(opts), .flags = CKPT_VERIFY_FULL };
	struct ckpt_verified v;
	struct ckpt *ck = NULL;
	int rc = open_it(path, limits, &ck, err);

	if (!rc)
		rc = ckpt_verify(ck, &opts, &v, err);
	ckpt_close(ck);
	return rc;
}

/* A pickle that could not be read to its end is a row of the list, not a failure. */
static int audit_it(const char *path, const struct ckpt_limits *limits, struct ckpt_err *err)
{
	struct ckpt_audit list;
	int rc = ckpt_audit(&path, 1, limits, &list, err);

	if (rc)
		return rc;
	for (uint64_t i = 0; i < list.npickles && !rc; i++) {
		rc = -(int)list.pickle[i].code;
		if (rc) {
			err->code = list.pickle[i].code;
			snprintf(err->msg, sizeof(err->msg), "%s", list.pickle[i].error);
		}
	}
	ckpt_audit_free(&list);
	return rc;
}

/* 'need' 0: what it needs depends on the sizes of structs; it is looked for. */
static const struct {
	const char *limit;
	uint64_t need;
	void (*make)(const char *path);
	int (*run)(const char *path, const struct ckpt_limits *limits, struct ckpt_err *err);
} rows[] = {
	{ "zip_entries", 4, small, only_open },
	{ "zip_dir_bytes", 219, small, only_open },
	{ "pickle_bytes", 352, small, only_open },
	{ "pickle_bytes", 352, small, audit_it },
	{ "pickle_bytes", (3 << 20) + 8, long_stream, audit_it },
	{ "pickle_nodes", 36, small, only_open },
	{ "pickle_nodes", 36, small, audit_it },
	{ "pickle_depth", 11, nested, only_open },
	{ "header_bytes", 58, safetensors, only_open },
	{ "header_bytes", 69, hf_folder, only_open },
	{ "json_depth", 3, safetensors, only_open },
	{ "json_nodes", 14, safetensors, only_open },
	{ "tensor_dims", 3, safetensors, only_open },
	{ "tensor_dims", 5, dims, only_open },
	{ "inflate_bytes", 1200, packed, read_it },
	{ "inflate_bytes", 1200, packed, verify_it },
	{ "inflate_ratio", 8, packed, only_open },
	{ "inflate_ratio", 8, packed, audit_it },
	{ "gather_bytes", 40, strided, read_it },
	{ "files", 2, hf_folder, only_open },
	{ "files", 3, hf_folder, audit_it },	/* the folder, too */
	{ "memory_bytes", 0, small, only_open },
	{ "memory_bytes", 0, safetensors, only_open },
	{ "memory_bytes", 0, hf_folder, only_open },
	{ "memory_bytes", 0, small, audit_it },
	{ "memory_bytes", 0, step, only_open },
	{ "memory_bytes", 0, step_of_stage_3, only_open },
	{ "name_bytes", 13, long_name, only_open },
	{ "groups", 3, groups_of_stage_0, only_open },
	{ "groups", 4, groups_of_stage_2, only_open },
	{ "groups", 3, groups_of_stage_3, only_open },
	{ "groups", 6, sub_groups_of_stage_3, only_open },
	{ "folder_depth", 5, deep_folders, audit_it },
	{ "pickles", 3, three_pickles, audit_it },
};

static int try_at(size_t row, const char *path, uint64_t bound, struct ckpt_err *err)
{
	struct ckpt_limits limits = { 0 };

	memset(err, 0, sizeof(*err));
	assert_int_equal(ckpt_limits_set(&limits, rows[row].limit, bound, err), 0);
	return rows[row].run(path, &limits, err);
}

/* The least bound that passes. */
static uint64_t least(size_t row, const char *path)
{
	uint64_t lo = 0, hi = (uint64_t)4 << 20;
	struct ckpt_limit_info info;
	struct ckpt_err err;

	for (uint32_t i = 0; !ckpt_limit_get(i, &info, NULL); i++)
		if (!strcmp(info.name, rows[row].limit))
			hi = ck_min_u64(hi, info.most);
	if (try_at(row, path, hi, &err))
		fail_msg("row %zu, %s = %" PRIu64 ": %s", row, rows[row].limit, hi, err.msg);
	while (hi - lo > 1) {
		const uint64_t mid = lo + (hi - lo) / 2;

		if (try_at(row, path, mid, &err))
			lo = mid;
		else
			hi = mid;
	}
	return hi;
}

static void each_limit_takes_what_it_says_and_no_more(void **state)
{
	(void)state;
	for (size_t i = 0; i < CK_ARRAY_LEN(rows); i++) {
		char *path = t_fmt("%s/%zu.pt", dir, i);
		char *says;
		struct ckpt_err err;
		uint64_t need;

		rows[i].make(path);
		need = least(i, path);
		if (rows[i].need && need != rows[i].need)
			fail_msg("row %zu: %s passes from %" PRIu64 " on, not %" PRIu64, i,
				 rows[i].limit, need, rows[i].need);
		assert_true(need > 1);
		if (try_at(i, path, need - 1, &err) != -CKPT_E_LIMIT)
			fail_msg("row %zu: %s: code %d, %s", i, rows[i].limit, err.code, err.msg);
		says = t_fmt("; the limit %s is %" PRIu64 ", --limit %s=N raises it", rows[i].limit,
			     need - 1, rows[i].limit);
		if (!strstr(err.msg, says))
			fail_msg("row %zu: '%s' lacks '%s'", i, err.msg, says);
		free(says);
		free(path);
	}
}

/* Each has a row above: a limit without one would be a promise that nothing keeps. */
static void no_limit_is_left_out(void **state)
{
	struct ckpt_limit_info info;
	struct ckpt_err err = { 0 };
	uint32_t n = 0;

	(void)state;
	while (!ckpt_limit_get(n, &info, NULL)) {
		size_t i = 0;

		while (i < CK_ARRAY_LEN(rows) && strcmp(rows[i].limit, info.name))
			i++;
		if (i == CK_ARRAY_LEN(rows))
			fail_msg("%s has no row", info.name);
		assert_true(info.value && info.value <= info.most && info.text[0]);
		n++;
	}
	assert_int_equal(n, 18);
	assert_int_equal(ckpt_limit_get(n, &info, &err), -CKPT_E_USAGE);
	assert_string_equal(err.msg, "limit number 18 does not exist: there are 18");
}

static void a_bound_that_cannot_be_is_a_wrong_call(void **state)
{
	static const struct {
		const char *name;
		uint64_t value;
		const char *says;
	} wrong[] = {
		{ "tensor_dims", 65, "tensor_dims can be 1 to 64, not 65" },
		{ "pickle_depth", 4001, "pickle_depth can be 1 to 4000, not 4001" },
		{ "files", 0, "files can be 1 to 4294967293, not 0" },
		{ "file", 5, "file is not the name of a limit" },
		{ "size", 5, "size is not the name of a limit" },
	};
	struct ckpt_limits limits = { 0 };

	(void)state;
	for (size_t i = 0; i < CK_ARRAY_LEN(wrong); i++) {
		struct ckpt_err err = { 0 };

		assert_int_equal(ckpt_limits_set(&limits, wrong[i].name, wrong[i].value, &err),
				 -CKPT_E_USAGE);
		assert_string_equal(err.msg, wrong[i].says);
	}
	assert_int_equal(limits.size, 0);
}

/* A caller that fills the struct itself: zero is the default, too much is the most. */
static void a_struct_of_any_age_is_filled(void **state)
{
	struct ckpt_limits in = { .size = offsetof(struct ckpt_limits, pickle_depth) +
					  sizeof(in.pickle_depth),
				  .pickle_nodes = 77, .pickle_depth = 1000000,
				  .tensor_dims = 3 }, out;

	(void)state;
	ck_limits_fill(&in, &out);
	assert_int_equal(out.size, sizeof(out));
	assert_int_equal(out.pickle_nodes, 77);
	assert_int_equal(out.pickle_depth, 4000);
	assert_int_equal(out.tensor_dims, 64);	/* beyond what the caller knows of */
	assert_int_equal(out.pickles, 100);
}

/*
 * What pickle_depth can be raised to is a bound of the stack: whatever walks values in calls of
 * itself must get through so many levels, in threads as well.
 */
static void the_deepest_pickle_is_walked(void **state)
{
	enum { LEVELS = 3990 };
	char *path = t_fmt("%s/deep.pt", dir), *text = t_alloc(2 * LEVELS + 100);
	struct ckpt_limits limits = { 0 };
	struct ckpt_err err = { 0 };

	(void)state;
	memset(text, '[', LEVELS);
	memcpy(text + LEVELS, "<f32 2 @1>", 11);
	memset(text + strlen(text), ']', LEVELS + 1);
	text[LEVELS + 10 + LEVELS] = 0;
	t_pkl_save(path, text);
	assert_int_equal(only_open(path, NULL, &err), -CKPT_E_LIMIT);
	memset(&err, 0, sizeof(err));
	assert_int_equal(ckpt_limits_set(&limits, "pickle_depth", 4000, NULL), 0);
	if (only_open(path, &limits, &err) || read_it(path, &limits, &err) ||
	    audit_it(path, &limits, &err))
		fail_msg("%s", err.msg);
	free(text);
	free(path);
}

/* Folders 0 to 29, each with two links to the next: 2^29 paths, and a circle at the end. */
static void links_that_multiply_end_at_a_limit(void **state)
{
	char *path = t_fmt("%s/chain", dir), *first = t_fmt("%s/chain/0", dir);
	struct ckpt_limits limits = { 0 };
	struct ckpt_err err = { 0 };

	(void)state;
	t_dir_make(path);
	for (int i = 0; i < 30; i++) {
		char *folder = t_fmt("%s/%d", path, i), *to = t_fmt("../%d", i + 1);

		t_dir_make(folder);
		for (int k = 0; k < 2 && i < 29; k++) {
			char *link = t_fmt("%s/%d", folder, k);

			assert_int_equal(symlink(to, link), 0);
			free(link);
		}
		free(folder);
		free(to);
	}
	assert_int_equal(ckpt_limits_set(&limits, "files", 500, NULL), 0);
	assert_int_equal(audit_it(first, &limits, &err), -CKPT_E_LIMIT);
	assert_non_null(strstr(err.msg, "the limit files is 500"));
	memset(&err, 0, sizeof(err));
	free(path);
	path = t_fmt("%s/chain/29/self", dir);
	assert_int_equal(symlink(".", path), 0);
	assert_int_equal(audit_it(first, NULL, &err), -CKPT_E_LIMIT);
	assert_non_null(strstr(err.msg, "the limit folder_depth is 32"));
	free(first);
	free(path);
}

/* A kind of finding is listed 200 times; one more says that it is not all. */
static void a_long_list_of_findings_says_that_it_is_cut(void **state)
{
	struct ck_findings f = { 0 };

	(void)state;
	for (int i = 0; i < 204; i++)
		ck_findings_add(&f, CK_FINDING_NAME_ODD, "m.pt", "number %d", i);
	ck_findings_add(&f, CK_FINDING_FILE_DAMAGED, "n.pt", "another");
	assert_int_equal(f.n, 202);
	assert_int_equal(f.dropped, 3);
	assert_string_equal(f.list[199].text, "number 199");
	assert_string_equal(f.list[200].text,
			    "there are more of these than the 200 that are listed");
	assert_string_equal(f.list[200].id, "NAME_ODD");
	assert_string_equal(f.list[200].where, "");
	assert_string_equal(f.list[201].text, "another");
	ck_findings_release(&f);
}

static int setup(void **state)
{
	(void)state;
	dir = t_dir_new();
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	t_dir_end(dir);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_limit_takes_what_it_says_and_no_more),
		cmocka_unit_test(no_limit_is_left_out),
		cmocka_unit_test(a_bound_that_cannot_be_is_a_wrong_call),
		cmocka_unit_test(a_struct_of_any_age_is_filled),
		cmocka_unit_test(links_that_multiply_end_at_a_limit),
		cmocka_unit_test(a_long_list_of_findings_says_that_it_is_cut),
		cmocka_unit_test(the_deepest_pickle_is_walked),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
