/* cli_advice.h -- the command that makes sense next. */
#ifndef CLI_ADVICE_H
#define CLI_ADVICE_H

#include "cli.h"

/* About a finding (or the name of a code) of what was opened at 'path'; never NULL. */
char *advice_about(const char *id, const char *path, const char *step);
/* What to do about the findings of 'ck', else what can be done with it. */
char *advice_next(const struct args *args, const char *path, struct ckpt *ck);
/* The command that makes weights from the newest good step in 'path'; NULL if there is none. */
char *advice_recover(const struct args *args, const char *path);
/* "a/b" -> "a", "b" -> "."; trailing slashes do not count. */
char *advice_parent(const char *path);

#endif
