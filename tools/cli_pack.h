/* cli_pack.h -- what `zckpt pack` and `zckpt unpack` share. */
#ifndef CLI_PACK_H
#define CLI_PACK_H

#include "cli_verb.h"

extern const struct opt opts_pack[];

struct pack {
	struct verb verb;
	const char *name;	/* "pack" or "unpack" */
	struct ckpt_packed done;
};

/* "packed 12 files, 1.2 GB, to DST: ..." */
void pack_print(const struct verb *verb);
void pack_print_json(const struct verb *verb, int status);

#endif
