/*
 * mg_param.c -- parameters, the pieces that files have of their states, and targets.
 */
#include <string.h>

#include "formats/megatron/mg.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"

struct mg_param *ck_mg_param_find(const struct mg *mg, const char *key)
{
	uint64_t at;

	return ck_map_find(&mg->by_key, key, strlen(key), &at) ? &mg->param[at] : NULL;
}

/* 'n' numbers of our own; '*out' stays NULL for none. */
static int copy_numbers(struct mg *mg, const uint64_t *from, uint64_t n, const uint64_t **out,
			struct ckpt_err *err)
{
	uint64_t *to;

	if (!from)
		return 0;
	to = ck_arena_alloc(&mg->fs.arena, (n + 1) * sizeof(*to));
	if (!to)
		return ck_fail_nomem(err, "a block", n);
	if (n)
		memcpy(to, from, n * sizeof(*to));
	*out = to;
	return 0;
}

int ck_mg_piece_add(struct mg *mg, struct mg_param *p, enum mg_which which,
		    const struct mg_piece *piece, struct ckpt_err *err)
{
	struct mg_state *s = &p->state[which];
	struct mg_piece mine = *piece;
	int rc = 0;

	mine.offset = mine.size = NULL;
	if (piece->offset) {
		rc = copy_numbers(mg, piece->offset, p->ndim, &mine.offset, err);
		if (!rc)
			rc = copy_numbers(mg, piece->size, p->ndim, &mine.size, err);
	}
	if (!rc)
		rc = ck_grow(&s->piece, &s->cap, s->n + 1, sizeof(*s->piece), err);
	if (rc)
		return rc;
	if (!s->n)
		s->dtype = piece->extent.dtype;
	s->piece[s->n++] = mine;
	return 0;
}

int ck_mg_state_tiles(struct mg *mg, const struct mg_param *p, enum mg_which which,
		      struct ck_tiles *out, struct ckpt_err *err)
{
	const struct mg_state *s = &p->state[which];
	int rc = ck_tiles_begin(out, p->key, p->shape, p->ndim, err);

	(void)mg;
	for (uint64_t i = 0; !rc && i < s->n; i++) {
		const struct mg_piece *piece = &s->piece[i];
		const struct ck_block block = { piece->offset, piece->size };

		rc = ck_tiles_add(out, piece->offset ? &block : NULL, piece->first, piece->count,
				  &piece->extent, err);
	}
	return rc;
}

static int copy_boxes(struct mg *mg, struct mg_target *t, const struct mg_box *box, uint64_t n,
		      struct ckpt_err *err)
{
	const uint32_t ndim = mg->param[t->param].ndim;
	int rc = 0;

	t->box = ck_arena_zalloc(&mg->fs.arena, (n + 1) * sizeof(*t->box));
	if (!t->box)
		return ck_fail_nomem(err, "boxes", n);
	t->nboxes = n;
	for (uint64_t i = 0; !rc && i < n; i++) {
		rc = copy_numbers(mg, box[i].offset, ndim, &t->box[i].offset, err);
		if (!rc)
			rc = copy_numbers(mg, box[i].size, ndim, &t->box[i].size, err);
	}
	return rc;
}

int ck_mg_target_add(struct mg *mg, const char *name, const uint64_t *shape, uint32_t ndim,
		     uint64_t param, const struct mg_box *box, uint64_t nboxes,
		     struct ckpt_err *err)
{
	struct mg_target t = { .ndim = ndim, .param = param };
	int rc = copy_numbers(mg, shape, ndim, &t.shape, err);

	t.name = ck_arena_strdup(&mg->fs.arena, name);
	if (!rc && !t.name)
		rc = ck_fail_nomem(err, "a name", strlen(name));
	if (!rc && nboxes)
		rc = copy_boxes(mg, &t, box, nboxes, err);
	if (!rc)
		rc = ck_grow(&mg->target, &mg->target_cap, mg->ntargets + 1, sizeof(*mg->target),
			     err);
	if (!rc)
		mg->target[mg->ntargets++] = t;
	return rc;
}
