/* cli_steps_open.c -- a step is opened: what it is, and its errors. */
#include <string.h>

#include "cli_advice.h"
#include "cli_steps.h"
#include "cli_verdict.h"

static void set_error(struct step *step, const char *id, const char *where, const char *text)
{
	step->errors++;
	if (step->id)
		return;
	step->id = cli_strdup(id);
	step->text = cli_format("%s%s%s", where, where[0] ? ": " : "", text);
	step->why = step->unfinished ? cli_strdup(text) : verdict_of_id(id, where, text);
}

/* Nothing is known to be wrong with it: what it is, and where to find what helps. */
static void set_unread(struct step *step, const char *text)
{
	step->unread = 1;
	cli_free(step->why);
	step->why = cli_format("zckpt does not read it: %.*s; what helps: zckpt doctor %s",
			       (int)strcspn(text, ";"), text, out_word(step->path));
}

static int is_unread(const struct ckpt_err *err)
{
	return err->code == CKPT_E_LAYOUT || err->code == CKPT_E_UNSUPPORTED ||
	       (err->code == CKPT_E_FORMAT && strstr(err->msg, "zckpt does not read"));
}

/* "LATEST_LIES: ..." is a name and a text, other messages go by their code. */
static void set_failure(struct step *step, const struct ckpt_err *err)
{
	size_t n = strspn(err->msg, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_");
	char *try = advice_try(err);
	char *text = cli_format("%.*s%s%s", (int)advice_try_at(err->msg), err->msg,
				try ? "; try: " : "", try ? try : "");

	if (n > 3 && err->msg[n] == ':')
		set_error(step, cli_format("%.*s", (int)n, err->msg), err->where,
			  text + n + 1 + strspn(text + n + 1, " "));
	else
		set_error(step, ckpt_code_name(err->code), err->where, text);
	if (is_unread(err))
		set_unread(step, step->text + strlen(err->where) + (err->where[0] ? 2 : 0));
	cli_free(text);
	cli_free(try);
}

static void read_info(struct step *step, struct ckpt *ck)
{
	struct ckpt_finding f;
	struct ckpt_info info;

	ckpt_info_get(ck, &info);
	step->format = cli_strdup(info.format);
	step->stage = info.stage;
	step->world = info.world;
	if (info.step >= 0)
		step->number = info.step;
	for (uint64_t i = 0; !ckpt_finding_get(ck, i, &f, NULL); i++) {
		step->warnings += f.severity == CKPT_WARN;
		if (f.severity == CKPT_ERROR)
			set_error(step, f.id, f.where, f.text);
	}
	if (step->errors) {
		cli_free(step->why);
		step->why = verdict_of(ck, NULL, 0);
	}
	if (!info.ntensors && !step->errors)
		set_error(step, "CKPT_E_INCOMPLETE", info.path, "it holds no tensor");
}

void step_look(const struct args *args, struct step *step)
{
	if (!step->looked)
		step_open(args, step, (const char *const[]){ step->path }, 1);
}

void step_open(const struct args *args, struct step *step, const char *const *path, size_t n)
{
	struct ckpt_open_opts opts;
	struct ckpt_err err = { 0 };
	struct ckpt *ck = NULL;

	cli_open_opts(args, &opts);
	opts.tag = NULL;	/* the path is that of a step */
	step->looked = 1;
	step->stage = -1;
	if (step->unfinished) {
		step->format = cli_strdup("");
		set_error(step, "UNFINISHED", step->path, step->unfinished);
	} else if (ckpt_open(path, n, &opts, &ck, &err)) {
		step->format = cli_strdup("");
		set_failure(step, &err);
	} else {
		read_info(step, ck);
		ckpt_close(ck);
	}
}

int step_is_good(const struct args *args, struct step *step)
{
	step_look(args, step);
	return !step->errors;
}
