/*
 * op_commit.h -- what ends a run that left parts or was killed: commit, discard, settle; and which
 * files of an old folder the new one replaces (ck_stage.h).
 */
#ifndef OP_COMMIT_H
#define OP_COMMIT_H

#include "libckpt/commit/ck_commit.h"
#include "libckpt/format/ck_format.h"

/* Files of a state that is among 'fresh', however it was sharded; those of a model: is_output(). */
bool ck_is_state_output(const char *name, const struct ck_tree *fresh);
/*
 * Which of the two the run that was begun at 'dst' replaces: its end may be brought about by
 * another verb.  'folder' is the driver of folders of weights.  CKPT_E_NOMEM.
 */
int ck_outputs_at(const struct ck_format *folder, const char *dst, ck_is_ours_fn **is_ours_out,
		  struct ckpt_err *err);

/* Waits for all parts of 'dst', 'timeout_ms' at most, then puts the result in place. */
int ck_commit_parts(const struct ck_format *folder, const char *dst, uint32_t timeout_ms,
		    enum ckpt_sync sync, struct ckpt_err *err);
/* Removes what unfinished runs at 'dst' left.  The old result is not touched. */
int ck_discard_parts(const struct ck_format *folder, const char *dst, struct ckpt_err *err);
/* Finishes a commit that was killed between two renames; '*settled_out' says whether. */
int ck_settle(const struct ck_format *folder, const char *dst, enum ckpt_sync sync,
	      bool *settled_out, struct ckpt_err *err);

#endif
