/*
 * Cuts the power while a verb runs, again and again, and looks at what is left
 * (docs/internals/power-cuts.md).
 */
#ifndef T_POWER_H
#define T_POWER_H

#include "libckpt/include/ckpt.h"
#include "tests/lib/fs/t_disk.h"

struct t_verb {
	const char *name;
	struct t_image *before;		/* the disk before it runs */
	const char *dst;		/* what it makes or changes; opened by the library */
	/* The command; 'again' is what is done after a power cut, NULL = the same. */
	int (*run)(const struct t_verb *v, struct ckpt_err *err);
	int (*again)(const struct t_verb *v, struct ckpt_err *err);
	/* What else must hold of the disk that is loaded; NULL or what is wrong. */
	const char *(*check)(const struct t_verb *v);
	const void *opts;		/* of 'run' */
	const char *step;		/* goes into dst, which is there: its folder */
	const char *place;		/* the partial folder is beside this; NULL = dst */
	enum ckpt_sync sync;
	bool staged;			/* it has a partial folder, which can be given up */
	bool keeps;			/* files of dst go over to the new one for a while */
	bool plain;			/* a file system without exchange */
	bool only_gone;			/* what it leaves is in no way new: dst stays as it was */
};

struct t_power {
	unsigned seeds;			/* of each boundary */
	uint64_t seed;
	/* What was done. */
	uint64_t boundaries, states, checked;
	/* What is wrong, or NULL; in new memory. */
	char *wrong;
};

/* All cuts of one verb, up to the first that something is wrong with. */
void t_power_cut(const struct t_verb *v, struct t_power *p);

/*
 * t_power_verbs.c: every verb that writes, in every way, with its disk. The disk is installed
 * (t_disk_install()), and holds anything afterwards.
 */
const struct t_verb *t_power_verbs(size_t *n_out);
void t_power_verbs_free(void);

#endif
