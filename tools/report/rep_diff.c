/* rep_diff.c -- what two checkpoints differ in: the rows of ckpt_diff(), as columns. */
#include <inttypes.h>
#include <string.h>

#include "rep_data.h"

static void put_side(struct json *json, const char *key, const char *path, struct ckpt *ck)
{
	struct view view = { .args = &cli_args, .ck = ck };
	char *answer;

	ckpt_info_get(ck, &view.info);
	view_collect(&view);
	answer = view_answer(&view, path);
	json_open(json, key, '{');
	json_text(json, "path", view.info.path);
	json_text(json, "answer", answer);
	json_text(json, "format", view.info.format);
	json_text(json, "writer", view.info.writer);
	json_known(json, "stage", view.info.stage);
	json_uint(json, "world", view.info.world);
	json_known(json, "step", view.info.step);
	json_uint(json, "tensors", view.info.ntensors);
	json_uint(json, "parameters", view_parameters(&view));
	json_uint(json, "files", view.info.nfiles);
	json_uint(json, "file_bytes", view.info.file_bytes);
	json_findings(json, ck);
	json_close(json, '}');
	cli_free(answer);
	cli_free(view.sums);
}

static void put_text(FILE *out, const char *text)
{
	if (text)
		json_quote(out, text);
	else
		fputs("null", out);
}

static void put_row(FILE *out, const struct ckpt_diff_row *row)
{
	fputc('[', out);
	json_quote(out, row->name);
	fputc(',', out);
	put_text(out, row->state_a);
	fputc(',', out);
	put_text(out, row->state_b);
	fputc(',', out);
	json_quote(out, diff_what(row->what));
	fprintf(out, ",%d,", row->what >= CKPT_DIFF_DTYPE);
	put_text(out, row->dtype_a ? ckpt_dtype_name(row->dtype_a) : NULL);
	fputc(',', out);
	put_text(out, row->dtype_b ? ckpt_dtype_name(row->dtype_b) : NULL);
	fprintf(out, ",%" PRIu64 ",%" PRIu64 ",", row->numel, row->differ);
	rep_real(out, row->max_abs);
	fputc(',', out);
	rep_real(out, row->rms);
	fputc(',', out);
	rep_real(out, row->rel_l2);
	fprintf(out, ",%" PRIu64 ",%" PRIu64 "]", row->nan_a, row->nan_b);
}

static void put_columns(struct json *json)
{
	static const char *const names[] = {
		"name", "state_a", "state_b", "what", "counts", "dtype_a", "dtype_b", "elements",
		"differ", "max_abs", "rms", "rel_l2", "nan_a", "nan_b",
	};

	json_open(json, "columns", '[');
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		json_text(json, NULL, names[i]);
	json_close(json, ']');
}

static void put_scalars(struct json *json, const struct ckpt_diff_result *d)
{
	json_open(json, "scalars", '[');
	for (uint64_t i = 0; i < d->nscalars; i++) {
		const struct ckpt_diff_scalar *s = &d->scalars[i];

		json_open(json, NULL, '{');
		json_text(json, "key", s->key);
		if (s->a)
			json_text(json, "a", s->a);
		if (s->b)
			json_text(json, "b", s->b);
		json_bool(json, "differs", s->differs);
		json_close(json, '}');
	}
	json_close(json, ']');
}

int rep_compare(const struct report_opts *opts, struct ckpt *a, struct ckpt *b, struct two *two,
		struct ckpt_err *err)
{
	struct ckpt_diff_opts how = { .size = sizeof(how), .run = opts->run };
	int rc;

	two->args = &cli_args;
	two->a = a;
	two->b = b;
	rc = ckpt_diff(a, b, &how, &two->diff, err);
	ckpt_info_get(a, &two->info_a);
	ckpt_info_get(b, &two->info_b);
	return rc;
}

void rep_diff(struct rep *rep, const struct two *two)
{
	const struct report_opts *opts = rep->opts;
	const struct ckpt_diff_result *d = &two->diff;
	struct json *json = rep->json;

	json_text(json, "answer", diff_answer(two));
	json_bool(json, "equal", !d->ndiffering && !diff_unread(d));
	put_side(json, "a", opts->path[0], two->a);
	put_side(json, "b", opts->path[opts->n_paths - 1], two->b);
	json_bool(json, "verified", opts->verify);
	json_uint(json, "differing", d->ndiffering);
	json_uint(json, "not_read", diff_unread(d));
	put_columns(json);
	json_open(json, "rows", '[');
	for (uint64_t i = 0; i < d->nrows; i++) {
		if (i)
			fputc(',', json->out);
		put_row(json->out, &d->rows[i]);
	}
	json_close(json, ']');
	put_scalars(json, d);
}
