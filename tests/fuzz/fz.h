/* What the fuzz targets share (docs/internals/fuzzing.md). A target eats any bytes; when the
 * library does what it must not, fz_die() ends the process. One thread. */
#ifndef FZ_H
#define FZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libckpt/include/ckpt.h"

struct fz_target {
	const char *name;
	void (*run)(const uint8_t *p, size_t n);
};

/* All of them; the last has no name. */
extern const struct fz_target fz_targets[];
const struct fz_target *fz_target_find(const char *name);

/*
 * One input. It is copied so that it ends where a page begins that cannot be read; memory and files
 * of the library are those below. Afterwards nothing may be held.
 */
void fz_run(const struct fz_target *t, const uint8_t *p, size_t n);

/* A sentence on stderr, then abort(). */
void fz_die(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));
/* RC must be 0, or -code with a sentence in ERR; true if it is 0. */
bool fz_ok(int rc, const struct ckpt_err *err, const char *what);
/* Defaults, but for what would only take time: inflated members and strided views. With FZ_DEFAULTS
 * in the environment, these as well. */
const struct ckpt_limits *fz_limits(void);

/* ---- fz_mem.c: the allocation table, with a bound; what asks for more is a bug ---- */

#define FZ_MEMORY ((size_t)64 << 20)

void fz_mem_install(void);
/* Blocks held now. */
long fz_mem_blocks(void);
/* N bytes that end where a page begins that cannot be read; lent until the next call. */
const uint8_t *fz_mem_guard(const uint8_t *p, size_t n);

/* ---- fz_fs.c: the file table, over a tree in memory; nothing else can be opened ---- */

#define FZ_ROOT "/zf"
#define FZ_DISK ((uint64_t)8 << 20)

void fz_fs_install(void);
/* Only FZ_ROOT is left. */
void fz_fs_clear(void);
/* A file with the folders above it; false if the path makes no sense or is taken. */
bool fz_fs_put(const char *path, const void *p, size_t n);
/* The size of a file, or UINT64_MAX. */
uint64_t fz_fs_size(const char *path);
bool fz_fs_is_dir(const char *path);
/* Files and folders below FZ_ROOT; descriptors and listings that are open. */
size_t fz_fs_count(void);
size_t fz_fs_open(void);
void fz_fs_remove(const char *path);
/* Writes all files below the folder DIR of the real disk. */
void fz_fs_save(const char *dir);

/* ---- fz_files.c: several files in one input ---- */

struct fz_wish {
	uint32_t world;		/* 0: no reshard() */
	int stage;		/* -1 = as it is; 5 = the universal form; 6 = DCP */
	unsigned flags;		/* FZ_* */
	unsigned version;	/* of DeepSpeed, a number of its own */
};

#define FZ_RESET 1u		/* the optimizer begins anew */
#define FZ_ROBIN 2u		/* round robin */
#define FZ_SUBS 4u		/* small sub-groups */

/* Makes the files below DIR; '*wish' changes to what the input says, if it does. */
void fz_files_make(const uint8_t *p, size_t n, const char *dir, struct fz_wish *wish);

/* ---- fz_check.c: a checkpoint at PATH, by the public interface ---- */

/*
 * Opens it, reads all the index says and something of each state, makes digests; what
 * ckpt_convert() writes of it must read back the same. With WISH for a world, what
 * ckpt_reshard() writes instead.
 */
void fz_check(const char *path, const struct fz_wish *wish);

/* The targets. */
void fz_zip(const uint8_t *p, size_t n);
void fz_pickle(const uint8_t *p, size_t n);
void fz_legacy(const uint8_t *p, size_t n);
void fz_torch(const uint8_t *p, size_t n);
void fz_safetensors(const uint8_t *p, size_t n);
void fz_json(const uint8_t *p, size_t n);
void fz_hjson(const uint8_t *p, size_t n);
void fz_config(const uint8_t *p, size_t n);
void fz_accelerate(const uint8_t *p, size_t n);
void fz_hf(const uint8_t *p, size_t n);
void fz_manifest(const uint8_t *p, size_t n);
void fz_step(const uint8_t *p, size_t n);
void fz_universal(const uint8_t *p, size_t n);
void fz_dcp(const uint8_t *p, size_t n);
void fz_ranks(const uint8_t *p, size_t n);
void fz_pack(const uint8_t *p, size_t n);

#endif
