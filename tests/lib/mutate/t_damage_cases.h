/* The damages that disks, copies and people do to checkpoints, and what must be said of each. */
#ifndef T_DAMAGE_CASES_H
#define T_DAMAGE_CASES_H

#include <stddef.h>

/* A copy at work. */
struct t_copy {
	const char *fixtures;	/* the folder with the fixtures as they came */
	char *root;		/* WORK/ckpt */
	char *tag_dir;
};

/* Without a manifest nobody can know: no checksum, and no second copy to compare with. */
#define T_NOTHING ""

struct t_damage_case {
	const char *name, *fixture;
	void (*damage)(const struct t_copy *);
	int exit;
	const char *findings;	/* one of them, separated by | */
	const char *place;	/* must stand on stderr too */
	/*
	 * What verify finds: NULL as above, T_NOTHING where nothing in the files can tell; with a
	 * manifest, --full.
	 */
	const char *quick, *full, *manifest;
};

extern const struct t_damage_case t_damage_cases[];
extern const size_t t_ndamage_cases;

#endif
