/* Every verb that writes, on the smallest fixture of every layout, through the public interface:
 * what is tortured (docs/internals/torture.md). */
#ifndef T_VERBS_H
#define T_VERBS_H

#include <stdbool.h>
#include <stdint.h>

#include "libckpt/include/ckpt.h"

struct t_verb;

/* Where one of them works. */
struct t_vscene {
	const struct t_verb *verb;
	char *dir;		/* of all */
	char *src;		/* what is read */
	char *order;		/* shard: names of parameters */
	char *out;		/* the folder below which things are written */
	char *dst;		/* in it */
	uint32_t threads;
};

typedef int (*t_verb_fn)(const struct t_vscene *s, struct ckpt_err *err);

struct t_verb {
	const char *verb;	/* "convert" */
	const char *layout;	/* of the source: "z2" */
	const char *what;	/* "to a .pt" */
	t_verb_fn work;
	const char *source;	/* fixture; or how it is made */
	const char *dst;	/* below 'out' */
	void (*prepare)(const struct t_vscene *s);	/* what is there before; may be NULL */
	/* Brings about the end after a failure; NULL = 'work' again. */
	t_verb_fn finish;
	/* Names that begin so come as one (a step in a folder that is there); NULL = all do. */
	const char *unit;
	/* The partial folder is what it works on: it may stay, whatever happens. */
	bool on_partial;
	bool needs_threads;	/* without one it fails */
	bool latest_apart;	/* 'latest' comes after the partial folder is gone */
	uint32_t world;
	int stage;		/* of ckpt_reshard_opts; 5 = the universal form */
	unsigned flags;
	uint32_t part, nparts;
};

extern const struct t_verb t_verbs[];
extern const unsigned t_nverbs;

/* t_verbs_save.c: a session of 'world' ranks saves step "s" in 'dst'; 'stage' or that. */
#define T_SAVE_NATIVE 6
#define T_SAVE_WEIGHTS 12
int t_verb_save(const struct t_vscene *s, struct ckpt_err *err);
int t_verb_save_again(const struct t_vscene *s, struct ckpt_err *err);
/* What is there before: that step, if the verb is to replace it, or another one. */
int t_verb_save_older(const struct t_vscene *s, struct ckpt_err *err);

/* The folders of a verb, with its source and what is there before. */
void t_vscene_open(struct t_vscene *s, const struct t_verb *verb);
void t_vscene_close(struct t_vscene *s);

#endif
