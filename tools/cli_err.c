/* cli_err.c -- what is told on stderr when something is wrong, and exit statuses. */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "cli_advice.h"
#include "cli_steps.h"

static const char *json_verb;

void cli_promise_json(const char *verb)
{
	json_verb = verb;
}

__attribute__((format(printf, 3, 0)))
static int wrong_call(const struct command *cmd, const char *command, const char *fmt, va_list ap)
{
	struct ckpt_err err = { .code = CKPT_E_USAGE, .offset = CKPT_NO_OFFSET };
	struct json json;

	vsnprintf(err.msg, sizeof(err.msg), fmt, ap);
	cli_say_error("%s", err.msg);
	if (json_verb) {
		json_begin(&json, stdout, json_verb);
		json_bool(&json, "ok", 0);
		json_int(&json, "exit", EXIT_CALL);
		json_error(&json, &err);
		json_close(&json, '}');
	}
	if (command)
		cli_say("try: %s", command);
	else if (cmd)
		cli_say("'zckpt %s -h' lists the options", cmd->name);
	else
		cli_say("'zckpt -h' lists the commands");
	return EXIT_CALL;
}

int cli_wrong(const struct command *cmd, const char *fmt, ...)
{
	va_list ap;
	int status;

	va_start(ap, fmt);
	status = wrong_call(cmd, NULL, fmt, ap);
	va_end(ap);
	return status;
}

int cli_try(const struct command *cmd, const char *command, const char *fmt, ...)
{
	va_list ap;
	int status;

	va_start(ap, fmt);
	status = wrong_call(cmd, command, fmt, ap);
	va_end(ap);
	return status;
}

int cli_exit_status(enum ckpt_code code)
{
	switch (code) {
	case CKPT_OK:
		return EXIT_DONE;
	case CKPT_E_EXPECT:
		return EXIT_NO;
	case CKPT_E_USAGE:
	case CKPT_E_EXISTS:
	case CKPT_E_BUSY:
		return EXIT_CALL;
	case CKPT_E_UNSAFE:
		return EXIT_UNSAFE;
	default:
		return EXIT_TROUBLE;
	}
}

/* Layouts are refused under a name that scripts can look for, as findings are. */
static const char *name_of(const struct ckpt_err *err)
{
	if (err->code == CKPT_E_LAYOUT && !strstr(err->msg, "LAYOUT_UNSUPPORTED"))
		return "LAYOUT_UNSUPPORTED: ";
	return "";
}

/* Whether it is an error among the findings: its message begins with the name. */
static int is_finding(const struct ckpt *ck, const struct ckpt_err *err)
{
	size_t n = strcspn(err->msg, ":");
	struct ckpt_finding f;

	for (uint64_t i = 0; ck && !ckpt_finding_get(ck, i, &f, NULL); i++)
		if (f.severity == CKPT_ERROR && strlen(f.id) == n && !strncmp(f.id, err->msg, n))
			return 1;
	return out_finding_is_said(err->msg, n);	/* of the other checkpoint of diff */
}

/* A code without a message of its own. */
static const char *say_code(enum ckpt_code code)
{
	return code == CKPT_E_NOMEM ? "out of memory" : code == CKPT_E_IO ? "cannot be read" :
	       "failed";
}

#define PARTIAL ".zckpt-partial"

/* Another run to this destination, or what it left. */
static int is_about_partial(const struct ckpt_err *err)
{
	return err->code == CKPT_E_BUSY || err->code == CKPT_E_EXISTS;
}

/* What a run writes beside its destination goes by the destination's name. */
static const char *place_of(const struct ckpt_err *err)
{
	const char *mark = strstr(err->where, PARTIAL);

	if (!mark || (err->code != CKPT_E_IO && err->code != CKPT_E_NOSPACE &&
		      err->code != CKPT_E_NOTFOUND && !is_about_partial(err)))
		return err->where;
	return cli_format("%.*s", (int)(mark - err->where), err->where);
}

/* " (1.2 MB in x.zckpt-partial)" of an error about another run, else "". */
static char *partial_of(const struct ckpt_err *err)
{
	const char *mark = strstr(err->where, PARTIAL);
	struct step files = { 0 };
	char *dir, *text;

	if (!mark || !is_about_partial(err))
		return cli_strdup("");
	dir = cli_format("%.*s", (int)(mark - err->where + strlen(PARTIAL)), err->where);
	step_measure(&files, dir);
	text = cli_format(" (%s in %s)", out_size(files.bytes), out_name(dir));
	cli_free(dir);
	return text;
}

static void say_error(const struct ckpt *ck, const struct ckpt_err *err)
{
	char place[64] = "";

	if (is_finding(ck, err))
		return;
	if (err->offset && err->offset != CKPT_NO_OFFSET)
		snprintf(place, sizeof(place), "byte %" PRIu64 ": ", err->offset);
	if (err->where[0])
		cli_say_error("%s: %s%s%.*s%s", out_name(place_of(err)), place, name_of(err),
			      (int)advice_try_at(err->msg), err->msg, partial_of(err));
	else
		cli_say_error("%s%s%s", place, name_of(err),
			err->msg[0] ? err->msg : say_code(err->code));
}

int cli_fail(const char *verb, const struct ckpt *ck, const struct ckpt_err *err)
{
	struct json json;

	if (err->code == CKPT_E_CANCELED) {
		cli_say("stopped before the end");
		return EXIT_TROUBLE;
	}
	say_error(ck, err);
	advice_say(&cli_args, ck, err);
	if (verb) {
		json_begin(&json, stdout, verb);
		json_error(&json, err);
		if (ck)
			json_findings(&json, ck);
		json_close(&json, '}');
	}
	return cli_exit_status(err->code);
}

int cli_close_stdout(int status)
{
	int bad;

	json_finish(status, json_verb);
	bad = ferror(stdout);
	if (fclose(stdout) || bad) {
		cli_say_error("stdout cannot be written: %s", strerror(errno));
		return EXIT_TROUBLE;
	}
	return status;
}

/*
 * Whether the failure is a warning that --strict made one: its message begins with the
 * name of a warning, or with no name where there is no error it could be.
 */
static int is_strict_stop(const struct args *args, const struct ckpt *ck,
			  const struct ckpt_err *err)
{
	size_t n = strspn(err->msg, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
	struct ckpt_finding f;

	if (!args->strict || err->code != CKPT_E_MISMATCH)
		return 0;
	if (!n || err->msg[n] != ':')
		return !out_findings_count(ck, CKPT_ERROR) &&
		       out_findings_count(ck, CKPT_WARN);
	for (uint64_t i = 0; !ckpt_finding_get(ck, i, &f, NULL); i++)
		if (strlen(f.id) == n && !strncmp(f.id, err->msg, n))
			return f.severity == CKPT_WARN;
	return 0;
}

int cli_fail_writing(const struct args *args, const struct ckpt *ck, const struct ckpt_err *err)
{
	uint64_t warnings;

	if (!is_strict_stop(args, ck, err))
		return cli_fail(NULL, ck, err);
	warnings = out_findings_count(ck, CKPT_WARN);
	cli_say_error("%" PRIu64 " warning%s: --strict stops before anything is written", warnings,
		warnings == 1 ? "" : "s");
	return EXIT_NO;
}
