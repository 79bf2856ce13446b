/*
 * ck_foreign.h -- checkpoints of other frameworks, which no driver reads: what they are, and what
 * helps.
 */
#ifndef CK_FOREIGN_H
#define CK_FOREIGN_H

#include "libckpt/format/ck_format.h"

/*
 * Recognise the folder of 'in', or the newest checkpoint in it, by the names in the folder.
 * -CKPT_E_FORMAT with a message "this is WHAT, which zckpt does not read", or 0 without one if it
 * is none of those known.  What helps follows: after "; try: " a command, in which DIR is the
 * path err->where; else after "; " a clause.
 */
int ck_foreign_folder(const struct ck_input *in, struct ckpt_err *err);
/* The same of the file of 'in', by its name. */
int ck_foreign_file(const struct ck_input *in, struct ckpt_err *err);

#endif
