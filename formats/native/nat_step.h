/* nat_step.h -- private to formats/native: its steps as the driver reads and writes them. */
#ifndef CK_NAT_STEP_H
#define CK_NAT_STEP_H

#include "formats/ds_pt/ck_ds.h"
#include "formats/ds_pt/ds_write.h"

/* nat_write.c: a slot of the driver (ck_format.h). */
int ck_nat_write_step(struct ck_step *step, const struct ck_index *ix,
		      const struct ck_reshard_want *want, struct ck_plan *plan,
		      struct ckpt_err *err);

extern const struct ck_format ck_format_native;

#endif
