/*
 * All ranks of a save session in one process, and what must be there afterwards.  What is not so
 * ends the test with a sentence.
 */
#ifndef T_RANKS_H
#define T_RANKS_H

#include "tests/lib/ops/t_save.h"

#define T_MOST_RANKS 7
#define T_SOON 300		/* ms until a rank counts as late */

struct t_ranks {
	struct t_trainer t;
	struct ckpt_saver *sv[T_MOST_RANKS];
};

void t_must(int rc, const struct ckpt_err *err);
/* It failed with that code, and place and sentence have these words ("a|b|c"); clears '*err'. */
void t_must_fail(int rc, struct ckpt_err *err, int code, const char *words);

void t_ranks_open(struct t_ranks *r, const char *root, uint32_t n, enum t_held held);
void t_ranks_close(struct t_ranks *r);
/* begin() by ranks [from, to). */
void t_ranks_begin(struct t_ranks *r, const char *tag, int to_kind, uint32_t from, uint32_t to);
void t_ranks_put(struct t_ranks *r, const char *tag, uint32_t rank);
void t_ranks_commit(struct t_ranks *r, uint32_t rank);
int t_ranks_wait(struct t_ranks *r, uint32_t rank, struct ckpt_err *err);
/* The whole of a save. */
void t_ranks_save(struct t_ranks *r, const char *tag, int kind);

/* The step of that tag is sound to the last byte, and has the elements of 't'. */
void t_step_check(const struct t_trainer *t, const char *tag);
int t_is_there(const char *root, const char *name);
/* NULL: there is none. */
void t_latest_check(const char *root, const char *tag);
/* Nothing unfinished is in the folder. */
void t_nothing_left(const char *root);

#endif
