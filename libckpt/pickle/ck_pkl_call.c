/*
 * ck_pkl_call.c -- the opcodes that make names and calls, and the check of what a pickle
 * would call.
 *
 * Python obeys a stream in four places: it calls (REDUCE, NEWOBJ, INST, OBJ), it hands
 * values to what it calls, it sets attributes (BUILD), and it asks for storages (persistent
 * ids).  In all four a refused name ends the reading.
 */
#include <string.h>

#include "libckpt/base/ck_sys.h"
#include "libckpt/pickle/ck_pkl_attr.h"
#include "libckpt/pickle/ck_pkl_vm.h"

/* ---- names ---- */

static int name_add(struct ck_pkl_vm *vm, const char *key, uint64_t key_len, const char *module,
		    const char *name)
{
	struct ck_pkl *doc = vm->doc;
	struct ck_pkl_global *g;
	struct ck_pkl_name *entry;
	struct ck_val *v = NULL;
	int rc;

	rc = ck_grow(&doc->name, &doc->name_cap, doc->nnames + 1, sizeof(*doc->name), vm->err);
	if (!rc)
		rc = ck_grow(&vm->global, &vm->global_cap, vm->nglobals + 1,
			     sizeof(struct ck_pkl_global *), vm->err);
	if (rc)
		return rc;
	/* The node of a name is longer by its number. */
	rc = ck_pkl_node_sized(vm, CK_VAL_GLOBAL, sizeof(*g), &v);
	if (rc)
		return rc;
	g = (struct ck_pkl_global *)v;
	key = ck_arena_strndup(&doc->arena, key, key_len);
	module = ck_arena_strdup(&doc->arena, module);
	name = ck_arena_strdup(&doc->arena, name);
	if (!key || !module || !name)
		return ck_fail_nomem(vm->err, "names", sizeof(*g));
	rc = ck_map_add(&vm->names, key, key_len, vm->nglobals, NULL, vm->err);
	if (rc < 0)
		return rc;
	g->v.u.global.module = module;
	g->v.u.global.name = name;
	g->number = doc->nnames;
	entry = &doc->name[doc->nnames++];
	*entry = (struct ck_pkl_name){ .module = module, .name = name,
				       .cls = ck_pkl_class_of(module, name), .offset = vm->op };
	vm->global[vm->nglobals++] = g;
	return 0;
}

/* The node of a name, made at its first mention. */
static int name_node(struct ck_pkl_vm *vm, const uint8_t *m, uint64_t mlen, const uint8_t *s,
		     uint64_t slen, struct ck_val **out)
{
	char key[CK_PKL_NAME_MAX + 2], cut[CK_PKL_NAME_MAX + 2];
	const uint64_t key_len = mlen + 1 + slen;
	const char *module = key, *name;
	bool surrogates;
	uint64_t i;
	int rc;

	if (mlen > CK_PKL_NAME_MAX || slen > CK_PKL_NAME_MAX || key_len > CK_PKL_NAME_MAX)
		return ck_pkl_fail(vm, CKPT_E_LIMIT, "a name of %" PRIu64 " bytes is too long",
				   mlen + slen);
	if (!mlen || !slen || memchr(m, 0, mlen) || memchr(s, 0, slen) ||
	    !ck_pkl_is_utf8(m, mlen, &surrogates) || !ck_pkl_is_utf8(s, slen, &surrogates))
		return ck_pkl_fail(vm, CKPT_E_CORRUPT, "a name is empty or not UTF-8");
	memcpy(key, m, mlen);
	key[mlen] = '\n';
	memcpy(key + mlen + 1, s, slen);
	key[key_len] = 0;
	if (!ck_map_find(&vm->names, key, key_len, &i)) {
		char split[CK_PKL_NAME_MAX + 2];

		memcpy(split, key, key_len + 1);
		split[mlen] = 0;
		module = split;
		name = split + mlen + 1;
		if (ck_pkl_name_normal(&module, &name, cut, sizeof(cut)))
			vm->doc->notes |= CK_PKL_NOTE_SPLIT;
		i = vm->nglobals;
		rc = name_add(vm, key, key_len, module, name);
		if (rc)
			return rc;
	}
	*out = &vm->global[i]->v;
	return 0;
}

int ck_pkl_push_global(struct ck_pkl_vm *vm)
{
	const uint8_t *m = NULL, *s = NULL;
	uint64_t mlen = 0, slen = 0;
	struct ck_val *v = NULL;
	int rc = ck_pkl_line(vm, &m, &mlen);

	if (!rc)
		rc = ck_pkl_line(vm, &s, &slen);
	if (!rc)
		rc = name_node(vm, m, mlen, s, slen, &v);
	return rc ? rc : ck_pkl_push(vm, v);
}

int ck_pkl_stack_global(struct ck_pkl_vm *vm)
{
	struct ck_val **top = NULL, *v = NULL;
	int rc = ck_pkl_need(vm, 2, &top);

	if (rc)
		return rc;
	if (top[0]->kind != CK_VAL_STR || top[1]->kind != CK_VAL_STR)
		return ck_pkl_fail(vm, CKPT_E_CORRUPT, "a name is not made of two strings");
	rc = name_node(vm, (const uint8_t *)top[0]->u.str.p, top[0]->u.str.len,
		       (const uint8_t *)top[1]->u.str.p, top[1]->u.str.len, &v);
	if (rc)
		return rc;
	vm->n -= 2;
	return ck_pkl_push(vm, v);
}

struct ck_pkl_name *ck_pkl_name_of(struct ck_pkl_vm *vm, const struct ck_val *v)
{
	const struct ck_pkl_global *g = (const struct ck_pkl_global *)v;

	return &vm->doc->name[g->number];
}

/* 'v' is called, or handed to a call: end if it is a refused name. */
static int refuse(struct ck_pkl_vm *vm, const struct ck_val *v, const char *how)
{
	struct ck_pkl_name *name;

	if (v->kind != CK_VAL_GLOBAL)
		return 0;
	name = ck_pkl_name_of(vm, v);
	if (name->cls != CK_PKL_REFUSED)
		return 0;
	name->called = true;
	if (vm->flags & CK_PKL_AUDIT)
		return 0;
	return ck_pkl_fail(vm, CKPT_E_UNSAFE,
			   "the pickle %s %.120s.%.120s, which no checkpoint needs: the "
			   "file may contain malicious code; nothing was executed",
			   how, name->module, name->name);
}

static int refuse_items(struct ck_pkl_vm *vm, const struct ck_val *v, const char *how)
{
	int rc = refuse(vm, v, how);

	if (v->kind == CK_VAL_TUPLE || v->kind == CK_VAL_LIST)
		for (uint64_t i = 0; !rc && i < v->u.seq.n; i++)
			rc = refuse(vm, v->u.seq.item[i], how);
	return rc;
}

/* ---- calls ---- */

/*
 * torch's own: ShardedTensor.__getstate__ of every torch up to the newest pickles a nested
 * class, and protocols below 4 spell that as getattr(ShardedTensor, 'ProcessGroupState').
 * That call, with those two arguments, reaches a class of four numbers and nothing else.
 */
static bool is_process_group_state(const struct ck_val *fn, const struct ck_val *args,
				   const struct ck_val *kwargs)
{
	static const char module[] = "torch.distributed._shard.sharded_tensor.api";
	const struct ck_val *of = args->u.seq.n == 2 ? args->u.seq.item[0] : NULL;
	const char *what = of ? ck_val_str(args->u.seq.item[1]) : NULL;

	return of && what && !kwargs && fn->kind == CK_VAL_GLOBAL && of->kind == CK_VAL_GLOBAL &&
	       !strcmp(fn->u.global.module, "builtins") &&
	       !strcmp(fn->u.global.name, "getattr") && !strcmp(of->u.global.module, module) &&
	       !strcmp(of->u.global.name, "ShardedTensor") && !strcmp(what, "ProcessGroupState") &&
	       args->u.seq.item[1]->u.str.len == strlen(what);
}

/* An object that represents the class which that call returns. */
static bool is_nested_class(const struct ck_val *v)
{
	return v->kind == CK_VAL_OBJECT && v->u.obj->how == CK_HOW_REDUCE &&
	       is_process_group_state(v->u.obj->fn, v->u.obj->args, v->u.obj->kwargs);
}

/* getattr(CLASS, 'NAME'): the attribute is a name like those that GLOBAL mentions. */
static int attribute(struct ck_pkl_vm *vm, struct ck_val *fn, struct ck_val *args,
		     const char *module, const char *name, struct ck_val **out)
{
	const uint64_t known = vm->doc->nnames;
	struct ck_val *named = NULL;
	int rc = name_node(vm, (const uint8_t *)module, strlen(module), (const uint8_t *)name,
			   strlen(name), &named);

	if (rc)
		return rc;
	if (vm->doc->nnames > known)
		ck_pkl_name_of(vm, named)->attribute = true;
	ck_pkl_name_of(vm, fn)->nested = true;
	if (is_process_group_state(fn, args, NULL))
		ck_pkl_name_of(vm, named)->cls = CK_PKL_DATA;
	else
		ck_pkl_name_of(vm, fn)->unknown = true;
	return ck_pkl_call(vm, fn, args, NULL, CK_HOW_REDUCE, out);
}

/*
 * A class takes attributes as fields.  A function could call them; the one that takes them in
 * honest files is or_, which joins the members of a flag.
 */
static bool takes_attributes(const struct ck_val *fn, const struct ck_val *args,
			     enum ck_val_how how)
{
	if (how == CK_HOW_REDUCE)
		return ck_val_is_global(fn, "_operator", "or_") ||
		       ck_val_is_global(fn, "operator", "or_");
	return how != CK_HOW_INST && (is_nested_class(fn) || ck_pkl_makes_class(fn, args));
}

static int refuse_args(struct ck_pkl_vm *vm, const struct ck_val *fn, const struct ck_val *args,
		       enum ck_val_how how)
{
	int rc = 0;

	for (uint64_t i = 0; !rc && i < args->u.seq.n; i++)
		rc = refuse(vm, args->u.seq.item[i], "hands to a call");
	if (takes_attributes(fn, args, how))
		return rc;
	for (uint64_t i = 0; !rc && i < args->u.seq.n; i++)
		rc = ck_pkl_refuse_attr(vm, args->u.seq.item[i], "hands to a call");
	return rc;
}

static int call(struct ck_pkl_vm *vm, struct ck_val *fn, struct ck_val *args,
		struct ck_val *kwargs, enum ck_val_how how, struct ck_val **out)
{
	char name[CK_PKL_NAME_MAX];
	const char *module;
	int rc;

	/* A persistent id may stand for a class: ("module", class, ...) of old files. */
	if (fn->kind != CK_VAL_GLOBAL && fn->kind != CK_VAL_PERSID && !ck_pkl_is_attr(fn))
		return ck_pkl_fail(vm, CKPT_E_CORRUPT, "the pickle calls something that is not "
			"a name");
	if (args->kind != CK_VAL_TUPLE)
		return ck_pkl_fail(vm, CKPT_E_CORRUPT, "the arguments of a call are not a tuple");
	if (kwargs && kwargs->kind != CK_VAL_DICT)
		return ck_pkl_fail(vm, CKPT_E_CORRUPT, "the keyword arguments of a call are not "
				   "a dict");
	if (how == CK_HOW_REDUCE && ck_pkl_attr_name(fn, args, &module, name, sizeof(name)))
		return attribute(vm, fn, args, module, name, out);
	if (fn->kind == CK_VAL_GLOBAL)
		ck_pkl_name_of(vm, fn)->called = true;
	rc = refuse(vm, fn, "calls");
	if (!rc && !is_nested_class(fn))
		rc = ck_pkl_refuse_attr(vm, fn, "calls");
	if (!rc)
		rc = refuse_args(vm, fn, args, how);
	if (!rc && kwargs)
		rc = refuse_args(vm, fn, kwargs, how);
	return rc ? rc : ck_pkl_call(vm, fn, args, kwargs, how, out);
}

/* REDUCE, NEWOBJ, NEWOBJ_EX: the function below its arguments on the stack. */
int ck_pkl_call_op(struct ck_pkl_vm *vm, enum ck_val_how how)
{
	const unsigned n = how == CK_HOW_NEWOBJ_EX ? 3 : 2;
	struct ck_val **top = NULL, *v = NULL;
	int rc = ck_pkl_need(vm, n, &top);

	if (!rc)
		rc = call(vm, top[0], top[1], n == 3 ? top[2] : NULL, how, &v);
	if (rc)
		return rc;
	vm->n -= n;
	return ck_pkl_push(vm, v);
}

int ck_pkl_inst(struct ck_pkl_vm *vm, bool class_on_stack)
{
	struct ck_val **item = NULL, *cls = NULL, *args = NULL, *v = NULL;
	const uint8_t *m = NULL, *s = NULL;
	uint64_t n = 0, mlen = 0, slen = 0;
	int rc;

	vm->doc->notes |= CK_PKL_NOTE_INST;
	if (class_on_stack) {
		rc = ck_pkl_take_mark(vm, &item, &n);
		if (!rc && !n)
			rc = ck_pkl_fail(vm, CKPT_E_CORRUPT, "OBJ has no class");
		if (rc)
			return rc;
		cls = *item++;
		n--;
	} else {
		rc = ck_pkl_line(vm, &m, &mlen);
		if (!rc)
			rc = ck_pkl_line(vm, &s, &slen);
		if (!rc)
			rc = name_node(vm, m, mlen, s, slen, &cls);
		if (!rc)
			rc = ck_pkl_take_mark(vm, &item, &n);
		if (rc)
			return rc;
	}
	rc = ck_pkl_seq(vm, CK_VAL_TUPLE, item, n, &args);
	if (!rc)
		rc = call(vm, cls, args, NULL, CK_HOW_INST, &v);
	return rc ? rc : ck_pkl_push(vm, v);
}

static bool is_dunder(const struct ck_val *key)
{
	const char *s = ck_val_str(key);
	const size_t n = s ? strlen(s) : 0;

	return n > 4 && !memcmp(s, "__", 2) && !memcmp(s + n - 2, "__", 2);
}

/* A state that is no dict goes to the object's own __setstate__, which only a class may have. */
static int refuse_state_attrs(struct ck_pkl_vm *vm, const struct ck_val *object,
			      const struct ck_val *state)
{
	const struct ck_obj *o = object->u.obj;
	int rc = ck_pkl_refuse_attr(vm, state, "gives an object");

	if (rc || ck_pkl_makes_class(o->fn, o->args) ||
	    (state->kind != CK_VAL_TUPLE && state->kind != CK_VAL_LIST))
		return rc;
	for (uint64_t i = 0; !rc && i < state->u.seq.n; i++)
		rc = ck_pkl_refuse_attr(vm, state->u.seq.item[i], "gives an object");
	return rc;
}

/* Attributes that Python itself calls or obeys must not be refused names. */
static int refuse_state(struct ck_pkl_vm *vm, const struct ck_val *state)
{
	int rc = refuse_items(vm, state, "gives an object");

	if (!rc && state->kind == CK_VAL_TUPLE)
		for (uint64_t i = 0; !rc && i < state->u.seq.n; i++)
			if (state->u.seq.item[i]->kind == CK_VAL_DICT)
				rc = refuse_state(vm, state->u.seq.item[i]);
	if (state->kind != CK_VAL_DICT)
		return rc;
	for (uint64_t i = 0; !rc && i < state->u.seq.n; i += 2)
		if (is_dunder(state->u.seq.item[i])) {
			rc = refuse(vm, state->u.seq.item[i + 1], "gives an object");
			if (!rc)
				rc = ck_pkl_refuse_attr(vm, state->u.seq.item[i + 1],
							"gives an object");
		}
	return rc;
}

int ck_pkl_build(struct ck_pkl_vm *vm)
{
	struct ck_val **top = NULL;
	int rc = ck_pkl_need(vm, 2, &top);

	if (!rc && top[0]->kind != CK_VAL_OBJECT)
		rc = ck_pkl_fail(vm, CKPT_E_CORRUPT, "BUILD is applied to something that is not "
			"an object");
	if (!rc)
		rc = ck_pkl_refuse_attr(vm, top[0], "changes");
	if (!rc)
		rc = refuse_state(vm, top[1]);
	if (!rc)
		rc = refuse_state_attrs(vm, top[0], top[1]);
	if (!rc && top[0]->u.obj->state)
		rc = ck_pkl_fail(vm, CKPT_E_UNSUPPORTED, "BUILD is applied twice to one object");
	if (!rc)
		rc = ck_pkl_deepen(vm, top[0], top[1]);
	if (rc)
		return rc;
	top[0]->u.obj->state = top[1];
	vm->n--;
	return 0;
}

static int refuse_pid_attrs(struct ck_pkl_vm *vm, const struct ck_val *pid)
{
	int rc = ck_pkl_refuse_attr(vm, pid, "names a storage by");

	if (pid->kind == CK_VAL_TUPLE || pid->kind == CK_VAL_LIST)
		for (uint64_t i = 0; !rc && i < pid->u.seq.n; i++)
			rc = ck_pkl_refuse_attr(vm, pid->u.seq.item[i], "names a storage by");
	return rc;
}

int ck_pkl_push_persid(struct ck_pkl_vm *vm, bool text)
{
	struct ck_val **top = NULL, *pid = NULL, *v = NULL;
	const uint8_t *p = NULL;
	uint64_t n = 0;
	int rc;

	if (text) {
		rc = ck_pkl_line(vm, &p, &n);
		if (!rc)
			rc = ck_pkl_str2(vm, p, n, &pid);
	} else {
		rc = ck_pkl_need(vm, 1, &top);
		if (!rc) {
			pid = top[0];
			rc = refuse_items(vm, pid, "names a storage by");
			if (!rc)
				rc = refuse_pid_attrs(vm, pid);
			vm->n--;
		}
	}
	if (!rc)
		rc = ck_pkl_node(vm, CK_VAL_PERSID, &v);
	if (!rc)
		rc = ck_pkl_deepen(vm, v, pid);
	if (rc)
		return rc;
	v->u.pid = pid;
	return ck_pkl_push(vm, v);
}
