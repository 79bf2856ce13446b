/* cli_text.h -- names and texts of files, made harmless to terminals, shells and JSON. */
#ifndef CLI_TEXT_H
#define CLI_TEXT_H

#include <stdio.h>

/* The name, or a JSON string of it if it would garble a terminal. Lent until the
 * fourth next call. */
const char *out_name(const char *name);
/* As a shell wants it in a command.  Lent until the eighth next call. */
const char *out_word(const char *path);
/* A word of a call as it is typed in a shell: an option as it is, a path as out_word() has it. */
const char *cli_argument(const char *word);
/* Text with controls, and bytes that are no UTF-8, written \n and \x1b.  Lent until the next. */
const char *out_text(const char *text);
/* Escapes a string as JSON writes it, quotes included. */
void json_quote(FILE *out, const char *text);
/* Bytes of the UTF-8 character at 's' (RFC 3629), 0 if it is none. */
size_t text_sequence(const char *s);
/* Whether the character of 'n' bytes at 's' is a control, C1 too, or no UTF-8 (n = 0). */
int text_is_control(const char *s, size_t n);

#endif
