/*
 * ck_pkl_torch.c -- the allow-list of torch's weights_only unpickler, as of torch 2.6 to 2.11.
 *
 * torch makes it of its own tables: every element type, every class of tensor and storage of
 * the CPU and of CUDA, a dozen functions that rebuild tensors, and a few containers.
 */
#include <string.h>

#include "libckpt/pickle/ck_pkl_torch.h"

static bool is_one_of(const char *word, const char *const *list, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!strcmp(word, list[i]))
			return true;
	return false;
}

#define IS_ONE_OF(word, list) is_one_of(word, list, CK_ARRAY_LEN(list))

static const char *const single[] = {
	"_codecs.encode", "builtins.bytearray", "builtins.complex", "builtins.set",
	"collections.Counter", "collections.OrderedDict", "torch.Size", "torch.Tensor",
	"torch.device", "torch.nn.parameter.Parameter", "torch.serialization._get_layout",
	"torch.storage.TypedStorage", "torch.storage.UntypedStorage",
	"torch._tensor._rebuild_from_type_v2",
};

static const char *const utils[] = {
	"_rebuild_device_tensor_from_cpu_tensor", "_rebuild_device_tensor_from_numpy",
	"_rebuild_meta_tensor_no_storage", "_rebuild_nested_tensor", "_rebuild_parameter",
	"_rebuild_parameter_with_state", "_rebuild_qtensor", "_rebuild_sparse_tensor",
	"_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_tensor_v3", "_rebuild_wrapper_subclass",
};

/* torch.NAME: types of elements, and of quantisation. */
static const char *const types[] = {
	"bfloat16", "bits16", "bits1x8", "bits2x4", "bits4x2", "bits8", "bool", "complex128",
	"complex32", "complex64", "float16", "float32", "float4_e2m1fn_x2", "float64",
	"float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu",
	"int1", "int16", "int2", "int3", "int32", "int4", "int5", "int6", "int64", "int7", "int8",
	"qint32", "qint8", "quint2x4", "quint4x2", "quint8", "uint1", "uint16", "uint2", "uint3",
	"uint32", "uint4", "uint5", "uint6", "uint64", "uint7", "uint8",
	"per_channel_affine", "per_channel_affine_float_qparams", "per_channel_symmetric",
	"per_tensor_affine", "per_tensor_symmetric",
};

/* Of classes: of tensors, sparse ones but for Bool; the rest of storages only. */
static const char *const tensors[] = {
	"BFloat16", "Bool", "Byte", "Char", "Double", "Float", "Half", "Int", "Long", "Short",
};
static const char *const storages[] = { "ComplexDouble", "ComplexFloat" };
static const char *const cpu_storages[] = {
	"QInt32", "QInt8", "QUInt2x4", "QUInt4x2", "QUInt8",
};

/* "FloatStorage", "Storage" -> "Float" in 'out'. */
static bool cut(const char *name, const char *end, char out[32])
{
	const size_t n = strlen(name), m = strlen(end);

	if (n <= m || n - m >= 32 || strcmp(name + n - m, end))
		return false;
	memcpy(out, name, n - m);
	out[n - m] = 0;
	return true;
}

static bool is_class(const char *module, const char *name)
{
	const bool cpu = !strcmp(module, "torch"), cuda = !strcmp(module, "torch.cuda");
	char type[32];

	if (cut(name, "Tensor", type)) {
		if (!strcmp(module, "torch.sparse") || !strcmp(module, "torch.cuda.sparse"))
			return IS_ONE_OF(type, tensors) && strcmp(type, "Bool");
		return (cpu || cuda) && IS_ONE_OF(type, tensors);
	}
	if (!(cpu || cuda) || !cut(name, "Storage", type))
		return false;
	return IS_ONE_OF(type, tensors) || IS_ONE_OF(type, storages) ||
	       (cpu && IS_ONE_OF(type, cpu_storages));
}

static bool is_single(const char *module, const char *name)
{
	const size_t n = strlen(module);

	for (size_t i = 0; i < CK_ARRAY_LEN(single); i++)
		if (!strncmp(single[i], module, n) && single[i][n] == '.' &&
		    !strcmp(single[i] + n + 1, name))
			return true;
	return false;
}

enum ck_pkl_torch ck_pkl_torch_of(const char *module, const char *name)
{
	static const char *const never[] = { "sys", "os", "posix", "nt" };

	if (IS_ONE_OF(module, never))
		return CK_PKL_TORCH_NEVER;
	if (is_single(module, name) || is_class(module, name) ||
	    (!strcmp(module, "torch") && IS_ONE_OF(name, types)) ||
	    (!strcmp(module, "torch._utils") && IS_ONE_OF(name, utils)))
		return CK_PKL_TORCH_ALLOWS;
	return CK_PKL_TORCH_ASKS;
}

bool ck_pkl_torch_op(uint8_t op)
{
	/* in the order of pickletools: scalars, strings, containers, memo, names and calls */
	static const uint8_t taken[] = {
		'N', 0x88, 0x89, 'J', 'K', 'M', 0x8a, 'G', 'X', 'U', ')', 't', 0x85, 0x86, 0x87,
		']', 'a', 'e', '}', 's', 'u', 0x8f, '(', 'q', 'r', 'h', 'j', 'c', 'R', 0x81, 'b',
		'Q', 0x80, '.',
	};

	return memchr(taken, op, sizeof(taken)) != NULL;
}
