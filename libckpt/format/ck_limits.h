/*
 * ck_limits.h -- the bounds of struct ckpt_limits: defaults, what they can be raised to, and
 * what they are for.  Every bound on input that a caller may change is here and nowhere else;
 * docs/limits.md has a row for each (check-tree looks).
 */
#ifndef CK_LIMITS_H
#define CK_LIMITS_H

#include "libckpt/base/ck_base.h"

#define CK_LIMIT_BIG ((uint64_t)1 << 62)	/* no bound but that sums stay below 2^63 */
#define CK_LIMIT_NUMBERS ((uint64_t)UINT32_MAX - 2)	/* things with numbers of 32 bits */

/*
 * X(field, default, most, is it bytes, what it bounds).  pickle_depth, folder_depth: of what
 * walks in calls of itself, so the stack is the bound; json_depth likewise.  tensor_dims:
 * arrays of that many.
 */
#define CK_LIMITS(X)                                                                              \
	X(zip_entries, 4000000, CK_LIMIT_NUMBERS, 0, "entries of one archive")                    \
	X(zip_dir_bytes, (uint64_t)1 << 30, CK_LIMIT_BIG, 1, "the directory of one archive")      \
	X(pickle_bytes, (uint64_t)1 << 30, CK_LIMIT_BIG, 1, "one pickle")                         \
	X(pickle_nodes, 50000000, CK_LIMIT_NUMBERS, 0, "values of one pickle, and memo entries")  \
	X(pickle_depth, 1000, 4000, 0, "nesting of the values of a pickle")                       \
	X(header_bytes, 100000000, CK_LIMIT_BIG, 1, "a safetensors header, or a JSON file")       \
	X(json_depth, 64, 900, 0, "nesting of JSON values")                                       \
	X(json_nodes, 40000000, CK_LIMIT_NUMBERS, 0, "values and names of JSON")                  \
	X(tensor_dims, 64, 64, 0, "dimensions of a tensor")                                       \
	X(inflate_bytes, (uint64_t)1 << 30, CK_LIMIT_BIG, 1, "one deflated member, inflated")     \
	X(inflate_ratio, 1032, UINT32_MAX, 0, "inflated size over packed size")                   \
	X(gather_bytes, (uint64_t)1 << 30, CK_LIMIT_BIG, 1, "the elements of one strided view")   \
	X(files, 100000, CK_LIMIT_NUMBERS, 0, "files of a folder or a checkpoint")                \
	X(memory_bytes, (uint64_t)4 << 30, CK_LIMIT_BIG, 1, "memory of one open checkpoint")      \
	X(name_bytes, 1 << 20, 1 << 30, 1, "a tensor's name in a torch file, made of keys")       \
	X(folder_depth, 32, 200, 0, "nesting of folders")                                         \
	X(groups, 20000, 1 << 30, 0, "param groups and sub-groups of a ZeRO optimizer")           \
	X(pickles, 100, UINT32_MAX, 0, "pickles one after the other in a file that is audited")

/*
 * Fill '*out' from 'in' (NULL = all defaults): zero fields, and fields beyond
 * in->size, become the defaults; what is above the most becomes that.
 */
void ck_limits_fill(const struct ckpt_limits *in, struct ckpt_limits *out);

#endif
