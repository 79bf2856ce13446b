/*
 * zero_z12.c -- flat groups of stages 1 and 2 and of BF16_Optimizer: the cut, what of it
 * was written by each generation of DeepSpeed, parameter offsets, and who owns a slot.
 */
#include <stddef.h>

#include "libckpt/include/ckpt_zero.h"

/* No partition may begin beyond this, so that offset + numel never wraps. */
#define SLOT_MAX ((uint64_t)1 << 63)

int ckpt_z12_cut(uint64_t numel, uint32_t world, uint32_t factor,
		 struct ckpt_zero_cut *cut_out)
{
	if (!world || world > CKPT_ZERO_MAX_WORLD || numel > CKPT_ZERO_MAX_NUMEL)
		return -1;
	if (factor != 1 && factor != 2)
		return -1;
	cut_out->numel = numel;
	cut_out->part = ckpt_z12_part_numel(numel, world, factor);
	cut_out->world = world;
	cut_out->reserved = 0;
	return 0;
}

uint64_t ckpt_z12_group_padding(enum ckpt_z12_rule rule, const struct ckpt_zero_cut *cut,
				uint32_t rank)
{
	const int last = rank + 1 == cut->world;

	if (rank >= cut->world)
		return 0;
	switch (rule) {
	case CKPT_Z12_CLAMP:
		return cut->part - ckpt_zero_valid_numel(cut, rank);
	case CKPT_Z12_LAST_RANK:
	case CKPT_Z12_KEPT:
		return last ? cut->part * cut->world - cut->numel : 0;
	case CKPT_Z12_LEFTOVER:
		return last ? (cut->world - cut->numel % cut->world) % cut->world : 0;
	}
	return 0;
}

uint64_t ckpt_z12_saved_numel(enum ckpt_z12_rule rule, const struct ckpt_zero_cut *cut,
			      uint32_t rank)
{
	const uint64_t part = cut->part;
	uint64_t pad;

	if (rank >= cut->world || rule < CKPT_Z12_LEFTOVER || rule > CKPT_Z12_KEPT)
		return 0;
	if (rule == CKPT_Z12_KEPT)
		return part;
	pad = ckpt_z12_group_padding(rule, cut, rank);
	if (pad <= part)
		return part - pad;
	/* The writer cut with t[:part - pad]; a negative stop counts from the end. */
	return pad - part < part ? part - (pad - part) : 0;
}

int ckpt_z12_offsets(const uint64_t *numel, uint32_t nparam, uint32_t unit,
		     uint64_t *offset_out, uint64_t *gap_out, uint64_t *total_out)
{
	uint64_t at = 0;

	if (!unit)
		return -1;
	for (uint32_t j = 0; j < nparam; j++) {
		uint64_t gap;

		if (numel[j] > CKPT_ZERO_MAX_NUMEL - at)
			return -1;
		if (offset_out)
			offset_out[j] = at;
		at += numel[j];
		gap = j + 1 < nparam ? (unit - at % unit) % unit : 0;
		if (gap > CKPT_ZERO_MAX_NUMEL - at)
			return -1;
		if (gap_out)
			gap_out[j] = gap;
		at += gap;
	}
	*total_out = at;
	return 0;
}

int ckpt_z12_slice(uint64_t offset, uint64_t numel, uint64_t part, uint32_t rank,
		   uint64_t *start_out, uint64_t *numel_out)
{
	uint64_t begin, end, stop, from;

	/* An end that does not fit lies beyond everything, as 2^64 - 1 does. */
	if (__builtin_mul_overflow(part, rank, &begin))
		return 0;
	if (__builtin_add_overflow(begin, part, &end))
		end = UINT64_MAX;
	if (__builtin_add_overflow(offset, numel, &stop))
		stop = UINT64_MAX;
	if (offset >= end || stop <= begin)
		return 0;
	from = offset > begin ? offset : begin;
	*start_out = from - begin;
	*numel_out = (stop < end ? stop : end) - from;
	return 1;
}

/* The last parameter that begins at or before 'at', or 0. */
static uint32_t find_param(const uint64_t *offset, uint32_t nparam, uint64_t at)
{
	uint32_t low = 0, high = nparam;

	while (high - low > 1) {
		uint32_t mid = low + (high - low) / 2;

		if (offset[mid] <= at)
			low = mid;
		else
			high = mid;
	}
	return low;
}

int ckpt_z12_pieces_init(struct ckpt_z12_pieces *it, const uint64_t *numel,
			 const uint64_t *offset, uint32_t nparam, uint64_t total,
			 uint64_t begin, uint64_t count)
{
	if (begin > SLOT_MAX || count > SLOT_MAX - begin || total > CKPT_ZERO_MAX_NUMEL)
		return -1;
	it->numel = numel;
	it->offset = offset;
	it->total = nparam ? total : 0;
	it->at = begin;
	it->end = begin + count;
	it->nparam = nparam;
	it->param = find_param(offset, nparam, begin);
	return 0;
}

int ckpt_z12_pieces_next(struct ckpt_z12_pieces *it, struct ckpt_zero_piece *piece_out)
{
	uint64_t stop;

	if (it->at >= it->end)
		return 0;
	while (it->param + 1 < it->nparam && it->offset[it->param + 1] <= it->at)
		it->param++;
	piece_out->offset = it->at;
	piece_out->param = it->nparam ? it->param : 0;
	piece_out->elem = 0;
	if (it->at >= it->total) {
		piece_out->kind = CKPT_ZERO_PAD;
		stop = it->end;
	} else if (it->at - it->offset[it->param] < it->numel[it->param]) {
		piece_out->kind = CKPT_ZERO_PARAM;
		piece_out->elem = it->at - it->offset[it->param];
		stop = it->offset[it->param] + it->numel[it->param];
	} else {
		piece_out->kind = CKPT_ZERO_GAP;
		stop = it->param + 1 < it->nparam ? it->offset[it->param + 1]
						  : it->total;
	}
	piece_out->numel = (stop < it->end ? stop : it->end) - it->at;
	it->at += piece_out->numel;
	return 1;
}
