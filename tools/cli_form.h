/* cli_form.h -- the forms of a step that `zckpt reshard --to` names. */
#ifndef CLI_FORM_H
#define CLI_FORM_H

#include "cli.h"

/* Their names, NULL at the end. */
extern const char *const cli_forms[];

/* The name of CKPT_TO_DCP is "dcp"; "?" for an unknown number. */
const char *cli_form_name(int to);
/* The number of that name, or -1. */
int cli_form_find(const char *name);

/* Options that were given; NULL = not. */
struct form_options {
	const char *deepspeed;	/* the name of one that applies to DeepSpeed's forms only */
	const char *torch, *layout, *device;
};

/*
 * Does the call of 'verb' ask for what `reshard` does: "convert --to torch-training", "shard
 * --with-states"?
 */
int cli_form_is_reshards(const char *verb, int argc, char **argv);

/* 0, or the status of a call with an option that the form 'to' would pass over. */
int cli_form_check(const struct command *cmd, int to, const struct form_options *o);
/* What whoever loads the result at 'dst' should know. */
void cli_form_note(int to, const char *torch, const char *dst);

#endif
