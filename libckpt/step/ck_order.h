/*
 * ck_order.h -- the parameters of a model in the order of its modules.
 *
 * ZeRO cuts a run of parameters in the order in which the model names them
 * (named_parameters()), and nothing in the shards would tell another order from the right one.
 * A file of weights does not keep it: safetensors sorts.  So it comes from a list, or from what
 * is known of the architecture that config.json names; it is never guessed.
 */
#ifndef CK_ORDER_H
#define CK_ORDER_H

#include "libckpt/base/ck_mem.h"
#include "libckpt/tensor/ck_index.h"

struct ck_order {
	struct ck_arena arena;
	uint32_t *tensor;	/* in the index */
	uint64_t n;
	const char *alias;	/* a name that is tied to 'embedding', NULL = none */
	uint32_t embedding;	/* in the index */
};

/*
 * Of the tensors of 'ix' that are not 'set_aside' (by tensor).  'path' is a config.json of
 * Hugging Face transformers.  CKPT_E_UNSUPPORTED for an architecture that is not known;
 * CKPT_E_MISMATCH names a tensor that does not belong, or one that is missing.
 */
int ck_order_by_config(const struct ck_index *ix, const char *path,
		       const struct ckpt_limits *limits, const bool *set_aside,
		       struct ck_order *out, struct ckpt_err *err);
/* The same of a text that is read already; 'path' is for messages. */
struct ck_order_config {
	const char *path, *text;
	uint64_t len;
	bool adapter;		/* the tensors are an adapter of PEFT for that model, without it;
				 * layers need not be alike */
};
int ck_order_by_text(const struct ck_index *ix, const struct ck_order_config *from,
		     const struct ckpt_limits *limits, const bool *set_aside,
		     struct ck_order *out, struct ckpt_err *err);
/*
 * By a list: a name a line, as printed by a loop over named_parameters().  Every tensor that is
 * not set aside must be in it, once.
 */
int ck_order_by_list(const struct ck_index *ix, const char *path,
		     const struct ckpt_limits *limits, const bool *set_aside,
		     struct ck_order *out, struct ckpt_err *err);
void ck_order_release(struct ck_order *order);

/* Is it one that Hugging Face's Trainer gives no weight decay: biases and norms? */
bool ck_order_is_undecayed(const char *name);

#endif
