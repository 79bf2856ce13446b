/* See t_save_root.h. */
#include "tests/lib/ops/t_save_root.h"

#include <stdlib.h>
#include <string.h>

#include "tests/lib/fs/t_dir.h"

char *t_scratch, *t_root;

int t_root_setup(void **state)
{
	(void)state;
	t_scratch = t_dir_new();
	t_root = t_fmt("%s/run", t_scratch);
	return 0;
}

int t_root_teardown(void **state)
{
	(void)state;
	free(t_root);
	t_dir_end(t_scratch);
	return 0;
}

void t_root_holds_only(const char *name)
{
	char **list = t_dir_list(t_root, NULL);

	for (size_t i = 0; list[i]; i++)
		if (strcmp(list[i], name))
			t_die("%s is there", list[i]);
	t_list_free(list);
}
