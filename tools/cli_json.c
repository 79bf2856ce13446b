/*
 * cli_json.c -- one JSON object, written piece by piece.
 *
 * The first two levels stand on lines of their own, what is deeper in one line.
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "cli.h"

/*
 * The result on stdout: every one says "ok" and "exit", which are known when the program ends, so
 * that json_finish() writes those that are missing, and the last bracket.
 */
static struct {
	int begun, closed;
	int has_ok, has_exit;
} result;

/* What stands before a value: comma, line, indent, key. */
static void before(struct json *json, const char *key)
{
	unsigned depth = json->depth;

	if (json->is_result && depth == 1 && key) {
		result.has_ok |= !strcmp(key, "ok");
		result.has_exit |= !strcmp(key, "exit");
	}
	if (json->filled[depth])
		fputs(depth > 2 ? ", " : ",", json->out);
	if (depth > 0 && depth <= 2)
		fprintf(json->out, "\n%*s", (int)(2 * depth), "");
	json->filled[depth] = 1;
	if (key) {
		json_quote(json->out, key);
		fputs(": ", json->out);
	}
}

void json_open(struct json *json, const char *key, char bracket)
{
	before(json, key);
	fputc(bracket, json->out);
	json->filled[++json->depth] = 0;
}

void json_close(struct json *json, char bracket)
{
	unsigned depth = json->depth--;

	if (json->is_result && depth == 1) {
		result.closed = 1;
		return;
	}
	if (depth <= 2 && json->filled[depth])
		fprintf(json->out, "\n%*s", (int)(2 * (depth - 1)), "");
	fputc(bracket, json->out);
	if (!json->depth)
		fputc('\n', json->out);
}

void json_text(struct json *json, const char *key, const char *text)
{
	before(json, key);
	json_quote(json->out, text);
}

void json_uint(struct json *json, const char *key, uint64_t n)
{
	before(json, key);
	fprintf(json->out, "%" PRIu64, n);
}

void json_int(struct json *json, const char *key, int64_t n)
{
	before(json, key);
	fprintf(json->out, "%" PRId64, n);
}

void json_bool(struct json *json, const char *key, int yes)
{
	before(json, key);
	fputs(yes ? "true" : "false", json->out);
}

void json_known(struct json *json, const char *key, int64_t n)
{
	before(json, key);
	if (n < 0)
		fputs("null", json->out);
	else
		fprintf(json->out, "%" PRId64, n);
}

void json_real(struct json *json, const char *key, double n)
{
	before(json, key);
	if (isfinite(n))
		fprintf(json->out, "%.17g", n);
	else
		json_quote(json->out, isnan(n) ? "nan" : n < 0 ? "-inf" : "inf");
}

void json_seconds(struct json *json, const char *key, double seconds)
{
	before(json, key);
	fprintf(json->out, "%.3f", seconds);
}

void json_shape(struct json *json, const struct ckpt_tensor_info *tensor)
{
	json_open(json, "shape", '[');
	for (uint32_t i = 0; i < tensor->ndim; i++)
		json_uint(json, NULL, tensor->shape[i]);
	json_close(json, ']');
}

void json_finding(struct json *json, const struct ckpt_finding *finding)
{
	json_open(json, NULL, '{');
	json_text(json, "id", finding->id);
	json_text(json, "severity", out_severity(finding->severity));
	json_text(json, "where", finding->where);
	json_text(json, "text", finding->text);
	json_close(json, '}');
}

void json_findings(struct json *json, const struct ckpt *ck)
{
	struct ckpt_finding f;

	json_open(json, "findings", '[');
	for (uint64_t i = 0; !ckpt_finding_get(ck, i, &f, NULL); i++)
		json_finding(json, &f);
	json_close(json, ']');
}

void json_error(struct json *json, const struct ckpt_err *err)
{
	json_open(json, "error", '{');
	json_text(json, "code", ckpt_code_name(err->code));
	json_text(json, "where", err->where);
	if (err->where[0] && err->offset && err->offset != CKPT_NO_OFFSET)
		json_uint(json, "offset", err->offset);
	json_text(json, "text", err->msg);
	json_close(json, '}');
}

void json_begin(struct json *json, FILE *out, const char *verb)
{
	char schema[64];

	memset(json, 0, sizeof(*json));
	json->out = out;
	json->is_result = out == stdout;
	result.begun |= json->is_result;
	snprintf(schema, sizeof(schema), "zckpt.%s/1", verb);
	json_open(json, NULL, '{');
	json_text(json, "schema", schema);
	json_text(json, "zckpt", CKPT_VERSION_STRING);
}

void json_finish(int status, const char *verb)
{
	struct ckpt_err err = { .code = CKPT_E_USAGE, .offset = CKPT_NO_OFFSET };
	struct json json;

	if (!result.begun && verb) {
		json_begin(&json, stdout, verb);
		snprintf(err.msg, sizeof(err.msg), "%s", cli_said_last());
		if (status == EXIT_CALL)
			json_error(&json, &err);
		else
			json_text(&json, "text", err.msg);
		json_close(&json, '}');
	}
	if (!result.closed)
		return;
	if (!result.has_ok)
		fprintf(stdout, ",\n  \"ok\": %s", status ? "false" : "true");
	if (!result.has_exit)
		fprintf(stdout, ",\n  \"exit\": %d", status);
	fputs("\n}\n", stdout);
	result.closed = 0;
}
