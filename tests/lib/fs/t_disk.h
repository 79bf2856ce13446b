/*
 * A disk in memory under the library's table of calls, which remembers what was written and what
 * was synced, and can say what a power cut may have left of it (docs/internals/power-cuts.md).
 *
 *	image: a disk at rest        log: what a run did to one        walk: a log, up to some call
 *
 * One thread. Paths begin with "/"; names in a folder are no links.
 */
#ifndef T_DISK_H
#define T_DISK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct t_image;
struct t_log;
struct t_walk;

/* ---- images ---- */

struct t_image *t_image_new(void);
struct t_image *t_image_copy(const struct t_image *im);
void t_image_free(struct t_image *im);
/* A file with the folders above it; what is there is replaced. */
void t_image_put(struct t_image *im, const char *path, const void *p, size_t n);
/* The same for all that is below the folder DIR of the real disk. */
void t_image_put_dir(struct t_image *im, const char *path, const char *dir);
void t_image_remove(struct t_image *im, const char *path);
bool t_image_has(const struct t_image *im, const char *path);
/* The bytes of a file; NULL if there is none. */
const uint8_t *t_image_file(const struct t_image *im, const char *path, size_t *n_out);

/* A file, or a folder in which nothing is ("/a/b/"). */
struct t_entry {
	char *path;
	uint64_t hash;		/* of its bytes */
};

/* Sorted by path. */
struct t_disk_tree {
	struct t_entry *entry;
	size_t n;
};

void t_disk_tree_list(struct t_disk_tree *tree, const struct t_image *im);
void t_disk_tree_free(struct t_disk_tree *tree);
const struct t_entry *t_disk_tree_find(const struct t_disk_tree *tree, const char *path);
/* Equal for disks without a difference: names, bytes, numbers of inodes. */
uint64_t t_image_hash(const struct t_image *im);

/* ---- the disk that the library sees ---- */

void t_disk_install(void);
void t_disk_remove(void);
/* A copy of it from now on, all of it on the disk; what was remembered is forgotten. */
void t_disk_load(const struct t_image *im);
/* What is seen now, as if all of it were on the disk. */
struct t_image *t_disk_image(void);
/* What was done since t_disk_load(). */
struct t_log *t_disk_log(void);
/* Descriptors and listings that are open. */
size_t t_disk_open(void);
/* Syncs of this kind (enum ck_synced) do nothing; -1 = all work. */
void t_disk_without(int what);
/* Behave as a file system that renames without flags only. */
void t_disk_plain_renames(bool on);
/* Syncs of this kind that were asked for since the program began. */
uint64_t t_disk_synced(int what);

/* ---- what a power cut leaves ---- */

void t_log_free(struct t_log *log);
/* Calls in it that changed or synced something. */
size_t t_log_calls(const struct t_log *log);
/* Call AT is a sync. */
bool t_log_is_sync(const struct t_log *log, size_t at);
/* "fsync /a/b", for messages; lent until the next call. */
const char *t_log_say(const struct t_log *log, size_t at);

/*
 * From the beginning of the log, which must outlive it. With BUSY not 0 pages reach the disk on
 * their own as well while time goes by, as this seed has it.
 */
struct t_walk *t_walk_new(const struct t_log *log, uint64_t busy);
void t_walk_free(struct t_walk *walk);
/* Forward, until N calls are done. */
void t_walk_to(struct t_walk *walk, size_t n);
/* One of the disks that a power cut at this place may leave. */
struct t_image *t_walk_cut(const struct t_walk *walk, uint64_t seed);

#endif
