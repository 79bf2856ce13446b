/* ck_pt_audit.h -- which names the pickles of a file use. */
#ifndef CK_PT_AUDIT_H
#define CK_PT_AUDIT_H

#include "libckpt/format/ck_format.h"

/* See struct ck_format. */
int ck_pt_audit(struct ck_src *src, const struct ckpt_limits *limits, bool always,
		struct ck_audit *out, struct ckpt_err *err);

#endif
