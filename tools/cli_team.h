/*
 * cli_team.h -- the ranks that mpirun or srun started, as the parts of one run.
 *
 *	join -> start -> opened -> share, the run itself -> finish -> leave
 *
 * Each call is made by every rank; each returns the same status on every rank, after rank 0 has
 * told what any of them failed with.  Rank 0 alone talks: what others say with cli_say() is kept
 * back, their stdout goes nowhere.  Without a launcher every call does nothing and returns the
 * status it was given.  docs/internals/parts.md says why it is so.
 */
#ifndef CLI_TEAM_H
#define CLI_TEAM_H

#include "cli.h"

/* 0, or the status to end with.  May begin this program anew with MPI (exec). */
int team_join(const struct command *cmd, int argc, char **argv);
int team_rank(void);
int team_size(void);
/* Threads for a rank that shares its machine with others; 0 without a launcher. */
uint64_t team_threads(void);

/* Options are parsed, with that status.  Finds out whether 'dst' is one place for all. */
int team_start(const struct args *args, int status, const char *dst);
/* The source is opened; it must be the same for all. */
int team_opened(const struct args *args, int status, const struct ckpt *ck, const char *dst,
		struct ckpt_err *err);
/* This rank's share, and messages during the run. */
void team_share(struct ckpt_run_opts *run, uint32_t *part, uint32_t *nparts);
/*
 * The run has ended: rank 0 puts the result into place, or drops what all have written.  On rank 0
 * '*report' becomes the sum of all, '*err' what any failed with.
 */
int team_finish(const struct args *args, int status, const char *dst, struct ckpt_report *report,
		struct ckpt_err *err);
/* "ranks": what each read and wrote. */
void team_json(struct json *json);
/* What rank 0 has, a status or a flag. */
int team_first(int mine);
void team_leave(int status);

#endif
