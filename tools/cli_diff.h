/* cli_diff.h -- what the files of `zckpt diff` share. */
#ifndef CLI_DIFF_H
#define CLI_DIFF_H

#include "cli.h"

/* The two checkpoints and how they compare. */
struct two {
	const struct args *args;
	const char *tolerance;		/* as it was given, or NULL */
	int all;			/* every row */
	struct ckpt *a, *b;
	struct ckpt_info info_a, info_b;
	struct ckpt_diff_result diff;
};

/* All tensors of one state: "weight", "exp_avg", "master=weight". */
struct diff_state {
	const char *name;
	uint64_t compared, differing, within;
	double max_abs, rel_l2;		/* the largest of those that differ and are no integers */
	const struct ckpt_diff_row *worst;	/* of those that differ, integers last, or NULL */
};

/* Weights first, then masters, then the one that differs most; to be freed. */
size_t diff_states(const struct ckpt_diff_result *diff, struct diff_state **out);
/* "weight"; of different ones "master=weight". */
const char *diff_state_name(const struct ckpt_diff_row *row);
/* Whether its elements or their types differ, and not just within the tolerance. */
int diff_is_numeric(const struct ckpt_diff_row *row);
const char *diff_what(enum ckpt_diff_what what);
/* Whether its elements are integers or truth values: counters and masks, not measured in "max". */
int diff_is_integer(const struct ckpt_diff_row *row);
/* Tensors of kinds that no driver reads. */
uint64_t diff_unread(const struct ckpt_diff_result *diff);
/* "24 tensors"; to be freed. */
char *diff_plural(uint64_t n, const char *word);
/* Whether both are the same, or what differs: a line.  Lent until the next call. */
const char *diff_answer(const struct two *two);
void diff_print(const struct two *two);
void diff_json(const struct two *two);

#endif
