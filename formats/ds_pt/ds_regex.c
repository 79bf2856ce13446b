/*
 * ds_regex.c -- see ds_regex.h.
 *
 * The pattern becomes a program for a machine of many threads (Thompson, 1968): all threads read
 * one character at a time, and a place of the program holds at most one thread.  So no pattern
 * takes more than its length times that of the name, whatever a file says.
 */
#include "formats/ds_pt/ds_regex.h"

#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"

#define MAX_PATTERN 4096u	/* bytes */
#define MAX_DEPTH 32u		/* groups in groups */

enum op {
	OP_CHAR = 1, OP_ANY, OP_SET, OP_SPLIT, OP_JUMP, OP_BEGIN, OP_END, OP_MATCH,
};

struct inst {
	uint8_t op;
	bool not;		/* of a set */
	uint32_t c;		/* a character; the first range of a set */
	uint32_t n;		/* ranges of a set */
	uint32_t to, or;	/* places in the program */
};

struct range {
	uint32_t from, to;
};

struct ds_regex {
	struct inst *inst;
	uint32_t n;
	struct range *range;
	uint32_t nranges;
	uint32_t *mark, *now, *next;	/* threads; mark[i] = the step that added place i last */
	char *literal;
	bool ascii;		/* has \d or \w, which are known of ASCII characters alone */
};

struct parser {
	struct ds_regex *re;
	const char *p;
	uint32_t depth;
	const char *why;	/* what is not supported */
};

/* One character of UTF-8; a byte that is none is a character of its own. */
static uint32_t next_char(const char **p)
{
	const uint8_t *s = (const uint8_t *)*p;
	const uint32_t n = s[0] < 0xc2 || s[0] > 0xf4 ? 1 :
			   s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
	uint32_t c = n == 1 ? s[0] : s[0] & (0x7fu >> n);

	for (uint32_t i = 1; i < n; i++) {
		if ((s[i] & 0xc0) != 0x80) {
			c = 0;
			break;
		}
		c = c << 6 | (s[i] & 0x3fu);
	}
	if (s[0] >= 0x80 && (n == 1 || !c)) {
		*p += 1;
		return 0xdc00u + s[0];
	}
	*p += n;
	return c;
}

static uint32_t emit(struct parser *ps, struct inst inst)
{
	ps->re->inst[ps->re->n] = inst;
	return ps->re->n++;
}

/* Make room for one instruction at 'at'; places from there on move. */
static void insert(struct parser *ps, uint32_t at, struct inst inst)
{
	struct ds_regex *re = ps->re;

	memmove(re->inst + at + 1, re->inst + at, (re->n - at) * sizeof(*re->inst));
	re->n++;
	for (uint32_t i = at + 1; i < re->n; i++) {
		re->inst[i].to += re->inst[i].to >= at;
		re->inst[i].or += re->inst[i].or >= at;
	}
	re->inst[at] = inst;
}

static void add_range(struct parser *ps, uint32_t from, uint32_t to)
{
	ps->re->range[ps->re->nranges++] = (struct range){ from, to };
}

/* White space as Python has it: str.isspace(). */
static const struct range spaces[] = {
	{ '\t', '\r' }, { 0x1c, ' ' }, { 0x85, 0x85 }, { 0xa0, 0xa0 }, { 0x1680, 0x1680 },
	{ 0x2000, 0x200a }, { 0x2028, 0x2029 }, { 0x202f, 0x202f }, { 0x205f, 0x205f },
	{ 0x3000, 0x3000 },
};

/* \d, \w, \s as ranges of the set that is being made; false for another letter. */
static bool add_kind(struct parser *ps, char c)
{
	ps->re->ascii |= c == 'd' || c == 'w';
	if (c == 'd' || c == 'w')
		add_range(ps, '0', '9');
	if (c == 'w') {
		add_range(ps, 'A', 'Z');
		add_range(ps, 'a', 'z');
		add_range(ps, '_', '_');
	}
	for (size_t i = 0; c == 's' && i < CK_ARRAY_LEN(spaces); i++)
		add_range(ps, spaces[i].from, spaces[i].to);
	return c == 'd' || c == 'w' || c == 's';
}

static bool is_letter(char c)
{
	return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

/* The character after a backslash, which is itself; 0 where it means something else. */
static uint32_t escaped(struct parser *ps)
{
	const char c = *ps->p;

	if (!c || is_letter(c)) {
		ps->why = "this escape";
		return 0;
	}
	return next_char(&ps->p);
}

static void parse_set(struct parser *ps)
{
	struct inst set = { .op = OP_SET, .c = ps->re->nranges };
	bool first = true;

	set.not = *ps->p == '^';
	ps->p += set.not;
	for (; !ps->why && (*ps->p != ']' || first); first = false) {
		uint32_t from, to;

		if (!*ps->p) {
			ps->why = "a class without its end";
			return;
		}
		if (*ps->p == '\\') {
			ps->p++;
			if (add_kind(ps, *ps->p)) {
				ps->p++;
				if (ps->p[0] == '-' && ps->p[1] && ps->p[1] != ']')
					ps->why = "a range from a class";
				continue;
			}
			from = escaped(ps);
		} else {
			from = next_char(&ps->p);
		}
		to = from;
		if (ps->p[0] == '-' && ps->p[1] && ps->p[1] != ']') {
			ps->p++;
			if (*ps->p == '\\')
				ps->why = "a range to an escape";
			else
				to = next_char(&ps->p);
			if (!ps->why && to < from)
				ps->why = "a range that ends before its beginning";
		}
		add_range(ps, from, to);
	}
	ps->p++;
	set.n = ps->re->nranges - set.c;
	emit(ps, set);
}

static void parse_choice(struct parser *ps);

static void parse_group(struct parser *ps)
{
	if (*ps->p == '?') {
		if (ps->p[1] != ':') {
			ps->why = "a group that begins with (? and no colon";
			return;
		}
		ps->p += 2;
	}
	if (++ps->depth > MAX_DEPTH) {
		ps->why = "more than 32 groups in groups";
		return;
	}
	parse_choice(ps);
	ps->depth--;
	if (!ps->why && *ps->p != ')')
		ps->why = "a group without its end";
	ps->p++;
}

static void parse_escape(struct parser *ps)
{
	const uint32_t first = ps->re->nranges;
	struct inst c = { .op = OP_CHAR };

	if (add_kind(ps, *ps->p)) {
		ps->p++;
		emit(ps, (struct inst){ .op = OP_SET, .c = first, .n = ps->re->nranges - first });
		return;
	}
	c.c = escaped(ps);
	if (!ps->why)
		emit(ps, c);
}

static void parse_atom(struct parser *ps)
{
	const char c = *ps->p;

	if (c == '*' || c == '+' || c == '?' || c == '{') {
		ps->why = c == '{' ? "a count in braces" : "a repetition of nothing";
		return;
	}
	if (c == '(' || c == '[' || c == '\\' || c == '.' || c == '^' || c == '$')
		ps->p++;
	if (c == '(')
		parse_group(ps);
	else if (c == '[')
		parse_set(ps);
	else if (c == '\\')
		parse_escape(ps);
	else if (c == '.')
		emit(ps, (struct inst){ .op = OP_ANY });
	else if (c == '^')
		emit(ps, (struct inst){ .op = OP_BEGIN });
	else if (c == '$')
		emit(ps, (struct inst){ .op = OP_END });
	else
		emit(ps, (struct inst){ .op = OP_CHAR, .c = next_char(&ps->p) });
}

/* What was compiled from 'at' on, repeated; a lazy '?' after it changes no verdict. */
static void parse_repeat(struct parser *ps, uint32_t at)
{
	const char c = *ps->p++;

	ps->p += *ps->p == '?';
	if (*ps->p == '*' || *ps->p == '+' || *ps->p == '?' || *ps->p == '{') {
		ps->why = "a repetition of a repetition";
		return;
	}
	if (c == '+') {
		const uint32_t split = emit(ps, (struct inst){ .op = OP_SPLIT, .to = at });

		ps->re->inst[split].or = split + 1;
		return;
	}
	insert(ps, at, (struct inst){ .op = OP_SPLIT });
	if (c == '*')
		emit(ps, (struct inst){ .op = OP_JUMP, .to = at });
	ps->re->inst[at].to = at + 1;
	ps->re->inst[at].or = ps->re->n;
}

static void parse_sequence(struct parser *ps)
{
	while (!ps->why && *ps->p && *ps->p != '|' && *ps->p != ')') {
		const bool place = *ps->p == '^' || *ps->p == '$';
		const uint32_t at = ps->re->n;

		parse_atom(ps);
		if (!ps->why && place && (*ps->p == '*' || *ps->p == '+' || *ps->p == '?'))
			ps->why = "a repetition of ^ or $";
		else if (!ps->why && (*ps->p == '*' || *ps->p == '+' || *ps->p == '?'))
			parse_repeat(ps, at);
		else if (!ps->why && *ps->p == '{')
			ps->why = "a count in braces";
	}
}

/* Alternatives: each but the last ends with a jump behind all, threaded through 'to'. */
static void parse_choice(struct parser *ps)
{
	uint32_t at = ps->re->n, jumps = UINT32_MAX;

	parse_sequence(ps);
	while (!ps->why && *ps->p == '|') {
		uint32_t jump;

		ps->p++;
		insert(ps, at, (struct inst){ .op = OP_SPLIT });
		jump = emit(ps, (struct inst){ .op = OP_JUMP });
		ps->re->inst[at].to = at + 1;
		ps->re->inst[at].or = ps->re->n;
		ps->re->inst[jump].c = jumps;
		jumps = jump;
		at = ps->re->n;
		parse_sequence(ps);
	}
	while (jumps != UINT32_MAX) {
		const uint32_t before = ps->re->inst[jumps].c;

		ps->re->inst[jumps].to = ps->re->n;
		jumps = before;
	}
}

/* ^NAME$ of plain characters. */
static char *find_literal(struct ck_arena *arena, const char *pattern, size_t len)
{
	char *out = ck_arena_alloc(arena, len + 1), *p = out;

	if (!out || *pattern != '^' || len < 2 || pattern[len - 1] != '$')
		return NULL;
	for (size_t i = 1; i + 1 < len; i++) {
		if (pattern[i] == '\\') {
			i++;
			if (i + 1 >= len || is_letter(pattern[i]))
				return NULL;
		} else if (strchr(".^$*+?()[]{}|", pattern[i])) {
			return NULL;
		}
		*p++ = pattern[i];
	}
	*p = 0;
	return out;
}

static struct ds_regex *new_regex(struct ck_arena *arena, size_t len)
{
	/* a character gives at most 2 instructions, and an escape (2 characters) 10 ranges */
	const uint64_t room = 2 * (uint64_t)len + 2;
	struct ds_regex *re = ck_arena_zalloc(arena, sizeof(*re));

	if (!re)
		return NULL;
	re->inst = ck_arena_zalloc(arena, room * sizeof(*re->inst));
	re->range = ck_arena_alloc(arena, 3 * room * sizeof(*re->range));
	re->mark = ck_arena_zalloc(arena, room * sizeof(*re->mark));
	re->now = ck_arena_alloc(arena, 2 * room * sizeof(*re->now));
	re->next = ck_arena_alloc(arena, 2 * room * sizeof(*re->next));
	return re->inst && re->range && re->mark && re->now && re->next ? re : NULL;
}

int ck_ds_regex_make(struct ck_arena *arena, const char *pattern, const char *where,
		     const struct ds_regex **out, struct ckpt_err *err)
{
	const size_t len = strlen(pattern);
	struct parser ps = { .p = pattern };

	if (len > MAX_PATTERN)
		return ck_fail(err, CKPT_E_LAYOUT, where, CKPT_NO_OFFSET,
			       "LAYOUT_UNSUPPORTED: a pattern of %zu bytes; zckpt reads up to %u",
			       len, MAX_PATTERN);
	ps.re = new_regex(arena, len);
	if (!ps.re)
		return ck_fail_nomem(err, "a pattern", len);
	ps.re->literal = find_literal(arena, pattern, len);
	parse_choice(&ps);
	if (!ps.why && *ps.p)
		ps.why = "an end of a group without its beginning";
	if (ps.why)
		return ck_fail(err, CKPT_E_LAYOUT, where, CKPT_NO_OFFSET,
			       "LAYOUT_UNSUPPORTED: pattern '%.100s' has %s, which zckpt does "
			       "not read; `--tp-rules FILE` gives the rules in other words",
			       pattern, ps.why);
	emit(&ps, (struct inst){ .op = OP_MATCH });
	*out = ps.re;
	return 0;
}

const char *ck_ds_regex_literal(const struct ds_regex *re)
{
	return re->literal;
}

bool ck_ds_regex_knows(const struct ds_regex *re, const char *name)
{
	for (; re->ascii && *name; name++)
		if ((uint8_t)*name >= 0x80)
			return false;
	return true;
}

/* ---- the machine ---- */

/* '$': the end, or a newline in front of it. */
static bool is_end(const char *name)
{
	return !*name || !strcmp(name, "\n");
}

struct threads {
	uint32_t *at, n;
};

/*
 * Add the places that can be reached from 'at' without reading; true if one is the end.  The list
 * is its own queue: splits and jumps in it add others.
 */
static bool follow(const struct ds_regex *re, struct threads *t, uint32_t from, uint32_t step,
		   bool begin, bool end)
{
	bool found = false;

	for (; from < t->n; from++) {
		const struct inst *i = &re->inst[t->at[from]];
		uint32_t go[2], n = 0;

		if (i->op == OP_SPLIT || i->op == OP_JUMP || (i->op == OP_BEGIN && begin) ||
		    (i->op == OP_END && end))
			go[n++] = i->op == OP_SPLIT || i->op == OP_JUMP ? i->to :
				  t->at[from] + 1;
		if (i->op == OP_SPLIT)
			go[n++] = i->or;
		found |= i->op == OP_MATCH;
		for (uint32_t k = 0; k < n; k++) {
			if (re->mark[go[k]] == step)
				continue;
			re->mark[go[k]] = step;
			t->at[t->n++] = go[k];
		}
	}
	return found;
}

static bool accepts(const struct ds_regex *re, const struct inst *i, uint32_t c)
{
	bool in = false;

	if (i->op == OP_CHAR)
		return i->c == c;
	if (i->op == OP_ANY)
		return c != '\n';
	if (i->op != OP_SET)
		return false;
	for (uint32_t k = 0; k < i->n; k++)
		in |= c >= re->range[i->c + k].from && c <= re->range[i->c + k].to;
	return in != i->not;
}

bool ck_ds_regex_match(const struct ds_regex *re, const char *name)
{
	struct threads now = { .at = re->now, .n = 1 }, next = { .at = re->next };
	uint32_t step = 1;

	memset(re->mark, 0, re->n * sizeof(*re->mark));
	now.at[0] = 0;
	re->mark[0] = step;
	if (follow(re, &now, 0, step, true, is_end(name)))
		return true;
	while (*name && now.n) {
		const uint32_t c = next_char(&name);
		const struct threads swap = now;

		step++;
		next.n = 0;
		for (uint32_t k = 0; k < now.n; k++) {
			const uint32_t to = now.at[k] + 1;

			if (!accepts(re, &re->inst[now.at[k]], c) || re->mark[to] == step)
				continue;
			re->mark[to] = step;
			next.at[next.n++] = to;
		}
		if (follow(re, &next, 0, step, false, is_end(name)))
			return true;
		now = next;
		next = swap;
	}
	return false;
}
