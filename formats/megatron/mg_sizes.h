/*
 * mg_sizes.h -- the sizes that a table of names counts with: of config.json, else of the arguments
 * of Megatron's run.
 */
#ifndef MG_SIZES_H
#define MG_SIZES_H

#include "formats/megatron/mg_map.h"
#include "libckpt/json/ck_json.h"
#include "libckpt/tensor/ck_val.h"

/* config.json, parsed. */
struct mg_config {
	char *path, *text;	/* NULL: there is none */
	struct ck_json doc;
	const char *architecture;	/* the first; "" = it names none */
};

#define MG_CONFIG_INIT { .path = NULL }

struct ck_fdpool;

/*
 * Read a file that is given, or config.json in a folder that is given.  CKPT_E_NOTFOUND,
 * CKPT_E_CORRUPT, CKPT_E_FORMAT.
 */
int ck_mg_config_read(struct mg_config *c, const char *path, const struct ckpt_limits *limits,
		      struct ckpt_err *err);
/*
 * config.json in the folder of an iteration, in the run's above, or in the one above that: the
 * first that is the configuration of a model.  '*c' stays without a path where none is.
 */
int ck_mg_config_find(struct mg_config *c, struct ck_fdpool *pool, const char *step,
		      const struct ckpt_limits *limits, struct ckpt_err *err);
void ck_mg_config_release(struct mg_config *c);

struct mg_sizes {
	const char *where;	/* for messages: whose sizes they are */
	uint64_t *value;	/* [map->nsizes] */
	bool *known;
	bool *flag;		/* [map->nflags] */
	bool vocab_given;	/* V is --vocab */
	uint64_t layers, experts;	/* sizes L and E; 0 = not known */
	bool *has_experts;	/* [layers] */
	uint64_t dense_layers;	/* how many have none */
	struct ck_arena arena;
};

/*
 * The values of a table's sizes.  'config' and 'args' (a dictionary) may be NULL.  'vocab' is the
 * size V, where it is not 0.  CKPT_E_MISMATCH where the two contradict each other or the table,
 * CKPT_E_FORMAT, CKPT_E_LIMIT.
 */
int ck_mg_sizes_fill(struct mg_sizes *s, const struct mg_map *map, const struct mg_config *config,
		     const struct ck_val *args, uint64_t vocab, struct ckpt_err *err);
void ck_mg_sizes_release(struct mg_sizes *s);
/* An expression of the table; CKPT_E_MISMATCH where one of its sizes is not known. */
int ck_mg_sizes_value(const struct mg_sizes *s, const struct mg_map *map, const char *text,
		      uint32_t line, uint64_t *out, struct ckpt_err *err);

/* Whether the arguments are those of a model of this table, without doubt. */
bool ck_mg_args_choose(const struct mg_map *map, const struct ck_val *args);

#endif
