/*
 * mg_write.c -- a model of transformers as a checkpoint that a run of Megatron-Core loads: weights
 * alone, in the folder "release", from which Megatron-LM starts at iteration 0 without an optimizer
 * and without a random state (docs/formats/megatron.md, "Written").
 */
#include <string.h>

#include "formats/megatron/mg_out.h"
#include "formats/torch_pt/ck_pt_plan.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"

#define TRACKER "latest_checkpointed_iteration.txt"

static const char whole_folder[] =
	"{\"sharded_backend\": \"torch_dist\", \"sharded_backend_version\": 1, "
	"\"common_backend\": \"torch\", \"common_backend_version\": 1}";

static int parse_table(struct mg_out *o, const char *text, const char *name, struct ckpt_err *err)
{
	const char *where = ck_arena_printf(o->arena, "the table %s", name);

	return where ? ck_mg_map_parse(&o->map, text, strlen(text), where, err) :
		       ck_fail_nomem(err, "a name", 0);
}

/* The table that names the architecture of config.json. */
static int choose_table(struct mg_out *o, struct ckpt_err *err)
{
	const char *known = "", *text, *name = NULL;

	for (size_t i = 0; (text = ck_mg_map_text(i, &name)) != NULL; i++) {
		int rc = parse_table(o, text, name, err);

		for (uint64_t k = 0; !rc && k < o->map.narchitectures; k++)
			if (!strcmp(o->map.architecture[k], o->config.architecture))
				return 0;
		if (!rc)
			known = ck_arena_printf(o->arena, "%s%s%s", known, *known ? ", " : "",
						o->map.family);
		if (!known)
			rc = ck_fail_nomem(err, "names", i);
		ck_mg_map_release(&o->map);
		if (rc)
			return rc;
	}
	return ck_fail(err, CKPT_E_UNSUPPORTED, o->config.path, CKPT_NO_OFFSET,
		       "the architecture \"%.80s\" cannot be written for Megatron-Core; those of "
		       "%s can", o->config.architecture, known);
}

static int write_text(struct ck_plan *plan, const char *name, const char *text,
		      struct ckpt_err *err)
{
	int rc = ck_plan_file(plan, name, err);

	return rc ? rc : ck_plan_literal(plan, text, strlen(text), err);
}

static int write_common(struct mg_out *o, struct ckpt_err *err)
{
	struct ck_val *root = NULL;
	int rc = ck_mg_out_common(o, &root, err);

	return rc ? rc : ck_pt_plan_file(&(struct ck_pt_want){
		.ix = o->ix, .name = MG_OUT_STEP "/common.pt", .root = root,
	}, o->plan, err);
}

int ck_mg_write_model(const struct ck_index *ix, const struct ck_model_want *want,
		      struct ck_plan *plan, struct ckpt_err *err)
{
	struct mg_out o = {
		.ix = ix, .want = want, .plan = plan, .arena = &plan->arena,
		.config = MG_CONFIG_INIT, .by_name = CK_MAP_INIT,
	};
	int rc = ck_mg_config_read(&o.config, want->config_path, want->limits, err);

	if (!rc)
		rc = choose_table(&o, err);
	if (!rc)
		rc = ck_mg_sizes_fill(&o.sizes, &o.map, &o.config, NULL, 0, err);
	o.stacked = !o.sizes.dense_layers || o.sizes.dense_layers == o.sizes.layers;
	if (!rc)
		rc = ck_mg_out_list(&o, err);
	if (!rc)
		rc = ck_mg_out_files(&o, err);
	if (!rc)
		rc = write_common(&o, err);
	if (!rc)
		rc = write_text(plan, MG_OUT_STEP "/metadata.json", whole_folder, err);
	if (!rc)
		rc = write_text(plan, TRACKER, MG_OUT_STEP, err);
	ck_free(o.tensor);
	ck_map_release(&o.by_name);
	ck_mg_sizes_release(&o.sizes);
	ck_mg_map_release(&o.map);
	ck_mg_config_release(&o.config);
	return rc;
}
