/*
 * Folder listings. If they are wrong, a step of more than nine ranks is read in the wrong
 * order, or a shard that lies on a second node's disk is silently taken from the first.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libckpt/base/ck_sys.h"
#include "libckpt/io/ck_tree.h"
#include "tests/lib/fs/t_dir.h"

static void put(const char *dir, const char *name, const char *text)
{
	char *path = t_fmt("%s/%s", dir, name);

	t_file_write(path, text, strlen(text));
	free(path);
}

static void names_sort_by_number_and_never_tie(void **state)
{
	static const char *const order[] = {
		"", "a", "a-1", "a1", "a01", "a2", "a9", "a10", "a10b", "a99999999999999999999",
		"a100000000000000000000", "b", "rank_2_x", "rank_10_x",
	};
	const int n = sizeof(order) / sizeof(order[0]);

	(void)state;
	for (int i = 0; i < n; i++)
		for (int j = 0; j < n; j++) {
			const int d = ck_name_compare(order[i], order[j]);
			/* "a1" and "a01" are one number: the text decides, '0' < '1' */
			const int swap = (i == 3 && j == 4) || (i == 4 && j == 3);
			const int want = swap ? j - i : i - j;

			assert_true((d < 0) == (want < 0) && (d > 0) == (want > 0));
		}
}

static void one_folder_lists_files_folders_and_dead_links(void **state)
{
	char *dir = t_dir_new(), *sub = t_fmt("%s/r10", dir), *link = t_fmt("%s/r3", dir);
	const char *root[] = { dir };
	struct ck_tree tree = CK_TREE_INIT;
	const struct ck_tree_entry *e;

	(void)state;
	put(dir, "r9", "12345");
	put(dir, "r2", "");
	t_dir_make(sub);
	assert_int_equal(symlink("nowhere", link), 0);
	assert_int_equal(ck_tree_list(&tree, root, 1, NULL, 10, NULL), 0);
	assert_int_equal(tree.n, 4);
	assert_string_equal(tree.entry[0].name, "r2");
	assert_string_equal(tree.entry[1].name, "r3");
	assert_true(tree.entry[1].is_odd);
	assert_string_equal(tree.entry[2].name, "r9");
	assert_string_equal(tree.entry[3].name, "r10");
	assert_true(tree.entry[3].is_dir && !tree.entry[3].is_odd);
	e = ck_tree_find(&tree, "r9");
	assert_ptr_equal(e, &tree.entry[2]);
	assert_int_equal(e->bytes, 5);
	assert_true(e->mtime_ns > 0);
	assert_null(ck_tree_find(&tree, "r09"));
	assert_null(ck_tree_find(&tree, ""));
	ck_tree_release(&tree);
	t_dir_remove(dir);
	free(dir);
	free(sub);
	free(link);
}

static void overlaid_roots_take_the_first_and_name_what_differs(void **state)
{
	char *dir = t_dir_new(), *a = t_fmt("%s/a", dir), *b = t_fmt("%s/b", dir);
	char *at = t_fmt("%s/a/tag", dir), *bt = t_fmt("%s/b/tag", dir);
	const char *root[] = { a, b, dir };
	struct ck_tree tree = CK_TREE_INIT;

	(void)state;
	t_dir_make(a);
	t_dir_make(b);
	t_dir_make(at);
	t_dir_make(bt);
	put(at, "same", "xx");
	put(bt, "same", "yy");
	put(at, "other", "1");
	put(bt, "other", "22");
	put(bt, "only", "3");
	assert_int_equal(ck_tree_list(&tree, root, 3, "tag", 10, NULL), 0);
	assert_int_equal(tree.n, 3);
	assert_int_equal(tree.ndiffering, 1);
	assert_string_equal(tree.differing[0], "other");
	assert_int_equal(ck_tree_find(&tree, "other")->bytes, 1);
	assert_int_equal(ck_tree_find(&tree, "only")->root, 1);
	assert_int_equal(strncmp(ck_tree_find(&tree, "only")->path, bt, strlen(bt)), 0);
	ck_tree_release(&tree);
	t_dir_remove(dir);
	free(dir);
	free(a);
	free(b);
	free(at);
	free(bt);
}

static void missing_folders_and_too_many_entries_are_errors(void **state)
{
	char *dir = t_dir_new(), *none = t_fmt("%s/none", dir);
	const char *root[] = { dir }, *lost[] = { none };
	struct ck_tree tree = CK_TREE_INIT;
	struct ckpt_err err = { 0 };

	(void)state;
	put(dir, "1", "");
	put(dir, "2", "");
	assert_int_equal(ck_tree_list(&tree, lost, 1, NULL, 10, &err), -CKPT_E_NOTFOUND);
	assert_int_equal(ck_tree_list(&tree, root, 1, "tag", 10, NULL), -CKPT_E_NOTFOUND);
	assert_int_equal(ck_tree_list(&tree, root, 1, NULL, 1, NULL), -CKPT_E_LIMIT);
	assert_null(tree.entry);
	assert_int_equal(ck_tree_list(&tree, root, 1, NULL, 2, NULL), 0);
	ck_tree_release(&tree);
	t_dir_remove(dir);
	free(dir);
	free(none);
}

static void small_files_are_read_whole_or_refused(void **state)
{
	char *dir = t_dir_new(), *path = t_fmt("%s/f", dir), *data = NULL;
	uint64_t len = 0;

	(void)state;
	put(dir, "f", "hello");
	assert_int_equal(ck_file_read(path, 5, &data, &len, NULL), 0);
	assert_int_equal(len, 5);
	assert_string_equal(data, "hello");
	ck_free(data);
	data = NULL;
	assert_int_equal(ck_file_read(path, 4, &data, &len, NULL), -CKPT_E_LIMIT);
	assert_int_equal(ck_file_read(dir, 4, &data, &len, NULL), -CKPT_E_FORMAT);
	t_dir_remove(path);
	assert_int_equal(ck_file_read(path, 5, &data, &len, NULL), -CKPT_E_NOTFOUND);
	assert_null(data);
	t_dir_remove(dir);
	free(dir);
	free(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_sort_by_number_and_never_tie),
		cmocka_unit_test(one_folder_lists_files_folders_and_dead_links),
		cmocka_unit_test(overlaid_roots_take_the_first_and_name_what_differs),
		cmocka_unit_test(missing_folders_and_too_many_entries_are_errors),
		cmocka_unit_test(small_files_are_read_whole_or_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
