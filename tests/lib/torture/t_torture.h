/* Work that is tried while a call to the system fails, or is the last one of its process. */
#ifndef T_TORTURE_H
#define T_TORTURE_H

#include <stdbool.h>

#include "libckpt/include/ckpt.h"
#include "tests/lib/torture/t_fault.h"

struct t_try {
	/* What is tried, and whether it says that the result is complete. */
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

/* A result that is written over an old one; every function gets t.arg. */
struct t_ordeal {
	struct t_try t;
	void (*reset)(void *arg);	/* the old result is there */
	/* What 't' has left: the old result or the new one. */
	void (*failed)(void *arg, const struct t_try *t, long n, bool on);
	void (*killed)(void *arg);
	void (*finish)(void *arg, long n);	/* the same once more, which must succeed */
};

/* Every call of that kind fails, one after the other; 'failed' and 'finish' judge. */
void t_fail_everywhere(struct t_ordeal *o, enum t_fault_kind kind, bool on);
/* A process that dies at every call, with 'twice' one more in what it left. */
void t_kill_everywhere(const struct t_ordeal *o, bool plain, bool twice);

#endif
