/*
 * cli_round.h -- how the ranks of a team agree; for cli_team.c only.
 *
 * They talk in rounds: each sends rank 0 a word (its status, a text, numbers) and waits for the
 * verdict, which is the same for all.  Between two rounds, while bytes move, they say how far they
 * are, and that they have failed, so that the others stop.
 */
#ifndef CLI_ROUND_H
#define CLI_ROUND_H

#include "cli_mpi.h"
#include "cli_team.h"

struct word {
	int status, code;
	uint64_t read, written, resumed, overflows;
	double seconds;
	char key[72];		/* must be the same for all */
	char host[65];
	char text[1200];	/* why it failed; in a verdict, what the round hands out */
};

/* What rank 0 knows of a rank. */
struct peer {
	struct word word;
	int has_word;
	double heard;		/* when the last message came */
	struct ckpt_progress done;
};

extern struct team {
	struct wire wire;	/* size 0: no launcher, or one process */
	struct peer *peer;	/* rank 0 */
	struct word verdict;
	int has_verdict;
	int lost;		/* a rank gives no sign of life */
	int stop;		/* a rank has failed */
	char said[1200];	/* the last message of this rank */
} team;

/* One message, if there is one; else 0. */
int round_take(void);
void round_nap(void);
struct word round_word(int status, const struct ckpt_err *err, const char *key);
/* Rank > 0: says its word, and returns the verdict's status when there is one. */
int round_tell(const struct word *mine);

/*
 * Rank 0: the words of all; -1 after telling which rank is lost, as one is that was not heard of
 * for 'timeout' seconds.
 */
int round_gather(const struct word *mine, uint64_t timeout, struct ckpt_err *err);
/*
 * The same, and tells what others failed with.  A key that is not rank 0's is a failure 'code',
 * and means 'what'.
 */
int round_hear(const struct word *mine, enum ckpt_code code, const char *what, uint64_t timeout,
	       struct ckpt_err *err);
/* Rank 0: the verdict; returns 'status'. */
int round_announce(int status, const char *text);
/* No failure, or only that of another rank. */
int round_is_quiet(const struct word *w);

void round_stop_others(void);
void round_hint(const struct ckpt_progress *now);

#endif
