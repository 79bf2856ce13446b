/*
 * ck_pt_bind.c -- from calls in the value tree to tensors: known rebuild calls become
 * tensor references.
 *
 * The tree is walked breadth first over a queue of nodes, each once, so neither deep nor
 * knotted nor widely shared trees cost more than their nodes.  Every number of a call is
 * checked here: shapes and strides against each other, the last element against the
 * storage, and every product and sum against 64 bits.
 */
#include <inttypes.h>
#include <string.h>

#include "formats/torch_pt/ck_pt_priv.h"
#include "libckpt/base/ck_sys.h"

#define WRAP_DEPTH 8	/* Parameter of a subclass of a ... */

static const struct {
	const char *module, *name;
	enum ck_pt_call call;
	const char *what;
} calls[] = {
	{ "torch._utils", "_rebuild_tensor_v2", CK_PT_V2, NULL },
	{ "torch._utils", "_rebuild_tensor_v3", CK_PT_V3, NULL },
	{ "torch._utils", "_rebuild_tensor", CK_PT_V1, NULL },
	{ "torch._utils", "_rebuild_parameter", CK_PT_PARAMETER, NULL },
	{ "torch._utils", "_rebuild_parameter_with_state", CK_PT_PARAMETER, NULL },
	{ "torch._utils", "_rebuild_device_tensor_from_cpu_tensor", CK_PT_CPU_TENSOR, NULL },
	{ "torch._tensor", "_rebuild_from_type_v2", CK_PT_FROM_TYPE, "a tensor subclass" },
	{ "torch._tensor", "_rebuild_from_type", CK_PT_FROM_TYPE, "a tensor subclass" },
	{ "torch.tensor", "_rebuild_from_type_v2", CK_PT_FROM_TYPE, "a tensor subclass" },
	{ "torch.tensor", "_rebuild_from_type", CK_PT_FROM_TYPE, "a tensor subclass" },
	{ "torch._utils", "_rebuild_sparse_tensor", CK_PT_OPAQUE, "a sparse tensor" },
	{ "torch._utils", "_rebuild_sparse_csr_tensor", CK_PT_OPAQUE, "a sparse tensor" },
	{ "torch._utils", "_rebuild_qtensor", CK_PT_OPAQUE, "a quantized tensor" },
	{ "torch._utils", "_rebuild_meta_tensor_no_storage", CK_PT_OPAQUE,
	  "a meta tensor, which has no data" },
	{ "torch._utils", "_rebuild_nested_tensor", CK_PT_OPAQUE, "a nested tensor" },
	{ "torch._utils", "_rebuild_wrapper_subclass", CK_PT_OPAQUE,
	  "a tensor subclass (a distributed tensor holds one rank's part only)" },
	{ "torch._utils", "_rebuild_device_tensor_from_numpy", CK_PT_OPAQUE,
	  "a device tensor kept as a numpy array" },
	{ "torch._utils", "_rebuild_xla_tensor", CK_PT_OPAQUE,
	  "an XLA tensor kept as a numpy array" },
};

static bool is_old_tensor_class(const struct ck_val *fn)
{
	const char *name = fn->u.global.name;
	const size_t n = strlen(name);

	return ck_pt_is_torch_module(fn->u.global.module) && n >= 6 &&
	       !strcmp(name + n - 6, "Tensor");
}

static size_t call_index(const struct ck_val *v)
{
	size_t i = CK_ARRAY_LEN(calls);

	if (v->kind != CK_VAL_OBJECT || v->u.obj->fn->kind != CK_VAL_GLOBAL)
		return i;
	for (i = 0; i < CK_ARRAY_LEN(calls); i++)
		if (ck_val_is_global(v->u.obj->fn, calls[i].module, calls[i].name))
			break;
	return i;
}

enum ck_pt_call ck_pt_call_of(const struct ck_val *v)
{
	const size_t i = call_index(v);

	if (i < CK_ARRAY_LEN(calls))
		return calls[i].call;
	if (v->kind == CK_VAL_OBJECT && v->u.obj->fn->kind == CK_VAL_GLOBAL &&
	    v->u.obj->state && is_old_tensor_class(v->u.obj->fn))
		return CK_PT_OLD;
	return CK_PT_NONE;
}

const char *ck_pt_opaque_name(const struct ck_val *v)
{
	const size_t i = call_index(v);

	return i < CK_ARRAY_LEN(calls) && calls[i].what ? calls[i].what : "a tensor without data";
}

/* ---- geometry ---- */

/* Sizes or strides: whole numbers, none negative. */
static int sizes_read(struct ck_pt *pt, const struct ck_val *v, const char *what, uint64_t **out,
		      uint64_t *n_out, struct ckpt_err *err)
{
	struct ck_val *const *item;
	uint64_t *a, n;

	if (!ck_val_seq(v, &item, &n))
		return ck_fail(err, CKPT_E_CORRUPT, pt->where, CKPT_NO_OFFSET,
			       "the %s of a tensor are not a tuple", what);
	if (n > pt->limits.tensor_dims)
		return ck_fail_limit(err, pt->where, CKPT_NO_OFFSET, "tensor_dims",
				     pt->limits.tensor_dims,
				     "a tensor has %" PRIu64 " dimensions", n);
	a = ck_arena_alloc(&pt->doc.arena, n * sizeof(*a));
	if (!a)
		return ck_fail_nomem(err, "a shape", n);
	for (uint64_t i = 0; i < n; i++)
		if (!ck_pt_count(item[i], &a[i]))
			return ck_fail(err, CKPT_E_CORRUPT, pt->where, CKPT_NO_OFFSET,
				       "the %s of a tensor are not all integers >= 0",
				       what);
	*out = a;
	*n_out = n;
	return 0;
}

/* The last element the tensor touches must lie in its storage. */
static int reach_check(const struct ck_pt *pt, const struct ck_tensor_ref *t, uint64_t room,
		       struct ckpt_err *err)
{
	uint64_t last = t->offset, step;

	for (uint32_t i = 0; i < t->ndim; i++)
		if (ck_mul_over(t->shape[i] - 1, t->stride[i], &step) ||
		    ck_add_over(last, step, &last))
			return ck_pt_bad(pt, err, "strides and sizes of a tensor exceed 64 bits");
	if (last >= room)
		return ck_fail(err, CKPT_E_CORRUPT, pt->where, CKPT_NO_OFFSET,
			       "a tensor reaches element %" PRIu64
			       " of storage '%s', which has %" PRIu64
			       ": damaged, or crafted to read past the end",
			       last, pt->storage[t->storage].key, room);
	return 0;
}

static int geometry_check(const struct ck_pt *pt, struct ck_tensor_ref *t, struct ckpt_err *err)
{
	const struct ck_pt_storage *s = &pt->storage[t->storage];
	const uint64_t esize = ckpt_dtype_bits(t->dtype) / 8;
	struct ckpt_err e = { 0 };
	uint64_t bytes;
	int rc;

	for (uint32_t i = 0; i < t->ndim; i++)
		if (!t->shape[i]) {
			t->numel = 0;
			return 0;
		}
	if (ck_shape_numel(t->shape, t->ndim, &t->numel, &e))
		return ck_fail(err, e.code, pt->where, CKPT_NO_OFFSET, "%s", e.msg);
	rc = ck_pt_bytes(pt, t->dtype, t->numel, &bytes, err);
	if (rc)
		return rc;
	return reach_check(pt, t, s->untyped ? s->numel / esize : s->numel, err);
}

static int metadata_read(const struct ck_pt *pt, const struct ck_val *meta,
			 struct ck_tensor_ref *t, struct ckpt_err *err)
{
	const struct ck_dtype_info *info = ck_dtype_info(t->dtype);
	struct ck_val *const *item;
	int64_t flag;
	uint64_t n;

	if (ck_val_is_none(meta))
		return 0;
	if (!ck_val_pairs(meta, &item, &n))
		return ck_pt_bad(pt, err, "the metadata of a tensor is not a dict");
	t->conj = info->cls == CK_CLASS_COMPLEX && ck_val_int(ck_val_get(meta, "conj"), &flag) &&
		  flag;
	t->neg = ck_val_int(ck_val_get(meta, "neg"), &flag) && flag;
	return 0;
}

static int dtype_read(const struct ck_pt *pt, const struct ck_val *v, uint8_t *out,
		      struct ckpt_err *err)
{
	if (!v || v->kind != CK_VAL_GLOBAL || strcmp(v->u.global.module, "torch"))
		return ck_pt_bad(pt, err, "the element type of a tensor is not a name of torch");
	*out = (uint8_t)ck_dtype_by_torch_name(v->u.global.name);
	if (!*out)
		return ck_fail(err, CKPT_E_UNSUPPORTED, pt->where, CKPT_NO_OFFSET,
			       "unknown element type torch.%.60s",
			       v->u.global.name);
	return 0;
}

/* ---- rebuild calls ---- */

static int make(struct ck_pt *pt, enum ck_pt_call call, struct ck_val *const *arg, uint64_t n,
		unsigned depth, struct ck_tensor_ref **out, struct ckpt_err *err);

/* (storage, offset, size, stride, ...): what all forms begin with. */
static int make_plain(struct ck_pt *pt, enum ck_pt_call call, struct ck_val *const *arg,
		      uint64_t n, struct ck_tensor_ref **out, struct ckpt_err *err)
{
	const uint64_t least = call == CK_PT_V3 ? 7 : call == CK_PT_V2 ? 6 : 4;
	const uint64_t most = call == CK_PT_V1 ? 4 : least + 1;
	struct ck_tensor_ref *t;
	uint64_t *shape, *stride, ndim, nstrides;
	int64_t grad;
	int rc;

	if (n < least || (n > most && call != CK_PT_OLD))
		return ck_fail(err, CKPT_E_CORRUPT, pt->where, CKPT_NO_OFFSET,
			       "a tensor is rebuilt from %" PRIu64 " arguments; %" PRIu64 " to "
			       "%" PRIu64 " are expected", n, least, most);
	if (arg[0]->kind != CK_VAL_PERSID)
		return ck_pt_bad(pt, err, "a tensor is rebuilt from something that is not a "
				 "storage");
	t = ck_arena_zalloc(&pt->doc.arena, sizeof(*t));
	if (!t)
		return ck_fail_nomem(err, "a tensor", sizeof(*t));
	rc = ck_pt_storage_get(pt, arg[0], &t->storage, &t->dtype, err);
	if (rc)
		return rc;
	if (!ck_pt_count(arg[1], &t->offset))
		return ck_pt_bad(pt, err, "the offset of a tensor is not an integer >= 0");
	rc = sizes_read(pt, arg[2], "sizes", &shape, &ndim, err);
	if (!rc)
		rc = sizes_read(pt, arg[3], "strides", &stride, &nstrides, err);
	if (rc)
		return rc;
	if (ndim != nstrides)
		return ck_fail(err, CKPT_E_CORRUPT, pt->where, CKPT_NO_OFFSET,
			       "a tensor has %" PRIu64 " sizes and %" PRIu64 " strides", ndim,
			       nstrides);
	t->ndim = (uint32_t)ndim;
	t->shape = shape;
	t->stride = stride;
	t->requires_grad = n > 4 && ck_val_int(arg[4], &grad) && grad;
	if (call == CK_PT_V3) {
		if (!pt->storage[t->storage].untyped)
			return ck_pt_bad(pt, err, "a tensor of the third form has a typed "
					 "storage");
		rc = dtype_read(pt, arg[6], &t->dtype, err);
	}
	if (!rc && pt->storage[t->storage].absent)
		return 0;	/* opaque: no data */
	if (!rc)
		rc = geometry_check(pt, t, err);
	if (!rc && n == most && call != CK_PT_V1 && call != CK_PT_OLD)
		rc = metadata_read(pt, arg[n - 1], t, err);
	if (!rc)
		*out = t;
	return rc;
}

static int bind_one(struct ck_pt *pt, struct ck_val *v, unsigned depth, struct ckpt_err *err);

/* (tensor, requires_grad, hooks[, state]), or (tensor, dtype, device, requires_grad) */
static int make_wrapped(struct ck_pt *pt, enum ck_pt_call call, struct ck_val *const *arg,
			uint64_t n, unsigned depth, struct ck_tensor_ref **out,
			struct ckpt_err *err)
{
	struct ck_tensor_ref *t;
	uint8_t dtype;
	int64_t grad;
	int rc;

	if (n < 3 || n > 4 || ck_pt_call_of(arg[0]) == CK_PT_NONE)
		return ck_pt_bad(pt, err, "a parameter wraps something that is not a tensor");
	rc = bind_one(pt, arg[0], depth + 1, err);
	if (rc || !arg[0]->u.obj->tensor)
		return rc;
	t = ck_arena_alloc(&pt->doc.arena, sizeof(*t));
	if (!t)
		return ck_fail_nomem(err, "a tensor", sizeof(*t));
	*t = *arg[0]->u.obj->tensor;
	if (call == CK_PT_CPU_TENSOR) {
		rc = dtype_read(pt, arg[1], &dtype, err);
		if (rc || dtype != t->dtype)
			return rc;
	} else {
		t->parameter = true;
		t->requires_grad = ck_val_int(arg[1], &grad) && grad;
	}
	*out = t;
	return 0;
}

/* (function, type, arguments, state): read if the type is torch's own. */
static int make_from_type(struct ck_pt *pt, struct ck_val *const *arg, uint64_t n, unsigned depth,
			  struct ck_tensor_ref **out, struct ckpt_err *err)
{
	struct ck_obj obj = { 0 };
	struct ck_val inner = { .kind = CK_VAL_OBJECT, .u.obj = &obj };
	bool parameter;
	int rc;

	if (n != 4 || arg[0]->kind != CK_VAL_GLOBAL || arg[1]->kind != CK_VAL_GLOBAL ||
	    arg[2]->kind != CK_VAL_TUPLE)
		return ck_pt_bad(pt, err,
				 "a tensor with attributes is not (function, type, arguments, "
				 "state)");
	parameter = ck_val_is_global(arg[1], "torch.nn.parameter", "Parameter");
	if (!parameter && !ck_val_is_global(arg[1], "torch", "Tensor") &&
	    !ck_val_is_global(arg[1], "torch.nn.parameter", "Buffer"))
		return 0;
	obj.fn = arg[0];
	rc = make(pt, ck_pt_call_of(&inner), arg[2]->u.seq.item, arg[2]->u.seq.n, depth + 1, out,
		  err);
	if (!rc && *out)
		(*out)->parameter |= parameter;
	return rc;
}

/* '*out' stays NULL for what is opaque. */
static int make(struct ck_pt *pt, enum ck_pt_call call, struct ck_val *const *arg, uint64_t n,
		unsigned depth, struct ck_tensor_ref **out, struct ckpt_err *err)
{
	if (depth > WRAP_DEPTH)
		return ck_fail(err, CKPT_E_LIMIT, pt->where, CKPT_NO_OFFSET,
			       "a tensor is wrapped more than %d times", WRAP_DEPTH);
	switch (call) {
	case CK_PT_V1:
	case CK_PT_V2:
	case CK_PT_V3:
	case CK_PT_OLD:
		return make_plain(pt, call, arg, n, out, err);
	case CK_PT_PARAMETER:
	case CK_PT_CPU_TENSOR:
		return make_wrapped(pt, call, arg, n, depth, out, err);
	case CK_PT_FROM_TYPE:
		return make_from_type(pt, arg, n, depth, out, err);
	case CK_PT_NONE:
	case CK_PT_OPAQUE:
		break;
	}
	return 0;
}

static int bind_one(struct ck_pt *pt, struct ck_val *v, unsigned depth, struct ckpt_err *err)
{
	const enum ck_pt_call call = ck_pt_call_of(v);
	struct ck_tensor_ref *t = NULL;
	struct ck_val *const *arg;
	struct ck_obj *o = v->u.obj;
	uint64_t n;
	int rc;

	if (o->tensor || call == CK_PT_OPAQUE)
		return 0;
	if (o->nlist || o->ndict || (o->state && call != CK_PT_OLD))
		return ck_pt_bad(pt, err, "items or attributes are added to a tensor");
	if (!ck_val_seq(call == CK_PT_OLD ? o->state : o->args, &arg, &n))
		return call == CK_PT_OLD ? 0 : ck_pt_bad(pt, err, "a tensor is rebuilt without "
							 "arguments");
	rc = make(pt, call, arg, n, depth, &t, err);
	if (!rc)
		o->tensor = t;
	return rc;
}

/* ---- the walk ---- */

struct walk {
	struct ck_pt *pt;
	struct ck_findings *findings;
	struct ck_val **queue;
	uint64_t n, cap;
	uint64_t dups, tensor_keys;
};

static int enqueue(struct walk *w, struct ck_val *v, struct ckpt_err *err)
{
	int rc;

	if (!v || v->mark || v->kind < CK_VAL_TUPLE || v->kind == CK_VAL_GLOBAL)
		return 0;
	rc = ck_grow(&w->queue, &w->cap, w->n + 1, sizeof(struct ck_val *), err);
	if (rc)
		return rc;
	v->mark = 1;
	w->queue[w->n++] = v;
	return 0;
}

static int enqueue_all(struct walk *w, struct ck_val *const *item, uint64_t n,
		       struct ckpt_err *err)
{
	int rc = 0;

	for (uint64_t i = 0; !rc && i < n; i++)
		rc = enqueue(w, item[i], err);
	return rc;
}

static bool keys_equal(const struct ck_val *a, const struct ck_val *b)
{
	if (a->kind != b->kind)
		return false;
	if (a->kind == CK_VAL_INT)
		return a->u.i == b->u.i;
	return a->kind == CK_VAL_STR && a->u.str.len == b->u.str.len &&
	       !memcmp(a->u.str.p, b->u.str.p, a->u.str.len);
}

/*
 * Keys that come twice: the later value counts, and somebody should know.  Parameters are keys in
 * the states of an optimizer that was pickled whole, a defaultdict.
 */
static int keys_check(struct walk *w, struct ck_val *const *item, uint64_t n, bool of_optimizer,
		      struct ckpt_err *err)
{
	struct ck_map seen = CK_MAP_INIT;
	int rc = 0;

	for (uint64_t i = 0; i < n; i += 2)
		if (ck_pt_call_of(item[i]) != CK_PT_NONE && !of_optimizer)
			return ck_pt_bad(w->pt, err, "a tensor is the key of a dict");
		else
			w->tensor_keys += ck_pt_call_of(item[i]) != CK_PT_NONE;
	if (n <= 32) {
		for (uint64_t i = 0; i < n; i += 2)
			for (uint64_t k = 0; k < i; k += 2)
				w->dups += keys_equal(item[i], item[k]);
		return 0;
	}
	for (uint64_t i = 0; rc >= 0 && i < n; i += 2) {
		if (item[i]->kind == CK_VAL_STR)
			rc = ck_map_add(&seen, item[i]->u.str.p, item[i]->u.str.len, 0, NULL, err);
		w->dups += rc > 0;
		rc = rc > 0 ? 0 : rc;
	}
	ck_map_release(&seen);
	return rc;
}

/* torch.Size((2, 3)) */
static int size_check(const struct ck_pt *pt, const struct ck_val *v, struct ckpt_err *err)
{
	struct ck_val *const *item;
	uint64_t n, dim;

	if (!ck_val_seq(v, &item, &n))
		return ck_pt_bad(pt, err, "torch.Size is made of something that is not a tuple");
	for (uint64_t i = 0; i < n; i++)
		if (!ck_pt_count(item[i], &dim))
			return ck_pt_bad(pt, err, "torch.Size has an element that is not a size");
	return 0;
}

static int visit_object(struct walk *w, struct ck_val *v, struct ckpt_err *err)
{
	struct ck_obj *o = v->u.obj;
	int rc = 0;

	if (ck_pt_call_of(v) != CK_PT_NONE)
		rc = bind_one(w->pt, v, 0, err);
	else if (ck_val_is_global(o->fn, "torch", "Size"))
		rc = size_check(w->pt, v, err);
	if (!rc)
		rc = enqueue(w, o->fn, err);
	if (!rc)
		rc = enqueue(w, o->args, err);
	if (!rc)
		rc = enqueue(w, o->kwargs, err);
	if (!rc)
		rc = enqueue(w, o->state, err);
	if (!rc)
		rc = enqueue_all(w, o->list, o->nlist, err);
	if (!rc)
		rc = keys_check(w, o->dict, o->ndict,
				ck_val_is_global(o->fn, "collections", "defaultdict"), err);
	return rc ? rc : enqueue_all(w, o->dict, o->ndict, err);
}

/* A storage that stands in the tree by itself, or under a tensor. */
static int visit_persid(struct walk *w, const struct ck_val *v, struct ckpt_err *err)
{
	const struct ck_val *pid = v->u.pid;
	uint32_t storage;
	uint8_t dtype;

	if (w->pt->legacy && pid->kind == CK_VAL_TUPLE && pid->u.seq.n == 4 &&
	    ck_val_is_str(pid->u.seq.item[0], "module") &&
	    pid->u.seq.item[1]->kind == CK_VAL_GLOBAL)
		return 0;	/* a class with its source text */
	return ck_pt_storage_get(w->pt, v, &storage, &dtype, err);
}

static int visit(struct walk *w, struct ck_val *v, struct ckpt_err *err)
{
	int rc;

	switch ((enum ck_val_kind)v->kind) {
	case CK_VAL_DICT:
		rc = keys_check(w, v->u.seq.item, v->u.seq.n, false, err);
		return rc ? rc : enqueue_all(w, v->u.seq.item, v->u.seq.n, err);
	case CK_VAL_TUPLE:
	case CK_VAL_LIST:
	case CK_VAL_SET:
	case CK_VAL_FROZENSET:
		return enqueue_all(w, v->u.seq.item, v->u.seq.n, err);
	case CK_VAL_OBJECT:
		return visit_object(w, v, err);
	case CK_VAL_PERSID:
		return visit_persid(w, v, err);
	default:
		return 0;
	}
}

int ck_pt_bind(struct ck_pt *pt, struct ck_findings *findings, struct ckpt_err *err)
{
	struct walk w = { .pt = pt, .findings = findings };
	int rc = enqueue(&w, pt->doc.root, err);

	for (uint64_t i = 0; !rc && i < w.n; i++)
		rc = visit(&w, w.queue[i], err);
	for (uint64_t i = 0; i < w.n; i++)
		w.queue[i]->mark = 0;
	ck_free(w.queue);
	pt->doubled = w.dups > 0;
	if (!rc && w.dups)
		ck_pt_note(pt, findings, "a dict holds a key twice: the later value counts");
	if (!rc && w.tensor_keys)
		ck_pt_note(pt, findings, "a tensor is the key of a dict (an optimizer that was "
			   "pickled whole?): its values have no names");
	return rc;
}
