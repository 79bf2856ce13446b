/* en_step.c -- one step of a run: its micro-batches, the norm, the update. */
#include <math.h>
#include <string.h>

#include "engine/run/en_run_priv.h"
#include "libckpt/base/ck_clock.h"
#include "libckpt/base/ck_err.h"

void en_run_init_hyper(struct en_run *r)
{
	const struct en_optimizer *p = &r->o->set->optimizer;

	for (uint32_t g = 0; g < en_zero_groups(r->z); g++)
		r->base[g] = (struct en_zero_hyper){
			.beta1 = p->beta1, .beta2 = p->beta2, .eps = p->eps,
			.decay = en_zero_group_decays(r->z, g) ? p->weight_decay : 0,
		};
}

void en_run_set_hyper(struct en_run *r)
{
	for (uint32_t g = 0; g < en_zero_groups(r->z); g++) {
		struct en_zero_hyper *h = &r->hyper[g];

		*h = r->base[g];
		h->lr = en_sched_lr(&r->sched, g);
		en_sched_betas(&r->sched, g, &h->beta1, &h->beta2);
	}
}

int en_run_wants_stop(struct en_run *r, bool *out, struct ckpt_err *err)
{
	double any = r->o->stop ? __atomic_load_n(r->o->stop, __ATOMIC_RELAXED) != 0 : 0;
	int rc = r->o->stop ? en_comm_all_reduce(r->o->comm, &any, KN_NUM_F64, 1, EN_COMM_SUM,
						 NULL, err) : 0;

	*out = any > 0;
	return rc;
}

/* ---- rows ---- */

static uint64_t micro_batch_number(const struct en_run *r, uint32_t m)
{
	return (uint64_t)m * r->o->comm->size + r->o->comm->rank;
}

/* Where the rows of micro-batch m are, or come to be. */
static struct en_batch batch_of(const struct en_run *r, uint32_t m)
{
	const struct en_run_opts *o = r->o;
	const uint64_t at = o->token_mean ?
		(uint64_t)m * (uint64_t)o->set->micro_batch * o->tokens : 0;

	return (struct en_batch){
		.rows = (uint32_t)o->set->micro_batch, .tokens = o->tokens, .ids = r->ids + at,
		.labels = r->labels + at, .starts = r->starts ? r->starts + at : NULL,
	};
}

static int read_micro_batch(struct en_run *r, uint32_t m, struct ckpt_err *err)
{
	const struct en_run_opts *o = r->o;
	const uint64_t at = (uint64_t)(batch_of(r, m).ids - r->ids);

	return o->loader.rows(o->loader.arg, (uint64_t)(r->at.samples - r->data_from),
			      micro_batch_number(r, m), r->ids + at, r->labels + at,
			      r->starts ? r->starts + at : NULL, err);
}

/* The mean over tokens: all rows come first, since every rank must know how many tokens count. */
static int count_tokens(struct en_run *r, double *count_out, struct ckpt_err *err)
{
	struct en_batch b;
	double count = 0;
	int rc = 0;

	for (uint32_t m = 0; !rc && m < (uint32_t)r->o->set->accumulation; m++) {
		rc = read_micro_batch(r, m, err);
		b = batch_of(r, m);
		count += rc ? 0 : (double)en_batch_count(&b);
	}
	if (!rc)	/* whole numbers: their sum is exact in any order */
		rc = en_comm_all_reduce(r->o->comm, &count, KN_NUM_F64, 1, EN_COMM_SUM, NULL, err);
	*count_out = count;
	return rc;
}

/* ---- micro-batches ---- */

/* 'tokens' of the whole step, or 0 where micro-batches count alike. */
static int run_micro_batch(struct en_run *r, uint32_t m, double tokens, struct ckpt_err *err)
{
	const bool token_mean = r->o->token_mean;
	const struct en_drop drop = {
		.seed = r->o->seed, .sample = (uint64_t)r->at.samples +
			micro_batch_number(r, m) * (uint64_t)r->o->set->micro_batch,
	};
	struct en_batch batch = batch_of(r, m);
	struct en_zero_micro_batch unit = { .batch = &batch };
	struct en_loss loss;
	double share;
	int rc = token_mean ? 0 : read_micro_batch(r, m, err);

	if (rc)
		return rc;
	batch.drop = &drop;
	share = token_mean ? tokens : (double)en_batch_count(&batch) * (double)r->n_micro_batches;
	unit.factor = share > 0 ? r->scale.scale / share : 0;
	if (r->o->as_deepspeed)		/* divided by them in the sum */
		unit.factor *= r->o->comm->size;
	rc = en_zero_micro_batch(r->z, m, &unit, &loss, err);
	if (!rc)
		r->loss[micro_batch_number(r, m)] = share > 0 ? loss.sum / share : 0;
	return rc;
}

#define READ_EVERY 0.5		/* seconds; reading /proc takes up to 0.1 ms */
#define READ_FIRST 3		/* steps, in which memory grows */

/* This rank's memory, in its entries after the losses: it is sent with them. */
static void put_memory(struct en_run *r)
{
	double *own = r->loss + r->n_micro_batches + 2 * r->o->comm->rank;
	const double now = ck_clock_seconds();
	uint64_t peak, held;

	if (!r->memory)
		return;
	if (!r->read_at || r->at.steps < READ_FIRST || now - r->read_at > READ_EVERY) {
		r->resident = en_mem_resident(&peak, &held) ? (double)peak : 0;
		r->read_at = now;
	}
	own[0] = r->resident;
	own[1] = r->o->cuda ? (double)en_mem_peaks(en_zero_mem(r->z), true) : 0;
}

static void take_memory(struct en_run *r, struct en_step_report *report)
{
	const uint64_t size = r->o->comm->size;
	const double *all = r->loss + r->n_micro_batches;

	if (!r->memory)
		return;
	for (uint64_t i = 0; i < size; i++) {
		r->memory[i] = all[2 * i];
		r->memory[size + i] = all[2 * i + 1];
	}
	report->rank_memory = r->memory;
	report->rank_device = r->o->cuda ? r->memory + size : NULL;
}

/*
 * A sum of all micro-batches' shares, in their order.  Every entry is 0 on all ranks but one, so
 * the sum over ranks is exact, for bytes too.
 */
static int join_loss(struct en_run *r, struct en_step_report *report, struct ckpt_err *err)
{
	int rc;

	put_memory(r);
	rc = en_comm_all_reduce(r->o->comm, r->loss, KN_NUM_F64, r->n_shared, EN_COMM_SUM, NULL,
				err);
	if (!rc) {
		report->loss = kn_tree_sum(r->loss, r->n_micro_batches);
		take_memory(r, report);
	}
	memset(r->loss, 0, r->n_shared * sizeof(*r->loss));
	return rc;
}

/* A signal need not wait for all micro-batches: the step is given up, and done again later. */
static int run_micro_batches(struct en_run *r, bool *stop_out, struct ckpt_err *err)
{
	const uint32_t n = (uint32_t)r->o->set->accumulation;
	double tokens = 0;
	int rc = r->o->token_mean ? count_tokens(r, &tokens, err) : 0;

	*stop_out = false;
	for (uint32_t m = 0; !rc && m < n; m++) {
		if (m)
			rc = en_run_wants_stop(r, stop_out, err);
		if (rc || *stop_out)
			break;
		rc = run_micro_batch(r, m, tokens, err);
	}
	if (*stop_out)
		memset(r->loss, 0, r->n_micro_batches * sizeof(*r->loss));
	return rc;
}

/* ---- the update ---- */

/* As DeepSpeed: the norm without the scale, clipped by max_norm / (norm + 1e-6). */
static float grad_scale(const struct en_run *r, double norm)
{
	const double clip = r->o->set->gradient_clipping;
	const double true_norm = norm / r->scale.scale;
	const double c = clip > 0 && true_norm + 1e-6 > clip ? clip / (true_norm + 1e-6) : 1;

	return (float)(c / r->scale.scale);
}

static int update(struct en_run *r, double norm, bool *skipped_out, struct ckpt_err *err)
{
	const bool watched = r->o->set->precision == EN_FP16 ||
			     (r->o->set->precision == EN_BF16 && r->o->set->check_grad_overflow);
	const bool overflow = watched && !isfinite(norm);
	int rc = en_scale_update(&r->scale, overflow, err);

	*skipped_out = overflow;
	if (rc || overflow)
		return rc;
	r->at.updates++;
	rc = en_zero_update(r->z, r->hyper, r->at.updates, grad_scale(r, norm), err);
	en_sched_advance(&r->sched);
	return rc;
}

int en_run_step(struct en_run *r, struct en_step_report *report, bool *stop_out,
		struct ckpt_err *err)
{
	const uint64_t rows = r->n_micro_batches * (uint64_t)r->o->set->micro_batch;
	const double since = ck_clock_seconds();
	double norm = 0;
	int rc;

	en_run_set_hyper(r);
	*report = (struct en_step_report){
		.mem = en_zero_mem(r->z), .comm = r->o->comm, .lr = r->hyper[0].lr,
		.loss_scale = r->scale.scale, .rows = rows, .tokens = rows * r->o->tokens,
	};
	rc = run_micro_batches(r, stop_out, err);
	if (rc || *stop_out)
		return rc;
	rc = join_loss(r, report, err);
	if (!rc)
		rc = en_zero_norm(r->z, &norm, err);
	if (!rc)
		rc = update(r, norm, &report->skipped, err);
	if (rc)
		return rc;
	r->at.steps++;
	r->at.samples += (int64_t)rows;
	r->at.skipped += report->skipped;
	report->grad_norm = norm / report->loss_scale;
	report->at = r->at;
	report->seconds = ck_clock_seconds() - since;
	return 0;
}
