/* See t_stage.h. */
#include "tests/lib/ops/t_stage.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "tests/lib/fs/t_dir.h"

struct t_scene t_scene_open(const char *name)
{
	struct t_scene s = { .dir = t_dir_new() };

	s.dst = t_fmt("%s/%s", s.dir, name);
	s.partial = t_fmt("%s.zckpt-partial", s.dst);
	s.rec = t_fmt("%s/part-00000.rec", s.partial);
	return s;
}

void t_scene_close(struct t_scene *s)
{
	t_dir_remove(s->dir);
	free(s->dir);
	free(s->dst);
	free(s->partial);
	free(s->rec);
}

struct ck_stage_opts t_stage_opts(const struct t_scene *s, bool is_dir)
{
	return (struct ck_stage_opts){
		.dst = s->dst, .is_dir = is_dir, .nparts = 1, .nunits = T_UNITS,
		.total_bytes = T_UNITS * T_UNIT, .plan = { 1, 2 }, .fingerprint = { 3, 4 },
	};
}

void t_stage_fill(char *p, uint64_t unit)
{
	memset(p, (int)('a' + unit), T_UNIT);
}

void t_stage_unit(struct ck_stage *stage, uint32_t file, uint64_t unit)
{
	char p[T_UNIT];

	t_stage_fill(p, unit);
	assert_int_equal(ck_stage_write(stage, file, unit * T_UNIT, p, T_UNIT, NULL), 0);
	assert_int_equal(ck_stage_note(stage, unit, ck_hash128(p, T_UNIT), NULL), 0);
}

struct ck_stage *t_stage_some(struct t_scene *s, const struct ck_stage_opts *o, uint64_t n)
{
	struct ck_stage *stage = NULL;
	uint32_t file;

	ck_err_clear(&s->err);
	if (ck_stage_begin(o, &stage, &s->err))
		fail_msg("begin: %s: %s", s->err.where, s->err.msg);
	assert_int_equal(ck_stage_file(stage, "f", T_UNITS * T_UNIT, &file, &s->err), 0);
	for (uint64_t u = o->part; u < n; u += o->nparts)
		t_stage_unit(stage, file, u);
	return stage;
}

void t_stage_result(const char *path)
{
	size_t n = 0;
	char want[T_UNIT];
	uint8_t *p = t_file_read(path, &n);

	assert_non_null(p);
	assert_int_equal(n, T_UNITS * T_UNIT);
	for (uint64_t u = 0; u < T_UNITS; u++) {
		t_stage_fill(want, u);
		assert_memory_equal(p + u * T_UNIT, want, T_UNIT);
	}
	free(p);
}

void t_stage_finish(struct t_scene *s, struct ck_stage *stage)
{
	ck_err_clear(&s->err);
	if (ck_stage_end(stage, &s->err) || ck_stage_commit(stage, 0, &s->err))
		fail_msg("%s: %s", s->err.where, s->err.msg);
	assert_true(ck_stage_is_done(stage));
	ck_stage_abort(stage);
	assert_false(t_exists(s->partial));
}

int t_stage_begin_fails(struct t_scene *s, const struct ck_stage_opts *o)
{
	struct ck_stage *stage = NULL;
	int rc;

	ck_err_clear(&s->err);
	rc = ck_stage_begin(o, &stage, &s->err);
	assert_null(stage);
	assert_int_equal(rc, -(int)s->err.code);
	assert_true(s->err.msg[0]);
	return -rc;
}
