/* Small torch files made from a line of text, for steps that no real run has left, and
 * pickles put together piece by piece. */
#ifndef T_PKL_H
#define T_PKL_H

#include <stddef.h>

/* A pickle in the making, zeroed at first; the caller frees P. */
struct t_pkl {
	unsigned char *p;
	size_t n;
};

void t_pkl_put(struct t_pkl *b, const void *bytes, size_t n);
/* The same of a string literal, which may hold zeros. */
#define T_PKL_PUT(b, text) t_pkl_put(b, text, sizeof(text) - 1)
/* A string of N bytes, as BINUNICODE. */
void t_pkl_str(struct t_pkl *b, const char *s, size_t n);

/*
 * Writes PATH, an archive as torch.save makes it, of the value that TEXT describes:
 *
 *	{ 'key' value ... }    a dict             [ value ... ]    a list
 *	( value ... )          a tuple            'text'           a string
 *	12  -3  0.5            numbers            None
 *	<f32 2 3 @10>          a tensor with a storage of its own; its elements are 10, 11, ...
 *	                       Types: f32, bf16, i64, i8.
 *	<f32 2 3 !7>           the same, and each element is 7
 *	<f32 2 3 =0>           one on the storage of the first tensor in TEXT (=1: the second)
 *	<f32 3 2 =0 +1 *1 *2>  the same from element 1 on, with these strides
 *	<f32 2 3 =0 neg>       a view that is negated when it is read
 *
 * The archive's prefix is PATH's last part without ".pt", as DeepSpeed writes it.
 */
void t_pkl_save(const char *path, const char *text);

/* The same as torch before 1.6 saved: one stream without checksums, which bears no name. */
void t_pkl_save_legacy(const char *path, const char *text);

/* The archive at PATH again, with every member deflated. */
void t_pkl_deflate(const char *path);

#endif
