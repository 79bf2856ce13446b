/*
 * Folders in memory: a checkpoint as it came, and changed copies of it, which share the bytes of
 * every file that is as it was.
 */
#ifndef T_FILES_H
#define T_FILES_H

#include <stddef.h>
#include <stdint.h>

struct t_file {
	char *name;		/* from the root, with '/' */
	uint8_t *p;
	size_t n;
	const struct t_file *was;	/* in the folder it was copied from, with the same bytes */
};

struct t_files {
	struct t_file *f;
	size_t n;
};

/* All files below DIR, and sorted; without those whose name ends in one of 'but' (may be NULL). */
void t_files_read(struct t_files *t, const char *dir);
/* A copy that shares the bytes; 'from' must outlive it. */
void t_files_copy(struct t_files *t, const struct t_files *from);
void t_files_free(struct t_files *t);

/* NULL if there is none. */
struct t_file *t_files_find(const struct t_files *t, const char *name);
/* The first whose name has 'part', after 'after' (may be NULL); NULL if there is none. */
struct t_file *t_files_next(const struct t_files *t, const struct t_file *after,
			    const char *part);
/* The bytes, to be changed in place. */
uint8_t *t_file_own(struct t_file *f);
/* New bytes (copied); of a new name, a new file. */
void t_files_set(struct t_files *t, const char *name, const void *p, size_t n);
void t_files_drop(struct t_files *t, const char *name);
/* What begins with 'from' begins with 'to' then. */
void t_files_rename(struct t_files *t, const char *from, const char *to);
void t_files_swap(struct t_file *a, struct t_file *b);

/* Everything below DIR, which is created again. */
void t_files_write(const struct t_files *t, const char *dir);
/*
 * Make DIR, which holds 'base', hold 'to', a copy of it; or the other way round. Only what differs
 * is written.
 */
void t_files_turn(const struct t_files *base, const struct t_files *to, const char *dir);
void t_files_turn_back(const struct t_files *base, const struct t_files *to, const char *dir);

#endif
