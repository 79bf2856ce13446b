/* For tests of converting: small safetensors files to begin with, and calls of
 * the library that must succeed or fail with a given code. */
#ifndef T_CONVERT_H
#define T_CONVERT_H

#include "libckpt/include/ckpt.h"
#include "tests/lib/archive/t_st.h"

struct t_part {
	const char *name, *dtype;
	uint64_t rows, cols;	/* cols 0: one dimension */
	const void *bytes;	/* NULL: made from the name, the same at each call */
};

/* Writes PATH: the parts in order, up to one with name NULL. */
void t_convert_source(const char *path, const struct t_part *parts);

/* Opens it, or ends the program with the reason. */
struct ckpt *t_convert_open(const char *path);
/* ckpt_open and ckpt_convert, which must give CODE (0 = done); *err_out (may be
 * NULL) is what was said.  Reports are freed unless REPORT is not NULL. */
void t_convert(const char *src, const char *dst, const struct ckpt_convert_opts *opts, int code,
	    struct ckpt_report *report, struct ckpt_err *err_out);
/*
 * The same in a process that kills itself when so many bytes are done. With one thread it is dead
 * right then; with more, the others may finish their work before the signal comes.
 */
void t_convert_killed(const char *src, const char *dst, const struct ckpt_convert_opts *opts,
		   uint64_t bytes);
/* Opens a result with the tests' own reader, or ends the program. */
void t_convert_result(struct t_st *st, const char *dir, const char *name);
/* The tensor, which must be there, as "F32 [2,3]". */
const struct t_st_tensor *t_convert_tensor(const struct t_st *st, const char *name,
					const char *say);
/* Both files must be there and have the same bytes, or it ends the program. */
void t_convert_same_files(const char *a, const char *b);

#endif
