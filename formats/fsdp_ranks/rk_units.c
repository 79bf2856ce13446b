/*
 * rk_units.c -- the flat parameters of FSDP1.
 *
 * FSDP1 joins the parameters of a unit, a module that is wrapped on its own, to one flat parameter
 * and cuts that into equal chunks, one a rank.  No file says which modules are units, so there are
 * guesses, from what users choose: layers, layers with embeddings, linear modules.  A guess counts
 * only if the lengths of all pieces are those that it gives.
 */
#include <string.h>

#include "formats/fsdp_ranks/rk.h"
#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/tensor/ck_dtype.h"

#define ALIGN 16u	/* bytes */

/* Steps of a name up to and with the first, or the last, that is a number: "layers.3". */
static size_t layer_of(const char *name, bool last)
{
	size_t found = 0;

	for (const char *p = name; *p;) {
		const size_t n = strcspn(p, ".");

		if (n && strspn(p, "0123456789") == n && p[n] && (!found || last))
			found = (size_t)(p - name) + n;
		p += n + (p[n] == '.');
	}
	return found;
}

static size_t module_of(const char *name)
{
	const char *dot = strrchr(name, '.');

	return dot ? (size_t)(dot - name) : 0;
}

static bool is_embedding(const char *name, size_t n)
{
	for (size_t i = 0; i + 3 <= n; i++)
		if (!strncmp(name + i, "emb", 3) || !strncmp(name + i, "wte", 3) ||
		    !strncmp(name + i, "wpe", 3))
			return true;
	return false;
}

/* A module with a matrix 'weight'. */
static bool is_linear(const struct rk *r, const char *name, size_t n)
{
	uint64_t at;
	char key[512];

	if (!n || n + 8 > sizeof(key))
		return false;
	memcpy(key, name, n);
	memcpy(key + n, ".weight", 8);
	return ck_map_find(&r->by_name, key, n + 7, &at) && r->tensor[at].weight.ndim == 2;
}

/* Bytes of a name that are its unit's; 0 = the root's. */
static size_t unit_of(const struct rk *r, uint32_t guess, const char *name)
{
	const size_t layer = layer_of(name, false), module = module_of(name);
	const bool linear = is_linear(r, name, module);

	switch (guess) {
	case 0:		/* layers: model.layers.3 */
		return layer;
	case 1:		/* one unit */
		return 0;
	case 2:		/* layers of layers: experts.1 */
		return layer_of(name, true);
	case 3:		/* layers and embeddings */
		return layer ? layer : linear && is_embedding(name, module) ? module : 0;
	case 4:		/* layers, embeddings and the head */
		return layer ? layer : linear ? module : 0;
	case 5:		/* linear modules */
		return linear && !is_embedding(name, module) ? module : 0;
	default:	/* linear modules and embeddings */
		return linear ? module : 0;
	}
}

/* The number of a unit; a new one has none of its elements yet. */
static int unit_number(struct ck_map *map, const char *name, size_t n, uint32_t *count,
		       uint32_t *out, struct ckpt_err *err)
{
	uint64_t at = *count;
	const int rc = ck_map_add(map, name, n, *count, &at, err);

	if (rc < 0)
		return rc;
	*out = (uint32_t)at;
	*count += !rc;
	return 0;
}

int ck_rk_units_guess(struct rk *r, uint32_t guess, bool aligned, const uint32_t *item, uint64_t n,
		   struct rk_place *place, struct rk_unit **unit_out, uint32_t *nunits_out,
		   struct ckpt_err *err)
{
	struct rk_unit *unit = ck_arena_zalloc(&r->arena, (n + 1) * sizeof(*unit));
	struct ck_map map = CK_MAP_INIT;
	uint32_t count = 0, number;
	int rc = unit ? 0 : ck_fail_nomem(err, "units", n);

	for (uint64_t i = 0; !rc && i < n; i++)	/* the root's is first, if it has any */
		if (!unit_of(r, guess, r->tensor[item[i]].name))
			rc = unit_number(&map, "", 0, &count, &number, err);
	for (uint64_t i = 0; !rc && i < n; i++) {
		const struct rk_tensor *t = &r->tensor[item[i]];
		const uint64_t es = ckpt_dtype_bits((enum ckpt_dtype)t->weight.dtype) / 8;
		const uint64_t grain = aligned && es && es < ALIGN ? ALIGN / es : 1;
		struct rk_unit *u;

		rc = unit_number(&map, t->name, unit_of(r, guess, t->name), &count, &place[i].unit,
				 err);
		if (rc)
			break;
		u = &unit[place[i].unit];
		place[i].start = (u->elements + grain - 1) / grain * grain;
		u->elements = place[i].start + t->weight.numel;
	}
	for (uint32_t i = 0; i < count; i++)
		unit[i].chunk = unit[i].elements / r->parts + (unit[i].elements % r->parts != 0);
	ck_map_release(&map);
	*unit_out = unit;
	*nunits_out = count;
	return rc;
}
