/* en_coerce.h -- a value of a file as the type of its key, as DeepSpeed's classes read it. */
#ifndef EN_COERCE_H
#define EN_COERCE_H

#include "engine/config/keys/en_keys.h"
#include "engine/config/tree/en_node.h"

struct en_value {
	enum en_type type;	/* EN_NULL: none */
	int64_t i;		/* EN_BOOL, EN_INT (also stages, devices, types) */
	double f, f2;		/* EN_FLOAT, EN_INT; f2 for the second of a pair */
	const char *str;	/* EN_STR; lent by the node */
};

#define EN_WHY 240

/*
 * 0 and '*out', or -1 with a clause in 'why'; '*theirs_out' is then whether DeepSpeed fails on the
 * value too.  'strict': a class reads it (pydantic: "2", 2.0 and true are 2), else it stays what it
 * is and only values that can be computed with are taken.  "auto" is the caller's to handle.
 */
int en_coerce(const struct en_key *key, bool strict, enum en_ds_version version,
	      const struct en_node *v, struct en_value *out, bool *theirs_out, char why[EN_WHY]);
/* The default of the key, EN_NULL if it has none. */
void en_default(const struct en_key *key, enum en_ds_version version, struct en_value *out);
bool en_value_same(const struct en_value *a, const struct en_value *b);
void en_value_text(const struct en_key *key, const struct en_value *v, char out[EN_VALUE_TEXT]);
/* Into the field of the key; nothing for a key without one. */
void en_value_put(const struct en_key *key, const struct en_value *v, struct en_settings *set);

#endif
