/* en_accelerate_priv.h -- reading an accelerate configuration, between the files that do it. */
#ifndef EN_ACCELERATE_PRIV_H
#define EN_ACCELERATE_PRIV_H

#include "engine/config/accelerate/en_accelerate.h"
#include "engine/config/keys/en_resolve.h"

struct en_yaml {
	struct en_resolve ev;		/* for verdicts */
	struct en_node *root, *ds;	/* ds: deepspeed_config, NULL = none */
	struct en_node const *mixed;	/* what says the precision, NULL = nothing does */
};

/* Verdicts for all keys of the file but those that en_accelerate.c has more to say of. */
void en_yaml_keys(struct en_yaml *y);

#endif
