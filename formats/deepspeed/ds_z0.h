/*
 * ds_z0.h -- private to ds_z0.c and ds_z0_match.c: the optimizer of a step of stage 0.
 *
 * ds_z0.c collects its places (a place is what an optimizer keeps for one parameter), the other
 * finds the parameter of each, and ds_z0.c adds the states.
 */
#ifndef CK_DS_Z0_H
#define CK_DS_Z0_H

#include "formats/deepspeed/ds_driver.h"
#include "libckpt/base/ck_hash.h"

enum z0_form {
	Z0_TORCH,	/* a bare torch optimizer: the weights are the masters */
	Z0_WHOLE,	/* fp32_groups: a master for each parameter */
	Z0_FLAT,	/* fp32_groups_flat: one for each group */
};

/* A parameter that may be trained, and its stored weight, looked at once. */
struct z0_param {
	uint32_t tensor;
	struct ds_slice weight;
	struct ck_hash128 hash;	/* of its first 'prefix' elements */
	uint64_t prefix;
	bool readable;
	bool unknown;		/* strided or deflated: not looked at */
	bool taken;
};

struct z0_place {
	const struct ck_tensor_ref *like;	/* a tensor of the parameter's shape, or NULL */
	struct ds_slice master;		/* dtype 0 = there is none */
	uint64_t at;			/* of a flat master: its first element */
	const struct ck_val *state;	/* its entry in the optimizer's 'state', or NULL */
	uint32_t param;			/* in z0->param; CK_NONE = not known */
};

struct z0_group {
	struct z0_place *place;	/* of a flat group: a run of the pool, once one is taken */
	uint32_t nplaces;
	struct ds_slice flat;
	const struct ck_val *state;	/* of the flat master */
	const struct ck_val *names;	/* param_names, or NULL */
};

/* A state that the index does not take. */
struct z0_left {
	const char *name, *first;	/* the first parameter that has it */
	uint64_t params;
};

struct z0 {
	struct ds_step *ds;
	struct ds_file *file;
	enum z0_form form;
	const struct ck_val *torch_groups;	/* the torch optimizer's 'param_groups' */
	struct ck_val *const *state;	/* and 'state' */
	struct ck_map by_key;		/* the 8 bytes of a key -> pair in 'state' */
	struct z0_param *param;		/* in the order of 'module' */
	uint32_t nparams;
	struct z0_group *group;
	uint32_t ngroups;
	uint64_t room;			/* for further places */
	struct z0_place *pool;		/* of flat groups: they are filled one after the other */
	uint32_t npool;
	struct z0_left left[DS_MAX_STATES];
	uint32_t nleft;
};

/* Look at every weight. */
void ck_z0_read_weights(struct z0 *z);
/* Find the parameter of every place; those that cannot be told stay CK_NONE. */
int ck_z0_match(struct z0 *z, struct ckpt_err *err);

#endif
