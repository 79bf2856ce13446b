/*
 * test_verify.c -- verify: every fixture is whole, and no flipped bit goes unseen.
 *
 * If this fails, a user is told that a damaged checkpoint is whole, deletes the good ones, and
 * learns of it weeks later; or is told that a whole one is damaged, and throws it away.
 *
 * The flips are in every 7th byte of a file, so over the entries of an archive they meet every
 * field.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/run/ck_ckpt.h"
#include "libckpt/tensor/ck_extents.h"
#include "tests/lib/fs/t_dir.h"
#include "tests/lib/mutate/t_damage_file.h"
#include "tests/lib/ops/t_step.h"

#define MANIFEST "zckpt-manifest.json"

static char *root_of(const char *name)
{
	const char *root = getenv("ZCKPT_FIXTURES");

	return t_fmt("%s/deepspeed/%s", root && *root ? root : "build/fixtures", name);
}

/* Verifies; the errors and warnings found, or -1 with 'err' if it cannot be opened. */
static int verify(const char *path, unsigned flags, uint32_t threads, struct ckpt **ck_out,
		  struct ckpt_verified *v, struct ckpt_err *err)
{
	const struct ckpt_run_opts run = {
		.size = sizeof(run), .threads = threads, .sync = CKPT_SYNC_NONE,
	};
	const struct ckpt_verify_opts opts = { sizeof(opts), &run, flags };
	int n = 0;

	memset(err, 0, sizeof(*err));
	if (ckpt_open(&path, 1, NULL, ck_out, err))
		return -1;
	if (ckpt_verify(*ck_out, &opts, v, err)) {
		fprintf(stderr, "%s: %s: %s\n", path, err->where, err->msg);
		fail();
	}
	for (uint64_t i = 0; i < (*ck_out)->findings.n; i++)
		n += (*ck_out)->findings.list[i].severity > CKPT_INFO;
	return n;
}

/* Whether anything at all is said about what lies at 'path'. */
static int is_seen(const char *path, unsigned flags)
{
	struct ckpt_verified v;
	struct ckpt_finding f;
	struct ckpt_err err;
	struct ckpt *ck;
	const int n = verify(path, flags, 1, &ck, &v, &err);

	if (n < 0)
		return ckpt_verify_open_finding(&err, &f) || err.code != CKPT_OK;
	ckpt_close(ck);
	return n > 0;
}

/* -------------------------------------------------------------------- fixtures */

/* What may be said of a whole fixture besides notes. */
static int is_fair(const struct ckpt_finding *f)
{
	return f->severity == CKPT_INFO || !strcmp(f->id, "NOT_IN_CHECKPOINT") ||
	       !strcmp(f->id, "LATEST_ABSENT") || !strcmp(f->id, "ALIAS_DOUBTFUL");
}

static int judge(const char *path, unsigned flags, uint64_t *read_out)
{
	struct ckpt_verified v = { 0 };
	struct ckpt_err err;
	struct ckpt *ck;
	int bad = 0;

	if (verify(path, flags, 2, &ck, &v, &err) < 0) {
		if (err.code != CKPT_E_LAYOUT)
			print_error("%s: %s: %s\n", path, err.where, err.msg);
		return err.code == CKPT_E_LAYOUT ? -1 : 1;
	}
	for (uint64_t i = 0; i < ck->findings.n; i++) {
		const struct ckpt_finding *f = &ck->findings.list[i];

		if (is_fair(f))
			continue;
		bad++;
		print_error("%s: %s: %s: %s\n", path, f->id, f->where, f->text);
	}
	if (flags && v.read_bytes < v.file_bytes && !strstr(path, "oddtag"))
		*read_out = v.read_bytes;
	ckpt_close(ck);
	return bad;
}

static void every_fixture_is_whole(void **state)
{
	char *dir = root_of(""), **names = t_dir_list(dir, NULL);
	int whole = 0, refused = 0, bad = 0;
	uint64_t less = 0;

	(void)state;
	for (size_t i = 0; names[i]; i++) {
		char *path = t_fmt("%s%s/ckpt", dir, names[i]);

		if (t_is_dir(path)) {
			const int quick = judge(path, 0, &less);
			const int full = judge(path, CKPT_VERIFY_FULL, &less);

			refused += full < 0;
			whole += !quick && !full;
			bad += quick > 0 || full > 0;
		}
		free(path);
	}
	print_message("%d whole, %d of a layout that is refused\n", whole, refused);
	assert_int_equal(bad, 0);
	assert_true(whole >= 150);
	assert_true(refused <= 8);
	assert_int_equal(less, 0);	/* --full reads every byte */
	t_list_free(names);
	free(dir);
}

/* ----------------------------------------------------------------------- flips */

/* The first file of a step whose name has 'part'. */
static char *file_with(const char *dir, const char *part)
{
	char **names = t_dir_list(dir, NULL), *path = NULL;

	for (size_t i = 0; names[i] && !path; i++)
		if (strstr(names[i], part))
			path = t_fmt("%s/%s", dir, names[i]);
	t_list_free(names);
	if (!path)
		t_die("%s holds no %s", dir, part);
	return path;
}

struct flips {
	uint64_t made, unseen;
	char places[512];
};

/* One bit of every 'step'th byte; the file is as it was afterwards. */
static void flip_all(const char *ckpt, const char *file, unsigned flags, size_t step,
		     struct flips *out)
{
	size_t n;
	uint8_t *b = t_file_read(file, &n);

	memset(out, 0, sizeof(*out));
	for (size_t i = 0; i < n; i += step) {
		const uint8_t mask = (uint8_t)(1u << (i * 5 % 8));

		b[i] ^= mask;
		t_file_write(file, b, n);
		b[i] ^= mask;
		out->made++;
		if (is_seen(ckpt, flags))
			continue;
		snprintf(out->places + strlen(out->places),
			 sizeof(out->places) - strlen(out->places), " %zu.%02x", i, mask);
		out->unseen++;
	}
	t_file_write(file, b, n);
	free(b);
}

static void flips_in(const char *fixture, const char *part, size_t step, uint64_t most_unseen)
{
	char *dir = t_step_copy(fixture), *ckpt = t_fmt("%s/ckpt", dir);
	char *tag = t_fmt("%s/global_step3", ckpt), *file = file_with(tag, part);
	struct ckpt_verified v;
	struct ckpt_err err;
	struct ckpt *ck;
	struct flips f;

	flip_all(ckpt, file, CKPT_VERIFY_FULL, step, &f);
	print_message("%s %s: %llu flips, %llu unseen without a manifest:%s\n", fixture, part,
		      (unsigned long long)f.made, (unsigned long long)f.unseen, f.places);
	assert_true(f.unseen <= most_unseen);
	assert_int_equal(verify(ckpt, CKPT_VERIFY_WRITE_MANIFEST, 1, &ck, &v, &err), 0);
	assert_int_equal(v.manifest, 2);
	ckpt_close(ck);
	flip_all(ckpt, file, CKPT_VERIFY_FULL, step * 3, &f);
	print_message("%s %s: %llu flips, %llu unseen with a manifest:%s\n", fixture, part,
		      (unsigned long long)f.made, (unsigned long long)f.unseen, f.places);
	assert_true(f.made && !f.unseen);
	t_dir_remove(dir);
	free(file);
	free(tag);
	free(ckpt);
	free(dir);
}

static void no_flip_in_an_archive_goes_unseen(void **state)
{
	(void)state;
	flips_in("ds0.19.8-z2-bf16-w3", "zero_pp_rank_2_", 7, 0);
	flips_in("ds0.19.8-z3-bf16-w2", "zero_pp_rank_1_mp_rank_00_model", 7, 0);
}

/* ------------------------------------------------------------- copies and padding */

static void flip_at(const char *file, uint64_t at)
{
	size_t n;
	uint8_t *b = t_file_read(file, &n);

	assert_true(b && at < n);
	b[at] ^= 1;
	t_file_write(file, b, n);
	free(b);
}

/* The finding 'id' is there when, and only when, that bit is flipped. */
static void expect_after_flip(const char *ckpt, const char *file, uint64_t at, const char *id,
			      uint32_t threads)
{
	struct ckpt_verified v;
	struct ckpt_err err;
	struct ckpt *ck;

	assert_true(verify(ckpt, CKPT_VERIFY_FULL, threads, &ck, &v, &err) >= 0);
	assert_null(t_step_finding(ck, id, ""));
	ckpt_close(ck);
	flip_at(file, at);
	assert_true(verify(ckpt, CKPT_VERIFY_FULL, threads, &ck, &v, &err) >= 0);
	assert_non_null(t_step_finding(ck, id, ""));
	assert_non_null(t_step_finding(ck, "CRC_WRONG", ""));
	ckpt_close(ck);
	flip_at(file, at);
}

static void padding_that_is_not_zero_is_named(void **state)
{
	static const char *const steps[] = {
		"ds0.19.8-z2-bf16-w3", "ds0.19.8-z1-bf16-w3-paramalign",
		"ds0.19.8-z1-bf16-w4-bf16opt", "ds0.19.8-z2-fp32-w4-paramalign",
	};
	int looked = 0;

	(void)state;
	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		char *dir = t_step_copy(steps[i]), *ckpt = t_fmt("%s/ckpt", dir);
		struct ckpt *ck = t_step_open(ckpt, NULL);

		for (uint64_t k = 0; k < ck->ix.npads; k += 1 + ck->ix.npads / 8) {
			const struct ck_pad *p = &ck->ix.pad[k];

			looked++;
			expect_after_flip(ckpt, ck->ix.source[p->source].path,
					  p->off + p->bytes - 1, "PADDING_NOT_ZERO", 1 + k % 2);
		}
		ckpt_close(ck);
		t_dir_remove(dir);
		free(ckpt);
		free(dir);
	}
	print_message("%d paddings flipped\n", looked);
	assert_true(looked >= 12);
}

/* Every stored weight beside a master: its element in the middle, which quick does not read. */
static void every_element_of_a_weight_counts(void **state)
{
	char *dir = t_step_copy("ds0.19.8-z2-bf16-w3"), *ckpt = t_fmt("%s/ckpt", dir);
	struct ckpt *ck = t_step_open(ckpt, NULL);
	int looked = 0;

	(void)state;
	for (uint32_t i = 0; i < ck->ix.ntensors; i++) {
		const uint32_t w = ck_index_state_find(&ck->ix, i, "weight");
		const uint32_t m = ck_index_state_find(&ck->ix, i, "master");
		const struct ck_extent *e;

		if (w == CK_NONE || m == CK_NONE || !ck->ix.tensor[i].numel)
			continue;
		e = ck_extent_stored(&ck->ix, &ck->ix.state[w], 0);
		looked++;
		expect_after_flip(ckpt, ck->ix.source[e->source].path,
				  e->off + ck->ix.tensor[i].numel / 2 * 2,
				  "MASTER_WEIGHT_MISMATCH", 1 + i % 3);
	}
	assert_true(looked >= 5);
	ckpt_close(ck);
	t_dir_remove(dir);
	free(ckpt);
	free(dir);
}

/* Copies: of buffers over ranks a note, of anything else an error. */
static void copies_are_compared_to_their_ends(void **state)
{
	char *dir = t_step_copy("ds0.19.8-z3-bf16-w2"), *ckpt = t_fmt("%s/ckpt", dir);
	struct ckpt *ck = t_step_open(ckpt, NULL);
	int looked = 0;

	(void)state;
	for (uint32_t i = 0; i < ck->ix.ntensors; i++) {
		const uint32_t w = ck_index_state_find(&ck->ix, i, "weight");
		const struct ck_extent *e;

		if (w == CK_NONE || ck->ix.state[w].replica == CK_NONE || !ck->ix.tensor[i].numel)
			continue;
		e = ck_extent_stored(&ck->ix, &ck->ix.state[ck->ix.state[w].replica], 0);
		looked++;
		expect_after_flip(ckpt, ck->ix.source[e->source].path,
				  e->off + e->count * (ckpt_dtype_bits(e->dtype) / 8) - 1,
				  "BUFFERS_DIFFER", 2);
	}
	print_message("%d copies flipped\n", looked);
	assert_true(looked >= 3);
	ckpt_close(ck);
	t_dir_remove(dir);
	free(ckpt);
	free(dir);
}

/* Of what is no buffer a copy that differs is an error.  DeepSpeed on a GPU writes frozen
 * parameters twice; here a buffer stands for one. */
static void a_parameter_that_differs_from_its_copy_is_an_error(void **state)
{
	const struct ckpt_verify_opts opts = { .size = sizeof(opts), .flags = CKPT_VERIFY_FULL };
	char *dir = t_step_copy("ds0.19.8-z3-bf16-w3"), *ckpt = t_fmt("%s/ckpt", dir);

	(void)state;
	for (int flipped = 0; flipped < 2; flipped++) {
		struct ckpt *ck = t_step_open(ckpt, NULL);
		const struct ck_extent *e;
		struct ckpt_verified v;
		uint32_t tensor, s;

		assert_true(ck_index_find(&ck->ix, "pos", &tensor));
		ck->ix.tensor[tensor].role = CKPT_ROLE_FROZEN;
		s = ck->ix.state[ck_index_state_find(&ck->ix, tensor, "weight")].replica;
		s = ck->ix.state[s].replica;	/* the third copy */
		assert_int_not_equal(s, CK_NONE);
		assert_int_equal(ckpt_verify(ck, &opts, &v, NULL), 0);
		assert_true(v.copies >= 2 * ck->ix.tensor[tensor].numel);
		assert_int_equal(t_step_finding(ck, "REPLICA_DIFFERS", "element 7 ") != NULL,
				 flipped);
		e = ck_extent_stored(&ck->ix, &ck->ix.state[s], 0);
		flip_at(ck->ix.source[e->source].path, e->off + 7 * sizeof(float));
		ckpt_close(ck);
	}
	t_dir_remove(dir);
	free(ckpt);
	free(dir);
}

/* With a manifest no flip goes unseen, also where there is no checksum. */
static void flips_beside_a_manifest(const char *dst, const char *file)
{
	char *dir = t_dir_new(), *src = root_of("ds0.19.8-z2-bf16-w2/ckpt");
	char *out = t_fmt("%s/%s", dir, dst), *path = t_fmt("%s/%s", dir, file);
	struct ckpt *ck = t_step_open(src, NULL);
	struct ckpt_verified v;
	struct ckpt_err err = { 0 };
	struct flips f;

	assert_int_equal(ckpt_convert(ck, out, NULL, NULL, &err), 0);
	ckpt_close(ck);
	assert_int_equal(verify(out, CKPT_VERIFY_WRITE_MANIFEST, 2, &ck, &v, &err), 0);
	assert_int_equal(v.manifest, 2);
	ckpt_close(ck);
	flip_all(out, path, CKPT_VERIFY_FULL, 5, &f);
	assert_true(f.made > 500 && !f.unseen);
	if (strstr(file, ".safetensors")) {	/* shorter than what quick hashes */
		flip_all(out, path, 0, 29, &f);
		assert_true(f.made && !f.unseen);
	}
	t_dir_remove(dir);
	free(path);
	free(out);
	free(src);
	free(dir);
}

static void no_flip_goes_unseen_beside_a_manifest(void **state)
{
	(void)state;
	flips_beside_a_manifest("m.safetensors", "m.safetensors");
	flips_beside_a_manifest("hf", "hf/model.safetensors");
	flips_beside_a_manifest("m.pt", "m.pt");
	/* the manifest itself */
	flips_beside_a_manifest("m.safetensors", "m.safetensors.zckpt-manifest.json");
}

static void a_canceled_run_says_so(void **state)
{
	const volatile int cancel = 1;
	const struct ckpt_run_opts run = { .size = sizeof(run), .cancel = &cancel };
	const struct ckpt_verify_opts opts = { sizeof(opts), &run, CKPT_VERIFY_FULL };
	char *path = root_of("ds0.19.8-z3-bf16-w2/ckpt");
	struct ckpt *ck = t_step_open(path, NULL);
	struct ckpt_verified v;
	struct ckpt_err err = { 0 };

	(void)state;
	assert_int_equal(ckpt_verify(ck, &opts, &v, &err), -CKPT_E_CANCELED);
	assert_int_equal(err.code, CKPT_E_CANCELED);
	ckpt_close(ck);
	free(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_fixture_is_whole),
		cmocka_unit_test(no_flip_in_an_archive_goes_unseen),
		cmocka_unit_test(padding_that_is_not_zero_is_named),
		cmocka_unit_test(every_element_of_a_weight_counts),
		cmocka_unit_test(copies_are_compared_to_their_ends),
		cmocka_unit_test(a_parameter_that_differs_from_its_copy_is_an_error),
		cmocka_unit_test(no_flip_goes_unseen_beside_a_manifest),
		cmocka_unit_test(a_canceled_run_says_so),
	};

	t_dir_in_memory();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
