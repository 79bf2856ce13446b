"""The C interface of libckpt for ctypes: written by abi.py from libckpt/include."""
# ruff: noqa
from ctypes import (CFUNCTYPE, POINTER, Structure, c_char, c_char_p, c_double, c_int, c_int32,
                    c_int64, c_size_t, c_uint, c_uint8, c_uint32, c_uint64, c_void_p)

CKPT_VERSION_STRING = '0.1.0'
CKPT_VERSION_NUMBER = 100
CKPT_NO_OFFSET = 18446744073709551615
CKPT_STATE_DERIVED = 1
CKPT_STATE_PER_RANK = 2
CKPT_EXTENT_SWAPPED = 1
CKPT_EXTENT_CONJ = 2
CKPT_EXTENT_NEG = 4
CKPT_EXTENT_DEFLATED = 8
CKPT_EXTENT_GATHER = 16
CKPT_OK = 0
CKPT_E_IO = 10
CKPT_E_NOMEM = 11
CKPT_E_NOSPACE = 12
CKPT_E_EXISTS = 13
CKPT_E_NOTFOUND = 14
CKPT_E_CANCELED = 15
CKPT_E_BUSY = 16
CKPT_E_TRUNCATED = 20
CKPT_E_CORRUPT = 21
CKPT_E_FORMAT = 22
CKPT_E_UNSUPPORTED = 23
CKPT_E_LIMIT = 24
CKPT_E_INCOMPLETE = 30
CKPT_E_MISMATCH = 31
CKPT_E_LAYOUT = 32
CKPT_E_UNSAFE = 40
CKPT_E_USAGE = 41
CKPT_E_EXPECT = 42
CKPT_BOOL = 1
CKPT_F4 = 2
CKPT_F6_E2M3 = 3
CKPT_F6_E3M2 = 4
CKPT_U8 = 5
CKPT_I8 = 6
CKPT_F8_E5M2 = 7
CKPT_F8_E4M3 = 8
CKPT_F8_E8M0 = 9
CKPT_F8_E4M3FNUZ = 10
CKPT_F8_E5M2FNUZ = 11
CKPT_I16 = 12
CKPT_U16 = 13
CKPT_F16 = 14
CKPT_BF16 = 15
CKPT_I32 = 16
CKPT_U32 = 17
CKPT_F32 = 18
CKPT_C64 = 19
CKPT_F64 = 20
CKPT_I64 = 21
CKPT_U64 = 22
CKPT_C128 = 40
CKPT_C32 = 41
CKPT_BC32 = 42
CKPT_QI8 = 43
CKPT_QU8 = 44
CKPT_QI32 = 45
CKPT_QU4X2 = 46
CKPT_QU2X4 = 47
CKPT_BITS8 = 48
CKPT_BITS16 = 49
CKPT_BITS1X8 = 50
CKPT_BITS2X4 = 51
CKPT_BITS4X2 = 52
CKPT_F4X2 = 53
CKPT_ROLE_TRAINABLE = 1
CKPT_ROLE_FROZEN = 2
CKPT_ROLE_BUFFER = 3
CKPT_ROLE_ALIAS = 4
CKPT_ROLE_PLAIN = 5
CKPT_ROLE_UNTRAINED = 6
CKPT_INFO = 1
CKPT_WARN = 2
CKPT_ERROR = 3
CKPT_SYNC_DATA = 0
CKPT_SYNC_FULL = 1
CKPT_SYNC_NONE = 2
CKPT_VALUE_NONE = 1
CKPT_VALUE_BOOL = 2
CKPT_VALUE_INT = 3
CKPT_VALUE_BIGINT = 4
CKPT_VALUE_FLOAT = 5
CKPT_VALUE_STRING = 6
CKPT_VALUE_BYTES = 7
CKPT_VALUE_LIST = 8
CKPT_VALUE_DICT = 9
CKPT_VALUE_TENSOR = 10
CKPT_VALUE_OBJECT = 11
CKPT_VALUE_NAME = 12
CKPT_ONLY_TRAINABLE = 1
CKPT_ONLY_FROZEN = 2
CKPT_ONLY_BUFFERS = 4
CKPT_KEEP = -1
CKPT_WRITE_FORCE = 1
CKPT_WRITE_RESTART = 2
CKPT_WRITE_DRY_RUN = 4
CKPT_WRITE_STRICT = 16
CKPT_CONVERT_DIGEST = 8
CKPT_CONVERT_LANGUAGE = 64
CKPT_CONVERT_NO_SUMS = 32
CKPT_TIED_ALIAS = 0
CKPT_TIED_DUP = 1
CKPT_TIED_DROP = 2
CKPT_DST_FOLDER = 1
CKPT_DST_SAFETENSORS = 2
CKPT_DST_TORCH = 3
CKPT_DST_STREAM = 4
CKPT_VERIFY_FULL = 1
CKPT_VERIFY_WRITE_MANIFEST = 2
CKPT_VERIFY_FORCE = 4
CKPT_DIFF_TOLERANCE = 1
CKPT_DIFF_NO_SCALARS = 2
CKPT_DIFF_DERIVED_A = 1
CKPT_DIFF_DERIVED_B = 2
CKPT_DIFF_PER_RANK = 4
CKPT_DIFF_ONE_SOURCE = 8
CKPT_DIFF_TIED_A = 16
CKPT_DIFF_TIED_B = 32
CKPT_DIFF_BYTES = 64
CKPT_DIFF_EXPORTED_A = 128
CKPT_DIFF_EXPORTED_B = 256
CKPT_DIFF_OF_EXPORT = 512
CKPT_DIFF_ULPS = 65
CKPT_DIFF_SAME = 0
CKPT_DIFF_WITHIN = 1
CKPT_DIFF_TIED_ONLY_A = 2
CKPT_DIFF_TIED_ONLY_B = 3
CKPT_DIFF_DTYPE = 4
CKPT_DIFF_VALUES = 5
CKPT_DIFF_STATE_A = 6
CKPT_DIFF_STATE_B = 7
CKPT_DIFF_ONLY_A = 8
CKPT_DIFF_ONLY_B = 9
CKPT_DIFF_TYPES = 10
CKPT_DIFF_SHAPE = 11
CKPT_TO_DEEPSPEED = 0
CKPT_TO_UNIVERSAL = 1
CKPT_TO_NATIVE = 2
CKPT_TO_DCP = 4
CKPT_TO_FSDP_RANKS = 5
CKPT_TO_TRAINER = 9
CKPT_TO_TORCH_TRAINING = 10
CKPT_RESHARD_RESET = 256
CKPT_RESHARD_WHOLE = 512
CKPT_SHARD_DEEPSPEED = 0
CKPT_SHARD_MEGATRON = 1
CKPT_GROUPS_ONE = 0
CKPT_GROUPS_DECAY = 1
CKPT_LOAD_CHECK = 1
CKPT_LOAD_DESPITE_FINDINGS = 2
CKPT_CAT_NPY = 0
CKPT_CAT_TEXT = 1
CKPT_CAT_RAW = 2
CKPT_OFFLOAD_OPTIMIZER = 1
CKPT_OFFLOAD_PARAMS = 2
CKPT_ENGINE_DEEPSPEED = 0
CKPT_ENGINE_ZTRAIN = 1
CKPT_FP8_TENSORWISE = 1
CKPT_FP8_TENSORWISE_GW_HP = 2
CKPT_FP8_TENSORWISE_FAST = 3
CKPT_SETUP_STAGE = 1
CKPT_SETUP_OFFLOAD = 2
CKPT_SETUP_DTYPE = 4
CKPT_SETUP_MICRO = 8
CKPT_SETUP_ACCUMULATION = 16
CKPT_PHASE_LOSS = 1
CKPT_PHASE_LAYER = 2
CKPT_PHASE_END = 4
CKPT_PHASE_STEP = 8
CKPT_PHASE_ALL = 15
CKPT_NPHASES = 4
CKPT_MAX_TERMS = 32
CKPT_OPS_EAGER = 0
CKPT_OPS_FUSED = 1
CKPT_PLACE_GPU = 1
CKPT_PLACE_HOST = 2
CKPT_SLIM_VIEWS = 1
CKPT_SLIM_FROZEN = 2
CKPT_SLIM_MOMENTS = 4
CKPT_PRUNE_APPLY = 1
CKPT_PRUNE_FULL = 2
CKPT_PRUNE_LINK = 4
CKPT_PRUNE_REFLINK = 8
CKPT_NAME_DATA = 1
CKPT_NAME_OPAQUE = 2
CKPT_NAME_REFUSED = 3
CKPT_TORCH_ALLOWS = 1
CKPT_TORCH_ASKS = 2
CKPT_TORCH_NEVER = 3
CKPT_SIZE_STATE = 1
CKPT_SIZE_REPLICA = 2
CKPT_SIZE_PADDING = 3
CKPT_SIZE_BLOAT = 4
CKPT_SIZE_OTHER_TENSORS = 5
CKPT_SIZE_COMPRESSED = 6
CKPT_SIZE_PICKLE = 7
CKPT_SIZE_ARCHIVE = 8
CKPT_SIZE_OTHER_FILES = 9
CKPT_PRUNE_KEEP = 1
CKPT_PRUNE_SLIM = 2
CKPT_PRUNE_REMOVE = 3
CKPT_SAVER_LOCAL = 2
CKPT_SAVE_FORCE = 1
CKPT_SAVE_NO_LATEST = 2
CKPT_TO_HUGGINGFACE = 3
CKPT_PUT_BORROW = 1

class ckpt_err(Structure): pass
class ckpt_tensor_info(Structure): pass
class ckpt_state_info(Structure): pass
class ckpt_extent_info(Structure): pass
class ckpt_finding(Structure): pass
class ckpt_limits(Structure): pass
class ckpt_limit_info(Structure): pass
class ckpt_open_opts(Structure): pass
class ckpt_info(Structure): pass
class ckpt_file_info(Structure): pass
class ckpt_progress(Structure): pass
class ckpt_run_opts(Structure): pass
class ckpt_value(Structure): pass
class ckpt_rule(Structure): pass
class ckpt_select(Structure): pass
class ckpt_peft_opts(Structure): pass
class ckpt_convert_opts(Structure): pass
class ckpt_written(Structure): pass
class ckpt_report(Structure): pass
class ckpt_digest_line(Structure): pass
class ckpt_digest_opts(Structure): pass
class ckpt_digests(Structure): pass
class ckpt_verify_opts(Structure): pass
class ckpt_verified(Structure): pass
class ckpt_diff_opts(Structure): pass
class ckpt_diff_row(Structure): pass
class ckpt_diff_scalar(Structure): pass
class ckpt_diff_result(Structure): pass
class ckpt_reshard_opts(Structure): pass
class ckpt_shard_opts(Structure): pass
class ckpt_load_range(Structure): pass
class ckpt_load_opts(Structure): pass
class ckpt_loaded(Structure): pass
class ckpt_load_checked(Structure): pass
class ckpt_cat_opts(Structure): pass
class ckpt_cat_info(Structure): pass
class ckpt_arch(Structure): pass
class ckpt_model_info(Structure): pass
class ckpt_setup(Structure): pass
class ckpt_term(Structure): pass
class ckpt_save(Structure): pass
class ckpt_share(Structure): pass
class ckpt_estimate(Structure): pass
class ckpt_rank_share(Structure): pass
class ckpt_ds_estimate(Structure): pass
class ckpt_latest(Structure): pass
class ckpt_step_there(Structure): pass
class ckpt_steps(Structure): pass
class ckpt_audit_name(Structure): pass
class ckpt_audit_pickle(Structure): pass
class ckpt_audit(Structure): pass
class ckpt_size(Structure): pass
class ckpt_sizes(Structure): pass
class ckpt_slim_opts(Structure): pass
class ckpt_slim_kept(Structure): pass
class ckpt_slimmed(Structure): pass
class ckpt_prune_opts(Structure): pass
class ckpt_pruned_step(Structure): pass
class ckpt_pruned(Structure): pass
class ckpt_pack_opts(Structure): pass
class ckpt_unpack_opts(Structure): pass
class ckpt_packed(Structure): pass
class ckpt_saver_opts(Structure): pass
class ckpt_save_tensor(Structure): pass
class ckpt_save_state(Structure): pass
class ckpt_save_group(Structure): pass
class ckpt_save_scaler(Structure): pass
class ckpt_save_range(Structure): pass
class ckpt_save_step(Structure): pass
class ckpt_saved(Structure): pass
class ckpt_view_opts(Structure): pass
class ckpt_view_file(Structure): pass

ckpt_progress_fn = CFUNCTYPE(None, c_void_p, POINTER(ckpt_progress))
ckpt_bytes_fn = CFUNCTYPE(c_int, c_void_p, c_void_p, c_size_t, POINTER(ckpt_err))
ckpt_err._fields_ = [
    ("code", c_int),
    ("offset", c_uint64),
    ("where", c_char * 320),
    ("msg", c_char * 512),
]
ckpt_tensor_info._fields_ = [
    ("name", c_char_p),
    ("role", c_int),
    ("ndim", c_uint32),
    ("shape", POINTER(c_uint64)),
    ("numel", c_uint64),
    ("nstates", c_uint32),
    ("group", c_int32),
    ("alias_of", c_uint64),
]
ckpt_state_info._fields_ = [
    ("name", c_char_p),
    ("dtype", c_int),
    ("flags", c_uint32),
    ("nextents", c_uint64),
    ("nreplicas", c_uint64),
]
ckpt_extent_info._fields_ = [
    ("path", c_char_p),
    ("member", c_char_p),
    ("offset", c_uint64),
    ("first", c_uint64),
    ("count", c_uint64),
    ("runs", c_uint64),
    ("src_stride", c_uint64),
    ("dst_stride", c_uint64),
    ("dtype", c_int),
    ("flags", c_uint32),
    ("rank", c_int32),
]
ckpt_finding._fields_ = [
    ("id", c_char_p),
    ("severity", c_int),
    ("where", c_char_p),
    ("text", c_char_p),
    ("code", c_int),
]
ckpt_limits._fields_ = [
    ("size", c_size_t),
    ("zip_entries", c_uint64),
    ("zip_dir_bytes", c_uint64),
    ("pickle_bytes", c_uint64),
    ("pickle_nodes", c_uint64),
    ("pickle_depth", c_uint32),
    ("header_bytes", c_uint64),
    ("json_depth", c_uint32),
    ("json_nodes", c_uint64),
    ("tensor_dims", c_uint32),
    ("inflate_bytes", c_uint64),
    ("inflate_ratio", c_uint32),
    ("gather_bytes", c_uint64),
    ("files", c_uint32),
    ("memory_bytes", c_uint64),
    ("name_bytes", c_uint32),
    ("folder_depth", c_uint32),
    ("groups", c_uint32),
    ("pickles", c_uint32),
]
ckpt_limit_info._fields_ = [
    ("name", c_char_p),
    ("text", c_char_p),
    ("value", c_uint64),
    ("most", c_uint64),
    ("is_bytes", c_int),
]
ckpt_open_opts._fields_ = [
    ("size", c_size_t),
    ("tag", c_char_p),
    ("threads", c_uint32),
    ("limits", POINTER(ckpt_limits)),
    ("as_warning", POINTER(c_char_p)),
    ("subtree", c_char_p),
    ("keep_values", c_int),
    ("find_states", c_int),
    ("names", c_char_p),
    ("model_config", c_char_p),
    ("tp_rules", c_char_p),
    ("vocab_size", c_uint64),
    ("order_path", c_char_p),
    ("frozen", POINTER(c_char_p)),
    ("buffers", POINTER(c_char_p)),
]
ckpt_info._fields_ = [
    ("format", c_char_p),
    ("path", c_char_p),
    ("tag", c_char_p),
    ("why", c_char_p),
    ("stage", c_int32),
    ("optimizer", c_char_p),
    ("world", c_uint32),
    ("step", c_int64),
    ("writer", c_char_p),
    ("ntensors", c_uint64),
    ("nextents", c_uint64),
    ("nfiles", c_uint64),
    ("file_bytes", c_uint64),
    ("ngroups", c_uint64),
    ("nfindings", c_uint64),
    ("fingerprint", c_char * 33),
]
ckpt_file_info._fields_ = [
    ("path", c_char_p),
    ("bytes", c_uint64),
    ("rank", c_int32),
]
ckpt_progress._fields_ = [
    ("done_bytes", c_uint64),
    ("total_bytes", c_uint64),
]
ckpt_run_opts._fields_ = [
    ("size", c_size_t),
    ("threads", c_uint32),
    ("mem_limit", c_uint64),
    ("sync", c_int),
    ("cancel", POINTER(c_int)),
    ("progress", ckpt_progress_fn),
    ("progress_arg", c_void_p),
    ("keep_bytes", c_uint64),
]
ckpt_value._fields_ = [
    ("kind", c_int),
    ("i", c_int64),
    ("f", c_double),
    ("n", c_uint64),
    ("bytes", c_void_p),
    ("dtype", c_int),
    ("ndim", c_uint32),
    ("shape", POINTER(c_uint64)),
    ("numel", c_uint64),
]
ckpt_rule._fields_ = [
    ("pattern", c_char_p),
    ("value", c_char_p),
]
ckpt_select._fields_ = [
    ("size", c_size_t),
    ("include", POINTER(c_char_p)),
    ("exclude", POINTER(c_char_p)),
    ("rename", POINTER(ckpt_rule)),
    ("strip_prefix", c_char_p),
    ("only", c_uint),
    ("skip", c_uint),
    ("tied", c_int),
]
ckpt_peft_opts._fields_ = [
    ("size", c_size_t),
    ("merge", c_void_p),
    ("adapter", c_char_p),
    ("config_path", c_char_p),
    ("alpha", c_double),
    ("dropout", c_double),
    ("bias", c_char_p),
    ("task_type", c_char_p),
    ("base_model", c_char_p),
    ("rslora", c_int),
]
ckpt_convert_opts._fields_ = [
    ("size", c_size_t),
    ("run", POINTER(ckpt_run_opts)),
    ("select", POINTER(ckpt_select)),
    ("dtype", c_int),
    ("dtype_rules", POINTER(ckpt_rule)),
    ("states", POINTER(c_char_p)),
    ("max_shard_bytes", c_uint64),
    ("aux_dir", c_char_p),
    ("expect_path", c_char_p),
    ("out_fd", c_int),
    ("flags", c_uint),
    ("part", c_uint32),
    ("nparts", c_uint32),
    ("peft", POINTER(ckpt_peft_opts)),
]
ckpt_written._fields_ = [
    ("path", c_char_p),
    ("bytes", c_uint64),
    ("ntensors", c_uint64),
]
ckpt_report._fields_ = [
    ("nfiles", c_uint64),
    ("files", POINTER(ckpt_written)),
    ("ntensors", c_uint64),
    ("read_bytes", c_uint64),
    ("written_bytes", c_uint64),
    ("resumed_bytes", c_uint64),
    ("no_master", c_uint64),
    ("overflows", c_uint64),
    ("aliases", c_uint64),
    ("ndigests", c_uint64),
    ("digests", POINTER(ckpt_digest_line)),
    ("root", c_char * 33),
    ("threads", c_uint32),
    ("seconds", c_double),
    ("strip_hint", c_char_p),
    ("nremoved", c_uint64),
    ("removed", POINTER(c_char_p)),
    ("would_read_bytes", c_uint64),
    ("free_bytes", c_uint64),
    ("naming", c_char_p),
    ("renames", POINTER(ckpt_rule)),
    ("merged", c_uint64),
    ("memory", c_void_p),
]
ckpt_digest_line._fields_ = [
    ("hash", c_char * 33),
    ("state", c_char_p),
    ("name", c_char_p),
]
ckpt_digest_opts._fields_ = [
    ("size", c_size_t),
    ("run", POINTER(ckpt_run_opts)),
    ("select", POINTER(ckpt_select)),
    ("states", POINTER(c_char_p)),
]
ckpt_digests._fields_ = [
    ("nlines", c_uint64),
    ("lines", POINTER(ckpt_digest_line)),
    ("root", c_char * 33),
    ("read_bytes", c_uint64),
    ("memory", c_void_p),
]
ckpt_verify_opts._fields_ = [
    ("size", c_size_t),
    ("run", POINTER(ckpt_run_opts)),
    ("flags", c_uint),
]
ckpt_verified._fields_ = [
    ("files", c_uint64),
    ("file_bytes", c_uint64),
    ("manifest", c_int),
    ("manifest_path", c_char * 4096),
    ("agreed", c_int),
    ("read_bytes", c_uint64),
    ("checksums", c_uint64),
    ("unsummed", c_uint64),
    ("elements", c_uint64),
    ("copies", c_uint64),
    ("pad_bytes", c_uint64),
    ("sums", c_uint64),
    ("without_sums", c_uint64),
]
ckpt_diff_opts._fields_ = [
    ("size", c_size_t),
    ("run", POINTER(ckpt_run_opts)),
    ("select", POINTER(ckpt_select)),
    ("states", POINTER(c_char_p)),
    ("abs_tolerance", c_double),
    ("rel_tolerance", c_double),
    ("flags", c_uint),
]
ckpt_diff_row._fields_ = [
    ("name", c_char_p),
    ("state_a", c_char_p),
    ("state_b", c_char_p),
    ("what", c_int),
    ("flags", c_uint),
    ("ndim_a", c_uint32),
    ("ndim_b", c_uint32),
    ("shape_a", POINTER(c_uint64)),
    ("shape_b", POINTER(c_uint64)),
    ("dtype_a", c_int),
    ("dtype_b", c_int),
    ("dtype", c_int),
    ("numel", c_uint64),
    ("differ", c_uint64),
    ("beyond", c_uint64),
    ("nan_a", c_uint64),
    ("nan_b", c_uint64),
    ("nan_both", c_uint64),
    ("max_abs", c_double),
    ("max_at", c_uint64),
    ("rel_l2", c_double),
    ("max_ulps", c_uint64),
    ("ulps", POINTER(c_uint64)),
    ("first", c_uint64),
    ("first_a", c_char * 64),
    ("first_b", c_char * 64),
    ("rms", c_double),
]
ckpt_diff_scalar._fields_ = [
    ("key", c_char_p),
    ("a", c_char_p),
    ("b", c_char_p),
    ("differs", c_int),
]
ckpt_diff_result._fields_ = [
    ("nrows", c_uint64),
    ("rows", POINTER(ckpt_diff_row)),
    ("nscalars", c_uint64),
    ("scalars", POINTER(ckpt_diff_scalar)),
    ("ndiffering", c_uint64),
    ("nderived", c_uint64),
    ("nbeside", c_uint64),
    ("nopaque_a", c_uint64),
    ("nopaque_b", c_uint64),
    ("nstates", c_uint64),
    ("read_bytes", c_uint64),
    ("threads", c_uint32),
    ("memory", c_void_p),
]
ckpt_reshard_opts._fields_ = [
    ("size", c_size_t),
    ("run", POINTER(ckpt_run_opts)),
    ("world", c_uint32),
    ("stage", c_int),
    ("round_robin", c_int),
    ("sub_group_size", c_uint64),
    ("tag", c_char_p),
    ("flags", c_uint),
    ("part", c_uint32),
    ("nparts", c_uint32),
    ("ds_version", c_char_p),
    ("drop_states", POINTER(c_char_p)),
    ("to", c_int),
    ("torch_version", c_char_p),
    ("device", c_char_p),
    ("layout", c_char_p),
    ("ep", c_uint32),
    ("weight_dtype", c_int),
]
ckpt_shard_opts._fields_ = [
    ("size", c_size_t),
    ("run", POINTER(ckpt_run_opts)),
    ("world", c_uint32),
    ("stage", c_int),
    ("round_robin", c_int),
    ("sub_group_size", c_uint64),
    ("tag", c_char_p),
    ("flags", c_uint),
    ("part", c_uint32),
    ("nparts", c_uint32),
    ("ds_version", c_char_p),
    ("dtype", c_int),
    ("ds_config_path", c_char_p),
    ("config_path", c_char_p),
    ("order_path", c_char_p),
    ("groups", c_int),
    ("lr", c_double),
    ("first_lr", c_double),
    ("weight_decay", c_double),
    ("beta1", c_double),
    ("beta2", c_double),
    ("eps", c_double),
    ("frozen", POINTER(c_char_p)),
    ("buffers", POINTER(c_char_p)),
    ("to", c_int),
    ("tp", c_uint32),
    ("vocab_divisor", c_uint64),
]
ckpt_load_range._fields_ = [
    ("tensor", c_uint64),
    ("state", c_char_p),
    ("first", c_uint64),
    ("count", c_uint64),
    ("dtype", c_int),
    ("dst", c_void_p),
]
ckpt_load_opts._fields_ = [
    ("size", c_size_t),
    ("run", POINTER(ckpt_run_opts)),
    ("flags", c_uint),
    ("checks", c_void_p),
]
ckpt_loaded._fields_ = [
    ("ranges", c_uint64),
    ("bytes_made", c_uint64),
    ("bytes_read", c_uint64),
    ("reads", c_uint64),
    ("checked_bytes", c_uint64),
    ("unchecked_bytes", c_uint64),
    ("again_bytes", c_uint64),
    ("masters_made", c_uint64),
    ("overflows", c_uint64),
    ("threads", c_uint32),
    ("seconds", c_double),
]
ckpt_load_checked._fields_ = [
    ("checked_bytes", c_uint64),
    ("again_bytes", c_uint64),
]
ckpt_cat_opts._fields_ = [
    ("size", c_size_t),
    ("run", POINTER(ckpt_run_opts)),
    ("state", c_char_p),
    ("slice", c_char_p),
    ("dtype", c_int),
    ("form", c_int),
]
ckpt_cat_info._fields_ = [
    ("dtype", c_int),
    ("ndim", c_uint32),
    ("shape", c_uint64 * 64),
    ("numel", c_uint64),
    ("npy", c_char * 16),
    ("is_bits", c_int),
]
ckpt_arch._fields_ = [
    ("layers", c_uint64),
    ("hidden", c_uint64),
    ("inter", c_uint64),
    ("vocab", c_uint64),
    ("heads", c_uint64),
    ("kv_heads", c_uint64),
    ("head_dim", c_uint64),
    ("gated", c_uint32),
    ("rms", c_uint32),
    ("norms", c_uint32),
    ("qk_norm", c_uint32),
    ("experts", c_uint64),
    ("top_k", c_uint64),
    ("moe_layers", c_uint64),
    ("expert_inter", c_uint64),
    ("shared_inter", c_uint64),
    ("q_rank", c_uint64),
    ("kv_rank", c_uint64),
    ("rope_dim", c_uint64),
    ("v_dim", c_uint64),
]
ckpt_model_info._fields_ = [
    ("what", c_char_p),
    ("params", c_uint64),
    ("active", c_uint64),
    ("trainable", c_uint64),
    ("tensors", c_uint64),
    ("largest", c_uint64),
    ("largest_module", c_uint64),
    ("buffer_bytes", c_uint64),
    ("groups", c_uint32),
    ("assumed", c_uint32),
    ("arch", ckpt_arch),
    ("tower", c_uint64),
]
ckpt_setup._fields_ = [
    ("size", c_size_t),
    ("stage", c_uint32),
    ("gpus", c_uint32),
    ("gpus_per_node", c_uint32),
    ("offload", c_uint),
    ("dtype", c_int),
    ("grad_dtype", c_int),
    ("micro", c_uint64),
    ("sequence", c_uint64),
    ("accumulation", c_uint64),
    ("recompute", c_uint32),
    ("attention_matrix", c_uint32),
    ("ops", c_int),
    ("no_pin", c_uint32),
    ("overlap", c_int32),
    ("reduce_bucket", c_uint64),
    ("prefetch_bucket", c_uint64),
    ("persistence", c_uint64),
    ("max_reuse", c_uint64),
    ("sub_group", c_uint64),
    ("overhead", c_uint64),
    ("engine", c_uint32),
    ("tp", c_uint32),
    ("pp", c_uint32),
    ("ep", c_uint32),
    ("fp8", c_uint32),
]
ckpt_term._fields_ = [
    ("place", c_int),
    ("phases", c_uint),
    ("bytes", c_uint64),
    ("name", c_char * 48),
    ("formula", c_char * 160),
]
ckpt_save._fields_ = [
    ("files", c_uint64),
    ("bytes", c_uint64),
    ("model_files", c_uint64),
    ("model_bytes", c_uint64),
    ("optim_files", c_uint64),
    ("optim_bytes", c_uint64),
    ("resume_same", c_uint64),
    ("resume_other", c_uint64),
    ("universal_files", c_uint64),
    ("layer_files", c_uint64),
    ("layer_bytes", c_uint64),
    ("expert_files", c_uint64),
    ("expert_bytes", c_uint64),
    ("expp_files", c_uint64),
    ("expp_bytes", c_uint64),
    ("mcore_files", c_uint64),
    ("mcore_bytes", c_uint64),
    ("mcore_rank_bytes", c_uint64),
    ("mcore_vocab", c_uint64),
]
ckpt_share._fields_ = [
    ("tp", c_uint32),
    ("pp", c_uint32),
    ("ep", c_uint32),
    ("dp", c_uint32),
    ("edp", c_uint32),
    ("stage", c_uint32),
    ("layers", c_uint64),
    ("params", c_uint64),
    ("expert_params", c_uint64),
    ("least_params", c_uint64),
]
ckpt_estimate._fields_ = [
    ("gpu_bytes", c_uint64),
    ("phase_bytes", c_uint64 * 4),
    ("peak", c_uint32),
    ("no_activations", c_uint32),
    ("host_bytes", c_uint64),
    ("tokens", c_uint64),
    ("nterms", c_uint32),
    ("term", ckpt_term * 32),
    ("save", ckpt_save),
    ("share", ckpt_share),
]
ckpt_rank_share._fields_ = [
    ("tp", c_uint32),
    ("pp", c_uint32),
    ("dp", c_uint32),
    ("ep", c_uint32),
    ("edp", c_uint32),
    ("first_layer", c_uint64),
    ("layers", c_uint64),
    ("first_expert", c_uint64),
    ("experts", c_uint64),
    ("params", c_uint64),
    ("expert_params", c_uint64),
    ("states", c_uint64),
]
ckpt_ds_estimate._fields_ = [
    ("cpu_bytes", c_uint64),
    ("gpu_bytes", c_uint64),
    ("largest_layer_bytes", c_uint64),
]
ckpt_latest._fields_ = [
    ("path", c_char_p),
    ("name", c_char_p),
    ("why", c_char_p),
    ("named", c_int),
    ("memory", c_void_p),
]
ckpt_step_there._fields_ = [
    ("name", c_char_p),
    ("path", c_char_p),
    ("step", c_int64),
    ("whole", c_int),
    ("why", c_char_p),
]
ckpt_steps._fields_ = [
    ("nsteps", c_uint64),
    ("step", POINTER(ckpt_step_there)),
    ("latest", c_int64),
    ("latest_why", c_char_p),
    ("chosen", c_int64),
    ("memory", c_void_p),
]
ckpt_audit_name._fields_ = [
    ("module", c_char_p),
    ("name", c_char_p),
    ("set", c_int),
    ("torch", c_int),
    ("called", c_int),
    ("offset", c_uint64),
]
ckpt_audit_pickle._fields_ = [
    ("path", c_char_p),
    ("member", c_char_p),
    ("offset", c_uint64),
    ("bytes", c_uint64),
    ("nnames", c_uint64),
    ("name", POINTER(ckpt_audit_name)),
    ("torch_op", c_int),
    ("code", c_int),
    ("error", c_char_p),
]
ckpt_audit._fields_ = [
    ("npickles", c_uint64),
    ("pickle", POINTER(ckpt_audit_pickle)),
    ("nfiles", c_uint64),
    ("memory", c_void_p),
]
ckpt_size._fields_ = [
    ("kind", c_int),
    ("state", c_char_p),
    ("role", c_int),
    ("dtype", c_int),
    ("elements", c_uint64),
    ("bytes", c_uint64),
]
ckpt_sizes._fields_ = [
    ("nparts", c_uint64),
    ("part", POINTER(ckpt_size)),
    ("bytes", c_uint64),
    ("nfiles", c_uint64),
    ("memory", c_void_p),
]
ckpt_slim_opts._fields_ = [
    ("size", c_size_t),
    ("run", POINTER(ckpt_run_opts)),
    ("what", c_uint),
    ("flags", c_uint),
]
ckpt_slim_kept._fields_ = [
    ("path", c_char_p),
    ("why", c_char_p),
]
ckpt_slimmed._fields_ = [
    ("files", c_uint64),
    ("before_bytes", c_uint64),
    ("after_bytes", c_uint64),
    ("views_bytes", c_uint64),
    ("frozen_bytes", c_uint64),
    ("moments_bytes", c_uint64),
    ("read_bytes", c_uint64),
    ("resumed_bytes", c_uint64),
    ("would_read_bytes", c_uint64),
    ("free_bytes", c_uint64),
    ("manifest", c_int),
    ("nkept", c_uint64),
    ("kept", POINTER(ckpt_slim_kept)),
    ("threads", c_uint32),
    ("seconds", c_double),
    ("memory", c_void_p),
]
ckpt_prune_opts._fields_ = [
    ("size", c_size_t),
    ("run", POINTER(ckpt_run_opts)),
    ("limits", POINTER(ckpt_limits)),
    ("keep_last", c_uint64),
    ("keep_every", c_uint64),
    ("keep", POINTER(c_char_p)),
    ("moments_last", c_uint64),
    ("flags", c_uint),
]
ckpt_pruned_step._fields_ = [
    ("name", c_char_p),
    ("step", c_int64),
    ("whole", c_int),
    ("bytes", c_uint64),
    ("freed", c_uint64),
    ("what", c_int),
    ("why", c_char_p),
]
ckpt_pruned._fields_ = [
    ("nsteps", c_uint64),
    ("step", POINTER(ckpt_pruned_step)),
    ("nkept", c_uint64),
    ("nslimmed", c_uint64),
    ("nremoved", c_uint64),
    ("bytes", c_uint64),
    ("freed", c_uint64),
    ("copied_bytes", c_uint64),
    ("copy_bytes", c_uint64),
    ("free_bytes", c_uint64),
    ("linked", c_uint64),
    ("linked_bytes", c_uint64),
    ("nleft", c_uint64),
    ("memory", c_void_p),
]
ckpt_pack_opts._fields_ = [
    ("size", c_size_t),
    ("run", POINTER(ckpt_run_opts)),
    ("level", c_int),
    ("out_fd", c_int),
    ("flags", c_uint),
]
ckpt_unpack_opts._fields_ = [
    ("size", c_size_t),
    ("run", POINTER(ckpt_run_opts)),
    ("flags", c_uint),
    ("limits", POINTER(ckpt_limits)),
]
ckpt_packed._fields_ = [
    ("kind", c_char * 16),
    ("files", c_uint64),
    ("bytes", c_uint64),
    ("archive_bytes", c_uint64),
    ("would_write_bytes", c_uint64),
    ("would_read_bytes", c_uint64),
    ("free_bytes", c_uint64),
    ("threads", c_uint32),
    ("seconds", c_double),
]
ckpt_saver_opts._fields_ = [
    ("size", c_size_t),
    ("root", c_char_p),
    ("job", c_char_p),
    ("rank", c_uint32),
    ("nranks", c_uint32),
    ("threads", c_uint32),
    ("buffer_bytes", c_uint64),
    ("sync", c_int),
    ("timeout_ms", c_uint32),
    ("flags", c_uint),
    ("look", CFUNCTYPE(None, c_void_p, POINTER(c_uint8))),
    ("look_arg", c_void_p),
]
ckpt_save_tensor._fields_ = [
    ("name", c_char_p),
    ("shape", POINTER(c_uint64)),
    ("ndim", c_uint32),
    ("role", c_int),
    ("dtype", c_int),
    ("group", c_int32),
    ("alias_of", c_uint64),
    ("derived", c_int),
]
ckpt_save_state._fields_ = [
    ("name", c_char_p),
    ("dtype", c_int),
]
ckpt_save_group._fields_ = [
    ("lr", c_double),
    ("initial_lr", c_double),
    ("weight_decay", c_double),
    ("beta1", c_double),
    ("beta2", c_double),
    ("eps", c_double),
    ("step", c_int64),
]
ckpt_save_scaler._fields_ = [
    ("dynamic", c_int),
    ("scale", c_double),
    ("min_scale", c_double),
    ("iter", c_int64),
    ("last_overflow", c_int64),
    ("window", c_int64),
    ("hysteresis", c_int64),
    ("hysteresis_left", c_int64),
]
ckpt_save_range._fields_ = [
    ("tensor", c_uint64),
    ("first", c_uint64),
    ("count", c_uint64),
]
ckpt_save_step._fields_ = [
    ("size", c_size_t),
    ("tag", c_char_p),
    ("to", c_int),
    ("stage", c_int),
    ("world", c_uint32),
    ("round_robin", c_int),
    ("sub_group_size", c_uint64),
    ("ds_version", c_char_p),
    ("tensor", POINTER(ckpt_save_tensor)),
    ("ntensors", c_uint64),
    ("state", POINTER(ckpt_save_state)),
    ("nstates", c_uint64),
    ("group", POINTER(ckpt_save_group)),
    ("ngroups", c_uint64),
    ("steps", c_int64),
    ("samples", c_int64),
    ("skipped", c_int64),
    ("scaler", POINTER(ckpt_save_scaler)),
    ("clip_grad", c_double),
    ("ds_config", c_char_p),
    ("scheduler", c_char_p),
    ("client", c_char_p),
    ("own", POINTER(ckpt_save_range)),
    ("nown", c_uint64),
    ("flags", c_uint),
    ("frozen_from", c_char_p),
    ("max_shard_bytes", c_uint64),
    ("config_json", c_char_p),
    ("aux_dir", c_char_p),
    ("adapter_json", c_char_p),
]
ckpt_saved._fields_ = [
    ("put_bytes", c_uint64),
    ("written_bytes", c_uint64),
    ("nfiles", c_uint64),
    ("file_bytes", c_uint64),
    ("begin_seconds", c_double),
    ("put_seconds", c_double),
    ("write_seconds", c_double),
    ("commit_seconds", c_double),
    ("linked_bytes", c_uint64),
]
ckpt_view_opts._fields_ = [
    ("size", c_size_t),
    ("run", POINTER(ckpt_run_opts)),
    ("select", POINTER(ckpt_select)),
    ("dtype", c_int),
    ("states", POINTER(c_char_p)),
    ("aux_dir", c_char_p),
    ("checks", c_void_p),
]
ckpt_view_file._fields_ = [
    ("name", c_char_p),
    ("bytes", c_uint64),
    ("ntensors", c_uint64),
    ("etag", c_char_p),
]

# name: (result, arguments)
FUNCTIONS = {
    "ckpt_version": (c_char_p, []),
    "ckpt_code_name": (c_char_p, [c_int]),
    "ckpt_dtype_bits": (c_uint32, [c_int]),
    "ckpt_dtype_name": (c_char_p, [c_int]),
    "ckpt_dtype_torch_name": (c_char_p, [c_int]),
    "ckpt_dtype_parse": (c_int, [c_char_p]),
    "ckpt_limit_get": (c_int, [c_uint32, POINTER(ckpt_limit_info), POINTER(ckpt_err)]),
    "ckpt_limits_set": (c_int, [POINTER(ckpt_limits), c_char_p, c_uint64, POINTER(ckpt_err)]),
    "ckpt_open": (c_int, [POINTER(c_char_p), c_size_t, POINTER(ckpt_open_opts), POINTER(c_void_p), POINTER(ckpt_err)]),
    "ckpt_close": (None, [c_void_p]),
    "ckpt_info_get": (None, [c_void_p, POINTER(ckpt_info)]),
    "ckpt_tensor_get": (c_int, [c_void_p, c_uint64, POINTER(ckpt_tensor_info), POINTER(ckpt_err)]),
    "ckpt_tensor_find": (c_int, [c_void_p, c_char_p, POINTER(c_uint64), POINTER(ckpt_err)]),
    "ckpt_state_get": (c_int, [c_void_p, c_uint64, c_uint32, POINTER(ckpt_state_info), POINTER(ckpt_err)]),
    "ckpt_state_find": (c_int, [c_void_p, c_uint64, c_char_p, POINTER(c_uint32), POINTER(ckpt_err)]),
    "ckpt_extent_get": (c_int, [c_void_p, c_uint64, c_uint32, c_uint64, POINTER(ckpt_extent_info), POINTER(ckpt_err)]),
    "ckpt_finding_get": (c_int, [c_void_p, c_uint64, POINTER(ckpt_finding), POINTER(ckpt_err)]),
    "ckpt_file_get": (c_int, [c_void_p, c_uint64, POINTER(ckpt_file_info), POINTER(ckpt_err)]),
    "ckpt_fact_get": (c_int, [c_void_p, c_uint64, POINTER(c_char_p), POINTER(c_char_p), POINTER(ckpt_err)]),
    "ckpt_read": (c_int, [c_void_p, c_uint64, c_uint32, c_uint64, c_uint64, c_int, c_void_p, c_size_t, POINTER(ckpt_err)]),
    "ckpt_values_open": (c_int, [c_void_p, c_uint32, c_uint, POINTER(c_void_p), POINTER(ckpt_err)]),
    "ckpt_values_close": (None, [c_void_p]),
    "ckpt_value_get": (c_int, [c_void_p, c_char_p, POINTER(ckpt_value), POINTER(ckpt_err)]),
    "ckpt_value_step": (c_int, [c_void_p, c_char_p, c_uint64, POINTER(c_char_p), POINTER(ckpt_err)]),
    "ckpt_value_int": (c_int, [c_void_p, c_char_p, POINTER(c_int64), POINTER(ckpt_err)]),
    "ckpt_value_float": (c_int, [c_void_p, c_char_p, POINTER(c_double), POINTER(ckpt_err)]),
    "ckpt_dst_kind": (c_int, [c_char_p, POINTER(c_int), POINTER(ckpt_err)]),
    "ckpt_convert": (c_int, [c_void_p, c_char_p, POINTER(ckpt_convert_opts), POINTER(ckpt_report), POINTER(ckpt_err)]),
    "ckpt_report_free": (None, [POINTER(ckpt_report)]),
    "ckpt_commit": (c_int, [c_char_p, c_uint32, c_int, POINTER(ckpt_err)]),
    "ckpt_discard": (c_int, [c_char_p, POINTER(ckpt_err)]),
    "ckpt_digest": (c_int, [c_void_p, POINTER(ckpt_digest_opts), POINTER(ckpt_digests), POINTER(ckpt_err)]),
    "ckpt_digests_free": (None, [POINTER(ckpt_digests)]),
    "ckpt_verify": (c_int, [c_void_p, POINTER(ckpt_verify_opts), POINTER(ckpt_verified), POINTER(ckpt_err)]),
    "ckpt_verify_open_finding": (c_int, [POINTER(ckpt_err), POINTER(ckpt_finding)]),
    "ckpt_finding_known": (c_int, [c_char_p]),
    "ckpt_diff": (c_int, [c_void_p, c_void_p, POINTER(ckpt_diff_opts), POINTER(ckpt_diff_result), POINTER(ckpt_err)]),
    "ckpt_diff_free": (None, [POINTER(ckpt_diff_result)]),
    "ckpt_reshard": (c_int, [c_void_p, c_char_p, POINTER(ckpt_reshard_opts), POINTER(ckpt_report), POINTER(ckpt_err)]),
    "ckpt_settle": (c_int, [c_char_p, c_int, POINTER(c_int), POINTER(ckpt_err)]),
    "ckpt_shard": (c_int, [c_void_p, c_char_p, POINTER(ckpt_shard_opts), POINTER(ckpt_report), POINTER(ckpt_err)]),
    "ckpt_load": (c_int, [c_void_p, POINTER(ckpt_load_range), c_size_t, POINTER(ckpt_load_opts), POINTER(ckpt_loaded), POINTER(ckpt_err)]),
    "ckpt_load_checks_new": (c_int, [c_void_p, POINTER(c_void_p), POINTER(ckpt_err)]),
    "ckpt_load_checks_end": (c_int, [c_void_p, POINTER(ckpt_run_opts), POINTER(ckpt_load_checked), POINTER(ckpt_err)]),
    "ckpt_load_checks_free": (None, [c_void_p]),
    "ckpt_cat": (c_int, [c_void_p, c_uint64, POINTER(ckpt_cat_opts), ckpt_bytes_fn, c_void_p, POINTER(ckpt_cat_info), POINTER(ckpt_err)]),
    "ckpt_cat_file": (c_int, [c_void_p, c_uint64, POINTER(ckpt_cat_opts), c_char_p, c_uint, POINTER(ckpt_cat_info), POINTER(ckpt_err)]),
    "ckpt_model_from_config": (c_int, [c_char_p, POINTER(c_void_p), POINTER(ckpt_err)]),
    "ckpt_model_from_ckpt": (c_int, [c_void_p, c_char_p, POINTER(c_void_p), POINTER(ckpt_err)]),
    "ckpt_model_freeze_tower": (c_int, [c_void_p, POINTER(ckpt_err)]),
    "ckpt_model_from_count": (c_int, [c_uint64, POINTER(c_void_p), POINTER(ckpt_err)]),
    "ckpt_model_from_name": (c_int, [c_char_p, POINTER(c_void_p), POINTER(ckpt_err)]),
    "ckpt_model_name": (c_char_p, [c_uint32]),
    "ckpt_model_lora": (c_int, [c_void_p, c_char_p, POINTER(ckpt_err)]),
    "ckpt_model_get": (None, [c_void_p, POINTER(ckpt_model_info)]),
    "ckpt_model_free": (None, [c_void_p]),
    "ckpt_setup_read": (c_int, [c_char_p, POINTER(ckpt_setup), POINTER(c_uint), POINTER(ckpt_err)]),
    "ckpt_estimate": (c_int, [c_void_p, POINTER(ckpt_setup), POINTER(ckpt_estimate), POINTER(ckpt_err)]),
    "ckpt_rank_share": (c_int, [c_void_p, POINTER(ckpt_setup), c_uint32, POINTER(ckpt_rank_share), POINTER(ckpt_err)]),
    "ckpt_phase_name": (c_char_p, [c_uint]),
    "ckpt_ds_zero2": (c_int, [c_uint64, c_uint32, c_uint32, c_int, c_double, POINTER(ckpt_ds_estimate)]),
    "ckpt_ds_zero3": (c_int, [c_uint64, c_uint64, c_uint32, c_uint32, c_int, c_int, c_int, c_double, POINTER(ckpt_ds_estimate)]),
    "ckpt_latest_set": (c_int, [c_char_p, c_char_p, c_int, c_int, POINTER(ckpt_err)]),
    "ckpt_latest_get": (c_int, [c_char_p, POINTER(ckpt_limits), POINTER(ckpt_latest), POINTER(ckpt_err)]),
    "ckpt_latest_free": (None, [POINTER(ckpt_latest)]),
    "ckpt_steps_list": (c_int, [c_char_p, POINTER(ckpt_run_opts), POINTER(ckpt_limits), POINTER(ckpt_steps), POINTER(ckpt_err)]),
    "ckpt_steps_free": (None, [POINTER(ckpt_steps)]),
    "ckpt_audit": (c_int, [POINTER(c_char_p), c_size_t, POINTER(ckpt_limits), POINTER(ckpt_audit), POINTER(ckpt_err)]),
    "ckpt_audit_free": (None, [POINTER(ckpt_audit)]),
    "ckpt_sizes_get": (c_int, [c_void_p, POINTER(ckpt_sizes), POINTER(ckpt_err)]),
    "ckpt_sizes_free": (None, [POINTER(ckpt_sizes)]),
    "ckpt_slim": (c_int, [c_void_p, c_char_p, POINTER(ckpt_slim_opts), POINTER(ckpt_slimmed), POINTER(ckpt_err)]),
    "ckpt_slimmed_free": (None, [POINTER(ckpt_slimmed)]),
    "ckpt_prune": (c_int, [c_char_p, POINTER(ckpt_prune_opts), POINTER(ckpt_pruned), POINTER(ckpt_err)]),
    "ckpt_pruned_free": (None, [POINTER(ckpt_pruned)]),
    "ckpt_has_packs": (c_int, []),
    "ckpt_pack": (c_int, [c_void_p, c_char_p, POINTER(ckpt_pack_opts), POINTER(ckpt_packed), POINTER(ckpt_err)]),
    "ckpt_unpack": (c_int, [c_char_p, c_char_p, POINTER(ckpt_unpack_opts), POINTER(ckpt_packed), POINTER(ckpt_err)]),
    "ckpt_saver_new": (c_int, [POINTER(ckpt_saver_opts), POINTER(c_void_p), POINTER(ckpt_err)]),
    "ckpt_saver_free": (None, [c_void_p]),
    "ckpt_save_begin": (c_int, [c_void_p, POINTER(ckpt_save_step), POINTER(ckpt_err)]),
    "ckpt_save_needs": (c_int, [c_void_p, c_uint64]),
    "ckpt_save_put": (c_int, [c_void_p, c_uint64, c_char_p, c_uint64, c_uint64, c_void_p, c_uint, POINTER(ckpt_err)]),
    "ckpt_save_commit": (c_int, [c_void_p, POINTER(ckpt_err)]),
    "ckpt_save_abort": (None, [c_void_p, c_char_p]),
    "ckpt_save_wait": (c_int, [c_void_p, c_uint32, POINTER(ckpt_saved), POINTER(ckpt_err)]),
    "ckpt_save_pending": (c_int, [c_void_p]),
    "ckpt_saver_drain": (c_int, [c_void_p, c_uint32]),
    "ckpt_view_checks_new": (c_int, [c_void_p, POINTER(c_void_p), POINTER(ckpt_err)]),
    "ckpt_view_checks_free": (None, [c_void_p]),
    "ckpt_view_open": (c_int, [c_void_p, POINTER(ckpt_view_opts), POINTER(c_void_p), POINTER(ckpt_err)]),
    "ckpt_view_close": (None, [c_void_p]),
    "ckpt_view_file_count": (c_uint64, [c_void_p]),
    "ckpt_view_file_get": (c_int, [c_void_p, c_uint64, POINTER(ckpt_view_file), POINTER(ckpt_err)]),
    "ckpt_view_find": (c_int, [c_void_p, c_char_p, POINTER(c_uint64), POINTER(ckpt_err)]),
    "ckpt_view_read": (c_int, [c_void_p, c_uint64, c_uint64, c_size_t, c_void_p, POINTER(ckpt_err)]),
    "ckpt_view_check": (c_int, [c_void_p, c_uint64, c_uint64, c_uint64, POINTER(ckpt_err)]),
    "ckpt_view_overflows": (c_uint64, [c_void_p]),
    "ckpt_view_finding_get": (c_int, [c_void_p, c_uint64, POINTER(ckpt_finding), POINTER(ckpt_err)]),
}
