/* zt_command.h -- the commands of ztrain by name, and what is said of a word that is none. */
#ifndef ZT_COMMAND_H
#define ZT_COMMAND_H

#include <stdbool.h>

struct zt_command {
	const char *name, *help;
};

extern const struct zt_command zt_commands[];	/* end with a name of NULL */

bool zt_is_command(const char *word);
/* argv[1] is no option and no command: says what was probably meant.  Returns 2. */
int zt_wrong_command(int argc, char **argv);

#endif
