/* en_model_err.c -- errors of the model: a code, a place, a sentence. */
#include <stdarg.h>
#include <stdio.h>

#include "engine/model/en_model_priv.h"

int en_model_fail(struct ckpt_err *err, enum ckpt_code code, const char *where, const char *fmt,
		  ...)
{
	va_list ap;

	if (err && !err->code) {
		err->code = code;
		err->offset = CKPT_NO_OFFSET;
		snprintf(err->where, sizeof(err->where), "%s", where);
		va_start(ap, fmt);
		vsnprintf(err->msg, sizeof(err->msg), fmt, ap);
		va_end(ap);
	}
	return -(int)code;
}
