/* en_save.c -- saves of a run: which are due, whether they may be, and what a step says of it. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "engine/run/en_run_priv.h"
#include "libckpt/base/ck_clock.h"

#define MOST_STATE ((size_t)1 << 20)

bool en_run_is_due(int64_t steps, int64_t every)
{
	return every && steps % every == 0;
}

int64_t en_run_last_step(const struct en_run_opts *o)
{
	return o->stop_at && o->stop_at < o->steps ? o->stop_at : o->steps;
}

/* The Trainer finds its folders by their name. */
static void tag_of(const struct en_run_opts *o, int64_t steps, char out[48])
{
	snprintf(out, 48, "%s%" PRId64,
		 o->save_to == CKPT_TO_TRAINER ? "checkpoint-" : "global_step", steps);
}

bool en_run_has_step(const struct en_run *r, int64_t steps)
{
	const struct en_found *found = r->o->found;
	char tag[48];

	tag_of(r->o, steps, tag);
	for (uint64_t i = 0; found && i < found->nsteps; i++)
		if (found->step[i].whole && !strcmp(found->step[i].name, tag))
			return true;
	return false;
}

/* May the run save its step? */
static int may_save(const struct en_run *r, int64_t steps, bool *replaces_out,
		    struct ckpt_err *err)
{
	const struct en_run_opts *o = r->o;
	char tag[48];

	*replaces_out = !o->found;
	tag_of(o, steps, tag);
	return o->found ? en_find_may_save(o->find, o->found, r->run, tag, replaces_out, err) : 0;
}

/* By its number; which evaluation is the lowest is not known before. */
static bool may_be_saved(const struct en_run_opts *o, int64_t n, int64_t last)
{
	return n == last || (n < last && (en_run_is_due(n, o->save_every) ||
					  (o->keep_best && en_run_is_due(n, o->eval_every))));
}

/* Steps that this run will save are known: one that it must not replace stops it now. */
int en_run_check_saves(const struct en_run *r, struct ckpt_err *err)
{
	const struct en_run_opts *o = r->o;
	const int64_t last = en_run_last_step(o);
	bool replaces;
	int rc = 0;

	for (uint64_t i = 0; o->save_root && o->found && !rc && i < o->found->nsteps; i++) {
		const int64_t n = en_find_number(o->found->step[i].name);
		char tag[48];

		if (n < 0 || n < r->at.steps || (n == r->at.steps && r->saved_at == n))
			continue;
		tag_of(o, n, tag);
		if (may_be_saved(o, n, last) &&
		    !strcmp(tag, o->found->step[i].name))
			rc = may_save(r, n, &replaces, err);
	}
	return rc;
}

int en_run_make_checkpointer(struct en_run *r, struct ckpt_err *err)
{
	const struct en_run_opts *o = r->o;
	const struct en_checkpointer_opts ko = {
		.root = o->save_root, .job = o->job, .to = o->save_to,
		.stage = (uint32_t)o->set->stage, .sync = o->sync,
		.timeout_ms = o->comm->timeout_ms,
		.local = o->set->use_node_local_storage,
		.round_robin = o->set->round_robin_gradients,
		.sub_group_size = (uint64_t)o->set->sub_group_size,
		.buffer_bytes = o->save_buffer, .threads = o->save_threads,
		.busy = o->cuda ? 1 : o->threads, .beside = o->save_beside,
		.no_frozen = o->no_frozen,
	};

	return o->save_root ? en_checkpointer_new(o->model, r->z, o->comm, &ko, &r->checkpointer,
						  err) : 0;
}

/* Texts of JSON: DeepSpeed's users see three keys of the client. */
static int add_text(struct ck_buf *out, const char *key, const struct ck_buf *text,
		    struct ckpt_err *err)
{
	int rc = ck_buf_addf(out, err, "\"%s\": \"", key);

	for (size_t i = 0; !rc && i < text->len; i++) {
		if (text->p[i] == '"' || text->p[i] == '\\')
			rc = ck_buf_adds(out, "\\", err);
		if (!rc)
			rc = ck_buf_add(out, &text->p[i], 1, err);
	}
	return rc ? rc : ck_buf_adds(out, "\", ", err);
}

/* A Trainer that resumes logs, evaluates and saves as often as its folder says. */
static int add_every(const struct en_run_opts *o, struct ck_buf *out, struct ckpt_err *err)
{
	if (o->save_to != CKPT_TO_TRAINER)
		return 0;
	return ck_buf_addf(out, err,
			   ", \"trainer_steps\": {\"logging_steps\": 1, \"save_steps\": %" PRId64
			   ", \"eval_steps\": %" PRId64 "}", o->save_every, o->eval_every);
}

static int describe_client(struct en_run *r, struct ck_buf *out, struct ckpt_err *err)
{
	const struct en_data_loader *f = &r->o->loader;
	struct ck_buf state = CK_BUF_INIT(MOST_STATE);
	struct en_run_facts made;
	int rc = f->state(f->arg, (uint64_t)(r->at.samples - r->data_from), &state, err);

	if (!rc)
		rc = ck_buf_adds(out, "{", err);
	if (!rc)
		rc = add_text(out, EN_CHECKPOINTER_DATA, &state, err);
	state.len = 0;
	if (!rc && r->data_left) {
		rc = ck_buf_adds(&state, r->data_left, err);
		if (!rc)
			rc = add_text(out, EN_CHECKPOINTER_LEFT, &state, err);
	}
	state.len = 0;
	en_run_fill_facts(&made, r);
	if (!rc)
		rc = en_run_facts_write(&made, &state, err);
	if (!rc)
		rc = add_text(out, EN_RUN_FACTS_KEY, &state, err);
	state.len = 0;
	if (!rc && (r->best.step || r->best.unfallen)) {
		rc = en_best_write(&r->best, &state, err);
		if (!rc)
			rc = add_text(out, EN_BEST_KEY, &state, err);
	}
	if (!rc)
		rc = en_fingerprint_add(&r->fingerprint, out, err);
	if (!rc && r->run[0]) {
		rc = ck_buf_adds(out, ", \"" EN_RUN_KEY "\": \"", err);
		if (!rc)
			rc = ck_buf_adds(out, r->run, err);
		if (!rc)
			rc = ck_buf_adds(out, "\"", err);
	}
	if (!rc)
		rc = add_every(r->o, out, err);
	if (!rc)
		rc = ck_buf_add(out, "}", 2, err);
	ck_buf_release(&state);
	return rc;
}

/* The run continues without it: a step is whole all the same. */
static void say_failed(const struct en_run *r, const char *what, const struct ckpt_err *err)
{
	char line[700];

	if (!r->o->find || !r->o->find->say)
		return;
	snprintf(line, sizeof(line), "%s: %.300s: %.300s", what, err->where, err->msg);
	r->o->find->say(line);
}

void en_run_settle(struct en_run *r)
{
	const struct en_run_opts *o = r->o;
	struct ckpt_err err = { 0 };
	char tag[48];

	if (o->comm->rank)
		return;
	if (o->keep_best && r->best_saved && r->best_saved != r->best_named) {
		tag_of(r->o, r->best_saved, tag);
		if (en_best_set(o->save_root, tag, o->sync, &err))
			say_failed(r, "'best' is not written", &err);
		else
			r->best_named = r->best_saved;
	}
	memset(&err, 0, sizeof(err));
	if (o->save_most && en_best_prune(o->save_root, o->save_most, o->found, r->run, &err))
		say_failed(r, "old steps are not removed", &err);
}

/* The run continues after a failed save: the next save, or the end, returns its error. */
int en_run_save(struct en_run *r, struct ckpt_err *err)
{
	struct en_checkpointer_values v = {
		.at = r->at, .hyper = r->hyper, .sched = &r->sched, .scale = &r->scale,
		.clip = r->o->set->gradient_clipping, .ds_config = r->o->config_json,
	};
	struct ck_buf client = CK_BUF_INIT(MOST_STATE);
	const double since = ck_clock_seconds();
	char tag[48];
	bool old;
	int rc = describe_client(r, &client, err);

	v.client = client.p;
	en_run_set_hyper(r);
	tag_of(r->o, r->at.steps, tag);
	if (!rc)
		rc = may_save(r, r->at.steps, &v.replaces, err);
	if (!rc)
		rc = en_checkpointer_save(r->checkpointer, tag, &v, &old, err);
	ck_buf_release(&client);
	if (!rc && r->out->saves)	/* the one before is whole */
		en_run_settle(r);
	if (!rc)
		r->best_saved = r->best.step;
	r->saved_at = r->at.steps;
	r->save_began = since;
	r->out->saves += !rc;
	r->out->save_seconds += ck_clock_seconds() - since;
	return rc;
}
