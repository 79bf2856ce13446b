/*
 * ds_tp_rules.h -- how tensor parallelism cut each tensor: universal_checkpoint_info of the model
 * files, or a file of rules that the user gives (docs/formats/deepspeed.md, 10).
 */
#ifndef CK_DS_TP_RULES_H
#define CK_DS_TP_RULES_H

#include "libckpt/base/ck_map.h"
#include "libckpt/format/ck_findings.h"
#include "libckpt/tensor/ck_val.h"

/* In the order in which they are asked. */
enum ds_tp_kind {
	DS_TP_REPLICATED = 1,
	DS_TP_AVERAGE,
	DS_TP_TWO_PARTS,	/* each rank has a half of one, then a half of the other */
	DS_TP_PARTS,
	DS_TP_ROW,		/* along dimension 1 */
	DS_TP_VOCABULARY,	/* along dimension 0, with rows of padding at its end */
	DS_TP_COLUMN,		/* along dimension 0: no rule */
};

struct ds_regex;

struct ds_tp_rule {
	enum ds_tp_kind kind;
	const char *pattern;
	const struct ds_regex *re;
	const struct ck_val *parts;	/* of DS_TP_PARTS: its dictionary */
	const struct ck_val *value;	/* of other lists: what belongs to the pattern */
	uint32_t next;			/* with the same literal; CK_NONE */
	bool used;
};

/* Patterns, and which of them are plain names. */
struct ds_tp_list {
	struct ds_tp_rule *rule;
	uint32_t n;
	struct ck_map literal;		/* name -> its first rule */
};

struct ds_tp_rules {
	struct ck_arena *arena;		/* lent */
	const char *where;		/* the file that they are of */
	bool given;			/* by the user */
	double version;			/* universal_checkpoint_version */
	struct ds_tp_list list;
	struct ds_tp_list affine;	/* AutoTP's second description of the same */
	struct ds_tp_list unsupported;	/* what AutoTP says it cannot describe */
	const struct ck_val *widths;	/* sub_param_shard_widths */
};

/* A tensor on the ranks of one tensor-parallel group, by rank. */
struct ds_tp_local {
	const char *name;
	const uint64_t *const *shape;
	uint32_t ndim, tp;
	bool buffer;
};

/*
 * Part j of the tensor, along 'axis', is in width[j * tp + t] rows on rank t; ranks have the parts
 * one after the other.
 */
struct ds_tp_cut {
	enum ds_tp_kind kind;
	const uint64_t *shape;		/* of the whole tensor */
	uint32_t ndim, axis, tp;
	uint32_t nparts;		/* 0 = every rank has all of it */
	const uint64_t *width;
};

/* '*rules' is zeroed but for 'arena' and 'where'.  'info' outlives the rules. */
int ck_ds_tp_rules_read(struct ds_tp_rules *rules, const struct ck_val *info,
			struct ckpt_err *err);
/* The same of a JSON file. */
int ck_ds_tp_rules_open(struct ds_tp_rules *rules, const char *path,
			const struct ckpt_limits *limits, struct ckpt_err *err);
void ck_ds_tp_rules_release(struct ds_tp_rules *rules);

/*
 * CKPT_E_MISMATCH if the shapes do not fit the rule or two of the user's rules contradict each
 * other, CKPT_E_LAYOUT for what is not supported.
 */
int ck_ds_tp_cut(struct ds_tp_rules *rules, const struct ds_tp_local *local,
		 struct ds_tp_cut *cut_out, struct ckpt_err *err);
/* Does a pattern of vocabulary_parameter_patterns match?  Others may come before it. */
bool ck_ds_tp_is_vocabulary(const struct ds_tp_rules *rules, const char *name);
/* Does AutoTP's second description have it? */
bool ck_ds_tp_is_affine(const struct ds_tp_rules *rules, const char *name);
/* Rules of the user's that no tensor used. */
void ck_ds_tp_rules_check(const struct ds_tp_rules *rules, struct ck_findings *f);

#endif
