/*
 * ck_map.h -- byte string -> number, in the order of insertion.  Keys are lent: the
 * caller keeps their bytes alive.  Hashing is XXH3 with a fixed seed; buckets hold
 * a full hash, so hostile keys cost comparisons of 64 bits, not of strings.
 */
#ifndef CK_MAP_H
#define CK_MAP_H

#include "libckpt/base/ck_base.h"

struct ck_map_entry {
	const char *key;
	size_t len;
	uint64_t hash;
	uint64_t value;
};

struct ck_map {
	struct ck_map_entry *entry;	/* in the order they came */
	uint64_t n, cap;
	uint64_t *slot;			/* 0 = free, else entry number + 1 */
	uint64_t nslots;
};

#define CK_MAP_INIT { 0 }

/*
 * Add a key.  If it is there already, nothing changes, '*old_out' (may be NULL) is
 * its value and the return value is 1.  0 = added.  -CKPT_E_NOMEM.
 */
int ck_map_add(struct ck_map *map, const char *key, size_t len, uint64_t value,
	       uint64_t *old_out, struct ckpt_err *err);
/* true and '*value_out' if the key is there. */
bool ck_map_find(const struct ck_map *map, const char *key, size_t len, uint64_t *value_out);
void ck_map_release(struct ck_map *map);

#endif
