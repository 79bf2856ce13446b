/*
 * Checkpoints with one change that means something: each must be refused, or give the values of the
 * run that saved it, or say what is left out.
 */
#ifndef T_MUTANTS_H
#define T_MUTANTS_H

#include <stddef.h>

#include "tests/lib/mutate/t_fsdp.h"

struct t_mutant_case {
	const char *name;
	int layout;		/* of enum t_fsdp_layout: which kinds there are of it */
};

struct t_mutants {
	const char *archive;	/* of the fixtures: the folder of its cases */
	const struct t_mutant_case *cases;
	size_t ncases;
	const struct t_fsdp_kind *const *kinds;	/* lists, NULL last */
	int has_config;		/* a case may have the model's config.json, for its reader */
};

/*
 * A program's main(): [-v] [COUNT [KIND]].  COUNT mutants (default 120; 1000 with ZCKPT_LONG), only
 * kinds with KIND in their name; -v prints each, what was changed and the verdict.  Environment:
 * ZCKPT_FIXTURES (default build/fixtures), ZCKPT_SEED (default 1).
 */
int t_mutants_run(const struct t_mutants *of, int argc, char **argv);

#endif
