/* en_resolve.h -- resolving a configuration, what its steps share. */
#ifndef EN_RESOLVE_H
#define EN_RESOLVE_H

#include "engine/config/keys/en_coerce.h"
#include "engine/config/keys/en_verdict.h"

struct en_given {
	const struct en_node *v;	/* NULL = not in the file, or "auto" */
	uint64_t verdict;		/* number of its verdict + 1, 0 = none */
};

struct en_resolve {
	struct en_config *cfg;
	const struct en_facts *facts;
	struct en_settings set;
	struct en_value *value;		/* of every key */
	struct en_given *given;
	int rc;				/* no memory; everything stops */
	struct ckpt_err *err;
};

/* A verdict at the end of the list; its number + 1, 0 without memory (ev->rc).  'v' may be NULL. */
uint64_t en_rule(struct en_resolve *ev, enum en_ruling ruling, const char *path,
		 const struct en_node *v, const char *fmt, ...) CK_PRINTF(5, 6);
/* A refusal; 'theirs' if DeepSpeed or accelerate fails as well. */
void en_refuse(struct en_resolve *ev, bool theirs, enum ckpt_code code, const char *path,
	       const struct en_node *v, const char *fmt, ...) CK_PRINTF(6, 7);

/* "zero_optimization.stage" for a key, as it is documented (its alias, if it has one); lent. */
const char *en_key_path(struct en_resolve *ev, const struct en_key *key);
/* Number of the key; it must be in the table. */
size_t en_key_number(enum en_block block, const char *name);
/* What of the key was given: NULL if it was not. */
const struct en_node *en_given(const struct en_resolve *ev, enum en_block block, const char *name);
/* A value that follows from others, as the value of its key. */
void en_derive(struct en_resolve *ev, enum en_block block, const char *name, struct en_value v,
	       const char *why);

/* The refusal of 'path' is the Trainer's, not DeepSpeed's. */
void en_by_trainer(struct en_resolve *ev, const char *path);
/* The reason of the refusal says that DeepSpeed accepts the value and fails later. */
void en_fails_later(struct en_resolve *ev, const char *path);

#endif
