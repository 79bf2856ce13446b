/*
 * zero_cut.c -- ranges of a cut: where they lie, and what moves from cut to cut.
 *
 * A cut is 'numel' elements in consecutive pieces of 'part', one per rank.  So element e
 * is on rank e / part at e % part, and the next border after it is (e / part + 1) * part.
 * A move ends at whichever of the source's and the target's borders comes first.  No sum
 * or product here exceeds part * world, which is less than numel + 2 * world.
 */
#include "libckpt/include/ckpt_zero.h"

/* A range of a cut that ckpt_z12_cut() or ckpt_z3_cut() could have made: the pieces hold
   all elements, so a rank that is computed from an element is in the world. */
static int cut_holds(const struct ckpt_zero_cut *cut, uint64_t begin, uint64_t numel)
{
	if (!cut->world || cut->numel > CKPT_ZERO_MAX_NUMEL)
		return 0;
	if (cut->part < ckpt_z3_part_numel(cut->numel, cut->world) ||
	    cut->part > CKPT_ZERO_MAX_NUMEL + 2)
		return 0;
	return begin <= cut->numel && numel <= cut->numel - begin;
}

static uint64_t min_u64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

int ckpt_zero_locate(const struct ckpt_zero_cut *cut, uint64_t global,
		     uint32_t *rank_out, uint64_t *offset_out)
{
	if (!cut_holds(cut, global, 1))
		return -1;
	*rank_out = (uint32_t)(global / cut->part);
	*offset_out = global % cut->part;
	return 0;
}

int ckpt_zero_global(const struct ckpt_zero_cut *cut, uint32_t rank, uint64_t offset,
		     uint64_t numel, uint64_t *global_out, uint64_t *valid_out)
{
	uint64_t valid;

	if (!cut_holds(cut, 0, 0) || rank >= cut->world)
		return -1;
	if (offset > cut->part || numel > cut->part - offset)
		return -1;
	valid = ckpt_zero_valid_numel(cut, rank);
	if (offset >= valid) {
		*global_out = min_u64(rank * cut->part + offset, cut->numel);
		*valid_out = 0;
		return 0;
	}
	*global_out = rank * cut->part + offset;
	*valid_out = min_u64(valid - offset, numel);
	return 0;
}

int ckpt_zero_runs_init(struct ckpt_zero_runs *it, const struct ckpt_zero_cut *cut,
			uint64_t begin, uint64_t numel)
{
	if (!cut_holds(cut, begin, numel))
		return -1;
	it->cut = *cut;
	it->at = begin;
	it->end = begin + numel;
	return 0;
}

int ckpt_zero_runs_next(struct ckpt_zero_runs *it, struct ckpt_zero_run *run_out)
{
	const uint64_t part = it->cut.part;

	if (it->at >= it->end)
		return 0;
	run_out->global = it->at;
	run_out->rank = (uint32_t)(it->at / part);
	run_out->offset = it->at % part;
	run_out->numel = min_u64(part - run_out->offset, it->end - it->at);
	run_out->reserved = 0;
	it->at += run_out->numel;
	return 1;
}

int ckpt_zero_moves_init(struct ckpt_zero_moves *it, const struct ckpt_zero_cut *src,
			 uint64_t src_begin, const struct ckpt_zero_cut *dst,
			 uint64_t dst_begin, uint64_t numel)
{
	if (!cut_holds(src, src_begin, numel) || !cut_holds(dst, dst_begin, numel))
		return -1;
	it->src = *src;
	it->dst = *dst;
	it->src_begin = src_begin;
	it->dst_begin = dst_begin;
	it->done = 0;
	it->numel = numel;
	return 0;
}

int ckpt_zero_moves_next(struct ckpt_zero_moves *it, struct ckpt_zero_move *move_out)
{
	uint64_t from, to, n;

	if (it->done >= it->numel)
		return 0;
	from = it->src_begin + it->done;
	to = it->dst_begin + it->done;
	move_out->src_rank = (uint32_t)(from / it->src.part);
	move_out->src_offset = from % it->src.part;
	move_out->dst_rank = (uint32_t)(to / it->dst.part);
	move_out->dst_offset = to % it->dst.part;
	n = min_u64(it->src.part - move_out->src_offset,
		    it->dst.part - move_out->dst_offset);
	move_out->numel = min_u64(n, it->numel - it->done);
	move_out->done = it->done;
	it->done += move_out->numel;
	return 1;
}
