/*
 * en_model.h -- what a decoder-only transformer is: its configuration, its parameters in order, and
 * the blocks they belong to.
 *
 * Llama 3, Qwen2.5 and Qwen3 as Hugging Face's transformers define them.  A *block* is what the
 * engine gathers, frees and reduces at once: block 0 is the embedding, 1..L the layers, L + 1 the
 * final norm and the head.  The parameters of a block are contiguous, without gaps, in
 * one flat buffer, and so are its gradients.  Parameters are numbered in the order of torch's
 * named_parameters(), which is block after block.
 */
#ifndef EN_MODEL_H
#define EN_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ckpt.h>

#include "kernels/include/kn_train.h"

/* ---------------------------------------------------------------- configuration */

enum en_arch {
	EN_LLAMA = 1,	/* LlamaForCausalLM */
	EN_QWEN2 = 2,	/* Qwen2ForCausalLM: biases of q, k, v */
	EN_QWEN3 = 3,	/* Qwen3ForCausalLM: norms of q and k */
};

struct en_rope {
	double theta;
	bool llama3;	/* "llama3" scaling; else none, and the rest is 0 */
	double factor, low, high;
	uint32_t original;
};

struct en_model_config {
	enum en_arch arch;
	uint32_t vocab, hidden, inter, layers, heads, kv_heads, head_dim;
	uint32_t max_positions;	/* 0: not said */
	double norm_eps;
	double init_range;	/* deviation of random matrices */
	bool tied;		/* the head is the embedding */
	struct en_rope rope;
	enum kn_type type;	/* that the weights were saved in; 0: not said */
	char noted[256];	/* keys that are not known, and off: "use_this, use_that"; or "" */
};

/*
 * The configuration in a config.json of transformers 4 or 5.  Every key is understood, known to be
 * of no consequence for training, off (false, null, empty: 'noted'), or refused.  'where' names the
 * text in errors.
 *	CKPT_E_CORRUPT      no JSON object, a key twice, a value of the wrong kind or size
 *	CKPT_E_UNSUPPORTED  another architecture; a key or value that would change the model in
 *	                    a way that is not built (sliding windows, other activations, ...)
 *	CKPT_E_NOMEM
 */
int en_model_config_parse(const char *text, size_t nbytes, const char *where,
			  struct en_model_config *out, struct ckpt_err *err);
/* The same from a file; also CKPT_E_NOTFOUND, CKPT_E_IO, CKPT_E_LIMIT (more than 1 MiB). */
int en_model_config_read(const char *path, struct en_model_config *out, struct ckpt_err *err);
/*
 * Whether numbers fit each other (heads and kv_heads, even head_dim, no product beyond 2^62).
 * The readers have called it.  CKPT_E_UNSUPPORTED, CKPT_E_CORRUPT.
 */
int en_model_config_check(const struct en_model_config *config, const char *where,
			  struct ckpt_err *err);
/* "LlamaForCausalLM" ...; a static string. */
const char *en_arch_name(enum en_arch arch);

/* ---------------------------------------------------------------- what is trained */

/* The linear modules of a layer, which may have an adapter. */
enum en_linear {
	EN_LINEAR_Q, EN_LINEAR_K, EN_LINEAR_V, EN_LINEAR_O, EN_LINEAR_GATE, EN_LINEAR_UP,
	EN_LINEAR_DOWN, EN_LINEARS,
};
/* "q_proj" ...; a static string. */
const char *en_linear_name(enum en_linear linear);

/* Low-rank adapters as PEFT has them: y = W x + scale B (A x), and W is frozen. */
struct en_lora {
	uint32_t r;		/* 0: none, and the rest is not looked at */
	double alpha;
	bool rslora;		/* scale alpha / sqrt(r), else alpha / r */
	unsigned targets;	/* bits of enum en_linear */
	double dropout;		/* of what goes into an adapter, from 0 to below 1 */
};

struct en_adapt {
	struct en_lora lora;
	const char *const *freeze;	/* [nfreeze]: patterns of fnmatch(3) */
	uint32_t nfreeze;
	uint32_t ranks;		/* of the run; 0 = 1 */
};

/* ---------------------------------------------------------------- parameters */

enum en_init {
	EN_INIT_NORMAL = 1,	/* normal, deviation init_range */
	EN_INIT_ONE = 2,	/* weights of norms */
	EN_INIT_ZERO = 3,	/* biases; B of adapters */
	EN_INIT_UNIFORM = 4,	/* A of adapters: between -1 / sqrt(in) and that */
};

/* What a parameter is in its block. */
enum en_slot {
	EN_Q, EN_Q_BIAS, EN_K, EN_K_BIAS, EN_V, EN_V_BIAS, EN_O, EN_Q_NORM, EN_K_NORM,
	EN_GATE, EN_UP, EN_DOWN, EN_NORM_IN, EN_NORM_POST,
	EN_LORA_A,				/* and a linear module */
	EN_LORA_B = EN_LORA_A + EN_LINEARS,
	EN_LAYER_SLOTS = EN_LORA_B + EN_LINEARS,
	EN_EMBED = 0,				/* block 0 */
	EN_NORM_FINAL = 0, EN_HEAD = 1,		/* the last block; tied: without EN_HEAD */
};

struct en_param {
	const char *name;	/* "model.layers.0.self_attn.q_proj.weight", lent by the model */
	const char *plain;	/* in the model without adapters; NULL: it is an adapter's */
	uint64_t stream;	/* of its random numbers: without adapters the same */
	bool frozen;		/* it has neither gradients nor states */
	bool held;		/* frozen by en_model_hold() alone: a step has it as trained */
	uint32_t block;
	enum en_slot slot;
	uint32_t ndim;		/* 1 or 2 */
	uint64_t shape[2];	/* row-major, [out, in] */
	uint64_t numel;
	uint64_t offset;	/* of its first element among the block's trained, or frozen ones */
	enum en_init init;
	bool decay;		/* as transformers' Trainer groups: no bias, no norm */
};

/*
 * The buffer of a block's parameters: those that are trained, and, if any are frozen, padding as
 * the ranks need it, and the frozen ones from 'base' on.  Its gradients are those of the former.
 */
struct en_block {
	uint32_t first, count;	/* parameters */
	uint64_t numel;		/* elements that are trained */
	uint64_t frozen;	/* elements that are not */
	uint64_t base;
	uint64_t at[EN_LAYER_SLOTS];	/* where each slot begins; UINT64_MAX: none */
	uint64_t grad[EN_LAYER_SLOTS];	/* the same of gradients; UINT64_MAX: none, or frozen */
};

struct en_model {
	struct en_model_config config;
	uint32_t nparams;
	struct en_param *param;
	uint32_t nblocks;	/* layers + 2 */
	struct en_block *block;
	uint64_t numel;		/* of all blocks, trained or not */
	uint64_t trained;	/* elements of 'numel' */
	bool both_groups;	/* parameters that decay and such that do not are trained */
	uint32_t lowest;	/* the first block that has trained parameters */
	struct en_lora lora;
	float scale;		/* of adapters */
	uint64_t drop;		/* the widest input of an adapter that is dropped; 0: none */
	char freeze[160];	/* the patterns, as text; "" = none */
	char *names;		/* private */
	uint32_t nnames, nplain;	/* private */
};

/* Elements of a block's parameters as they are in its buffer. */
static inline uint64_t en_block_span(const struct en_block *b)
{
	return b->frozen ? b->base + b->frozen : b->numel;
}

/* CKPT_E_NOMEM, and what en_model_config_check() finds.  '*model_out' is for en_model_free(). */
int en_model_new(const struct en_model_config *config, struct en_model **model_out,
		 struct ckpt_err *err);
/*
 * The same with frozen parameters or adapters; its names are those of the module that PEFT makes
 * then.  Also CKPT_E_USAGE: a pattern without a parameter, and nothing left to train.
 */
int en_model_new_adapted(const struct en_model_config *config, const struct en_adapt *adapt,
			 struct en_model **model_out, struct ckpt_err *err);
/*
 * For evaluation alone: from here on nothing is trained.  All parameters are as frozen ones, at the
 * same places of their blocks, so that products are the same; 'trained' is 0.  What was chosen to
 * be trained is still what steps are compared by.
 */
void en_model_hold(struct en_model *model);
/* NULL is fine. */
void en_model_free(struct en_model *model);

/* Number of the parameter called 'name', or -1. */
int64_t en_model_find(const struct en_model *model, const char *name);
/* The name of the head of a tied model, which is a second name of the embedding. */
const char *en_model_tied_name(const struct en_model *model);

/*
 * Elements [first, first + count) of parameter 'param', made from a seed: the same bits
 * whichever rank makes which piece.
 */
void en_model_init(const struct en_model *model, uint32_t param, uint64_t seed, uint64_t first,
		   uint64_t count, float *out);

/*
 * The tensor of an open checkpoint that is the parameter: of its name, else of the one without
 * adapters.  CKPT_E_NOTFOUND.
 */
int en_model_tensor(const struct en_model *model, uint32_t param, const struct ckpt *ck,
		    uint64_t *tensor_out, struct ckpt_err *err);

/*
 * Whether the tensors of an open checkpoint are those of the model: each parameter but adapters is
 * there with its shape and a floating type, and nothing else is, but lm_head.weight of a tied model
 * (an alias or a copy) and rotary_emb.inv_freq buffers of old files.  CKPT_E_MISMATCH names the
 * first.
 */
int en_model_match(const struct en_model *model, const struct ckpt *ck, struct ckpt_err *err);
/* The same of a step, which may lack frozen parameters. */
int en_model_match_step(const struct en_model *model, const struct ckpt *ck, struct ckpt_err *err);

/*
 * Elements [first, first + count) of a parameter's weight from the checkpoint, as 'type': of a
 * training step the master, where it has one.  'checks' (may be NULL) as in ckpt_load().
 */
int en_model_read(const struct en_model *model, uint32_t param, const struct ckpt *ck,
		  struct ckpt_load_checks *checks, uint64_t first, uint64_t count,
		  enum kn_type type, void *out, struct ckpt_err *err);

#endif
