/* cli_form.h -- the forms of a step that `zckpt reshard --to` names. */
#ifndef CLI_FORM_H
#define CLI_FORM_H

/* Their names, NULL at the end. */
extern const char *const cli_forms[];

/* The name of CKPT_TO_DCP is "dcp"; "?" for an unknown number. */
const char *cli_form_name(int to);
/* The number of that name, or -1. */
int cli_form_find(const char *name);

#endif
