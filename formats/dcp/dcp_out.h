/*
 * dcp_out.h -- private to formats/dcp: what a folder is to have, before it is laid out in files.
 */
#ifndef DCP_OUT_H
#define DCP_OUT_H

#include "formats/dcp/dcp.h"
#include "libckpt/format/ck_plan.h"
#include "libckpt/step/ck_step.h"

/* The archive of a block, or of a value: bytes [begin, begin + bytes) of a rank's file. */
struct dcp_spot {
	uint32_t rank;
	uint64_t row, rows;	/* of a tensor: of its first dimension */
	uint64_t begin, bytes;
	const struct dcp_chunk *from;	/* of one that is copied: the block of the source */
};

struct dcp_entry {
	const char *name;	/* flat */
	struct ck_val *path;	/* tuple */
	struct ck_val *value;	/* of one that is no tensor, and not copied */
	uint8_t dtype;
	uint32_t ndim;
	const uint64_t *shape;
	uint32_t state;		/* of the index; CK_NONE: 'number' is the only element, F32 */
	float number;
	struct dcp_spot *spot;	/* as many as there are blocks */
	uint64_t nspots;
	bool is_tensor;
	bool is_copied;		/* an item of the source as it is */
	bool is_client;
	uint8_t part;		/* folder that it goes into */
};


struct dcp_out {
	struct ck_step *step;
	const struct ck_index *ix;
	const struct ck_reshard_want *want;
	struct ck_plan *plan;
	const char *tag;
	uint32_t world;
	struct ck_arena *arena;		/* the step's */
	struct dcp_entry *entry;
	uint64_t n, cap;
	struct ck_map by_name;
	const char *model;	/* that names of the model begin with: "model."; "" = nothing */
	const char *optim;	/* "optimizer." */
	bool flat;		/* states and values of the optimizer are flat, as torchtitan's */
	bool is_old;		/* the form that torch before 2.4 reads */
	bool is_split;		/* as accelerate: a folder for the model, one for the optimizer */
	struct ck_val **groups;	/* is_old: a dictionary of each param group */
	const struct dcp *source;	/* of a step that is a DCP folder itself, or NULL */
};

/* ---- dcp_entries.c ---- */

/* Everything that the folder has, by names. */
int ck_dcp_entries_make(struct dcp_out *o, struct ckpt_err *err);

/* Of a client's second item of the same name CK_FINDING_NOT_CARRIED remains. */
int ck_dcp_add(struct dcp_out *o, const struct dcp_entry *e, struct ckpt_err *err);
int ck_dcp_add_value(struct dcp_out *o, const char *name, struct ck_val *path,
		     const struct ck_val *v, bool is_client, struct ckpt_err *err);
/* Steps of a path: those of "a.b." first, then up to three; and a path with one more step. */
struct ck_val *ck_dcp_path(struct dcp_out *o, const char *begin, const char *const *step,
			   size_t n);
struct ck_val *ck_dcp_path_add(struct dcp_out *o, const struct ck_val *path, struct ck_val *step);

/* ---- dcp_write_client.c ---- */

int ck_dcp_clients_add(struct dcp_out *o, struct ckpt_err *err);
/* Is it the state of a scheduler of torch?  Those of DeepSpeed have another form. */
bool ck_dcp_is_scheduler(const struct ck_val *v);

/* ---- dcp_layout.c ---- */

/* What 'want' says of boxes and folders, or the source, or the usual ones. */
int ck_dcp_layout_choose(struct dcp_out *o, struct ckpt_err *err);
/* Folder of a part in the step's: "", or with '/' at its end. */
const char *ck_dcp_layout_folder(const struct dcp_out *o, uint8_t part);

/* ---- dcp_list.c ---- */

/* '.metadata' of a part, a file of the plan, once every spot has its place. */
int ck_dcp_list_write(struct dcp_out *o, uint8_t part, struct ckpt_err *err);

#endif
