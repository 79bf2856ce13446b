/*
 * ck_est_ztrain.c -- what a CPU rank of ztrain holds.  docs/ztrain/memory.md has the formulas;
 * a test compares these sums with the engine's own, to the byte.
 */
#include <inttypes.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/estimate/ck_estimate.h"

#define ALL CKPT_PHASE_ALL
#define CHUNK 4096u			/* elements: every rank has whole ones of each block */
#define LOGITS ((uint64_t)1 << 23)	/* elements that are there at once */
#define LOGIT_ROWS 16u
#define ROWS 64u			/* of a job; of attention's strips */
#define MESSAGE ((uint64_t)1 << 20)	/* a chunk of a collective, bytes */
#define PAGE 4096u
#define SAVE_MORE ((uint64_t)16 << 20)	/* of a saver's buffer */
#define MOST_LAYERS 100000u

struct zt {
	struct ck_estimating *e;
	uint64_t *block;		/* elements, [layers + 2] */
	uint64_t n;
	uint64_t padded, part;		/* sums over blocks */
	bool tied;
	uint64_t scratch;
};

static uint64_t larger(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static uint64_t up(uint64_t n, uint64_t unit)
{
	return (n + unit - 1) / unit * unit;
}

static uint64_t padded(const struct zt *z, uint64_t block)
{
	return up(z->block[block], (uint64_t)CHUNK * z->e->s.gpus);
}

/* ---- blocks ---- */

static int count_blocks(struct zt *z, struct ckpt_err *err)
{
	const struct ckpt_model *m = z->e->m;
	const struct ckpt_arch *a = &m->info.arch;

	if (!a->layers || a->layers > MOST_LAYERS || !a->gated || !a->rms || a->norms != 2)
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "ztrain trains models of the shape of Llama 3, Qwen2.5 and Qwen3, "
			       "and %s", a->layers ? "this is none" : "this one's is not known");
	z->n = a->layers + 2;
	z->block = ck_zalloc(z->n * sizeof(*z->block));
	if (!z->block)
		return ck_fail_nomem(err, "blocks", z->n);
	for (uint64_t i = 0; i < m->n; i++) {
		const uint32_t b = m->param[i].block;

		z->block[b == CK_BLOCK_BEHIND ? z->n - 1 : least(b, z->n - 1)] += m->param[i].numel;
	}
	for (uint64_t i = 0; i < z->n; i++) {
		if (!z->block[i])
			return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
				       "ztrain's memory follows from what each layer has, and that "
				       "is not known of a number of parameters: name a config.json "
				       "or a published model");
		z->padded += padded(z, i);
	}
	z->part = z->padded / z->e->s.gpus;
	z->tied = z->block[z->n - 1] < a->vocab * a->hidden;
	return 0;
}

/* ---- states ---- */

static void term(struct zt *z, const char *name, uint64_t bytes, const char *what)
{
	ck_est_term(z->e, CKPT_PLACE_GPU, ALL, name, bytes, "%s", what);
}

static void params(struct zt *z)
{
	const struct ck_estimating *e = z->e;
	const bool cut = e->s.stage == 3;
	const uint64_t n = cut ? z->part : z->padded;
	struct ck_counts c = { .at = 0 };

	ck_est_term(z->e, CKPT_PLACE_GPU, ALL,
		    cut && (e->s.offload & CKPT_OFFLOAD_PARAMS) ? "host parameters" : "parameters",
		    e->b * n, "%u B x %s, each block padded to %s x %u", (unsigned)e->b,
		    ck_count(&c, n), ck_count(&c, e->s.gpus), CHUNK);
}

static void optimizer(struct zt *z)
{
	const struct ck_estimating *e = z->e;
	const uint64_t n = e->s.stage ? z->part : z->padded;
	const unsigned each = e->b == 4 ? 8 : 12;
	struct ck_counts c = { .at = 0 };

	ck_est_term(z->e, CKPT_PLACE_GPU, ALL, e->s.offload ? "host optimizer" : "optimizer",
		    each * n, "%u B x %s: %stwo moments", each, ck_count(&c, n),
		    e->b == 4 ? "" : "master and ");
}

/* The largest even block, the largest odd one, and what a tied model has apart. */
struct rooms {
	uint64_t even, odd, head, tied;
};

static struct rooms rooms_of(const struct zt *z, bool gradients)
{
	struct rooms r = { .even = 0 };

	for (uint64_t i = 0; i < z->n; i++) {
		uint64_t *to = i & 1 ? &r.odd : &r.even;

		if (z->tied && gradients && !i)
			to = &r.tied;
		else if (z->tied && !gradients && i == z->n - 1)
			to = &r.head;
		*to = larger(*to, padded(z, i));
	}
	return r;
}

static void gathered(struct zt *z)
{
	const struct rooms r = rooms_of(z, false);
	const uint64_t n = r.even + r.odd + r.head;
	struct ck_counts c = { .at = 0 };

	if (z->e->s.stage == 3)
		ck_est_term(z->e, CKPT_PLACE_GPU, ALL, "gathered", z->e->b * n,
			    "%u B x %s: a block in use and one on its way", (unsigned)z->e->b,
			    ck_count(&c, n));
}

static void gradients(struct zt *z)
{
	const struct ck_estimating *e = z->e;
	const struct rooms r = rooms_of(z, true);
	const uint64_t two = r.even + r.odd + r.tied;
	uint64_t sums = 0;
	struct ck_counts c = { .at = 0 };

	while (e->s.accumulation >> (sums + 1))
		sums++;
	if (e->s.stage < 2) {
		ck_est_term(z->e, CKPT_PLACE_GPU, ALL, "gradients",
			    4 * (z->padded + sums * z->part), "4 B x (%s + %s sums x %s)",
			    ck_count(&c, z->padded), ck_count(&c, sums), ck_count(&c, z->part));
		return;
	}
	sums = larger(sums, 1);
	ck_est_term(z->e, CKPT_PLACE_GPU, ALL, "gradients", 4 * (sums * z->part + two),
		    "4 B x (%s sums x %s + blocks on their way %s)", ck_count(&c, sums),
		    ck_count(&c, z->part), ck_count(&c, two));
}

/* ---- collectives ---- */

/* Bytes of scratch of a reduce-scatter, as the engine's en_work_scratch(). */
static uint64_t scratch_of(uint64_t world, uint64_t bytes)
{
	uint64_t chunk = least(MESSAGE, 16 * MESSAGE / world);

	chunk = least(larger(chunk / PAGE * PAGE, PAGE), up(bytes, PAGE));
	return chunk * (world - 1) * least((bytes + chunk - 1) / chunk, 2);
}

/* Memory of two operations under way; the younger one's is looked at first. */
struct pair {
	uint64_t size[2];	/* 0 = none */
	bool used[2];
	uint64_t peak;
};

static uint64_t take(struct pair *p, uint64_t need)
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
	p->peak = larger(p->peak, p->size[0] + p->size[1]);
	return need;
}

static void give_back(struct pair *p, uint64_t size)
{
	p->used[p->used[0] && p->size[0] == size ? 0 : 1] = false;
}

/* Blocks go backward; each operation waits for the one before the last. */
static uint64_t scratch(const struct zt *z)
{
	const struct ck_estimating *e = z->e;
	uint64_t held[2] = { 0 };
	struct pair p = { .peak = 0 };

	for (uint64_t m = 0; e->s.gpus > 1 && m < least(e->s.accumulation, 2); m++) {
		for (uint64_t i = z->n; i-- > 0;) {
			uint64_t *h = &held[i & 1];

			if (*h)
				give_back(&p, *h);
			*h = take(&p, scratch_of(e->s.gpus, padded(z, i) / e->s.gpus * e->b));
		}
		give_back(&p, held[0]);
		give_back(&p, held[1]);
		held[0] = held[1] = 0;
	}
	return p.peak;
}

static void collectives(struct zt *z)
{
	const uint64_t room = scratch(z), sums = 8 * ((z->part + 2 * z->padded) / CHUNK);
	struct ck_counts c = { .at = 0 };

	ck_est_term(z->e, CKPT_PLACE_GPU, ALL, "collectives", sums + room,
		    "partial sums of the norm %s B, messages on their way %s B",
		    ck_count(&c, sums), ck_count(&c, room));
}

/* ---- activations ---- */

/* An array of 'n' elements of 'size' bytes, to 64 bytes. */
static uint64_t array(uint64_t n, uint64_t size)
{
	return up(n * size, 64);
}

/* What a layer keeps; numbers of the type take 'size' bytes. */
static uint64_t kept(const struct zt *z, uint64_t size)
{
	const struct ckpt_arch *a = &z->e->m->info.arch;
	const uint64_t t = z->e->out->tokens, q = a->heads * a->head_dim;
	const uint64_t kv = a->kv_heads * a->head_dim, h = a->hidden;
	uint64_t n = 3 * array(t * h, size) + 2 * array(t, 4) + 2 * array(t * q, size) +
		     2 * array(t * kv, size) + array(t * a->heads * 2, 4) +
		     array(t * 2 * a->inter, size) + array(t * a->inter, size);

	if (a->qk_norm)
		n += array(t * q, size) + array(t * kv, size) + array(t * a->heads, 4) +
		     array(t * a->kv_heads, 4);
	return n;
}

static void activations(struct zt *z)
{
	const struct ckpt_arch *a = &z->e->m->info.arch;
	const uint64_t n = z->e->out->tokens * a->hidden, b = z->e->b;
	const uint64_t recompute = z->e->s.recompute;
	const uint64_t again = recompute && a->layers > 1;
	const uint64_t away = array(n, b) + (recompute ? 0 : kept(z, b));
	struct ck_counts c = { .at = 0 };

	if (b == 4)
		ck_est_term(z->e, CKPT_PLACE_GPU, ALL, "activations",
			    (a->layers + 1) * n * 4 + (recompute ? 1 : a->layers) * kept(z, 4),
			    "%s inputs x %s B, %s x %s B kept", ck_count(&c, a->layers + 1),
			    ck_count(&c, 4 * n), ck_count(&c, recompute ? 1 : a->layers),
			    ck_count(&c, kept(z, 4)));
	else
		ck_est_term(z->e, CKPT_PLACE_GPU, ALL, "activations",
			    (2 + again) * n * 4 + kept(z, 4) + (a->layers - 1) * away,
			    "%s x %s B, %s B of a layer, %s x %s B put away",
			    ck_count(&c, 2 + again), ck_count(&c, 4 * n),
			    ck_count(&c, kept(z, 4)), ck_count(&c, a->layers - 1),
			    ck_count(&c, away));
}

static void work(struct zt *z)
{
	const struct ckpt_arch *a = &z->e->m->info.arch;
	const uint64_t t = z->e->out->tokens, seq = z->e->s.sequence, h = a->hidden;
	const uint64_t q = a->heads * a->head_dim, kv = a->kv_heads * a->head_dim;
	const uint64_t narrow = q + 2 * kv + 2 * a->head_dim;
	uint64_t logits = larger(LOGITS / a->vocab / LOGIT_ROWS * LOGIT_ROWS, LOGIT_ROWS);
	uint64_t n = 2 * array(seq * (a->head_dim / 2), 4) + 4 * array(t * h, 4) +
		     3 * array(t, 4) + array(t * a->inter, 4) + array(t * 2 * a->inter, 4) +
		     2 * array(t * q, 4) + 2 * array(t * kv, 4);

	if (z->e->b != 4)
		n += array(larger(h * a->vocab + h, z->block[1]), 4);
	n += array((t + ROWS - 1) / ROWS * larger(narrow, h), 4);
	n += array(2 * least(seq, ROWS) * seq, 4);
	n += array(least(logits, t) * a->vocab, 4);
	term(z, "work", n, z->e->b == 4 ? "a layer's gradients, a part of the logits" :
	     "a layer's gradients, a part of the logits, a block in fp32");
}

/* ---- saves ---- */

/* Elements of rank 0, which has the least padding. */
static uint64_t real_elements(const struct zt *z)
{
	uint64_t n = 0;

	for (uint64_t i = 0; i < z->n; i++)
		n += least(z->block[i], padded(z, i) / z->e->s.gpus);
	return n;
}

static void save_buffer(struct zt *z)
{
	const uint64_t state = 12 * real_elements(z);
	struct ck_counts c = { .at = 0 };

	ck_est_term(z->e, CKPT_PLACE_GPU, ALL, "save buffer", state + state / 64 + SAVE_MORE,
		    "12 B x %s, a 64th and 16 MiB more; nothing without --save",
		    ck_count(&c, state / 12));
}

/* Of the native form: the states alone, which any number of ranks reads. */
static void save(struct zt *z)
{
	const uint64_t all = 12 * z->e->m->info.params;
	struct ckpt_save *s = &z->e->out->save;

	*s = (struct ckpt_save){
		.files = z->e->s.gpus, .bytes = all, .optim_files = z->e->s.gpus,
		.optim_bytes = 12 * real_elements(z), .resume_same = all, .resume_other = all,
	};
}

static int check(const struct ck_estimating *e, struct ckpt_err *err)
{
	if (e->m->info.trainable != e->m->info.params)
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "ztrain trains all parameters, and %" PRIu64 " of %" PRIu64
			       " are frozen", e->m->info.params - e->m->info.trainable,
			       e->m->info.params);
	if (e->s.attention_matrix || e->s.ops != CKPT_OPS_EAGER)
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "ztrain has its own operations: how others write attention and "
			       "layers is not asked");
	if (e->out->tokens > INT32_MAX)
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "a micro-batch of %" PRIu64 " tokens: at most %d are possible",
			       e->out->tokens, INT32_MAX);
	return 0;
}

int ck_est_ztrain(struct ck_estimating *e, struct ckpt_err *err)
{
	struct zt z = { .e = e };
	struct ck_counts c = { .at = 0 };
	uint64_t rank = 0;
	int rc = check(e, err);

	if (!rc)
		rc = count_blocks(&z, err);
	if (!rc) {
		params(&z);
		gathered(&z);
		gradients(&z);
		optimizer(&z);
		activations(&z);
		work(&z);
		collectives(&z);
		save_buffer(&z);
		term(&z, "program, libraries, MPI", e->s.overhead,
		     "measured, see the manual; --overhead changes it");
		for (uint32_t i = 0; i < e->out->nterms; i++)
			rank += e->out->term[i].bytes;
		ck_est_term(e, CKPT_PLACE_HOST, ALL, "ranks", rank * e->hosts_ranks,
			    "%s ranks x %s B", ck_count(&c, e->hosts_ranks), ck_count(&c, rank));
		save(&z);
	}
	ck_free(z.block);
	return rc;
}
