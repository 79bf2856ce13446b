/*
 * ck_pkl_torch.h -- what torch.load(weights_only=True), the default since torch 2.6, would say
 * of a name or an opcode.  docs/formats/pickle.md has the rules.
 */
#ifndef CK_PKL_TORCH_H
#define CK_PKL_TORCH_H

#include "libckpt/base/ck_base.h"

enum ck_pkl_torch {
	CK_PKL_TORCH_ALLOWS = 1,
	CK_PKL_TORCH_ASKS,	/* add_safe_globals() must name it */
	CK_PKL_TORCH_NEVER,	/* its module cannot be allowed */
};

/* Names in Python 3's spelling, as ck_pkl_name has them. */
enum ck_pkl_torch ck_pkl_torch_of(const char *module, const char *name);
/* Whether torch's own unpickler knows the opcode: it takes those that torch.save writes. */
bool ck_pkl_torch_op(uint8_t op);

#endif
