/*
 * cli_term.h -- the terminal: colours, its width, and text that must fit.
 *
 * Colours go to terminals only, by default: not where NO_COLOR is set (and not empty) or TERM is
 * "dumb".  CLICOLOR_FORCE, not empty and not 0, is as --color always.  --color wins over both.
 */
#ifndef CLI_TERM_H
#define CLI_TERM_H

#include <stdio.h>

enum term_color { TERM_AUTO = 0, TERM_ALWAYS, TERM_NEVER };
enum term_look { TERM_PLAIN = 0, TERM_ERROR, TERM_WARNING, TERM_GOOD, TERM_HEADING };

/* The choices of --color, as OPT_CHOICE and others have them. */
#define TERM_COLORS "auto|always|never"
/*
 * What --color of a call says, before its options are parsed: of errors in them, too.
 * A value that is none is left to the parser.
 */
void term_read(int argc, char **argv);

/* The escape that begins and ends that look on 'out', or "". */
const char *term_on(FILE *out, enum term_look look);
const char *term_off(FILE *out, enum term_look look);
/* 'text', in that look. */
void term_put(FILE *out, enum term_look look, const char *text);
/* That of a line's first word: "error:", "warning:", "hint:"; TERM_PLAIN, and 0, of others. */
enum term_look term_look_of(const char *line, size_t *length_out);

/* Columns of the terminal 'out' (COLUMNS, or what it says itself); 0 = none, or unknown. */
size_t term_width(FILE *out);
/* 'width', or less on a terminal that is narrower. */
size_t term_fit(FILE *out, size_t width);
/* Whether a line on it can be written again. */
int term_is_screen(FILE *out);

#endif
