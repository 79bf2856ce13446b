/* op_verify.h -- the verbs `verify`, `audit` and `sizes`. */
#ifndef OP_VERIFY_H
#define OP_VERIFY_H

#include "libckpt/run/ck_ckpt.h"

/* As the functions of the API; options are complete copies, so each field may be read (ckpt.h). */
int ck_verify(struct ckpt *ck, const struct ckpt_verify_opts *opts, struct ckpt_verified *out,
	      struct ckpt_err *err);
int ck_audit(const struct ck_formats *formats, const char *const *paths, size_t npaths,
	     const struct ckpt_limits *limits, struct ckpt_audit *out, struct ckpt_err *err);
int ck_sizes(struct ckpt *ck, struct ckpt_sizes *out, struct ckpt_err *err);

#endif
