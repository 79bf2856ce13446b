/* ck_pt_slim.h -- private to slimming a torch file: its live tensors, and the cut storages. */
#ifndef CK_PT_SLIM_H
#define CK_PT_SLIM_H

#include "formats/torch_pt/ck_pt_plan.h"
#include "formats/torch_pt/ck_pt_priv.h"
#include "libckpt/format/ck_slim_file.h"

/* The values of a tree, each once; what is inside of tensors is not entered. */
struct pt_walk {
	struct ck_arena *arena;	/* of the tree */
	struct ck_val **node;
	uint64_t n, cap;
};

/* A file in the making.  The value tree is edited in place: nobody else has it. */
struct pt_slim {
	const struct ck_slim_want *want;
	struct ck_pt *pt;
	struct ck_plan *plan;
	struct ck_arena arena;
	struct pt_walk walk;
	struct ck_tensor_ref **ref;	/* live tensors, by storage and place */
	uint64_t nrefs;
	struct ck_pt_part *part;	/* by storage */
	struct ck_slim_saved saved;
};

/* ck_pt_cut.c: list s->ref anew; '*bytes_out' is what their storages have. */
int ck_pt_live(struct pt_slim *s, uint64_t *bytes_out, struct ckpt_err *err);
/* NULL, or why the file cannot be written anew without losing something. */
const char *ck_pt_hinders(const struct pt_slim *s);
/*
 * Fill s->part with what of each storage is used and change the tensors to match;
 * s->saved.views is what is not.
 */
int ck_pt_cut(struct pt_slim *s, struct ckpt_err *err);

/* The driver's slot (ck_format.h). */
int ck_pt_slim(const struct ck_slim_want *want, struct ck_plan *plan,
	       struct ck_slim_saved *saved_out, struct ckpt_err *err);

#endif
