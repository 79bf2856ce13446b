/* See t_mutants.h. */
#define _GNU_SOURCE
#include "tests/lib/mutate/t_mutants.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/include/ckpt.h"
#include "libckpt/include/ckpt_convert.h"
#include "libckpt/include/ckpt_verify.h"
#include "tests/lib/archive/t_st.h"
#include "tests/lib/fixture/t_expected.h"
#include "tests/lib/fs/t_dir.h"
#include "tests/lib/run/t_seed.h"

#define MOST_KINDS 80

static const struct ckpt_run_opts run = {
	.size = sizeof(run), .threads = 1, .sync = CKPT_SYNC_NONE,
};

enum verdict {
	REFUSED,	/* it does not open, or convert writes nothing of the weights or states */
	FOUND,		/* other values, and verify finds an error */
	LEFT_OUT,	/* values are missing, and a warning says so */
	SAME,
	SILENT,
	VERDICTS,
};

static const char *const verdict_name[VERDICTS] = {
	"refused", "found", "left out", "same", "SILENT",
};

/* What is made of a folder: a file of tensors for each state. */
struct values {
	struct t_files files;	/* names of states, and files of safetensors */
	uint64_t warnings;
	bool failed, bad;
	char why[300];
};

struct scene {
	struct t_files files;	/* as they were saved */
	struct values whole;
	char *dir, *out;
	char *config;		/* the model's, or NULL */
};

struct tally {
	const char *kind;
	long n[VERDICTS];
};

/* ---- what a folder gives ---- */

static int convert(struct ckpt *ck, const char *dst, const char *const *states,
		   struct ckpt_err *err)
{
	const struct ckpt_convert_opts o = {
		.size = sizeof(o), .run = &run, .dtype = CKPT_KEEP, .states = states,
	};

	return ckpt_convert(ck, dst, &o, NULL, err);
}

static uint64_t count_findings(const struct ckpt *ck, enum ckpt_severity severity, char *why,
			       size_t room)
{
	struct ckpt_finding f;
	uint64_t n = 0;

	for (uint64_t i = 0; !ckpt_finding_get(ck, i, &f, NULL); i++) {
		if (f.severity != severity)
			continue;
		n++;
		snprintf(why, room, "%s: %s: %s", f.id, f.where, f.text);
	}
	return n;
}

/* Weights to a file, states to others in a folder. */
static void read_values(const struct scene *s, struct values *v)
{
	const struct ckpt_open_opts o = {
		.size = sizeof(o), .model_config = s->config, .find_states = 1,
	};
	const char *dir = s->dir, *out = s->out;
	static const char *const all[] = { "all", NULL };
	char *file = t_fmt("%s/weights.safetensors", out), *folder = t_fmt("%s/states", out);
	struct ckpt_err err = { 0 };
	struct ckpt *ck = NULL;

	t_dir_remove(out);
	t_dir_make(out);
	*v = (struct values){ .failed = false };
	v->failed = ckpt_open(&dir, 1, &o, &ck, &err) || convert(ck, file, NULL, &err);
	if (ck)
		v->warnings = count_findings(ck, CKPT_WARN, v->why, sizeof(v->why));
	if (!v->failed)
		v->bad = convert(ck, folder, all, &err) != 0;
	if (v->failed || v->bad)
		snprintf(v->why, sizeof(v->why), "%s: %.200s", ckpt_code_name(err.code), err.msg);
	t_files_read(&v->files, out);
	ckpt_close(ck);
	free(file);
	free(folder);
}

static void open_tensors(const struct t_file *f, const char *out, struct t_st *st)
{
	char *path = t_fmt("%s/%s", out, f->name);

	t_file_write(path, f->p, f->n);
	if (t_st_open(st, path))
		t_die("%s: %s", path, st->err);
	free(path);
}

/* How 'is' differs from 'was': tensors that are missing, and others. */
static void compare_file(const struct t_st *was, const struct t_st *is, bool *missing, bool *other)
{
	for (size_t i = 0; i < was->n_tensors; i++) {
		const struct t_st_tensor *a = &was->tensors[i], *b = t_st_find(is, a->name);

		if (!b)
			*missing = true;
		else if (a->nbytes != b->nbytes || strcmp(a->dtype, b->dtype) ||
			 a->ndim != b->ndim ||
			 memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof(*a->shape)) ||
			 memcmp(a->data, b->data, a->nbytes))
			*other = true;
	}
	for (size_t i = 0; i < is->n_tensors; i++)
		*other |= !t_st_find(was, is->tensors[i].name);
}

static void compare(const struct scene *s, const struct values *v, bool *missing, bool *other)
{
	*missing = *other = false;
	for (size_t i = 0; i < s->whole.files.n; i++) {
		const struct t_file *was = &s->whole.files.f[i];
		const struct t_file *is = t_files_find(&v->files, was->name);
		struct t_st a, b;

		if (!t_ends_with(was->name, ".safetensors"))
			continue;
		if (!is) {
			*missing = true;
			continue;
		}
		open_tensors(is, s->out, &b);
		open_tensors(was, s->out, &a);
		compare_file(&a, &b, missing, other);
		t_st_close(&a);
		t_st_close(&b);
	}
	for (size_t i = 0; i < v->files.n; i++)
		*other |= t_ends_with(v->files.f[i].name, ".safetensors") &&
			  !t_files_find(&s->whole.files, v->files.f[i].name);
}

/* An error that verify --full finds. */
static bool is_found(const struct scene *s, char *why, size_t room)
{
	const struct ckpt_open_opts how = {
		.size = sizeof(how), .model_config = s->config, .find_states = 1,
	};
	const char *dir = s->dir;
	const struct ckpt_verify_opts o = { sizeof(o), &run, CKPT_VERIFY_FULL };
	struct ckpt_verified out;
	struct ckpt_err err = { 0 };
	struct ckpt *ck = NULL;
	bool found = ckpt_open(&dir, 1, &how, &ck, &err) || ckpt_verify(ck, &o, &out, &err);

	if (found)
		snprintf(why, room, "%.200s", err.msg);
	found |= ck && count_findings(ck, CKPT_ERROR, why, room);
	ckpt_close(ck);
	return found;
}

static enum verdict judge(const struct scene *s, char *why, size_t room)
{
	struct values v;
	bool missing, other;
	enum verdict verdict;

	read_values(s, &v);
	compare(s, &v, &missing, &other);
	snprintf(why, room, "%s", v.why);
	if (v.failed || (v.bad && !other))
		verdict = REFUSED;
	else if (!missing && !other)
		verdict = SAME;
	else if (is_found(s, why, room))
		verdict = FOUND;
	else if (!other && v.warnings > s->whole.warnings)
		verdict = LEFT_OUT;
	else
		verdict = SILENT;
	if (verdict == SILENT)
		snprintf(why, room, "%s%s", missing ? "values are missing " : "",
			 other ? "other values" : "");
	t_files_free(&v.files);
	return verdict;
}

/* ---- the case, and what is true of it ---- */

static bool is_of_run(const struct t_st *truth, const char *state, const struct t_st_tensor *t)
{
	static const char *const more[] = { "weight", "buffer" };
	const bool weight = !strcmp(state, "weight");
	bool found = false;

	for (size_t i = 0; i < (weight ? 2 : 1); i++) {
		char *key = t_fmt("%s|%s", t->name, weight ? more[i] : state);
		const struct t_st_tensor *want = t_st_find(truth, key);

		free(key);
		if (!want)
			continue;
		found = true;
		if (want->nbytes != t->nbytes || memcmp(want->data, t->data, t->nbytes))
			return false;
	}
	return found || weight;	/* a tied name is in the truth once */
}

static long check_truth(const struct scene *s, const char *path)
{
	struct t_st truth, st;
	long n = 0;

	if (t_st_open(&truth, path))
		t_die("%s: %s", path, truth.err);
	for (size_t i = 0; i < s->whole.files.n; i++) {
		const struct t_file *f = &s->whole.files.f[i];
		const char *slash = strrchr(f->name, '/'), *base = slash ? slash + 1 : f->name;
		char *state;

		if (!t_ends_with(base, ".safetensors"))
			continue;
		state = t_fmt("%.*s", (int)(strlen(base) - 12), base);
		open_tensors(f, s->out, &st);
		for (size_t k = 0; k < st.n_tensors; k++, n++)
			if (!is_of_run(&truth, !strcmp(state, "weights") ? "weight" : state,
				       &st.tensors[k]))
				t_die("%s: %s of %s is not what the run had", path, state,
				      st.tensors[k].name);
		t_st_close(&st);
		free(state);
	}
	t_st_close(&truth);
	return n;
}

static void scene_begin(struct scene *s, const char *all, const struct t_mutants *of,
			const char *name)
{
	char *from = t_fmt("%s/%s/ckpt", all, name);
	char *truth = t_fmt("%s/%s/truth.safetensors", all, name);

	s->config = t_fmt("%s/%s/config.json", all, name);
	if (!of->has_config || !t_exists(s->config)) {
		free(s->config);
		s->config = NULL;
	}
	s->dir = t_dir_new();
	s->out = t_dir_new();
	t_files_read(&s->files, from);
	t_files_write(&s->files, s->dir);
	read_values(s, &s->whole);
	if (s->whole.failed || s->whole.bad)
		t_die("%s: %s", name, s->whole.why);
	if (check_truth(s, truth) < 30)
		t_die("%s: nothing was compared with the truth", name);
	free(truth);
	free(from);
}

static void scene_end(struct scene *s)
{
	t_files_free(&s->whole.files);
	t_files_free(&s->files);
	t_dir_end(s->dir);
	t_dir_end(s->out);
	free(s->config);
}

/* ---- */

static size_t list_kinds(const struct t_mutants *of, const struct t_fsdp_kind *out[MOST_KINDS],
			 const char *only)
{
	const struct t_fsdp_kind *const *lists = of->kinds;
	int layouts = 0;
	size_t n = 0;

	for (size_t i = 0; i < of->ncases; i++)
		layouts |= of->cases[i].layout;
	for (; *lists; lists++)
		for (const struct t_fsdp_kind *k = *lists; k->name; k++)
			if (n < MOST_KINDS && (k->layout & layouts) && strstr(k->name, only))
				out[n++] = k;
	return n;
}

static void print(const struct tally *t, size_t n)
{
	long sum[VERDICTS] = { 0 };

	printf("%-42s %8s %8s %8s %8s %8s\n", "", verdict_name[0], verdict_name[1],
	       verdict_name[2], verdict_name[3], verdict_name[4]);
	for (size_t i = 0; i <= n; i++) {
		printf("%-42s", i < n ? t[i].kind : "all");
		for (size_t k = 0; k < VERDICTS; k++) {
			printf(" %8ld", i < n ? t[i].n[k] : sum[k]);
			sum[k] += i < n ? t[i].n[k] : 0;
		}
		printf("\n");
	}
}

struct test {
	const struct t_mutants *of;
	struct scene *scene;
	struct tally tally[MOST_KINDS];
	const struct t_fsdp_kind *kind[MOST_KINDS];
	size_t nkinds;
	uint64_t random;
	bool loud;
	long done, silent;
};

/* Another case of that layout. */
static const struct t_files *draw_other(struct test *t, size_t at)
{
	const size_t n = t->of->ncases;
	const size_t k = (at + 1 + t_draw_below(&t->random, n - 1)) % n;

	return t->of->cases[k].layout == t->of->cases[at].layout ? &t->scene[k].files : NULL;
}

/* A mutant of one kind of the folder that is drawn; false if it has none. */
static bool try_one(struct test *t, size_t k)
{
	const size_t at = (size_t)t_draw_below(&t->random, t->of->ncases);
	const struct t_mutant_case *c = &t->of->cases[at];
	struct scene *s = &t->scene[at];
	struct t_files files;
	struct t_fsdp m = { &files, draw_other(t, at), &t->random, "" };
	bool made;

	if (!(t->kind[k]->layout & c->layout))
		return false;
	t_files_copy(&files, &s->files);
	made = t->kind[k]->make(&m);
	if (made) {
		char why[300];
		enum verdict verdict;

		t_files_turn(&s->files, &files, s->dir);
		verdict = judge(s, why, sizeof(why));
		t_files_turn_back(&s->files, &files, s->dir);
		t->tally[k].n[verdict]++;
		t->done++;
		t->silent += verdict == SILENT;
		if (t->loud || verdict == SILENT)
			printf("%s | %s | %s | %s | %s\n", verdict_name[verdict], c->name,
			       t->kind[k]->name, m.what, why);
	}
	t_files_free(&files);
	return made;
}

/* As many of each kind. */
static void try_all(struct test *t, long count)
{
	for (long i = 0; t->nkinds && i < count; i++) {
		const size_t k = (size_t)i % t->nkinds;
		int tries = 0;

		while (!try_one(t, k) && tries < 2000)
			tries++;
		if (tries == 2000)
			t_die("no folder has anything for '%s'", t->kind[k]->name);
	}
}

int t_mutants_run(const struct t_mutants *of, int argc, char **argv)
{
	const char *fixtures = getenv("ZCKPT_FIXTURES"), *seed = getenv("ZCKPT_SEED");
	char *all = t_fmt("%s/%s", fixtures ? fixtures : "build/fixtures", of->archive);
	struct test t = { .of = of, .loud = argc > 1 && !strcmp(argv[1], "-v") };

	argc -= t.loud;
	argv += t.loud;
	t.random = seed ? strtoull(seed, NULL, 0) : 1;
	t.nkinds = list_kinds(of, t.kind, argc > 2 ? argv[2] : "");
	printf("ZCKPT_SEED=%llu\n", (unsigned long long)t.random);
	t_dir_in_memory();
	t.scene = t_alloc(of->ncases * sizeof(*t.scene));
	for (size_t i = 0; i < of->ncases; i++)
		scene_begin(&t.scene[i], all, of, of->cases[i].name);
	for (size_t k = 0; k < t.nkinds; k++)
		t.tally[k].kind = t.kind[k]->name;
	try_all(&t, argc > 1 ? atol(argv[1]) : t_is_long() ? 1000 : 120);
	for (size_t i = 0; i < of->ncases; i++)
		scene_end(&t.scene[i]);
	print(t.tally, t.nkinds);
	printf("%ld of %ld mutants gave other values without a word\n", t.silent, t.done);
	free(t.scene);
	free(all);
	return t.silent || !t.done;
}
