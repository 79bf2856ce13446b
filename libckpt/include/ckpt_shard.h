/*
 * ckpt_shard.h -- make the step that a ZeRO run begins with from weights.  Part of <ckpt.h>.
 *
 *	struct ckpt_shard_opts opts = {
 *		.size = sizeof(opts), .world = 8, .stage = 3, .round_robin = -1, .lr = 1e-5,
 *		.first_lr = NAN, .weight_decay = NAN, .beta1 = NAN, .beta2 = NAN, .eps = NAN,
 *	};
 *
 *	ckpt_shard(ck, "RUN", &opts, NULL, &err);
 */
#ifndef CKPT_SHARD_H
#define CKPT_SHARD_H

#include <ckpt.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a run begins with. */
enum ckpt_shard_form {
	CKPT_SHARD_DEEPSPEED = 0,	/* a ZeRO step of DeepSpeed */
	CKPT_SHARD_MEGATRON = 1,	/* a distributed checkpoint of Megatron-Core (torch_dist) */
};

/* How trainable parameters become param groups.  The groups of a resumed run must be the same. */
enum ckpt_shard_groups {
	CKPT_GROUPS_ONE = 0,		/* one param group */
	CKPT_GROUPS_DECAY = 1,		/* two, as Hugging Face's Trainer has: the second one
					   holds biases and norms and has no weight decay */
};

/*
 * A double that is NaN means the value in ds_config_path, else the one in parentheses.  Zero is a
 * value, so set doubles that you do not choose to NaN.
 */
struct ckpt_shard_opts {
	size_t size;			/* sizeof(struct ckpt_shard_opts) */
	const struct ckpt_run_opts *run;
	uint32_t world;			/* ranks of the result, 1 to 4096 */
	int stage;			/* 1, 2, 3; 4 = BF16_Optimizer; -1 = the configuration's */
	int round_robin;		/* 0, 1; -1 = the configuration's */
	uint64_t sub_group_size;	/* stage 3; 0 = the configuration's, else 1e9 */
	const char *tag;		/* NULL = "global_step0" */
	unsigned flags;			/* CKPT_WRITE_FORCE, _RESTART, _DRY_RUN, _STRICT */
	uint32_t part, nparts;		/* as in ckpt_convert_opts */
	const char *ds_version;		/* that will load it; NULL = "0.19.8" */
	enum ckpt_dtype dtype;		/* BF16, F16, F32; 0 = as configured, or as stored */
	const char *ds_config_path;	/* a DeepSpeed configuration, or NULL */
	const char *config_path;	/* config.json; NULL = the one beside the weights */
	const char *order_path;		/* names of the parameters, a line each, in the order of
					   named_parameters(); NULL = known from config.json */
	enum ckpt_shard_groups groups;
	double lr;			/* (required, here or in ds_config_path) */
	double first_lr;		/* of the first step (what a scheduler of the configuration
					   begins with, else lr) */
	double weight_decay;		/* (0) */
	double beta1, beta2, eps;	/* (0.9, 0.999, 1e-8) */
	const char *const *frozen;	/* patterns of parameters that are not trained, or NULL */
	const char *const *buffers;	/* patterns of tensors that are not parameters, or NULL */
	/*
	 * With CKPT_SHARD_MEGATRON only dtype, config_path, buffers, flags, part, nparts and the
	 * two below count, and the others are not looked at.
	 */
	enum ckpt_shard_form to;
	uint32_t tp;			/* tensor-parallel size that the vocabulary is padded for
					   (1), at most 4096 */
	uint64_t vocab_divisor;		/* make_vocab_size_divisible_by (128) */
};

/*
 * Write a complete ZeRO step 0 from the weights of 'ck' (any format): masters are the weights,
 * moments are zero, so that DeepSpeed begins a run by resuming it.  A folder 'dst' with 'latest'
 * and the step; config.json and tokenizer files beside the weights (or beside opts->config_path) go
 * into the step's folder, where ckpt_convert() finds them.  Afterwards the tensors of 'ck' have
 * the roles of the new step.
 *
 * The order of the parameters decides which elements a rank holds, and a run would resume from
 * mixed-up weights if it were wrong: it is known for the architectures of config.json that this
 * library lists, or given with opts->order_path, and is never guessed.
 *
 * With CKPT_SHARD_MEGATRON 'dst' gets a folder "release" and latest_checkpointed_iteration.txt: the
 * weights alone, in the names and shapes of Megatron-Core, which any tensor-, pipeline- and
 * expert-parallel size reads.  The tensors of 'ck' have the names that transformers gives them, and
 * config.json names one of the architectures of docs/formats/megatron.md.  The vocabulary gets
 * rows up to a multiple of vocab_divisor * tp, which repeat its last row.
 *
 * Memory, commit and what a killed run leaves are as in ckpt_convert(), and so are the findings
 * that stop it.  '*report_out' (may be NULL)
 * is filled on success.
 * Returns 0 or the negative of
 *	CKPT_E_UNSUPPORTED  an architecture whose order of parameters is not known, without
 *	                    order_path; an optimizer other than Adam
 *	CKPT_E_MISMATCH     a tensor that the order (or the model of config.json) lacks, a missing
 *	                    one, or one of another shape
 *	CKPT_E_USAGE        no learning rate, no stage, a pattern that matches nothing
 *	and the codes of ckpt_convert().
 */
CKPT_API int ckpt_shard(struct ckpt *ck, const char *dst, const struct ckpt_shard_opts *opts,
			struct ckpt_report *report_out, struct ckpt_err *err);

#ifdef __cplusplus
}
#endif
#endif
