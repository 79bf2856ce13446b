/*
 * te_sched.h -- what tests of schedules, samplers and data share: recorded references.
 */
#ifndef TE_SCHED_H
#define TE_SCHED_H

#include <cjson/cJSON.h>

#include <ckpt_value.h>

#include "engine/sched/en_sched.h"

/* Below the unpacked fixtures; a failing one ends the program.  The caller deletes it. */
cJSON *te_sched_json(const char *name);
/* The path, for free(). */
char *te_sched_path(const char *name);
const cJSON *te_get(const cJSON *o, const char *key);
/* Ends the program if the value is none. */
double te_num(const cJSON *o, const char *key);
/* The values of a step below deepspeed/; both are the caller's. */
struct ckpt_values *te_values(const char *name, struct ckpt **ck_out);

/* A run without a scheduler. */
int te_sched_none(struct en_sched *s, const double *lr, uint32_t ngroups, struct ckpt_err *err);

#endif
