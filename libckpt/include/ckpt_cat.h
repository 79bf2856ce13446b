/*
 * ckpt_cat.h -- one state of one tensor, or a slice of it, as a stream or a file.  Part of
 * <ckpt.h>.
 *
 * The rows 0 and 1 of the weight "w" as text on stdout:
 *
 *	static int to_stdout(void *arg, const void *bytes, size_t n, struct ckpt_err *err)
 *	{
 *		return fwrite(bytes, 1, n, stdout) == n ? 0 : 1;
 *	}
 *
 *	struct ckpt_cat_opts opts = {
 *		.size = sizeof(opts), .slice = "0:2", .form = CKPT_CAT_TEXT,
 *	};
 *
 *	if (!ckpt_tensor_find(ck, "w", &number, &err))
 *		ckpt_cat(ck, number, &opts, to_stdout, NULL, NULL, &err);
 *
 * For many ranges into memory of your own use ckpt_load() (ckpt_load.h), which reads them in the
 * order of the files and on several threads; these calls read with one.
 */
#ifndef CKPT_CAT_H
#define CKPT_CAT_H

#include <ckpt.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What the elements are written as. */
enum ckpt_cat_form {
	CKPT_CAT_NPY = 0,	/* a header of numpy, then the elements (docs/formats/npy.md) */
	CKPT_CAT_TEXT = 1,	/* a row a line, of one dimension an element; an empty line between
				   blocks of two dimensions */
	CKPT_CAT_RAW = 2,	/* the elements, little endian, row-major */
};

struct ckpt_cat_opts {
	size_t size;				/* sizeof(struct ckpt_cat_opts) */
	const struct ckpt_run_opts *run;	/* cancel, progress and mem_limit count */
	const char *state;		/* NULL = "weight" */
	/*
	 * As Python writes it, without the brackets: "0:2, 3", "-1", "..., ::-2"; NULL = all.
	 * An index outside its dimension is CKPT_E_USAGE, a range is cut to it.  An index takes
	 * its dimension away, as in numpy; a range keeps it.
	 */
	const char *slice;
	/*
	 * 0 = as stored.  Else one of F64, F32, F16 and BF16, where the stored type is one of
	 * these four as well; each element is rounded once, to nearest even.
	 */
	enum ckpt_dtype dtype;
	enum ckpt_cat_form form;
};

/* What is streamed: type and shape after the slice and the cast. */
struct ckpt_cat_info {
	enum ckpt_dtype dtype;
	uint32_t ndim;		/* 0: a single element */
	uint64_t shape[64];	/* the first 'ndim' count */
	uint64_t numel;		/* the product of the shape */
	char npy[16];		/* numpy's name of the type, "<f4"; "" below 8 bits */
	int is_bits;		/* numpy has no such type (BF16, F8_*): 'npy' is an unsigned
				   integer of its size, which has the same bits */
};

/*
 * Gets the next bytes, at most 1 MiB; 'bytes' is valid until it returns.  A result
 * other than 0 stops the stream, and ckpt_cat() returns it.  A function that wants a message in
 * '*err' fills it itself; 'err' is that of the call of ckpt_cat().
 */
typedef int (*ckpt_bytes_fn)(void *arg, const void *bytes, size_t n, struct ckpt_err *err);

/*
 * Hand a state of tensor number 'tensor' to 'fn', in order.  The second name of a tied tensor gives
 * that tensor.
 *
 * Checks: a whole state is read once before 'fn' is called, and compared with every sum that its
 * files have of it, because a stream cannot be taken back.  Of a slice only headers are compared.
 * Findings do not stop the call, because a state in the index is always complete; only a file of
 * placeholders is refused, if the tensor is empty.
 *
 * Order: '*info_out' (may be NULL) is filled before the first call of 'fn', which may use it.
 * After a failure 'fn' may have got the beginning of the stream.
 *
 * Cost: a whole state is read twice, a slice once.  Elements up to 4 KiB apart are read with the
 * bytes between them, others one by one.  Memory: a few MiB, and opts->run->mem_limit for deflated
 * members and strided views.
 *
 * Threads: 'fn' and opts->run->progress are called in the caller's thread.
 *
 * Returns 0, what 'fn' returned, or the negative of
 *	CKPT_E_USAGE        no such tensor or state, a slice that does not fit the shape, or an
 *	                    unsupported conversion
 *	CKPT_E_UNSUPPORTED  a slice, or a form other than raw, of a type below 8 bits
 *	CKPT_E_LIMIT        more than 64 dimensions
 *	CKPT_E_CANCELED     opts->run->cancel was set
 *	CKPT_E_CORRUPT      bytes that do not agree with their sum
 *	CKPT_E_MISMATCH     a file changed since 'ck' was opened
 *	and the failures of reading.
 */
CKPT_API int ckpt_cat(struct ckpt *ck, uint64_t tensor, const struct ckpt_cat_opts *opts,
		      ckpt_bytes_fn fn, void *arg, struct ckpt_cat_info *info_out,
		      struct ckpt_err *err);

/*
 * The same into the file 'dst', which appears complete or not at all: it grows in
 * "<dst>.zckpt-partial" and is renamed when it is complete, synced as opts->run->sync says.
 * 'flags' is 0 or CKPT_WRITE_FORCE, which replaces a file, and nothing else.
 *
 * Returns what ckpt_cat() does, or the negative of
 *	CKPT_E_EXISTS    'dst' exists, and CKPT_WRITE_FORCE is not given or it is not a file
 *	CKPT_E_NOSPACE, CKPT_E_IO, CKPT_E_NOMEM
 * After a failure 'dst' is as it was, with one exception: if syncing the folder fails after the
 * rename, the new file is in place.
 */
CKPT_API int ckpt_cat_file(struct ckpt *ck, uint64_t tensor, const struct ckpt_cat_opts *opts,
			   const char *dst, unsigned flags, struct ckpt_cat_info *info_out,
			   struct ckpt_err *err);

#ifdef __cplusplus
}
#endif
#endif
