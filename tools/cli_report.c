/*
 * cli_report.c -- what a conversion did: lines for people on stderr, and the JSON
 * object of --json and --report (which has arguments, versions and the machine too).
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "cli_lora.h"
#include "cli_team.h"

/* ---------------------------------------------------------------- for people */

/* "3 tensors, " of a file of weights; nothing of an index or a config. */
static const char *tensors_of(const struct ckpt_written *file)
{
	if (!file->ntensors)
		return "";
	return cli_format("%" PRIu64 " tensor%s, ", file->ntensors, out_plural(file->ntensors));
}

static void print_files(const struct outcome *outcome)
{
	const struct ckpt_report *report = outcome->report;
	int dry = outcome->args->dry_run;

	for (uint64_t i = 0; i < report->nfiles; i++) {
		const struct ckpt_written *file = &report->files[i];

		const char *tensors = tensors_of(file);

		if (dry)	/* the plan is the result */
			printf("would write %s: %s%s\n", strcmp(file->path, "-") ?
			       out_name(file->path) : "stdout", tensors, out_size(file->bytes));
		else if (!outcome->args->quiet)
			cli_say("wrote %s: %s%s", strcmp(file->path, "-") ?
				out_name(file->path) : "stdout", tensors, out_size(file->bytes));
	}
}

/* The names of a model whose modules have others. */
static void say_naming(const struct outcome *outcome)
{
	const char *asked = outcome->args->names;
	const struct ckpt_rule *first = outcome->report->renames;

	if (asked && strcmp(asked, "hf") != 0)
		cli_say("note: names by the table %s: %s becomes %s", out_name(asked),
			out_name(first->pattern), out_name(first->value));
	else
		cli_say("note: names as save_pretrained() writes them (%s: %s becomes %s); "
			"--naming native keeps those of the model's modules",
			outcome->report->naming, first->pattern, first->value);
}

/* "head.weight is tied to emb.weight": named where all of the source's were chosen. */
static char *tied_names(struct ckpt *ck, uint64_t aliases)
{
	struct ckpt_tensor_info t, alias = { 0 }, of = { 0 };
	struct ckpt_info info;
	uint64_t n = 0;

	ckpt_info_get(ck, &info);
	for (uint64_t i = 0; i < info.ntensors; i++)
		if (!ckpt_tensor_get(ck, i, &t, NULL) && t.role == CKPT_ROLE_ALIAS && !n++)
			alias = t;
	if (n != aliases || ckpt_tensor_get(ck, alias.alias_of, &of, NULL))
		return cli_format("%" PRIu64 " name%s tied to another", aliases,
				  aliases == 1 ? " is" : "s are");
	if (n == 1)
		return cli_format("%s is tied to %s", out_name(alias.name), out_name(of.name));
	return cli_format("%" PRIu64 " names are tied to others, %s to %s among them", n,
			  out_name(alias.name), out_name(of.name));
}

static void say_tied(const struct outcome *outcome)
{
	char *names = tied_names(outcome->ck, outcome->report->aliases);

	/* torch files have names that share, safetensors a table of them */
	cli_say("note: %s: %s", names, outcome->tied ? "left out" :
		outcome->kind == CKPT_DST_TORCH ? "they share one storage in the file" :
		outcome->of_states ? "written once" :
		"written once; transformers ties them again when it loads the model");
	cli_free(names);
}

/* A folder made of a LoRA run is not what PEFT loads: that is one file of another name. */
static void say_adapter(const struct outcome *outcome)
{
	struct ckpt_info info;

	ckpt_info_get(outcome->ck, &info);
	if (!outcome->of_adapter && lora_run_of(outcome->ck) == LORA_RUN_PEFT)
		cli_say("hint: these are weights of a LoRA run; PEFT loads the adapter from: %s",
			lora_call(LORA_RUN_PEFT, info.path, "my-adapter"));
}

static void print_notes(const struct outcome *outcome)
{
	const struct ckpt_report *r = outcome->report;
	struct ckpt_info info;

	ckpt_info_get(outcome->ck, &info);
	if (r->no_master && info.world)	/* weights alone have no masters */
		cli_say("note: %" PRIu64 " tensor%s no fp32 master; zckpt wrote the weight "
			"instead",
			r->no_master, r->no_master == 1 ? " has" : "s have");
	if (r->merged)
		cli_say("note: the adapter changed %" PRIu64 " tensor%s", r->merged,
			out_plural(r->merged));
	if (r->aliases && outcome->tied != 1)
		say_tied(outcome);
	if (outcome->kind == CKPT_DST_STREAM && !outcome->no_sums && !outcome->args->dry_run)
		cli_say("note: a stream has no checksums, because its header is written first; "
			"a file has them");
	if (r->resumed_bytes)
		cli_say("note: %s were kept from an interrupted run",
			out_size(r->resumed_bytes));
	if (r->strip_hint)
		cli_say("hint: every name begins with '%s'; --strip-prefix %s cuts it off",
			out_name(r->strip_hint), out_name(r->strip_hint));
	if (r->naming)
		say_naming(outcome);
	if (outcome->kind == CKPT_DST_FOLDER)
		say_adapter(outcome);
	if (outcome->args->part && strcmp(outcome->args->part, "1/1") && !outcome->args->dry_run)
		cli_say("hint: when all parts are done: zckpt commit %s", out_word(outcome->dst));
}

/* What a run would do, and whether there is room for it. */
void report_dry(const char *most, uint64_t written, uint64_t read, uint64_t free_bytes)
{
	char *room = free_bytes ? cli_format("; %s are free there", out_size(free_bytes)) :
				  cli_strdup("");

	cli_say("would write %s%s and read %s%s", most, out_size(written), out_size(read), room);
	cli_free(room);
}

static void say_dry(const struct ckpt_report *r)
{
	report_dry("", r->written_bytes, r->would_read_bytes, r->free_bytes);
}

void report_print(const struct outcome *outcome)
{
	const struct ckpt_report *r = outcome->report;

	print_files(outcome);
	for (uint64_t i = 0; i < r->nremoved && !outcome->args->quiet; i++)
		cli_say("removed %s: the new output replaces it", out_name(r->removed[i]));
	/* what changes values is said in any case */
	if (r->overflows)
		cli_say("warning: %" PRIu64 " finite value%s too large for the requested type "
			"and became infinite; bf16 has the range of fp32", r->overflows,
			r->overflows == 1 ? " was" : "s were");
	if (outcome->args->quiet)
		return;
	print_notes(outcome);
	if (outcome->args->dry_run)
		say_dry(r);
	else
		cli_say("read %s, wrote %s in %.2f s, %" PRIu32 " thread%s",
			out_size(r->read_bytes), out_size(r->written_bytes), outcome->seconds,
			r->threads, out_plural(r->threads));
}

/* ---------------------------------------------------------------- JSON */

/* Of a dry run: its bytes are those that a run would write. */
void report_json_dry(struct json *json, uint64_t read, uint64_t free_bytes)
{
	if (read)
		json_uint(json, "would_read_bytes", read);
	if (free_bytes)
		json_uint(json, "free_bytes", free_bytes);
}

static void json_run(struct json *json, const struct outcome *outcome)
{
	struct utsname host;

	json_open(json, "arguments", '[');
	for (int i = 0; i < outcome->args->argc; i++)
		json_text(json, NULL, outcome->args->argv[i]);
	json_close(json, ']');
	json_open(json, "versions", '{');
	json_text(json, "zckpt", CKPT_VERSION_STRING);
	json_text(json, "libckpt", ckpt_version());
	json_close(json, '}');
	json_open(json, "host", '{');
	if (!uname(&host)) {
		json_text(json, "system", host.sysname);
		json_text(json, "release", host.release);
		json_text(json, "machine", host.machine);
		json_text(json, "name", host.nodename);
	}
	json_int(json, "cpus", get_nprocs());
	json_uint(json, "memory_bytes",
		  (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGE_SIZE));
	json_close(json, '}');
	json_seconds(json, "began", outcome->began);
}

static void json_source(struct json *json, const struct ckpt *ck)
{
	struct ckpt_info info;

	ckpt_info_get(ck, &info);
	json_open(json, "source", '{');
	json_text(json, "format", info.format);
	json_text(json, "path", info.path);
	json_text(json, "tag", info.tag);
	json_text(json, "why", info.why);
	json_known(json, "stage", info.stage);
	json_uint(json, "world", info.world);
	json_known(json, "step", info.step);
	json_text(json, "writer", info.writer);
	json_uint(json, "files", info.nfiles);
	json_uint(json, "file_bytes", info.file_bytes);
	json_text(json, "fingerprint", info.fingerprint);
	json_close(json, '}');
}

static void json_renames(struct json *json, const struct ckpt_rule *rule)
{
	json_open(json, "renames", '[');
	for (; rule->pattern; rule++) {
		char *text = cli_format("%s=%s", rule->pattern, rule->value);

		json_text(json, NULL, text);
		cli_free(text);
	}
	json_close(json, ']');
}

static void json_written(struct json *json, const struct ckpt_report *r)
{
	json_open(json, "files", '[');
	for (uint64_t i = 0; i < r->nfiles; i++) {
		json_open(json, NULL, '{');
		json_text(json, "path", r->files[i].path);
		json_uint(json, "bytes", r->files[i].bytes);
		json_uint(json, "tensors", r->files[i].ntensors);
		json_close(json, '}');
	}
	json_close(json, ']');
	json_uint(json, "tensors", r->ntensors);
	json_uint(json, "read_bytes", r->read_bytes);
	json_uint(json, "written_bytes", r->written_bytes);
	json_uint(json, "resumed_bytes", r->resumed_bytes);
	report_json_dry(json, r->would_read_bytes, r->free_bytes);
	json_uint(json, "no_master", r->no_master);
	json_uint(json, "overflows", r->overflows);
	json_uint(json, "aliases", r->aliases);
	if (r->merged)
		json_uint(json, "merged", r->merged);
	if (r->strip_hint)
		json_text(json, "common_prefix", r->strip_hint);
	if (r->naming) {
		json_text(json, "naming", r->naming);
		json_renames(json, r->renames);
	}
	json_open(json, "removed", '[');
	for (uint64_t i = 0; i < r->nremoved; i++)
		json_text(json, NULL, r->removed[i]);
	json_close(json, ']');
	json_uint(json, "threads", r->threads);
	team_json(json);
}

static void json_digests(struct json *json, const struct ckpt_report *r)
{
	json_open(json, "digests", '[');
	for (uint64_t i = 0; i < r->ndigests; i++) {
		json_open(json, NULL, '{');
		json_text(json, "hash", r->digests[i].hash);
		json_text(json, "state", r->digests[i].state);
		json_text(json, "name", r->digests[i].name);
		json_close(json, '}');
	}
	json_close(json, ']');
	if (r->root[0])
		json_text(json, "root", r->root);
}

void report_json(const struct outcome *outcome, FILE *out, int whole)
{
	struct json json;

	json_begin(&json, out, "convert");
	json_bool(&json, "ok", !outcome->status);
	json_int(&json, "exit", outcome->status);
	json_text(&json, "dst", outcome->dst);
	json_bool(&json, "dry_run", outcome->args->dry_run);
	if (whole)
		json_run(&json, outcome);
	json_seconds(&json, "seconds", outcome->seconds);
	if (outcome->ck)
		json_source(&json, outcome->ck);
	if (outcome->report) {
		json_written(&json, outcome->report);
		json_digests(&json, outcome->report);
	} else if (outcome->err->code) {
		json_error(&json, outcome->err);
	}
	if (outcome->ck)
		json_findings(&json, outcome->ck);
	json_close(&json, '}');
}

int report_save(const struct outcome *outcome)
{
	const char *path = outcome->record;
	char *half = cli_format("%s.zckpt-partial", path);
	FILE *out = fopen(half, "w");
	int bad = 1;

	if (out) {
		report_json(outcome, out, 1);
		bad = ferror(out);
		bad = fclose(out) || bad || rename(half, path);
	}
	if (bad) {
		cli_say_error("--report: %s cannot be written: %s", out_name(path),
			      strerror(errno));
		if (out)
			unlink(half);
	}
	cli_free(half);
	return bad ? EXIT_TROUBLE : 0;
}

/* ---------------------------------------------------------------- steps */

void report_step_work(const struct args *args, const struct ckpt_report *report)
{
	if (args->dry_run)
		say_dry(report);
	else
		cli_say("read %s, wrote %s in %.2f s, %" PRIu32 " thread%s",
			out_size(report->read_bytes), out_size(report->written_bytes),
			report->seconds, report->threads, out_plural(report->threads));
}

void report_step_part(const struct args *args, uint32_t nparts, const char *dst)
{
	if (nparts > 1 && args->part && !args->dry_run)
		cli_say("hint: when all parts are done: zckpt commit %s", out_word(dst));
}

void report_step_begin(struct json *json, const char *verb, int status, const char *dst,
		       uint32_t world, const struct ckpt_err *err)
{
	json_begin(json, stdout, verb);
	json_bool(json, "ok", !status);
	json_int(json, "exit", status);
	json_text(json, "dst", dst);
	json_uint(json, "world", world);
	if (status)
		json_error(json, err);
}

void report_step_json(struct json *json, const struct ckpt_report *report)
{
	json_uint(json, "read_bytes", report->read_bytes);
	json_uint(json, "written_bytes", report->written_bytes);
	json_uint(json, "resumed_bytes", report->resumed_bytes);
	report_json_dry(json, report->would_read_bytes, report->free_bytes);
	json_seconds(json, "seconds", report->seconds);
}
