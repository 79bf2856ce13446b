/* ck_pkl_attr.h -- private to libckpt/pickle: attributes of classes, getattr(CLASS, 'NAME'). */
#ifndef CK_PKL_ATTR_H
#define CK_PKL_ATTR_H

#include <stdbool.h>
#include <stddef.h>

struct ck_val;
struct ck_pkl_vm;

/*
 * Whether fn(*args) is getattr of a class that is not refused and of a plain name; if so, the
 * attribute as protocol 4 would name it: the class's module, and "CLASS.NAME" in buf[0..size).
 */
bool ck_pkl_attr_name(const struct ck_val *fn, const struct ck_val *args, const char **module_out,
		      char *buf, size_t size);
/* Whether 'v' is the result of such a call. */
bool ck_pkl_is_attr(const struct ck_val *v);
/* Whether fn(*args) makes an object of a class, by its name. */
bool ck_pkl_makes_class(const struct ck_val *fn, const struct ck_val *args);
/* 'v' is used for more than data: CKPT_E_UNSAFE if it is an attribute, in an audit a mark. */
int ck_pkl_refuse_attr(struct ck_pkl_vm *vm, const struct ck_val *v, const char *how);

#endif
