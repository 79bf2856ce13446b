/*
 * ckpt_reshard.h -- training state for another number of ranks, stage or format.  Part of <ckpt.h>.
 *
 * The newest step of RUN for 4 ranks at ZeRO stage 3, beside the steps that RUN has:
 *
 *	struct ckpt_reshard_opts opts = {
 *		.size = sizeof(opts), .world = 4, .stage = 3, .round_robin = -1,
 *		.tag = "global_step300_w4",
 *	};
 *
 *	ckpt_settle("RUN", CKPT_SYNC_DATA, &settled, &err);
 *	ckpt_open(&run, 1, NULL, &ck, &err);
 *	ckpt_reshard(ck, "RUN", &opts, NULL, &err);
 */
#ifndef CKPT_RESHARD_H
#define CKPT_RESHARD_H

#include <ckpt.h>

#ifdef __cplusplus
extern "C" {
#endif

/* To keep what the source has, each field has its own value. */
struct ckpt_reshard_opts {
	size_t size;			/* sizeof(struct ckpt_reshard_opts) */
	const struct ckpt_run_opts *run;
	uint32_t world;			/* all ranks of the result, 1 to 4096; 0: see 'to' */
	int stage;			/* -1 = the source's; 0, 1, 2, 3; 4 = BF16_Optimizer */
	int round_robin;		/* -1 = as the source has it, 0, 1 */
	uint64_t sub_group_size;	/* stage 3; 0 = the one in the step's own configuration */
	/*
	 * Name of the step's folder; NULL = the source's.  A plain name: no '/', none of "[]*?", no
	 * white space at its ends, neither "latest" nor "latest_universal".
	 */
	const char *tag;
	unsigned flags;			/* CKPT_WRITE_FORCE, _RESTART, _DRY_RUN, _STRICT, and: */
	uint32_t part, nparts;		/* as in ckpt_convert_opts */
	const char *ds_version;		/* that will load it, "0.16.9"; NULL = the source's */
	const char *const *drop_states;	/* shell patterns of names of optimizer states that are
					   left out, the last one NULL; or NULL */
	/*
	 * CKPT_TO_DEEPSPEED, or: CKPT_TO_UNIVERSAL, DeepSpeed's universal form, where 'world' is
	 * that of its model files; CKPT_TO_NATIVE, in files of 'world' ranks; CKPT_TO_DCP, a folder
	 * of torch.distributed.checkpoint that FSDP loads, likewise; CKPT_TO_FSDP_RANKS, a file of
	 * FSDP2 for each of 'world' ranks, as verl has them.  For these 0 is the source's world.
	 * CKPT_TO_TRAINER, a folder checkpoint-N of transformers' Trainer, which has no ranks.
	 * CKPT_TO_TORCH_TRAINING: 'dst' is one file of torch, {"model", "optimizer", ...}, whose
	 * optimizer is the state dict of torch.optim.AdamW; 'world', 'stage' and 'tag' are not
	 * used.
	 */
	int to;
	/*
	 * Of a form that torch itself reads, CKPT_TO_DCP or CKPT_TO_FSDP_RANKS: the torch that will
	 * load it, "2.1" or "2.4.1"; NULL = of DCP what 2.4 and later read, of rank files 2.11.
	 */
	const char *torch_version;
	/*
	 * Of CKPT_TO_FSDP_RANKS: the kind of device that the ranks of the run have, "cuda" or
	 * "cpu"; NULL = the source's if it is of rank files, else "cuda".
	 */
	const char *device;
	/*
	 * CKPT_TO_DCP: "MODEL,OPTIMIZER", what names of the model and of the optimizer begin with,
	 * dots between steps; "titan", the model at the root and a flat optimizer; "accelerate", a
	 * folder for each and 'scheduler.bin'.  NULL = as the source has it, or "model,optimizer".
	 */
	const char *layout;
	uint32_t ep;	/* expert ranks of DeepSpeed's experts; 0 = as the source has them */
	/*
	 * Of a training file of torch or a Trainer's folder, to CKPT_TO_DEEPSPEED: the type that
	 * the run has its weights in, CKPT_BF16, CKPT_F16 or CKPT_F32; masters keep the file's
	 * elements.  0 = as the file has them.  Of any step, to CKPT_TO_TORCH_TRAINING: that of
	 * the model's parameters; 0 = that of its masters.
	 */
	int weight_dtype;
};

/* Pinned. */
#define CKPT_TO_DEEPSPEED 0
#define CKPT_TO_UNIVERSAL 1
#define CKPT_TO_NATIVE 2
#define CKPT_TO_DCP 4
#define CKPT_TO_FSDP_RANKS 5
#define CKPT_TO_TRAINER 9
#define CKPT_TO_TORCH_TRAINING 10

#define CKPT_RESHARD_RESET 256u	/* optimizer states become zero, their step 0 */
/*
 * A tensor parallel step of DeepSpeed becomes one without: its ranks' slices are joined.  Without
 * the flag that is so in forms that have no such parallelism, native, DCP and rank files.
 */
#define CKPT_RESHARD_WHOLE 512u

/*
 * Write the training state of 'ck', a step of DeepSpeed or in the universal or native form, for
 * another number of ranks or another stage: a folder 'dst' with 'latest' and the step, which
 * DeepSpeed's load_checkpoint() loads without a flag.  A 'dst' that has steps (or a trainer's
 * files) keeps them: the new step is put beside the others, 'latest' is changed last.
 * CKPT_E_EXISTS if it has a step of that name, or a file beside the step with other contents;
 * CKPT_WRITE_FORCE replaces these two and nothing else.
 *
 * Every element of masters, optimizer states and stored weights is kept bit for bit; padding is
 * zero.  What belongs to a rank (buffers, random states, client state) goes from rank s to rank
 * s, or from s mod N.  Files beside the step are copied.
 *
 * Before anything is written the source is checked: a finding that is an error stops the call (with
 * CKPT_WRITE_STRICT a warning does), masters are compared with weights, and copies of buffers with
 * each other.  What this finds is added to the findings of 'ck'.
 *
 * In parts (opts->nparts > 1) each process makes the same plan and writes its share; ckpt_commit()
 * ends the run.  The native form is not written in parts, since its manifest has sums that one
 * process makes.
 *
 * Memory, commit and what a killed run leaves are as in ckpt_convert().  '*report_out' (may be
 * NULL) is filled on success. Returns 0 or the negative of
 *	CKPT_E_UNSUPPORTED  the source is not a step; a state or parameter that has no place in the
 *	                    result, or at stage 0 no certain name; the native form in parts
 *	CKPT_E_USAGE        the world is not 1 to 4096; a pattern that matches no state; a tag that
 *	                    cannot name a step; an unknown flag, stage or form; a version of
 *	                    torch that is no number, or for a form that torch does not load
 *	and the codes of ckpt_convert().
 */
CKPT_API int ckpt_reshard(struct ckpt *ck, const char *dst, const struct ckpt_reshard_opts *opts,
			  struct ckpt_report *report_out, struct ckpt_err *err);

/*
 * If a killed run had begun to put its result into place at 'dst', complete it: '*settled_out' is
 * then 1, else 0.  The same run started again does this too.  Call it before ckpt_open() if the
 * source is in 'dst' itself: the killed run may have changed 'latest', and the source would then be
 * another step.  A run that still works, or that was killed earlier, is left alone: 0, and
 * '*settled_out' is 0.
 * Returns 0 or the negative of CKPT_E_USAGE, CKPT_E_IO, CKPT_E_NOMEM.
 */
CKPT_API int ckpt_settle(const char *dst, enum ckpt_sync sync, int *settled_out,
			 struct ckpt_err *err);

#ifdef __cplusplus
}
#endif
#endif
