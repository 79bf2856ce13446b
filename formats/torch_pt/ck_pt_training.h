/*
 * ck_pt_training.h -- training files of torch: {"model": ..., "optimizer": ..., "epoch": ...}.
 *
 * No library prescribes them, but users, torchvision, timm, Lightning and others write the
 * same few keys.  The model's state dict is then an entry of the root, and its names are
 * wanted as they are, not as paths; moments are states of the parameters, no tensors.
 * docs/formats/torch.md has the rules.
 */
#ifndef CK_PT_TRAINING_H
#define CK_PT_TRAINING_H

#include "formats/torch_pt/ck_pt.h"

struct ck_pt_training {
	const char *key;		/* path of the entry that is taken, lent; NULL = the root */
	struct ck_val *model;		/* what is indexed */
	const struct ck_val *optimizer;	/* its state dict; or NULL */
};

/*
 * Choose what of 'pt' is the model.  With 'subtree' that entry, by its key or by keys joined
 * with dots; CKPT_E_USAGE if the file has no such entry.  Else the one entry of a known name
 * that is a state dict, where the root is no state dict itself.  Finding SUBTREE_CHOICE for
 * tensors that are left out, or where there are several and none is chosen.
 */
int ck_pt_training_choose(const struct ck_pt *pt, const char *subtree, struct ck_findings *f,
			  struct ck_pt_training *out, struct ckpt_err *err);

/* The state dict of one optimizer of torch.optim: 'state' and 'param_groups'. */
bool ck_pt_training_is_optimizer(const struct ck_val *v);
/* Does it have states that anyone could miss?  CKPT_E_NOMEM. */
int ck_pt_training_has_states(const struct ck_pt *pt, const struct ck_val *optimizer, bool *has_out,
			      struct ckpt_err *err);
/* The state dict of the scheduler, or NULL. */
const struct ck_val *ck_pt_training_scheduler(const struct ck_val *root);
/* Is the entry 'key' of the root neither the model's nor the optimizer's nor the scheduler's? */
bool ck_pt_training_is_client(const struct ck_pt_training *t, const char *key,
			      const struct ck_val *v);

#endif
