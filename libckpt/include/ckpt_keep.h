/*
 * ckpt_keep.h -- keeping checkpoints in order.  Part of <ckpt.h>.
 */
#ifndef CKPT_KEEP_H
#define CKPT_KEEP_H

#include <ckpt.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Make the file 'latest' of folder 'dir' ('latest_universal' if 'universal') name the step
 * 'tag', which is a folder in 'dir'.  What is there is replaced by one rename.  The step is
 * not looked at: open it first.
 * Returns 0 or the negative of CKPT_E_USAGE (a tag that a loader would not find: empty, white
 * space around it, a slash, a line break), CKPT_E_NOTFOUND (no such folder), CKPT_E_NOSPACE,
 * CKPT_E_IO, CKPT_E_NOMEM; the file is then as it was, save after a failure to sync.
 */
CKPT_API int ckpt_latest_set(const char *dir, const char *tag, int universal,
			     enum ckpt_sync sync, struct ckpt_err *err);

/* ---------------------------------------------------------------- audit */

/* What libckpt does about a name that a pickle mentions.  Pinned. */
enum ckpt_name_set {
	CKPT_NAME_DATA = 1,	/* builds values, or is understood */
	CKPT_NAME_OPAQUE = 2,	/* kept by name, never in the way of the tensors */
	CKPT_NAME_REFUSED = 3,	/* no checkpoint needs it: a call ends the reading */
};

/* What torch.load(weights_only=True) does about it.  Pinned. */
enum ckpt_torch_says {
	CKPT_TORCH_ALLOWS = 1,
	CKPT_TORCH_ASKS = 2,	/* torch.serialization.add_safe_globals() must name it */
	CKPT_TORCH_NEVER = 3,	/* its module is blocked */
};

struct ckpt_audit_name {
	const char *module, *name;	/* Python 3's spelling */
	enum ckpt_name_set set;
	enum ckpt_torch_says torch;
	int called;		/* or handed to what is called, or set where Python obeys it */
	uint64_t offset;	/* byte of the pickle with the first mention */
};

/* A pickle, or a file that could not be searched for any (bytes 0 and an error). */
struct ckpt_audit_pickle {
	const char *path;
	const char *member;	/* of an archive: "archive/data.pkl"; else NULL */
	uint64_t offset;	/* where it begins in the member or file */
	uint64_t bytes;
	uint64_t nnames;
	const struct ckpt_audit_name *name;
	int torch_op;		/* first opcode that weights_only does not take, -1 = none */
	enum ckpt_code code;	/* why it was not read to its end; CKPT_OK */
	const char *error;	/* a clause, "" */
};

struct ckpt_audit {
	uint64_t npickles;
	const struct ckpt_audit_pickle *pickle;	/* by path, then by place */
	uint64_t nfiles;	/* that were looked into */
	void *memory;		/* private */
};

/*
 * List the names that the pickles of files use.  A path is a file, or a folder: then every
 * file in it and below that can be a pickle (torch's archives and streams, .pkl, .bin, ...).
 * Nothing is executed, no tensor is read.  A pickle that cannot be read to its end is listed
 * with the names met before.  'limits' may be NULL.  Free with ckpt_audit_free().
 * Returns 0 or the negative of CKPT_E_NOTFOUND, CKPT_E_IO, CKPT_E_NOMEM, CKPT_E_LIMIT.
 */
CKPT_API int ckpt_audit(const char *const *paths, size_t npaths,
			const struct ckpt_limits *limits, struct ckpt_audit *out,
			struct ckpt_err *err);
CKPT_API void ckpt_audit_free(struct ckpt_audit *audit);

/* ---------------------------------------------------------------- sizes */

/* What bytes of a checkpoint are for.  Pinned. */
enum ckpt_size_kind {
	CKPT_SIZE_STATE = 1,	/* a state of tensors of one role and type */
	CKPT_SIZE_REPLICA = 2,	/* further copies of a state in other files */
	CKPT_SIZE_PADDING = 3,	/* of optimizer states, to a whole number of elements a rank */
	CKPT_SIZE_BLOAT = 4,	/* of storages that are saved whole, though a tensor uses a part */
	CKPT_SIZE_OTHER_TENSORS = 5,	/* counters, random states, placeholders */
	CKPT_SIZE_COMPRESSED = 6,	/* deflated storages, whatever they hold */
	CKPT_SIZE_PICKLE = 7,	/* names, shapes, configuration; the head of a safetensors file */
	CKPT_SIZE_ARCHIVE = 8,	/* headers, alignment, directories */
	CKPT_SIZE_OTHER_FILES = 9,	/* files in the folder that are no part of the step */
};

struct ckpt_size {
	enum ckpt_size_kind kind;
	const char *state;	/* "" where there is none; lent by the checkpoint */
	enum ckpt_role role;	/* 0 where there is none */
	enum ckpt_dtype dtype;	/* 0 likewise */
	uint64_t elements;
	uint64_t bytes;
};

struct ckpt_sizes {
	uint64_t nparts;
	const struct ckpt_size *part;	/* by kind; in it as met */
	uint64_t bytes;		/* their sum: of all files of the step's folder, or of the file */
	uint64_t nfiles;
	void *memory;		/* private */
};

/*
 * What the bytes of 'ck' are for; the parts sum to what the files have.  Reads the directories
 * of archives again, no tensor.  Free with ckpt_sizes_free() before 'ck' is closed.
 * Returns 0 or the negative of CKPT_E_IO, CKPT_E_NOMEM, CKPT_E_LIMIT, and of what a file that has
 * changed meanwhile gives.
 */
CKPT_API int ckpt_sizes_get(struct ckpt *ck, struct ckpt_sizes *out, struct ckpt_err *err);
CKPT_API void ckpt_sizes_free(struct ckpt_sizes *sizes);

/* ---------------------------------------------------------------- slim */

#define CKPT_SLIM_VIEWS 1u	/* what of a storage no tensor uses */
#define CKPT_SLIM_FROZEN 2u	/* second copies of frozen parameters in one file */
#define CKPT_SLIM_MOMENTS 4u	/* optimizer states, but for masters and counts of steps */

struct ckpt_slim_opts {
	size_t size;
	const struct ckpt_run_opts *run;
	unsigned what;		/* CKPT_SLIM_*; 0 = VIEWS and FROZEN, with which nothing is lost */
	unsigned flags;		/* CKPT_CONVERT_FORCE, _RESTART, _DRY_RUN, _STRICT */
};

/* A file that was left as it is, and a clause that says why. */
struct ckpt_slim_kept {
	const char *path;
	const char *why;
};

struct ckpt_slimmed {
	uint64_t files;			/* of the result */
	uint64_t before_bytes;		/* of the files it was made of */
	uint64_t after_bytes;
	/* Bytes of tensors that are not in it, each counted for one reason. */
	uint64_t views_bytes, frozen_bytes, moments_bytes;
	uint64_t read_bytes, resumed_bytes;
	int manifest;			/* zckpt-manifest.json was there; the result has none */
	uint64_t nkept;
	const struct ckpt_slim_kept *kept;
	uint32_t threads;
	double seconds;
	void *memory;			/* private */
};

/*
 * Write a smaller copy of 'ck' to 'dst': of a step a folder with 'latest' and the step, which may
 * be one that keeps steps already (as ckpt_reshard()); of a folder of weights such a folder; of a
 * torch file a file.  With CKPT_CONVERT_DRY_RUN nothing is written, and 'dst' may be NULL.
 *
 * Torch files are written anew where something is to be saved: the same values, the same tensors
 * bit for bit, on storages that end where tensors do.  Tensors that share elements keep sharing
 * them.  A file that would lose something by it (compressed, big-endian, sparse or quantized
 * tensors, subclasses of Tensor) is left as it is and listed in 'kept'.  Without moments a step
 * has its weights and masters; DeepSpeed loads it with load_optimizer_states=False.  A trainer's
 * optimizer.pt beside weights goes as a whole.
 *
 * Checks, memory, commit and journal are those of ckpt_convert().  '*out' (may be NULL) is filled
 * on success; free it with ckpt_slimmed_free().
 * Returns 0 or the negative of
 *	CKPT_E_UNSUPPORTED  a lone safetensors file, in which nothing can be saved
 *	CKPT_E_USAGE        no destination, unknown flags
 *	and the codes of ckpt_reshard().
 */
CKPT_API int ckpt_slim(struct ckpt *ck, const char *dst, const struct ckpt_slim_opts *opts,
		       struct ckpt_slimmed *out, struct ckpt_err *err);
CKPT_API void ckpt_slimmed_free(struct ckpt_slimmed *slimmed);

#ifdef __cplusplus
}
#endif
#endif
