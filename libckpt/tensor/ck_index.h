/*
 * ck_index.h -- the index: logical tensors, their states, and the extents in files
 * that hold them.  No tensor bytes.
 *
 * A driver fills it: sources (files) first, then tensors, then for each tensor its
 * states with their extents in element order.  Every state's extents cover the
 * tensor's elements exactly once; ck_index_state_end() checks it.
 *
 * Names, shapes and texts live in the index's arena; tensors, states, extents and
 * views in arrays, so numbers stay valid while pointers into the arrays do not.
 * An extent takes 64 bytes, and those of a weave as many as one row of it.
 * One thread builds; any number reads afterwards, with ck_extents.h.
 */
#ifndef CK_INDEX_H
#define CK_INDEX_H

#include "libckpt/base/ck_base.h"
#include "libckpt/base/ck_hash.h"
#include "libckpt/base/ck_map.h"
#include "libckpt/base/ck_mem.h"

struct ck_src;

#define CK_NONE UINT32_MAX

/* A file of the checkpoint. */
struct ck_source {
	const char *path;
	struct ck_src *src;	/* owned by the index */
	uint64_t bytes;
	int32_t rank;		/* -1 = none */
};

/* A deflated archive member: its bytes are got by inflating it whole. */
struct ck_member {
	const char *name;
	uint64_t off;		/* of the deflate stream in the source */
	uint64_t packed;	/* its bytes */
	uint64_t bytes;		/* inflated */
	uint32_t source;
	uint32_t crc;		/* of the inflated bytes */
};

/* A general strided view: element offset of index i is base + sum(i[d] * stride[d]). */
struct ck_view {
	const uint64_t *shape;	/* ndim */
	const uint64_t *stride;	/* ndim, elements */
	uint32_t ndim;
};

/*
 * Elements [first, first + runs * count) of a state: run k of 'count' elements lies at
 * byte off + k * src_stride of the source (or of the inflated member).  Runs are
 * dense in the state.  With CKPT_EXTENT_GATHER there is one run, and element j of it
 * lies where 'view' says, counted from byte 'off'.
 */
struct ck_extent {
	uint64_t first;
	uint64_t count;
	uint64_t off;
	uint64_t src_stride;
	uint64_t runs;
	uint32_t source;
	uint32_t member;	/* CK_NONE unless CKPT_EXTENT_DEFLATED */
	uint32_t view;		/* CK_NONE unless CKPT_EXTENT_GATHER */
	int32_t rank;
	uint8_t dtype;		/* as stored */
	uint8_t flags;		/* CKPT_EXTENT_* */
};

/*
 * Rows of a matrix that is cut into columns.  Each piece of the first row is stored, an extent of
 * one run, and in its 'src_stride' how many bytes further the next row of it begins.  The extents
 * of row r are number + r * pieces and so on.
 */
struct ck_weave {
	uint64_t stored;	/* its first piece, from the state's first stored extent on */
	uint64_t number;	/* its first extent, from the state's first on */
	uint64_t pieces, rows;
};

struct ck_state {
	const char *name;
	uint64_t nextents;	/* each row of a weave is as many as it has pieces */
	uint64_t stored, nstored;	/* number of the first in ck_index.stored */
	uint64_t weave, nweaves;	/* likewise; in order */
	uint64_t nreplicas;
	uint32_t tensor;
	uint32_t next;		/* state of the same tensor, CK_NONE = last */
	uint32_t replica;	/* first further copy, CK_NONE; linked by 'replica' */
	uint8_t dtype;
	uint8_t flags;		/* CKPT_STATE_* */
};

struct ck_tensor {
	const char *name;
	const uint64_t *shape;
	uint64_t numel;
	uint64_t alias_of;
	uint32_t ndim;
	uint32_t first_state, last_state;	/* CK_NONE */
	uint32_t nstates;
	int32_t group;
	uint8_t role;		/* enum ckpt_role */
};

/* Bytes of a stored run that belong to no element.  The writer had put zeros there. */
struct ck_pad {
	uint64_t off, bytes;
	uint32_t source;
	const char *state;	/* whose it is: a constant */
};

/*
 * What the checkpoint says of its own bytes: of blocks of a digest that lie wholly in elements
 * [first, first + count) of a state, their part of its sum.
 */
struct ck_stated_sum {
	uint64_t first, count;
	struct ck_hash128 sum;
	struct ck_hash128 ends;	/* XXH3-128 of its bytes in blocks that it cuts */
	uint32_t state;
	bool has_ends;
	bool closed;		/* 'sum' is the digest of the whole state */
	bool of_file;		/* the file says so itself, not a manifest */
};

/* And of the first 'bytes' bytes of a source, their XXH3-128. */
struct ck_stated_head {
	uint64_t bytes;
	struct ck_hash128 hash;
	uint32_t source;
};

/* And of a file of that name in a folder: the sum of a digest over its bytes. */
struct ck_stated_file {
	const char *dir, *name;
	uint64_t bytes;		/* UINT64_MAX = not said */
	struct ck_hash128 sum;
	bool compared;		/* by who reads it anyway */
};

struct ck_fact {
	const char *key, *value;
};

struct ck_index {
	struct ck_arena arena;
	struct ck_source *source;
	uint64_t nsources, source_cap;
	struct ck_member *member;
	uint64_t nmembers, member_cap;
	struct ck_view *view;
	uint64_t nviews, view_cap;
	struct ck_tensor *tensor;
	uint64_t ntensors, tensor_cap;
	struct ck_state *state;
	uint64_t nstates, state_cap;
	struct ck_extent *stored;
	uint64_t nstored, stored_cap;
	struct ck_weave *weave;
	uint64_t nweaves, weave_cap;
	uint64_t nextents;		/* of all states, but for derived ones */
	struct ck_fact *fact;
	uint64_t nfacts, fact_cap;
	struct ck_pad *pad;
	uint64_t npads, pad_cap;
	struct ck_stated_sum *stated_sum;
	uint64_t nstated_sums, stated_sum_cap;
	struct ck_stated_head *stated_head;
	uint64_t nstated_heads, stated_head_cap;
	struct ck_stated_file *stated_file;
	uint64_t nstated_files, stated_file_cap;
	uint64_t nunsummed;		/* states in files that can keep sums and have none */
	struct ck_map by_name;		/* name -> tensor */
	uint32_t open_state;		/* between state_begin and state_end */
	/* What the step is; strings in the arena, NULL = unknown. */
	const char *format, *path, *tag, *why, *optimizer, *writer;
	/* config.json that its names were made with, and --vocab (0 = not given); or NULL. */
	const char *model_config;
	uint64_t vocab_size;
	/* What the caller says of an optimizer that numbers its parameters (ck_input); or NULL. */
	const char *order_path;
	const char *const *frozen, *const *buffers;
	int32_t stage;			/* -1 */
	bool weights_name_states;	/* whose a state is was found out by weights' bytes */
	uint32_t world;
	int64_t step;			/* -1 */
	uint64_t ngroups;
	uint64_t memory_limit;		/* of everything above, bytes */
	/* Hashed over names, sizes and archive directories, in order of the sources. */
	struct ck_hasher *fingerprint;
};

/* "trainable", ...; "?" for a number that is no role. */
const char *ck_role_name(unsigned role);
/* 0 for a name that is none. */
unsigned ck_role_parse(const char *name);

int ck_index_init(struct ck_index *ix, uint64_t memory_limit, struct ckpt_err *err);
/* Closes the sources too. */
void ck_index_release(struct ck_index *ix);

/* 'src' becomes the index's, also on failure. 'path' is copied. */
int ck_index_add_source(struct ck_index *ix, const char *path, struct ck_src *src,
			int32_t rank, uint32_t *source_out, struct ckpt_err *err);
int ck_index_add_member(struct ck_index *ix, const struct ck_member *member,
			uint32_t *member_out, struct ckpt_err *err);
/* shape and stride are copied. */
int ck_index_add_view(struct ck_index *ix, const uint64_t *shape, const uint64_t *stride,
		      uint32_t ndim, uint32_t *view_out, struct ckpt_err *err);

/*
 * Add a tensor; name and shape are copied.  If the name is there already nothing
 * changes, '*tensor_out' is the one that is there and 1 is returned.  CKPT_E_LIMIT if the
 * product of the shape exceeds 63 bits.
 */
int ck_index_add_tensor(struct ck_index *ix, const char *name, const uint64_t *shape,
			uint32_t ndim, enum ckpt_role role, uint32_t *tensor_out,
			struct ckpt_err *err);
/* Give tensors other names: 'name' by tensor, copied.  CKPT_E_MISMATCH if two become the same. */
int ck_index_rename(struct ck_index *ix, const char *const *name, struct ckpt_err *err);
bool ck_index_find(const struct ck_index *ix, const char *name, uint32_t *tensor_out);

/*
 * A state of a tensor: begin, its extents in ascending 'first', end.  If the tensor has
 * a state of that name already, this becomes a replica of it.  end fails with
 * CKPT_E_MISMATCH when the extents leave a gap, overlap, or are not as many elements as
 * the tensor has; the state is then removed again.
 */
int ck_index_state_begin(struct ck_index *ix, uint32_t tensor, const char *name,
			 enum ckpt_dtype dtype, unsigned flags, struct ckpt_err *err);
int ck_index_state_extent(struct ck_index *ix, const struct ck_extent *extent,
			  struct ckpt_err *err);
/*
 * 'n' extents of one run, together a row, and rows - 1 more rows after it: row r of piece k is at
 * byte piece[k].off + r * piece[k].src_stride.  No piece is empty, strided or a view.
 */
int ck_index_state_weave(struct ck_index *ix, const struct ck_extent *piece, uint64_t n,
			 uint64_t rows, struct ckpt_err *err);
/* Elements of the extents that the state has so far. */
uint64_t ck_index_state_filled(const struct ck_index *ix);
int ck_index_state_end(struct ck_index *ix, uint32_t *state_out, struct ckpt_err *err);
/* Give up the state that was begun. */
void ck_index_state_cancel(struct ck_index *ix);

/* A state 'name' over the same extents as 'of': a derived one. */
int ck_index_state_derive(struct ck_index *ix, uint32_t of, const char *name,
			  enum ckpt_dtype dtype, struct ckpt_err *err);

/* State of a tensor by name, CK_NONE if it has none. */
uint32_t ck_index_state_find(const struct ck_index *ix, uint32_t tensor, const char *name);

/* key and value are copied; "%s"-style value. */
int ck_index_add_fact(struct ck_index *ix, struct ckpt_err *err, const char *key,
		      const char *fmt, ...) CK_PRINTF(4, 5);
int ck_index_add_stated_sum(struct ck_index *ix, const struct ck_stated_sum *sum,
			    struct ckpt_err *err);
int ck_index_add_stated_head(struct ck_index *ix, const struct ck_stated_head *head,
			     struct ckpt_err *err);
/* The name is copied, 'dir' is not: it is in the arena, of many files. */
int ck_index_add_stated_file(struct ck_index *ix, const struct ck_stated_file *file,
			     struct ckpt_err *err);
/* Declare padding, so that it can be looked at (verify --full). */
int ck_index_add_pad(struct ck_index *ix, const struct ck_pad *pad, struct ckpt_err *err);
/* NULL if there is none. */
const char *ck_index_fact(const struct ck_index *ix, const char *key);

#endif
