/*
 * cli_failed.c -- the last line after a failure: the call that was typed, with what makes it work.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli_advice.h"
#include "cli_explain.h"
#include "cli_steps.h"

static int same_file(const char *a, const char *b)
{
	struct stat x, y;

	return !stat(a, &x) && !stat(b, &y) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static int is_file(const char *path)
{
	struct stat st;

	return !stat(path, &st) && S_ISREG(st.st_mode);
}

/* The name of the finding that the message begins with, or "". */
static int begins_with(const struct ckpt_err *err, const char *id)
{
	const size_t n = strlen(id);

	return !strncmp(err->msg, id, n) && err->msg[n] == ':';
}

static int is_damage(const struct ckpt_err *err)
{
	return err->code == CKPT_E_CORRUPT || err->code == CKPT_E_INCOMPLETE ||
	       err->code == CKPT_E_TRUNCATED || err->code == CKPT_E_MISMATCH ||
	       begins_with(err, "FILE_DAMAGED") || begins_with(err, "LATEST_LIES");
}

/* Parts of a run, not of a checkpoint, are something else. */
static int is_rest_elsewhere(const struct ckpt_err *err)
{
	return !advice_ends_save(err->where) &&
	       (begins_with(err, "RANK_FILE_MISSING") || begins_with(err, "MODEL_FILE_MISSING") ||
		begins_with(err, "STATE_FILE_MISSING"));
}

static int is_pointer_text(const struct ckpt_err *err)
{
	return strstr(err->msg, "a git-lfs pointer") != NULL;
}

/* Which of the paths given it is about: diff opens two. */
static const char *source_of(const struct args *args, const struct ckpt_err *err)
{
	for (size_t i = 0; i < args->rest.n; i++) {
		const size_t n = strlen(args->rest.list[i]);

		if (n && !strncmp(err->where, args->rest.list[i], n) &&
		    (args->rest.list[i][n - 1] == '/' || !err->where[n] || err->where[n] == '/'))
			return args->rest.list[i];
	}
	return args->sources.list[0];
}

static void say_rest(const struct args *args, const struct ckpt_err *err)
{
	const char *src = source_of(args, err);
	const char *rest = args->sources.n == 1 ? advice_rest(args, src) : "OTHER_FOLDER";
	char *call = advice_takes_folders(args) ? advice_call(args, NULL, NULL, rest) :
		     cli_format("zckpt convert %s %s model.safetensors", out_word(src),
				out_word(rest));

	cli_say("hint: if the files are on another machine, give its folder too: %s", call);
	cli_free(call);
}

/* Who may read it: its owner can change that. */
static void say_permission(const char *path)
{
	struct stat st;

	if (stat(path, &st) || !access(path, R_OK))
		return;		/* it is the folder that may not be written to */
	if (st.st_uid != geteuid())
		cli_say("hint: ask its owner for read access (it belongs to user %u)",
			(unsigned)st.st_uid);
	else
		cli_say("hint: chmod -R u+rX %s", out_word(path));
}

static void say_other_place(const struct args *args)
{
	char *text = args->sources.n == 1 ? advice_place(args, args->sources.list[0]) : NULL;

	if (text)
		cli_say("hint: %s", text);
	else
		cli_say("hint: zckpt reads folders of DeepSpeed, FSDP and Hugging Face, "
			".safetensors and torch's .pt");
	cli_free(text);
}

/* Whether its place is a file that was given, or one below a folder that was. */
static int is_of_source(const struct ckpt_err *err)
{
	const char *src = cli_args.sources.n ? cli_args.sources.list[0] : NULL;
	const size_t n = src ? strlen(src) : 0;

	return n && !strncmp(err->where, src, n) && is_file(err->where);
}

/*
 * No command of ours repairs it: a file is copied again, of other findings the page says what to
 * check.  'is_alone': it is no file of a step.
 */
static void say_page(const struct ckpt_err *err, int is_alone)
{
	char *id = cli_format("%.*s", (int)strspn(err->msg, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_"),
			      err->msg);

	if (is_of_source(err) && (begins_with(err, "FILE_DAMAGED") || !explain_find(id)))
		cli_say("hint: copy %s again%s", out_word(err->where), is_alone ? "" :
			"; no other step here is complete");
	else if (explain_find(id))
		cli_say("hint: zckpt explain %s", explain_find(id)->id);
	cli_free(id);
}

static void say_damage(const struct args *args, const struct ckpt *ck, const struct ckpt_err *err)
{
	const char *src = args->sources.n != 1 ? NULL :
			  args->meant ? args->meant : args->sources.list[0];
	struct ckpt_info info = { 0 };
	char *text = NULL;

	if (is_rest_elsewhere(err) && args->sources.n)
		say_rest(args, err);
	if (is_pointer_text(err)) {
		char *dir = advice_parent(err->where);

		cli_say("hint: git -C %s lfs pull", out_word(dir));
		cli_free(dir);
	}
	if (ck)
		ckpt_info_get(ck, &info);
	if (src && strcmp(args->argv[1], "diff"))
		text = advice_complete(args, src, ck ? info.path : NULL);
	if (text)
		cli_say("%s", text);
	else if (!is_rest_elsewhere(err) && (!begins_with(err, "LATEST_LIES") ||
					     !strstr(err->msg, "--tag")))
		say_page(err, !src || is_file(src) || !step_leads_to_one(src));
	cli_free(text);
}

/* What helps against failures of one code, whatever the file is. */
static const char *general(const struct ckpt_err *err)
{
	switch (err->code) {
	case CKPT_E_BUSY:
		return strstr(err->msg, "prunes") ? NULL :
		       "wait for the other process; if it is gone, --restart discards its work";
	case CKPT_E_NOSPACE:
		return cli_args.dry_run || (cli_args.argc > 1 &&
					    (!strcmp(cli_args.argv[1], "report") ||
					     !strcmp(cli_args.argv[1], "cat"))) ?
		       "free space, or write to another disk" :
		       "free space, or write to another disk; --dry-run shows how much is needed";
	case CKPT_E_UNSAFE:
		return strstr(err->msg, "archive") ? "nothing was written" :
		       "nothing was executed; a pickle of weights needs no such call, "
		       "so do not load this file elsewhere either";
	default:
		return NULL;
	}
}

/* In ckpt_err.msg: a command of another tool follows, in which DIR is the path in 'where'. */
#define TRY "; try: "

size_t advice_try_at(const char *msg)
{
	const char *at = strstr(msg, TRY);

	return at ? (size_t)(at - msg) : strlen(msg);
}

char *advice_try(const struct ckpt_err *err)
{
	const char *at = strstr(err->msg, TRY), *dir;

	if (!at)
		return NULL;
	at += strlen(TRY);
	dir = strstr(at, "DIR");
	if (!dir)
		return cli_strdup(at);
	return cli_format("%.*s%s%s", (int)(dir - at), at, out_word(err->where), dir + 3);
}

/* A command of ours in a message is the call that was typed, if that was the same verb. */
static char *try_of(const struct args *args, const struct ckpt_err *err)
{
	static const char ours[] = "zckpt convert DIR/";
	const char *at = strstr(err->msg, TRY);

	if (!at || strcmp(args->argv[1], "convert") || !args->sources.n ||
	    strncmp(at + strlen(TRY), ours, sizeof(ours) - 1) != 0)
		return advice_try(err);
	at += strlen(TRY) + sizeof(ours) - 1;
	return advice_call(args, NULL, cli_format("%s/%.*s", err->where, (int)strcspn(at, " "),
						  at), NULL);
}

/* The call with the one folder of all sources in place of them; NULL if they are of several. */
static char *call_of_folder(const struct args *args)
{
	const struct words *sources = &args->sources;
	char *up = advice_parent(sources->list[0]);

	for (size_t i = 1; i < sources->n; i++)
		if (!same_file(up, advice_parent(sources->list[i])))
			return NULL;
	return advice_alone(args, up);
}

/* Files where folders are laid over each other: their folder was meant, or a comparison. */
static void say_folder(const struct args *args)
{
	char *call;

	if (!strcmp(args->argv[1], "verify") && args->sources.n == 2)
		call = cli_format("zckpt diff %s %s", out_word(args->sources.list[0]),
				  out_word(args->sources.list[1]));
	else
		call = call_of_folder(args);
	if (call)
		cli_say("try: %s", call);
	cli_free(call);
}

/* "convert DST SRC": the source is missing, and what is in the place of DST exists. */
static void say_swapped(const struct args *args)
{
	static const char *const verbs[] = {
		"convert", "reshard", "shard", "slim", "pack", "unpack", NULL,
	};
	const struct words *rest = &args->rest;
	const char *src = args->sources.list[0], *dst = rest->n ? rest->list[rest->n - 1] : src;
	char *call;
	size_t i = 0;

	while (verbs[i] && strcmp(args->argv[1], verbs[i]))
		i++;
	if (!verbs[i] || dst == src || args->sources.n != 1 || args->output || access(dst, F_OK))
		return;
	call = advice_swapped(args, src, dst);
	cli_say("hint: source and destination swapped? %s", call);
	cli_free(call);
}

/* A path that is missing: its unfinished result, or another order of the words. */
static void say_missing(const struct args *args, const struct ckpt_err *err)
{
	char *partial = cli_format("%s.zckpt-partial", err->where);

	if (!access(partial, F_OK))
		cli_say("hint: an unfinished result is beside it: zckpt doctor %s",
			out_word(partial));
	else if (!strcmp(err->where, args->sources.list[0]))
		say_swapped(args);
	cli_free(partial);
}

void advice_say(const struct args *args, const struct ckpt *ck, const struct ckpt_err *err)
{
	const char *text = general(err);
	char *try = try_of(args, err);

	if (strstr(err->msg, " are two checkpoints") && args->sources.n > 1)
		try = cli_format("give one: %s", advice_alone(args, err->where));
	if (!try)
		try = advice_unpack(err);
	if (try) {
		cli_say("hint: %s", try);
		cli_free(try);
		return;
	}
	if (text)
		cli_say("hint: %s", text);
	else if (args->sources.n > 1 && strstr(err->msg, "several paths"))
		say_folder(args);
	else if (args->sources.n && cli_lone_shard(source_of(args, err)))
		return;		/* cli_open() or the findings name the step */
	else if (begins_with(err, "PLACEHOLDERS_ONLY") && args->sources.n)
		cli_say("hint: %s", advice_hollow(args, source_of(args, err)));
	else if (begins_with(err, "NO_PERMISSION") || !strncmp(err->msg, "no permission to ", 17))
		say_permission(err->where);
	else if (err->code == CKPT_E_FORMAT && !strstr(err->msg, "pack") &&
		 !is_pointer_text(err) && args->sources.n && strncmp(err->msg, "this is ", 8))
		say_other_place(args);
	else if (err->code == CKPT_E_NOTFOUND && err->where[0] && args->sources.n &&
		 !begins_with(err, "LATEST_LIES"))
		say_missing(args, err);
	else if (is_damage(err) || is_pointer_text(err))
		say_damage(args, ck, err);
}

void advice_no_step(const struct args *args, const char *path)
{
	struct ckpt_open_opts opts;
	struct ckpt_err err = { 0 };
	struct ckpt *ck = NULL;

	cli_open_opts(args, &opts);
	opts.tag = NULL;
	if (!ckpt_open(&path, 1, &opts, &ck, &err)) {
		cli_say("%s holds a model and no step: zckpt inspect %s", out_name(path),
			out_word(path));
	} else if (strncmp(err.msg, "this is ", 8) && !is_file(path)) {
		cli_say("there is no step in %s", out_name(path));
	} else {
		cli_say("%s: %.*s", out_name(err.where), (int)advice_try_at(err.msg), err.msg);
		advice_say(args, NULL, &err);
	}
	ckpt_close(ck);
}
