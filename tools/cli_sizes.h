/* cli_sizes.h -- inspect --explain-size. */
#ifndef CLI_SIZES_H
#define CLI_SIZES_H

#include "cli.h"

/* What the bytes are for, as a table.  0, or the exit status after telling why not. */
int sizes_print(const struct args *args, struct ckpt *ck);
/* The same as member "sizes" of a result. */
int sizes_json(struct json *json, struct ckpt *ck);

#endif
