/*
 * test_buffers.c -- buffers that differ over ranks.
 *
 * At stage 3 every rank saves its own buffers.  If nobody looked, a user with running
 * statistics would get rank 0's and never learn that there were others.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/run/ck_ckpt.h"
#include "libckpt/tensor/ck_extents.h"
#include "tests/lib/fs/t_dir.h"
#include "tests/lib/ops/t_step.h"

/* Flip a bit of element 0 of the second copy of buffer 'name'. */
static void change_copy(const char *path, const char *name)
{
	struct ckpt *ck = t_step_open(path, NULL);
	const struct ck_extent *e;
	uint32_t tensor, s;
	uint8_t *bytes;
	char *file;
	size_t n;

	assert_true(ck_index_find(&ck->ix, name, &tensor));
	s = ck_index_state_find(&ck->ix, tensor, "weight");
	assert_int_not_equal(ck->ix.state[s].replica, CK_NONE);
	e = ck_extent_stored(&ck->ix, &ck->ix.state[ck->ix.state[s].replica], 0);
	file = t_fmt("%s", ck->ix.source[e->source].path);
	bytes = t_file_read(file, &n);
	assert_true(bytes && e->off < n);
	bytes[e->off] ^= 1;
	t_file_write(file, bytes, n);
	free(bytes);
	free(file);
	ckpt_close(ck);
}

static uint64_t root_of(struct ckpt *ck)
{
	struct ckpt_digests d;
	uint64_t v;

	assert_int_equal(ckpt_digest(ck, NULL, &d, NULL), 0);
	v = strtoull(d.root + 16, NULL, 16);
	ckpt_digests_free(&d);
	return v;
}

static void a_buffer_that_differs_is_named_and_rank_0_counts(void **state)
{
	char *dir = t_step_copy("ds0.19.8-z3-bf16-w2");
	char *path = t_fmt("%s/ckpt", dir);
	struct ckpt *ck = t_step_open(path, NULL);
	const uint64_t before = root_of(ck);

	(void)state;
	assert_null(t_step_finding(ck, "BUFFERS_DIFFER", ""));
	ckpt_close(ck);
	change_copy(path, "pos");
	ck = t_step_open(path, NULL);
	assert_true(root_of(ck) == before);
	assert_non_null(t_step_finding(ck, "BUFFERS_DIFFER", "rank 1"));
	assert_null(t_step_finding(ck, "BUFFERS_DIFFER", "rank 2"));
	ckpt_close(ck);
	t_dir_remove(dir);
	free(path);
	free(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_buffer_that_differs_is_named_and_rank_0_counts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
