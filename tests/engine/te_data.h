/*
 * te_data.h -- files and sources of data for tests.
 */
#ifndef TE_DATA_H
#define TE_DATA_H

#include "engine/data/en_data.h"

/* A folder for the files of a test program: setup and teardown of its group. */
int te_data_begin(void **state);
int te_data_end(void **state);
/* A file in it; the path is for free(). */
char *te_put(const char *name, const void *p, size_t n);
/* Fails the test if the source does not open. */
struct en_source *te_source(const char *path, struct en_source_opts opts);
/* Reads every row. */
int te_source_check(struct en_source *src, struct ckpt_err *err);
/* Steps of an epoch; of FLOW rounded up. */
uint64_t te_samples_steps(const struct en_samples *s);

#endif
