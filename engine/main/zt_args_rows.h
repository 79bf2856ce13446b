/* zt_args_rows.h -- private to engine/main: the tables of options, and what they fill. */
#ifndef ZT_ARGS_ROWS_H
#define ZT_ARGS_ROWS_H

#include "engine/main/zt_args.h"

#define ZT_ROWS 160	/* rows of a table, at most */

/*
 * Each ends with { 0 }: of a run, of `ztrain bench` and `ztrain eval` alone, and what every call
 * has.
 */
extern const struct opt zt_args_run[], zt_args_bench[], zt_args_eval[], zt_args_talk[];
/* Names of options of a run that these two have as well; NULL at the end. */
extern const char *const zt_args_bench_has[], *const zt_args_eval_has[];

/* What the tables fill: one object of the program. */
struct zt_args *zt_args_filled(void);
/* CKPT_TO_* of a word of --save-format. */
int zt_args_layout(int word);
/* '-h --all' lists it, -h alone does not. */
bool zt_args_is_rare(const char *name);

#endif
