/*
 * ckpt_convert.h -- tensors written as weights or states, by one process or in parts; digests.
 * Part of <ckpt.h>.
 *
 * The fp32 weights of 'ck' as one file, and the number of tensors:
 *
 *	struct ckpt_convert_opts opts = { .size = sizeof(opts) };
 *	struct ckpt_report report;
 *
 *	if (!ckpt_convert(ck, "model.safetensors", &opts, &report, &err)) {
 *		printf("%" PRIu64 " tensors\n", report.ntensors);
 *		ckpt_report_free(&report);
 *	}
 *
 * For bf16 set .dtype = CKPT_BF16; for the optimizer's states set .states = (const char *const
 * []){ "all", NULL } and give a folder.
 */
#ifndef CKPT_CONVERT_H
#define CKPT_CONVERT_H

#include <ckpt.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------- selecting */

/* What becomes of the second names of a tensor (tied weights). */
enum ckpt_tied {
	CKPT_TIED_ALIAS = 0,	/* one copy; other names go into the metadata, or share in a .pt */
	CKPT_TIED_DUP = 1,	/* every name gets its bytes */
	CKPT_TIED_DROP = 2,	/* one copy; other names are not mentioned */
};

/* Kinds of tensors for 'only' and 'skip'; several are joined with |. */
#define CKPT_ONLY_TRAINABLE 1u	/* parameters that the optimizer holds */
#define CKPT_ONLY_FROZEN 2u	/* parameters without a gradient */
#define CKPT_ONLY_BUFFERS 4u	/* tensors that are not parameters */

/* One "PATTERN=dtype" or "FROM=TO" of the command line. */
struct ckpt_rule {
	const char *pattern;	/* shell pattern (*, ?, [...]) over the whole name */
	const char *value;	/* the type, or the replacement of the pattern */
};

/*
 * Which tensors under which names.  Patterns are shell patterns over the whole
 * name as stored; a tensor is selected if some 'include' (or none is given) and no
 * 'exclude' matches.  Then strip_prefix is removed, then each rename applies: its
 * pattern is a plain substring, or has one '*', whose match replaces the '*' of the
 * value.
 */
struct ckpt_select {
	size_t size;			/* sizeof(struct ckpt_select) */
	const char *const *include;	/* NULL-terminated, may be NULL */
	const char *const *exclude;	/* likewise */
	const struct ckpt_rule *rename;	/* ends with pattern NULL, may be NULL */
	const char *strip_prefix;	/* NULL = nothing is cut off */
	unsigned only;			/* CKPT_ONLY_*, 0 = everything */
	unsigned skip;			/* CKPT_ONLY_*: left out */
	enum ckpt_tied tied;		/* of ckpt_convert() */
};

/* ---------------------------------------------------------------- LoRA */

/*
 * Of ckpt_convert(): adapters of PEFT.  Without 'merge' the adapter in 'ck', a training step or a
 * folder of PEFT, becomes a folder that PEFT loads: adapter_model.safetensors and
 * adapter_config.json.  With it 'ck' is the base, and its weights are written as W + s B A, s
 * being alpha / r, or alpha / sqrt(r) of rsLoRA, rounded once.  r follows from shapes; what else
 * PEFT's configuration says is read from adapter_config.json beside the adapter, and fields
 * below that are not zero replace it.  An alpha that is in no file is CKPT_E_USAGE.
 */
struct ckpt_peft_opts {
	size_t size;			/* sizeof(struct ckpt_peft_opts) */
	struct ckpt *merge;		/* the adapter, into 'ck'; NULL = write the one in 'ck' */
	const char *adapter;		/* its name in the model; NULL = the only one there is */
	const char *config_path;	/* adapter_config.json; NULL = the one beside the adapter */
	double alpha, dropout;		/* lora_alpha, lora_dropout */
	const char *bias, *task_type;	/* "none"; "CAUSAL_LM" */
	const char *base_model;		/* base_model_name_or_path */
	int rslora;			/* use_rslora */
};

/* ---------------------------------------------------------------- convert */

/* All zero but 'size': every weight in fp32, to one file or to shards of 5 GB. */
struct ckpt_convert_opts {
	size_t size;			/* sizeof(struct ckpt_convert_opts) */
	const struct ckpt_run_opts *run;	/* NULL = defaults */
	const struct ckpt_select *select;	/* NULL = all tensors under their own names */
	/*
	 * Element type of floating tensors: a type, or 0 = fp32, from the master if there
	 * is one, else from the weight.  CKPT_KEEP: the weight as saved.  A type leaves
	 * fp32 biases of routers (*e_score_correction_bias, *router.expert_bias) as they are,
	 * unless a rule names them: transformers loads them in fp32.
	 */
	int dtype;
	const struct ckpt_rule *dtype_rules;	/* pattern -> "bf16" ...; first match wins */
	/*
	 * NULL: weights.  Else states by name, NULL-terminated, or {"all", NULL}: each goes
	 * to a file (or shard set) of its own named after it, stored type unless dtype
	 * is given.
	 */
	const char *const *states;
	uint64_t max_shard_bytes;	/* 0 = 5,000,000,000 */
	const char *aux_dir;		/* where config.json and tokenizer files are; may be NULL */
	const char *expect_path;	/* an index.json or .safetensors to agree with, or NULL */
	int out_fd;			/* with 'dst' "-": a descriptor to stream to */
	unsigned flags;			/* CKPT_WRITE_*, CKPT_CONVERT_* */
	/* This process's share, from 0; nparts 0 or 1 = all.  Messages count from 1. */
	uint32_t part, nparts;
	const struct ckpt_peft_opts *peft;	/* NULL = tensors are written as they are */
};

#define CKPT_KEEP (-1)		/* of ckpt_convert_opts.dtype */

/* Flags.  Those called CKPT_WRITE_* mean the same in every call that writes. */
#define CKPT_WRITE_FORCE 1u	/* calls that write: replace what is at the destination */
#define CKPT_WRITE_RESTART 2u	/* discard what a killed run left there */
#define CKPT_WRITE_DRY_RUN 4u	/* plan and check, write nothing */
#define CKPT_WRITE_STRICT 16u	/* warnings stop the call (CKPT_E_MISMATCH) */
#define CKPT_CONVERT_DIGEST 8u	/* digests of what was written, into the metadata and report */
/* Of a vision-language model the language model alone, with its names and its config.json: a model
 * of its own (Qwen2.5-VL becomes Qwen2ForCausalLM).  CKPT_E_USAGE for any other model. */
#define CKPT_CONVERT_LANGUAGE 64u
#define CKPT_CONVERT_NO_SUMS 32u	/* no sums of the bytes in the metadata of safetensors */

/* One file that a run wrote (or, in a dry run, would write). */
struct ckpt_written {
	const char *path;	/* where it is when the run is committed */
	uint64_t bytes;		/* its size */
	uint64_t ntensors;	/* in it; 0 for a copied file such as config.json */
};

/* What a conversion did.  Owned by the caller: ckpt_report_free(). */
struct ckpt_report {
	uint64_t nfiles;
	struct ckpt_written *files;	/* [nfiles] */
	uint64_t ntensors;		/* that were written, with states once for each */
	uint64_t read_bytes;		/* from the source */
	uint64_t written_bytes;		/* of this process's part */
	uint64_t resumed_bytes;		/* found valid from a killed run, not written again */
	uint64_t no_master;		/* tensors whose fp32 was made from the weight */
	uint64_t overflows;		/* finite values that became infinite */
	uint64_t aliases;		/* names that share another one's bytes */
	uint64_t ndigests;		/* lines of 'digests' */
	struct ckpt_digest_line *digests;	/* with CKPT_CONVERT_DIGEST */
	char root[33];			/* digest over the lines, or "" */
	uint32_t threads;		/* that were used; more would not help a single file */
	double seconds;			/* from the call to its return */
	const char *strip_hint;		/* a prefix every name shares, or NULL */
	uint64_t nremoved;
	const char *const *removed;	/* paths of files of a replaced folder that are gone */
	/* With CKPT_WRITE_DRY_RUN, where written_bytes is what a run would write: */
	uint64_t would_read_bytes;	/* from the source */
	uint64_t free_bytes;		/* on the destination's disk; 0 = unknown, or a stream */
	/* Where the model's modules have other names than its published files: the table of names
	 * that was used and its rules, up to one with pattern NULL.  Else NULL. */
	const char *naming;
	const struct ckpt_rule *renames;
	uint64_t merged;		/* tensors that an adapter changed or replaced */
	void *memory;			/* private */
};

/* One line of `zckpt digest`. */
struct ckpt_digest_line {
	char hash[33];		/* XXH3-128 as 32 hex digits (docs/formats/digest.md) */
	const char *state;	/* "weight", "exp_avg", ... */
	const char *name;	/* of the tensor, as written */
};

/* What ckpt_convert() makes at a destination. */
enum ckpt_dst_kind {
	CKPT_DST_FOLDER = 1,
	CKPT_DST_SAFETENSORS,
	CKPT_DST_TORCH,		/* a state dict, as torch.save writes it */
	CKPT_DST_STREAM,	/* "-": one safetensors file to opts->out_fd */
};

/*
 * Decided by the name alone: no file is opened.  A '/' at the end makes any name a folder.
 * '*kind_out' is filled on success.  Returns 0, or -CKPT_E_USAGE for an empty path and
 * for one that ends in ".ckpt", which is a trainer's own file.
 */
CKPT_API int ckpt_dst_kind(const char *dst, enum ckpt_dst_kind *kind_out, struct ckpt_err *err);

/*
 * Write the tensors of 'ck' to 'dst': a path ending in ".safetensors" is one file; in ".pt",
 * ".pth" or ".bin" a state dict as torch.save writes it (no metadata; aliases share bytes); "-"
 * streams one file to opts->out_fd; any other path becomes a folder in Hugging Face
 * layout (model.safetensors, or shards and an index), or with opts->states a folder
 * with a file per state.
 *
 * Checks: findings of severity CKPT_ERROR stop the call before anything is
 * written; master and weight are compared at both ends of every extent.
 *
 * Complete or not at all: files grow in "<dst>.zckpt-partial" and are renamed into place when
 * complete.  On failure or cancel the partial output is removed.  A killed process leaves it, and
 * the same call resumes from it: it keeps what the record lists, if the bytes still have their hash
 * and the source is the same (docs/formats/partial.md).  CKPT_WRITE_RESTART discards it instead.
 * None of this applies to a stream: do not use what was sent before a failure.
 *
 * With CKPT_WRITE_FORCE a file is replaced; in a folder the files that the new ones replace are
 * removed (weights, shards and their index), and everything else stays.  report_out->removed lists
 * them.
 *
 * In parts: with nparts = N, N processes make the same call with part = 0 .. N - 1 and share a file
 * system.  Each writes its units of the result; none of them commits.  Then one calls
 * ckpt_commit().
 *
 * Cost: the selected tensors are read once and written once.  Memory: opts->run->mem_limit for
 * buffers, whatever the size of the checkpoint; with fewer bytes than the threads need, fewer
 * threads run.
 *
 * Threads: opts->run->threads of its own.  No other call may use 'ck' meanwhile, since findings are
 * added to it.
 *
 * '*report_out' (may be NULL) is filled on success.
 * Returns 0 or the negative of
 *	CKPT_E_EXISTS    'dst' exists and CKPT_WRITE_FORCE is not given, or a file is where a
 *	                 folder above it should be
 *	CKPT_E_BUSY      another run is writing there
 *	CKPT_E_NOSPACE   found before writing where the file system can tell
 *	CKPT_E_EXPECT    the names, shapes or types are not those of expect_path
 *	CKPT_E_USAGE     no tensor selected, two tensors renamed alike, unknown state, ...
 *	CKPT_E_CANCELED  opts->run->cancel was set
 *	the code of the first finding that stops it, and those of reading.
 */
CKPT_API int ckpt_convert(struct ckpt *ck, const char *dst,
			  const struct ckpt_convert_opts *opts, struct ckpt_report *report_out,
			  struct ckpt_err *err);

/* Frees what the report points to and zeroes it; NULL, and a zeroed report, are fine. */
CKPT_API void ckpt_report_free(struct ckpt_report *report);

/* ---------------------------------------------------------------- parts */

/*
 * Finish a run that was written in parts (opts->nparts > 1), each by its own
 * process: when every part has completed its record, put the output into place.  Sums that no
 * part could check or fill in alone are done here.
 *
 * Returns 0 or the negative of
 *	CKPT_E_INCOMPLETE  a part has not ended after 'timeout_ms', or is of another run or of
 *	                   other files; it is named.  It may still end: then call again
 *	CKPT_E_NOTFOUND    no part was begun for 'dst', or the run has ended
 *	CKPT_E_CORRUPT, CKPT_E_MISMATCH  bytes that parts read together do not agree with their sum
 *	CKPT_E_EXISTS      'dst' exists, and the parts were not begun with CKPT_WRITE_FORCE
 *	CKPT_E_USAGE, CKPT_E_BUSY, CKPT_E_NOSPACE, CKPT_E_IO, CKPT_E_NOMEM
 */
CKPT_API int ckpt_commit(const char *dst, uint32_t timeout_ms, enum ckpt_sync sync,
			 struct ckpt_err *err);

/*
 * Discard what parts wrote for 'dst', complete or not: "<dst>.zckpt-partial" is removed.  'dst'
 * itself is not changed.  CKPT_E_NOTFOUND if nothing was begun, CKPT_E_BUSY if a part is running.
 */
CKPT_API int ckpt_discard(const char *dst, struct ckpt_err *err);

/* ---------------------------------------------------------------- digest */

/* NULL in place of it: every state of every tensor. */
struct ckpt_digest_opts {
	size_t size;				/* sizeof(struct ckpt_digest_opts) */
	const struct ckpt_run_opts *run;	/* 'sync' is ignored */
	const struct ckpt_select *select;	/* names are not renamed */
	const char *const *states;	/* NULL = all */
};

/* The answer of ckpt_digest(). */
struct ckpt_digests {
	uint64_t nlines;
	struct ckpt_digest_line *lines;	/* sorted bytewise by state, then name */
	char root[33];			/* XXH3-128 of the lines as printed */
	uint64_t read_bytes;
	void *memory;			/* private */
};

/*
 * Layout-independent hashes of every state of every tensor: equal for every world
 * size, ZeRO stage and format that holds the same state (docs/formats/digest.md).
 * Padding and aliases are not hashed.  '*out' is filled on success; free it with
 * ckpt_digests_free(), which zeroes it.
 *
 * Cost: the selected states are read once, nothing is written.  Memory as ckpt_convert().
 *
 * Returns 0 or the negative of
 *	CKPT_E_USAGE     nothing is selected, or a state that no tensor has
 *	CKPT_E_CORRUPT   bytes that do not agree with a sum of their file
 *	CKPT_E_MISMATCH  a file changed since 'ck' was opened
 *	CKPT_E_CANCELED  opts->run->cancel was set
 *	the code of the first finding that is an error, and those of reading.
 */
CKPT_API int ckpt_digest(struct ckpt *ck, const struct ckpt_digest_opts *opts,
			 struct ckpt_digests *out, struct ckpt_err *err);
CKPT_API void ckpt_digests_free(struct ckpt_digests *digests);

#ifdef __cplusplus
}
#endif
#endif
