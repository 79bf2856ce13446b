/* cli_steps.h -- the steps below a folder: found by their files, opened when asked. */
#ifndef CLI_STEPS_H
#define CLI_STEPS_H

#include "cli.h"

/* A folder that is a step, or what a killed run left of one. */
struct step {
	char *path;
	char *name;		/* below the folder that was given; "." = itself */
	int64_t number;		/* global_steps, or the last number of the name; -1 = unknown */
	int64_t time;		/* seconds since 1970, of its newest file */
	uint64_t bytes, files;	/* of all regular files in it */
	int is_latest;		/* 'latest' (or 'latest_universal') makes it the folder's step */
	const char *unfinished;	/* why it is none yet, or NULL */
	/* after step_look() */
	int looked;
	size_t folders;		/* that it was opened from together, or 0 */
	char *format;		/* "" if it could not be opened */
	int32_t stage;
	uint32_t world;
	uint64_t errors, warnings;
	int unread;		/* zckpt does not read its layout: it may be complete */
	char *id, *text;	/* of the first error, or NULL */
	char *why;		/* its cause in a clause, or NULL */
};

struct steps {
	struct step *step;
	size_t n, room;
};

extern const struct opt opts_steps[];

/* Steps at and below 'dir', oldest first.  0, or the exit status after telling why not. */
int steps_find(const struct args *args, const char *dir, struct steps *out);
/* The same, at most 'depth' folders down, and folders that cannot be listed are passed over. */
void steps_near(const struct args *args, const char *dir, int depth, struct steps *out);
/* By step, then time.  A step whose name has no number is opened for it. */
void steps_sort(const struct args *args, struct steps *steps);
void steps_free(struct steps *steps);
/* What errno says of a folder, in the words of the library. */
const char *steps_why(int errnum);
/* Why nothing could be found in 'dir', as a failure for JSON; and that alone, of a verb. */
void steps_no_folder(const char *dir, struct ckpt_err *err);
void json_no_folder(const struct args *args, const char *verb, const char *dir);
void step_release(struct step *step);
/* Opens it, once: what it is, and its errors. */
void step_look(const struct args *args, struct step *step);
/* The same of folders that are laid over each other. */
void step_open(const struct args *args, struct step *step, const char *const *path, size_t n);
/* Adds the files of a folder to its size, and takes the time of the newest. */
void step_measure(struct step *step, const char *dir);
/* cli_steps_join.c: after step_look(): parts of a step in several of the folders given are one. */
void steps_join(const struct args *args, struct steps *steps);
/* Whether it opens without an error. */
int step_is_good(const struct args *args, struct step *step);
/* Is it the format of a run's steps, or of weights alone? */
int step_is_of_run(const char *format);
/* Can 'latest' name a step of this format?  Runs of other programs do not read it. */
int step_takes_latest(const char *format);
/* The first line of 'DIR/FILE' without white space around it, or NULL: cli_free(). */
char *step_pointer(const char *dir, const char *file);
/* Does the folder hold files that a step of DeepSpeed consists of? */
int step_is_folder(const char *dir);
/* A trainer's "checkpoint-N" (transformers) or "checkpoint_N" (accelerate), by its name. */
int step_is_trainers(const char *name);
/* The same of it, or of a folder in it. */
int step_leads_to_one(const char *dir);

#endif
