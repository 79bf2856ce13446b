/*
 * ck_hf_values.c -- what of a Trainer's folder is no tensor: trainer_state.json, the scheduler, and
 * what zckpt keeps for other programs; the same as <ckpt_value.h> shows it.
 *
 *	model       global_steps, lr_scheduler; of a step that zckpt wrote also the other counts,
 *	            the configuration and the client's values
 *	optimizer   {"state": {NAME: {"step": N}}, "param_groups": [...]}, with names in 'params'
 */
#include <inttypes.h>
#include <string.h>

#include "formats/hf_sharded/ck_hf_trainer.h"
#include "formats/torch_pt/ck_pt_scaler.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/base/ck_text.h"
#include "libckpt/format/ck_values.h"
#include "libckpt/json/ck_json.h"
#include "libckpt/step/ck_step_ds.h"
#include "libckpt/tensor/ck_val_new.h"


/* ---- trainer_state.json ---- */

/* The losses in it may be NaN, which is no JSON; the rest is read as leniently. */
static int parse(struct ck_json *doc, const struct trn *t, const char *text, uint64_t len,
		 struct ckpt_err *err)
{
	const char *path = t->path[TRN_IN_STATE];
	struct ckpt_err why = { 0 };
	int rc = ck_json_parse(doc, text, len, &t->in->limits, 0, path, &why);

	if (rc == -CKPT_E_CORRUPT && !doc->twice) {
		ck_json_release(doc);
		*doc = (struct ck_json)CK_JSON_INIT;
		rc = ck_json_parse(doc, text, len, &t->in->limits, CK_JSON_HJSON, path, NULL);
		if (rc == -CKPT_E_CORRUPT)
			return ck_fail(err, why.code, why.where, why.offset, "%s", why.msg);
	}
	return rc ? ck_fail(err, -rc, why.code ? why.where : path, why.offset, "%s",
			    why.code ? why.msg : "it cannot be read") : 0;
}

/* Both files are of one save. */
static int compare_own(const struct trn *t, struct ckpt_err *err)
{
	const struct ck_val *root = ck_trn_root(t, TRN_IN_OWN);
	struct ck_val *const *item;
	int64_t steps;
	uint64_t n;

	if (!t->pt[TRN_IN_OWN])
		return 0;
	if (!ck_val_pairs(root, &item, &n) || !ck_val_pairs(t->deepspeed, &item, &n) ||
	    !ck_val_int(ck_val_get(t->deepspeed, "global_steps"), &steps))
		return ck_fail(err, CKPT_E_CORRUPT, t->path[TRN_IN_OWN], CKPT_NO_OFFSET,
			       "it has no count 'global_steps', which zckpt writes");
	if (steps != t->global_step)
		ck_findings_add(t->f, CK_FINDING_STEP_MIXED, t->path[TRN_IN_STATE],
				"global_step is %" PRId64 ", and %" PRId64 " in " TRN_OWN
				" (files of two saves in one folder?)", t->global_step, steps);
	return 0;
}

int ck_trn_state_read(struct trn *t, struct ckpt_err *err)
{
	struct ck_json doc = CK_JSON_INIT;
	uint64_t tok = UINT64_MAX, len;
	char *text = NULL;
	int rc = ck_trn_text(t, TRN_IN_STATE, &text, &len, err);

	if (!rc)
		rc = parse(&doc, t, text, len, err);
	if (!rc && doc.tok[0].type == CK_JSON_OBJECT)
		tok = ck_json_get(&doc, 0, "global_step");
	if (!rc && (!ck_json_i64(&doc, tok, &t->global_step) || t->global_step < 0))
		rc = ck_fail(err, CKPT_E_CORRUPT, t->path[TRN_IN_STATE], CKPT_NO_OFFSET,
			     "it has no count 'global_step', so it is not the state of a Trainer");
	ck_json_release(&doc);
	ck_free(text);
	t->deepspeed = ck_val_get(ck_trn_root(t, TRN_IN_OWN), "deepspeed");
	return rc ? rc : compare_own(t, err);
}

/* ---- trees ---- */

struct ck_val *ck_trn_scheduler(const struct trn *t)
{
	struct ck_val *own = ck_val_get(t->deepspeed, "lr_scheduler");

	return own ? own : t->scheduler ? t->scheduler :
	       (struct ck_val *)ck_trn_root(t, TRN_IN_SCHEDULER);
}

const struct ck_val *ck_trn_scaler(const struct trn *t)
{
	const struct ck_val *grad = ck_trn_root(t, TRN_IN_SCALER);
	int64_t dynamic = 0;

	ck_val_int(ck_val_get(t->deepspeed, "dynamic_loss_scale"), &dynamic);
	return !dynamic && ck_pt_scaler_is_grad(grad) ? grad : NULL;
}

bool ck_trn_is_hyper(const struct trn *t, uint32_t group, const char *key, const struct ck_val *v)
{
	return ck_step_ds_is_hyper(key, v) && strcmp(key, "step") &&
	       ck_step_ds_has_key(t->deepspeed, group, key);
}

static bool is_clients(const char *key)
{
	return key && strcmp(key, "deepspeed") && strcmp(key, "groups") &&
	       !ck_step_ds_is_own(key);
}

/* In the place of the client's that is one. */
static int add_scaler(struct trn *t, struct ck_val *model, struct ck_findings *f,
		      struct ckpt_err *err)
{
	const struct ck_val *grad = ck_trn_scaler(t);
	const char *key = ck_pt_scaler_key(model);

	if (!grad)
		return 0;
	if (key)
		return ck_val_dict_sets(&t->arena, model, key, ck_pt_scaler_copy(grad, &t->arena)) ?
		       0 : ck_fail_nomem(err, "a loss scaler", 0);
	if (f)
		ck_findings_add(f, CK_FINDING_NOT_CARRIED, TRN_SCALER,
				"a GradScaler's values: the client's values have all names for "
				"them (scaler, grad_scaler, amp_scaler)");
	return 0;
}

int ck_trn_clients(struct trn *t, struct ck_val *model, struct ck_findings *f,
		   struct ckpt_err *err)
{
	struct ck_val *const *item;
	uint64_t n = 0;

	ck_val_pairs(ck_trn_root(t, TRN_IN_OWN), &item, &n);
	for (uint64_t i = 0; i < n; i++) {
		const char *key = ck_val_str(item[2 * i]);

		if (!is_clients(key) || ck_val_is_none(item[2 * i + 1]))
			continue;
		if (!ck_step_ds_is_plain(item[2 * i + 1]) && f)
			ck_findings_add(f, CK_FINDING_NOT_CARRIED, TRN_OWN,
					"'%.60s': a value with tensors or objects in it", key);
		else if (!ck_val_dict_sets(&t->arena, model, key, item[2 * i + 1]))
			return ck_fail_nomem(err, "a value of the client", 0);
	}
	return add_scaler(t, model, f, err);
}

static struct ck_val *make_model(struct trn *t, struct ckpt_err *err)
{
	struct ck_val *model = ck_val_new_dict(&t->arena), *sched = ck_trn_scheduler(t);

	model = ck_val_dict_sets(&t->arena, model, "global_steps",
				 ck_val_new_int(&t->arena, t->global_step));
	if (!model) {
		ck_fail_nomem(err, "values", 0);
		return NULL;
	}
	if (ck_step_ds_model(t->deepspeed, &t->arena, model, err) ||
	    ck_trn_clients(t, model, NULL, err))
		return NULL;
	if (sched && !ck_val_dict_sets(&t->arena, model, "lr_scheduler", sched)) {
		ck_fail_nomem(err, "a scheduler", 0);
		return NULL;
	}
	return model;
}

static const char *name_of(const struct trn *t, const struct ck_index *ix, uint64_t number)
{
	const uint32_t tensor = t->param[number].tensor;

	return tensor == CK_NONE ? NULL : ix->tensor[tensor].name;
}

static struct ck_val *make_group(struct trn *t, const struct ck_index *ix, uint32_t g)
{
	struct ck_arena *a = &t->arena;
	struct ck_val *d = ck_val_new_dict(a), *list = ck_val_new_list(a), *const *item;
	uint64_t n = 0;

	ck_val_pairs(t->group[g].hyper, &item, &n);
	for (uint64_t i = 0; d && i < n; i++)
		if (ck_trn_is_hyper(t, g, ck_val_str(item[2 * i]), item[2 * i + 1]))
			d = ck_val_dict_add(a, d, item[2 * i], item[2 * i + 1]);
	for (uint64_t i = 0; list && i < t->group[g].n; i++) {
		const uint64_t number = t->order[t->group[g].first + i];
		const char *name = name_of(t, ix, number);

		list = ck_val_list_add(a, list, name ? ck_val_new_str(a, name) :
				       ck_val_new_int(a, (int64_t)number));
	}
	return ck_val_dict_sets(a, d, "params", list);
}

static int make_optimizer(struct trn *t, const struct ck_index *ix, struct ck_values *out,
			  struct ckpt_err *err)
{
	struct ck_arena *a = &t->arena;
	struct ck_val *groups = ck_val_new_list(a), *states = ck_val_new_dict(a), *all;
	const struct ck_val *grad = ck_trn_scaler(t);

	for (uint32_t g = 0; groups && g < t->ngroups; g++)
		groups = ck_val_list_add(a, groups, make_group(t, ix, g));
	for (uint64_t i = 0; states && i < t->nparams; i++) {
		const char *name = name_of(t, ix, i);

		if (name && t->param[i].has_step)
			states = ck_val_dict_add(a, states, ck_val_new_str(a, name),
						 ck_val_dict_sets(a, ck_val_new_dict(a), "step",
								  ck_val_new_float(a, t->param[i].step)));
	}
	all = ck_val_dict_sets(a, ck_val_new_dict(a), "state", states);
	all = ck_val_dict_sets(a, all, "param_groups", groups);
	if (!all)
		return ck_fail_nomem(err, "param groups", t->ngroups);
	out->optimizer = all;
	out->groups = groups;
	out->scaler = grad ? ck_pt_scaler_state(grad, t->global_step, a) :
			     ck_val_get(t->deepspeed, "loss_scaler");
	return grad && !out->scaler ? ck_fail_nomem(err, "a loss scaler", 0) : 0;
}

/* ---- values() ---- */

struct opened {
	struct ck_input in;
	struct ck_findings f;
	struct trn *t;
};

static void close_values(struct ck_values *v)
{
	struct opened *o = v->own;

	if (!o)
		return;
	ck_trn_free(o->t);
	ck_findings_release(&o->f);
	ck_free(o);
	v->own = NULL;
}

static int bytes_of(const struct ck_values *v, const struct ck_tensor_ref *t, bool in_model,
		    uint64_t max, uint8_t **out, struct ckpt_err *err)
{
	(void)v;
	(void)in_model;
	(void)max;
	(void)out;
	return ck_fail(err, CKPT_E_UNSUPPORTED, NULL, CKPT_NO_OFFSET,
		       "a tensor of %" PRIu64 " elements within a value of a Trainer's folder: "
		       "zckpt reads single numbers only there", t->numel);
}

/* The source of that name in the step's folder, or NULL. */
static const struct ck_source *source_of(const struct ck_index *ix, const char *name)
{
	const size_t n = strlen(ix->path);

	for (uint64_t i = 0; i < ix->nsources; i++) {
		const char *path = ix->source[i].path;

		if (ck_ends_with(path, name) && strlen(path) > strlen(name) &&
		    path[strlen(path) - strlen(name) - 1] == '/' && n)
			return &ix->source[i];
	}
	return NULL;
}

static int read_all(struct trn *t, const struct ck_index *ix, struct ckpt_err *err)
{
	int rc = 0;

	for (int k = 0; k < TRN_FILES; k++) {
		const struct ck_source *s = source_of(ix, ck_trn_name((enum trn_file)k));

		t->path[k] = s ? s->path : NULL;
		t->src[k] = s ? s->src : NULL;
	}
	rc = ck_trn_parse(t, err);
	return rc ? rc : ck_trn_params_find(t, ix, err);
}

int ck_trn_values(const struct ck_index *ix, const struct ckpt_limits *limits, uint32_t rank,
		  struct ck_values *out, struct ckpt_err *err)
{
	struct opened *o = ck_zalloc(sizeof(*o));
	int rc;

	(void)rank;	/* one rank's are all ranks' */
	if (!o)
		return ck_fail_nomem(err, "values", sizeof(*o));
	o->in.limits = *limits;
	o->t = ck_trn_new(&o->in, NULL, &o->f);
	if (!o->t) {
		ck_free(o);
		return ck_fail_nomem(err, "values", sizeof(*o));
	}
	out->own = o;
	o->t->at.where = ix->path;
	rc = read_all(o->t, ix, err);
	if (!rc)
		rc = make_optimizer(o->t, ix, out, err);
	if (!rc)
		out->model = make_model(o->t, err);
	if (!rc && !out->model)
		rc = -CKPT_E_NOMEM;
	rc = ck_arena_why(&o->t->arena, rc, ix->path, err);
	if (rc) {
		close_values(out);
		return rc;
	}
	out->bytes = bytes_of;
	out->close = close_values;
	return 0;
}
