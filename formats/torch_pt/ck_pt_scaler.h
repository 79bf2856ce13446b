/*
 * ck_pt_scaler.h -- of formats/torch_pt and formats/hf_sharded: the loss scale of fp16, between
 * torch.amp's GradScaler and DeepSpeed's DynamicLossScaler.
 *
 * Both double the scale after so many steps without an overflow.  torch counts those steps;
 * DeepSpeed counts all, and keeps the number of the last that overflowed.
 */
#ifndef CK_PT_SCALER_H
#define CK_PT_SCALER_H

#include "libckpt/base/ck_mem.h"
#include "libckpt/step/ck_step.h"
#include "libckpt/tensor/ck_val.h"

/* Is it GradScaler.state_dict()?  That of one that is not enabled is empty, and is none. */
bool ck_pt_scaler_is_grad(const struct ck_val *v);
/* GradScaler.state_dict() of an entry of the root, by its keys, and the entry's name; or NULL. */
const struct ck_val *ck_pt_scaler_find(const struct ck_val *root, const char **key_out);
/* Is it one whose scale does not rise and fall by the same factor, as DeepSpeed's does? */
bool ck_pt_scaler_is_uneven(const struct ck_val *grad);
/*
 * DeepSpeed's attributes after 'steps' steps.  Without a GradScaler (NULL) those that DeepSpeed
 * begins with: from 2^16, doubled after 1000 steps, halved at the second overflow.  NULL without
 * memory.
 */
struct ck_val *ck_pt_scaler_state(const struct ck_val *grad, int64_t steps, struct ck_arena *a);
/* And back: GradScaler's, of 'state'; NULL if it has no window, or without memory. */
struct ck_val *ck_pt_scaler_grad(const struct ck_val *state, struct ck_arena *a);
/*
 * What a GradScaler has in a step, or NULL: none, or a scale without a count of steps since the
 * last overflow ('lost_out').  'key_out' is the client's value that is one, or NULL.  That is
 * what counts where the source's own scale is not that of a run in fp16.
 */
const struct ck_val *ck_pt_scaler_of_step(const struct ck_step *step, struct ck_arena *a,
					  const char **key_out, bool *lost_out);

#endif
