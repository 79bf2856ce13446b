/*
 * ck_hf_trainer_out.c -- a step as a folder of transformers' Trainer: its files, but for weights
 * (ck_hf_trainer_weights.c) and what is in optimizer.pt (ck_hf_trainer_groups.c).
 */
#include "formats/hf_sharded/ck_hf_trainer_out.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/hf_sharded/ck_hf.h"
#include "formats/torch_pt/ck_pt_scaler.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/step/ck_step_along.h"
#include "libckpt/step/ck_step_drop.h"
#include "libckpt/step/ck_step_ds.h"
#include "libckpt/tensor/ck_val_new.h"

/* ---- torch files ---- */

static int write_torch(struct trn_out *o, const char *name, const struct ck_val *root,
		       struct ckpt_err *err)
{
	const struct ck_pt_want want = {
		.ix = o->ix, .root = root,
		.name = ck_arena_printf(o->arena, "%s/%s", o->tag, name),
		.storage = o->storage, .nstorages = o->nstorages,
	};

	return want.name && root ? ck_pt_plan_file(&want, o->plan, err) :
	       ck_fail_nomem(err, name, 0);
}

/* ---- what the Trainer has no place for ---- */

static struct ck_val *add_client(struct trn_out *o, struct ck_val *d, const char *key,
				 struct ck_val *v)
{
	if (!key || ck_step_ds_is_own(key) || !strcmp(key, "lr_scheduler") || ck_val_is_none(v))
		return d;
	if (!ck_step_ds_is_plain(v) || !strcmp(key, "deepspeed") || !strcmp(key, "groups")) {
		ck_findings_add(o->step->f, CK_FINDING_NOT_CARRIED, key,
				"a value of the client with tensors, objects or more than %u "
				"values in it, or of a name that " TRN_OWN " uses itself",
				CK_STEP_DS_MOST_VALUES);
		return d;
	}
	return ck_val_dict_sets(o->arena, d, key, v);
}

/* A source that does not count has zeros: a run that resumes would begin its data anew. */
static void drop_zeros(const struct trn_out *o, struct ck_val *ds)
{
	int64_t n;

	if (!ds || !o->steps || !ck_val_int(ck_val_get(ds, "global_samples"), &n) || n)
		return;
	ck_val_dict_drop(ds, "global_samples");
	if (ck_val_int(ck_val_get(ds, "skipped_steps"), &n) && !n)
		ck_val_dict_drop(ds, "skipped_steps");
}

static struct ck_val *own_of(struct trn_out *o, bool keeps_scheduler)
{
	struct ck_val *d = ck_val_new_dict(o->arena), *ds, *const *item;
	uint64_t n = 0;

	ds = ck_step_ds_make(o->step, o->ix, o->arena, ck_step_ds_is_hyper, keeps_scheduler);
	ds = ck_val_dict_sets(o->arena, ds, "global_steps", ck_val_new_int(o->arena, o->steps));
	drop_zeros(o, ds);
	d = ck_val_dict_sets(o->arena, d, "deepspeed", ds);
	if (!o->same_groups)
		d = ck_val_dict_sets(o->arena, d, "groups", ck_trn_out_listed(o));
	ck_val_pairs(o->step->model, &item, &n);
	for (uint64_t i = 0; d && i < n; i++)
		d = add_client(o, d, ck_val_str(item[2 * i]), item[2 * i + 1]);
	return d;
}

/* ---- scaler.pt ---- */

static void take_scaler(struct trn_out *o)
{
	struct ck_pt_scaled has;

	ck_pt_scaler_of_step(o->step, o->arena, &has);
	o->grad_scaler = has.grad;
	if (has.is_lost)
		ck_findings_add(o->step->f, CK_FINDING_NOT_CARRIED, "loss_scaler",
				CK_PT_SCALER_LOST);
}

/* ---- trainer_state.json ---- */

static int64_t micro_batch(const struct trn_out *o)
{
	const struct ck_val *config = ck_val_get(o->step->model, "ds_config");
	int64_t n;

	return ck_val_int(ck_val_get(config, "train_micro_batch_size_per_gpu"), &n) && n > 0 ?
	       n : 1;
}

/* What a run says that it did every so many steps; the default is that of TrainingArguments. */
static int64_t every(const struct trn_out *o, const char *key)
{
	const struct ck_val *said = ck_val_get(o->step->model, TRN_EVERY);
	int64_t n;

	return ck_val_int(ck_val_get(said, key), &n) && n > 0 ? n : 500;
}

/* As json.dumps() of the Trainer has it: sorted, indented by two. */
static const char *make_state(struct trn_out *o)
{
	return ck_arena_printf(
		o->arena,
		"{\n  \"best_global_step\": null,\n  \"best_metric\": null,\n"
		"  \"best_model_checkpoint\": null,\n  \"epoch\": 0,\n"
		"  \"eval_steps\": %" PRId64 ",\n"
		"  \"global_step\": %" PRId64 ",\n  \"is_hyper_param_search\": false,\n"
		"  \"is_local_process_zero\": true,\n  \"is_world_process_zero\": true,\n"
		"  \"log_history\": [],\n  \"logging_steps\": %" PRId64 ",\n"
		"  \"max_steps\": %" PRId64 ",\n"
		"  \"num_input_tokens_seen\": 0,\n  \"num_train_epochs\": 1,\n"
		"  \"save_steps\": %" PRId64 ",\n  \"stateful_callbacks\": {\n"
		"    \"TrainerControl\": {\n      \"args\": {\n"
		"        \"should_epoch_stop\": false,\n        \"should_evaluate\": false,\n"
		"        \"should_log\": false,\n        \"should_save\": false,\n"
		"        \"should_training_stop\": false\n      },\n      \"attributes\": {}\n"
		"    }\n  },\n"
		"  \"total_flos\": 0,\n"
		"  \"train_batch_size\": %" PRId64 ",\n  \"trial_name\": null,\n"
		"  \"trial_params\": null\n}\n",
		every(o, "eval_steps"), o->steps, every(o, "logging_steps"), o->steps,
		every(o, "save_steps"), micro_batch(o));
}

static int write_state(struct trn_out *o, struct ckpt_err *err)
{
	const struct ck_tree_entry *e = o->step->format == &ck_format_trainer ?
					ck_tree_find(&o->step->at.tree, TRN_STATE) : NULL;
	const char *name = ck_arena_printf(o->arena, "%s/" TRN_STATE, o->tag);
	const char *text = e || o->state ? "" : make_state(o);
	int rc = name && text ? ck_plan_file(o->plan, name, err) :
		 ck_fail_nomem(err, TRN_STATE, 0);

	if (rc)
		return rc;
	if (o->state)
		return ck_plan_copy(o->plan, o->state->path, 0, o->state->bytes, err);
	return e ? ck_plan_copy(o->plan, e->path, 0, e->bytes, err) :
	       ck_plan_literal(o->plan, text, strlen(text), err);
}

/* ---- files beside the source's step ---- */

/* With DeepSpeed the Trainer has the step in a folder of checkpoint-N, and these beside it. */
static bool is_trainers(const char *name)
{
	return ck_hf_aux_is_wanted(name) || !strcmp(name, "training_args.bin") ||
	       (!strncmp(name, "rng_state", 9) && !strchr(name, '/'));
}

static bool has_name(const struct ck_step_along *along, const char *name)
{
	for (uint64_t i = 0; i < along->nfiles; i++)
		if (!strcmp(along->file[i].name, name))
			return true;
	return false;
}

/* They go into the new checkpoint-N; what the step has itself is left out. */
static int move_in(struct trn_out *o, struct ck_step_along *along, struct ckpt_err *err)
{
	uint64_t n = 0;

	for (uint64_t i = 0; i < along->nfiles; i++) {
		struct ck_step_along_file f = along->file[i];
		const char *to = f.in_tag || !is_trainers(f.name) ? f.name :
				 ck_arena_printf(o->arena, "%s/%s", o->tag, f.name);

		if (!to)
			return ck_fail_nomem(err, "a file name", 0);
		if (!f.in_tag && !strcmp(f.name, TRN_STATE)) {
			o->kept_state = f;
			o->state = &o->kept_state;
			continue;
		}
		if (!f.in_tag && (!strcmp(f.name, TRN_SCHEDULER) ||
				  (to != f.name && has_name(along, to))))
			continue;
		f.name = to;
		along->file[n++] = f;
	}
	along->nfiles = n;
	return 0;
}

/* ---- the driver ---- */

static int check(struct trn_out *o, struct ckpt_err *err)
{
	int rc;

	ck_trn_out_find_adapter(o);
	if (o->step->elastic)
		return ck_fail(err, CKPT_E_UNSUPPORTED, o->step->at.where, CKPT_NO_OFFSET,
			       "an elastic step has no hyper-parameters, and the Trainer's "
			       "optimizer needs them");
	rc = ck_step_check_drops(o->step, o->ix, o->want, err);
	if (!rc)
		rc = ck_step_check_joined(o->step, o->want, false, err);
	return rc ? rc : ck_trn_out_groups(o, err);
}

static int write_all(struct trn_out *o, struct ck_step_along *along, struct ckpt_err *err)
{
	struct ck_val *sched;
	bool own = false;
	int rc = check(o, err);

	take_scaler(o);
	if (!rc)
		rc = ck_trn_out_weights(o, err);
	if (!rc)
		rc = write_torch(o, TRN_OPTIMIZER, ck_trn_out_optimizer(o), err);
	o->nstorages = 0;
	if (rc)
		return rc;
	sched = ck_trn_out_scheduler(o, &own);
	rc = write_torch(o, TRN_SCHEDULER, sched, err);
	if (!rc)
		rc = write_torch(o, TRN_OWN, own_of(o, own), err);
	if (!rc && o->grad_scaler)
		rc = write_torch(o, TRN_SCALER, o->grad_scaler, err);
	if (!rc)
		rc = ck_step_along_list(along, err);
	if (!rc)
		rc = move_in(o, along, err);
	if (!rc)
		rc = write_state(o, err);
	return rc ? rc : ck_step_along_plan(along, o->plan, err);
}

/* The Trainer finds its newest folder by the name checkpoint-N. */
static const char *tag_of(struct trn_out *o)
{
	return o->want->tag ? o->want->tag :
	       ck_arena_printf(o->arena, "checkpoint-%" PRId64, o->steps);
}

int ck_trn_write_step(struct ck_step *step, const struct ck_index *ix,
		      const struct ck_reshard_want *want, struct ck_plan *plan,
		      struct ckpt_err *err)
{
	struct trn_out o = {
		.step = step, .ix = ix, .want = want, .plan = plan, .arena = step->arena,
	};
	struct ck_step_along along = { .step = step, .want = want };
	int rc = step->complete ? step->complete(step, err) : 0;

	if (!ck_val_int(ck_val_get(step->model, "global_steps"), &o.steps) || o.steps < 0)
		o.steps = ix->step < 0 ? 0 : ix->step;
	along.tag = o.tag = tag_of(&o);
	if (!rc && !o.tag)
		rc = ck_fail_nomem(err, "a name", 0);
	if (!rc)
		rc = write_all(&o, &along, err);
	ck_step_along_release(&along);
	ck_free(o.storage);
	return rc;
}
