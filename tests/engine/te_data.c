/* te_data.c -- see te_data.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>

#include "tests/engine/te_data.h"
#include "tests/lib/fs/t_dir.h"

static char *dir;

int te_data_begin(void **state)
{
	(void)state;
	t_dir_in_memory();
	dir = t_dir_new();
	return 0;
}

int te_data_end(void **state)
{
	(void)state;
	t_dir_end(dir);
	return 0;
}

char *te_put(const char *name, const void *p, size_t n)
{
	char *path = t_fmt("%s/%s", dir, name);

	t_file_write(path, p, n);
	return path;
}

struct en_source *te_source(const char *path, struct en_source_opts opts)
{
	struct en_source *src = NULL;
	struct ckpt_err err = { 0 };

	if (en_source_open(&src, path, &opts, &err))
		fail_msg("%s: %s", err.where, err.msg);
	return src;
}

int te_source_check(struct en_source *src, struct ckpt_err *err)
{
	struct en_source_info info;
	int32_t *row;
	int rc = 0;

	en_source_info_get(src, &info);
	row = t_alloc(2 * info.tokens * sizeof(*row));
	for (uint64_t i = 0; !rc && i < info.rows; i++)
		rc = en_source_row(src, i, row, row + info.tokens, NULL, err);
	free(row);
	return rc;
}

uint64_t te_samples_steps(const struct en_samples *s)
{
	return s->span / s->batch + (s->span % s->batch != 0);
}
