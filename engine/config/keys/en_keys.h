/*
 * en_keys.h -- the keys of a DeepSpeed configuration: what type DeepSpeed gives them, its defaults,
 * and what this engine does with them.  docs/ztrain/config.md is this table for people; a test
 * holds the two together.
 */
#ifndef EN_KEYS_H
#define EN_KEYS_H

#include "engine/config/keys/en_settings.h"

enum en_block {
	EN_B_TOP, EN_B_ZERO, EN_B_OFFLOAD_PARAM, EN_B_OFFLOAD_OPTIMIZER, EN_B_FP16, EN_B_BF16,
	EN_B_OPTIMIZER, EN_B_OPTIMIZER_PARAMS, EN_B_SCHEDULER, EN_B_SCHEDULER_PARAMS,
	EN_B_CHECKPOINT, EN_B_DATA_TYPES, EN_B_ACTIVATIONS, EN_B_AIO,
	EN_BLOCKS,
};

struct en_block_info {
	const char *path;	/* "" for the top level */
	/* A class of DeepSpeed reads it: values are coerced, "auto" is as if absent. */
	bool strict;
	bool strict_0_16;	/* already in 0.16 */
	bool unknown_fails;	/* a key it does not know is an error there */
};
extern const struct en_block_info en_block_info[EN_BLOCKS];

enum en_key_type {
	EN_K_BOOL = 1, EN_K_INT, EN_K_FLOAT, EN_K_STAGE, EN_K_DEVICE, EN_K_DTYPE, EN_K_STR,
	EN_K_NUMBER_PAIR,	/* betas */
	EN_K_ANY,		/* not looked at */
	EN_K_BLOCK,		/* one of en_block */
};

enum en_role {
	EN_R_USED = 1,
	EN_R_QUIET,		/* no effect here */
	EN_R_DEFAULT_ONLY,	/* another value than the default is refused here */
	EN_R_REMOVED,		/* refused by DeepSpeed 0.19 by its mere presence */
	EN_R_SWITCH,		/* a block; refused if its "enabled" is true */
};

/* Under which other settings a key has an effect. */
enum en_when {
	EN_W_ALWAYS,
	EN_W_ZERO,
	EN_W_STAGE_1_2,
	EN_W_STAGE_3,
	EN_W_FP16,
	EN_W_DYNAMIC_SCALE,
	EN_W_BF16,
	EN_W_OFFLOAD_OPTIMIZER,
	EN_W_OPTIMIZER_NVME,
	EN_W_OFFLOAD_PARAM,
	EN_W_PARAM_NVME,
	EN_W_NVME,
	EN_W_OPTIMIZER,
	EN_W_SCHEDULER,
};

#define EN_F_NULL 1u		/* null is taken, and means the default */
#define EN_F_NO_BOOL 2u		/* true is not 1 */
#define EN_F_MIN_0_19 4u	/* 'min' holds from 0.19 on, 0 before */
#define EN_F_NO_SIGN 8u		/* 'min' holds */
#define EN_F_UNIT 32u		/* from 0 to 1 */
#define EN_F_SINCE_0_19 16u	/* no such key before */

/* Scheduler types that take a parameter, by enum en_scheduler_type. */
#define EN_S(type) (1u << EN_SCHEDULER_##type)

struct en_key {
	enum en_block block;
	const char *name;
	const char *alias;	/* another spelling that is taken, or NULL */
	enum en_key_type type;
	enum en_role role;
	enum en_when when;
	unsigned flags;
	unsigned schedulers;
	size_t field;		/* offset in struct en_settings, EN_NO_FIELD */
	double min;
	const char *dflt;	/* text; NULL = none */
	const char *dflt_old;	/* before 0.19, where it differs */
	const char *why;	/* QUIET, DEFAULT_ONLY, REMOVED, SWITCH; USED: a note, or NULL */
	enum en_block inner;	/* EN_K_BLOCK */
};

#define EN_NO_FIELD SIZE_MAX

extern const struct en_key en_keys[];
extern const size_t en_n_keys;

/* The key of that name in that block; NULL if there is none. */
const struct en_key *en_key_find(enum en_block block, const char *name);
/*
 * What a misspelt key may have meant: "reduce_bucket_size" for "reduce_buckets_size", and of
 * another block with its path.  NULL if nothing is near.
 */
const struct en_key *en_key_near(enum en_block block, const char *name);
/* Of two words, the least number of letters to change, insert or leave out; above 'max': max + 1.
 */
unsigned en_edit_distance(const char *a, const char *b, unsigned max);

#endif
