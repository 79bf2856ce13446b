/* en_run.c -- see en_run.h: a run's life; its steps are in en_step.c. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/run/en_run_priv.h"
#include "engine/zero/cpu/en_zero_cpu.h"
#include "libckpt/base/ck_clock.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"

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

static uint32_t least_1024(int64_t n)
{
	return n < 1024 ? (uint32_t)n : 1024;
}

/* What the configuration says of how GPUs gather. */
static struct en_zero_flow flow_of(const struct en_settings *set)
{
	return (struct en_zero_flow){
		.given = true, .in_place = set->stage && set->no_overlap,
		.prefetch_bucket_size = (uint64_t)set->prefetch_bucket_size,
		.param_persistence_threshold = (uint64_t)set->param_persistence_threshold,
		.model_persistence_threshold = (uint64_t)set->model_persistence_threshold,
		.max_live_parameters = (uint64_t)set->max_live_parameters,
		.max_reuse_distance = (uint64_t)set->max_reuse_distance,
	};
}

void en_run_state_opts(const struct en_settings *set, uint32_t tokens, uint32_t threads,
		       bool recompute, struct en_zero_opts *zero, struct en_zero_rule *rule)
{
	const enum kn_type type = type_of(set);

	*zero = (struct en_zero_opts){
		.stage = (uint32_t)set->stage, .type = type,
		.wire = set->communication_dtype == CKPT_F32 ? KN_F32 : type,
		.micro_batches = (uint32_t)set->accumulation, .rows = (uint32_t)set->micro_batch,
		.tokens = tokens, .threads = threads, .recompute = recompute,
		.host_optimizer = set->offload_optimizer.device != EN_DEVICE_NONE,
		.host_params = set->offload_param.device != EN_DEVICE_NONE,
		.off_buffers = least_1024(set->offload_optimizer.buffer_count),
		.flow = flow_of(set),
	};
	if (set->offload_optimizer.device == EN_DEVICE_NVME)
		zero->nvme = (struct en_nvme_opts){
			.dir = set->offload_optimizer.nvme_path,
			.block = (uint64_t)set->aio_block_size,
			.depth = least_1024(set->aio_queue_depth),
			.threads = least_1024(set->aio_queue_depth),
		};
	*rule = rule_of(set);
}

static int make_sched(struct en_run *r, struct ckpt_err *err)
{
	const struct en_run_opts *o = r->o;
	const double rate = o->set->optimizer.lr, lr[2] = { rate, rate };
	double warmup = isnan(o->warmup_steps) ? 0 : o->warmup_steps;

	if (!o->scheduler)
		return en_sched_init_config(&r->sched, &o->set->schedule, o->version, lr,
					    en_zero_groups(r->z), err);
	if (warmup < 1)		/* as get_warmup_steps() of transformers */
		warmup = ceil(warmup * (double)o->steps);
	return en_sched_init_transformers(&r->sched, o->scheduler, o->scheduler_args,
					  (int64_t)warmup, o->steps, rate, lr,
					  en_zero_groups(r->z), err);
}

static int make_state(struct en_run *r, struct ckpt_err *err)
{
	const struct en_run_opts *o = r->o;
	const struct en_settings *set = o->set;
	struct en_zero_opts zo;
	struct en_zero_rule rule;
	const uint64_t n = (uint64_t)set->micro_batch * o->tokens *
			   (o->token_mean ? (uint64_t)set->accumulation : 1);
	int rc;

	en_run_state_opts(set, o->tokens, o->threads, o->recompute, &zo, &rule);
	zo.as_deepspeed = o->as_deepspeed;
	if (!o->model->trained) {	/* a forward pass alone, see en_model_hold() */
		zo.micro_batches = 1;
		zo.recompute = true;
		zo.host_optimizer = false;
		zo.nvme.dir = NULL;
	}
	rc = o->cuda ? en_zero_cuda_new(o->model, o->comm, &zo, &rule, o->cuda, &r->z, err) :
	     en_zero_cpu_new(o->model, o->comm, &zo, &rule, &r->z, err);
	r->n_micro_batches = (uint64_t)set->accumulation * o->comm->size;
	r->ids = ck_alloc_array(n, sizeof(*r->ids));
	r->labels = ck_alloc_array(n, sizeof(*r->labels));
	r->starts = o->packed ? ck_alloc_array(n, sizeof(*r->starts)) : NULL;
	r->n_shared = r->n_micro_batches + (o->rank_memory ? 2 * (uint64_t)o->comm->size : 0);
	r->loss = ck_zalloc(r->n_shared * sizeof(*r->loss));
	r->memory = o->rank_memory ? ck_zalloc(2 * (uint64_t)o->comm->size * sizeof(*r->memory)) :
		    NULL;
	r->fingerprint = (struct en_fingerprint){
		.world = o->comm->size, .accumulation = (uint64_t)set->accumulation,
		.rows = (uint64_t)set->micro_batch, .tokens = o->tokens,
		.precision = set->precision, .wire = zo.wire, .rule = rule.rule,
		.token_mean = o->token_mean, .cuda = o->cuda != NULL,
		.tree = o->cuda && o->cuda->sum == EN_CUDA_SUM_TREE,
		.as_deepspeed = o->as_deepspeed, .local = set->stage < 2,
	};
	if (!rc && (!r->ids || !r->labels || !r->loss || (o->packed && !r->starts) ||
		    (o->rank_memory && !r->memory)))
		rc = ck_fail_nomem(err, "a batch", n);
	if (!rc && o->eval_loader.n_micro_batches)
		rc = en_eval_set_new(r->z, o->comm, &o->eval_loader, zo.rows, zo.tokens,
				     &r->eval_set, err);
	if (!rc)
		rc = make_sched(r, err);
	return rc ? rc : en_scale_init_config(&r->scale, set, o->version, err);
}

/* ---- the data of a resumed run ---- */

#define MOST_LEFT 60000u	/* bytes that a step says of data before */

/* It is written into a step again as it is: of another program's, nothing. */
static bool is_plain(const char *text, char first, char last)
{
	const size_t n = text ? strlen(text) : 0;

	if (n < 2 || n > MOST_LEFT || text[0] != first || text[n - 1] != last)
		return false;
	for (size_t i = 0; i < n; i++)
		if ((unsigned char)text[i] < 0x20 || (unsigned char)text[i] > 0x7e)
			return false;
	return true;
}

/* "[{...}, {...}]": what the step says of data before, and with 'also' its own data. */
static int keep_left(struct en_run *r, const struct en_loaded *got, bool also, struct ckpt_err *err)
{
	const char *left = is_plain(got->left, '[', ']') ? got->left : "[]";
	const char *data = also && is_plain(got->data, '{', '}') ? got->data : "";

	if (!strcmp(left, "[]") && !*data)
		return 0;
	r->data_left = ck_asprintf("%.*s%s%s]", (int)strlen(left) - 1, left,
				   strcmp(left, "[]") && *data ? ", " : "", data);
	return r->data_left ? 0 : ck_fail_nomem(err, "a text", strlen(left));
}

/* The step's data is another: from here on the run has this one. */
static int change_data(struct en_run *r, const struct en_loaded *got, const char *why,
		       struct ckpt_err *err)
{
	r->data_from = r->at.samples;
	en_differ_data(&r->differ, why);
	return keep_left(r, got, true, err);
}

/* What a checkpoint says of the data. */
static int resume_data(struct en_run *r, const struct en_loaded *got, struct ckpt_err *err)
{
	const struct en_run_opts *o = r->o;
	struct ckpt_err inner = { 0 };
	uint64_t samples = 0;
	int rc;

	r->at = got->at;
	if (!got->data)
		return o->new_data && got->resumed ?
			       change_data(r, got, "the step has no record of its data", err) :
			       0;
	rc = o->loader.resume(o->loader.arg, got->data, strlen(got->data), &samples, &inner);
	if (rc == -CKPT_E_MISMATCH && o->new_data)
		return change_data(r, got, inner.msg, err);
	if (rc) {
		*err = inner;
		return rc;
	}
	if (got->left && (int64_t)samples <= r->at.samples)
		r->data_from = r->at.samples - (int64_t)samples;
	else
		r->at.samples = (int64_t)samples;
	return keep_left(r, got, false, err);
}

static int report_start(struct en_run *r, const struct en_loaded *got, double seconds,
			struct ckpt_err *err)
{
	const struct en_run_opts *o = r->o;
	struct en_start_report b = {
		.at = r->at, .resumed = got->resumed, .tag = got->tag, .read_bytes = got->bytes,
		.read_seconds = seconds,
		.mem = en_zero_mem(r->z), .device = o->cuda ? en_zero_cuda_text(r->z) : "",
		.drive = en_zero_drive(r->z),
		.save_bytes = o->save_root ? en_checkpointer_state(r->z) : 0,
	};
	int rc = en_comm_all_reduce(o->comm, &b.read_bytes, KN_NUM_U64, 1, EN_COMM_SUM, NULL, err);

	if (rc || !o->on_start)
		return rc;
	b.differ = &r->differ;
	if (got->resumed && *r->differ.keys)
		snprintf(b.bits, sizeof(b.bits),
			 "bits: resumed state is bit-identical; later steps differ, since this run "
			 "differs in: %s",
			 r->differ.keys);
	else if (got->resumed && !got->has_fingerprint)
		snprintf(b.bits, sizeof(b.bits),
			 "bits: resumed state is bit-identical; it was trained by another program, "
			 "so later steps may differ");
	else if (got->resumed && !got->made.n)
		snprintf(b.bits, sizeof(b.bits),
			 "bits: resumed state is bit-identical; later steps may differ, since the "
			 "step has no record of its run");
	else
		b.same_bits = en_fingerprint_same_bits(&r->fingerprint, got->has_fingerprint ?
						       &got->fingerprint : NULL, b.bits);
	return o->on_start(o->callback_arg, &b, err);
}

/* A program that counts no samples has seen as many in a step as this run will. */
static void count_samples(struct en_run *r, struct en_loaded *got)
{
	const int64_t rows = (int64_t)r->n_micro_batches * r->o->set->micro_batch;

	got->at.samples = got->at.steps * rows;
	en_differ_say(&r->differ,
		      "data: the step does not say how many samples it has seen; continuing at row "
		      "%" PRId64 ", after %" PRId64 " steps of %" PRId64 " rows", got->at.samples,
		      got->at.steps, rows);
}

void en_run_fill_facts(struct en_run_facts *m, const struct en_run *r)
{
	const struct en_cuda_opts *cuda = r->o->cuda;

	en_run_facts_fill(m, &r->o->model->config, r->o->set, &r->sched);
	en_run_facts_adapt(m, r->o->model, r->o->seed);
	if (cuda && cuda->fp8)
		en_run_facts_fp8(m, en_cuda_fp8_name(cuda->fp8));
}

static struct en_resume resume_of(struct en_run *r)
{
	const struct en_run_opts *o = r->o;

	return (struct en_resume){
		.model = o->model, .z = r->z, .comm = o->comm, .from = o->from,
		.found = o->found, .find = o->find, .sched = &r->sched, .scale = &r->scale,
		.seed = o->seed, .adapter = o->adapter, .weights = o->weights,
		.config = o->save_beside, .owners = o->owners,
	};
}

/* From a step, or weights: what differs from this run is settled, and known. */
static int load(struct en_run *r, struct en_loaded *got, struct ckpt_err *err)
{
	const struct en_run_opts *o = r->o;
	const struct en_sched sched = r->sched;
	const struct en_scale scale = r->scale;
	struct en_run_facts now;
	const struct en_checkpointer_check check = { &now, o->other_model, &r->differ };
	struct en_resume resume = resume_of(r);
	int rc;

	resume.check = &check;
	if (o->eval_only) {
		resume.sched = NULL;
		resume.scale = NULL;
	}
	en_run_fill_facts(&now, r);
	rc = en_resume_load(&resume, got, err);
	if (rc || !got->resumed || o->eval_only)
		return rc;
	if (got->made.n)
		en_differ_run(&r->differ, &now, &got->made);
	r->differ.unsaid = o->unsaid;
	en_differ_groups(&r->differ, r->base, en_zero_groups(r->z), &r->sched, &sched, o->stated,
			 &got->in_force);
	en_differ_scale(&r->differ, &scale, &r->scale);
	if (got->at.samples < 0)
		count_samples(r, got);
	else if (!got->data)
		en_differ_say(&r->differ,
			      "data: the step has no record of its data to compare with; "
			      "continuing at row %" PRId64,
			      got->at.samples);
	return 0;
}

/* The step that was loaded is in the folder that is saved to. */
static bool is_saved_there(const struct en_run_opts *o)
{
	return o->found ? o->found->same_folder : o->save_root && !strcmp(o->from, o->save_root);
}

/* Which run this is, and whether it may save where it will. */
static int name_run(struct en_run *r, const struct en_loaded *got, struct ckpt_err *err)
{
	const struct en_run_opts *o = r->o;

	r->saved_at = got->resumed && is_saved_there(o) ? r->at.steps : -1;
	if (o->found)
		en_run_name(o->found, got->resumed ? got->run : NULL, got->tag ? got->tag : "",
			    o->job ? o->job : "", r->run);
	return en_run_check_saves(r, err);
}

/*
 * What earlier evaluations say.  A run that was killed before 'best' named the step, or that goes
 * back to an earlier one, names it again.
 */
static void take_best(struct en_run *r, const struct en_loaded *got)
{
	const struct en_run_opts *o = r->o;

	r->best = got->best;
	if (o->keep_best && r->best.step && o->found && o->found->same_folder &&
	    en_run_has_step(r, r->best.step)) {
		r->best_saved = r->best.step;
		en_run_settle(r);
	}
}

static int fill_state(struct en_run *r, struct ckpt_err *err)
{
	const struct en_run_opts *o = r->o;
	struct en_loaded got = { .data = NULL };
	const struct en_resume resume = resume_of(r);
	const double since = ck_clock_seconds();
	int rc = 0;

	en_run_init_hyper(r);
	if (o->from)
		rc = load(r, &got, err);
	else
		rc = en_zero_init(r->z, o->seed, err);
	r->out->tag = got.tag;
	if (!rc && !r->o->from && r->o->adapter)
		rc = en_resume_adapters(&resume, err);
	if (!rc && o->eval_only)
		r->at = got.at;
	else if (!rc)
		rc = resume_data(r, &got, err);
	if (!rc && !o->eval_only)
		rc = name_run(r, &got, err);
	if (!rc && !o->eval_only && got.resumed)
		take_best(r, &got);
	if (!rc)
		rc = en_zero_sync_params(r->z, err);
	if (!rc)
		rc = report_start(r, &got, ck_clock_seconds() - since, err);
	en_loaded_release(&got);
	return rc;
}

/* ---- the loop ---- */

/* One step, with its report and what is due after it. */
static int run_one_step(struct en_run *r, int64_t last, bool *stop, struct ckpt_err *err)
{
	const struct en_run_opts *o = r->o;
	struct en_step_report report;
	bool lowest = false;
	int rc = en_run_step(r, &report, stop, err);

	if (rc || *stop)
		return rc;
	if (r->eval_set && (en_run_is_due(r->at.steps, o->eval_every) || r->at.steps == o->steps)) {
		report.has_eval = true;
		rc = en_eval_set_loss(r->eval_set, &report.eval_loss, NULL, err);
		lowest = !rc && en_best_add(&r->best, r->at.steps, report.eval_loss);
		if (!rc && en_run_is_due(r->at.steps, o->eval_every))
			en_sched_evaluated(&r->sched, report.eval_loss);
	}
	if (!rc && o->on_step)
		o->on_step(o->callback_arg, &report);
	if (!rc)
		rc = en_run_wants_stop(r, stop, err);
	if (!rc && !*stop && o->save_root && r->at.steps != last &&
	    (en_run_is_due(r->at.steps, o->save_every) || (o->keep_best && lowest)))
		rc = en_run_save(r, err);
	return rc;
}

/* Of the state as it is, into the result of the call. */
static int evaluate(struct en_run *r, struct ckpt_err *err)
{
	const double since = ck_clock_seconds();
	int rc = en_eval_set_loss(r->eval_set, &r->out->eval_loss, &r->out->eval_tokens, err);

	r->out->has_eval = !rc;
	r->out->eval_seconds = ck_clock_seconds() - since;
	return rc;
}

/* A run that was over before it began is evaluated all the same. */
static int evaluate_over(struct en_run *r, struct ckpt_err *err)
{
	r->out->was_over = true;
	if (!r->eval_set || r->at.steps < r->o->steps)
		return 0;
	return evaluate(r, err);
}

/* The evaluation has not fallen for too long, in this run or in those that it resumes. */
static bool is_hopeless(const struct en_run *r)
{
	return r->o->patience && r->best.unfallen >= r->o->patience;
}

static int run_steps(struct en_run *r, struct ckpt_err *err)
{
	const struct en_run_opts *o = r->o;
	const int64_t last = en_run_last_step(o);
	bool stop = false;
	int rc = 0;

	if (r->at.steps >= last)
		rc = evaluate_over(r, err);
	r->out->gave_up = is_hopeless(r);
	while (!rc && !stop && !r->out->gave_up && r->at.steps < last) {
		rc = run_one_step(r, last, &stop, err);
		r->out->gave_up = is_hopeless(r);
	}
	if (!rc && o->save_root && r->saved_at != r->at.steps)
		rc = en_run_save(r, err);
	r->out->stopped = stop;
	if (!rc && r->checkpointer)
		rc = en_checkpointer_wait(r->checkpointer, stop ? o->grace_ms : 0,
					  &r->out->saved, err);
	if (!rc && r->out->saves)
		en_run_settle(r);
	if (r->out->saves)
		r->out->last_save_seconds = ck_clock_seconds() - r->save_began;
	if (rc == -CKPT_E_BUSY && stop && en_checkpointer_pending(r->checkpointer)) {
		r->out->left = true;
		memset(err, 0, sizeof(*err));
		ck_fail(err, CKPT_E_BUSY, o->save_root, CKPT_NO_OFFSET,
			"the save of step %" PRId64 " did not finish within %.1f s after the "
						    "signal; earlier saves are unaffected",
			r->at.steps, o->grace_ms / 1e3);
	}
	return rc;
}

static int export(struct en_run *r, struct ckpt_err *err)
{
	const struct en_run_opts *o = r->o;
	struct en_export_opts eo;
	const double since = ck_clock_seconds();
	int rc;

	if (!o->export || r->out->stopped ||
	    (o->export->last_only && r->at.steps != o->steps && !r->out->gave_up))
		return 0;
	eo = *o->export;
	eo.steps = r->at.steps;
	rc = en_export(o->model, r->z, o->comm, &eo, &r->out->export, err);
	r->out->exported = !rc;
	r->out->export_seconds = ck_clock_seconds() - since;
	return rc;
}

int en_run(const struct en_run_opts *opts, struct en_ran *out, struct ckpt_err *err)
{
	struct en_run r = { .o = opts, .out = out };
	int rc;

	memset(out, 0, sizeof(*out));
	rc = make_state(&r, err);
	if (!rc)
		rc = fill_state(&r, err);
	if (!rc)
		rc = en_run_make_checkpointer(&r, err);
	if (!rc)
		rc = opts->eval_only ? evaluate(&r, err) : run_steps(&r, err);
	if (!rc && !opts->eval_only)
		rc = export(&r, err);
	out->at = r.at;
	out->best = r.best;
	if (r.z)
		out->mem = *en_zero_mem(r.z);
	en_eval_set_free(r.eval_set);
	if (!out->left) {	/* else threads still write it: to free it would be to wait */
		en_checkpointer_free(r.checkpointer);
		en_zero_free(r.z);
	}
	ck_free(r.ids);
	ck_free(r.labels);
	ck_free(r.starts);
	ck_free(r.loss);
	ck_free(r.memory);
	ck_free(r.data_left);
	return rc;
}
