/* ds_driver.h -- private to formats/deepspeed: shards of a step, as formats/ds_pt reads them. */
#ifndef CK_DS_DRIVER_H
#define CK_DS_DRIVER_H

#include "formats/ds_pt/ck_ds.h"
#include "formats/ds_pt/ds_write.h"

int ck_ds_index_z12(struct ds_step *ds, struct ckpt_err *err);	/* ds_z12.c */
int ck_ds_index_z3(struct ds_step *ds, struct ckpt_err *err);	/* ds_z3.c */
int ck_ds_index_z0(struct ds_step *ds, struct ckpt_err *err);	/* ds_z0.c */
/* ds_twins.c: what is left to say of ranks that do not name themselves, once all is indexed. */
int ck_ds_tell_ranks(struct ds_step *ds, struct ckpt_err *err);
/* ds_from_z0.c: the optimizer's values of a step of stage 0, where its names follow. */
int ck_ds_join_z0(struct ck_step *step, struct ckpt_err *err);

/* ds_shards.c: slots of the driver (ck_format.h). */
int ck_ds_read_step(const struct ck_input *in, const struct ck_index *ix, struct ck_findings *f,
		    struct ck_step *out, struct ckpt_err *err);
int ck_ds_write_step(struct ck_step *step, const struct ck_index *ix,
		     const struct ck_reshard_want *want, struct ck_plan *plan,
		     struct ckpt_err *err);

extern const struct ck_format ck_format_deepspeed;

#endif
