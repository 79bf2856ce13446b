/*
 * A pickle as a tree of values, to be changed and written again; and archives of torch.save with
 * another pickle in them, every checksum right.
 */
#ifndef T_GRAPH_H
#define T_GRAPH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libckpt/pickle/ck_pkl.h"
#include "tests/lib/fs/t_files.h"

struct t_graph {
	struct ck_pkl doc;
	struct ck_val **node;	/* all of them, once each */
	size_t n, cap;
};

/* Ends the program if it is no pickle. */
void t_graph_load(struct t_graph *g, const void *p, size_t n);
void t_graph_free(struct t_graph *g);
/* The pickle of the tree as it is now; the caller frees. */
char *t_graph_pickle(const struct t_graph *g, size_t *n_out);

/* Of a file that is a pickle, or an archive of torch.save. */
void t_graph_load_file(struct t_graph *g, const struct t_file *f);
/* The file with the tree as it is now. */
void t_graph_put(const struct t_graph *g, struct t_files *files, const struct t_file *f);

/* ---- looking; what is given can be written to ---- */

bool t_graph_is(const struct ck_val *v, const char *class_name);
/* What holds the value of a string key of a dict, or of an object's state; NULL = there is none. */
struct ck_val **t_graph_slot(struct ck_val *v, const char *key);
/* Items of a sequence; of a dict, twice as many as it has pairs. */
struct ck_val **t_graph_items(struct ck_val *v, uint64_t *n_out);

/* ---- changing ---- */

struct ck_val *t_graph_int(struct t_graph *g, int64_t i);
struct ck_val *t_graph_str(struct t_graph *g, const char *s);
struct ck_val *t_graph_none(struct t_graph *g);
/* A name; both are lent. */
struct ck_val *t_graph_global(struct t_graph *g, const char *module, const char *name);
/* What hangs in '*slot' hangs there alone from now on; it is small and has no cycle. */
struct ck_val *t_graph_own(struct t_graph *g, struct ck_val **slot);
/* Without 'n' items from 'at' on; items of a sequence or dict that t_graph_items() gave. */
void t_graph_cut(struct ck_val *v, uint64_t at, uint64_t n);
/* Two more items at the end of a dict, or one of a sequence (b = NULL). */
void t_graph_add(struct t_graph *g, struct ck_val *v, struct ck_val *a, struct ck_val *b);

#endif
