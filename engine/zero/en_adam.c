/* en_adam.c -- see en_adam.h. */
#include "engine/zero/en_adam.h"

#include "engine/zero/en_zero_backend.h"
#include "libckpt/base/ck_base.h"

/* Elements of a job, and how many gradients of 16 bits are widened at once. */
#define JOB ((uint64_t)64 << 10)
#define SOME ((uint64_t)2048)

/* Elements of a part, all of one group. */
struct run {
	const struct en_adam *a;
	uint32_t group;
	uint64_t from, to;
};

static void update_job(void *arg, size_t job, uint32_t thread)
{
	const struct run *r = arg;
	const struct en_adam *a = r->a;
	const struct en_zero *z = a->z;
	const struct en_zero_hyper *h = &a->hyper[r->group];
	const uint64_t from = r->from + job * JOB, to = ck_min_u64(from + JOB, r->to);
	const uint64_t gs = kn_type_size(a->grad_type), cs = kn_type_size(z->opts.type);
	const uint64_t step = a->grad_type == KN_F32 ? to - from : SOME;
	const uint8_t *grad = (const uint8_t *)a->grad + from * gs;
	uint8_t *copy = a->copy ? (uint8_t *)a->copy + from * cs : NULL;
	const struct kn_adam how = {
		.rule = z->rule.rule, .decoupled = z->rule.decoupled,
		.bias_correction = z->rule.bias_correction, .step = a->k, .lr = h->lr,
		.beta1 = h->beta1, .beta2 = h->beta2, .eps = h->eps, .decay = h->decay,
		.grad_scale = a->grad_scale,
	};
	float wide[SOME];

	(void)thread;
	for (uint64_t i = from; i < to; i += step) {
		const uint64_t n = ck_min_u64(step, to - i);
		const float *g = wide;

		if (a->grad_type == KN_F32)
			g = (const float *)grad;
		else
			kn_cast(wide, KN_F32, grad, a->grad_type, n, NULL);
		kn_adam(&how, a->master + i, a->exp_avg + i, a->exp_avg_sq + i, g, n, copy,
			z->opts.type);
		grad += n * gs;
		if (copy)
			copy += n * cs;
	}
}

int en_adam_host(struct en_adam *a, uint32_t group, uint64_t from, uint64_t to,
		 struct ckpt_err *err)
{
	struct run r = { a, group, from, to };

	(void)err;
	en_pool_run(a->z->pool, (to - from + JOB - 1) / JOB, update_job, &r);
	return 0;
}

static void copy_job(void *arg, size_t job, uint32_t thread)
{
	const struct en_adam *a = arg;
	const uint64_t from = job * JOB, n = ck_min_u64(JOB, a->n - from);
	const enum kn_type type = a->z->opts.type;

	(void)thread;
	kn_cast((uint8_t *)a->copy + from * kn_type_size(type), type, a->master + from, KN_F32, n,
		NULL);
}

int en_adam_host_cast(struct en_adam *a, struct ckpt_err *err)
{
	(void)err;
	en_pool_run(a->z->pool, (a->n + JOB - 1) / JOB, copy_job, a);
	return 0;
}
