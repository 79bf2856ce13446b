/*
 * stp.h -- private to formats/dcp_st: the safetensors files of torch.distributed.checkpoint in
 * memory (docs/formats/dcp-safetensors.md).
 *
 * Each rank has files of its own, with its pieces of the tensors.  A file's metadata says where
 * each piece begins in the full tensor; how large that is, only all pieces together say.
 */
#ifndef STP_H
#define STP_H

#include "formats/safetensors/ck_st.h"
#include "libckpt/format/ck_format.h"

struct stp_file {
	struct ck_st_shard id;
	const char *name, *path;
	struct ck_src *src;	/* until the index has it */
	struct ck_st *st;	/* NULL = it could not be read */
	uint32_t source;	/* of the index */
	struct ck_findings notes;
};

struct stp_piece {
	const struct stp_file *file;
	const struct ck_st_tensor *t;
};

struct stp_tensor {
	const char *name;
	uint64_t *shape;	/* of the full one: how far the pieces reach */
	uint32_t ndim;
	uint8_t dtype;
	bool odd;		/* a finding says why it is left out */
	struct stp_piece *piece;
	uint64_t npieces, piece_cap;
};

struct stp {
	const struct ck_input *in;
	struct ck_index *ix;
	struct ck_findings *f;
	struct ck_arena arena;
	struct ck_tree sub;		/* of the folder "sharded", if that is read */
	const struct ck_tree *tree;	/* of the folder with the files */
	const char *where;		/* its path */
	struct stp_file *file;
	uint64_t nfiles, file_cap;
	uint64_t ranks, of;		/* as the names say */
	struct stp_file **slot;		/* [of][ranks], NULL = missing */
	bool is_proven;			/* an index says that all names and bytes are there */
	bool *damaged;			/* [of] a file of that number cannot be read */
	struct stp_tensor *tensor;
	uint64_t ntensors, tensor_cap;
	struct ck_map by_name;
};

/* ---- stp_files.c ---- */

/* List the files, compare the ranks, and open them, by threads. */
int ck_stp_files_open(struct stp *d, struct ckpt_err *err);
/* Say which ranks lack a file. */
void ck_stp_files_missing(struct stp *d);
/* Give the sources to the index. */
int ck_stp_files_add(struct stp *d, struct ckpt_err *err);

/* ---- stp_join.c ---- */

/* Every piece to its tensor, and the tensors to the index. */
int ck_stp_join(struct stp *d, struct ckpt_err *err);

/* ---- stp_check.c ---- */

/* Compare with model.safetensors.index.json, in the folder or the one above. */
int ck_stp_check(struct stp *d, struct ckpt_err *err);

#endif
