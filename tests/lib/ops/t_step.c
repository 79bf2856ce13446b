/* See t_step.h. */
#include "tests/lib/ops/t_step.h"

#include <stdlib.h>
#include <string.h>

#include "tests/lib/fs/t_dir.h"

char *t_fixture(const char *name)
{
	const char *root = getenv("ZCKPT_FIXTURES");

	return t_fmt("%s/%s", root && *root ? root : "build/fixtures", name);
}

char *t_step_copy(const char *name)
{
	char *below = t_fmt("deepspeed/%s/ckpt", name), *from = t_fixture(below);
	char *dir = t_dir_new(), *to = t_fmt("%s/ckpt", dir);

	if (!t_is_dir(from))
		t_die("no fixture at %s", from);
	t_dir_copy(from, to);
	free(below);
	free(from);
	free(to);
	return dir;
}

static int open_at(const char *path, const char *tag, struct ckpt **ck, struct ckpt_err *err)
{
	struct ckpt_open_opts o = { .size = sizeof(o), .tag = tag };

	return ckpt_open(&path, 1, &o, ck, err);
}

struct ckpt *t_step_open(const char *path, const char *tag)
{
	struct ckpt_err err = { 0 };
	struct ckpt *ck;

	if (open_at(path, tag, &ck, &err))
		t_die("%s: %s: %s", path, err.where, err.msg);
	return ck;
}

static int has_words(const char *text, const char *words)
{
	char *list = t_fmt("%s", words);
	int all = 1;

	for (char *w = strtok(list, "|"); w; w = strtok(NULL, "|"))
		all = all && strstr(text, w);
	free(list);
	return all;
}

void t_step_fails(const char *path, const char *tag, int code, const char *words)
{
	struct ckpt_err err = { 0 };
	struct ckpt *ck;
	int rc = open_at(path, tag, &ck, &err);
	char *said = t_fmt("%s: %s", err.where, err.msg);

	if (rc != -code || (int)err.code != code)
		t_die("%s: code %d, %d wanted: %s", path, rc, -code, said);
	if (!has_words(said, words))
		t_die("%s: the message lacks \"%s\": %s", path, words, said);
	free(said);
}

const char *t_step_finding(const struct ckpt *ck, const char *id, const char *words)
{
	struct ckpt_finding f;

	for (uint64_t i = 0; !ckpt_finding_get(ck, i, &f, NULL); i++)
		if (!strcmp(f.id, id) && (has_words(f.text, words) || has_words(f.where, words)))
			return f.text;
	return NULL;
}

const char *t_step_fact(const struct ckpt *ck, const char *key)
{
	const char *k, *v;

	for (uint64_t i = 0; !ckpt_fact_get(ck, i, &k, &v, NULL); i++)
		if (!strcmp(k, key))
			return v;
	return NULL;
}

struct ckpt_tensor_info t_step_tensor(const struct ckpt *ck, const char *name)
{
	struct ckpt_tensor_info t;
	struct ckpt_err err = { 0 };
	uint64_t i;

	if (ckpt_tensor_find(ck, name, &i, &err) || ckpt_tensor_get(ck, i, &t, &err))
		t_die("tensor %s: %s", name, err.msg);
	return t;
}

int t_step_state(const struct ckpt *ck, const char *name, const char *state)
{
	struct ckpt_state_info s;
	uint64_t i;

	if (ckpt_tensor_find(ck, name, &i, NULL))
		t_die("there is no tensor %s", name);
	for (uint32_t k = 0; !ckpt_state_get(ck, i, k, &s, NULL); k++)
		if (!strcmp(s.name, state))
			return (int)k;
	return -1;
}

float t_step_value(const struct ckpt *ck, const char *name, const char *state, uint64_t elem)
{
	const int k = t_step_state(ck, name, state);
	struct ckpt_err err = { 0 };
	float v = 0;
	uint64_t i;

	if (k < 0 || ckpt_tensor_find(ck, name, &i, &err) ||
	    ckpt_read(ck, i, (uint32_t)k, elem, 1, CKPT_F32, &v, sizeof(v), &err))
		t_die("no element of %s of %s: %s", state, name, err.msg);
	return v;
}

uint64_t t_step_count(const struct ckpt *ck, const char *state)
{
	struct ckpt_tensor_info t;
	uint64_t n = 0;

	for (uint64_t i = 0; !ckpt_tensor_get(ck, i, &t, NULL); i++)
		n += t_step_state(ck, t.name, state) >= 0;
	return n;
}

void t_step_weights(const char *step, const char *to, unsigned flags)
{
	const struct ckpt_select sel = {
		.size = sizeof(sel), .only = CKPT_ONLY_TRAINABLE, .tied = CKPT_TIED_DROP,
	};
	const struct ckpt_convert_opts o = {
		.size = sizeof(o), .select = &sel, .dtype = CKPT_KEEP, .flags = flags,
	};
	struct ckpt *ck = t_step_open(step, NULL);
	struct ckpt_err err = { 0 };

	if (ckpt_convert(ck, to, &o, NULL, &err))
		t_die("weights of %s: %s: %s", step, err.where, err.msg);
	ckpt_close(ck);
}

char *t_step_names(struct ckpt *ck)
{
	char *text = t_fmt("%s", "");
	struct ckpt_tensor_info t;

	for (uint64_t i = 0; !ckpt_tensor_get(ck, i, &t, NULL); i++) {
		char *more = text;

		if (t.role != CKPT_ROLE_TRAINABLE)
			continue;
		text = t_fmt("%s%s\n", more, t.name);
		free(more);
	}
	return text;
}

void t_step_order(const char *step, const char *to)
{
	struct ckpt *ck = t_step_open(step, NULL);
	char *text = t_step_names(ck);

	ckpt_close(ck);
	t_file_write(to, text, strlen(text));
	free(text);
}

void t_step_digest(struct ckpt *ck, char out[33])
{
	const struct ckpt_digest_opts opts = { .size = sizeof(opts) };
	struct ckpt_digests d = { 0 };
	struct ckpt_err err = { 0 };

	if (ckpt_digest(ck, &opts, &d, &err))
		t_die("digest: %s: %s", err.where, err.msg);
	memcpy(out, d.root, 33);
	ckpt_digests_free(&d);
}

void t_step_digest_at(const char *path, const char *tag, char out[33])
{
	struct ckpt *ck = t_step_open(path, tag);

	t_step_digest(ck, out);
	ckpt_close(ck);
}
