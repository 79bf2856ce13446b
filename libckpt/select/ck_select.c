/*
 * ck_select.c -- see ck_select.h.
 *
 * Two passes over the index: the first finds the wanted names, and which stored tensors are
 * wanted under their own name; the second makes picks and aliases, so that an alias that
 * comes before its tensor does not take its place.
 */
#include "libckpt/select/ck_select.h"

#include <fnmatch.h>
#include <inttypes.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_map.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/base/ck_text.h"

struct selecting {
	const struct ck_index *ix;
	const struct ckpt_select *sel;
	const struct ckpt_rule *publish;	/* or NULL */
	struct ck_selection *out;
	struct ck_map names;	/* as written -> tensor of the index (alias or not) */
	uint8_t *wanted;	/* per tensor of the index */
	uint32_t *pick_of;	/* per stored tensor: its pick, or CK_NONE */
};

uint32_t ck_select_stored(const struct ck_index *ix, uint32_t tensor)
{
	/* a chain of aliases is never longer than the index; a ring ends with its steps */
	for (uint64_t i = 0; i < ix->ntensors; i++) {
		const struct ck_tensor *t = &ix->tensor[tensor];

		if (t->role != CKPT_ROLE_ALIAS || t->alias_of >= ix->ntensors)
			break;
		tensor = (uint32_t)t->alias_of;
	}
	return tensor;
}

/* -------------------------------------------------------------------- filters */

static bool matches_any(const char *const *patterns, const char *name)
{
	for (; patterns && *patterns; patterns++)
		if (!fnmatch(*patterns, name, 0))
			return true;
	return false;
}

static bool matches(const struct ckpt_select *sel, const char *name)
{
	if (sel->include && sel->include[0] && !matches_any(sel->include, name))
		return false;
	return !matches_any(sel->exclude, name);
}

bool ck_select_takes(const struct ckpt_select *sel, const char *name)
{
	return !sel || matches(sel, name);
}

static unsigned only_of(enum ckpt_role role)
{
	switch (role) {
	case CKPT_ROLE_TRAINABLE:
	case CKPT_ROLE_UNTRAINED:
		return CKPT_ONLY_TRAINABLE;
	case CKPT_ROLE_FROZEN:
		return CKPT_ONLY_FROZEN;
	case CKPT_ROLE_BUFFER:
		return CKPT_ONLY_BUFFERS;
	case CKPT_ROLE_ALIAS:
	case CKPT_ROLE_PLAIN:
		break;
	}
	return 0;
}

static int check_role(const struct selecting *s, uint32_t tensor, bool *wanted_out,
		      struct ckpt_err *err)
{
	const struct ck_tensor *t = &s->ix->tensor[ck_select_stored(s->ix, tensor)];
	const unsigned is = only_of((enum ckpt_role)t->role);

	*wanted_out = true;
	if (!s->sel->only && !s->sel->skip)
		return 0;
	if (!is)
		return ck_fail(err, CKPT_E_USAGE, t->name, CKPT_NO_OFFSET,
			       "this checkpoint does not say which of its tensors are trainable, "
			       "frozen or buffers; choose by name (--include, --exclude)");
	*wanted_out = (!s->sel->only || (s->sel->only & is)) && !(s->sel->skip & is);
	return 0;
}

static int mark_wanted(struct selecting *s, struct ckpt_err *err)
{
	for (uint32_t i = 0; i < s->ix->ntensors; i++) {
		bool wanted;
		int rc;

		if (!matches(s->sel, s->ix->tensor[i].name))
			continue;
		rc = check_role(s, i, &wanted, err);
		if (rc)
			return rc;
		s->wanted[i] = wanted;
	}
	return 0;
}

/* ---------------------------------------------------------------------- names */

/* 'from' has no star: every occurrence is replaced. */
static const char *rename_plain(struct ck_arena *arena, const char *name, const char *from,
				const char *to)
{
	const size_t n = strlen(from), m = strlen(to);
	size_t hits = 0;
	char *out, *p;

	for (const char *q = name; (q = strstr(q, from)); q += n)
		hits++;
	if (!hits)
		return name;
	out = ck_arena_alloc(arena, strlen(name) + hits * m + 1);
	p = out;
	while (out && *name) {
		if (hits && !strncmp(name, from, n)) {
			memcpy(p, to, m);
			p += m;
			name += n;
			hits--;
		} else {
			*p++ = *name++;
		}
	}
	if (out)
		*p = 0;
	return out;
}

static int check_rules(const struct ckpt_select *sel, struct ck_selection *out,
		       struct ckpt_err *err)
{
	size_t n = 0;

	while (sel->rename && sel->rename[n].pattern)
		n++;
	out->renamed = ck_arena_zalloc(&out->arena, n + 1);
	if (!out->renamed)
		return ck_fail_nomem(err, "renames", n);
	for (const struct ckpt_rule *r = sel->rename; r && r->pattern; r++) {
		const char *star = strchr(r->pattern, '*');

		if (!r->value || !r->pattern[0])
			return ck_fail(err, CKPT_E_USAGE, NULL, CKPT_NO_OFFSET,
				       "a rename needs text on both sides of its '='");
		if (star && strchr(star + 1, '*'))
			return ck_fail(err, CKPT_E_USAGE, r->pattern, CKPT_NO_OFFSET,
				       "each side of a rename may have one '*', this one has "
				       "more");
		star = star ? strchr(r->value, '*') : NULL;
		if (star && strchr(star + 1, '*'))
			return ck_fail(err, CKPT_E_USAGE, r->value, CKPT_NO_OFFSET,
				       "each side of a rename may have one '*', this one has "
				       "more");
	}
	return 0;
}

/* By the first rule of the table that fits.  NULL without memory. */
static const char *published(struct selecting *s, const char *name)
{
	size_t n;

	for (const struct ckpt_rule *r = s->publish; r && r->pattern; r++) {
		if (!ck_star_match(name, r->pattern, &n))
			continue;
		s->out->npublished++;
		return ck_star_replace(&s->out->arena, name, r->pattern, r->value);
	}
	return name;
}

static int name_for(struct selecting *s, const char *stored, const char **name_out,
		    struct ckpt_err *err)
{
	const struct ckpt_select *sel = s->sel;
	const size_t n = sel->strip_prefix ? strlen(sel->strip_prefix) : 0;
	const char *name = stored;

	if (n && !strncmp(name, sel->strip_prefix, n)) {
		s->out->stripped = true;
		name += n;
	}
	for (const struct ckpt_rule *r = sel->rename; name && r && r->pattern; r++) {
		const char *star = strchr(r->pattern, '*'), *before = name;

		name = star ? ck_star_replace(&s->out->arena, name, r->pattern, r->value) :
			      rename_plain(&s->out->arena, name, r->pattern, r->value);
		if (name != before)	/* made anew */
			s->out->renamed[r - sel->rename] = true;
	}
	if (name)
		name = published(s, name);
	if (!name)
		return ck_fail_nomem(err, "a name", strlen(stored));
	if (!name[0] && stored[0])
		return ck_fail(err, CKPT_E_USAGE, stored, CKPT_NO_OFFSET,
			       "stripping the prefix or renaming leaves an empty name");
	*name_out = name;
	return 0;
}

/* Remember a name; two of a kind are refused with both origins. */
static int claim(struct selecting *s, const char *name, uint32_t tensor, struct ckpt_err *err)
{
	uint64_t old;
	int rc = ck_map_add(&s->names, name, strlen(name), tensor, &old, err);

	if (rc <= 0)
		return rc;
	return ck_fail(err, CKPT_E_USAGE, name, CKPT_NO_OFFSET,
		       "two tensors would get this name: %.180s and %.180s",
		       s->ix->tensor[old].name, s->ix->tensor[tensor].name);
}

/* ---------------------------------------------------------------------- picks */

static int add_pick(struct selecting *s, uint32_t tensor, const char *name,
		    struct ckpt_err *err)
{
	struct ck_selection *out = s->out;
	const uint32_t stored = ck_select_stored(s->ix, tensor);
	int rc = ck_grow(&out->pick, &out->pick_cap, out->npicks + 1, sizeof(*out->pick), err);

	if (rc)
		return rc;
	if (s->pick_of[stored] == CK_NONE)
		s->pick_of[stored] = (uint32_t)out->npicks;
	out->pick[out->npicks++] = (struct ck_pick){
		.name = name, .stored = s->ix->tensor[tensor].name, .tensor = stored,
	};
	return 0;
}

static int add_alias(struct selecting *s, uint32_t stored, const char *name,
		     struct ckpt_err *err)
{
	struct ck_selection *out = s->out;
	int rc = ck_grow(&out->alias, &out->alias_cap, out->naliases + 1, sizeof(*out->alias),
			 err);

	if (!rc)	/* 'kept' when all picks are there */
		out->alias[out->naliases++] = (struct ck_pick_alias){
			.name = name, .tensor = stored,
		};
	return rc;
}

static int take_tensor(struct selecting *s, uint32_t tensor, struct ckpt_err *err)
{
	const struct ck_tensor *t = &s->ix->tensor[tensor];
	const uint32_t stored = ck_select_stored(s->ix, tensor);
	const bool own = stored == tensor || s->sel->tied == CKPT_TIED_DUP ||
			 (!s->wanted[stored] && s->pick_of[stored] == CK_NONE);
	const char *name = NULL;
	int rc;

	if (!own)
		s->out->nshared++;
	if (!own && s->sel->tied == CKPT_TIED_DROP)
		return 0;
	rc = name_for(s, t->name, &name, err);
	if (!rc)
		rc = claim(s, name, tensor, err);
	if (!rc)
		rc = own ? add_pick(s, tensor, name, err) : add_alias(s, stored, name, err);
	return rc;
}

static int take_all(struct selecting *s, struct ckpt_err *err)
{
	struct ck_selection *out = s->out;

	for (uint32_t i = 0; i < s->ix->ntensors; i++) {
		int rc = s->wanted[i] ? take_tensor(s, i, err) : 0;

		if (rc)
			return rc;
	}
	for (uint64_t i = 0; i < out->naliases; i++)
		out->alias[i].kept = out->pick[s->pick_of[out->alias[i].tensor]].name;
	return 0;
}

/* ----------------------------------------------------------------------- hint */

static bool starts_with(const char *s, const char *start)
{
	return !strncmp(s, start, strlen(start));
}

/* "model." is part of the names that transformers itself saves. */
static bool is_transformers_own(const char *rest)
{
	static const char *const own[] = {
		"embed_tokens.", "layers.", "norm.", "decoder.", "encoder.", "language_model.",
		"visual.", "vision", "shared.", "rotary_emb.", "lm_head.",
	};

	for (size_t i = 0; i < CK_ARRAY_LEN(own); i++)
		if (starts_with(rest, own[i]))
			return true;
	return false;
}

static bool all_have(const struct ck_selection *s, const char *prefix, bool is_model)
{
	const size_t n = strlen(prefix);

	for (uint64_t i = 0; i < s->npicks; i++)
		if (strncmp(s->pick[i].name, prefix, n) || !s->pick[i].name[n] ||
		    (is_model && is_transformers_own(s->pick[i].name + n)))
			return false;
	for (uint64_t i = 0; i < s->naliases; i++)
		if (strncmp(s->alias[i].name, prefix, n))
			return false;
	return s->npicks > 0;
}

/* Prefixes of wrappers (DDP, torch.compile, Lightning), one behind the other. */
static int find_hint(struct ck_selection *s, struct ckpt_err *err)
{
	static const char *const wrappers[] = {
		"module.", "_orig_mod.", "_forward_module.", "model.",
	};
	const char *prefix = "";

	for (size_t i = 0; i < CK_ARRAY_LEN(wrappers); i++) {
		const char *longer = ck_arena_printf(&s->arena, "%s%s", prefix, wrappers[i]);

		if (!longer)
			return ck_fail_nomem(err, "a name", strlen(prefix));
		if (!all_have(s, longer, !strcmp(wrappers[i], "model.")))
			continue;
		prefix = longer;
		i = (size_t)-1;		/* from the first one again, behind it */
	}
	s->strip_hint = prefix[0] ? prefix : NULL;
	return 0;
}

int ck_select(const struct ck_index *ix, const struct ckpt_select *sel,
	      struct ck_selection *out, struct ckpt_err *err)
{
	return ck_select_published(ix, sel, NULL, out, err);
}

int ck_select_published(const struct ck_index *ix, const struct ckpt_select *sel,
			const struct ckpt_rule *publish, struct ck_selection *out,
			struct ckpt_err *err)
{
	static const struct ckpt_select everything = { .size = sizeof(everything) };
	struct ck_selection made = CK_SELECTION_INIT;
	struct selecting s = {
		.ix = ix, .sel = sel ? sel : &everything, .publish = publish, .out = &made,
		.names = CK_MAP_INIT,
		.wanted = ck_zalloc(ix->ntensors),
		.pick_of = ck_alloc_array(ix->ntensors, sizeof(*s.pick_of)),
	};
	int rc = 0;

	if (!s.wanted || !s.pick_of)
		rc = ck_fail_nomem(err, "a selection", ix->ntensors);
	for (uint64_t i = 0; !rc && i < ix->ntensors; i++)
		s.pick_of[i] = CK_NONE;
	if (!rc)
		rc = check_rules(s.sel, &made, err);
	if (!rc)
		rc = mark_wanted(&s, err);
	if (!rc)
		rc = take_all(&s, err);
	if (!rc)
		rc = find_hint(&made, err);
	if (rc)
		ck_selection_release(&made);
	else
		*out = made;
	ck_map_release(&s.names);
	ck_free(s.wanted);
	ck_free(s.pick_of);
	return rc;
}

/* -------------------------------------------------------------------- unused */

static void note_unused(const char *option, const char *pattern, uint64_t n, const char *of,
			struct ck_findings *f)
{
	ck_findings_add(f, CK_FINDING_PATTERN_UNUSED, pattern,
			"%s matches none of the %" PRIu64 " %s; is it "
			"mistyped?", option, n, of);
}

void ck_select_tell_pattern(const struct ck_index *ix, const char *option, const char *pattern,
			    struct ck_findings *f)
{
	for (uint64_t i = 0; i < ix->ntensors; i++)
		if (!fnmatch(pattern, ix->tensor[i].name, 0))
			return;
	note_unused(option, pattern, ix->ntensors, "names", f);
}

void ck_select_tell_unused(const struct ck_index *ix, const struct ckpt_select *sel,
			   const struct ck_selection *made, struct ck_findings *f)
{
	const uint64_t n = made->npicks + made->naliases;

	if (!sel)
		return;
	for (const char *const *p = sel->include; p && *p; p++)
		ck_select_tell_pattern(ix, "--include", *p, f);
	for (const char *const *p = sel->exclude; p && *p; p++)
		ck_select_tell_pattern(ix, "--exclude", *p, f);
	if (sel->strip_prefix && sel->strip_prefix[0] && !made->stripped)
		note_unused("--strip-prefix", sel->strip_prefix, n, "chosen names", f);
	for (size_t r = 0; sel->rename && sel->rename[r].pattern; r++)
		if (!made->renamed[r])
			note_unused("--rename", sel->rename[r].pattern, n, "chosen names", f);
}

int ck_select_fail_empty(const struct ck_index *ix, struct ckpt_err *err)
{
	if (!ix->ntensors)
		return ck_fail(err, CKPT_E_USAGE, ix->path, CKPT_NO_OFFSET,
			       "it has no tensors");
	return ck_fail(err, CKPT_E_USAGE, ix->path, CKPT_NO_OFFSET,
		       "none of its %" PRIu64 " tensors is selected", ix->ntensors);
}

void ck_selection_release(struct ck_selection *s)
{
	ck_arena_release(&s->arena);
	ck_free(s->pick);
	ck_free(s->alias);
	memset(s, 0, sizeof(*s));
}
