/* ck_audit.h -- the list that an audit fills: pickles and the names they use. */
#ifndef CK_AUDIT_H
#define CK_AUDIT_H

#include "libckpt/base/ck_base.h"
#include "libckpt/base/ck_mem.h"

struct ck_audit {
	struct ck_arena arena;	/* strings and names */
	struct ckpt_audit_pickle *pickle;
	uint64_t n, cap;
	uint64_t nfiles;	/* looked into */
};

#endif
