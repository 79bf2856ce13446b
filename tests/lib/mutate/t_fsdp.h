/*
 * Checkpoints of FSDP that are damaged or mixed up by one change that means something: in memory,
 * with every checksum right but where bytes of files themselves change.
 *
 * Left out is what no reader can see, since the right folder could be just so:
 *
 *   - an archive of DCP for another of the same shape, type and length: archives have neither names
 *     nor steps. So for places of two such items that are exchanged in '.metadata', blocks of one
 *     size that exchange their offsets, and data files of another save with the same plan.
 *   - an item, its places and its path that are all renamed, or all missing.
 *   - a rank's model of another step of the same run, its optimizer of the same step of a run
 *     with the same shapes; two storages of one size that are exchanged; offsets and strides of a
 *     tensor that remain within its storage.
 *   - numbers in 'params' that are exchanged where states have one shape; values of param_groups;
 *     states that only one rank has a part of, and that are missing or have another name there: a
 *     parameter may be without them. A FULL_STATE_DICT without its optimizer.
 */
#ifndef T_FSDP_H
#define T_FSDP_H

#include <stdbool.h>
#include <stdint.h>

#include "tests/lib/fs/t_files.h"

struct t_fsdp {
	struct t_files *files;		/* to be changed */
	const struct t_files *other;	/* another checkpoint of that layout */
	uint64_t *random;
	char what[300];			/* of what was changed */
};

enum t_fsdp_layout {
	T_FSDP_DCP = 1,
	T_FSDP_RANKS = 2,
	T_FSDP_BOTH = 3,
	T_DEEPSPEED = 4,	/* with experts, tensor or pipeline parallelism */
	T_MEGATRON = 8,		/* a DCP folder without paths */
	T_ANY = 15,
};

struct t_fsdp_kind {
	const char *name;
	/* False: this folder has nothing of the kind, or what was drawn is left out (see above). */
	bool (*make)(struct t_fsdp *m);
	int layout;		/* of enum t_fsdp_layout */
};

/* Each list ends with a kind without a name. */
extern const struct t_fsdp_kind t_fsdp_files[], t_fsdp_meta[], t_fsdp_ranks[], t_deepspeed[];

/* ---- t_fsdp_meta.c, for t_fsdp_files.c ---- */

/*
 * Could data file 'b' be in the place of 'a' for all that '.metadata' beside them says? False if no
 * '.metadata' is.
 */
bool t_fsdp_same_plan(const struct t_files *of_a, const char *a, const struct t_files *of_b,
		      const char *b);

/* One of 0 to n - 1. */
uint64_t t_fsdp_draw(struct t_fsdp *m, uint64_t n);
/* What was changed, in words. */
bool t_fsdp_say(struct t_fsdp *m, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* A file that ends in 'end' and has 'part' in its name; NULL if there is none. */
struct t_file *t_fsdp_pick(struct t_fsdp *m, const char *part, const char *end);

#endif
