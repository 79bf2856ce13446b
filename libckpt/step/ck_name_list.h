/* ck_name_list.h -- a file with names of tensors, one a line, as --order takes it. */
#ifndef CK_NAME_LIST_H
#define CK_NAME_LIST_H

#include "libckpt/base/ck_base.h"

/* 'line' counts from 1; 'name' is lent for the call.  A failure ends the list, and is its own. */
typedef int ck_name_list_fn(void *arg, uint64_t line, const char *name, struct ckpt_err *err);

/*
 * Call fn for each line that is not empty, in order; lines may end in "\r\n".  CKPT_E_CORRUPT for
 * a NUL byte, CKPT_E_LIMIT for more bytes than limits->header_bytes, CKPT_E_NOTFOUND, CKPT_E_IO.
 */
int ck_name_list_each(const char *path, const struct ckpt_limits *limits, ck_name_list_fn *fn,
		      void *arg, struct ckpt_err *err);

#endif
