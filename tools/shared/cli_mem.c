/* cli_mem.c -- see cli_mem.h. */
#include "cli_mem.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXIT_NO_MEMORY 3

/* Precedes each piece; the chain makes what lives until the end reachable. */
struct piece {
	struct piece *next, *prev;
};
static struct piece *pieces;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;	/* of a server, threads allocate */

void *cli_alloc(size_t bytes)
{
	struct piece *piece = calloc(1, sizeof(*piece) + bytes);

	if (!piece) {
		fprintf(stderr, "%s: no memory for %zu bytes\n", program_invocation_short_name,
			bytes);
		exit(EXIT_NO_MEMORY);
	}
	pthread_mutex_lock(&lock);
	piece->next = pieces;
	if (pieces)
		pieces->prev = piece;
	pieces = piece;
	pthread_mutex_unlock(&lock);
	return piece + 1;
}

void cli_free(void *memory)
{
	struct piece *piece;

	if (!memory)
		return;
	piece = (struct piece *)memory - 1;
	pthread_mutex_lock(&lock);
	if (piece->next)
		piece->next->prev = piece->prev;
	if (piece->prev)
		piece->prev->next = piece->next;
	else
		pieces = piece->next;
	pthread_mutex_unlock(&lock);
	free(piece);
}

char *cli_strdup(const char *text)
{
	size_t n = strlen(text) + 1;

	return memcpy(cli_alloc(n), text, n);
}

char *cli_format(const char *fmt, ...)
{
	va_list ap;
	char *out;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	out = cli_alloc((size_t)(n < 0 ? 0 : n) + 1);
	va_start(ap, fmt);
	vsnprintf(out, (size_t)(n < 0 ? 0 : n) + 1, fmt, ap);
	va_end(ap);
	return out;
}

void words_add(struct words *words, const char *word)
{
	const char **list = cli_alloc((words->n + 2) * sizeof(*list));

	if (words->n)
		memcpy(list, words->list, words->n * sizeof(*list));
	cli_free(words->list);
	list[words->n++] = word;
	words->list = list;
}
