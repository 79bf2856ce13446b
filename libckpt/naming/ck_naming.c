/* ck_naming.c -- see ck_naming.h: the text of a table, and which one it is. */
#include "libckpt/naming/ck_naming.h"

#include <inttypes.h>
#include <string.h>

#include "libckpt/base/ck_err.h"
#include "libckpt/base/ck_sys.h"
#include "libckpt/base/ck_text.h"
#include "libckpt/format/ck_limits.h"
#include "libckpt/io/ck_mount.h"
#include "libckpt/json/ck_json.h"

#define MOST_TEXT ((uint64_t)1 << 20)
#define MOST_CONFIG ((uint64_t)16 << 20)
#define MOST_RULES 1000u
#define BLANKS " \t\r"

/* The model of a config.json. */
struct model {
	char *architecture, *type;	/* "" = it has none */
};

struct reader {
	struct ck_naming *out;
	const char *where;
	const struct model *model;	/* whose table is looked for, or NULL */
	bool fits;			/* it is of that model */
	uint64_t line;
	struct ckpt_err *err;
};

/* ---- text ---- */

static int fail_line(const struct reader *r, const char *word, const char *what)
{
	return ck_fail(r->err, CKPT_E_USAGE, r->where, CKPT_NO_OFFSET,
		       "line %" PRIu64 ": \"%.80s\" %s", r->line, word, what);
}

/* The next word of '*text', cut off; NULL at the end or where a comment begins. */
static char *next_word(char **text)
{
	char *word = *text + strspn(*text, BLANKS), *end;

	if (!*word || *word == '#')
		return NULL;
	end = word + strcspn(word, BLANKS);
	*text = *end ? end + 1 : end;
	*end = '\0';
	return word;
}

static bool has_one_star(const char *word)
{
	const char *star = strchr(word, '*');

	return star && !strchr(star + 1, '*');
}

/* "MODULE PUBLISHED": one '*' in each, or none, or the way back would not be known. */
static int take_rule(struct reader *r, const char *module, char **rest)
{
	struct ck_naming *n = r->out;
	const char *published = next_word(rest);
	int rc;

	if (!published || next_word(rest))
		return fail_line(r, module, "is no word of a table, and no pair of names either: "
				 "the name of modules, then the published one");
	if (has_one_star(module) != has_one_star(published) ||
	    (!has_one_star(module) && (strchr(module, '*') || strchr(published, '*'))))
		return fail_line(r, module, "and the name after it need one '*' each, or none");
	if (n->nrules == MOST_RULES)
		return fail_line(r, module, "is one rule more than the 1000 that are possible");
	rc = ck_grow(&n->rule, &n->cap, n->nrules + 2, sizeof(*n->rule), r->err);
	if (rc)
		return rc;
	n->rule[n->nrules] = (struct ckpt_rule){ ck_arena_strdup(&n->arena, module),
						 ck_arena_strdup(&n->arena, published) };
	if (!n->rule[n->nrules].pattern || !n->rule[n->nrules].value)
		return ck_fail_nomem(r->err, "a table of names", n->nrules);
	n->rule[++n->nrules] = (struct ckpt_rule){ NULL, NULL };
	return 0;
}

static int take_family(struct reader *r, char **rest)
{
	const char *name = next_word(rest);

	if (!name || next_word(rest) || r->out->family)
		return fail_line(r, "family", "takes one name, once");
	r->out->family = ck_arena_strdup(&r->out->arena, name);
	return r->out->family ? 0 : ck_fail_nomem(r->err, "a table of names", 0);
}

/* Words of which one is that of the model. */
static void take_model(struct reader *r, const char *is, char **rest)
{
	for (const char *word = next_word(rest); word; word = next_word(rest))
		if (is && *is && !strcmp(word, is))
			r->fits = true;
}

static int take_begins(struct reader *r, char **rest)
{
	struct ck_naming *n = r->out;

	for (const char *word = next_word(rest); word; word = next_word(rest)) {
		int rc = ck_grow(&n->begin, &n->begin_cap, n->nbegins + 1, sizeof(*n->begin),
				 r->err);

		if (rc)
			return rc;
		n->begin[n->nbegins] = ck_arena_strdup(&n->arena, word);
		if (!n->begin[n->nbegins++])
			return ck_fail_nomem(r->err, "a table of names", 0);
	}
	return 0;
}

static int take_line(struct reader *r, char *line)
{
	const struct model *m = r->model;
	const char *word = next_word(&line);

	if (!word)
		return 0;
	if (!strcmp(word, "family"))
		return take_family(r, &line);
	if (!strcmp(word, "when"))
		return take_begins(r, &line);
	if (!strcmp(word, "architecture"))
		take_model(r, m ? m->architecture : NULL, &line);
	else if (!strcmp(word, "model_type"))	/* of a configuration without an architecture */
		take_model(r, m && !*m->architecture ? m->type : NULL, &line);
	else
		return take_rule(r, word, &line);
	return 0;
}

/* 'text' is cut up. */
static int take_text(struct reader *r, char *text)
{
	int rc = 0;

	while (!rc && text) {
		char *end = strchr(text, '\n');

		if (end)
			*end++ = '\0';
		r->line++;
		rc = take_line(r, text);
		text = end;
	}
	if (!rc && !r->out->family)
		r->out->family = r->where;
	return rc;
}

static int take_file(const char *path, const struct ck_fdpool *pool, struct ck_naming *out,
		     struct ckpt_err *err)
{
	struct reader r = { .out = out, .where = path, .err = err };
	char *text = NULL;
	uint64_t len;
	int rc = ck_look_read(pool, path, MOST_TEXT, &text, &len, err);

	if (!rc && strlen(text) != len)
		rc = ck_fail(err, CKPT_E_USAGE, path, strlen(text),
			     "a table of names has no NUL byte");
	if (!rc)
		rc = take_text(&r, text);
	if (!rc && !out->nrules)
		rc = ck_fail(err, CKPT_E_USAGE, path, CKPT_NO_OFFSET,
			     "it has no pair of names (docs/formats/name-maps.md)");
	ck_free(text);
	return rc;
}

/* ---- which table ---- */

static bool has_name(const struct ck_index *ix, const char *begin)
{
	for (uint64_t i = 0; i < ix->ntensors; i++)
		if (!strncmp(ix->tensor[i].name, begin, strlen(begin)))
			return true;
	return false;
}

static bool has_names(const struct ck_index *ix, const struct ck_naming *n)
{
	for (uint64_t i = 0; i < n->nbegins; i++)
		if (!has_name(ix, n->begin[i]))
			return false;
	return n->nbegins != 0;
}

/* A table of the product: that of the model, without one by the names of the index. */
static int find_table(const struct model *model, const struct ck_index *ix, struct ck_naming *out,
		      struct ckpt_err *err)
{
	const char *text, *name = NULL;

	for (size_t i = 0; (text = ck_naming_text(i, &name)); i++) {
		struct ck_naming n = CK_NAMING_INIT;
		struct reader r = { .out = &n, .where = name, .model = model, .err = err };
		char *copy = ck_strdup(text);
		int rc = copy ? take_text(&r, copy) : ck_fail_nomem(err, name, strlen(text));

		ck_free(copy);
		if (!rc && (model ? r.fits : has_names(ix, &n))) {
			*out = n;
			return 0;
		}
		ck_naming_release(&n);
		if (rc)
			return rc;
	}
	return 0;
}

/* A text of the document; "" where it is none.  NULL without memory. */
static char *text_of(const struct ck_json *doc, uint64_t tok)
{
	return ck_strdup(tok != UINT64_MAX && doc->tok[tok].type == CK_JSON_STRING ?
			 doc->tok[tok].str : "");
}

static int take_config(const struct ck_json *doc, struct model *out, struct ckpt_err *err)
{
	uint64_t list = ck_json_given(doc, 0, "architectures");

	if (list != UINT64_MAX)	/* the first one */
		list = doc->tok[list].type == CK_JSON_ARRAY && doc->tok[list].next > list + 1 ?
		       list + 1 : UINT64_MAX;
	out->architecture = text_of(doc, list);
	out->type = text_of(doc, ck_json_given(doc, 0, "model_type"));
	return out->architecture && out->type ? 0 : ck_fail_nomem(err, "a configuration", 0);
}

/* One that cannot be read says nothing, which is no reason to stop: it is copied as it is. */
static int read_config(const char *path, const struct ck_fdpool *pool, struct model *out,
		       struct ckpt_err *err)
{
	struct ck_json doc = CK_JSON_INIT;
	struct ckpt_limits limits;
	char *text = NULL;
	uint64_t len;
	int rc = ck_look_read(pool, path, MOST_CONFIG, &text, &len, NULL);

	ck_limits_fill(NULL, &limits);
	if (!rc)
		rc = ck_json_parse(&doc, text, len, &limits, 0, path, NULL);
	if (!rc && doc.n && doc.tok[0].type == CK_JSON_OBJECT)
		rc = take_config(&doc, out, err);
	else if (rc == -CKPT_E_NOMEM)
		rc = ck_fail_nomem(err, "a configuration", 0);
	else
		rc = 0;
	ck_json_release(&doc);
	ck_free(text);
	return rc;
}

int ck_naming_choose(const char *which, const char *config, const struct ck_index *ix,
		     const struct ck_fdpool *pool, struct ck_naming *out, struct ckpt_err *err)
{
	struct ck_naming n = CK_NAMING_INIT;
	struct model model = { NULL, NULL };
	int rc = 0;

	if (which && !strcmp(which, "native"))
		rc = 0;
	else if (which && strcmp(which, "hf") != 0)
		rc = take_file(which, pool, &n, err);
	else if (config)
		rc = read_config(config, pool, &model, err);
	if (!rc && (!which || !strcmp(which, "hf")))
		rc = find_table(model.type && (*model.architecture || *model.type) ? &model : NULL,
				ix, &n, err);
	ck_free(model.architecture);
	ck_free(model.type);
	if (rc)
		ck_naming_release(&n);
	else
		*out = n;
	return rc;
}

int ck_naming_of_index(const struct ck_index *ix, struct ck_naming *out, struct ckpt_err *err)
{
	return find_table(NULL, ix, out, err);
}

void ck_naming_release(struct ck_naming *n)
{
	ck_free(n->rule);
	ck_free(n->begin);
	ck_arena_release(&n->arena);
	*n = (struct ck_naming)CK_NAMING_INIT;
}

/* ---- names ---- */

const char *ck_naming_module(const struct ck_naming *n, struct ck_arena *arena, const char *name)
{
	size_t len;

	for (uint64_t i = 0; i < n->nrules; i++)
		if (ck_star_match(name, n->rule[i].pattern, &len))
			return name;
	for (uint64_t i = 0; i < n->nrules; i++)
		if (ck_star_match(name, n->rule[i].value, &len))
			return ck_star_replace(arena, name, n->rule[i].value, n->rule[i].pattern);
	return name;
}
