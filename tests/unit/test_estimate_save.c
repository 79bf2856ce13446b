/*
 * What a save takes, against saves that DeepSpeed made. If the formula is wrong, a disk is full in
 * the middle of a run that was planned.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/include/ckpt.h"
#include "tests/lib/fixture/t_case.h"
#include "tests/lib/fs/t_dir.h"
#include "tests/lib/ops/t_estimate.h"

/*
 * Other states than Adam's two moments in fp32 and a counter, gaps between parameters, no step
 * yet, a container without members, tensors of the user; and what older versions did otherwise:
 * 0.5.10 stores placeholders of an element, 0.15.4 and 0.17.6 lose or split a stage 0 in bf16.
 */
static const char *const others[] = {
	"adagrad", "amsgrad", "bf16master", "client", "cpuadam", "legacy", "lion", "muon",
	"paramalign", "sgd", "step0", "ds0.5.10-z3", "ds0.15.4-z0", "ds0.17.6-z0",
	"ds0.17.6-z1-bf16-w2-bf16opt", NULL
};

static int is_other(const struct t_case *c)
{
	for (size_t i = 0; others[i]; i++)
		if (strstr(c->name, others[i]))
			return 1;
	return c->refuse || c->sub_groups;
}

static uint64_t get(const uint8_t *p, int n)
{
	uint64_t v = 0;

	while (n-- > 0)
		v = v << 8 | p[n];
	return v;
}

/* The bytes of the members ".../data/N" of a torch file, from its directory. */
static uint64_t tensor_bytes(const uint8_t *p, size_t n)
{
	uint64_t sum = 0, at, count;
	size_t end = n - 22;

	while (end && memcmp(p + end, "PK\5\6", 4))
		end--;
	count = get(p + end + 10, 2);
	at = get(p + end + 16, 4);
	for (uint64_t i = 0; i < count; i++) {
		const size_t name = get(p + at + 28, 2);
		const char *text = (const char *)p + at + 46;

		assert_memory_equal(p + at, "PK\1\2", 4);
		if (memmem(text, name, "/data/", 6))
			sum += get(p + at + 24, 4);
		at += 46 + name + get(p + at + 30, 2) + get(p + at + 32, 2);
	}
	return sum;
}

struct seen {
	uint64_t files, bytes;
};

/* Every file: its tensors to the byte; archive and pickle are 1 kB and 1 kB a parameter at most. */
static struct seen compare_files(const char *dir, const struct ckpt_save *save, uint64_t tensors)
{
	struct seen seen = { 0 };
	struct dirent *entry;
	DIR *d = opendir(dir);

	assert_non_null(d);
	while ((entry = readdir(d))) {
		const size_t len = strlen(entry->d_name);
		const uint64_t want = strstr(entry->d_name, "model_states") ? save->model_bytes :
				      save->optim_bytes;
		char *path = t_fmt("%s/%s", dir, entry->d_name);
		size_t n;
		uint8_t *p;

		if (len > 3 && !strcmp(entry->d_name + len - 3, ".pt")) {
			p = t_file_read(path, &n);
			if (tensor_bytes(p, n) != want)
				fail_msg("%s: %llu bytes of tensors, not %llu", path,
					 (unsigned long long)tensor_bytes(p, n),
					 (unsigned long long)want);
			if (n - want > 4096 + 2048 * tensors)
				fail_msg("%s: %llu bytes on top", path,
					 (unsigned long long)(n - want));
			seen.files++;
			seen.bytes += want;
			free(p);
		}
		free(path);
	}
	closedir(d);
	return seen;
}

static int compare_case(const char *dir)
{
	struct t_case c;
	struct ckpt_err err = { 0 };
	struct ckpt_open_opts opts = { .size = sizeof(opts) };
	struct ckpt_setup setup = { .size = sizeof(setup) };
	struct ckpt_model_info info;
	struct ckpt_model *model = NULL;
	struct ckpt_estimate *est;
	struct ckpt *ck = NULL;
	struct seen seen;
	char *root = t_fmt("%s/ckpt", dir), *tag;
	int other;

	t_case_open(&c, dir);
	tag = t_fmt("%s/%s", root, c.latest);
	other = is_other(&c);
	if (!other) {
		opts.tag = c.latest;
		if (ckpt_open((const char *const *)&root, 1, &opts, &ck, &err) ||
		    ckpt_model_from_ckpt(ck, NULL, &model, &err))
			fail_msg("%s: %s", dir, err.msg);
		est = t_alloc(sizeof(*est));
		setup.stage = (uint32_t)c.stage;
		setup.gpus = (uint32_t)c.world;
		setup.dtype = ckpt_dtype_parse(c.precision);
		if (ckpt_estimate(model, &setup, est, &err))
			fail_msg("%s: %s", dir, err.msg);
		ckpt_model_get(model, &info);
		seen = compare_files(tag, &est->save, info.tensors);
		if (seen.files != est->save.files || seen.bytes != est->save.bytes)
			fail_msg("%s: %llu files", dir, (unsigned long long)seen.files);
		free(est);
		ckpt_model_free(model);
		ckpt_close(ck);
	}
	t_case_close(&c);
	free(tag);
	free(root);
	return !other;
}

static void a_save_has_the_files_and_bytes_of_tensors_that_deepspeed_wrote(void **state)
{
	char *top = t_fmt("%s/deepspeed", getenv("ZCKPT_FIXTURES"));
	struct dirent *entry;
	DIR *d = opendir(top);
	int n = 0;

	(void)state;
	assert_non_null(d);
	while ((entry = readdir(d))) {
		char *dir = t_fmt("%s/%s", top, entry->d_name);

		if (!strncmp(entry->d_name, "ds", 2))
			n += compare_case(dir);
		free(dir);
	}
	closedir(d);
	free(top);
	if (n < 120)
		fail_msg("%d steps were compared", n);
}

/* ---------------------------------------------------------------- parallel */

#define COMMON "'vocab_size': 32, 'hidden_size': 16, 'num_attention_heads': 4, " \
	"'num_key_value_heads': 2, 'head_dim': 4"

/* Parts of AutoTP's and AutoEP's; 'groups' that the run had of what is not an expert. */
static const struct parallel {
	const char *name, *config;
	uint32_t gpus, tp, ep, stage, groups;
} parallels[] = {
	{ "ds0.19.8-autotp-z0-bf16-w2-llama", "{ 'model_type': 'llama', " COMMON
	  ", 'num_hidden_layers': 1, 'intermediate_size': 24 }", 2, 2, 1, 0, 1 },
	{ "ds0.19.8-autotp-z1-bf16-w4-llama", "{ 'model_type': 'llama', " COMMON
	  ", 'num_hidden_layers': 2, 'intermediate_size': 24 }", 4, 2, 1, 1, 2 },
	{ "ds0.19.8-autotp-z2-bf16-w4-qwen2", "{ 'model_type': 'qwen2', " COMMON
	  ", 'num_hidden_layers': 2, 'intermediate_size': 24 }", 4, 2, 1, 2, 2 },
	{ "ds0.19.8-autoep-z1-bf16-w4-qwen3moe", "{ 'model_type': 'qwen3_moe', " COMMON
	  ", 'num_hidden_layers': 2, 'intermediate_size': 24, 'moe_intermediate_size': 12, "
	  "'num_experts': 8, 'num_experts_per_tok': 2 }", 4, 1, 2, 1, 1 },
	{ "ds0.19.8-autoep-z2-bf16-w2-mixtral", "{ 'model_type': 'mixtral', " COMMON
	  ", 'num_hidden_layers': 2, 'intermediate_size': 12, 'num_local_experts': 4, "
	  "'num_experts_per_tok': 2 }", 2, 1, 2, 2, 1 },
};

static uint64_t bytes_of(const char *name, const struct parallel *p, const struct ckpt_save *save)
{
	if (strstr(name, "_expert_"))
		return save->expert_bytes;
	/* a step counter more for each further group */
	return strstr(name, "optim_states") ? save->optim_bytes + 4 * (p->groups - 1) :
					      save->model_bytes;
}

static void compare_parallel(const struct parallel *p, const char *top)
{
	char *dir = t_fmt("%s/%s/ckpt/global_step2", top, p->name);
	struct ckpt_model *model = t_est_model(p->config);
	struct ckpt_estimate *est = t_est_of(model, (struct ckpt_setup){
		.stage = p->stage, .gpus = p->gpus, .tp = p->tp, .ep = p->ep });
	struct dirent *entry;
	DIR *d = opendir(dir);
	uint64_t files = 0;

	assert_non_null(d);
	while ((entry = readdir(d))) {
		const size_t len = strlen(entry->d_name);
		char *path = t_fmt("%s/%s", dir, entry->d_name);
		uint64_t want = bytes_of(entry->d_name, p, &est->save);
		size_t n;
		uint8_t *bytes;

		if (len > 3 && !strcmp(entry->d_name + len - 3, ".pt")) {
			bytes = t_file_read(path, &n);
			if (tensor_bytes(bytes, n) != want)
				fail_msg("%s: %llu bytes of tensors, not %llu", path,
					 (unsigned long long)tensor_bytes(bytes, n),
					 (unsigned long long)want);
			free(bytes);
			files++;
		}
		free(path);
	}
	closedir(d);
	assert_int_equal(files, est->save.files);
	free(est);
	ckpt_model_free(model);
	free(dir);
}

static void files_of_parallel_ranks_have_the_bytes_that_deepspeed_wrote(void **s)
{
	char *top = t_fmt("%s/parallel", getenv("ZCKPT_FIXTURES"));

	(void)s;
	for (size_t i = 0; i < sizeof(parallels) / sizeof(parallels[0]); i++)
		compare_parallel(&parallels[i], top);
	free(top);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_save_has_the_files_and_bytes_of_tensors_that_deepspeed_wrote),
		cmocka_unit_test(files_of_parallel_ranks_have_the_bytes_that_deepspeed_wrote),
	};

	if (!getenv("ZCKPT_FIXTURES"))
		return 77;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
