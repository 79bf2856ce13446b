/* en_node.c -- see en_node.h. */
#include "engine/config/tree/en_node.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

struct en_node *en_node_new(struct ck_arena *arena, enum en_type type, struct en_place at)
{
	struct en_node *v = ck_arena_zalloc(arena, sizeof(*v));

	if (v) {
		v->type = type;
		v->at = at;
	}
	return v;
}

struct en_node *en_node_bool(struct ck_arena *arena, bool b, struct en_place at)
{
	struct en_node *v = en_node_new(arena, EN_BOOL, at);

	if (v)
		v->i = b;
	return v;
}

struct en_node *en_node_int(struct ck_arena *arena, int64_t i, struct en_place at)
{
	struct en_node *v = en_node_new(arena, EN_INT, at);

	if (v) {
		v->i = i;
		v->f = (double)i;
	}
	return v;
}

struct en_node *en_node_float(struct ck_arena *arena, double f, struct en_place at)
{
	struct en_node *v = en_node_new(arena, EN_FLOAT, at);

	if (v)
		v->f = f;
	return v;
}

struct en_node *en_node_str(struct ck_arena *arena, const char *s, struct en_place at)
{
	struct en_node *v = en_node_new(arena, EN_STR, at);

	if (v)
		v->str = ck_arena_strdup(arena, s);
	return v && v->str ? v : NULL;
}

struct en_node *en_node_add(struct en_node *parent, const char *key, struct en_node *child)
{
	if (!parent || !child)
		return NULL;
	child->key = key;
	child->next = NULL;
	if (parent->last)
		parent->last->next = child;
	else
		parent->child = child;
	parent->last = child;
	parent->n++;
	return child;
}

void en_node_replace(struct en_node *old, const struct en_node *v)
{
	const char *key = old->key;
	struct en_node *next = old->next;

	*old = *v;
	old->key = key;
	old->next = next;
}

struct en_node *en_node_get(const struct en_node *dict, const char *key)
{
	if (!dict || dict->type != EN_DICT)
		return NULL;
	for (struct en_node *v = dict->child; v; v = v->next)
		if (!strcmp(v->key, key))
			return v;
	return NULL;
}

struct en_node *en_node_path(const struct en_node *dict, const char *path)
{
	char key[128];
	const char *dot;

	while ((dot = strchr(path, '.'))) {
		const size_t n = (size_t)(dot - path);

		if (n >= sizeof(key))
			return NULL;
		memcpy(key, path, n);
		key[n] = 0;
		dict = en_node_get(dict, key);
		path = dot + 1;
	}
	return en_node_get(dict, path);
}

bool en_node_is_str(const struct en_node *v, const char *text)
{
	return v && v->type == EN_STR && !strcmp(v->str, text);
}

/* As Python writes a float: the shortest digits that read back, and a point or an exponent. */
static void float_text(double f, char *out, size_t n)
{
	if (isinf(f)) {
		snprintf(out, n, f < 0 ? "-inf" : "inf");
		return;
	}
	for (int digits = 1; digits <= 17; digits++) {
		double again = 0;

		snprintf(out, n, "%.*g", digits, f);
		if (sscanf(out, "%lf", &again) == 1 && again == f)
			break;
	}
	if (!strpbrk(out, ".enf")) {
		const size_t used = strlen(out);

		snprintf(out + used, n - used, ".0");
	}
}

static void list_text(const struct en_node *v, char out[EN_VALUE_TEXT])
{
	size_t used = 1;

	out[0] = '[';
	out[1] = 0;
	for (const struct en_node *c = v->child; c; c = c->next) {
		char item[EN_VALUE_TEXT];

		if (c->type == EN_LIST || c->type == EN_DICT)
			snprintf(item, sizeof(item), "...");
		else
			en_node_text(c, item);
		if (used + strlen(item) + 8 > EN_VALUE_TEXT) {
			used += (size_t)snprintf(out + used, EN_VALUE_TEXT - used, "...");
			break;
		}
		used += (size_t)snprintf(out + used, EN_VALUE_TEXT - used, "%s%s", item,
					 c->next ? ", " : "");
	}
	snprintf(out + used, EN_VALUE_TEXT - used, "]");
}

void en_node_text(const struct en_node *v, char out[EN_VALUE_TEXT])
{
	static const char *const words[] = { "false", "true" };

	switch (v->type) {
	case EN_NULL:
		snprintf(out, EN_VALUE_TEXT, "null");
		return;
	case EN_BOOL:
		snprintf(out, EN_VALUE_TEXT, "%s", words[v->i != 0]);
		return;
	case EN_INT:
		if (v->str)
			snprintf(out, EN_VALUE_TEXT, "%.60s", v->str);
		else
			snprintf(out, EN_VALUE_TEXT, "%" PRId64, v->i);
		return;
	case EN_FLOAT:
		if (v->str)
			snprintf(out, EN_VALUE_TEXT, "%.60s", v->str);
		else
			float_text(v->f, out, EN_VALUE_TEXT);
		return;
	case EN_STR:
		snprintf(out, EN_VALUE_TEXT, strlen(v->str) > 60 ? "\"%.60s...\"" : "\"%s\"",
			 v->str);
		return;
	case EN_LIST:
		list_text(v, out);
		return;
	case EN_DICT:
		snprintf(out, EN_VALUE_TEXT, v->n ? "{...}" : "{}");
		return;
	}
}
