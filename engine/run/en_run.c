/* en_run.c -- see en_run.h. */
#include "engine/run/en_run.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"

#define MOST_STATE ((size_t)1 << 20)

struct run {
	const struct en_run_opts *o;
	struct en_ran *out;
	struct en_zero *z;
	struct en_keep *keep;
	struct en_sched sched;
	struct en_scale scale;
	struct en_zero_hyper hyper[2];
	struct en_place_in_run at;
	int32_t *ids, *labels;
	double *loss;		/* of every unit of a step, then tokens of every unit */
	uint64_t units;		/* of all ranks */
};

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* ---- the beginning ---- */

static enum kn_type type_of(const struct en_settings *set)
{
	return set->precision == EN_BF16 ? KN_BF16 : set->precision == EN_FP16 ? KN_F16 : KN_F32;
}

static struct en_zero_rule rule_of(const struct en_settings *set)
{
	const struct en_optimizer *p = &set->optimizer;
	const bool cpu = set->offload_optimizer.device != EN_DEVICE_NONE;

	return (struct en_zero_rule){
		.rule = p->torch || p->type == EN_OPTIMIZER_CLIENT ? KN_ADAM_TORCH :
			cpu ? KN_ADAM_CPU : KN_ADAM_FUSED,
		.decoupled = p->adamw, .bias_correction = p->bias_correction,
		.one_group = p->one_group,
	};
}

static int make_state(struct run *r, struct ckpt_err *err)
{
	const struct en_run_opts *o = r->o;
	const struct en_settings *set = o->set;
	const enum kn_type type = type_of(set);
	const struct en_zero_opts zo = {
		.stage = (uint32_t)set->stage, .type = type,
		.wire = set->communication_dtype == CKPT_F32 ? KN_F32 : type,
		.units = (uint32_t)set->accumulation, .rows = (uint32_t)set->micro_batch,
		.tokens = o->tokens, .threads = o->threads, .recompute = o->recompute,
	};
	const struct en_zero_rule rule = rule_of(set);
	const double lr[2] = { set->optimizer.lr, set->optimizer.lr };
	const uint64_t n = (uint64_t)set->micro_batch * o->tokens;
	int rc = en_zero_new(o->model, o->comm, &zo, &rule, &r->z, err);

	r->units = (uint64_t)set->accumulation * o->comm->size;
	r->ids = ck_alloc_array(n, sizeof(*r->ids));
	r->labels = ck_alloc_array(n, sizeof(*r->labels));
	r->loss = ck_zalloc(2 * r->units * sizeof(*r->loss));
	if (!rc && (!r->ids || !r->labels || !r->loss))
		rc = ck_fail_nomem(err, "a batch", n);
	if (!rc)
		rc = en_sched_init_config(&r->sched, &set->schedule, o->version, lr,
					  en_zero_groups(r->z), err);
	return rc ? rc : en_scale_init_config(&r->scale, set, o->version, err);
}

static int fill_state(struct run *r, struct ckpt_err *err)
{
	const struct en_run_opts *o = r->o;
	struct en_loaded got = { .data = NULL };
	uint64_t samples;
	int rc = 0;

	if (o->from)
		rc = en_keep_load(o->model, r->z, o->from, o->from_tag, &r->sched, &r->scale,
				  &got, err);
	else
		en_zero_init(r->z, o->seed);
	if (!rc && got.data) {
		rc = o->feed.resume(o->feed.arg, got.data, strlen(got.data), &samples, err);
		if (!rc)
			got.at.samples = (int64_t)samples;
	}
	ck_free(got.data);
	r->at = got.at;
	r->out->resumed = got.resumed;
	r->out->read_bytes = got.bytes;
	r->out->first_step = r->at.steps;
	return rc ? rc : en_zero_publish(r->z, err);
}

static int make_keep(struct run *r, struct ckpt_err *err)
{
	const struct en_run_opts *o = r->o;
	const struct en_keep_opts ko = {
		.root = o->save_root, .job = o->job, .to = o->save_to,
		.stage = (uint32_t)o->set->stage, .sync = o->sync,
		.timeout_ms = o->comm->timeout_ms,
	};

	return o->save_root ? en_keep_new(o->model, r->z, o->comm, &ko, &r->keep, err) : 0;
}

/* ---- a step ---- */

static void set_hyper(struct run *r)
{
	const struct en_optimizer *p = &r->o->set->optimizer;

	for (uint32_t g = 0; g < en_zero_groups(r->z); g++) {
		struct en_zero_hyper *h = &r->hyper[g];

		*h = (struct en_zero_hyper){
			.lr = en_sched_lr(&r->sched, g), .beta1 = p->beta1, .beta2 = p->beta2,
			.eps = p->eps, .decay = g ? 0 : p->weight_decay,
		};
		en_sched_betas(&r->sched, g, &h->beta1, &h->beta2);
	}
}

static int run_unit(struct run *r, uint32_t m, struct ckpt_err *err)
{
	const struct en_run_opts *o = r->o;
	const uint64_t u = (uint64_t)m * o->comm->size + o->comm->rank;
	const struct en_batch batch = {
		(uint32_t)o->set->micro_batch, o->tokens, r->ids, r->labels,
	};
	struct en_zero_unit unit = { .batch = &batch };
	struct en_loss loss;
	uint64_t count;
	int rc = o->feed.rows(o->feed.arg, (uint64_t)r->at.samples, u, r->ids, r->labels, err);

	if (rc)
		return rc;
	count = en_batch_count(&batch);
	unit.factor = count ? r->scale.scale / ((double)count * (double)r->units) : 0;
	rc = en_zero_unit(r->z, m, &unit, &loss, err);
	r->loss[u] = count ? loss.sum / (double)count : 0;
	return rc;
}

/* The mean of the losses of all units, in their order. */
static int join_loss(struct run *r, double *out, struct ckpt_err *err)
{
	int rc = en_comm_all_reduce(r->o->comm, r->loss, KN_NUM_F64, r->units, EN_COMM_SUM, NULL,
				    err);

	*out = kn_tree_sum(r->loss, r->units) / (double)r->units;
	memset(r->loss, 0, r->units * sizeof(*r->loss));
	return rc;
}

/* As DeepSpeed: the norm without the scale, clipped by max_norm / (norm + 1e-6). */
static float grad_scale(const struct run *r, double norm)
{
	const double clip = r->o->set->gradient_clipping;
	const double true_norm = norm / r->scale.scale;
	const double c = clip > 0 && true_norm + 1e-6 > clip ? clip / (true_norm + 1e-6) : 1;

	return (float)(c / r->scale.scale);
}

static int update(struct run *r, double norm, bool *skipped_out, struct ckpt_err *err)
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

static int run_step(struct run *r, struct ckpt_err *err)
{
	const struct en_run_opts *o = r->o;
	struct en_step_told told = { .mem = en_zero_mem(r->z), .comm = o->comm };
	const double since = now();
	double norm = 0;
	int rc = 0;

	set_hyper(r);
	told.lr = r->hyper[0].lr;
	told.loss_scale = r->scale.scale;
	for (uint32_t m = 0; !rc && m < (uint32_t)o->set->accumulation; m++)
		rc = run_unit(r, m, err);
	if (!rc)
		rc = join_loss(r, &told.loss, err);
	if (!rc)
		rc = en_zero_norm(r->z, &norm, err);
	if (!rc)
		rc = update(r, norm, &told.skipped, err);
	if (rc)
		return rc;
	r->at.steps++;
	r->at.samples += (int64_t)(r->units * (uint64_t)o->set->micro_batch);
	r->at.skipped += told.skipped;
	told.grad_norm = norm / told.loss_scale;
	told.at = r->at;
	told.seconds = now() - since;
	told.tokens = r->units * (uint64_t)o->set->micro_batch * o->tokens;
	if (o->told)
		o->told(o->told_arg, &told);
	return 0;
}

/* ---- saves ---- */

/* An object with one text in it, itself JSON: DeepSpeed's users see a key of the client. */
static int describe_data(struct run *r, struct ck_buf *out, struct ckpt_err *err)
{
	const struct en_feed *f = &r->o->feed;
	struct ck_buf state = CK_BUF_INIT(MOST_STATE);
	int rc = f->state(f->arg, (uint64_t)r->at.samples, &state, err);

	if (!rc)
		rc = ck_buf_adds(out, "{\"" EN_KEEP_DATA "\": \"", err);
	for (size_t i = 0; !rc && i < state.len; i++) {
		if (state.p[i] == '"' || state.p[i] == '\\')
			rc = ck_buf_adds(out, "\\", err);
		if (!rc)
			rc = ck_buf_add(out, &state.p[i], 1, err);
	}
	if (!rc)
		rc = ck_buf_add(out, "\"}", 3, err);
	ck_buf_release(&state);
	return rc;
}

/* One that failed is told at the next, or at the end: the run goes on. */
static int save(struct run *r, struct ckpt_err *err)
{
	struct en_keep_values v = {
		.at = r->at, .hyper = r->hyper, .sched = &r->sched, .scale = &r->scale,
		.clip = r->o->set->gradient_clipping, .ds_config = r->o->config_json,
	};
	struct ck_buf client = CK_BUF_INIT(MOST_STATE);
	const double since = now();
	char tag[48];
	bool old;
	int rc = describe_data(r, &client, err);

	v.client = client.p;
	set_hyper(r);
	snprintf(tag, sizeof(tag), "global_step%" PRId64, r->at.steps);
	if (!rc)
		rc = en_keep_save(r->keep, tag, &v, &old, err);
	ck_buf_release(&client);
	r->out->saves += !rc;
	r->out->save_seconds += now() - since;
	return rc;
}

/* Every rank must know it in the same step. */
static int wants_stop(struct run *r, bool *out, struct ckpt_err *err)
{
	double any = r->o->stop ? __atomic_load_n(r->o->stop, __ATOMIC_RELAXED) != 0 : 0;
	int rc = r->o->stop ? en_comm_all_reduce(r->o->comm, &any, KN_NUM_F64, 1, EN_COMM_SUM,
						 NULL, err) : 0;

	*out = any > 0;
	return rc;
}

static int go(struct run *r, struct ckpt_err *err)
{
	const struct en_run_opts *o = r->o;
	const int64_t last = o->stop_at && o->stop_at < o->steps ? o->stop_at : o->steps;
	bool stop = false;
	int rc = 0;

	while (!rc && !stop && r->at.steps < last) {
		rc = run_step(r, err);
		if (!rc)
			rc = wants_stop(r, &stop, err);
		if (!rc && o->save_root && (stop || r->at.steps == last ||
					    (o->save_every && r->at.steps % o->save_every == 0)))
			rc = save(r, err);
	}
	r->out->stopped = stop;
	if (!rc && r->keep)
		rc = en_keep_wait(r->keep, &r->out->saved, err);
	return rc;
}

int en_run(const struct en_run_opts *opts, struct en_ran *out, struct ckpt_err *err)
{
	struct run r = { .o = opts, .out = out };
	int rc;

	memset(out, 0, sizeof(*out));
	rc = make_state(&r, err);
	if (!rc)
		rc = fill_state(&r, err);
	if (!rc)
		rc = make_keep(&r, err);
	if (!rc)
		rc = go(&r, err);
	out->at = r.at;
	if (r.z)
		out->mem = *en_zero_mem(r.z);
	en_keep_free(r.keep);
	en_zero_free(r.z);
	ck_free(r.ids);
	ck_free(r.labels);
	ck_free(r.loss);
	return rc;
}
