/* zt_meant.h -- options that ztrain lacks, and what to give instead. */
#ifndef ZT_MEANT_H
#define ZT_MEANT_H

/*
 * 'name' is an option of transformers' Trainer, of DeepSpeed or of a launcher: a clause that says
 * what to give to ztrain.  Or it is one of another call of ztrain: a clause that says which.  NULL
 * for any other name.
 */
const char *zt_meant(const char *name);
/* The same for `ztrain bench` and `ztrain eval`, also for options that a run has. */
const char *zt_meant_bench(const char *name);
const char *zt_meant_eval(const char *name);

#endif
