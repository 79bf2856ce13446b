/*
 * test_torture_source.c -- a source that is replaced or written to while a verb reads it, between a
 * killed run and the next one, or between two parts.
 *
 * If this fails, a result holds some tensors of one save and some of another, with status 0: a
 * model that no run ever had.
 *
 * long on purpose: ten forms, how each is made, and what disturbs them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <math.h>
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
#include "tests/lib/t_dir.h"
#include "tests/lib/t_tree.h"

#define STEP "deepspeed/ds0.19.8-z3-bf16-w2-lora/ckpt"
#define LEGACY "formats/torch/v2.6/legacy-module.pt"
#define SHORT_RUNS 60
#define LONG_RUNS 550

enum form { ST, ST_SUMS, HF, PT, PT_BARE, LEGACY_PT, DEEPSPEED, UNIVERSAL, NATIVE, PACK, NFORMS };
enum way { RENAMED, IN_PLACE, TIME_PUT_BACK, AFTER_A_KILL, BETWEEN_PARTS, NWAYS };
enum verb { CONVERT, DIGEST, LOAD, RESHARD, NVERBS };
enum end { OLD, NEW, MISMATCH, REFUSED, MIXED, NENDS };

static const char *const form_name[] = {
	"safetensors", "safetensors with sums",
	"HF folder", ".pt", ".pt without CRCs", "legacy .pt", "DeepSpeed",
	"universal", "native", "pack",
};
static const char *const way_name[] = {
	"renamed over", "in place", "in place, mtime put back", "after a kill", "between parts",
};
static const char *const verb_name[] = { "convert", "digest", "load", "reshard" };

/* A form of source: two saves of equal names, shapes and sizes. */
struct source {
	char *path;		/* below 'in' */
	struct t_tree was, is;
};

static struct {
	char *dir, *in, *out, *dst;
	struct source source[NFORMS];
	unsigned count[NFORMS][NENDS], by_way[NWAYS][NENDS];
} t;

static uint64_t seed;

static uint64_t next(void)
{
	uint64_t z = seed += 0x9e3779b97f4a7c15u;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

static uint64_t below(uint64_t n)
{
	return n ? next() % n : 0;
}

/* ---------------------------------------------------------------- making sources */

static void must(int rc, const struct ckpt_err *err)
{
	if (rc)
		t_die("a source cannot be made: %s: %s", err->where, err->msg);
}

static struct ckpt *open_ckpt(const char *path)
{
	const struct ckpt_open_opts o = { .size = sizeof(o), .threads = 1 };
	struct ckpt_err err = { 0 };
	struct ckpt *ck = NULL;

	must(ckpt_open(&path, 1, &o, &ck, &err), &err);
	return ck;
}

static char *fixture(const char *name)
{
	return t_fmt("%s/%s", getenv("ZCKPT_FIXTURES"), name);
}

static void convert_to(const char *from, const char *to, uint64_t shard, unsigned flags)
{
	const struct ckpt_select sel = {
		.size = sizeof(sel), .only = CKPT_ONLY_TRAINABLE, .tied = CKPT_TIED_DROP,
	};
	const struct ckpt_convert_opts o = {
		.size = sizeof(o), .dtype = CKPT_KEEP, .max_shard_bytes = shard, .flags = flags,
		.select = strstr(from, "deepspeed/ds") ? &sel : NULL,
	};
	struct ckpt_err err = { 0 };
	struct ckpt *ck = open_ckpt(from);

	must(ckpt_convert(ck, to, &o, NULL, &err), &err);
	ckpt_close(ck);
}

static char *order_of(const char *step)
{
	char *text = t_fmt("%s", ""), *path = t_fmt("%s/order", t.dir);
	struct ckpt *ck = open_ckpt(step);
	struct ckpt_tensor_info info;

	for (uint64_t i = 0; !ckpt_tensor_get(ck, i, &info, NULL); i++) {
		char *more = text;

		if (info.role != CKPT_ROLE_TRAINABLE)
			continue;
		text = t_fmt("%s%s\n", more, info.name);
		free(more);
	}
	ckpt_close(ck);
	t_file_write(path, text, strlen(text));
	free(text);
	return path;
}

static void shard_to(const char *weights, const char *order, const char *to)
{
	const struct ckpt_shard_opts o = {
		.size = sizeof(o), .world = 2, .stage = 2, .round_robin = -1, .order_path = order,
		.dtype = CKPT_F32, .lr = 1e-3, .first_lr = NAN, .weight_decay = NAN, .beta1 = NAN,
		.beta2 = NAN, .eps = NAN,
	};
	struct ckpt_err err = { 0 };
	struct ckpt *ck = open_ckpt(weights);

	must(ckpt_shard(ck, to, &o, NULL, &err), &err);
	ckpt_close(ck);
}

static void reshard_to(const char *step, const char *to, int form)
{
	const struct ckpt_reshard_opts o = {
		.size = sizeof(o), .stage = -1, .round_robin = -1, .to = form,
	};
	struct ckpt_err err = { 0 };
	struct ckpt *ck = open_ckpt(step);

	must(ckpt_reshard(ck, to, &o, NULL, &err), &err);
	ckpt_close(ck);
}

static void pack_to(const char *step, const char *to)
{
	const struct ckpt_pack_opts o = { .size = sizeof(o) };
	struct ckpt_err err = { 0 };
	struct ckpt *ck = open_ckpt(step);

	must(ckpt_pack(ck, to, &o, NULL, &err), &err);
	ckpt_close(ck);
}

/* Every value of a file without checksums is another one; its sizes and names are not. */
static void change_values(const char *path)
{
	struct ckpt *ck = open_ckpt(path);
	struct ckpt_extent_info e;
	size_t n;
	uint8_t *p = t_file_read(path, &n);

	for (uint64_t i = 0; !ckpt_extent_get(ck, i, 0, 0, &e, NULL); i++)
		for (uint64_t k = 0; k < e.count * (ckpt_dtype_bits(e.dtype) / 8); k++)
			p[e.offset + k] ^= 1;
	ckpt_close(ck);
	t_file_write(path, p, n);
	free(p);
}

/* As torch writes with set_crc32_options(False). */
static void drop_crcs(const char *path)
{
	size_t n, at;
	uint8_t *p = t_file_read(path, &n);

	for (at = n - 22; memcmp(p + at, "PK\5\6", 4); at--)
		;
	for (at = ck_le32(p + at + 16); !memcmp(p + at, "PK\1\2", 4);
	     at += 46u + ck_le16(p + at + 28) + ck_le16(p + at + 30) + ck_le16(p + at + 32)) {
		ck_put_le32(p + at + 16, 0);
		ck_put_le32(p + ck_le32(p + at + 42) + 14, 0);
	}
	t_file_write(path, p, n);
	free(p);
}

static const char *const name_in[] = {
	"m.safetensors", "m.safetensors", "hf", "m.pt", "bare.pt", "legacy.pt", "step", "step",
	"step", "m.tar.zst",
};

/* One save in all forms; 'dir' gets a folder for each. */
static void make_save(const char *dir, const char *weights, const char *legacy, const char *order)
{
	char *path[NFORMS];

	for (int f = 0; f < NFORMS; f++) {
		path[f] = t_fmt("%s/%d", dir, f);
		t_dir_make(path[f]);
		free(path[f]);
		path[f] = t_fmt("%s/%d/%s", dir, f, name_in[f]);
	}
	t_dir_copy(weights, path[ST]);
	convert_to(weights, path[ST_SUMS], 0, 0);
	convert_to(weights, path[HF], 4096, CKPT_CONVERT_NO_SUMS);
	convert_to(weights, path[PT], 0, 0);
	t_dir_copy(path[PT], path[PT_BARE]);
	drop_crcs(path[PT_BARE]);
	t_dir_copy(legacy, path[LEGACY_PT]);
	shard_to(weights, order, path[DEEPSPEED]);
	reshard_to(path[DEEPSPEED], path[UNIVERSAL], CKPT_TO_UNIVERSAL);
	reshard_to(path[DEEPSPEED], path[NATIVE], CKPT_TO_NATIVE);
	if (ckpt_has_packs())
		pack_to(path[DEEPSPEED], path[PACK]);
	for (int f = 0; f < NFORMS; f++)
		free(path[f]);
}

static void make_sources(void)
{
	char *step = fixture(STEP), *legacy = fixture(LEGACY), *order = order_of(step);

	for (int i = 0; i < 2; i++) {
		char *save = t_fmt("%s/save%d", t.dir, i);
		char *w = t_fmt("%s/w%d.safetensors", t.dir, i);
		char *l = t_fmt("%s/l%d.pt", t.dir, i);

		t_dir_make(save);
		convert_to(step, w, 0, CKPT_CONVERT_NO_SUMS);
		t_dir_copy(legacy, l);
		if (i) {
			change_values(w);
			change_values(l);
		}
		make_save(save, w, l, order);
		for (int f = 0; f < NFORMS; f++) {
			char *of = t_fmt("%s/%d", save, f);

			t_tree_take(of, i ? &t.source[f].is : &t.source[f].was);
			free(of);
		}
		free(save);
		free(w);
		free(l);
	}
	for (int f = 0; f < NFORMS; f++)
		t.source[f].path = t_fmt("%s/%s", t.in, name_in[f]);
	free(step);
	free(legacy);
	free(order);
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
static int work(enum form form, enum verb verb, uint32_t part, uint32_t nparts, unsigned flags,
		struct ckpt_err *err)
{
	const char *path = t.source[form].path;
	const struct ckpt_run_opts run = {
		.size = sizeof(run), .threads = 1, .sync = CKPT_SYNC_NONE,
	};
	const struct ckpt_open_opts oo = { .size = sizeof(oo), .threads = 1 };
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
	return rc;
}

/* ---------------------------------------------------------------- one run */

static bool is_step(enum form f)
{
	return f == DEEPSPEED || f == UNIVERSAL || f == NATIVE || f == PACK;
}

static void empty_out(void)
{
	t_dir_remove(t.out);
	t_dir_make(t.out);
}

/* What a run makes that nothing disturbs; how often it reads and writes. */
static void run_well(enum form form, enum verb verb, const struct t_tree *of, struct t_tree *made,
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

static int run_disturbed(enum form form, enum verb verb, enum way way, long reads,
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

static int run_killed(enum form form, enum verb verb, long writes, struct ckpt_err *err)
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
	if (rc) {	/* "another source": then it is begun anew */
		struct ckpt_err again = { 0 };

		assert_int_equal(err->code, CKPT_E_EXISTS);
		must(work(form, verb, 0, 1, CKPT_CONVERT_RESTART, &again), &again);
		empty_out();
	}
	return rc;
}

static int run_parts(enum form form, enum verb verb, struct ckpt_err *err)
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

static void one(enum form form, enum way way, enum verb verb)
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
			      verb_name[verb], form_name[form], way_name[way], turn.was_at,
			      reads, rc, err.where, err.msg);
	t.count[form][end]++;
	t.by_way[way][end]++;
	t_tree_free(&was);
	t_tree_free(&is);
}

/* ---------------------------------------------------------------- all */

static bool goes_on_long(void)
{
	const char *text = getenv("ZCKPT_LONG");

	return text && *text && strcmp(text, "0");
}

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
	for (int f = 0; f < NFORMS; f++)
		say_row(form_name[f], t.count[f]);
	for (int w = 0; w < NWAYS; w++)
		say_row(way_name[w], t.by_way[w]);
}

static void old_new_or_refused_and_never_mixed(void **state)
{
	const unsigned runs = goes_on_long() ? LONG_RUNS : SHORT_RUNS;
	unsigned mixed = 0;

	(void)state;
	for (unsigned i = 0; i < runs; i++) {
		const enum form form = (enum form)(i % NFORMS);
		const enum way way = (enum way)(i / NFORMS % NWAYS);
		const bool writes = way >= AFTER_A_KILL;
		enum verb verb = (enum verb)below(is_step(form) ? NVERBS : RESHARD);

		if (writes && (verb == DIGEST || verb == LOAD))
			verb = is_step(form) && below(2) ? RESHARD : CONVERT;
		if (form != PACK || ckpt_has_packs())
			one(form, way, verb);
	}
	say();
	for (int f = 0; f < NFORMS; f++)
		mixed += t.count[f][MIXED];
	assert_int_equal(mixed, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(old_new_or_refused_and_never_mixed),
	};
	const char *text = getenv("ZCKPT_SEED");
	int status;

	if (!getenv("ZCKPT_FIXTURES"))
		return 77;
	seed = text && *text ? strtoull(text, NULL, 0) : (uint64_t)time(NULL);
	print_message("ZCKPT_SEED=%llu\n", (unsigned long long)seed);
	t_dir_in_memory();
	t.dir = t_dir_new();
	t.in = t_fmt("%s/in", t.dir);
	t.out = t_fmt("%s/out", t.dir);
	t.dst = t_fmt("%s/out/dst", t.dir);
	t_dir_make(t.in);
	t_dir_make(t.out);
	make_sources();
	real_pread = ck_sys.pread;
	real_open = ck_sys.open;
	real_pwrite = ck_sys.pwrite;
	ck_sys.pread = w_pread;
	ck_sys.open = w_open;
	ck_sys.pwrite = w_pwrite;
	status = cmocka_run_group_tests(tests, NULL, NULL);
	for (int f = 0; f < NFORMS; f++) {
		free(t.source[f].path);
		t_tree_free(&t.source[f].was);
		t_tree_free(&t.source[f].is);
	}
	free(t.in);
	free(t.out);
	free(t.dst);
	t_dir_end(t.dir);
	return status;
}
