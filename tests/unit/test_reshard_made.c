/*
 * Steps that no run of today leaves behind, cut anew: counts of steps in param groups, elastic
 * ones, a step that does not say its version, optimizers that lack something.  If this fails, a
 * resumed run corrects its moments for steps that were never made, or a sentence speaks of memory.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "formats/torch_pt/ck_pt.h"
#include "libckpt/format/ck_limits.h"
#include "tests/lib/archive/t_pkl.h"
#include "tests/lib/fs/t_dir.h"
#include "tests/lib/ops/t_ranks.h"
#include "tests/lib/ops/t_step.h"

#define MODEL "mp_rank_00_model_states.pt"
#define SHARD "zero_pp_rank_0_mp_rank_00_optim_states.pt"
#define MODEL3 "zero_pp_rank_0_mp_rank_00_model_states.pt"
#define COMMON " 'buffer_names' [ ] 'global_steps' 7 'dp_world_size' 1 'mp_world_size' 1 "
#define VERSION " 'ds_version' '0.19.8' "
#define MODULE " 'module' { 'v' <f32 2 @20> 'w' <f32 4 @1> } " \
	" 'param_shapes' [ { 'v' ( 2 ) } { 'w' ( 4 ) } ] "
#define MASTERS " 'single_partition_of_fp32_groups' [ <f32 2 @20> <f32 4 @1> ] " \
	" 'partition_count' [ 1 1 ] 'zero_stage' 2 'ds_version' '0.19.8' "
#define ENTRY0 " { 'step' 7 'exp_avg' <f32 2 @5> } "
#define ENTRY1 " { 'step' 7 'exp_avg' <f32 4 @9> } "

static char *dir;	/* DIR/ckpt/s is the step */

static int setup(void **state)
{
	char *a;

	(void)state;
	dir = t_dir_new();
	a = t_fmt("%s/ckpt", dir);
	t_dir_make(a);
	free(a);
	a = t_fmt("%s/ckpt/s", dir);
	t_dir_make(a);
	free(a);
	a = t_fmt("%s/ckpt/latest", dir);
	t_file_write(a, "s", 1);
	free(a);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	t_dir_end(dir);
	return 0;
}

static void save(const char *name, const char *text)
{
	char *a = t_fmt("%s/ckpt/s/%s", dir, name);

	t_pkl_save(a, text);
	free(a);
}

/* Two param groups of a parameter each: 'optimizer' is what the shard has besides the masters. */
static void make(const char *optimizer)
{
	char *text = t_fmt("{ 'optimizer_state_dict' { %s " MASTERS " } }", optimizer);

	save(MODEL, "{ " MODULE COMMON VERSION "}");
	save(SHARD, text);
	free(text);
}

static int reshard_open(struct ckpt *ck, struct ckpt_reshard_opts opts, struct ckpt_report *report,
			struct ckpt_err *err)
{
	const struct ckpt_run_opts run = { .size = sizeof(run), .sync = CKPT_SYNC_NONE };
	char *dst = t_fmt("%s/out", dir);
	int rc;

	opts.size = sizeof(opts);
	opts.run = &run;
	opts.round_robin = -1;
	t_dir_remove(dst);
	rc = ckpt_reshard(ck, dst, &opts, report, err);
	free(dst);
	return rc;
}

static int reshard(struct ckpt_reshard_opts opts, struct ckpt_err *err)
{
	char *root = t_fmt("%s/ckpt", dir);
	struct ckpt *ck = t_step_open(root, NULL);
	const int rc = reshard_open(ck, opts, NULL, err);

	ckpt_close(ck);
	free(root);
	return rc;
}

static void done(struct ckpt_reshard_opts opts)
{
	struct ckpt_err err = { 0 };

	if (reshard(opts, &err))
		fail_msg("%s: %s", err.where, err.msg);
}

static void refused(struct ckpt_reshard_opts opts, enum ckpt_code code, const char *words)
{
	struct ckpt_err err = { 0 };

	assert_int_equal(reshard(opts, &err), -(int)code);
	if (!strstr(err.msg, words))
		fail_msg("%s: %s", err.where, err.msg);
}

/* A file of the result, opened. */
struct opened {
	struct ck_fdpool *pool;
	struct ck_src *src;
	struct ck_pt *pt;
};

static struct opened open_out(const char *name)
{
	char *path = t_fmt("%s/out/s/%s", dir, name);
	struct opened o = { .pool = ck_fdpool_new(2) };
	struct ckpt_limits limits;

	ck_limits_fill(NULL, &limits);
	assert_int_equal(ck_src_open(o.pool, path, &o.src, NULL), 0);
	assert_int_equal(ck_pt_open(o.src, &limits, 0, NULL, &o.pt, NULL), 0);
	free(path);
	return o;
}

static void close_out(struct opened *o)
{
	ck_pt_close(o->pt);
	ck_src_close(o->src);
	ck_fdpool_free(o->pool);
}

static int64_t number(const struct ck_val *v)
{
	int64_t n = -1;

	ck_val_int(v, &n);
	return n;
}

/* 'step' of the second param group in the shard of the result. */
static int64_t group_step(const char *optimizer)
{
	struct opened o = open_out(SHARD);
	const struct ck_val *zero = ck_val_get(o.pt->doc.root, "optimizer_state_dict");
	const struct ck_val *opt = ck_val_get(zero, optimizer);
	const int64_t n = number(ck_val_get(ck_val_at(ck_val_get(opt, "param_groups"), 1), "step"));

	close_out(&o);
	return n;
}

static int64_t elastic_step(void)
{
	struct opened o = open_out(SHARD);
	const struct ck_val *zero = ck_val_get(o.pt->doc.root, "optimizer_state_dict");
	const int64_t n = number(ck_val_get(zero, "base_optimizer_state_step"));

	close_out(&o);
	return n;
}

#define RIGID " 'base_optimizer_state' { 'state' { 0 " ENTRY0 " 1 " ENTRY1 " } 'param_groups' " \
	"[ { 'lr' 0.5 'step' 7 'params' [ 0 ] } { 'lr' 0.5 'step' 7 'params' [ 1 ] } ] } "

static void the_count_of_a_group_begins_anew_with_its_states(void **state)
{
	static const char *const all[] = { "*", NULL }, *const one[] = { "exp_avg", NULL };
	struct ckpt_reshard_opts o = { .world = 2, .stage = -1 };

	(void)state;
	make(RIGID);
	done(o);
	assert_int_equal(group_step("base_optimizer_state"), 7);
	o.drop_states = one;	/* 'step' stays where it is */
	done(o);
	assert_int_equal(group_step("base_optimizer_state"), 7);
	o.drop_states = all;
	done(o);
	assert_int_equal(group_step("base_optimizer_state"), 0);
	o = (struct ckpt_reshard_opts){ .world = 2, .stage = -1, .flags = CKPT_RESHARD_RESET };
	done(o);
	assert_int_equal(group_step("base_optimizer_state"), 0);
	o.stage = 3;
	done(o);
	assert_int_equal(group_step("optimizer_state_dict"), 0);
}

static void the_count_of_an_elastic_step_goes_along_or_begins_anew(void **state)
{
	struct ckpt_reshard_opts o = { .world = 2, .stage = -1 };

	(void)state;
	make("'base_optimizer_state' [ " ENTRY0 ENTRY1 " ] 'base_optimizer_state_step' 7");
	done(o);
	assert_int_equal(elastic_step(), 7);
	o.ds_version = "0.16.9";	/* whose loader asks for it */
	done(o);
	assert_int_equal(elastic_step(), 7);
	o.flags = CKPT_RESHARD_RESET;
	done(o);
	assert_int_equal(elastic_step(), 0);
	o.ds_version = NULL;
	done(o);
	assert_int_equal(elastic_step(), 0);
}

static void what_an_optimizer_lacks_is_said(void **state)
{
	struct ckpt_reshard_opts o = { .world = 2, .stage = -1 };

	(void)state;
	make("'base_optimizer_state' [ " ENTRY0 " ]");
	refused(o, CKPT_E_CORRUPT, "no state for one of its param groups");
	make("'base_optimizer_state' { 'state' { 0 " ENTRY0 " 1 " ENTRY1 " } 'param_groups' "
	     "[ { 'params' [ 0 ] } ] }");
	o.stage = 3;
	refused(o, CKPT_E_CORRUPT, "no dictionary for group 1 of 2");
	o.stage = 0;
	refused(o, CKPT_E_CORRUPT, "no dictionary for group 1 of 2");
}

static void a_version_is_asked_for_where_lengths_depend_on_it(void **state)
{
	struct ckpt_reshard_opts o = { .world = 2, .stage = -1 };

	(void)state;
	make(RIGID);
	save(MODEL, "{ " MODULE COMMON "}");
	refused(o, CKPT_E_UNSUPPORTED, "--ds-version");
	o.stage = 3;
	refused(o, CKPT_E_UNSUPPORTED, "--ds-version");
	o.ds_version = "0.16.9";	/* and no 'ds_config' either */
	done(o);
	assert_int_equal(group_step("optimizer_state_dict"), 7);
}

static void sub_groups_in_no_param_group_are_not_left_out(void **state)
{
	struct ckpt_reshard_opts o = { .world = 2, .stage = -1 };

	(void)state;
	save(MODEL3, "{ 'module' { 'v' <f32 0> } 'param_shapes' [ { 'v' ( 2 ) } ] " COMMON VERSION
	     "}");
	save(SHARD, "{ 'optimizer_state_dict' { 'zero_stage' 3 'partition_count' 1 "
	     "'fp32_flat_groups' [ <f32 2 @1> ] 'optimizer_state_dict' { 'state' { 0 " ENTRY0
	     " } } } }");
	refused(o, CKPT_E_CORRUPT, "0 of them");
}

static void other_precisions_do_not_get_the_optimizer_of_bf16(void **state)
{
	struct ckpt_reshard_opts o = { .world = 2, .stage = 4 };

	(void)state;
	make(RIGID);
	refused(o, CKPT_E_UNSUPPORTED, "is for runs in bf16, but this run is F32");
}

/* torch's own optimizer has the moments in the type of each parameter. */
static void moments_of_two_types_are_not_cut_to_one(void **state)
{
	struct ckpt_reshard_opts o = { .world = 2, .stage = 2 };

	(void)state;
	save(MODEL, "{ 'module' { 'v' <bf16 2 @20> 'w' <f32 4 @1> } 'optimizer' { 'state' "
	     "{ 0 { 'step' 7 'exp_avg' <bf16 2 @5> } 1 " ENTRY1 " } 'param_groups' "
	     "[ { 'lr' 0.5 'params' [ 0 1 ] } ] } " COMMON VERSION "}");
	refused(o, CKPT_E_UNSUPPORTED, "all must have one type");
}

/* A run that DeepSpeed's universal loader of stage 3 began: one tensor for all sub-groups. */
static void groups_that_share_a_count_get_their_own(void **state)
{
	struct ckpt_reshard_opts o = { .world = 1, .stage = -1 };
	struct opened out;
	const struct ck_val *all;
	const struct ck_tensor_ref *a, *b;

	(void)state;
	make("'base_optimizer_state' { 'state' { 0 { 'step' <f32 @7> 'exp_avg' <f32 2 @5> } "
	     "1 { 'step' <f32 =0> 'exp_avg' <f32 4 @9> } } 'param_groups' "
	     "[ { 'params' [ 0 ] } { 'params' [ 1 ] } ] }");
	done(o);
	out = open_out(SHARD);
	all = ck_val_get(ck_val_get(ck_val_get(out.pt->doc.root, "optimizer_state_dict"),
				    "base_optimizer_state"), "state");
	a = ck_val_tensor(ck_val_get(ck_val_get_int(all, 0), "step"));
	b = ck_val_tensor(ck_val_get(ck_val_get_int(all, 1), "step"));
	assert_non_null(a);
	assert_non_null(b);
	assert_int_not_equal(a->storage, b->storage);
	close_out(&out);
}

static void what_is_not_cut_is_not_taken_from_rank_0(void **state)
{
	struct ckpt_reshard_opts o = { .world = 2, .stage = -1 };

	(void)state;
	make("'base_optimizer_state' { 'state' { 0 { 'step' 7 'blocks' [ <f32 2 @5> ] } } "
	     "'param_groups' [ { 'params' [ 0 ] } { 'params' [ 1 ] } ] }");
	refused(o, CKPT_E_UNSUPPORTED, "'blocks' of the optimizer holds several tensors");
	make("'base_optimizer_state' { 'state' { 0 { 'step' 7 'blocks' { 'l' <f32 2 @5> } } } "
	     "'param_groups' [ { 'params' [ 0 ] } { 'params' [ 1 ] } ] }");
	refused(o, CKPT_E_UNSUPPORTED, "'blocks' of the optimizer holds several tensors");
}

static void make_shard(const char *masters)
{
	char *text = t_fmt("{ 'optimizer_state_dict' { " RIGID " %s } }", masters);

	save(SHARD, text);
	free(text);
}

/* A step of bf16 weights, whose optimizer is what the text says, with what else 'zero' has. */
static void make_bf16(const char *group, const char *more, const char *config)
{
	char *text = t_fmt("{ 'optimizer_state_dict' { 'base_optimizer_state' { 'state' { 0 "
			   ENTRY0 " 1 " ENTRY1 " } 'param_groups' [ { %s 'params' [ 0 ] } "
			   "{ %s 'params' [ 1 ] } ] } %s " MASTERS " } }", group, group, more);
	char *model = t_fmt("{ 'module' { 'v' <bf16 2 @20> 'w' <bf16 4 @1> } 'param_shapes' "
			    "[ { 'v' ( 2 ) } { 'w' ( 4 ) } ] 'ds_config' { %s } " COMMON VERSION
			    "}", config);

	save(MODEL, model);
	save(SHARD, text);
	free(model);
	free(text);
}

/* FusedAdam's masters are one flat tensor a group at stage 0, in DeepSpeed's FP16_Optimizer. */
static void a_fused_optimizer_is_flat_at_stage_0(void **state)
{
	static const struct {
		const char *more, *config;
		double clip;
	} rows[] = {
		{ "'clip_grad' 0.5", "'gradient_clipping' 2", 0.5 },
		{ "", "'gradient_clipping' 2", 2 }, { "", "", 0 },
	};
	struct ckpt_reshard_opts o = { .world = 1, .stage = 0 };

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		char *path = t_fmt("%s/out", dir);
		struct opened out;
		struct ckpt *ck;
		const struct ck_val *opt;
		double clip = -1;

		make_bf16("'bias_correction' 1 'lr' 0.5", rows[i].more, rows[i].config);
		done(o);
		out = open_out(MODEL);
		opt = ck_val_get(out.pt->doc.root, "optimizer");
		assert_non_null(ck_val_at(ck_val_get(opt, "fp32_groups_flat"), 1));
		assert_null(ck_val_get(opt, "cur_scale"));	/* bf16 has none */
		assert_true(ck_val_num(ck_val_get(opt, "clip_grad"), &clip));
		assert_true(clip == rows[i].clip);
		close_out(&out);
		ck = t_step_open(path, NULL);
		assert_true(t_step_value(ck, "w", "master", 3) == 4);
		assert_true(t_step_value(ck, "w", "exp_avg", 3) == 12);
		assert_true(t_step_value(ck, "v", "exp_avg", 1) == 6);
		ckpt_close(ck);
		free(path);
	}
}

static void what_stage_0_cannot_hold_is_refused(void **state)
{
	struct ckpt_reshard_opts o = { .world = 1, .stage = 0 };

	(void)state;
	make_bf16("'lr' 0.5", "", "");
	o.ds_version = "0.17.6";
	refused(o, CKPT_E_UNSUPPORTED, "loses the optimizer of bf16 runs at stage 0");
	o.ds_version = NULL;
	make_bf16("'use_muon' 1", "", "");
	refused(o, CKPT_E_UNSUPPORTED, "Muon's momentum at stage 0 differs");
	save(MODEL, "{ 'module' { 'v' <bf16 2 @20> 'w' <f32 4 @1> } 'param_shapes' "
	     "[ { 'v' ( 2 ) } { 'w' ( 4 ) } ] " COMMON VERSION "}");
	make_shard(MASTERS);
	refused(o, CKPT_E_UNSUPPORTED, "weights have several types");
	save(MODEL, "{ 'module' { 'v' <bf16 2 @20> 'w' <bf16 4 @1> } 'param_shapes' "
	     "[ { 'v' ( 2 ) } { 'w' ( 4 ) } ] " COMMON VERSION "}");
	make_shard(" 'single_partition_of_fp32_groups' [ <bf16 2 @20> <bf16 4 @1> ] "
		   "'partition_count' [ 1 1 ] 'zero_stage' 2 'ds_version' '0.19.8' ");
	refused(o, CKPT_E_UNSUPPORTED, "its masters have 16 bits");
}

/* Counts that are tensors, of whatever type an optimizer has them in. */
static void a_count_may_be_a_tensor_of_any_number(void **state)
{
	static const char *const types[] = { "f32", "bf16", "i64" };

	(void)state;
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		char *path = t_fmt("%s/ckpt", dir);
		char *text = t_fmt("'base_optimizer_state' { 'state' { 0 { 'step' <%s @7> "
				   "'exp_avg' <f32 2 @5> } 1 { 'step' <%s @7> 'exp_avg' <f32 4 @9> "
				   "} } 'param_groups' [ { 'params' [ 0 ] } { 'params' [ 1 ] } ] }",
				   types[i], types[i]);
		struct ckpt *ck;

		make(text);
		ck = t_step_open(path, NULL);
		assert_string_equal(t_step_fact(ck, "group.0.step"), "7");
		assert_string_equal(t_step_fact(ck, "group.1.step"), "7");
		ckpt_close(ck);
		free(text);
		free(path);
	}
}

/* ---- a step that is kept from opening on ---- */

static struct ckpt *open_kept(void)
{
	const struct ckpt_open_opts o = { .size = sizeof(o), .keep_values = 1 };
	char *root = t_fmt("%s/ckpt", dir);
	const char *path = root;
	struct ckpt_err err = { 0 };
	struct ckpt *ck;

	t_must(ckpt_open(&path, 1, &o, &ck, &err), &err);
	free(root);
	return ck;
}

static uint64_t read_by(struct ckpt *ck)
{
	const struct ckpt_reshard_opts o = { .world = 2, .stage = 3 };
	struct ckpt_report report = { 0 };
	struct ckpt_err err = { 0 };
	uint64_t n;

	t_must(reshard_open(ck, o, &report, &err), &err);
	assert_int_equal(group_step("optimizer_state_dict"), 7);
	n = report.read_bytes;
	ckpt_report_free(&report);
	return n;
}

/* The first reads elements alone; then nothing is kept, and the pickles are read again. */
static void what_is_kept_is_not_read_again(void **state)
{
	struct ckpt *ck;
	uint64_t first;

	(void)state;
	make(RIGID);
	ck = open_kept();
	first = read_by(ck);
	assert_true(first >= 6 * 2 * sizeof(float));
	assert_true(read_by(ck) > first + 500);
	ckpt_close(ck);
	ckpt_close(open_kept());
}

/* Nothing is opened again, so only a last look shows it. */
static void a_file_that_changed_since_is_found(void **state)
{
	const struct ckpt_reshard_opts o = { .world = 2, .stage = -1 };
	struct ckpt_err err = { 0 };
	struct ckpt *ck;

	(void)state;
	make(RIGID);
	ck = open_kept();
	save(MODEL, "{ " MODULE COMMON VERSION "}");
	assert_int_equal(reshard_open(ck, o, NULL, &err), -CKPT_E_MISMATCH);
	if (!strstr(err.where, MODEL))
		fail_msg("%s: %s", err.where, err.msg);
	ckpt_close(ck);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(the_count_of_a_group_begins_anew_with_its_states),
		TEST(the_count_of_an_elastic_step_goes_along_or_begins_anew),
		TEST(what_an_optimizer_lacks_is_said),
		TEST(a_version_is_asked_for_where_lengths_depend_on_it),
		TEST(sub_groups_in_no_param_group_are_not_left_out),
		TEST(groups_that_share_a_count_get_their_own),
		TEST(what_is_not_cut_is_not_taken_from_rank_0),
		TEST(other_precisions_do_not_get_the_optimizer_of_bf16),
		TEST(moments_of_two_types_are_not_cut_to_one),
		TEST(a_fused_optimizer_is_flat_at_stage_0),
		TEST(what_stage_0_cannot_hold_is_refused),
		TEST(a_count_may_be_a_tensor_of_any_number),
		TEST(what_is_kept_is_not_read_again),
		TEST(a_file_that_changed_since_is_found),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
