/* Every checkpoint of the fixtures is converted in every way and compared with
 * the state of the engine that saved it, bit for bit. If this fails, users get
 * wrong weights or moments from a program that said nothing.
 *
 * usage: test_truth [--self] [FILTER]
 *   FILTER  only cases whose name contains it
 *   --self  check the fixtures' truth only, run no program
 * Environment: ZCKPT_FIXTURES (default build/fixtures), ZCKPT (build/zckpt).
 *
 * Per tag of a case:
 *   --state all --tied dup   each state's file against NAME|STATE
 *   (none), one file         fp32, tied weights once and named in the metadata;
 *                            also against DeepSpeed's own consolidation
 *   --dtype keep|bf16|fp16   the tag folder as source
 * Of a case with experts, tensor or pipeline parallelism --dtype keep alone is compared, where its
 * truth is of whole tensors: test_truth_parallel has better ones.
 */
#define _GNU_SOURCE
#include "tests/lib/archive/t_st.h"
#include "tests/lib/fixture/t_case.h"
#include "tests/lib/fixture/t_case_check.h"
#include "tests/lib/fixture/t_cast.h"
#include "tests/lib/fixture/t_expected.h"
#include "tests/lib/fs/t_dir.h"
#include "tests/lib/run/t_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One tag of one case at work. */
struct job {
	const struct t_case *c;
	const char *dir;	/* the case's folder */
	const char *tag;
	int latest;
	char *root, *tag_dir;	/* ckpt, ckpt/TAG */
	char *work;		/* scratch */
	struct t_st truth;
	struct t_st master;	/* what --state all gave; empty without */
	struct t_report *r;
};

/* zero_to_fp32's outputs that differ from ours in dtype only (or lack frozen
 * parameters at stage 1), counted over all cases. */
static long theirs_16bit, theirs_no_frozen, theirs_float_int;

static int open_out(struct job *j, struct t_st *st, const char *path)
{
	if (t_st_open(st, path) < 0) {
		t_say(j->r, "%s: %s", j->tag, st->err);
		t_st_close(st);
		return -1;
	}
	return 0;
}

static int ran(struct job *j, struct t_run *run, const char *what, int code)
{
	char *nl = strchr(run->err, '\n');

	if (run->exit == code && !run->timed_out)
		return 1;
	t_say(j->r, "%s: %s ended with exit %d signal %d%s, wanted exit %d: %.*s",
	      j->tag, what, run->exit, run->signal,
	      run->timed_out ? " (time-out)" : "", code,
	      nl ? (int)(nl - run->err) : (int)run->err_n, run->err);
	return 0;
}

/* The parent of every output must be empty again after a failure. */
static void check_nothing_left(struct t_report *r, const char *dir,
			       const char *what)
{
	char **names = t_dir_list(dir, NULL);

	if (names[0])
		t_say(r, "%s left %s behind", what, names[0]);
	t_list_free(names);
}

static int is_state(const struct job *j, const char *state)
{
	struct t_expected w;
	int n;

	t_expected_state(&w, j->c, &j->truth, state);
	n = w.n > 0;
	t_expected_free(&w);
	return n;
}

static void compare_state(struct job *j, const char *dir, const char *state)
{
	char *path = t_fmt("%s/%s.safetensors", dir, state);
	char *label = t_fmt("%s: state %s", j->tag, state);
	struct t_expected w;
	struct t_st got;

	t_expected_state(&w, j->c, &j->truth, state);
	if (!t_exists(path) && w.n && w.list[0].required) {
		t_say(j->r, "%s: no file", label);
	} else if (!t_exists(path)) {
		j->r->absent += (long)w.n;
	} else if (!open_out(j, &got, path)) {
		t_expected_compare(&w, &got, 0, label, j->r);
		if (!strcmp(state, "master"))
			j->master = got;
		else
			t_st_close(&got);
	}
	t_expected_free(&w);
	free(label);
	free(path);
}

/* Muon's momentum at stages 1 and 2 has no length that can be cut by rule. */
static int lacks_something(const struct t_case *c)
{
	return c->missing[0] || ((c->stage == 1 || c->stage == 2) &&
				 strstr(c->optimizer, "Muon"));
}

static void check_words(struct job *j, const struct t_run *run, long absent)
{
	int said = strstr(run->err, "NOT_IN_CHECKPOINT") != NULL;

	if (lacks_something(j->c) && !said)
		t_say(j->r, "%s: stderr has no NOT_IN_CHECKPOINT", j->tag);
	else if (absent && !run->err_n)
		t_say(j->r, "%s: states were left out without a word", j->tag);
	else if (said && !lacks_something(j->c) && !absent)
		t_say(j->r, "%s: NOT_IN_CHECKPOINT, but nothing is missing: %s",
		      j->tag, run->err);
}

static void test_states(struct job *j)
{
	char *dir = t_fmt("%s/states", j->work), **files, *name;
	long absent = j->r->absent;
	struct t_run run;

	t_run_zckpt(&run, "convert", "--state", "all", "--tied", "dup",
		    "--threads", "1", "--sync", "none", "--tag", j->tag, j->root,
		    dir, NULL);
	if (!ran(j, &run, "--state all", 0))
		goto out;
	/* states the truth has, then files of states that it has not */
	for (size_t i = 0; i < j->truth.n_tensors; i++) {
		const char *s = t_split(j->truth.tensors[i].name, &name);
		size_t k = 0;

		while (k < i && strcmp(strrchr(j->truth.tensors[k].name, '|') + 1, s))
			k++;
		if (k == i && strcmp(s, "buffer") && is_state(j, s))
			compare_state(j, dir, s);
		free(name);
	}
	files = t_dir_list(dir, NULL);
	for (size_t i = 0; files[i]; i++) {
		char *dot = strstr(files[i], ".safetensors");

		if (dot && !dot[12])
			*dot = 0;
		if (dot && !is_state(j, files[i]))
			t_say(j->r, "%s: the truth has no state %s", j->tag,
			      files[i]);
	}
	t_list_free(files);
	check_words(j, &run, j->r->absent - absent);
out:
	t_run_free(&run);
	t_dir_remove(dir);
	free(dir);
}

/* Theirs as float32: 16-bit widened, integers as numbers. */
static uint8_t *as_f32(const struct t_st_tensor *t)
{
	uint8_t *out = t_cast(t, "F32");
	size_t size = t_st_itemsize(t->dtype);

	if (out)
		return out;
	out = t_alloc(t->count * 4);
	for (uint64_t i = 0; i < t->count; i++) {
		int64_t v = 0;
		float f;

		memcpy(&v, t->data + i * size, size);
		if (size == 4)
			v = (int32_t)v;
		f = (float)v;
		memcpy(out + i * 4, &f, 4);
	}
	return out;
}

static void compare_theirs(struct job *j, const struct t_st_tensor *e,
			   const struct t_st_tensor *g)
{
	int same = !strcmp(e->dtype, g->dtype);
	uint8_t *a, *b;

	if (same && e->nbytes == g->nbytes && !memcmp(e->data, g->data, e->nbytes))
		return;
	a = as_f32(e);
	b = as_f32(g);
	if (same || e->count != g->count || !t_same(a, b, "F32", e->count))
		t_say(j->r, "%s: %s %s differs from zero_to_fp32's %s", j->tag,
		      e->name, t_st_say(g), t_st_say(e));
	else if (t_st_is_float(e->dtype))
		theirs_16bit++;
	else
		theirs_float_int++;
	free(a);
	free(b);
}

/* Against expected_fp32.safetensors: the same names, the same numbers. */
static void test_expected(struct job *j, const struct t_st *got)
{
	char *path = t_fmt("%s/expected_fp32.safetensors", j->dir);
	struct t_st exp;

	if (!j->latest || !t_exists(path)) {
		free(path);
		return;
	}
	if (t_st_open(&exp, path) < 0)
		t_die("%s: %s", path, exp.err);
	for (size_t i = 0; i < exp.n_tensors; i++) {
		const char *alias = t_st_meta(got, exp.tensors[i].name);
		const struct t_st_tensor *g = t_st_find(got, exp.tensors[i].name);

		if (!g && alias)
			g = t_st_find(got, alias);
		if (g)
			compare_theirs(j, &exp.tensors[i], g);
		else
			t_say(j->r, "%s: zero_to_fp32 gives %s, we do not",
			      j->tag, exp.tensors[i].name);
	}
	for (size_t i = 0; i < got->n_tensors; i++) {
		const char *name = got->tensors[i].name;
		const struct t_param *p = t_case_param(j->c, name);

		if (t_st_find(&exp, name))
			continue;
		if (p && !p->requires_grad && j->c->stage == 1)
			theirs_no_frozen++;
		else
			t_say(j->r, "%s: zero_to_fp32 does not give %s", j->tag,
			      name);
	}
	t_st_close(&exp);
	free(path);
}

/* One file in DTYPE (NULL: the default, fp32). */
static void test_model(struct job *j, const char *dtype)
{
	const char *word = dtype ? dtype : "fp32";
	const char *as = !strcmp(word, "bf16") ? "BF16" :
			 !strcmp(word, "fp16") ? "F16" :
			 !strcmp(word, "fp32") ? "F32" : "keep";
	char *dst = t_fmt("%s/%s.safetensors", j->work, word);
	char *label = t_fmt("%s: %s", j->tag, word);
	struct t_expected w;
	struct t_run run;
	struct t_st got;

	if (dtype)
		t_run_zckpt(&run, "convert", "--dtype", dtype, "--tied", "dup",
			    "--threads", "1", "--sync", "none", j->tag_dir, dst,
			    NULL);
	else
		t_run_zckpt(&run, "convert", "--threads", "1", "--sync", "none",
			    "--tag", j->tag, j->root, "-o", dst, NULL);
	if (ran(j, &run, word, 0) && !open_out(j, &got, dst)) {
		t_expected_model(&w, j->c, &j->truth, as, &j->master);
		t_expected_compare(&w, &got, !dtype, label, j->r);
		if (!dtype)
			test_expected(j, &got);
		t_expected_free(&w);
		t_st_close(&got);
	}
	t_run_free(&run);
	t_dir_remove(dst);
	free(label);
	free(dst);
}

/* What is missing makes --strict answer no. */
static void test_strict(struct job *j)
{
	char *dir = t_fmt("%s/strict", j->work);
	struct t_run run;

	t_run_zckpt(&run, "convert", "--strict", "--state", "all", "--sync", "none",
		    "--threads", "1", "--tag", j->tag, j->root, dir, NULL);
	ran(j, &run, "--strict", 1);
	t_run_free(&run);
	t_dir_remove(dir);
	free(dir);
}

static void test_tag(struct job *j, int self)
{
	char *path = j->latest ? t_fmt("%s/truth.safetensors", j->dir)
			       : t_fmt("%s/truth-%s.safetensors", j->dir, j->tag);

	if (t_st_open(&j->truth, path) < 0) {
		t_say(j->r, "%s: %s", path, j->truth.err);
		goto out;
	}
	t_case_check(j->c, &j->truth, j->tag, j->r);
	if (j->latest)
		t_traits_add(j->c, &j->truth);
	if (!self && !j->r->bad) {
		j->r->equal = 0;
		j->root = t_fmt("%s/ckpt", j->dir);
		j->tag_dir = t_fmt("%s/%s", j->root, j->tag);
		j->work = t_dir_new();
		test_states(j);
		test_model(j, NULL);
		test_model(j, "keep");
		test_model(j, "bf16");
		test_model(j, "fp16");
		if (lacks_something(j->c))
			test_strict(j);
		check_nothing_left(j->r, j->work, "a finished run");
		t_dir_remove(j->work);
		free(j->work);
		free(j->root);
		free(j->tag_dir);
	}
out:
	t_st_close(&j->truth);
	t_st_close(&j->master);
	free(path);
}

/* Experts, tensor or pipeline parallelism: the weights of the model's own names. */
static void test_parallel(const struct t_case *c, const char *dir, struct t_report *r)
{
	char *work = t_dir_new(), *src = t_fmt("%s/ckpt", dir);
	char *dst = t_fmt("%s/out.safetensors", work);
	char *path = t_fmt("%s/truth.safetensors", dir);
	struct t_st truth = { 0 }, got = { 0 };
	struct t_run run;

	t_run_zckpt(&run, "convert", "--dtype", "keep", src, dst, NULL);
	if (run.exit)
		t_say(r, "exit %d signal %d: %s", run.exit, run.signal, run.err);
	else if (t_st_open(&truth, path) < 0 || t_st_open(&got, dst) < 0)
		t_say(r, "%s%s", truth.err, got.err);
	for (size_t i = 0; !run.exit && !r->bad && i < got.n_tensors; i++) {
		const struct t_st_tensor *g = &got.tensors[i], *want;

		want = t_truth(&truth, g->name, "weight");
		if (want && (g->nbytes != want->nbytes || memcmp(g->data, want->data, g->nbytes)))
			t_say(r, "%s has other bytes", g->name);
		/* that truth is of slices and of local experts */
		r->equal += want || c->tp > 1 || (c->ep > 1 && strstr(g->name, "experts"));
	}
	if (!r->bad && r->equal != (long)got.n_tensors)
		t_say(r, "%ld of %zu tensors are in the truth", r->equal, got.n_tensors);
	if (!run.exit) {
		t_st_close(&truth);
		t_st_close(&got);
	}
	t_run_free(&run);
	t_dir_remove(work);
	free(work);
	free(src);
	free(dst);
	free(path);
}

static int test_case(const char *dir, int self)
{
	struct t_report r = { 0 };
	struct t_case c;
	int bad;
	char *theirs = t_fmt("%s/expected_fp32.safetensors", dir);

	t_case_open(&c, dir);
	if (t_exists(theirs))
		t_traits_expected();
	free(theirs);
	if (c.refuse && !self)
		test_parallel(&c, dir, &r);
	if (c.refuse)
		t_traits_add(&c, NULL);
	for (size_t i = 0; c.tags[i] && !c.refuse; i++) {
		struct job j = { .c = &c, .dir = dir, .tag = c.tags[i], .r = &r,
				 .latest = !strcmp(c.tags[i], c.latest) };

		test_tag(&j, self);
	}
	if (!c.refuse && !r.bad && !r.equal)
		t_say(&r, "nothing was compared");
	if (r.bad)
		printf("FAIL %s\n%s", c.name, r.text);
	else if (c.refuse)
		printf("ok   %s: %ld tensors, parallel\n", c.name, r.equal);
	else if (r.absent)
		printf("ok   %s: %ld tensors, %ld without names left out\n",
		       c.name, r.equal, r.absent);
	else
		printf("ok   %s: %ld tensors\n", c.name, r.equal);
	if (r.bad > 12)
		printf("     and %d more\n", r.bad - 12);
	fflush(stdout);
	bad = r.bad;
	free(r.text);
	t_case_close(&c);
	return bad != 0;
}

int main(int argc, char **argv)
{
	const char *root = getenv("ZCKPT_FIXTURES"), *filter = NULL;
	int self = 0, passed = 0, failed = 0;
	char *base, **names;

	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--self"))
			self = 1;
		else
			filter = argv[i];
	}
	base = t_fmt("%s/deepspeed", root && *root ? root : "build/fixtures");
	names = t_dir_list(base, NULL);
	if (!names[0])
		t_die("no fixtures in %s; set ZCKPT_FIXTURES", base);
	if (!self && !t_exists(t_zckpt()))
		t_die("there is no program %s; set ZCKPT", t_zckpt());
	for (size_t i = 0; names[i]; i++) {
		char *dir = t_fmt("%s/%s", base, names[i]);
		char *json = t_fmt("%s/case.json", dir);

		if (t_exists(json) && (!filter || strstr(names[i], filter))) {
			if (test_case(dir, self))
				failed++;
			else
				passed++;
		}
		free(json);
		free(dir);
	}
	t_list_free(names);
	free(base);
	t_traits_print();
	if (!self)
		printf("against zero_to_fp32: %ld tensors it leaves in 16 bits, %ld "
		       "integers it turns into floats, %ld frozen it leaves out\n",
		       theirs_16bit, theirs_float_int, theirs_no_frozen);
	if (passed)
		printf("[  PASSED  ] %d test(s).\n", passed);
	if (failed)
		printf("[  FAILED  ] %d test(s).\n", failed);
	printf("%d passed, %d failed, 0 skipped\n", passed, failed);
	return failed || !passed;
}
