/* en_deepspeed.h -- DeepSpeed's JSON: read, and resolved as its classes do. */
#ifndef EN_DEEPSPEED_H
#define EN_DEEPSPEED_H

#include "engine/config/keys/en_verdict.h"

struct en_resolve;

/*
 * Read a DeepSpeed configuration: a file of at most 4 MiB, or bytes of which 'name' is used in
 * messages.  What the values mean is not looked at yet.  Once a struct.
 *
 * CKPT_E_NOTFOUND, CKPT_E_IO; CKPT_E_CORRUPT with the byte where the text is no HJSON, or a name
 * appears twice; CKPT_E_LIMIT; CKPT_E_NOMEM.
 */
int en_config_read_deepspeed(struct en_config *cfg, const char *path, struct ckpt_err *err);
int en_config_parse_deepspeed(struct en_config *cfg, const char *text, uint64_t len,
			      const char *name, struct ckpt_err *err);

/*
 * Every step in its order: "auto" filled in, keys read and ruled, settings checked, batches
 * derived, origins listed.  What fails is in the verdicts, or in ev->rc.
 */
void en_deepspeed_resolve(struct en_resolve *ev);

#endif
