/* srv_page.c -- see srv.h: the index of a folder, for people and for programs. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "../report/report.h"
#include "srv.h"

static const char *const meaning[SHELF_FORMS] = {
	"weights as they were saved", "weights in fp32", "weights in bf16", "weights in fp16",
	"a file for each state of the optimizer",
};

static const char style[] =
	"body{font:15px/1.5 system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em}"
	"td{padding:.15em 2em .15em 0}td.n{text-align:right;white-space:nowrap}h2{margin:1em 0 0}"
	"@media(prefers-color-scheme:dark){body{background:#111;color:#ddd}a{color:#8bf}}";

/* Text in a page, and in an attribute. */
static void put_text(FILE *out, const char *s)
{
	for (; *s; s++)
		switch (*s) {
		case '<': fputs("&lt;", out); break;
		case '>': fputs("&gt;", out); break;
		case '&': fputs("&amp;", out); break;
		case '"': fputs("&quot;", out); break;
		case '\'': fputs("&#39;", out); break;
		default:
			fputc((unsigned char)*s < 0x20 || *s == 0x7f ? ' ' : *s, out);
		}
}

/* A word of a path. */
static void put_word(FILE *out, const char *s)
{
	for (; *s; s++)
		if ((*s >= '0' && *s <= '9') || (*s >= 'a' && *s <= 'z') ||
		    (*s >= 'A' && *s <= 'Z') || strchr("-._~", *s))
			fputc(*s, out);
		else
			fprintf(out, "%%%02X", (unsigned char)*s);
}

/* "/STEP/fp32/FILE". */
static void put_path(FILE *out, const struct shelf_step *step, int form, const char *file)
{
	fputc('/', out);
	if (step && step->name[0]) {
		put_word(out, step->name);
		fputc('/', out);
	}
	if (form)
		fprintf(out, "%s/", shelf_form_name[form]);
	if (file)
		put_word(out, file);
}

static FILE *begin(char **text, size_t *size, struct ckpt_err *err)
{
	FILE *out = open_memstream(text, size);

	if (!out)
		err->code = CKPT_E_NOMEM;
	return out;
}

/* ---------------------------------------------------------------- a page */

static void put_files(FILE *out, const struct shelf_step *step, int form,
		      const struct ckpt_view *view)
{
	struct ckpt_view_file f;

	fprintf(out, "<h2>%s%s</h2><p>%s</p><table>\n", shelf_form_name[form],
		form ? "/" : "Weights", meaning[form]);
	for (uint64_t i = 0; !ckpt_view_file_get(view, i, &f, NULL); i++) {
		fputs("<tr><td><a href=\"", out);
		put_path(out, step, form, f.name);
		fputs("\">", out);
		put_text(out, f.name);
		fprintf(out, "</a></td><td class=n>%s</td></tr>\n", out_size(f.bytes));
	}
	fputs("</table>\n", out);
}

static void put_step(FILE *out, struct srv *srv, struct shelf_step *step, int only)
{
	for (int form = only; form < (only ? only + 1 : SHELF_FORMS); form++) {
		struct ckpt_view *view = NULL;
		struct ckpt_err err = { 0 };

		if (shelf_get(srv->shelf, step, form, &view, &err)) {
			fprintf(out, "<h2>%s/</h2><p>", shelf_form_name[form]);
			put_text(out, err.msg);
			fputs("</p>\n", out);
		} else if (view) {
			put_files(out, step, form, view);
			shelf_put(srv->shelf, step);
		}
	}
}

static void put_steps(FILE *out, const struct shelf *shelf)
{
	fputs("<table>\n", out);
	for (size_t i = 0; i < shelf->n; i++) {
		fputs("<tr><td><a href=\"", out);
		put_path(out, &shelf->step[i], 0, NULL);
		fputs("\">", out);
		put_text(out, shelf->step[i].name);
		fprintf(out, "</a></td><td>%s</td></tr>\n",
			shelf->latest == shelf->step[i].name ? "latest" : "");
	}
	fputs("</table>\n", out);
}

char *srv_index_html(struct srv *srv, const struct shelf_place *at, struct ckpt_err *err)
{
	struct shelf *shelf = srv->shelf;
	const char *slash = strrchr(shelf->path, '/');
	const char *title = at->step && at->step->name[0] ? at->step->name :
			    slash ? slash + 1 : shelf->path;	/* no path of this machine */
	char *text = NULL;
	size_t size;
	FILE *out = begin(&text, &size, err);

	if (!out)
		return NULL;
	fputs("<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport "
	      "content=\"width=device-width\"><title>", out);
	put_text(out, title);
	fprintf(out, "</title><style>%s</style><h1>", style);
	put_text(out, title);
	fputs("</h1>\n", out);
	if (at->kind == SHELF_TOP)
		put_steps(out, shelf);
	else
		put_step(out, srv, at->step, at->form);
	fputs("<p><a href=\"index.json\">index.json</a> &middot; <a href=\"/findings\">findings"
	      "</a> &middot; <a href=\"", out);
	put_path(out, at->step, 0, "report");
	fputs("\">report</a></p></html>\n", out);
	fclose(out);
	return text;
}

/* ---------------------------------------------------------------- a report */

char *srv_report(struct srv *srv, const struct shelf_place *at, struct ckpt_err *err)
{
	const struct args *args = srv->shelf->args;
	const char *path = at->step->path;
	const struct report_opts opts = {
		.path = &path, .n_paths = 1, .tag = srv->shelf->single ? args->tag : NULL,
		.limits = args->limits.size ? &args->limits : NULL,
	};
	char *text = NULL;
	size_t size;
	FILE *out = begin(&text, &size, err);
	int rc;

	if (!out)
		return NULL;
	rc = report_write(&opts, out, err);
	fclose(out);
	if (!rc)
		return text;
	free(text);
	return NULL;
}

/* ---------------------------------------------------------------- JSON */

/* A text that a function writes, as a value. */
static void json_path(struct json *json, const struct shelf_step *step, int form, const char *file)
{
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	if (!out)
		return;
	put_path(out, step, form, file);
	fclose(out);
	json_text(json, "url", text);
	free(text);
}

static void json_files(struct json *json, const struct shelf_step *step, int form,
		       const struct ckpt_view *view)
{
	struct ckpt_view_file f;

	json_open(json, "files", '[');
	for (uint64_t i = 0; !ckpt_view_file_get(view, i, &f, NULL); i++) {
		json_open(json, NULL, '{');
		json_text(json, "name", f.name);
		json_path(json, step, form, f.name);
		json_uint(json, "bytes", f.bytes);
		json_uint(json, "tensors", f.ntensors);
		json_text(json, "etag", f.etag);
		json_close(json, '}');
	}
	json_close(json, ']');
}

static void json_forms(struct json *json, struct srv *srv, struct shelf_step *step, int only)
{
	json_open(json, "forms", '[');
	for (int form = only; form < (only ? only + 1 : SHELF_FORMS); form++) {
		struct ckpt_view *view = NULL;
		struct ckpt_err err = { 0 };
		const int rc = shelf_get(srv->shelf, step, form, &view, &err);

		if (!rc && !view)
			continue;
		json_open(json, NULL, '{');
		json_text(json, "name", shelf_form_name[form]);
		json_text(json, "meaning", meaning[form]);
		json_path(json, step, form, NULL);
		if (rc) {
			json_error(json, &err);
		} else {
			json_files(json, step, form, view);
			shelf_put(srv->shelf, step);
		}
		json_close(json, '}');
	}
	json_close(json, ']');
}

static void json_steps(struct json *json, const struct shelf *shelf)
{
	json_open(json, "steps", '[');
	for (size_t i = 0; i < shelf->n; i++) {
		json_open(json, NULL, '{');
		json_text(json, "name", shelf->step[i].name);
		json_path(json, &shelf->step[i], 0, NULL);
		json_known(json, "step", shelf->step[i].number);
		json_bool(json, "latest", shelf->latest == shelf->step[i].name);
		json_close(json, '}');
	}
	json_close(json, ']');
}

char *srv_index_json(struct srv *srv, const struct shelf_place *at, struct ckpt_err *err)
{
	struct json json;
	char *text = NULL;
	size_t size;
	FILE *out = begin(&text, &size, err);

	if (!out)
		return NULL;
	json_begin(&json, out, "serve");
	if (at->kind == SHELF_TOP)
		json_steps(&json, srv->shelf);
	else
		json_forms(&json, srv, at->step, at->form);
	json_close(&json, '}');
	fclose(out);
	return text;
}
