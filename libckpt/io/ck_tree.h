/*
 * ck_tree.h -- what lies in a folder, or in several laid over each other, read once.
 */
#ifndef CK_TREE_H
#define CK_TREE_H

#include "libckpt/base/ck_base.h"
#include "libckpt/base/ck_mem.h"

struct ck_tree_entry {
	const char *name;	/* within the folder */
	const char *path;	/* to open it: root + "/" + name */
	uint64_t bytes;		/* 0 for folders */
	int64_t mtime_ns;
	bool is_dir;
	bool is_odd;		/* neither a regular file nor a folder */
	uint32_t root;		/* number of the root it was found in (the first) */
};

/* A listing, sorted by name with runs of digits compared as numbers ("9" < "10"). */
struct ck_tree {
	struct ck_arena arena;
	struct ck_tree_entry *entry;
	uint64_t n, cap;
	/* Files that stood in two roots with different sizes: names; first one wins. */
	const char **differing;
	uint64_t ndiffering, differing_cap;
};

#define CK_TREE_INIT { .entry = NULL }

/*
 * List the folders root[0..nroots), laid over each other.  'sub' (may be NULL) is a
 * folder below each root; roots that lack it are passed over, but one must have it.
 * Symbolic links are followed.  At most 'max_entries'.  CKPT_E_NOTFOUND, CKPT_E_IO, CKPT_E_LIMIT.
 */
int ck_tree_list(struct ck_tree *tree, const char *const *root, size_t nroots,
		 const char *sub, uint64_t max_entries, struct ckpt_err *err);
void ck_tree_release(struct ck_tree *tree);
const struct ck_tree_entry *ck_tree_find(const struct ck_tree *tree, const char *name);

/* Order of ck_tree: digits as numbers. */
int ck_name_compare(const char *a, const char *b);

/*
 * Read a small file whole into new memory (ck_free), NUL behind its end.  CKPT_E_LIMIT if it
 * is larger than 'max'.
 */
int ck_file_read(const char *path, uint64_t max, char **data_out, uint64_t *len_out,
		 struct ckpt_err *err);

#endif
