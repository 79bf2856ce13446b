/* cmd_reshard.c -- `zckpt reshard`: a step for another number of ranks. */
#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli_batch.h"
#include "cli_team.h"
#include "cli_verb.h"

#define MAX_WORLD 4096

static struct {
	const char *stage, *new_tag, *ds_version;
	struct words drop_state;
	uint64_t world, sub_group_size;
	int reset_optimizer, to, round_robin;
} want = { .round_robin = -1 };

static const struct opt own[] = {
	{ "output", 'o', OPT_TEXT, &cli_args.output, "DST",
	  "where to, instead of as the last word", 0 },
	{ "world", 0, OPT_COUNT, &want.world, "M", "ranks of the result, instead of 'N->M'", 0 },
	{ "to", 0, OPT_CHOICE, &want.to, "deepspeed|universal|native",
	  "a step, DeepSpeed's universal form, or the native one (both: any number of ranks)", 0 },
	{ "stage", 0, OPT_TEXT, &want.stage, "0|1|2|3|bf16",
	  "ZeRO stage (default: the source's)", 0 },
	{ "sub-group-size", 0, OPT_COUNT, &want.sub_group_size, "N",
	  "stage 3: as in the configuration that resumes", OPT_RARE },
	{ "round-robin", 0, OPT_FLAG, &want.round_robin, NULL,
	  "lay out by round robin; --no-round-robin: not", OPT_NEGATABLE | OPT_RARE },
	{ "reset-optimizer", 0, OPT_FLAG, &want.reset_optimizer, NULL,
	  "moments become zero, their step 0; weights and masters stay", 0 },
	{ "drop-state", 0, OPT_COMMAS, &want.drop_state, "PATTERN",
	  "leave this optimizer state out, as in max_exp_avg_sq", OPT_RARE },
	{ "ds-version", 0, OPT_TEXT, &want.ds_version, "VERSION",
	  "DeepSpeed that is to load it (default: the one that wrote it)", OPT_RARE },
	{ "new-tag", 0, OPT_TEXT, &want.new_tag, "NAME", "name of the step in DST", 0 },
	{ "force", 0, OPT_FLAG, &cli_args.force, NULL, "replace a step of that name in DST", 0 },
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

/* A number of ranks at '*text', which is stepped over; 0 = there is none. */
static uint64_t ranks_at(const char **text)
{
	uint64_t n = 0;

	while (**text >= '0' && **text <= '9' && n <= MAX_WORLD)
		n = n * 10 + (uint64_t)(*(*text)++ - '0');
	return n;
}

/* "8->4", "8:4", "8to4", "8=>4".  1 if the word is one. */
static int parse_spec(struct reshard *r, const char *word)
{
	static const char *const joins[] = { "->", ":", "to", "=>" };
	const char *p = word;
	uint64_t from = ranks_at(&p), to;

	for (size_t i = 0; from && i < sizeof(joins) / sizeof(joins[0]); i++) {
		const char *q = p;

		if (strncmp(q, joins[i], strlen(joins[i])))
			continue;
		q += strlen(joins[i]);
		to = ranks_at(&q);
		if (!to || *q)
			continue;
		r->from = from;
		r->opts.world = to > UINT32_MAX ? 0 : (uint32_t)to;
		return 1;
	}
	return 0;
}

/* The shell made of 8->4 the word "8-" and sent the output to a file "4". */
static int is_torn_spec(const char *word)
{
	const char *p = word;

	return ranks_at(&p) && !strcmp(p, "-");
}

/* "8 -> 4", "8->0": meant as ranks, as there is no such path. */
static int is_bad_spec(const char *word)
{
	const char *p = word;

	return ranks_at(&p) && access(word, F_OK) && !isalpha((unsigned char)*p);
}

static int parse_words(struct reshard *r)
{
	const struct args *args = r->verb.args;
	size_t n = args->rest.n, first = 0;

	if (n && is_torn_spec(args->rest.list[0]))
		return cli_wrong(&cmd_reshard, "the shell took '>' for itself and made a file of "
				 "the number behind it; quote it: zckpt reshard '%s>M' SRC DST",
				 args->rest.list[0]);
	if (n && parse_spec(r, args->rest.list[0]))
		first = 1;
	if (want.world) {
		if (first && r->opts.world != want.world)
			return cli_wrong(&cmd_reshard, "%s and --world %" PRIu64 " contradict each "
					 "other", args->rest.list[0], want.world);
		r->opts.world = want.world > MAX_WORLD ? 0 : (uint32_t)want.world;
	}
	r->opts.to = want.to;
	if (!first && n && !want.world && !want.to && is_bad_spec(args->rest.list[0]))
		return cli_wrong(&cmd_reshard, "%s is not N->M with 1 to %d ranks and no spaces: "
				 "zckpt reshard '8->4' SRC DST", out_name(args->rest.list[0]),
				 MAX_WORLD);
	if (!first && !want.world && !want.to)
		return cli_wrong(&cmd_reshard, "to how many ranks? zckpt reshard '8->4' SRC DST");
	if ((first || want.world) && (!r->opts.world || r->opts.world > MAX_WORLD))
		return cli_wrong(&cmd_reshard, "1 to %d ranks are possible", MAX_WORLD);
	r->verb.dst = args->output;
	if (!r->verb.dst && n > first)
		r->verb.dst = args->rest.list[--n];
	for (size_t i = first; i < n; i++)
		words_add(&r->verb.sources, args->rest.list[i]);
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
		return cli_wrong(&cmd_reshard, "--stage %s is none of 0, 1, 2, 3, bf16",
				 out_name(s));
	return 0;
}

/* The native form has no stage, so these would be passed over. */
static int check_native(void)
{
	const char *name = want.stage ? "--stage" : want.sub_group_size ? "--sub-group-size" :
			   want.round_robin >= 0 ? "--round-robin" :
			   want.ds_version ? "--ds-version" : NULL;

	if (want.to != CKPT_TO_NATIVE || !name)
		return 0;
	return cli_wrong(&cmd_reshard, "%s is about a layout of DeepSpeed, which a native step has "
			 "none of; say it when a step is made of it", name);
}

static int parse_options(struct reshard *r)
{
	const struct args *args = r->verb.args;
	const char *why;
	int status = parse_words(r);

	if (!status)
		status = parse_stage(r);
	if (!status)
		status = check_native();
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
	r->opts.tag = want.new_tag;
	r->opts.ds_version = want.ds_version;
	r->opts.drop_states = want.drop_state.n ? want.drop_state.list : NULL;
	r->opts.flags = cli_write_flags(args) |
			(want.reset_optimizer ? CKPT_RESHARD_RESET : 0);
	return 0;
}

/* The world that was stated must be the one that wrote the step. */
static int check_world(struct reshard *r)
{
	struct ckpt_info info;

	ckpt_info_get(r->verb.ck, &info);
	if (!r->verb.args->quiet && info.tag[0])
		cli_say("step %s: %s", out_name(info.tag), info.why);
	if (!r->opts.world)
		r->opts.world = info.world;
	if (!r->from || !info.world || r->from == info.world)
		return 0;
	cli_say("%s: %" PRIu32 " rank%s wrote this step, not %" PRIu64
		": '%" PRIu32 "->%" PRIu32 "', or --world %" PRIu32 " in its place",
		out_name(info.path), info.world, out_plural(info.world), r->from, info.world,
		r->opts.world, r->opts.world);
	return EXIT_CALL;
}

static void say_carried(const struct reshard *r)
{
	struct ckpt_finding f;
	uint64_t n = 0;

	for (uint64_t i = 0; !ckpt_finding_get(r->verb.ck, i, &f, NULL); i++)
		n += !strcmp(f.id, "CARRIED");
	if (n)
		cli_say("  %" PRIu64 " file%s of the tag folder %s no part of the step and %s "
			"along as %s", n, n == 1 ? "" : "s", n == 1 ? "is" : "are",
			n == 1 ? "goes" : "go", n == 1 ? "it is" : "they are");
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
			want.to == CKPT_TO_NATIVE ? "native" : "universal");
	else
		cli_say("%s %s: %" PRIu64 " file%s for %" PRIu32 " rank%s",
			verb->args->dry_run ? "would write" : "wrote", out_name(verb->dst),
			r->report.nfiles, out_plural(r->report.nfiles), r->opts.world,
			out_plural(r->opts.world));
	say_carried(r);
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
	int status = parse_options(&r);

	if (!status && !team_rank())
		status = settle(&r);
	status = team_start(args, status, verb->dst);
	if (status)
		return status;
	args->keep_values = 1;
	status = cli_open(args, NULL, &verb->sources, &verb->ck, &verb->err);
	status = team_opened(args, status, verb->ck, verb->dst, &verb->err);
	if (!status && team_first(is_settled(&r))) {
		cli_say("a run that was killed had made this step; the rest of it is done");
		batch_read(&r.batch, verb->ck, r.opts.world);
	} else if (!status) {
		status = check_world(&r);
		status = status ? status : verb_call(verb);
		status = team_finish(args, status, verb->dst, &r.report, &verb->err);
	}
	verb_print(verb, status);
	ckpt_report_free(&r.report);
	ckpt_close(verb->ck);
	return status;
}

const struct command cmd_reshard = {
	.name = "reshard",
	.run = run,
	.ranks = RANKS_SHARE,
	.gist = "training state for another number of ranks or stage",
	.synopsis = "'N->M' SRC... DST",
	.about = "Writes the training state of a DeepSpeed step for M ranks: a folder DST with "
		 "'latest' and the step, which stock DeepSpeed resumes at M ranks without a flag. "
		 "Weights, masters and optimizer states are kept bit for bit. Quote 'N->M', or "
		 "write N:M. SRC may be a universal checkpoint or a native step; --to makes one.",
	.examples = "zckpt reshard '8->4' run run-on-4\n"
		    "zckpt reshard --world 4 --stage 3 run run-stage3\n"
		    "zckpt reshard --to universal run run-universal\n",
	.notes = NULL,
	.tables = { own, opts_source, opts_write, opts_run, opts_talk, NULL },
};
