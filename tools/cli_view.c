/* cli_view.c -- sums over a checkpoint's tensors, and `zckpt inspect --json`. */
#include <string.h>

#include "cli_sizes.h"
#include "cli_verdict.h"
#include "cli_view.h"

static uint64_t byte_count(uint64_t numel, enum ckpt_dtype dtype)
{
	uint32_t bits = ckpt_dtype_bits(dtype);

	return numel / 8 * bits + (numel % 8 * bits + 7) / 8;
}

const char *view_type(enum ckpt_dtype dtype)
{
	static const struct {
		enum ckpt_dtype dtype;
		const char *word;
	} words[] = {
		{ CKPT_BF16, "bf16" }, { CKPT_F16, "fp16" }, { CKPT_F32, "fp32" },
		{ CKPT_F64, "fp64" },
	};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (words[i].dtype == dtype)
			return words[i].word;
	return ckpt_dtype_torch_name(dtype) ? ckpt_dtype_torch_name(dtype) :
	       ckpt_dtype_name(dtype);
}

static struct sum *sum_of(struct view *view, const struct ckpt_state_info *state)
{
	int derived = (state->flags & CKPT_STATE_DERIVED) != 0;
	struct sum *bigger;

	for (size_t i = 0; i < view->nsums; i++)
		if (view->sums[i].dtype == state->dtype && view->sums[i].derived == derived &&
		    !strcmp(view->sums[i].name, state->name))
			return &view->sums[i];
	bigger = cli_alloc((view->nsums + 1) * sizeof(*bigger));
	if (view->nsums)
		memcpy(bigger, view->sums, view->nsums * sizeof(*bigger));
	cli_free(view->sums);
	view->sums = bigger;
	bigger[view->nsums] = (struct sum){ state->name, state->dtype, derived, 0, 0, 0 };
	return &bigger[view->nsums++];
}

void view_collect(struct view *view)
{
	struct ckpt_tensor_info tensor;
	struct ckpt_state_info state;

	for (uint64_t i = 0; !ckpt_tensor_get(view->ck, i, &tensor, NULL); i++) {
		unsigned role = (unsigned)tensor.role < NROLES ? (unsigned)tensor.role : 0;

		view->tensors[role]++;
		view->elements[role] += tensor.numel;
		for (uint32_t k = 0; tensor.role != CKPT_ROLE_ALIAS && k < tensor.nstates; k++) {
			struct sum *sum;

			if (ckpt_state_get(view->ck, i, k, &state, NULL))
				continue;
			sum = sum_of(view, &state);
			sum->tensors++;
			sum->elements += tensor.numel;
			sum->bytes += byte_count(tensor.numel, state.dtype);
			if (role != CKPT_ROLE_BUFFER && !strcmp(state.name, "weight") &&
			    (unsigned)state.dtype < NTYPES)
				view->typed[state.dtype] += tensor.numel;
		}
	}
}

const char *view_layout(const struct ckpt *ck)
{
	const char *key, *value;

	for (uint64_t i = 0; !ckpt_fact_get(ck, i, &key, &value, NULL); i++)
		if (!strcmp(key, "layout"))
			return value;
	return NULL;
}

/* ---------------------------------------------------------------- JSON */

static void json_what(const struct view *view, struct json *json)
{
	const struct ckpt_info *info = &view->info;

	json_text(json, "format", info->format);
	json_text(json, "path", info->path);
	json_text(json, "tag", info->tag);
	json_text(json, "why", info->why);
	json_known(json, "stage", info->stage);
	json_text(json, "optimizer", info->optimizer);
	json_uint(json, "world", info->world);
	if (view_layout(view->ck))
		json_text(json, "layout", view_layout(view->ck));
	json_known(json, "step", info->step);
	json_text(json, "writer", info->writer);
	json_text(json, "fingerprint", info->fingerprint);
	json_uint(json, "files", info->nfiles);
	json_uint(json, "file_bytes", info->file_bytes);
	json_uint(json, "groups", info->ngroups);
	json_uint(json, "tensors", info->ntensors);
	json_uint(json, "extents", info->nextents);
}

static void json_sums(const struct view *view, struct json *json)
{
	json_open(json, "roles", '{');
	for (unsigned role = 1; role < NROLES; role++) {
		if (!view->tensors[role])
			continue;
		json_open(json, out_role((enum ckpt_role)role), '{');
		json_uint(json, "tensors", view->tensors[role]);
		json_uint(json, "elements", view->elements[role]);
		json_close(json, '}');
	}
	json_close(json, '}');
	json_open(json, "states", '[');
	for (size_t i = 0; i < view->nsums; i++) {
		const struct sum *sum = &view->sums[i];

		json_open(json, NULL, '{');
		json_text(json, "name", sum->name);
		json_text(json, "dtype", ckpt_dtype_name(sum->dtype));
		json_bool(json, "derived", sum->derived);
		json_uint(json, "tensors", sum->tensors);
		json_uint(json, "elements", sum->elements);
		json_uint(json, "bytes", sum->bytes);
		json_close(json, '}');
	}
	json_close(json, ']');
}

static void json_facts(const struct view *view, struct json *json)
{
	const char *key, *value;

	json_open(json, "facts", '{');
	for (uint64_t i = 0; !ckpt_fact_get(view->ck, i, &key, &value, NULL); i++)
		json_text(json, key, value);
	json_close(json, '}');
}

static void json_tensor(const struct view *view, struct json *json, uint64_t i,
			const struct ckpt_tensor_info *tensor)
{
	struct ckpt_tensor_info kept;
	struct ckpt_state_info state;

	json_open(json, NULL, '{');
	json_text(json, "name", tensor->name);
	json_text(json, "role", out_role(tensor->role));
	json_shape(json, tensor);
	if (tensor->group >= 0)
		json_int(json, "group", tensor->group);
	if (tensor->role == CKPT_ROLE_ALIAS &&
	    !ckpt_tensor_get(view->ck, tensor->alias_of, &kept, NULL))
		json_text(json, "alias_of", kept.name);
	json_open(json, "states", '{');
	for (uint32_t k = 0; tensor->role != CKPT_ROLE_ALIAS && k < tensor->nstates; k++)
		if (!ckpt_state_get(view->ck, i, k, &state, NULL))
			json_text(json, state.name, ckpt_dtype_name(state.dtype));
	json_close(json, '}');
	json_close(json, '}');
}

/* With -v all tensors, else the aliases only. */
static void json_tensors(const struct view *view, struct json *json)
{
	int all = view->args->verbose || view->list;
	struct ckpt_tensor_info tensor, kept;

	json_open(json, "tied", '{');
	for (uint64_t i = 0; !ckpt_tensor_get(view->ck, i, &tensor, NULL); i++)
		if (tensor.role == CKPT_ROLE_ALIAS &&
		    !ckpt_tensor_get(view->ck, tensor.alias_of, &kept, NULL))
			json_text(json, tensor.name, kept.name);
	json_close(json, '}');
	if (!all)
		return;
	json_open(json, "tensor_list", '[');
	for (uint64_t i = 0; !ckpt_tensor_get(view->ck, i, &tensor, NULL); i++)
		json_tensor(view, json, i, &tensor);
	json_close(json, ']');
}

static void json_verdict(const struct view *view, struct json *json)
{
	char *why = verdict_of(view->ck, NULL, 1);

	json_bool(json, "ok", !why);
	json_text(json, "verdict", why ? why : "complete");
	cli_free(why);
}

int view_json(const struct view *view)
{
	struct json json;
	int status = 0;

	json_begin(&json, stdout, "inspect");
	json_verdict(view, &json);
	json_what(view, &json);
	json_sums(view, &json);
	json_facts(view, &json);
	json_tensors(view, &json);
	json_findings(&json, view->ck);
	if (view->explain_size)
		status = sizes_json(&json, view->ck);
	json_close(&json, '}');
	return status;
}
