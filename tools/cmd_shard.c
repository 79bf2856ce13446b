/* cmd_shard.c -- `zckpt shard`: weights to a ZeRO step, or a checkpoint of Megatron-Core. */
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli_lora.h"
#include "cli_team.h"
#include "cli_verb.h"

#define MAX_WORLD 4096
#define MAX_DIVISOR 1048576

static struct {
	const char *stage, *new_tag, *ds_version, *ds_config, *config, *order, *dtype;
	const char *lr, *first_lr, *betas, *eps, *weight_decay;
	struct words frozen, buffer;
	uint64_t world, sub_group_size, tp, vocab_divisor;
	int round_robin, groups, to, with_states;
} want = { .round_robin = -1, .world = OPT_UNSET, .tp = OPT_UNSET, .vocab_divisor = OPT_UNSET };

#define MEGATRON CKPT_SHARD_MEGATRON

static const struct opt own[] = {
	{ "output", 'o', OPT_TEXT, &cli_args.output, "DST",
	  "destination, instead of the last word", 0 },
	{ "world", 'n', OPT_COUNT, &want.world, "M", "ranks of the result (or --gpus M)", 0 },
	{ "gpus", 0, OPT_COUNT, &want.world, "M", "", OPT_HIDDEN },
	{ "world-size", 0, OPT_COUNT, &want.world, "M", "", OPT_HIDDEN },
	{ "num-gpus", 0, OPT_COUNT, &want.world, "M", "", OPT_HIDDEN },
	{ "to", 0, OPT_CHOICE, &want.to, "deepspeed|megatron",
	  "form of the result: a ZeRO step, or weights as Megatron-Core loads them at any tensor, "
	  "pipeline and expert parallel size (default deepspeed)", 0 },
	{ "stage", 0, OPT_TEXT, &want.stage, "1|2|3|bf16", "ZeRO stage", 0 },
	{ "ds-config", 0, OPT_TEXT, &want.ds_config, "FILE",
	  "DeepSpeed configuration, for options that are not given", 0 },
	{ "lr", 0, OPT_TEXT, &want.lr, "X", "learning rate", 0 },
	{ "first-lr", 0, OPT_TEXT, &want.first_lr, "X",
	  "learning rate of the first step, if a scheduler warms up", OPT_RARE },
	{ "betas", 0, OPT_TEXT, &want.betas, "X,Y", "betas of Adam (default 0.9,0.999)", OPT_RARE },
	{ "eps", 0, OPT_TEXT, &want.eps, "X", "epsilon of Adam (default 1e-8)", OPT_RARE },
	{ "weight-decay", 0, OPT_TEXT, &want.weight_decay, "X", "weight decay of AdamW (default "
		"0)", OPT_RARE },
	{ "groups", 0, OPT_CHOICE, &want.groups, "one|decay",
	  "decay: put biases and norms in a second param group without decay", OPT_RARE },
	{ "dtype", 0, OPT_TEXT, &want.dtype, "bf16|fp16|fp32", "type to train in", 0 },
	{ "frozen", 0, OPT_COMMAS, &want.frozen, "PATTERN",
	  "parameters that are not trained", OPT_RARE },
	{ "buffer", 0, OPT_COMMAS, &want.buffer, "PATTERN",
	  "tensors that are not parameters", OPT_RARE },
	{ "order", 0, OPT_TEXT, &want.order, "FILE",
	  "list of the parameters in the model's order, if zckpt does not know it", OPT_RARE },
	{ "config", 0, OPT_TEXT, &want.config, "FILE",
	  "config.json, if it is not beside the weights", 0 },
	{ "tp", 0, OPT_COUNT, &want.tp, "N",
	  "--to megatron: tensor parallel size that the vocabulary is padded for (default 1)",
	  OPT_RARE },
	{ "vocab-divisible", 0, OPT_COUNT, &want.vocab_divisor, "N",
	  "--to megatron: make_vocab_size_divisible_by of the run (default 128)", OPT_RARE },
	{ "sub-group-size", 0, OPT_COUNT, &want.sub_group_size, "N",
	  "stage 3: as in the configuration that will resume", OPT_RARE },
	{ "round-robin", 0, OPT_FLAG, &want.round_robin, NULL,
	  "assign parameters round robin; --no-round-robin: in order", OPT_NEGATABLE | OPT_RARE },
	{ "ds-version", 0, OPT_TEXT, &want.ds_version, "VERSION",
	  "DeepSpeed version that will load it (default 0.19.8)", OPT_RARE },
	{ "with-states", 0, OPT_FLAG, &want.with_states, NULL,
	  "of a torch file with model and optimizer: keep its moments, rates and step (as reshard "
	  "does, which has the options of the call then)", 0 },
	{ "new-tag", 0, OPT_TEXT, &want.new_tag, "NAME",
	  "name of the step in DST (default global_step0)", OPT_RARE },
	{ "force", 'f', OPT_FLAG, &cli_args.force, NULL, "replace an existing DST", 0 },
	{ 0 },
};

extern const struct command cmd_shard;

struct shard {
	struct verb verb;
	struct ckpt_shard_opts opts;
	struct ckpt_report report;
	char *meant;	/* the call that would do */
};

/* NaN where nothing is said; 0, or EXIT_CALL. */
static int parse_number(const char *option, const char *text, double least, double *out)
{
	char *end;

	*out = NAN;
	if (!text)
		return 0;
	*out = strtod(text, &end);
	if (!*text || *end || !isfinite(*out) || *out < least)
		return cli_wrong(&cmd_shard, "--%s: %s is not a number of %g or more", option,
				 out_name(text), least);
	return 0;
}

static int parse_betas(struct shard *s)
{
	const char *text = want.betas, *comma = text ? strchr(text, ',') : NULL;
	char *first;
	int status;

	s->opts.beta1 = s->opts.beta2 = NAN;
	if (!text)
		return 0;
	if (!comma)
		return cli_wrong(&cmd_shard, "--betas: %s is not two numbers, as in 0.9,0.95",
				 out_name(text));
	first = cli_strdup(text);
	first[comma - text] = '\0';
	status = parse_number("betas", first, 0, &s->opts.beta1);
	if (!status)
		status = parse_number("betas", comma + 1, 0, &s->opts.beta2);
	cli_free(first);
	if (!status && (s->opts.beta1 >= 1 || s->opts.beta2 >= 1))
		return cli_wrong(&cmd_shard, "--betas %s: both numbers must be below 1",
				 out_name(text));
	return status;
}

static int parse_numbers(struct shard *s)
{
	int status = parse_number("lr", want.lr, 0, &s->opts.lr);

	if (!status)
		status = parse_number("first-lr", want.first_lr, 0, &s->opts.first_lr);
	if (!status)
		status = parse_number("weight-decay", want.weight_decay, 0,
				      &s->opts.weight_decay);
	if (!status)
		status = parse_number("eps", want.eps, 0, &s->opts.eps);
	return status ? status : parse_betas(s);
}

static int parse_stage(struct shard *s)
{
	const char *text = want.stage;

	s->opts.stage = -1;
	if (!text)
		return 0;
	if (!strcmp(text, "bf16"))
		s->opts.stage = 4;
	else if (text[0] >= '1' && text[0] <= '3' && !text[1])
		s->opts.stage = text[0] - '0';
	else
		return cli_wrong(&cmd_shard, "--stage %s: must be 1, 2, 3 or bf16%s",
				 out_name(text), strcmp(text, "0") ? "" :
				 "; without ZeRO a run starts from the weights as they are");
	return 0;
}

/* An option that the form has no use for would be lost without a word. */
static int check_options_of_form(void)
{
	const struct {
		const char *name;
		bool is_given, is_megatrons;
	} all[] = {
		{ "world", want.world != OPT_UNSET, false }, { "stage", want.stage, false },
		{ "ds-config", want.ds_config, false }, { "lr", want.lr, false },
		{ "first-lr", want.first_lr, false }, { "betas", want.betas, false },
		{ "eps", want.eps, false }, { "weight-decay", want.weight_decay, false },
		{ "groups", want.groups, false }, { "frozen", want.frozen.n, false },
		{ "order", want.order, false }, { "sub-group-size", want.sub_group_size, false },
		{ "round-robin", want.round_robin >= 0, false },
		{ "ds-version", want.ds_version, false }, { "new-tag", want.new_tag, false },
		{ "tp", want.tp != OPT_UNSET, true },
		{ "vocab-divisible", want.vocab_divisor != OPT_UNSET, true },
	};
	const bool megatron = want.to == MEGATRON;

	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
		if (all[i].is_given && all[i].is_megatrons != megatron)
			return cli_wrong(&cmd_shard, "--%s is of %s%s", all[i].name, megatron ?
					 "a ZeRO step; --to megatron writes weights alone, for "
					 "any number of ranks" : "--to megatron, and this is ",
					 megatron ? "" : "--to deepspeed");
	if (want.tp != OPT_UNSET && (!want.tp || want.tp > MAX_WORLD))
		return cli_wrong(&cmd_shard, "--tp %" PRIu64 ": must be 1 to %d", want.tp,
				 MAX_WORLD);
	if (want.vocab_divisor != OPT_UNSET &&
	    (!want.vocab_divisor || want.vocab_divisor > MAX_DIVISOR))
		return cli_wrong(&cmd_shard, "--vocab-divisible %" PRIu64 ": must be 1 to %d",
				 want.vocab_divisor, MAX_DIVISOR);
	return 0;
}

/* What the call lacks, all at once, and the whole call with an example of each. */
static int check_missing(const struct shard *s)
{
	const char *model = s->verb.sources.n ? out_word(s->verb.sources.list[0]) : "MODEL";
	const char *dst = s->verb.dst ? out_word(s->verb.dst) : "DST";
	const bool megatron = want.to == MEGATRON;
	const int world = !megatron && want.world == OPT_UNSET;
	const int stage = !megatron && !want.stage && !want.ds_config;
	const int lr = !megatron && !want.lr && !want.ds_config;
	const char *lacks[5] = { 0 };
	char *text = cli_strdup(""), *command;
	size_t n = 0;

	if (!s->verb.sources.n || !s->verb.dst)
		lacks[n++] = s->verb.sources.n ? "a destination" : "weights and a destination";
	if (world)
		lacks[n++] = "--world (number of ranks)";
	if (stage)
		lacks[n++] = "--stage (ZeRO stage)";
	if (lr)
		lacks[n++] = "--lr (learning rate)";
	for (size_t i = 0; i < n; i++)
		text = cli_format("%s%s%s", text, !i ? "" : i + 1 < n ? ", " : " and ",
				  lacks[i]);
	if (!n)
		return 0;
	command = megatron ? cli_format("zckpt shard --to megatron %s %s", model, dst) :
		  cli_format("zckpt shard --world %" PRIu64 "%s%s%s%s%s%s %s %s",
			     world ? 8 : want.world,
			     want.stage || stage ? " --stage " : "",
			     want.stage ? out_word(want.stage) : stage ? "2" : "",
			     want.lr || lr ? " --lr " : "",
			     want.lr ? out_word(want.lr) : lr ? "1e-5" : "",
			     want.ds_config ? " --ds-config " : "",
			     want.ds_config ? out_word(want.ds_config) : "", model, dst);
	return cli_try(&cmd_shard, command, "shard needs %s%s", text,
		       stage && lr ? "; --ds-config FILE can give stage and rate" :
		       stage || lr ? "; --ds-config FILE can give it" : "");
}

static int parse_words(struct shard *s)
{
	const struct args *args = s->verb.args;
	size_t n = args->rest.n;

	s->verb.dst = args->output;
	if (!s->verb.dst && n > 1)
		s->verb.dst = args->rest.list[--n];
	for (size_t i = 0; i < n; i++)
		words_add(&s->verb.sources, args->rest.list[i]);
	if (s->verb.sources.n > 1)
		return cli_wrong(&cmd_shard, "one model and one destination are needed, not %zu "
				 "paths", s->verb.sources.n + 1);
	if (want.world != OPT_UNSET && (!want.world || want.world > MAX_WORLD))
		return cli_wrong(&cmd_shard, "--world %" PRIu64 ": a step has 1 to %d ranks",
				 want.world, MAX_WORLD);
	s->opts.world = want.to == MEGATRON ? 0 : (uint32_t)want.world;
	return check_missing(s);
}

static int parse_dtype(struct shard *s)
{
	const char *text = want.dtype;

	s->opts.dtype = text ? ckpt_dtype_parse(text) : 0;
	if (text && s->opts.dtype != CKPT_BF16 && s->opts.dtype != CKPT_F16 &&
	    s->opts.dtype != CKPT_F32)
		return cli_wrong(&cmd_shard, "--dtype %s: must be bf16, fp16 or fp32",
				 out_name(text));
	return 0;
}

/* What names the tensors of a run of Megatron-Core orders them as well. */
static const char *config_of(const struct args *args)
{
	struct stat st;

	if (want.config || !args->model_config)
		return want.config;
	return !stat(args->model_config, &st) && S_ISDIR(st.st_mode) ?
	       cli_format("%s/config.json", args->model_config) : args->model_config;
}

static void set_opts(struct shard *s)
{
	const struct args *args = s->verb.args;

	s->opts.size = sizeof(s->opts);
	s->opts.run = &s->verb.run;
	s->opts.round_robin = want.round_robin;
	s->opts.sub_group_size = want.sub_group_size;
	s->opts.tag = want.new_tag;
	s->opts.ds_version = want.ds_version;
	s->opts.ds_config_path = want.ds_config;
	s->opts.config_path = config_of(args);
	s->opts.order_path = want.order;
	s->opts.groups = want.groups ? CKPT_GROUPS_DECAY : CKPT_GROUPS_ONE;
	s->opts.frozen = want.frozen.n ? want.frozen.list : NULL;
	s->opts.buffers = want.buffer.n ? want.buffer.list : NULL;
	s->opts.flags = cli_write_flags(args);
	s->opts.to = want.to ? CKPT_SHARD_MEGATRON : CKPT_SHARD_DEEPSPEED;
	s->opts.tp = want.tp == OPT_UNSET ? 0 : (uint32_t)want.tp;
	s->opts.vocab_divisor = want.vocab_divisor == OPT_UNSET ? 0 : want.vocab_divisor;
}

static int parse_options(struct shard *s)
{
	const char *why;
	int status = check_options_of_form();

	if (!status)
		status = parse_words(s);
	if (!status)
		status = parse_stage(s);
	if (!status)
		status = parse_dtype(s);
	if (!status)
		status = parse_numbers(s);
	if (!status)
		status = cli_part(&cmd_shard, s->verb.args, &s->opts.part, &s->opts.nparts);
	if (status)
		return status;
	set_opts(s);
	why = s->verb.args->force ?
	      cli_precious(s->verb.dst, &s->verb.sources,
			   s->verb.args->output || s->verb.sources.n == 1) : NULL;
	return why ? cli_wrong(&cmd_shard, "%s: %s", out_name(s->verb.dst), why) : 0;
}

static void print(const struct verb *verb)
{
	const struct shard *s = (const struct shard *)verb;

	if (verb->args->quiet)
		return;
	if (want.to == MEGATRON)
		cli_say("%s %s: %" PRIu64 " file%s for Megatron-Core, of %" PRIu64 " tensor%s",
			verb->args->dry_run ? "would write" : "wrote", out_name(verb->dst),
			s->report.nfiles, out_plural(s->report.nfiles), s->report.ntensors,
			out_plural(s->report.ntensors));
	else
		cli_say("%s %s: %" PRIu64 " file%s for %" PRIu32 " rank%s, %" PRIu64
			" tensor%s",
			verb->args->dry_run ? "would write" : "wrote", out_name(verb->dst),
			s->report.nfiles, out_plural(s->report.nfiles), s->opts.world,
			out_plural(s->opts.world), s->report.ntensors,
			out_plural(s->report.ntensors));
	report_step_work(verb->args, &s->report);
	report_step_part(verb->args, s->opts.nparts, verb->dst);
}

static void print_json(const struct verb *verb, int status)
{
	const struct shard *s = (const struct shard *)verb;
	struct json json;

	report_step_begin(&json, "shard", status, verb->dst, s->opts.world, &verb->err);
	if (!status) {
		json_uint(&json, "files", s->report.nfiles);
		json_uint(&json, "tensors", s->report.ntensors);
		report_step_json(&json, &s->report);
		team_json(&json);
	}
	json_close(&json, '}');
}

/* The order of parameters is missing: a step needs no 'shard', and an adapter is no whole model. */
static int fail_order(struct shard *s)
{
	const char *src = s->verb.sources.list[0];
	struct ckpt_err err = { .code = CKPT_E_USAGE, .offset = CKPT_NO_OFFSET };
	struct ckpt_info info;

	ckpt_info_get(s->verb.ck, &info);
	snprintf(err.where, sizeof(err.where), "%s", src);
	if (info.world && strcmp(info.format, "megatron") != 0) {	/* of one weights will do */
		s->meant = cli_format("zckpt reshard --world %" PRIu32 "%s%s %s %s", s->opts.world,
				      want.stage ? " --stage " : "",
				      want.stage ? want.stage : "", out_word(src),
				      out_word(s->verb.dst));
		snprintf(err.msg, sizeof(err.msg), "this is a ZeRO step already (%s); reshard "
			 "changes its ranks and stage", info.format);
	} else if (lora_is_adapter(src)) {
		snprintf(err.msg, sizeof(err.msg), "these are weights of an adapter, not of a "
			 "whole model; merge it first: zckpt convert --merge-lora BASE %s DST "
			 "(docs/guide/lora.md)", out_word(src));
	} else {
		return -s->verb.err.code;
	}
	s->verb.err = err;
	return -err.code;
}

/* Tensors of a run of Megatron-Core need the names of transformers: config.json gives them. */
static char *call_with_names(const struct shard *s)
{
	struct ckpt_info info;

	ckpt_info_get(s->verb.ck, &info);
	if (strcmp(info.format, "megatron") || s->verb.args->model_config || want.to == MEGATRON)
		return NULL;
	return cli_format("zckpt shard --world %" PRIu32 "%s%s%s%s%s%s --model-config %s %s %s",
			  s->opts.world, want.stage ? " --stage " : "",
			  want.stage ? out_word(want.stage) : "", want.lr ? " --lr " : "",
			  want.lr ? out_word(want.lr) : "",
			  want.ds_config ? " --ds-config " : "",
			  want.ds_config ? out_word(want.ds_config) : "",
			  want.config ? out_word(want.config) : "CONFIG_JSON",
			  out_word(s->verb.sources.list[0]), out_word(s->verb.dst));
}

static int call(struct verb *verb)
{
	struct shard *s = (struct shard *)verb;
	const int rc = ckpt_shard(verb->ck, verb->dst, &s->opts, &s->report, &verb->err);

	if (rc && (strstr(verb->err.msg, "no parameter of this name") ||
		   strstr(verb->err.msg, "order of the model's parameters")))
		s->meant = call_with_names(s);
	return rc == -CKPT_E_NOTFOUND && !want.config && !want.order && want.to != MEGATRON ?
	       fail_order(s) : rc;
}

static int run(struct args *args)
{
	struct shard s = { .verb = {
		.args = args, .call = call, .print_json = print_json, .print = print,
		.part = &s.opts.part, .nparts = &s.opts.nparts, .report = &s.report,
	} };
	int status;

	args->writes_names = 1;
	status = verb_run(&s.verb, parse_options(&s));
	if (s.meant && !team_rank())
		cli_say("try: %s", s.meant);
	ckpt_report_free(&s.report);
	ckpt_close(s.verb.ck);
	return status;
}

const struct command cmd_shard = {
	.name = "shard",
	.run = run,
	.ranks = RANKS_SHARE,
	.gist = "make a run's first ZeRO step, or a Megatron-Core checkpoint, from weights",
	.synopsis = "--world M --stage S --lr X MODEL DST",
	.about = "Writes weights (a Hugging Face folder, or a file) as step 0 of a ZeRO run for M "
		 "ranks: masters are the weights, moments are zero. DeepSpeed takes the learning "
		 "rate from the step, so it must be given. With --to megatron it writes the "
		 "weights as a torch_dist checkpoint of Megatron-Core.",
	.examples = "zckpt shard --world 8 --stage 2 --lr 1e-5 --dtype bf16 my-model run-8\n"
		    "zckpt shard --world 8 --lr 1e-5 --ds-config ds.json my-model run-ds\n"
		    "zckpt shard --to megatron --tp 8 my-model run-mg\n",
	.notes = NULL,
	.tables = { own, opts_source, opts_write, opts_run, opts_talk, NULL },
};
