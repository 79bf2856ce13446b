/*
 * ck_pt.h -- a torch .pt file (zip archive or legacy stream): its value tree, its
 * storages, and where the bytes of each tensor lie.
 */
#ifndef CK_PT_H
#define CK_PT_H

#include "libckpt/base/ck_hash.h"
#include "libckpt/format/ck_findings.h"
#include "libckpt/io/ck_src.h"
#include "libckpt/pickle/ck_pkl.h"
#include "libckpt/tensor/ck_index.h"

struct ck_pt_storage {
	const char *key;	/* lent */
	const char *location;	/* "cpu", "cuda:0", ...; not needed to read */
	uint8_t dtype;		/* of the storage class; CKPT_U8 for an untyped one */
	bool untyped;		/* numel counts bytes */
	bool swapped;		/* big-endian */
	uint64_t numel;
	uint64_t bytes;		/* of content, as many as numel says */
	uint64_t off;		/* of the content (stored) or of the deflate stream */
	uint64_t packed;	/* bytes in the archive */
	uint32_t crc;
	bool deflated;
	bool absent;		/* location "meta": there are no bytes */
	/* private, legacy streams: */
	bool seen;		/* in the list of keys */
	uint32_t root;		/* of a view: its storage, else CK_NONE */
	uint64_t root_elem;	/* of a view: its first element there */
};

struct ck_pt {
	struct ck_pkl doc;	/* .root is the object that was saved */
	struct ck_pt_storage *storage;
	uint64_t nstorages, storage_cap;
	char *prefix;		/* archive prefix = file stem at save time; "" for legacy */
	bool legacy;
	struct ck_hash128 fingerprint;	/* of the archive directory, or of the pickles */
	/* private */
	struct ck_src *src;
	struct ck_zip *zip;
	char *where;		/* the pickle, for messages */
	bool swapped;
	bool doubled;		/* some dict holds a key twice */
	struct ckpt_limits limits;
	struct ck_map by_key;
};

/* True if the first bytes say zip or legacy torch stream. */
bool ck_pt_probe(const uint8_t *head, size_t n);

/*
 * Open and parse.  'src' is lent until ck_pt_close().  'findings' (may be NULL) gets notes
 * such as CRC_NOT_COMPUTED.  Codes of ck_zip_open() and ck_pkl_load(), and
 *	CKPT_E_UNSUPPORTED  TorchScript, tar of torch 0.1
 *	CKPT_E_CORRUPT      a tensor reaches beyond its storage, a storage without its
 *	                    record, two mentions of one key that disagree, wrong arguments
 */
int ck_pt_open(struct ck_src *src, const struct ckpt_limits *limits, unsigned pkl_flags,
	       struct ck_findings *findings, struct ck_pt **pt_out, struct ckpt_err *err);
void ck_pt_close(struct ck_pt *pt);

/*
 * The extent of tensor 't' of 'pt': elements [begin, begin + count) of its row-major
 * order, to be elements first, first + 1, ... of a state.  Contiguous tensors give one
 * run, inner slices n runs, other views a GATHER extent, deflated storages a member; the
 * index gets the views and members that are needed.  'source' is pt's file in the index.
 * A range of a view that is no single extent needs begin = 0 and count = numel.
 * CKPT_E_UNSUPPORTED for that, CKPT_E_NOMEM.
 */
int ck_pt_extent(const struct ck_pt *pt, const struct ck_tensor_ref *t, uint64_t begin,
		 uint64_t count, uint64_t first, uint32_t source, int32_t rank,
		 struct ck_index *ix, struct ck_extent *extent_out, struct ckpt_err *err);

/*
 * What tied names have in common: bytes in 'a' that are equal for tensors of one shape that are the
 * same elements of one storage, read in the same way (type, strides, conjugation, negation), and
 * for no others.  The stride of a dimension of one element says nothing.  Two tensors without
 * elements have different keys if 'apart' differs.  NULL without memory.
 */
const char *ck_pt_view_key(struct ck_arena *a, const struct ck_tensor_ref *t, uint64_t apart,
			   size_t *n_out);

/*
 * The content of a storage in new memory (ck_free), inflated if need be, in the file's byte order.
 * CKPT_E_LIMIT if it or what it is packed in exceeds 'max' bytes; codes of reading.
 */
int ck_pt_storage_bytes(const struct ck_pt *pt, uint32_t storage, uint64_t max, uint8_t **out,
			struct ckpt_err *err);

/*
 * The elements of a tensor in new memory (ck_free), row-major and little endian; '*out' is NULL if
 * they, or what they span in the storage (all of one that is deflated), exceed 'max' bytes, or if
 * there are none in the file.  CKPT_E_UNSUPPORTED for elements below 8 bits, and for a lazy
 * conjugation or negation; codes of reading.
 */
int ck_pt_tensor_bytes(const struct ck_pt *pt, const struct ck_tensor_ref *t, uint64_t max,
		       uint8_t **out, struct ckpt_err *err);

/*
 * Add every tensor of the tree to the index under its path, role CKPT_ROLE_PLAIN, state
 * "weight".  The name is the steps (dict keys, list indices, attributes) joined with
 * dots, dots and backslashes in a step escaped by a backslash; control characters are
 * written \xNN.  A path of one step is that step as it is: nothing is joined, and a flat
 * state dict keeps its names.  If the name is taken, "~2", "~3", ... is added (finding
 * NAME_ODD).  A root that is a tensor is named "tensor".  A second path to the same
 * elements (one node, or equal views of one storage: tied weights) is CKPT_ROLE_ALIAS.
 * Tensors of other kinds (sparse, quantised, ...) become TENSOR_OPAQUE findings.
 */
int ck_pt_index(const struct ck_pt *pt, uint32_t source, const struct ckpt_limits *limits,
		struct ck_index *ix, struct ck_findings *findings, struct ckpt_err *err);
/* The same of a value of the tree: paths begin below it. */
int ck_pt_index_below(const struct ck_pt *pt, struct ck_val *root, uint32_t source,
		      const struct ckpt_limits *limits, struct ck_index *ix,
		      struct ck_findings *findings, struct ckpt_err *err);
/*
 * Add 't', of the shape of 'tensor' and in whatever order its elements are stored, to the index as
 * the state 'state' of that tensor.  'source' is the file of 'pt' in 'ix'.  Reads nothing.  Where
 * it fails the tensor has no such state.
 */
int ck_pt_add_state(const struct ck_pt *pt, const struct ck_tensor_ref *t, uint32_t tensor,
		    const char *state, uint32_t source, struct ck_index *ix, struct ckpt_err *err);

#endif
