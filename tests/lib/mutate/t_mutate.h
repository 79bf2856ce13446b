/*
 * Every way in which a checkpoint may be damaged or mixed up, made in memory, one after another.
 */
#ifndef T_MUTATE_H
#define T_MUTATE_H

#include <stdbool.h>
#include <stddef.h>

#include "tests/lib/fs/t_files.h"

/* A checkpoint that is whole, and others of the same run. */
struct t_base {
	struct t_files files;
	const char *dir;	/* where they lie, to be looked at by ckpt_open() */
	const char *open;	/* what is opened, below the folder; "" = the folder */
	const char *step;	/* of the step, with '/'; "" if files lie in the folder itself */
	/* A storage that is a second copy of a parameter; NULL = there is none. */
	const char *copy_file, *copy_member;
	/* The same step, or an earlier one, cut otherwise; empty = there is none. */
	struct t_files older, wider, narrower;
};

/* Of every mutant: is it wanted?  Then it is made and taken. */
struct t_sink {
	void *arg;
	bool (*want)(void *arg, const char *mutation, size_t number, const char *what);
	void (*take)(void *arg, const struct t_files *mutant);
	/* private */
	const char *mutation;
	size_t number;
};

/* Bits that flip, files that end early, bytes after their end. */
void t_mutate_bytes(const struct t_base *b, struct t_sink *s);
/* Files that are absent, doubled, swapped, foreign, of another step or world; 'latest'. */
void t_mutate_files(const struct t_base *b, struct t_sink *s);
/* Tensors that are swapped, with every checksum right; padding that is gone. */
void t_mutate_tensors(const struct t_base *b, struct t_sink *s);

/* For those three: the next mutant; its number among those of one name. */
bool t_mutant(struct t_sink *s, const char *mutation, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* The mutant that was wanted: it is released. */
void t_mutant_made(struct t_sink *s, struct t_files *made);

#endif
