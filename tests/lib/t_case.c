/* case.json of one fixture. */
#define _GNU_SOURCE
#include "tests/lib/t_case.h"
#include "tests/lib/t_dir.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

static const cJSON *need(const cJSON *j, const char *key)
{
	const cJSON *v = cJSON_GetObjectItemCaseSensitive(j, key);

	if (!v)
		t_die("case.json has no key %s", key);
	return v;
}

static char *text(const cJSON *j, const char *key)
{
	const cJSON *v = cJSON_GetObjectItemCaseSensitive(j, key);

	return t_fmt("%s", cJSON_IsString(v) ? v->valuestring : "");
}

static int number(const cJSON *j, const char *key, int otherwise)
{
	const cJSON *v = cJSON_GetObjectItemCaseSensitive(j, key);

	return cJSON_IsNumber(v) ? v->valueint : otherwise;
}

static char **texts(const cJSON *j)
{
	char **list = t_alloc((size_t)(cJSON_GetArraySize(j) + 1) * sizeof(*list));
	const cJSON *v;
	size_t n = 0;

	cJSON_ArrayForEach(v, j)
		list[n++] = t_fmt("%s", v->valuestring);
	return list;
}

static int dims(const cJSON *j, int64_t *shape)
{
	const cJSON *v;
	int n = 0;

	if (cJSON_GetArraySize(j) > T_ST_DIMS)
		t_die("case.json: more than %d dimensions", T_ST_DIMS);
	cJSON_ArrayForEach(v, j)
		shape[n++] = (int64_t)v->valuedouble;
	return n;
}

static void read_params(struct t_case *c, const cJSON *list)
{
	const cJSON *j;

	c->params = t_alloc((size_t)cJSON_GetArraySize(list) * sizeof(*c->params));
	cJSON_ArrayForEach(j, list) {
		struct t_param *p = &c->params[c->n_params++];

		p->name = text(j, "name");
		p->ndim = dims(need(j, "shape"), p->shape);
		p->requires_grad = cJSON_IsTrue(need(j, "requires_grad"));
		p->group = number(j, "group", -1);
	}
}

static void read_buffers(struct t_case *c, const cJSON *list)
{
	const cJSON *j;

	c->buffers = t_alloc((size_t)cJSON_GetArraySize(list) * sizeof(*c->buffers));
	cJSON_ArrayForEach(j, list) {
		struct t_buffer *b = &c->buffers[c->n_buffers++];

		b->name = text(j, "name");
		b->ndim = dims(need(j, "shape"), b->shape);
		b->persistent = cJSON_IsTrue(need(j, "persistent"));
	}
}

/* Losses of a step that overflowed stand as NaN or Infinity, which JSON does not
 * know; outside of strings they become 0 here. */
static void blank_nonfinite(char *s)
{
	int quoted = 0;

	for (; *s; s++) {
		size_t n = !strncmp(s, "NaN", 3) ? 3 : !strncmp(s, "Infinity", 8) ? 8 : 0;

		if (*s == '\\' && s[1])
			s++;
		else if (*s == '"')
			quoted = !quoted;
		else if (n && !quoted) {
			memset(s, ' ', n);
			*s = '0';
		}
	}
}

void t_case_open(struct t_case *c, const char *dir)
{
	char *path = t_fmt("%s/case.json", dir);
	const cJSON *tied, *j;
	size_t n;
	uint8_t *b = t_file_read(path, &n);
	cJSON *root;

	if (b)
		blank_nonfinite((char *)b);
	root = b ? cJSON_Parse((char *)b) : NULL;
	if (!root)
		t_die("%s cannot be read", path);
	memset(c, 0, sizeof(*c));
	c->name = text(root, "case");
	c->special = text(root, "special");
	c->version = text(root, "deepspeed");
	c->precision = text(root, "precision");
	c->wrapper = text(root, "optimizer_wrapper");
	c->optimizer = text(root, "optimizer");
	c->latest = text(root, "latest");
	c->tags = texts(need(root, "tags"));
	c->stage = number(root, "stage", -1);
	c->world = number(root, "world", -1);
	c->pp = number(root, "pp", 1);
	c->tp = number(root, "tp", 1);
	c->ep = number(root, "ep", 1);
	c->sub_groups = cJSON_GetObjectItemCaseSensitive(
		cJSON_GetObjectItemCaseSensitive(
			cJSON_GetObjectItemCaseSensitive(root, "ds_config"),
			"zero_optimization"), "sub_group_size") != NULL;
	c->refuse = !cJSON_IsFalse(need(root, "refuse"));
	c->missing = texts(need(root, "not_in_checkpoint"));
	read_params(c, cJSON_GetObjectItemCaseSensitive(root, "params"));
	read_buffers(c, cJSON_GetObjectItemCaseSensitive(root, "buffers"));
	tied = need(root, "tied");
	c->tied = t_alloc((size_t)cJSON_GetArraySize(tied) * sizeof(*c->tied));
	cJSON_ArrayForEach(j, tied)
		c->tied[c->n_tied++] = texts(j);
	cJSON_Delete(root);
	free(b);
	free(path);
}

void t_case_close(struct t_case *c)
{
	for (size_t i = 0; i < c->n_params; i++)
		free(c->params[i].name);
	for (size_t i = 0; i < c->n_buffers; i++)
		free(c->buffers[i].name);
	for (size_t i = 0; i < c->n_tied; i++)
		t_list_free(c->tied[i]);
	free(c->tied);
	free(c->params);
	free(c->buffers);
	t_list_free(c->tags);
	t_list_free(c->missing);
	free(c->name);
	free(c->special);
	free(c->version);
	free(c->precision);
	free(c->wrapper);
	free(c->optimizer);
	free(c->latest);
	memset(c, 0, sizeof(*c));
}

const struct t_param *t_case_param(const struct t_case *c, const char *name)
{
	for (size_t i = 0; i < c->n_params; i++)
		if (!strcmp(c->params[i].name, name))
			return &c->params[i];
	return NULL;
}

const struct t_buffer *t_case_buffer(const struct t_case *c, const char *name)
{
	for (size_t i = 0; i < c->n_buffers; i++)
		if (!strcmp(c->buffers[i].name, name))
			return &c->buffers[i];
	return NULL;
}

int t_case_missing(const struct t_case *c, const char *name, const char *state)
{
	for (size_t i = 0; c->missing[i]; i++) {
		const char *bar = strrchr(c->missing[i], '|');
		size_t n = bar ? (size_t)(bar - c->missing[i]) : 0;

		if (!bar || strcmp(bar + 1, state))
			continue;
		if ((n == 1 && c->missing[i][0] == '*') ||
		    (n == strlen(name) && !memcmp(c->missing[i], name, n)))
			return 1;
	}
	return 0;
}

static int stands_in(char *const *list, const char *name)
{
	for (; *list; list++)
		if (!strcmp(*list, name))
			return 1;
	return 0;
}

int t_case_tied(const struct t_case *c, const char *a, const char *b)
{
	for (size_t i = 0; i < c->n_tied; i++) {
		if (!stands_in(c->tied[i], a))
			continue;
		if (stands_in(c->tied[i], b))
			return 1;
		/* one step over a shared name: a-x and x-b */
		for (size_t k = 0; k < c->n_tied; k++)
			for (char **x = c->tied[i]; *x; x++)
				if (stands_in(c->tied[k], *x) &&
				    stands_in(c->tied[k], b))
					return 1;
	}
	return 0;
}

int t_case_groups(const struct t_case *c)
{
	int n = 0;

	for (size_t i = 0; i < c->n_params; i++)
		if (c->params[i].group >= n)
			n = c->params[i].group + 1;
	return n;
}

int t_case_unnamed_states(const struct t_case *c)
{
	return c->stage == 0 && strcmp(c->wrapper, "BF16_Optimizer") != 0;
}
