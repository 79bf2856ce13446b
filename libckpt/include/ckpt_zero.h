/*
 * ckpt_zero.h -- where ZeRO puts each element: partition arithmetic, integers only.
 *
 * Everything here is a pure function of its arguments: no allocation, no files, no
 * handle, no global state; every call may run on any thread.  Arrays belong to the
 * caller.  Sizes and offsets count elements, never bytes; indices start at 0.
 *
 * The usual sequence:
 *	1. ckpt_z12_offsets() or ckpt_z3_subgroups() lays the parameters out;
 *	2. ckpt_z12_cut() or ckpt_z3_cut() cuts a flat group (stages 1 and 2) or one
 *	   parameter (stage 3) over the ranks;
 *	3. ckpt_zero_runs_*() says where a range of elements is,
 *	   ckpt_zero_moves_*() what goes from one cut to another.
 *
 * Where the elements [100, 300) of a flat group of 1003 are that 8 ranks saved at stage 2:
 *
 *	struct ckpt_zero_cut cut;
 *	struct ckpt_zero_runs runs;
 *	struct ckpt_zero_run run;
 *
 *	if (!ckpt_z12_cut(1003, 8, 2, &cut) && !ckpt_zero_runs_init(&runs, &cut, 100, 200))
 *		while (ckpt_zero_runs_next(&runs, &run))
 *			printf("rank %u from %" PRIu64 ": %" PRIu64 " elements\n", run.rank,
 *			       run.offset, run.numel);
 *
 * which prints: rank 0 from 100: 26 elements, rank 1 from 0: 126, rank 2 from 0: 48.
 *
 * Domain: worlds of 1 to CKPT_ZERO_MAX_WORLD ranks, up to CKPT_ZERO_MAX_NUMEL
 * elements in a group or a parameter.  Inside it nothing overflows.  Functions that
 * return int answer -1 outside it and leave their outputs untouched; functions that
 * return a count answer 0 for a world of 0 or a rank >= world, and are exact up to
 * 2^63 elements.
 *
 * The rules were read from DeepSpeed's source and compared, bit for bit, with folders
 * that versions 0.5.10 to 0.19.8 wrote; docs/internals/zero.md explains them.
 */
#ifndef CKPT_ZERO_H
#define CKPT_ZERO_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef CKPT_API
#define CKPT_API __attribute__((visibility("default")))
#endif

#define CKPT_ZERO_MAX_WORLD 4096u	/* data-parallel ranks */
#define CKPT_ZERO_MAX_NUMEL ((uint64_t)1 << 62)	/* elements of a group or a parameter */

/* DeepSpeed's sub_group_size where the configuration names none (0.4.1 and later). */
#define CKPT_Z3_SUB_GROUP_SIZE UINT64_C(1000000000)

/* ------------------------------------------------------------------ cuts and runs */

/*
 * A cut: 'numel' elements dealt to 'world' ranks in pieces of 'part', in rank order.
 * Rank r holds [r*part, (r+1)*part); the slots at or beyond 'numel' are padding.
 * Stages 1 and 2 cut a whole flat group, stage 3 cuts each parameter; both look alike
 * from here on.  Fill it with ckpt_z12_cut() or ckpt_z3_cut(); of nothing (numel 0) the
 * parts are 0 long, and no rank holds anything.
 */
struct ckpt_zero_cut {
	uint64_t numel;		/* elements that are cut; the rest of world * part is padding */
	uint64_t part;		/* elements of each rank's partition, padding included */
	uint32_t world;		/* ranks */
	uint32_t reserved;	/* 0 */
};

/* Elements [global, global + numel) are on 'rank', from 'offset' of its partition on. */
struct ckpt_zero_run {
	uint64_t global;	/* element of what is cut */
	uint64_t offset;	/* in the partition of 'rank' */
	uint64_t numel;		/* never 0 */
	uint32_t rank;		/* that has them */
	uint32_t reserved;	/* 0 */
};

/* 'numel' elements go from one rank of the source cut to one of the target cut. */
struct ckpt_zero_move {
	uint64_t src_offset;	/* in the partition of src_rank */
	uint64_t dst_offset;	/* in the partition of dst_rank */
	uint64_t numel;		/* never 0 */
	uint64_t done;		/* elements of the range that came before this move */
	uint32_t src_rank;	/* that has the elements */
	uint32_t dst_rank;	/* that gets them */
};

/* Iterators: the caller's memory, nothing to release.  Fields are private. */
struct ckpt_zero_runs {
	struct ckpt_zero_cut cut;
	uint64_t at;		/* next element */
	uint64_t end;		/* after the last one */
};

struct ckpt_zero_moves {
	struct ckpt_zero_cut src;	/* a copy, as in all iterators: the caller's may go */
	struct ckpt_zero_cut dst;
	uint64_t src_begin;	/* element of 'src' that the range begins at */
	uint64_t dst_begin;	/* and of 'dst' */
	uint64_t done;		/* elements of the range before the next move */
	uint64_t numel;
};

/*
 * ckpt_zero_valid_numel() is how many elements of rank 'rank' are real; the other
 * part - valid are padding, always at the end.  Whole ranks can be padding.
 *
 *	numel 10, world 8, part 2  ->  2 2 2 2 2 0 0 0
 *	numel  5, world 4, part 2  ->  2 2 1 0
 */
static inline uint64_t ckpt_zero_valid_numel(const struct ckpt_zero_cut *cut,
					     uint32_t rank)
{
	uint64_t begin, left;

	if (rank >= cut->world)
		return 0;
	begin = rank * cut->part;
	left = begin < cut->numel ? cut->numel - begin : 0;
	return left < cut->part ? left : cut->part;
}

/*
 * ckpt_zero_locate() finds the rank that holds element 'global' and its offset in that
 * rank's partition.  Returns 0, or -1 when 'global' is not below cut->numel.
 *
 *	numel 1003, world 8, part 126: element 900  ->  rank 7, offset 18
 */
CKPT_API int ckpt_zero_locate(const struct ckpt_zero_cut *cut, uint64_t global,
			      uint32_t *rank_out, uint64_t *offset_out);

/*
 * ckpt_zero_global() is the other direction: slots [offset, offset + numel) of the
 * partition of 'rank' hold the elements [*global_out, *global_out + *valid_out), and the
 * last numel - *valid_out slots are padding.  With nothing but padding *valid_out is 0
 * and *global_out is cut->numel.  Returns 0, or -1 when the slots are not all in the
 * partition or the rank is not in the world.
 *
 *	numel 1003, world 8, part 126: rank 7, slots [100, 126)  ->  982, 21 valid
 */
CKPT_API int ckpt_zero_global(const struct ckpt_zero_cut *cut, uint32_t rank,
			      uint64_t offset, uint64_t numel, uint64_t *global_out,
			      uint64_t *valid_out);

/*
 * ckpt_zero_runs_init() starts a walk over the places of the elements [begin, begin + numel).
 * ckpt_zero_runs_next() fills '*run_out' and returns 1, or returns 0 at the end.  Runs
 * come in rising order, are maximal, and cover the range exactly once; there are at most
 * 'world' of them.  init returns 0, or -1 when the range is not in the cut.
 *
 *	numel 10, world 4, part 4, range [3, 9):
 *	rank 0 offset 3 numel 1, rank 1 offset 0 numel 4, rank 2 offset 0 numel 1
 */
CKPT_API int ckpt_zero_runs_init(struct ckpt_zero_runs *it,
				 const struct ckpt_zero_cut *cut, uint64_t begin,
				 uint64_t numel);
CKPT_API int ckpt_zero_runs_next(struct ckpt_zero_runs *it,
				 struct ckpt_zero_run *run_out);

/*
 * ckpt_zero_moves_init() starts the walk over the moves when the elements
 * [src_begin, src_begin + numel) of 'src' become the elements [dst_begin, dst_begin +
 * numel) of 'dst'.  For the same flat group at another world size both begin at 0; for
 * round robin, gaps, or stage 2 <-> stage 3, call it once per parameter with the place
 * the parameter has on either side.  ckpt_zero_moves_next() fills '*move_out' and returns
 * 1, or returns 0 at the end:
 *
 *	ckpt_zero_moves_init(&it, &old_cut, 0, &new_cut, 0, old_cut.numel);
 *	while (ckpt_zero_moves_next(&it, &m))
 *		memcpy(new_part[m.dst_rank] + m.dst_offset,
 *		       old_part[m.src_rank] + m.src_offset, m.numel * sizeof(float));
 *
 * Moves come in element order, are maximal, number at most
 * src->world + dst->world - 1, and touch no padding: target padding is the caller's to
 * zero.  init returns 0, or -1 when a range is not in its cut.
 *
 *	numel 10, world 2 (part 6) -> world 3 (part 4), stages 1 and 2:
 *	0+0 -> 0+0 x4,  0+4 -> 1+0 x2,  1+0 -> 1+2 x2,  1+2 -> 2+0 x2   (rank+offset)
 */
CKPT_API int ckpt_zero_moves_init(struct ckpt_zero_moves *it,
				  const struct ckpt_zero_cut *src, uint64_t src_begin,
				  const struct ckpt_zero_cut *dst, uint64_t dst_begin,
				  uint64_t numel);
CKPT_API int ckpt_zero_moves_next(struct ckpt_zero_moves *it,
				  struct ckpt_zero_move *move_out);

/*
 * What a stretch of a flat buffer holds.  GAP occurs at stages 1 and 2 only; at stage 3 each
 * parameter's own padding follows it, as PAD.
 */
enum ckpt_zero_kind {
	CKPT_ZERO_PARAM = 0,	/* elements of a parameter */
	CKPT_ZERO_GAP = 1,	/* zeros between parameters (parameter_alignment) */
	CKPT_ZERO_PAD = 2,	/* padding at the end of a partition */
};

/* A stretch of a flat buffer. */
struct ckpt_zero_piece {
	uint64_t offset;	/* in the buffer that is walked */
	uint64_t numel;		/* never 0 */
	uint64_t elem;		/* PARAM: first element of the parameter; else 0 */
	uint32_t param;		/* PARAM: its index; GAP and PAD: the one before it */
	uint32_t kind;		/* enum ckpt_zero_kind */
};

/* ------------------------------------------------- stages 1 and 2, BF16_Optimizer */

/*
 * How the fp32 partitions in the file were shortened, and which padding was recorded.
 * In every version the real elements come first: concatenate the ranks in order and
 * take the first 'numel'.
 */
enum ckpt_z12_rule {
	CKPT_Z12_LEFTOVER = 1,	/* before 0.7.0: last rank loses (-numel) mod world only,
				   up to 'world' zeros stay; no padding in the file */
	CKPT_Z12_LAST_RANK = 2,	/* 0.7.0 - 0.16.3: the last rank loses all padding, with
				   Python's negative slices where that exceeds a part */
	CKPT_Z12_CLAMP = 3,	/* 0.16.4 and later: every rank keeps its real elements */
	CKPT_Z12_KEPT = 4,	/* BF16_Optimizer, every version: nothing is removed, all
				   padding is recorded for the last rank */
};

/*
 * ckpt_z12_align_factor() is what the world size is multiplied with to get the alignment
 * of a flat group: 1 before 0.5.2, then 2.  ckpt_z12_rule() is the rule a version
 * follows; BF16_Optimizer (a ZeRO dict with single_partition_of_fp32_groups and without
 * zero_stage) is CKPT_Z12_KEPT in every version.  The arguments are the three numbers of
 * 'ds_version' in the files; a version that is newer than any known counts as the newest.
 *
 *	0.5.1   ->  factor 1, LEFTOVER
 *	0.6.7   ->  factor 2, LEFTOVER
 *	0.9.5   ->  factor 2, LAST_RANK
 *	0.19.8  ->  factor 2, CLAMP
 */
static inline uint32_t ckpt_z12_align_factor(uint32_t major, uint32_t minor,
					     uint32_t patch)
{
	return major > 0 || minor > 5 || (minor == 5 && patch >= 2) ? 2 : 1;
}

static inline enum ckpt_z12_rule ckpt_z12_rule(uint32_t major, uint32_t minor,
					       uint32_t patch)
{
	if (major > 0 || minor > 16 || (minor == 16 && patch >= 4))
		return CKPT_Z12_CLAMP;
	return minor >= 7 ? CKPT_Z12_LAST_RANK : CKPT_Z12_LEFTOVER;
}

/*
 * ckpt_z12_part_numel() is the partition length of a flat group of 'numel' elements: the
 * group is padded at its end to a multiple of factor * world and cut into 'world' equal
 * parts.  ckpt_z12_flat_numel() is the padded length of the whole group.
 *
 *	numel 1003, world 8, factor 2  ->  part 126, flat 1008
 *	numel   10, world 8, factor 2  ->  part   2, flat   16
 *	numel   10, world 4, factor 1  ->  part   3, flat   12
 *	numel    0                     ->  part   0, flat    0
 */
static inline uint64_t ckpt_z12_part_numel(uint64_t numel, uint32_t world,
					   uint32_t factor)
{
	uint64_t unit = (uint64_t)factor * world;

	if (!unit)
		return 0;
	return (numel / unit + (numel % unit != 0)) * factor;
}

static inline uint64_t ckpt_z12_flat_numel(uint64_t numel, uint32_t world,
					   uint32_t factor)
{
	return ckpt_z12_part_numel(numel, world, factor) * world;
}

/*
 * ckpt_z12_cut() cuts a flat group.  'numel' counts the gaps of parameter_alignment too
 * (the total of ckpt_z12_offsets()).  The cut holds for the masters and for each
 * optimizer state of the group alike; of masters a file may have fewer elements, see
 * ckpt_z12_saved_numel().  Returns 0, or -1 outside the domain or when 'factor' is
 * neither 1 nor 2.
 */
CKPT_API int ckpt_z12_cut(uint64_t numel, uint32_t world, uint32_t factor,
			  struct ckpt_zero_cut *cut_out);

/*
 * ckpt_z12_saved_numel() is the length of the fp32 partition that 'rank' wrote under
 * 'rule'; never less than ckpt_zero_valid_numel().  (Optimizer state is not shortened:
 * rigid state is cut->part long on every rank.)  ckpt_z12_group_padding() is the entry of
 * 'group_paddings' that goes with it; under CKPT_Z12_LEFTOVER, which stores none, it is
 * what the writer took off.  The last-rank rules can record more than a partition.  Both
 * are 0 for a rank outside the world or an unknown rule.
 *
 *	numel 38, world 8 (part 6)   saved              group_paddings
 *	    LAST_RANK                6 6 6 6 6 6 6 2    0 0 0 0 0 0 0 10
 *	    CLAMP                    6 6 6 6 6 6 2 0    0 0 0 0 0 0 4 6
 *	    KEPT                     6 6 6 6 6 6 6 6    0 0 0 0 0 0 0 10
 *	    LEFTOVER                 6 6 6 6 6 6 6 4    0 0 0 0 0 0 0 2
 */
CKPT_API uint64_t ckpt_z12_saved_numel(enum ckpt_z12_rule rule,
				       const struct ckpt_zero_cut *cut, uint32_t rank);
CKPT_API uint64_t ckpt_z12_group_padding(enum ckpt_z12_rule rule,
					 const struct ckpt_zero_cut *cut, uint32_t rank);

/*
 * Round robin (round_robin_gradients): a group is laid out as its parameters 0, N, 2N,
 * ..., then 1, N+1, ..., N being the world size.  ckpt_z12_rr_original() is the original
 * index of the parameter stored at position 'stored', ckpt_z12_rr_stored() the reverse;
 * both O(1).  An index >= nparam, or a world of 0, comes back unchanged.  To fill an
 * array, call them for 0..nparam-1.  'param_shapes' in the files is in stored order,
 * 'param_slice_mappings' in original order.
 *
 *	7 parameters, world 3: stored order 0 3 6 1 4 2 5
 *	    rr_original(3) = 1, rr_stored(1) = 3
 */
static inline uint32_t ckpt_z12_rr_stored(uint32_t nparam, uint32_t world,
					  uint32_t original)
{
	uint32_t slot, extra;

	if (original >= nparam || !world)
		return original;
	slot = original % world;
	extra = nparam % world;
	return slot * (nparam / world) + (slot < extra ? slot : extra) +
	       original / world;
}

static inline uint32_t ckpt_z12_rr_original(uint32_t nparam, uint32_t world,
					    uint32_t stored)
{
	uint32_t each, extra, big;

	if (stored >= nparam || !world)
		return stored;
	each = nparam / world;	/* length of a slot's list ... */
	extra = nparam % world;	/* ... of which the first 'extra' have one more */
	big = extra * (each + 1);
	if (stored < big)
		return stored / (each + 1) + stored % (each + 1) * world;
	stored -= big;
	return extra + stored / each + stored % each * world;
}

/*
 * ckpt_z12_gap_unit() is the number of elements parameters are aligned to under
 * zero_optimization.parameter_alignment: 16 bytes of the model's dtype, whose item size
 * is 'itemsize' bytes (1, 2, 4, 8 or 16; anything else gives 0).  16-bit models: 8.
 */
static inline uint32_t ckpt_z12_gap_unit(uint32_t itemsize)
{
	if (!itemsize || itemsize > 16 || 16 % itemsize)
		return 0;
	return 16 / itemsize;
}

/*
 * ckpt_z12_offsets() lays 'nparam' parameters out in a flat group: offset_out[j] is where
 * parameter j (layout order: after round robin) begins, gap_out[j] how many zeros follow
 * it, '*total_out' the length without padding.  'unit' is 1 without parameter_alignment,
 * else ckpt_z12_gap_unit().  The last parameter has no gap.  offset_out and gap_out have
 * room for nparam numbers; either may be NULL.  Returns 0, or -1 when unit is 0 or the
 * total exceeds CKPT_ZERO_MAX_NUMEL; what the arrays hold is unspecified then.
 *
 *	numel 5 16 3, unit 8  ->  offset 0 8 24, gap 3 0 0, total 27
 *	numel 5 16 3, unit 1  ->  offset 0 5 21, gap 0 0 0, total 24
 */
CKPT_API int ckpt_z12_offsets(const uint64_t *numel, uint32_t nparam, uint32_t unit,
			      uint64_t *offset_out, uint64_t *gap_out,
			      uint64_t *total_out);

/*
 * ckpt_z12_slice() is the entry of 'param_slice_mappings' of 'rank' for the parameter at
 * [offset, offset + numel) of the flat group: it returns 1 and fills start (in the rank's
 * partition) and numel, or returns 0 when there is no entry.  A parameter without
 * elements has an entry, of numel 0, where it is strictly inside the partition, as in
 * DeepSpeed.
 *
 *	part 126: parameter [100, 300) on rank 1  ->  start 0, numel 126
 *	                               on rank 2  ->  start 0, numel 48
 */
CKPT_API int ckpt_z12_slice(uint64_t offset, uint64_t numel, uint64_t part,
			    uint32_t rank, uint64_t *start_out, uint64_t *numel_out);

/* Iterator of ckpt_z12_pieces_*(); fields are private. */
struct ckpt_z12_pieces {
	const uint64_t *numel;	/* lent by the caller, as 'offset' */
	const uint64_t *offset;
	uint64_t total;
	uint64_t at;		/* next slot */
	uint64_t end;		/* after the last one */
	uint32_t nparam;
	uint32_t param;		/* that has the next slot, or ends before it */
};

/*
 * ckpt_z12_pieces_init() starts a walk over what the slots [begin, begin + count) of a
 * flat group hold: parameters, gaps and, from 'total' on, padding.  'numel' and 'offset'
 * (of ckpt_z12_offsets()) are lent and stay in place while the iterator is used.  For the
 * partition of rank r: begin = r * part, count = part.  ckpt_z12_pieces_next() fills
 * '*piece_out' and returns 1, or returns 0 at the end; pieces rise and cover every slot
 * once.  Cost: O(log nparam) to start, O(1) amortised per piece.  init returns 0, or -1
 * when the range goes beyond 2^63.
 *
 * To fill the fp32 partition of a rank from whole parameters:
 *
 *	ckpt_z12_pieces_init(&it, numel, offset, nparam, total, rank * part, part);
 *	while (ckpt_z12_pieces_next(&it, &p))
 *		if (p.kind == CKPT_ZERO_PARAM)
 *			memcpy(partition + p.offset - rank * part, param[p.param] + p.elem,
 *			       p.numel * sizeof(float));
 *		else
 *			memset(partition + p.offset - rank * part, 0, p.numel * sizeof(float));
 *
 *	numel 5 16 3, unit 8, total 27, world 2 (part 14), rank 1 = slots [14, 28):
 *	PARAM 1 elem 6 numel 10,  PARAM 2 elem 0 numel 3,  PAD numel 1
 */
CKPT_API int ckpt_z12_pieces_init(struct ckpt_z12_pieces *it, const uint64_t *numel,
				  const uint64_t *offset, uint32_t nparam,
				  uint64_t total, uint64_t begin, uint64_t count);
CKPT_API int ckpt_z12_pieces_next(struct ckpt_z12_pieces *it,
				  struct ckpt_zero_piece *piece_out);

/* ------------------------------------------------------------------------ stage 3 */

/*
 * ckpt_z3_part_numel() is how many slots each of 'world' ranks has for a parameter of
 * 'numel' elements: it is cut into equal pieces and the last pieces are padded.
 * ckpt_z3_valid_numel() is how many of the slots of 'rank' hold elements, beginning with
 * element rank * part.  What the other slots hold in a file is unspecified (NaN is seen).
 *
 *	numel 10, world 4  ->  part 3, valid 3 3 3 1
 *	numel  5, world 4  ->  part 2, valid 2 2 1 0
 *	numel  3, world 4  ->  part 1, valid 1 1 1 0
 *	numel  0           ->  part 0
 */
static inline uint64_t ckpt_z3_part_numel(uint64_t numel, uint32_t world)
{
	if (!world)
		return 0;
	return numel / world + (numel % world != 0);
}

static inline uint64_t ckpt_z3_valid_numel(uint64_t numel, uint32_t world, uint32_t rank)
{
	struct ckpt_zero_cut cut = { numel, ckpt_z3_part_numel(numel, world), world, 0 };

	return ckpt_zero_valid_numel(&cut, rank);
}

/*
 * ckpt_z3_cut() cuts one parameter, so that everything above about cuts applies to it: to move
 * parameters between worlds, or between stages 2 and 3, cut each of them on both sides.  Returns 0,
 * or -1 outside the domain.
 */
CKPT_API int ckpt_z3_cut(uint64_t numel, uint32_t world, struct ckpt_zero_cut *cut_out);

/*
 * ckpt_z3_offsets() says where the parameters of one sub-group begin in its flat buffer,
 * which is the rank's pieces one after the other, padding included: offset_out[j] for each
 * (NULL allowed), and the length, the same on every rank.  Returns 0, or -1 when the world
 * is outside the domain or the length exceeds CKPT_ZERO_MAX_NUMEL.
 *
 *	numel 10 5 3, world 4  ->  offset 0 3 5, total 6
 */
CKPT_API int ckpt_z3_offsets(const uint64_t *numel, uint32_t nparam, uint32_t world,
			     uint64_t *offset_out, uint64_t *total_out);

/*
 * ckpt_z3_subgroups() splits the trainable parameters of one optimizer group into
 * sub-groups.  With sub_group_size >= the sum of their parts there is one; else
 * parameters are added until the sum of parts reaches sub_group_size (>=), which closes
 * the sub-group.  A parameter is never split, and the measure is parts, so the split
 * depends on the world.  Sub-group i holds parameters first_out[i] up to first_out[i+1]
 * (the last one: up to nparam).  first_out has room for nparam numbers.  No parameters,
 * no sub-groups.  Returns 0, or -1 as ckpt_z3_offsets() does.
 *
 *	parts 3 2 1 4, size  5  ->  2: first 0 2
 *	parts 3 2 1 4, size  4  ->  2: first 0 2
 *	parts 3 2 1 4, size 10  ->  1: first 0
 *	parts 3 2 1 4, size  1  ->  4: first 0 1 2 3
 */
CKPT_API int ckpt_z3_subgroups(const uint64_t *numel, uint32_t nparam, uint32_t world,
			       uint64_t sub_group_size, uint32_t *first_out,
			       uint32_t *n_out);

/* Iterator of ckpt_z3_pieces_*(); fields are private. */
struct ckpt_z3_pieces {
	const uint64_t *numel;	/* lent by the caller */
	uint64_t offset;	/* next slot */
	uint64_t pad;		/* of the parameter before it, still to come */
	uint32_t nparam;
	uint32_t param;
	uint32_t world;
	uint32_t rank;
};

/*
 * ckpt_z3_pieces_init() starts a walk over the flat buffer that 'rank' has of a sub-group
 * of 'nparam' parameters: for each one its real elements (PARAM), then its padding (PAD),
 * those of length 0 left out.  'numel' is lent while the iterator is used.
 * ckpt_z3_pieces_next() fills '*piece_out' and returns 1, or returns 0 at the end.  init
 * returns 0, or -1 as ckpt_z3_offsets() does, or when rank >= world.  Cost: init reads
 * 'numel' once.  How a reader takes the elements of each parameter out of a rank's buffer:
 *
 *	ckpt_z3_pieces_init(&it, numel, nparam, world, rank);
 *	while (ckpt_z3_pieces_next(&it, &p))
 *		if (p.kind == CKPT_ZERO_PARAM)
 *			memcpy(param[p.param] + p.elem, buffer + p.offset,
 *			       p.numel * sizeof(float));
 *
 *	numel 10 5 3, world 4, rank 3: PARAM 0 elem 9 numel 1 at 0, PAD 2 at 1,
 *	PAD 2 at 3, PAD 1 at 5
 */
CKPT_API int ckpt_z3_pieces_init(struct ckpt_z3_pieces *it, const uint64_t *numel,
				 uint32_t nparam, uint32_t world, uint32_t rank);
CKPT_API int ckpt_z3_pieces_next(struct ckpt_z3_pieces *it,
				 struct ckpt_zero_piece *piece_out);

/* ---- batches: one optimizer step uses micro x accumulation x world samples ---- */

/* The largest accepted value of the three numbers of a batch. */
#define CKPT_ZERO_MAX_BATCH ((uint64_t)1 << 32)

/*
 * The batch of a configuration, in samples: 'train' is train_batch_size, the global one; 'micro' is
 * train_micro_batch_size_per_gpu; 'accumulation' is gradient_accumulation_steps.  0 = not given.
 * They fit together if train = micro * accumulation * world.
 */
struct ckpt_zero_batch {
	uint64_t train, micro, accumulation;
};

/*
 * Fill in what is not given as DeepSpeed's configuration does, rounding down: with 'train',
 * one of the others, or an accumulation of 1; without it, 'micro' and an accumulation of 1 if
 * that is not given.  0 if the three fit together then; 1 if not, where DeepSpeed ends with
 * "Check batch related parameters" (they are filled in all the same); -1 if neither 'train' nor
 * 'micro' is given, for a world of 0 or above the largest, or above CKPT_ZERO_MAX_BATCH.
 *
 *	train 32, micro 4, world 4            ->  accumulation 2
 *	micro 4, accumulation 1, world 4      ->  train 16
 *	train 32, micro 4, acc. 1, world 4    ->  1: 4 x 1 x 4 is not 32
 *	train 32, micro 4, world 3            ->  1: accumulation 2, and 4 x 2 x 3 is not 32
 */
CKPT_API int ckpt_zero_batch_fill(struct ckpt_zero_batch *batch, uint32_t world);

/*
 * The batch of the same 'train' on 'world' ranks with the largest micro-batch that is not
 * above 'batch->micro' (memory).  0, or 1 if no batch is that large on so many ranks: then
 * '*out' is the one nearest to it, the smaller of two.  -1 if 'train' or 'micro' is 0 or too
 * large, or the world is.  Cost: a square root of 'train'.
 *
 *	train 32, micro 4, 8 ranks  -> 4:  micro 4, accumulation 2
 *	train 120, micro 60, 2 ranks  -> 3:  micro 40, accumulation 1
 *	train 32, micro 4, 8 ranks  -> 3:  1: train 33, micro 1, accumulation 11
 */
CKPT_API int ckpt_zero_batch_keep(const struct ckpt_zero_batch *batch, uint32_t world,
				  struct ckpt_zero_batch *out);

#ifdef __cplusplus
}
#endif

#endif
