/*
 * What verify, convert and reshard say of a checkpoint that was damaged.
 */
#ifndef T_VERDICT_H
#define T_VERDICT_H

#include <stdbool.h>

#include "tests/lib/fs/t_files.h"

enum t_mode {
	T_QUICK = 0,
	T_FULL,
	T_KEPT,			/* --full, with a manifest from before */
	T_CONVERT,
	T_RESHARD,
	T_MODES,
};

extern const char *const t_mode_names[T_MODES];

/*
 * In T_CONVERT and T_RESHARD: "same", "carried" or "other" if there is an output, after a finding's
 * name.
 */
struct t_verdict {
	char say[T_MODES][64];	/* a finding or error and how severe it is; "" = nothing */
};

/* A checkpoint that is whole, what is found in it, and what is made of it. */
struct t_whole {
	const char *open;	/* below DIR/ckpt; "" = that folder */
	bool is_step;		/* can be resharded */
	char *dir;
	char *manifest;		/* below DIR/ckpt */
	struct t_files out[T_MODES];
	struct {
		char *id[64];
		int n;
	} known[T_MODES];
};

/* 'dir'/ckpt is there; a manifest is put into it. */
void t_whole_begin(struct t_whole *w, const char *dir, const char *open, bool is_step);
void t_whole_end(struct t_whole *w);
/* Of what is in DIR/ckpt now; manifests are removed from it on the way. */
void t_verdict_of(const struct t_whole *w, struct t_verdict *out);

#endif
