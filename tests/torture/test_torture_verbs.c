/*
 * Every verb that writes, while calls to the system fail: once, and from then on. If this fails, a
 * full disk, a dying one, an interrupted call or no more memory leaves a result that is neither the
 * old one nor the new one, or a program that holds what it should have let go, or is silent.
 *
 * A sample with a seed, which is printed; ZCKPT_SEED=N repeats it. ZCKPT_LONG=1: every call of one
 * thread, 200 of two. ZCKPT_TORTURE='convert z3' picks, ZCKPT_FAULT='EIO 141 on' is one failure
 * (docs/internals/torture.md).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/fs/t_dir.h"
#include "tests/lib/fs/t_tree.h"
#include "tests/lib/run/t_seed.h"
#include "tests/lib/torture/t_fault.h"
#include "tests/lib/torture/t_verbs.h"

#define MORE_THAN_ENOUGH 100000
#define TWO_THREADS 200		/* failures of two threads, of a verb and layout */
#define SAMPLE 2		/* without ZCKPT_LONG: of each kind */
#define MOST_TOLD 6
#define END_EVERY 5		/* how often the same command again must bring about the end */

static const enum t_fault_kind kinds[] = {
	T_FAULT_IO, T_FAULT_NOSPACE, T_FAULT_INTR, T_FAULT_SHORT, T_FAULT_FILES, T_FAULT_MEMORY,
	T_FAULT_THREADS,
};

#define NKINDS (sizeof(kinds) / sizeof(kinds[0]))

/* What there is afterwards. */
enum state {
	OLD,		/* what stood there, to the byte */
	NEW,		/* the whole result */
	PLACED,		/* the new step or folder whole and in its place; what is beside it, or
			 * 'latest', still to come, and kept until then */
	TORN,
};

struct row {
	long calls;		/* that can fail so, in a run without failures */
	long injected;		/* runs in which calls failed */
	long state[TORN];
	long errors, ended;	/* runs that said so; that the same command brought to their end */
};

struct test {
	struct t_vscene s;
	struct t_tree old, good;
	uint32_t threads;
	uint64_t seed;
	struct row row[NKINDS];
	unsigned wrong;
};

/* One run with its failure. */
struct attempt {
	enum t_fault_kind kind;
	long n;
	bool on, fired;
	int rc;
	const char *last;	/* call that failed */
	struct ckpt_err err;
	struct t_tree now;
	enum state state;
};

static uint64_t next(uint64_t *seed)
{
	uint64_t z = *seed += 0x9e3779b97f4a7c15u;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

/* ---------------------------------------------------------------- old, new or torn */

/* What a run works in, and takes away when it ends. */
static bool is_staging(const char *name)
{
	return strstr(name, ".zckpt-partial") || strstr(name, ".zckpt-new") ||
	       strstr(name, ".zckpt-removed") || strstr(name, ".zckpt-slim") ||
	       t_ends_with(name, "zckpt-manifest.json.tmp");
}

static bool has_staging(const struct t_tree *tree)
{
	for (size_t i = 0; i < tree->n; i++)
		if (is_staging(tree->node[i].name))
			return true;
	return false;
}

/* Equal but for staging. */
static bool shows(const struct t_tree *now, const struct t_tree *want)
{
	size_t i = 0, k = 0;

	for (;;) {
		while (i < now->n && is_staging(now->node[i].name))
			i++;
		while (k < want->n && is_staging(want->node[k].name))
			k++;
		if (i == now->n || k == want->n)
			return i == now->n && k == want->n;
		if (strcmp(now->node[i].name, want->node[k].name) ||
		    !t_tree_node_same(&now->node[i], &want->node[k]))
			return false;
		i++;
		k++;
	}
}

static bool is_pointer(const char *name)
{
	return t_ends_with(name, "/latest") || t_ends_with(name, "/latest_universal");
}

/* Some file of the tree has these bytes: kept, wherever it is for the moment. */
static bool is_somewhere(const struct t_tree *tree, const struct t_tree_node *node)
{
	for (size_t i = 0; i < tree->n; i++)
		if (t_tree_node_same(&tree->node[i], node))
			return true;
	return false;
}

/*
 * All of the new unit is there; all else is as it was or as it will be, what is old and stays is
 * not lost, and nothing is there that neither knows.
 */
static bool is_placed(const struct test *t, const struct t_tree *now)
{
	const char *unit = t->s.verb->unit ? t->s.verb->unit : "";
	bool ok = true;

	for (size_t i = 0; i < t->good.n; i++) {
		const struct t_tree_node *want = &t->good.node[i];
		const struct t_tree_node *was = t_tree_find(&t->old, want->name);
		const struct t_tree_node *is = t_tree_find(now, want->name);

		if (t_tree_node_same(was, want))
			ok &= is ? t_tree_node_same(is, want) : is_somewhere(now, want);
		else if (!strncmp(want->name, unit, strlen(unit)) && !is_pointer(want->name))
			ok &= t_tree_node_same(is, want);
		else
			ok &= !is ? !was : t_tree_node_same(is, want) || t_tree_node_same(is, was);
	}
	for (size_t i = 0; i < now->n; i++)
		ok &= is_staging(now->node[i].name) || t_tree_find(&t->old, now->node[i].name) ||
		      t_tree_find(&t->good, now->node[i].name);
	return ok && (has_staging(now) || t->s.verb->latest_apart);
}

static enum state state_of(const struct test *t, const struct t_tree *now)
{
	if (shows(now, &t->good) && !(t->s.verb->on_partial && shows(&t->old, &t->good)))
		return NEW;
	if (shows(now, &t->old))
		return OLD;
	return is_placed(t, now) ? PLACED : TORN;
}

static void list(const char *title, const struct t_tree *tree)
{
	print_message("%s:\n", title);
	for (size_t i = 0; i < tree->n; i++)
		print_message("  %s%s %zu\n", tree->node[i].name,
			      tree->node[i].is_dir ? "/" : "", tree->node[i].n);
}

/* Told, and gone on with: the next one may say more. */
static void is_wrong(struct test *t, const struct attempt *a, const char *why)
{
	const struct t_verb *v = t->s.verb;

	if (t->wrong++ < 1) {
		list("there was", &t->old);
		list("there is", &a->now);
		list("there should be", &t->good);
	}
	if (t->wrong < MOST_TOLD)
		print_message("WRONG: %s %s %s, %u thread(s), %s at call %ld%s (%s): %s; rc %d: "
			      "%s: %s\n", v->verb, v->layout, v->what, t->threads,
			      t_fault_name(a->kind), a->n, a->on ? " and all after it" : "",
			      a->last, why, a->rc, a->err.where, a->err.msg);
}

/* ---------------------------------------------------------------- one run */

static int finish(const struct test *t, struct ckpt_err *err)
{
	return t->s.verb->finish ? t->s.verb->finish(&t->s, err) : t->s.verb->work(&t->s, err);
}

/* All was done: the same command finds its own result in the way, a commit nothing to do. */
static bool is_over(const struct test *t, const struct attempt *a, const struct ckpt_err *err)
{
	return a->state == NEW && (err->code == CKPT_E_EXISTS ||
				   (t->s.verb->on_partial && err->code == CKPT_E_NOTFOUND));
}

/* The same command again, and the result is there, whole, and nothing else. */
static void bring_to_end(struct test *t, struct attempt *a)
{
	struct ckpt_err err = { 0 };
	const int rc = finish(t, &err);
	bool same;

	if (rc && !is_over(t, a, &err)) {
		print_message("%s: %s\n", err.where, err.msg);
		is_wrong(t, a, "the same command again does not bring about the end");
	}
	t_tree_free(&a->now);
	t_tree_take(t->s.out, &a->now);
	same = t_tree_same(&a->now, &t->good);
	if (!same)
		is_wrong(t, a, "the same command again makes something else");
}

static void check(struct test *t, const struct attempt *a, long blocks, long fds)
{
	const struct t_verb *v = t->s.verb;

	if (blocks || fds)
		is_wrong(t, a, t_fmt("%ld blocks and %ld descriptors are held", blocks, fds));
	if (a->rc != -(int)a->err.code)
		is_wrong(t, a, "the code in the error is another one");
	if (a->rc && !a->err.msg[0])
		is_wrong(t, a, "no sentence");
	if (a->rc && a->err.code != CKPT_E_NOMEM && !a->err.where[0])
		is_wrong(t, a, "the sentence names no place");
	if (a->rc && (!a->fired || a->kind == T_FAULT_SHORT || a->kind == T_FAULT_INTR ||
		      (a->kind == T_FAULT_THREADS && !v->needs_threads)))
		is_wrong(t, a, "it fails, and nothing is wrong");
	if (a->rc && a->kind == T_FAULT_NOSPACE && a->err.code != CKPT_E_NOSPACE)
		is_wrong(t, a, "it does not say that the disk is full");
	if (a->rc && a->kind == T_FAULT_MEMORY && a->err.code != CKPT_E_NOMEM)
		is_wrong(t, a, "it does not say that there is no memory");
	if (a->state == TORN)
		is_wrong(t, a, "it is torn");
	if (!a->rc && !v->finish && (a->state != NEW || has_staging(&a->now)))
		is_wrong(t, a, "it says it is done, and it is not");
	if (a->rc && !a->on && a->state == OLD && !v->on_partial && has_staging(&a->now))
		is_wrong(t, a, "it left partial output behind");
}

static void attempt(struct test *t, struct attempt *a)
{
	const long blocks = t_fault_blocks(), fds = t_fault_fds();

	a->err = (struct ckpt_err){ 0 };
	t_fault_arm(a->kind, a->n, a->on);
	a->rc = t->s.verb->work(&t->s, &a->err);
	a->fired = t_fault_fired();
	a->last = t_fault_last();
	t_fault_arm(T_FAULT_IO, 0, false);
	t_tree_take(t->s.out, &a->now);
	a->state = state_of(t, &a->now);
	check(t, a, t_fault_blocks() - blocks, t_fault_fds() - fds);
}

/* False when nothing was left to fail. */
static bool try(struct test *t, size_t kind, long n, bool on)
{
	struct attempt a = { .kind = kinds[kind], .n = n, .on = on };
	struct row *row = &t->row[kind];
	bool end;

	attempt(t, &a);
	row->injected += a.fired;
	row->state[a.state] += a.fired;
	row->errors += a.rc != 0;
	end = a.state == PLACED || (has_staging(&a.now) && a.rc) || !(next(&t->seed) % END_EVERY);
	/* a dead disk leaves partial output for the next run; all of it would take hours */
	if (end && (a.state == PLACED || !on || !(next(&t->seed) % END_EVERY))) {
		bring_to_end(t, &a);
		row->ended++;
	}
	if (!t_tree_same(&a.now, &t->old))
		t_tree_put(t->s.out, &t->old);
	t_tree_free(&a.now);
	return a.fired;
}

/* ---------------------------------------------------------------- all runs of a verb */

/* Twice, so that what is compared with does not depend on the time of day. */
static void run_well(struct test *t)
{
	struct ckpt_err err = { 0 };
	struct t_tree again;

	t_tree_take(t->s.out, &t->old);
	for (int i = 0; i < 2; i++) {
		if (finish(t, &err))
			fail_msg("%s %s %s: %s: %s", t->s.verb->verb, t->s.verb->layout,
				 t->s.verb->what, err.where, err.msg);
		t_tree_take(t->s.out, i ? &again : &t->good);
		t_tree_put(t->s.out, &t->old);
	}
	assert_true(t_tree_same(&t->good, &again));
	assert_false(t_tree_same(&t->good, &t->old));
	t_tree_free(&again);
}

static void count(struct test *t)
{
	for (size_t k = 0; k < NKINDS; k++) {
		struct ckpt_err err = { 0 };

		t_fault_arm(kinds[k], 0, false);
		assert_int_equal(t->s.verb->work(&t->s, &err), 0);
		t->row[k].calls = t_fault_calls();
		t_tree_put(t->s.out, &t->old);
	}
}

static void every_call(struct test *t, size_t kind)
{
	for (int on = 0; on < 2; on++)
		for (long n = 1; try(t, kind, n, on); n++)
			assert_true(n < MORE_THAN_ENOUGH);
}

/* So many of each kind. */
static void some_calls(struct test *t, unsigned each)
{
	for (size_t k = 0; k < NKINDS; k++)
		for (unsigned i = 0; t->row[k].calls && i < each; i++)
			try(t, k, 1 + (long)(next(&t->seed) % (uint64_t)t->row[k].calls), i % 2);
}

/* "EIO 141" or "EIO 141 on"; "EIO": every call. */
static void chosen_calls(struct test *t, const char *text)
{
	char name[16] = "", on[8] = "";
	long n = 0;

	sscanf(text, "%15s %ld %7s", name, &n, on);
	for (size_t k = 0; k < NKINDS; k++)
		if (!strcmp(name, t_fault_name(kinds[k])) && n)
			try(t, k, n, *on);
		else if (!strcmp(name, t_fault_name(kinds[k])))
			every_call(t, k);
}

/* ---------------------------------------------------------------- the table */

/* Of a verb, over all layouts. */
static struct total {
	const char *verb;
	struct row row[NKINDS];
} totals[16];

static FILE *table;	/* of a long run: the lines also go there */

static void tell(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

static void tell(const char *fmt, ...)
{
	char line[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	print_message("%s\n", line);
	if (table)
		fprintf(table, "%s\n", line);
}

static void add_up(const char *verb, size_t k, const struct row *r)
{
	struct total *sum = totals;

	while (sum->verb && strcmp(sum->verb, verb))
		sum++;
	sum->verb = verb;
	sum->row[k].calls += r->calls;
	sum->row[k].injected += r->injected;
	sum->row[k].errors += r->errors;
	sum->row[k].ended += r->ended;
	for (int i = 0; i < TORN; i++)
		sum->row[k].state[i] += r->state[i];
}

static void tell_row(const char *verb, const char *layout, const char *what, const char *threads,
		     size_t k, const struct row *r)
{
	if (r->injected)
		tell("%-10s %-4s %-30s %1s %-6s %7ld %7ld %7ld %7ld %7ld %6ld %6ld", verb, layout,
		     what, threads, t_fault_name(kinds[k]), r->calls, r->injected, r->errors,
		     r->state[OLD], r->state[NEW], r->state[PLACED], r->ended);
}

static void tell_head(void)
{
	tell("%-10s %-4s %-30s T %-6s %7s %7s %7s %7s %7s %6s %6s", "verb", "", "", "kind", "calls",
	     "runs", "errors", "old", "new", "placed", "ended");
}

static void say(const struct test *t)
{
	const struct t_verb *v = t->s.verb;

	for (size_t k = 0; k < NKINDS; k++) {
		tell_row(v->verb, v->layout, v->what, t->threads == 1 ? "1" : "2", k, &t->row[k]);
		add_up(v->verb, k, &t->row[k]);
	}
}

static void say_totals(void)
{
	for (const struct total *sum = totals; sum->verb; sum++)
		for (size_t k = 0; k < NKINDS; k++)
			tell_row(sum->verb, "", "in all", "", k, &sum->row[k]);
}

static unsigned torture(const struct t_verb *verb, uint32_t threads, uint64_t seed)
{
	struct test t = { .threads = threads, .seed = seed };
	const char *one = getenv("ZCKPT_FAULT");

	t_vscene_open(&t.s, verb);
	run_well(&t);
	t.s.threads = threads;
	t_fault_install();
	count(&t);
	if (one)
		chosen_calls(&t, one);
	else if (!t_is_long())
		some_calls(&t, threads == 1 ? SAMPLE : 1);
	else if (threads == 1)
		for (size_t k = 0; k < NKINDS; k++)
			every_call(&t, k);
	else
		some_calls(&t, TWO_THREADS / (NKINDS - 1) + 1);
	t_fault_remove();
	say(&t);
	t_tree_free(&t.old);
	t_tree_free(&t.good);
	t_vscene_close(&t.s);
	return t.wrong;
}

static uint64_t seed_of_all(void)
{
	static uint64_t seed;

	if (!seed)
		seed = t_seed();
	return seed;
}

static void all_verbs(uint32_t threads)
{
	const char *word = getenv("ZCKPT_TORTURE");
	unsigned n = 0, wrong = 0;

	seed_of_all();
	tell_head();
	for (unsigned i = 0; i < t_nverbs; i++) {
		const struct t_verb *v = &t_verbs[i];
		char *name = t_fmt("%s %s %s", v->verb, v->layout, v->what);

		if (!word || strstr(name, word)) {
			wrong += torture(v, threads, seed_of_all() + i);
			n++;
		}
		free(name);
	}
	assert_true(n > 0);
	assert_int_equal(wrong, 0);
}

static void one_thread(void **state)
{
	(void)state;
	all_verbs(1);
}

static void two_threads(void **state)
{
	(void)state;
	all_verbs(2);
}

/*
 * --force, and the destination is what is read: refused. What cannot be found out because a call
 * fails must not make it look like another step.
 */
static void refuses(struct test *t, enum t_fault_kind kind, long n, bool on)
{
	struct ckpt_err err = { 0 };
	struct t_tree now;

	t_fault_arm(kind, n, on);
	if (!t->s.verb->work(&t->s, &err))
		fail_msg("%s at call %ld: what is read was replaced", t_fault_name(kind), n);
	if (!t_fault_fired())
		assert_int_equal(err.code, CKPT_E_EXISTS);
	t->row[0].calls = t_fault_calls();
	t_fault_arm(T_FAULT_IO, 0, false);
	t_tree_take(t->s.src, &now);
	if (!t_tree_same(&now, &t->old))
		fail_msg("%s at call %ld: what is read was changed", t_fault_name(kind), n);
	t_tree_free(&now);
}

static void what_is_read_is_never_replaced(void **state)
{
	const struct t_verb *v = t_verbs;
	struct test t = { .seed = seed_of_all() };
	struct t_verb over;

	(void)state;
	while (strcmp(v->verb, "reshard") || strcmp(v->layout, "z2"))
		v++;
	over = *v;
	over.flags = CKPT_WRITE_FORCE;
	t_vscene_open(&t.s, &over);
	free(t.s.dst);
	t.s.dst = t_fmt("%s", t.s.src);
	t_tree_take(t.s.src, &t.old);
	t_fault_install();
	for (size_t k = 0; k < NKINDS; k++) {
		long calls;

		refuses(&t, kinds[k], 0, false);
		calls = t.row[0].calls;
		/* what is asked about the destination comes last */
		for (long n = t_is_long() || calls < 80 ? 1 : calls - 80; n <= calls; n++)
			refuses(&t, kinds[k], n, false);
	}
	t_fault_remove();
	t_tree_free(&t.old);
	t_vscene_close(&t.s);
}

/* A long run leaves its table beside the objects. */
static void open_table(void)
{
	const char *build = getenv("ZCKPT_BUILD");
	char *path = t_is_long() && build && *build ? t_fmt("%s/torture.txt", build) : NULL;

	table = path ? fopen(path, "w") : NULL;
	if (table)
		print_message("the table goes to %s as well\n", path);
	free(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_thread),
		cmocka_unit_test(two_threads),
		cmocka_unit_test(what_is_read_is_never_replaced),
	};
	int status;

	t_dir_in_memory();
	open_table();
	status = cmocka_run_group_tests(tests, NULL, NULL);
	say_totals();
	if (table)
		fclose(table);
	return status;
}
