/*
 * ck_est_save.c -- a save of DeepSpeed's layout: the bytes of tensors in each file.  What comes
 * on top is the archive and the pickle: docs/internals/memory.md.
 */
#include "libckpt/estimate/ck_estimate.h"

/* torch keeps a step counter of 4 bytes a parameter of the optimizer. */
#define STEP_BYTES 4u

void ck_est_save(struct ck_estimating *e)
{
	const struct ckpt_model_info *info = &e->m->info;
	const uint64_t frozen = info->params - info->trainable, world = e->s.gpus;
	struct ckpt_save *s = &e->out->save;
	uint64_t trained = 0;

	for (uint64_t i = 0; i < e->m->n; i++)
		trained += !e->m->param[i].frozen;
	s->model_files = e->s.stage == 3 ? world : 1;
	s->optim_files = e->s.stage ? world : 0;
	s->model_bytes = info->buffer_bytes;
	if (!e->s.stage) {
		s->model_bytes += e->b * info->params + STEP_BYTES * trained +
				  (e->b == 4 ? 8 : 12) * info->trainable;
	} else if (e->s.stage < 3) {
		/* a weight is a view of the flat buffer, which is saved whole, padding too */
		s->model_bytes += e->b * (e->flat + frozen);
		s->optim_bytes = 12 * e->part + STEP_BYTES * info->groups;
	} else {
		s->model_bytes += e->b * e->frozen3;
		s->optim_bytes = 12 * e->part3 + STEP_BYTES * e->nsub;
	}
	s->files = s->model_files + s->optim_files;
	s->bytes = s->model_files * s->model_bytes + s->optim_files * s->optim_bytes;
	/* each rank reads its own shard, and the model file, of which stage 3 has one a rank */
	s->resume_same = world * (s->model_bytes + s->optim_bytes);
	s->resume_other = s->bytes;
}
