/* cli_audit.h -- files that were given to `zckpt audit` and are no pickles. */
#ifndef CLI_AUDIT_H
#define CLI_AUDIT_H

#include "cli.h"

/* A file of another kind. */
struct other {
	const char *path;	/* lent by the audit */
	const char *what;	/* "a text file" */
	int is_fine;		/* it can be no pickle under this name */
};

/*
 * Takes the files of another kind out of 'list'.  Of such a file no byte can run code: read as a
 * pickle it ends before any name.  Returns their number; '*out' is the caller's.
 */
size_t audit_take_others(struct ckpt_audit *list, struct other **out);
/* "safe: m.safetensors is a safetensors file, which has no pickle" */
char *audit_say_other(const struct other *other);

#endif
