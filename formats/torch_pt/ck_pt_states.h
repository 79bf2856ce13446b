/*
 * ck_pt_states.h -- the states of a torch optimizer, by the names of the parameters.
 *
 * Parameters have numbers in an optimizer's state dict, not names: 0, 1, ... over the groups, each
 * in the order in which they were given to it, which is that of model.parameters(): the order of
 * the state dict without its buffers and without second names of tied weights.
 */
#ifndef CK_PT_STATES_H
#define CK_PT_STATES_H

#include "formats/torch_pt/ck_pt_training.h"
#include "libckpt/format/ck_format.h"

/* Whose states are whose.  Arrays are in the arena that the call was given. */
struct ck_pt_owners {
	struct ck_val *const *group;	/* dictionaries of 'param_groups' */
	uint64_t ngroups;
	uint64_t n;			/* numbers that the groups list */
	uint64_t *first;		/* [ngroups + 1] of a group's, in their order */
	const struct ck_val **state;	/* [n] the states of the parameter, or NULL */
	uint32_t *param;		/* [n] the tensor */
	const uint8_t *role;		/* by tensor, as the caller says (ck_pt_given.h); or NULL */
	const char *why;		/* they are not assigned, and why: a clause; else NULL */
};

/*
 * The owners of the states of 't', whose model is in 'ix'.  n = 0 without an optimizer, or if it
 * has no states.  'in' says what the caller knows of them; NULL = nothing.  Of that
 * CKPT_E_MISMATCH for what does not fit the file, CKPT_E_USAGE if there are no states.
 */
int ck_pt_owners_find(const struct ck_pt *pt, const struct ck_pt_training *t,
		      const struct ck_index *ix, const struct ck_input *in, struct ck_arena *a,
		      struct ck_pt_owners *out, struct ckpt_err *err);

/*
 * Add the states to the parameters where it is certain whose they are, and say of those that they
 * are trained, and by which group; facts of the groups.  Else SUBTREE_CHOICE says that the states
 * are left out, and why.
 */
int ck_pt_owners_add(const struct ck_pt *pt, const struct ck_pt_owners *o, uint32_t source,
		     struct ck_index *ix, struct ck_findings *f, struct ckpt_err *err);

/* The first of a parameter's states that has another shape than 't'; NULL = none. */
const struct ck_tensor_ref *ck_pt_owners_misfit(const struct ck_val *state,
						const struct ck_tensor *t,
						const char **name_out);
/* Of a name: the length of what DistributedDataParallel and torch.compile put before it. */
size_t ck_pt_owners_wrapped(const char *name);
/* The count of steps of parameter number 'i'; false if it has none. */
bool ck_pt_owners_step(const struct ck_pt *pt, const struct ck_pt_owners *o, uint64_t i,
		       double *out);
/* Of a group: the greatest, and the least. */
bool ck_pt_owners_group_step(const struct ck_pt *pt, const struct ck_pt_owners *o, uint64_t group,
			     double *most, double *least);
/*
 * The values of a group without its parameters; a tensor of one number is that number.  NULL
 * without memory.
 */
struct ck_val *ck_pt_owners_hyper(const struct ck_pt *pt, const struct ck_pt_owners *o,
				  uint64_t group, struct ck_arena *a);

#endif
