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

#ifdef __cplusplus
}
#endif
#endif
