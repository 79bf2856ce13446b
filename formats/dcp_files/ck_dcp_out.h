/*
 * ck_dcp_out.h -- the index of a folder of torch.distributed.checkpoint that is written: which
 * items it has, and where their archives are.  The archives themselves are the caller's.
 */
#ifndef CK_DCP_OUT_H
#define CK_DCP_OUT_H

#include "libckpt/format/ck_plan.h"
#include "libckpt/tensor/ck_val.h"

/* A block of a tensor, or a value: bytes [begin, begin + bytes) of a data file. */
struct ck_dcp_block {
	const uint64_t *offset, *size;	/* of a tensor: [ndim] */
	const char *file;		/* its name in the folder */
	uint64_t begin, bytes;
};

struct ck_dcp_listed {
	const char *name;		/* flat */
	struct ck_val *path;		/* a tuple; NULL in a folder without paths */
	const struct ck_dcp_block *block;
	uint64_t nblocks;
	const uint64_t *shape;
	uint32_t ndim;
	uint8_t dtype;
	bool is_tensor;
};

struct ck_dcp_meta {
	const char *name;		/* of the file in the plan */
	const struct ck_dcp_listed *item;
	uint64_t n;
	bool has_paths;			/* of all items, or of none */
	bool is_old;			/* the form that torch before 2.4 reads */
};

/* Append the file '.metadata' to the plan. */
int ck_dcp_meta_write(struct ck_plan *plan, const struct ck_dcp_meta *meta, struct ckpt_err *err);

#endif
