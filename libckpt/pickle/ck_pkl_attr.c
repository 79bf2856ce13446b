/*
 * ck_pkl_attr.c -- attributes of classes: getattr(CLASS, 'NAME') as data.
 *
 * Python 3.11.0 to 3.11.3 pickles a member of an enum as getattr(CLASS, 'MEMBER'), and every
 * Python below protocol 4 spells a class within a class that way.  The call fetches and does
 * nothing else, so it is taken for what protocol 4 writes as one name, MODULE CLASS.MEMBER:
 * that name must not be refused.  All else that getattr could be used for is:
 *
 *   the base	a name that begins with a capital, as classes do, or such an attribute (Outer.Inner)
 *   the name	an identifier without a leading underscore
 *   the result	is never called, changed, or handed to a function; it may be in a container, in an
 *		object's state, and among the fields of a class (a named tuple)
 */
#include <stdio.h>
#include <string.h>

#include "libckpt/pickle/ck_pkl_attr.h"
#include "libckpt/pickle/ck_pkl_vm.h"

#define CHAIN_MAX 8	/* Outer.Inner.MEMBER is 2 */

static bool is_upper(char c)
{
	return c >= 'A' && c <= 'Z';
}

static bool is_word(char c)
{
	return is_upper(c) || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
}

/* Begins as a class does; of a dotted name its last part. */
static bool is_class_name(const char *name)
{
	const char *dot = strrchr(name, '.');

	name = dot ? dot + 1 : name;
	return is_upper(name[*name == '_']);
}

static bool is_attr_name(const char *s)
{
	if (!s || !is_word(*s) || *s == '_' || (*s >= '0' && *s <= '9'))
		return false;
	while (is_word(*s))
		s++;
	return !*s;
}

static bool is_getattr(const struct ck_val *fn, const struct ck_val *args)
{
	return ck_val_is_global(fn, "builtins", "getattr") && args->kind == CK_VAL_TUPLE &&
	       args->u.seq.n == 2;
}

/* Append ".NAME"; false if it does not fit. */
static bool append(char *buf, size_t size, const char *name)
{
	const size_t n = strlen(buf), more = strlen(name);

	if (n + 1 + more >= size)
		return false;
	buf[n] = '.';
	memcpy(buf + n + 1, name, more + 1);
	return true;
}

bool ck_pkl_attr_name(const struct ck_val *fn, const struct ck_val *args, const char **module_out,
		      char *buf, size_t size)
{
	const char *part[CHAIN_MAX];
	const struct ck_val *base;
	unsigned n = 0;

	for (;; n++) {
		if (n == CHAIN_MAX || !is_getattr(fn, args))
			return false;
		base = args->u.seq.item[0];
		part[n] = ck_val_str(args->u.seq.item[1]);
		if (!is_attr_name(part[n]) || (n && !is_class_name(part[n])))
			return false;
		if (base->kind != CK_VAL_OBJECT || base->u.obj->how != CK_HOW_REDUCE)
			break;
		fn = base->u.obj->fn;
		args = base->u.obj->args;
	}
	if (base->kind != CK_VAL_GLOBAL || !is_class_name(base->u.global.name) ||
	    ck_pkl_class_of(base->u.global.module, base->u.global.name) == CK_PKL_REFUSED ||
	    strlen(base->u.global.name) >= size)
		return false;
	memcpy(buf, base->u.global.name, strlen(base->u.global.name) + 1);
	for (n++; n > 0; n--)
		if (!append(buf, size, part[n - 1]))
			return false;
	*module_out = base->u.global.module;
	return ck_pkl_class_of(*module_out, buf) != CK_PKL_REFUSED;
}

bool ck_pkl_is_attr(const struct ck_val *v)
{
	char name[CK_PKL_NAME_MAX];
	const char *module;

	return v->kind == CK_VAL_OBJECT && v->u.obj->how == CK_HOW_REDUCE && !v->u.obj->kwargs &&
	       is_getattr(v->u.obj->fn, v->u.obj->args) &&
	       ck_pkl_attr_name(v->u.obj->fn, v->u.obj->args, &module, name, sizeof(name));
}

bool ck_pkl_makes_class(const struct ck_val *fn, const struct ck_val *args)
{
	if (ck_val_is_global(fn, "copyreg", "_reconstructor"))
		fn = args->kind == CK_VAL_TUPLE && args->u.seq.n ? args->u.seq.item[0] : fn;
	return fn->kind == CK_VAL_GLOBAL && is_class_name(fn->u.global.name);
}

int ck_pkl_refuse_attr(struct ck_pkl_vm *vm, const struct ck_val *v, const char *how)
{
	char name[CK_PKL_NAME_MAX];
	const char *module;

	if (!ck_pkl_is_attr(v))
		return 0;
	ck_pkl_name_of(vm, v->u.obj->fn)->called = true;
	if (vm->flags & CK_PKL_AUDIT)
		return 0;
	ck_pkl_attr_name(v->u.obj->fn, v->u.obj->args, &module, name, sizeof(name));
	return ck_pkl_fail(vm, CKPT_E_UNSAFE,
			   "the pickle %s %.100s.%.100s, which it fetched with getattr: the "
			   "file may contain malicious code; nothing was executed",
			   how, module, name);
}
