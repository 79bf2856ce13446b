/* cli_meant.h -- calls of commands that zckpt does not have, and what was meant. */
#ifndef CLI_MEANT_H
#define CLI_MEANT_H

#include "cli.h"

/* What others call it: the verb that was meant by the word, or NULL. */
const char *meant_verb(const struct args *args, const char *word);
/* The call in which that verb is in place of the first word. */
char *meant_call(const struct args *args, const char *verb);
/* A call that begins with a path: what was meant. */
char *meant_of_path(const struct args *args);
/* Options before the command, which is word 'at': after it. */
char *meant_order(const struct args *args, int at);
/* 0, or EXIT_CALL where an adapter of PEFT was to be merged into its base. */
int meant_merge(const struct args *args);

#endif
