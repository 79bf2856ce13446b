/* cli_answer.c -- what a checkpoint is, in one line: the first line of inspect and of a report. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli_lora.h"
#include "cli_verdict.h"
#include "cli_view.h"

/* "134.1 M", "7.24 B", and small numbers as they are. */
static char *many_text(uint64_t n)
{
	if (n >= 1000000000)
		return cli_format("%.2f B", (double)n / 1e9);
	if (n >= 1000000)
		return cli_format("%.1f M", (double)n / 1e6);
	return cli_strdup(out_count(n));
}

/* "bf16": the type of most weights; "" if there is none. */
static const char *weight_type(const struct view *view)
{
	unsigned most = 0;

	for (unsigned i = 1; i < NTYPES; i++)
		if (view->typed[i] > view->typed[most])
			most = i;
	return view->typed[most] ? view_type((enum ckpt_dtype)most) : "";
}

/* The form, where it is not DeepSpeed's. */
static void put_form(FILE *out, const char *format)
{
	static const char *const words[][2] = {
		{ "deepspeed", "" }, { "huggingface", ", Hugging Face folder" },
		{ "torch", ", torch file" }, { "safetensors", ", safetensors file" },
	};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		if (strcmp(format, words[i][0]))
			continue;
		fputs(words[i][1], out);
		return;
	}
	fprintf(out, ", %s", format);
}

static void put_verdict(FILE *out, const struct view *view)
{
	const uint64_t warnings = out_findings_count(view->ck, CKPT_WARN);
	char *why = verdict_of(view->ck, NULL, 1);
	const int part = out_findings_named(view->ck, "PART_OF_STEP") != 0;

	fputs(why ? why : part ? "one file of a step" : "complete", out);
	if (warnings)
		fprintf(out, ", %" PRIu64 " warning%s", warnings, out_plural(warnings));
	cli_free(why);
}

uint64_t view_parameters(const struct view *view)
{
	uint64_t n = 0;

	for (unsigned role = 1; role < NROLES; role++)
		if (role != CKPT_ROLE_BUFFER && role != CKPT_ROLE_ALIAS)
			n += view->elements[role];
	return n;
}

/* "134.1 M parameters in bf16, stage 3, 8 ranks, step 300, 1.6 GB, complete" */
static void put_answer(FILE *out, const struct view *view, const char *adapter)
{
	const struct ckpt_info *info = &view->info;
	const char *type = weight_type(view);
	const uint64_t n = view_parameters(view);
	char *many = n ? many_text(n) : cli_strdup("no");

	if (adapter)
		fprintf(out, "%s, ", adapter);
	fprintf(out, "%s parameter%s", many, out_plural(n));
	cli_free(many);
	if (*type)
		fprintf(out, " in %s", type);
	if (!adapter)
		put_form(out, info->format);
	if (info->stage >= 0)
		fprintf(out, ", stage %" PRId32, info->stage);
	if (info->world)
		fprintf(out, ", %" PRIu32 " rank%s", info->world, out_plural(info->world));
	if (info->step >= 0)
		fprintf(out, ", step %" PRId64, info->step);
	fprintf(out, ", %s, ", out_size(info->file_bytes));
	put_verdict(out, view);
}

char *view_answer(const struct view *view, const char *path)
{
	char *text = NULL, *copy, *adapter = path ? lora_text(path) : NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	if (!out)
		return cli_strdup("");
	put_answer(out, view, adapter);
	fclose(out);
	cli_free(adapter);
	copy = cli_strdup(text ? text : "");
	free(text);
	return copy;
}
