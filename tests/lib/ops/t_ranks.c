/* See t_ranks.h. */
#include "tests/lib/ops/t_ranks.h"

#include <stdlib.h>
#include <string.h>

#include "tests/lib/fs/t_dir.h"

void t_must(int rc, const struct ckpt_err *err)
{
	if (rc)
		t_die("%s: %s: %s", ckpt_code_name((enum ckpt_code)-rc), err->where, err->msg);
}

/* It failed with that code, and the sentence has these words ("a|b|c"). */
void t_must_fail(int rc, struct ckpt_err *err, int code, const char *words)
{
	char *all = t_fmt("%s: %s", err->where, err->msg), *list = t_fmt("%s", words), *at = NULL;

	if (rc != -code || (int)err->code != code)
		t_die("%d instead of %d: %s", -rc, code, all);
	for (char *w = strtok_r(list, "|", &at); w; w = strtok_r(NULL, "|", &at))
		if (!strstr(all, w))
			t_die("'%s' is not in: %s", w, all);
	free(all);
	free(list);
	*err = (struct ckpt_err){ 0 };
}

/* ---- ranks in one process ---- */

void t_ranks_open(struct t_ranks *r, const char *root, uint32_t n, enum t_held held)
{
	struct ckpt_err err = { 0 };

	*r = (struct t_ranks){
		.t = { .root = root, .nranks = n, .held = held, .timeout_ms = T_SOON },
	};
	for (uint32_t i = 0; i < n; i++)
		t_must(t_saver(&r->t, i, &r->sv[i], &err), &err);
}

void t_ranks_close(struct t_ranks *r)
{
	for (uint32_t i = r->t.nranks; i > 0; i--)
		ckpt_saver_free(r->sv[i - 1]);
}

/* begin() by ranks [from, to). */
void t_ranks_begin(struct t_ranks *r, const char *tag, int to_kind, uint32_t from, uint32_t to)
{
	struct ckpt_save_step *step = t_save_step(&r->t, tag, to_kind, 2, 0);
	struct ckpt_err err = { 0 };

	for (uint32_t i = from; i < to; i++)
		t_must(t_save_begin(&r->t, r->sv[i], step, i, &err), &err);
}

void t_ranks_put(struct t_ranks *r, const char *tag, uint32_t rank)
{
	struct ckpt_err err = { 0 };

	t_must(t_save_put(&r->t, r->sv[rank], t_save_step(&r->t, tag, 0, 2, 0), rank, &err), &err);
}

void t_ranks_commit(struct t_ranks *r, uint32_t rank)
{
	struct ckpt_err err = { 0 };

	t_must(ckpt_save_commit(r->sv[rank], &err), &err);
}

int t_ranks_wait(struct t_ranks *r, uint32_t rank, struct ckpt_err *err)
{
	*err = (struct ckpt_err){ 0 };
	return ckpt_save_wait(r->sv[rank], 0, NULL, err);
}

/* The whole of a save by savers that are there. */
void t_ranks_save(struct t_ranks *r, const char *tag, int kind)
{
	struct ckpt_err err = { 0 };

	t_ranks_begin(r, tag, kind, 0, r->t.nranks);
	for (uint32_t i = 0; i < r->t.nranks; i++) {
		t_ranks_put(r, tag, i);
		t_ranks_commit(r, i);
	}
	for (uint32_t i = 0; i < r->t.nranks; i++)
		t_must(t_ranks_wait(r, i, &err), &err);
}

/* ---- what is on the disk ---- */

void t_step_check(const struct t_trainer *t, const char *tag)
{
	const struct ckpt_open_opts oo = { .size = sizeof(oo), .tag = tag };
	const struct ckpt_verify_opts vo = { .size = sizeof(vo), .flags = CKPT_VERIFY_FULL };
	struct ckpt_verified v;
	struct ckpt_info info;
	struct ckpt_finding f;
	struct ckpt_err err = { 0 };
	struct ckpt *ck;

	t_must(ckpt_open((const char *const *)&t->root, 1, &oo, &ck, &err), &err);
	t_must(ckpt_verify(ck, &vo, &v, &err), &err);
	ckpt_info_get(ck, &info);
	if (info.nfindings && !ckpt_finding_get(ck, 0, &f, &err))
		t_die("%s: %s %s: %s", tag, f.id, f.where, f.text);
	t_save_check(t, ck);
	ckpt_close(ck);
}

int t_is_there(const char *root, const char *name)
{
	char *path = t_fmt("%s/%s", root, name);
	const int is = t_exists(path);

	free(path);
	return is;
}

void t_latest_check(const char *root, const char *tag)
{
	char *path = t_fmt("%s/latest", root), *text;
	size_t n;

	text = (char *)t_file_read(path, &n);
	if (tag ? !text || strcmp(text, tag) : text != NULL)
		t_die("'latest' names %s, not %s", text ? text : "nothing", tag ? tag : "nothing");
	free(text);
	free(path);
}

void t_nothing_left(const char *root)
{
	char **list = t_dir_list(root, NULL);

	for (size_t i = 0; list[i]; i++)
		if (strstr(list[i], ".zckpt-"))
			t_die("%s is left", list[i]);
	t_list_free(list);
}
