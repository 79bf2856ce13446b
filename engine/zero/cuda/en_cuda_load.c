/*
 * en_cuda_load.c -- the state to and from the host, in pieces: two buffers of pinned memory take
 * turns, so that one is filled while the other one is copied, and the host never holds a whole
 * state.
 */
#include "engine/zero/cuda/en_cuda_priv.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"

#define BUFFER ((uint64_t)32 << 20)	/* elements; less where all pieces have less */

struct en_cuda_load {
	uint64_t elements;	/* of each */
	float *p[2];
	cudaEvent_t gone[2];
};

float *en_cuda_state(const struct en_cuda *c, uint32_t block, enum en_state state)
{
	const struct en_zero_block *b = &c->z.block[block];
	float *p = state == EN_STATE_MASTER ? b->master :
		   state == EN_STATE_EXP_AVG ? b->exp_avg : b->exp_avg_sq;

	return p + (c->z.opts.stage ? 0 : c->z.comm->rank * b->shard);
}

int en_cuda_get(struct en_zero *z, const struct en_zero_slice *s, float *to, struct ckpt_err *err)
{
	struct en_cuda *c = en_cuda_of(z);
	int rc = (int)cudaMemcpyAsync(to, en_cuda_state(c, s->block, s->state) + s->at,
				      s->n * sizeof(float), cudaMemcpyDeviceToHost, c->work);

	if (!rc)
		rc = (int)cudaStreamSynchronize(c->work);
	return en_cuda_cuda(rc, "the state", err);
}

/* ---- buffers ---- */

int en_cuda_frozen_put(struct en_zero *z, uint32_t block, uint64_t at, uint64_t n, const void *p,
		       struct ckpt_err *err)
{
	struct en_cuda *c = en_cuda_of(z);
	const enum kn_type type = z->opts.type;
	int rc = (int)cudaMemcpyAsync(en_cuda_at(z->block[block].frozen, at, type), p,
				      n * kn_type_size(type), cudaMemcpyDefault, c->work);

	if (!rc)
		rc = (int)cudaStreamSynchronize(c->work);
	return en_cuda_cuda(rc, "frozen parameters", err);
}

static uint64_t elements_of(const struct en_zero *z)
{
	uint64_t n = 0;

	for (uint64_t i = 0; i < z->npieces; i++)
		n += EN_STATES * z->piece[i].count;
	return n;
}

static int new_buffers(struct en_cuda *c, struct ckpt_err *err)
{
	struct en_cuda_load *r = ck_zalloc(sizeof(*r));
	int rc = 0;

	if (!r)
		return ck_fail_nomem(err, "rooms", sizeof(*r));
	c->load = r;
	r->elements = ck_max_u64(1, ck_min_u64(BUFFER, elements_of(&c->z)));
	for (int i = 0; !rc && i < 2; i++) {
		rc = en_cuda_event(&r->gone[i], err);
		if (!rc)
			rc = en_cuda_cuda((int)cudaMallocHost((void **)&r->p[i],
							      r->elements * sizeof(float)),
					  "pinned memory", err);
	}
	if (!rc)
		en_mem_note(&c->z.mem, EN_MEM_SAVE, (int64_t)(2 * r->elements * sizeof(float)));
	else
		r->elements = 0;
	return rc;
}

void en_cuda_free_load(struct en_cuda *c)
{
	struct en_cuda_load *r = c->load;

	for (int i = 0; r && i < 2; i++) {
		if (r->gone[i])
			en_cuda_event_free(r->gone[i]);
		cudaFreeHost(r->p[i]);
	}
	if (r)
		en_mem_note(&c->z.mem, EN_MEM_SAVE, -(int64_t)(2 * r->elements * sizeof(float)));
	ck_free(r);
	c->load = NULL;
}

int en_cuda_load_buffer(struct en_zero *z, uint32_t turn, float **buffer_out,
			uint64_t *elements_out, struct ckpt_err *err)
{
	struct en_cuda *c = en_cuda_of(z);
	int rc = c->load ? 0 : new_buffers(c, err);
	struct en_cuda_load *r = c->load;

	if (rc)
		return rc;
	if (turn)
		rc = (int)cudaEventRecord(r->gone[(turn - 1) & 1], c->work);
	if (!rc && turn > 1)
		rc = (int)cudaEventSynchronize(r->gone[turn & 1]);
	if (rc)
		return en_cuda_cuda(rc, "the state", err);
	*buffer_out = r->p[turn & 1];
	*elements_out = r->elements;
	return 0;
}

int en_cuda_load_send(struct en_zero *z, const struct en_zero_slice *s, const float *from,
		struct ckpt_err *err)
{
	struct en_cuda *c = en_cuda_of(z);
	float *to = en_cuda_state(c, s->block, s->state) + s->at;

	return en_cuda_cuda((int)(from ? cudaMemcpyAsync(to, from, s->n * sizeof(float),
							 cudaMemcpyHostToDevice, c->work) :
				  cudaMemsetAsync(to, 0, s->n * sizeof(float), c->work)),
			    "the state", err);
}
