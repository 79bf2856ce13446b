/*
 * See t_disk.h: what a power cut leaves.
 *
 * Since its last sync each page of a file may be on the disk or not; a page that the file did not
 * have is zeros then. Its size is the old one, the new one, or one between. A change of names is
 * on the disk or not as a whole, whatever becomes of the others, but for one rule: what an entry
 * of a folder holds gets there in the order in which it was changed. A sync of a folder brings all
 * changes of its entries there, with the ones that they wait for.
 */
#include "tests/lib/fs/t_disk_priv.h"

#include <stdlib.h>
#include <string.h>

#include "tests/lib/fs/t_dir.h"
#include "tests/lib/run/t_seed.h"

struct t_walk {
	const struct t_log *log;
	size_t at;
	uint64_t busy;
	/* What is surely on the disk, and the bytes of files as programs see them. */
	struct t_image *kept;
	struct t_blob **now;
	/* Changes of names that need not be there, in order: numbers of calls. */
	size_t *pending, npending;
};

void t_log_free(struct t_log *log)
{
	if (!log)
		return;
	for (size_t i = 0; i < log->n; i++) {
		t_blob_drop(log->call[i].blob);
		free(log->call[i].say);
	}
	for (size_t i = 0; i < log->nslots; i++)
		free(log->slot[i].name);
	free(log->slot);
	free(log->call);
	t_image_free(log->base);
	free(log);
}

size_t t_log_calls(const struct t_log *log)
{
	return log->n;
}

bool t_log_is_sync(const struct t_log *log, size_t at)
{
	return log->call[at].kind == T_CALL_SYNC;
}

const char *t_log_say(const struct t_log *log, size_t at)
{
	return at < log->n ? log->call[at].say : "the end";
}

/* True in 'of8' of eight cases. */
static bool chance(uint64_t *seed, unsigned of8)
{
	return t_draw(seed) % 8 < of8;
}

struct t_walk *t_walk_new(const struct t_log *log, uint64_t busy)
{
	struct t_walk *w = t_alloc(sizeof(*w));
	size_t ninodes = log->base->ninodes;

	for (size_t i = 0; i < log->n; i++)
		if (log->call[i].kind == T_CALL_MAKE && log->call[i].inode >= ninodes)
			ninodes = log->call[i].inode + 1;
	w->log = log;
	w->busy = busy;
	w->kept = t_image_copy(log->base);
	while (w->kept->ninodes < ninodes)
		t_image_inode(w->kept, false);
	for (size_t i = 0; i < log->nslots; i++)
		t_image_slot(w->kept, log->slot[i].dir, log->slot[i].name);
	w->now = t_alloc(ninodes * sizeof(*w->now));
	for (size_t i = 0; i < ninodes; i++)
		w->now[i] = t_blob_hold(w->kept->inode[i].blob);
	w->pending = t_alloc((log->n + 1) * sizeof(*w->pending));
	return w;
}

void t_walk_free(struct t_walk *w)
{
	if (!w)
		return;
	for (size_t i = 0; i < w->kept->ninodes; i++)
		t_blob_drop(w->now[i]);
	free(w->now);
	free(w->pending);
	t_image_free(w->kept);
	free(w);
}

static bool share_a_slot(const struct t_call *a, const struct t_call *b)
{
	for (unsigned i = 0; i < a->n; i++)
		for (unsigned k = 0; k < b->n; k++)
			if (a->change[i].slot == b->change[k].slot)
				return true;
	return false;
}

static bool is_in(const struct t_log *log, const struct t_call *c, uint32_t dir)
{
	for (unsigned i = 0; i < c->n; i++)
		if (log->slot[c->change[i].slot].dir == dir)
			return true;
	return false;
}

static void apply(struct t_image *im, const struct t_call *c)
{
	for (unsigned i = 0; i < c->n; i++)
		im->slot[c->change[i].slot].to = c->change[i].to;
}

/* The folder's changes, and from the last to the first those that one of them waits for. */
static void sync_dir(struct t_walk *w, uint32_t dir)
{
	const struct t_call *call = w->log->call;
	bool *goes = t_alloc(w->npending + 1);
	size_t left = 0;

	for (size_t i = w->npending; i-- > 0;) {
		const struct t_call *c = &call[w->pending[i]];

		goes[i] = is_in(w->log, c, dir);
		for (size_t k = i + 1; k < w->npending && !goes[i]; k++)
			goes[i] = goes[k] && share_a_slot(c, &call[w->pending[k]]);
	}
	for (size_t i = 0; i < w->npending; i++) {
		if (goes[i])
			apply(w->kept, &call[w->pending[i]]);
		else
			w->pending[left++] = w->pending[i];
	}
	w->npending = left;
	free(goes);
}

static void keep_blob(struct t_image *im, uint32_t inode, struct t_blob *b)
{
	t_blob_hold(b);
	t_blob_drop(im->inode[inode].blob);
	im->inode[inode].blob = b;
}

/* Some of the pages of 'now' over those of 'old', and some length. */
static struct t_blob *mix(const struct t_blob *old, const struct t_blob *now, uint64_t *seed)
{
	const unsigned share = (unsigned)(t_draw(seed) % 9), lengths = (unsigned)(t_draw(seed) % 8);
	const size_t was = old ? old->n : 0, is = now ? now->n : 0;
	size_t n = lengths < 3 ? was : is;
	struct t_blob *b;

	if (lengths == 7 && is > was)
		n = was + t_draw(seed) % (is - was);
	b = t_blob_new(n);
	for (size_t at = 0; at < n; at += T_PAGE) {
		const struct t_blob *from = chance(seed, share) ? now : old;
		const size_t page = n - at < T_PAGE ? n - at : T_PAGE;

		if (from && at < from->n)
			memcpy(b->p + at, from->p + at, from->n - at < page ? from->n - at : page);
	}
	t_blob_done(b);
	return b;
}

/* A file somewhere is written back, in part. */
static void drift(struct t_walk *w)
{
	const uint32_t i = (uint32_t)(t_draw(&w->busy) % w->kept->ninodes);
	struct t_blob *b;

	if (w->now[i] == w->kept->inode[i].blob || !chance(&w->busy, 4))
		return;
	b = mix(w->kept->inode[i].blob, w->now[i], &w->busy);
	keep_blob(w->kept, i, b);
	t_blob_drop(b);
}

static void step(struct t_walk *w)
{
	const struct t_call *c = &w->log->call[w->at];

	if (c->kind == T_CALL_MAKE) {
		keep_blob(w->kept, c->inode, NULL);
		w->kept->inode[c->inode] = (struct t_inode){ .is_dir = c->is_dir, .used = true };
		t_blob_drop(w->now[c->inode]);
		w->now[c->inode] = NULL;
	} else if (c->kind == T_CALL_DATA) {
		t_blob_drop(w->now[c->inode]);
		w->now[c->inode] = t_blob_hold(c->blob);
	} else if (c->kind == T_CALL_NAMES) {
		w->pending[w->npending++] = w->at;
	} else if (w->kept->inode[c->inode].is_dir) {
		sync_dir(w, c->inode);
	} else {
		keep_blob(w->kept, c->inode, w->now[c->inode]);
	}
	w->at++;
	if (w->busy && c->kind != T_CALL_SYNC)
		drift(w);
}

void t_walk_to(struct t_walk *w, size_t n)
{
	while (w->at < n)
		step(w);
}

static void cut_names(const struct t_walk *w, struct t_image *im, uint64_t *seed)
{
	const struct t_call *call = w->log->call;
	const unsigned share = (unsigned)(t_draw(seed) % 9);
	bool *lost = t_alloc(w->npending + 1);

	for (size_t i = 0; i < w->npending; i++) {
		const struct t_call *c = &call[w->pending[i]];

		lost[i] = !chance(seed, share);
		for (size_t k = 0; k < i && !lost[i]; k++)
			lost[i] = lost[k] && share_a_slot(c, &call[w->pending[k]]);
		if (!lost[i])
			apply(im, c);
	}
	free(lost);
}

struct t_image *t_walk_cut(const struct t_walk *w, uint64_t seed)
{
	struct t_image *im = t_image_copy(w->kept);

	cut_names(w, im, &seed);
	for (uint32_t i = 0; i < im->ninodes; i++) {
		struct t_blob *b;

		if (w->now[i] == im->inode[i].blob)
			continue;
		b = mix(im->inode[i].blob, w->now[i], &seed);
		keep_blob(im, i, b);
		t_blob_drop(b);
	}
	t_image_sweep(im);
	return im;
}
