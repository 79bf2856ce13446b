/*
 * en_bench.h -- measures a configuration: its speed, memory, traffic and waiting times.  It runs
 * steps of random tokens through the engine of a training run, on CPU ranks and on GPUs.
 *
 * Every rank makes the same calls and gets the same numbers, except those marked "of this rank".
 */
#ifndef EN_BENCH_H
#define EN_BENCH_H

#include "engine/zero/cuda/en_zero_cuda.h"

struct en_bench_opts {
	const struct en_model *model;
	struct en_comm *comm;
	const struct en_cuda_opts *cuda;	/* NULL: on the CPU */
	struct en_zero_opts zero;		/* rows and tokens are those of each micro-batch */
	struct en_zero_rule rule;
	double clip;				/* of the norm; 0 = not */
	uint64_t seed;				/* of weights and tokens */
	uint32_t document;	/* mean tokens of a document in packed rows; 0: a row is one */
	bool messages;				/* as en_zero_cpu_expect() has it */
	uint32_t warmup;			/* steps that are not timed */
	uint32_t steps;				/* at least 1 */
	uint32_t traced;			/* steps after those, with a trace; may be 0 */
};

/* Seconds of a step, that of the slowest rank, over all timed ones. */
struct en_bench_times {
	double median, least, most;
	double low, high;	/* a quarter of the steps is below, a quarter above */
};

#define EN_BENCH_DEVICE 400

struct en_bench {
	uint32_t world, steps, traced;
	struct en_zero_opts zero;
	struct en_bench_times step;
	double tokens_per_s;		/* of one rank: its tokens of a step / the median */
	double flop_per_token;		/* en_bench_flop() */
	double loss;			/* of the last timed step */
	struct en_mem mem;		/* of this rank */
	struct en_mem expected;		/* by arithmetic, before there was any */
	uint64_t peak_least, peak_most;	/* of all ranks: en_bench_held() */
	bool has_device;
	char device[EN_BENCH_DEVICE];	/* what computes; "" = the CPU */
	/* Of this rank's GPU, as the driver says: before, and what is gone after the steps. */
	uint64_t device_all, device_free, device_used;
	uint64_t sent[EN_COMM_KINDS];	/* by this rank in a timed step */
	/* Of a traced step, on the rank that waits longest: seconds in which nothing is computed */
	double wait_gather, wait_reduce, wait_other;
	double traced_step;		/* such a step as a whole */
	uint64_t lost;			/* spans that had no room */
};

/*
 * Steps of a configuration.  '*trace_out' (may be NULL) is that of the traced steps, for
 * en_trace_free().  CKPT_E_NOMEM on all ranks if one of them runs out of memory: all of it is
 * freed, and the caller can try other sizes.  Codes of the engine.
 */
int en_bench_run(const struct en_bench_opts *opts, struct en_bench *out,
		 struct en_trace **trace_out, struct ckpt_err *err);

/*
 * Operations of a token, forward and backward, as is usual: 6 N + 12 L A S.  N: parameters without
 * the input embedding (tied: the matrix counts once, as the head); L layers, A heads x head size
 * (the hidden size of most models), S tokens of a row.  Positions that a causal mask excludes
 * count, and recomputation does not.
 */
double en_bench_flop(const struct en_model *model, uint32_t tokens);

/* Bytes at most on the device that computes: of a GPU, without what is on its host. */
uint64_t en_bench_held(const struct en_mem *mem, bool on_gpu);

/* ---------------------------------------------------------------- what fits */

/*
 * The most rows of a micro-batch, up to 'most', whose expected memory is at most 'limit' bytes; 0
 * if one row is too much.  opts->zero.rows is not looked at.  '*bytes_out': what they take, or one
 * row.
 */
int en_bench_fit(const struct en_bench_opts *opts, uint64_t limit, uint32_t most,
		 uint32_t *rows_out, uint64_t *bytes_out, struct ckpt_err *err);

/*
 * Bytes that a rank may take: the least of all ranks.  Of a GPU what is free, less a margin for
 * what libraries take by themselves; of the machine what Linux says is available, shared by the
 * ranks on it.  CKPT_E_IO if it is unknown.
 */
int en_bench_free(struct en_comm *comm, const struct en_cuda_opts *cuda, uint64_t *bytes_out,
		  struct ckpt_err *err);

/* ---------------------------------------------------------------- which stage */

struct en_bench_stage {
	uint32_t stage;
	bool ran;		/* else it did not fit */
	double tokens_per_s;
	uint64_t states;	/* bytes that are no activations and no room to compute in */
	uint32_t rows;
};

#define EN_BENCH_SIZE 24
/* "1.2 GiB", "341 KiB": three digits or so; 'out'. */
const char *en_bench_size(uint64_t bytes, char out[EN_BENCH_SIZE]);

#define EN_BENCH_TEXT 600
/*
 * The fastest stage; of those within 'near' (0.02: two in a hundred) of it, the one whose states
 * take least.  '*best_out' is its place in 'stage', n if none ran; 'text' a sentence about it.
 */
void en_bench_advise(const struct en_bench_stage *stage, uint32_t n, double near,
		     uint32_t *best_out, char text[EN_BENCH_TEXT]);

/* ---------------------------------------------------------------- files */

/*
 * Writes the spans of all ranks to one file of Chrome's trace format.  The file is whole or absent,
 * and replaces an older one.  CKPT_E_IO, CKPT_E_NOMEM, CKPT_E_LIMIT (1 GiB).
 */
int en_bench_trace_write(const char *path, struct en_comm *comm, const struct en_trace *trace,
			 struct ckpt_err *err);
/* Writes a text to a file in the same way. */
int en_bench_file_write(const char *path, const char *text, uint64_t len, struct ckpt_err *err);

#endif
