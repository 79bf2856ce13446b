/*
 * The weights of a run, exported by its ranks: what `convert` makes of the saved step, the same
 * files at every stage and number of ranks, with nothing gathered.  If this fails, the model that
 * is handed out is not the one that was trained.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/checkpoint/en_export.h"
#include "engine/checkpoint/en_checkpointer.h"
#include "engine/zero/cpu/en_zero_cpu.h"
#include "libckpt/base/ck_sys.h"
#include "tests/engine/te_model.h"
#include "tests/engine/te_ranks.h"
#include "tests/lib/fs/t_dir.h"
#include "tests/lib/ops/t_ranks.h"
#include "tests/lib/ops/t_step.h"

static char *dir, *first;

static int setup(void **state)
{
	(void)state;
	dir = t_dir_new();
	first = t_fmt("%s/first", dir);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	free(first);
	t_dir_end(dir);
	return 0;
}

/* A state that begins with random weights, saved and exported. */
struct work {
	const struct en_model *model;
	uint32_t stage;
	enum kn_type type, to;
	struct en_export_opts export;
	const char *root;	/* of a step; NULL = none is saved */
	uint64_t put[8], written[8], gathered[8];	/* bytes, by rank */
};

static int save(const struct work *w, struct en_zero *z, struct en_comm *comm, struct ckpt_err *err)
{
	static const double lr[2] = { 1e-3, 1e-3 };
	static const struct en_zero_hyper hyper[2] = { { 1e-3, 0.9, 0.95, 1e-8, 0.1 } };
	const struct en_checkpointer_opts ko = {
		.root = w->root, .job = "save", .to = CKPT_TO_NATIVE, .stage = w->stage,
		.sync = CKPT_SYNC_NONE,
	};
	struct en_settings set = { .precision = EN_FP32 };
	struct en_sched sched;
	struct en_scale scale;
	struct en_checkpointer_values v = {
		.at = { 3, 24, 0, 3 }, .hyper = hyper, .sched = &sched, .scale = &scale,
	};
	struct en_checkpointer *keep = NULL;
	bool old;
	int rc = en_sched_init_config(&sched, &set.schedule, EN_DS_0_19, lr, 2, err);

	if (!rc)
		rc = en_scale_init_config(&scale, &set, EN_DS_0_19, err);
	if (!rc)
		rc = en_checkpointer_new(w->model, z, comm, &ko, &keep, err);
	if (!rc)
		rc = en_checkpointer_save(keep, "step3", &v, &old, err);
	if (!rc)
		rc = en_checkpointer_wait(keep, 0, NULL, err);
	en_checkpointer_free(keep);
	return rc;
}

static uint64_t sent(const struct en_comm *comm)
{
	uint64_t n = 0;

	for (int k = 0; k < EN_COMM_KINDS; k++)
		n += comm->counter[k].sent;
	return n;
}

static int run(struct en_comm *comm, void *arg, struct ckpt_err *err)
{
	static const struct en_zero_rule rule = { KN_ADAM_TORCH, true, true, false };
	struct work *w = arg;
	const struct en_zero_opts zo = {
		.stage = w->stage, .type = w->type, .wire = KN_F32, .micro_batches = 1, .rows = 1,
		.tokens = 2, .threads = 1,
	};
	struct ckpt_saved saved = { 0 };
	struct en_zero *z = NULL;
	uint64_t before;
	int rc = en_zero_cpu_new(w->model, comm, &zo, &rule, &z, err);

	if (rc)
		return rc;
	en_zero_init(z, 7, NULL);
	rc = en_zero_sync_params(z, err);
	if (!rc && w->root)
		rc = save(w, z, comm, err);
	before = sent(comm);
	if (!rc)
		rc = en_export(w->model, z, comm, &w->export, &saved, err);
	w->put[comm->rank] = saved.put_bytes;
	w->written[comm->rank] = saved.written_bytes;
	w->gathered[comm->rank] = sent(comm) - before;
	en_zero_free(z);
	return rc;
}

/* What `zckpt convert` makes of the step in 'root'. */
static void digest_of_converted(const char *root, enum kn_type to, char out[33])
{
	const struct ckpt_convert_opts co = {
		.size = sizeof(co),
		.dtype = to == KN_BF16 ? CKPT_BF16 : to == KN_F16 ? CKPT_F16 : CKPT_F32,
	};
	char *path = t_fmt("%s/converted", dir);
	struct ckpt_err err = { 0 };
	struct ckpt *ck;

	t_must(ckpt_open(&root, 1, NULL, &ck, &err), &err);
	t_must(ckpt_convert(ck, path, &co, NULL, &err), &err);
	ckpt_close(ck);
	t_step_digest_at(path, NULL, out);
	t_dir_remove(path);
	free(path);
}

static void same_file(const char *a_dir, const char *b_dir, const char *name)
{
	char *a = t_fmt("%s/%s", a_dir, name), *b = t_fmt("%s/%s", b_dir, name);
	size_t n, m;
	uint8_t *x = t_file_read(a, &n), *y = t_file_read(b, &m);

	if (n != m || memcmp(x, y, n))
		fail_msg("%s and %s differ", a, b);
	free(x);
	free(y);
	free(a);
	free(b);
}

static void check_counts(const struct work *w, uint32_t ranks, uint64_t file_bytes)
{
	uint64_t put = 0, written = 0;

	for (uint32_t r = 0; r < ranks; r++) {
		put += w->put[r];
		written += w->written[r];
		assert_int_equal(w->gathered[r], 0);
	}
	assert_int_equal(put, w->model->numel * sizeof(float));
	assert_true(written >= file_bytes);
	assert_true(written < file_bytes + 65536);	/* config.json and the like */
}

static uint64_t size_of(const char *in, const char *name)
{
	char *path = t_fmt("%s/%s", in, name);
	struct stat st;
	const uint64_t n = stat(path, &st) ? 0 : (uint64_t)st.st_size;

	free(path);
	return n;
}

/* One way to hold the model. */
static void export_as(struct work *w, uint32_t ranks, const char *want)
{
	char *at = t_fmt("%s/w%u-z%u-%d", dir, ranks, w->stage, (int)w->to);
	char *root = t_fmt("%s/run", dir);
	char got[33], converted[33];

	w->export.dir = at;
	w->export.type = w->to;
	w->root = want ? NULL : root;
	te_ranks(ranks, run, w);
	t_step_digest_at(at, NULL, got);
	if (want) {
		assert_string_equal(got, want);
		same_file(at, first, "model.safetensors");
		same_file(at, first, "config.json");
	} else {
		digest_of_converted(root, w->to, converted);
		assert_string_equal(got, converted);
		rename(at, first);
	}
	check_counts(w, ranks, size_of(want ? at : first, "model.safetensors"));
	t_dir_remove(root);
	free(root);
	free(at);
}

static void one_model(const char *name, enum kn_type type, enum kn_type to)
{
	static const uint32_t worlds[] = { 1, 2, 3, 4, 8 };
	char *below = t_fmt("models/%s", name), *model = te_path(below);
	struct work w = { .type = type, .to = to };
	struct te_model m;
	char want[33];

	te_model_open(&m, name);
	w.model = m.model;
	w.export = (struct en_export_opts){
		.job = "export", .model = model, .steps = 3, .sync = CKPT_SYNC_NONE,
	};
	export_as(&w, 1, NULL);
	t_step_digest_at(first, NULL, want);
	for (uint32_t stage = 0; stage <= 3; stage++)
		for (size_t i = 0; i < sizeof(worlds) / sizeof(worlds[0]); i++) {
			w.stage = stage;
			export_as(&w, worlds[i], want);
		}
	te_model_close(&m);
	free(below);
	free(model);
}

static void tied_fp32(void **state)
{
	(void)state;
	one_model("qwen3_tied", KN_F32, KN_F32);
}

static void untied_bf16_as_bf16(void **state)
{
	(void)state;
	one_model("llama3", KN_BF16, KN_BF16);
}

static void biases_fp16_as_fp32(void **state)
{
	(void)state;
	one_model("qwen25", KN_F16, KN_F32);
}

static void masters_of_bf16_as_fp16(void **state)
{
	(void)state;
	one_model("qwen3", KN_BF16, KN_F16);
}

/* A tied model has no head of its own, and says whose second name it is. */
static void tied_models_have_no_head(void **state)
{
	char *model = te_path("models/qwen3_tied"), *at = t_fmt("%s/hf", dir);
	struct work w = { .type = KN_F32, .to = KN_F32, .stage = 3 };
	struct ckpt_err err = { 0 };
	struct te_model m;
	struct ckpt *ck;
	uint64_t n;

	(void)state;
	te_model_open(&m, "qwen3_tied");
	w.model = m.model;
	w.export = (struct en_export_opts){
		.dir = at, .job = "export", .model = model, .type = KN_F32, .steps = 3,
		.max_shard_bytes = 40000, .sync = CKPT_SYNC_NONE,
	};
	te_ranks(4, run, &w);
	assert_int_not_equal(size_of(at, "model.safetensors.index.json"), 0);
	assert_int_equal(size_of(at, "model.safetensors"), 0);
	same_file(at, model, "generation_config.json");
	t_must(ckpt_open((const char *const *)&at, 1, NULL, &ck, &err), &err);
	assert_int_not_equal(ckpt_tensor_find(ck, "lm_head.weight", &n, NULL), 0);
	assert_int_equal(ckpt_tensor_find(ck, "model.embed_tokens.weight", &n, NULL), 0);
	ckpt_close(ck);
	te_model_close(&m);
	free(model);
	free(at);
}

/* ---- config.json ---- */

static void config(const char *text, enum kn_type type, const char *want)
{
	char *path = t_fmt("%s/c.json", dir), *got = NULL;
	struct ckpt_err err = { 0 };

	t_file_write(path, text, strlen(text));
	t_must(en_export_config(path, type, &got, &err), &err);
	assert_string_equal(got, want);
	ck_free(got);
	free(path);
}

static void config_keeps_all_but_the_type(void **state)
{
	(void)state;
	config("{\"a\": 1e-06, \"dtype\": \"float32\",\n\"b\": [1.0]}\n", KN_BF16,
	       "{\"a\": 1e-06, \"dtype\": \"bfloat16\",\n\"b\": [1.0]}\n");
	config("{\"torch_dtype\": \"bfloat16\", \"x\": {\"dtype\": 3}}", KN_F32,
	       "{\"torch_dtype\": \"float32\", \"x\": {\"dtype\": 3}}");
	config("{\"torch_dtype\": null, \"dtype\": \"auto\"}", KN_F16,
	       "{\"torch_dtype\": \"float16\", \"dtype\": \"float16\"}");
	config("{\"vocab_size\": 3}", KN_F16, "{\n  \"dtype\": \"float16\",\"vocab_size\": 3}");
	config(" {}", KN_F32, " {\n  \"dtype\": \"float32\"\n}");
}

static void refused(const struct en_export_opts *o, enum ckpt_code code, const char *words)
{
	struct ckpt_err err = { 0 };

	assert_int_equal(en_export_check(o, &err), -(int)code);
	if (!strstr(err.msg, words) && !strstr(err.where, words))
		fail_msg("'%s: %s' lacks '%s'", err.where, err.msg, words);
}

static void places_that_cannot_be(void **state)
{
	char *model = te_path("models/llama3"), *far = t_fmt("%s/a/b/c/", dir);
	char *file = t_fmt("%s/file", dir), *way = t_fmt("%s/a/b", dir), *bad = t_fmt("%s/b", dir);
	char *text = t_fmt("%s/b/config.json", dir);
	struct en_export_opts o = { .dir = model, .model = model, .type = KN_F32 };
	struct ckpt_err err = { 0 };

	(void)state;
	refused(&o, CKPT_E_USAGE, "export to another folder");
	o.dir = "..";
	refused(&o, CKPT_E_USAGE, "plain name");
	o.dir = "/";
	refused(&o, CKPT_E_USAGE, "plain name");
	t_file_write(file, "", 0);
	o.dir = file;
	refused(&o, CKPT_E_EXISTS, "not a folder");
	o.dir = far;
	t_must(en_export_check(&o, &err), &err);
	assert_int_not_equal(size_of(way, "."), 0);
	o.model = "/nowhere";
	refused(&o, CKPT_E_NOTFOUND, "/nowhere");
	mkdir(bad, 0777);
	o.model = bad;
	refused(&o, CKPT_E_NOTFOUND, "config.json");
	t_file_write(text, "[1]", 3);
	refused(&o, CKPT_E_CORRUPT, "a JSON object");
	free(model);
	free(far);
	free(file);
	free(way);
	free(bad);
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(tied_fp32, setup, teardown),
		cmocka_unit_test_setup_teardown(untied_bf16_as_bf16, setup, teardown),
		cmocka_unit_test_setup_teardown(biases_fp16_as_fp32, setup, teardown),
		cmocka_unit_test_setup_teardown(masters_of_bf16_as_fp16, setup, teardown),
		cmocka_unit_test_setup_teardown(tied_models_have_no_head, setup, teardown),
		cmocka_unit_test_setup_teardown(config_keeps_all_but_the_type, setup, teardown),
		cmocka_unit_test_setup_teardown(places_that_cannot_be, setup, teardown),
	};

	te_need_fixtures();
	t_dir_in_memory();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
