/* cli_arrow.h -- numbers of ranks in calls of `zckpt reshard`, and what a shell makes of them. */
#ifndef CLI_ARROW_H
#define CLI_ARROW_H

#include "cli.h"

#define MAX_WORLD 4096	/* ranks of a step */

struct arrow {
	uint64_t from, to;	/* above MAX_WORLD: too many */
};

/*
 * "8->4", and what people write for it: "8:4", "8 to 4", "8=>4", "8→4", "8,4", "8-4", with blanks
 * or without.  1 if the word is one, and no path.
 */
int arrow_parse(const char *word, struct arrow *out);
/* The number of ranks that the word is; 0 if it is none. */
uint64_t arrow_number(const char *word);
/* The same of a word that is no path. */
int arrow_is_number(const char *word, uint64_t *out);
/* The shell made of 8->4 the word "8-" and sent the output to a file "4". */
int arrow_is_torn(const char *word);
/* Meant as numbers of ranks, as it begins with one and there is no such path. */
int arrow_is_bad(const char *word);
/* The file in this folder, by its name, that an unquoted '>' made: empty, and stdout.  Or NULL. */
const char *arrow_made_file(void);

#endif
