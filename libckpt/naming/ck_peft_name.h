/*
 * ck_peft_name.h -- names of parameters of PEFT's models: which belong to an adapter.
 *
 * In a model that PEFT wrapped a matrix A is called
 *	base_model.model.model.layers.0.self_attn.q_proj.lora_A.default.weight
 * and in PEFT's own file the same without ".default", the name of the adapter.
 */
#ifndef CK_PEFT_NAME_H
#define CK_PEFT_NAME_H

#include "libckpt/base/ck_mem.h"

enum ck_peft_part {
	CK_PEFT_NONE = 0,	/* of the model itself */
	CK_PEFT_A, CK_PEFT_B,	/* of a linear layer or a convolution */
	CK_PEFT_EMBED_A, CK_PEFT_EMBED_B,
	CK_PEFT_MAGNITUDE,	/* of DoRA */
	CK_PEFT_B_BIAS,		/* lora_bias */
	CK_PEFT_SAVED,		/* a module that is trained as a whole (modules_to_save) */
	CK_PEFT_ORIGINAL,	/* what such a module was */
	CK_PEFT_OTHER,		/* of a method that is not LoRA */
};

/* Everything is lent from the name. */
struct ck_peft_name {
	enum ck_peft_part part;
	const char *module;	/* "base_model.model.model.layers.0.self_attn.q_proj" */
	size_t module_len;
	const char *adapter;	/* "default"; length 0 in PEFT's own files */
	size_t adapter_len;
	const char *rest;	/* of SAVED: "weight" */
	const char *method;	/* of OTHER: "LoHa"; a constant */
};

void ck_peft_name_parse(const char *name, struct ck_peft_name *out);
/* Whether it is what LoRA trains: A, B, a magnitude or a bias of B. */
bool ck_peft_is_lora(enum ck_peft_part part);
/*
 * The name without what wrappers put into it: "base_model.model." and "module." in front,
 * ".base_layer", ".original_module" and the like within.  NULL without memory.
 */
const char *ck_peft_plain(struct ck_arena *arena, const char *name, size_t len);
/* The name that PEFT's own file has for it, without that of the adapter.  NULL without memory. */
const char *ck_peft_file_name(struct ck_arena *arena, const char *name);
/*
 * And the other way: the name that the model has for a tensor of PEFT's file, which is an adapter
 * of the name "default".  Other names stay.  NULL without memory.
 */
const char *ck_peft_live_name(struct ck_arena *arena, const char *name);
/* Whether the name is of a model that PEFT wrapped. */
bool ck_peft_is_wrapped(const char *name);
/*
 * Whether a key of rank_pattern or alpha_pattern is of a module, both without wrappers: it is all
 * of its name, or the end of it after a '.'.  False in '*known_out': the key is a regular
 * expression of which this cannot be said.
 */
bool ck_peft_pattern_fits(const char *key, const char *module, bool *known_out);

#endif
