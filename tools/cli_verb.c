/* cli_verb.c -- see cli_verb.h. */
#include "cli_verb.h"

#include <signal.h>
#include <string.h>

#include "cli_team.h"

/* What a signal stopped: whether anything is left, and how to continue. */
static void say_stopped(const struct verb *v, const struct progress *progress)
{
	if (v->err.where[0] && strstr(v->err.where, ".zckpt-partial"))
		cli_say("stopped; %s kept in %s; the same command continues",
			out_size(progress->done), out_name(v->err.where));
	else if (v->dst && strcmp(v->dst, "-"))
		cli_say("stopped; the unfinished result was removed");
	else
		cli_say("stopped");
}

int verb_call(struct verb *v)
{
	struct progress progress;
	int rc;

	if (!v->sigpipe)
		signal(SIGPIPE, SIG_IGN);	/* a closed stderr must not leave half a file */
	signal(SIGXFSZ, SIG_IGN);	/* a limit of file sizes is an error, not the end */
	cli_run_begin(v->args, &progress, &v->run);
	if (v->report)
		team_share(&v->run, v->part, v->nparts);
	rc = v->call(v);
	progress_end(&progress);
	if (rc && v->err.code == CKPT_E_CANCELED && !team_rank() && !v->args->quiet)
		say_stopped(v, &progress);
	if (v->ck)
		out_findings_asked(v->args, v->ck);
	if (rc && v->err.code == CKPT_E_CANCELED)
		return EXIT_TROUBLE;	/* it is said above */
	return rc ? cli_fail_writing(v->args, v->ck, &v->err) : v->answer;
}

void verb_print(const struct verb *v, int status)
{
	/* a run that was interrupted leaves nothing */
	if (v->err.code == CKPT_E_CANCELED)
		return;
	if (v->args->json)
		v->print_json(v, status);
	else if (status == v->answer)
		v->print(v);
}

int verb_work(struct verb *v)
{
	int status = EXIT_DONE;

	if (v->sources.n)
		status = cli_open(v->args, NULL, &v->sources, &v->ck, &v->err);
	if (v->report)
		status = team_opened(v->args, status, v->ck, v->dst, &v->err);
	if (status)
		return status;
	status = verb_call(v);
	return v->report ? team_finish(v->args, status, v->dst, v->report, &v->err) : status;
}

int verb_run(struct verb *v, int status)
{
	if (v->report)
		status = team_start(v->args, status, v->dst);
	if (status)
		return status;
	status = verb_work(v);
	verb_print(v, status);
	return status;
}
