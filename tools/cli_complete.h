/* cli_complete.h -- `zckpt __complete`, which the completions of shells call. */
#ifndef CLI_COMPLETE_H
#define CLI_COMPLETE_H

#include "cli.h"

/* What may be the last word of 'argv' (without the program and "__complete"), on stdout. */
int cli_complete(const struct command *const *commands, size_t n, int argc, char **argv);

#endif
