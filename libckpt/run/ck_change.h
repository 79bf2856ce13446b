/*
 * ck_change.h -- what a run makes of some states in place of copying them: W + B A of an adapter.
 */
#ifndef CK_CHANGE_H
#define CK_CHANGE_H

#include "libckpt/run/ck_read.h"

struct ck_change {
	/* Whether a state of the source is written as something else. */
	bool (*changes)(const void *arg, uint32_t state);
	/*
	 * As ck_reader_read() of that state, 'from' reads the source: its elements as they are
	 * written.  The same elements give the same bytes, wherever a call begins and ends.
	 */
	int (*read)(void *arg, struct ck_reader *from, uint32_t state, uint64_t first,
		    uint64_t count, enum ckpt_dtype dtype, void *dst, void *scratch,
		    uint64_t *overflows, struct ckpt_err *err);
	void *arg;
};

static inline bool ck_changes(const struct ck_change *change, uint32_t state)
{
	return change && change->changes(change->arg, state);
}

#endif
