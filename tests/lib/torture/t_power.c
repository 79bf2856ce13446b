/* See t_power.h. */
#include "tests/lib/torture/t_power.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/fs/t_dir.h"

#define WALKS 5		/* the first one without pages that go to the disk on their own */

enum side { SAME = 0, OLD = 1, NEW = 2, BOTH = 3 };

struct cutting {
	const struct t_verb *v;
	struct t_power *p;
	struct t_disk_tree before, after;
	char root[2][33];	/* digests of dst before and after, "" = cannot be opened */
	uint64_t *seen;		/* hashes of states, a table */
	size_t nseen, room;
	const char *place;	/* call after the cut */
	size_t at;
	uint64_t seed;
};

/* Only the first thing that is wrong is reported. */
static bool wrong(struct cutting *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static bool wrong(struct cutting *c, const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (!c->p->wrong)
		c->p->wrong = t_fmt("%s, cut before call %zu (%s), seed %llu: %s", c->v->name,
				    c->at, c->place ? c->place : "", (unsigned long long)c->seed,
				    text);
	return false;
}

static bool is_below(const char *path, const char *dir)
{
	const size_t n = strlen(dir);

	return !strncmp(path, dir, n) && (path[n] == '/' || !path[n]);
}

static const char *place_of(const struct t_verb *v)
{
	return v->place ? v->place : v->dst;
}

/* The partial folder and what is in it; an empty folder above it that was made for it. */
static bool is_partial(const struct t_verb *v, const char *path)
{
	const size_t n = strlen(place_of(v)), m = strlen(path);

	if (m && path[m - 1] == '/' && !strncmp(path, place_of(v), m))
		return true;
	return !strncmp(path, place_of(v), n) && is_below(path + n, ".zckpt-partial");
}

/* Files under names that no reader looks for. */
static bool is_temporary(const char *path)
{
	return t_ends_with(path, ".zckpt-new") || t_ends_with(path, ".json.tmp") ||
	       strstr(path, ".zckpt-removed") || strstr(path, ".zckpt-slim") ||
	       strstr(path, ".zckpt-link");
}

static bool same(const struct t_entry *a, const struct t_entry *b)
{
	return a && b ? a->hash == b->hash : a == b;
}

/* Opens dst as the disk has it; "" if that is not possible. */
static void digest_of(const struct t_verb *v, char out[33], struct ckpt_err *err)
{
	const struct ckpt_run_opts run = { .size = sizeof(run), .threads = 1 };
	const struct ckpt_open_opts o = { .size = sizeof(o), .threads = 1 };
	const struct ckpt_digest_opts d = { .size = sizeof(d), .run = &run };
	struct ckpt_digests digests = { 0 };
	const char *path = v->dst;
	struct ckpt *ck = NULL;

	out[0] = 0;
	if (!ckpt_open(&path, 1, &o, &ck, err) && !ckpt_digest(ck, &d, &digests, err))
		memcpy(out, digests.root, 33);
	ckpt_digests_free(&digests);
	ckpt_close(ck);
}

/* ---- what is on a disk ---- */

/* What changes from before to after, as one or, beside a step that is placed, each on its own. */
struct sides {
	unsigned as_one, beside, latest;
	bool gone;		/* something that was there is nowhere yet */
};

static unsigned *side_of(const struct cutting *c, struct sides *s, const char *path)
{
	char *step;
	bool in;

	if (!c->v->step)
		return &s->as_one;
	if (t_ends_with(path, "/latest") || t_ends_with(path, "/latest_universal"))
		return &s->latest;
	step = t_fmt("%s/%s", c->v->dst, c->v->step);
	in = is_below(path, step);
	free(step);
	return in ? &s->as_one : &s->beside;
}

static bool look_at(struct cutting *c, const char *path, const struct t_disk_tree *now,
		    struct sides *s)
{
	const struct t_entry *b = t_disk_tree_find(&c->before, path);
	const struct t_entry *a = t_disk_tree_find(&c->after, path);
	const struct t_entry *n = t_disk_tree_find(now, path);
	const bool in = is_below(path, c->v->dst);

	if (is_partial(c->v, path) || (is_temporary(path) && !a))
		return true;
	if (same(a, b)) {
		if (same(a, n))
			return true;
		if (in && !n && (c->v->keeps || c->v->plain)) {
			s->gone = true;
			return true;
		}
		return wrong(c, "%s is %s", path, !n ? "lost" : a ? "changed" : "there");
	}
	if (same(n, b) || same(n, a)) {
		*side_of(c, s, path) |= same(n, b) ? OLD : NEW;
		return true;
	}
	if (!n && c->v->plain) {
		s->gone = true;
		return true;
	}
	/* A folder that is empty for a moment. */
	if (!n || path[strlen(path) - 1] == '/')
		return wrong(c, "%s is lost", path);
	return wrong(c, "%s has neither its old nor its new bytes", path);
}

/* The side of the whole, which must be one; '*gone' as in struct sides. */
static bool judge(struct cutting *c, const struct t_image *im, enum side *side_out,
		  bool *gone_out)
{
	const struct t_disk_tree *trees[] = { &c->before, &c->after, NULL };
	struct sides s = { SAME, SAME, SAME, false };
	struct t_disk_tree now;
	bool ok = true;

	t_disk_tree_list(&now, im);
	trees[2] = &now;
	for (size_t k = 0; k < 3; k++)
		for (size_t i = 0; ok && i < trees[k]->n; i++)
			ok = look_at(c, trees[k]->entry[i].path, &now, &s);
	t_disk_tree_free(&now);
	if (ok && s.as_one == BOTH && !c->v->plain)
		ok = wrong(c, "%s is half old, half new", c->v->step ? c->v->step : c->v->dst);
	if (ok && s.latest == NEW && ((s.as_one | s.beside) & OLD))
		ok = wrong(c, "'latest' is new, and the step or what is beside it is not");
	*side_out = (enum side)(s.as_one | s.beside | s.latest);
	*gone_out = s.gone;
	return ok;
}

/* Everything is as after the verb; with LEFT a partial folder may be there. */
static bool is_done(struct cutting *c, const struct t_image *im, bool left, const char *when)
{
	struct t_disk_tree now;
	bool ok = true;

	t_disk_tree_list(&now, im);
	for (size_t i = 0; ok && i < c->after.n; i++) {
		const struct t_entry *n = t_disk_tree_find(&now, c->after.entry[i].path);

		if (!same(n, &c->after.entry[i]))
			ok = wrong(c, "%s %s is %s", when, c->after.entry[i].path,
				   n ? "another" : "missing");
	}
	for (size_t i = 0; ok && i < now.n; i++) {
		const char *path = now.entry[i].path;

		if (!t_disk_tree_find(&c->after, path) &&
		    !(left && (is_partial(c->v, path) || is_temporary(path))))
			ok = wrong(c, "%s %s is there", when, path);
	}
	t_disk_tree_free(&now);
	return ok;
}

/* The library reads what the files say. */
static bool read_back(struct cutting *c, enum side side, bool gone)
{
	struct ckpt_err err = { 0 };
	char root[33];

	digest_of(c->v, root, &err);
	if (!strcmp(root, c->root[1]) && side != OLD)
		return true;
	if (!strcmp(root, c->root[0]) && side != NEW)
		return true;
	if (!root[0] && gone)
		return true;
	return wrong(c, "%s reads as %s%s%s", c->v->dst, root[0] ? "something else: " : "nothing: ",
		     root, err.msg);
}

/* ---- what comes after it ---- */

/* '*left_out': a partial folder may come back, though --sync full was asked for. */
static bool finish(struct cutting *c, enum side side, bool give_up, bool *left_out)
{
	const struct t_verb *v = c->v;
	struct ckpt_err err = { 0 };
	struct t_image *im;
	bool ok = true, gone;
	int rc;

	if (give_up) {
		rc = ckpt_discard(place_of(v), &err);
		if (rc && rc != -CKPT_E_NOTFOUND)
			return wrong(c, "discard fails: %s: %s", err.where, err.msg);
		im = t_disk_image();
		ok = judge(c, im, &side, &gone);
		if (ok && gone)
			ok = wrong(c, "after the discard something is lost");
		t_image_free(im);
		err = (struct ckpt_err){ 0 };
	}
	if (!ok)
		return false;
	rc = (v->again ? v->again : v->run)(v, &err);
	/* It is not asked to replace what it had made itself. */
	if (rc == -CKPT_E_EXISTS && side == NEW) {
		*left_out = true;
		rc = ckpt_discard(place_of(v), &err);
		if (rc == -CKPT_E_NOTFOUND)
			rc = 0;
	}
	if (rc)
		return wrong(c, "the run after it fails: %s: %s", err.where, err.msg);
	if (t_disk_open())
		return wrong(c, "%zu descriptors are left open", t_disk_open());
	return true;
}

static uint64_t mix(uint64_t x)
{
	x = (x ^ (x >> 31)) * 0x7fb5d329728ea185u;
	x = (x ^ (x >> 27)) * 0x81dadef4bc2dd44du;
	return x ^ (x >> 33);
}

/* One of the disks that a cut before call AT leaves. */
static struct t_image *cut_once(const struct t_log *log, size_t at, uint64_t n)
{
	struct t_walk *walk = t_walk_new(log, n % 2 ? n : 0);
	struct t_image *cut;

	t_walk_to(walk, at);
	cut = t_walk_cut(walk, n);
	t_walk_free(walk);
	return cut;
}

/* The run that was to finish it is cut as well, somewhere; then comes another. */
static bool cut_again(struct cutting *c, const struct t_log *log)
{
	struct t_image *cut = cut_once(log, mix(c->seed) % (t_log_calls(log) + 1), c->seed), *im;
	enum side side;
	bool gone, left, ok = judge(c, cut, &side, &gone);

	if (ok) {
		t_disk_load(cut);
		ok = finish(c, side, false, &left);
	}
	if (ok) {
		im = t_disk_image();
		ok = is_done(c, im, false, "after two cuts and two runs");
		t_image_free(im);
	}
	t_image_free(cut);
	return ok;
}

/* The run after the cut says that all is done: that must hold, and through another cut. */
static bool finish_and_cut(struct cutting *c, enum side side, bool give_up)
{
	bool left = c->v->sync != CKPT_SYNC_FULL, ok = finish(c, side, give_up, &left);
	struct t_image *im = NULL;
	struct t_log *log = NULL;

	if (ok) {
		im = t_disk_image();
		ok = is_done(c, im, false, "after the next run");
		t_image_free(im);
		log = t_disk_log();
	}
	for (uint64_t i = 0; ok && i < 2; i++) {
		im = cut_once(log, t_log_calls(log), c->seed + i);
		ok = is_done(c, im, left, "after the next run and another cut");
		t_image_free(im);
	}
	if (ok && !give_up)
		ok = cut_again(c, log);
	t_log_free(log);
	return ok;
}

static bool was_seen(struct cutting *c, uint64_t hash)
{
	size_t i;

	if ((c->nseen + 1) * 2 > c->room) {
		uint64_t *old = c->seen;
		const size_t n = c->room;

		c->room = n ? n * 2 : 1024;
		c->seen = t_alloc(c->room * sizeof(*c->seen));
		c->nseen = 0;
		for (size_t k = 0; k < n; k++)
			if (old[k])
				was_seen(c, old[k]);
		free(old);
	}
	hash += !hash;
	for (i = hash % c->room; c->seen[i]; i = (i + 1) % c->room)
		if (c->seen[i] == hash)
			return true;
	c->seen[i] = hash;
	c->nseen++;
	return false;
}

static bool check_state(struct cutting *c, const struct t_image *cut, bool end)
{
	const bool give_up = c->v->staged && c->seed % 4 == 3;
	const char *says;
	enum side side;
	bool gone;

	c->p->states++;
	if (end && !is_done(c, cut, c->v->sync != CKPT_SYNC_FULL, "after success"))
		return false;
	if (was_seen(c, t_image_hash(cut) + give_up))
		return true;
	c->p->checked++;
	if (!judge(c, cut, &side, &gone))
		return false;
	t_disk_load(cut);
	if (!read_back(c, side, gone))
		return false;
	says = c->v->check ? c->v->check(c->v) : NULL;
	if (says)
		return wrong(c, "%s", says);
	return finish_and_cut(c, side, give_up);
}

/* ---- the cuts ---- */

/* Cuts before the calls first .. last. */
static bool cut_between(struct cutting *c, const struct t_log *log, struct t_walk *const *walk,
			size_t first, size_t last)
{
	const bool end = last == t_log_calls(log);
	bool ok = true;

	for (size_t at = first; ok && at <= last; at++) {
		for (unsigned s = 0; ok && s < c->p->seeds; s++) {
			const uint64_t seed = mix(c->p->seed + at * 1000003 + s);
			struct t_walk *w = walk[s % WALKS];
			struct t_image *cut;

			/* The first half just before the sync, the others anywhere. */
			if (at != (s < c->p->seeds / 2 ? last :
				   first + mix(c->p->seed + last * 7919 + s) % (last - first + 1)))
				continue;
			t_walk_to(w, at);
			cut = t_walk_cut(w, seed);
			c->seed = seed;
			c->at = at;
			c->place = t_log_say(log, at);
			ok = check_state(c, cut, end && at == last);
			t_image_free(cut);
		}
	}
	return ok;
}

static bool cut_log(struct cutting *c, const struct t_log *log)
{
	struct t_walk *walk[WALKS];
	size_t first = 0;
	bool ok = true;

	for (uint64_t i = 0; i < WALKS; i++)
		walk[i] = t_walk_new(log, i ? mix(c->p->seed + i) : 0);
	for (size_t i = 0; ok && i <= t_log_calls(log); i++) {
		if (i < t_log_calls(log) && !t_log_is_sync(log, i))
			continue;
		c->p->boundaries++;
		ok = cut_between(c, log, walk, first, i);
		first = i + 1;
	}
	for (size_t i = 0; i < WALKS; i++)
		t_walk_free(walk[i]);
	return ok;
}

void t_power_cut(const struct t_verb *v, struct t_power *p)
{
	struct cutting c = { .v = v, .p = p };
	struct ckpt_err err = { 0 };
	struct t_image *after;
	struct t_log *log;

	t_disk_plain_renames(v->plain);
	t_disk_load(v->before);
	digest_of(v, c.root[0], &err);
	err = (struct ckpt_err){ 0 };
	t_disk_load(v->before);
	if (v->run(v, &err))
		t_die("%s: %s: %s", v->name, err.where, err.msg);
	if (t_disk_open())
		t_die("%s: %zu descriptors are left open", v->name, t_disk_open());
	after = t_disk_image();
	log = t_disk_log();
	t_disk_tree_list(&c.before, v->before);
	t_disk_tree_list(&c.after, after);
	t_disk_load(after);
	digest_of(v, c.root[1], &err);
	if (!c.root[1][0] && !v->only_gone)
		t_die("%s: the result cannot be read: %s: %s", v->name, err.where, err.msg);
	cut_log(&c, log);
	t_log_free(log);
	t_image_free(after);
	t_disk_tree_free(&c.before);
	t_disk_tree_free(&c.after);
	free(c.seen);
	t_disk_plain_renames(false);
}
