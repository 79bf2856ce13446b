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
};

struct ckpt_model {
	struct ck_arena arena;
	struct ck_param *param;
	uint64_t n, cap;
	uint64_t total;		/* elements so far */
	uint32_t modules;
	struct ckpt_model_info info;
};

/* What the parameters of a decoder follow from. */
struct ck_shape {
	const char *type;	/* as model_type of config.json */
	uint64_t layers, hidden, inter, vocab, heads, kv_heads, head_dim;
	uint64_t positions;	/* rows of a learned position embedding, 0 = none */
	unsigned has;		/* CK_SHAPE_* */
	uint32_t norms;		/* in a layer */
	bool tied;
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
/* All parameters of a shape; fills info.arch too. */
int ck_model_add_shape(struct ckpt_model *model, const struct ck_shape *shape,
		       struct ckpt_err *err);
void ck_model_take_arch(struct ckpt_model *model, const struct ck_shape *shape);
/* Fill the sums of 'info' from the parameters. */
void ck_model_sum(struct ckpt_model *model);
void ck_model_free(struct ckpt_model *model);

int ck_shape_read(const char *path, struct ck_shape *out, struct ckpt_err *err);
int ck_model_count(uint64_t params, struct ckpt_model **out, struct ckpt_err *err);
int ck_model_named(const char *name, struct ckpt_model **out, struct ckpt_err *err);
int ck_model_index(const struct ck_index *ix, struct ckpt_model *model, struct ckpt_err *err);

#endif
