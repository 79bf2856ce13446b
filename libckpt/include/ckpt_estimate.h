/*
 * ckpt_estimate.h -- what a run will need before it is started: memory of a GPU and of a
 * host, bytes and files of a save.  Part of <ckpt.h>.
 *
 *	struct ckpt_model *model;
 *	struct ckpt_setup setup = { .size = sizeof(setup), .stage = 3, .gpus = 8, ... };
 *	struct ckpt_estimate est;
 *
 *	if (!ckpt_model_from_config("config.json", &model, &err)) {
 *		if (!ckpt_estimate(model, &setup, &est, &err))
 *			for (uint32_t i = 0; i < est.nterms; i++)
 *				printf("%s: %" PRIu64 " = %s\n", est.term[i].name,
 *				       est.term[i].bytes, est.term[i].formula);
 *		ckpt_model_free(model);
 *	}
 *
 * Everything but the reading of a model is arithmetic on integers; each number comes as a
 * term with the formula that made it.  docs/internals/memory.md derives the terms, says
 * what was measured and names what is not counted.  No GPU is asked, and no process is started.
 *
 * Threads: every call may run on any thread; a model is not changed once it was made.
 */
#ifndef CKPT_ESTIMATE_H
#define CKPT_ESTIMATE_H

#include <ckpt.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---------------------------------------------------------------- models */

/*
 * A model as far as memory depends on it: its parameters in order, and its shape.  Each function
 * that makes one gives '*out' on success only; free it with ckpt_model_free().
 */
struct ckpt_model;

/* The shape of a decoder; all 0 where it is not known. */
struct ckpt_arch {
	uint64_t layers, hidden, inter, vocab;	/* inter: width of the MLP */
	uint64_t heads, kv_heads, head_dim;	/* of attention; kv_heads < heads: grouped */
	uint32_t gated;		/* gate and up projections side by side (SwiGLU, GeGLU) */
	uint32_t rms;		/* RMSNorm written in single operations, else LayerNorm */
	uint32_t norms;		/* norms over 'hidden' in a layer */
	uint32_t qk_norm;	/* queries and keys are normed too */
	/* Routed experts; experts 0: none. */
	uint64_t experts, top_k;	/* of a layer; of them, those that a token passes */
	uint64_t moe_layers;		/* layers that have experts instead of one MLP */
	uint64_t expert_inter;		/* width of an expert */
	uint64_t shared_inter;		/* of what every token passes beside them, 0 = nothing */
	/* Attention over compressed keys and values (DeepSeek); kv_rank 0: not this kind. */
	uint64_t q_rank, kv_rank;	/* q_rank 0: queries are not compressed */
	uint64_t rope_dim, v_dim;	/* of head_dim, what is rotated; of a head's values */
};

/* What is known of a model. */
struct ckpt_model_info {
	const char *what;	/* a clause that says where it comes from; lent */
	uint64_t params;	/* elements, those of tied names once */
	uint64_t active;	/* of them, those that one token passes: all but the experts that
				   the router does not choose; 0 = not known */
	uint64_t trainable;	/* of all, those that the optimizer holds */
	uint64_t tensors;	/* parameters, tied names once */
	uint64_t largest;	/* elements of the largest parameter */
	uint64_t largest_module;	/* of the module with the most elements of its own:
				   DeepSpeed's "largest layer" */
	uint64_t buffer_bytes;	/* of buffers that a save holds */
	uint32_t groups;	/* param groups of the optimizer */
	uint32_t assumed;	/* the shape is that of a known model of about this size */
	struct ckpt_arch arch;	/* without it no activations are estimated */
	uint64_t tower;		/* of all, those of a vision tower and its projector; 'arch' is
				   that of the language model */
};

/*
 * From a config.json of Hugging Face transformers.  Known: Llama, Mistral, Qwen2, Qwen3,
 * Gemma, Gemma 2, Gemma 3 (text), Granite, OLMo, OLMo 2, SmolLM3, Phi-3, StarCoder2, GPT-2,
 * GPT-NeoX, OPT; with experts Mixtral, Qwen2-MoE, Qwen3-MoE, DeepSeek-V2 and V3, whose experts
 * are counted as transformers 5 has them, two parameters a layer; with a vision tower Qwen2-VL,
 * Qwen2.5-VL, Qwen3-VL, InternVL and InternVLChatModel.  CKPT_E_UNSUPPORTED names any other
 * architecture, CKPT_E_MISMATCH a number that is missing or does not fit, CKPT_E_LIMIT one
 * that is beyond reason; else those of reading the file.
 */
CKPT_API int ckpt_model_from_config(const char *path, struct ckpt_model **out,
				    struct ckpt_err *err);
/*
 * From the tensors of an open checkpoint: exact parameters, frozen ones, buffers and param
 * groups.  'config_path' (may be NULL) gives the shape; its parameters are ignored.
 */
CKPT_API int ckpt_model_from_ckpt(const struct ckpt *ck, const char *config_path,
				  struct ckpt_model **out, struct ckpt_err *err);
/* The optimizer has the language model alone.  CKPT_E_USAGE if the model has no vision tower. */
CKPT_API int ckpt_model_freeze_tower(struct ckpt_model *model, struct ckpt_err *err);
/*
 * From a number of elements, with the shape of the known model whose number is nearest
 * (ratio); exact if it is that model's.  CKPT_E_USAGE for 0 or more than 2^48.
 */
CKPT_API int ckpt_model_from_count(uint64_t params, struct ckpt_model **out,
				   struct ckpt_err *err);
/* By the name of a published one, "qwen2.5-7b", in any case.  CKPT_E_NOTFOUND. */
CKPT_API int ckpt_model_from_name(const char *name, struct ckpt_model **out,
				  struct ckpt_err *err);
/* The names that ckpt_model_from_name() knows, from 0; NULL past the end.  Never freed. */
CKPT_API const char *ckpt_model_name(uint32_t number);
/*
 * Adapters as PEFT has them, by the text of `ztrain --lora`: "r=16,alpha=32,target=q_proj+v_proj"
 * or "target=all-linear"; what is missing is PEFT's default.  All other parameters become frozen.
 * "dropout=P" counts as what it keeps for the backward pass.
 * CKPT_E_USAGE for another text, or a model with frozen parameters; CKPT_E_UNSUPPORTED for one
 * whose shape is not known or not that of Llama and Qwen.  After a failure the model is to be
 * freed.
 */
CKPT_API int ckpt_model_lora(struct ckpt_model *model, const char *text, struct ckpt_err *err);
/* Fills '*out'; its text is valid as long as the model is. */
CKPT_API void ckpt_model_get(const struct ckpt_model *model, struct ckpt_model_info *out);
/* NULL is fine. */
CKPT_API void ckpt_model_free(struct ckpt_model *model);

/* ---------------------------------------------------------------- setups */

/* What is in host memory instead of the GPU's.  Pinned. */
#define CKPT_OFFLOAD_OPTIMIZER 1u	/* masters, moments and their update; stages 1 to 3 */
#define CKPT_OFFLOAD_PARAMS 2u	/* stage 3, with CKPT_OFFLOAD_OPTIMIZER */

/* How the operations of a layer are written: what the backward pass finds kept. */
enum ckpt_ops {
	CKPT_OPS_EAGER = 0,	/* one by one, as transformers does */
	CKPT_OPS_FUSED = 1,	/* norms, rotary embedding and the gate in one kernel each */
};

/* Whose memory it is.  Pinned. */
#define CKPT_ENGINE_DEEPSPEED 0u	/* DeepSpeed's layout, in the memory of GPUs */
#define CKPT_ENGINE_ZTRAIN 1u	/* CPU ranks of this project's own engine: see ckpt_estimate() */

/*
 * Recipes of `ztrain --fp8`, which GPUs alone have: one term, of phases 0 and in no sum, since the
 * others are of a CPU rank.  Pinned.
 */
#define CKPT_FP8_TENSORWISE 1u
#define CKPT_FP8_TENSORWISE_GW_HP 2u
#define CKPT_FP8_TENSORWISE_FAST 3u

/* Numbers of which 0 means the default in parentheses; ds_defaults fills them in. */
struct ckpt_setup {
	size_t size;			/* sizeof(struct ckpt_setup) */
	uint32_t stage;			/* 0 to 3 */
	uint32_t gpus;			/* all ranks, 1 to 4096 (1) */
	uint32_t gpus_per_node;		/* (8, or gpus if that is less) */
	unsigned offload;		/* CKPT_OFFLOAD_* */
	enum ckpt_dtype dtype;		/* BF16, F16, F32 (BF16) */
	enum ckpt_dtype grad_dtype;	/* gradients are summed up in it (dtype) */
	uint64_t micro;			/* samples of a micro-batch (1) */
	uint64_t sequence;		/* tokens of a sample (2048) */
	uint64_t accumulation;		/* micro-batches of a step (1) */
	uint32_t recompute;		/* layers keep their inputs only */
	uint32_t attention_matrix;	/* attention that writes its scores down */
	enum ckpt_ops ops;		/* (CKPT_OPS_EAGER) */
	uint32_t no_pin;		/* host buffers are not pinned */
	int32_t overlap;		/* overlap_comm: 0 not given, 1 true, -1 false */
	/* Elements.  UINT64_MAX is "auto": what transformers' Trainer makes of it. */
	uint64_t reduce_bucket;		/* (500,000,000) */
	uint64_t prefetch_bucket;	/* stage 3 (50,000,000) */
	uint64_t persistence;		/* stage 3 (100,000) */
	uint64_t max_reuse;		/* stage 3 (1,000,000,000) */
	uint64_t sub_group;		/* stage 3 (1,000,000,000) */
	uint64_t overhead;		/* bytes of a GPU that no tensor has (measured values) */
	uint32_t engine;		/* CKPT_ENGINE_* */
	uint32_t tp, pp, ep;		/* tensor-, pipeline- and expert-parallel ranks (1) */
	uint32_t fp8;			/* CKPT_FP8_*, of ztrain alone */
};

/* What a DeepSpeed configuration gave: bits of '*said_out'. */
#define CKPT_SETUP_STAGE 1u		/* zero_optimization.stage */
#define CKPT_SETUP_OFFLOAD 2u		/* offload_optimizer or offload_param */
#define CKPT_SETUP_DTYPE 4u		/* bf16 or fp16 */
#define CKPT_SETUP_MICRO 8u		/* the micro-batch, itself or from the others */
#define CKPT_SETUP_ACCUMULATION 16u	/* likewise the accumulation */

/*
 * Read a DeepSpeed configuration into '*setup', keeping the values that it does not give (or calls
 * "auto", except for the buckets).  setup->gpus must be set: a batch size is shared by it.
 * '*said_out' has the CKPT_SETUP_* that it gave.  CKPT_E_UNSUPPORTED: NVMe.
 */
CKPT_API int ckpt_setup_read(const char *path, struct ckpt_setup *setup, unsigned *said_out,
			     struct ckpt_err *err);

/* ---------------------------------------------------------------- estimates */

/* Which memory a term belongs to.  Pinned. */
enum ckpt_place {
	CKPT_PLACE_GPU = 1,	/* bytes of each GPU */
	CKPT_PLACE_HOST = 2,	/* bytes of a host with gpus_per_node ranks */
};

/* When the bytes are allocated; a GPU must hold the phase with the largest sum.  Pinned. */
#define CKPT_PHASE_LOSS 1u	/* the forward pass is done, the loss goes backward */
#define CKPT_PHASE_LAYER 2u	/* the last layer's backward pass */
#define CKPT_PHASE_END 4u	/* the first layer's: all other gradients exist */
#define CKPT_PHASE_STEP 8u	/* the optimizer's step */
#define CKPT_PHASE_ALL 15u
#define CKPT_NPHASES 4u

/* One summand of an estimate. */
struct ckpt_term {
	enum ckpt_place place;
	unsigned phases;	/* CKPT_PHASE_* */
	uint64_t bytes;		/* never 0: such terms are left out */
	char name[48];		/* "gradients" */
	char formula[160];	/* with its numbers: "2 B x 7,615,616,512" */
};

#define CKPT_MAX_TERMS 32u	/* of one estimate */

/* What a save of DeepSpeed's layout is, and what it takes to resume it. */
struct ckpt_save {
	uint64_t files;		/* of one step, of all ranks */
	uint64_t bytes;		/* tensors alone; docs/internals/memory.md: what comes on top */
	uint64_t model_files, model_bytes;	/* model_bytes: of each */
	uint64_t optim_files, optim_bytes;	/* likewise of each optimizer file */
	uint64_t resume_same;	/* bytes all ranks read to resume at this world */
	uint64_t resume_other;	/* after `zckpt reshard` for another one, which reads 'bytes' */
	uint64_t universal_files;	/* of DeepSpeed's universal layout */
	/* With pipeline stages, expert-parallel ranks; the bytes are those of the largest file. */
	uint64_t layer_files, layer_bytes;	/* layer_LL-model_TT */
	uint64_t expert_files, expert_bytes;	/* layer_l_expert_e_mp_rank_MM */
	uint64_t expp_files, expp_bytes;	/* expp_rank_E_mp_rank_MM, at stage 0 */
	/* The same state in a folder of Megatron-Core (torch_dist); 0 where it is not known. */
	uint64_t mcore_files;		/* .distcp files, one of each rank */
	uint64_t mcore_bytes;		/* of all */
	uint64_t mcore_rank_bytes;	/* of a rank of the largest stage */
	uint64_t mcore_vocab;		/* rows of the embedding, padded */
};

/*
 * Who has what: the sizes of the groups of ranks, and the rank with the most memory, of which the
 * terms are.
 */
struct ckpt_share {
	uint32_t tp, pp, ep;		/* as given, at least 1 */
	uint32_t dp;			/* ranks that divide the states of what is not an expert */
	uint32_t edp;			/* ranks that divide the states of an expert */
	uint32_t stage;			/* the pipeline stage of the rank, from 0 */
	uint64_t layers;		/* of that stage */
	uint64_t params;		/* elements of the rank's parameters */
	uint64_t expert_params;		/* of them, of experts */
	uint64_t least_params;		/* of a rank of the smallest stage */
};

/* No pointers and nothing to free. */
struct ckpt_estimate {
	uint64_t gpu_bytes;		/* the largest phase */
	uint64_t phase_bytes[CKPT_NPHASES];	/* of a GPU; number i is of phase 1 << i */
	uint32_t peak;			/* the CKPT_PHASE_* of it */
	uint32_t no_activations;	/* the shape is not known: none were counted */
	uint64_t host_bytes;		/* of a host */
	uint64_t tokens;		/* of a micro-batch */
	uint32_t nterms;
	struct ckpt_term term[CKPT_MAX_TERMS];	/* [nterms] */
	struct ckpt_save save;		/* on disk */
	struct ckpt_share share;
};

/*
 * What a run with DeepSpeed's memory layout needs.  No allocation but a few bytes a
 * parameter.  CKPT_E_USAGE for a setup that does not exist.
 *
 * With tp, pp or ep above 1 the numbers are those of the rank that needs most memory; 'share' says
 * which.  CKPT_E_USAGE then also for sizes that do not divide each other (ranks by tp x pp, experts
 * by ep, heads by tp, ...), a model whose shape is not known, and stages that DeepSpeed does not
 * have with them: 2 with pipeline stages, 3 with any.
 *
 * With CKPT_ENGINE_ZTRAIN: what a rank of ztrain needs, to the byte of its counters, with the
 * buffer of its saves and one thread; the terms have CKPT_PLACE_GPU ("a rank"), in all
 * phases alike, and a host has its ranks.  'save' is the native form.  Buckets, pinning, 'ops' and
 * grad_dtype mean nothing to it.  CKPT_E_USAGE also for models that it does not train, and those
 * of which only the number of parameters is known.
 */
CKPT_API int ckpt_estimate(const struct ckpt_model *model, const struct ckpt_setup *setup,
			   struct ckpt_estimate *out, struct ckpt_err *err);

/* What a rank has, by the rule of DeepSpeed's AutoTP, AutoEP and pipelines. */
struct ckpt_rank_share {
	/* Its places: rank = (pp x ranks of dp + dp) x ranks of tp + tp. */
	uint32_t tp, pp, dp;
	uint32_t ep, edp;	/* which experts it has; its place among ranks with the same */
	uint64_t first_layer, layers;
	uint64_t first_expert, experts;	/* of each layer with experts */
	uint64_t params;		/* elements; of a vocabulary cut unevenly, the most */
	uint64_t expert_params;		/* of them, of experts */
	uint64_t states;	/* elements of its masters and of each moment, with padding */
};

/*
 * Rank 'rank' of setup->gpus.  Fails as ckpt_estimate(), and with CKPT_E_USAGE for a rank that does
 * not exist, a model without a known shape, stage 3, and ztrain.
 */
CKPT_API int ckpt_rank_share(const struct ckpt_model *model, const struct ckpt_setup *setup,
			     uint32_t rank, struct ckpt_rank_share *out, struct ckpt_err *err);

/*
 * A phase in a sentence: CKPT_PHASE_LOSS is "at the start of the backward pass", "always" is any
 * number that is not one phase.  Static string, never freed.
 */
CKPT_API const char *ckpt_phase_name(unsigned phase);

/* ---------------------------------------------------------------- DeepSpeed's estimators */

struct ckpt_ds_estimate {
	uint64_t cpu_bytes;		/* of a node */
	uint64_t gpu_bytes;		/* of each GPU */
	uint64_t largest_layer_bytes;	/* stage 3 */
};

/*
 * What estimate_zero2_model_states_mem_needs() and estimate_zero3_model_states_mem_needs()
 * of DeepSpeed return, to the byte, for additional_buffer_factor 'factor' (its default is
 * 1.5).  Model states only: no activations, no buffers.  Pure; 0, or -CKPT_E_USAGE for no
 * node, no GPU, more than 2^46 parameters, or a layer larger than the model.
 */
CKPT_API int ckpt_ds_zero2(uint64_t params, uint32_t gpus_per_node, uint32_t nodes,
			   int cpu_offload, double factor, struct ckpt_ds_estimate *out);
CKPT_API int ckpt_ds_zero3(uint64_t params, uint64_t largest_layer, uint32_t gpus_per_node,
			   uint32_t nodes, int cpu_offload, int cpu_offload_params,
			   int zero_init, double factor, struct ckpt_ds_estimate *out);

#ifdef __cplusplus
}
#endif
#endif
