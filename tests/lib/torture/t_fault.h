/* Makes the N-th call of the library to the system fail, and counts what it holds: blocks of
 * memory and descriptors. Everything goes through the table ck_sys; cJSON and libdeflate are given
 * its allocator. */
#ifndef T_FAULT_H
#define T_FAULT_H

#include <stdbool.h>

/*
 * What a call that is made to fail says. Each kind counts only the calls that can say so, so that
 * no N is tried twice for the same.
 */
enum t_fault_kind {
	T_FAULT_IO = 1,		/* EIO: all calls but allocations and threads */
	T_FAULT_NOSPACE,	/* ENOSPC: calls that take space, or report it late (close) */
	T_FAULT_INTR,		/* EINTR: calls that may wait; from then on: every second of them */
	T_FAULT_SHORT,		/* no failure: reads and writes move one byte; from then on: half */
	T_FAULT_FILES,		/* EMFILE: open and opendir */
	T_FAULT_MEMORY,		/* NULL, ENOMEM: allocations */
	T_FAULT_THREADS,	/* EAGAIN: no thread is made */
	T_FAULT_KILL,		/* the process ends there, with exit code 9; all but allocations */
};

/* "EIO", "ENOSPC", ... */
const char *t_fault_name(enum t_fault_kind kind);

void t_fault_install(void);
void t_fault_remove(void);

/* The n-th call from now fails (n from 1), and with 'on' all after it. 0 = none, only counted. */
void t_fault_arm(enum t_fault_kind kind, long n, bool on);
/* Behave as a file system that renames without flags only (NFS). */
void t_fault_plain_renames(bool on);
/* A call was made to fail since t_fault_arm(). */
bool t_fault_fired(void);
/* Calls since t_fault_arm() that the kind counts, and how many of them failed. */
long t_fault_calls(void);
long t_fault_failed(void);
/* The name of the last one that failed: "pwrite". */
const char *t_fault_last(void);
/* Held now: blocks of memory; descriptors and open folders. */
long t_fault_blocks(void);
long t_fault_fds(void);

#endif
