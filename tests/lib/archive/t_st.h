/* A safetensors reader for tests, written apart from libckpt on purpose: a
 * mistake shared by writer and reader would hide itself. */
#ifndef T_ST_H
#define T_ST_H

#include <stddef.h>
#include <stdint.h>

#define T_ST_DIMS 8

struct t_st_tensor {
	char *name;
	char dtype[16];		/* as the file spells it: F32, BF16, I64, BOOL */
	int ndim;
	int64_t shape[T_ST_DIMS];
	uint64_t count;		/* elements; 1 for a tensor of no dimension */
	uint64_t nbytes;
	const uint8_t *data;	/* points into the file's bytes */
};

struct t_st_meta {
	char *key, *value;
};

struct t_st {
	uint8_t *bytes;
	size_t size;
	struct t_st_tensor *tensors;	/* sorted by name */
	size_t n_tensors;
	struct t_st_meta *meta;
	size_t n_meta;
	char err[256];
};

/* Reads PATH whole and checks it: the header is one JSON object, offsets cover
 * the data without hole or overlap, byte counts fit dtype and shape, names are
 * unique. 0, or -1 with a sentence in err. Free with t_st_close either way. */
int t_st_open(struct t_st *st, const char *path);
void t_st_close(struct t_st *st);
const struct t_st_tensor *t_st_find(const struct t_st *st, const char *name);
/* A value of __metadata__, or NULL. */
const char *t_st_meta(const struct t_st *st, const char *key);
/* Bytes of one element of DTYPE, 0 when unknown or below one byte. */
size_t t_st_itemsize(const char *dtype);
int t_st_is_float(const char *dtype);
/* "F32 [3,5]", in one of four static buffers that are used in turn. */
const char *t_st_say(const struct t_st_tensor *t);

#endif
