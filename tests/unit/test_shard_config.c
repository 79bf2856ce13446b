/*
 * Weights that become a step by what their config.json and a DeepSpeed configuration say. If this
 * fails, a head that is not its embedding is dropped in silence, or a run begins with another
 * learning rate than the configuration has.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <ckpt.h>

#include "tests/lib/fs/t_dir.h"
#include "tests/lib/ops/t_convert.h"
#include "tests/lib/ops/t_step.h"

static char *dir;

static int setup(void **state)
{
	(void)state;
	dir = t_dir_new();
	t_dir_make_in(dir, "hf");
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	t_dir_end(dir);
	return 0;
}

static void put(const char *name, const char *text)
{
	char *path = t_fmt("%s/%s", dir, name);

	t_file_write(path, text, strlen(text));
	free(path);
}

/* A model of no layers: an embedding, a norm, and the head that is said. */
static void model(const struct t_part *head, const char *dtype, const char *config)
{
	struct t_part parts[4] = { { "model.embed_tokens.weight", dtype, 700, 100, NULL },
				   { "model.norm.weight", dtype, 100, 0, NULL } };
	char *path = t_fmt("%s/hf/model.safetensors", dir);

	if (head)
		parts[2] = *head;
	t_convert_source(path, parts);
	put("hf/config.json", config);
	free(path);
}

/* The step, opened, or NULL where it was refused with 'words'. */
static struct ckpt *sharded(struct ckpt_shard_opts opts, enum ckpt_code code, const char *words)
{
	const struct ckpt_run_opts run = { .size = sizeof(run), .sync = CKPT_SYNC_NONE };
	char *src = t_fmt("%s/hf", dir), *dst = t_fmt("%s/out", dir);
	struct ckpt *ck = t_convert_open(src), *made = NULL;
	struct ckpt_err err = { 0 };
	int rc;

	opts.size = sizeof(opts);
	opts.run = &run;
	opts.world = 2;
	opts.round_robin = -1;
	opts.first_lr = opts.weight_decay = opts.beta1 = opts.beta2 = opts.eps = NAN;
	if (opts.lr == 0)
		opts.lr = NAN;
	t_dir_remove(dst);
	rc = ckpt_shard(ck, dst, &opts, NULL, &err);
	ckpt_close(ck);
	if (rc != -(int)code || (words && !strstr(err.msg, words)))
		fail_msg("%d, %s: %s", rc, err.where, err.msg);
	if (rc)
		assert_false(t_exists(dst));
	else
		made = t_step_open(dst, NULL);
	free(src);
	free(dst);
	return made;
}

#define TIED "{\"model_type\":\"gemma\",\"num_hidden_layers\":0}"
#define UNTIED "{\"model_type\":\"gemma\",\"num_hidden_layers\":0,\"tie_word_embeddings\":false}"

static void a_tied_head_that_is_stored_as_well_must_be_the_embedding(void **state)
{
	const struct ckpt_shard_opts opts = { .stage = 2, .lr = 1 };
	uint16_t same[70000];
	struct t_part head = { "lm_head.weight", "BF16", 700, 100, NULL };
	char *path = t_fmt("%s/hf", dir);
	struct ckpt *made, *ck;

	(void)state;
	model(NULL, "BF16", TIED);
	ck = t_convert_open(path);
	assert_int_equal(ckpt_read(ck, 0, 0, 0, 70000, CKPT_BF16, same, sizeof(same), NULL), 0);
	ckpt_close(ck);
	free(path);

	head.bytes = same;
	model(&head, "BF16", TIED);
	made = sharded(opts, CKPT_OK, NULL);
	assert_int_equal(t_step_tensor(made, "lm_head.weight").role, CKPT_ROLE_ALIAS);
	assert_int_equal(t_step_count(made, "master"), 2);
	ckpt_close(made);

	same[69999] ^= 0x100;	/* the last element, behind the first window of 65,536 */
	model(&head, "BF16", TIED);
	assert_null(sharded(opts, CKPT_E_MISMATCH,
			    "the config ties it to model.embed_tokens.weight"));
	made = (model(&head, "BF16", UNTIED), sharded(opts, CKPT_OK, NULL));
	assert_int_equal(t_step_count(made, "master"), 3);
	ckpt_close(made);

	head = (struct t_part){ "lm_head.weight", "BF16", 699, 100, NULL };
	model(&head, "BF16", TIED);
	assert_null(sharded(opts, CKPT_E_MISMATCH, "it has 69900 elements and that one 70000"));
}

static void a_list_of_names_is_taken_with_any_line_ends(void **state)
{
	char *order = t_fmt("%s/order", dir), *nul;
	const struct ckpt_shard_opts opts = { .stage = 2, .lr = 1, .order_path = order };
	struct ckpt *made;

	(void)state;
	model(NULL, "F32", "{}");
	put("order", "model.norm.weight\r\nmodel.embed_tokens.weight\r\n");
	made = sharded(opts, CKPT_OK, NULL);
	assert_int_equal(t_step_count(made, "master"), 2);
	ckpt_close(made);
	put("order", "model.norm.weight\nmodel.embed_tokens.weight\nmodel.norm.weight\n");
	assert_null(sharded(opts, CKPT_E_MISMATCH, "line 3: model.norm.weight is excluded, "
		"or the list has it twice"));
	put("order", "model.norm.weight\n");
	assert_null(sharded(opts, CKPT_E_MISMATCH, "it is not in "));
	nul = t_fmt("model.norm.weight\nx");
	nul[17] = 0;
	t_file_write(order, nul, 19);
	assert_null(sharded(opts, CKPT_E_CORRUPT, "the list of names has a NUL byte"));
	free(nul);
	free(order);
}

static void what_a_configuration_says_of_the_optimizer_counts(void **state)
{
	static const struct {
		const char *config, *rate;
	} rows[] = {
		{ "{\"zero_optimization\":{\"stage\":2},\"optimizer\":{\"type\":\"AdamW\","
		  "\"params\":{\"lr\":0.25,\"betas\":[0.5,0.75],\"eps\":null}}}", "0.25" },
		/* the schedulers' own rates before the first step */
		{ "{\"zero_optimization\":{\"stage\":2},\"scheduler\":{\"type\":\"OneCycle\","
		  "\"params\":{\"cycle_min_lr\":0.125}}}", "0.125" },
		{ "{\"zero_optimization\":{\"stage\":2},\"scheduler\":{\"type\":\"LRRangeTest\","
		  "\"params\":{}}}", "0.001" },
	};
	char *path = t_fmt("%s/ds.json", dir);
	struct ckpt_shard_opts opts = { .stage = -1, .ds_config_path = path };

	(void)state;
	model(NULL, "F32", TIED);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct ckpt *made;

		put("ds.json", rows[i].config);
		made = sharded(opts, CKPT_OK, NULL);
		assert_string_equal(t_step_fact(made, "group.0.lr"), rows[i].rate);
		ckpt_close(made);
	}
	put("ds.json", "[1]");
	assert_null(sharded(opts, CKPT_E_CORRUPT, "a DeepSpeed config must be a JSON object"));
	put("ds.json", "{\"zero_optimization\":{\"stage\":2}}");
	assert_null(sharded(opts, CKPT_E_USAGE, "no learning rate,"));
	put("ds.json", "{\"optimizer\":{\"type\":\"AdamW\",\"params\":{\"lr\":1}}}");
	assert_null(sharded(opts, CKPT_E_USAGE, "no ZeRO stage:"));
	put("ds.json", "{\"optimizer\":{\"type\":\"Lion\"}}");
	assert_null(sharded(opts, CKPT_E_UNSUPPORTED, "unsupported optimizer \"Lion\""));
	free(path);
}

static void what_cannot_be_trained_is_refused(void **state)
{
	static const char *const all[] = { "model.*", NULL }, *const none[] = { "x*", NULL };
	struct ckpt_shard_opts opts = { .stage = 2, .lr = 1 };

	(void)state;
	model(NULL, "F64", TIED);
	assert_null(sharded(opts, CKPT_E_UNSUPPORTED, "DeepSpeed does not train weights of type "
			    "F64; --dtype bf16, fp16 or fp32 casts them"));
	model(NULL, "I64", TIED);
	assert_null(sharded(opts, CKPT_E_UNSUPPORTED, "elements of type I64 cannot be trained"));
	model(NULL, "F32", TIED);
	opts.frozen = none;
	assert_null(sharded(opts, CKPT_E_USAGE, "x* matches none of the 2 tensors"));
	opts.frozen = all;
	assert_null(sharded(opts, CKPT_E_USAGE, "all parameters are frozen or buffers"));
	opts.frozen = NULL;
	opts.groups = CKPT_GROUPS_DECAY;
	opts.buffers = (const char *const[]){ "model.embed*", NULL };
	assert_null(sharded(opts, CKPT_E_MISMATCH, "no model.embed_tokens"));
	opts.buffers = (const char *const[]){ "model.norm*", NULL };
	assert_null(sharded(opts, CKPT_E_USAGE, "a param group would be empty: all parameters are "
			    "decayed"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_tied_head_that_is_stored_as_well_must_be_the_embedding),
		cmocka_unit_test(a_list_of_names_is_taken_with_any_line_ends),
		cmocka_unit_test(what_a_configuration_says_of_the_optimizer_counts),
		cmocka_unit_test(what_cannot_be_trained_is_refused),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
