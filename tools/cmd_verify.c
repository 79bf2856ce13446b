/* cmd_verify.c -- `zckpt verify`: is a checkpoint whole? */
#include <inttypes.h>
#include <string.h>

#include "cli_advice.h"
#include "cli_findings.h"
#include "cli_verdict.h"

static struct {
	struct words expect_finding;
	const char *against;	/* of diff */
	int full, write_manifest;
} want;

static const struct opt own[] = {
	{ "full", 0, OPT_FLAG, &want.full, NULL,
	  "read every byte, compare checksums and copies", 0 },
	{ "write-manifest", 0, OPT_FLAG, &want.write_manifest, NULL,
	  "--full, then write sizes and hashes beside the files", 0 },
	{ "force", 'f', OPT_FLAG, &cli_args.force, NULL,
	  "replace an existing manifest without comparing", 0 },
	{ "expect-finding", 0, OPT_COMMAS, &want.expect_finding, "ID",
	  "exit 0 only if exactly these findings occur", OPT_RARE },
	{ "against", 0, OPT_TEXT, &want.against, "B", "", OPT_HIDDEN },
	{ "strict", 0, OPT_FLAG, &cli_args.strict, NULL, "warnings count as errors", OPT_RARE },
	{ "sync", 0, OPT_CHOICE, &cli_args.sync, "data|full|none",
	  "what to sync of the manifest", OPT_RARE },
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

/* Of --expect-finding: what lacks, and the first that is too much; printed with 'say'. */
static int expectation(const struct answer *a, int say)
{
	struct ckpt_finding f;
	int status = EXIT_DONE;

	for (size_t i = 0; i < want.expect_finding.n; i++) {
		const char *id = want.expect_finding.list[i];

		if (is_met(a, id))
			continue;
		if (say)
			cli_say("expected but not found: %s", id);
		status = EXIT_NO;
	}
	for (uint64_t i = 0; get(a, i, &f); i++) {
		if (f.severity == CKPT_INFO || is_expected(f.id))
			continue;
		if (say)
			cli_say("found but not expected: %s", f.id);
		return EXIT_NO;
	}
	return status;
}

static void say_expected(const struct answer *a)
{
	if (want.expect_finding.n)
		expectation(a, 1);
}

static int status_of(const struct answer *a)
{
	if (want.expect_finding.n)
		return expectation(a, 0);
	if (count(a, CKPT_ERROR))
		return EXIT_NO;
	return a->args->strict && count(a, CKPT_WARN) ? EXIT_NO : EXIT_DONE;
}

/* ---------------------------------------------------------------- for people */

static const char *many(uint64_t n, const char *what)
{
	return cli_format("%s %s%s", out_count(n), what, out_plural(n));
}

/* No checksum says what the bytes were: only lengths and structure can be wrong. */
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

/* How many errors to say: none if several are printed as one line. */
static uint64_t say_errors(const struct answer *a)
{
	const uint64_t n = count(a, CKPT_ERROR);
	struct folded *line;

	return a->ck && !a->args->verbose && !a->args->json &&
	       findings_lines(a->ck, CKPT_ERROR, 0, &line) < n ? 0 : n;
}

/* "looks complete (bytes not read; --full reads them)": the verdict, and what it rests on. */
static char *answer_text(const struct answer *a)
{
	const uint64_t errors = say_errors(a), warnings = count(a, CKPT_WARN);
	const int full = want.full || want.write_manifest;
	char *odd = warnings ? cli_format(", %s", many(warnings, "warning")) : cli_strdup("");
	char *why = verdict_of(a->ck, &a->lone, 1), *text;

	if (why)
		text = cli_format("%s%s%s%s", why, errors > 1 ? "; " : "",
				  errors > 1 ? many(errors, "error") : "", odd);
	else if (full)
		text = cli_format("every byte%s read, %s%s%s",
				  a->v.read_bytes < a->v.file_bytes ? " of the tensors" : "",
				  is_bare(a) ? "looks complete" : "complete", odd,
				  is_bare(a) ? " (no checksums to compare with)" : "");
	else
		text = cli_format("looks complete%s (bytes not read; --full reads them)", odd);
	cli_free(why);
	cli_free(odd);
	return text;
}

static void print_counts(const struct answer *a, int full)
{
	const struct ckpt_verified *v = &a->v;

	printf("  %s, %s: ", many(v->files, "file"), out_size(v->file_bytes));
	if (!full) {
		printf("structure and lengths checked%s\n",
		       v->agreed && has_pairs(a->ck) ?
		       ", ends of fp32 copies and weights compared" : "");
		return;
	}
	printf("%s read\n", out_size(v->read_bytes));
	if (v->checksums + v->sums)
		printf("  %s compared\n", many(v->checksums + v->sums, "checksum"));
	if (v->unsummed)
		printf("  %s without a checksum\n", many(v->unsummed, "part of archive"));
	if (v->sums && v->without_sums)
		printf("  %s without a checksum\n", many(v->without_sums, "tensor"));
	if (v->elements)
		printf("  %s of the fp32 copy compared with the weights\n",
		       many(v->elements, "value"));
	if (v->copies)
		printf("  %s stored by several ranks compared\n", many(v->copies, "value"));
	if (v->pad_bytes)
		printf("  %s of padding checked\n", out_size(v->pad_bytes));
}

static void print(const struct answer *a)
{
	const int full = want.full || want.write_manifest;
	char *text = answer_text(a);

	printf("%s\n", text);
	cli_free(text);
	if (!a->ck)
		return;
	print_counts(a, full);
	if (!a->v.agreed)
		printf("  values were not compared, because there are errors\n");
	if (a->v.manifest)
		printf("  manifest %s: %s\n", a->v.manifest == 2 ? "written" : "compared",
		       out_name(a->v.manifest_path));
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
	char *text = answer_text(a);
	struct json json;

	if (a->ck)
		ckpt_info_get(a->ck, &info);
	json_begin(&json, stdout, "verify");
	json_text(&json, "path", info.path);
	json_text(&json, "format", info.format);
	json_bool(&json, "ok", status == EXIT_DONE);
	json_text(&json, "answer", text);
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
	cli_free(text);
}

/* What helps against the first error. */
static void say_next(const struct answer *a)
{
	struct ckpt_err err = { .code = CKPT_E_CORRUPT, .offset = CKPT_NO_OFFSET };
	struct ckpt_finding f = a->lone;

	for (uint64_t i = 0; a->ck && !ckpt_finding_get(a->ck, i, &f, NULL); i++)
		if (f.severity == CKPT_ERROR)
			break;
	if (f.severity != CKPT_ERROR)
		return;
	snprintf(err.msg, sizeof(err.msg), "%s: %s", f.id, f.text);
	snprintf(err.where, sizeof(err.where), "%s", f.where);
	fflush(stdout);
	advice_say(a->args, a->ck, &err);
}

/* Returns the exit status. */
static int say_answer(const struct answer *a)
{
	const struct args *args = a->args;
	const int status = status_of(a);

	if (args->json)
		print_json(a, status);
	else if (!args->quiet)
		print(a);	/* the answer first, also where stderr is the same terminal */
	say_expected(a);
	if (a->ck)
		out_findings_asked(args, a->ck);
	else
		cli_say("%s: %s%s%s%s", out_severity(a->lone.severity), out_id(a->lone.id),
			out_name(a->lone.where), a->lone.where[0] ? ": " : "",
			out_name(a->lone.text));
	if (want.write_manifest && a->v.manifest != 2)
		cli_say("manifest not written: it would record the errors as good");
	if (status && !args->quiet)
		say_next(a);
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
	int status = 0;

	if (cli_open_quietly(args, &args->rest, &a->ck, err)) {
		a->ck = NULL;
		if (!ckpt_verify_open_finding(err, &a->lone))
			status = cli_fail(args->json ? "verify" : NULL, NULL, err);
		if (cli_lone_shard(args->rest.list[0]))
			cli_say("hint: %s", cli_lone_shard(args->rest.list[0]));
	}
	return status;
}

static int check_names(const struct args *args)
{
	for (size_t i = 0; i < want.expect_finding.n; i++)
		if (!ckpt_finding_known(want.expect_finding.list[i]))
			return cli_wrong(&cmd_verify, "--expect-finding: there is no finding %s",
					 out_name(want.expect_finding.list[i]));
	if (args->force && !want.write_manifest)
		return cli_wrong(&cmd_verify, "--force needs --write-manifest");
	return 0;
}

static int run(struct args *args)
{
	struct answer a = { .args = args };
	struct ckpt_err err = { 0 };
	int status;

	if (!args->rest.n)
		return cli_wrong(&cmd_verify, "verify needs a checkpoint");
	if (want.against)
		return cli_try(&cmd_verify, cli_format("zckpt diff %s %s",
						       out_word(args->rest.list[0]),
						       out_word(want.against)),
			       "verify looks at one checkpoint; diff compares two");
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
	.gist = "check that a checkpoint is complete and undamaged",
	.synopsis = "SRC...",
	.about = "Names the files that are missing, damaged, mixed up or old. Without --full it "
		 "reads no tensor but the ends of fp32 copies and weights; --full reads every "
		 "byte. A manifest beside the files is compared. Exit 0: complete; 1: not.",
	.examples = "zckpt verify run\n"
		    "zckpt verify --full model.safetensors\n",
	.notes = "zckpt explain ID explains a finding. Run zckpt verify --full --write-manifest "
		 "RUN once, and every later verify finds any change.",
	.tables = { own, opts_source, opts_run, opts_talk, NULL },
};
