/* ck_zt_memory.c -- see ck_zt_memory.h. */
#include "libckpt/ztrain/ck_zt_memory.h"

#include "libckpt/base/ck_base.h"

#define PAGE ((uint64_t)4096)		/* messages are multiples: of any element, and of a page */
#define LOGITS ((uint64_t)1 << 23)	/* elements: 32 MiB */
#define LOGIT_ROWS 16u

struct zt {
	const struct ck_zt_setup *s;
	struct ck_zt_memory m;
};

static uint64_t round_up(uint64_t n, uint64_t unit)
{
	return (n + unit - 1) / unit * unit;
}

uint64_t ck_zt_padded(uint64_t numel, uint32_t ranks)
{
	return round_up(numel, (uint64_t)CK_ZT_CHUNK * ranks);
}

uint32_t ck_zt_levels(uint32_t stage, uint64_t micro_batches)
{
	uint32_t n = 0;

	while (micro_batches >> (n + 1))
		n++;
	return stage >= 2 && !n ? 1 : n;
}

uint64_t ck_zt_message(uint32_t ranks, uint64_t bytes)
{
	const uint64_t most = ck_min_u64(CK_ZT_MESSAGE, CK_ZT_SCRATCH / 2 / ranks);

	return ck_min_u64(ck_max_u64(most / PAGE * PAGE, PAGE), round_up(bytes, PAGE));
}

uint64_t ck_zt_logit_rows(uint64_t vocab)
{
	return ck_max_u64(LOGITS / vocab / LOGIT_ROWS * LOGIT_ROWS, LOGIT_ROWS);
}

static uint64_t padded(const struct zt *z, uint64_t block)
{
	return ck_zt_padded(z->s->block[block], z->s->ranks);
}

static uint64_t frozen(const struct zt *z, uint64_t block)
{
	return z->s->frozen ? z->s->frozen[block] : 0;
}

/* The buffer of a block's parameters. */
static uint64_t room(const struct zt *z, uint64_t block)
{
	return padded(z, block) + ck_zt_padded(frozen(z, block), z->s->ranks);
}

/* ---- states ---- */

static void count_elements(struct zt *z)
{
	for (uint64_t i = 0; i < z->s->nblocks; i++) {
		const uint64_t numel = z->s->block[i], part = padded(z, i) / z->s->ranks;
		const uint64_t from = z->s->rank * part;

		z->m.padded += padded(z, i);
		z->m.part += part;
		z->m.fpadded += room(z, i) - padded(z, i);
		z->m.fpart += (room(z, i) - padded(z, i)) / z->s->ranks;
		z->m.largest = ck_max_u64(z->m.largest, part);
		z->m.real += numel <= from ? 0 : ck_min_u64(numel - from, part);
	}
}

/*
 * Buffers for blocks on their way: of the largest even block and the largest odd one.  Of a tied
 * model the head's parameters and the embedding's gradient have one of their own.
 */
static void count_buffers(struct zt *z)
{
	const uint64_t n = z->s->nblocks;
	uint64_t gather[3] = { 0 }, reduce[3] = { 0 };

	for (uint64_t i = 0; i < n; i++) {
		uint64_t *g = &gather[z->s->tied && i == n - 1 ? 2 : i & 1];
		uint64_t *r = &reduce[z->s->tied && !i ? 2 : i & 1];

		*g = ck_max_u64(*g, room(z, i));
		*r = ck_max_u64(*r, padded(z, i));
	}
	z->m.gather = gather[0] + gather[1] + gather[2];
	z->m.reduce = reduce[0] + reduce[1] + reduce[2];
}

static void count_states(struct zt *z)
{
	struct ck_zt_memory *m = &z->m;
	const uint32_t stage = z->s->stage, type = z->s->type;

	m->levels = ck_zt_levels(stage, z->s->micro_batches);
	m->params = type * (stage == 3 ? m->part + m->fpart : m->padded + m->fpadded);
	m->optimizer = (type == 4 ? 8 : 12) * (stage ? m->part : m->padded);
	m->gathered = stage == 3 ? type * m->gather : 0;
	m->grads = 4 * (m->levels * m->part + (stage < 2 ? m->padded : m->reduce));
	/* a sum a chunk: of this rank, of all, and those in order */
	m->norm_sums = 8 * ((m->part + 2 * m->padded) / CK_ZT_CHUNK);
}

/* ---- scratch of collectives ---- */

/* Memory of two operations under way; the younger one's is looked at first. */
struct pair {
	uint64_t size[2];	/* the younger one, the older one; 0 = none */
	bool used[2];
	uint64_t peak;
};

static uint64_t pair_take(struct pair *p, uint64_t need)
{
	for (int i = 0; i < 2; i++) {
		if (!p->size[i] || p->used[i])
			continue;
		if (p->size[i] >= need) {
			p->used[i] = true;
			return p->size[i];
		}
		p->size[i] = 0;
	}
	if (p->size[0]) {
		p->size[1] = p->size[0];
		p->used[1] = p->used[0];
	}
	p->size[0] = need;
	p->used[0] = true;
	p->peak = ck_max_u64(p->peak, p->size[0] + p->size[1]);
	return need;
}

static void pair_give_back(struct pair *p, uint64_t size)
{
	p->used[p->used[0] && p->size[0] == size ? 0 : 1] = false;
}

uint64_t ck_zt_scratch(uint32_t ranks, uint64_t bytes)
{
	const uint64_t message = ck_zt_message(ranks, bytes);

	return message * (ranks - 1) * (bytes > message ? 2 : 1);
}

/* Blocks go backward; each operation waits for the one before the last. */
static void count_scratch(struct zt *z)
{
	const struct ck_zt_setup *s = z->s;
	uint64_t held[2] = { 0 };
	struct pair p = { .peak = 0 };

	if (!s->messages || s->ranks < 2)
		return;
	for (uint64_t m = 0; m < ck_min_u64(s->micro_batches, 2); m++) {
		for (uint64_t i = s->nblocks; i-- > 0;) {
			uint64_t *h = &held[i & 1];

			if (!s->block[i])
				continue;
			if (*h)
				pair_give_back(&p, *h);
			*h = pair_take(&p, ck_zt_scratch(s->ranks,
							 padded(z, i) / s->ranks * s->wire));
		}
		for (int i = 0; i < 2; i++)
			if (held[i])
				pair_give_back(&p, held[i]);
		held[0] = held[1] = 0;
	}
	z->m.scratch = p.peak;
}

/* ---- activations ---- */

/* An array of 'n' elements of 'size' bytes, to 64 bytes. */
static uint64_t array(uint64_t n, uint64_t size)
{
	return round_up(n * size, 64);
}

/* What a layer keeps; numbers of the type take 'size' bytes. */
static uint64_t kept(const struct ck_zt_setup *s, uint64_t size)
{
	const uint64_t t = s->rows * s->tokens, h = s->hidden;
	const uint64_t q = s->heads * s->head_dim, kv = s->kv_heads * s->head_dim;
	uint64_t n = 3 * array(t * h, size) + 2 * array(t, 4) + 2 * array(t * q, size) +
		     2 * array(t * kv, size) + array(t * s->heads * 2, 4) +
		     array(t * 2 * s->inter, size) + array(t * s->inter, size);

	if (s->qk_norm)
		n += array(t * q, size) + array(t * kv, size) + array(t * s->heads, 4) +
		     array(t * s->kv_heads, 4);
	return n;
}

static void count_activations(struct zt *z)
{
	const struct ck_zt_setup *s = z->s;
	const uint64_t n = s->rows * s->tokens * s->hidden, layers = s->nblocks - 2;
	struct ck_zt_memory *m = &z->m;

	m->stream = 4 * n;
	m->kept = kept(s, 4);
	m->away = array(n, s->type) + (s->recompute ? 0 : kept(s, s->type));
	if (s->type == 4)
		m->activations = (layers + 1) * m->stream + (s->recompute ? 1 : layers) * m->kept;
	else
		m->activations = (s->recompute && layers > 1 ? 3 : 2) * m->stream + m->kept +
				 (layers - 1) * m->away;
}

/* What is computed in: a layer's gradients, a part of the logits, a block in fp32. */
static void count_work(struct zt *z)
{
	const struct ck_zt_setup *s = z->s;
	const uint64_t t = s->rows * s->tokens, seq = s->tokens, h = s->hidden;
	const uint64_t q = s->heads * s->head_dim, kv = s->kv_heads * s->head_dim;
	const uint64_t narrow = q + 2 * kv + 2 * s->head_dim;
	uint64_t n = 2 * array(seq * (s->head_dim / 2), 4) + 4 * array(t * h, 4) +
		     3 * array(t, 4) + array(t * s->inter, 4) + array(t * 2 * s->inter, 4) +
		     2 * array(t * q, 4) + 2 * array(t * kv, 4);

	uint64_t wide = h * s->vocab + h;

	for (uint64_t i = 1; i + 1 < s->nblocks; i++)
		wide = ck_max_u64(wide, frozen(z, i) ? padded(z, i) + frozen(z, i) : s->block[i]);
	if (s->type != 4)
		n += array(wide, 4);
	n += 2 * array(t * s->lora, 4) + array(t * s->lora_drop, 4);
	n += array((t + CK_ZT_ROWS - 1) / CK_ZT_ROWS * ck_max_u64(narrow, h), 4);
	n += array(s->threads * 2 * ck_min_u64(seq, CK_ZT_ROWS) * seq, 4);
	n += array(ck_min_u64(ck_zt_logit_rows(s->vocab), t) * s->vocab, 4);
	z->m.work = n;
}

void ck_zt_memory(const struct ck_zt_setup *setup, struct ck_zt_memory *out)
{
	struct zt z = { .s = setup };

	count_elements(&z);
	count_buffers(&z);
	count_states(&z);
	count_scratch(&z);
	count_activations(&z);
	count_work(&z);
	*out = z.m;
}
