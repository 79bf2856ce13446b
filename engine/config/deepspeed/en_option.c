/*
 * en_option.c -- options in place of keys that a configuration lacks; see en_deepspeed_priv.h.
 *
 * The Trainer and accelerate replace an "auto" and nothing else: an argument whose key the file
 * lacks has no effect there, and nothing is said.  Here the key is put into the tree.
 */
#include <string.h>

#include "engine/config/deepspeed/en_deepspeed_priv.h"

static struct en_node *at(const struct en_resolve *ev, const char *path)
{
	return en_node_path(ev->cfg->tree, path);
}

/* Absent, null, or what accelerate puts where its file says nothing. */
static bool is_silent(const struct en_node *v)
{
	return !v || v->type == EN_NULL || v->at.from == EN_FROM_ACCELERATE ||
	       v->at.from == EN_FROM_AUTO;
}

/* The path above the last key ("" = the root), and that key. */
static bool cut(struct en_resolve *ev, const char *path, const char **above_out,
		const char **key_out)
{
	const char *dot = strrchr(path, '.');

	*above_out = ck_arena_strndup(&ev->cfg->arena, path, dot ? (size_t)(dot - path) : 0);
	*key_out = ck_arena_strdup(&ev->cfg->arena, dot ? dot + 1 : path);
	if (!*above_out || !*key_out)
		ev->rc = -CKPT_E_NOMEM;
	return !ev->rc;
}

/* The dictionary under 'path', made if it is missing; NULL where the path is another value. */
static struct en_node *dict_at(struct en_resolve *ev, const char *path, struct en_place place)
{
	struct en_node *of, *v, *made;
	const char *above, *key;

	if (!*path)
		return ev->cfg->tree;
	if (!cut(ev, path, &above, &key))
		return NULL;
	of = dict_at(ev, above, place);
	v = en_node_get(of, key);
	if (!of || (v && v->type == EN_DICT))
		return of ? v : NULL;
	if (v && v->type != EN_NULL && !en_node_is_auto(v))
		return NULL;
	made = en_node_new(&ev->cfg->arena, EN_DICT, place);
	if (!made)
		ev->rc = -CKPT_E_NOMEM;
	if (!made || !v)
		return en_node_add(of, key, made);
	en_node_replace(v, made);
	return v;
}

void en_option_put(struct en_resolve *ev, const char *path, struct en_node *v, const char *option)
{
	const struct en_place place = { .from = EN_FROM_OPTION, .why = option };
	const char *above, *key;
	struct en_node *of;

	if (!v)
		ev->rc = -CKPT_E_NOMEM;
	if (ev->rc || !cut(ev, path, &above, &key))
		return;
	v->at = place;
	for (struct en_node *c = v->child; c; c = c->next)
		c->at = place;
	of = dict_at(ev, above, place);
	if (en_node_get(of, key))
		en_node_replace(en_node_get(of, key), v);
	else
		en_node_add(of, key, v);
}

/* Would the key be read if the file had it? */
static bool has_place(const struct en_resolve *ev, const char *path)
{
	static const char optimizer[] = "optimizer.params.", scheduler[] = "scheduler.params.";
	const struct en_node *type = at(ev, "scheduler.type");
	const bool decay = en_node_is_str(type, "WarmupDecayLR");
	const bool cosine = en_node_is_str(type, "WarmupCosineLR");
	const bool warmup = en_node_is_str(type, "WarmupLR");

	if (!strncmp(path, optimizer, sizeof(optimizer) - 1))
		return at(ev, "optimizer.type") != NULL;
	if (strncmp(path, scheduler, sizeof(scheduler) - 1) != 0)
		return true;
	path += sizeof(scheduler) - 1;
	if (!strcmp(path, "warmup_max_lr"))	/* else it is the optimizer's rate */
		return decay || (warmup && ev->cfg->version == EN_DS_0_16);
	if (!strcmp(path, "total_num_steps"))
		return decay || cosine;
	return decay || warmup || cosine;
}

bool en_option_counts(const struct en_resolve *ev, const char *path)
{
	return ev->facts->fill_missing && is_silent(at(ev, path)) && has_place(ev, path);
}
