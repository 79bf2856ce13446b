/* See t_verdict.h. */
#include "tests/lib/mutate/t_verdict.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/include/ckpt.h"
#include "tests/lib/archive/t_st.h"
#include "tests/lib/fs/t_dir.h"

const char *const t_mode_names[T_MODES] = {
	"quick", "--full", "with a manifest", "convert", "reshard",
};

static const struct ckpt_run_opts run = {
	.size = sizeof(run), .threads = 1, .sync = CKPT_SYNC_NONE,
};

/* The first words of "NAME: ..." if it is a name, else the code's. */
static void name_error(const struct ckpt_err *err, char *out, size_t room)
{
	const size_t n = strspn(err->msg, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_");
	char name[64];
	struct ckpt_finding f;

	snprintf(name, sizeof(name), "%.*s", (int)n, err->msg);
	if (err->msg[n] == ':' && ckpt_finding_known(name))
		snprintf(out, room, "%s", name);
	else if (ckpt_verify_open_finding(err, &f))
		snprintf(out, room, "%s", f.id);
	else
		snprintf(out, room, "%s", ckpt_code_name(err->code));
}

static const char *how(enum ckpt_severity severity)
{
	return severity == CKPT_ERROR ? "" : severity == CKPT_WARN ? " (warning)" : " (note)";
}

/* How many findings of that name there were in the checkpoint as it was. */
static int known(const struct t_whole *w, enum t_mode mode, const char *id)
{
	int n = 0;

	for (int i = 0; i < w->known[mode].n; i++)
		n += !strcmp(w->known[mode].id[i], id);
	return n;
}

/* The first of the most severe new findings. */
static void name_finding(const struct t_whole *w, enum t_mode mode, const struct ckpt *ck,
			 char *out, size_t room)
{
	struct ckpt_finding f, best = { .severity = 0 };
	struct ckpt_info info;

	ckpt_info_get(ck, &info);
	for (uint64_t i = 0; i < info.nfindings; i++) {
		int n = 0;

		ckpt_finding_get(ck, i, &f, NULL);
		if (f.severity <= best.severity)
			continue;
		for (uint64_t k = 0; k <= i; k++) {
			struct ckpt_finding g;

			ckpt_finding_get(ck, k, &g, NULL);
			n += !strcmp(f.id, g.id);
		}
		if (n > known(w, mode, f.id))
			best = f;
	}
	if (best.severity)
		snprintf(out, room, "%s%s", best.id, how(best.severity));
	else
		*out = 0;
}

static int open_it(const struct t_whole *w, struct ckpt **ck, struct ckpt_err *err)
{
	const struct ckpt_open_opts opts = { .size = sizeof(opts), .threads = 1 };
	char *path = t_fmt("%s/ckpt%s%s", w->dir, *w->open ? "/" : "", w->open);
	const char *paths[] = { path };
	const int rc = ckpt_open(paths, 1, &opts, ck, err);

	free(path);
	return rc;
}

static void check(const struct t_whole *w, enum t_mode mode, char *out, size_t room)
{
	const struct ckpt_verify_opts opts = {
		sizeof(opts), &run, mode == T_QUICK ? 0 : CKPT_VERIFY_FULL,
	};
	struct ckpt_verified v;
	struct ckpt_err err = { 0 };
	struct ckpt *ck;

	if (open_it(w, &ck, &err)) {
		name_error(&err, out, room);
		return;
	}
	if (ckpt_verify(ck, &opts, &v, &err))
		name_error(&err, out, room);
	else
		name_finding(w, mode, ck, out, room);
	ckpt_close(ck);
}

/* ---------------------------------------------------------------------------- outputs */

/* One file or a folder, into DIR/out. */
static int make(const struct t_whole *w, enum t_mode mode, struct ckpt *ck, struct ckpt_err *err)
{
	const struct ckpt_convert_opts convert = { .size = sizeof(convert), .run = &run };
	const struct ckpt_reshard_opts reshard = {
		.size = sizeof(reshard), .run = &run, .world = 3, .stage = -1, .round_robin = -1,
		.tag = "made",
	};
	char *dst = t_fmt("%s/out/%s", w->dir, mode == T_CONVERT ? "m.safetensors" : "step");
	const int rc = mode == T_CONVERT ? ckpt_convert(ck, dst, &convert, NULL, err) :
					   ckpt_reshard(ck, dst, &reshard, NULL, err);

	free(dst);
	return rc;
}

static bool same_tensors(const char *a, const struct t_file *b)
{
	char *path = t_fmt("%s.was", a);
	struct t_st x, y;
	bool same;

	t_file_write(path, b->p, b->n);
	same = !t_st_open(&x, a) && !t_st_open(&y, path) && x.n_tensors == y.n_tensors;
	for (size_t i = 0; same && i < x.n_tensors; i++) {
		const struct t_st_tensor *t = &x.tensors[i], *u = &y.tensors[i];

		same = !strcmp(t->name, u->name) && !strcmp(t->dtype, u->dtype) &&
		       t->ndim == u->ndim && t->nbytes == u->nbytes &&
		       !memcmp(t->shape, u->shape, sizeof(t->shape[0]) * (size_t)t->ndim) &&
		       (!t->nbytes || !memcmp(t->data, u->data, t->nbytes));
	}
	t_st_close(&x);
	t_st_close(&y);
	free(path);
	return same;
}

static bool is_same(const struct t_whole *w, enum t_mode mode)
{
	char *dir = t_fmt("%s/out", w->dir);
	const struct t_files *was = &w->out[mode];
	struct t_files now;
	bool same;

	t_files_read(&now, dir);
	same = now.n == was->n;
	for (size_t i = 0; same && i < now.n; i++) {
		const struct t_file *f = &now.f[i], *g = t_files_find(was, f->name);
		char *path = t_fmt("%s/%s", dir, f->name);

		same = g && ((f->n == g->n && !memcmp(f->p, g->p, f->n)) ||
			     (mode == T_CONVERT && same_tensors(path, g)));
		free(path);
	}
	t_files_free(&now);
	free(dir);
	return same;
}

/* What was there is the same, and what is more is a file of the checkpoint, byte for byte. */
static bool is_carried(const struct t_whole *w, enum t_mode mode)
{
	char *dir = t_fmt("%s/out", w->dir), *ckpt = t_fmt("%s/ckpt", w->dir);
	const struct t_files *was = &w->out[mode];
	struct t_files now, from;
	bool is = true;
	size_t old = 0;

	t_files_read(&now, dir);
	t_files_read(&from, ckpt);
	for (size_t i = 0; is && i < now.n; i++) {
		const struct t_file *f = &now.f[i], *g = t_files_find(was, f->name);
		const char *base = strrchr(f->name, '/');
		bool found = g && f->n == g->n && !memcmp(f->p, g->p, f->n);

		old += g != NULL;
		for (size_t k = 0; base && !g && !found && k < from.n; k++)
			found = t_ends_with(from.f[k].name, base) && f->n == from.f[k].n &&
				!memcmp(f->p, from.f[k].p, f->n);
		is = found;
	}
	is = is && old == was->n && now.n > old;
	t_files_free(&now);
	t_files_free(&from);
	free(dir);
	free(ckpt);
	return is;
}

static void fresh_out(const struct t_whole *w)
{
	char *dir = t_fmt("%s/out", w->dir);

	t_dir_remove(dir);
	t_dir_make(dir);
	free(dir);
}

static void nothing_is_left(const struct t_whole *w)
{
	char *dir = t_fmt("%s/out", w->dir), **names = t_dir_list(dir, NULL);

	if (names[0])
		t_die("%s was left by a verb that failed", names[0]);
	t_list_free(names);
	free(dir);
}

static void write_it(const struct t_whole *w, enum t_mode mode, char *out, size_t room)
{
	struct ckpt_err err = { 0 };
	struct ckpt *ck;
	size_t n;

	if (open_it(w, &ck, &err)) {
		name_error(&err, out, room);
		return;
	}
	fresh_out(w);
	if (make(w, mode, ck, &err)) {
		name_error(&err, out, room);
		nothing_is_left(w);
	} else {
		name_finding(w, mode, ck, out, room);
		n = strlen(out);
		snprintf(out + n, room - n, "%s%s", n ? ", " : "", is_same(w, mode) ? "same" :
			 is_carried(w, mode) ? "carried" : "other");
	}
	ckpt_close(ck);
}

/* ------------------------------------------------------------------------------- all */

static void know(struct t_whole *w, enum t_mode mode, const struct ckpt *ck)
{
	struct ckpt_info info;

	ckpt_info_get(ck, &info);
	for (uint64_t i = 0; i < info.nfindings && w->known[mode].n < 64; i++) {
		struct ckpt_finding f;

		ckpt_finding_get(ck, i, &f, NULL);
		if (f.severity == CKPT_ERROR)
			t_die("%s is not whole: %s: %s", w->dir, f.id, f.text);
		w->known[mode].id[w->known[mode].n++] = t_fmt("%s", f.id);
	}
}

static void learn(struct t_whole *w, enum t_mode mode)
{
	const struct ckpt_verify_opts opts = {
		sizeof(opts), &run, mode == T_KEPT ? CKPT_VERIFY_WRITE_MANIFEST :
				    mode == T_FULL ? CKPT_VERIFY_FULL : 0,
	};
	char *dir = t_fmt("%s/out", w->dir), *ckpt = t_fmt("%s/ckpt/", w->dir);
	struct ckpt_verified v;
	struct ckpt_err err = { 0 };
	struct ckpt *ck;
	int rc = open_it(w, &ck, &err);

	if (!rc && mode < T_CONVERT)
		rc = ckpt_verify(ck, &opts, &v, &err);
	fresh_out(w);
	if (!rc && mode >= T_CONVERT)
		rc = make(w, mode, ck, &err);
	if (rc)
		t_die("%s, %s: %s: %s", w->dir, t_mode_names[mode], err.where, err.msg);
	know(w, mode, ck);
	t_files_read(&w->out[mode], dir);
	if (mode == T_KEPT && v.manifest != 2)
		t_die("%s: no manifest was written", w->dir);
	if (mode == T_KEPT)
		w->manifest = t_fmt("%s", v.manifest_path + strlen(ckpt));
	ckpt_close(ck);
	free(ckpt);
	free(dir);
}

void t_whole_begin(struct t_whole *w, const char *dir, const char *open, bool is_step)
{
	*w = (struct t_whole){ .open = open, .is_step = is_step, .dir = t_fmt("%s", dir) };
	for (enum t_mode m = 0; m < T_MODES; m++)
		if (m != T_KEPT && (m != T_RESHARD || is_step))
			learn(w, m);
	learn(w, T_KEPT);
}

void t_whole_end(struct t_whole *w)
{
	for (enum t_mode m = 0; m < T_MODES; m++) {
		t_files_free(&w->out[m]);
		for (int i = 0; i < w->known[m].n; i++)
			free(w->known[m].id[i]);
	}
	free(w->manifest);
	free(w->dir);
}

/* Wherever the step was moved to: in the folder, or in one of it. */
static void remove_manifests(const char *dir, int deep)
{
	char **names = t_dir_list(dir, NULL);

	for (size_t i = 0; names[i]; i++) {
		char *path = t_fmt("%s/%s", dir, names[i]);

		if (t_ends_with(path, "zckpt-manifest.json"))
			t_dir_remove(path);
		else if (deep && t_is_dir(path))
			remove_manifests(path, 0);
		free(path);
	}
	t_list_free(names);
}

void t_verdict_of(const struct t_whole *w, struct t_verdict *out)
{
	char *ckpt = t_fmt("%s/ckpt", w->dir);

	memset(out, 0, sizeof(*out));
	check(w, T_KEPT, out->say[T_KEPT], sizeof(out->say[0]));
	remove_manifests(ckpt, 1);
	check(w, T_QUICK, out->say[T_QUICK], sizeof(out->say[0]));
	check(w, T_FULL, out->say[T_FULL], sizeof(out->say[0]));
	write_it(w, T_CONVERT, out->say[T_CONVERT], sizeof(out->say[0]));
	if (w->is_step)
		write_it(w, T_RESHARD, out->say[T_RESHARD], sizeof(out->say[0]));
	free(ckpt);
}
