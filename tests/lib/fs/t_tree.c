/* See t_tree.h. */
#include "tests/lib/fs/t_tree.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/lib/fs/t_dir.h"

static void take_link(const char *path, struct t_tree_node *node)
{
	char text[4096];
	const ssize_t n = readlink(path, text, sizeof(text));

	if (n < 0)
		t_die("cannot read the link %s: %s", path, strerror(errno));
	node->is_link = true;
	node->n = (size_t)n;
	node->p = t_alloc(node->n + 1);
	memcpy(node->p, text, node->n);
}

static void take(struct t_tree *tree, const char *dir, const char *below)
{
	char *path = t_fmt("%s/%s", dir, below);
	char **names = t_dir_list(path, NULL);

	for (size_t i = 0; names[i]; i++) {
		char *name = *below ? t_fmt("%s/%s", below, names[i]) : t_fmt("%s", names[i]);
		char *file = t_fmt("%s/%s", dir, name);
		struct t_tree_node *node;
		struct stat st;

		if (!(tree->n & (tree->n + 1)) || !tree->node)
			tree->node = t_grow(tree->node, (2 * tree->n + 2) * sizeof(*node));
		node = &tree->node[tree->n++];
		*node = (struct t_tree_node){ .name = name };
		if (lstat(file, &st))
			t_die("cannot look at %s: %s", file, strerror(errno));
		node->is_dir = S_ISDIR(st.st_mode);
		if (S_ISLNK(st.st_mode))
			take_link(file, node);
		else if (!node->is_dir && !(node->p = t_file_read(file, &node->n)))
			t_die("cannot read %s", file);
		if (node->is_dir)
			take(tree, dir, name);
		free(file);
	}
	t_list_free(names);
	free(path);
}

static int by_name(const void *a, const void *b)
{
	const struct t_tree_node *x = a, *y = b;

	return strcmp(x->name, y->name);
}

void t_tree_take(const char *dir, struct t_tree *out)
{
	*out = (struct t_tree){ 0 };
	take(out, dir, "");
	if (out->n)
		qsort(out->node, out->n, sizeof(*out->node), by_name);
}

void t_tree_put(const char *dir, const struct t_tree *tree)
{
	char **names = t_dir_list(dir, NULL);

	for (size_t i = 0; names[i]; i++) {
		char *path = t_fmt("%s/%s", dir, names[i]);

		t_dir_remove(path);
		free(path);
	}
	t_list_free(names);
	for (size_t i = 0; i < tree->n; i++) {
		const struct t_tree_node *node = &tree->node[i];
		char *path = t_fmt("%s/%s", dir, node->name);

		if (node->is_dir)
			t_dir_make(path);
		else if (!node->is_link)
			t_file_write(path, node->p, node->n);
		else if (symlink((const char *)node->p, path))
			t_die("cannot make the link %s: %s", path, strerror(errno));
		free(path);
	}
}

void t_tree_free(struct t_tree *tree)
{
	for (size_t i = 0; i < tree->n; i++) {
		free(tree->node[i].name);
		free(tree->node[i].p);
	}
	free(tree->node);
	*tree = (struct t_tree){ 0 };
}

const struct t_tree_node *t_tree_find(const struct t_tree *tree, const char *name)
{
	const struct t_tree_node key = { .name = (char *)(uintptr_t)name };

	return tree->n ? bsearch(&key, tree->node, tree->n, sizeof(key), by_name) : NULL;
}

bool t_tree_node_same(const struct t_tree_node *a, const struct t_tree_node *b)
{
	return a && b && a->is_dir == b->is_dir && a->is_link == b->is_link &&
	       a->n == b->n && (!a->n || !memcmp(a->p, b->p, a->n));
}

bool t_tree_same(const struct t_tree *a, const struct t_tree *b)
{
	if (a->n != b->n)
		return false;
	for (size_t i = 0; i < a->n; i++)
		if (strcmp(a->node[i].name, b->node[i].name) ||
		    !t_tree_node_same(&a->node[i], &b->node[i]))
			return false;
	return true;
}
