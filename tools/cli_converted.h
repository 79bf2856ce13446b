/* cli_converted.h -- what `zckpt convert` says of a result: what a folder lacks, what stays. */
#ifndef CLI_CONVERTED_H
#define CLI_CONVERTED_H

#include <ckpt.h>

struct converted {
	const char *dst;
	const struct ckpt *ck;
	const struct ckpt_report *report;
	int of_states;		/* of an optimizer: no model is expected to load them */
	int merged;		/* with an adapter, whose configuration is not wanted */
};

void converted_say(const struct converted *c);

#endif
