/*
 * ds_write_autoep.c -- what a model file says of AutoEP's experts (ds_autoep_layers), for other
 * expert ranks or another number of ranks.
 *
 * Each expert rank has an equal run of a layer's experts.  Two keys of a layer say so once more, in
 * version 1 of both: expert_placement by experts, affine_maps by elements of each parameter.
 */
#include <string.h>

#include "formats/ds_pt/ds_write.h"
#include "libckpt/base/ck_err.h"

#define MOST_DIMS 8

static struct ck_val *sets_int(struct wr *w, struct ck_val *dict, const char *key, uint64_t n)
{
	if (dict && !ck_val_get(dict, key))
		return dict;
	return ck_val_dict_sets(&w->arena, dict, key, ck_val_new_int(&w->arena, (int64_t)n));
}

static struct ck_val *int_list(struct wr *w, const uint64_t *item, uint64_t n)
{
	struct ck_val *list = ck_val_new_list(&w->arena);

	for (uint64_t i = 0; list && i < n; i++)
		list = ck_val_list_add(&w->arena, list,
				       ck_val_new_int(&w->arena, (int64_t)item[i]));
	return list;
}

/* {rank, experts} of each expert rank. */
static struct ck_val *placement(struct wr *w, const struct ck_val *old, uint32_t ep, uint64_t local)
{
	struct ck_val *ranks = ck_val_new_list(&w->arena);

	for (uint32_t r = 0; ranks && r < ep; r++) {
		struct ck_val *experts = ck_val_new_list(&w->arena), *one;

		for (uint64_t i = 0; experts && i < local; i++)
			experts = ck_val_list_add(&w->arena, experts,
						  ck_val_new_int(&w->arena,
								 (int64_t)(r * local + i)));
		one = ck_val_dict_sets(&w->arena, ck_val_new_dict(&w->arena), "rank",
				       ck_val_new_int(&w->arena, r));
		ranks = ck_val_list_add(&w->arena, ranks,
					ck_val_dict_sets(&w->arena, one, "experts", experts));
	}
	return ck_val_dict_sets(&w->arena, sets_int(w, ck_val_clone(&w->arena, old), "ep_size", ep),
				"ranks", ranks);
}

struct stack {
	uint64_t dim[MOST_DIMS], stride[MOST_DIMS];	/* of an expert rank's part */
	uint64_t ndim;
};

static bool read_stack(const struct ck_val *shape, uint32_t ep, struct stack *s)
{
	struct ck_val *const *item;
	uint64_t numel = 1;

	if (!ck_val_seq(shape, &item, &s->ndim) || !s->ndim || s->ndim > MOST_DIMS)
		return false;
	for (uint64_t d = s->ndim; d > 0; d--) {
		int64_t n;

		if (!ck_val_int(item[d - 1], &n) || n < 1 || (uint64_t)n > (1ull << 40) / numel)
			return false;
		s->dim[d - 1] = (uint64_t)n;
		s->stride[d - 1] = numel;
		numel *= (uint64_t)n;
	}
	if (s->dim[0] % ep)
		return false;
	s->dim[0] /= ep;
	return true;
}

/* [offset, strides] */
static struct ck_val *address(struct wr *w, const struct stack *s, uint64_t offset)
{
	struct ck_val *list = ck_val_list_add(&w->arena, ck_val_new_list(&w->arena),
					      ck_val_new_int(&w->arena, (int64_t)offset));

	return ck_val_list_add(&w->arena, list, int_list(w, s->stride, s->ndim));
}

/* {shard_shape, pieces} of expert rank 'r': one piece, which it alone has. */
static struct ck_val *map_of_rank(struct wr *w, const struct stack *s, uint32_t r)
{
	const uint64_t rank = r;
	struct ck_arena *a = &w->arena;
	struct ck_val *piece = ck_val_dict_sets(a, ck_val_new_dict(a), "shape",
						int_list(w, s->dim, s->ndim));
	struct ck_val *map;

	piece = ck_val_dict_sets(a, piece, "source",
				 address(w, s, rank * s->dim[0] * s->stride[0]));
	piece = ck_val_dict_sets(a, piece, "dest", address(w, s, 0));
	piece = ck_val_dict_sets(a, piece, "locations", int_list(w, &rank, 1));
	map = ck_val_dict_sets(a, ck_val_new_dict(a), "shard_shape",
			       int_list(w, s->dim, s->ndim));
	return ck_val_dict_sets(a, map, "pieces",
				ck_val_list_add(a, ck_val_new_list(a), piece));
}

static struct ck_val *param_map(struct wr *w, const struct ck_val *old, uint32_t ep)
{
	struct ck_val *ranks = ck_val_new_dict(&w->arena);
	struct stack s;

	if (!read_stack(ck_val_get(old, "logical_shape"), ep, &s))
		return NULL;
	for (uint32_t r = 0; ranks && r < ep; r++)
		ranks = ck_val_dict_add(&w->arena, ranks, ck_val_new_int(&w->arena, r),
					map_of_rank(w, &s, r));
	return ck_val_dict_sets(&w->arena, ck_val_clone(&w->arena, old), "ranks", ranks);
}

static struct ck_val *maps(struct wr *w, const struct ck_val *old, uint32_t ep)
{
	const struct ck_val *params = ck_val_get(old, "params");
	struct ck_val *made = ck_val_clone(&w->arena, params);
	struct ck_val *const *item;
	uint64_t n;

	if (!ck_val_pairs(params, &item, &n))
		return NULL;
	for (uint64_t i = 0; made && i < n; i++)
		made = ck_val_dict_set(&w->arena, made, item[2 * i],
				       param_map(w, item[2 * i + 1], ep));
	return ck_val_dict_sets(&w->arena, ck_val_clone(&w->arena, old), "params", made);
}

static bool is_first_version(const struct ck_val *v)
{
	int64_t n;

	return ck_val_int(ck_val_get(v, "version"), &n) && n == 1;
}

/* The expert ranks of the target; all groups of AutoEP have the same. */
static uint32_t target_ep(const struct wr *w)
{
	for (uint32_t g = 0; g < w->t->ngroups; g++)
		if (w->t->group[g].stacked)
			return w->t->group[g].runs;
	return 0;
}

static struct ck_val *layer_of_ranks(struct wr *w, struct ck_val *layer, uint64_t experts,
				     uint32_t ep, struct ckpt_err *err)
{
	const struct ck_val *place = ck_val_get(layer, "expert_placement");
	const struct ck_val *map = ck_val_get(layer, "affine_maps");

	if ((place && !is_first_version(place)) || (map && !is_first_version(map))) {
		ck_fail(err, CKPT_E_UNSUPPORTED, w->step->at.where, CKPT_NO_OFFSET,
			"ds_autoep_layers has a later version than 1 of expert_placement or "
			"affine_maps, which zckpt cannot write for other expert ranks (--ep)");
		return NULL;
	}
	layer = sets_int(w, layer, "num_local_experts", experts / ep);
	layer = sets_int(w, layer, "ep_size", ep);
	layer = sets_int(w, layer, "global_expert_end", experts / ep);	/* of expert rank 0 */
	if (place)
		layer = ck_val_dict_sets(&w->arena, layer, "expert_placement",
					 placement(w, place, ep, experts / ep));
	if (map)
		layer = ck_val_dict_sets(&w->arena, layer, "affine_maps", maps(w, map, ep));
	if (ck_val_get(layer, "ep_group_name"))
		layer = ck_val_dict_sets(&w->arena, layer, "ep_group_name",
					 ck_val_new_str(&w->arena,
							ck_arena_printf(&w->arena, "ep_size_%u",
									ep)));
	return layer;
}

static struct ck_val *edit_layer(struct wr *w, const struct ck_val *old, uint32_t ep,
				 struct ckpt_err *err)
{
	struct ck_val *layer = ck_val_clone(&w->arena, old);
	int64_t experts = 0, had = 0;

	ck_val_int(ck_val_get(old, "num_experts"), &experts);
	ck_val_int(ck_val_get(old, "ep_size"), &had);
	if (had != ep && experts > 0)
		layer = layer_of_ranks(w, layer, (uint64_t)experts, ep, err);
	return layer ? sets_int(w, layer, "expert_data_parallel_world_size", w->t->world / ep) :
	       NULL;
}

/* 'dict' with the list of layers in it for the target. */
static struct ck_val *edit_layers(struct wr *w, struct ck_val *dict, uint32_t ep,
				  struct ckpt_err *err)
{
	const struct ck_val *old = ck_val_get(dict, "ds_autoep_layers");
	struct ck_val *list = ck_val_new_list(&w->arena), *const *item;
	uint64_t n;

	if (!dict || !ck_val_seq(old, &item, &n))
		return dict;
	for (uint64_t i = 0; list && i < n; i++)
		list = ck_val_list_add(&w->arena, list, edit_layer(w, item[i], ep, err));
	return ck_val_dict_sets(&w->arena, dict, "ds_autoep_layers", list);
}

struct ck_val *ck_wr_autoep(struct wr *w, struct ck_val *root, struct ckpt_err *err)
{
	const uint32_t ep = target_ep(w);
	const char *info = "universal_checkpoint_info";
	struct ck_val *const *item;
	uint64_t n;

	if (!root || !ep)
		return root;
	root = edit_layers(w, root, ep, err);
	if (root && ck_val_pairs(ck_val_get(root, info), &item, &n))
		root = ck_val_dict_sets(&w->arena, root, info,
					edit_layers(w, ck_val_clone(&w->arena,
								    ck_val_get(root, info)),
						    ep, err));
	return root;
}
