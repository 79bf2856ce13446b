/* Of t_disk_fs.c and t_disk_names.c only: the disk at work, and what both kinds of calls need. */
#ifndef T_DISK_FS_H
#define T_DISK_FS_H

#include <dirent.h>

#include "tests/lib/fs/t_disk_priv.h"

struct t_now {
	struct t_image *disk;
	size_t nlistings;	/* folders that are open */
	bool plain_renames;	/* flags of a rename are EINVAL */
};

extern struct t_now t_now;

/* -1 and errno. */
int t_disk_fail(int code);
/* A new call at the end of the log, which takes 'say'. */
struct t_call *t_disk_note(enum t_call_kind kind, char *say);
/* The slot holds inode 'to' (T_NOTHING = no entry) from 'call' on. */
void t_disk_set_name(struct t_call *call, uint32_t slot, uint32_t to);
/* The slot that a path names, empty or not; T_NOTHING with errno. */
uint32_t t_disk_slot(const char *path);
/* The inode at a path; T_NOTHING, and errno is ENOENT. */
uint32_t t_disk_find(const char *path);
bool t_disk_is_dir(uint32_t inode);

/* t_disk_names.c: as the calls of the system, for the table. */
int t_disk_rmdir(const char *path);
int t_disk_unlink(const char *path);
int t_disk_rename(const char *from, const char *to, unsigned flags);
int t_disk_link(const char *from, const char *to);
DIR *t_disk_opendir(const char *path);
struct dirent *t_disk_readdir(DIR *dir);
int t_disk_closedir(DIR *dir);

#endif
