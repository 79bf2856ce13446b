/* rep_head.c -- the first lines of a report: what it is, whether it is whole, what to do. */
#include <stdlib.h>
#include <string.h>

#include "../cli_advice.h"
#include "../cli_explain.h"
#include "../cli_findings.h"
#include "../cli_sizes.h"
#include "../cli_verdict.h"
#include "rep_data.h"

static void put_info(struct rep *rep, const struct view *view)
{
	const struct ckpt_info *info = &rep->info;
	struct json *json = rep->json;

	json_open(json, "checkpoint", '{');
	json_text(json, "path", info->path);
	json_text(json, "tag", info->tag);
	json_text(json, "why", info->why);
	json_text(json, "format", info->format);
	json_text(json, "writer", info->writer);
	json_text(json, "optimizer", info->optimizer);
	json_known(json, "stage", info->stage);
	json_uint(json, "world", info->world);
	json_known(json, "step", info->step);
	json_uint(json, "parameters", view_parameters(view));
	json_uint(json, "tensors", info->ntensors);
	json_uint(json, "files", info->nfiles);
	json_uint(json, "file_bytes", info->file_bytes);
	json_uint(json, "groups", info->ngroups);
	json_text(json, "fingerprint", info->fingerprint);
	json_close(json, '}');
}

/* Each cause once, as inspect prints them, with its page and the command that helps. */
static void put_findings(struct rep *rep)
{
	struct folded *line;
	const size_t n = findings_lines(rep->ck, CKPT_INFO, 0, &line);

	json_open(rep->json, "findings", '[');
	for (size_t i = 0; i < n; i++) {
		const struct ckpt_finding *f = &line[i].f;
		const struct finding_page *page = explain_find(f->id);
		char *advice = advice_about(f->id, rep->opts->path[0], rep->info.path);

		json_open(rep->json, NULL, '{');
		json_text(rep->json, "id", f->id);
		json_text(rep->json, "severity", out_severity(f->severity));
		json_text(rep->json, "where", f->where);
		json_text(rep->json, "text", f->text);
		json_uint(rep->json, "count", line[i].n);
		json_text(rep->json, "page", page ? page->text : "");
		json_text(rep->json, "command", advice);
		json_close(rep->json, '}');
		cli_free(advice);
	}
	json_close(rep->json, ']');
}

static void put_facts(struct rep *rep)
{
	const char *key, *value;

	json_open(rep->json, "facts", '[');
	for (uint64_t i = 0; !ckpt_fact_get(rep->ck, i, &key, &value, NULL); i++) {
		json_open(rep->json, NULL, '[');
		json_text(rep->json, NULL, key);
		json_text(rep->json, NULL, value);
		json_close(rep->json, ']');
	}
	json_close(rep->json, ']');
}

static void put_sums(struct rep *rep, const struct view *view)
{
	struct json *json = rep->json;

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

static void put_checked(struct rep *rep, const struct rep_checked *checked)
{
	struct json *json = rep->json;

	json_open(json, "verified", '{');
	json_bool(json, "full", checked->yes);
	if (checked->yes) {
		json_uint(json, "read_bytes", checked->v.read_bytes);
		json_uint(json, "checksums", checked->v.checksums + checked->v.sums);
		json_uint(json, "without_sums", checked->v.without_sums);
	}
	json_close(json, '}');
}

void rep_head(struct rep *rep, const struct rep_checked *checked)
{
	struct view view = { .args = &cli_args, .ck = rep->ck, .info = rep->info };
	char *why = verdict_of(rep->ck, NULL, 1), *text;

	view_collect(&view);
	text = view_answer(&view, rep->opts->path[0]);
	json_text(rep->json, "answer", text);
	cli_free(text);
	json_bool(rep->json, "whole", !why);
	cli_free(why);
	put_checked(rep, checked);
	put_info(rep, &view);
	put_findings(rep);
	text = advice_next(&cli_args, rep->opts->path[0], rep->ck);
	json_text(rep->json, "next", text);
	cli_free(text);
	put_facts(rep);
	put_sums(rep, &view);
	cli_free(view.sums);
}

void rep_sizes(struct rep *rep)
{
	struct json *json = rep->json;
	struct ckpt_err err = { 0 };
	struct ckpt_sizes sizes;

	/* A step that is damaged has no sizes, and the findings say why. */
	if (ckpt_sizes_get(rep->ck, &sizes, &err)) {
		json_text(json, "sizes_error", err.msg);
		return;
	}
	json_open(json, "sizes", '{');
	json_uint(json, "bytes", sizes.bytes);
	json_uint(json, "files", sizes.nfiles);
	json_open(json, "parts", '[');
	for (uint64_t i = 0; i < sizes.nparts; i++) {
		const struct ckpt_size *p = &sizes.part[i];
		char *label = sizes_label(p);

		/* ranks of one position of a pipeline have other parts than those of another */
		rep->padded |= p->kind == CKPT_SIZE_PADDING && p->bytes && !view_layout(rep->ck);
		json_open(json, NULL, '{');
		json_text(json, "what", label);
		json_text(json, "dtype", p->dtype ? ckpt_dtype_name(p->dtype) : "");
		json_uint(json, "elements", p->elements);
		json_uint(json, "bytes", p->bytes);
		json_close(json, '}');
		cli_free(label);
	}
	json_close(json, ']');
	json_close(json, '}');
	ckpt_sizes_free(&sizes);
}
