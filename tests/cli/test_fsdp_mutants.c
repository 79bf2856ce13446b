/*
 * test_fsdp_mutants.c -- FSDP and DCP checkpoints with one change that means something: each is
 * refused, or its values are those of the run that saved it.
 *
 * If this fails, a user gets another model than was saved, or other moments, and no verb says a
 * word.
 *
 * usage: test_fsdp_mutants [-v] [COUNT [KIND]]
 *	COUNT	so many mutants (default 120; 1000 with ZCKPT_LONG)
 *	KIND	only kinds with this in their name
 *	-v	each mutant, what was changed and the verdict
 * Environment: ZCKPT_FIXTURES (default build/fixtures), ZCKPT_SEED (default 1).
 *
 * tests/lib/mutate/t_fsdp.h says what is changed, and what is left out since no reader can see it.
 */
#include "tests/lib/mutate/t_mutants.h"

static const struct t_mutant_case cases[] = {
	{ "t2.11-fsdp2-dcp-w2-sweep", T_FSDP_DCP },
	{ "t2.11-fsdp2-verl-w4", T_FSDP_RANKS },
	{ "t2.11-fsdp2-dcp-w8-sweep", T_FSDP_DCP },
	{ "t2.1-fsdp1-verl-w4", T_FSDP_RANKS },
	{ "t2.11-plain-idopt-w1", T_FSDP_DCP },
	{ "t2.4-fsdp1-verl-w3-flat", T_FSDP_RANKS },
	{ "t2.11-fsdp2-titan-w2", T_FSDP_DCP },
	{ "t2.8-fsdp2-verl-w2", T_FSDP_RANKS },
	{ "t2.11-fsdp2-accel-w2", T_FSDP_DCP },
	{ "t2.11-hsdp2-verl-w4", T_FSDP_RANKS },
	{ "t2.6-fsdp1-trainer-w4-flat", T_FSDP_DCP },
	{ "t2.15-tp_fsdp2-verl-w4", T_FSDP_RANKS },
	{ "t2.1-fsdp1-dcp-w2", T_FSDP_DCP },
	{ "t2.11-fsdp2-accel-w3-rank", T_FSDP_RANKS },
	{ "t2.11-hsdp2-dcp-w4", T_FSDP_DCP },
	{ "t2.4-fsdp1mesh-verl-w4", T_FSDP_RANKS },
	{ "t2.11-tp_fsdp2-dcp-w4", T_FSDP_DCP },
	{ "t2.6-fsdp1-verl-w8", T_FSDP_RANKS },
	{ "t2.11-hand-dcp-w4-shard2d", T_FSDP_DCP },
	{ "t2.4-fsdp1-fulldcpless-w2", T_FSDP_RANKS },
	{ "t2.6-hand-dcp-w8", T_FSDP_DCP },
	{ "t2.15-fsdp2-verl-w3", T_FSDP_RANKS },
	{ "t2.8-fsdp2-dcp-w2-files", T_FSDP_DCP },
	{ "t2.6-fsdp1-verl-w3-frozen", T_FSDP_RANKS },
};

static const struct t_fsdp_kind *const kinds[] = {
	t_fsdp_files, t_fsdp_meta, t_fsdp_ranks, NULL,
};

int main(int argc, char **argv)
{
	const struct t_mutants fsdp = {
		.archive = "fsdp", .cases = cases, .ncases = sizeof(cases) / sizeof(cases[0]),
		.kinds = kinds,
	};

	return t_mutants_run(&fsdp, argc, argv);
}
