/*
 * ckpt_reshard.h -- training state for another number of ranks, stage or format.  Part of <ckpt.h>.
 */
#ifndef CKPT_RESHARD_H
#define CKPT_RESHARD_H

#include <ckpt.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ckpt_reshard_opts {
	size_t size;
	const struct ckpt_run_opts *run;
	uint32_t world;			/* ranks of the result, 1 to 4096; 0: see 'universal' */
	int stage;			/* -1 = the source's; 0, 1, 2, 3; 4 = BF16_Optimizer */
	int round_robin;		/* -1 = as the source has it, 0, 1 */
	uint64_t sub_group_size;	/* stage 3; 0 = the one in the step's own configuration */
	const char *tag;		/* of the result; NULL = the source's */
	unsigned flags;			/* CKPT_WRITE_FORCE, _RESTART, _DRY_RUN, _STRICT, and: */
	uint32_t part, nparts;		/* as in ckpt_convert_opts */
	const char *ds_version;		/* of who is to load it, "0.16.9"; NULL = as it is */
	const char *const *drop_states;	/* patterns of optimizer states to leave out, or NULL */
	/*
	 * CKPT_TO_DEEPSPEED, or: CKPT_TO_UNIVERSAL, DeepSpeed's universal form, where 'world' is
	 * that of its model files; CKPT_TO_NATIVE, in files of 'world' ranks.  For these two 0 is
	 * the source's world.
	 */
	int to;
};

/* Pinned. */
#define CKPT_TO_DEEPSPEED 0
#define CKPT_TO_UNIVERSAL 1
#define CKPT_TO_NATIVE 2

#define CKPT_RESHARD_RESET 256u	/* optimizer states become zero, their step 0 */

/*
 * Write the training state of 'ck', a DeepSpeed step or universal checkpoint, for another number
 * of ranks or another stage: a folder 'dst' with 'latest' and the step, which DeepSpeed's
 * load_checkpoint() takes there without a flag.  A 'dst' that holds steps already (or a trainer's
 * files) keeps what it has: the step is put beside the others, 'latest' is changed last.
 * CKPT_E_EXISTS if it has a step of that name, or a file beside the step with other contents;
 * CKPT_WRITE_FORCE replaces these two and nothing else.
 *
 * Every element of masters, optimizer states and stored weights is kept bit for bit; padding is
 * zero.  What belongs to a rank (buffers, random states, client state) goes from rank s to rank
 * s, or from s mod N.  Files beside the step go along.
 *
 * Checks, memory, commit and journal are those of ckpt_convert().  '*report_out' (may be NULL)
 * is filled on success.
 * Returns 0 or the negative of
 *	CKPT_E_UNSUPPORTED  the source is neither of the two; a state or parameter that has no place
 *	                    in the result, or at stage 0 no certain name
 *	CKPT_E_USAGE        the world is not 1 to 4096; a pattern that fits no state
 *	and the codes of ckpt_convert().
 */
CKPT_API int ckpt_reshard(struct ckpt *ck, const char *dst, const struct ckpt_reshard_opts *opts,
			  struct ckpt_report *report_out, struct ckpt_err *err);

/*
 * If a run that was killed had begun to put its result into place at 'dst', do the rest:
 * '*settled_out' is 1 then, else 0.  (The same run again does so as well.  This is for a source
 * that stands in 'dst' itself and is found by the 'latest' that the killed run may have
 * changed: it must be called before the source is opened.)
 */
CKPT_API int ckpt_settle(const char *dst, enum ckpt_sync sync, int *settled_out,
			 struct ckpt_err *err);

#ifdef __cplusplus
}
#endif
#endif
