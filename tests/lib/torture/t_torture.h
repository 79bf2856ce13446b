/* Work that is tried while a call to the system fails, or is the last one of its process. */
#ifndef T_TORTURE_H
#define T_TORTURE_H

#include <stdbool.h>

#include "libckpt/include/ckpt.h"
#include "tests/lib/torture/t_fault.h"

struct t_try {
	/* What is tried, and whether it says that the result stands. */
	int (*work)(void *arg, bool *done_out, struct ckpt_err *err);
	void *arg;
	bool plain;		/* t_fault_plain_renames() */
	/* What came of it. */
	int rc;
	bool done, fired;
	long blocks, fds;	/* held besides what was held before */
	struct ckpt_err err;
};

/*
 * With the n-th call failing, and with 'on' all after it. Asserts that nothing more is held
 * afterwards, that it is no failure where no call failed, and that the code is the one in the
 * error.
 */
void t_try_failing(struct t_try *t, enum t_fault_kind kind, long n, bool on);
/* The same where the faults are installed, and stay so. */
void t_try_armed(struct t_try *t, enum t_fault_kind kind, long n, bool on);

/*
 * In a process of its own that dies at the n-th call; the faults must be installed. 9 = killed
 * there, 0 = it came to its end.
 */
int t_try_dying(const struct t_try *t, long n);

#endif
