/* cmd_prune.c -- `zckpt prune`: which steps of a run stay. */
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "cli_steps.h"
#include "cli_verb.h"

static struct {
	struct words keep;
	uint64_t keep_last, keep_every, moments_last;
	int apply, link, full;
} want;

static const struct opt own[] = {
	{ "keep-last", 0, OPT_COUNT, &want.keep_last, "N", "keep the newest N complete steps", 0 },
	{ "keep-every", 0, OPT_COUNT, &want.keep_every, "K",
	  "keep steps whose number is a multiple of K", 0 },
	{ "keep", 0, OPT_WORDS, &want.keep, "NAME", "keep this step as it is", 0 },
	{ "moments-last", 0, OPT_COUNT, &want.moments_last, "M",
	  "of the kept steps, only the newest M keep their moments", 0 },
	{ "link", 0, OPT_CHOICE, &want.link, "no|hard|reflink",
	  "link files that are the same in neighbouring steps", OPT_RARE },
	{ "apply", 0, OPT_FLAG, &want.apply, NULL, "do it; without this, only show it", 0 },
	{ "full", 0, OPT_FLAG, &want.full, NULL,
	  "read every byte of the newest step first", 0 },
	{ "sync", 0, OPT_CHOICE, &cli_args.sync, "data|full|none",
	  "what to sync before removing anything", OPT_RARE },
	{ 0 },
};

struct prune {
	struct verb verb;
	struct ckpt_pruned done;
};

static const char *what_name(enum ckpt_prune_what what)
{
	return what == CKPT_PRUNE_KEEP ? "keep" : what == CKPT_PRUNE_SLIM ? "slim" : "remove";
}

/* "?" of a layout that zckpt does not read. */
static const char *whole_word(const char *dir, const struct ckpt_pruned_step *s)
{
	struct step step = { .path = cli_format("%s/%s", dir, s->name) };
	const char *word;

	if (s->whole)
		return "yes";
	step_look(&cli_args, &step);
	word = step.unread ? "?" : "NO";
	step_release(&step);
	return word;
}

static void print_table(const struct ckpt_pruned *p, const char *dir)
{
	struct table table = { .align = "rrrllll" };

	if (p->nsteps)
		table_add(&table, (const char *const[]){ "STEP", "SIZE", "FREES", "COMPLETE",
							 "WHAT", "NAME", "WHY" });
	for (uint64_t i = 0; i < p->nsteps; i++) {
		const struct ckpt_pruned_step *s = &p->step[i];
		char number[24] = "-";
		char *freed = cli_strdup(s->freed ? out_size(s->freed) : "-");

		if (s->step >= 0)
			snprintf(number, sizeof(number), "%" PRId64, s->step);
		table_add(&table, (const char *const[]){ number, out_size(s->bytes), freed,
							 whole_word(dir, s),
							 what_name(s->what), out_name(s->name),
							 out_name(s->why) });
		cli_free(freed);
	}
	table_print(&table, stdout, "");
}

/* Without moments a step is a copy, for which there must be room before the old one goes. */
static void print_copies(const struct ckpt_pruned *p)
{
	char *all = cli_strdup(out_size(p->copied_bytes));
	char *one = p->nslimmed == 1 ? cli_strdup("") :
		    cli_format(", at most %s before a step goes", out_size(p->copy_bytes));
	char *room = p->free_bytes ? cli_format("; %s are free there", out_size(p->free_bytes)) :
				     cli_strdup("");

	cli_say("would write %s%s%s", all, one, room);
	cli_free(room);
	cli_free(one);
	cli_free(all);
}

/* "would remove 2 of 5 steps and free 3.2 GB of 8.1 GB; --apply does it" */
static void print_done(const struct ckpt_pruned *p, const char *freed)
{
	char *slim = p->nslimmed ? cli_format("%s%s %" PRIu64, p->nremoved ? " and " : "",
					      want.apply ? "slimmed" : "slim", p->nslimmed) :
				   cli_strdup("");
	char *gone = p->nremoved ? cli_format("%s %" PRIu64, want.apply ? "removed" : "remove",
					      p->nremoved) : cli_strdup("");

	if (p->nslimmed + p->nremoved)
		cli_say("%s%s%s of %" PRIu64 " step%s%s %s of %s%s", want.apply ? "" : "would ",
			gone, slim, p->nsteps, out_plural(p->nsteps),
			want.apply ? ", freed" : " and free", freed, out_size(p->bytes),
			want.apply ? "" : "; --apply does it");
	else
		cli_say("nothing %s: all steps stay", want.apply ? "removed" : "to remove");
	cli_free(gone);
	cli_free(slim);
}

static void print_sum(const struct ckpt_pruned *p)
{
	const char *would = want.apply ? "" : "would be ";
	char *freed = cli_strdup(out_size(p->freed));

	if (p->nleft)
		cli_say("%" PRIu64 " folder%s of an interrupted prune %sfinished%s", p->nleft,
			p->nleft == 1 ? "" : "s", would, want.apply ? "" : " first");
	print_done(p, freed);
	if (!want.apply && p->copied_bytes)
		print_copies(p);
	if (want.link)
		cli_say("%s %" PRIu64 " file%s (%s) to the same files of the step before",
			want.apply ? "linked" : "would link", p->linked, out_plural(p->linked),
			out_size(p->linked_bytes));
	cli_free(freed);
}

/* Nothing to prune: something else is wrong there. */
static void say_none(const struct verb *verb)
{
	if (verb->answer == EXIT_NO)
		cli_say(((const struct prune *)verb)->done.nsteps ?
			"%s has no step that is known to be complete; nothing is removed" :
			"there is no step in %s", out_name(verb->dst));
}

static void print(const struct verb *verb)
{
	const struct ckpt_pruned *p = &((const struct prune *)verb)->done;

	say_none(verb);		/* the answer first */
	if (!verb->args->quiet && p->nsteps)
		print_sum(p);
	print_table(p, verb->dst);
}

static void print_json(const struct verb *verb, int status)
{
	const struct ckpt_pruned *p = &((const struct prune *)verb)->done;
	struct json json;

	say_none(verb);
	json_begin(&json, stdout, "prune");
	json_bool(&json, "ok", !status);
	json_int(&json, "exit", status);
	json_text(&json, "dir", verb->dst);
	if (verb->err.code) {
		json_error(&json, &verb->err);
		json_close(&json, '}');
		return;
	}
	json_bool(&json, "applied", want.apply);
	json_uint(&json, "kept", p->nkept);
	json_uint(&json, "slimmed", p->nslimmed);
	json_uint(&json, "removed", p->nremoved);
	json_uint(&json, "bytes", p->bytes);
	json_uint(&json, "freed", p->freed);
	json_uint(&json, "written_bytes", p->copied_bytes);
	json_uint(&json, "written_at_once_bytes", p->copy_bytes);
	report_json_dry(&json, 0, p->free_bytes);
	json_uint(&json, "settled", p->nleft);
	json_uint(&json, "linked", p->linked);
	json_uint(&json, "linked_bytes", p->linked_bytes);
	json_open(&json, "steps", '[');
	for (uint64_t i = 0; i < p->nsteps; i++) {
		json_open(&json, NULL, '{');
		json_text(&json, "name", p->step[i].name);
		json_known(&json, "step", p->step[i].step);
		json_bool(&json, "whole", p->step[i].whole);
		json_uint(&json, "bytes", p->step[i].bytes);
		json_uint(&json, "freed", p->step[i].freed);
		json_text(&json, "what", what_name(p->step[i].what));
		json_text(&json, "why", p->step[i].why);
		json_close(&json, '}');
	}
	json_close(&json, ']');
	json_close(&json, '}');
}

static int is_below(const char *dir, const char *name)
{
	char *path = cli_format("%s/%s", dir, name);
	struct stat st;
	const int yes = !stat(path, &st);

	cli_free(path);
	return yes;
}

static int check_words(const struct args *args)
{
	if (args->rest.n != 1)
		return cli_wrong(&cmd_prune, "prune needs one folder");
	for (size_t i = 0; i < want.keep.n; i++) {
		const char *name = want.keep.list[i];

		if (*name && !name[strspn(name, "0123456789")] &&
		    !is_below(args->rest.list[0], name))
			return cli_wrong(&cmd_prune, "--keep takes the name of a step; to keep the "
					 "newest %s: --keep-last %s", name, name);
		/* "checkpoint-4/global_step4", as ls prints it */
		want.keep.list[i] = cli_format("%.*s", (int)strcspn(name, "/"), name);
	}
	if (!want.keep_last && !want.keep_every && !want.keep.n && !want.moments_last &&
	    !want.link)
		return cli_try(&cmd_prune, cli_format("zckpt prune --keep-last 3 %s",
						      out_word(args->rest.list[0])),
			       "prune needs a rule; without --apply it shows what it would remove");
	return 0;
}

static int call(struct verb *verb)
{
	const struct args *args = verb->args;
	struct ckpt_pruned *p = &((struct prune *)verb)->done;
	const struct ckpt_prune_opts opts = {
		.size = sizeof(opts), .run = &verb->run,
		.limits = args->limits.size ? &args->limits : NULL,
		.keep_last = want.keep_last, .keep_every = want.keep_every,
		.keep = want.keep.n ? want.keep.list : NULL,
		.moments_last = want.moments_last,
		.flags = (want.apply ? CKPT_PRUNE_APPLY : 0) | (want.full ? CKPT_PRUNE_FULL : 0) |
			 (want.link == 1 ? CKPT_PRUNE_LINK :
			  want.link == 2 ? CKPT_PRUNE_REFLINK : 0),
	};
	const int rc = ckpt_prune(verb->dst, &opts, p, &verb->err);

	verb->answer = rc ? EXIT_DONE : EXIT_NO;
	for (uint64_t i = 0; i < p->nsteps; i++)
		if (p->step[i].whole)
			verb->answer = EXIT_DONE;
	return rc;
}

static int run(struct args *args)
{
	struct prune prune = { .verb = {
		.args = args, .dst = args->rest.n ? args->rest.list[0] : NULL, .sigpipe = 1,
		.call = call, .print_json = print_json, .print = print,
	} };
	const int status = verb_run(&prune.verb, check_words(args));

	ckpt_pruned_free(&prune.done);
	return status;
}

static const struct opt opening[] = {
	{ "threads", 'j', OPT_COUNT, &cli_args.threads, "N",
	  "threads (default: CPUs, within a limit)", OPT_RARE },
	OPT_LIMITS,
	{ 0 },
};

const struct command cmd_prune = {
	.name = "prune",
	.run = run,
	.gist = "delete old steps of a run (without --apply: a preview)",
	.synopsis = "RULE... RUN",
	.about = "Shows which steps in the folder RUN would stay, lose their moments or be "
		 "removed, and why; --apply does it. A step stays if one --keep rule keeps it. "
		 "The newest complete step, newer ones, the one that 'latest' names, one that is "
		 "being written, a Trainer's best and the target of a link always stay.",
	.examples = "zckpt prune --keep-last 2 run\n"
		    "zckpt prune --keep-last 2 --apply run\n",
	.notes = "Exit 1 if there is no step, or none is complete.",
	.tables = { own, opening, opts_run, opts_talk, NULL },
};
