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

/* What is done to a copy. */
struct t_damage {
	void (*run)(const struct t_copy *k, const struct t_damage *d);
	const char *fixture;	/* which one is copied; set by t_damage_do() */
	enum { T_SHARD, T_MODEL } file;
	int rank;		/* whose file */
	long n;			/* bytes that stay, < 0: that go; bytes of 'was'; an element */
	const char *text;	/* a folder, a key of a pickle, NAME|STATE, the new text */
	const char *was, *is;	/* in a pickle, after the key */
};

/* Without a manifest it cannot be known: no checksum, and no second copy to compare with. */
#define T_NOTHING ""

struct t_damage_case {
	const char *name, *fixture;
	struct t_damage damage;
	int exit;
	const char *findings;	/* one of them, separated by | */
	const char *place;	/* must be on stderr too */
	/*
	 * What verify finds: NULL as above, T_NOTHING where nothing in the files shows it; with a
	 * manifest, --full.
	 */
	const char *quick, *full, *manifest;
};

extern const struct t_damage_case t_damage_cases[];
extern const size_t t_ndamage_cases;

void t_damage_do(const struct t_damage_case *c, const struct t_copy *k);

#endif
