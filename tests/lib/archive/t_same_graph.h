/* The same graph: equal values, and the same nodes shared, as a pickle that is read, written and
 * read again must have them. */
#ifndef T_SAME_GRAPH_H
#define T_SAME_GRAPH_H

#include "libckpt/tensor/ck_val.h"

/* NULL if they are; else why not, a constant string. */
const char *t_graphs_differ(const struct ck_val *a, const struct ck_val *b);

#endif
