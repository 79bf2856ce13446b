/*
 * ck_nat_read.h -- private to formats/native: manifests that are being read.
 */
#ifndef CK_NAT_READ_H
#define CK_NAT_READ_H

#include "formats/native/ck_nat.h"

struct ck_nat_reading {
	struct ck_nat *nat;
	const struct ck_tree *tree;
	const struct ckpt_limits *limits;
	struct ck_fdpool *pool;
	struct ck_index *ix;
	struct ck_findings *f;
	struct ck_nat_part *part;	/* manifests: one, or those of ranks */
	uint64_t part_cap;
	uint32_t nparts;
	bool lacks;		/* some part is missing */
	/* Of the part that is being read. */
	const char *path;	/* of the manifest */
	struct ck_json *doc;
	uint64_t *tensor_tok;	/* of each tensor of the index */
	struct ck_nat_told *piece;	/* of a state, of all parts */
	uint64_t npieces, piece_cap;
};

/* A manifest. */
struct ck_nat_part {
	struct ck_json doc;
	char *text;
	uint64_t len;
	const char *path, *id;
	uint64_t *tensor_tok;
	uint64_t files, nfiles;	/* in the list of all */
	uint64_t at;		/* the state that is being read */
};

/* Where a piece is told of. */
struct ck_nat_told {
	uint64_t first, tok;
	uint32_t part;
};

/* 'part' is the one that is read from here on. */
void ck_nat_turn_to(struct ck_nat_reading *r, uint32_t part);
/* CKPT_E_CORRUPT at a token. */
int ck_nat_bad(const struct ck_nat_reading *r, uint64_t tok, const char *what,
	       struct ckpt_err *err);

/* Members of an object: a string without NUL, or NULL; false = absent, or of another type. */
const char *ck_nat_text_of(const struct ck_nat_reading *r, uint64_t obj, const char *key);
bool ck_nat_u64_of(const struct ck_nat_reading *r, uint64_t obj, const char *key, uint64_t *out);
bool ck_nat_i64_of(const struct ck_nat_reading *r, uint64_t obj, const char *key, int64_t *out);
bool ck_nat_is_true(const struct ck_nat_reading *r, uint64_t obj, const char *key);
/* 'obj' is an object, and its member is that text. */
bool ck_nat_same_text(const struct ck_nat_reading *r, uint64_t obj, const char *key,
		      const char *want);
/* The value of a member of that type, or UINT64_MAX. */
uint64_t ck_nat_member(const struct ck_nat_reading *r, uint64_t obj, const char *key,
		       enum ck_json_type type);

/* nat_tensors.c: after the files. */
int ck_nat_tensors(struct ck_nat_reading *r, struct ckpt_err *err);

#endif
