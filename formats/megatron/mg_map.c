/*
 * mg_map.c -- see mg_map.h: a line at a time.  A line is checked with what is above it, so a size
 * is declared before it is used.
 */
#include "formats/megatron/mg_map.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"

#define MOST_WORDS 64u

struct reader {
	struct mg_map *map;
	struct mg_map_tensor *tensor;	/* whose parts the indented lines are, or NULL */
	char *word[MOST_WORDS];		/* of the line; what is in [] is one word */
	uint32_t nwords, line;
	struct ckpt_err *err;
};

static int fail_line(const struct reader *r, const char *word, const char *what)
{
	return ck_fail(r->err, CKPT_E_FORMAT, r->map->where, CKPT_NO_OFFSET,
		       "line %" PRIu32 ": %s%s%.80s%s", r->line, what, word ? " \"" : "",
		       word ? word : "", word ? "\"" : "");
}

/* An element more of an array of the map. */
#define MORE(r, array, n, cap) \
	ck_grow(&(r)->map->array, &(r)->map->cap, (r)->map->n + 1, \
		sizeof(*(r)->map->array), (r)->err)

static bool is_space(char c)
{
	return c == ' ' || c == '\t' || c == '\r';
}

/* In place.  A comment begins where a word begins. */
static int split_words(struct reader *r, char *p)
{
	r->nwords = 0;
	for (;;) {
		while (is_space(*p))
			p++;
		if (!*p || *p == '#')
			return 0;
		if (r->nwords == MOST_WORDS)
			return fail_line(r, NULL, "more words than a line can have");
		r->word[r->nwords++] = p;
		if (*p == '[') {
			p = strchr(p, ']');
			if (!p)
				return fail_line(r, NULL, "a shape without its closing ]");
			p++;
			if (*p && !is_space(*p))
				return fail_line(r, p, "no blank after a shape, but");
		}
		while (*p && !is_space(*p))
			p++;
		if (*p)
			*p++ = 0;
	}
}

/* ------------------------------------------------------------ what a model is like */

static int read_family(struct reader *r)
{
	if (r->nwords != 2)
		return fail_line(r, NULL, "\"family\" takes one name");
	r->map->family = r->word[1];
	return 0;
}

static int read_architecture(struct reader *r)
{
	for (uint32_t i = 1; i < r->nwords; i++) {
		const int rc = MORE(r, architecture, narchitectures, architecture_cap);

		if (rc)
			return rc;
		r->map->architecture[r->map->narchitectures++] = r->word[i];
	}
	return 0;
}

/* "needs" and "when": ARG=VALUE. */
static int read_needs(struct reader *r)
{
	for (uint32_t i = 1; i < r->nwords; i++) {
		char *equal = strchr(r->word[i], '=');
		int rc;

		if (!equal)
			return fail_line(r, r->word[i], "ARGUMENT=VALUE is expected, not");
		*equal = 0;
		rc = MORE(r, need, nneeds, need_cap);
		if (rc)
			return rc;
		r->map->need[r->map->nneeds++] = (struct mg_map_need){
			.arg = r->word[i], .value = equal + 1,
			.only_chooses = !strcmp(r->word[0], "when"),
		};
	}
	return 0;
}

/* What follows word 'from' as one text, with single blanks. */
static const char *joined(struct reader *r, uint32_t from)
{
	const char *text = "";

	for (uint32_t i = from; text && i < r->nwords; i++)
		text = ck_arena_printf(&r->map->arena, "%s%s%s", text, *text ? " " : "",
				       r->word[i]);
	return text;
}

/* size NAME KEY [| ARG [same]] [= EXPRESSION] */
static int read_size(struct reader *r)
{
	struct mg_map_size s = { .line = r->line };
	uint64_t value;
	uint32_t i = 3;
	int rc;

	if (r->nwords < 3)
		return fail_line(r, NULL, "\"size\" takes a name and a key of config.json");
	s.name = r->word[1];
	s.key = r->word[2];
	if (ck_mg_map_find_size(r->map, s.name, strlen(s.name)) != UINT64_MAX)
		return fail_line(r, s.name, "two sizes of the name");
	if (i + 1 < r->nwords && !strcmp(r->word[i], "|")) {
		s.arg = r->word[i + 1];
		i += 2;
		s.same = i < r->nwords && !strcmp(r->word[i], "same");
		i += s.same;
	}
	if (i + 1 < r->nwords && !strcmp(r->word[i], "=")) {
		s.otherwise = joined(r, i + 1);
		if (!s.otherwise)
			return ck_fail_nomem(r->err, "a table of names", 0);
		rc = ck_mg_map_value(r->map, NULL, s.otherwise, r->line, &value, r->err);
		if (rc)
			return rc;
		i = r->nwords;
	}
	if (i != r->nwords)
		return fail_line(r, r->word[i], "a size does not take");
	rc = MORE(r, size, nsizes, size_cap);
	if (!rc)
		r->map->size[r->map->nsizes++] = s;
	return rc;
}

/* flag NAME KEY [| [!]ARG] = yes|no */
static int read_flag(struct reader *r)
{
	struct mg_map_flag f = { .line = r->line };
	uint32_t i = 3;
	int rc;

	if (r->nwords < 5)
		return fail_line(r, NULL, "\"flag\" takes a name, a key of config.json, and = yes "
				 "or = no");
	f.name = r->word[1];
	f.key = r->word[2];
	if (ck_mg_map_find_flag(r->map, f.name) != UINT64_MAX)
		return fail_line(r, f.name, "two flags of the name");
	if (!strcmp(r->word[i], "|")) {
		f.arg_inverted = r->word[i + 1][0] == '!';
		f.arg = r->word[i + 1] + f.arg_inverted;
		i += 2;
	}
	if (i + 2 != r->nwords || strcmp(r->word[i], "=") != 0 ||
	    (strcmp(r->word[i + 1], "yes") != 0 && strcmp(r->word[i + 1], "no") != 0))
		return fail_line(r, NULL, "a flag ends with = yes or = no");
	f.otherwise = r->word[i + 1][0] == 'y';
	rc = MORE(r, flag, nflags, flag_cap);
	if (!rc)
		r->map->flag[r->map->nflags++] = f;
	return rc;
}

/* experts [every KEY] [except KEY] [from KEY] */
static int read_experts(struct reader *r)
{
	r->map->has_experts = true;
	for (uint32_t i = 1; i < r->nwords; i += 2) {
		const char **at = !strcmp(r->word[i], "every") ? &r->map->every :
				  !strcmp(r->word[i], "except") ? &r->map->except :
				  !strcmp(r->word[i], "from") ? &r->map->from : NULL;

		if (!at || i + 1 == r->nwords)
			return fail_line(r, r->word[i], "\"experts\" takes every, except and from, "
					 "each with a key of config.json; not");
		*at = r->word[i + 1];
	}
	return 0;
}

/* ----------------------------------------------------------------------- tensors */

/* How often 'what' is in a name: as one of its parts between dots. */
static uint32_t count_of(const char *name, const char *what)
{
	const size_t n = strlen(what);
	uint32_t count = 0;

	for (const char *p = strstr(name, what); p; p = strstr(p + n, what)) {
		const bool whole = (p == name || p[-1] == '.') && (!p[n] || p[n] == '.');

		count += whole ? 1 : 2;
	}
	return count;
}

static int check_marks(const struct reader *r, const char *name)
{
	if (count_of(name, "{L}") > 1 || count_of(name, "{E}") > 1)
		return fail_line(r, name, "{L} and {E} are parts between dots, each once, unlike "
				 "in");
	for (const char *p = strchr(name, '{'); p; p = strchr(p + 1, '{'))
		if (strncmp(p, "{L}", 3) != 0 && strncmp(p, "{E}", 3) != 0)
			return fail_line(r, name, "only {L} and {E} are known, unlike in");
	return 0;
}

static int check_value(const struct reader *r, const char *text)
{
	uint64_t value;

	return ck_mg_map_value(r->map, NULL, text, r->line, &value, r->err);
}

/* "[A, B]", in place. */
static int read_shape(struct reader *r, char *p, struct mg_map_tensor *t)
{
	int rc = 0;

	p++;
	while (!rc) {
		const size_t n = strcspn(p, ",]");
		const bool last = p[n] == ']';
		char *end = p + n;

		while (is_space(*p))
			p++;
		while (end > p && is_space(end[-1]))
			end--;
		if (t->naxes == MG_MAP_AXES)
			return fail_line(r, NULL, "a shape has at most 4 axes");
		t->axis[t->naxes] = p;
		p += strcspn(p, ",]") + 1;
		*end = 0;
		if (t->naxes || strcmp(t->axis[0], "*") != 0)
			rc = check_value(r, t->axis[t->naxes]);
		t->naxes++;
		if (last)
			break;
	}
	return rc;
}

static int read_condition(struct reader *r, uint32_t i, struct mg_map_tensor *t)
{
	t->unless = !strcmp(r->word[i], "unless");
	t->flag = i + 1 < r->nwords ? r->word[i + 1] : "";
	return ck_mg_map_find_flag(r->map, t->flag) == UINT64_MAX ?
		fail_line(r, t->flag, "no flag has the name") : 0;
}

/* KEY [SHAPE] [groups EXPRESSION] [if|unless FLAG] [dense|experts] [optional] */
static int read_tensor(struct reader *r)
{
	struct mg_map_tensor t = {
		.key = r->word[0], .line = r->line, .has_layer = strstr(r->word[0], "{L}"),
		.has_expert = strstr(r->word[0], "{E}"),
	};
	int rc = check_marks(r, t.key);

	if (!rc && (r->nwords < 2 || r->word[1][0] != '['))
		rc = fail_line(r, t.key, "a shape, as [H], is missing after the name");
	if (!rc)
		rc = read_shape(r, r->word[1], &t);
	for (uint32_t i = 2; !rc && i < r->nwords; i++) {
		const char *w = r->word[i];

		if (!strcmp(w, "dense")) {
			t.layers = MG_MAP_DENSE_LAYERS;
		} else if (!strcmp(w, "experts")) {
			t.layers = MG_MAP_EXPERT_LAYERS;
		} else if (!strcmp(w, "optional")) {
			t.optional = true;
		} else if (!strcmp(w, "if") || !strcmp(w, "unless")) {
			rc = read_condition(r, i++, &t);
		} else if (!strcmp(w, "groups") && i + 1 < r->nwords) {
			t.groups = r->word[++i];
			rc = check_value(r, t.groups);
		} else {
			rc = fail_line(r, w, "a tensor does not take");
		}
	}
	if (!rc)
		rc = MORE(r, tensor, ntensors, tensor_cap);
	if (rc)
		return rc;
	r->map->tensor[r->map->ntensors] = t;
	r->tensor = &r->map->tensor[r->map->ntensors++];
	return 0;
}

static int read_unused(struct reader *r)
{
	int rc = r->nwords == 2 ? check_marks(r, r->word[1]) :
				  fail_line(r, NULL, "\"unused\" takes the name of a tensor");

	if (!rc)
		rc = MORE(r, tensor, ntensors, tensor_cap);
	if (!rc)
		r->map->tensor[r->map->ntensors++] = (struct mg_map_tensor){
			.key = r->word[1], .line = r->line, .unused = true,
			.has_layer = strstr(r->word[1], "{L}"),
			.has_expert = strstr(r->word[1], "{E}"),
		};
	return rc;
}

/* NAME [ROWS], or cut. */
static int read_part(struct reader *r)
{
	struct mg_map_tensor *t = r->tensor;
	struct mg_map_part p = { .line = r->line };
	int rc = 0;

	if (!t)
		return fail_line(r, r->word[0], "no tensor is above this part:");
	if (t->nparts && (!t->part[t->nparts - 1].name || !t->part[t->nparts - 1].rows))
		return fail_line(r, r->word[0], "no rows are left for");
	if (r->nwords != 1 || strcmp(r->word[0], "cut") != 0) {
		p.name = r->word[0];
		p.rows = r->nwords > 1 ? joined(r, 1) : NULL;
		if (r->nwords > 1 && !p.rows)
			return ck_fail_nomem(r->err, "a table of names", 0);
		rc = check_marks(r, p.name);
		if (!rc && (!!strstr(p.name, "{L}") != t->has_layer ||
			    !!strstr(p.name, "{E}") != t->has_expert))
			rc = fail_line(r, p.name, "{L} and {E} must be as in the name above, "
				       "unlike in");
		if (!rc && p.rows)
			rc = check_value(r, p.rows);
	}
	if (!rc)
		rc = ck_grow(&t->part, &t->part_cap, t->nparts + 1, sizeof(*t->part), r->err);
	if (!rc)
		t->part[t->nparts++] = p;
	return rc;
}

/* ------------------------------------------------------------------------- text */

static const struct {
	const char *word;
	int (*read)(struct reader *r);
} lines[] = {
	{ "family", read_family }, { "architecture", read_architecture },
	{ "needs", read_needs }, { "when", read_needs }, { "size", read_size },
	{ "flag", read_flag }, { "experts", read_experts }, { "unused", read_unused },
};

static int read_line(struct reader *r, char *text)
{
	const bool indented = is_space(*text);
	int rc = split_words(r, text);

	if (rc || !r->nwords)
		return rc;
	if (indented)
		return read_part(r);
	if (r->tensor && !r->tensor->nparts)
		return fail_line(r, r->tensor->key, "no part is below");
	r->tensor = NULL;
	for (size_t i = 0; i < CK_ARRAY_LEN(lines); i++)
		if (!strcmp(r->word[0], lines[i].word))
			return lines[i].read(r);
	if (!strchr(r->word[0], '.'))
		return fail_line(r, r->word[0], "neither a word of a table nor a tensor's name:");
	return read_tensor(r);
}

static int check_whole(const struct reader *r)
{
	static const char *const marks[] = { "L", "E" };
	bool used[2] = { false, false };

	if (r->tensor && !r->tensor->nparts)
		return fail_line(r, r->tensor->key, "no part is below");
	if (!r->map->ntensors)
		return fail_line(r, NULL, "the table names no tensor");
	for (uint64_t i = 0; i < r->map->ntensors; i++) {
		used[0] |= r->map->tensor[i].has_layer;
		used[1] |= r->map->tensor[i].has_expert;
	}
	for (int i = 0; i < 2; i++)
		if (used[i] && ck_mg_map_find_size(r->map, marks[i], 1) == UINT64_MAX)
			return fail_line(r, marks[i], "names count what no size is declared for:");
	return 0;
}

int ck_mg_map_parse(struct mg_map *map, const char *text, uint64_t len, const char *where,
		    struct ckpt_err *err)
{
	struct reader r = { .map = map, .err = err };
	char *p, *next;
	int rc = 0;

	*map = (struct mg_map){ .family = "a table of yours" };
	map->where = ck_arena_strdup(&map->arena, where);
	p = ck_arena_strndup(&map->arena, text, len);
	if (!map->where || !p) {
		rc = ck_fail_nomem(err, "a table of names", len);
	} else if (len > MG_MAP_BYTES || strlen(p) != len) {
		rc = ck_fail(err, CKPT_E_FORMAT, where, CKPT_NO_OFFSET,
			     "this is no table of names: %s", len > MG_MAP_BYTES ?
			     "it is too large" : "it has bytes that are no text");
	}
	for (; !rc && p; p = next) {
		next = strchr(p, '\n');
		if (next)
			*next++ = 0;
		r.line++;
		rc = read_line(&r, p);
	}
	if (!rc)
		rc = check_whole(&r);
	if (rc)
		ck_mg_map_release(map);
	return rc;
}

void ck_mg_map_release(struct mg_map *map)
{
	for (uint64_t i = 0; i < map->ntensors; i++)
		ck_free(map->tensor[i].part);
	ck_free(map->architecture);
	ck_free(map->size);
	ck_free(map->flag);
	ck_free(map->need);
	ck_free(map->tensor);
	ck_arena_release(&map->arena);
	*map = (struct mg_map){ .where = NULL };
}

uint64_t ck_mg_map_find_size(const struct mg_map *map, const char *name, size_t len)
{
	for (uint64_t i = 0; i < map->nsizes; i++)
		if (strlen(map->size[i].name) == len && !memcmp(map->size[i].name, name, len))
			return i;
	return UINT64_MAX;
}

uint64_t ck_mg_map_find_flag(const struct mg_map *map, const char *name)
{
	for (uint64_t i = 0; i < map->nflags; i++)
		if (!strcmp(map->flag[i].name, name))
			return i;
	return UINT64_MAX;
}
