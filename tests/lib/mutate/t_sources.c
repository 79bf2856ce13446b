/* See t_sources.h. */
#include "tests/lib/mutate/t_sources.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/ck_base.h"
#include "libckpt/include/ckpt.h"
#include "tests/lib/fs/t_dir.h"
#include "tests/lib/ops/t_convert.h"
#include "tests/lib/ops/t_load.h"
#include "tests/lib/ops/t_step.h"

#define STEP "deepspeed/ds0.19.8-z3-bf16-w2-lora/ckpt"
#define LEGACY "formats/torch/v2.6/legacy-module.pt"

static const struct t_source forms[T_NFORMS] = {
	[T_FORM_ST] = { .form = "safetensors", .name = "m.safetensors" },
	[T_FORM_ST_SUMS] = { .form = "safetensors with sums", .name = "m.safetensors" },
	[T_FORM_HF] = { .form = "HF folder", .name = "hf" },
	[T_FORM_PT] = { .form = ".pt", .name = "m.pt" },
	[T_FORM_PT_BARE] = { .form = ".pt without CRCs", .name = "bare.pt" },
	[T_FORM_PT_LEGACY] = { .form = "legacy .pt", .name = "legacy.pt" },
	[T_FORM_DEEPSPEED] = { .form = "DeepSpeed", .name = "step", .is_step = true },
	[T_FORM_UNIVERSAL] = { .form = "universal", .name = "step", .is_step = true },
	[T_FORM_NATIVE] = { .form = "native", .name = "step", .is_step = true },
	[T_FORM_PACK] = { .form = "pack", .name = "m.tar.zst", .is_step = true },
};

/* ---------------------------------------------------------------- one form from another */

static void must(int rc, const struct ckpt_err *err)
{
	if (rc)
		t_die("a source cannot be made: %s: %s", err->where, err->msg);
}

static void convert_to(const char *from, const char *to, uint64_t shard, unsigned flags)
{
	const struct ckpt_convert_opts o = {
		.size = sizeof(o), .dtype = CKPT_KEEP, .max_shard_bytes = shard, .flags = flags,
	};

	t_convert(from, to, &o, 0, NULL, NULL);
}

static void shard_to(const char *weights, const char *order, const char *to)
{
	const struct ckpt_shard_opts o = {
		.size = sizeof(o), .world = 2, .stage = 2, .round_robin = -1, .order_path = order,
		.dtype = CKPT_F32, .lr = 1e-3, .first_lr = NAN, .weight_decay = NAN, .beta1 = NAN,
		.beta2 = NAN, .eps = NAN,
	};
	struct ckpt_err err = { 0 };
	struct ckpt *ck = t_step_open(weights, NULL);

	must(ckpt_shard(ck, to, &o, NULL, &err), &err);
	ckpt_close(ck);
}

static void pack_to(const char *step, const char *to)
{
	const struct ckpt_pack_opts o = { .size = sizeof(o) };
	struct ckpt_err err = { 0 };
	struct ckpt *ck = t_step_open(step, NULL);

	must(ckpt_pack(ck, to, &o, NULL, &err), &err);
	ckpt_close(ck);
}

/* Every value of a file without checksums is another one; its sizes and names are not. */
static void change_values(const char *path)
{
	struct ckpt *ck = t_step_open(path, NULL);
	struct ckpt_extent_info e;
	size_t n;
	uint8_t *p = t_file_read(path, &n);

	for (uint64_t i = 0; !ckpt_extent_get(ck, i, 0, 0, &e, NULL); i++)
		for (uint64_t k = 0; k < e.count * (ckpt_dtype_bits(e.dtype) / 8); k++)
			p[e.offset + k] ^= 1;
	ckpt_close(ck);
	t_file_write(path, p, n);
	free(p);
}

/* As torch writes with set_crc32_options(False). */
static void drop_crcs(const char *path)
{
	size_t n, at;
	uint8_t *p = t_file_read(path, &n);

	for (at = n - 22; memcmp(p + at, "PK\5\6", 4); at--)
		;
	for (at = ck_le32(p + at + 16); !memcmp(p + at, "PK\1\2", 4);
	     at += 46u + ck_le16(p + at + 28) + ck_le16(p + at + 30) + ck_le16(p + at + 32)) {
		ck_put_le32(p + at + 16, 0);
		ck_put_le32(p + ck_le32(p + at + 42) + 14, 0);
	}
	t_file_write(path, p, n);
	free(p);
}

/* ---------------------------------------------------------------- two saves in all forms */

/* 'dir' gets a folder for each form, named by its number. */
static void make_forms(const char *dir, const char *weights, const char *legacy, const char *order)
{
	char *path[T_NFORMS];

	for (int f = 0; f < T_NFORMS; f++) {
		char *of = t_fmt("%s/%d", dir, f);

		t_dir_make(of);
		path[f] = t_fmt("%s/%s", of, forms[f].name);
		free(of);
	}
	t_dir_copy(weights, path[T_FORM_ST]);
	convert_to(weights, path[T_FORM_ST_SUMS], 0, 0);
	convert_to(weights, path[T_FORM_HF], 4096, CKPT_CONVERT_NO_SUMS);
	convert_to(weights, path[T_FORM_PT], 0, 0);
	t_dir_copy(path[T_FORM_PT], path[T_FORM_PT_BARE]);
	drop_crcs(path[T_FORM_PT_BARE]);
	t_dir_copy(legacy, path[T_FORM_PT_LEGACY]);
	shard_to(weights, order, path[T_FORM_DEEPSPEED]);
	t_load_reshard(path[T_FORM_DEEPSPEED], path[T_FORM_UNIVERSAL], CKPT_TO_UNIVERSAL, 0);
	t_load_reshard(path[T_FORM_DEEPSPEED], path[T_FORM_NATIVE], CKPT_TO_NATIVE, 0);
	if (ckpt_has_packs())
		pack_to(path[T_FORM_DEEPSPEED], path[T_FORM_PACK]);
	for (int f = 0; f < T_NFORMS; f++)
		free(path[f]);
}

/* In 'save'; with 'change', every value of it is another one. */
static void make_save(const char *dir, const char *step, const char *legacy, bool change,
		      const char *save)
{
	char *weights = t_fmt("%s/w.safetensors", dir), *old = t_fmt("%s/l.pt", dir);
	char *order = t_fmt("%s/order", dir);

	t_step_weights(step, weights, CKPT_CONVERT_NO_SUMS);
	t_step_order(step, order);
	t_dir_copy(legacy, old);
	if (change) {
		change_values(weights);
		change_values(old);
	}
	make_forms(save, weights, old, order);
	t_dir_remove(weights);
	t_dir_remove(old);
	free(weights);
	free(old);
	free(order);
}

void t_sources_make(const char *dir, struct t_source out[T_NFORMS])
{
	char *step = t_fixture(STEP), *legacy = t_fixture(LEGACY), *save = t_fmt("%s/save", dir);

	memcpy(out, forms, sizeof(forms));
	for (int i = 0; i < 2; i++) {
		t_dir_make(save);
		make_save(dir, step, legacy, i, save);
		for (int f = 0; f < T_NFORMS; f++) {
			char *of = t_fmt("%s/%d", save, f);

			t_tree_take(of, i ? &out[f].is : &out[f].was);
			free(of);
		}
		t_dir_remove(save);
	}
	free(step);
	free(legacy);
	free(save);
}

void t_sources_free(struct t_source s[T_NFORMS])
{
	for (int f = 0; f < T_NFORMS; f++) {
		t_tree_free(&s[f].was);
		t_tree_free(&s[f].is);
	}
}
