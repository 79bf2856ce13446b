/*
 * dcp_deepspeed.c -- the value "deepspeed" (ck_step_ds.h), and the names that it lists.
 */
#include <string.h>

#include "formats/dcp/dcp.h"
#include "libckpt/base/ck_err.h"

/* A list of names, hashed: models have tens of thousands. */
static int hash_list(const struct dcp *d, const char *key, struct ck_map *out, struct ckpt_err *err)
{
	struct ck_val *const *item;
	uint64_t n = 0;
	int rc = 0;

	ck_val_seq(ck_val_get(d->deepspeed, key), &item, &n);
	for (uint64_t i = 0; rc >= 0 && i < n; i++)
		if (ck_val_str(item[i]))
			rc = ck_map_add(out, ck_val_str(item[i]), strlen(ck_val_str(item[i])), i,
					NULL, err);
	return rc < 0 ? rc : 0;
}

static int hash_tied(struct dcp *d, struct ckpt_err *err)
{
	struct ck_val *const *item;
	uint64_t n = 0;
	int rc = 0;

	ck_val_pairs(ck_val_get(d->deepspeed, "tied"), &item, &n);
	for (uint64_t i = 0; rc >= 0 && i < n; i++)
		if (ck_val_str(item[2 * i]))
			rc = ck_map_add(&d->tied, ck_val_str(item[2 * i]),
					strlen(ck_val_str(item[2 * i])), i, NULL, err);
	return rc < 0 ? rc : 0;
}

int ck_dcp_deepspeed_find(struct dcp *d, struct ckpt_err *err)
{
	struct ck_val *const *item;
	uint64_t n;
	int rc;

	for (uint64_t i = 0; i < d->fs.nitems; i++) {
		const struct ck_val *v = ck_dcp_value_of(&d->fs.item[i]);

		if (!strcmp(d->fs.item[i].flat, "deepspeed") && ck_val_pairs(v, &item, &n))
			d->deepspeed = v;
	}
	if (!d->deepspeed)
		return 0;
	rc = hash_list(d, "frozen", &d->frozen, err);
	if (!rc)
		rc = hash_list(d, "buffer_names", &d->buffers, err);
	return rc ? rc : hash_tied(d, err);
}

const char *ck_dcp_deepspeed_tied(const struct dcp *d, const char *name)
{
	struct ck_val *const *item;
	uint64_t n = 0, at;

	ck_val_pairs(ck_val_get(d->deepspeed, "tied"), &item, &n);
	return ck_map_find(&d->tied, name, strlen(name), &at) && at < n ?
	       ck_val_str(item[2 * at + 1]) : NULL;
}
