/* cmd_convert.c -- `zckpt convert`: weights and single states out. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli_advice.h"
#include "cli_converted.h"
#include "cli_peft.h"
#include "cli_team.h"
#include "cli_verb.h"

static struct {
	const char *strip_prefix, *aux, *expect, *report;
	struct words state, dtype, rename;
	uint64_t max_shard_size;
	int tied, digest, no_sums, skip_frozen, ignored, language;
	const char *to, *stage, *world;	/* --stage, --world: of reshard */
	int fp16, bf16, fp32;	/* --half, ...: of --dtype */
} want;

static const struct opt own[] = {
	{ "output", 'o', OPT_TEXT, &cli_args.output, "DST",
	  "destination; '-' streams one file to stdout", 0 },
	{ "dtype", 0, OPT_COMMAS, &want.dtype, "TYPE",
	  "fp32 (default), bf16, fp16, keep (as saved), or PATTERN=TYPE for some "
	  "tensors; may repeat", 0 },
	{ "state", 0, OPT_COMMAS, &want.state, "NAME",
	  "write a file per state: master, exp_avg, ... or all", 0 },
	{ "tied", 0, OPT_CHOICE, &want.tied, "alias|dup|drop",
	  "second names: in metadata, as a full copy, left out", OPT_RARE },
	{ "rename", 0, OPT_WORDS, &want.rename, "FROM=TO",
	  "replace text in names; one * keeps what it matches", OPT_RARE },
	{ "strip-prefix", 0, OPT_TEXT, &want.strip_prefix, "TEXT", "remove TEXT from the start "
		"of names", OPT_RARE },
	{ "expect", 0, OPT_TEXT, &want.expect, "FILE",
	  "fail unless the result agrees with this index.json or .safetensors", OPT_RARE },
	{ "max-shard-size", 0, OPT_SIZE, &want.max_shard_size, "SIZE",
	  "largest size of a folder's files (default 5GB)", 0 },
	{ "aux", 0, OPT_TEXT, &want.aux, "DIR", "where config and tokenizer files are", 0 },
	{ "digest", 0, OPT_FLAG, &want.digest, NULL,
	  "write digests of the tensors into the metadata", OPT_RARE },
	{ "no-sums", 0, OPT_FLAG, &want.no_sums, NULL,
	  "write safetensors without checksums of their bytes", OPT_RARE },
	{ "language-part", 0, OPT_FLAG, &want.language, NULL,
	  "the language model of a vision-language model, as a model of its own", OPT_RARE },
	{ "force", 'f', OPT_FLAG, &cli_args.force, NULL, "replace an existing DST", 0 },
	{ "report", 0, OPT_TEXT, &want.report, "FILE", "write a JSON record of the run", OPT_RARE },
	{ "exclude-frozen-parameters", 0, OPT_FLAG, &want.skip_frozen, NULL, "", OPT_HIDDEN },
	{ "safe-serialization", 0, OPT_FLAG, &want.ignored, NULL, "", OPT_HIDDEN },
	{ "half", 0, OPT_FLAG, &want.fp16, NULL, "", OPT_HIDDEN },
	{ "fp16", 0, OPT_FLAG, &want.fp16, NULL, "", OPT_HIDDEN },
	{ "bf16", 0, OPT_FLAG, &want.bf16, NULL, "", OPT_HIDDEN },
	{ "fp32", 0, OPT_FLAG, &want.fp32, NULL, "", OPT_HIDDEN },
	{ "to", 0, OPT_TEXT, &want.to, "peft|torch-training",
	  "write the LoRA adapter of a run as a folder for PEFT; or one file of torch.save with "
	  "model and optimizer, as reshard writes it", 0 },
	{ "format", 0, OPT_TEXT, &want.to, "FORM", "", OPT_HIDDEN },
	{ "stage", 0, OPT_TEXT, &want.stage, "N", "", OPT_HIDDEN },
	{ "zero-stage", 0, OPT_TEXT, &want.stage, "N", "", OPT_HIDDEN },
	{ "world", 0, OPT_TEXT, &want.world, "M", "", OPT_HIDDEN },
	{ "gpus", 0, OPT_TEXT, &want.world, "M", "", OPT_HIDDEN },
	{ "debug", 'd', OPT_FLAG, &cli_args.verbose, NULL, "", OPT_HIDDEN },
	{ 0 },
};

/* The call of ckpt_convert(), what that points to, and how it went. */
struct job {
	struct verb verb;
	enum ckpt_dst_kind kind;
	struct ckpt_convert_opts opts;
	struct ckpt_peft_opts peft;
	struct ckpt_select select;
	struct ckpt_report report;
	struct outcome outcome;
	struct words adapter;	/* SRC of --merge-lora; verb.sources is the base then */
};

#define wrong(...) cli_wrong(&cmd_convert, __VA_ARGS__)

static int ends_with(const char *text, const char *end)
{
	size_t n = strlen(text), m = strlen(end);

	return n >= m && !strcmp(text + n - m, end);
}

/* ---------------------------------------------------------------- arguments */

/* The words of the call, for a command to try. */
static const char *source_word(const struct args *args)
{
	return args->rest.n ? out_word(args->rest.list[0]) : "run";
}

static const char *dst_word(const struct args *args)
{
	const size_t n = args->rest.n;

	return args->output ? out_word(args->output) : n > 1 ? out_word(args->rest.list[n - 1]) :
	       "run-new";
}

/* --stage, --world: what weights do not have. */
static int wrong_state(const struct args *args)
{
	return cli_try(&cmd_convert, cli_format("zckpt reshard --%s %s %s %s",
						want.stage ? "stage" : "world",
						out_word(want.stage ? want.stage : want.world),
						source_word(args), dst_word(args)),
		       "convert writes weights, which have no %s; 'reshard' writes training state",
		       want.stage ? "ZeRO stage" : "ranks");
}

/* The destination with another ending. */
static const char *with_end(const char *dst, const char *end)
{
	const char *slash = strrchr(dst, '/'), *dot = strrchr(slash ? slash : dst, '.');

	if (ends_with(dst, end) && *end)
		return dst;
	return cli_format("%.*s%s", (int)(dot && dot != dst ? dot - dst : (long)strlen(dst)), dst,
			  end);
}

/* --to: forms of training state are of `reshard`, those of weights follow from DST. */
static int wrong_form(const struct args *args)
{
	static const char *const steps[] = { "universal", "native", "deepspeed", NULL };
	static const char torch[] = "a path ending in .pt, .pth or .bin is for torch.load";
	static const char hub[] = "a path without an ending is a folder for transformers";
	static const char *const ends[][3] = {
		{ "pt", ".pt", torch }, { "torch", ".pt", torch }, { "pytorch", ".pt", torch },
		{ "pth", ".pth", torch }, { "bin", ".bin", torch },
		{ "safetensors", ".safetensors", "a path ending in .safetensors is one file" },
		{ "hf", "", hub }, { "huggingface", "", hub }, { "transformers", "", hub },
	};
	const char *src = source_word(args), *dst = dst_word(args);
	const char *const *form = steps;
	enum ckpt_dtype dtype = ckpt_dtype_parse(want.to);

	while (*form && strcmp(*form, want.to))
		form++;
	if (*form)
		return cli_try(&cmd_convert, cli_format("zckpt reshard --to %s %s %s", *form, src,
							dst),
			       "convert writes weights; 'reshard' writes training state as %s",
			       *form);
	if (dtype == CKPT_F32 || dtype == CKPT_BF16 || dtype == CKPT_F16)
		return cli_try(&cmd_convert, cli_format("zckpt convert --dtype %s %s %s", want.to,
							src, dst),
			       "--to %s: the type is --dtype", want.to);
	if (opt_is_name(want.to, "lora") || opt_is_name(want.to, "adapter"))
		return cli_try(&cmd_convert, cli_format("zckpt convert --to peft %s %s", src, dst),
			       "the form of an adapter is called peft");
	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
		if (opt_is_name(want.to, ends[i][0]))
			return cli_try(&cmd_convert, cli_format("zckpt convert %s %s", src,
								with_end(dst, ends[i][1])),
				       "the form follows from DST: %s", ends[i][2]);
	return wrong("there is no form %s: DST ending in .safetensors, .pt, .pth or .bin is one "
		     "file, any other path a folder for transformers", out_name(want.to));
}

/* SRC... DST, or SRC... with -o DST. */
static int parse_paths(struct job *job)
{
	const struct args *args = job->verb.args;
	size_t n = args->rest.n;

	if (want.to && !opt_is_name(want.to, "peft"))
		return wrong_form(args);
	if (want.stage || want.world)
		return wrong_state(args);
	if (!n)
		return wrong("convert needs a checkpoint and a destination: zckpt convert RUN "
			     "model.safetensors");
	if (!args->output && n < 2)
		return cli_try(&cmd_convert, cli_format("zckpt convert %s model.safetensors",
							out_word(args->rest.list[0])),
			       "a destination is missing");
	job->verb.dst = args->output ? args->output : args->rest.list[--n];
	for (size_t i = 0; i < n; i++)
		words_add(&job->verb.sources, args->rest.list[i]);
	return 0;
}

/* Files that zckpt does not write; without this, a folder of that name would appear. */
static const char *foreign_end(const char *dst)
{
	static const char *const ends[] = {
		".safetensor", ".gguf", ".onnx", ".h5", ".npz", ".npy", ".msgpack", ".json",
		".zip", ".tar", ".gz", ".zst", NULL,
	};
	const char *const *end = ends;

	while (*end && !ends_with(dst, *end))
		end++;
	return *end;
}

/* A folder that is named by dots has no name that a result could take the place of. */
static int check_dots(const struct job *job, const char *dst)
{
	const char *slash = strrchr(dst, '/'), *name = slash ? slash + 1 : dst;
	char *to;

	if (strcmp(name, ".") != 0 && strcmp(name, "..") != 0)
		return 0;
	to = cli_format("%s/model.safetensors", dst);
	return cli_try(&cmd_convert, advice_dst(job->verb.args, job->verb.dst, to),
		       "%s: the destination is %s; give a name in it", out_name(dst),
		       strcmp(dst, ".") ? "a whole folder" : "the current folder");
}

static int check_dst(struct job *job)
{
	enum ckpt_dst_kind cut_kind;
	char *cut = cli_strdup(job->verb.dst);
	size_t n = strlen(cut);

	if (ckpt_dst_kind(job->verb.dst, &job->kind, &job->verb.err))
		return wrong("%s", job->verb.err.msg);
	if (foreign_end(job->verb.dst))
		return wrong("%s: convert does not write %s, but .safetensors, .pt, .pth, .bin and "
			     "folders; for a folder of this name append '/'",
			     out_name(job->verb.dst), foreign_end(job->verb.dst));
	/* "out/" is the folder "out" */
	while (n > 1 && cut[n - 1] == '/')
		cut[--n] = 0;
	if (cut[n] != job->verb.dst[n] && !ckpt_dst_kind(cut, &cut_kind, NULL) &&
	    (cut_kind == CKPT_DST_SAFETENSORS || cut_kind == CKPT_DST_TORCH))
		return wrong("%s: a path ending in %s is one file, not a folder",
			     out_name(job->verb.dst), strrchr(cut, '.'));
	if (check_dots(job, cut))
		return EXIT_CALL;
	job->verb.dst = cut;
	return 0;
}

static int check_stream(const struct job *job)
{
	const struct args *args = job->verb.args;

	if (job->kind != CKPT_DST_STREAM)
		return 0;
	if (args->json)
		return wrong("--json and a stream cannot both go to stdout; --report FILE "
			     "writes the same object");
	if (args->part || team_size() > 1)
		return wrong("%s: a stream cannot be written in parts",
			     args->part ? "--part" : "mpirun");
	if (isatty(STDOUT_FILENO) && !args->dry_run)
		return wrong("stdout is a terminal; pipe the stream, or name a file");
	return 0;
}

static int is_many_states(const struct words *state)
{
	for (size_t i = 0; i < state->n; i++)
		if (strcmp(state->list[i], state->list[0]) || !strcmp(state->list[i], "all"))
			return 1;
	return 0;
}

static int check_states(struct job *job)
{
	const struct words *state = &want.state;

	if (is_many_states(state) && job->kind != CKPT_DST_FOLDER)
		return wrong("%s is one file, but each state gets a file of its own; give a "
			     "folder",
			     job->kind == CKPT_DST_STREAM ? "the stream" : out_name(job->verb.dst));
	for (size_t i = 0; i < state->n && state->n > 1; i++)
		if (!strcmp(state->list[i], "all"))
			return wrong("--state: all excludes other names");
	job->opts.states = state->list;
	return 0;
}

/* A type of --dtype: enum ckpt_dtype, CKPT_KEEP, or 0 if it is none. */
static int dtype_parse(const char *word)
{
	enum ckpt_dtype dtype;

	if (!strcmp(word, "keep"))
		return CKPT_KEEP;
	dtype = ckpt_dtype_parse(strncmp(word, "torch.", 6) ? word : word + 6);
	return dtype == CKPT_F32 || dtype == CKPT_BF16 || dtype == CKPT_F16 ? (int)dtype : 0;
}

/* "PATTERN=value" cut at the last '='; the copy lives on. */
static int rule_cut(const char *text, int at_last, struct ckpt_rule *rule)
{
	char *copy = cli_strdup(text);
	char *eq = at_last ? strrchr(copy, '=') : strchr(copy, '=');

	if (!eq || eq == copy) {
		cli_free(copy);
		return -1;
	}
	*eq = 0;
	rule->pattern = copy;
	rule->value = eq + 1;
	return 0;
}

/* --half, --fp16, --bf16, --fp32 are values of --dtype. */
static int take_short_types(void)
{
	if (want.fp16 + want.bf16 + want.fp32 > 1)
		return wrong("--fp16, --bf16 and --fp32 exclude each other");
	if (want.fp16 || want.bf16 || want.fp32)
		words_add(&want.dtype, want.fp16 ? "fp16" : want.bf16 ? "bf16" : "fp32");
	return 0;
}

static int parse_dtypes(struct job *job)
{
	const struct words *words = &want.dtype;
	struct ckpt_rule *rules = cli_alloc((words->n + 1) * sizeof(*rules));
	size_t n = 0;
	int dtype = 0;

	job->opts.dtype_rules = rules;
	for (size_t i = 0; i < words->n; i++) {
		const char *word = words->list[i], *type = word;

		if (strchr(word, '=')) {
			if (rule_cut(word, 1, &rules[n]))
				return wrong("--dtype: %s has no pattern before the '='",
					     out_name(word));
			type = rules[n++].value;
		}
		if (!dtype_parse(type))
			return wrong("--dtype: %s must be fp32, bf16, fp16 or keep",
				     out_name(type));
		if (type == word)
			dtype = dtype_parse(word);
	}
	/* weights: the default is fp32, states: the default is as stored */
	if (job->opts.states)
		job->opts.dtype = dtype == CKPT_KEEP ? 0 : dtype;
	else
		job->opts.dtype = dtype == CKPT_F32 ? 0 : dtype;
	return 0;
}

static int parse_renames(struct job *job)
{
	const struct words *words = &want.rename;
	struct ckpt_rule *rules = cli_alloc((words->n + 1) * sizeof(*rules));

	for (size_t i = 0; i < words->n; i++)
		if (rule_cut(words->list[i], 0, &rules[i]))
			return wrong("--rename: %s is not FROM=TO", out_name(words->list[i]));
	job->select.rename = rules;
	return 0;
}

/* Found out before the work is done, where it can be. */
static int check_report(const char *path)
{
	const char *slash = strrchr(path, '/');
	char *folder = slash ? cli_format("%.*s", (int)(slash - path) + 1, path) : NULL;
	int bad = access(folder ? folder : ".", W_OK | X_OK);

	cli_free(folder);
	if (!strcmp(path, "-"))
		return wrong("--report: '-' is not a file; --json prints the object to stdout");
	return bad ? wrong("--report: %s: its folder does not exist or is not writable",
			   out_name(path)) : 0;
}

/* --to peft and --merge-lora BASE: with that the base is what is read, and SRC the adapter. */
static int parse_adapter(struct job *job)
{
	const int to_peft = want.to != NULL;

	if (!to_peft && !peft_base())
		return peft_unused(&cmd_convert);
	if (to_peft && peft_base())
		return wrong("--to peft and --merge-lora exclude each other: the first writes the "
			     "adapter, the second a whole model");
	if (to_peft && job->kind != CKPT_DST_FOLDER)
		return wrong("%s: an adapter for PEFT is a folder with two files",
			     out_name(job->verb.dst));
	if (want.state.n)
		return wrong("--state: adapters are weights");
	job->opts.peft = &job->peft;
	if (peft_base() && !want.dtype.n)	/* a base stays in the type that it has */
		job->opts.dtype = CKPT_KEEP;
	return peft_take(&cmd_convert, &job->peft, &job->verb.sources, &job->adapter);
}

static int parse_options(struct job *job)
{
	const struct args *args = job->verb.args;
	const char *reason;
	int status = take_short_types();

	if (!status)	/* before the paths: it may have taken one for its value */
		status = parse_dtypes(job);
	if (!status)
		status = parse_paths(job);
	if (!status)
		status = check_dst(job);
	if (!status)
		status = check_stream(job);
	if (!status)
		status = check_states(job);
	if (!status)
		status = cli_select(&cmd_convert, args, &job->select);
	job->select.strip_prefix = want.strip_prefix;
	job->select.tied = (enum ckpt_tied)want.tied;
	job->select.skip = want.skip_frozen ? CKPT_ONLY_FROZEN : 0;
	if (!status)
		status = parse_renames(job);
	if (!status)
		status = cli_part(&cmd_convert, args, &job->opts.part, &job->opts.nparts);
	if (!status)
		status = parse_adapter(job);
	reason = !status && args->force ?
		 cli_precious(job->verb.dst, &job->verb.sources, args->output != NULL) : NULL;
	if (reason)
		status = wrong("--force does not replace %s: %s", out_name(job->verb.dst), reason);
	if (!status && want.report && !args->force && !access(want.report, F_OK))
		status = wrong("--report: %s exists; --force replaces it",
			       out_name(want.report));
	if (!status && want.report)
		status = check_report(want.report);
	if (status)
		return status;
	job->verb.sigpipe = job->kind == CKPT_DST_STREAM;
	job->opts.size = sizeof(job->opts);
	job->opts.run = &job->verb.run;
	job->opts.select = &job->select;
	job->opts.max_shard_bytes = want.max_shard_size;
	job->opts.aux_dir = want.aux;
	job->opts.expect_path = want.expect;
	job->opts.out_fd = STDOUT_FILENO;
	job->opts.flags = cli_write_flags(args) | (want.digest ? CKPT_CONVERT_DIGEST : 0) |
			  (want.no_sums ? CKPT_CONVERT_NO_SUMS : 0) |
			  (want.language ? CKPT_CONVERT_LANGUAGE : 0);
	return 0;
}

/* ---------------------------------------------------------------- running */

static int call(struct verb *verb)
{
	struct job *job = (struct job *)verb;

	cli_say_step(verb->args, verb->ck);
	if (job->adapter.n && ckpt_open(job->adapter.list, job->adapter.n, NULL,
					&job->peft.merge, &verb->err))
		return -(int)verb->err.code;
	if (job->adapter.n)
		out_findings_asked(verb->args, job->peft.merge);
	return ckpt_convert(verb->ck, verb->dst, &job->opts, &job->report, &verb->err);
}

static double wall_clock(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void print_json(const struct verb *verb, int status)
{
	(void)status;	/* the outcome has it */
	report_json(&((const struct job *)verb)->outcome, stdout, 0);
}

static void print(const struct verb *verb)
{
	const struct job *job = (const struct job *)verb;

	report_print(&job->outcome);
	if (verb->args->quiet || team_rank())
		return;
	if (!job->opts.peft || job->peft.merge)
		converted_say(&(struct converted){
			.dst = verb->dst, .ck = verb->ck, .report = &job->report,
			.of_states = want.state.n > 0, .merged = job->peft.merge != NULL,
		});
}

static int run(struct args *args)
{
	struct job job = { .verb = {
		.args = args, .call = call, .print_json = print_json, .print = print,
		.part = &job.opts.part, .nparts = &job.opts.nparts, .report = &job.report,
	} };
	struct verb *verb = &job.verb;
	const double clock = progress_clock();
	int status;
	double began;

	args->find_states |= cli_is_beyond_weight(&want.state);
	args->writes_names = 1;
	status = parse_options(&job);

	status = team_start(args, status, verb->dst);
	if (status)
		return status;
	began = wall_clock();
	status = verb_work(verb);
	job.outcome = (struct outcome){
		.args = args, .dst = verb->dst, .kind = job.kind, .record = want.report,
		.tied = (enum ckpt_tied)want.tied, .no_sums = want.no_sums,
		.of_states = want.state.n > 0, .of_adapter = job.opts.peft != NULL, .ck = verb->ck,
		.report = status ? NULL : &job.report, .err = &verb->err, .status = status,
		.began = began, .seconds = progress_clock() - clock,
	};
	if (verb->ck && !team_rank())
		cli_say_nearest(args, (const struct ckpt *const[]){ verb->ck }, 1);
	verb_print(verb, status);
	if (want.report && verb->err.code != CKPT_E_CANCELED && !team_rank() &&
	    report_save(&job.outcome) && !status)
		status = EXIT_TROUBLE;
	ckpt_report_free(&job.report);
	ckpt_close(job.peft.merge);
	ckpt_close(verb->ck);
	return status;
}

const struct command cmd_convert = {
	.name = "convert",
	.run = run,
	.ranks = RANKS_SHARE,
	.gist = "write weights as safetensors or .pt",
	.synopsis = "SRC... DST",
	.about = "Writes the weights of a checkpoint. DST ending in .safetensors is one file; in "
		 ".pt, .pth or .bin a state dict for torch.load; any other path a folder for "
		 "transformers: model.safetensors or shards with an index, and the config and "
		 "tokenizer files found beside SRC.",
	.examples = "zckpt convert run model.safetensors\n"
		    "zckpt convert --dtype bf16 run my-model\n"
		    "zckpt convert --tag global_step200 run pytorch_model.bin\n",
	.notes = "LoRA: convert --to peft RUN my-adapter writes the adapter, convert --merge-lora "
		 "BASE my-adapter merged the base with it.\n"
		 "The options of zero_to_fp32.py are accepted: --max_shard_size, "
		 "--exclude_frozen_parameters, --safe_serialization, -d.",
	.tables = {
		own, opts_peft, opts_select, opts_source, opts_write, opts_run, opts_talk, NULL,
	},
};
