/*
 * test_torture_source.c -- a source that is replaced or written to while a verb reads it, between a
 * killed run and the next one, or between two parts.
 *
 * If this fails, a result holds some tensors of one save and some of another, with status 0: a
 * model that no run ever had.
 *
 * The sources are made by tests/lib/mutate/t_sources.c. A seed draws what happens to them; it is
 * printed, and ZCKPT_SEED=N repeats it. ZCKPT_LONG=1: 550 runs instead of 60.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "libckpt/base/ck_sys.h"
#include "libckpt/include/ckpt.h"
#include "tests/lib/fs/t_dir.h"
#include "tests/lib/mutate/t_sources.h"
#include "tests/lib/run/t_seed.h"

#define SHORT_RUNS 60
#define LONG_RUNS 550

enum way { RENAMED, IN_PLACE, TIME_PUT_BACK, AFTER_A_KILL, BETWEEN_PARTS, NWAYS };
enum verb { CONVERT, DIGEST, LOAD, RESHARD, NVERBS };
enum end { OLD, NEW, MISMATCH, REFUSED, MIXED, NENDS };

static const char *const way_name[] = {
	"renamed over", "in place", "in place, mtime put back", "after a kill", "between parts",
};
static const char *const verb_name[] = { "convert", "digest", "load", "reshard" };

static struct {
	char *dir, *in, *out, *dst;
	struct t_source source[T_NFORMS];
	unsigned count[T_NFORMS][NENDS], by_way[NWAYS][NENDS];
} t;

static uint64_t seed;

static uint64_t below(uint64_t n)
{
	return t_draw_below(&seed, n);
}

static void must(int rc, const struct ckpt_err *err)
{
	if (rc)
		t_die("%s: %s", err->where, err->msg);
}

/* ---------------------------------------------------------------- replacing */

static struct {
	const struct t_tree *by;
	enum way way;
	_Atomic long calls;	/* of reading and opening, so far */
	long at;		/* 0 = only count */
	long was_at;		/* of the last run, for messages */
	_Atomic long writes;
	long die_at;		/* 0 = never */
} turn;

static ssize_t (*real_pread)(int fd, void *p, size_t n, off_t off);
static int (*real_open)(const char *path, int flags, mode_t mode);
static ssize_t (*real_pwrite)(int fd, const void *p, size_t n, off_t off);

static void write_at_once(int fd, const struct t_tree_node *n)
{
	if (fd < 0 || pwrite(fd, n->p, n->n, 0) != (ssize_t)n->n || ftruncate(fd, (off_t)n->n))
		t_die("a source cannot be replaced: %s", n->name);
}

static void replace_file(const struct t_tree_node *n, enum way way)
{
	char *path = t_fmt("%s/%s", t.in, n->name), *beside = t_fmt("%s.new", path);
	struct stat st;
	int fd;

	if (way == RENAMED) {
		t_file_write(beside, n->p, n->n);
		if (rename(beside, path))
			t_die("a source cannot be replaced: %s", n->name);
	} else {
		fd = open(path, O_WRONLY);
		fstat(fd, &st);
		write_at_once(fd, n);
		if (way == TIME_PUT_BACK)
			futimens(fd, (struct timespec[2]){ st.st_atim, st.st_mtim });
		close(fd);
	}
	free(path);
	free(beside);
}

static void replace(const struct t_tree *by, enum way way)
{
	for (size_t i = 0; i < by->n; i++)
		if (!by->node[i].is_dir)
			replace_file(&by->node[i], way);
}

static void tick(void)
{
	if (atomic_fetch_add(&turn.calls, 1) + 1 == turn.at)
		replace(turn.by, turn.way);
}

static ssize_t w_pread(int fd, void *p, size_t n, off_t off)
{
	tick();
	return real_pread(fd, p, n, off);
}

static int w_open(const char *path, int flags, mode_t mode)
{
	tick();
	return real_open(path, flags, mode);
}

static ssize_t w_pwrite(int fd, const void *p, size_t n, off_t off)
{
	if (atomic_fetch_add(&turn.writes, 1) + 1 == turn.die_at)
		_exit(9);
	return real_pwrite(fd, p, n, off);
}

/* ---------------------------------------------------------------- verbs */

static void put_result(const void *p, size_t n)
{
	char *path = t_fmt("%s/result", t.out);

	t_file_write(path, p, n);
	free(path);
}

static int digest(struct ckpt *ck, struct ckpt_err *err)
{
	const struct ckpt_digest_opts o = { .size = sizeof(o) };
	struct ckpt_digests d = { 0 };
	const int rc = ckpt_digest(ck, &o, &d, err);

	if (!rc)
		put_result(d.root, 32);
	ckpt_digests_free(&d);
	return rc;
}

static int load(struct ckpt *ck, struct ckpt_err *err)
{
	const struct ckpt_load_opts o = { .size = sizeof(o) };
	struct ckpt_load_range range[256];
	struct ckpt_tensor_info info;
	size_t n = 0, at = 0;
	uint8_t *mem = t_alloc(4 << 20);
	int rc;

	memset(mem, 0, 4 << 20);
	for (uint64_t i = 0; n < 256 && !ckpt_tensor_get(ck, i, &info, NULL); i++) {
		struct ckpt_state_info st;

		if (ckpt_state_get(ck, i, 0, &st, NULL))
			continue;
		range[n++] = (struct ckpt_load_range){
			.tensor = i, .state = st.name, .count = info.numel, .dst = mem + at,
		};
		at += info.numel * (ckpt_dtype_bits(st.dtype) / 8);
		assert_true(at <= 4 << 20);
	}
	rc = ckpt_load(ck, range, n, &o, NULL, err);
	if (!rc)
		put_result(mem, at);
	free(mem);
	return rc;
}

/* Part 'part' of 'nparts'. */
static int work(enum t_form form, enum verb verb, uint32_t part, uint32_t nparts, unsigned flags,
		struct ckpt_err *err)
{
	char *own = t_fmt("%s/%s", t.in, t.source[form].name);
	const char *path = own;
	const struct ckpt_run_opts run = {
		.size = sizeof(run), .threads = 1, .sync = CKPT_SYNC_NONE,
	};
	const struct ckpt_open_opts oo = {
		.size = sizeof(oo), .threads = 1, .keep_values = (int)(turn.at & 1),
	};
	const struct ckpt_convert_opts co = {
		.size = sizeof(co), .run = &run, .dtype = CKPT_KEEP, .max_shard_bytes = 512,
		.part = part, .nparts = nparts, .flags = flags,
	};
	const struct ckpt_reshard_opts ro = {
		.size = sizeof(ro), .run = &run, .world = 3, .stage = -1, .round_robin = -1,
		.part = part, .nparts = nparts, .flags = flags,
	};
	struct ckpt *ck = NULL;
	int rc = ckpt_open(&path, 1, &oo, &ck, err);

	if (!rc)
		rc = verb == DIGEST ? digest(ck, err) : verb == LOAD ? load(ck, err) :
		     verb == RESHARD ? ckpt_reshard(ck, t.dst, &ro, NULL, err) :
		     ckpt_convert(ck, t.dst, &co, NULL, err);
	ckpt_close(ck);
	free(own);
	return rc;
}

/* ---------------------------------------------------------------- one run */

static void empty_out(void)
{
	t_dir_remove(t.out);
	t_dir_make(t.out);
}

/* What a run makes that nothing disturbs; how often it reads and writes. */
static void run_well(enum t_form form, enum verb verb, const struct t_tree *of, struct t_tree *made,
		     long *reads, long *writes)
{
	struct ckpt_err err = { 0 };

	empty_out();
	t_tree_put(t.in, of);
	turn.at = turn.die_at = 0;
	turn.calls = turn.writes = 0;
	must(work(form, verb, 0, 1, 0, &err), &err);
	*reads = turn.calls;
	*writes = turn.writes;
	t_tree_take(t.out, made);
	empty_out();
}

static int run_disturbed(enum t_form form, enum verb verb, enum way way, long reads,
			 struct ckpt_err *err)
{
	int rc;

	turn.by = &t.source[form].is;
	turn.way = way;
	turn.calls = 0;
	turn.at = turn.was_at = 1 + (long)below((uint64_t)reads);
	rc = work(form, verb, 0, 1, 0, err);
	turn.at = 0;
	return rc;
}

static int run_killed(enum t_form form, enum verb verb, long writes, struct ckpt_err *err)
{
	const long at = 1 + (long)below((uint64_t)writes);
	const pid_t pid = fork();
	int rc;

	if (!pid) {
		turn.writes = 0;
		turn.die_at = at;
		_exit(work(form, verb, 0, 1, 0, err) ? 1 : 0);
	}
	waitpid(pid, &rc, 0);
	replace(&t.source[form].is, (enum way)below(TIME_PUT_BACK));
	if (!WEXITSTATUS(rc))
		return 0;
	assert_int_equal(WEXITSTATUS(rc), 9);
	rc = work(form, verb, 0, 1, 0, err);
	if (rc) {	/* "another source": then the verb starts over */
		struct ckpt_err again = { 0 };

		assert_int_equal(err->code, CKPT_E_EXISTS);
		must(work(form, verb, 0, 1, CKPT_WRITE_RESTART, &again), &again);
		empty_out();
	}
	return rc;
}

static int run_parts(enum t_form form, enum verb verb, struct ckpt_err *err)
{
	const uint32_t first = (uint32_t)below(2);
	int rc = work(form, verb, first, 2, 0, err);

	must(rc, err);
	replace(&t.source[form].is, (enum way)below(TIME_PUT_BACK));
	rc = work(form, verb, !first, 2, 0, err);
	if (!rc)
		rc = ckpt_commit(t.dst, 0, CKPT_SYNC_NONE, err);
	if (rc)
		ckpt_discard(t.dst, NULL);
	return rc;
}

static enum end judge(int rc, const struct ckpt_err *err, const struct t_tree *was,
		      const struct t_tree *is)
{
	struct t_tree now;
	enum end end = MIXED;

	t_tree_take(t.out, &now);
	if (rc && !now.n)
		end = err->code == CKPT_E_MISMATCH ? MISMATCH : REFUSED;
	else if (!rc && t_tree_same(&now, was))
		end = OLD;
	else if (!rc && t_tree_same(&now, is))
		end = NEW;
	t_tree_free(&now);
	return end;
}

static void one(enum t_form form, enum way way, enum verb verb)
{
	struct ckpt_err err = { 0 };
	struct t_tree was, is;
	long reads, writes;
	enum end end;
	int rc;

	run_well(form, verb, &t.source[form].is, &is, &reads, &writes);
	run_well(form, verb, &t.source[form].was, &was, &reads, &writes);
	assert_false(t_tree_same(&was, &is));
	t_tree_put(t.in, &t.source[form].was);
	rc = way == AFTER_A_KILL ? run_killed(form, verb, writes, &err) :
	     way == BETWEEN_PARTS ? run_parts(form, verb, &err) :
	     run_disturbed(form, verb, way, reads, &err);
	end = judge(rc, &err, &was, &is);
	if (end == MIXED)
		print_message("MIXED: %s of %s, %s at call %ld of %ld: %d %s: %s\n",
			      verb_name[verb], t.source[form].form, way_name[way], turn.was_at,
			      reads, rc, err.where, err.msg);
	t.count[form][end]++;
	t.by_way[way][end]++;
	t_tree_free(&was);
	t_tree_free(&is);
}

/* ---------------------------------------------------------------- all */

static void say_row(const char *name, const unsigned *n)
{
	print_message("%-26s %5u %5u %5u %9u %8u %6u\n", name,
		      n[OLD] + n[NEW] + n[MISMATCH] + n[REFUSED] + n[MIXED], n[OLD], n[NEW],
		      n[MISMATCH], n[REFUSED], n[MIXED]);
}

static void say(void)
{
	print_message("%-26s %5s %5s %5s %9s %8s %6s\n", "", "runs", "old", "new", "mismatch",
		      "refused", "mixed");
	for (int f = 0; f < T_NFORMS; f++)
		say_row(t.source[f].form, t.count[f]);
	for (int w = 0; w < NWAYS; w++)
		say_row(way_name[w], t.by_way[w]);
}

static void old_new_or_refused_and_never_mixed(void **state)
{
	const unsigned runs = t_is_long() ? LONG_RUNS : SHORT_RUNS;
	unsigned mixed = 0;

	(void)state;
	for (unsigned i = 0; i < runs; i++) {
		const enum t_form form = (enum t_form)(i % T_NFORMS);
		const enum way way = (enum way)(i / T_NFORMS % NWAYS);
		const bool writes = way >= AFTER_A_KILL;
		enum verb verb = (enum verb)below(t.source[form].is_step ? NVERBS : RESHARD);

		if (writes && (verb == DIGEST || verb == LOAD))
			verb = t.source[form].is_step && below(2) ? RESHARD : CONVERT;
		if (form != T_FORM_PACK || ckpt_has_packs())
			one(form, way, verb);
	}
	say();
	for (int f = 0; f < T_NFORMS; f++)
		mixed += t.count[f][MIXED];
	assert_int_equal(mixed, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(old_new_or_refused_and_never_mixed),
	};
	int status;

	if (!getenv("ZCKPT_FIXTURES"))
		return 77;
	seed = t_seed();
	t_dir_in_memory();
	t.dir = t_dir_new();
	t.in = t_fmt("%s/in", t.dir);
	t.out = t_fmt("%s/out", t.dir);
	t.dst = t_fmt("%s/out/dst", t.dir);
	t_dir_make(t.in);
	t_dir_make(t.out);
	t_sources_make(t.dir, t.source);
	real_pread = ck_sys.pread;
	real_open = ck_sys.open;
	real_pwrite = ck_sys.pwrite;
	ck_sys.pread = w_pread;
	ck_sys.open = w_open;
	ck_sys.pwrite = w_pwrite;
	status = cmocka_run_group_tests(tests, NULL, NULL);
	t_sources_free(t.source);
	free(t.in);
	free(t.out);
	free(t.dst);
	t_dir_end(t.dir);
	return status;
}
