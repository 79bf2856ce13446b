/*
 * en_owners.h -- private to engine/checkpoint: whose the states of a torch file are, where its
 * optimizer has numbers for names.
 */
#ifndef EN_OWNERS_H
#define EN_OWNERS_H

#include "engine/checkpoint/en_checkpointer.h"

/*
 * CKPT_E_UNSUPPORTED: 'ck' has states of an optimizer, and whose they are is uncertain.  Its
 * weights alone would begin another run, and the call asks for one that continues.
 */
int en_owners_check(const struct ckpt *ck, const char *from, struct ckpt_err *err);
/* 'rc'.  Where the caller said whose they are, the message has ztrain's options. */
int en_owners_failed(const struct en_owners *owners, int rc, struct ckpt_err *err);

#endif
