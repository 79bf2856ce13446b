/*
 * ck_plan.h -- what a run will write: files made of segments in order of their bytes.
 *
 * A segment is literal bytes, zeros, a run of elements of a state in some dtype, or
 * a piece of another file.  Moves in the sense of the design (copy, cast, gather) follow from
 * a segment and the state's extents and are found when the segment is run, so a
 * plan's size is that of the tensor list, not of the extents.
 *
 * A plan is pure: building it reads and writes nothing.  The same index and options give
 * the same plan, bit for bit; its hash names it in the record of a run.
 */
#ifndef CK_PLAN_H
#define CK_PLAN_H

#include "libckpt/base/ck_base.h"
#include "libckpt/base/ck_hash.h"
#include "libckpt/base/ck_mem.h"
#include "libckpt/tensor/ck_index.h"

/* The piece of a file that one job writes.  Part of the plan hash. */
#define CK_UNIT_BYTES ((uint64_t)4 << 20)

enum ck_seg_kind {
	CK_SEG_LITERAL = 1,
	CK_SEG_ZERO,
	CK_SEG_STATE,	/* elements first .. of 'state', written as 'dtype' */
	CK_SEG_FILE,	/* bytes first .. of the file at 'text' */
	CK_SEG_OWN,	/* as STATE, in the plan's own index */
};

struct ck_seg {
	uint64_t off;		/* byte in its file */
	uint64_t bytes;
	uint64_t first;		/* element of the state, or byte of the file */
	const void *text;	/* literal bytes or path, in the plan's arena */
	uint32_t state;		/* in the index */
	uint32_t slot;		/* digest it counts for, CK_NONE = none */
	uint32_t crc;		/* CRC-32 it counts for, CK_NONE = none */
	uint8_t kind;		/* enum ck_seg_kind */
	uint8_t dtype;
};

struct ck_outfile {
	const char *name;	/* within the folder, or of the file */
	uint64_t bytes;
	uint64_t seg, nsegs;
	uint64_t ntensors;
};

#define CK_SLOT_SUM UINT32_MAX

/* A digest of what is written (or only read): one whole state of one tensor. */
struct ck_slot {
	const char *name;	/* as written */
	const char *state;
	const uint64_t *shape;
	uint32_t ndim;
	uint8_t dtype;
	uint32_t file;		/* its hash goes there as 32 hex digits when it is known, */
	uint64_t fill;		/* at this byte; UINT64_MAX = nowhere */
	/*
	 * Not 0: this is a piece of the state of slot number whole - 1, which begins at a block of
	 * it and ends at one or at its end.  What is filled in is its part of that one's sum.
	 * CK_SLOT_SUM: of no other; what is filled in is the sum itself, and no line speaks of it.
	 */
	uint32_t whole;
	/* Of such a piece that cuts a block: where XXH3-128 of its bytes in such blocks goes. */
	uint64_t ends;
};

/*
 * The last things that go into a file, after the hashes of slots: the root of all digests at byte
 * 'root' (UINT64_MAX = nowhere), then XXH3-128 of the first 'bytes' bytes at byte 'sum'.
 */
struct ck_plan_seal {
	uint64_t root, bytes, sum;
	uint32_t file;
	bool wanted;
};

/*
 * Before all that: XXH3-128 of the first 'bytes' bytes of a file, in which the 32 digits at byte
 * 'sum', where it goes, count as zeros ('0').
 */
struct ck_plan_head {
	uint64_t bytes, sum;
	uint32_t file;
};

/* A file beside others, whose sum one of them keeps: 32 digits at byte 'fill' of 'file'. */
struct ck_plan_beside {
	const char *name;
	uint64_t fill;
	uint32_t file;
};

/*
 * A CRC-32 over bytes [begin, begin + bytes) of a file: of segments that follow each other.  When
 * all of them are written it goes, as 4 bytes little endian, to the places 'fill' of that file.
 */
struct ck_plan_crc {
	uint64_t begin, bytes;
	uint64_t fill[2];
	uint32_t file;
	uint32_t nfills;
};

/* A unit: bytes [off, off + bytes) of a file, which begin 'skip' bytes into segment 'seg'. */
struct ck_unit {
	uint64_t off;
	uint64_t skip;
	uint64_t seg;
	uint32_t bytes;
	uint32_t file;
};

struct ck_plan {
	struct ck_arena arena;
	struct ck_seg *seg;
	uint64_t nsegs, seg_cap;
	struct ck_outfile *file;
	uint64_t nfiles, file_cap;
	struct ck_slot *slot;
	uint64_t nslots, slot_cap;
	struct ck_plan_crc *crc;
	uint64_t ncrcs, crc_cap;
	uint64_t crc_open;	/* number + 1 of the one that segments count for, 0 = none */
	struct ck_plan_seal seal;
	struct ck_plan_head *head;
	uint64_t nheads, head_cap;
	struct ck_plan_beside *beside;
	uint64_t nbeside, beside_cap;
	uint64_t beside_at;	/* files mostly come in the order of 'beside' */
	struct ck_unit *unit;
	uint64_t nunits, unit_cap;
	struct ck_index *own;	/* what files hold beside tensors, packed or big-endian; or NULL */
};

#define CK_PLAN_INIT { .seg = NULL }

int ck_plan_file(struct ck_plan *plan, const char *name, struct ckpt_err *err);
/* Take the file made last out again, which no slot or seal may be of. */
void ck_plan_drop_file(struct ck_plan *plan);
/* Segments go to the file made last, one behind the other.  Bytes are copied. */
int ck_plan_literal(struct ck_plan *plan, const void *p, uint64_t n, struct ckpt_err *err);
int ck_plan_zero(struct ck_plan *plan, uint64_t n, struct ckpt_err *err);
/* Elements of a state that is zero. */
int ck_plan_zero_state(struct ck_plan *plan, enum ckpt_dtype dtype, uint64_t first,
		       uint64_t count, uint32_t slot, struct ckpt_err *err);
/* 'first' and 'count' in elements of the state; a dtype of less than 8 bits: whole states. */
int ck_plan_state(struct ck_plan *plan, const struct ck_index *ix, uint32_t state,
		  enum ckpt_dtype dtype, uint64_t first, uint64_t count, uint32_t slot,
		  struct ckpt_err *err);
/* The plan's own index, for what the index of the source does not list. */
int ck_plan_own(struct ck_plan *plan, uint64_t memory_limit, struct ck_index **out,
		struct ckpt_err *err);
/* A run of elements of a state in there, as stored. */
int ck_plan_own_state(struct ck_plan *plan, uint32_t state, uint64_t first, uint64_t count,
		      struct ckpt_err *err);
/* Bytes [first, first + bytes) of a file. */
int ck_plan_copy(struct ck_plan *plan, const char *path, uint64_t first, uint64_t bytes,
		 struct ckpt_err *err);
/* name and state are copied, shape is lent.  CKPT_F4X2 becomes CKPT_F4 with its last dimension
 * doubled, as safetensors has it, so that digests of both are equal. */
int ck_plan_slot(struct ck_plan *plan, const struct ck_slot *slot, uint32_t *slot_out,
		 struct ckpt_err *err);

/* The file made last begins with a header that has a hash of itself (struct ck_plan_head). */
int ck_plan_head(struct ck_plan *plan, uint64_t bytes, uint64_t sum, struct ckpt_err *err);
/* It keeps, at byte 'fill', the sum of a file 'name' that comes later. */
int ck_plan_beside(struct ck_plan *plan, const char *name, uint64_t fill, struct ckpt_err *err);
/*
 * The file made last, of one segment, is there: if another keeps its sum, its bytes count for it.
 */
int ck_plan_sum_file(struct ck_plan *plan, struct ckpt_err *err);

/* Segments from here on count for a new CRC, until the end or the next file. */
int ck_plan_crc_begin(struct ck_plan *plan, uint32_t *crc_out, struct ckpt_err *err);
void ck_plan_crc_end(struct ck_plan *plan);
/* It goes to byte 'off' of its file too; at most two places. */
void ck_plan_crc_fill(struct ck_plan *plan, uint32_t crc, uint64_t off);

/* Cut into units.  A state's slices begin at multiples of CK_UNIT_BYTES of its segment. */
int ck_plan_finish(struct ck_plan *plan, struct ckpt_err *err);
uint64_t ck_plan_bytes(const struct ck_plan *plan);
int ck_plan_hash(const struct ck_plan *plan, uint32_t nparts, struct ck_hash128 *out,
		 struct ckpt_err *err);
void ck_plan_release(struct ck_plan *plan);

/* ---- what a writing driver is given ---- */

/* One tensor to write. */
struct ck_item {
	const char *name;	/* as written */
	uint32_t tensor;
	uint32_t state;
	uint8_t dtype;		/* as written */
};

/* A second name for an item. */
struct ck_want_alias {
	const char *name;	/* as written */
	uint64_t item;
};

struct ck_want {
	const struct ck_index *ix;
	const struct ck_item *item;
	uint64_t nitems;
	const struct ck_want_alias *alias;	/* for formats where two names can share bytes */
	uint64_t naliases;
	const struct ck_fact *meta;	/* for __metadata__ */
	uint64_t nmeta;
	const char *stem;		/* "model" -> model.safetensors, model-00001-of-...; for a
					   driver of single files the file's name as it is */
	const char *state_name;		/* of digests: "weight", or as asked */
	uint64_t max_shard_bytes;
	bool digest;			/* make slots */
	bool sums;			/* let files of tensors keep sums of their bytes */
	const char *const *beside;	/* files that come with them: the first keeps their sums */
	uint64_t nbeside;
};

/* The second name of a tensor is a key of the metadata, in which these mean something else. */
bool ck_plan_is_taken_key(const char *name);

#endif
