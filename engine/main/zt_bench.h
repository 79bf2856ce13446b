/* zt_bench.h -- ztrain bench: what its files share. */
#ifndef ZT_BENCH_H
#define ZT_BENCH_H

#include "engine/bench/en_bench.h"
#include "engine/main/zt_program.h"

/* What `zckpt plan` says of a configuration, kind by kind. */
struct zt_plan {
	bool is_there;
	uint64_t bytes[EN_MEM_KINDS], total;
};

/* A configuration, measured; or why not. */
struct zt_measured {
	struct en_bench bench;
	struct zt_plan plan;
	bool ran;
	uint32_t stage, rows;
	uint64_t fit_bytes;	/* expected of 'rows', or of one row where none fits */
	uint32_t gave_up;	/* rows that should have fitted and did not; 0 = none */
	double mfu;		/* NAN = the peak is not known */
};

/* What all of it has in common. */
struct zt_bench {
	struct zt_program *p;
	uint32_t tokens;
	uint64_t limit;		/* bytes of a rank; of --stages */
	uint32_t most;		/* rows that are tried */
	double peak;		/* FLOP/s of a rank, NAN = not known */
	struct zt_measured run[4];
	uint32_t n;
	uint32_t best;		/* n = none */
	char advice[EN_BENCH_TEXT];
};

/* zt_bench.c: the call, on every rank.  After the ranks are together and the device is known. */
int zt_bench(struct zt_program *p, struct ckpt_err *err);

/* zt_bench_tell.c: on rank 0. */
void zt_bench_tell_table(const struct zt_bench *b);
void zt_bench_tell_try(const struct zt_bench *b, const struct zt_measured *m);
void zt_bench_tell_stages(const struct zt_bench *b);
int zt_bench_json(const struct zt_bench *b, struct ckpt_err *err);

/* zt_bench_plot.c: --plot, on rank 0: the picture; without gnuplot the two files for it. */
int zt_bench_plot(const struct zt_bench *b, struct ckpt_err *err);

#endif
