/*
 * zero_z3.c -- stage 3: every parameter cut by itself, pieces gathered in sub-groups.
 */
#include <stddef.h>

#include "libckpt/include/ckpt_zero.h"

int ckpt_z3_cut(uint64_t numel, uint32_t world, struct ckpt_zero_cut *cut_out)
{
	if (!world || world > CKPT_ZERO_MAX_WORLD || numel > CKPT_ZERO_MAX_NUMEL)
		return -1;
	cut_out->numel = numel;
	cut_out->part = ckpt_z3_part_numel(numel, world);
	cut_out->world = world;
	cut_out->reserved = 0;
	return 0;
}

int ckpt_z3_offsets(const uint64_t *numel, uint32_t nparam, uint32_t world,
		    uint64_t *offset_out, uint64_t *total_out)
{
	uint64_t at = 0;

	if (!world || world > CKPT_ZERO_MAX_WORLD)
		return -1;
	for (uint32_t j = 0; j < nparam; j++) {
		uint64_t part = ckpt_z3_part_numel(numel[j], world);

		if (numel[j] > CKPT_ZERO_MAX_NUMEL || part > CKPT_ZERO_MAX_NUMEL - at)
			return -1;
		if (offset_out)
			offset_out[j] = at;
		at += part;
	}
	*total_out = at;
	return 0;
}

int ckpt_z3_subgroups(const uint64_t *numel, uint32_t nparam, uint32_t world,
		      uint64_t sub_group_size, uint32_t *first_out, uint32_t *n_out)
{
	uint64_t total, sum = 0;
	uint32_t n = 0;
	int is_new = 1;

	if (ckpt_z3_offsets(numel, nparam, world, NULL, &total))
		return -1;
	/* One sub-group even if a zero-sized tail would open a second: DeepSpeed looks
	   at the total first. */
	if (sub_group_size >= total)
		sub_group_size = UINT64_MAX;
	for (uint32_t j = 0; j < nparam; j++) {
		if (is_new) {
			first_out[n++] = j;
			sum = 0;
		}
		sum += ckpt_z3_part_numel(numel[j], world);
		is_new = sum >= sub_group_size;
	}
	*n_out = n;
	return 0;
}

int ckpt_z3_pieces_init(struct ckpt_z3_pieces *it, const uint64_t *numel,
			uint32_t nparam, uint32_t world, uint32_t rank)
{
	uint64_t total;

	if (ckpt_z3_offsets(numel, nparam, world, NULL, &total) || rank >= world)
		return -1;
	it->numel = numel;
	it->offset = 0;
	it->pad = 0;
	it->nparam = nparam;
	it->param = 0;
	it->world = world;
	it->rank = rank;
	return 0;
}

/* 'pad' is the padding still owed to the parameter before 'param'. */
static void emit(struct ckpt_z3_pieces *it, struct ckpt_zero_piece *piece_out,
		 uint32_t kind, uint32_t param, uint64_t elem, uint64_t numel)
{
	piece_out->offset = it->offset;
	piece_out->numel = numel;
	piece_out->elem = elem;
	piece_out->param = param;
	piece_out->kind = kind;
	it->offset += numel;
}

int ckpt_z3_pieces_next(struct ckpt_z3_pieces *it, struct ckpt_zero_piece *piece_out)
{
	for (;;) {
		uint64_t numel, part, valid;

		if (it->pad) {
			emit(it, piece_out, CKPT_ZERO_PAD, it->param - 1, 0, it->pad);
			it->pad = 0;
			return 1;
		}
		if (it->param >= it->nparam)
			return 0;
		numel = it->numel[it->param++];
		part = ckpt_z3_part_numel(numel, it->world);
		valid = ckpt_z3_valid_numel(numel, it->world, it->rank);
		it->pad = part - valid;
		if (valid) {
			emit(it, piece_out, CKPT_ZERO_PARAM, it->param - 1,
			     it->rank * part, valid);
			return 1;
		}
	}
}
