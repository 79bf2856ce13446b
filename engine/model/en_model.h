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

/* ---------------------------------------------------------------- parameters */

enum en_init {
	EN_INIT_NORMAL = 1,	/* normal, deviation init_range */
	EN_INIT_ONE = 2,	/* weights of norms */
	EN_INIT_ZERO = 3,	/* biases */
};

/* What a parameter is in its block. */
enum en_slot {
	EN_Q, EN_Q_BIAS, EN_K, EN_K_BIAS, EN_V, EN_V_BIAS, EN_O, EN_Q_NORM, EN_K_NORM,
	EN_GATE, EN_UP, EN_DOWN, EN_NORM_IN, EN_NORM_POST,
	EN_LAYER_SLOTS,
	EN_EMBED = 0,				/* block 0 */
	EN_NORM_FINAL = 0, EN_HEAD = 1,		/* the last block; tied: without EN_HEAD */
};

struct en_param {
	const char *name;	/* "model.layers.0.self_attn.q_proj.weight", lent by the model */
	uint32_t block;
	enum en_slot slot;
	uint32_t ndim;		/* 1 or 2 */
	uint64_t shape[2];	/* row-major, [out, in] */
	uint64_t numel;
	uint64_t offset;	/* of its first element in the block's buffer */
	enum en_init init;
	bool decay;		/* as transformers' Trainer groups: no bias, no norm */
};

struct en_block {
	uint32_t first, count;	/* parameters */
	uint64_t numel;
	uint64_t at[EN_LAYER_SLOTS];	/* offset of each slot; UINT64_MAX: none */
};

struct en_model {
	struct en_model_config config;
	uint32_t nparams;
	struct en_param *param;
	uint32_t nblocks;	/* layers + 2 */
	struct en_block *block;
	uint64_t numel;		/* of all blocks */
	char *names;		/* private */
};

/* CKPT_E_NOMEM, and what en_model_config_check() finds.  '*model_out' is for en_model_free(). */
int en_model_new(const struct en_model_config *config, struct en_model **model_out,
		 struct ckpt_err *err);
/* NULL is fine. */
void en_model_free(struct en_model *model);

/* Number of the parameter called 'name', or -1. */
int64_t en_model_find(const struct en_model *model, const char *name);

/*
 * Elements [first, first + count) of parameter 'param', made from a seed: the same bits
 * whichever rank makes which piece.
 */
void en_model_init(const struct en_model *model, uint32_t param, uint64_t seed, uint64_t first,
		   uint64_t count, float *out);

/*
 * Whether the tensors of an open checkpoint are those of the model: each parameter is there with
 * its shape and a floating type, and nothing else is, but lm_head.weight of a tied model (an alias
 * or a copy) and rotary_emb.inv_freq buffers of old files.  CKPT_E_MISMATCH names the first.
 */
int en_model_match(const struct en_model *model, const struct ckpt *ck, struct ckpt_err *err);

/*
 * Elements [first, first + count) of a parameter's weight from the checkpoint, as 'type': of a
 * training step the master, where it has one.  'checks' (may be NULL) as in ckpt_load().
 */
int en_model_read(const struct en_model *model, uint32_t param, const struct ckpt *ck,
		  struct ckpt_load_checks *checks, uint64_t first, uint64_t count,
		  enum kn_type type, void *out, struct ckpt_err *err);

#endif
