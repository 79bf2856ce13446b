/*
 * Excerpts of configurations that users published. They are no whole files, and yet a file with
 * such a key in the wrong place is what users write: each key gets a verdict that says where it
 * belongs.
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

#include "engine/config/en_config.h"

static const struct {
	const char *file, *path;
	enum en_ruling ruling;
	const char *says;
} fragments[] = {
	{ "user000_1_stage.txt", "stage", EN_IGNORED, "\"zero_optimization.stage\"" },
	{ "user000_2_sub_group_size.txt", "sub_group_size", EN_IGNORED, "zero_optimization." },
	{ "user000_3_offload_param.txt", "offload_param", EN_IGNORED, "zero_optimization." },
	{ "user000_4_bucket_sizes.txt", "reduce_bucket_size", EN_IGNORED, "zero_optimization." },
	{ "user000_4_bucket_sizes.txt", "stage3_prefetch_bucket_size", EN_IGNORED, "zero_" },
	{ "user000_5_overlap_comm.txt", "overlap_comm", EN_IGNORED, "zero_optimization." },
	{ "user000_6_micro_batch.txt", "train_micro_batch_size_per_gpu", EN_USED, "" },
	{ "user000_7_grad_accum.txt", "gradient_accumulation_steps", EN_USED, "" },
	{ "user000_8_max_live.txt", "stage3_max_live_parameters", EN_IGNORED, "zero_" },
	{ "user001_2.yaml", "num_generations", EN_REFUSED, "no such top-level key" },
	{ "user001_3.yaml", "deepspeed_config.stage3_max_live_parameters", EN_IGNORED,
	  "ignores it" },
	{ "user001_3.yaml", "deepspeed_config.offload_param_device", EN_USED, "" },
	{ "user001_4.yaml", "max_completion_length", EN_REFUSED, "no such top-level key" },
	{ "user001_5.yaml", "deepspeed_multinode_launcher", EN_REFUSED, "under deepspeed_config" },
	{ "user001_6.yaml", "deepspeed_config.reduce_bucket_size", EN_IGNORED, "ignores it" },
	{ "user001_6.yaml", "distributed_type", EN_REFUSED, "set it to DEEPSPEED" },
	{ "user004_1.yaml", "zero_stage", EN_REFUSED, "under deepspeed_config" },
	{ "user004_10.yaml", "gradient_accumulation_steps", EN_REFUSED, "under deepspeed_config" },
	{ "user004_2.yaml", "zero_stage", EN_REFUSED, "under deepspeed_config" },
	{ "user004_3.yaml", "deepspeed_config.zero_stage", EN_USED, "" },
	{ "user004_4.yaml", "deepspeed_config.allgather_bucket_size", EN_IGNORED, "ignores it" },
	{ "user004_5.yaml", "zero_stage", EN_REFUSED, "under deepspeed_config" },
	{ "user004_6.yaml", "stage3_gather_16bit_weights_on_model_save", EN_REFUSED,
	  "no such top-level key" },
	{ "user004_7.yaml", "offload_optimizer_device", EN_REFUSED, "under deepspeed_config" },
	{ "user004_8.yaml", "offload_optimizer_nvme_path", EN_REFUSED, "under deepspeed_config" },
};

/* Excerpts are no whole configurations; what there is in them gets its verdict all the same. */
static void every_key_of_a_fragment_has_its_verdict(void **state)
{
	const struct en_facts facts = { .world = 1 };

	(void)state;
	for (size_t i = 0; i < CK_ARRAY_LEN(fragments); i++) {
		const bool yaml = strstr(fragments[i].file, ".yaml");
		const struct en_verdict *v;
		struct ckpt_err err = { 0 };
		struct en_config cfg;
		char path[128];
		int rc;

		if (yaml && !en_node_has_yaml())
			continue;
		snprintf(path, sizeof(path), "fragments/%s", fragments[i].file);
		en_config_init(&cfg, EN_DS_0_19);
		rc = yaml ? en_config_read_accelerate(&cfg, path, 1, &err)
			  : en_config_read_deepspeed(&cfg, path, &err);
		if (rc)
			fail_msg("%s: %s", path, err.msg);
		en_config_resolve(&cfg, &facts, &err);
		v = en_config_verdict(&cfg, fragments[i].path);
		if (!v || v->ruling != fragments[i].ruling || !strstr(v->why, fragments[i].says))
			fail_msg("%s, %s: %d, %s", path, fragments[i].path, v ? (int)v->ruling : 0,
				 v ? v->why : "");
		en_config_release(&cfg);
	}
}

static void fragments_that_are_no_one_file_are_refused(void **state)
{
	static const struct {
		const char *file, *says;
	} rows[] = {
		/* two versions of one key in it: PyYAML would take the second */
		{ "fragments/user001_1.yaml", "first in line 2" },
		/* a command line in it */
		{ "fragments/user004_9.yaml", "line 6" },
	};

	(void)state;
	if (!en_node_has_yaml())
		skip();
	for (size_t i = 0; i < CK_ARRAY_LEN(rows); i++) {
		struct ckpt_err err = { 0 };
		struct en_config cfg;

		en_config_init(&cfg, EN_DS_0_19);
		assert_int_equal(en_config_read_accelerate(&cfg, rows[i].file, 1, &err),
				 -CKPT_E_CORRUPT);
		if (!strstr(err.msg, rows[i].says))
			fail_msg("%s: %s", rows[i].file, err.msg);
		en_config_release(&cfg);
	}
}

static int enter(void **state)
{
	char path[4096];

	(void)state;
	snprintf(path, sizeof(path), "%s/config", getenv("ZCKPT_FIXTURES"));
	return chdir(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_key_of_a_fragment_has_its_verdict),
		cmocka_unit_test(fragments_that_are_no_one_file_are_refused),
	};

	return cmocka_run_group_tests(tests, enter, NULL);
}
