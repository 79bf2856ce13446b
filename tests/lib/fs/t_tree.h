/* All that is below a folder, in memory: to see whether it has changed, and to put it back. */
#ifndef T_TREE_H
#define T_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct t_tree_node {
	char *name;	/* "a/b" below the folder */
	bool is_dir;
	bool is_link;
	uint8_t *p;	/* of a file; of a link, where it leads */
	size_t n;
};

struct t_tree {
	struct t_tree_node *node;	/* sorted by name: a folder before what is in it */
	size_t n;
};

void t_tree_take(const char *dir, struct t_tree *out);
/* The folder holds that and nothing else afterwards. */
void t_tree_put(const char *dir, const struct t_tree *tree);
void t_tree_free(struct t_tree *tree);
const struct t_tree_node *t_tree_find(const struct t_tree *tree, const char *name);
bool t_tree_node_same(const struct t_tree_node *a, const struct t_tree_node *b);
bool t_tree_same(const struct t_tree *a, const struct t_tree *b);

#endif
