/* en_deepspeed_priv.h -- the steps that resolve DeepSpeed's configuration, between their files. */
#ifndef EN_DEEPSPEED_PRIV_H
#define EN_DEEPSPEED_PRIV_H

#include "engine/config/deepspeed/en_deepspeed.h"
#include "engine/config/keys/en_resolve.h"

/*
 * en_option.c: does a stated option go where the file is silent?  False where the file says a
 * value, where the key would not be read, and unless the caller wants it.
 */
bool en_option_counts(const struct en_resolve *ev, const char *path);
void en_option_put(struct en_resolve *ev, const char *path, struct en_node *v, const char *option);
/* en_fill.c: "auto", where transformers or accelerate replaces it. */
void en_fill(struct en_resolve *ev);
/* en_walk.c: every key of the tree, its type and its verdict. */
void en_walk(struct en_resolve *ev);
/* en_old.c: true if the key is an old one of zero_optimization that was dealt with. */
bool en_old_key(struct en_resolve *ev, const struct en_node *dict, const struct en_node *v);
/* en_check.c: settings that hang together; batch sizes are in en_batch.c. */
void en_check(struct en_resolve *ev);
void en_batch(struct en_resolve *ev);
/* en_when.c: which settings matter, and the list of where they come from. */
void en_when(struct en_resolve *ev);

#endif
