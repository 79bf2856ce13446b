/*
 * arc_layout.h -- the tar stream of a pack before it is written: headers are made, sizes are
 * known, bytes of files are read when they are wanted.
 */
#ifndef ARC_LAYOUT_H
#define ARC_LAYOUT_H

#include "formats/archive/ck_pack.h"

struct arc_source {
	struct ck_src *src;
	bool executable;
	int64_t mtime_ns;
};

struct arc_layout {
	const struct ck_pack_want *want;
	struct ck_pack_index ix;	/* entries without hashes, frames yet empty */
	struct arc_source *source;
	uint64_t *head_at;		/* of each header in the stream; [n]: the end begins */
	uint64_t *head_pos;		/* in 'heads' */
	struct ck_buf heads;
};

int ck_arc_layout_init(struct arc_layout *l, const struct ck_pack_want *want, struct ckpt_err *err);
void ck_arc_layout_release(struct arc_layout *l);
/* Of names, sizes and times. */
struct ck_hash128 ck_arc_layout_hash(const struct arc_layout *l);
/* Bytes [at, at + n) of the stream.  Any threads. */
int ck_arc_layout_read(const struct arc_layout *l, uint64_t at, uint8_t *p, uint64_t n,
		    struct ckpt_err *err);

#endif
