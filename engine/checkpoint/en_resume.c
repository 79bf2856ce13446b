/* en_resume.c -- see en_checkpointer.h: the loading half. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/checkpoint/en_checkpointer.h"
#include "engine/checkpoint/en_owners.h"
#include "engine/checkpoint/en_step_lora.h"
#include "libckpt/base/ck_buf.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"

#define MOST_PATH ((size_t)1 << 16)

static bool is_moment(const char *state)
{
	return !strcmp(state, "exp_avg") || !strcmp(state, "exp_avg_sq");
}

/* Has a parameter a moment?  Then all must have both: reading them finds what is missing. */
static bool has_moments(const struct ckpt *ck)
{
	struct ckpt_tensor_info info;
	struct ckpt_state_info state;
	struct ckpt_info all;

	ckpt_info_get(ck, &all);
	for (uint64_t i = 0; i < all.ntensors; i++) {
		if (ckpt_tensor_get(ck, i, &info, NULL))
			continue;
		for (uint32_t s = 0; s < info.nstates; s++)
			if (!ckpt_state_get(ck, i, s, &state, NULL) && is_moment(state.name))
				return true;
	}
	return false;
}

/* A step of torch.distributed.checkpoint has it for each parameter, and as a fact of the group. */
static bool updates_in_facts(const struct ckpt *ck, uint64_t *out)
{
	const char *key, *value;
	char *end;

	for (uint64_t i = 0; !ckpt_fact_get(ck, i, &key, &value, NULL); i++) {
		double n;

		if (strcmp(key, "group.0.step"))
			continue;
		n = strtod(value, &end);
		if (*end || !(n >= 0 && n < 9e15))
			return false;
		*out = (uint64_t)n;
		return true;
	}
	return false;
}

/* How far the optimizer counted, if it says. */
static uint64_t updates_of(const struct ckpt *ck, struct ckpt_values *v,
			   const struct en_place_in_run *at)
{
	static const char *const path[] = {
		"optimizer.base_optimizer_state.state.0.step", "param_groups.0.step",
		"optimizer.state.0.step",
	};
	uint64_t said;
	int64_t n;

	for (size_t i = 0; i < CK_ARRAY_LEN(path); i++)
		if (!ckpt_value_int(v, path[i], &n, NULL) && n >= 0)
			return (uint64_t)n;
	if (updates_in_facts(ck, &said))
		return said;
	return (uint64_t)(at->steps - at->skipped);
}

/* "optimizer.state.NAME.step", where dots of the name have backslashes. */
static int step_path(const char *name, struct ck_buf *out, struct ckpt_err *err)
{
	int rc = ck_buf_adds(out, "optimizer.state.", err);

	for (const char *p = name; !rc && *p; p++) {
		if (*p == '.' || *p == '\\')
			rc = ck_buf_adds(out, "\\", err);
		if (!rc)
			rc = ck_buf_add(out, p, 1, err);
	}
	return rc ? rc : ck_buf_add(out, ".step", sizeof(".step"), err);
}

/* torch counts for each parameter: one that was left out of steps cannot continue with the rest. */
static int check_counts(const struct en_model *model, struct ckpt_values *v, uint64_t updates,
			struct ckpt_err *err)
{
	struct ck_buf path = CK_BUF_INIT(MOST_PATH);
	double n;
	int rc = 0;

	for (uint32_t i = 0; !rc && i < model->nparams; i++) {
		const char *name = model->param[i].name;

		path.len = 0;
		rc = step_path(name, &path, err);
		if (!rc && !ckpt_value_float(v, path.p, &n, NULL) && n != (double)(float)updates)
			rc = ck_fail(err, CKPT_E_MISMATCH, name, CKPT_NO_OFFSET,
				     "the optimizer has updated it %.0f times and the first "
				     "parameter %" PRIu64 " times (was it frozen for a while?); "
				     "ztrain counts once for all", n, updates);
	}
	ck_buf_release(&path);
	return rc;
}

static int read_steps(struct ckpt_values *v, int64_t *out, struct ckpt_err *err)
{
	const int rc = ckpt_value_int(v, "global_steps", out, err);

	if (rc != -CKPT_E_NOTFOUND)
		return rc;
	if (err)
		ck_err_clear(err);
	return ck_fail(err, CKPT_E_UNSUPPORTED, "global_steps", CKPT_NO_OFFSET,
		       "the step has moments, but neither it nor its optimizer has a count of "
		       "steps, which Adam's bias correction needs");
}

/* A step that this engine did not save has none. */
static int read_text(struct ckpt_values *v, const char *key, char **out, struct ckpt_err *err)
{
	struct ckpt_value text;

	if (ckpt_value_get(v, key, &text, NULL) || text.kind != CKPT_VALUE_STRING)
		return 0;
	*out = ck_strndup(text.bytes, text.n);
	return *out ? 0 : ck_fail_nomem(err, "a text", text.n);
}

/* Of torch's Adam, where it is another computation than this engine's. */
static int refuse_variants(struct ckpt_values *v, struct ckpt_err *err)
{
	static const char *const path[] = {
		"param_groups.0.amsgrad", "param_groups.0.maximize",
	};
	struct ckpt_value is;

	for (size_t i = 0; i < CK_ARRAY_LEN(path); i++)
		if (!ckpt_value_get(v, path[i], &is, NULL) && is.kind == CKPT_VALUE_BOOL && is.i)
			return ck_fail(err, CKPT_E_UNSUPPORTED, path[i], CKPT_NO_OFFSET,
				       "the step was trained with %s, which ztrain does not have; "
				       "torch continues it", path[i] + strlen("param_groups.0."));
	return 0;
}

/*
 * One file of torch does not say what type its run computed in: the scale in it is of this run if
 * this one has a scale that moves.
 */
static bool has_other_scale(const struct ckpt *ck, const struct en_scale *scale)
{
	struct ckpt_info info;

	ckpt_info_get(ck, &info);
	return !scale->dynamic && !strcmp(info.format, "torch");
}

static int read_values(const struct en_model *model, const struct ckpt *ck, struct en_loaded *out,
		       struct en_sched *sched, struct en_scale *scale, struct ckpt_err *err)
{
	struct en_place_in_run *at = &out->at;
	struct ckpt_value counted;
	struct ckpt_values *v;
	bool found;
	int rc = ckpt_values_open(ck, 0, 0, &v, err);

	if (rc)
		return rc;
	rc = refuse_variants(v, err);
	if (!rc)
		rc = read_steps(v, &at->steps, err);
	if (!rc && ckpt_value_get(v, "global_samples", &counted, NULL))
		at->samples = -1;
	else if (!rc)
		rc = ckpt_value_int(v, "global_samples", &at->samples, err);
	if (!rc && !at->samples && at->steps)	/* what writers of others' steps put there */
		at->samples = -1;
	if (!rc && ckpt_value_int(v, "skipped_steps", &at->skipped, NULL))
		at->skipped = 0;
	if (!rc) {
		at->updates = updates_of(ck, v, at);
		rc = check_counts(model, v, at->updates, err);
	}
	if (!rc && sched)
		rc = en_sched_load_values(sched, v, &found, err);
	if (!rc && scale && !has_other_scale(ck, scale))
		rc = en_scale_load_values(scale, v, &found, err);
	if (!rc)
		rc = read_text(v, EN_CHECKPOINTER_DATA, &out->data, err);
	if (!rc)
		rc = read_text(v, EN_CHECKPOINTER_LEFT, &out->left, err);
	en_run_ids(v, out->run);
	out->has_fingerprint = en_fingerprint_read(&out->fingerprint, v);
	en_in_force_read(&out->in_force, v);
	en_best_read(&out->best, v);
	if (!en_run_facts_read(&out->made, v))
		out->made.n = 0;
	ckpt_values_close(v);
	return rc;
}

/* Bytes that do not match a sum; elsewhere the same code says that it is another model. */
static int as_damage(int rc, struct ckpt_err *err)
{
	if (rc != -CKPT_E_MISMATCH)
		return rc;
	err->code = CKPT_E_CORRUPT;
	return -CKPT_E_CORRUPT;
}

/* A step with errors is not whole, whatever of it can be read. */
static int refuse_errors(const struct ckpt *ck, struct ckpt_err *err)
{
	struct ckpt_finding f;

	for (uint64_t i = 0; !ckpt_finding_get(ck, i, &f, NULL); i++)
		if (f.severity == CKPT_ERROR)
			return ck_fail(err, f.code ? f.code : CKPT_E_MISMATCH, f.where,
				       CKPT_NO_OFFSET, "%s: %s", f.id, f.text);
	return 0;
}

/* amsgrad divides by the greatest exp_avg_sq so far, which ztrain's AdamW does not keep. */
static int refuse_amsgrad(const struct ckpt *ck, const char *from, struct ckpt_err *err)
{
	const char *key, *value;

	for (uint64_t i = 0; !ckpt_fact_get(ck, i, &key, &value, NULL); i++)
		if (!strncmp(key, "group.", 6) && strstr(key, ".amsgrad") &&
		    !strcmp(value, "true"))
			return ck_fail(err, CKPT_E_UNSUPPORTED, from, CKPT_NO_OFFSET,
				       "the run used amsgrad (%s true), and ztrain's AdamW has no "
				       "such option; its next steps would differ", key);
	return 0;
}

/* A Trainer's folder without moments of every parameter is of another optimizer, or damaged. */
static int refuse_other_optimizer(const struct ckpt *ck, bool moments, const char *where,
				  struct ckpt_err *err)
{
	const char *why = moments ? NULL : "no parameter has exp_avg and exp_avg_sq";
	struct ckpt_finding f;
	struct ckpt_info info;

	ckpt_info_get(ck, &info);
	if (!info.format || strcmp(info.format, "trainer"))
		return 0;
	for (uint64_t i = 0; !ckpt_finding_get(ck, i, &f, NULL); i++)
		if (!strcmp(f.id, "STATES_UNNAMED") || !strcmp(f.id, "NOT_IN_CHECKPOINT"))
			why = f.text;
	if (!why)
		return 0;
	return ck_fail(err, CKPT_E_UNSUPPORTED, where, CKPT_NO_OFFSET,
		       "ztrain resumes AdamW, and this step has no moments for it: %.400s; to "
		       "begin a new run with its weights: --model %.200s", why, where);
}

/* ---- states and weights ---- */

/* 'read' from a folder of its own, with its own checks. */
static int read_beside(const struct en_resume *r, const char *path,
		       int (*read)(struct en_zero *z, const struct ckpt *ck,
				   struct ckpt_load_checks *checks, struct ckpt_err *err),
		       struct ckpt_err *err)
{
	struct ckpt_load_checks *checks = NULL;
	struct ckpt_load_checked checked;
	struct ckpt *ck;
	int rc = ckpt_open(&path, 1, NULL, &ck, err);

	if (rc)
		return rc;
	rc = as_damage(ckpt_load_checks_new(ck, &checks, err), err);
	if (!rc)
		rc = read(r->z, ck, checks, err);
	if (!rc)
		rc = as_damage(ckpt_load_checks_end(checks, NULL, &checked, err), err);
	ckpt_load_checks_free(checks);
	ckpt_close(ck);
	return rc;
}

/* A parameter without moments in a step that has some: what it may be. */
static int without_moments(int rc, struct ckpt_err *err)
{
	const size_t n = err ? strlen(err->msg) : 0;

	if (rc && err && strstr(err->msg, "no state \"exp_avg"))
		snprintf(err->msg + n, sizeof(err->msg) - n, "; if the run that saved it did not "
			 "train it, give --freeze with its name");
	return rc;
}

static int read_step(const struct en_resume *r, const struct ckpt *ck,
		     struct ckpt_load_checks *checks, uint64_t *bytes_out, struct ckpt_err *err)
{
	int rc = en_zero_read_state(r->z, ck, checks, bytes_out, err);

	if (rc || en_zero_has_frozen(r->z, ck))
		return rc ? rc : en_zero_read_frozen(r->z, ck, checks, err);
	if (!r->weights)
		return ck_fail(err, CKPT_E_NOTFOUND, r->from, CKPT_NO_OFFSET,
			       "the step was saved without frozen parameters (--exclude-frozen): "
			       "give --model a folder with the weights that the run began with");
	return read_beside(r, r->weights, en_zero_read_frozen, err);
}

int en_resume_adapters(const struct en_resume *r, struct ckpt_err *err)
{
	if (!r->model->lora.r)
		return 0;
	return r->adapter ? read_beside(r, r->adapter, en_zero_read_adapters, err) :
	       en_zero_init_adapters(r->z, r->seed, err);
}

static int read_weights(const struct en_resume *r, const struct ckpt *ck,
			struct ckpt_load_checks *checks, struct ckpt_err *err)
{
	int rc = en_zero_read_weights(r->z, ck, checks, err);

	if (!rc && !r->adapter && en_zero_has_adapters(r->z, ck))
		return en_zero_read_adapters(r->z, ck, checks, err);
	return rc ? rc : en_resume_adapters(r, err);
}

/*
 * A folder of transformers' Trainer numbers the states of its optimizer.  The model's config.json,
 * which says whose they are, is not in that of an adapter: it is the run's own then.
 */
static int open_step(const struct en_resume *r, const char *tag, struct ckpt **ck_out,
		     struct ckpt_err *err)
{
	struct ckpt_open_opts oo = {
		.size = sizeof(oo), .tag = tag, .order_path = r->owners.order,
		.frozen = r->owners.frozen, .buffers = r->owners.buffers,
	};
	struct ckpt_info info;
	int rc = ckpt_open(&r->from, 1, &oo, ck_out, err);

	if (rc)
		return rc;
	ckpt_info_get(*ck_out, &info);
	if (strcmp(info.format, "trainer") || !r->config || has_moments(*ck_out) ||
	    !en_step_lora_has(*ck_out))
		return 0;
	ckpt_close(*ck_out);
	oo.model_config = r->config;
	return ckpt_open(&r->from, 1, &oo, ck_out, err);
}

static int load(const struct en_resume *r, const char *tag, struct en_loaded *out,
		struct ckpt_err *err)
{
	struct ckpt_load_checks *checks = NULL;
	struct ckpt_load_checked checked;
	struct ckpt *ck;
	int rc = open_step(r, tag, &ck, err);

	memset(out, 0, sizeof(*out));
	if (rc)
		return en_owners_failed(&r->owners, rc, err);
	out->resumed = has_moments(ck);
	rc = as_damage(refuse_errors(ck, err), err);
	if (!rc)
		rc = out->resumed ? refuse_amsgrad(ck, r->from, err) :
				    en_owners_check(ck, r->from, err);
	if (!rc)
		rc = as_damage(ckpt_load_checks_new(ck, &checks, err), err);
	if (!rc)
		rc = refuse_other_optimizer(ck, out->resumed, r->from, err);
	if (!rc && out->resumed)
		rc = en_step_lora_check(ck, r->model, err);
	if (!rc && out->resumed)
		rc = read_values(r->model, ck, out, r->sched, r->scale, err);
	if (!rc && out->resumed && !out->made.n)	/* nothing else says which model it is */
		rc = en_model_match_step(r->model, ck, err);
	if (!rc && out->resumed)
		rc = en_differ_model(r->check->differ, r->check->now,
				     out->made.n ? &out->made : NULL, r->check->allow, r->from,
				     err);
	if (!rc && out->resumed)
		rc = en_differ_trained(r->check->now, out->made.n ? &out->made : NULL, r->from,
				       err);
	if (!rc && out->resumed)
		rc = without_moments(read_step(r, ck, checks, &out->bytes, err), err);
	else if (!rc)
		rc = read_weights(r, ck, checks, err);
	if (!rc)
		rc = as_damage(ckpt_load_checks_end(checks, NULL, &checked, err), err);
	ckpt_load_checks_free(checks);
	ckpt_close(ck);
	return rc;
}

/* ---- steps, one after the other ---- */

/* How a rank fared. */
struct fared {
	uint32_t damaged, failed;
	char what[640];
};

static bool is_damage(int rc)
{
	return rc == -CKPT_E_CORRUPT || rc == -CKPT_E_INCOMPLETE;
}

/* '*first_out': of the lowest rank that met damage, 'what' NULL = none did. */
static int agree(const struct en_resume *r, int rc, const struct ckpt_err *why,
		 struct fared *first_out, uint32_t *rank_out, struct ckpt_err *err)
{
	struct fared own = { .damaged = is_damage(rc), .failed = rc != 0 };
	const char *cut = strrchr(why->where, '/'), *name = cut ? cut + 1 : why->where;
	struct fared *all = ck_zalloc(r->comm->size * sizeof(*all));

	if (!all)
		return ck_fail_nomem(err, "ranks", r->comm->size);
	snprintf(own.what, sizeof(own.what), "%.100s%s%s", name, *name ? ": " : "", why->msg);
	rc = en_comm_gather_small(r->comm, all, &own, sizeof(own), NULL, err);
	*first_out = (struct fared){ .damaged = 0 };
	for (uint32_t i = r->comm->size; !rc && i-- > 0;)
		if (all[i].damaged) {
			*first_out = all[i];
			*rank_out = i;
		}
	for (uint32_t i = 0; !rc && i < r->comm->size; i++)
		if (all[i].failed && !all[i].damaged)
			first_out->damaged = 0;	/* that is no matter of this step */
	ck_free(all);
	return rc;
}

static void say_passed(const struct en_resume *r, const char *tag, const struct fared *f,
		       uint32_t rank)
{
	char line[1200];

	if (r->comm->rank || !r->find || !r->find->say)
		return;
	snprintf(line, sizeof(line),
		 "skipped %.200s/%.200s, which rank %u found damaged while loading: %s", r->from,
		 tag, rank, f->what);
	r->find->say(line);
}

int en_resume_load(const struct en_resume *r, struct en_loaded *out, struct ckpt_err *err)
{
	const struct en_found *found = r->found;
	const uint32_t n = found ? found->n : 0;
	int rc = n ? -CKPT_E_CORRUPT : load(r, NULL, out, err);

	for (uint32_t i = 0; i < n && rc == -CKPT_E_CORRUPT; i++) {
		const struct en_sched sched = r->sched ? *r->sched : (struct en_sched){ 0 };
		const struct en_scale scale = r->scale ? *r->scale : (struct en_scale){ 0 };
		const struct en_differ differ = *r->check->differ;
		struct ckpt_err inner = { 0 };
		struct fared first;
		uint32_t rank = 0;
		int mine = load(r, found->tag[i], out, &inner);

		out->tag = found->tag[i];
		rc = agree(r, mine, &inner, &first, &rank, err);
		if (rc)
			return rc;
		rc = first.damaged ? -CKPT_E_CORRUPT : mine;
		if (rc && (!first.damaged || i + 1 == n))
			return ck_fail(err, mine ? inner.code : CKPT_E_CORRUPT,
				       mine ? inner.where : r->from, inner.offset, "%s",
				       mine ? inner.msg : first.what);
		if (rc) {
			say_passed(r, found->tag[i], &first, rank);
			en_loaded_release(out);
			if (r->sched)
				*r->sched = sched;
			if (r->scale)
				*r->scale = scale;
			*r->check->differ = differ;
		} else if (i && !r->comm->rank) {
			rc = en_find_set_latest(r->find, found->tag[i], err);
		}
	}
	return rc;
}

void en_loaded_release(struct en_loaded *loaded)
{
	ck_free(loaded->data);
	ck_free(loaded->left);
	loaded->data = loaded->left = NULL;
}
