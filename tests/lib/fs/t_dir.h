/* Folders, files and path strings for tests. A failing helper ends the test
 * program with a sentence and exit code 1: a test that cannot prepare its
 * input must not continue. */
#ifndef T_DIR_H
#define T_DIR_H

#include <stddef.h>
#include <stdint.h>

/* Prints a sentence on stderr and exits with 1. */
void t_die(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));

/* malloc, calloc and realloc that never return NULL. */
void *t_alloc(size_t n);
void *t_grow(void *p, size_t n);

/* printf into a new string; the caller frees it. */
char *t_fmt(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* From here on, folders are made in memory (/dev/shm) unless $TMPDIR is set: for tests that sync
 * thousands of times, which a disk takes minutes for. */
void t_dir_in_memory(void);
/* A fresh empty folder below $TMPDIR (or /tmp); the caller frees the string. */
char *t_dir_new(void);
void t_dir_make(const char *path);
/* Removes a file or a folder with everything below; nothing there is fine. */
void t_dir_remove(const char *path);
/* The same, and frees the string of t_dir_new() or t_step_copy(). */
void t_dir_end(char *dir);
/* Copies a file or a folder with everything below. Links are not expected. */
void t_dir_copy(const char *from, const char *to);
/* The same for names below DIR. */
void t_dir_make_in(const char *dir, const char *name);
void t_dir_copy_in(const char *dir, const char *from, const char *to);
/* Sorted names in a folder without "." and ".."; *n_out may be NULL. The list
 * ends with NULL and is freed with t_list_free. A missing folder is empty. */
char **t_dir_list(const char *path, size_t *n_out);
void t_list_free(char **list);

int t_exists(const char *path);
int t_is_dir(const char *path);
/* The whole file, with a NUL after it; NULL when it cannot be read. */
uint8_t *t_file_read(const char *path, size_t *n_out);
void t_file_write(const char *path, const void *bytes, size_t n);
int t_ends_with(const char *s, const char *end);

#endif
