/*
 * docs/ztrain/config.md lists every key with its type, default and fate. If it says another thing
 * than the table of the engine, people plan their runs by a wrong book.
 *
 * With an argument the rows are printed, for the document.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/config/keys/en_keys.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/io/ck_tree.h"

static const char *type_of(const struct en_key *k)
{
	static const char *const names[] = {
		[EN_K_BOOL] = "true, false", [EN_K_INT] = "whole number", [EN_K_FLOAT] = "number",
		[EN_K_STAGE] = "0 to 3", [EN_K_DEVICE] = "none, cpu, nvme",
		[EN_K_DTYPE] = "fp32, bf16, fp16", [EN_K_STR] = "string",
		[EN_K_NUMBER_PAIR] = "two numbers", [EN_K_ANY] = "", [EN_K_BLOCK] = "block",
	};

	return names[k->type];
}

static const char *when(const struct en_key *k)
{
	static const char *const names[] = {
		[EN_W_ALWAYS] = "",
		[EN_W_ZERO] = " at stages 1 to 3",
		[EN_W_STAGE_1_2] = " at stages 1 and 2",
		[EN_W_STAGE_3] = " at stage 3",
		[EN_W_FP16] = " with fp16",
		[EN_W_DYNAMIC_SCALE] = " with fp16 and a dynamic scale",
		[EN_W_BF16] = " with bf16",
		[EN_W_OFFLOAD_OPTIMIZER] = " with an offloaded optimizer",
		[EN_W_OPTIMIZER_NVME] = " with the optimizer on NVMe",
		[EN_W_OFFLOAD_PARAM] = " with offloaded parameters",
		[EN_W_PARAM_NVME] = " with parameters on NVMe",
		[EN_W_NVME] = " with NVMe",
		[EN_W_OPTIMIZER] = "",
		[EN_W_SCHEDULER] = "",
	};

	return names[k->when];
}

static void schedulers(const struct en_key *k, char *out, size_t n)
{
	static const char *const names[] = {
		[EN_SCHEDULER_RANGE_TEST] = "LRRangeTest", [EN_SCHEDULER_ONE_CYCLE] = "OneCycle",
		[EN_SCHEDULER_WARMUP] = "WarmupLR", [EN_SCHEDULER_WARMUP_DECAY] = "WarmupDecayLR",
		[EN_SCHEDULER_WARMUP_COSINE] = "WarmupCosineLR",
	};
	size_t used = 0;

	out[0] = 0;
	for (int t = EN_SCHEDULER_RANGE_TEST; t <= EN_SCHEDULER_WARMUP_COSINE; t++)
		if (k->schedulers != ~0u && (k->schedulers & (1u << t)))
			used += (size_t)snprintf(out + used, n - used, "%s%s", used ? ", " : " by ",
						 names[t]);
}

static void fate(const struct en_key *k, char *out, size_t n)
{
	char by[128];

	schedulers(k, by, sizeof(by));
	switch (k->role) {
	case EN_R_USED:
		snprintf(out, n, "used%s%s%s%s", when(k), by, k->why ? ": " : "",
			 k->why ? k->why : "");
		break;
	case EN_R_QUIET:
		snprintf(out, n, "no effect: %s", k->why);
		break;
	case EN_R_DEFAULT_ONLY:
		snprintf(out, n, "only %s: %s",
			 k->type == EN_K_ANY ? "if it is off" : "the default", k->why);
		break;
	case EN_R_REMOVED:
		snprintf(out, n, "refused, as by DeepSpeed 0.19: %s", k->why);
		break;
	case EN_R_SWITCH:
		snprintf(out, n, "only if it is off: %s", k->why);
		break;
	}
}

static void row(const struct en_key *k, char *out, size_t n)
{
	const char *of = en_block_info[k->block].path;
	char what[300], dflt[128] = "", old[64] = "";

	fate(k, what, sizeof(what));
	if (k->dflt)
		snprintf(dflt, sizeof(dflt), "%s", k->dflt);
	if (k->dflt_old)
		snprintf(old, sizeof(old), " (before 0.19: %s)", k->dflt_old);
	snprintf(out, n, "| `%s%s%s`%s%s%s | %s | %s%s | %s |", of, *of ? "." : "",
		 k->alias && k->type != EN_K_BLOCK ? k->alias : k->name,
		 k->alias ? ", `" : "", k->alias ? k->type != EN_K_BLOCK ? k->name : k->alias : "",
		 k->alias ? "`" : "", type_of(k), dflt, old, what);
}

static void the_document_is_the_table(void **state)
{
	char *text = NULL, line[600];
	uint64_t len = 0;
	size_t rows = 0;

	(void)state;
	assert_int_equal(ck_file_read("docs/ztrain/config.md", 1 << 20, &text, &len, NULL), 0);
	for (size_t i = 0; i < en_n_keys; i++) {
		row(&en_keys[i], line, sizeof(line));
		if (!strstr(text, line))
			fail_msg("docs/ztrain/config.md lacks: %s", line);
	}
	for (const char *p = strstr(text, "## The keys"); (p = strstr(p, "\n| `")); p++)
		rows++;
	assert_int_equal(rows, en_n_keys);
	ck_free(text);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_document_is_the_table),
	};
	char line[600];

	(void)argv;
	if (argc < 2)
		return cmocka_run_group_tests(tests, NULL, NULL);
	for (size_t i = 0; i < en_n_keys; i++) {
		row(&en_keys[i], line, sizeof(line));
		printf("%s\n", line);
	}
	return 0;
}
