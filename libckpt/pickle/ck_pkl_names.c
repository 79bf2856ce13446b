/*
 * ck_pkl_names.c -- the three sets of names: data, refused, everything else.
 *
 * The refused set is a table of modules (with everything below them) and of single
 * functions.  A name with dots in it walks attributes in Python ("torch", "os.system"
 * is os.system), so every tail of such a name is looked up too.  Modules that are not
 * plain ASCII are refused: no library has one, and look-alike letters hide in them.
 */
#include <stdio.h>
#include <string.h>

#include "libckpt/base/ck_text.h"
#include "libckpt/pickle/ck_pkl_vm.h"

static const char *const refused_modules[] = {
	"os", "posix", "nt", "sys", "subprocess", "_posixsubprocess", "_winapi", "winreg",
	"_winreg", "msvcrt", "socket", "_socket", "ssl", "socketserver", "shutil", "runpy",
	"ctypes", "_ctypes", "cffi", "code", "codeop", "timeit", "importlib", "imp", "pkgutil",
	"zipimport", "pty", "pdb", "bdb", "cProfile", "profile", "trace", "asyncio", "concurrent",
	"multiprocessing.util", "multiprocessing.popen_fork", "multiprocessing.popen_spawn_posix",
	"threading", "_thread", "signal", "pickle", "_pickle", "cPickle", "pickletools", "marshal",
	"shelve", "dbm", "dill", "cloudpickle", "joblib", "pip", "ensurepip", "venv", "site",
	"sitecustomize", "webbrowser", "antigravity", "platform", "doctest", "idlelib", "lib2to3",
	"http", "urllib", "urllib2", "httplib", "requests", "aiohttp", "ftplib", "smtplib",
	"telnetlib", "poplib", "imaplib", "nntplib", "xmlrpc", "commands", "popen2", "distutils",
	"setuptools", "linecache", "tempfile", "fileinput", "glob", "compileall",
	"py_compile", "gc", "resource", "fcntl", "mmap", "sqlite3", "logging.config",
	"torch.hub", "torch.package", "torch.jit", "torch._inductor", "torch.utils.cpp_extension",
	"torch.utils._config_module", "torch.utils.bottleneck", "torch.utils.collect_env",
	"torch.utils.model_zoo", "torch.testing", "torch.distributed.rpc",
	"numpy.testing", "numpy.f2py", "numpy.distutils", "pandas.io.pickle",
};

static const char *const refused_functions[] = {
	"builtins.eval", "builtins.exec", "builtins.execfile", "builtins.compile",
	"builtins.open", "builtins.getattr", "builtins.setattr", "builtins.delattr",
	"builtins.__import__", "builtins.__build_class__", "builtins.globals", "builtins.locals",
	"builtins.vars", "builtins.input", "builtins.breakpoint", "builtins.apply",
	"builtins.reload", "builtins.help", "builtins.exit", "builtins.quit",
	"io.open", "io.open_code", "io.FileIO", "_io.open", "_io.open_code", "_io.FileIO",
	"_pyio.open", "codecs.open",
	"operator.attrgetter", "operator.itemgetter", "operator.methodcaller", "operator.call",
	"_operator.attrgetter", "_operator.itemgetter", "_operator.methodcaller",
	"_operator.call", "types.CodeType", "types.FunctionType", "types.MethodType",
	"types.LambdaType", "functools.reduce", "_functools.reduce",
	"torch.load", "torch.from_file", "torch.compile", "torch.serialization.load",
	"torch.serialization._load", "torch.serialization._legacy_load",
	"torch.storage._load_from_bytes", "torch.classes.load_library", "torch.ops.load_library",
	"torch.FloatStorage.from_file", "torch.UntypedStorage.from_file",
	"torch.storage.UntypedStorage.from_file",
	"numpy.load", "numpy.loadtxt", "numpy.genfromtxt", "numpy.fromfile", "numpy.memmap",
	"numpy.lib.npyio.load", "numpy.core.memmap", "pandas.read_pickle", "pandas.eval",
};

/* module, name: they build values, or a layer above knows what they mean. */
static const struct {
	const char *module, *name;
} data_names[] = {
	{ "collections", "OrderedDict" }, { "collections", "Counter" },
	{ "collections", "defaultdict" }, { "collections", "deque" },
	{ "_codecs", "encode" },
	{ "builtins", "bytearray" }, { "builtins", "bytes" }, { "builtins", "set" },
	{ "builtins", "frozenset" }, { "builtins", "complex" }, { "builtins", "slice" },
	{ "builtins", "range" }, { "builtins", "list" }, { "builtins", "dict" },
	{ "builtins", "tuple" }, { "builtins", "int" }, { "builtins", "float" },
	{ "builtins", "str" }, { "builtins", "bool" }, { "builtins", "object" },
	{ "copyreg", "_reconstructor" },
	{ "torch", "Size" }, { "torch", "Tensor" }, { "torch", "device" },
	{ "torch", "per_tensor_affine" }, { "torch", "per_tensor_symmetric" },
	{ "torch", "per_channel_affine" }, { "torch", "per_channel_symmetric" },
	{ "torch", "per_channel_affine_float_qparams" },
	{ "torch._utils", "_rebuild_tensor" }, { "torch._utils", "_rebuild_tensor_v2" },
	{ "torch._utils", "_rebuild_tensor_v3" }, { "torch._utils", "_rebuild_parameter" },
	{ "torch._utils", "_rebuild_parameter_with_state" },
	{ "torch._utils", "_rebuild_qtensor" }, { "torch._utils", "_rebuild_sparse_tensor" },
	{ "torch._utils", "_rebuild_sparse_csr_tensor" },
	{ "torch._utils", "_rebuild_meta_tensor_no_storage" },
	{ "torch._utils", "_rebuild_nested_tensor" },
	{ "torch._utils", "_rebuild_wrapper_subclass" },
	{ "torch._utils", "_rebuild_device_tensor_from_numpy" },
	{ "torch._utils", "_rebuild_device_tensor_from_cpu_tensor" },
	{ "torch._utils", "_rebuild_xla_tensor" },
	{ "torch._tensor", "_rebuild_from_type_v2" }, { "torch._tensor", "_rebuild_from_type" },
	{ "torch.tensor", "_rebuild_from_type_v2" }, { "torch.tensor", "_rebuild_from_type" },
	{ "torch.nn.parameter", "Parameter" }, { "torch.serialization", "_get_layout" },
	{ "torch.storage", "TypedStorage" }, { "torch.storage", "UntypedStorage" },
	{ "deepspeed.runtime.fp16.loss_scaler", "LossScaler" },
	{ "deepspeed.runtime.fp16.loss_scaler", "DynamicLossScaler" },
	{ "deepspeed.pt.loss_scaler", "LossScaler" },
	{ "deepspeed.pt.loss_scaler", "DynamicLossScaler" },
	{ "deepspeed.runtime.zero.config", "ZeroStageEnum" },
	{ "deepspeed.utils.tensor_fragment", "fragment_address" },
	{ "deepspeed.runtime.bf16_optimizer", "fragment_address" },
	{ "deepspeed.checkpoint.universal_checkpoint", "SubparamShape" },
	{ "numpy.core.multiarray", "_reconstruct" }, { "numpy._core.multiarray", "_reconstruct" },
	{ "numpy.core.multiarray", "scalar" }, { "numpy._core.multiarray", "scalar" },
	{ "numpy", "ndarray" }, { "numpy", "dtype" },
	/* '.metadata' of torch.distributed.checkpoint: formats/dcp */
	{ "torch.distributed.checkpoint.metadata", "Metadata" },
	{ "torch.distributed.checkpoint.metadata", "TensorStorageMetadata" },
	{ "torch.distributed.checkpoint.metadata", "ChunkStorageMetadata" },
	{ "torch.distributed.checkpoint.metadata", "BytesStorageMetadata" },
	{ "torch.distributed.checkpoint.metadata", "MetadataIndex" },
	{ "torch.distributed.checkpoint.metadata", "StorageMeta" },
	{ "torch.distributed.checkpoint.metadata", "TensorProperties" },
	{ "torch.distributed.checkpoint.metadata", "_MEM_FORMAT_ENCODING" },
	{ "torch.distributed._shard.sharded_tensor.metadata", "TensorProperties" },
	{ "torch.distributed._shard.sharded_tensor.metadata", "MEM_FORMAT_ENCODING" },
	{ "torch.distributed.checkpoint.filesystem", "_StorageInfo" },
	/* sharded tensors of torch: formats/fsdp_ranks */
	{ "torch.distributed.tensor", "DTensor" },
	{ "torch.distributed._tensor.api", "DTensor" },
	{ "torch.distributed.tensor._dtensor_spec", "DTensorSpec" },
	{ "torch.distributed.tensor._dtensor_spec", "TensorMeta" },
	{ "torch.distributed.tensor._dtensor_spec", "ShardOrderEntry" },
	{ "torch.distributed.tensor.placement_types", "Shard" },
	{ "torch.distributed.tensor.placement_types", "Replicate" },
	{ "torch.distributed.tensor.placement_types", "_StridedShard" },
	{ "torch.distributed._tensor.placement_types", "DTensorSpec" },
	{ "torch.distributed._tensor.placement_types", "TensorMeta" },
	{ "torch.distributed._tensor.placement_types", "Shard" },
	{ "torch.distributed._tensor.placement_types", "Replicate" },
	{ "torch.distributed._tensor.placement_types", "_StridedShard" },
	{ "torch.distributed.device_mesh", "DeviceMesh" },
	{ "torch.distributed._mesh_layout", "_MeshLayout" },
	{ "torch.distributed._mesh_layout", "_FlatLayout" },
	{ "torch.distributed._shard.sharded_tensor.api", "ShardedTensor" },
	{ "torch.distributed._shard.sharded_tensor.shard", "Shard" },
	{ "torch.distributed._shard.sharded_tensor.metadata", "ShardedTensorMetadata" },
	{ "torch.distributed._shard.metadata", "ShardMetadata" },
	{ "torch.distributed._shard.sharding_spec.api", "EnumerableShardingSpec" },
	{ "torch.distributed._shard.sharding_spec.chunk_sharding_spec", "ChunkShardingSpec" },
	{ "torch.distributed.remote_device", "_remote_device" },
	{ "argparse", "Namespace" }, { "types", "SimpleNamespace" },
	{ "pathlib", "PosixPath" }, { "pathlib._local", "PosixPath" },
	{ "pathlib", "PurePosixPath" }, { "pathlib", "WindowsPath" },
	{ "datetime", "datetime" }, { "datetime", "date" }, { "datetime", "timedelta" },
	{ "datetime", "time" }, { "datetime", "timezone" },
};

/* Python 2 -> 3.  name NULL: the whole module was renamed. */
static const struct {
	const char *module, *name, *new_module, *new_name;
} renamed[] = {
	{ "__builtin__", "xrange", "builtins", "range" },
	{ "__builtin__", "reduce", "functools", "reduce" },
	{ "__builtin__", "intern", "sys", "intern" },
	{ "__builtin__", "unichr", "builtins", "chr" },
	{ "__builtin__", "unicode", "builtins", "str" },
	{ "__builtin__", "basestring", "builtins", "str" },
	{ "__builtin__", "long", "builtins", "int" },
	{ "itertools", "izip", "builtins", "zip" },
	{ "itertools", "imap", "builtins", "map" },
	{ "itertools", "ifilter", "builtins", "filter" },
	{ "UserDict", "IterableUserDict", "collections", "UserDict" },
	{ "UserList", "UserList", "collections", "UserList" },
	{ "UserString", "UserString", "collections", "UserString" },
	{ "__builtin__", NULL, "builtins", NULL }, { "copy_reg", NULL, "copyreg", NULL },
	{ "exceptions", NULL, "builtins", NULL }, { "Queue", NULL, "queue", NULL },
	{ "SocketServer", NULL, "socketserver", NULL },
	{ "ConfigParser", NULL, "configparser", NULL }, { "repr", NULL, "reprlib", NULL },
	{ "cPickle", NULL, "pickle", NULL }, { "thread", NULL, "_thread", NULL },
	{ "commands", NULL, "subprocess", NULL }, { "urllib2", NULL, "urllib.request", NULL },
	{ "httplib", NULL, "http.client", NULL }, { "StringIO", NULL, "io", NULL },
	{ "cStringIO", NULL, "io", NULL }, { "anydbm", NULL, "dbm", NULL },
	{ "whichdb", NULL, "dbm", NULL }, { "xmlrpclib", NULL, "xmlrpc.client", NULL },
};

/* true if 'name' is 'head' or lies below it. */
static bool is_below(const char *name, const char *head)
{
	const size_t n = strlen(head);

	return !strncmp(name, head, n) && (!name[n] || name[n] == '.');
}

static bool is_refused(const char *dotted)
{
	for (size_t i = 0; i < CK_ARRAY_LEN(refused_modules); i++)
		if (is_below(dotted, refused_modules[i]))
			return true;
	for (size_t i = 0; i < CK_ARRAY_LEN(refused_functions); i++)
		if (is_below(dotted, refused_functions[i]))
			return true;
	return false;
}

static bool is_plain(const char *s, bool ascii)
{
	for (; *s; s++)
		if ((unsigned char)*s <= ' ' || *s == 127 || (ascii && (unsigned char)*s > 127))
			return false;
	return true;
}

/* What follows the next dot, or NULL. */
static const char *next_step(const char *name)
{
	const char *dot = strchr(name, '.');

	return dot ? dot + 1 : NULL;
}

/* Steps by which a dotted name reaches what it should not. */
static bool has_dunder_step(const char *name)
{
	static const char *const steps[] = { "__globals__", "__builtins__", "__dict__",
		"__class__", "__subclasses__", "__getattribute__", "__code__", "__loader__",
		"__spec__", "__init__", "__reduce__", "__reduce_ex__", "__mro__", "__base__" };

	for (; name; name = next_step(name))
		for (size_t i = 0; i < CK_ARRAY_LEN(steps); i++)
			if (is_below(name, steps[i]))
				return true;
	return false;
}

static bool is_data(const char *module, const char *name)
{
	for (size_t i = 0; i < CK_ARRAY_LEN(data_names); i++)
		if (!strcmp(module, data_names[i].module) && !strcmp(name, data_names[i].name))
			return true;
	if (strchr(name, '.'))
		return false;
	/* torch.FloatStorage, torch.cuda.FloatStorage, torch.FloatTensor, torch.float32 */
	if (!strcmp(module, "torch") || !strcmp(module, "torch.cuda"))
		return ck_ends_with(name, "Storage") || ck_ends_with(name, "Tensor") ||
		       !strncmp(name, "float", 5) || !strncmp(name, "bfloat", 6) ||
		       !strncmp(name, "int", 3) || !strncmp(name, "uint", 4) ||
		       !strncmp(name, "complex", 7) || !strncmp(name, "qint", 4) ||
		       !strncmp(name, "quint", 5) || !strncmp(name, "bits", 4) ||
		       !strcmp(name, "bool") || !strncmp(name, "bcomplex", 8);
	return false;
}

enum ck_pkl_class ck_pkl_class_of(const char *module, const char *name)
{
	char dotted[CK_PKL_NAME_MAX + 2];
	const int n = snprintf(dotted, sizeof(dotted), "%s.%s", module, name);

	if (n < 0 || (size_t)n >= sizeof(dotted) || !is_plain(module, true) ||
	    !is_plain(name, false))
		return CK_PKL_REFUSED;
	if (is_data(module, name))
		return CK_PKL_DATA;
	if (is_refused(dotted) || has_dunder_step(name))
		return CK_PKL_REFUSED;
	for (const char *p = strchr(name, '.') ? name : NULL; p; p = next_step(p))
		if (is_refused(p))
			return CK_PKL_REFUSED;
	return CK_PKL_OPAQUE;
}

static void rename2to3(const char **module, const char **name)
{
	for (size_t i = 0; i < CK_ARRAY_LEN(renamed); i++) {
		if (strcmp(*module, renamed[i].module) ||
		    (renamed[i].name && strcmp(*name, renamed[i].name)))
			continue;
		*module = renamed[i].new_module;
		if (renamed[i].new_name)
			*name = renamed[i].new_name;
		return;
	}
}

/* "torch", "_utils._rebuild_tensor_v2" -> "torch._utils", "_rebuild_tensor_v2". */
bool ck_pkl_name_normal(const char **module, const char **name, char *buf, size_t size)
{
	const size_t n = strlen(*module);

	rename2to3(module, name);
	if (!strchr(*name, '.') || n + strlen(*name) + 2 > size)
		return false;
	snprintf(buf, size, "%s.%s", *module, *name);
	for (char *dot = strchr(buf, '.'); dot; dot = strchr(dot + 1, '.')) {
		*dot = 0;
		if (is_data(buf, dot + 1)) {
			*module = buf;
			*name = dot + 1;
			return true;
		}
		*dot = '.';
	}
	return false;
}
