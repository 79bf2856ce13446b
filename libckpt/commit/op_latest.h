/*
 * op_latest.h -- the file that names the step to read, replaced in one rename.
 */
#ifndef OP_LATEST_H
#define OP_LATEST_H

#include <stdbool.h>

#include "libckpt/base/ck_base.h"

/*
 * Let 'latest' of the folder 'dir' ('latest_universal' if 'universal') name the step 'tag',
 * which must be a folder in it.  The old file is replaced whole or not at all; a step that is
 * still being written is CKPT_E_BUSY.
 */
int ck_latest_set(const char *dir, const char *tag, bool universal, enum ckpt_sync sync,
		  struct ckpt_err *err);

#endif
