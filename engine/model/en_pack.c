/* en_pack.c -- what is kept between forward and backward, in the type that it was rounded to. */
#include <string.h>

#include "engine/model/en_exec_priv.h"

struct packing {
	uint32_t n;		/* parts, and the input after them */
	struct en_saved s;
	struct en_saved_part part[EN_SAVED_PARTS + 1];
	float *x;
	size_t at[EN_SAVED_PARTS + 2];	/* bytes before each */
	enum kn_type type;
	uint8_t *packed;
	bool back;
};

static void lay(struct packing *p, const struct en_exec *exec, size_t n, float *saved,
		unsigned flags)
{
	en_saved_place(exec, n, saved, &p->s);
	if (!(flags & EN_RECOMPUTE))
		p->n = en_saved_parts(exec, n, &p->s, p->part);
	p->type = exec->type;
	p->part[p->n++] = (struct en_saved_part){ &p->x, n * exec->model->config.hidden, true };
	for (uint32_t i = 0; i < p->n; i++) {
		const size_t size = p->part[i].narrow ? kn_type_size(p->type) : sizeof(float);

		p->at[i + 1] = p->at[i] + (p->part[i].n * size + 63) / 64 * 64;
	}
}

size_t en_packed_bytes(const struct en_exec *exec, uint32_t rows, uint32_t tokens, unsigned flags)
{
	struct packing p = { .n = 0 };

	lay(&p, exec, (size_t)rows * tokens, NULL, flags);
	return p.at[p.n];
}

static void move_part(void *arg, size_t job, uint32_t thread)
{
	const struct packing *p = arg;
	const struct en_saved_part *part = &p->part[job];
	const enum kn_type type = part->narrow ? p->type : KN_F32;

	(void)thread;
	if (p->back)
		kn_cast(*part->p, KN_F32, p->packed + p->at[job], type, part->n, NULL);
	else
		kn_cast(p->packed + p->at[job], type, *part->p, KN_F32, part->n, NULL);
}

/* The side that is read is not written. */
static void move(struct en_exec *exec, const struct en_batch *batch, const void *packed,
		 const float *x, const float *saved, unsigned flags, bool back)
{
	struct packing p = { .x = (float *)(uintptr_t)x, .packed = (uint8_t *)(uintptr_t)packed,
			     .back = back };

	lay(&p, exec, (size_t)batch->rows * batch->tokens, (float *)(uintptr_t)saved, flags);
	en_pool_run(exec->pool, p.n, move_part, &p);
}

void en_pack(struct en_exec *exec, const struct en_batch *batch, const float *x,
	     const float *saved, void *packed, unsigned flags)
{
	move(exec, batch, packed, x, saved, flags, false);
}

void en_unpack(struct en_exec *exec, const struct en_batch *batch, const void *packed, float *x,
	       float *saved, unsigned flags)
{
	move(exec, batch, packed, x, saved, flags, true);
}
