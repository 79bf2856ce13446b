/*
 * mg_buckets.h -- private to formats/megatron: buckets of the optimizer, and the weights that are
 * looked for in them.
 */
#ifndef MG_BUCKETS_H
#define MG_BUCKETS_H

#include "formats/megatron/mg.h"
#include "formats/megatron/mg_places.h"

#define MG_IN_BUCKET 3	/* states: master, exp_avg, exp_avg_sq */

/* Of one state, the pieces of a bucket. */
struct mg_row {
	struct mgp_run *run;		/* in order, without holes */
	const struct dcp_file **file;	/* of each */
	uint64_t n, numel;
	uint8_t dtype;			/* 0 = there is no such state */
};

struct mg_bucket {
	const char *name;		/* without the state's */
	const char *family;
	uint32_t position, buffer, number;
	struct mg_row row[MG_IN_BUCKET];
};

/* A block of a weight: which piece it is. */
struct mg_spot {
	uint64_t param, piece;
};

struct mg_find {
	struct mg *mg;
	struct mg_bucket *bucket;
	uint64_t nbuckets, bucket_cap;
	struct mg_spot *spot;		/* of each of places.chunk */
	struct mgp places;
	uint64_t chunk_cap;
	struct ck_map by_name, families;
	struct ck_arena arena;
};

/* ---- mg_buckets_rows.c ---- */

/* How many items are in buckets, and the bytes of their masters. */
uint64_t ck_mg_buckets_count(const struct mg *mg, uint64_t *bytes_out);
/* The buckets, and places.bucket and places.buffer. */
int ck_mg_buckets_read(struct mg_find *s, struct ckpt_err *err);

/* ---- mg_buckets_spots.c ---- */

/* All blocks of the weights: 'spot' and places.chunk. */
int ck_mg_spots_make(struct mg_find *s, struct ckpt_err *err);

#endif
