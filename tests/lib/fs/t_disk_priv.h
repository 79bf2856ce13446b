/* Of t_disk.c, t_disk_fs.c and t_disk_cut.c only. */
#ifndef T_DISK_PRIV_H
#define T_DISK_PRIV_H

#include "tests/lib/fs/t_disk.h"

#define T_PAGE 4096u
#define T_NOTHING UINT32_MAX	/* no inode */

/* Bytes that are never changed; held by many. */
struct t_blob {
	unsigned refs;
	size_t n;
	uint64_t hash;
	uint8_t p[];
};

/* Inode i has the number i + 1. */
struct t_inode {
	struct t_blob *blob;	/* of a file; NULL = empty */
	bool is_dir, used;
};

/* An entry that a folder has, or had. */
struct t_slot {
	uint32_t dir;		/* inode */
	uint32_t to;		/* inode or T_NOTHING */
	char *name;
};

struct t_image {
	struct t_inode *inode;
	size_t ninodes, inode_cap;
	struct t_slot *slot;
	size_t nslots, slot_cap;
};

struct t_blob *t_blob_new(size_t n);
struct t_blob *t_blob_hold(struct t_blob *b);
void t_blob_drop(struct t_blob *b);
void t_blob_done(struct t_blob *b);

/* The slot of that name, made if it is missing. */
uint32_t t_image_slot(struct t_image *im, uint32_t dir, const char *name);
/* A new inode at the end. */
uint32_t t_image_inode(struct t_image *im, bool is_dir);
/* The inode at a path, or T_NOTHING; with '*slot_out' (may be NULL) the slot that names it. */
uint32_t t_image_find(const struct t_image *im, const char *path, uint32_t *slot_out);
/* What no path leads to is no longer there. */
void t_image_sweep(struct t_image *im);

enum t_call_kind { T_CALL_MAKE, T_CALL_DATA, T_CALL_NAMES, T_CALL_SYNC };

/* A call that did something. */
struct t_call {
	enum t_call_kind kind;
	uint32_t inode;		/* made, written or synced */
	bool is_dir;
	struct t_blob *blob;	/* DATA: all bytes of the file from then on */
	/* NAMES: slots and what they hold from then on, all at once. */
	unsigned n;
	struct { uint32_t slot, to; } change[2];
	char *say;
};

struct t_log {
	struct t_image *base;
	struct t_call *call;
	size_t n, cap;
	struct t_slot *slot;	/* all slots, base's first; 'to' means nothing */
	size_t nslots;
};

#endif
