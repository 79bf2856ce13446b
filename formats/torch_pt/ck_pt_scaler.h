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

/*
 * Has it the values of GradScaler.state_dict(), and as torch has them?  That of one that is not
 * enabled is empty, and is none.
 */
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
/* Its five values, without others that the dictionary may have. */
struct ck_val *ck_pt_scaler_copy(const struct ck_val *grad, struct ck_arena *a);
/* The client's value that is one, or a name that one may have there; NULL: all are taken. */
const char *ck_pt_scaler_key(const struct ck_val *model);

/* What a GradScaler has in a step. */
struct ck_pt_scaled {
	struct ck_val *grad;	/* or NULL */
	const char *key;	/* as ck_pt_scaler_key() says */
	bool is_clients;	/* it is the client's value of that key */
	bool is_lost;		/* a scale that does not move, or has no count since an overflow */
};
/* The client's is what counts where the step's own scale is not that of a run in fp16. */
void ck_pt_scaler_of_step(const struct ck_step *step, struct ck_arena *a,
			  struct ck_pt_scaled *out);
#define CK_PT_SCALER_LOST \
	"the loss scale of fp16: it does not move, or has no count of steps since the last " \
	"overflow, and torch.amp's GradScaler begins with its own"

#endif
