/*
 * saveloop.c - saves a made-up training state through a save session, as a trainer that has it in
 * memory would, and prints for each save
 *
 *	total stall memcpy bytes
 *
 * in seconds: from begin() until the step stood there; what the calls took from the caller; a bare
 * copy of the state, taken in the same process just before; and bytes put. The step stays.
 *
 *	saveloop [-t THREADS] [-s data|full|none] [-l] [-n RUNS] [-f native|z2|z3] ROOT MIB
 *	-l  lend the memory: nothing is copied
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "libckpt/include/ckpt.h"

#define NTENSORS 24u

static struct {
	uint32_t threads;
	enum ckpt_sync sync;
	int lend, runs, to, stage;
	uint64_t numel;		/* of a tensor */
	float *state;		/* of all tensors: master, exp_avg, exp_avg_sq */
	float *copy;
} job = { .threads = 2, .runs = 1, .to = CKPT_TO_NATIVE, .stage = 2 };

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void must(int rc, const struct ckpt_err *err)
{
	if (!rc)
		return;
	fprintf(stderr, "saveloop: %s: %s\n", err->where, err->msg);
	exit(1);
}

static const struct ckpt_save_state states[] = {
	{ "master", CKPT_F32 }, { "exp_avg", CKPT_F32 }, { "exp_avg_sq", CKPT_F32 },
};

static void describe(struct ckpt_save_step *step, struct ckpt_save_tensor *tensor)
{
	static const struct ckpt_save_group group = { 1e-3, 1e-3, 0.1, 0.9, 0.95, 1e-8, 1 };
	static char names[NTENSORS][16];

	for (uint32_t i = 0; i < NTENSORS; i++) {
		snprintf(names[i], sizeof(names[i]), "layers.%u.w", i);
		tensor[i] = (struct ckpt_save_tensor){
			names[i], &job.numel, 1, CKPT_ROLE_TRAINABLE, CKPT_BF16, 0, 0, 1,
		};
	}
	*step = (struct ckpt_save_step){
		.size = sizeof(*step), .tag = "step", .to = job.to, .stage = job.stage,
		.tensor = tensor, .ntensors = NTENSORS, .state = states, .nstates = 3,
		.group = &group, .ngroups = 1, .steps = 1, .flags = CKPT_SAVE_FORCE,
	};
}

static double copy_state(void)
{
	const double t = now();

	memcpy(job.copy, job.state, 3 * NTENSORS * job.numel * sizeof(float));
	return now() - t;
}

static void save(struct ckpt_saver *sv)
{
	struct ckpt_save_tensor tensor[NTENSORS];
	struct ckpt_save_step step;
	struct ckpt_err err = { 0 };
	const double bare = copy_state();
	double t, stall;

	describe(&step, tensor);
	t = now();
	must(ckpt_save_begin(sv, &step, &err), &err);
	for (uint32_t i = 0; i < NTENSORS; i++)
		for (uint32_t s = 0; s < 3; s++)
			must(ckpt_save_put(sv, i, states[s].name, 0, job.numel,
					   job.state + (s * NTENSORS + i) * job.numel,
					   job.lend ? CKPT_PUT_BORROW : 0, &err), &err);
	must(ckpt_save_commit(sv, &err), &err);
	stall = now() - t;
	must(ckpt_save_wait(sv, 0, NULL, &err), &err);
	printf("%.6f %.6f %.6f %llu\n", now() - t, stall, bare,
	       (unsigned long long)(12 * NTENSORS * job.numel));
	fflush(stdout);
}

static void option(int c)
{
	switch (c) {
	case 't':
		job.threads = (uint32_t)atoi(optarg);
		break;
	case 's':
		job.sync = !strcmp(optarg, "full") ? CKPT_SYNC_FULL :
			   !strcmp(optarg, "none") ? CKPT_SYNC_NONE : CKPT_SYNC_DATA;
		break;
	case 'l':
		job.lend = 1;
		break;
	case 'n':
		job.runs = atoi(optarg);
		break;
	case 'f':
		job.to = optarg[0] == 'z' ? CKPT_TO_DEEPSPEED : CKPT_TO_NATIVE;
		job.stage = optarg[0] == 'z' ? optarg[1] - '0' : 2;
		break;
	default:
		fprintf(stderr, "saveloop: wrong option\n");
		exit(2);
	}
}

int main(int argc, char **argv)
{
	struct ckpt_saver_opts o = { .size = sizeof(o), .nranks = 1 };
	struct ckpt_err err = { 0 };
	struct ckpt_saver *sv;
	uint64_t n;
	int c;

	while ((c = getopt(argc, argv, "t:s:ln:f:")) != -1)
		option(c);
	if (argc - optind != 2)
		option('?');
	job.numel = (uint64_t)atoll(argv[optind + 1]) * (1 << 20) / 12 / NTENSORS;
	n = 3 * NTENSORS * job.numel;
	job.state = malloc(n * sizeof(float));
	job.copy = malloc(n * sizeof(float));
	if (!job.state || !job.copy)
		return 1;
	for (uint64_t i = 0; i < n; i++)
		job.state[i] = (float)(i % 8191) * 0.25f;
	memset(job.copy, 1, n * sizeof(float));	/* touched: zeros might not be */
	o.root = argv[optind];
	o.threads = job.threads;
	o.sync = job.sync;
	o.buffer_bytes = job.lend ? 1 << 20 : n * sizeof(float) + (64 << 20);
	must(ckpt_saver_new(&o, &sv, &err), &err);
	for (int i = 0; i < job.runs; i++)
		save(sv);
	ckpt_saver_free(sv);
	free(job.state);
	free(job.copy);
	return 0;
}
