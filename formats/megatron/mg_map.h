/*
 * mg_map.h -- a table of names: which tensors of transformers a model of Megatron-Core has, and
 * which rows of which of its own tensors they are.  docs/formats/name-maps.md has the syntax.
 *
 * A table is text.  Those of the known families are in maps/ and in the library; a user's own is a
 * file.  Nothing here looks at a checkpoint.
 */
#ifndef MG_MAP_H
#define MG_MAP_H

#include "libckpt/base/ck_base.h"
#include "libckpt/base/ck_mem.h"

#define MG_MAP_BYTES ((uint64_t)1 << 20)	/* of a table's text */
#define MG_MAP_AXES 4u				/* of a tensor without its layer and expert */

/* A size: a letter or a word, and where its value comes from. */
struct mg_map_size {
	const char *name;
	const char *key;	/* of config.json */
	const char *arg;	/* of Megatron's arguments, or NULL */
	const char *otherwise;	/* an expression, or NULL: one of the two has it */
	bool same;		/* where both have it, they must agree */
	uint32_t line;
};

/* Yes or no, likewise. */
struct mg_map_flag {
	const char *name, *key, *arg;
	bool arg_inverted, otherwise;
	uint32_t line;
};

/* A value that an argument of Megatron's must have. */
struct mg_map_need {
	const char *arg, *value;
	bool only_chooses;	/* "when": another value is no contradiction */
};

/* Rows that one tensor of transformers takes from each group of rows. */
struct mg_map_part {
	const char *name;	/* NULL = rows that are left out */
	const char *rows;	/* an expression; NULL = all that are left */
	uint32_t line;
};

enum mg_map_layers { MG_MAP_ALL_LAYERS, MG_MAP_DENSE_LAYERS, MG_MAP_EXPERT_LAYERS };

/* A tensor of Megatron's. */
struct mg_map_tensor {
	const char *key;		/* with {L} and {E} */
	const char *axis[MG_MAP_AXES];	/* expressions; "*" = any */
	uint32_t naxes;
	const char *groups;		/* an expression; NULL = one group */
	const char *flag;		/* it is there if (or unless) this is yes; or NULL */
	bool unless, optional, unused;
	uint8_t layers;			/* enum mg_map_layers */
	bool has_layer, has_expert;
	struct mg_map_part *part;
	uint64_t nparts, part_cap;
	uint32_t line;
};

struct mg_map {
	struct ck_arena arena;
	const char *where;		/* the file, or "the table of NAME" */
	const char *family;
	const char **architecture;
	uint64_t narchitectures, architecture_cap;
	struct mg_map_size *size;
	uint64_t nsizes, size_cap;
	struct mg_map_flag *flag;
	uint64_t nflags, flag_cap;
	struct mg_map_need *need;
	uint64_t nneeds, need_cap;
	struct mg_map_tensor *tensor;
	uint64_t ntensors, tensor_cap;
	/* Which layers have experts; keys of config.json, or NULL. */
	bool has_experts;
	const char *every, *except, *from;
};

/*
 * Read a table.  'text' need not live on.  CKPT_E_FORMAT with the line for what is no table, or one
 * that contradicts itself; CKPT_E_LIMIT, CKPT_E_NOMEM.
 */
int ck_mg_map_parse(struct mg_map *map, const char *text, uint64_t len, const char *where,
		 struct ckpt_err *err);
void ck_mg_map_release(struct mg_map *map);
/* Size or flag of that name, or UINT64_MAX. */
uint64_t ck_mg_map_find_size(const struct mg_map *map, const char *name, size_t len);
uint64_t ck_mg_map_find_flag(const struct mg_map *map, const char *name);

/*
 * The value of an expression: whole numbers, names of sizes, + - * / and brackets.  'value' has one
 * for each size; with NULL only the syntax and the names are looked at.  A division must leave
 * nothing.  CKPT_E_FORMAT for no expression, CKPT_E_MISMATCH for values that do not fit it.
 */
int ck_mg_map_value(const struct mg_map *map, const uint64_t *value, const char *text,
		    uint32_t line, uint64_t *out, struct ckpt_err *err);

/* The tables in the library: text of the i-th, NULL past the last; '*name_out' is its file's. */
const char *ck_mg_map_text(size_t i, const char **name_out);

#endif
