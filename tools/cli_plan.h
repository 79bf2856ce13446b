/* cli_plan.h -- what the files of `zckpt plan` share. */
#ifndef CLI_PLAN_H
#define CLI_PLAN_H

#include "cli.h"

struct planning {
	const struct args *args;
	struct ckpt_model *model;
	struct ckpt_model_info info;
	const char *source;		/* as the caller named it */
	struct ckpt_setup setup;	/* complete but for the library's defaults */
	uint64_t gpu_mem, host_mem;	/* 0 = not given */
	int deepspeed;			/* the numbers of its own estimators too */
	struct ckpt_estimate est;
	struct ckpt_err err;
};

/* A line of the table of stages and offloads. */
struct plan_row {
	uint32_t stage;
	unsigned offload;
	uint64_t gpu, host;
	int fits;
};
#define PLAN_ROWS 8
size_t plan_rows(const struct planning *p, struct plan_row *row);
int plan_fits(const struct planning *p, const struct ckpt_estimate *est);
const char *plan_offload(unsigned offload);	/* "none", "optimizer", "params" */

/* One change, or several together, that would make it fit. */
struct plan_change {
	char option[160];	/* as it is given: "--recompute --micro 2 --accumulation 4" */
	uint64_t gpu, host;
	int fits;
};
#define PLAN_CHANGES 12
/* Changes of the setup, the cheapest first; no two of them equal. */
size_t plan_changes(const struct planning *p, struct plan_change *change);

/* Is it ztrain's memory?  Do the ranks have different parts of the model? */
int plan_is_ztrain(const struct planning *p);
int plan_is_split(const struct planning *p);
/* "tp 2 x pp 2 x ep 4 x dp 8", those of 1 left out; free it. */
char *plan_layout(const struct planning *p);
/* "12.34 GiB", and without the unit "12.34", "80". Lent as out_name() lends. */
const char *plan_gib(uint64_t bytes);
const char *plan_number(uint64_t bytes);
/* --ranks: what each rank has, in a table or as JSON; 0, or 1 with p->err. */
int plan_ranks(struct planning *p);
void plan_print(const struct planning *p);
void plan_json(const struct planning *p);

void plan_print_parts(const struct planning *p);
void plan_json_parts(struct json *json, const struct planning *p);

#endif
