/* Makes the N-th call of the library to the system fail, and counts what it holds: blocks of
 * memory and descriptors. Everything goes through the table ck_sys. */
#ifndef T_FAULT_H
#define T_FAULT_H

#include <stdbool.h>

/* What a call that is made to fail says. */
enum t_fault_kind {
	T_FAULT_IO = 1,		/* EIO; allocation: NULL */
	T_FAULT_NOSPACE,	/* ENOSPC where space is taken, else as T_FAULT_IO */
	T_FAULT_SHORT,		/* reads and writes move one byte, which is no failure;
				 * other calls work */
	T_FAULT_MEMORY,		/* only allocations are counted and fail */
	T_FAULT_KILL,		/* the process ends there, with exit code 9; allocations are
				 * not counted */
};

void t_fault_install(void);
void t_fault_remove(void);

/* The n-th call from now fails (n from 1), and with 'on' all after it. 0 = none. */
void t_fault_arm(enum t_fault_kind kind, long n, bool on);
/* Behave as a file system that renames without flags only (NFS). */
void t_fault_plain_renames(bool on);
/* A call was made to fail since t_fault_arm(). */
bool t_fault_fired(void);
/* Calls since t_fault_arm(). */
long t_fault_calls(void);
/* Held now: blocks of memory; descriptors and open folders. */
long t_fault_blocks(void);
long t_fault_fds(void);

#endif
