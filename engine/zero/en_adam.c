/* en_adam.c -- see en_adam.h. */
#include "engine/zero/en_adam.h"

#include "engine/zero/en_zero_backend.h"
#include "libckpt/base/ck_base.h"

/* Elements of a job, and how many gradients of 16 bits are widened at once. */
#define JOB ((uint64_t)64 << 10)
#define SOME ((uint64_t)2048)

/* Elements [from, to), counted from the run's beginning, which lie in one parameter. */
static void update(const struct en_adam *a, uint32_t param, uint64_t from, uint64_t to)
{
	const struct en_zero *z = a->z;
	const struct en_zero_hyper *h = &a->hyper[en_zero_group_of(z, param)];
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

	for (uint64_t i = from; i < to; i += step) {
		const uint64_t n = ck_min_u64(step, to - i);
		const float *g = wide;

		if (a->grad_type == KN_F32)
			g = (const float *)grad;
		else
			kn_cast(wide, KN_F32, grad, a->grad_type, n, NULL);
		kn_adam(&how, a->master + i, a->m + i, a->v + i, g, n, copy, z->opts.type);
		grad += n * gs;
		if (copy)
			copy += n * cs;
	}
}

static void update_job(void *arg, size_t job, uint32_t thread)
{
	const struct en_adam *a = arg;
	const struct en_model *model = a->z->model;
	const struct en_block *block = &model->block[a->block];
	const uint64_t from = a->base + job * JOB, to = ck_min_u64(from + JOB, a->base + a->n);

	(void)thread;
	for (uint32_t i = block->first; i < block->first + block->count; i++) {
		const struct en_param *p = &model->param[i];
		const uint64_t b = ck_max_u64(from, p->offset),
			       e = ck_min_u64(to, p->offset + p->numel);

		if (b < e)
			update(a, i, b - a->base, e - a->base);
	}
}

void en_adam_run(const struct en_adam *a, struct en_pool *pool)
{
	en_pool_run(pool, (a->n + JOB - 1) / JOB, update_job, (void *)a);
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

void en_adam_copy(const struct en_adam *a, struct en_pool *pool)
{
	en_pool_run(pool, (a->n + JOB - 1) / JOB, copy_job, (void *)a);
}
