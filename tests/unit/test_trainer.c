/*
 * Folders of transformers' Trainer: the states of the optimizer belong to the parameters whose they
 * were, whatever says so; what cannot be known is left out by name, and no step is made of it.  If
 * this fails, a run resumes with the moments of other parameters, or damage of optimizer.pt gives
 * other values and no verb says a word.
 *
 * Every byte of the small files is cut and changed.  Flips in optimizer.pt are drawn with a seed,
 * which is printed; ZCKPT_SEED=N repeats them, ZCKPT_LONG=1 makes 4,000.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/fs/t_dir.h"
#include "tests/lib/fs/t_files.h"
#include "tests/lib/mutate/t_flip.h"
#include "tests/lib/ops/t_load.h"
#include "tests/lib/ops/t_raw.h"

#define EACH 150u
#define EACH_LONG 4000u

static const struct ckpt_run_opts run = {
	.size = sizeof(run), .threads = 1, .sync = CKPT_SYNC_NONE,
};

static const struct folder {
	const char *name, *left_out;	/* finding of states that are left out, or NULL */
	const char *refused;		/* words of why no step is made of it, or NULL */
	const char *no_way_back;	/* words of why a step of it is no such folder, or NULL */
} folders[] = {
	{ "llama", NULL, NULL, NULL },
	{ "qwen3-tied", NULL, NULL, NULL },
	{ "qwen3-fused", NULL, NULL, NULL },
	{ "qwen2-biases", NULL, NULL, NULL },
	{ "shards", NULL, NULL, NULL },
	{ "bf16", NULL, NULL, NULL },
	{ "frozen", NULL, NULL, NULL },
	{ "one-group", NULL, NULL, NULL },
	{ "old-groups", NULL, NULL, "param groups 0 and 1" },
	{ "amsgrad", NULL, NULL, NULL },
	{ "gpt2", "STATES_UNNAMED", "does not know the order", NULL },
	{ "adafactor", "NOT_IN_CHECKPOINT", "exp_avg_sq_row", NULL },
	{ "sgd", NULL, "no states of the optimizer", NULL },
};

static char *fixture(const char *name, const char *file)
{
	const char *fixtures = getenv("ZCKPT_FIXTURES");

	return t_fmt("%s/trainer/%s/%s", fixtures ? fixtures : "build/fixtures", name, file);
}

static struct ckpt *open_path(const char *path)
{
	struct ckpt_err err = { 0 };
	struct ckpt *ck;

	if (ckpt_open(&path, 1, NULL, &ck, &err))
		t_die("%s: %s", path, err.msg);
	return ck;
}

static bool is_found(struct ckpt *ck, const char *id)
{
	struct ckpt_finding f;

	for (uint64_t i = 0; id && !ckpt_finding_get(ck, i, &f, NULL); i++)
		if (!strcmp(f.id, id))
			return true;
	return false;
}

/* ---------------------------------------------------------------- whose are they */

/* The state NAME|STATE of the live run; true if the folder has it. */
static bool compare(struct ckpt *ck, struct ckpt *truth, const struct ckpt_tensor_info *want,
		    uint64_t number)
{
	char name[300], *state;
	uint64_t tensor;
	size_t n, m;
	uint8_t *p, *q;
	bool has;

	snprintf(name, sizeof(name), "%s", want->name);
	state = strchr(name, '|');
	*state++ = 0;
	if (ckpt_tensor_find(ck, name, &tensor, NULL))
		t_die("%s is not in the folder", name);
	p = t_load_cat(ck, tensor, state, 0, &n);
	q = t_load_cat(truth, number, "weight", 0, &m);
	has = p != NULL;
	if (p && (n != m || memcmp(p, q, n)))
		t_die("%s of %s is not the live one", state, name);
	free(p);
	free(q);
	return has;
}

static void check_states(const struct folder *f)
{
	char *at = fixture(f->name, "ckpt"), *live = fixture(f->name, "truth.safetensors");
	struct ckpt *ck = open_path(at), *truth = open_path(live);
	struct ckpt_tensor_info want;
	uint64_t lost = 0, n = 0;

	for (uint64_t i = 0; !ckpt_tensor_get(truth, i, &want, NULL); i++, n++)
		lost += !compare(ck, truth, &want, i);
	if (!n || (lost != 0) != (f->left_out != NULL))
		t_die("%s: %llu of %llu states are left out", f->name, (unsigned long long)lost,
		      (unsigned long long)n);
	if (f->left_out && !is_found(ck, f->left_out))
		t_die("%s: states are left out without %s", f->name, f->left_out);
	ckpt_close(ck);
	ckpt_close(truth);
	free(at);
	free(live);
}

static void test_states(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++)
		check_states(&folders[i]);
}

/* ---------------------------------------------------------------- steps */

static int reshard(const char *from, const char *to, int form, struct ckpt_err *err)
{
	const struct ckpt_reshard_opts o = {
		.size = sizeof(o), .run = &run, .world = 2, .stage = -1, .round_robin = -1,
		.to = form,
	};
	struct ckpt *ck = open_path(from);
	const int rc = ckpt_reshard(ck, to, &o, NULL, err);

	ckpt_close(ck);
	return rc;
}

static void check_step(const struct folder *f, const char *scratch)
{
	char *at = fixture(f->name, "ckpt"), *native = t_fmt("%s/native", scratch);
	char *back = t_fmt("%s/back", scratch), *again = t_fmt("%s/back/checkpoint-3", scratch);
	struct ckpt_err err = { 0 };
	uint64_t was, is;
	const int rc = reshard(at, native, CKPT_TO_NATIVE, &err);

	if (f->refused && (!rc || !strstr(err.msg, f->refused) || !strstr(err.msg, "zckpt ")))
		t_die("%s: %d, %s", f->name, rc, err.msg);
	if (!f->refused && rc)
		t_die("%s: %s", f->name, err.msg);
	if (f->no_way_back) {
		if (!reshard(native, back, CKPT_TO_TRAINER, &err) ||
		    !strstr(err.msg, f->no_way_back))
			t_die("%s, back: %s", f->name, err.msg);
	} else if (!f->refused) {
		if (reshard(native, back, CKPT_TO_TRAINER, &err))
			t_die("%s: %s", f->name, err.msg);
		if (t_flip_digest(at, &run, &was, &err) || t_flip_digest(again, &run, &is, &err))
			t_die("%s: %s", f->name, err.msg);
		/* of 16 bits there were no masters, and a frozen weight has none */
		if (was != is && strcmp(f->name, "bf16"))
			t_die("%s: other values by way of the native form", f->name);
	}
	t_dir_remove(native);
	t_dir_remove(back);
	free(at);
	free(native);
	free(back);
	free(again);
}

static void test_steps(void **state)
{
	char *scratch = t_dir_new();

	(void)state;
	for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++)
		check_step(&folders[i], scratch);
	t_dir_end(scratch);
}

/* ---------------------------------------------------------------- damage */

static char *dir;
static uint64_t whole;

/* Digest of what the values say, and of all elements; 0 = it is refused. */
static uint64_t read_all(void)
{
	const char *path = dir;
	struct ckpt_values *v;
	struct ckpt_value at;
	struct ckpt_err err = { 0 };
	struct ckpt *ck;
	uint64_t hash = 0, own = 0;
	int64_t n = -1;
	double lr = 0;

	if (t_flip_digest(dir, &run, &hash, &err) || ckpt_open(&path, 1, NULL, &ck, NULL))
		return 0;
	if (ckpt_values_open(ck, 0, 0, &v, NULL)) {
		ckpt_close(ck);
		return 0;
	}
	if (!ckpt_value_int(v, "global_steps", &n, NULL))
		own = (uint64_t)n * 31;
	if (!ckpt_value_float(v, "param_groups.0.lr", &lr, NULL))
		own += (uint64_t)(lr * 1e15) * 7;
	if (!ckpt_value_int(v, "lr_scheduler.last_epoch", &n, NULL))
		own += (uint64_t)n * 1009;
	if (!ckpt_value_get(v, "optimizer.state", &at, NULL))
		own += at.n * 1000003;
	ckpt_values_close(v);
	ckpt_close(ck);
	return hash ^ own * UINT64_C(0x9e3779b97f4a7c15);
}

/* Other values than the whole folder has need a word: an error, or a warning. */
static void judge(const char *file, const char *what, uint64_t at)
{
	const uint64_t hash = read_all();
	char id[64];

	if (!hash || hash == whole)
		return;
	if (t_flip_found(dir, NULL, &run, id, sizeof(id)) < CKPT_WARN)
		t_die("%s: byte %llu %s, the values differ, and nothing is said", file,
		      (unsigned long long)at, what);
}

static void begin_damage(const char *name)
{
	char *from = fixture(name, "ckpt");

	dir = t_dir_new();
	t_dir_remove(dir);
	t_dir_copy(from, dir);
	whole = read_all();
	assert_true(whole);
	free(from);
}

static void cut(const char *name, size_t step)
{
	char *file = t_fmt("%s/%s", dir, name);
	size_t size;
	uint8_t *p = t_file_read(file, &size);

	for (size_t n = 0; n < size; n += step) {
		t_file_write(file, p, n);
		judge(name, "and the rest are cut off", n);
	}
	t_file_write(file, p, size);
	free(p);
	free(file);
}

static void change(const char *name, const uint8_t *p, size_t size, uint64_t at, uint8_t mask)
{
	char *file = t_fmt("%s/%s", dir, name);
	uint8_t *q = malloc(size);

	memcpy(q, p, size);
	q[at] ^= mask;
	t_file_write(file, q, size);
	judge(name, "is changed", at);
	t_file_write(file, p, size);
	free(q);
	free(file);
}

static void test_cuts(void **state)
{
	(void)state;
	begin_damage("qwen3-tied");
	cut("optimizer.pt", getenv("ZCKPT_LONG") ? 7 : 211);
	cut("scheduler.pt", 13);
	cut("trainer_state.json", 5);
	t_dir_end(dir);
}

static void test_flips(void **state)
{
	static const char *const files[] = { "optimizer.pt", "scheduler.pt", "config.json" };
	const char *text = getenv("ZCKPT_SEED");
	uint64_t random = text ? strtoull(text, NULL, 10) : 1;

	(void)state;
	printf("ZCKPT_SEED=%llu\n", (unsigned long long)random);
	begin_damage("llama");
	for (size_t k = 0; k < sizeof(files) / sizeof(files[0]); k++) {
		char *file = t_fmt("%s/%s", dir, files[k]);
		size_t size;
		uint8_t *p = t_file_read(file, &size);

		for (unsigned i = 0; i < (getenv("ZCKPT_LONG") ? EACH_LONG : EACH); i++)
			change(files[k], p, size, t_random(&random) % size,
			       (uint8_t)(1u << t_random(&random) % 8));
		free(p);
		free(file);
	}
	t_dir_end(dir);
}

/* The step's number: it must be that of the optimizer, or there is a word. */
static void test_number(void **state)
{
	char *file, *at;
	size_t size;
	uint8_t *p;

	(void)state;
	begin_damage("llama");
	file = t_fmt("%s/trainer_state.json", dir);
	p = t_file_read(file, &size);
	at = strstr((char *)p, "\"global_step\": 3");
	assert_non_null(at);
	for (size_t i = 0; i < strlen("\"global_step\": 3"); i++)
		for (unsigned bit = 0; bit < 8; bit++)
			change("trainer_state.json", p, size, (uint64_t)(at - (char *)p) + i,
			       (uint8_t)(1u << bit));
	free(p);
	free(file);
	t_dir_end(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_states),
		cmocka_unit_test(test_steps),
		cmocka_unit_test(test_cuts),
		cmocka_unit_test(test_flips),
		cmocka_unit_test(test_number),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
