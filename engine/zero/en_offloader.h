/*
 * en_offloader.h -- offloaded masters and moments: in host memory, or in a file on a drive
 * (en_nvme.h) of which only the tiles in use are in memory.
 *
 * This rank's part of each block is cut into tiles.  The caller processes the states tile by tile,
 * from 0 up: while one tile is updated, the next ones are read and the previous ones written.
 */
#ifndef EN_OFFLOADER_H
#define EN_OFFLOADER_H

#include "engine/nvme/en_nvme.h"
#include "engine/zero/en_mem.h"

#define EN_OFFLOADER_TILE ((uint64_t)4 << 20)	/* elements, unless something else is asked for */
#define EN_OFFLOADER_BUFFERS 4u	/* tiles of a file that are in memory; 3 at least */

struct en_offloader_opts {
	uint32_t nblocks;
	const uint64_t *shard;	/* [nblocks]: elements of this rank's part, multiples of 4096 */
	const uint64_t *used;	/* [nblocks]: of these, without padding at the end */
	bool masters;		/* and moments; else moments alone */
	uint64_t tile;		/* elements, a multiple of 4096; 0 = EN_OFFLOADER_TILE */
	const struct en_nvme_opts *nvme;	/* NULL: in memory; 'bytes' and 'rank' are ours */
	uint32_t rank;
	uint32_t buffers;	/* 0 = EN_OFFLOADER_BUFFERS */
	enum en_mem_kind kind;	/* that the memory counts as */
};

struct en_offloader_tile {
	uint32_t block;
	uint64_t first, n;	/* elements of the part, without padding */
	uint64_t at;		/* in the file */
};

struct en_offloader_state {
	/* [n] of a tile, or all of a block; no masters: NULL. */
	float *master, *exp_avg, *exp_avg_sq;
};

/* Which states are meant. */
#define EN_OFFLOADER_MASTERS 1u
#define EN_OFFLOADER_EXP_AVG 2u
#define EN_OFFLOADER_EXP_AVG_SQ 4u
#define EN_OFFLOADER_ALL 7u

struct en_offloader;

/* 'mem' outlives '*off_out'.  CKPT_E_NOMEM, and codes of en_nvme_open(). */
int en_offloader_new(struct en_mem *mem, const struct en_offloader_opts *opts,
		     struct en_offloader **off_out, struct ckpt_err *err);
/* NULL is fine. */
void en_offloader_free(struct en_offloader *off);

/* Bytes of memory that a file has; 'largest' of opts->shard[] is all that is looked at of it. */
uint64_t en_offloader_ring(const struct en_offloader_opts *opts, uint64_t largest);

bool en_offloader_is_file(const struct en_offloader *off);
/* "io_uring, O_DIRECT", ...; "" for memory.  Lent. */
const char *en_offloader_text(const struct en_offloader *off);
uint64_t en_offloader_tiles(const struct en_offloader *off);
const struct en_offloader_tile *en_offloader_tile(const struct en_offloader *off, uint64_t t);
/* The first tile of a block; tiles of it are those up to the first one of the next. */
uint64_t en_offloader_first(const struct en_offloader *off, uint32_t block);
/* Of memory: a whole block's. */
struct en_offloader_state en_offloader_block(const struct en_offloader *off, uint32_t block);

/*
 * Tile 't', in any order, best from 0 up; it is in its place until the next one is got.  'fresh':
 * all of these states will be set, and nothing is read.  Of missing states, nothing
 * comes.  Codes of en_nvme_wait(), also of what was written before.
 */
int en_offloader_read(struct en_offloader *off, uint64_t t, unsigned states, bool fresh,
		     struct en_offloader_state *out, struct ckpt_err *err);
/* The states were changed, and are not touched again before the tile is got again. */
void en_offloader_write(struct en_offloader *off, uint64_t t, unsigned states);

#endif
