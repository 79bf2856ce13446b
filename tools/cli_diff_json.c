/* cli_diff_json.c -- the result of `zckpt diff` for scripts. */
#include <inttypes.h>
#include <string.h>

#include "cli_diff.h"

static void json_side(struct json *json, const char *key, const struct ckpt_info *info,
		      const struct ckpt *ck)
{
	json_open(json, key, '{');
	json_text(json, "path", info->path);
	json_text(json, "format", info->format);
	json_known(json, "stage", info->stage);
	json_uint(json, "world", info->world);
	json_known(json, "step", info->step);
	json_findings(json, ck);
	json_close(json, '}');
}

static void json_dims(struct json *json, const char *key, uint32_t ndim, const uint64_t *shape)
{
	json_open(json, key, '[');
	for (uint32_t i = 0; i < ndim; i++)
		json_uint(json, NULL, shape[i]);
	json_close(json, ']');
}

static void json_numbers(struct json *json, const struct ckpt_diff_row *row)
{
	json_text(json, "compared_as", ckpt_dtype_name(row->dtype));
	json_uint(json, "elements", row->numel);
	json_uint(json, "differ", row->differ);
	json_uint(json, "beyond", row->beyond);
	if (!row->differ)
		return;
	json_uint(json, "first", row->first);
	json_text(json, "first_a", row->first_a);
	json_text(json, "first_b", row->first_b);
	if (row->flags & CKPT_DIFF_BYTES)
		return;
	json_real(json, "max_abs", row->max_abs);
	json_uint(json, "max_at", row->max_at);
	json_real(json, "rel_l2", row->rel_l2);
	json_uint(json, "nan_a", row->nan_a);
	json_uint(json, "nan_b", row->nan_b);
	json_uint(json, "nan_both", row->nan_both);
	json_uint(json, "max_ulps", row->max_ulps);
	json_open(json, "ulps", '[');
	for (unsigned i = 0; row->ulps && i < CKPT_DIFF_ULPS; i++) {
		if (!row->ulps[i])
			continue;
		json_open(json, NULL, '{');
		json_uint(json, "from", i ? UINT64_C(1) << (i - 1) : 0);
		json_uint(json, "count", row->ulps[i]);
		json_close(json, '}');
	}
	json_close(json, ']');
}

static void json_flags(struct json *json, const struct ckpt_diff_row *row)
{
	static const struct {
		unsigned bit;
		const char *name;
	} flags[] = {
		{ CKPT_DIFF_DERIVED_A, "derived_a" },	{ CKPT_DIFF_DERIVED_B, "derived_b" },
		{ CKPT_DIFF_PER_RANK, "per_rank" },	{ CKPT_DIFF_ONE_SOURCE, "one_source" },
		{ CKPT_DIFF_TIED_A, "tied_a" },		{ CKPT_DIFF_TIED_B, "tied_b" },
		{ CKPT_DIFF_BYTES, "bytes" },
		{ CKPT_DIFF_EXPORTED_A, "exported_a" },
		{ CKPT_DIFF_EXPORTED_B, "exported_b" },
	};

	json_open(json, "flags", '[');
	for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++)
		if (row->flags & flags[i].bit)
			json_text(json, NULL, flags[i].name);
	json_close(json, ']');
}

static void json_row(struct json *json, const struct ckpt_diff_row *row)
{
	json_open(json, NULL, '{');
	json_text(json, "name", row->name);
	if (row->state_a)
		json_text(json, "state_a", row->state_a);
	if (row->state_b)
		json_text(json, "state_b", row->state_b);
	json_text(json, "what", diff_what(row->what));
	if (row->shape_a)
		json_dims(json, "shape_a", row->ndim_a, row->shape_a);
	if (row->shape_b)
		json_dims(json, "shape_b", row->ndim_b, row->shape_b);
	if (row->dtype_a)
		json_text(json, "dtype_a", ckpt_dtype_name(row->dtype_a));
	if (row->dtype_b)
		json_text(json, "dtype_b", ckpt_dtype_name(row->dtype_b));
	if (row->dtype)
		json_numbers(json, row);
	json_flags(json, row);
	json_close(json, '}');
}

/* A line of the table of states each. */
static void json_states(struct json *json, const struct ckpt_diff_result *d)
{
	struct diff_state *state;
	const size_t n = diff_states(d, &state);

	json_open(json, "by_state", '[');
	for (size_t i = 0; i < n; i++) {
		json_open(json, NULL, '{');
		json_text(json, "state", state[i].name);
		json_uint(json, "compared", state[i].compared);
		json_uint(json, "differing", state[i].differing);
		if (state[i].worst && !diff_is_integer(state[i].worst)) {
			json_real(json, "max_abs", state[i].max_abs);
			json_real(json, "rel_l2", state[i].rel_l2);
		}
		if (state[i].worst)
			json_text(json, "worst", state[i].worst->name);
		json_close(json, '}');
	}
	json_close(json, ']');
	cli_free(state);
}

void diff_json(const struct two *two)
{
	const struct ckpt_diff_result *d = &two->diff;
	uint64_t n = d->nrows;
	struct json json;

	while (n && !two->args->verbose && d->rows[n - 1].what == CKPT_DIFF_SAME)
		n--;	/* the rows that are the same come last */
	json_begin(&json, stdout, "diff");
	json_bool(&json, "equal", !d->ndiffering && !diff_unread(d));
	json_text(&json, "answer", diff_answer(two));
	json_side(&json, "a", &two->info_a, two->a);
	json_side(&json, "b", &two->info_b, two->b);
	json_uint(&json, "states", d->nstates);
	json_uint(&json, "derived_left_out", d->nderived);
	if (d->nbeside)
		json_uint(&json, "beside_left_out", d->nbeside);
	if (diff_unread(d))
		json_uint(&json, "not_read", diff_unread(d));
	json_uint(&json, "differing", d->ndiffering);
	json_uint(&json, "read_bytes", d->read_bytes);
	json_states(&json, d);
	json_open(&json, "rows", '[');
	for (uint64_t i = 0; i < n; i++)
		json_row(&json, &d->rows[i]);
	json_close(&json, ']');
	json_open(&json, "scalars", '[');
	for (uint64_t i = 0; i < d->nscalars; i++) {
		const struct ckpt_diff_scalar *s = &d->scalars[i];

		if (!s->differs && s->a && s->b && !strcmp(s->a, s->b))
			continue;
		json_open(&json, NULL, '{');
		json_text(&json, "key", s->key);
		if (s->a)
			json_text(&json, "a", s->a);
		if (s->b)
			json_text(&json, "b", s->b);
		json_bool(&json, "differs", s->differs);
		json_close(&json, '}');
	}
	json_close(&json, ']');
	json_close(&json, '}');
}
