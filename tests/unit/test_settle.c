/*
 * A conversion that replaced a folder was killed, and another verb comes to its destination. If
 * this fails, files that were nobody's to remove (a tokenizer, a README) are lost with the old
 * weights.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libckpt/base/ck_sys.h"
#include "libckpt/include/ckpt_shard.h"
#include "tests/lib/fs/t_dir.h"
#include "tests/lib/ops/t_convert.h"

struct scene {
	char *dir, *src, *dst, *partial, *readme, *old, *order;
};

static struct scene open_scene(void)
{
	static const struct t_part small[] = {
		{ .name = "w", .dtype = "F32", .rows = 4, .cols = 4 }, { .name = NULL },
	};
	struct scene s = { .dir = t_dir_new() };

	s.src = t_fmt("%s/in.safetensors", s.dir);
	s.dst = t_fmt("%s/out", s.dir);
	s.partial = t_fmt("%s/out.zckpt-partial", s.dir);
	s.readme = t_fmt("%s/README", s.dst);
	s.old = t_fmt("%s/model-00001-of-00002.safetensors", s.dst);
	s.order = t_fmt("%s/order", s.dir);
	t_convert_source(s.src, small);
	t_file_write(s.order, "w\n", 2);
	t_dir_make(s.dst);
	t_file_write(s.readme, "mine", 4);
	t_file_write(s.old, "old", 3);
	return s;
}

static void close_scene(struct scene *s)
{
	t_dir_remove(s->dir);
	free(s->dir);
	free(s->src);
	free(s->dst);
	free(s->partial);
	free(s->readme);
	free(s->old);
	free(s->order);
}

static int (*real_rename)(const char *from, const char *to, unsigned flags);

static int rename_and_die(const char *from, const char *to, unsigned flags)
{
	_exit(real_rename(from, to, flags) ? 1 : 9);
}

/* Killed when the old folder and the new one have just traded places. */
static void die_in_exchange(const struct scene *s)
{
	struct ckpt_run_opts run = { .size = sizeof(run), .threads = 1 };
	const struct ckpt_convert_opts opts = {
		.size = sizeof(opts), .run = &run, .flags = CKPT_WRITE_FORCE,
	};
	const pid_t pid = fork();
	int status;

	if (!pid) {
		real_rename = ck_sys.rename;
		ck_sys.rename = rename_and_die;
		t_convert(s->src, s->dst, &opts, 0, NULL, NULL);
		_exit(1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 9);
	assert_false(t_exists(s->readme));
}

static void check_kept(const struct scene *s)
{
	assert_true(t_exists(s->readme));
	assert_false(t_exists(s->old));
	assert_false(t_exists(s->partial));
}

static void settling_keeps_what_the_conversion_would(void **state)
{
	struct scene s = open_scene();
	int settled = 0;

	(void)state;
	die_in_exchange(&s);
	assert_int_equal(ckpt_settle(s.dst, CKPT_SYNC_NONE, &settled, NULL), 0);
	assert_int_equal(settled, 1);
	check_kept(&s);
	close_scene(&s);
}

static void a_step_that_goes_there_keeps_it_too(void **state)
{
	struct scene s = open_scene();
	struct ckpt_run_opts run = { .size = sizeof(run), .threads = 1 };
	const struct ckpt_shard_opts o = {
		.size = sizeof(o), .run = &run, .world = 1, .stage = 2, .order_path = s.order,
		.lr = 1e-3, .first_lr = NAN, .weight_decay = NAN, .beta1 = NAN, .beta2 = NAN,
		.eps = NAN,
	};
	struct ckpt *ck;
	struct ckpt_err err = { 0 };

	(void)state;
	die_in_exchange(&s);
	ck = t_convert_open(s.src);
	ckpt_shard(ck, s.dst, &o, NULL, &err);
	if (err.code != CKPT_E_EXISTS)
		fail_msg("%s: %s", err.where, err.msg);
	check_kept(&s);
	ckpt_close(ck);
	close_scene(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(settling_keeps_what_the_conversion_would),
		cmocka_unit_test(a_step_that_goes_there_keeps_it_too),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
