/* en_model_priv.h -- what the files of engine/model share. */
#ifndef EN_MODEL_PRIV_H
#define EN_MODEL_PRIV_H

#include <ckpt.h>

/* Fills '*err' (may be NULL) unless it is filled already; returns -code. */
int en_model_fail(struct ckpt_err *err, enum ckpt_code code, const char *where, const char *fmt,
		  ...) __attribute__((format(printf, 4, 5)));

#endif
