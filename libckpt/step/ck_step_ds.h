/*
 * ck_step_ds.h -- what a step of DeepSpeed has and FSDP has no place for: its configuration,
 * counts, loss scaler, the types of weights and masters.
 *
 * FSDP's forms carry it as one more value, a dictionary "deepspeed", which loaders do not ask for
 * and which makes the way back exact (docs/formats/dcp.md, 5.2).  Another program's step has no
 * such value: 'ds' is then NULL.
 */
#ifndef CK_STEP_DS_H
#define CK_STEP_DS_H

#include "libckpt/step/ck_step.h"
#include "libckpt/tensor/ck_index.h"

#define CK_STEP_DS_MOST_VALUES 100000u	/* in a value of the client */

/* ---- values ---- */

/*
 * Made of numbers, texts and containers alone, no more than CK_STEP_DS_MOST_VALUES: it needs no
 * class to be read.
 */
bool ck_step_ds_is_plain(const struct ck_val *v);
/* A key of DeepSpeed's model file.  A client's value of that name would be taken for it. */
bool ck_step_ds_is_reserved(const char *key);
/* The same, or one that zckpt writes itself: the value is not the client's. */
bool ck_step_ds_is_own(const char *key);
/* A value of a param group that is neither its parameters nor needs a class. */
bool ck_step_ds_is_hyper(const char *key, const struct ck_val *v);

/* ---- written ---- */

/*
 * The dictionary; NULL without memory.  'hyper' says which values of param groups the form has
 * itself; 'keeps_scheduler': the form has it elsewhere.
 */
struct ck_val *ck_step_ds_make(const struct ck_step *step, const struct ck_index *ix,
			       struct ck_arena *a,
			       bool (*hyper)(const char *key, const struct ck_val *v),
			       bool keeps_scheduler);

/* ---- read ---- */

/* Had the group itself this key, or was it added for torch?  True without a list of them. */
bool ck_step_ds_has_key(const struct ck_val *ds, uint32_t group, const char *key);
/* Its type "weight_dtype" or "master_dtype"; 0 = it says none. */
enum ckpt_dtype ck_step_ds_type(const struct ck_val *ds, const char *key);
/* Its configuration, counts and scheduler go into a dictionary, which has no such keys before. */
int ck_step_ds_model(const struct ck_val *ds, struct ck_arena *a, struct ck_val *model,
		     struct ckpt_err *err);
/* Those, and the loss scaler, go into the step, whose model is made. */
int ck_step_ds_fill(const struct ck_val *ds, struct ck_arena *a, struct ck_step *step,
		    struct ckpt_err *err);

#endif
