/*
 * ckpt_cat.h -- one state of one tensor, or a slice, as a stream or a file.  Part of <ckpt.h>.
 */
#ifndef CKPT_CAT_H
#define CKPT_CAT_H

#include <ckpt.h>

#ifdef __cplusplus
extern "C" {
#endif

enum ckpt_cat_form {
	CKPT_CAT_NPY = 0,	/* a header of numpy, then the elements (docs/formats/npy.md) */
	CKPT_CAT_TEXT = 1,	/* a row a line, of one dimension an element; an empty line between
				   blocks of two dimensions */
	CKPT_CAT_RAW = 2,	/* the elements, little endian, row-major */
};

struct ckpt_cat_opts {
	size_t size;
	const struct ckpt_run_opts *run;	/* cancel, progress and mem_limit count */
	const char *state;		/* NULL = "weight" */
	/*
	 * As Python writes it, without the brackets: "0:2, 3", "-1", "..., ::-2"; NULL = all.
	 * An index outside its dimension is CKPT_E_USAGE, a range is cut to it.
	 */
	const char *slice;
	enum ckpt_dtype dtype;		/* 0 = as stored; else one of F64, F32, F16, BF16 */
	enum ckpt_cat_form form;
};

/* What is streamed. */
struct ckpt_cat_info {
	enum ckpt_dtype dtype;
	uint32_t ndim;
	uint64_t shape[64];
	uint64_t numel;
	char npy[16];		/* numpy's name of the type: "<f4" */
	int is_bits;		/* numpy has no such type: 'npy' is an integer of its size */
};

/* Takes the next bytes; something else than 0 stops it, and ckpt_cat() returns that. */
typedef int (*ckpt_bytes_fn)(void *arg, const void *bytes, size_t n, struct ckpt_err *err);

/*
 * Hand a state of tensor number 'tensor' to 'fn', in order, in pieces of any size.  The second
 * name of a tied tensor gives that tensor.  Findings do not stop it: what the index has of a state
 * is all of it.  '*info_out' (may be NULL) is filled before the first piece.
 *
 * Memory: a few MiB, and opts->run->mem_limit for deflated members and strided views.
 * Returns 0, what 'fn' returned, or the negative of
 *	CKPT_E_USAGE        no such tensor or state, a slice that does not fit, a cast that is none
 *	CKPT_E_UNSUPPORTED  a slice, or a form other than raw, of a type below 8 bits
 *	CKPT_E_LIMIT        more than 64 dimensions
 *	CKPT_E_CANCELED     opts->run->cancel was set
 *	and what reading met.
 */
CKPT_API int ckpt_cat(struct ckpt *ck, uint64_t tensor, const struct ckpt_cat_opts *opts,
		      ckpt_bytes_fn fn, void *arg, struct ckpt_cat_info *info_out,
		      struct ckpt_err *err);

/*
 * The same into the file 'dst', which is whole or not there: it grows in "<dst>.zckpt-partial" and
 * is renamed when it is complete, synced as opts->run->sync says.  'flags' is 0 or
 * CKPT_WRITE_FORCE, which replaces a file, and nothing else.
 * Returns what ckpt_cat() does, or the negative of
 *	CKPT_E_EXISTS    'dst' is there
 *	CKPT_E_NOTFOUND, CKPT_E_NOSPACE, CKPT_E_IO, CKPT_E_NOMEM
 * and 'dst' is as it was, save after a failure to sync the folder.
 */
CKPT_API int ckpt_cat_file(struct ckpt *ck, uint64_t tensor, const struct ckpt_cat_opts *opts,
			   const char *dst, unsigned flags, struct ckpt_cat_info *info_out,
			   struct ckpt_err *err);

#ifdef __cplusplus
}
#endif
#endif
