/* te_sched.c -- see te_sched.h. */
#include "tests/engine/te_sched.h"

#include <stdlib.h>

#include "tests/lib/fs/t_dir.h"

char *te_sched_path(const char *name)
{
	const char *root = getenv("ZCKPT_FIXTURES");

	return t_fmt("%s/%s", root ? root : "build/fixtures", name);
}

cJSON *te_sched_json(const char *name)
{
	char *path = te_sched_path(name);
	size_t n;
	uint8_t *text = t_file_read(path, &n);
	cJSON *doc = text ? cJSON_Parse((char *)text) : NULL;

	if (!doc)
		t_die("%s cannot be read", path);
	free(text);
	free(path);
	return doc;
}

const cJSON *te_get(const cJSON *o, const char *key)
{
	return cJSON_GetObjectItemCaseSensitive(o, key);
}

double te_num(const cJSON *o, const char *key)
{
	const cJSON *v = te_get(o, key);

	if (!cJSON_IsNumber(v))
		t_die("%s is no number in a fixture", key);
	return v->valuedouble;
}

struct ckpt_values *te_values(const char *name, struct ckpt **ck_out)
{
	char *below = t_fmt("deepspeed/%s", name), *path = te_sched_path(below);
	const char *p = path;
	struct ckpt_err err = { 0 };
	struct ckpt_values *v;

	if (ckpt_open(&p, 1, NULL, ck_out, &err) || ckpt_values_open(*ck_out, 0, 0, &v, &err))
		t_die("%s: %s", path, err.msg);
	free(below);
	free(path);
	return v;
}

int te_sched_none(struct en_sched *s, const double *lr, uint32_t ngroups, struct ckpt_err *err)
{
	const struct en_schedule none = { .type = EN_SCHEDULER_NONE };

	return en_sched_init_config(s, &none, EN_DS_0_19, lr, ngroups, err);
}
