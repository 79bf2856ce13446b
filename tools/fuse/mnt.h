/*
 * mnt.h -- `zckpt mount`: the files of a shelf as a file system, read-only, by libfuse3.
 *
 * Names are those of shelf.h; besides them the top has 'latest', a link to the step that the folder
 * means, and .zckpt/findings.txt, the damage that readers met.
 */
#ifndef MNT_H
#define MNT_H

#define FUSE_USE_VERSION 35
#include <fuse.h>

#include "../view/shelf.h"

struct mnt {
	struct shelf *shelf;
	const char *dir;	/* as it was given */
	char *place;		/* the same, absolute */
	int foreground;
	int made;		/* 'dir' was missing */
	int64_t began;		/* seconds since 1970 */
};

extern const struct fuse_operations mnt_operations;

/* Mounts, and serves until it is unmounted or a signal comes.  0, or the exit status. */
int mnt_run(struct mnt *mnt);
/* zckpt mount --unmount DIR. */
int mnt_unmount(const char *dir);

/* ---- mnt_table.c: what the kernel has mounted ---- */

enum mnt_what {
	MNT_NOTHING,
	MNT_OTHER,	/* another file system */
	MNT_OURS,
};
/* What is mounted at an absolute path; its device as "MAJOR:MINOR" in 'dev' (may be NULL). */
enum mnt_what mnt_look(const char *place, char dev[32]);
/* The absolute path without links, but for a last name that cannot be looked at; NULL or free(). */
char *mnt_place(const char *dir);
/* 0, or -1 with errno. 'lazy': also while it is in use. */
int mnt_detach(const char *place, int lazy);

#endif
