/*
 * ck_dcp_files.h -- the files of torch.distributed.checkpoint in memory (docs/formats/dcp.md):
 * folders of DCP itself and of Megatron-Core have them.
 *
 * '.metadata' lists items by flat names: a tensor has chunks, another value is one pickle; each of
 * these is an archive of torch.save in a data file.
 */
#ifndef CK_DCP_FILES_H
#define CK_DCP_FILES_H

#include <pthread.h>

#include "formats/torch_pt/ck_pt.h"
#include "libckpt/step/ck_step_find.h"
#include "libckpt/tensor/ck_block.h"
#include "libckpt/zip/ck_zip_row.h"

#define DCP_METADATA ".metadata"
#define DCP_PARTS 2

/* An archive in a data file. */
struct dcp_place {
	uint32_t file;		/* CK_NONE: '.metadata' does not say where */
	uint64_t begin, bytes;
	bool is_named;		/* by a block */
};

/* A block of a tensor. */
struct dcp_chunk {
	const uint64_t *offset, *size;	/* [ndim of its item] */
	uint64_t numel;
	struct dcp_place at;
	uint64_t data;		/* byte of its elements in the file; once 'is_read' */
	uint32_t crc;		/* of them, as the archive says; 0 = it says nothing */
	bool is_varied;		/* its first elements are not all the same */
	bool is_read;
};

/* An open archive. */
struct dcp_value {
	struct ck_zip_part bytes;
	struct ck_src *src;
	struct ck_pt *pt;
};

struct dcp_item {
	const char *flat;	/* in '.metadata' */
	const char *box;	/* what contains it: "model"; "" = the root */
	const char *key;	/* its name in there */
	const struct ck_val *path;	/* of planner_data: a tuple, or NULL */
	uint64_t order;		/* there: that of the state dict */
	uint32_t part;
	bool is_tensor;
	uint8_t dtype;		/* enum ckpt_dtype */
	bool has_number;
	uint32_t ndim;
	const uint64_t *shape;
	uint64_t numel;
	struct dcp_chunk *chunk;	/* a value that is no tensor has one */
	uint64_t nchunks;
	struct dcp_value *value;	/* of one that is no tensor */
	double number;		/* of a tensor of one element */
	int64_t whole;		/* the same, where its type is of integers */
	/* The driver's: 0 and NULL until it has looked at the name. */
	uint8_t use;		/* what the item is */
	const char *name;	/* the parameter whose it is, without wrappers */
	const char *state;	/* which state of it: "exp_avg" */
	uint8_t which;		/* the same as a number of the driver's */
};

struct dcp_file {
	const char *name;	/* in the step's folder */
	const char *path;
	struct ck_src *src;	/* until the index has it; NULL = missing */
	uint64_t bytes;
	int32_t rank;		/* by its name; -1 = none */
	uint32_t source;	/* of the index */
	uint64_t items;		/* that are in it */
};

/* A folder with a '.metadata'. */
struct dcp_part {
	const char *sub;	/* its folder in the step; "" = the step's own */
	const char *path;	/* of its '.metadata' */
	struct ck_tree tree;
	struct ck_pkl doc;
	struct ck_src *src;	/* of '.metadata', until the index has it */
	uint64_t bytes;
	struct ck_map by_place;	/* name and offsets of a chunk -> number in 'place' */
	struct dcp_place *place;
	uint64_t nplaces, place_cap;
};

struct dcp_files {
	const struct ck_input *in;
	struct ck_index *ix;
	struct ck_findings *f;
	struct ck_arena arena;
	struct ck_step_place at;
	struct dcp_part part[DCP_PARTS];
	uint32_t nparts;
	struct dcp_item *item;
	uint64_t nitems, item_cap;
	struct ck_map by_flat;	/* part and flat name -> item */
	struct dcp_file *file;
	uint64_t nfiles, file_cap;
	struct ck_map by_file;	/* name -> file */
	bool is_old;		/* the form of torch before 2.4 */
	pthread_mutex_t lock;	/* of 'f' and 'held', while items are read */
	uint64_t held;		/* bytes of the values that are open */
};

/* ---- dcp_files.c ---- */

/* Nothing is read yet; '*fs' is zeroed. */
void ck_dcp_files_init(struct dcp_files *fs, const struct ck_input *in, struct ck_index *ix,
		       struct ck_findings *f);
void ck_dcp_files_release(struct dcp_files *fs);

/*
 * Read '.metadata' in 'sub' of the step's folder ("" = in itself), whose place is found.  One that
 * is missing is a finding.
 */
int ck_dcp_part_open(struct dcp_files *fs, const char *sub, struct ckpt_err *err);
/* The index gets the files, in order, and closes them. */
int ck_dcp_files_give(struct dcp_files *fs, struct ckpt_err *err);
/* Ranks, by the names of the files. */
uint32_t ck_dcp_files_world(const struct dcp_files *fs);

/*
 * Of an index that has the files: read '.metadata' again, and lend the open files until
 * ck_dcp_files_give_back().  'sub_of' says in which folder of the step a path is.
 */
int ck_dcp_files_lend(struct dcp_files *fs, const struct ck_index *ix,
		      const char *(*sub_of)(struct dcp_files *fs, const char *path),
		      struct ckpt_err *err);
void ck_dcp_files_give_back(struct dcp_files *fs);

/* ---- dcp_meta.c ---- */

/* Read '.metadata' of a part: its items and the places of their chunks.  Reads no data file. */
int ck_dcp_meta_read(struct dcp_files *fs, struct dcp_part *part, struct ckpt_err *err);
/* The attributes of an object, or NULL. */
const struct ck_val *ck_dcp_state_of(const struct ck_val *v);
/* Numbers that are 0 or more, as torch.Size and tuples have them. */
bool ck_dcp_sizes_of(struct dcp_files *fs, const struct ck_val *v, const uint64_t **out,
		     uint64_t *n_out);

/* ---- dcp_items.c ---- */

/* Open the data files, then look at each archive that an item names, by threads. */
int ck_dcp_items_read(struct dcp_files *fs, struct ckpt_err *err);
/* Of files that are open: only values, and tensors of one element. */
int ck_dcp_values_read(struct dcp_files *fs, struct ckpt_err *err);
/* What the archive of a value is; NULL if it could not be read, or it is a tensor. */
const struct ck_val *ck_dcp_value_of(const struct dcp_item *it);
/* NULL is fine. */
void ck_dcp_value_close(struct dcp_value *v);

#endif
