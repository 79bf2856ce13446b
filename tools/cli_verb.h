/* cli_verb.h -- the frame of a verb that writes: a source is opened, written anew, and told of. */
#ifndef CLI_VERB_H
#define CLI_VERB_H

#include "cli.h"

/* A verb's own struct begins with it. */
struct verb {
	const struct args *args;
	struct words sources;
	const char *dst;
	struct ckpt *ck;	/* NULL until it is open; the verb closes it */
	struct ckpt_run_opts run;
	struct ckpt_err err;
	/* Of a verb that ranks share: where the options of the call and the report are. */
	uint32_t *part, *nparts;
	struct ckpt_report *report;	/* NULL = one process does it */
	/* The call of the library: 0, or negative and 'err'. */
	int (*call)(struct verb *verb);
	/* The result, for scripts and for people; the latter of success only. */
	void (*print_json)(const struct verb *verb, int status);
	void (*print)(const struct verb *verb);
};

/* All of it.  'status' is that of taking the options.  Returns the exit status. */
int verb_run(struct verb *verb, int status);
/* Two of its steps, for a verb that has more to do between them: this rank's call ... */
int verb_call(struct verb *verb);
/* ... and the result. */
void verb_print(const struct verb *verb, int status);

#endif
