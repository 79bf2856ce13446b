/*
 * mg_out_files.c -- blocks of tensors in data files, and the index of all.
 *
 * A block is whole rows of one layer and one expert, so that it is runs of the source one after the
 * other.  Where Megatron-Core cuts a tensor by rows, a block is what one rank of tensor parallelism
 * reads; any other number of ranks reads the same blocks, in parts.
 *
 * Rows of a vocabulary's padding repeat its last row, as Megatron-LM's own converters have them
 * (tools/checkpoint): the loss counts them as well, and rows of zeros would get a logit of zero.
 */
#include <inttypes.h>
#include <string.h>

#include "formats/megatron/mg_out.h"
#include "formats/torch_pt/ck_pt_plan.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/tensor/ck_dtype.h"
#include "libckpt/tensor/ck_val_new.h"

#define FILE_BYTES ((uint64_t)5000000000)	/* a file has no more, but for its last block */

struct writing {
	struct mg_out *o;
	struct ck_dcp_listed *item;	/* of '.metadata' */
	uint64_t n, cap;
	struct ck_map modules;		/* that have an _extra_state */
	const char *file;		/* the name of the one that grows, in the step's folder */
	uint64_t nfiles;
	struct ck_pt_piece *piece;	/* of a block */
	uint64_t npieces, piece_cap;
};

/* ---- archives ---- */

static int begin_file(struct writing *w, struct ckpt_err *err)
{
	struct ck_arena *a = w->o->arena;
	const char *name;

	w->file = ck_arena_printf(a, "__%" PRIu64 "_0.distcp", w->nfiles++);
	name = w->file ? ck_arena_printf(a, MG_OUT_STEP "/%s", w->file) : NULL;
	return name ? ck_plan_file(w->o->plan, name, err) : ck_fail_nomem(err, "a name", 0);
}

/* One more archive; '*block' gets its place. */
static int append(struct writing *w, struct ck_pt_want *want, struct ck_dcp_block *block,
		  struct ckpt_err *err)
{
	struct ck_plan *plan = w->o->plan;
	int rc = 0;

	if (!w->file || plan->file[plan->nfiles - 1].bytes >= FILE_BYTES)
		rc = begin_file(w, err);
	if (rc)
		return rc;
	want->ix = w->o->ix;
	want->prefix = "archive";
	want->append = true;
	block->file = w->file;
	block->begin = plan->file[plan->nfiles - 1].bytes;
	rc = ck_pt_plan_file(want, plan, err);
	block->bytes = plan->file[plan->nfiles - 1].bytes - block->begin;
	return rc;
}

static int add_item(struct writing *w, const struct ck_dcp_listed *item, struct ckpt_err *err)
{
	int rc = item->name ? ck_grow(&w->item, &w->cap, w->n + 1, sizeof(*w->item), err) :
		 ck_fail_nomem(err, "a name", 0);

	if (!rc)
		w->item[w->n++] = *item;
	return rc;
}

/* ---- a block ---- */

static int add_piece(struct writing *w, const struct mg_out_tensor *t, uint32_t state,
		     uint64_t row, uint64_t rows, struct ckpt_err *err)
{
	int rc = ck_grow(&w->piece, &w->piece_cap, w->npieces + 1, sizeof(*w->piece), err);

	if (!rc)
		w->piece[w->npieces++] = (struct ck_pt_piece){
			.kind = CK_SEG_STATE, .dtype = t->dtype, .state = state, .slot = CK_NONE,
			.first = row * t->row, .count = rows * t->row,
		};
	return rc;
}

/* Rows [from, end) of group 'g', which are rows of its parts. */
static int add_group(struct writing *w, const struct mg_out_tensor *t, const uint32_t *state,
		     uint64_t g, uint64_t from, uint64_t end, struct ckpt_err *err)
{
	uint64_t at = 0, last = 0, p = 0;
	int rc = 0;

	for (; !rc && p < t->t->nparts && t->t->part[p].name; p++, at = last) {
		const uint64_t a = ck_max_u64(at, from), b = ck_min_u64(at + t->rows[p], end);

		last = at + t->rows[p];
		if (a < b)
			rc = add_piece(w, t, state[p], g * t->rows[p] + (a - at), b - a, err);
	}
	for (uint64_t r = ck_max_u64(at, from); !rc && t->padded && r < end; r++)
		rc = add_piece(w, t, state[p - 1], t->rows[p - 1] - 1, 1, err);
	return rc;
}

static uint64_t rows_of_group(const struct mg_out_tensor *t)
{
	return t->shape[t->lead] / t->groups;
}

/* What rows [from, end) of a layer and an expert are made of. */
static int list_pieces(struct writing *w, const struct mg_out_tensor *t, const uint32_t *state,
		       uint64_t from, uint64_t end, struct ckpt_err *err)
{
	const uint64_t per = rows_of_group(t);
	int rc = 0;

	w->npieces = 0;
	for (uint64_t g = from / per; !rc && g * per < end; g++)
		rc = add_group(w, t, state, g, from > g * per ? from - g * per : 0,
			       ck_min_u64(per, end - g * per), err);
	return rc;
}

/* The block's archive: a tensor of its own, of all axes. */
static int append_block(struct writing *w, const struct mg_out_tensor *t,
			struct ck_dcp_block *block, struct ckpt_err *err)
{
	uint64_t stride[MG_OUT_AXES], numel = 1;
	const struct ck_pt_part part = { t->dtype, w->piece, w->npieces };
	struct ck_tensor_ref ref = {
		.dtype = t->dtype, .ndim = t->ndim, .shape = block->size, .stride = stride,
	};
	struct ck_pt_want want = { .name = t->key, .storage = &part, .nstorages = 1 };

	for (uint32_t d = t->ndim; d > 0; d--) {
		stride[d - 1] = numel;
		numel *= block->size[d - 1];
	}
	ref.numel = numel;
	want.root = ck_val_new_tensor(w->o->arena, &ref);
	return want.root ? append(w, &want, block, err) : ck_fail_nomem(err, "a tensor", 0);
}

static int add_block(struct writing *w, const struct mg_out_tensor *t, uint64_t layer,
		     uint64_t expert, uint64_t from, uint64_t end, struct ck_dcp_block *block,
		     struct ckpt_err *err)
{
	uint64_t *offset = ck_arena_zalloc(w->o->arena, 2 * MG_OUT_AXES * sizeof(*offset));
	uint64_t *size = offset ? offset + MG_OUT_AXES : NULL;
	uint32_t state[CK_ARRAY_LEN(t->rows)], d = 0;
	int rc = offset ? 0 : ck_fail_nomem(err, "a block", t->ndim);

	if (rc)
		return rc;
	for (; d < t->lead; d++) {
		offset[d] = d || !t->t->has_layer || t->layer != MG_OUT_ALL ? expert : layer;
		size[d] = 1;
	}
	offset[d] = from;
	size[d++] = end - from;
	for (; d < t->ndim; d++)
		size[d] = t->shape[d];
	block->offset = offset;
	block->size = size;
	for (uint64_t p = 0; !rc && p < t->t->nparts && t->t->part[p].name; p++)
		rc = ck_mg_out_state(w->o, t, p, layer, expert, &state[p], err);
	if (!rc)
		rc = list_pieces(w, t, state, from, end, err);
	return rc ? rc : append_block(w, t, block, err);
}

/* ---- how a tensor is cut ---- */

/*
 * Rows at which blocks of a layer and an expert end; '*n_out' of them.  Groups, and the vocabulary,
 * are cut by rank; parts one after the other are cut each, since each rank has some of both.
 */
static uint64_t *ends_of(const struct writing *w, const struct mg_out_tensor *t, uint64_t *n_out)
{
	const uint64_t rows = t->shape[t->lead], tp = w->o->want->tp;
	const uint64_t units = t->groups > 1 ? t->groups : t->t->part[t->t->nparts - 1].name ? 1 :
			       rows;
	const uint64_t cuts = units % tp || t->t->has_expert ? 1 : tp;
	uint64_t *end = ck_alloc_array(tp * t->t->nparts, sizeof(*end));
	uint64_t n = 0, at = 0;

	if (!end)
		return NULL;
	if (units > 1 || t->t->nparts == 1) {
		for (uint64_t c = 1; c <= cuts; c++)
			end[n++] = rows / cuts * c;
		end[n - 1] = rows;
	} else {
		for (uint64_t p = 0; p < t->t->nparts; p++) {
			const uint64_t by = t->rows[p] % tp || t->t->has_expert ? 1 : tp;

			for (uint64_t c = 1; c <= by; c++)
				end[n++] = at + t->rows[p] / by * c;
			at += t->rows[p];
		}
	}
	*n_out = n;
	return end;
}

static int write_blocks(struct writing *w, const struct mg_out_tensor *t,
			struct ck_dcp_listed *item, const uint64_t *end, uint64_t nends,
			struct ckpt_err *err)
{
	const bool all = t->t->has_layer && t->layer == MG_OUT_ALL;
	const uint64_t layers = all ? w->o->sizes.layers : 1;
	const uint64_t experts = t->t->has_expert ? w->o->sizes.experts : 1;
	struct ck_dcp_block *block = ck_arena_zalloc(w->o->arena, (layers * experts * nends + 1) *
						     sizeof(*block));
	int rc = block ? 0 : ck_fail_nomem(err, "blocks", layers * experts * nends);

	item->block = block;
	for (uint64_t l = 0; !rc && l < layers; l++)
		for (uint64_t e = 0; !rc && e < experts; e++)
			for (uint64_t i = 0; !rc && i < nends; i++)
				rc = add_block(w, t, all ? l : t->layer, e, i ? end[i - 1] : 0,
					       end[i], &block[item->nblocks++], err);
	return rc;
}

static int write_tensor(struct writing *w, const struct mg_out_tensor *t, const char *key,
			struct ckpt_err *err)
{
	struct ck_dcp_listed item = {
		.name = key, .is_tensor = true, .dtype = t->dtype, .ndim = t->ndim,
		.shape = t->shape,
	};
	uint64_t n = 0, *end = ends_of(w, t, &n);
	int rc = end ? write_blocks(w, t, &item, end, n, err) : ck_fail_nomem(err, "blocks", n);

	ck_free(end);
	return rc ? rc : add_item(w, &item, err);
}

/* ---- what layers keep beside tensors ---- */

/* Nothing: a list of one None, as Megatron-Core writes it where no fp8 is used. */
static int write_nothing(struct writing *w, const char *name, struct ckpt_err *err)
{
	struct ck_arena *a = w->o->arena;
	struct ck_dcp_block *block = ck_arena_zalloc(a, sizeof(*block));
	const struct ck_dcp_listed item = { .name = name, .block = block, .nblocks = 1 };
	struct ck_pt_want want = {
		.name = name, .root = ck_val_list_add(a, ck_val_new_list(a), ck_val_new_none(a)),
	};
	int rc = name && block && want.root ? append(w, &want, block, err) :
		 ck_fail_nomem(err, "a value", 0);

	return rc ? rc : add_item(w, &item, err);
}

/* One for each layer and expert. */
static int write_states_of(struct writing *w, const struct mg_out_tensor *t, const char *module,
			   struct ckpt_err *err)
{
	struct ck_arena *a = w->o->arena;
	const uint64_t outer = t->lead > 1 ? t->shape[0] : 1;
	const uint64_t inner = t->lead ? t->shape[t->lead - 1] : 1;
	int rc = module ? ck_map_add(&w->modules, module, strlen(module), 0, NULL, err) :
		 ck_fail_nomem(err, "a name", 0);

	if (rc)
		return rc < 0 ? rc : 0;
	for (uint64_t i = 0; !rc && i < outer; i++)
		for (uint64_t k = 0; !rc && k < inner; k++)
			rc = write_nothing(w, t->lead > 1 ?
				ck_arena_printf(a, "%s._extra_state/shard_%" PRIu64 ".%" PRIu64
						"_%" PRIu64 ".%" PRIu64, module, i, k, outer,
						inner) :
				ck_arena_printf(a, "%s._extra_state/shard_%" PRIu64 "_%" PRIu64,
						module, k, inner), err);
	return rc;
}

/* The module of "MODULE.weight", with another last name if 'last' is one; NULL: it is none. */
static const char *module_of(struct writing *w, const char *key, const char *last)
{
	const size_t n = key ? strlen(key) : 0, tail = strlen(".weight");
	size_t end = n - tail;

	if (n <= tail || strcmp(key + end, ".weight") != 0 || strncmp(key, "decoder.", 8) != 0)
		return NULL;
	while (last && end && key[end - 1] != '.')
		end--;
	return ck_arena_printf(w->o->arena, "%.*s%s", (int)end, key, last ? last : "");
}

/*
 * Layers of TransformerEngine have an _extra_state, and a load fails where it is missing.  From
 * 0.16 on so have linear layers of Megatron-Core itself.  A router has none.
 */
static int write_extra(struct writing *w, const struct mg_out_tensor *t, struct ckpt_err *err)
{
	const char *key = t->key, *second = module_of(w, t->second, NULL);
	const char *module = module_of(w, key, NULL);
	int rc = 0;

	if (module && !strstr(module, ".router"))
		rc = write_states_of(w, t, module, err);
	if (!rc && second)
		rc = write_states_of(w, t, second, err);
	if (!rc && module && strstr(module, ".linear_qkv"))
		rc = write_states_of(w, t, module_of(w, key, "core_attention"), err);
	return rc;
}

int ck_mg_out_files(struct mg_out *o, struct ckpt_err *err)
{
	struct writing w = { .o = o, .modules = CK_MAP_INIT };
	int rc = 0;

	for (uint64_t i = 0; !rc && i < o->n; i++)
		rc = write_extra(&w, &o->tensor[i], err);
	for (uint64_t i = 0; !rc && i < o->n; i++)
		rc = write_tensor(&w, &o->tensor[i], o->tensor[i].key, err);
	for (uint64_t i = 0; !rc && i < o->n; i++)
		if (o->tensor[i].second)
			rc = write_tensor(&w, &o->tensor[i], o->tensor[i].second, err);
	if (!rc)
		rc = ck_dcp_meta_write(o->plan, &(struct ck_dcp_meta){
			.name = MG_OUT_STEP "/.metadata", .item = w.item, .n = w.n,
		}, err);
	ck_map_release(&w.modules);
	ck_free(w.piece);
	ck_free(w.item);
	return rc;
}
