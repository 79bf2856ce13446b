/* en_resume.c -- see en_keep.h: the finding and loading half. */
#include <string.h>

#include "engine/run/en_keep.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"

/* Of use_node_local_storage: no rank sees all of a step. */
static int refuse_ranks(const char *root, struct ckpt_err *err)
{
	char *own = ck_asprintf("%s/" EN_KEEP_RANK "00000", root);
	struct stat st;
	int there = own ? !ck_sys.stat(own, &st) : 0;

	ck_free(own);
	return !there ? 0 :
	       ck_fail(err, CKPT_E_USAGE, root, CKPT_NO_OFFSET,
		       "each rank has saved in a folder of its own here: bring all of them to one "
		       "place, put them together with `zckpt reshard --to native rank-* NEW`, and "
		       "go on from NEW");
}

int en_keep_find(const char *root, char **tag_out, struct ckpt_err *err)
{
	static const char *const nothing[] = { NULL };
	const struct ckpt_prune_opts opts = { .size = sizeof(opts), .keep_last = 1,
					      .keep = nothing };
	struct ckpt_err inner = { 0 };
	struct ckpt_pruned steps;
	int rc = ckpt_prune(root, &opts, &steps, &inner);

	*tag_out = NULL;
	if (!rc && !steps.nsteps) {
		rc = refuse_ranks(root, err);
		ckpt_pruned_free(&steps);
		return rc;
	}
	if (rc == -CKPT_E_NOTFOUND)
		return refuse_ranks(root, err);
	if (rc) {
		if (err && !err->code)
			*err = inner;
		return rc;
	}
	for (uint64_t i = 0; !*tag_out && i < steps.nsteps; i++)
		if (steps.step[i].whole) {
			*tag_out = ck_strdup(steps.step[i].name);
			if (!*tag_out)
				rc = ck_fail_nomem(err, "a name", 0);
			break;
		}
	ckpt_pruned_free(&steps);
	return rc;
}

/* Has every parameter both moments?  The first one tells. */
static bool has_moments(const struct en_model *model, const struct ckpt *ck)
{
	struct ckpt_tensor_info info;
	struct ckpt_state_info state;
	uint64_t tensor;
	uint32_t found = 0;

	if (ckpt_tensor_find(ck, model->param[0].name, &tensor, NULL) ||
	    ckpt_tensor_get(ck, tensor, &info, NULL))
		return false;
	for (uint32_t s = 0; s < info.nstates; s++)
		if (!ckpt_state_get(ck, tensor, s, &state, NULL))
			found += !strcmp(state.name, "exp_avg") ||
				 !strcmp(state.name, "exp_avg_sq");
	return found == 2;
}

/* How far the optimizer counted, if it says. */
static uint64_t updates_of(struct ckpt_values *v, const struct en_place_in_run *at)
{
	static const char *const path[] = {
		"optimizer.base_optimizer_state.state.0.step", "param_groups.0.step",
		"optimizer.state.0.step",
	};
	int64_t n;

	for (size_t i = 0; i < CK_ARRAY_LEN(path); i++)
		if (!ckpt_value_int(v, path[i], &n, NULL) && n >= 0)
			return (uint64_t)n;
	return (uint64_t)(at->steps - at->skipped);
}

/* A step that this engine did not save has none. */
static int read_data(struct ckpt_values *v, struct en_loaded *out, struct ckpt_err *err)
{
	struct ckpt_value text;

	if (ckpt_value_get(v, EN_KEEP_DATA, &text, NULL) || text.kind != CKPT_VALUE_STRING)
		return 0;
	out->data = ck_strndup(text.bytes, text.n);
	return out->data ? 0 : ck_fail_nomem(err, "a text", text.n);
}

static int read_values(const struct ckpt *ck, struct en_loaded *out, struct en_sched *sched,
		       struct en_scale *scale, struct ckpt_err *err)
{
	struct en_place_in_run *at = &out->at;
	struct ckpt_values *v;
	bool found;
	int rc = ckpt_values_open(ck, 0, 0, &v, err);

	if (rc)
		return rc;
	rc = ckpt_value_int(v, "global_steps", &at->steps, err);
	if (!rc)
		rc = ckpt_value_int(v, "global_samples", &at->samples, err);
	if (!rc && ckpt_value_int(v, "skipped_steps", &at->skipped, NULL))
		at->skipped = 0;
	if (!rc) {
		at->updates = updates_of(v, at);
		rc = en_sched_load_values(sched, v, &found, err);
	}
	if (!rc)
		rc = en_scale_load_values(scale, v, &found, err);
	if (!rc)
		rc = read_data(v, out, err);
	out->has_recipe = en_recipe_take(&out->recipe, v);
	ckpt_values_close(v);
	return rc;
}

int en_keep_load(const struct en_model *model, struct en_zero *z, const char *path,
		 const char *tag, struct en_sched *sched, struct en_scale *scale,
		 struct en_loaded *out, struct ckpt_err *err)
{
	const struct ckpt_open_opts oo = { .size = sizeof(oo), .tag = tag };
	struct ckpt *ck;
	int rc = ckpt_open(&path, 1, &oo, &ck, err);

	memset(out, 0, sizeof(*out));
	if (rc)
		return rc;
	out->resumed = has_moments(model, ck);
	rc = out->resumed ? en_zero_read_state(z, ck, &out->bytes, err) :
	     en_zero_read_weights(z, ck, err);
	if (!rc && out->resumed)
		rc = read_values(ck, out, sched, scale, err);
	ckpt_close(ck);
	return rc;
}
