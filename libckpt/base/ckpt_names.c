/* ckpt_names.c -- version and names of numbers. */
#include "libckpt/base/ck_base.h"

const char *ckpt_version(void)
{
	return CKPT_VERSION_STRING;
}

const char *ckpt_code_name(enum ckpt_code code)
{
	switch (code) {
#define NAME(c)         \
	case CKPT_##c:  \
		return "CKPT_" #c
	NAME(OK);
	NAME(E_IO);
	NAME(E_NOMEM);
	NAME(E_NOSPACE);
	NAME(E_EXISTS);
	NAME(E_NOTFOUND);
	NAME(E_CANCELED);
	NAME(E_BUSY);
	NAME(E_TRUNCATED);
	NAME(E_CORRUPT);
	NAME(E_FORMAT);
	NAME(E_UNSUPPORTED);
	NAME(E_LIMIT);
	NAME(E_INCOMPLETE);
	NAME(E_MISMATCH);
	NAME(E_LAYOUT);
	NAME(E_UNSAFE);
	NAME(E_USAGE);
	NAME(E_EXPECT);
#undef NAME
	}
	return "CKPT_E_?";
}
