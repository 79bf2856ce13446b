/*
 * ck_pt_save.c -- a tensor as torch pickles it: a rebuild call around a persistent id.
 *
 * The types that torch had before 2.2 have storage classes of their own (_rebuild_tensor_v2);
 * later ones lie in an untyped storage and name their type (_rebuild_tensor_v3).
 */
#include "formats/torch_pt/ck_pt_save.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/format/ck_limits.h"
#include "libckpt/pickle/ck_pkl_emit.h"
#include "libckpt/tensor/ck_dtype.h"

static const struct {
	enum ckpt_dtype dtype;
	const char *storage;
} classes[] = {
	{ CKPT_F32, "FloatStorage" }, { CKPT_BF16, "BFloat16Storage" },
	{ CKPT_F16, "HalfStorage" }, { CKPT_F64, "DoubleStorage" },
	{ CKPT_I64, "LongStorage" }, { CKPT_I32, "IntStorage" }, { CKPT_I16, "ShortStorage" },
	{ CKPT_I8, "CharStorage" }, { CKPT_U8, "ByteStorage" }, { CKPT_BOOL, "BoolStorage" },
	{ CKPT_C64, "ComplexFloatStorage" }, { CKPT_C128, "ComplexDoubleStorage" },
};

/* NULL for a type that came later. */
static const char *class_of(uint8_t dtype)
{
	for (size_t i = 0; i < CK_ARRAY_LEN(classes); i++)
		if (classes[i].dtype == dtype)
			return classes[i].storage;
	return NULL;
}

static bool is_quantized(uint8_t dtype)
{
	return dtype == CKPT_QI8 || dtype == CKPT_QU8 || dtype == CKPT_QI32 ||
	       dtype == CKPT_QU4X2 || dtype == CKPT_QU2X4;
}

static int check_type(const struct ck_pt_saved *s, uint8_t dtype, struct ckpt_err *err)
{
	const struct ck_dtype_info *info = ck_dtype_info(dtype);

	if (info && info->torch && info->bits >= 8 && !is_quantized(dtype))
		return 0;
	return ck_fail(err, CKPT_E_UNSUPPORTED, s->want->name, CKPT_NO_OFFSET,
		       "a tensor of type %s cannot be written as a torch file",
		       info ? info->name : "0");
}

/* Of a tensor without elements any size may be large. */
static int check_sizes(const struct ck_pt_saved *s, const struct ck_tensor_ref *t,
		       struct ckpt_err *err)
{
	for (uint32_t i = 0; i < t->ndim; i++)
		if (t->shape[i] > INT64_MAX || t->stride[i] > INT64_MAX)
			return ck_fail(err, CKPT_E_UNSUPPORTED, s->want->name, CKPT_NO_OFFSET,
				       "a tensor has size %" PRIu64 " in dimension %u; torch's "
				       "limit is 2^63 - 1", t->shape[i], i);
	return 0;
}

/* The tensor's type is that of its storage, and its last element lies in it. */
static int check_tensor(const struct ck_pt_saved *s, const struct ck_tensor_ref *t,
			struct ckpt_err *err)
{
	const uint64_t esize = ckpt_dtype_bits(t->dtype) / 8;
	uint64_t last = t->offset, step, room;
	bool empty = false;
	int rc = check_type(s, t->dtype, err);

	if (!rc)
		rc = check_sizes(s, t, err);
	if (rc)
		return rc;
	if (t->storage >= s->want->nstorages || s->want->storage[t->storage].dtype != t->dtype)
		return ck_fail(err, CKPT_E_USAGE, s->want->name, CKPT_NO_OFFSET,
			       "a tensor of type %s uses storage %u, which has another type",
			       ckpt_dtype_name(t->dtype), t->storage);
	room = s->bytes[t->storage] / esize;
	for (uint32_t i = 0; i < t->ndim; i++)
		empty |= !t->shape[i];
	for (uint32_t i = 0; !empty && i < t->ndim; i++)
		if (ck_mul_over(t->shape[i] - 1, t->stride[i], &step) ||
		    ck_add_over(last, step, &last))
			last = UINT64_MAX;
	if ((empty || last < room) && t->offset <= INT64_MAX)
		return 0;
	return ck_fail(err, CKPT_E_USAGE, s->want->name, CKPT_NO_OFFSET,
		       "a tensor reaches element %" PRIu64 " of a storage of %" PRIu64 " "
		       "elements", last, room);
}

/* Its number, given at the first mention. */
static uint32_t key_of(struct ck_pt_saved *s, uint32_t storage)
{
	if (s->key[storage] == CK_NONE) {
		s->order[s->nkeys] = storage;
		s->key[storage] = s->nkeys++;
	}
	return s->key[storage];
}

/* ("storage", class, key, "cpu", count) as a persistent id. */
static int put_storage(struct ck_pt_saved *s, const struct ck_tensor_ref *t,
		       struct ck_pkl_out *out)
{
	const char *class = class_of(t->dtype);
	const uint64_t bytes = s->bytes[t->storage];
	char key[16];
	int rc = ck_pkl_out_op(out, CK_PKL_OUT_MARK);

	snprintf(key, sizeof(key), "%u", key_of(s, t->storage));
	if (!rc)
		rc = ck_pkl_out_text(out, "storage");
	if (!rc)
		rc = class ? ck_pkl_out_global(out, "torch", class) :
			     ck_pkl_out_global(out, "torch.storage", "UntypedStorage");
	if (!rc)
		rc = ck_pkl_out_text(out, key);
	if (!rc)
		rc = ck_pkl_out_text(out, "cpu");
	if (!rc)
		rc = ck_pkl_out_int(out, (int64_t)(class ? bytes / (ckpt_dtype_bits(t->dtype) / 8) :
							   bytes));
	if (!rc)
		rc = ck_pkl_out_op(out, CK_PKL_OUT_TUPLE);
	if (!rc)
		rc = ck_pkl_out_memo(out);
	return rc ? rc : ck_pkl_out_op(out, CK_PKL_OUT_PERSID);
}

/* An OrderedDict() of hooks that were there, which no state dict has. */
static int put_no_hooks(struct ck_pkl_out *out)
{
	int rc = ck_pkl_out_global(out, "collections", "OrderedDict");

	if (!rc)
		rc = ck_pkl_out_counts(out, NULL, 0);
	if (!rc)
		rc = ck_pkl_out_op(out, CK_PKL_OUT_REDUCE);
	return rc ? rc : ck_pkl_out_memo(out);
}

static int put_flag(struct ck_pkl_out *out, const char *name)
{
	int rc = ck_pkl_out_text(out, name);

	if (!rc)
		rc = ck_pkl_out_bool(out, true);
	return rc ? rc : ck_pkl_out_op(out, 's');
}

/* {"conj": True}, {"neg": True}: applied when the tensor is used. */
static int put_lazy(const struct ck_tensor_ref *t, struct ck_pkl_out *out)
{
	int rc;

	if (!t->conj && !t->neg)
		return 0;
	rc = ck_pkl_out_op(out, '}');
	if (!rc)
		rc = ck_pkl_out_memo(out);
	if (!rc && t->conj)
		rc = put_flag(out, "conj");
	if (!rc && t->neg)
		rc = put_flag(out, "neg");
	return rc;
}

/* The arguments of the call, a tuple that is not yet numbered. */
static int put_args(struct ck_pt_saved *s, const struct ck_tensor_ref *t, struct ck_pkl_out *out)
{
	const bool typed = class_of(t->dtype);
	int rc = ck_pkl_out_op(out, CK_PKL_OUT_MARK);

	if (!rc)
		rc = put_storage(s, t, out);
	if (!rc)
		rc = ck_pkl_out_int(out, (int64_t)t->offset);
	if (!rc)
		rc = ck_pkl_out_counts(out, t->shape, t->ndim);
	if (!rc)
		rc = ck_pkl_out_counts(out, t->stride, t->ndim);
	if (!rc)
		rc = ck_pkl_out_bool(out, t->requires_grad && !t->parameter);
	if (!rc)
		rc = put_no_hooks(out);
	if (!rc && !typed)
		rc = ck_pkl_out_global(out, "torch", ck_dtype_info(t->dtype)->torch);
	if (!rc)
		rc = put_lazy(t, out);
	return rc ? rc : ck_pkl_out_op(out, CK_PKL_OUT_TUPLE);
}

const char *ck_pt_call_for(uint8_t dtype)
{
	return class_of(dtype) ? "_rebuild_tensor_v2" : "_rebuild_tensor_v3";
}

/* The call, not yet numbered. */
static int put_rebuild(struct ck_pt_saved *s, const struct ck_tensor_ref *t,
		       struct ck_pkl_out *out)
{
	int rc = ck_pkl_out_global(out, "torch._utils", ck_pt_call_for(t->dtype));

	if (!rc)
		rc = put_args(s, t, out);
	if (!rc)
		rc = ck_pkl_out_memo(out);
	return rc ? rc : ck_pkl_out_op(out, CK_PKL_OUT_REDUCE);
}

/* An nn.Parameter around it. */
static int put_parameter(struct ck_pt_saved *s, const struct ck_tensor_ref *t,
			 struct ck_pkl_out *out)
{
	int rc = ck_pkl_out_global(out, "torch._utils", "_rebuild_parameter");

	if (!rc)
		rc = put_rebuild(s, t, out);
	if (!rc)
		rc = ck_pkl_out_memo(out);
	if (!rc)
		rc = ck_pkl_out_bool(out, t->requires_grad);
	if (!rc)
		rc = put_no_hooks(out);
	if (!rc)
		rc = ck_pkl_out_op(out, 0x87);
	if (!rc)
		rc = ck_pkl_out_memo(out);
	return rc ? rc : ck_pkl_out_op(out, CK_PKL_OUT_REDUCE);
}

static int put_tensor(void *arg, const struct ck_val *v, struct ck_pkl_out *out)
{
	struct ck_pt_saved *s = arg;
	const struct ck_tensor_ref *t = ck_val_tensor(v);
	int rc;

	if (!t)
		return ck_fail(ck_pkl_out_err(out), CKPT_E_UNSUPPORTED, s->want->name,
			       CKPT_NO_OFFSET,
			       "zckpt cannot write a storage that belongs to no plain "
			       "tensor (a sparse or quantized one?)");
	rc = check_tensor(s, t, ck_pkl_out_err(out));
	if (rc)
		return rc;
	if (t->args_only)
		return put_args(s, t, out);
	return t->parameter ? put_parameter(s, t, out) : put_rebuild(s, t, out);
}

int ck_pt_save(struct ck_pt_saved *s, char **pickle_out, uint64_t *n_out, struct ckpt_err *err)
{
	struct ckpt_limits limits;

	ck_limits_fill(NULL, &limits);
	return ck_pkl_emit(s->want->root, &limits, put_tensor, s, pickle_out, n_out, err);
}
