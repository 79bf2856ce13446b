/*
 * mg_places.h -- private to formats/megatron: whose is each piece of a bucket that has no names?
 *
 * A bucket is one long row of masters.  Weights come in blocks, as the ranks stored them.  A block
 * is where the masters, rounded to its type, are the block, bit for bit (docs/formats/megatron.md).
 */
#ifndef MG_PLACES_H
#define MG_PLACES_H

#include "libckpt/base/ck_hash.h"
#include "libckpt/base/ck_map.h"
#include "libckpt/base/ck_mem.h"
#include "libckpt/io/ck_src.h"

#define MGP_NONE UINT32_MAX
#define MGP_ALIGN 64u	/* parameters begin at multiples of that many elements */
#define MGP_BLOCK 32768u	/* elements that are read at once */
#define MGP_START 256u	/* elements of a block that are compared first */

/* Elements [first, first + count) of a row, in a file. */
struct mgp_run {
	struct ck_src *src;
	uint64_t off, first, count;
};

/* Where modules that are in no layer are registered: before the layers, or after them. */
enum mgp_side { MGP_ANYWHERE = 0, MGP_BEFORE, MGP_AFTER };

/* A block of a weight. */
struct mgp_chunk {
	struct ck_src *src;
	uint64_t off, numel;
	uint32_t key;		/* number of its parameter, the same for all layers */
	uint32_t layer;		/* below 'nlayers', or MGP_NONE: it is in no layer */
	uint32_t expert;	/* 0 = it is of none */
	uint32_t half;		/* a block that follows it in the rank's tensor, or MGP_NONE */
	uint32_t slice, nslices;	/* of tensor parallelism; 0 of 1 = it is whole */
	bool is_half;			/* it is the 'half' of another one */
	uint8_t side;			/* enum mgp_side */
	uint8_t dtype;
	/* The result; a block without one has MGP_NONE. */
	uint32_t class;		/* of blocks with the same elements */
	uint32_t like;		/* another one of its class, or MGP_NONE */
	uint32_t tile;		/* a tile that is it; struct mgp_tile has more of them */
};

struct mgp_bucket {
	const struct mgp_run *run;	/* in order, without holes */
	uint64_t nruns, numel;
	uint8_t dtype;
	bool has_borders;	/* runs end at the ends of parameters, or of the parts of ranks */
	/* The result. */
	const char *why;	/* a clause: why it is unknown what is where; NULL = it is known */
	uint64_t at;		/* the element that is meant */
};

/* Buckets that follow each other: the parameters of a part of the model, from the last on. */
struct mgp_buffer {
	uint32_t family;	/* optimizers of dense parameters and of experts are two */
	uint32_t position;	/* which of the model's parts; a block is there once at most */
	uint32_t bucket, nbuckets;
	uint32_t tile, ntiles;	/* the result */
};

/* A block in a bucket. */
struct mgp_tile {
	uint32_t bucket;
	uint32_t class;
	uint32_t chunk;		/* MGP_NONE: it may be more than one */
	uint32_t next;		/* another tile of the same block, or MGP_NONE */
	uint64_t at;
};

struct mgp_class {
	uint64_t numel;
	uint32_t chunk, nchunks;	/* the first one; chunk.like leads to the others */
	uint8_t dtype;
	bool is_odd;		/* a position has more of them than there are */
};

/* Blocks of one length and type. */
struct mgp_kind {
	uint64_t numel;
	uint8_t dtype;
	bool has_halves;
};

struct mgp {
	struct mgp_chunk *chunk;
	uint32_t nchunks, nlayers;
	bool is_tied;			/* the model has no head of its own */
	struct mgp_bucket *bucket;
	uint32_t nbuckets;
	struct mgp_buffer *buffer;
	uint32_t nbuffers;
	struct mgp_tile *tile;
	uint64_t ntiles, tile_cap;
	struct mgp_class *class;
	uint64_t nclasses, class_cap;
	struct mgp_kind *kind;
	uint64_t nkinds, kind_cap;
	struct ck_map by_start, by_content;
	struct ck_arena arena;	/* of keys */
	uint8_t *raw, *cast;	/* MGP_BLOCK elements of 8 bytes each */
	struct ck_hasher *hasher;
};

/* Zeroed, then chunk, bucket and buffer filled: the caller's.  release() frees the rest. */
void ck_mgp_release(struct mgp *p);

/*
 * Read all weights and all masters once, and find the tiles of each bucket.  A bucket that is not
 * all blocks and gaps, in one way, has no tile and says why.  Damaged files are such a reason;
 * codes of the machine, CKPT_E_NOMEM, CKPT_E_IO.
 */
int ck_mgp_find(struct mgp *p, struct ckpt_err *err);

/* ---- mg_places_read.c ---- */

/* Elements of a row, as they are in the files. */
int ck_mgp_read(const struct mgp_run *run, uint64_t nruns, size_t elem, uint64_t first,
		uint64_t count, void *out, struct ckpt_err *err);
/* Read the weights: classes and kinds of all blocks. */
int ck_mgp_classes_make(struct mgp *p, struct ckpt_err *err);
/* Does a block of that kind begin with the 'n' masters at p->raw, n = MGP_START or all of it? */
bool ck_mgp_may_start(struct mgp *p, const struct mgp_bucket *b, uint64_t n,
		      const struct mgp_kind *kind);
/* The class that the masters from 'at' on round to, or MGP_NONE. */
int ck_mgp_class_at(struct mgp *p, const struct mgp_bucket *b, uint64_t at,
		    const struct mgp_kind *kind, uint32_t *class_out, struct ckpt_err *err);

/* ---- mg_places_order.c ---- */

/*
 * Name the tiles: those that are one block, then those of which their neighbours leave one.  A
 * buffer whose layers and experts are not in order says why and has no tile.
 */
int ck_mgp_order_settle(struct mgp *p, struct ckpt_err *err);
/* Nothing of a buffer is known, because of a tile. */
void ck_mgp_give_up(struct mgp *p, struct mgp_buffer *f, uint64_t tile, const char *why);

/* ---- mg_places_whole.c ---- */

/* Give up what is not complete, or not of one place in the model. */
int ck_mgp_whole_check(struct mgp *p, struct ckpt_err *err);

#endif
