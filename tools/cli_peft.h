/* cli_peft.h -- options of `zckpt convert` that are of LoRA adapters. */
#ifndef CLI_PEFT_H
#define CLI_PEFT_H

#include "cli.h"

extern const struct opt opts_peft[];

/* --merge-lora, or NULL. */
const char *peft_base(void);
/* Without these two: 0, or the status of a call that has options which go with them. */
int peft_unused(const struct command *cmd);
/*
 * Fills 'out'; with --merge-lora 'adapter' becomes what 'sources' was, and 'sources' the base.  0,
 * or the status of a wrong call.
 */
int peft_take(const struct command *cmd, struct ckpt_peft_opts *out, struct words *sources,
	      struct words *adapter);

#endif
