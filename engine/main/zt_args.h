/* zt_args.h -- the command line of ztrain. */
#ifndef ZT_ARGS_H
#define ZT_ARGS_H

#include <stdbool.h>
#include <stdint.h>

#include <ckpt.h>

struct zt_args {
	const char *model;	/* Hugging Face folder, or a config.json */
	const char *config;	/* DeepSpeed JSON or accelerate YAML, or NULL */
	const char *data;	/* a file of tokens, or NULL: made up */
	const char *save, *resume;
	int save_to;		/* CKPT_TO_* */
	enum ckpt_sync sync;
	int64_t steps, stop_at, save_every;
	uint64_t seed;
	uint32_t seq, threads, timeout_s;
	uint64_t micro_batch, accumulation;	/* 0 = the file's */
	double lr;		/* NAN = the file's */
	bool shuffle, random, recompute, counters, quiet, exact;
};

/* 0; 1 when help or the version was asked for (and printed); 2 for a wrong call. */
int zt_args_parse(int argc, char **argv, struct zt_args *out);

#endif
