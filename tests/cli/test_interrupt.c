/* A convert or reshard is stopped at every system call by which it changes files, one after
 * the other. If this fails, a user who pressed Ctrl-C finds a file that looks
 * whole, or one whose machine died cannot go on.
 *
 * usage: test_interrupt [FILTER]
 * Environment: ZCKPT_FIXTURES (default build/fixtures), ZCKPT (build/zckpt).
 *
 * SIGINT, SIGTERM: nothing is left, or (when it came behind the commit) the whole
 * output is. SIGKILL: the destination is not there or is whole; the same command
 * then gives the very bytes of a run that was never stopped, and no more files.
 * A step that goes beside others (its source among them): 'latest' names a step that is whole.
 * A run that has written 100 MB and more keeps them, says so, and is continued.
 * Exit 77 where tracing is not allowed. */
#define _GNU_SOURCE
#include "tests/lib/fs/t_dir.h"
#include "tests/lib/mutate/t_damage_file.h"
#include "tests/lib/run/t_run.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How many places at most are tried, evenly spread over the calls. */
#define PLACES 48

struct kind {
	const char *name, *fixture;
	const char *dst;	/* below the output folder */
	const char *states;	/* --state, or NULL */
	const char *ranks;	/* reshard: '2:1', or NULL */
	const char *tag;	/* and into the folder of its source, as this step */
	int named;		/* the source is given as the step itself, not found by 'latest' */
};

static const struct kind kinds[] = {
	{ "one file", "ds0.19.8-z2-bf16-w2", "model.safetensors", NULL, NULL, NULL, 0 },
	{ "a folder", "ds0.19.8-z3-bf16-w2", "hf", NULL, NULL, NULL, 0 },
	{ "a folder of states", "ds0.19.8-z3-bf16-w2", "states", "all", NULL, NULL, 0 },
	{ "a step", "ds0.19.8-z2-bf16-w2", "step", NULL, "2:3", NULL, 0 },
	{ "a step beside its source", "ds0.19.8-z2-bf16-w2", "root", NULL, "2:3", "new", 0 },
	{ "a step beside its source, which is named", "ds0.19.8-z2-bf16-w2", "root", NULL, "2:3",
	  "new", 1 },
};

/* One kind at work. */
struct job {
	const struct kind *kind;
	char *work, *out, *dst, *want;	/* WORK, WORK/out, its DST, WORK/want */
	char *src, *step;		/* in dst, if that is the source */
	const char *argv[16];
	long calls;			/* in a run that is not stopped */
	int bad;
	int gone, whole, partial;	/* how the stopped runs ended */
};

static void complain(struct job *j, const char *what, long at, const char *more)
{
	j->bad++;
	if (j->bad <= 8)
		printf("     call %ld of %ld: %s%s\n", at, j->calls, what, more);
}

/* 1 when two files, or two folders of files, hold the same. */
static int same(const char *a, const char *b)
{
	char **x, **y;
	size_t n, m;
	int ok = t_is_dir(a) == t_is_dir(b);

	if (ok && !t_is_dir(a)) {
		uint8_t *p = t_file_read(a, &n), *q = t_file_read(b, &m);

		ok = p && q && n == m && !memcmp(p, q, n);
		free(p);
		free(q);
		return ok;
	}
	x = t_dir_list(a, &n);
	y = t_dir_list(b, &m);
	ok = ok && n == m;
	for (size_t i = 0; ok && i < n; i++) {
		char *p = t_fmt("%s/%s", a, x[i]), *q = t_fmt("%s/%s", b, y[i]);

		ok = !strcmp(x[i], y[i]) && same(p, q);
		free(p);
		free(q);
	}
	t_list_free(x);
	t_list_free(y);
	return ok;
}

static void fresh_out(struct job *j)
{
	t_dir_remove(j->out);
	t_dir_make(j->out);
	if (j->kind->tag)
		t_dir_copy(j->src, j->dst);
}

/* The output folder holds the destination, whole, and nothing else. */
static int is_done(const struct job *j)
{
	char **left = t_dir_list(j->out, NULL);
	int ok = left[0] && !left[1] && !strcmp(left[0], j->kind->dst) &&
		 same(j->dst, j->want);

	t_list_free(left);
	return ok;
}

/* The output folder is as fresh_out() made it. */
static int is_empty(const struct job *j)
{
	char **left = t_dir_list(j->out, NULL);
	int ok = !left[0];

	if (j->kind->tag)
		ok = left[0] && !left[1] && same(j->dst, j->src);
	t_list_free(left);
	return ok;
}

/* A root that a step was put into: the step that 'latest' names is as it was, or is the new one. */
static int is_readable(const struct job *j)
{
	char *pointer = t_fmt("%s/latest", j->dst), *from, *to;
	size_t n;
	uint8_t *tag = t_file_read(pointer, &n);
	int ok = tag != NULL;

	if (ok) {
		const int is_new = !strcmp((char *)tag, j->kind->tag);

		from = t_fmt("%s/%s", is_new ? j->want : j->src, (char *)tag);
		to = t_fmt("%s/%s", j->dst, (char *)tag);
		ok = same(from, to);
		free(from);
		free(to);
	}
	free(tag);
	free(pointer);
	return ok;
}

/* The same command again, not stopped; EXIT is what it must end with. */
static void again(struct job *j, long at, int wanted)
{
	struct t_run run;

	t_run(&run, j->argv, 30);
	if (run.exit != wanted)
		complain(j, "the same command afterwards failed: ", at, run.err);
	else if (!is_done(j))
		complain(j, "the same command gave other bytes or more files", at, "");
	t_run_free(&run);
}

static void stop_softly(struct job *j, long at, int sig)
{
	struct t_trace t;

	fresh_out(j);
	t_trace(&t, j->argv, at, sig);
	if (is_done(j) && t.exit == 0)
		j->whole++;
	else if (is_empty(j) && t.exit != 0)
		j->gone++;
	else
		complain(j, "output is neither gone nor whole, or the exit code lies",
			 at, "");
	again(j, at, is_empty(j) ? 0 : 2);
}

/* The same for a step that goes beside others. */
static void kill_in_root(struct job *j, long at)
{
	struct t_trace t;
	char *partial = t_fmt("%s.zckpt-partial", j->dst);
	int left, whole;

	fresh_out(j);
	t_trace(&t, j->argv, at, SIGKILL);
	if (!t.fired || t.signal != SIGKILL)
		complain(j, "the run could not be killed", at, "");
	if (!is_readable(j))
		complain(j, "'latest' names a step that is not whole", at, "");
	whole = same(j->dst, j->want);
	left = t_exists(partial);
	if (left) {	/* a folder without a record is no run */
		char **in = t_dir_list(partial, NULL);

		left = in[0] != NULL;
		t_list_free(in);
	}
	j->whole += whole;
	j->partial += !whole && left;
	again(j, at, whole && !left ? 2 : 0);
	free(partial);
}

static void kill_hard(struct job *j, long at)
{
	struct t_trace t;
	int there;

	fresh_out(j);
	t_trace(&t, j->argv, at, SIGKILL);
	if (!t.fired || t.signal != SIGKILL)
		complain(j, "the run could not be killed", at, "");
	there = t_exists(j->dst);
	if (there && !same(j->dst, j->want))
		complain(j, "a destination that is not whole", at, "");
	j->whole += there;
	j->partial += !there && !is_empty(j);
	/* where the kill came behind the last rename, --force clears the rest */
	j->argv[2] = there ? "--force" : "--no-progress";
	again(j, at, 0);
	j->argv[2] = "--no-progress";
}

/* After a kill, another plan is refused and --restart drops the leftovers. */
static void other_plan(struct job *j, long at)
{
	struct t_trace t;
	struct t_run run;

	fresh_out(j);
	t_trace(&t, j->argv, at, SIGKILL);
	if (t_exists(j->dst) || is_empty(j))
		return;
	t_run_zckpt(&run, "convert", "--dtype", "bf16", j->src, j->dst, NULL);
	if (run.exit != 2 && run.exit != 3)
		complain(j, "another plan went on with the leftovers", at, "");
	t_run_free(&run);
	t_run_zckpt(&run, "convert", "--restart", "--dtype", "bf16", j->src, j->dst,
		    NULL);
	if (run.exit || !t_exists(j->dst))
		complain(j, "--restart failed: ", at, run.err);
	t_run_free(&run);
}

/* DST/TAG of the step that 'latest' of the fixture names. */
static char *named_step(const struct job *j)
{
	char *pointer = t_fmt("%s/latest", j->src), *step;
	size_t n;
	uint8_t *tag = t_file_read(pointer, &n);

	if (!tag)
		t_die("%s cannot be read", pointer);
	step = t_fmt("%s/%.*s", j->dst, (int)n, (char *)tag);
	free(tag);
	free(pointer);
	return step;
}

static void start(struct job *j, const struct kind *k, const char *fixtures)
{
	int n = 0;

	memset(j, 0, sizeof(*j));
	j->kind = k;
	j->work = t_dir_new();
	j->out = t_fmt("%s/out", j->work);
	j->dst = t_fmt("%s/%s", j->out, k->dst);
	j->want = t_fmt("%s/want", j->work);
	j->src = t_fmt("%s/deepspeed/%s/ckpt", fixtures, k->fixture);
	j->argv[n++] = t_zckpt();
	j->argv[n++] = k->ranks ? "reshard" : "convert";
	j->argv[n++] = "--no-progress";	/* its place is taken by --force later */
	j->argv[n++] = "--threads";
	j->argv[n++] = "1";
	if (k->states) {
		j->argv[n++] = "--state";
		j->argv[n++] = k->states;
	}
	if (k->ranks)
		j->argv[n++] = k->ranks;
	if (k->tag) {
		j->argv[n++] = "--new-tag";
		j->argv[n++] = k->tag;
	}
	j->step = k->named ? named_step(j) : NULL;
	j->argv[n++] = k->named ? j->step : k->tag ? j->dst : j->src;
	j->argv[n++] = j->dst;
	fresh_out(j);
}

static void finish(struct job *j)
{
	t_dir_remove(j->work);
	free(j->work);
	free(j->out);
	free(j->dst);
	free(j->want);
	free(j->src);
	free(j->step);
}

/* 0 passed, 1 failed, -1 no tracing here. */
static int test_kind(const struct kind *k, const char *fixtures, int sig)
{
	struct t_trace t;
	struct job j;
	long step;

	start(&j, k, fixtures);
	t_trace(&t, j.argv, 0, 0);
	if (t.refused) {
		finish(&j);
		return -1;
	}
	j.calls = t.calls;
	if (t.exit || !t_exists(j.dst))
		complain(&j, "the run that nothing stops failed", 0, "");
	else
		t_damage_rename(j.dst, j.want);
	step = j.calls > PLACES ? (j.calls + PLACES - 1) / PLACES : 1;
	for (long at = 1; at <= j.calls && j.bad <= 8 && t_exists(j.want); at += step) {
		if (sig == SIGKILL && k->tag)
			kill_in_root(&j, at);
		else if (sig == SIGKILL)
			kill_hard(&j, at);
		else
			stop_softly(&j, at, sig);
	}
	if (sig == SIGKILL && !k->states && !k->ranks)
		other_plan(&j, j.calls / 2);
	if (sig == SIGKILL ? !j.partial : !j.gone)
		complain(&j, "no place was hit where something was at stake", 0, "");
	printf("%s %s, %s: %ld calls, %d gone, %d partial, %d whole\n",
	       j.bad ? "FAIL" : "ok  ", k->name, strsignal(sig), j.calls, j.gone,
	       j.partial, j.whole);
	fflush(stdout);
	finish(&j);
	return j.bad != 0;
}

/* ---------------------------------------------------------------- much work */

/* 50 tensors of 4 MiB of zeros, a file with a hole. */
static void make_large(const char *path)
{
	enum { TENSORS = 50, BYTES = 1 << 22 };
	char head[8192] = "{", *at = head + 1;
	uint64_t n;
	FILE *f = fopen(path, "wb");

	for (int i = 0; i < TENSORS; i++)
		at += snprintf(at, (size_t)(head + sizeof(head) - at),
			       "%s\"t%d\":{\"dtype\":\"F32\",\"shape\":[%d],"
			       "\"data_offsets\":[%d,%d]}", i ? "," : "", i, BYTES / 4,
			       i * BYTES, (i + 1) * BYTES);
	*at++ = '}';
	n = (uint64_t)(at - head);
	if (!f || fwrite(&n, 8, 1, f) != 1 || fwrite(head, n, 1, f) != 1 ||
	    fseek(f, (long)TENSORS * BYTES - 1, SEEK_CUR) || fputc(0, f) || fclose(f))
		t_die("%s cannot be written", path);
}

/* Stopped at a call: it dies of the signal, says what is kept, and keeps it. */
static int keeps(const char *const argv[], long at, int sig, const char *dir)
{
	char *err = t_fmt("%s/err", dir), *partial = t_fmt("%s/dst.zckpt-partial", dir);
	struct t_trace t;
	double kept = 0;
	char *bytes, *text, *end;
	size_t n;
	int ok;

	t_trace(&t, argv, at, sig);
	bytes = (char *)t_file_read(err, &n);
	text = t_fmt("%.*s", (int)n, bytes ? bytes : "");
	end = strstr(text, " MB kept in ");
	if (end) {
		while (end > text && end[-1] != ' ')
			end--;
		kept = strtod(end, NULL);
	}
	ok = t.signal == sig && kept >= 100 && kept <= 210 && t_exists(partial) &&
	     strstr(text, "the same command continues");
	if (!ok)
		printf("     call %ld: signal %d, exit %d, said: %s", at, t.signal, t.exit, text);
	free(text);
	free(bytes);
	free(partial);
	free(err);
	return ok;
}

/* From 100 MB on a stopped run keeps its work, also that of the run before it. */
static int test_much_work(void)
{
	char *dir = t_dir_new(), *src = t_fmt("%s/src.safetensors", dir);
	char *dst = t_fmt("%s/dst", dir), *want = t_fmt("%s/want", dir);
	char *call = t_fmt("exec '%s' convert --no-progress --threads 1 '%s' '%s' 2> '%s/err'",
			   t_zckpt(), src, dst, dir);
	const char *const argv[] = { "/bin/sh", "-c", call, NULL };
	struct t_trace t;
	struct t_run run;
	int ok;

	make_large(src);
	t_trace(&t, argv, 0, 0);
	if (t.refused)
		return -1;
	ok = !t.exit && t_exists(dst);
	if (ok)
		t_damage_rename(dst, want);
	ok = ok && keeps(argv, t.calls * 3 / 4, SIGINT, dir) &&
	     keeps(argv, 12, SIGTERM, dir) && !t_exists(dst);
	t_run(&run, argv, 60);
	ok = ok && !run.exit && same(dst, want);
	printf("%s much work, Interrupt and Terminated: %ld calls\n", ok ? "ok  " : "FAIL",
	       t.calls);
	t_run_free(&run);
	t_dir_end(dir);
	free(call);
	free(want);
	free(dst);
	free(src);
	return !ok;
}

int main(int argc, char **argv)
{
	const char *root = getenv("ZCKPT_FIXTURES"), *filter = argc > 1 ? argv[1] : "";
	static const int signals[] = { SIGINT, SIGTERM, SIGKILL };
	int passed = 0, failed = 0, skipped = 0;

	root = root && *root ? root : "build/fixtures";
	if (!t_is_dir(root))
		t_die("no fixtures in %s; set ZCKPT_FIXTURES", root);
	if (!t_exists(t_zckpt()))
		t_die("there is no program %s; set ZCKPT", t_zckpt());
	/* a leak checker cannot look at a process that is traced */
	setenv("ASAN_OPTIONS", "detect_leaks=0", 1);
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		for (size_t s = 0; s < 3; s++) {
			int rc = strstr(kinds[i].name, filter)
				? test_kind(&kinds[i], root, signals[s]) : 2;

			passed += rc == 0;
			failed += rc == 1;
			skipped += rc == -1;
		}
	if (strstr("much work", filter)) {
		int rc = test_much_work();

		passed += rc == 0;
		failed += rc == 1;
		skipped += rc == -1;
	}
	if (passed)
		printf("[  PASSED  ] %d test(s).\n", passed);
	if (failed)
		printf("[  FAILED  ] %d test(s).\n", failed);
	printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped);
	if (skipped && !failed && !passed) {
		fprintf(stderr, "tracing is not allowed here\n");
		return 77;
	}
	return failed || !passed;
}
