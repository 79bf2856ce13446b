/*
 * ck_link.h -- files of two steps that are the same, as one.
 *
 * For whoever has finished a step folder (staged or in its place) and knows an older one of the
 * same root: frozen parameters of native steps are the same bytes (docs/formats/native.md).
 */
#ifndef CK_LINK_H
#define CK_LINK_H

#include "libckpt/base/ck_base.h"

struct ck_link_opts {
	bool reflink;		/* blocks are shared: who writes into one file changes one */
	bool dry_run;
	uint64_t least;		/* bytes of a file that is worth it; "frozen-*" always is */
	const volatile int *cancel;	/* may be NULL */
	/* Of several calls: 'done_bytes' is ck_linked.seen.  May be NULL. */
	ckpt_progress_fn progress;
	void *progress_arg;
	uint64_t total;			/* that ck_linked.seen will be at the end */
};

/* The least that `prune` takes. */
#define CK_LINK_LEAST ((uint64_t)1 << 20)

struct ck_linked {
	uint64_t files, bytes;	/* added to */
	uint64_t seen;		/* bytes of all files looked at, same or not; added to */
};

/*
 * Files of folder 'dir', and of folders in it, that have the name, size and bytes of one in
 * 'other', become links to it.  Each is replaced by one rename: readers find the bytes, whenever
 * they look.  Links, files that are one already, of another file system, or (unless 'reflink') of
 * another owner or mode are passed over, as is one that may have no more links.  Costs reading what
 * has the same name and size.  CKPT_E_UNSUPPORTED if the file system cannot share blocks,
 * CKPT_E_IO, CKPT_E_NOSPACE, CKPT_E_NOMEM, CKPT_E_CANCELED; files that were done stay so.
 */
int ck_link_same(const char *dir, const char *other, const struct ck_link_opts *opts,
		 struct ck_linked *linked, struct ckpt_err *err);

#endif
