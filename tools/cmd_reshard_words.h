/* cmd_reshard_words.h -- `zckpt reshard`: words that were meant as numbers of ranks. */
#ifndef CMD_RESHARD_WORDS_H
#define CMD_RESHARD_WORDS_H

#include "cli.h"

/* A destination for a command to try: beside the source. */
const char *reshard_new_name(const char *src);
/* The words of the call from the source on, quoted, for a command to try. */
char *reshard_words_from(const struct args *args, size_t first);

/* 0, or the status of a call that is refused, with the call that was meant. */
/* "8-", or "8" "-", or "-" alone, in any place: what is left are the paths. */
int reshard_check_torn(const struct args *args);
/* Numbers among the paths, as in "8 4 RUN DST" or "RUN DST 4". */
int reshard_check_numbers(const struct args *args);
int reshard_wrong_spec(const struct args *args, const char *word);

#endif
