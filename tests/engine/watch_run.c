/*
 * watch_run.c -- see watch.h: bytes that a run sends, worked out from the model, the stage and the
 * steps (docs/ztrain/collectives.md, "What a step sends"), next to those that were sent.
 */
#include <stdio.h>
#include <stdlib.h>

#include "engine/run/en_run.h"
#include "tests/engine/watch.h"

#define CHUNK 4096u
#define NAME 64u	/* of the job */

static const struct en_run_opts *run;
static uint64_t step_gather, step_reduce;	/* before the last step, then of it */

/* The steps that rank 0 found, to resume from and in the folder that is saved to. */
static uint64_t found_bytes(void)
{
	return !run->found ? 0 :
	       sizeof(*run->found) + run->found->nsteps * sizeof(*run->found->step);
}

/* Elements of a rank's shard of a block. */
static uint64_t shard(uint32_t block)
{
	const uint64_t unit = (uint64_t)CHUNK * run->comm->size;

	return (run->model->block[block].numel + unit - 1) / unit * CHUNK;
}

static uint64_t all_shards(void)
{
	uint64_t n = 0;

	for (uint32_t b = 0; b < run->model->nblocks; b++)
		n += shard(b);
	return n;
}

static uint64_t param_bytes(void)
{
	return run->set->precision == EN_BF16 || run->set->precision == EN_FP16 ? 2 : 4;
}

static uint64_t wire_bytes(void)
{
	return run->set->communication_dtype == CKPT_F32 ? 4 : param_bytes();
}

/* Every layer forward and backward; the head once, the embedding once, or tied twice. */
static uint64_t unit_gathers(void)
{
	uint64_t n = shard(0) * (run->model->config.tied ? 2 : 1);

	for (uint32_t b = 1; b + 1 < run->model->nblocks; b++)
		n += 2 * shard(b);
	return n + shard(run->model->nblocks - 1);
}

static uint64_t gathers(uint64_t units, uint64_t updates)
{
	switch (run->set->stage) {
	case 0:		/* masters and moments to begin with, then sums */
		return all_shards() * 4 * (3 + updates);
	case 3:
		return unit_gathers() * param_bytes() * units;
	default:
		return all_shards() * param_bytes() * (1 + updates);
	}
}

static uint64_t formula(enum en_comm_kind kind, const struct en_ran *ran)
{
	const uint64_t others = run->comm->size - 1, steps = (uint64_t)ran->at.steps;
	const uint64_t acc = (uint64_t)run->set->accumulation, units = steps * acc;

	switch (kind) {
	case EN_COMM_GATHER:
		return others * gathers(units, steps - (uint64_t)ran->at.skipped);
	case EN_COMM_REDUCE:
		return others * units * all_shards() * wire_bytes();
	case EN_COMM_SMALL:	/* sums of chunks, losses of units, memory of ranks, signals, tokens
				 * that count */
		return others * 8 *
		       (1 + steps * (all_shards() / CHUNK + acc * run->comm->size +
				     (run->rank_memory ? 2 * run->comm->size : 0) +
				     (run->stop ? acc : 0) + (run->token_mean ? 1 : 0)));
	case EN_COMM_BROADCAST:
		return run->comm->rank ? 0 : others * (NAME + found_bytes());
	default:
		return 0;
	}
}

static void told(void *arg, const struct en_step_report *step)
{
	static uint64_t gather, reduce;
	const uint64_t g = watch_counted(EN_COMM_GATHER)->sent,
		       r = watch_counted(EN_COMM_REDUCE)->sent;

	step_gather = g - gather;
	step_reduce = r - reduce;
	gather = g;
	reduce = r;
	run->on_step(arg, step);
}

static void report(const char *folder, const struct en_ran *ran)
{
	char path[4096];
	uint64_t round = 0;
	FILE *f;

	snprintf(path, sizeof(path), "%s/%u", folder, run->comm->rank);
	f = fopen(path, "w");
	if (!f) {
		perror(path);
		exit(3);
	}
	for (int k = 0; k < EN_COMM_KINDS; k++) {
		const struct en_comm_counter *c = &run->comm->counter[k];
		const struct watch_count *w = watch_counted((enum en_comm_kind)k);

		fprintf(f, "%s %llu %llu %llu %llu %llu %llu %llu\n",
			en_comm_kind_name((enum en_comm_kind)k), (unsigned long long)w->sent,
			(unsigned long long)w->messages, (unsigned long long)w->received,
			(unsigned long long)c->sent, (unsigned long long)c->messages,
			(unsigned long long)c->received,
			(unsigned long long)formula((enum en_comm_kind)k, ran));
		round += w->others;
	}
	fprintf(f, "round %llu\n", (unsigned long long)round);
	fprintf(f, "step %llu %llu %llu %llu\n", (unsigned long long)step_reduce,
		(unsigned long long)step_gather,
		(unsigned long long)(run->model->numel * param_bytes()),
		(unsigned long long)(all_shards() * run->comm->size * param_bytes()));
	if (fclose(f))
		exit(3);
}

WATCH_WRAP(int, en_run,
	   (const struct en_run_opts *opts, struct en_ran *out, struct ckpt_err *err))
{
	const char *folder = getenv("WATCH_COUNT");
	struct en_run_opts mine = *opts;
	int rc;

	run = opts;
	mine.on_step = told;
	rc = __real_en_run(&mine, out, err);
	if (!rc && folder)
		report(folder, out);
	return rc;
}
