/*
 * ck_pt_given.h -- private to formats/torch_pt: what a user says of a training file that names no
 * parameter: their names in the optimizer's order, and which tensors are none of its parameters.
 */
#ifndef CK_PT_GIVEN_H
#define CK_PT_GIVEN_H

#include "formats/torch_pt/ck_pt_states.h"

/* Does the caller say any of it? */
bool ck_pt_given_any(const struct ck_input *in);
/*
 * By tensor: CKPT_ROLE_FROZEN, CKPT_ROLE_BUFFER, or 0 = nothing is said of it; in 'a'.  NULL is
 * written if nothing is said at all.  CKPT_E_USAGE for a pattern that no tensor fits.
 */
int ck_pt_given_roles(const struct ck_input *in, const struct ck_index *ix, struct ck_arena *a,
		      uint8_t **role_out, struct ckpt_err *err);

/*
 * The parameters of 'o' by a list: names one a line, as ck_order_by_list() reads them; second names
 * of tied tensors mean the first.  'named': o->param is known already, and the list must agree.
 * CKPT_E_MISMATCH names both numbers and the first name that does not fit.
 */
int ck_pt_given_order(const struct ck_input *in, const struct ck_index *ix, struct ck_arena *a,
		      struct ck_pt_owners *o, bool named, struct ckpt_err *err);
/* Names in the file may contradict what the caller excludes: CKPT_E_MISMATCH. */
int ck_pt_given_check(const struct ck_index *ix, const struct ck_pt_owners *o,
		      struct ckpt_err *err);

#endif
