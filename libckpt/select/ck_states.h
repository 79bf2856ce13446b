/* ck_states.h -- lists of state names as callers give them. */
#ifndef CK_STATES_H
#define CK_STATES_H

#include "libckpt/base/ck_mem.h"
#include "libckpt/tensor/ck_index.h"

/* The list names it, or is NULL, or is {"all", NULL}. */
bool ck_states_has(const char *const *states, const char *name);
/* CKPT_E_USAGE for a name that no tensor has, with those that occur; for an empty list. */
int ck_states_check(const struct ck_index *ix, const char *const *states, struct ckpt_err *err);
/*
 * The distinct names that the list stands for, each once, in the order of the list ("all": in
 * the order in which they occur first).  '*list_out' is in 'arena'.
 */
int ck_states_list(const struct ck_index *ix, const char *const *states,
		   struct ck_arena *arena, const char ***list_out, uint64_t *n_out,
		   struct ckpt_err *err);
/* CKPT_E_USAGE: 'tensor' has no state 'name', but those that it has. */
int ck_states_fail(const struct ck_index *ix, uint32_t tensor, const char *name,
		   struct ckpt_err *err);

#endif
