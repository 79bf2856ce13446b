/*
 * ckpt_diff.h -- two checkpoints compared, of any format, stage and world size.  Part of <ckpt.h>.
 *
 * Does resharding keep every bit?
 *
 *	struct ckpt_diff_result result;
 *
 *	if (!ckpt_diff(before, after, NULL, &result, &err)) {
 *		if (result.ndiffering)
 *			... result.rows[0] is the worst ...
 *		ckpt_diff_free(&result);
 *	}
 */
#ifndef CKPT_DIFF_H
#define CKPT_DIFF_H

#include <ckpt.h>

#ifdef __cplusplus
extern "C" {
#endif

/* NULL in place of it: all states, bit for bit, scalars too. */
struct ckpt_diff_opts {
	size_t size;				/* sizeof(struct ckpt_diff_opts) */
	const struct ckpt_run_opts *run;	/* 'sync' is ignored */
	/* Of both sides, by name; 'tied' and 'skip' are ignored.  'only' goes by the side that
	   knows what its tensors are. */
	const struct ckpt_select *select;	/* NULL = all */
	/* Which states, NULL-terminated: "NAME", or "NAME=OTHER" for the first one's NAME against
	   the second one's OTHER.  NULL or {"all", NULL}: each with its own. */
	const char *const *states;
	/*
	 * CKPT_DIFF_TOLERANCE: numbers a and b are the same while
	 * |a - b| <= abs_tolerance + rel_tolerance * max(|a|, |b|); types need not agree.
	 */
	double abs_tolerance, rel_tolerance;
	unsigned flags;			/* CKPT_DIFF_* */
};

#define CKPT_DIFF_TOLERANCE 1u	/* use the two above; else only equal bits are the same */
#define CKPT_DIFF_NO_SCALARS 2u	/* tensors only */

/*
 * The result for one state, or for one name that only one side has.  The numbers are pinned, and a
 * larger one is worse; CKPT_DIFF_DTYPE and above count as a difference.
 */
enum ckpt_diff_what {
	CKPT_DIFF_SAME = 0,	/* bit for bit */
	CKPT_DIFF_WITHIN = 1,	/* the tolerance covers what differs */
	CKPT_DIFF_TIED_ONLY_A = 2,	/* only the first one has this second name of a tensor */
	CKPT_DIFF_TIED_ONLY_B = 3,	/* only the second one has it */
	/* what counts as a difference: */
	CKPT_DIFF_DTYPE = 4,	/* the same numbers in another type */
	CKPT_DIFF_VALUES = 5,	/* elements differ */
	CKPT_DIFF_STATE_A = 6,	/* a state that only the first one has */
	CKPT_DIFF_STATE_B = 7,	/* one that only the second one has */
	CKPT_DIFF_ONLY_A = 8,	/* a name that only the first one has */
	CKPT_DIFF_ONLY_B = 9,	/* a name that only the second one has */
	CKPT_DIFF_TYPES = 10,	/* types without a distance between them */
	CKPT_DIFF_SHAPE = 11,	/* the same name, another shape: elements are not compared */
};

/* Flags of a row: how it was compared. */
#define CKPT_DIFF_DERIVED_A 1u		/* not stored: the master, rounded */
#define CKPT_DIFF_DERIVED_B 2u		/* likewise of the second one */
#define CKPT_DIFF_PER_RANK 4u		/* differs over ranks; rank 0's was compared */
#define CKPT_DIFF_ONE_SOURCE 8u		/* the same bytes of the same files: not read */
#define CKPT_DIFF_TIED_A 16u		/* a second name in the first one only */
#define CKPT_DIFF_TIED_B 32u		/* in the second one only */
#define CKPT_DIFF_BYTES 64u		/* types without numbers: their bytes were compared */
/* One side holds weights alone; see ckpt_diff(). */
#define CKPT_DIFF_EXPORTED_A 128u	/* rounded to the other one's type, as convert writes it */
#define CKPT_DIFF_EXPORTED_B 256u	/* likewise the second one */
#define CKPT_DIFF_OF_EXPORT 512u	/* of every row that was compared then */

/* Numbers of ckpt_diff_row.ulps: number 0 counts what is 0 apart, k > 0 what is 2^(k-1) or more. */
#define CKPT_DIFF_ULPS 65

/*
 * One state of one tensor.  Numbers are of what was compared as 'dtype', the wider of the two
 * types (F32 for F16 against BF16; F64 where an integer meets a floating-point number).
 */
struct ckpt_diff_row {
	const char *name;
	const char *state_a, *state_b;	/* NULL if it is missing; of a name: both NULL */
	enum ckpt_diff_what what;
	unsigned flags;
	uint32_t ndim_a, ndim_b;
	const uint64_t *shape_a, *shape_b;	/* NULL where there is no tensor */
	enum ckpt_dtype dtype_a, dtype_b, dtype;	/* 0 = none */
	uint64_t numel;
	uint64_t differ;	/* elements whose bits differ */
	uint64_t beyond;	/* of them, beyond the tolerance; 'differ' without one */
	uint64_t nan_a, nan_b, nan_both;	/* NaN in one only, in both */
	double max_abs;		/* largest |a - b| without NaN; infinity too */
	uint64_t max_at;	/* its element */
	/* ||a - b|| / max(||a||, ||b||) over elements that are finite in both, or 0 */
	double rel_l2;
	/* In steps from one number of 'dtype' to the next (1 ULP; of integers 1): the largest, and
	   how many are 0, 1, 2-3, 4-7, ... apart.  NULL where nothing differs. */
	uint64_t max_ulps;
	const uint64_t *ulps;	/* CKPT_DIFF_ULPS of them */
	uint64_t first;		/* element: the first beyond the tolerance, else that differs */
	char first_a[64], first_b[64];	/* as text, "" where nothing does */
	double rms;		/* ||a - b|| / sqrt(numel), over elements that are finite in both */
};

/* A scalar: step, hyper-parameter, loss scale, counter. */
struct ckpt_diff_scalar {
	const char *key;	/* as in ckpt_fact_get(): "group.0.lr" */
	const char *a, *b;	/* NULL = missing */
	int differs;		/* 0: the same, or of the layout or of one format, which is
				   reported and is no difference */
};

/*
 * Everything that was compared.  The checkpoints hold the same if 'ndiffering' is 0, and if
 * 'nopaque_a' and 'nopaque_b' are 0 as well nothing was left unread.
 */
struct ckpt_diff_result {
	uint64_t nrows;
	/*
	 * The worst first: by 'what', then by NaN on one side, infinite distance, rel_l2, max_abs,
	 * 'differ', name.  Rows that are the same come last.
	 */
	struct ckpt_diff_row *rows;
	uint64_t nscalars;
	struct ckpt_diff_scalar *scalars;	/* in the order of the files */
	uint64_t ndiffering;	/* rows from DTYPE on, and scalars that differ */
	uint64_t nderived;	/* weights left out: made from masters on both sides, as compared */
	uint64_t nbeside;	/* states left out: one side is an export of weights alone */
	uint64_t nopaque_a, nopaque_b;	/* tensors of kinds that are not read, nor compared */
	uint64_t nstates;	/* rows whose elements were compared */
	uint64_t read_bytes;
	uint32_t threads;
	void *memory;		/* private */
};

/*
 * Compare the tensors of 'a' and 'b' state by state, and their scalars.  Tensors go by name, the
 * second names of tied ones too.  That one side has two names for one tensor, and the other a
 * tensor each or one name, is reported and is no difference.  So is a matrix that only one side
 * has, and that is a copy of another one there which was compared: tied weights, written twice.
 * Padding is not compared.
 *
 * Where one side holds weights alone and the other the states of training, and opts->states is NULL
 * or "all", the weights are compared with what convert makes of the other side: the master where
 * there is one, rounded once to the weight's type, else the weight.  Other states are left out.
 *
 * A weight that is not stored on either side, but made from masters that are compared, is left
 * out.  Without CKPT_DIFF_TOLERANCE no tensor differs exactly if the digests of both agree;
 * with it, two NaN are the same and so are 0 and -0, and NaN is beyond every tolerance
 * from a number, infinity from all but itself.  The numbers do not depend on threads.
 *
 * A scalar that only one side has counts if both are training states.
 *
 * Cost: what is compared is read once from each side, by opts->run->threads; a state that is the
 * same bytes of the same files on both sides is not read.  'a' and 'b' may be the same handle.
 *
 * Memory: opts->run->mem_limit for buffers, about 300 bytes a state, and 520 for each that differs.
 * Names of states, shapes and scalars are lent by 'a' and 'b'.  Free with ckpt_diff_free() before
 * they are closed.  '*out' is filled on success.
 * Returns 0 or the negative of
 *	CKPT_E_USAGE     nothing is selected, a state that neither has, a tolerance that is no
 *	                 number or negative
 *	CKPT_E_CANCELED  opts->run->cancel was set
 *	the code of the first finding of either that is an error, and those of reading.
 */
CKPT_API int ckpt_diff(struct ckpt *a, struct ckpt *b, const struct ckpt_diff_opts *opts,
		       struct ckpt_diff_result *out, struct ckpt_err *err);
CKPT_API void ckpt_diff_free(struct ckpt_diff_result *result);

#ifdef __cplusplus
}
#endif
#endif
