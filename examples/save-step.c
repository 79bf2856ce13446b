/*
 * save-step.c -- a training loop that saves: each of NRANKS processes puts the elements that it
 * holds, and threads write them while the loop goes on.
 *
 *	save-step ROOT 0 2 & save-step ROOT 1 2; wait
 *	zckpt verify --full ROOT
 *
 * The model is a matrix "w" [6, 4] and a vector "b" [4]; element i of a state is i plus a constant.
 */
#include <stdio.h>
#include <stdlib.h>

#include <ckpt.h>

static const uint64_t w_shape[] = { 6, 4 }, b_shape[] = { 4 };
/* 'derived': the weight is the master, rounded to bf16, and is not put */
static const struct ckpt_save_tensor model[] = {
	{ .name = "w", .shape = w_shape, .ndim = 2, .role = CKPT_ROLE_TRAINABLE,
	  .dtype = CKPT_BF16, .group = 0, .derived = 1 },
	{ .name = "b", .shape = b_shape, .ndim = 1, .role = CKPT_ROLE_TRAINABLE,
	  .dtype = CKPT_BF16, .group = 0, .derived = 1 },
};
static const uint64_t numel[] = { 24, 4 };
static const struct ckpt_save_state states[] = {
	{ "master", CKPT_F32 }, { "exp_avg", CKPT_F32 }, { "exp_avg_sq", CKPT_F32 },
};
static const struct ckpt_save_group adam = {
	.lr = 1e-3, .initial_lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .step = 1,
};

/* This rank's part of each tensor, of every state. */
static int put_all(struct ckpt_saver *saver, uint64_t rank, uint64_t nranks, struct ckpt_err *err)
{
	float x[24];
	int rc = 0;

	for (uint64_t t = 0; t < 2 && !rc; t++) {
		const uint64_t first = numel[t] * rank / nranks;
		const uint64_t count = numel[t] * (rank + 1) / nranks - first;

		for (int s = 0; s < 3 && !rc; s++) {
			for (uint64_t i = 0; i < count; i++)
				x[i] = (float)(first + i) + 100 * (float)s;
			/* x is copied, so it may change as soon as the call returns */
			rc = ckpt_save_put(saver, t, states[s].name, first, count, x, 0, err);
		}
	}
	return rc;
}

static int save(struct ckpt_saver *saver, uint64_t rank, uint64_t nranks, struct ckpt_err *err)
{
	const struct ckpt_save_step step = {
		.size = sizeof(step), .tag = "global_step1", .to = CKPT_TO_DEEPSPEED, .stage = 3,
		.world = 2, .tensor = model, .ntensors = 2, .state = states, .nstates = 3,
		.group = &adam, .ngroups = 1, .steps = 1,
	};
	int rc = ckpt_save_begin(saver, &step, err);

	if (rc)
		return rc;
	rc = put_all(saver, rank, nranks, err);
	if (rc) {
		ckpt_save_abort(saver, err->msg);
		return rc;
	}
	rc = ckpt_save_commit(saver, err);
	/* here the next steps of the training run; the result is wanted before the end */
	return rc ? rc : ckpt_save_wait(saver, 0, NULL, err);
}

int main(int argc, char **argv)
{
	struct ckpt_saver_opts opts = { .size = sizeof(opts), .job = "example" };
	struct ckpt_saver *saver = NULL;
	struct ckpt_err err = { 0 };
	int rc;

	if (argc != 4) {
		fprintf(stderr, "usage: save-step ROOT RANK NRANKS\n");
		return 2;
	}
	opts.root = argv[1];
	opts.rank = (uint32_t)strtoul(argv[2], NULL, 10);
	opts.nranks = (uint32_t)strtoul(argv[3], NULL, 10);
	rc = ckpt_saver_new(&opts, &saver, &err);
	if (!rc)
		rc = save(saver, opts.rank, opts.nranks, &err);
	if (rc)
		fprintf(stderr, "save-step: %s: %s\n", err.where, err.msg);
	ckpt_saver_free(saver);
	return rc ? 1 : 0;
}
