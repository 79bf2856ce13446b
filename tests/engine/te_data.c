/* te_data.c -- see te_data.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

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
