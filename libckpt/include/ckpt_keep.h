/*
 * ckpt_keep.h -- keeping checkpoints in order.  Part of <ckpt.h>.
 */
#ifndef CKPT_KEEP_H
#define CKPT_KEEP_H

#include <ckpt.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Make the file 'latest' of folder 'dir' ('latest_universal' if 'universal') name the step
 * 'tag', which is a folder in 'dir'.  What is there is replaced by one rename.  The step is
 * not looked at: open it first.
 * Returns 0 or the negative of CKPT_E_USAGE (a tag that a loader would not find: empty, white
 * space around it, a slash, a line break), CKPT_E_NOTFOUND (no such folder), CKPT_E_NOSPACE,
 * CKPT_E_IO, CKPT_E_NOMEM; the file is then as it was, save after a failure to sync.
 */
CKPT_API int ckpt_latest_set(const char *dir, const char *tag, int universal,
			     enum ckpt_sync sync, struct ckpt_err *err);

#ifdef __cplusplus
}
#endif
#endif
