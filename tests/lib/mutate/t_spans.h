/*
 * What the bytes of a file are: for flipping one in every region and cutting at every boundary.
 */
#ifndef T_SPANS_H
#define T_SPANS_H

#include <stddef.h>
#include <stdint.h>

/* What a row of a table is about. */
enum t_region {
	T_LOCAL = 0,		/* local header of an archive's member, without filler */
	T_FILLER,		/* what aligns its data */
	T_DESCRIPTOR,
	T_PICKLE,		/* data.pkl, or any pickle of a legacy stream */
	T_RECORD,		/* version, byteorder and such */
	T_DATA,			/* of tensors */
	T_DIRECTORY,
	T_END,			/* records at the end of an archive */
	T_COUNT,		/* of a storage in a legacy stream */
	T_LENGTH,		/* the first 8 bytes of safetensors */
	T_HEADER,		/* its JSON */
	T_TEXT,			/* of a file that is text as a whole */
	T_REGIONS,
};

extern const char *const t_region_names[T_REGIONS];

struct t_span {
	enum t_region region;
	char what[96];
	size_t off, n;
	size_t flips;		/* so many bytes of it, spread from the first to the last */
};

struct t_spans {
	struct t_span *m;
	size_t n;
};

/* Everything that is to be flipped in it; nothing for a file of no kind that is known. */
void t_spans_to_flip(struct t_spans *marks, uint8_t *p, size_t n);
/* Where it may be cut: off = bytes left. */
void t_spans_to_cut(struct t_spans *marks, uint8_t *p, size_t n);
void t_spans_free(struct t_spans *marks);

#endif
