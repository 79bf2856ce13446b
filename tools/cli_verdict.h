/* cli_verdict.h -- what the findings of a checkpoint come to, in one clause. */
#ifndef CLI_VERDICT_H
#define CLI_VERDICT_H

#include "cli.h"

/*
 * The worst cause among the errors: "NOT complete: ranks 4-7 of 8 missing", "DAMAGED: the bytes of
 * model.safetensors changed"; NULL if there is no error.  Where 'ck' is NULL, 'lone' is the only
 * finding.  'lead' false: only the cause, after the colon.  cli_free().
 */
char *verdict_of(const struct ckpt *ck, const struct ckpt_finding *lone, int lead);
/* The same of a step that was found with one error of this name at this place. */
char *verdict_of_id(const char *id, const char *where, const char *text);

#endif
