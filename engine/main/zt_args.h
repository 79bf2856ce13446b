/* zt_args.h -- the command line of ztrain. */
#ifndef ZT_ARGS_H
#define ZT_ARGS_H

#include <stdbool.h>
#include <stdint.h>

#include <ckpt.h>

#include "tools/shared/cli_opt.h"

enum zt_overflow { ZT_UNITS = 1, ZT_DEEPSPEED };
enum zt_call { ZT_RUN, ZT_BENCH, ZT_EVAL };
enum zt_device { ZT_AUTO, ZT_CPU, ZT_CUDA };

struct zt_args {
	const char *model;	/* Hugging Face folder, or a config.json */
	const char *config;	/* DeepSpeed JSON or accelerate YAML, or NULL */
	/* NAN = the file's, or the default of transformers' arguments */
	double lr, beta1, beta2, eps, weight_decay, clip, warmup;
	int precision;		/* enum en_precision, 0 = the file's */
	const char *scheduler, *scheduler_args;	/* transformers', or NULL */
	int64_t micro_batch, accumulation;	/* 0 = the file's */
	int overflow;		/* enum zt_overflow, 0 = not stated */
	int loss;		/* 0 = mean of micro-batches' means, 1 = mean of tokens */
	/* What is trained. */
	struct words freeze;	/* patterns of names */
	const char *lora, *lora_from;	/* adapters as text; a folder of PEFT's; or NULL */
	int no_frozen;		/* steps are saved without frozen parameters */
	/* Data. */
	const char *data;	/* a file of tokens, or NULL: made up */
	int data_kind;		/* 0 = by the name, else enum en_source_kind */
	int order, tail, deal;	/* enum en_order_kind, en_last_batch, en_sampler */
	int64_t seq;		/* tokens of a row; 0 = as long as the longest */
	int64_t pad_id, seed;
	int shuffle, drop_last, overlap, pack, pack_documents, cut, synthetic;
	int64_t synthetic_rows;	/* 0 = no end */
	/* Evaluation. */
	const char *eval;	/* a file of its own, or NULL */
	int64_t eval_rows;	/* held out of the data; of 'eval', at most; 0 = none, or all */
	int64_t eval_every;	/* steps; 0 = at the end only */
	int keep_best;
	int64_t patience;	/* evaluations; 0 = no end by them */
	/* The run. */
	int64_t steps;		/* -1 = by 'epochs', the scheduler's, or STEPS */
	double epochs;		/* NAN = not stated */
	int64_t print_every;	/* steps; 0 = each */
	int64_t stop_at, threads, timeout_s;
	const char *secret_file;	/* of ranks that meet by TCP, or NULL */
	int random, recompute, keep_all;
	int device;		/* enum zt_device */
	int reduction;		/* enum en_cuda_sum */
	int fp8;		/* enum en_cuda_fp8_recipe */
	/* Saves. */
	const char *save, *resume;
	const char *resume_order;	/* of a file of torch's: struct en_owners; or NULL */
	struct words resume_frozen, resume_buffer;
	int new_data;		/* other than the step's */
	int other_model;	/* of a step that was trained by another config.json */
	int save_to;		/* CKPT_TO_* */
	int sync;		/* enum ckpt_sync */
	int overwrite;		/* steps in 'save' that another run saved may be replaced */
	int64_t save_every, grace_s;
	int64_t save_most;	/* newest steps that stay; 0 = all */
	const char *save_buffer;	/* a size, or NULL = "full" */
	uint64_t save_buffer_bytes;	/* of it; 0 = full */
	int64_t save_threads;	/* 0 = by the cores */
	/* Weights at the end. */
	const char *export, *max_shard_size;	/* or NULL */
	int merge;		/* adapters into their matrices */
	int export_dtype;	/* enum en_precision, 0 = as the file says */
	/* What is said. */
	const char *log;
	int check_launch, counters, quiet, exact;
	int help, version;	/* asked for */
	int64_t local_rank;	/* not used: the environment says it */
	enum zt_call call;
	/* ztrain eval. */
	const char *eval_of;		/* a step, a folder of steps, or a model */
	int json;
	/* ztrain bench. */
	int table, offload;
	const char *trace, *plot;	/* files, or NULL */
	const char *stages;		/* as it was given, or NULL */
	uint32_t stage[4], nstages;
	int64_t memory;			/* bytes of a rank; 0 = what is free */
	int64_t rows;			/* of a micro-batch; 0 = the file's, or as fit */
	int64_t timed, warm;		/* steps */
	int64_t document;	/* mean tokens of one in packed rows; 0: rows are one each */
	double peak_tflops;		/* NAN = by the device's name */
};

/*
 * argv[1] "bench" or "eval" makes it that call.  0; 1 when help or the version was asked for (and
 * printed); 2 for a wrong call.
 */
int zt_args_parse(int argc, char **argv, struct zt_args *out);
/* The options of a call as opt_parse() takes them.  Lent until the next. */
const struct opt *const *zt_args_tables(enum zt_call call);
/* Whether a run has that option. */
bool zt_args_has(const char *name);
/* Whether that call has it, and a run does not. */
bool zt_args_is_own(enum zt_call call, const char *name);

#endif
