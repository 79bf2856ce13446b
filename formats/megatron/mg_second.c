/*
 * mg_second.c -- a tensor that is there under two keys.
 *
 * Layers of TransformerEngine and those of Megatron-Core have different keys for the norm before
 * experts.  What zckpt writes has both, so that both kinds of layers load it; read again they are
 * one tensor.  The CRC-32 of every block proves that they are copies: other contents remain two
 * tensors.
 */
#include <string.h>

#include "formats/megatron/mg.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_text.h"

#define OF_ENGINE "pre_mlp_layernorm.weight"
#define OF_LOCAL "mlp.linear_fc1.layer_norm_weight"

static bool is_same_place(const uint64_t *a, const uint64_t *b, uint32_t ndim)
{
	return !memcmp(a, b, ndim * sizeof(*a));
}

static const struct dcp_chunk *chunk_at(const struct dcp_item *it, const struct dcp_chunk *like)
{
	for (uint64_t i = 0; i < it->nchunks; i++)
		if (is_same_place(it->chunk[i].offset, like->offset, it->ndim) &&
		    is_same_place(it->chunk[i].size, like->size, it->ndim))
			return &it->chunk[i];
	return NULL;
}

static bool is_copy(const struct dcp_item *a, const struct dcp_item *b)
{
	bool same = a->is_tensor && b->is_tensor && a->dtype == b->dtype && a->ndim == b->ndim &&
		    a->nchunks == b->nchunks && is_same_place(a->shape, b->shape, a->ndim);

	for (uint64_t i = 0; same && i < a->nchunks; i++) {
		const struct dcp_chunk *c = chunk_at(b, &a->chunk[i]);

		same = c && c->is_read && a->chunk[i].is_read && c->crc &&
		       c->crc == a->chunk[i].crc;
	}
	return same;
}

static struct dcp_item *find_item(struct mg *mg, const char *key)
{
	for (uint64_t i = 0; i < mg->fs.nitems; i++)
		if (!strcmp(mg->fs.item[i].flat, key))
			return &mg->fs.item[i];
	return NULL;
}

int ck_mg_second_find(struct mg *mg, struct ckpt_err *err)
{
	for (uint64_t i = 0; i < mg->fs.nitems; i++) {
		struct dcp_item *it = &mg->fs.item[i], *other;
		const char *key;

		if (it->use != MG_WEIGHT || !ck_ends_with(it->flat, OF_ENGINE))
			continue;
		key = ck_arena_printf(&mg->fs.arena, "%.*s" OF_LOCAL,
				      (int)(strlen(it->flat) - strlen(OF_ENGINE)), it->flat);
		if (!key)
			return ck_fail_nomem(err, "a name", strlen(it->flat));
		other = find_item(mg, key);
		if (other && is_copy(it, other))
			it->use = MG_SKIPPED;
	}
	return 0;
}
