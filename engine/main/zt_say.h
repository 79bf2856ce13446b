/*
 * zt_say.h -- lines that hold texts of files: names, paths, messages of readers, configurations.
 */
#ifndef ZT_SAY_H
#define ZT_SAY_H

#include <stdint.h>
#include <stdio.h>

/* On stderr: 'prefix', the text and a line end.  Controls are written \n and \x1b. */
void zt_say(const char *prefix, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The same of what ends the program. */
void zt_say_error(const char *prefix, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* On 'out': the text and a line end, with controls written in the same way. */
void zt_say_line(FILE *out, const char *text);

/* "" of 1, else "s". */
static inline const char *zt_plural(uint64_t n)
{
	return n == 1 ? "" : "s";
}

#endif
