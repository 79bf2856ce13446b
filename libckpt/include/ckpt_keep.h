/*
 * ckpt_keep.h -- the steps of a run's folder: which one is meant, which are complete, which to
 * keep; what the bytes of a checkpoint are for, and which names its pickles use.  Part of
 * <ckpt.h>.
 *
 * The step to resume from, which is complete, or none:
 *
 *	struct ckpt_steps steps;
 *
 *	if (!ckpt_steps_list("RUN", NULL, NULL, &steps, &err)) {
 *		if (steps.chosen >= 0)
 *			puts(steps.step[steps.chosen].path);
 *		ckpt_steps_free(&steps);
 *	}
 *
 * Answers come in structs that the caller owns.  Their pointers are valid until their free function
 * is called, which zeroes the struct; to free a zeroed struct, or NULL, does nothing.
 */
#ifndef CKPT_KEEP_H
#define CKPT_KEEP_H

#include <ckpt.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Make the file 'latest' of folder 'dir' ('latest_universal' if 'universal') name the step 'tag',
 * which is a folder in 'dir'.  The file is written beside the old one, synced as 'sync' says, and
 * renamed, so a reader finds the old name or the new one.  The folder must exist; its content is
 * not checked: ckpt_open() and ckpt_verify() do that.  Returns 0 or the negative of CKPT_E_USAGE
 * (a tag that a loader would not find: empty, white space around it, a slash, a line break),
 * CKPT_E_NOTFOUND (no such folder), CKPT_E_NOSPACE, CKPT_E_IO, CKPT_E_NOMEM; the file is then as
 * it was, unless only the last sync of the folder failed.
 */
CKPT_API int ckpt_latest_set(const char *dir, const char *tag, int universal,
			     enum ckpt_sync sync, struct ckpt_err *err);

/* Which step a folder means.  Strings are valid until ckpt_latest_free(). */
struct ckpt_latest {
	const char *path;	/* of the step */
	const char *name;	/* its entry in the folder; "" = the folder itself */
	const char *why;	/* a clause: "'latest' names it" */
	int named;		/* by a file 'latest' or 'latest_universal' */
	void *memory;		/* private */
};

/*
 * The step that ckpt_open() opens in folder 'dir' without a tag, by names alone: it may be
 * damaged.  'limits' NULL = defaults.  Cost: folders are listed and 'latest' is read; no file of a
 * step is read.  '*out' is filled on success; free it with ckpt_latest_free().
 * Returns 0 or the negative of CKPT_E_NOTFOUND (no step, or 'latest' names none), CKPT_E_FORMAT
 * (a checkpoint of another framework), CKPT_E_UNSAFE ('latest' leads outside), CKPT_E_IO,
 * CKPT_E_LIMIT, CKPT_E_NOMEM.
 */
CKPT_API int ckpt_latest_get(const char *dir, const struct ckpt_limits *limits,
			     struct ckpt_latest *out, struct ckpt_err *err);
CKPT_API void ckpt_latest_free(struct ckpt_latest *latest);

/* A step in a folder.  Strings are valid until ckpt_steps_free(). */
struct ckpt_step_there {
	const char *name;	/* folder in the run's: what ckpt_open() takes as its tag */
	const char *path;	/* of the step itself: of a checkpoint-N, below it */
	int64_t step;		/* -1 = unknown */
	int whole;		/* a step, and it verifies as ckpt_verify() does without flags */
	const char *why;	/* a clause that says why it is not complete; NULL if it is */
};

/* The answer of ckpt_steps_list(). */
struct ckpt_steps {
	uint64_t nsteps;
	const struct ckpt_step_there *step;	/* newest first */
	int64_t latest;		/* number of the one that 'latest' selects, -1 = none */
	const char *latest_why;	/* 'latest' exists and names no step: a clause; or NULL */
	/*
	 * Number of the step to resume from: what 'latest' selects if it is complete, else the
	 * newest complete one; -1 = none is complete.
	 */
	int64_t chosen;
	void *memory;		/* private */
};

/*
 * The steps that folder 'dir' keeps: of any form, and a trainer's checkpoint-N.  'run' and 'limits'
 * NULL = defaults.  '*out' is filled on success; free it with ckpt_steps_free().
 *
 * Cost: each step is opened and verified as ckpt_verify() does without flags, one after the other:
 * its metadata is read, and of tensors only the ends of masters and weights.
 *
 * A step that does not open or verify is listed with the reason in 'why'; the call fails only
 * if a step could not be examined, because then it is not known whether it is complete.
 *
 * Returns 0 or the negative of
 *	CKPT_E_NOTFOUND  no such folder
 *	CKPT_E_CANCELED  run->cancel was set
 *	CKPT_E_IO, CKPT_E_LIMIT, CKPT_E_NOMEM
 */
CKPT_API int ckpt_steps_list(const char *dir, const struct ckpt_run_opts *run,
			     const struct ckpt_limits *limits, struct ckpt_steps *out,
			     struct ckpt_err *err);
CKPT_API void ckpt_steps_free(struct ckpt_steps *steps);

/* ---------------------------------------------------------------- audit */

/*
 * A pickle is a program that builds values by calling functions by name.  libckpt never calls
 * anything: it knows what a closed set of names would build, and refuses the rest.  audit lists the
 * names, to judge a file before another program loads it.
 *
 * What libckpt does with a name that a pickle uses.  Pinned.
 */
enum ckpt_name_set {
	CKPT_NAME_DATA = 1,	/* builds values, or is understood */
	CKPT_NAME_OPAQUE = 2,	/* kept by name; the tensors are read */
	CKPT_NAME_REFUSED = 3,	/* no checkpoint needs it: a call of it is an error */
};

/* What torch.load(weights_only=True) does with it.  Pinned. */
enum ckpt_torch_says {
	CKPT_TORCH_ALLOWS = 1,	/* it is loaded */
	CKPT_TORCH_ASKS = 2,	/* torch.serialization.add_safe_globals() must name it */
	CKPT_TORCH_NEVER = 3,	/* its module is blocked */
};

/* A name that a pickle uses; listed once. */
struct ckpt_audit_name {
	const char *module, *name;	/* Python 3's spelling */
	enum ckpt_name_set set;	/* what this library does about it */
	enum ckpt_torch_says torch;	/* and what torch does */
	int called;		/* or handed to what is called, or set where Python obeys it */
	uint64_t offset;	/* byte of the pickle where it is first used */
};

/* A pickle, or a file that could not be searched for any (bytes 0 and an error). */
struct ckpt_audit_pickle {
	const char *path;	/* of the file, below the path that was given */
	const char *member;	/* of an archive: "archive/data.pkl"; else NULL */
	uint64_t offset;	/* where it begins in the member or file */
	uint64_t bytes;		/* up to its STOP, or to the end where it was not read so far */
	uint64_t nnames;
	const struct ckpt_audit_name *name;	/* [nnames] */
	int torch_op;		/* first opcode that weights_only refuses, -1 = none */
	enum ckpt_code code;	/* why it was not read to its end; CKPT_OK */
	const char *error;	/* a clause, "" */
};

/* The answer of ckpt_audit(). */
struct ckpt_audit {
	uint64_t npickles;
	const struct ckpt_audit_pickle *pickle;	/* by path, then by place */
	uint64_t nfiles;	/* that were read */
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
	CKPT_SIZE_COMPRESSED = 6,	/* deflated storages, of any content */
	CKPT_SIZE_PICKLE = 7,	/* names, shapes, configuration; the head of a safetensors file */
	CKPT_SIZE_ARCHIVE = 8,	/* headers, alignment, directories */
	CKPT_SIZE_OTHER_FILES = 9,	/* files in the folder that are not part of the step */
};

/* Bytes of one kind.  State, role and type say more of CKPT_SIZE_STATE and the like. */
struct ckpt_size {
	enum ckpt_size_kind kind;
	const char *state;	/* "" = none; lent by the checkpoint */
	enum ckpt_role role;	/* 0 = none */
	enum ckpt_dtype dtype;	/* 0 likewise */
	uint64_t elements;	/* 0 if the bytes are not elements */
	uint64_t bytes;		/* in the files */
};

/* The answer of ckpt_sizes_get(): every byte of the files is in exactly one part. */
struct ckpt_sizes {
	uint64_t nparts;
	const struct ckpt_size *part;	/* by kind; in it as met */
	uint64_t bytes;		/* their sum: of all files of the step's folder, or of the file */
	uint64_t nfiles;	/* whose bytes were counted */
	void *memory;		/* private */
};

/*
 * What the bytes of 'ck' are for; the parts sum to what the files have.  A byte that two tensors
 * share counts for the first of them.  Reads the directories of archives again, no tensor.  Free
 * with ckpt_sizes_free() before 'ck' is closed. Returns 0 or the negative of CKPT_E_IO,
 * CKPT_E_NOMEM, CKPT_E_LIMIT, and of what a file that has changed meanwhile gives.
 */
CKPT_API int ckpt_sizes_get(struct ckpt *ck, struct ckpt_sizes *out, struct ckpt_err *err);
CKPT_API void ckpt_sizes_free(struct ckpt_sizes *sizes);

/* ---------------------------------------------------------------- slim */

/*
 * What a smaller copy leaves out.  Views: torch.save writes a storage whole where a tensor uses a
 * part of it, as after slicing.  Frozen: DeepSpeed writes frozen parameters twice into a file.
 */
#define CKPT_SLIM_VIEWS 1u	/* parts of a storage that no tensor uses */
#define CKPT_SLIM_FROZEN 2u	/* second copies of frozen parameters in one file */
#define CKPT_SLIM_MOMENTS 4u	/* optimizer states, except masters and step counts */

struct ckpt_slim_opts {
	size_t size;		/* sizeof(struct ckpt_slim_opts) */
	const struct ckpt_run_opts *run;	/* NULL = defaults */
	unsigned what;		/* CKPT_SLIM_*; 0 = VIEWS and FROZEN, which lose nothing */
	unsigned flags;		/* CKPT_WRITE_FORCE, _RESTART, _DRY_RUN, _STRICT */
};

/* A file that was left as it is, and a clause that says why. */
struct ckpt_slim_kept {
	const char *path;
	const char *why;
};

/* What slimming did, or in a dry run would do. */
struct ckpt_slimmed {
	uint64_t files;			/* of the result */
	uint64_t before_bytes;		/* of the files it was made of */
	uint64_t after_bytes;		/* of the result */
	/* Bytes of tensors that are not in it, each counted for one reason. */
	uint64_t views_bytes, frozen_bytes, moments_bytes;
	uint64_t read_bytes, resumed_bytes;	/* as in struct ckpt_report */
	/* With CKPT_WRITE_DRY_RUN and a 'dst', as in struct ckpt_report: */
	uint64_t would_read_bytes, free_bytes;
	int manifest;			/* the source has a zckpt-manifest.json, the result none */
	uint64_t nkept;
	const struct ckpt_slim_kept *kept;	/* [nkept] */
	uint32_t threads;		/* that were used */
	double seconds;			/* from the call to its return */
	void *memory;			/* private */
};

/*
 * Write a smaller copy of 'ck' to 'dst': of a step a folder with 'latest' and the step, which may
 * be one that keeps steps already (as ckpt_reshard()); of a folder of weights such a folder; of a
 * torch file a file.  With CKPT_WRITE_DRY_RUN nothing is written, and 'dst' may be NULL.
 *
 * A torch file in which bytes can be saved is written again: the same values, the same tensors bit
 * for bit, on storages that end where tensors do.  Tensors that share elements keep sharing them.
 * A file that would lose something (compressed, big-endian, sparse or quantized
 * tensors, subclasses of Tensor) is left as it is and listed in 'kept'.  Without moments a step
 * has its weights and masters; DeepSpeed loads it with load_optimizer_states=False.  A trainer's
 * optimizer.pt beside weights is left out.
 *
 * Memory, commit and what a killed run leaves are as in ckpt_convert(), and so are the findings
 * that stop it.  Masters of a step are compared with its weights before anything is written.
 * '*out' (may be NULL) is filled on success; free it with ckpt_slimmed_free(). Returns 0 or the
 * negative of
 *	CKPT_E_UNSUPPORTED  a lone safetensors file, in which nothing can be saved
 *	CKPT_E_USAGE        no destination, unknown flags
 *	and the codes of ckpt_reshard().
 */
CKPT_API int ckpt_slim(struct ckpt *ck, const char *dst, const struct ckpt_slim_opts *opts,
		       struct ckpt_slimmed *out, struct ckpt_err *err);
CKPT_API void ckpt_slimmed_free(struct ckpt_slimmed *slimmed);

/* ---------------------------------------------------------------- prune */

#define CKPT_PRUNE_APPLY 1u	/* do it; without this nothing is changed */
#define CKPT_PRUNE_FULL 2u	/* the newest step must verify with CKPT_VERIFY_FULL */
#define CKPT_PRUNE_LINK 4u	/* same files of neighbouring steps become hard links */
#define CKPT_PRUNE_REFLINK 8u	/* or share their blocks, where the file system can */

struct ckpt_prune_opts {
	size_t size;			/* sizeof(struct ckpt_prune_opts) */
	const struct ckpt_run_opts *run;	/* NULL = defaults */
	const struct ckpt_limits *limits;	/* NULL = defaults */
	/*
	 * Rules; 0 and NULL are none.  A step stays if one of the first three keeps it, or if none
	 * of them is given.
	 */
	uint64_t keep_last;		/* so many of the newest that verify, and those between */
	uint64_t keep_every;		/* steps whose number can be divided by it */
	const char *const *keep;	/* names, NULL-terminated */
	/* So many of the newest that stay keep moments, and those that ckpt_slim() refuses. */
	uint64_t moments_last;
	unsigned flags;			/* CKPT_PRUNE_* */
};

/* What happens to a step.  Pinned. */
enum ckpt_prune_what {
	CKPT_PRUNE_KEEP = 1,	/* it is not changed */
	CKPT_PRUNE_SLIM = 2,	/* it stays without its moments */
	CKPT_PRUNE_REMOVE = 3,	/* its folder is removed */
};

/* One step, and what a rule or a protection decided for it. */
struct ckpt_pruned_step {
	const char *name;	/* folder in the run's */
	int64_t step;		/* -1 = unknown */
	int whole;		/* it verifies */
	uint64_t bytes;		/* of its files */
	uint64_t freed;		/* by it; files with hard links elsewhere free none */
	enum ckpt_prune_what what;	/* what is done with it */
	const char *why;	/* a clause: the rule, or what protects it ("'latest' names it") */
};

/* The answer of ckpt_prune(): what it would do, or with CKPT_PRUNE_APPLY what it did. */
struct ckpt_pruned {
	uint64_t nsteps;
	const struct ckpt_pruned_step *step;	/* newest first */
	uint64_t nkept, nslimmed, nremoved;	/* together 'nsteps' */
	uint64_t bytes, freed;	/* of all steps */
	/*
	 * Of the copies that replace slimmed steps, and of the largest of them: a step and its copy
	 * are both there until the copy verifies.
	 */
	uint64_t copied_bytes, copy_bytes;
	uint64_t free_bytes;	/* on the disk, without CKPT_PRUNE_APPLY; 0 = unknown, or no copy */
	uint64_t linked, linked_bytes;	/* files; their space is freed too */
	uint64_t nleft;		/* leftovers of an interrupted prune: removed, or put back */
	void *memory;		/* private */
};

/*
 * Thin out the steps that the folder 'dir' keeps: steps of any form, and a trainer's checkpoint-N
 * folders.  Everything else in the folder stays; links are not followed, and steps in the folder to
 * which they lead stay.
 *
 * Under all rules these steps stay unchanged: the newest that verifies and every newer one; the
 * one that 'latest' or 'latest_universal' names; one that is being written (it has a partial
 * folder or half a file); a trainer's best; one without a number.  If none verifies, all stay.
 * Readers see a step complete or not at all: it is renamed to ".NAME.zckpt-removed", then removed.
 * A copy without moments is made beside the step (ckpt_slim()), verified, and exchanged with it.
 * What a kill or a power cut leaves has a hidden name, and the next call with CKPT_PRUNE_APPLY
 * completes the work.
 *
 * Order: first steps are removed, the oldest first, because copies without moments need space; then
 * the copies are made, then links.  A step that is newer than the newest that verifies stays,
 * because it may still be written.
 *
 * Cost: each step is opened and verified; with CKPT_PRUNE_FULL the newest is read whole.  Linking
 * reads what has the same name and size.
 *
 * With one of the two flags for links: in steps that stay and verify, a file of frozen parameters,
 * or any of 1 MiB or more, becomes a link to the file of the next older step that has the same name
 * and bytes, in one rename.  A program that later writes into a file with hard links changes all of
 * these steps; this library never does.
 *
 * '*out' is filled on success; free it with ckpt_pruned_free().
 * Returns 0 or the negative of
 *	CKPT_E_USAGE     no rule; a name in 'keep' that no step has (nothing was changed)
 *	CKPT_E_NOTFOUND  no such folder
 *	CKPT_E_BUSY      another prune is running there
 *	CKPT_E_UNSUPPORTED  the file system has no such links
 *	CKPT_E_CANCELED, CKPT_E_NOSPACE, CKPT_E_IO, CKPT_E_NOMEM; steps that were
 *	finished before stay finished, the others are unchanged.
 */
CKPT_API int ckpt_prune(const char *dir, const struct ckpt_prune_opts *opts,
			struct ckpt_pruned *out, struct ckpt_err *err);
CKPT_API void ckpt_pruned_free(struct ckpt_pruned *pruned);

#ifdef __cplusplus
}
#endif
#endif
