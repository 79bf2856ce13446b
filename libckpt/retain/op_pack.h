/* op_pack.h -- the verbs `pack` and `unpack`. */
#ifndef OP_PACK_H
#define OP_PACK_H

#include "libckpt/run/ck_ckpt.h"

/* As the functions of the API; options are complete copies, so each field may be read (ckpt.h). */
int ck_pack_step(struct ckpt *ck, const char *dst, const struct ckpt_pack_opts *opts,
		 struct ckpt_packed *packed_out, struct ckpt_err *err);
int ck_unpack_archive(const struct ck_archive_format *driver, const char *path, const char *dst,
		      const struct ckpt_unpack_opts *opts, struct ckpt_packed *packed_out,
		      struct ckpt_err *err);

#endif
