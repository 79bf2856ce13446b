/*
 * ck_naming.h -- tables of names: what transformers calls the modules of a model in memory, and
 * what it calls their weights in the files that save_pretrained() writes.
 *
 * A training step has the modules' names.  For most models both are the same; the tables
 * (libckpt/naming/maps, docs/formats/name-maps.md) are those of the others.
 */
#ifndef CK_NAMING_H
#define CK_NAMING_H

#include "libckpt/base/ck_mem.h"
#include "libckpt/io/ck_fdpool.h"
#include "libckpt/tensor/ck_index.h"

struct ck_naming {
	struct ck_arena arena;
	const char *family;	/* NULL = both names are the same: no rules */
	struct ckpt_rule *rule;	/* of a module's name -> as published; ends with pattern NULL */
	uint64_t nrules, cap;
	const char **begin;	/* beginnings of modules' names, for a model without config.json */
	uint64_t nbegins, begin_cap;
};

#define CK_NAMING_INIT { .family = NULL }

/*
 * The table of 'which': NULL or "hf" = the one of the model, "native" = none, else a file.  The
 * model is that of 'config', a config.json that need not exist; without one (NULL, or a file that
 * names no model) a table is taken for which the index has names.
 *	CKPT_E_USAGE   a line of the file is no line of a table
 *	the codes of reading the file
 */
int ck_naming_choose(const char *which, const char *config, const struct ck_index *ix,
		     const struct ck_fdpool *pool, struct ck_naming *out, struct ckpt_err *err);
/* The table of names that the index has, or none. */
int ck_naming_of_index(const struct ck_index *ix, struct ck_naming *out, struct ckpt_err *err);
/*
 * The name that a published tensor has in memory, 'name' itself if it is a module's already or in
 * no rule.  NULL without memory.
 */
const char *ck_naming_module(const struct ck_naming *n, struct ck_arena *arena, const char *name);
void ck_naming_release(struct ck_naming *n);

/* The tables of the product, i from 0; NULL behind the last. */
const char *ck_naming_text(size_t i, const char **name_out);

#endif
