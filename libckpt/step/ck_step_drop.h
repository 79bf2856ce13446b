/*
 * ck_step_drop.h -- optimizer states that a request leaves out (--drop-state), and those that a
 * writer has no choice but to lose.
 */
#ifndef CK_STEP_DROP_H
#define CK_STEP_DROP_H

#include "libckpt/format/ck_format.h"
#include "libckpt/step/ck_step.h"

/* Does the request leave states of this name out? */
bool ck_step_is_dropped(const struct ck_reshard_want *want, const char *name);
/* A state of the index: neither the weight nor its master, and not left out. */
bool ck_step_is_moment(const struct ck_reshard_want *want, const char *name);
/* A pattern that fits no state is a wrong name, and what it meant would stay: CKPT_E_USAGE. */
int ck_step_check_drops(const struct ck_step *step, const struct ck_index *ix,
			const struct ck_reshard_want *want, struct ckpt_err *err);
/*
 * CKPT_E_UNSUPPORTED for a state that the index could not join and that is not left out; with
 * 'keeps_shards' each rank keeps its own, and only states of groups count.
 */
int ck_step_check_joined(const struct ck_step *step, const struct ck_reshard_want *want,
			 bool keeps_shards, struct ckpt_err *err);

#endif
