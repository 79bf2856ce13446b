/*
 * ck_diff.h -- the verbs `diff` and `digest`, and what the files of `diff` share: pairs of states,
 * and how they are compared.
 */
#ifndef CK_DIFF_H
#define CK_DIFF_H

#include "libckpt/naming/ck_naming.h"
#include "libckpt/run/ck_ckpt.h"
#include "libckpt/run/ck_elem_type.h"

/* As the functions of the API; options are complete copies, so each field may be read (ckpt.h). */
int ck_digest(struct ckpt *ck, const struct ckpt_digest_opts *opts, struct ckpt_digests *out,
	      struct ckpt_err *err);
int ck_diff(struct ckpt *a, struct ckpt *b, const struct ckpt_diff_opts *opts,
	    struct ckpt_diff_result *out, struct ckpt_err *err);

/* A row whose elements are compared. */
struct ck_diff_pair {
	uint64_t row;
	uint32_t state_a, state_b;
	enum ckpt_dtype read_a, read_b;	/* as stored, or as convert writes it */
	struct ck_elem_type a, b;	/* the same */
	struct ck_elem_type as;	/* as compared */
	uint64_t nparts;	/* numbers, or bytes, of each */
	uint64_t first_unit;
	uint64_t first, first_beyond;	/* elements, once there are any */
};

/* A row of a name that only one side has. */
struct ck_diff_lone {
	uint64_t row;
	uint32_t tensor;
	bool of_a;
};

struct ck_diff {
	struct ckpt *a, *b;
	const struct ckpt_diff_opts *opts;	/* complete */
	struct ckpt_run_opts run;		/* complete */
	struct ck_arena *arena;			/* what the result keeps */
	struct ckpt_diff_row *row;
	uint64_t nrows, row_cap;
	struct ck_diff_pair *pair;
	uint64_t npairs, pair_cap;
	struct ck_diff_lone *lone;
	uint64_t nlones, lone_cap;
	uint8_t *met_a, *met_b;		/* per tensor: it was compared */
	uint64_t nunits;
	uint64_t nderived, nbeside;
	bool export_a, export_b;	/* weights that were made of the other, a training step */
	uint32_t threads;			/* that were used */
};

/* No states were chosen. */
bool ck_diff_is_all(const struct ckpt_diff_opts *opts);
/* Where one side alone has the names of a model's modules: the table that makes them published. */
int ck_diff_names(const struct ck_diff *d, struct ck_naming *a, struct ck_naming *b,
		  struct ckpt_err *err);
/* The rows, and the pairs behind those that have elements to compare. */
int ck_diff_pairs(struct ck_diff *d, struct ckpt_err *err);
/* Compare all pairs: rows get their numbers. */
int ck_diff_run(struct ck_diff *d, struct ckpt_err *err);
/* Names that only one side has become tied ones where they are copies of what was compared. */
int ck_diff_copies(struct ck_diff *d, struct ckpt_err *err);
/* '*list_out' is in the arena. */
int ck_diff_scalars(struct ck_diff *d, struct ckpt_diff_scalar **list_out, uint64_t *n_out,
		    struct ckpt_err *err);

#endif
