/*
 * ck_model.h -- the parameters of a model in order, for estimates.
 */
#ifndef CK_MODEL_H
#define CK_MODEL_H

#include "libckpt/base/ck_mem.h"
#include "libckpt/run/ck_ckpt.h"

#define CK_BLOCK_BEHIND UINT32_MAX

/* Elements of a model, and bytes of its buffers: what follows from them fits 64 bits. */
#define CK_MODEL_MAX ((uint64_t)1 << 48)

struct ck_param {
	uint64_t numel;
	uint32_t module;	/* parameters of one module have the same number */
	uint32_t block;		/* 0 before the layers, layers from 1, CK_BLOCK_BEHIND */
	uint32_t group;		/* of the optimizer */
	bool frozen;
	bool tower;		/* of the vision tower or its projector */
	bool expert;		/* of the routed experts: 'numel' is that of all of them */
	uint8_t cut;		/* CK_CUT_*: how tensor-parallel ranks divide it */
};

/* Modules with adapters, a bit each; q, k, v and gate, up read the output of a norm. */
#define CK_LORA_QKV 7u
#define CK_LORA_O 8u
#define CK_LORA_GATE_UP 48u
#define CK_LORA_DOWN 64u

#define CK_CUT_NONE 0u		/* each rank has all of it */
#define CK_CUT_EVEN 1u
#define CK_CUT_EMBEDDING 2u	/* rows of the vocabulary, in two places */
#define CK_CUT_HEAD 3u

struct ckpt_model {
	struct ck_arena arena;
	struct ck_param *param;
	uint64_t n, cap;
	uint64_t total;		/* elements so far */
	uint32_t modules;
	bool shaped;		/* made from a shape: 'expert' and 'cut' are known */
	bool tied;		/* likewise; the head is the embedding */
	uint64_t lora;		/* rank of its adapters, 0 = none */
	unsigned lora_on;	/* the modules that have one: bits of CK_LORA_* */
	bool lora_drops;	/* they have dropout */
	struct ckpt_model_info info;
};

#define CK_DENSE_BITS 1024u

/* Routed experts: of a layer from 'first_dense' on whose number + 1 is a multiple of 'every'. */
struct ck_moe {
	uint64_t experts, top_k;	/* of a layer; that a token passes; 0 = no experts */
	uint64_t inter;			/* width of an expert */
	uint64_t shared;		/* of the expert that every token passes, 0 = none */
	bool shared_gate;		/* a gate of that one */
	uint64_t first_dense, every;	/* every: 0 is as 1 */
	uint8_t dense[CK_DENSE_BITS / 8];	/* bits: layers that have no experts either */
};

/* Attention over compressed keys and values (DeepSeek); kv_rank 0 = none. */
struct ck_mla {
	uint64_t q_rank;	/* 0 = queries are not compressed */
	uint64_t kv_rank, nope, rope, v;	/* sizes of a head without and with positions */
};

/* What a vision-language model has beside its decoder: modules of up to two parameters each. */
#define CK_TOWER_PARTS 24u
#define CK_TOWER_GROUPS 4u

struct ck_tower {
	uint64_t times[CK_TOWER_GROUPS];	/* that the parts of a group follow each other */
	struct {
		uint64_t weight, bias;	/* 0 = none */
		uint32_t group;		/* ascending */
	} part[CK_TOWER_PARTS];
	uint32_t n;
};

/* What the parameters of a decoder follow from. */
struct ck_shape {
	const char *type;	/* as model_type of config.json */
	uint64_t layers, hidden, inter, vocab, heads, kv_heads, head_dim;
	uint64_t positions;	/* rows of a learned position embedding, 0 = none */
	unsigned has;		/* CK_SHAPE_* */
	uint32_t norms;		/* in a layer */
	bool tied;
	struct ck_moe moe;
	struct ck_mla mla;
	struct ck_tower tower;
};

#define CK_SHAPE_GATED 1u
#define CK_SHAPE_RMS 2u
#define CK_SHAPE_QKV_BIAS 4u
#define CK_SHAPE_O_BIAS 8u
#define CK_SHAPE_MLP_BIAS 16u
#define CK_SHAPE_QK_NORM 32u		/* of a head */
#define CK_SHAPE_QK_NORM_ALL 64u	/* over all heads */
#define CK_SHAPE_BARE_NORM 128u		/* norms without parameters */
#define CK_SHAPE_FUSED_QKV 256u		/* one matrix */
#define CK_SHAPE_FUSED_GATE 512u

/* A model without parameters; 'what' is copied.  NULL without memory. */
struct ckpt_model *ck_model_new(const char *what);
/* CKPT_E_LIMIT above CK_MODEL_MAX elements in all. */
int ck_model_add(struct ckpt_model *model, const struct ck_param *param, struct ckpt_err *err);
/* Fix the parameters of the tower, so that the optimizer has the others alone. */
void ck_model_freeze_tower(struct ckpt_model *model);
bool ck_shape_has_experts(const struct ck_shape *shape, uint64_t layer);
/* All parameters of a shape; fills info.arch too. */
int ck_model_add_shape(struct ckpt_model *model, const struct ck_shape *shape,
		       struct ckpt_err *err);
void ck_model_take_arch(struct ckpt_model *model, const struct ck_shape *shape);
/* Fill the sums of 'info' from the parameters. */
void ck_model_sum(struct ckpt_model *model);
void ck_model_free(struct ckpt_model *model);

/* The members of a JSON object of config.json. */
struct ck_json;
struct ck_config {
	const struct ck_json *doc;
	uint64_t object;
	const char *path;
	struct ckpt_err *err;
};

uint64_t ck_cfg_find(const struct ck_config *c, const char *key);	/* UINT64_MAX */
/* 1 to 'most'; without the key 'otherwise', where 0 is "it must be there". */
int ck_cfg_number(const struct ck_config *c, const char *key, uint64_t otherwise,
		     uint64_t most, uint64_t *out);
bool ck_cfg_truth(const struct ck_config *c, const char *key, bool otherwise);
/*
 * Is 'type' a model with a vision tower?  Then '*text_out' is where its decoder is configured, of
 * the type that is returned (NULL = text_out says it), else NULL and UINT64_MAX.
 */
const char *ck_tower_find(const struct ck_config *root, const char *type, uint64_t *text_out,
			  const char **name_out);
int ck_tower_read(const struct ck_config *root, struct ck_shape *shape);
/* See ckpt_model_lora(). */
int ck_model_lora(struct ckpt_model *model, const char *text, struct ckpt_err *err);
/* The bit of the module that "...q_proj.lora_A.weight" is beside; 0: another module. */
unsigned ck_model_lora_of(const char *name);
/* Widths of what goes into adapters of a layer: their sum, and the largest; 0 without adapters. */
uint64_t ck_model_lora_inputs(const struct ckpt_model *model, uint64_t *widest_out);

int ck_shape_read(const char *path, struct ck_shape *out, struct ckpt_err *err);
int ck_model_count(uint64_t params, struct ckpt_model **out, struct ckpt_err *err);
int ck_model_named(const char *name, struct ckpt_model **out, struct ckpt_err *err);
int ck_model_index(const struct ck_index *ix, struct ckpt_model *model, struct ckpt_err *err);

#endif
