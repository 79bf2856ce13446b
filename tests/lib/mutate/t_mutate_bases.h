/* The checkpoints that are mutated: small real ones of every format. */
#ifndef T_MUTATE_BASES_H
#define T_MUTATE_BASES_H

#include "tests/lib/mutate/t_mutate.h"

enum t_what {
	T_BYTES = 1,
	T_TENSORS = 2,
	T_FILES = 4,
	/* Not the fixture itself, but what is made of it: */
	T_CONVERTED = 8,	/* by convert */
	T_SHARDED = 16,		/* by convert, in shards of 100 bytes */
	T_NATIVE = 32,		/* by reshard, the native form */
};

struct t_format {
	const char *name;
	const char *from;	/* below the fixtures; of steps that are made, NULL */
	const char *open;	/* what is opened of it, or NULL: the folder */
	const char *step;	/* with '/', or NULL: that which 'latest' names */
	int stage, is_step;	/* of steps that are made: ckpt_reshard_opts.stage */
	unsigned what;
	const char *split;	/* a model file of which a frozen parameter is stored twice */
};

extern const struct t_format t_formats[];
extern const size_t t_nformats;

/* Puts it into DIR/ckpt, where it must not be yet, and reads it. */
void t_base_begin(struct t_base *b, const struct t_format *f, const char *dir);
void t_base_end(struct t_base *b);

#endif
