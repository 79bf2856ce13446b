/* ck_opts.c -- option structs of callers older and newer than this library; see ck_ckpt.h. */
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/run/ck_ckpt.h"

int ck_opts_take(void *out, size_t size, const void *in, const char *what,
		 struct ckpt_err *err)
{
	size_t have = 0;

	memset(out, 0, size);
	if (in) {
		memcpy(&have, in, sizeof(have));
		if (have < sizeof(have))
			return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
				       "the size of %s is not set (it is %zu)", what, have);
		memcpy(out, in, have < size ? have : size);
	}
	for (size_t i = size; i < have; i++)
		if (((const unsigned char *)in)[i])
			return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
				       "%s has %zu bytes and uses a field after the %zu bytes "
				       "that this version of the library knows", what, have, size);
	memcpy(out, &size, sizeof(size));
	return 0;
}
