/*
 * ck_val_new.h -- making value trees, and copies that can be edited.
 *
 * Nodes live in the caller's arena.  Every function returns NULL when there is no memory
 * or when a node it is given is NULL, so a tree is built in one go and checked once, at its root.
 * A node may hang in several places: that is a shared reference, in a pickle too.
 *
 * A tree that was read is never changed: ck_val_clone() copies one container with the same
 * children, and the way down to an edit is cloned level by level.
 */
#ifndef CK_VAL_NEW_H
#define CK_VAL_NEW_H

#include "libckpt/tensor/ck_val.h"

struct ck_val *ck_val_new_none(struct ck_arena *arena);
struct ck_val *ck_val_new_bool(struct ck_arena *arena, bool b);
struct ck_val *ck_val_new_int(struct ck_arena *arena, int64_t i);
struct ck_val *ck_val_new_float(struct ck_arena *arena, double f);
/* UTF-8 up to the NUL, or of 'n' bytes.  Copied. */
struct ck_val *ck_val_new_str(struct ck_arena *arena, const char *s);
struct ck_val *ck_val_new_strn(struct ck_arena *arena, const char *s, uint64_t n);
/* Of the 'n' nodes, whose array is copied. */
struct ck_val *ck_val_new_tuple(struct ck_arena *arena, struct ck_val *const *item, uint64_t n);
/* Empty. */
struct ck_val *ck_val_new_list(struct ck_arena *arena);
struct ck_val *ck_val_new_dict(struct ck_arena *arena);
struct ck_val *ck_val_new_global(struct ck_arena *arena, const char *module, const char *name);
/* fn(*args) as 'how' says; state and items are set afterwards. */
struct ck_val *ck_val_new_object(struct ck_arena *arena, enum ck_val_how how, struct ck_val *fn,
				 struct ck_val *args);
/* collections.OrderedDict() without items. */
struct ck_val *ck_val_new_ordered(struct ck_arena *arena);
/* torch.Size of these sizes. */
struct ck_val *ck_val_new_size(struct ck_arena *arena, const uint64_t *dim, uint64_t n);
/* A tensor; 'ref' with its shape and stride is copied.  What it is rebuilt by, a writer decides. */
struct ck_val *ck_val_new_tensor(struct ck_arena *arena, const struct ck_tensor_ref *ref);

/* The same value with the same children, in a node and arrays of its own.  Strings are lent. */
struct ck_val *ck_val_clone(struct ck_arena *arena, const struct ck_val *v);

/* The four below return their first node.  Append to a list, or to the list items of an object. */
struct ck_val *ck_val_list_add(struct ck_arena *arena, struct ck_val *list, struct ck_val *item);
/*
 * A pair into a dict, or into the dict items of an object: in place of the last pair with an
 * equal key, else behind all others.  Costs a walk over the pairs.
 */
struct ck_val *ck_val_dict_set(struct ck_arena *arena, struct ck_val *dict, struct ck_val *key,
			       struct ck_val *value);
/* The same without a look for the key, which is known to be new. */
struct ck_val *ck_val_dict_add(struct ck_arena *arena, struct ck_val *dict, struct ck_val *key,
			       struct ck_val *value);
struct ck_val *ck_val_dict_sets(struct ck_arena *arena, struct ck_val *dict, const char *key,
				struct ck_val *value);
/* Drop every pair with that string key; true if there was one. */
bool ck_val_dict_drop(struct ck_val *dict, const char *key);

#endif
