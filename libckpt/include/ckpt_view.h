/*
 * ckpt_view.h -- the files that ckpt_convert() would write, read at any place without writing them.
 * Part of <ckpt.h>.
 *
 * A view is a folder of virtual files: model.safetensors as ckpt_convert() makes it in the wanted
 * type, with config.json and the tokenizer beside it, or a file for each state of the optimizer.
 * Bytes are made from the checkpoint when they are read:
 *
 *	struct ckpt_view_opts opts = { .size = sizeof(opts), .dtype = CKPT_BF16 };
 *	struct ckpt_view_file file;
 *	struct ckpt_view *view;
 *	uint64_t n;
 *
 *	if (!ckpt_view_open(ck, &opts, &view, &err)) {
 *		if (!ckpt_view_find(view, "model.safetensors", &n, &err) &&
 *		    !ckpt_view_file_get(view, n, &file, &err))
 *			ckpt_view_read(view, n, file.bytes - 4096, 4096, buf, &err);
 *		ckpt_view_close(view);
 *	}
 *
 * The bytes are those of ckpt_convert() into a folder with CKPT_CONVERT_NO_SUMS and one shard: both
 * make the same plan.  The header is without sums because a sum covers all bytes of a tensor, and
 * opening a view reads none of them.
 */
#ifndef CKPT_VIEW_H
#define CKPT_VIEW_H

#include <ckpt.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * What was compared with sums so far, for all views of one checkpoint: a record that one of them
 * has read is not read again for its sum by another.
 */
struct ckpt_view_checks;

/*
 * For 'ck', which must outlive it.  Make it right after ckpt_open(): etags cover the files that
 * were looked at until now.  Memory: a few bytes for each file of the step; 48 for each record of
 * a file that a view reads, or of each piece of a native step.  '*out' is filled on success.
 * CKPT_E_NOMEM.
 */
CKPT_API int ckpt_view_checks_new(struct ckpt *ck, struct ckpt_view_checks **out,
				  struct ckpt_err *err);
/* After all views that use it are closed.  NULL is fine. */
CKPT_API void ckpt_view_checks_free(struct ckpt_view_checks *checks);

/* All zero but 'size': every weight in fp32. */
struct ckpt_view_opts {
	size_t size;				/* sizeof(struct ckpt_view_opts) */
	const struct ckpt_run_opts *run;	/* threads of opening; mem_limit */
	const struct ckpt_select *select;	/* NULL = all tensors under their own names */
	int dtype;			/* as in struct ckpt_convert_opts, also CKPT_KEEP */
	const char *const *states;	/* likewise: NULL = weights, {"all", NULL}, ... */
	const char *aux_dir;		/* likewise: where config.json is; NULL = beside them */
	struct ckpt_view_checks *checks;	/* of 'ck'; NULL = its own */
};

/* A view of an open checkpoint. */
struct ckpt_view;

/*
 * Plan the files, and check what ckpt_convert() checks before it writes.  No tensor is read but
 * for the ends of masters and weights.  'ck', and the checks, must outlive the view.  The options
 * are copied.
 *
 * Memory: the plan, about 100 bytes for each tensor and its line in the header; half of
 * run->mem_limit for deflated members and strided views; for each thread that reads at the same
 * time 256 KiB, and as much again while it compares a record with its sum.
 *
 * No other call that takes 'struct ckpt *' may run at the same time on 'ck'; reads of other views
 * may.  '*view_out' is filled on success.  Returns 0 or the negative of CKPT_E_USAGE (no tensor, an
 * unknown state, or CKPT_KEEP where no weight was saved), of the first finding that would stop
 * ckpt_convert(), and of reading.
 */
CKPT_API int ckpt_view_open(struct ckpt *ck, const struct ckpt_view_opts *opts,
			    struct ckpt_view **view_out, struct ckpt_err *err);
/* No read may be running.  NULL is fine. */
CKPT_API void ckpt_view_close(struct ckpt_view *view);

/* A virtual file.  Strings are lent by the view. */
struct ckpt_view_file {
	const char *name;	/* "model.safetensors", "exp_avg.safetensors", "config.json", ... */
	uint64_t bytes;
	uint64_t ntensors;	/* 0 for a file that is copied */
	/*
	 * Differs when the bytes may differ: made of the options, and of size, inode and times of
	 * the files of the checkpoint.  The same for each view of unchanged files.
	 */
	const char *etag;	/* 32 hex digits */
};

CKPT_API uint64_t ckpt_view_file_count(const struct ckpt_view *view);
/* Number 'file', from 0; -CKPT_E_USAGE past the end. */
CKPT_API int ckpt_view_file_get(const struct ckpt_view *view, uint64_t file,
				struct ckpt_view_file *out, struct ckpt_err *err);
/* The file of that name; -CKPT_E_NOTFOUND. */
CKPT_API int ckpt_view_find(const struct ckpt_view *view, const char *name, uint64_t *file_out,
			    struct ckpt_err *err);

/*
 * Read exactly 'n' bytes at 'off' of a file into 'buf'.  Any number of threads.
 *
 * Never wrong bytes: the first read that touches a record of an archive, or a piece of which the
 * checkpoint states a sum, reads that record or piece as a whole and compares it with its sum; the
 * answer is kept.  Each read also looks whether the files it used are what they were when the
 * checkpoint was opened.  Bytes of which no sum is stored (a plain safetensors file of another
 * program) are compared with nothing.
 *
 * Cost: the bytes once, and the first time the record too.  A deflated member and a strided view
 * are made in memory as a whole.
 *
 * Returns 0 or the negative of
 *	CKPT_E_CORRUPT, CKPT_E_MISMATCH  the bytes do not match their sum
 *	CKPT_E_MISMATCH  a file changed since the checkpoint was opened
 *	CKPT_E_USAGE     the range is not within the file
 *	CKPT_E_TRUNCATED, CKPT_E_IO, CKPT_E_LIMIT, CKPT_E_NOMEM
 * The content of 'buf' is then undefined, and must not be used.
 */
CKPT_API int ckpt_view_read(struct ckpt_view *view, uint64_t file, uint64_t off, size_t n,
			    void *buf, struct ckpt_err *err);

/*
 * Compare all records and pieces that bytes [off, off + n) of a file are made of with their sums,
 * as ckpt_view_read() would before it hands them out.  Any number of threads.  The same codes.
 */
CKPT_API int ckpt_view_check(struct ckpt_view *view, uint64_t file, uint64_t off, uint64_t n,
			     struct ckpt_err *err);

/* Finite values that became infinite in what was read so far (fp16). */
CKPT_API uint64_t ckpt_view_overflows(const struct ckpt_view *view);

/*
 * Damage that reads found, from 0: each record once.  Strings are lent by the checks.  Any thread.
 * -CKPT_E_USAGE past the end.
 */
CKPT_API int ckpt_view_finding_get(struct ckpt_view_checks *checks, uint64_t finding,
				   struct ckpt_finding *out, struct ckpt_err *err);

#ifdef __cplusplus
}
#endif
#endif
