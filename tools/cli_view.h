/* cli_view.h -- what inspect shows, summed up once for people and for scripts. */
#ifndef CLI_VIEW_H
#define CLI_VIEW_H

#include "cli.h"

#define NROLES 7	/* enum ckpt_role, 0 for what it does not know */
#define NTYPES 64	/* enum ckpt_dtype, 0 likewise */

/* One state in one type, summed over tensors. */
struct sum {
	const char *name;
	enum ckpt_dtype dtype;
	int derived;
	uint64_t tensors, elements, bytes;
};

struct view {
	const struct args *args;
	int list, explain_size;	/* whether tensors are listed, sizes explained */
	struct ckpt *ck;
	struct ckpt_info info;
	uint64_t tensors[NROLES], elements[NROLES];
	uint64_t typed[NTYPES];	/* elements of parameters, by the type of their weight */
	struct sum *sums;
	size_t nsums;
};

/* Sums up view->ck; cli_free(view->sums) afterwards. */
void view_collect(struct view *view);
/* cli_answer.c: elements of all parameters; tied ones count once, buffers do not. */
uint64_t view_parameters(const struct view *view);
/*
 * "134.1 M parameters in bf16, stage 3, 8 ranks, step 300, 1.6 GB, complete".  'path': the one
 * source, which may be an adapter, or NULL.  cli_free().
 */
char *view_answer(const struct view *view, const char *path);
/* "bf16", "fp32", "int64": as options or torch spell the type. */
const char *view_type(enum ckpt_dtype dtype);
/* "tp 2 x pp 2 x dp 8", how the ranks that wrote it divided the model, or NULL; lent. */
const char *view_layout(const struct ckpt *ck);
/* The result of inspect --json on stdout; 0 or the exit status. */
int view_json(const struct view *view);

#endif
