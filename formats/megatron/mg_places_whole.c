/*
 * mg_places_whole.c -- is what a part of the model has complete, and all of one place in it?
 *
 * Ranks of tensor and expert parallelism have the same parameters, of which each has its slice or
 * its experts.  So in one position
 *
 *	all slices of parameters that are cut in as many have one number
 *	every layer has the same experts, under every key
 *	a layer is in one buffer, with all its trained keys
 *	what is registered after the layers, or before them, is on its side of them
 *
 * A master that changed places with one of another rank or stage breaks this: its moments stayed.
 */
#include <string.h>

#include "formats/megatron/mg_places.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"

#define MAX_CELLS (1u << 24)	/* layers times keys */
#define MAX_CUTS 16u		/* different numbers of slices in one position */

struct whole {
	struct mgp *p;
	uint32_t nkeys;
	uint64_t ncells;
	uint8_t *trained;	/* of each key */
	uint8_t *model, *here;	/* of each layer and key */
	uint64_t *experts;
};

static uint64_t mix(uint64_t x)
{
	return ck_hash64(&x, sizeof(x));
}

static bool is_of(const struct mgp_buffer *f, const struct mgp_buffer *o)
{
	return f->family == o->family && f->position == o->position;
}

/* Keys that an optimizer has: others are frozen, or no parameters. */
static void find_trained(struct whole *w, const struct mgp_buffer *f)
{
	const struct mgp *p = w->p;

	memset(w->trained, 0, w->nkeys);
	for (uint32_t i = 0; i < p->nbuffers; i++) {
		const struct mgp_buffer *b = &p->buffer[i];

		if (b->family != f->family)
			continue;
		for (uint64_t t = b->tile; t < (uint64_t)b->tile + b->ntiles; t++)
			for (uint32_t c = p->class[p->tile[t].class].chunk; c != MGP_NONE;
			     c = p->chunk[c].like)
				w->trained[p->chunk[c].key] = 1;
	}
}

static uint64_t cell(const struct whole *w, const struct mgp_chunk *c)
{
	return (uint64_t)c->layer * w->nkeys + c->key;
}

/* Each layer of which something is known has all its keys, which may be unknown. */
static bool are_layers_whole(struct whole *w, const struct mgp_buffer *f)
{
	const struct mgp *p = w->p;
	const uint8_t dtype = p->class[p->tile[f->tile].class].dtype;

	memset(w->model, 0, w->ncells);
	memset(w->here, 0, w->ncells);
	for (uint32_t i = 0; i < p->nchunks; i++)
		if (p->chunk[i].layer != MGP_NONE && p->chunk[i].dtype == dtype &&
		    w->trained[p->chunk[i].key])
			w->model[cell(w, &p->chunk[i])] = 1;
	for (uint64_t t = f->tile; t < (uint64_t)f->tile + f->ntiles; t++)
		for (uint32_t c = p->class[p->tile[t].class].chunk; c != MGP_NONE;
		     c = p->chunk[c].like)
			if (p->chunk[c].layer != MGP_NONE)
				w->here[cell(w, &p->chunk[c])] = 1;
	for (uint64_t t = f->tile; t < (uint64_t)f->tile + f->ntiles; t++) {
		const uint32_t c = p->tile[t].chunk;
		const uint64_t at = c == MGP_NONE || p->chunk[c].layer == MGP_NONE ? UINT64_MAX :
				    (uint64_t)p->chunk[c].layer * w->nkeys;

		if (at != UINT64_MAX && memcmp(w->model + at, w->here + at, w->nkeys))
			for (uint32_t k = 0; k < w->nkeys; k++)
				if (w->model[at + k] && !w->here[at + k])
					return false;
	}
	return true;
}

/* The head and the last norm come before the layers, the embedding after them. */
static bool are_sides_right(const struct mgp *p, const struct mgp_buffer *f)
{
	bool layers = false, embedding = false;

	for (uint64_t t = f->tile; t < (uint64_t)f->tile + f->ntiles; t++) {
		const struct mgp_chunk *c;

		if (p->tile[t].chunk == MGP_NONE)
			continue;
		c = &p->chunk[p->tile[t].chunk];
		if (c->side == MGP_AFTER && (layers || embedding))
			return false;
		if (c->layer != MGP_NONE && embedding)
			return false;
		layers |= c->layer != MGP_NONE;
		/* A tied one is the head of the last stage, and the first tile there. */
		embedding |= c->side == MGP_BEFORE && (t > f->tile || !p->is_tied);
	}
	return true;
}

/* Slices and experts of a position, all of whose buffers are known. */
static const char *look_at_position(struct whole *w, const struct mgp_buffer *f)
{
	const struct mgp *p = w->p;
	uint32_t cuts[MAX_CUTS][2], ncuts = 0, k;
	uint64_t one = 0;

	memset(w->experts, 0, w->ncells * sizeof(*w->experts));
	for (uint32_t i = 0; i < p->nbuffers; i++) {
		const struct mgp_buffer *b = &p->buffer[i];

		for (uint64_t t = b->tile; is_of(f, b) && t < (uint64_t)b->tile + b->ntiles; t++) {
			const struct mgp_chunk *c = p->tile[t].chunk == MGP_NONE ? NULL :
						    &p->chunk[p->tile[t].chunk];

			if (c && c->expert && !c->is_half && c->layer != MGP_NONE)
				w->experts[cell(w, c)] += mix(c->expert);
			if (!c || c->nslices < 2)
				continue;
			for (k = 0; k < ncuts && cuts[k][0] != c->nslices; k++)
				;
			if (k == MAX_CUTS || (k < ncuts && cuts[k][1] != c->slice))
				return "it has slices of different ranks";
			cuts[k][0] = c->nslices;
			cuts[k][1] = c->slice;
			ncuts += k == ncuts;
		}
	}
	for (uint64_t i = 0; i < w->ncells; i++) {
		if (w->experts[i] && one && w->experts[i] != one)
			return "its layers have different experts";
		one = w->experts[i] ? w->experts[i] : one;
	}
	return NULL;
}

static void check_position(struct whole *w, struct mgp_buffer *f)
{
	struct mgp *p = w->p;
	const char *why = NULL;

	find_trained(w, f);
	for (uint32_t i = 0; i < p->nbuffers && !why; i++) {
		struct mgp_buffer *b = &p->buffer[i];

		if (!is_of(f, b) || !b->ntiles)
			continue;
		for (uint32_t k = b->bucket; k < b->bucket + b->nbuckets; k++)
			if (p->bucket[k].why)
				why = "another bucket of its part of the model is unknown";
		if (!why && !are_sides_right(p, b))
			why = "its parameters are not in order";
		if (!why && !are_layers_whole(w, b))
			why = "a layer lacks a parameter";
	}
	if (!why)
		why = look_at_position(w, f);
	for (uint32_t i = 0; i < p->nbuffers && why; i++)
		if (is_of(f, &p->buffer[i]) && p->buffer[i].ntiles)
			ck_mgp_give_up(p, &p->buffer[i], p->buffer[i].tile, why);
}

int ck_mgp_whole_check(struct mgp *p, struct ckpt_err *err)
{
	struct whole w = { .p = p };
	int rc = 0;

	for (uint32_t i = 0; i < p->nchunks; i++)
		if (p->chunk[i].key >= w.nkeys)
			w.nkeys = p->chunk[i].key + 1;
	w.ncells = (uint64_t)p->nlayers * w.nkeys;
	if (w.ncells > MAX_CELLS) {
		for (uint32_t i = 0; i < p->nbuffers; i++)
			if (p->buffer[i].ntiles)
				ck_mgp_give_up(p, &p->buffer[i], p->buffer[i].tile,
					       "there are too many layers and keys");
		return 0;
	}
	w.trained = ck_zalloc(w.nkeys + (size_t)1);
	w.model = ck_zalloc(w.ncells + 1);
	w.here = ck_zalloc(w.ncells + 1);
	w.experts = ck_zalloc((w.ncells + 1) * sizeof(*w.experts));
	if (!w.trained || !w.model || !w.here || !w.experts)
		rc = ck_fail_nomem(err, "keys of layers", w.ncells);
	for (uint32_t i = 0; !rc && i < p->nbuffers; i++) {
		bool first = true;

		for (uint32_t k = 0; k < i; k++)
			first &= !is_of(&p->buffer[k], &p->buffer[i]);
		if (first)
			check_position(&w, &p->buffer[i]);
	}
	ck_free(w.trained);
	ck_free(w.model);
	ck_free(w.here);
	ck_free(w.experts);
	return rc;
}
