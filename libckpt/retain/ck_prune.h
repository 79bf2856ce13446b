/* ck_prune.h -- the verb `prune`, and how a step goes or becomes smaller where it is. */
#ifndef CK_PRUNE_H
#define CK_PRUNE_H

#include "libckpt/retain/ck_steps.h"

/* As ckpt_prune(), with options that are complete and a folder without slashes at its end. */
int ck_prune(const struct ck_formats *formats, const char *dir,
	     const struct ckpt_prune_opts *opts, struct ckpt_pruned *out, struct ckpt_err *err);

/* ck_prune_do.c: keep other prunes out until ck_prune_unlock(); CKPT_E_BUSY. */
int ck_prune_lock(const char *dir, int *lock_out, struct ckpt_err *err);
void ck_prune_unlock(int lock);
/* Bring to its end what a prune left at 'path' (ck_steps.h). */
int ck_prune_settle(const char *path, enum ckpt_sync sync, struct ckpt_err *err);
/* A step is gone for readers at once, for the disk when this returns. */
int ck_prune_remove(const char *path, enum ckpt_sync sync, struct ckpt_err *err);
struct ck_prune_slimmed {
	uint64_t freed;		/* what it saves; 0 = nothing, and the step is left as it is */
	uint64_t copy;		/* bytes of the copy that replaces it */
	char format[40];	/* of a step that ck_slim() does not rewrite; else "" */
};

/* The step's folder without its moments.  Without 'apply' only '*out' is found out. */
int ck_prune_slim(const struct ck_formats *formats, const char *path,
		  const struct ckpt_prune_opts *opts, bool apply,
		  struct ck_prune_slimmed *out, struct ckpt_err *err);

#endif
