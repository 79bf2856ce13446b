/* ck_pt_save.h -- private to the writing side of formats/torch_pt: tensors as pickled calls. */
#ifndef CK_PT_SAVE_H
#define CK_PT_SAVE_H

#include "formats/torch_pt/ck_pt_plan.h"

struct ck_pt_saved {
	const struct ck_pt_want *want;
	uint64_t *bytes;	/* by storage: of its content */
	uint32_t *key;		/* by storage: its number in the archive, CK_NONE = none */
	uint32_t *order;	/* by number: the storage */
	uint32_t nkeys;
};

/* The pickle of want->root, and which storages it mentions in which order.  'bytes' is filled. */
int ck_pt_save(struct ck_pt_saved *saved, char **pickle_out, uint64_t *n_out,
	       struct ckpt_err *err);

/* The function of torch._utils by which a tensor of that type is written. */
const char *ck_pt_call_for(uint8_t dtype);

#endif
