/*
 * ck_nat.h -- the native format (docs/formats/native.md): manifest and files of pieces, without
 * what is no tensor.
 */
#ifndef CK_NAT_H
#define CK_NAT_H

#include "libckpt/base/ck_hash.h"
#include "libckpt/format/ck_findings.h"
#include "libckpt/format/ck_format.h"
#include "libckpt/format/ck_plan.h"
#include "libckpt/io/ck_src.h"
#include "libckpt/io/ck_tree.h"
#include "libckpt/json/ck_json.h"
#include "libckpt/tensor/ck_index.h"

#define CK_NAT_FORMAT "zckpt-native/1"
#define CK_NAT_MANIFEST "manifest.json"

/* Pieces begin at multiples of so many elements: whole blocks of a digest for every type. */
#define CK_NAT_GRAIN 4096u

/* ---- writing ---- */

/* A state to be written: of the index, or zeros. */
struct ck_nat_state {
	const char *name;
	uint32_t state;		/* CK_NONE = zeros */
	uint8_t dtype;
	uint8_t flags;		/* CKPT_STATE_*; a derived one is only mentioned */
};

struct ck_nat_tensor {
	uint32_t tensor;	/* in the index */
	int32_t group;
	const struct ck_nat_state *state;
	uint32_t nstates;
};

/* What goes into a step.  'tensor' in the order of the manifest, the first 'ntrained' trainable. */
struct ck_nat_want {
	const struct ck_index *ix;
	const struct ck_nat_tensor *tensor;
	uint64_t n, ntrained;
	const char *tag;	/* folder in the plan */
	struct ck_hash128 id;
	uint32_t world;
	int stage;
	uint64_t ngroups;
	const struct ck_fact *fact;
	uint64_t nfacts;
	/* Who holds what (struct ck_reshard_want); NULL = equal shares. */
	const struct ck_cut *cut;
	uint64_t ncuts;
	int32_t cut_rank;	/* with 'cut': this rank's files alone, no manifest; -1 = all */
	bool alone;		/* with cut_rank: the manifest of its part */
	/* Files TAG/NAME that the caller adds to the plan: the manifest keeps their sums. */
	const struct ck_along *along;
	uint64_t nalong;
};

/*
 * Append to 'plan', which has the files of values TAG/rest*.pt already and nothing else: the files
 * of pieces and the manifest, which mentions all of them.  CKPT_E_UNSUPPORTED for a type that
 * safetensors lacks or a name that is not UTF-8.
 */
int ck_nat_plan(const struct ck_nat_want *want, struct ck_plan *plan, struct ckpt_err *err);

/* nat_plan.c and nat_text.c: a piece where it was laid. */
struct nat_piece {
	uint64_t off, first, count;
	uint32_t tensor, state;	/* of the want */
	uint32_t file, slot;	/* of the plan */
};

struct nat_out {
	const struct ck_nat_want *want;
	struct ck_plan *plan;
	struct ck_arena arena;
	struct nat_piece *piece;
	uint64_t npieces, piece_cap;
	uint32_t **slot;	/* [tensor][state]: of the whole state, CK_NONE = it has no piece */
	struct ck_hash128 *head;	/* of each file of the plan */
	uint64_t *head_len;	/* 0 = an archive of values */
	uint32_t *rank;
	uint32_t *place;	/* of a tensor of the index in want->tensor */
	uint64_t *along;	/* where the sum of a file that goes along is filled in */
};

/* The manifest as the last file of the plan. */
int ck_nat_text(struct nat_out *o, struct ckpt_err *err);

/* ---- reading ---- */

/* Is a folder a step of this format, by the names in it? */
bool ck_nat_is_step(const struct ck_tree *tree);

struct ck_nat_file {
	const char *name;
	uint64_t bytes, head;
	struct ck_hash128 hash;
	int32_t rank;
	uint32_t source;	/* in the index, CK_NONE = not there */
	bool again;		/* an earlier entry is of this file: parts of a step share it */
};

/* What a manifest says beside the index. */
struct ck_nat {
	struct ck_arena arena;
	struct ck_nat_file *file;
	uint64_t nfiles;
	const char *id;
};

/*
 * Read the manifest among 'tree' and build 'ix' of it: files that are missing or of another size
 * are findings.  Files are opened through 'pool'.  CKPT_E_CORRUPT, CKPT_E_MISMATCH, CKPT_E_LIMIT,
 * CKPT_E_UNSUPPORTED, CKPT_E_INCOMPLETE (no manifest), CKPT_E_IO, CKPT_E_NOMEM.
 */
int ck_nat_read(struct ck_nat *nat, const struct ck_tree *tree, const char *where,
		const struct ckpt_limits *limits, struct ck_fdpool *pool, struct ck_index *ix,
		struct ck_findings *f, struct ckpt_err *err);
void ck_nat_release(struct ck_nat *nat);

#endif
