/* en_model_priv.h -- what the files of engine/model share. */
#ifndef EN_MODEL_PRIV_H
#define EN_MODEL_PRIV_H

#include <stddef.h>

#include <ckpt.h>

/* Fills '*err' (may be NULL) unless it is filled already; returns -code. */
int en_model_fail(struct ckpt_err *err, enum ckpt_code code, const char *where, const char *fmt,
		  ...) __attribute__((format(printf, 4, 5)));

#define EN_MODEL_NODES ((uint64_t)1 << 20)	/* values of a text of JSON */

/* A file of at most 1 MiB, in new memory (free()).  CKPT_E_NOTFOUND, _IO, _LIMIT, _NOMEM. */
int en_model_file(const char *path, char **text_out, size_t *n_out, struct ckpt_err *err);

#endif
