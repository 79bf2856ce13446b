/*
 * ck_estimate.c -- the frame of an estimate: defaults, the numbers of elements by rank, and
 * the sums of the terms by phase.  docs/internals/memory.md.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/estimate/ck_estimate.h"
#include "libckpt/include/ckpt_zero.h"

/* DeepSpeed's defaults, elements. */
#define REDUCE_BUCKET UINT64_C(500000000)
#define PREFETCH_BUCKET UINT64_C(50000000)
#define PERSISTENCE UINT64_C(100000)
#define MAX_REUSE UINT64_C(1000000000)

/*
 * Measured with PyTorch 2.11, CUDA 13 and NCCL on H200s: what a process takes of its GPU beside
 * the allocator's memory after the first matrix product, and what the first all-reduce of two
 * GPUs adds (NVLink multicast off).
 */
#define CONTEXT_BYTES (UINT64_C(685) << 20)
#define NCCL_BYTES (UINT64_C(840) << 20)

/*
 * Of ztrain, measured as VmHWM of a model of almost nothing with 1 to 4 ranks of Open MPI: 18 to 21
 * MB.
 */
#define PROGRAM_BYTES (UINT64_C(20) << 20)

#define MAX_BATCH ((uint64_t)1 << 24)

const char *ck_count(struct ck_counts *c, uint64_t n)
{
	char *text = c->text[c->at++ % CK_ARRAY_LEN(c->text)], digits[24];
	const size_t len = (size_t)snprintf(digits, sizeof(digits), "%" PRIu64, n);
	size_t k = 0;

	for (size_t i = 0; i < len; i++) {
		if (i && (len - i) % 3 == 0)
			text[k++] = ',';
		text[k++] = digits[i];
	}
	text[k] = '\0';
	return text;
}

void ck_est_term(struct ck_estimating *e, enum ckpt_place place, unsigned phases, const char *name,
		 uint64_t bytes, const char *fmt, ...)
{
	struct ckpt_term *t = &e->out->term[e->out->nterms];
	va_list ap;

	if (!bytes || e->out->nterms == CKPT_MAX_TERMS)
		return;
	e->out->nterms++;
	t->place = place;
	t->phases = phases;
	t->bytes = bytes;
	snprintf(t->name, sizeof(t->name), "%s", name);
	va_start(ap, fmt);
	vsnprintf(t->formula, sizeof(t->formula), fmt, ap);
	va_end(ap);
}

/* ---- setups ---- */

/* "auto" is what transformers' Trainer fills in, from the hidden size. */
static int bucket(uint64_t *n, uint64_t otherwise, uint64_t automatic, const char *name,
		  struct ckpt_err *err)
{
	if (*n == UINT64_MAX && !automatic)
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "%s is \"auto\", but the hidden size that determines it is "
			       "unknown", name);
	if (*n == UINT64_MAX)
		*n = automatic;
	if (!*n)
		*n = otherwise;
	if (*n > (uint64_t)1 << 40)
		*n = (uint64_t)1 << 40;
	return 0;
}

static int take_buckets(const struct ckpt_model *m, struct ckpt_setup *s, struct ckpt_err *err)
{
	const uint64_t h = m->info.arch.hidden;
	int rc = bucket(&s->reduce_bucket, REDUCE_BUCKET, h * h, "reduce_bucket_size", err);

	if (!rc)
		rc = bucket(&s->prefetch_bucket, PREFETCH_BUCKET, h * h * 9 / 10,
			    "stage3_prefetch_bucket_size", err);
	if (!rc)
		rc = bucket(&s->persistence, PERSISTENCE, 10 * h,
			    "stage3_param_persistence_threshold", err);
	if (!rc)
		rc = bucket(&s->max_reuse, MAX_REUSE, 0, "stage3_max_reuse_distance", err);
	return rc ? rc : bucket(&s->sub_group, CKPT_Z3_SUB_GROUP_SIZE, 0, "sub_group_size", err);
}

static int check(const struct ckpt_setup *s, struct ckpt_err *err)
{
	if (s->stage > 3 || s->gpus > CKPT_ZERO_MAX_WORLD)
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "cannot estimate stage %" PRIu32 " on %" PRIu32 " GPUs: stages "
			       "are 0 to 3, GPUs 1 to %u", s->stage, s->gpus, CKPT_ZERO_MAX_WORLD);
	if (s->dtype != CKPT_BF16 && s->dtype != CKPT_F16 && s->dtype != CKPT_F32)
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "DeepSpeed does not train weights of type %s",
			       ckpt_dtype_name(s->dtype));
	if (s->grad_dtype != s->dtype && s->grad_dtype != CKPT_F32)
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "DeepSpeed has no gradients of type %s for weights of type %s",
			       ckpt_dtype_name(s->grad_dtype), ckpt_dtype_name(s->dtype));
	if (s->engine > CKPT_ENGINE_ZTRAIN)
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "unknown engine number %" PRIu32, s->engine);
	if (s->offload && !s->stage)
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "stage 0 cannot offload: use stage 1, 2 or 3");
	if ((s->offload & CKPT_OFFLOAD_PARAMS) && s->stage != 3)
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "parameters can be offloaded at stage 3 only, not at stage %" PRIu32,
			       s->stage);
	if (s->micro > MAX_BATCH || s->sequence > MAX_BATCH || s->accumulation > MAX_BATCH)
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "%" PRIu64 " samples of %" PRIu64 " tokens, accumulated %" PRIu64
			       " times, are too many: each number can be at most 2^24",
			       s->micro, s->sequence, s->accumulation);
	return 0;
}

static int fill_setup(const struct ckpt_model *m, const struct ckpt_setup *in,
		      struct ckpt_setup *s, struct ckpt_err *err)
{
	int rc = ck_opts_take(s, sizeof(*s), in, "a setup", err);

	if (rc)
		return rc;
	s->gpus = s->gpus ? s->gpus : 1;
	s->gpus_per_node = s->gpus_per_node ? s->gpus_per_node : 8;
	if (s->gpus_per_node > s->gpus)
		s->gpus_per_node = s->gpus;
	s->dtype = s->dtype ? s->dtype : CKPT_BF16;
	s->grad_dtype = s->grad_dtype ? s->grad_dtype : s->dtype;
	s->micro = s->micro ? s->micro : 1;
	s->sequence = s->sequence ? s->sequence : 2048;
	s->accumulation = s->accumulation ? s->accumulation : 1;
	s->overlap = s->overlap ? s->overlap : s->stage == 3 ? 1 : -1;
	if (!s->overhead && s->engine == CKPT_ENGINE_ZTRAIN)
		s->overhead = PROGRAM_BYTES;
	if (!s->overhead)
		s->overhead = CONTEXT_BYTES + (s->gpus > 1 ? NCCL_BYTES : 0);
	rc = take_buckets(m, s, err);
	return rc ? rc : check(s, err);
}

/* ---- elements by rank ---- */

/* PyTorch takes pinned memory in powers of two. */
static uint64_t pinned(const struct ckpt_setup *s, uint64_t bytes)
{
	uint64_t n = 1;

	if (s->no_pin)
		return bytes;
	while (bytes && n < bytes)
		n *= 2;
	return bytes ? n : 0;
}

static uint64_t group_numel(const struct ckpt_model *m, uint32_t group)
{
	uint64_t n = 0;

	for (uint64_t i = 0; i < m->n; i++)
		n += !m->param[i].frozen && m->param[i].group == group ? m->param[i].numel : 0;
	return n;
}

/* The ranks that divide a group. */
static uint32_t group_ranks(const struct ck_estimating *e, uint32_t group)
{
	return group < e->dense_groups ? e->s.gpus : e->share->edp;
}

static int cut_groups(struct ck_estimating *e, struct ckpt_err *err)
{
	uint64_t *numel = ck_alloc_array(e->m->n + 1, sizeof(*numel));
	uint32_t *first = ck_alloc_array(e->m->n + 1, sizeof(*first));
	int rc = numel && first ? 0 : ck_fail_nomem(err, "sub-groups", e->m->n);

	for (uint32_t g = 0; !rc && g < e->m->info.groups; g++) {
		const uint32_t ranks = group_ranks(e, g);
		const uint64_t part = ckpt_z12_part_numel(group_numel(e->m, g), ranks, 2);
		uint32_t n = 0, nsub = 0;
		uint64_t sum;

		e->part += part;
		e->flat += part * ranks;
		e->expert_flat += g >= e->dense_groups ? part * ranks : 0;
		e->pinned_part += pinned(&e->s, 4 * part);
		for (uint64_t i = 0; i < e->m->n; i++)
			if (!e->m->param[i].frozen && e->m->param[i].group == g)
				numel[n++] = e->m->param[i].numel;
		if (ckpt_z3_subgroups(numel, n, e->s.gpus, e->s.sub_group, first, &nsub))
			rc = ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
				     "group %" PRIu32 " has too many elements to be divided "
				     "among the ranks", g);
		for (uint32_t k = 0; !rc && k < nsub; k++) {
			const uint32_t end = k + 1 < nsub ? first[k + 1] : n;

			ckpt_z3_offsets(numel + first[k], end - first[k], e->s.gpus, NULL, &sum);
			e->sub_group = sum > e->sub_group ? sum : e->sub_group;
			e->pinned_part3 += pinned(&e->s, 4 * sum);
		}
		e->nsub += nsub;
	}
	ck_free(first);
	ck_free(numel);
	return rc;
}

static bool persists(const struct ck_estimating *e, const struct ck_param *p)
{
	return p->numel <= e->s.persistence;
}

static void count_params(struct ck_estimating *e)
{
	uint64_t behind = 0, module = 0;
	bool near = true;

	for (uint64_t i = e->m->n; i-- > 0;) {
		const struct ck_param *p = &e->m->param[i];
		const uint64_t part = ckpt_z3_part_numel(p->numel, e->s.gpus);
		const bool more = i && p[-1].module == p->module;

		*(p->frozen ? &e->frozen3 : &e->part3) += part;
		e->persist += persists(e, p) ? p->numel : 0;
		/* used a second time before max_reuse further elements are */
		near = near && 2 * behind < e->s.max_reuse;
		e->retained += near && !persists(e, p) ? p->numel : 0;
		behind += p->numel;
		module += p->numel;
		if (!more && module > e->last_module && p->block == CK_BLOCK_BEHIND)
			e->last_module = module;
		module = more ? module : 0;
		if (!p->frozen && p->block <= 1)
			e->first += p->numel;
		if (!p->frozen && p->block == CK_BLOCK_BEHIND)
			e->behind += p->numel;
	}
}

/* ---- sums ---- */

static void sum_up(struct ckpt_estimate *out)
{
	for (uint32_t i = 0; i < out->nterms; i++) {
		const struct ckpt_term *t = &out->term[i];

		if (t->place == CKPT_PLACE_HOST)
			out->host_bytes += t->bytes;
		for (unsigned k = 0; t->place == CKPT_PLACE_GPU && k < CKPT_NPHASES; k++)
			if (t->phases & (1u << k))
				out->phase_bytes[k] += t->bytes;
	}
	for (unsigned k = 0; k < CKPT_NPHASES; k++)
		if (out->phase_bytes[k] > out->gpu_bytes) {
			out->gpu_bytes = out->phase_bytes[k];
			out->peak = 1u << k;
		}
}

/* Of the rank whose model is e->m. */
static int estimate_rank(struct ck_estimating *e, struct ckpt_err *err)
{
	int rc = cut_groups(e, err);

	if (rc)
		return rc;
	count_params(e);
	e->out->tokens = e->s.micro * e->s.sequence;
	if (e->s.engine == CKPT_ENGINE_ZTRAIN) {
		rc = ck_est_ztrain(e, err);
		if (rc)
			return rc;
		sum_up(e->out);
		return 0;
	}
	ck_est_states(e);
	ck_est_activations(e);
	ck_est_term(e, CKPT_PLACE_GPU, CKPT_PHASE_ALL, "CUDA context, libraries, NCCL",
		    e->s.overhead, "measured, see the manual; --overhead changes it");
	if (ck_share_is_one(e->share))
		ck_est_save(e);
	sum_up(e->out);
	return 0;
}

static void count_share(const struct ckpt_model *m, struct ckpt_share *w)
{
	w->params = m->info.params;
	w->layers = m->info.arch.layers;
	w->expert_params = 0;
	for (uint64_t i = 0; i < m->n; i++)
		w->expert_params += m->param[i].expert ? m->param[i].numel : 0;
}

/* A rank of each pipeline stage; the one with the most memory, and a save of all. */
static int estimate_stages(const struct ck_estimating *all, struct ckpt_share *w,
			   struct ckpt_estimate *out, struct ckpt_err *err)
{
	struct ckpt_estimate *one = ck_alloc(sizeof(*one));
	struct ckpt_save save = { 0 };
	uint64_t least = UINT64_MAX;
	int rc = one ? 0 : ck_fail_nomem(err, "an estimate", sizeof(*one));

	for (w->stage = 0; !rc && w->stage < w->pp; w->stage++) {
		struct ck_estimating e = *all;
		struct ckpt_model *m;

		rc = ck_share_model(all->m, w, &m, err);
		if (rc)
			break;
		*one = (struct ckpt_estimate){ 0 };
		e.m = m;
		e.out = one;
		e.dense_groups = all->m->info.groups;
		e.flight = w->pp - w->stage < e.s.accumulation ? w->pp - w->stage :
			   e.s.accumulation;
		count_share(m, w);
		rc = estimate_rank(&e, err);
		if (!rc)
			ck_est_save_stage(&e, &save);
		one->share = *w;
		least = w->params < least ? w->params : least;
		if (!rc && one->gpu_bytes > out->gpu_bytes)
			*out = *one;
		ck_model_free(m);
	}
	ck_free(one);
	if (rc)
		return rc;
	ck_est_save_mcore(all->m, w, all->b, &save);
	out->save = save;
	out->share.least_params = least;
	return 0;
}

int ck_rank_share(const struct ckpt_model *m, const struct ckpt_setup *setup, uint32_t rank,
		  struct ckpt_rank_share *out, struct ckpt_err *err)
{
	struct ck_estimating e = { .flight = 1 };
	struct ckpt_share w;
	struct ckpt_model *l = NULL;
	uint32_t in_stage;
	int rc = fill_setup(m, setup, &e.s, err);

	if (!rc)
		rc = ck_share_init(m, &e.s, &w, err);
	if (!rc)
		rc = ck_share_check(m, &e.s, &w, err);
	if (!rc && rank >= e.s.gpus)
		rc = ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			     "rank %" PRIu32 " of %" PRIu32 ": the last is %" PRIu32, rank,
			     e.s.gpus, e.s.gpus - 1);
	if (rc)
		return rc;
	w.stage = rank / (w.tp * w.dp);
	rc = ck_share_model(m, &w, &l, err);
	if (rc)
		return rc;
	e.m = l;
	e.share = &w;
	e.s.gpus = w.dp;
	e.dense_groups = w.ep > 1 ? m->info.groups : UINT32_MAX;
	rc = cut_groups(&e, err);
	count_share(l, &w);
	in_stage = rank % (w.tp * w.dp);
	if (!rc)
		*out = (struct ckpt_rank_share){
			.tp = in_stage % w.tp, .dp = in_stage / w.tp, .pp = w.stage,
			.ep = in_stage % w.ep, .edp = in_stage / w.ep,
			.first_layer = ck_share_first_layer(m, &w, w.stage), .layers = w.layers,
			.first_expert = in_stage % w.ep * (m->info.arch.experts / w.ep),
			.experts = l->info.arch.moe_layers ? m->info.arch.experts / w.ep : 0,
			.params = w.params, .expert_params = w.expert_params,
			.states = e.s.stage ? e.part : l->info.trainable,
		};
	ck_model_free(l);
	return rc;
}

int ck_estimate(const struct ckpt_model *m, const struct ckpt_setup *setup,
		struct ckpt_estimate *out, struct ckpt_err *err)
{
	struct ck_estimating e = { .m = m, .flight = 1 };
	struct ckpt_estimate made = { 0 };
	struct ckpt_share share;
	int rc = fill_setup(m, setup, &e.s, err);

	if (!rc)
		rc = ck_share_init(m, &e.s, &share, err);
	if (rc)
		return rc;
	e.share = &share;
	e.out = &made;
	e.b = ckpt_dtype_bits(e.s.dtype) / 8;
	e.g = ckpt_dtype_bits(e.s.grad_dtype) / 8;
	e.hosts_ranks = e.s.gpus_per_node;
	e.s.gpus = share.dp;
	if (!ck_share_is_one(&share)) {
		rc = estimate_stages(&e, &share, &made, err);
	} else {
		e.dense_groups = m->info.groups;
		rc = estimate_rank(&e, err);
		count_share(m, &share);
		share.least_params = share.params;
		made.share = share;
		if (!rc && m->shaped && e.s.engine == CKPT_ENGINE_DEEPSPEED)
			ck_est_save_mcore(m, &share, e.b, &made.save);
	}
	if (!rc)
		*out = made;
	return rc;
}
