/* cli_sizes.h -- inspect --explain-size. */
#ifndef CLI_SIZES_H
#define CLI_SIZES_H

#include "cli.h"

/* What the bytes are for: one line, then a table.  0, or the exit status after saying why not. */
int sizes_print(struct ckpt *ck);
/* The same as member "sizes" of a result. */
int sizes_json(struct json *json, struct ckpt *ck);
/* "master of trainable tensors", "padding of optimizer states": a part's row.  cli_free(). */
char *sizes_label(const struct ckpt_size *part);

#endif
