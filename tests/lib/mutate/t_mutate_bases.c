/* See t_mutate_bases.h. */
#include "tests/lib/mutate/t_mutate_bases.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/include/ckpt.h"
#include "tests/lib/archive/t_arch.h"
#include "tests/lib/fs/t_dir.h"
#include "tests/lib/ops/t_step.h"

#define REAL (T_BYTES | T_TENSORS | T_FILES)
#define TWO_STEPS "deepspeed/ds0.19.8-z2-bf16-w2-twotags/ckpt"

const struct t_format t_formats[] = {
	{ "ZeRO stage 0", "deepspeed/ds0.19.8-z0-bf16-w2/ckpt", NULL, NULL, 0, 1, REAL, NULL },
	{ "ZeRO stage 1", "deepspeed/ds0.19.8-z1-bf16-w2/ckpt", NULL, NULL, 0, 1, REAL, NULL },
	{ "ZeRO stage 2", "deepspeed/ds0.19.8-z2-bf16-w2/ckpt", NULL, NULL, 0, 1, REAL, NULL },
	{ "ZeRO stage 3", "deepspeed/ds0.19.8-z3-bf16-w2/ckpt", NULL, NULL, 0, 1, REAL, NULL },
	{ "BF16_Optimizer", "deepspeed/ds0.19.8-z1-bf16-w2-bf16opt/ckpt",
	  NULL, NULL, 0, 1, REAL, NULL },
	{ "ZeRO stage 2, legacy streams", "deepspeed/ds0.19.8-z2-bf16-w2-legacy/ckpt", NULL, NULL,
	  0, 1, REAL, NULL },
	{ "ZeRO stage 2, a frozen parameter twice", "deepspeed/ds0.19.8-z2-bf16-w2-frozen/ckpt",
	  NULL, NULL, 0, 1, T_TENSORS, "global_step3/mp_rank_00_model_states.pt" },
	{ "ZeRO stage 0, two steps", NULL, NULL, "global_step4/", 0, 1, T_FILES, NULL },
	{ "ZeRO stage 1, two steps of 4 ranks", NULL, NULL, "global_step4/",
	  1, 1, T_FILES, NULL },
	{ "ZeRO stage 2, two steps of 4 ranks", NULL, NULL, "global_step4/",
	  2, 1, T_FILES, NULL },
	{ "ZeRO stage 3, two steps of 4 ranks", NULL, NULL, "global_step4/",
	  3, 1, T_FILES, NULL },
	{ "BF16_Optimizer, two steps of 4 ranks", NULL, NULL, "global_step4/",
	  4, 1, T_FILES, NULL },
	{ "universal", "deepspeed/ds0.19.8-z2-bf16-w2-uci/universal", NULL,
	  "global_step3_universal/", 0, 1, REAL, NULL },
	{ "DCP", "fsdp/t2.11-fsdp2-dcp-w2-sweep/ckpt", NULL, "", 0, 0, T_BYTES, NULL },
	{ "DCP of accelerate", "fsdp/t2.6-fsdp1-accel-w2/ckpt", NULL, "", 0, 0, T_BYTES, NULL },
	{ "torch .pt, zip", "formats/torch/v2.11/state-dict.pt",
	  "state-dict.pt", "", 0, 0, REAL, NULL },
	{ "torch .pt, legacy stream", "formats/torch/v2.11/legacy-module.pt", "legacy-module.pt",
	  "", 0, 0, REAL, NULL },
	{ "safetensors", "deepspeed/ds0.19.8-z2-bf16-w2/expected_fp32.safetensors",
	  "expected_fp32.safetensors", "", 0, 0, REAL, NULL },
	{ "Hugging Face shards, safetensors", "formats/hf/good-config",
	  NULL, "", 0, 0, REAL, NULL },
	{ "Hugging Face shards, .bin", "formats/hf/good-bin", NULL, "", 0, 0, REAL, NULL },
	{ "safetensors with sums", "deepspeed/ds0.19.8-z2-bf16-w2/ckpt",
	  "model.safetensors", "", 0, 0, REAL | T_CONVERTED, NULL },
	{ "Hugging Face shards with sums", "formats/hf/good-config",
	  NULL, "", 0, 0, REAL | T_SHARDED, NULL },
	{ "native", "deepspeed/ds0.19.8-z2-bf16-w2-frozen/ckpt", NULL, NULL, 0, 1,
	  REAL | T_NATIVE, NULL },
};
const size_t t_nformats = sizeof(t_formats) / sizeof(t_formats[0]);

/* What convert or reshard makes of a fixture. */
static void make_result(const char *from, const char *to, unsigned what)
{
	const struct ckpt_run_opts run = {
		.size = sizeof(run), .threads = 1, .sync = CKPT_SYNC_NONE,
	};
	const struct ckpt_convert_opts opts = {
		.size = sizeof(opts), .run = &run, .max_shard_bytes = what & T_SHARDED ? 100 : 0,
	};
	const struct ckpt_reshard_opts native = {
		.size = sizeof(native), .run = &run, .to = CKPT_TO_NATIVE, .stage = -1,
		.round_robin = -1,
	};
	struct ckpt *ck = t_step_open(from, NULL);
	struct ckpt_err err = { 0 };

	if (what & T_NATIVE ? ckpt_reshard(ck, to, &native, NULL, &err) :
			      ckpt_convert(ck, to, &opts, NULL, &err))
		t_die("what is made of %s: %s: %s", from, err.where, err.msg);
	ckpt_close(ck);
}

/* One of the two steps, for so many ranks of that stage, into the folder 'to'. */
static void make_step(const char *tag, int stage, uint32_t world, const char *to)
{
	const struct ckpt_run_opts run = {
		.size = sizeof(run), .threads = 1, .sync = CKPT_SYNC_NONE,
	};
	const struct ckpt_reshard_opts opts = {
		.size = sizeof(opts), .run = &run, .world = world, .stage = stage,
		.round_robin = -1,
	};
	char *from = t_fixture(TWO_STEPS);
	struct ckpt *ck = t_step_open(from, tag);
	struct ckpt_err err = { 0 };

	if (ckpt_reshard(ck, to, &opts, NULL, &err))
		t_die("%s to stage %d: %s: %s", tag, stage, err.where, err.msg);
	ckpt_close(ck);
	free(from);
}

static void other_world(struct t_files *out, const struct t_format *f, uint32_t world,
			const char *dir)
{
	char *to = t_fmt("%s/other", dir);

	make_step("global_step4", f->stage, world, to);
	t_files_read(out, to);
	t_dir_remove(to);
	free(to);
}

/*
 * The first tensor of frozen_param_fragments shares its storage with 'module' where DeepSpeed ran
 * on the CPU.  From a GPU both are copied, so it gets a storage of its own, as there.
 */
static void split_frozen(struct t_base *b, const char *name)
{
	static const char begin[] = "frozen_param_fragments", at_key[] = "((h";
	struct t_file *f = t_files_find(&b->files, name);
	struct t_arch *a = t_alloc(sizeof(*a));
	const struct t_arch_member *pkl, *was = NULL;
	size_t n, storages = 0, at;
	char *key, *path = t_fmt("%s/%s", b->dir, name), *rest;
	uint8_t *p, *text, *memo;

	if (!f || !t_arch_parse(a, f->p, f->n))
		t_die("%s is no archive", name);
	pkl = t_arch_find(a, "data.pkl");
	p = memmem(a->p + pkl->data, pkl->n, begin, strlen(begin));
	p = p ? memmem(p, (size_t)(a->p + pkl->data + pkl->n - p), at_key, strlen(at_key)) : NULL;
	if (!p)
		t_die("%s has no frozen parameters", name);
	memo = a->p + pkl->data;	/* X 01 00 00 00 KEY q NUMBER: a key of one digit */
	for (; memo < p && !(memo[0] == 'X' && memo[1] == 1 && memo[6] == 'q' && memo[7] == p[7]);
	     memo++)
		;
	rest = t_fmt("data/%c", memo[5]);
	was = t_arch_find(a, rest);
	free(rest);
	if (memo == p || !was)
		t_die("%s: the storage of a frozen parameter is not found", name);
	for (size_t i = 0; i < a->count; i++)
		storages += !strncmp(a->m[i].rest, "data/", 5);
	rest = t_fmt("data/%zu", storages);
	key = t_fmt("X%c...%s", (int)strlen(rest) - 5, rest + 5);
	n = strlen(key);
	memset(key + 2, 0, 3);
	at = (size_t)(p + 6 - a->p) - pkl->data;
	text = t_alloc(pkl->n + n);
	memcpy(text, a->p + pkl->data, at);
	memcpy(text + at, key, n);
	memcpy(text + at + n, a->p + pkl->data + at + 2, pkl->n - at - 2);
	const struct t_arch_new made[] = {
		{ .number = (size_t)(pkl - a->m), .p = text, .n = pkl->n - 2 + n },
		{ .number = T_ARCH_MOST, .rest = rest, .p = a->p + was->data, .n = was->n },
	};

	p = t_arch_build(a, 64, NULL, made, 2, &n);
	t_file_write(path, p, n);
	b->copy_file = name;
	b->copy_member = rest;
	free(p);
	free(text);
	free(key);
	free(path);
	free(a);
}

/* Earlier first, so that 'latest' names the later one. */
static void make_steps(struct t_base *b, const struct t_format *f, const char *dir,
		       const char *ckpt)
{
	make_step("global_step2", f->stage, 4, ckpt);
	t_files_read(&b->older, ckpt);
	make_step("global_step4", f->stage, 4, ckpt);
	other_world(&b->wider, f, 5, dir);
	other_world(&b->narrower, f, 2, dir);
}

void t_base_begin(struct t_base *b, const struct t_format *f, const char *dir)
{
	char *ckpt = t_fmt("%s/ckpt", dir);

	*b = (struct t_base){ .dir = ckpt, .open = f->open ? f->open : "" };
	if (f->from) {
		char *from = t_fixture(f->from), *to = f->open ? t_fmt("%s/%s", ckpt, f->open) :
							       t_fmt("%s", ckpt);

		if (f->open)
			t_dir_make(ckpt);
		if (f->what & (T_CONVERTED | T_SHARDED | T_NATIVE))
			make_result(from, to, f->what);
		else
			t_dir_copy(from, to);
		free(from);
		free(to);
	} else {
		make_steps(b, f, dir, ckpt);
	}
	if (f->step) {
		b->step = t_fmt("%s", f->step);
	} else {
		char *path = t_fmt("%s/latest", ckpt), *text;
		size_t n;

		text = (char *)t_file_read(path, &n);
		if (!text)
			t_die("cannot read %s", path);
		b->step = t_fmt("%s/", text);
		free(text);
		free(path);
	}
	t_files_read(&b->files, ckpt);
	if (f->split) {
		split_frozen(b, f->split);
		t_files_free(&b->files);
		t_files_read(&b->files, ckpt);
	}
}

void t_base_end(struct t_base *b)
{
	t_files_free(&b->files);
	t_files_free(&b->older);
	t_files_free(&b->wider);
	t_files_free(&b->narrower);
	free((char *)b->dir);
	free((char *)b->step);
	free((char *)b->copy_member);
}
