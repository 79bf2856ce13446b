/*
 * mg.h -- private to formats/megatron: a distributed checkpoint of Megatron-Core in memory
 * (docs/formats/megatron.md).
 *
 *	1 '.metadata' and the common state are read		mg_format.c, mg_common.c
 *	2 items become parameters and their states, by name	mg_items.c, mg_states.c
 *	3 states in buckets without names are found		ck_mg_buckets_find()
 *	4 parameters become targets: tensors of the index	ck_mg_names_make()
 *	5 the index gets each state of each target		mg_index.c
 *
 * Files belong to the index before step 2: mg->fs.ix->source[piece.extent.source].src reads them.
 */
#ifndef MG_H
#define MG_H

#include "formats/dcp_files/ck_dcp_files.h"
#include "libckpt/format/ck_values.h"

#define MG_COMMON "common.pt"

/* What an item of '.metadata' is. */
enum mg_use {
	MG_OTHER = 0,
	MG_WEIGHT,
	MG_BY_NAME,		/* a state of a parameter, by its name */
	MG_BUCKET,		/* of a buffer of the optimizer, without names */
	MG_SKIPPED,		/* _extra_state, rng_state: of no tensor of the model */
};

enum mg_which { MG_W, MG_MASTER, MG_EXP_AVG, MG_EXP_AVG_SQ, MG_STATES };

/* Of the optimizer: 'distrib_optim_sharding_type', or what the names of the items say. */
enum mg_layout {
	MG_NONE = 0,
	MG_FULLY_RESHARDABLE,
	MG_MODEL_SPACE,		/* fully_sharded_model_space */
	MG_DP_RESHARDABLE,
	MG_ZERO_GATHER,		/* dp_zero_gather_scatter */
	MG_REPLICATED,		/* no distributed optimizer */
};

/*
 * Elements [first, first + count) of a block, row-major in the block, in coordinates of the
 * parameter; offset NULL = the whole parameter.
 */
struct mg_piece {
	const uint64_t *offset, *size;	/* [ndim of the parameter] */
	uint64_t first, count;
	struct ck_extent extent;	/* where: off, source, member, view, rank, dtype, flags */
};

struct mg_state {
	const struct dcp_item *item;	/* that it is read from, or NULL: from several */
	struct mg_piece *piece;
	uint64_t n, cap;
	uint8_t dtype;			/* enum ckpt_dtype; 0 = there is no such state */
};

/* A tensor under the model's own key: of all layers, where Megatron-Core stacks them. */
struct mg_param {
	const char *key;		/* "decoder.layers.mlp.linear_fc1.weight" */
	const uint64_t *shape;
	uint32_t ndim;
	uint8_t dtype;			/* of the weight */
	uint64_t numel;
	const struct dcp_item *item;	/* of the weight */
	const char *no_states;		/* why states are left out (a clause), or NULL */
	bool has_some_states;		/* of some blocks only: other targets have no states */
	int32_t group;			/* of the optimizer; -1 = not known */
	struct mg_state state[MG_STATES];
};

/* Elements offset[d] .. offset[d] + size[d] - 1 of a parameter. */
struct mg_box {
	const uint64_t *offset, *size;	/* [ndim of the parameter] */
};

/* A tensor of the index: boxes of one parameter, one after the other. */
struct mg_target {
	const char *name;
	const uint64_t *shape;
	uint32_t ndim;
	uint64_t param;			/* number in mg->param */
	struct mg_box *box;		/* NULL: the parameter as a whole */
	uint64_t nboxes;
};

/* Sizes; 0 = not known.  From the args of the run, and config.json. */
struct mg_model {
	uint64_t layers, hidden, heads, groups, head_size, ffn;
	uint64_t experts, expert_ffn, shared_ffn;
	uint64_t vocab, padded_vocab;
	uint64_t tp, pp, vpp, ep, etp, cp, dp, world;
	bool has_args;
	bool tied, knows_tied;		/* the head is the embedding */
	bool swiglu, grouped;		/* moe_grouped_gemm */
	const char *family;		/* "llama", ...: model_type of config.json, or NULL */
};

struct mg {
	struct dcp_files fs;
	struct dcp_value common_file;	/* common.pt, open; or zeroed */
	const struct ck_val *common;	/* dictionary */
	const struct ck_val *args;	/* attributes of the Namespace, a dictionary; or NULL */
	const struct ck_val *content;	/* content_metadata, or NULL */
	const struct ck_val *mcore_data;	/* dictionary, or NULL */
	bool has_common_item;		/* the common state is an item: 0.19 and later */
	bool is_mcore_class;		/* '.metadata' is of Megatron-Core's own class: 0.15 */
	struct mg_model model;
	enum mg_layout layout;
	struct mg_param *param;
	uint64_t nparams, param_cap;
	struct ck_map by_key;		/* key -> number in 'param' */
	struct mg_target *target;
	uint64_t ntargets, target_cap;
	bool is_native;			/* names and shapes of Megatron-Core */
	uint32_t ngroups;
};

extern const struct ck_format ck_format_megatron;

/* ---- mg_common.c ---- */

/* The common state and the sizes in its args; one that is missing is a finding. */
int ck_mg_common_read(struct mg *mg, struct ckpt_err *err);
/* That of an item, as 0.19 writes it; or NULL. */
const struct ck_val *ck_mg_common_in_items(const struct mg *mg);

/* ---- mg_groups.c ---- */

/* A list of the param groups of all optimizers; NULL without memory. */
struct ck_val *ck_mg_groups(struct mg *mg);

/* ---- mg_values.c ---- */

/* The driver's values(). */
int ck_mg_values(const struct ck_index *ix, const struct ckpt_limits *limits, uint32_t rank,
		 struct ck_values *out, struct ckpt_err *err);

/* ---- mg_format.c ---- */

void ck_mg_release(struct mg *mg);

/* ---- mg_items.c ---- */

/* What each item is; parameters with their weights; the layout of the optimizer. */
int ck_mg_items_find(struct mg *mg, struct ckpt_err *err);
/* Compare the parameters with the sizes in the args. */
int ck_mg_items_check(struct mg *mg, struct ckpt_err *err);
/* The chunks of an item of the parameter's shape. */
int ck_mg_chunks_add(struct mg *mg, struct mg_param *p, enum mg_which which,
		     const struct dcp_item *it, struct ckpt_err *err);

/* ---- mg_states.c ---- */

/* States that have names. */
int ck_mg_states_find(struct mg *mg, struct ckpt_err *err);
/* Where the elements of a chunk are. */
struct ck_extent ck_mg_extent(const struct mg *mg, const struct dcp_item *it,
			      const struct dcp_chunk *c);

/* ---- mg_shifted.c ---- */

/* Leave out states that the writer has shifted. */
int ck_mg_shifted_find(struct mg *mg, struct ckpt_err *err);

/* ---- mg_index.c ---- */

int ck_mg_index_fill(struct mg *mg, struct ckpt_err *err);

/* ---- mg_param.c ---- */

/* NULL: there is no such parameter. */
struct mg_param *ck_mg_param_find(const struct mg *mg, const char *key);
/*
 * One more piece of a state; numbers are copied.  A state's first piece decides its type.  Whether
 * pieces cover the parameter is checked when the index is filled.
 */
int ck_mg_piece_add(struct mg *mg, struct mg_param *p, enum mg_which which,
		    const struct mg_piece *piece, struct ckpt_err *err);
/* All pieces of a state, begun as a tensor of the parameter's shape. */
int ck_mg_state_tiles(struct mg *mg, const struct mg_param *p, enum mg_which which,
		      struct ck_tiles *out, struct ckpt_err *err);
/* Name, shape and boxes are copied; without boxes it is the whole parameter. */
int ck_mg_target_add(struct mg *mg, const char *name, const uint64_t *shape, uint32_t ndim,
		     uint64_t param, const struct mg_box *box, uint64_t nboxes,
		     struct ckpt_err *err);

/* ---- mg_second.c ---- */

/* Leave out an item that is a copy of another, under the key that other layers have for it. */
int ck_mg_second_find(struct mg *mg, struct ckpt_err *err);

/* ---- mg_buckets.c ---- */

/* Fill states from the items MG_BUCKET, by content; what remains unknown is a finding. */
int ck_mg_buckets_find(struct mg *mg, struct ckpt_err *err);

/* ---- mg_names.c ---- */

/* Fill mg->target as in->names, in->model_config and in->vocab_size ask. */
int ck_mg_names_make(struct mg *mg, struct ckpt_err *err);

#endif
