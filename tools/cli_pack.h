/* cli_pack.h -- what `zckpt pack` and `zckpt unpack` share. */
#ifndef CLI_PACK_H
#define CLI_PACK_H

#include "cli.h"

extern const struct opt opts_pack[];

/* "packed 12 files, 1.2 GB, to DST: ..." */
void pack_say(const struct args *args, const struct ckpt_packed *done, const char *what,
	      const char *dst);
void pack_json(const char *verb, int status, const char *dst, const struct ckpt_packed *done,
	       const struct ckpt_err *err);

#endif
