/* ck_map.c -- see ck_map.h.  Open addressing, at most half full. */
#include "libckpt/base/ck_map.h"

#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_hash.h"
#include "libckpt/base/ck_sys.h"

static uint64_t *slot_for(const struct ck_map *map, const char *key, size_t len, uint64_t hash)
{
	uint64_t i = hash & (map->nslots - 1);

	for (;; i = (i + 1) & (map->nslots - 1)) {
		const struct ck_map_entry *e;

		if (!map->slot[i])
			return &map->slot[i];
		e = &map->entry[map->slot[i] - 1];
		if (e->hash == hash && e->len == len && (!len || !memcmp(e->key, key, len)))
			return &map->slot[i];
	}
}

static int rehash(struct ck_map *map, uint64_t nslots, struct ckpt_err *err)
{
	uint64_t *slot = ck_alloc_array(nslots, sizeof(*slot));

	if (!slot)
		return ck_fail_nomem(err, "a table of names", nslots);
	memset(slot, 0, nslots * sizeof(*slot));
	ck_free(map->slot);
	map->slot = slot;
	map->nslots = nslots;
	for (uint64_t i = 0; i < map->n; i++) {
		const struct ck_map_entry *e = &map->entry[i];

		*slot_for(map, e->key, e->len, e->hash) = i + 1;
	}
	return 0;
}

int ck_map_add(struct ck_map *map, const char *key, size_t len, uint64_t value,
	       uint64_t *old_out, struct ckpt_err *err)
{
	const uint64_t hash = ck_hash64(key, len);
	uint64_t *slot;
	int rc;

	if ((map->n + 1) * 2 > map->nslots) {
		rc = rehash(map, map->nslots ? map->nslots * 2 : 64, err);
		if (rc)
			return rc;
	}
	slot = slot_for(map, key, len, hash);
	if (*slot) {
		if (old_out)
			*old_out = map->entry[*slot - 1].value;
		return 1;
	}
	rc = ck_grow(&map->entry, &map->cap, map->n + 1, sizeof(*map->entry), err);
	if (rc)
		return rc;
	map->entry[map->n] = (struct ck_map_entry){ key, len, hash, value };
	*slot = ++map->n;
	return 0;
}

bool ck_map_find(const struct ck_map *map, const char *key, size_t len, uint64_t *value_out)
{
	uint64_t *slot;

	if (!map->nslots)
		return false;
	slot = slot_for(map, key, len, ck_hash64(key, len));
	if (!*slot)
		return false;
	if (value_out)
		*value_out = map->entry[*slot - 1].value;
	return true;
}

void ck_map_release(struct ck_map *map)
{
	ck_free(map->entry);
	ck_free(map->slot);
	memset(map, 0, sizeof(*map));
}
