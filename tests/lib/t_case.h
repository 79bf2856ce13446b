/* case.json of one fixture: what a real run was asked to do and what it did. */
#ifndef T_CASE_H
#define T_CASE_H

#include <stddef.h>
#include <stdint.h>

#include "tests/lib/t_st.h"

struct t_param {
	char *name;
	int ndim;
	int64_t shape[T_ST_DIMS];
	int requires_grad;
	int group;		/* -1: in no param group */
};

struct t_buffer {
	char *name;
	int ndim;
	int64_t shape[T_ST_DIMS];
	int persistent;		/* 0: a checkpoint does not hold it */
};

struct t_case {
	char *name, *special, *version, *precision, *wrapper, *optimizer;
	char *latest;
	char **tags;		/* ends with NULL */
	int stage, world;
	int pp, tp, ep;		/* degrees, 1 where not stated */
	int sub_groups;		/* 1: a sub_group_size is configured */
	int refuse;
	struct t_param *params;
	size_t n_params;
	struct t_buffer *buffers;
	size_t n_buffers;
	char ***tied;		/* lists of names of one weight, NULL-ended */
	size_t n_tied;
	char **missing;		/* not_in_checkpoint: NAME|STATE or *|STATE */
};

/* Reads DIR/case.json; ends the program when it is not as expected. */
void t_case_open(struct t_case *c, const char *dir);
void t_case_close(struct t_case *c);

const struct t_param *t_case_param(const struct t_case *c, const char *name);
const struct t_buffer *t_case_buffer(const struct t_case *c, const char *name);
/* 1 when not_in_checkpoint lists NAME|STATE, by name or by *. */
int t_case_missing(const struct t_case *c, const char *name, const char *state);
/* 1 when A and B name one weight, directly or over other names. */
int t_case_tied(const struct t_case *c, const char *a, const char *b);
int t_case_groups(const struct t_case *c);
/* 1 when the files hold optimizer states under indices only (stage 0 without
 * BF16_Optimizer), so that a reader may have to leave them out. */
int t_case_unnamed_states(const struct t_case *c);

#endif
