/*
 * ck_language.h -- the language model of a vision-language model, as a model of its own: its names,
 * and the config.json that transformers loads it with.
 */
#ifndef CK_LANGUAGE_H
#define CK_LANGUAGE_H

#include <ckpt_convert.h>

#include <stdbool.h>

#include "libckpt/base/ck_buf.h"
#include "libckpt/json/ck_json.h"

/* From the names in memory, or the published ones, to those of a decoder alone; constants. */
const struct ckpt_rule *ck_language_rules(void);
/* Patterns of what is no part of it: the tower and the projector; ends with NULL. */
const char *const *ck_language_others(void);
/* Is it a name of a decoder alone? */
bool ck_language_has(const char *name);

/*
 * The configuration of the decoder, of that of the whole model ('doc', an object).  'dtype' is the
 * type that it names, NULL = as it is.  Positions of three parts (M-RoPE) are those of plain rotary
 * embeddings where all parts are the same, as they are for text.
 *	CKPT_E_UNSUPPORTED  a decoder that is no architecture of its own
 */
int ck_language_config(const struct ck_json *doc, const char *where, const char *dtype,
		       struct ck_buf *out, struct ckpt_err *err);

#endif
