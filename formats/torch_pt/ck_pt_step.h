/* ck_pt_step.h -- private to formats/torch_pt: a training file as a step of a run. */
#ifndef CK_PT_STEP_H
#define CK_PT_STEP_H

#include "formats/torch_pt/ck_pt_states.h"
#include "libckpt/format/ck_format.h"

/* What index() has read and read_step() needs. */
struct ck_pt_read {
	struct ck_pt *pt;
	struct ck_pt_training t;
	struct ck_pt_owners owners;
	struct ck_arena arena;
};

void ck_pt_read_free(void *read);

/*
 * The model's tensors under names without 'module.' and '_orig_mod.', if all have them: those of
 * DistributedDataParallel and torch.compile are no part of the model.  A NULL prefix: they stay.
 */
int ck_pt_read_names(struct ck_pt_read *r, const char **prefix_out, struct ckpt_err *err);

/* The driver's read_step() and values(). */
int ck_pt_read_step(const struct ck_input *in, const struct ck_index *ix, struct ck_findings *f,
		    struct ck_step *out, struct ckpt_err *err);
int ck_pt_values(const struct ck_index *ix, const struct ckpt_limits *limits, uint32_t rank,
		 struct ck_values *out, struct ckpt_err *err);

#endif
