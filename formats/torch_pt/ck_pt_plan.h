/*
 * ck_pt_plan.h -- laying out torch files to be written: the archive of torch >= 2.7
 * (docs/formats/torch-zip.md, "Written").  Planning only.
 */
#ifndef CK_PT_PLAN_H
#define CK_PT_PLAN_H

#include "libckpt/format/ck_plan.h"
#include "libckpt/tensor/ck_val.h"

/* A run of bytes of a storage. */
struct ck_pt_piece {
	uint8_t kind;		/* enum ck_seg_kind */
	uint8_t dtype;		/* STATE, OWN: written so; CKPT_F4 goes into storages of F4X2 */
	uint32_t state;		/* STATE: in the index; OWN: in the plan's own */
	uint32_t slot;		/* STATE: digest it counts for, CK_NONE = none */
	uint64_t first, count;	/* STATE, OWN: elements.  FILE: bytes.  else: count of bytes */
	const void *text;	/* LITERAL: bytes; FILE: path */
};

struct ck_pt_part {
	uint8_t dtype;		/* of its elements, which every tensor on it has */
	const struct ck_pt_piece *piece;
	uint64_t npieces;
};

/* An archive. */
struct ck_pt_want {
	const struct ck_index *ix;
	const char *name;	/* of the file in the plan */
	const char *prefix;	/* of its records; NULL = the stem of 'name', as torch has it */
	/*
	 * What is saved.  Its tensors (ck_val_new_tensor(), or those that ck_pt_open() bound) name
	 * storages by their number in 'storage'; other persistent ids may not be in it.
	 */
	const struct ck_val *root;
	const struct ck_pt_part *storage;
	uint64_t nstorages;
	/*
	 * Behind what the file made last has, as one archive of a row, with the records alone that
	 * a reader needs; 'name' is then for messages.
	 */
	bool append;
};

/*
 * Append the file.  Storages are numbered by their first mention and written in that order; one
 * that no tensor mentions is not written.  The location is "cpu".  The same input gives
 * the same bytes.
 *	CKPT_E_USAGE        a tensor reaches beyond its storage, or has another type than it
 *	CKPT_E_UNSUPPORTED  a type that torch has not (6-bit floats), or cannot be written so
 *	                    (quantized); a persistent id; codes of ck_pkl_emit()
 *	CKPT_E_LIMIT, CKPT_E_NOMEM
 */
int ck_pt_plan_file(const struct ck_pt_want *want, struct ck_plan *plan, struct ckpt_err *err);

/*
 * A state dict: an OrderedDict of the items in their order, each in a storage of its own, then
 * the aliases, which share one.  One file named want->stem as it is.
 */
int ck_pt_plan(const struct ck_want *want, struct ck_plan *plan, struct ckpt_err *err);

#endif
