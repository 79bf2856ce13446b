/* op_reshard.h -- the verbs `reshard` and `shard`. */
#ifndef OP_RESHARD_H
#define OP_RESHARD_H

#include "libckpt/run/ck_ckpt.h"

/* As the functions of the API; options are complete copies, so each field may be read (ckpt.h). */
int ck_reshard(struct ckpt *ck, const char *dst, const struct ckpt_reshard_opts *opts,
	       struct ckpt_report *report_out, struct ckpt_err *err);
int ck_shard(struct ckpt *ck, const char *dst, const struct ckpt_shard_opts *opts,
	     struct ckpt_report *report_out, struct ckpt_err *err);

#endif
