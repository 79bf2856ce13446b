/*
 * ck_findings.h -- named results of checking, and the list they go to.
 *
 * One X-macro lists every finding: name, severity, the code with which a writer
 * stops on it, and a text used where the place gives none.  Names never change.
 * docs/findings.md has a paragraph for each (checked by make check-tree).
 */
#ifndef CK_FINDINGS_H
#define CK_FINDINGS_H

#include "libckpt/base/ck_base.h"
#include "libckpt/base/ck_mem.h"

#define CK_FINDINGS(X)                                                                             \
	X(LATEST_LIES, ERROR, NOTFOUND, "'latest' names a step that is missing")                   \
	X(STATE_FILE_MISSING, ERROR, INCOMPLETE, "a parameter's file is missing")                  \
	X(MODEL_FILE_MISSING, ERROR, INCOMPLETE, "a model file is missing")                        \
	X(RANK_FILE_MISSING, ERROR, INCOMPLETE, "a rank's shard is missing")                       \
	X(RANK_FILE_EXTRA, ERROR, MISMATCH, "a shard of a rank that the step does not have")       \
	X(RANK_FILE_SWAPPED, ERROR, MISMATCH, "a file holds another rank's shard")                 \
	X(UNFINISHED, ERROR, MISMATCH, "a save that did not finish")                               \
	X(STEP_MIXED, ERROR, MISMATCH, "files of different steps are in one folder")               \
	X(RANKS_DISAGREE, ERROR, MISMATCH, "ranks contradict each other")                          \
	X(LENGTH_WRONG, ERROR, MISMATCH, "a partition has the wrong length")                       \
	X(NAMES_WRONG, ERROR, MISMATCH, "names and data contradict each other")                    \
	X(MASTER_WEIGHT_MISMATCH, ERROR, MISMATCH,                                                 \
	  "the master does not round to the model's weight")                                       \
	X(TENSOR_DUPLICATE, ERROR, MISMATCH, "two files hold a tensor of one name")                \
	X(FILE_DAMAGED, ERROR, CORRUPT, "a file cannot be read")                                   \
	X(NO_PERMISSION, ERROR, IO, "this user may not read a file")                               \
	X(OVERLAY_DIFFERS, ERROR, MISMATCH, "a file differs between the given folders")            \
	X(OVERLAY_UNUSED, WARN, MISMATCH, "no tensor is read from one of the given folders")       \
	X(PLACEHOLDERS_ONLY, ERROR, MISMATCH, "the file has placeholders instead of parameters")   \
	X(TENSORS_EMPTY, WARN, MISMATCH, "some tensors are empty")                                 \
	X(SUBTREE_CHOICE, WARN, MISMATCH, "entries of a training file are left out")               \
	X(PART_OF_STEP, WARN, MISMATCH, "this is one file of a step that has many")                \
	X(NOT_IN_CHECKPOINT, WARN, MISMATCH, "the step does not contain this")                     \
	X(STATES_SHIFTED, WARN, MISMATCH, "the writer has shifted the states of a parameter")      \
	X(STATES_UNSEARCHED, INFO, OK, "optimizer states without names are left out")              \
	X(STATES_UNNAMED, WARN, MISMATCH, "it is unknown whose these optimizer states are")        \
	X(OPTIMIZER_STEP_DIFFERS, WARN, MISMATCH,                                                  \
	  "the optimizer counts other steps than the model files")                                 \
	X(STATE_EMPTY, INFO, OK, "saved before the first optimizer step")                          \
	X(ALIAS_DOUBTFUL, WARN, MISMATCH, "two names are said to be one tensor, but differ")       \
	X(BUFFERS_DIFFER, INFO, OK, "a buffer differs between ranks; rank 0's is used")            \
	X(TIED_DIFFERS, WARN, MISMATCH, "pipeline stages have trained a shared tensor apart")      \
	X(NAMES_NATIVE, INFO, OK, "the tensors have the names of Megatron-Core")                  \
	X(RANKS_UNNAMED, INFO, OK, "the files do not say which rank wrote them")                   \
	X(RANKS_UNCOUNTED, WARN, MISMATCH, "nothing says how many ranks there were")               \
	X(LATEST_ABSENT, WARN, MISMATCH, "no 'latest' file; the newest step is used")              \
	X(LATEST_BEHIND, WARN, MISMATCH, "a step is newer than the one that 'latest' names")       \
	X(STEP_PASSED_OVER, WARN, MISMATCH, "a checkpoint with a higher number holds no step")     \
	X(TAG_STEP_DIFFERS, WARN, MISMATCH, "the tag names another step than the files")           \
	X(FILE_UNKNOWN, INFO, OK, "no shard refers to this file")                                  \
	X(CARRIED, INFO, OK, "a file that is not part of the step is copied")                      \
	X(CRC_NOT_COMPUTED, INFO, OK, "the archive was written without checksums")                 \
	X(TAG_UNLOADABLE, INFO, OK, "DeepSpeed itself cannot load a tag with brackets")            \
	X(NAME_ODD, WARN, MISMATCH, "a tensor name that other programs may refuse")                \
	X(TENSOR_OPAQUE, WARN, MISMATCH, "zckpt does not convert this kind of tensor")             \
	X(FORMAT_NOTE, WARN, MISMATCH, "a file deviates from its format")                          \
	X(LOADER_DROPS, WARN, MISMATCH, "DeepSpeed's loader does not restore this")                \
	X(NOT_CARRIED, WARN, MISMATCH, "something of the source is not in the result")             \
	X(PATTERN_UNUSED, WARN, MISMATCH, "a pattern matches no tensor")                           \
	X(CRC_SUM_WRONG, ERROR, CORRUPT, "an archive's records differ from those written")         \
	X(CRC_WRONG, ERROR, CORRUPT, "the bytes do not match their checksum")                      \
	X(HEADER_SUM_WRONG, ERROR, CORRUPT, "a header differs from the one written")               \
	X(SUM_WRONG, ERROR, CORRUPT, "the bytes differ from those written")                        \
	X(VALUES_INFINITE, WARN, MISMATCH, "finite values would become infinite")                  \
	X(BESIDE_CHANGED, WARN, MISMATCH, "a file beside the weights was changed")                 \
	X(REPLICA_DIFFERS, ERROR, MISMATCH, "two copies of one tensor differ")                     \
	X(PADDING_NOT_ZERO, WARN, MISMATCH, "padding is not zero")                                 \
	X(HEADER_ODD, WARN, MISMATCH, "a field that no reader needs has a wrong value")            \
	X(MANIFEST_DAMAGED, ERROR, CORRUPT, "the manifest cannot be read")                         \
	X(MANIFEST_TAG_DIFFERS, WARN, MISMATCH, "the step had another name")                       \
	X(MANIFEST_FILE_MISSING, ERROR, INCOMPLETE, "a file of the manifest is missing")           \
	X(MANIFEST_FILE_EXTRA, WARN, MISMATCH, "the manifest does not list this file")             \
	X(MANIFEST_SIZE_WRONG, ERROR, MISMATCH, "a file has another size")                         \
	X(MANIFEST_HASH_WRONG, ERROR, MISMATCH, "a file has other bytes")

enum ck_finding_id {
#define X(id, severity, code, text) CK_FINDING_##id,
	CK_FINDINGS(X)
#undef X
	CK_FINDING_COUNT
};

struct ck_findings {
	struct ck_arena arena;
	struct ckpt_finding *list;
	uint64_t n, cap;
	uint64_t dropped;	/* beyond the limit of one kind, or for want of memory */
	struct ckpt_finding lost;	/* the first that memory was wanting for; id NULL = none */
	uint32_t of_kind[CK_FINDING_COUNT];
	const char *const *as_warning;	/* lent, NULL-terminated, or NULL */
};

/*
 * Add a finding.  'where' is a file or tensor, 'fmt' a clause with both numbers and the
 * likely cause.  Never fails: without memory it is kept as 'lost', without its text, so
 * that what must stop still does.  At most 200 of one kind are kept.  One thread at a
 * time.
 */
void ck_findings_add(struct ck_findings *f, enum ck_finding_id id, const char *where,
		     const char *fmt, ...) CK_PRINTF(4, 5);
/*
 * Append what 'from' holds, but for findings of kind 'but' (CK_FINDING_COUNT = all of
 * them); 'from' stays as it is.
 */
void ck_findings_merge(struct ck_findings *f, const struct ck_findings *from,
		       enum ck_finding_id but);
/* Take all of that kind out again: they follow from another one. */
void ck_findings_drop(struct ck_findings *f, enum ck_finding_id id);
/* The first finding of that severity or worse, or NULL. */
const struct ckpt_finding *ck_findings_worst(const struct ck_findings *f,
					     enum ckpt_severity at_least);
/* Turn it into a failure: code, place and text of the finding, name in front. */
int ck_findings_fail(const struct ckpt_finding *finding, struct ckpt_err *err);
/* Whether a finding is called so. */
bool ck_finding_is_name(const char *name);
const char *ck_finding_name(enum ck_finding_id id);
/* A finding of that name without place and text of its own; false if there is none. */
bool ck_finding_by_name(const char *name, size_t len, struct ckpt_finding *out);
void ck_findings_release(struct ck_findings *f);

#endif
