/* cmd_verify.c -- `zckpt verify`: is a checkpoint whole? */
#include <inttypes.h>
#include <string.h>

#include "cli.h"

static struct {
	struct words expect_finding;
	int full, write_manifest;
} want;

static const struct opt own[] = {
	{ "full", 0, OPT_FLAG, &want.full, NULL,
	  "read every byte, compare every element and copy", 0 },
	{ "write-manifest", 0, OPT_FLAG, &want.write_manifest, NULL,
	  "--full, then write sizes and hashes beside the files", 0 },
	{ "force", 0, OPT_FLAG, &cli_args.force, NULL,
	  "do not compare with the manifest that is there; replace it", 0 },
	{ "expect-finding", 0, OPT_COMMAS, &want.expect_finding, "ID",
	  "exit 0 only if these findings are met and no others", OPT_RARE },
	{ "strict", 0, OPT_FLAG, &cli_args.strict, NULL, "warnings count as errors", OPT_RARE },
	{ "sync", 0, OPT_CHOICE, &cli_args.sync, "data|full|none",
	  "what of the manifest is synced", OPT_RARE },
	{ 0 },
};

/* Where findings come from: the checkpoint, or the one that kept it from being opened. */
struct answer {
	const struct args *args;
	struct ckpt *ck;
	struct ckpt_finding lone;
	struct ckpt_verified v;
};

static int get(const struct answer *a, uint64_t i, struct ckpt_finding *out)
{
	if (a->ck)
		return !ckpt_finding_get(a->ck, i, out, NULL);
	*out = a->lone;
	return !i;
}

static uint64_t count(const struct answer *a, enum ckpt_severity severity)
{
	struct ckpt_finding f;
	uint64_t n = 0;

	for (uint64_t i = 0; get(a, i, &f); i++)
		n += f.severity == severity;
	return n;
}

/* ---------------------------------------------------------------- the answer */

static int is_expected(const char *id)
{
	for (size_t i = 0; i < want.expect_finding.n; i++)
		if (!strcmp(want.expect_finding.list[i], id))
			return 1;
	return 0;
}

static int is_met(const struct answer *a, const char *id)
{
	struct ckpt_finding f;

	for (uint64_t i = 0; get(a, i, &f); i++)
		if (!strcmp(f.id, id))
			return 1;
	return 0;
}

static int expectation(const struct answer *a)
{
	struct ckpt_finding f;
	int status = EXIT_DONE;

	for (size_t i = 0; i < want.expect_finding.n; i++) {
		const char *id = want.expect_finding.list[i];

		if (is_met(a, id))
			continue;
		cli_say("expected, and not found: %s", id);
		status = EXIT_NO;
	}
	for (uint64_t i = 0; get(a, i, &f); i++) {
		if (f.severity == CKPT_INFO || is_expected(f.id))
			continue;
		cli_say("found, and not expected: %s", f.id);
		return EXIT_NO;
	}
	return status;
}

static int status_of(const struct answer *a)
{
	if (want.expect_finding.n)
		return expectation(a);
	if (count(a, CKPT_ERROR))
		return EXIT_NO;
	return a->args->strict && count(a, CKPT_WARN) ? EXIT_NO : EXIT_DONE;
}

/* ---------------------------------------------------------------- telling */

static const char *many(uint64_t n, const char *what)
{
	return cli_format("%s %s%s", out_count(n), what, n == 1 ? "" : "s");
}

#define BARE "no sums: lengths and structure only"

/* Nothing says what the bytes were: a file can be whole in its lengths and structure only. */
static int is_bare(const struct answer *a)
{
	return a->ck && a->v.without_sums && !a->v.sums && !a->v.checksums && !a->v.manifest;
}

/* Does a tensor have a master, and a weight of its own bytes beside it? */
static int has_pairs(const struct ckpt *ck)
{
	struct ckpt_state_info s;
	struct ckpt_info info;
	int pair = 0;

	ckpt_info_get(ck, &info);
	for (uint64_t i = 0; pair < 2 && i < info.ntensors; i++) {
		pair = 0;
		for (uint32_t k = 0; !ckpt_state_get(ck, i, k, &s, NULL); k++)
			pair += !strcmp(s.name, "master") ||
				(!strcmp(s.name, "weight") && !(s.flags & CKPT_STATE_DERIVED));
	}
	return pair == 2;
}

static void print_counts(const struct answer *a, int full)
{
	const struct ckpt_verified *v = &a->v;

	printf("  %s, %s", many(v->files, "file"), out_size(v->file_bytes));
	if (!full) {
		printf("; structure, lengths%s\n",
		       v->agreed && has_pairs(a->ck) ? ", ends of masters and weights" : "");
		return;
	}
	printf("; %s read\n", out_size(v->read_bytes));
	if (v->checksums || !v->sums) {
		printf("  %s compared", many(v->checksums, "checksum"));
		if (v->unsummed)
			printf(" (%s without)", many(v->unsummed, "member"));
		printf("\n");
	}
	if (v->sums) {
		printf("  %s of tensors compared", many(v->sums, "sum"));
		if (v->without_sums)
			printf(" (%s without)", many(v->without_sums, "tensor"));
		printf("\n");
	}
	if (v->elements || v->copies)
		printf("  %s of masters compared with weights, %s of copies\n",
		       many(v->elements, "element"), many(v->copies, "element"));
	if (v->pad_bytes)
		printf("  %s of padding\n", out_size(v->pad_bytes));
}

static void print(const struct answer *a)
{
	const uint64_t errors = count(a, CKPT_ERROR), warnings = count(a, CKPT_WARN);
	const int full = want.full || want.write_manifest;

	printf("%s%s", errors ? "not whole" : is_bare(a) ? BARE : "whole",
	       !errors && !warnings ? "\n" : !errors && is_bare(a) ? "; " : ": ");
	if (errors)
		printf("%s%s", many(errors, "error"), warnings ? ", " : "\n");
	if (warnings)
		printf("%s\n", many(warnings, "warning"));
	if (!a->ck)
		return;
	print_counts(a, full);
	if (!a->v.agreed)
		printf("  masters and weights were not compared\n");
	if (a->v.manifest)
		printf("  manifest %s: %s\n", a->v.manifest == 2 ? "written" : "compared",
		       out_name(a->v.manifest_path));
	if (!full)
		printf("  payload bytes were not read; --full reads and compares them\n");
}

static void print_findings(struct json *json, const struct answer *a)
{
	struct ckpt_finding f;

	json_open(json, "findings", '[');
	for (uint64_t i = 0; get(a, i, &f); i++)
		json_finding(json, &f);
	json_close(json, ']');
}

static void print_json(const struct answer *a, int status)
{
	static const char *const manifests[] = { "none", "compared", "written" };
	const struct ckpt_verified *v = &a->v;
	struct ckpt_info info = { .path = a->args->rest.list[0], .format = "" };
	struct json json;

	if (a->ck)
		ckpt_info_get(a->ck, &info);
	json_begin(&json, stdout, "verify");
	json_text(&json, "path", info.path);
	json_text(&json, "format", info.format);
	json_bool(&json, "ok", status == EXIT_DONE);
	json_bool(&json, "full", want.full || want.write_manifest);
	json_uint(&json, "errors", count(a, CKPT_ERROR));
	json_uint(&json, "warnings", count(a, CKPT_WARN));
	json_uint(&json, "files", v->files);
	json_uint(&json, "file_bytes", v->file_bytes);
	json_text(&json, "manifest", manifests[v->manifest]);
	json_bool(&json, "agreed", v->agreed);
	json_uint(&json, "read_bytes", v->read_bytes);
	json_uint(&json, "checksums", v->checksums);
	json_uint(&json, "unsummed", v->unsummed);
	json_uint(&json, "elements", v->elements);
	json_uint(&json, "copies", v->copies);
	json_uint(&json, "pad_bytes", v->pad_bytes);
	json_uint(&json, "sums", v->sums);
	json_uint(&json, "without_sums", v->without_sums);
	print_findings(&json, a);
	json_close(&json, '}');
}

/* Returns the exit status. */
static int say_answer(const struct answer *a)
{
	const struct args *args = a->args;
	int status;

	if (a->ck)
		out_findings_asked(args, a->ck);
	else
		cli_say("%s: %s: %s%s%s", out_severity(a->lone.severity), a->lone.id,
			out_name(a->lone.where), a->lone.where[0] ? ": " : "",
			out_name(a->lone.text));
	status = status_of(a);
	if (want.write_manifest && a->v.manifest != 2)
		cli_say("no manifest is written: what is wrong must not become what is right");
	if (args->json)
		print_json(a, status);
	else if (!args->quiet)
		print(a);
	return status;
}

/* ---------------------------------------------------------------- running */

static int verify_files(struct answer *a)
{
	const struct args *args = a->args;
	struct ckpt_verify_opts opts = {
		.size = sizeof(opts),
		.flags = (want.full ? CKPT_VERIFY_FULL : 0) |
			 (want.write_manifest ? CKPT_VERIFY_WRITE_MANIFEST : 0) |
			 (args->force ? CKPT_VERIFY_FORCE : 0),
	};
	struct progress progress;
	struct ckpt_run_opts run;
	struct ckpt_err err = { 0 };
	int rc;

	cli_run_begin(args, &progress, &run);
	opts.run = &run;
	rc = ckpt_verify(a->ck, &opts, &a->v, &err);
	progress_end(&progress);
	return rc ? cli_fail(args->json ? "verify" : NULL, a->ck, &err) : 0;
}

/* An answer about the checkpoint, also where it cannot even be opened. */
static int open_it(struct answer *a, struct ckpt_err *err)
{
	const struct args *args = a->args;
	const char *lone = cli_lone_shard(args->rest.list[0]);
	struct ckpt_open_opts opts;
	int status = 0;

	cli_open_opts(args, &opts);
	if (ckpt_open(args->rest.list, args->rest.n, &opts, &a->ck, err)) {
		a->ck = NULL;
		if (!ckpt_verify_open_finding(err, &a->lone))
			status = cli_fail(args->json ? "verify" : NULL, NULL, err);
	}
	if (lone)
		cli_say("hint: %s", lone);
	return status;
}

static int check_names(const struct args *args)
{
	for (size_t i = 0; i < want.expect_finding.n; i++)
		if (!ckpt_finding_known(want.expect_finding.list[i]))
			return cli_wrong(&cmd_verify, "--expect-finding: %s is no finding",
					 out_name(want.expect_finding.list[i]));
	if (args->force && !want.write_manifest)
		return cli_wrong(&cmd_verify, "--force goes with --write-manifest");
	return 0;
}

static int run(struct args *args)
{
	struct answer a = { .args = args };
	struct ckpt_err err = { 0 };
	int status;

	if (!args->rest.n)
		return cli_wrong(&cmd_verify, "verify needs a checkpoint");
	status = check_names(args);
	if (!status)
		status = open_it(&a, &err);
	if (!status && a.ck)
		status = verify_files(&a);
	if (!status)
		status = say_answer(&a);
	ckpt_close(a.ck);
	return status;
}

const struct command cmd_verify = {
	.name = "verify",
	.run = run,
	.gist = "is a checkpoint whole, and does it belong together?",
	.synopsis = "SRC...",
	.about = "Looks for what is missing, damaged, mixed up or stale, and names it. Without "
		 "--full no tensor is read but the ends of masters and weights; with it every byte "
		 "is. A manifest beside the files is compared with them. Exit 0: whole; 1: not.",
	.examples = "zckpt verify run\n"
		    "zckpt verify --full model.safetensors\n",
	.notes = "zckpt explain ID explains a finding. zckpt verify --full --write-manifest "
		 "RUN, once, lets every later verify see any change.",
	.tables = { own, opts_source, opts_run, opts_talk, NULL },
};
