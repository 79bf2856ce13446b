/*
 * The lowest evaluation of a run: what counts as lower, its text in a step, and the file 'best'.
 *
 * If it is wrong, a run ends while it still improves, or keeps a step that is not its best.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/checkpoint/en_best.h"
#include "tests/lib/fs/t_dir.h"

static void lower_is_less_than_all_before(void **state)
{
	struct en_best b = { 0 };

	(void)state;
	assert_false(en_best_add(&b, 2, NAN));	/* a diverged run has no best step */
	assert_true(b.step == 0 && b.unfallen == 1);
	assert_true(en_best_add(&b, 4, INFINITY));
	assert_true(en_best_add(&b, 6, 3.5));
	assert_false(en_best_add(&b, 8, 3.5));	/* equal is not lower */
	assert_false(en_best_add(&b, 10, NAN));
	assert_false(en_best_add(&b, 12, 4));
	assert_true(b.step == 6 && b.loss == 3.5 && b.unfallen == 3);
	assert_true(en_best_add(&b, 14, nextafter(3.5, 0)));
	assert_true(b.step == 14 && b.unfallen == 0);
	assert_true(en_best_add(&b, 16, -1));
}

static void the_text_has_every_bit(void **state)
{
	const struct en_best b = { .step = 14, .loss = 0.1, .unfallen = 2 };
	const struct en_best odd = { .step = 1, .loss = INFINITY };
	struct ck_buf buf = CK_BUF_INIT(1000);
	struct ckpt_err err = { 0 };

	(void)state;
	assert_int_equal(en_best_write(&b, &buf, &err), 0);
	assert_string_equal(buf.p, "{\"step\": 14, \"loss\": 0.1, \"unfallen\": 2}");
	ck_buf_release(&buf);
	assert_int_equal(en_best_write(&odd, &buf, &err), 0);
	assert_string_equal(buf.p, "{\"step\": 1, \"loss\": \"Infinity\", \"unfallen\": 0}");
	ck_buf_release(&buf);
}

static char *content(const char *path)
{
	char text[64] = "";
	FILE *f = fopen(path, "r");

	assert_non_null(f);
	assert_true(fread(text, 1, sizeof(text) - 1, f) > 0);
	fclose(f);
	return t_fmt("%s", text);
}

static void the_file_is_replaced_whole(void **state)
{
	char *dir = t_dir_new(), *path = t_fmt("%s/best", dir), *half = t_fmt("%s.zckpt-new", path);
	struct ckpt_err err = { 0 };
	struct stat st;
	char *text;

	(void)state;
	assert_int_equal(en_best_set(dir, "global_step100", CKPT_SYNC_DATA, &err), 0);
	assert_int_equal(en_best_set(dir, "global_step8", CKPT_SYNC_NONE, &err), 0);
	text = content(path);
	assert_string_equal(text, "global_step8");
	assert_int_equal(stat(half, &st), -1);
	assert_int_equal(en_best_set(half, "global_step8", CKPT_SYNC_NONE, &err),
			 -CKPT_E_NOTFOUND);
	free(text);
	free(half);
	free(path);
	t_dir_end(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lower_is_less_than_all_before),
		cmocka_unit_test(the_text_has_every_bit),
		cmocka_unit_test(the_file_is_replaced_whole),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
