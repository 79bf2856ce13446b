/*
 * ckpt.h -- libckpt: reading and converting ZeRO-partitioned training checkpoints.
 *
 * Calling sequence:
 *
 *	struct ckpt *ck;
 *	struct ckpt_err err = { 0 };
 *
 *	if (ckpt_open(&path, 1, NULL, &ck, &err))
 *		... print err.where, err.msg ...
 *	... ckpt_info_get(), ckpt_tensor_get(), ckpt_finding_get() ...
 *	... ckpt_convert(), ckpt_digest() ...
 *	ckpt_close(ck);
 *
 * All tensors with their states, and where each begins:
 *
 *	ckpt_info_get(ck, &info);
 *	for (uint64_t t = 0; t < info.ntensors; t++) {
 *		ckpt_tensor_get(ck, t, &tensor, NULL);
 *		for (uint32_t s = 0; s < tensor.nstates; s++) {
 *			ckpt_state_get(ck, t, s, &state, NULL);
 *			if (!ckpt_extent_get(ck, t, s, 0, &extent, NULL))
 *				printf("%s %s %s: %s+%" PRIu64 "\n", tensor.name, state.name,
 *				       ckpt_dtype_name(state.dtype), extent.path, extent.offset);
 *		}
 *	}
 *
 * Words (docs/WORDS.md has them all): a *step* is one saved checkpoint (a tag folder).  A *tensor*
 * is a logical one, whole, with a name and a shape, however many ranks hold pieces of it.  Each
 * tensor has *states*: "weight" (the model's own copy, usually 16-bit; of a buffer or a frozen
 * parameter, its bytes), "master" (fp32), "exp_avg", "exp_avg_sq", and any further state under the
 * optimizer's own name for it.  An *extent* is the place of a run of a state's elements in a file.
 *
 * Threads: calls that take 'const struct ckpt *' may run at the same time.  One that takes a
 * 'struct ckpt *' may add findings, and needs the handle for itself.  Handles share nothing.
 *
 * Trust: nothing in a file is executed, and no size in a file is used before it has been compared
 * with the bytes that exist, or with a limit.
 *
 * The library never prints, never exits, and reads no environment variable.  Option
 * structs begin with their own size: set it to sizeof(the struct) and zero the rest, so that a
 * library that is newer or older than your header understands it.  A field that an older
 * library does not know is CKPT_E_USAGE unless it is zero.  Where a function takes a pointer to
 * options, NULL means that all of them are zero, except for ckpt_reshard(), ckpt_shard() and the
 * functions of ckpt_save.h, which need them.
 *
 * Tested with gcc and clang on Linux; link with -lckpt, or as pkg-config libckpt says.
 */
#ifndef CKPT_H
#define CKPT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef CKPT_API
#define CKPT_API __attribute__((visibility("default")))
#endif

#define CKPT_VERSION_STRING "0.1.0"
#define CKPT_VERSION_NUMBER 100	/* major * 10000 + minor * 100 + patch */

/* The version the library was built as, e.g. "0.1.0".  Static string, never freed. */
CKPT_API const char *ckpt_version(void);

/* ---------------------------------------------------------------- errors */

/*
 * What went wrong.  A function that can fail returns 0 or -code, and describes the first failure in
 * '*err'; outputs ('x_out', 'out') are written on success only.  Values are pinned: scripts see
 * them.  Tens are kinds: 10 the
 * system, 20 bytes of a file, 30 the layout of a step, 40 policy and use.
 */
enum ckpt_code {
	CKPT_OK = 0,			/* nothing failed */
	CKPT_E_IO = 10,			/* a system call failed */
	CKPT_E_NOMEM = 11,		/* no memory */
	CKPT_E_NOSPACE = 12,		/* the disk is or would be full */
	CKPT_E_EXISTS = 13,		/* the destination exists */
	CKPT_E_NOTFOUND = 14,		/* nothing at that path */
	CKPT_E_CANCELED = 15,		/* the caller's cancel flag was set */
	CKPT_E_BUSY = 16,		/* another run writes there */
	CKPT_E_TRUNCATED = 20,		/* a file ends too early */
	CKPT_E_CORRUPT = 21,		/* a structure contradicts itself */
	CKPT_E_FORMAT = 22,		/* not a known format */
	CKPT_E_UNSUPPORTED = 23,	/* valid, but beyond this library */
	CKPT_E_LIMIT = 24,		/* larger than a limit of the caller */
	CKPT_E_INCOMPLETE = 30,		/* files of the step are missing */
	CKPT_E_MISMATCH = 31,		/* parts contradict each other, or a file changed */
	CKPT_E_LAYOUT = 32,		/* pipeline, tensor parallel, MoE, NVMe: by name */
	CKPT_E_UNSAFE = 40,		/* a refused call in a pickle, path or link in an archive */
	CKPT_E_USAGE = 41,		/* an argument is wrong */
	CKPT_E_EXPECT = 42,		/* the result would not be what 'expect' names */
};

/* Of ckpt_err.offset: the failure has no place in a file. */
#define CKPT_NO_OFFSET UINT64_MAX

/*
 * Put it on the stack and zero it before the call.  Reporting never allocates, so it also works
 * when memory is short.  The first failure stays: a struct that holds one is not overwritten; zero
 * it to use it again.  Every call accepts NULL in its place, and then returns the code alone.
 */
struct ckpt_err {
	enum ckpt_code code;	/* CKPT_OK while nothing has failed */
	uint64_t offset;	/* byte in 'where', or CKPT_NO_OFFSET */
	char where[320];	/* "dir/zero_pp_rank_3_...pt!archive/data.pkl", may be "" */
	char msg[512];		/* a clause: no capital, no full stop, no newline */
};

/* "CKPT_E_IO" for CKPT_E_IO; "CKPT_E_?" for an unknown number.  Static string, never freed. */
CKPT_API const char *ckpt_code_name(enum ckpt_code code);

/* ---------------------------------------------------------------- tensors */

/*
 * Element types.  Pinned.  The order is that of safetensors where it has the type.  Types below 8
 * bits are packed.  Conversion is between F64, F32, F16 and BF16, rounded to nearest even; every
 * other type is passed on as stored.
 */
enum ckpt_dtype {
	CKPT_BOOL = 1, CKPT_F4, CKPT_F6_E2M3, CKPT_F6_E3M2, CKPT_U8, CKPT_I8,
	CKPT_F8_E5M2, CKPT_F8_E4M3, CKPT_F8_E8M0, CKPT_F8_E4M3FNUZ, CKPT_F8_E5M2FNUZ,
	CKPT_I16, CKPT_U16, CKPT_F16, CKPT_BF16, CKPT_I32, CKPT_U32, CKPT_F32,
	CKPT_C64, CKPT_F64, CKPT_I64, CKPT_U64,
	/* torch has these, safetensors does not */
	CKPT_C128 = 40, CKPT_C32, CKPT_BC32, CKPT_QI8, CKPT_QU8, CKPT_QI32, CKPT_QU4X2,
	CKPT_QU2X4, CKPT_BITS8, CKPT_BITS16, CKPT_BITS1X8, CKPT_BITS2X4, CKPT_BITS4X2,
	CKPT_F4X2,	/* torch.float4_e2m1fn_x2: a byte holds two; safetensors' F4 */
};

/* Bits of one element; 0 for an unknown type. */
CKPT_API uint32_t ckpt_dtype_bits(enum ckpt_dtype dtype);
/* safetensors' spelling ("BF16"); a type that it lacks gets a similar one ("C128"). */
CKPT_API const char *ckpt_dtype_name(enum ckpt_dtype dtype);
/* torch's spelling without "torch." ("bfloat16"); NULL where torch has none. */
CKPT_API const char *ckpt_dtype_torch_name(enum ckpt_dtype dtype);
/* The type of either spelling, or of "fp32", "bf16", "fp16"; 0 if there is none. */
CKPT_API enum ckpt_dtype ckpt_dtype_parse(const char *name);

/* What a tensor is in the model.  Pinned. */
enum ckpt_role {
	CKPT_ROLE_TRAINABLE = 1,	/* a parameter the optimizer holds */
	CKPT_ROLE_FROZEN = 2,		/* a parameter without a gradient */
	CKPT_ROLE_BUFFER = 3,		/* state of a module, not a parameter */
	CKPT_ROLE_ALIAS = 4,		/* a second name of another tensor (tied) */
	CKPT_ROLE_PLAIN = 5,		/* a file that does not say what its tensors are */
	CKPT_ROLE_UNTRAINED = 6,	/* has a gradient, but is not in the optimizer */
};

/* A tensor of the index, for ckpt_tensor_get(). */
struct ckpt_tensor_info {
	const char *name;	/* UTF-8, lent by the handle */
	enum ckpt_role role;	/* what it is in the model */
	uint32_t ndim;		/* 0: one element */
	const uint64_t *shape;	/* ndim sizes, lent */
	uint64_t numel;		/* 1 for a 0-dim tensor */
	uint32_t nstates;	/* for ckpt_state_get() */
	int32_t group;		/* optimizer param group, -1 = none */
	uint64_t alias_of;	/* CKPT_ROLE_ALIAS: number of the stored tensor */
};

/* Flags of a state. */
#define CKPT_STATE_DERIVED 1u	/* not stored: made from the master, rounded to 'dtype' */
#define CKPT_STATE_PER_RANK 2u	/* a buffer whose bytes differ over ranks; rank 0's */

/*
 * A state of a tensor.  Its extents cover every element exactly once; a replica does so once more,
 * and is not among them.
 */
struct ckpt_state_info {
	const char *name;	/* "weight", "master", "exp_avg", ... lent */
	enum ckpt_dtype dtype;	/* of its elements */
	uint32_t flags;		/* CKPT_STATE_* */
	uint64_t nextents;	/* for ckpt_extent_get() */
	uint64_t nreplicas;	/* further copies of the whole state in the files */
};

/* Flags of an extent. */
#define CKPT_EXTENT_SWAPPED 1u		/* stored big-endian */
#define CKPT_EXTENT_CONJ 2u		/* stored without its lazy conjugation */
#define CKPT_EXTENT_NEG 4u		/* stored without its lazy negation */
#define CKPT_EXTENT_DEFLATED 8u		/* inside a deflated archive member */
#define CKPT_EXTENT_GATHER 16u		/* a general strided view */

/*
 * Where elements of a state are in a file: 'runs' runs of 'count' elements each.  Run k begins at
 * byte offset + k * src_stride of file 'path' (of the inflated member, if CKPT_EXTENT_DEFLATED) and
 * at element first + k * dst_stride of the state, row-major.  With CKPT_EXTENT_GATHER the elements
 * first .. first + count are spread in the file by a stride per dimension.
 */
struct ckpt_extent_info {
	const char *path;	/* lent */
	const char *member;	/* archive member, or NULL; lent */
	uint64_t offset;	/* byte */
	uint64_t first;		/* element of the state */
	uint64_t count;		/* elements in a run */
	uint64_t runs;		/* 1: the elements are in one piece */
	uint64_t src_stride;	/* bytes */
	uint64_t dst_stride;	/* elements */
	enum ckpt_dtype dtype;	/* as stored */
	uint32_t flags;		/* CKPT_EXTENT_* */
	int32_t rank;		/* data-parallel rank, -1 = none */
};

/* ---------------------------------------------------------------- findings */

/* How bad a finding is. */
enum ckpt_severity {
	CKPT_INFO = 1,		/* good to know */
	CKPT_WARN = 2,		/* worth a line; the result is right without it */
	CKPT_ERROR = 3,		/* writers stop */
};

/*
 * A named result of checking.  Names never change; docs/findings.md explains each.  Opening and
 * the calls that check add findings to the handle, in the order of discovery; none is removed.
 */
struct ckpt_finding {
	const char *id;		/* "RANK_FILE_MISSING" */
	enum ckpt_severity severity;	/* after ckpt_open_opts.as_warning */
	const char *where;	/* file or tensor, may be "" */
	const char *text;	/* a clause */
	enum ckpt_code code;	/* with which a writer would stop */
};

/* ---------------------------------------------------------------- limits */

/*
 * Bounds that no file may exceed.  Zero in a field means the default, in parentheses; a value
 * above the maximum of ckpt_limit_get() means the maximum.  A file that meets a bound is
 * CKPT_E_LIMIT, and the message names the field.  docs/limits.md says what each is for, and which
 * bounds belong to a format and cannot be changed.
 */
struct ckpt_limits {
	size_t size;			/* sizeof(struct ckpt_limits) */
	uint64_t zip_entries;		/* entries of one archive (4,000,000) */
	uint64_t zip_dir_bytes;		/* its central directory (1 GiB) */
	uint64_t pickle_bytes;		/* one pickle (1 GiB) */
	uint64_t pickle_nodes;		/* values and memo entries of one pickle (50,000,000) */
	uint32_t pickle_depth;		/* nesting (1,000) */
	uint64_t header_bytes;		/* a safetensors header or JSON file (100,000,000) */
	uint32_t json_depth;		/* nesting (64) */
	uint64_t json_nodes;		/* values and names (40,000,000) */
	uint32_t tensor_dims;		/* dimensions of a tensor (64) */
	uint64_t inflate_bytes;		/* one deflated member (1 GiB) */
	uint32_t inflate_ratio;		/* inflated over compressed size (1,032) */
	uint64_t gather_bytes;		/* elements of one strided view (1 GiB) */
	uint32_t files;			/* files of a step (100,000) */
	uint64_t memory_bytes;		/* memory of one open checkpoint (4 GiB) */
	uint32_t name_bytes;		/* a tensor's name, made of keys (1 MiB) */
	uint32_t folder_depth;		/* nesting of folders (32) */
	uint32_t groups;		/* param groups and sub-groups of an optimizer (20,000) */
	uint32_t pickles;		/* one after the other in a file that is audited (100) */
};

/* What a limit is, for help texts. */
struct ckpt_limit_info {
	const char *name;	/* of the field: "pickle_nodes" */
	const char *text;	/* what it bounds */
	uint64_t value;		/* the default */
	uint64_t most;		/* the maximum */
	int is_bytes;		/* else it counts things */
};

/* Limit number 'limit', from 0; -CKPT_E_USAGE past the last. */
CKPT_API int ckpt_limit_get(uint32_t limit, struct ckpt_limit_info *out, struct ckpt_err *err);

/*
 * Set the field called 'name' of '*limits', which is zeroed or was set like this before.
 * -CKPT_E_USAGE for a name that is not a field's, for 0, and for more than the maximum.
 */
CKPT_API int ckpt_limits_set(struct ckpt_limits *limits, const char *name, uint64_t value,
			     struct ckpt_err *err);

/* ---------------------------------------------------------------- opening */

/* How a checkpoint is opened.  Everything is copied, so it need not outlive the call. */
struct ckpt_open_opts {
	size_t size;		/* sizeof(struct ckpt_open_opts) */
	/*
	 * Step to open; NULL = the one 'latest' names.  "3" is global_step3 or checkpoint-3 where
	 * no step is called "3": CKPT_E_USAGE if there are both.
	 */
	const char *tag;
	uint32_t threads;	/* for reading metadata; 0 = as many as CPUs, at most 16 */
	const struct ckpt_limits *limits;	/* NULL = defaults */
	/*
	 * Findings of these names count as warnings; NULL or a NULL-terminated list.
	 * An unknown name is CKPT_E_USAGE.
	 */
	const char *const *as_warning;
	/*
	 * Of a torch file: the entry whose tensors are read, by its key or by keys and numbers
	 * joined with dots ("ema", "optimizer_states.0").  NULL: the model of a training file
	 * (docs/formats/torch.md), all tensors of any other.  CKPT_E_USAGE if the file has no such
	 * entry, or is not a torch file.  Lent until ckpt_open() returns.
	 */
	const char *subtree;
	/*
	 * 1: keep in memory what the files of a step hold besides tensors, for the first
	 * ckpt_reshard() on this handle.  0: that call reads the files again.
	 */
	int keep_values;
	/*
	 * 1: find optimizer states that have no names, as Megatron-Core saves them by default, by
	 * their content.  Opening then reads all weights and all masters; a state whose place is
	 * not certain is left out (finding STATES_UNNAMED).  0: none of them is in the index
	 * (finding STATES_UNSEARCHED), unless a verb of the program is asked for a state.
	 */
	int find_states;
	/*
	 * Of a checkpoint of Megatron-Core: "hf" = names and shapes of transformers, "native" = its
	 * own, or the path of a file with a table of names.  NULL: "hf" where the model is of a
	 * known family, else "native".
	 * Of any other checkpoint: what ckpt_convert() and ckpt_shard() write for a model whose
	 * modules have other names in memory than in transformers' files.  "hf" = the files' names
	 * (ckpt_shard(): the modules'), "native" = as they are, or a file with a table
	 * (docs/formats/name-maps.md).  NULL: "hf", but "native" for a state dict of torch.
	 */
	const char *names;
	/* config.json of the model, or its folder; NULL = found beside the checkpoint. */
	const char *model_config;
	/*
	 * A JSON file that says how tensor-parallel slices are joined, with the keys of DeepSpeed's
	 * universal_checkpoint_info; NULL = the files say it.
	 */
	const char *tp_rules;
	uint64_t vocab_size;	/* rows of the vocabulary without padding; 0 = config.json's */
	/*
	 * Of a training file of torch (docs/formats/torch.md), whose optimizer numbers its
	 * parameters: a file with their names in the optimizer's order, group after group, one a
	 * line; shell patterns of tensors that it does not have, frozen parameters and buffers,
	 * each list with NULL at its end.  NULL = nothing is known.  The states in the index, the
	 * steps made of them, and ckpt_values_open() follow it.
	 * CKPT_E_MISMATCH if the file contradicts it, CKPT_E_USAGE if it has no such states.
	 */
	const char *order_path;
	const char *const *frozen, *const *buffers;
};

/* An open checkpoint. */
struct ckpt;

/* Of ckpt_convert.h, which other headers name. */
struct ckpt_select;
struct ckpt_report;

/*
 * Open the checkpoint at paths[0..npaths-1] and build the index of its tensors.
 *
 * A path is a file (.safetensors, .pt) or a folder: a DeepSpeed step, the folder
 * above it (then the step that 'latest' names is opened), a "checkpoint-N" parent,
 * or a Hugging Face folder.  Several paths are overlaid as if their files were in
 * one folder, as when each node kept its own ranks' shards; the same file in two
 * of them must have the same size.  Formats are detected from content; names are a
 * hint at most.
 *
 * Damage that leaves an index possible is not a failure here: it is a finding, and
 * the verbs decide which findings stop them.
 *
 * Cost: metadata only (archive directories, pickles, JSON headers), in parallel.  No
 * tensor byte is read.  Memory: at most about 200 bytes an extent;
 * the rows of a block of columns take as much as one.
 *
 * Ownership: '*ck_out' is for ckpt_close(); what it lends lives until then.
 *
 * Returns 0 or the negative of
 *	CKPT_E_NOTFOUND    nothing at a path, or 'latest' names a missing step
 *	CKPT_E_FORMAT      not a known format
 *	CKPT_E_LAYOUT      pipeline, tensor parallel, MoE, ...: named in the message
 *	CKPT_E_INCOMPLETE  so much is missing that no index can be built
 *	CKPT_E_CORRUPT, CKPT_E_TRUNCATED, CKPT_E_MISMATCH
 *	CKPT_E_UNSAFE      a pickle needs a call that is refused
 *	CKPT_E_LIMIT, CKPT_E_NOMEM, CKPT_E_IO, CKPT_E_USAGE
 * with '*err' (may be NULL) describing the first failure.
 */
CKPT_API int ckpt_open(const char *const *paths, size_t npaths,
		       const struct ckpt_open_opts *opts, struct ckpt **ck_out,
		       struct ckpt_err *err);

/*
 * Close a checkpoint: its files, and all memory that it lent.  Release first what borrows from it:
 * values (ckpt_value.h), checks of loads, results of diff and sizes.  NULL is fine.
 */
CKPT_API void ckpt_close(struct ckpt *ck);

/* What a checkpoint is.  Strings are lent by the handle; unknown ones are "". */
struct ckpt_info {
	const char *format;	/* "deepspeed", "universal", "safetensors", "torch", ... */
	const char *path;	/* of the step or file that was opened */
	const char *tag;	/* DeepSpeed: the step's name */
	const char *why;	/* how the step was chosen, a sentence */
	int32_t stage;		/* ZeRO stage, -1 = not a ZeRO checkpoint */
	/*
	 * "BF16_Optimizer", "ZeRO", "none", ...; "unnamed": its states are in buckets without
	 * names and have not been found (ckpt_open_opts.find_states)
	 */
	const char *optimizer;
	uint32_t world;		/* data-parallel ranks, 0 = not a ZeRO checkpoint */
	int64_t step;		/* global_steps, -1 = unknown */
	const char *writer;	/* "DeepSpeed 0.19.8" */
	uint64_t ntensors;	/* aliases are counted too */
	uint64_t nextents;	/* of all states */
	uint64_t nfiles;	/* that tensors are read from: for ckpt_file_get() */
	uint64_t file_bytes;	/* of all files of the step */
	uint64_t ngroups;	/* optimizer param groups */
	uint64_t nfindings;	/* so far */
	char fingerprint[33];	/* XXH3-128 over names, sizes, headers, directories, manifests */
};

/* Fills '*out'; no I/O. */
CKPT_API void ckpt_info_get(const struct ckpt *ck, struct ckpt_info *out);

/*
 * The members of the index by number, from 0 to the counts of ckpt_info (states and
 * extents: of the tensor's and state's info).  Strings and shapes in '*out' are lent by the
 * handle.  No I/O.  Return 0, or -CKPT_E_USAGE for a number past the end, or, of the two
 * functions that find, for a name that the checkpoint or the tensor lacks.  ckpt_state_find()
 * with name NULL finds "weight"; its message lists the states that the tensor has.  A second
 * name of a tied tensor (CKPT_ROLE_ALIAS) has no states: use tensor number 'alias_of'.
 */
CKPT_API int ckpt_tensor_get(const struct ckpt *ck, uint64_t tensor,
			     struct ckpt_tensor_info *out, struct ckpt_err *err);
CKPT_API int ckpt_tensor_find(const struct ckpt *ck, const char *name, uint64_t *tensor_out,
			      struct ckpt_err *err);
CKPT_API int ckpt_state_get(const struct ckpt *ck, uint64_t tensor, uint32_t state,
			    struct ckpt_state_info *out, struct ckpt_err *err);
CKPT_API int ckpt_state_find(const struct ckpt *ck, uint64_t tensor, const char *name,
			     uint32_t *state_out, struct ckpt_err *err);
CKPT_API int ckpt_extent_get(const struct ckpt *ck, uint64_t tensor, uint32_t state,
			     uint64_t extent, struct ckpt_extent_info *out,
			     struct ckpt_err *err);
CKPT_API int ckpt_finding_get(const struct ckpt *ck, uint64_t finding,
			      struct ckpt_finding *out, struct ckpt_err *err);

/*
 * A file of the step that tensors are read from: path, size, and the rank it belongs to (-1 =
 * none).  The other files of its folder are not among them; ckpt_sizes_get() counts those too.
 */
struct ckpt_file_info {
	const char *path;	/* lent by the handle; of a pack a path within it */
	uint64_t bytes;		/* as it was when it was opened */
	int32_t rank;		/* data-parallel rank */
};
CKPT_API int ckpt_file_get(const struct ckpt *ck, uint64_t file, struct ckpt_file_info *out,
			   struct ckpt_err *err);

/*
 * Facts about the step as text, for metadata and reports: hyper-parameters ("group.0.lr"),
 * optimizer scalars ("group.0.step"), counters ("global_steps"), "ds_version".
 * Number 'fact' from 0; 0 and both strings lent, or -CKPT_E_USAGE past the end.
 */
CKPT_API int ckpt_fact_get(const struct ckpt *ck, uint64_t fact, const char **key_out,
			   const char **value_out, struct ckpt_err *err);

/*
 * Read elements [first, first + count) of a state, row-major, converted to 'dtype' (0 = as
 * stored), into 'buf'; 'bytes' is exactly their size.  For small reads: each call allocates its
 * buffers, and nothing is compared with sums.  Use ckpt_load() for many ranges, and ckpt_convert()
 * for whole checkpoints.  Returns 0, -CKPT_E_USAGE if the range or the buffer does not fit,
 * -CKPT_E_MISMATCH if a file of the checkpoint was written to or replaced since it was opened,
 * else the failure of reading: CKPT_E_IO, CKPT_E_TRUNCATED, CKPT_E_CORRUPT, CKPT_E_UNSUPPORTED (no
 * such conversion), CKPT_E_LIMIT, CKPT_E_NOMEM; the content of 'buf' is then undefined.
 */
CKPT_API int ckpt_read(const struct ckpt *ck, uint64_t tensor, uint32_t state, uint64_t first,
		       uint64_t count, enum ckpt_dtype dtype, void *buf, size_t bytes,
		       struct ckpt_err *err);

/* ---------------------------------------------------------------- running */

/* How far a call is, for a progress line.  The callback runs in one thread at a time. */
struct ckpt_progress {
	uint64_t done_bytes;	/* written, or hashed */
	uint64_t total_bytes;	/* that 'done_bytes' will be at the end */
};
typedef void (*ckpt_progress_fn)(void *arg, const struct ckpt_progress *progress);

/* How output is synced to the disk before it is renamed into place.  Pinned. */
enum ckpt_sync {
	CKPT_SYNC_DATA = 0,	/* fdatasync of each file, then of the folders */
	CKPT_SYNC_FULL = 1,	/* fsync of each file, each folder and the parent */
	CKPT_SYNC_NONE = 2,	/* no sync: a power cut may lose the output */
};

/* Shared by every call that moves bytes.  Zero = default. */
struct ckpt_run_opts {
	size_t size;			/* sizeof(struct ckpt_run_opts) */
	uint32_t threads;		/* 0 = CPUs, at most 8 */
	uint64_t mem_limit;		/* buffers, bytes (256 MiB) */
	enum ckpt_sync sync;		/* of calls that write */
	/* Stop with CKPT_E_CANCELED when it becomes non-zero; a signal handler may set it.  It
	   is read before each piece of work.  NULL: the call cannot be stopped. */
	const volatile int *cancel;
	ckpt_progress_fn progress;	/* may be NULL */
	void *progress_arg;		/* its first argument */
	/* Of calls that convert, reshard or shard: when they are canceled with at least so many
	   bytes done, or after they continued earlier work, the partial result stays as after a
	   kill, and the same call continues; err->where names it.  0: nothing stays. */
	uint64_t keep_bytes;
};

#ifdef __cplusplus
}
#endif

/* A header for each further verb. */
#include <ckpt_cat.h>
#include <ckpt_convert.h>
#include <ckpt_diff.h>
#include <ckpt_estimate.h>
#include <ckpt_keep.h>
#include <ckpt_load.h>
#include <ckpt_pack.h>
#include <ckpt_reshard.h>
#include <ckpt_save.h>
#include <ckpt_shard.h>
#include <ckpt_value.h>
#include <ckpt_verify.h>
#include <ckpt_view.h>

#endif
