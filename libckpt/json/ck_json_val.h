/*
 * ck_json_val.h -- JSON as a tree of values, as Python's json would give it: a DeepSpeed
 * configuration that goes into a checkpoint.
 */
#ifndef CK_JSON_VAL_H
#define CK_JSON_VAL_H

#include "libckpt/json/ck_json.h"
#include "libckpt/tensor/ck_val_new.h"

/* The value at token 'tok'; everything lies in 'arena'.  NULL without memory. */
struct ck_val *ck_json_val(const struct ck_json *doc, uint64_t tok, struct ck_arena *arena);

#endif
