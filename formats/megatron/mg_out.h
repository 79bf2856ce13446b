/*
 * mg_out.h -- private to formats/megatron: a model of transformers that is written as a checkpoint
 * of Megatron-Core (docs/formats/megatron.md, "Written").
 *
 *	1 config.json chooses a table of names, and gives its sizes	mg_write.c
 *	2 each line of the table becomes tensors of Megatron's		mg_out_list.c
 *	3 their blocks go into data files				mg_out_files.c
 *	4 the arguments that such a run would have			mg_out_args.c
 */
#ifndef MG_OUT_H
#define MG_OUT_H

#include "formats/dcp_files/ck_dcp_out.h"
#include "formats/megatron/mg_sizes.h"
#include "libckpt/format/ck_format.h"

#define MG_OUT_STEP "release"
#define MG_OUT_ALL UINT64_MAX
#define MG_OUT_AXES (MG_MAP_AXES + 2)

/* A tensor of Megatron's: of all layers and experts, or of one layer. */
struct mg_out_tensor {
	const struct mg_map_tensor *t;
	const char *key;
	const char *second;		/* another key, for a copy; or NULL */
	uint64_t layer;			/* that it is of; MG_OUT_ALL: all layers, or it has none */
	uint64_t shape[MG_OUT_AXES];
	uint32_t ndim, lead;		/* axes; those for layer and expert */
	uint64_t groups, row;		/* of rows; elements of a row */
	uint64_t rows[8];		/* of a group, by part */
	uint64_t padded;		/* rows after those of the last part */
	uint8_t dtype;
};

struct mg_out {
	const struct ck_index *ix;
	const struct ck_model_want *want;
	struct ck_plan *plan;
	struct ck_arena *arena;		/* the plan's */
	struct mg_map map;
	struct mg_sizes sizes;
	struct mg_config config;
	bool stacked;			/* layers are alike: an axis of each tensor */
	struct mg_out_tensor *tensor;
	uint64_t n, cap;
	struct ck_map by_name;		/* of transformers -> number in 'tensor' */
	uint64_t vocab, padded_vocab;
};

/* ---- mg_write.c ---- */

/* The driver's write_model(). */
int ck_mg_write_model(const struct ck_index *ix, const struct ck_model_want *want,
		      struct ck_plan *plan, struct ckpt_err *err);

/* ---- mg_out_list.c ---- */

/* Fill 'tensor': every tensor of the index is in it once, and every one that the model has. */
int ck_mg_out_list(struct mg_out *o, struct ckpt_err *err);
/* "a.{L}.b.{E}.c" with these numbers; without a part whose number is MG_OUT_ALL. */
const char *ck_mg_out_name(struct ck_arena *arena, const char *pattern, uint64_t layer,
			   uint64_t expert);
/* State of the index that a part of a tensor is. */
int ck_mg_out_state(const struct mg_out *o, const struct mg_out_tensor *t, uint64_t part,
		    uint64_t layer, uint64_t expert, uint32_t *state_out, struct ckpt_err *err);

/* ---- mg_out_files.c ---- */

/* Data files and '.metadata'. */
int ck_mg_out_files(struct mg_out *o, struct ckpt_err *err);

/* ---- mg_out_args.c ---- */

/* What common.pt has: a dictionary. */
int ck_mg_out_common(struct mg_out *o, struct ck_val **out, struct ckpt_err *err);

#endif
