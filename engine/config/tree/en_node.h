/*
 * en_node.h -- what a configuration file says, as a tree whose values know their line and column.
 *
 * DeepSpeed's JSON and accelerate's YAML become the same kind of tree, with Python's types, because
 * what becomes of a value there depends on them: 4.0 and "4" are not 4.  Nodes live in the arena
 * of the reader; a tree is changed only by adding and replacing values.
 */
#ifndef EN_NODE_H
#define EN_NODE_H

#include "libckpt/base/ck_base.h"
#include "libckpt/base/ck_buf.h"
#include "libckpt/base/ck_mem.h"

#define EN_MAX_CONFIG_BYTES ((uint64_t)4 << 20)
#define EN_MAX_CONFIG_DEPTH 32u
#define EN_MAX_CONFIG_NODES 20000u

enum en_type { EN_NULL = 1, EN_BOOL, EN_INT, EN_FLOAT, EN_STR, EN_LIST, EN_DICT };

/* Where a value comes from. */
enum en_from {
	EN_FROM_DEFAULT = 1,	/* of the DeepSpeed version that is followed */
	EN_FROM_JSON,		/* the DeepSpeed configuration */
	EN_FROM_YAML,		/* the accelerate configuration */
	EN_FROM_ACCELERATE,	/* accelerate writes it where the YAML says nothing */
	EN_FROM_AUTO,		/* filled in for "auto"; 'why' has the rule */
	EN_FROM_OPTION,		/* stated; the file says nothing of it.  'why' is the option */
	EN_FROM_DERIVED,	/* follows from other settings; 'why' says which */
};

struct en_place {
	enum en_from from;
	const char *file;	/* NULL where there is none */
	uint32_t line, col;	/* from 1; 0 = none */
	const char *why;	/* a clause, or NULL */
};

struct en_node {
	enum en_type type;
	struct en_place at;
	const char *key;	/* in a dict; ends with NUL, has none within */
	const char *str;	/* EN_STR; of a number its text in the file */
	int64_t i;		/* EN_INT; EN_BOOL: 0 or 1 */
	double f;		/* EN_INT, EN_FLOAT */
	uint32_t n;		/* values of a list or dict */
	struct en_node *child, *last, *next;
};

struct en_node *en_node_new(struct ck_arena *arena, enum en_type type, struct en_place at);
struct en_node *en_node_bool(struct ck_arena *arena, bool v, struct en_place at);
struct en_node *en_node_int(struct ck_arena *arena, int64_t v, struct en_place at);
struct en_node *en_node_float(struct ck_arena *arena, double v, struct en_place at);
struct en_node *en_node_str(struct ck_arena *arena, const char *v, struct en_place at);
/* Append to a list (key NULL) or dict; 'key' is lent.  NULL if 'parent' or 'child' is NULL. */
struct en_node *en_node_add(struct en_node *parent, const char *key, struct en_node *child);
/* Put 'v' in the place of the value 'old', which stays in its list or dict under its key. */
void en_node_replace(struct en_node *old, const struct en_node *v);

/* The value under a key of a dict, or NULL (also for what is no dict, or NULL). */
struct en_node *en_node_get(const struct en_node *dict, const char *key);
/* The value under "a.b.c", or NULL. */
struct en_node *en_node_path(const struct en_node *dict, const char *path);
bool en_node_is_str(const struct en_node *v, const char *text);
static inline bool en_node_is_auto(const struct en_node *v)
{
	return en_node_is_str(v, "auto");
}

#define EN_VALUE_TEXT 80
/* The value for people, cut to the space there is: 5e8, "auto", true, null, [0.9, 0.95], {...}. */
void en_node_text(const struct en_node *v, char out[EN_VALUE_TEXT]);

/* Adds the value as JSON on one line; infinite and NaN as texts. */
int en_node_write(const struct en_node *v, struct ck_buf *buf, struct ckpt_err *err);

/*
 * The tree of a DeepSpeed configuration, as HJSON is read there: comments, commas left out or too
 * many, names without quotes, a byte order mark and a root without braces pass; a name twice in
 * one object does not.  Whole floats below 1e10 become integers.  '*strict_out' (may be NULL) is
 * false if plain JSON would refuse the text, which is how accelerate and transformers read it.
 * CKPT_E_CORRUPT with the byte, CKPT_E_LIMIT, CKPT_E_NOMEM.
 */
int en_node_json(struct ck_arena *arena, const char *text, uint64_t len, const char *file,
		 struct en_node **root_out, bool *strict_out, struct ckpt_err *err);

/*
 * The tree of a YAML text with the types PyYAML gives (YAML 1.1: "yes" and "off" are booleans, 5e8
 * is a string).  Refused: a name twice in one mapping, aliases, tags other than the core ones, a
 * second document.  CKPT_E_UNSUPPORTED in a build without libyaml.
 */
int en_node_yaml(struct ck_arena *arena, const char *text, uint64_t len, const char *file,
		 struct en_node **root_out, struct ckpt_err *err);
/* True if this build reads YAML. */
bool en_node_has_yaml(void);

/* The type PyYAML gives a plain scalar: fills type, i and f of 'v', whose str is the text. */
void en_yaml_resolve(struct en_node *v);

#endif
