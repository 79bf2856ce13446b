/*
 * Processes that save are killed. If this fails, a job that is killed while it saves leaves a torn
 * step under a name that the next job resumes from, loses the step before it, or leaves something
 * that keeps the next job from saving.
 *
 * Four ranks, a process each, save three steps in a row; one of them kills itself, or all, at a
 * chosen system call of a chosen phase. Then every step that stands is read to the last byte,
 * 'latest' must name one of them, and a new job saves.
 *
 * 42 kills by a seed that is printed (ZCKPT_SEED=N repeats them), 504 with ZCKPT_LONG=1.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/lib/fs/t_calls.h"
#include "tests/lib/fs/t_dir.h"
#include "tests/lib/ops/t_ranks.h"
#include "tests/lib/run/t_run.h"
#include "tests/lib/run/t_seed.h"

#define RANKS 4
#define SAVES 3
#define LATE 250		/* ms until rank 0 gives a rank up */
#define SIZE 80000		/* elements: a rank puts more than its buffer holds */
#define STEP0 1000		/* global_steps of a step = STEP0 + the seed of its elements */

enum phase {
	BEGIN, PUT, WRITE, RECORD, HEAR,	/* of every rank */
	WAIT, JOIN, PLACE, LATEST, AFTER,	/* of rank 0 */
	NPHASES
};

static const char *const phase_name[NPHASES] = {
	"begin", "put", "write", "record", "hear", "wait", "join", "place", "latest", "after",
};

static const struct layout {
	const char *name;
	int to, stage;
	bool own, over;		/* the step replaces one of that name */
} layouts[] = {
	{ "native, as held", CKPT_TO_NATIVE, 3, true, false },
	{ "native, even", CKPT_TO_NATIVE, 2, false, false },
	{ "DeepSpeed, stage 2", CKPT_TO_DEEPSPEED, 2, false, false },
	{ "DeepSpeed, stage 3", CKPT_TO_DEEPSPEED, 3, false, false },
	{ "native, over a step", CKPT_TO_NATIVE, 3, true, true },
	{ "DCP", CKPT_TO_DCP, 2, false, false },
	{ "DCP, over a step", CKPT_TO_DCP, 2, false, true },
};
#define NLAYOUTS (sizeof(layouts) / sizeof(layouts[0]))

/* What processes tell each other. */
static struct shared {
	_Atomic long calls[RANKS][SAVES][NPHASES];
	_Atomic int done[SAVES + 1];	/* rank 0: it ended well; the last one: who did it all */
	_Atomic pid_t pid[RANKS];
	_Atomic int fired;
	char said[RANKS][1024];
} *shared;

/* What is to happen, and where. */
static struct plan {
	const struct layout *layout;
	uint32_t rank;
	enum phase phase;
	long call;
	int save, sig;
	bool all;
} plan;

static char *root;
static uint64_t seed;

/* ---------------------------------------------------------------- in a rank: where it is */

static uint32_t me;
static _Atomic int save_now, phase_now;

static void strike(void)
{
	atomic_store(&shared->fired, 1);
	for (uint32_t r = 0; plan.all && r < RANKS; r++)
		if (r != me && shared->pid[r])
			kill(shared->pid[r], plan.sig);
	kill(getpid(), plan.sig);
	for (;;)
		pause();
}

static void tick(void)
{
	const int phase = atomic_load(&phase_now);
	const int save = atomic_load(&save_now);
	long n;

	if (save < 0)
		return;
	n = atomic_fetch_add(&shared->calls[me][save][phase], 1) + 1;
	if (plan.sig && me == plan.rank && save == plan.save && phase == (int)plan.phase &&
	    n == plan.call)
		strike();
}

/* Before each call: where in a save this is, as its files tell. */
static void look(const char *call, const char *path)
{
	const char *slash = path ? strrchr(path, '/') : NULL, *name = slash ? slash + 1 : "";
	const bool opens = !strcmp(call, "open"), put = !strncmp(name, "put-", 4);
	int was = atomic_load(&phase_now), phase = was;

	if (phase == WRITE && opens && put)
		phase = RECORD;
	else if (phase == RECORD && me && !strcmp(call, "stat") &&
		 !strstr(path, ".zckpt-partial"))
		phase = HEAR;	/* others ask whether the step stands */
	else if (phase == RECORD && !me && opens && !strncmp(name, "part-", 5) && atoi(name + 5))
		phase = WAIT;
	else if (phase == WAIT && opens && put && !atoi(name + 4))
		phase = JOIN;
	else if (phase == JOIN && !strcmp(call, "lstat") && !strcmp(name, "data"))
		phase = PLACE;	/* the committer looks at what it puts into place */
	else if (phase == PLACE && opens && !strcmp(name, "latest.zckpt-new"))
		phase = LATEST;
	if (phase != was)	/* the trainer's own thread may have gone on */
		atomic_compare_exchange_strong(&phase_now, &was, phase);
	tick();
}

/* ---------------------------------------------------------------- in a rank: its work */

static uint64_t seed_of(int save)
{
	return 10 + (uint64_t)save;
}

static const char *tag_of(const struct layout *l, int save)
{
	static const char *const tag[SAVES + 1] = { "s0", "s1", "s2", "s3" };

	return tag[l->over ? 0 : save];
}

static struct t_trainer trainer(const struct layout *l, const char *job, int save)
{
	return (struct t_trainer){
		.root = root, .job = job, .nranks = RANKS, .own = l->own, .seed = seed_of(save),
		.timeout_ms = plan.sig ? LATE : 20000, .size = SIZE,
		.derived = l->to == CKPT_TO_DCP,
	};
}

static struct ckpt_save_step *describe(const struct t_trainer *t, const struct layout *l, int save)
{
	struct ckpt_save_step *s = t_save_step(t, tag_of(l, save), l->to, l->stage, 0);

	t_save_at(s, STEP0 + (int64_t)t->seed);
	s->flags = l->over ? CKPT_SAVE_FORCE : 0;
	return s;
}

static int save_one(struct ckpt_saver *sv, const struct layout *l, int save, struct ckpt_err *err)
{
	const struct t_trainer t = trainer(l, "a job", save);
	struct ckpt_save_step *s = describe(&t, l, save);
	int rc;

	save_now = save;
	atomic_store(&phase_now, BEGIN);
	rc = t_save_begin(&t, sv, s, me, err);
	atomic_store(&phase_now, PUT);
	if (!rc)
		rc = t_save_put(&t, sv, s, me, err);
	if (!rc) {
		atomic_store(&phase_now, WRITE);
		rc = ckpt_save_commit(sv, err);
	}
	if (!rc)
		rc = ckpt_save_wait(sv, 0, NULL, err);
	atomic_store(&phase_now, AFTER);
	if (!rc && !me)
		shared->done[save] = 1;
	tick();
	return rc;
}

static void run_rank(uint32_t rank)
{
	const struct t_trainer t = trainer(plan.layout, "a job", 0);
	struct ckpt_err err = { 0 };
	struct ckpt_saver *sv;
	int rc;

	me = rank;
	alarm(60);
	t_calls_watch(look);
	save_now = -1;
	rc = t_saver(&t, rank, &sv, &err);
	for (int i = 0; !rc && i < SAVES; i++)
		rc = save_one(sv, plan.layout, i, &err);
	if (rc)
		snprintf(shared->said[rank], sizeof(shared->said[rank]), "%s: %s", err.where,
			 err.msg);
	_exit(rc ? 1 : 0);
}

/* ---------------------------------------------------------------- a job */

static void start_job(void)
{
	memset((void *)shared, 0, sizeof(*shared));
	t_dir_remove(root);
	t_dir_make(root);
	fflush(stdout);
	for (uint32_t r = 0; r < RANKS; r++) {
		const pid_t pid = fork();

		if (!pid)
			run_rank(r);
		assert_true(pid > 0);
		shared->pid[r] = pid;
	}
}

/* Its exit code, or -signal. */
static int end_rank(uint32_t r)
{
	int status;

	assert_int_equal(waitpid(shared->pid[r], &status, 0), shared->pid[r]);
	return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

static void end_job(void)
{
	for (uint32_t r = 0; r < RANKS; r++)
		if (end_rank(r) == -SIGALRM)
			fail_msg("rank %" PRIu32 " hangs", r);
}

/* ---------------------------------------------------------------- what is left */

/* Opened by its tag, it is whole, and has the elements of the seed that its number says. */
static int64_t check_whole(const char *tag)
{
	const struct ckpt_open_opts oo = { .size = sizeof(oo), .tag = tag };
	const char *path = root;
	struct ckpt_err err = { 0 };
	struct ckpt_info info;
	struct t_trainer t;
	struct ckpt *ck;

	if (ckpt_open(&path, 1, &oo, &ck, &err))
		fail_msg("%s stands and cannot be opened: %s: %s", tag, err.where, err.msg);
	ckpt_info_get(ck, &info);
	ckpt_close(ck);
	t = trainer(plan.layout, NULL, (int)(info.step - STEP0 - 10));
	t_step_check(&t, tag);
	return info.step - STEP0 - 10;
}

static char *latest_of(void)
{
	char *path = t_fmt("%s/latest", root);
	size_t n;
	char *text = (char *)t_file_read(path, &n);

	free(path);
	return text;
}

static void check_latest_valid(void)
{
	struct t_run r;
	char *tag, *end;

	t_run_zckpt(&r, "latest", "--valid", root, NULL);
	if (r.exit)
		fail_msg("latest --valid: exit %d: %s", r.exit, r.err);
	end = strchr(r.out, '\n');
	if (end)
		*end = 0;
	tag = strrchr(r.out, '/') ? strrchr(r.out, '/') + 1 : r.out;
	if (check_whole(tag) < 0)
		fail_msg("latest --valid names %s", tag);
	t_run_free(&r);
}

/* Every step that stands; saves that ended well stand; 'latest' names the last, or the next. */
static void check_steps(void)
{
	const struct layout *l = plan.layout;
	char **list = t_dir_list(root, NULL), *latest = latest_of();
	int newest = -1, done = -1, named = -1;

	for (int i = 0; i < SAVES; i++)
		done = shared->done[i] ? i : done;
	for (size_t i = 0; list[i]; i++) {
		int is;

		if (strstr(list[i], ".zckpt-") || !strcmp(list[i], "latest"))
			continue;
		is = (int)check_whole(list[i]);
		if (is < 0 || is > done + 1 || strcmp(list[i], tag_of(l, is)))
			fail_msg("%s is of save %d, %d were done", list[i], is, done + 1);
		newest = is > newest ? is : newest;
	}
	if (newest < done)
		fail_msg("save %d was done, the last that stands is %d", done, newest);
	if (latest)
		named = (int)check_whole(latest);
	if (named < done || named > newest)
		fail_msg("'latest' is %s; %d saves were done, %d stand",
			 latest ? latest : "not there", done + 1, newest + 1);
	if (newest >= 0)
		check_latest_valid();
	free(latest);
	t_list_free(list);
}

/* The next job, in this process: it saves the same step, or the one that comes next. */
static void save_anew(void)
{
	struct t_trainer t = trainer(plan.layout, "the next job", SAVES);
	struct ckpt_save_step *s;
	struct ckpt_err err = { 0 };
	const char *tag;

	t.timeout_ms = 20000;
	s = describe(&t, plan.layout, SAVES);
	if (!plan.layout->over && (t_draw(&seed) & 1))
		s->tag = tag_of(plan.layout, plan.save);
	tag = s->tag;
	s->flags = CKPT_SAVE_FORCE;
	t_must(t_save_all(&t, s, &err), &err);
	t_step_check(&t, tag);
	t_latest_check(root, tag);
	t_nothing_left(root);
}

/* ---------------------------------------------------------------- the tests */

static int setup(void **state)
{
	char *dir = t_dir_new();

	*state = dir;
	root = t_fmt("%s/run", dir);
	seed = t_seed();
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	return shared == MAP_FAILED;
}

static int teardown(void **state)
{
	t_dir_end(*state);
	free(root);
	munmap(shared, sizeof(*shared));
	return 0;
}

/* Calls of rank 0 and rank 1 in each phase of a save that is let be. */
static long calls[NLAYOUTS][SAVES][2][NPHASES];

static void count_calls(void)
{
	for (size_t i = 0; i < NLAYOUTS; i++) {
		plan = (struct plan){ .layout = &layouts[i] };
		start_job();
		end_job();
		for (uint32_t r = 0; r < RANKS; r++)
			if (shared->said[r][0])
				fail_msg("%s: %s", layouts[i].name, shared->said[r]);
		for (int save = 0; save < SAVES; save++)
			for (int p = 0; p < NPHASES; p++) {
				calls[i][save][0][p] = shared->calls[0][save][p];
				calls[i][save][1][p] = shared->calls[1][save][p];
			}
	}
}

static const struct where {
	uint32_t other;		/* not rank 0 */
	enum phase phase;
} wheres[] = {
	{ 0, BEGIN }, { 1, BEGIN }, { 0, PUT }, { 1, PUT }, { 0, WRITE }, { 1, WRITE },
	{ 0, RECORD }, { 1, RECORD }, { 1, HEAR }, { 0, WAIT }, { 0, JOIN }, { 0, PLACE },
	{ 0, LATEST }, { 0, AFTER },
};
#define NWHERES (sizeof(wheres) / sizeof(wheres[0]))

static void choose(size_t i)
{
	const struct where *w = &wheres[i % NWHERES];
	const size_t l = (i / NWHERES + i + t_draw(&seed) % 2) % NLAYOUTS;
	long most;

	plan = (struct plan){
		.layout = &layouts[l], .phase = w->phase, .sig = SIGKILL,
		.rank = w->other ? 1 + (uint32_t)(t_draw(&seed) % (RANKS - 1)) : 0,
		.save = (int)(t_draw(&seed) % SAVES), .all = i / NWHERES % 2,
	};
	most = calls[l][plan.save][w->other][w->phase];
	plan.call = 1 + (long)(t_draw(&seed) % (uint64_t)(1 + most));
}

static void killed_at_any_moment(void **state)
{
	const size_t n = NWHERES * (t_is_long() ? 36 : 3);
	unsigned killed[NPHASES][2] = { { 0 } }, of[NLAYOUTS] = { 0 }, missed = 0;

	(void)state;
	count_calls();
	for (size_t done = 0; done < n;) {
		choose(done);
		start_job();
		end_job();
		if (!shared->fired) {	/* there were fewer calls this time */
			assert_true(++missed < n);
			continue;
		}
		check_steps();
		save_anew();
		killed[plan.phase][plan.all]++;
		of[plan.layout - layouts]++;
		done++;
	}
	print_message("%-8s %5s %5s\n", "phase", "one", "all");
	for (int p = 0; p < NPHASES; p++)
		print_message("%-8s %5u %5u\n", phase_name[p], killed[p][0], killed[p][1]);
	for (size_t i = 0; i < NLAYOUTS; i++)
		print_message("%-20s %5u\n", layouts[i].name, of[i]);
	print_message("%zu kills (%u more came too late)\n", n, missed);
}

/* What the others say of a rank that is stopped while it writes. */
static void check_said(uint32_t stopped)
{
	char *name = stopped ? t_fmt("rank %" PRIu32 " of %d did not finish", stopped, RANKS) :
		     t_fmt("rank 0 did not put the step in place");

	for (uint32_t r = 0; r < RANKS; r++)
		if (r != stopped && !strstr(shared->said[r], name))
			fail_msg("rank %" PRIu32 " says of rank %" PRIu32 ": %s", r, stopped,
				 shared->said[r]);
	free(name);
}

static void a_rank_that_is_stopped_is_named(void **state)
{
	(void)state;
	for (uint32_t stopped = 0; stopped < RANKS; stopped++) {
		struct timespec from, to;

		plan = (struct plan){
			.layout = &layouts[stopped % NLAYOUTS], .phase = WRITE, .rank = stopped,
			.call = 1, .save = 1, .sig = SIGSTOP,
		};
		clock_gettime(CLOCK_MONOTONIC, &from);
		start_job();
		for (uint32_t r = 0; r < RANKS; r++)
			if (r != stopped)
				assert_int_equal(end_rank(r), 1);
		clock_gettime(CLOCK_MONOTONIC, &to);
		kill(shared->pid[stopped], SIGKILL);
		assert_int_equal(end_rank(stopped), -SIGKILL);
		check_said(stopped);
		/* twice the time-out, and a machine that has other things to do */
		assert_true(to.tv_sec - from.tv_sec < 10);
		check_steps();
		save_anew();
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(killed_at_any_moment, setup, teardown),
		cmocka_unit_test_setup_teardown(a_rank_that_is_stopped_is_named, setup, teardown),
	};

	t_dir_in_memory();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
