/* ck_states.c -- see ck_states.h. */
#include "libckpt/select/ck_states.h"

#include <stdio.h>
#include <string.h>

#include "libckpt/base/ck_buf.h"
#include "libckpt/base/ck_err.h"

#define MAX_TOLD 300	/* bytes of names in a message */

static bool is_all(const char *const *states)
{
	return !states || (states[0] && !strcmp(states[0], "all") && !states[1]);
}

bool ck_states_has(const char *const *states, const char *name)
{
	if (is_all(states))
		return true;
	for (; *states; states++)
		if (!strcmp(*states, name))
			return true;
	return false;
}

/* Distinct names of the index.  There are a handful, found in two steps each. */
static int occurring(const struct ck_index *ix, struct ck_map *map, struct ckpt_err *err)
{
	const char *last = NULL;

	for (uint64_t i = 0; i < ix->nstates; i++) {
		const char *name = ix->state[i].name;
		int rc;

		if (name == last)
			continue;
		last = name;
		rc = ck_map_add(map, name, strlen(name), i, NULL, err);
		if (rc < 0)
			return rc;
	}
	return 0;
}

static int fail_unknown(const struct ck_index *ix, const struct ck_map *map, const char *name,
			struct ckpt_err *err)
{
	struct ck_buf buf = CK_BUF_INIT(MAX_TOLD);
	int rc = 0;

	for (uint64_t i = 0; !rc && i < map->n; i++)
		rc = ck_buf_addf(&buf, NULL, "%s%s", i ? ", " : "", map->entry[i].key);
	rc = ck_fail(err, CKPT_E_USAGE, ix->path, CKPT_NO_OFFSET,
		     "no tensor has a state \"%.80s\"; the states are: %s", name,
		     buf.len ? buf.p : "none");
	ck_buf_release(&buf);
	return rc;
}

int ck_states_check(const struct ck_index *ix, const char *const *states, struct ckpt_err *err)
{
	struct ck_map map = CK_MAP_INIT;
	int rc = 0;

	if (is_all(states))
		return 0;
	if (!states[0])
		return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
			       "the list of states is empty");
	rc = occurring(ix, &map, err);
	for (const char *const *p = states; !rc && *p; p++)
		if (!ck_map_find(&map, *p, strlen(*p), NULL))
			rc = fail_unknown(ix, &map, *p, err);
	ck_map_release(&map);
	return rc;
}

int ck_states_list(const struct ck_index *ix, const char *const *states,
		   struct ck_arena *arena, const char ***list_out, uint64_t *n_out,
		   struct ckpt_err *err)
{
	struct ck_map map = CK_MAP_INIT;
	const char **list = NULL;
	int rc = 0;

	if (is_all(states))
		rc = occurring(ix, &map, err);
	for (; rc >= 0 && !is_all(states) && *states; states++)
		rc = ck_map_add(&map, *states, strlen(*states), 0, NULL, err);
	if (rc >= 0) {
		list = ck_arena_alloc(arena, map.n * sizeof(*list));
		rc = list ? 0 : ck_fail_nomem(err, "names of states", map.n);
	}
	for (uint64_t i = 0; !rc && i < map.n; i++)
		list[i] = map.entry[i].key;
	if (!rc) {
		*list_out = list;
		*n_out = map.n;
	}
	ck_map_release(&map);
	return rc;
}

int ck_states_fail(const struct ck_index *ix, uint32_t tensor, const char *name,
		   struct ckpt_err *err)
{
	const struct ck_tensor *t = &ix->tensor[tensor];
	char list[256] = "none";
	size_t n = 0;

	for (uint32_t s = t->first_state; s != CK_NONE && n < sizeof(list); s = ix->state[s].next)
		n += (size_t)snprintf(list + n, sizeof(list) - n, "%s%s", n ? ", " : "",
				      ix->state[s].name);
	return ck_fail(err, CKPT_E_USAGE, t->name, CKPT_NO_OFFSET,
		       "the tensor has no state \"%.80s\"; it has %s", name, list);
}
