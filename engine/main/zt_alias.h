/*
 * zt_alias.h -- command lines of transformers' Trainer, accelerate and DeepSpeed: names that mean
 * an option of ztrain, and their ways to write flags.
 */
#ifndef ZT_ALIAS_H
#define ZT_ALIAS_H

#include <stdbool.h>

#include "tools/shared/cli_opt.h"

#define ZT_ALIASES 80	/* at most */

/*
 * Hidden options for each alias of an option in 'tables' (they end with NULL), with the name that
 * the user typed; { 0 } follows.
 */
void zt_alias_options(const struct opt *const *tables, struct opt out[ZT_ALIASES]);

/* Whether some option of a run has that alias. */
bool zt_alias_has(const char *name);

/*
 * The same call with flags and special values as ztrain has them: "--bf16 True" is "--precision
 * bf16".  Settings of theirs that change nothing here are left out.  0 with the words in 'out', or
 * 2 for one that cannot be had, with a sentence that says what to give.
 */
int zt_alias_words(const char *name, int argc, char **argv, struct words *out);

#endif
