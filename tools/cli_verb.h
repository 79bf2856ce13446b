/* cli_verb.h -- the frame of a verb that writes: open, call the library, print the result. */
#ifndef CLI_VERB_H
#define CLI_VERB_H

#include "cli.h"

/* A verb's own struct begins with it. */
struct verb {
	const struct args *args;
	struct words sources;	/* none: the call opens what it reads */
	const char *dst;
	int sigpipe;		/* SIGPIPE ends it: of a stream to stdout that is right */
	struct ckpt *ck;	/* NULL until it is open; the verb closes it */
	struct ckpt_run_opts run;
	struct ckpt_err err;
	int answer;		/* exit status of a call that succeeds, which may set EXIT_NO */
	/* Of a verb that ranks share: where the options of the call and the report are. */
	uint32_t *part, *nparts;
	struct ckpt_report *report;	/* NULL = one process does it */
	/* The call of the library: 0, or negative and 'err'. */
	int (*call)(struct verb *verb);
	/* The result, for scripts and for people; the latter only if the call succeeds. */
	void (*print_json)(const struct verb *verb, int status);
	void (*print)(const struct verb *verb);
};

/* All of it.  'status' is that of parsing the options.  Returns the exit status. */
int verb_run(struct verb *verb, int status);
/* Its steps, for a verb that has more to do between them.  From opening to the end of the call: */
int verb_work(struct verb *verb);
/* Of that, this rank's call: */
int verb_call(struct verb *verb);
/* The result: */
void verb_print(const struct verb *verb, int status);

#endif
