/*
 * fk_race.c -- whether what touches the same memory is in an order that somebody gave it.
 *
 * Every stream knows how far it has seen each other one: it learns of what an event had seen when
 * it was recorded by waiting for it, and of what the host has waited for when something is queued.
 * An operation that touches what another has touched, one of them writing, must have seen it;
 * chance, and the order of calls, do not count.  So a wait that is missing is found in one run,
 * whatever the bits are.
 *
 * Kept is what the host has not seen, and no later writing of all of the same memory has.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/gpusim/fk_queue.h"

struct touch {
	const uint8_t *p, *end;
	const char *name;
	uint64_t at;
	uint32_t stream;
	bool write;
};

static struct touch *touched;
static size_t count, room;

void fk_seen_join(uint64_t *seen, const uint64_t *more)
{
	for (uint32_t i = 0; i < FK_STREAMS; i++)
		if (more[i] > seen[i])
			seen[i] = more[i];
}

void fk_seen_of(uint64_t *seen, const struct CUstream_st *s)
{
	memcpy(seen, s->seen, sizeof(s->seen));
	seen[s->index] = s->queued;
}

void fk_seen_by_host(const uint64_t *seen)
{
	size_t kept = 0;

	fk_seen_join(fk_queue.host, seen);
	for (size_t i = 0; i < count; i++)
		if (touched[i].at > fk_queue.host[touched[i].stream])
			touched[kept++] = touched[i];
	count = kept;
}

static void keep(const struct touch *t)
{
	if (count == room) {
		room = room ? 2 * room : 1024;
		touched = realloc(touched, room * sizeof(*touched));
		if (!touched)
			fk_die("no host memory for a list");
	}
	touched[count++] = *t;
}

static void race(const struct touch *a, const struct touch *b)
{
	fk_die("a wait is missing: %s, number %llu of stream %u, %s %zu bytes at %p; %s, number "
	       "%llu of stream %u, %s %zu bytes at %p; nothing says which comes first",
	       a->name, (unsigned long long)a->at, a->stream, a->write ? "writes" : "reads",
	       (size_t)(a->end - a->p), (const void *)a->p, b->name, (unsigned long long)b->at,
	       b->stream, b->write ? "writes" : "reads", (size_t)(b->end - b->p),
	       (const void *)b->p);
}

/* What 't' covers and has seen need not be remembered. */
static void look(const struct CUstream_st *s, const struct touch *t)
{
	size_t kept = 0;

	for (size_t i = 0; i < count; i++) {
		const struct touch *o = &touched[i];
		const bool meets = o->p < t->end && t->p < o->end;
		const bool seen = o->stream == s->index || s->seen[o->stream] >= o->at;

		if (meets && !seen && (o->write || t->write))
			race(o, t);
		if (!(meets && seen && t->write && t->p <= o->p && o->end <= t->end))
			touched[kept++] = *o;
	}
	count = kept;
}

void fk_touch(struct CUstream_st *s, const char *name, const struct fk_use *use, size_t nuse)
{
	if (!fk_queue.races)
		return;
	fk_seen_join(s->seen, fk_queue.host);
	for (int turn = 0; turn < 2; turn++)
		for (size_t i = 0; i < nuse; i++) {
			const uint8_t *p = use[i].p;
			const struct touch t = { p, p + use[i].bytes, name, s->queued, s->index,
						 use[i].write };

			if (!p || !use[i].bytes)
				continue;
			if (turn)
				keep(&t);
			else
				look(s, &t);
		}
}
