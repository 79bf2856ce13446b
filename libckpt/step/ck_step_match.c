/*
 * ck_step_match.c -- see ck_step_match.h.
 *
 * Which parameters are in which group no file says.  So the groups are interleaved with
 * the model's parameters in every way in which the shapes fit, and only what all ways agree on is
 * known.
 *
 * A way is a path through states (items passed, entries used of each group).  The states that can
 * be reached are listed item by item; the sets are small where shapes differ.  Then, from the end,
 * those from which the end can be reached are marked: an entry whose steps between marked
 * states all use one item is on that item in every way.
 */
#include "libckpt/step/ck_step_match.h"

#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_map.h"
#include "libckpt/base/ck_mem.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/tensor/ck_index.h"

#define MOST_NUMBERS ((uint64_t)1 << 23)	/* of all states together */

/* The states after some items: 'ngroups' counts of each. */
struct layer {
	uint32_t *used;
	uint64_t n, cap;
	bool *ends;		/* the end can be reached from it */
};

struct search {
	const struct ck_step_match *m;
	struct layer *layer;	/* [nitems + 1] */
	uint64_t total;
	uint32_t *one;		/* [ngroups] scratch */
};

static const uint32_t *state_at(const struct search *s, const struct layer *l, uint64_t i)
{
	return l->used + i * s->m->ngroups;
}

static uint64_t used_by(const struct search *s, const uint32_t *state)
{
	uint64_t n = 0;

	for (uint32_t g = 0; g < s->m->ngroups; g++)
		n += state[g];
	return n;
}

/* The next entry of group 'g' may be on the item. */
static bool fits(const struct search *s, const uint32_t *state, uint32_t g, uint64_t item)
{
	const uint64_t entry = s->m->first[g] + state[g];

	return entry < s->m->first[g + 1] &&
	       (s->m->entry[entry] == CK_MATCH_ANY || s->m->entry[entry] == s->m->item[item]);
}

/* The item may have no entry: as many are left out as there are more of them. */
static bool may_skip(const struct search *s, const uint32_t *state, uint64_t item)
{
	return item - used_by(s, state) < s->m->nitems - s->m->nentries;
}

/* Keys are offsets in an array that may move, so they are looked up in a copy. */
static int add(struct search *s, struct layer *l, struct ck_map *seen, struct ck_arena *arena,
	       const uint32_t *state, struct ckpt_err *err)
{
	const size_t bytes = s->m->ngroups * sizeof(*state);
	char *key;
	int rc;

	if (ck_map_find(seen, (const char *)state, bytes, NULL))
		return 0;
	s->total += s->m->ngroups;
	if (s->total > MOST_NUMBERS)
		return 1;
	key = ck_arena_alloc(arena, bytes);
	rc = key ? 0 : ck_fail_nomem(err, "a state of a search", bytes);
	if (!rc) {
		memcpy(key, state, bytes);
		rc = ck_map_add(seen, key, bytes, l->n, NULL, err);
	}
	if (!rc)
		rc = ck_grow(&l->used, &l->cap, (l->n + 1) * s->m->ngroups, sizeof(*l->used), err);
	if (!rc)
		memcpy(l->used + l->n++ * s->m->ngroups, state, bytes);
	return rc;
}

static int advance(struct search *s, uint64_t item, struct ckpt_err *err)
{
	const struct layer *from = &s->layer[item];
	struct layer *to = &s->layer[item + 1];
	struct ck_map seen = CK_MAP_INIT;
	struct ck_arena arena = CK_ARENA_INIT;
	int rc = 0;

	for (uint64_t i = 0; !rc && i < from->n; i++) {
		memcpy(s->one, state_at(s, from, i), s->m->ngroups * sizeof(*s->one));
		if (may_skip(s, s->one, item))
			rc = add(s, to, &seen, &arena, s->one, err);
		for (uint32_t g = 0; !rc && g < s->m->ngroups; g++) {
			if (!fits(s, s->one, g, item))
				continue;
			s->one[g]++;
			rc = add(s, to, &seen, &arena, s->one, err);
			s->one[g]--;
		}
	}
	ck_map_release(&seen);
	ck_arena_release(&arena);
	return rc;
}

/* ---- from the end ---- */

static void place(uint32_t *of, bool *several, uint64_t item)
{
	*several |= *of != CK_NONE && *of != item;
	*of = (uint32_t)item;
}

/* Mark the states of a layer, and note what the steps from them to marked ones use. */
static int mark(struct search *s, uint64_t item, uint32_t *of, bool *several, struct ckpt_err *err)
{
	const size_t bytes = s->m->ngroups * sizeof(uint32_t);
	struct layer *from = &s->layer[item];
	const struct layer *to = &s->layer[item + 1];
	struct ck_map at = CK_MAP_INIT;
	uint64_t k;
	int rc = 0;

	for (uint64_t i = 0; rc >= 0 && i < to->n; i++)
		if (to->ends[i])
			rc = ck_map_add(&at, (const char *)state_at(s, to, i), bytes, i, NULL, err);
	for (uint64_t i = 0; rc >= 0 && i < from->n; i++) {
		memcpy(s->one, state_at(s, from, i), bytes);
		if (may_skip(s, s->one, item))
			from->ends[i] = ck_map_find(&at, (const char *)s->one, bytes, &k);
		for (uint32_t g = 0; g < s->m->ngroups; g++) {
			const uint64_t entry = s->m->first[g] + s->one[g];

			if (!fits(s, s->one, g, item))
				continue;
			s->one[g]++;
			if (ck_map_find(&at, (const char *)s->one, bytes, &k)) {
				from->ends[i] = true;
				place(&of[entry], &several[entry], item);
			}
			s->one[g]--;
		}
	}
	ck_map_release(&at);
	return rc < 0 ? rc : 0;
}

static int give_marks(struct search *s, struct ckpt_err *err)
{
	for (uint64_t i = 0; i <= s->m->nitems; i++) {
		s->layer[i].ends = ck_zalloc(s->layer[i].n + 1);
		if (!s->layer[i].ends)
			return ck_fail_nomem(err, "a search", s->layer[i].n);
	}
	return 0;
}

static int conclude(struct search *s, uint32_t *of, enum ck_step_verdict *out, struct ckpt_err *err)
{
	const struct ck_step_match *m = s->m;
	bool *several = ck_zalloc(m->nentries + 1);
	int rc = several ? give_marks(s, err) : ck_fail_nomem(err, "a search", m->nentries);

	*out = CK_MATCH_UNIQUE;
	if (!rc)	/* it has used all entries, so there is one state at most */
		memset(s->layer[m->nitems].ends, 1, s->layer[m->nitems].n);
	for (uint64_t i = m->nitems; !rc && i > 0; i--)
		rc = mark(s, i - 1, of, several, err);
	for (uint64_t i = 0; !rc && i < m->nentries; i++) {
		if (several[i] && m->entry[i] != CK_MATCH_ANY)
			*out = CK_MATCH_SEVERAL;
		if (several[i])
			of[i] = CK_NONE;
	}
	ck_free(several);
	return rc;
}

int ck_step_match_run(const struct ck_step_match *m, uint32_t *of_out, enum ck_step_verdict *out,
		 struct ckpt_err *err)
{
	struct search s = { .m = m };
	int rc = 0;

	memset(of_out, 0xff, m->nentries * sizeof(*of_out));
	*out = CK_MATCH_NONE;
	if (m->nentries > m->nitems || !m->ngroups)
		return 0;
	s.layer = ck_zalloc((m->nitems + 1) * sizeof(*s.layer));
	s.one = ck_zalloc(m->ngroups * sizeof(*s.one));
	if (!s.layer || !s.one)
		rc = ck_fail_nomem(err, "a search", m->nitems);
	if (!rc) {
		s.layer[0].used = ck_zalloc(m->ngroups * sizeof(*s.one));
		s.layer[0].n = s.layer[0].used != NULL;
		rc = s.layer[0].used ? 0 : ck_fail_nomem(err, "a search", m->ngroups);
	}
	for (uint64_t i = 0; !rc && i < m->nitems; i++)
		rc = advance(&s, i, err);
	if (rc == 1) {
		*out = CK_MATCH_TOO_MANY;
		rc = 0;
	} else if (!rc && s.layer[m->nitems].n) {
		rc = conclude(&s, of_out, out, err);
	}
	for (uint64_t i = 0; s.layer && i <= m->nitems; i++) {
		ck_free(s.layer[i].used);
		ck_free(s.layer[i].ends);
	}
	ck_free(s.layer);
	ck_free(s.one);
	return rc;
}

const char *ck_step_match_why(enum ck_step_verdict verdict)
{
	return verdict == CK_MATCH_SEVERAL ? "fit the model's parameters in more ways than one" :
	       verdict == CK_MATCH_TOO_MANY ? "fit the model's parameters in too many ways to try" :
					"do not fit the order of the model's parameters";
}
