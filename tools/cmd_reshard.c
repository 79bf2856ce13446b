/* cmd_reshard.c -- `zckpt reshard`: a step for another number of ranks. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli_advice.h"
#include "cli_arrow.h"
#include "cli_batch.h"
#include "cli_form.h"
#include "cli_team.h"
#include "cli_verb.h"
#include "cmd_reshard_words.h"

static struct {
	const char *stage, *dtype, *new_tag, *ds_version, *torch, *device, *layout;
	struct words drop_state;
	uint64_t world, sub_group_size, ep, tp, pp;
	int reset_optimizer, to, round_robin, with_states;
	int is_to; /* --to was given */
} want = { .round_robin = -1, .world = OPT_UNSET, .tp = OPT_UNSET,
	   .pp = OPT_UNSET };

#define FORMS "deepspeed|universal|native|dcp|fsdp-ranks|trainer|torch-training"

/* --to: a form; a number was meant as one of ranks. */
static int set_form(const struct opt_call *call, const struct opt *opt, const char *text)
{
	const int form = cli_form_find(text);

	(void)opt;
	if (form >= 0) {
		want.to = form;
		want.is_to = 1;
		return 0;
	}
	return opt_wrong(call, "--to: %s is not one of %s%s%s", out_name(text), FORMS,
			 *text && !text[strspn(text, "0123456789")] ?
			 "; the number of ranks is --world " : "",
			 *text && !text[strspn(text, "0123456789")] ? text : "");
}

static struct opt_own to_form = { .set = set_form, .choice = cli_forms };

static const struct opt own[] = {
	{ "output", 'o', OPT_TEXT, &cli_args.output, "DST",
	  "destination, instead of the last word", 0 },
	{ "world", 'n', OPT_COUNT, &want.world, "M",
	  "ranks of the result (or --gpus M, or 'N->M')", 0 },
	{ "gpus", 0, OPT_COUNT, &want.world, "M", "", OPT_HIDDEN },
	{ "world-size", 0, OPT_COUNT, &want.world, "M", "", OPT_HIDDEN },
	{ "num-gpus", 0, OPT_COUNT, &want.world, "M", "", OPT_HIDDEN },
	{ "ranks", 0, OPT_COUNT, &want.world, "M", "", OPT_HIDDEN },
	{ "dp", 0, OPT_COUNT, &want.world, "M", "", OPT_HIDDEN },
	{ "zero-stage", 0, OPT_TEXT, &want.stage, "0|1|2|3|bf16", "", OPT_HIDDEN },
	{ "to", 0, OPT_OWN, &to_form, "FORM",
	  "form of the result: a DeepSpeed step (deepspeed), or one for any number of ranks: "
	  "universal, native, or dcp for FSDP; or FSDP's rank files, as verl has them "
	  "(fsdp-ranks), checkpoint-N of transformers' Trainer (trainer), or one file of "
	  "torch.save with model and optimizer (torch-training)", 0 },
	{ "stage", 0, OPT_TEXT, &want.stage, "0|1|2|3|bf16",
	  "ZeRO stage (default: the source's)", 0 },
	{ "ep", 0, OPT_COUNT, &want.ep, "K",
	  "DeepSpeed's experts: expert ranks of the result (default: the source's)", OPT_RARE },
	{ "tp", 0, OPT_COUNT, &want.tp, "1",
	  "join the slices of a tensor parallel step, for DeepSpeed without them", OPT_RARE },
	{ "pp", 0, OPT_COUNT, &want.pp, "N", "", OPT_HIDDEN },
	{ "sub-group-size", 0, OPT_COUNT, &want.sub_group_size, "N",
	  "stage 3: as in the configuration that will resume", OPT_RARE },
	{ "round-robin", 0, OPT_FLAG, &want.round_robin, NULL,
	  "assign parameters round robin; --no-round-robin: in order", OPT_NEGATABLE | OPT_RARE },
	{ "reset-optimizer", 0, OPT_FLAG, &want.reset_optimizer, NULL,
	  "set moments and their step to zero; keep weights and masters", 0 },
	{ "dtype", 0, OPT_TEXT, &want.dtype, "bf16|fp16|fp32",
	  "of a torch file with model and optimizer, or a Trainer's folder: type of the run's "
	  "weights; masters keep the file's. Of --to torch-training: type of the model (default: "
	  "the masters')", OPT_RARE },
	{ "order", 0, OPT_TEXT, &cli_args.order, "FILE",
	  "of such a file: list of its optimizer's parameters in the optimizer's order, if zckpt "
	  "does not know it", OPT_RARE },
	{ "frozen", 0, OPT_COMMAS, &cli_args.frozen, "PATTERN",
	  "of such a file: parameters that its optimizer does not have", OPT_RARE },
	{ "buffer", 0, OPT_COMMAS, &cli_args.buffer, "PATTERN",
	  "of such a file: tensors that are not parameters", OPT_RARE },
	{ "with-states", 0, OPT_FLAG, &want.with_states, NULL, "", OPT_HIDDEN },
	{ "drop-state", 0, OPT_COMMAS, &want.drop_state, "PATTERN",
	  "leave out this optimizer state, such as max_exp_avg_sq", OPT_RARE },
	{ "ds-version", 0, OPT_TEXT, &want.ds_version, "VERSION",
	  "DeepSpeed version that will load it (default: the one that wrote it)", OPT_RARE },
	{ "torch", 0, OPT_TEXT, &want.torch, "VERSION",
	  "of --to dcp or fsdp-ranks: torch version that will load it, such as 2.1 (default: of "
	  "dcp 2.4 and later, of fsdp-ranks 2.11)", OPT_RARE },
	{ "device", 0, OPT_TEXT, &want.device, "cuda|cpu",
	  "of --to fsdp-ranks: devices of the run (default: as in rank files, else cuda)",
	  OPT_RARE },
	{ "layout", 0, OPT_TEXT, &want.layout, "titan|accelerate|MODEL,OPTIMIZER",
	  "of --to dcp: names and folders for the program that will load it (default: the "
	  "source's, or model,optimizer)", OPT_RARE },
	{ "new-tag", 0, OPT_TEXT, &want.new_tag, "NAME", "name of the step in DST", 0 },
	{ "force", 'f', OPT_FLAG, &cli_args.force, NULL, "replace a step of that name in DST", 0 },
	{ 0 },
};

extern const struct command cmd_reshard;

struct reshard {
	struct verb verb;
	uint64_t from;		/* 0 = not said */
	struct ckpt_reshard_opts opts;
	struct batch batch;
	int settled;		/* what a killed run had begun is finished */
	struct ckpt_report report;
};

/* Whether an option asks for a change that needs no other number of ranks. */
static int keeps_world(void)
{
	return want.to || want.stage || want.ep || want.sub_group_size || want.round_robin >= 0 ||
	       want.reset_optimizer || want.drop_state.n || want.ds_version || want.tp == 1;
}

/* "8->4" as the first word or as the last: '*first', and how many words from there on count. */
static int parse_arrow(struct reshard *r, size_t *first, size_t *n)
{
	const struct words *words = &r->verb.args->rest;
	struct arrow arrow;
	const char *word = NULL;

	if (words->n && arrow_parse(words->list[0], &arrow)) {
		word = words->list[0];
		*first = 1;
	} else if (words->n > 1 && arrow_parse(words->list[words->n - 1], &arrow)) {
		word = words->list[--*n];
	}
	if (!word)
		return 0;
	if (!arrow.to || arrow.to > MAX_WORLD || arrow.from > MAX_WORLD)
		return cli_wrong(&cmd_reshard, "%s: a step has 1 to %d ranks", out_name(word),
				 MAX_WORLD);
	if (want.world != OPT_UNSET && want.world && want.world <= MAX_WORLD &&
	    want.world != arrow.to)
		return cli_wrong(&cmd_reshard, "%s and --world %" PRIu64 " contradict each other",
				 out_name(word), want.world);
	r->from = arrow.from;
	r->opts.world = (uint32_t)arrow.to;
	return 0;
}

/* The number of ranks, from an arrow or --world; the sources and DST are the words from '*first'
 * to '*n'. */
static int parse_world(struct reshard *r, size_t *first, size_t *n)
{
	const struct args *args = r->verb.args;
	const char *word = args->rest.n ? args->rest.list[0] : NULL;
	int status = reshard_check_torn(args);

	if (!status)
		status = parse_arrow(r, first, n);
	if (!status && !r->from && want.world == OPT_UNSET)
		status = reshard_check_numbers(args);
	if (!status && !r->from && word && arrow_is_bad(word))
		status = reshard_wrong_spec(args, word);
	if (status)
		return status;
	if (want.world != OPT_UNSET && (!want.world || want.world > MAX_WORLD))
		return cli_wrong(&cmd_reshard, "--world %" PRIu64 ": a step has 1 to %d ranks",
				 want.world, MAX_WORLD);
	if (want.world != OPT_UNSET)
		r->opts.world = (uint32_t)want.world;
	return 0;
}

/* The call as it was typed, and a destination. */
static int missing_dst(const struct reshard *r)
{
	char *call = cli_strdup("zckpt reshard");

	for (int i = 2; i < cli_args.argc; i++)
		call = cli_format("%s %s", call, cli_argument(cli_args.argv[i]));
	if (want.world == OPT_UNSET && !r->from && !keeps_world())
		call = cli_format("%s --world 4", call);
	return cli_try(&cmd_reshard, cli_format("%s %s", call, reshard_new_name(r->verb.dst)),
		       "a destination is missing");
}

static int parse_words(struct reshard *r)
{
	const struct args *args = r->verb.args;
	size_t n = args->rest.n, first = 0;
	const int status = parse_world(r, &first, &n);

	if (status)
		return status;
	r->opts.to = want.to;
	r->verb.dst = args->output;
	if (!r->verb.dst && n > first)
		r->verb.dst = args->rest.list[--n];
	for (size_t i = first; i < n; i++)
		words_add(&r->verb.sources, args->rest.list[i]);
	if (r->verb.dst && !r->verb.sources.n && !args->output)
		return missing_dst(r);
	if (!r->verb.dst || !r->verb.sources.n)
		return cli_wrong(&cmd_reshard, "reshard needs a checkpoint and a destination");
	return 0;
}

static int parse_stage(struct reshard *r)
{
	const char *s = want.stage;

	r->opts.stage = -1;
	if (!s)
		return 0;
	if (!strcmp(s, "bf16"))
		r->opts.stage = 4;
	else if (s[0] >= '0' && s[0] <= '3' && !s[1])
		r->opts.stage = s[0] - '0';
	else
		return cli_wrong(&cmd_reshard, "--stage %s: must be 0, 1, 2, 3 or bf16",
				 out_name(s));
	return 0;
}

static int parse_dtype(struct reshard *r)
{
	const char *s = want.dtype;

	r->opts.weight_dtype = s ? (int)ckpt_dtype_parse(s) : 0;
	if (s && r->opts.weight_dtype != CKPT_BF16 && r->opts.weight_dtype != CKPT_F16 &&
	    r->opts.weight_dtype != CKPT_F32)
		return cli_wrong(&cmd_reshard, "--dtype %s: must be bf16, fp16 or fp32",
				 out_name(s));
	return 0;
}

/* Options that the form would pass over. */
static int check_form(void)
{
	const struct form_options o = {
		.deepspeed = want.stage ? "--stage" : want.sub_group_size ? "--sub-group-size" :
			     want.round_robin >= 0 ? "--round-robin" :
			     want.ds_version ? "--ds-version" : NULL,
		.torch = want.torch, .layout = want.layout, .device = want.device,
	};

	return cli_form_check(&cmd_reshard, want.to, &o);
}

static int parse_options(struct reshard *r)
{
	const struct args *args = r->verb.args;
	const char *why;
	int status = parse_words(r);

	if (!status)
		status = parse_stage(r);
	if (!status)
		status = parse_dtype(r);
	if (!status && (want.ep > MAX_WORLD || (want.ep && want.to)))
		return cli_wrong(&cmd_reshard, "--ep %" PRIu64 ": %s", want.ep, want.to ?
				 "it is of DeepSpeed steps, not of other forms (--to)" :
				 "a step has 1 to 4096 expert ranks");
	if (!status && (want.pp != OPT_UNSET || (want.tp != OPT_UNSET && want.tp != 1)))
		return cli_wrong(&cmd_reshard, "reshard cuts no step into other tensor ranks or "
				 "stages: it joins slices (--tp 1), with --to dcp, native or "
				 "fsdp-ranks stages too; DeepSpeed itself loads the universal form "
				 "at other sizes (--to universal)");
	if (!status)
		status = check_form();
	if (!status)
		status = cli_part(&cmd_reshard, args, &r->opts.part, &r->opts.nparts);
	if (status)
		return status;
	/* Of several folders the last may be a source, too: then the destination is missing. */
	why = args->force && r->verb.sources.n > 1 ?
	      cli_precious(r->verb.dst, &r->verb.sources, args->output != NULL) : NULL;
	if (why)
		return cli_wrong(&cmd_reshard, "%s: %s", out_name(r->verb.dst), why);
	r->opts.size = sizeof(r->opts);
	r->opts.run = &r->verb.run;
	r->opts.round_robin = want.round_robin;
	r->opts.sub_group_size = want.sub_group_size;
	r->opts.ep = (uint32_t)want.ep;
	r->opts.tag = want.new_tag;
	r->opts.ds_version = want.ds_version;
	r->opts.torch_version = want.torch;
	r->opts.device = want.device;
	r->opts.layout = want.layout;
	r->opts.drop_states = want.drop_state.n ? want.drop_state.list : NULL;
	r->opts.flags = cli_write_flags(args) |
			(want.reset_optimizer ? CKPT_RESHARD_RESET : 0) |
			(want.tp == 1 ? CKPT_RESHARD_WHOLE : 0);
	return 0;
}

/* "3->2" of a step of stage 3 may be of stages. */
static int wrong_from(const struct reshard *r, const struct ckpt_info *info)
{
	const char *dst = out_word(r->verb.dst);
	const int is_stage = info->stage >= 0 && r->from == (uint64_t)info->stage &&
			     r->opts.world <= 3 && !want.stage;
	char *sources = cli_strdup(""), *call;

	for (size_t i = 0; i < r->verb.sources.n; i++)
		sources = cli_format("%s %s", sources, out_word(r->verb.sources.list[i]));
	call = cli_format("zckpt reshard '%" PRIu32 "->%" PRIu32 "'%s %s", info->world,
			  r->opts.world, sources, dst);
	if (!is_stage)
		return cli_try(&cmd_reshard, call, "%s: %" PRIu32 " rank%s wrote this step, not %"
			       PRIu64, out_name(info->path), info->world, out_plural(info->world),
			       r->from);
	cli_try(&cmd_reshard, cli_format("zckpt reshard --stage %" PRIu32 "%s %s", r->opts.world,
					 sources, dst),
		"%s: %" PRIu32 " rank%s wrote this step, not %" PRIu64 "; it is of stage %" PRIu64
		": is stage %" PRIu32 " meant, or %" PRIu32 " rank%s?", out_name(info->path),
		info->world, out_plural(info->world), r->from, r->from, r->opts.world,
		r->opts.world, out_plural(r->opts.world));
	cli_say("or:  %s", call);
	return EXIT_CALL;
}

/* The world that was stated must be the one that wrote the step. */
static int check_world(struct reshard *r)
{
	struct ckpt_info info;

	ckpt_info_get(r->verb.ck, &info);
	cli_say_step(r->verb.args, r->verb.ck);
	if (!r->opts.world && !keeps_world() && (!want.is_to || !strcmp(info.format, "deepspeed")))
		return cli_try(&cmd_reshard, cli_format("zckpt reshard --world 4%s",
							reshard_words_from(r->verb.args, 0)),
			       "%s has %" PRIu32 " rank%s; give another number of ranks, "
			       "--world M, or %s", out_name(info.path), info.world,
			       out_plural(info.world), strcmp(info.format, "deepspeed") ?
			       "a form, --to deepspeed" : "only a new --stage");
	if (!r->opts.world && !info.world && want.to == CKPT_TO_DEEPSPEED)
		return cli_wrong(&cmd_reshard, "%s does not record its number of ranks; "
			"give --world M", out_name(info.path));
	if (!r->opts.world && want.to == CKPT_TO_DEEPSPEED && !r->verb.args->quiet)
		cli_say("keeping %" PRIu32 " rank%s; --world M changes the number", info.world,
			out_plural(info.world));
	if (!r->opts.world)
		r->opts.world = info.world;
	if (!r->from || !info.world || r->from == info.world)
		return 0;
	return wrong_from(r, &info);
}

static char *shard_call(const struct reshard *r, const char *option)
{
	return cli_format("zckpt shard --world %" PRIu32 " --stage %s --lr 1e-5 --%s %s %s",
			  r->opts.world ? r->opts.world : 8,
			  want.stage && strcmp(want.stage, "0") ? want.stage : "2", option,
			  out_word(r->verb.sources.list[0]), out_word(r->verb.dst));
}

/* {"model": ..., "optimizer": ...} of torch has training state, or the library says why not. */
static int is_training_file(const struct reshard *r, const struct ckpt_info *info)
{
	return !strcmp(info->format, "torch") &&
	       (info->tag[0] || out_findings_named(r->verb.ck, "SUBTREE_CHOICE"));
}

/* Weights alone are no training state; `shard` makes a step of them. */
static int check_source(struct reshard *r)
{
	const struct words *sources = &r->verb.sources;
	const char *tag;
	struct ckpt_info info;

	ckpt_info_get(r->verb.ck, &info);
	if (sources->n == 1 && !strcmp(info.format, "megatron"))
		return cli_try(&cmd_reshard, shard_call(r, "model-config CONFIG_JSON"),
			       "%s is of Megatron-Core, whose optimizer states are not resharded; "
			       "'shard' begins a run with its weights", out_name(sources->list[0]));
	if (is_training_file(r, &info))
		return 0;
	if (sources->n != 1 || out_findings_count(r->verb.ck, CKPT_ERROR) || (strcmp(info.format,
	    "huggingface") && strcmp(info.format, "safetensors") && strcmp(info.format, "torch")))
		return 0;
	tag = advice_tag_in(r->verb.args, sources->list[0]);
	if (tag)
		return cli_try(&cmd_reshard, advice_call(r->verb.args, tag, NULL, NULL),
			       "%s: weights without training state; the step beside them has it",
			       info.why[0] ? info.why : out_name(sources->list[0]));
	return cli_try(&cmd_reshard, shard_call(r, "dtype bf16"), "%s has weights and no training "
		       "state (%s); 'shard' makes step 0 of a run from weights",
		       out_name(sources->list[0]), info.format);
}

static void say_notes(const struct reshard *r)
{
	const uint64_t n = out_findings_named(r->verb.ck, "CARRIED");

	if (n)
		cli_say("  %" PRIu64 " file%s of the tag folder %s not part of the step; %s copied "
			"unchanged", n, n == 1 ? "" : "s", n == 1 ? "is" : "are",
			n == 1 ? "it is" : "they are");
	if (out_findings_named(r->verb.ck, "STATE_EMPTY"))
		cli_say("note: the source has no optimizer states (moments), and so has "
			"the result");
	cli_form_note(want.to, want.torch, r->verb.dst);
}

static void print(const struct verb *verb)
{
	const struct reshard *r = (const struct reshard *)verb;

	if (verb->args->quiet)
		return;
	if (want.to)
		cli_say("%s %s: %" PRIu64 " file%s, %s",
			verb->args->dry_run ? "would write" : "wrote", out_name(verb->dst),
			r->report.nfiles, out_plural(r->report.nfiles),
			cli_form_name(want.to));
	else
		cli_say("%s %s: %" PRIu64 " file%s for %" PRIu32 " rank%s",
			verb->args->dry_run ? "would write" : "wrote", out_name(verb->dst),
			r->report.nfiles, out_plural(r->report.nfiles), r->opts.world,
			out_plural(r->opts.world));
	say_notes(r);
	report_step_work(verb->args, &r->report);
	batch_say(&r->batch);
	report_step_part(verb->args, r->opts.nparts, verb->dst);
}

static void print_json(const struct verb *verb, int status)
{
	const struct reshard *r = (const struct reshard *)verb;
	struct json json;

	report_step_begin(&json, "reshard", status, verb->dst, r->opts.world, &verb->err);
	if (!status) {
		json_uint(&json, "files", r->report.nfiles);
		report_step_json(&json, &r->report);
		batch_json(&r->batch, &json);
		team_json(&json);
	}
	json_close(&json, '}');
}

static int call(struct verb *verb)
{
	struct reshard *r = (struct reshard *)verb;
	const int rc = ckpt_reshard(verb->ck, verb->dst, &r->opts, &r->report, &verb->err);

	batch_read(&r->batch, verb->ck, r->opts.world);
	return rc;
}

/*
 * A killed run that put its result beside its source may have changed the 'latest' by which the
 * source is found: then the same call finds the result.  A source that is a step in the
 * destination stays what it is, and the run itself finds that it was done.
 */
static int settle(struct reshard *r)
{
	const struct args *args = r->verb.args;
	struct progress progress;

	if (args->tag || args->dry_run || args->restart ||
	    !cli_is_in_source(r->verb.dst, &r->verb.sources))
		return 0;
	cli_run_opts(args, &progress, &r->verb.run);
	return ckpt_settle(r->verb.dst, r->verb.run.sync, &r->settled, &r->verb.err) ?
	       cli_fail(NULL, NULL, &r->verb.err) : 0;
}

static int is_settled(const struct reshard *r)
{
	struct ckpt_info info;

	ckpt_info_get(r->verb.ck, &info);
	return r->settled && want.new_tag && !strcmp(info.tag, want.new_tag) &&
	       info.world == r->opts.world;
}

static int run(struct args *args)
{
	struct reshard r = { .verb = {
		.args = args, .call = call, .print_json = print_json, .print = print,
		.part = &r.opts.part, .nparts = &r.opts.nparts, .report = &r.report,
	} };
	struct verb *verb = &r.verb;
	int status = parse_options(&r), is_wrong = 0;

	if (!status && !team_rank())
		status = settle(&r);
	status = team_start(args, status, verb->dst);
	if (status)
		return status;
	args->keep_values = 1;
	status = cli_open(args, NULL, &verb->sources, &verb->ck, &verb->err);
	status = team_opened(args, status, verb->ck, verb->dst, &verb->err);
	if (!status && team_first(is_settled(&r))) {
		cli_say("an interrupted run had already written this step; its commit is "
			"finished now");
		batch_read(&r.batch, verb->ck, r.opts.world);
	} else if (!status) {
		status = check_source(&r);
		status = status ? status : check_world(&r);
		is_wrong = status != 0;
		status = status ? status : verb_call(verb);
		status = team_finish(args, status, verb->dst, &r.report, &verb->err);
	}
	if (!is_wrong)		/* else it was said, with its JSON */
		verb_print(verb, status);
	ckpt_report_free(&r.report);
	ckpt_close(verb->ck);
	return status;
}

const struct command cmd_reshard = {
	.name = "reshard",
	.run = run,
	.ranks = RANKS_SHARE,
	.gist = "rewrite a step for another number of ranks or ZeRO stage",
	.synopsis = "'N->M' SRC... DST",
	.about = "Writes the training state of a step for M ranks: a folder DST with 'latest' and "
		 "the step, which stock DeepSpeed resumes at M ranks without a flag. Weights, "
		 "masters and optimizer states are kept bit for bit. Quote 'N->M', or write N:M. "
		 "SRC is a step of DeepSpeed or FSDP (DCP, rank files), a universal checkpoint, a "
		 "native step or checkpoint-N of transformers' Trainer; --to makes each of them.",
	.examples = "zckpt reshard '8->4' run run-on-4\n"
		    "zckpt reshard --world 4 --stage 3 run run-stage3\n"
		    "zckpt reshard --to universal run run-universal\n"
		    "zckpt reshard --to dcp run run-for-fsdp\n"
		    "zckpt reshard --to fsdp-ranks --world 8 run run-for-verl\n"
		    "zckpt reshard --to trainer run run-for-trainer\n",
	.notes = NULL,
	.tables = { own, opts_source, opts_write, opts_run, opts_talk, NULL },
};
