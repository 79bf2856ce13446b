/* en_settings.c -- a setting by its key while a configuration is resolved; see en_resolve.h. */
#include <string.h>

#include "engine/config/keys/en_resolve.h"
#include "libckpt/base/ck_err.h"

const char *en_ds_version_name(enum en_ds_version version)
{
	static const char *const versions[] = { "", "0.16.9", "0.18.9", "0.19.8" };

	return versions[version];
}

const char *en_key_path(struct en_resolve *ev, const struct en_key *key)
{
	const char *of = en_block_info[key->block].path;
	const char *path = ck_arena_printf(&ev->cfg->arena, "%s%s%s", of, *of ? "." : "",
					   key->alias && key->type != EN_K_BLOCK ? key->alias
										 : key->name);

	if (!path && !ev->rc)
		ev->rc = ck_fail_nomem(ev->err, "a path", 1);
	return path ? path : "";
}

size_t en_key_number(enum en_block block, const char *name)
{
	return (size_t)(en_key_find(block, name) - en_keys);
}

const struct en_node *en_given(const struct en_resolve *ev, enum en_block block, const char *name)
{
	return ev->given[en_key_number(block, name)].v;
}

void en_derive(struct en_resolve *ev, enum en_block block, const char *name, struct en_value v,
	       const char *why)
{
	const size_t k = en_key_number(block, name);
	const struct en_place at = { .from = EN_FROM_DERIVED, .why = why };
	struct en_node *node = en_node_new(&ev->cfg->arena, v.type, at);

	if (!node && !ev->rc)
		ev->rc = ck_fail_nomem(ev->err, "a setting", sizeof(*node));
	ev->value[k] = v;
	ev->given[k].v = node;
	en_value_put(&en_keys[k], &v, &ev->set);
}
