/* cli_mem.h -- memory of a program that ends soon, and lists of words. */
#ifndef CLI_MEM_H
#define CLI_MEM_H

#include <stddef.h>

/* A list that grows and always ends with NULL; zeroed = empty (list NULL). */
struct words {
	const char **list;
	size_t n;
};

/* Zeroed memory, or the end of the program; what is not freed ends with it.  Any thread. */
void *cli_alloc(size_t bytes);
void cli_free(void *memory);
char *cli_strdup(const char *text);
char *cli_format(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* 'word' itself is kept, not a copy. */
void words_add(struct words *words, const char *word);

#endif
