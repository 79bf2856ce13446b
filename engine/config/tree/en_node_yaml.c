/* en_node_yaml.c -- a tree of an accelerate configuration, by libyaml; see en_node.h. */
#include "engine/config/tree/en_node.h"

#include <string.h>

#include "libckpt/base/ck_err.h"

#ifdef EN_YAML

#include <yaml.h>

struct loading {
	yaml_parser_t parser;
	struct ck_arena *arena;
	const char *file;
	struct en_node *open[EN_MAX_CONFIG_DEPTH];	/* lists and dicts, outermost first */
	const char *key[EN_MAX_CONFIG_DEPTH];		/* read in that dict, its value not yet */
	uint32_t depth, nodes;
	struct en_node *root;
	bool has_document;
	struct ckpt_err *err;
};

static int bad(struct loading *l, const yaml_mark_t *m, const char *what, const char *word)
{
	return ck_fail(l->err, CKPT_E_CORRUPT, l->file, m->index, "line %zu, column %zu: %s%s%s%s",
		       m->line + 1, m->column + 1, what, word ? " \"" : "", word ? word : "",
		       word ? "\"" : "");
}

static int syntax(struct loading *l)
{
	const yaml_parser_t *p = &l->parser;

	if (p->error == YAML_MEMORY_ERROR)
		return ck_fail_nomem(l->err, "a YAML text", 0);
	if (p->error == YAML_READER_ERROR)
		return ck_fail(l->err, CKPT_E_CORRUPT, l->file, p->problem_offset, "YAML: %s",
			       p->problem);
	return bad(l, &p->problem_mark, p->problem ? p->problem : "not valid YAML", NULL);
}

/* What is read is a key if a dict is open and no key waits for its value. */
static bool key_wanted(const struct loading *l)
{
	return l->depth && l->open[l->depth - 1]->type == EN_DICT && !l->key[l->depth - 1];
}

static int put(struct loading *l, struct en_node *v)
{
	if (++l->nodes > EN_MAX_CONFIG_NODES)
		return ck_fail(l->err, CKPT_E_LIMIT, l->file, CKPT_NO_OFFSET,
			       "more than %u values in a configuration", EN_MAX_CONFIG_NODES);
	if (!l->depth) {
		l->root = v;
		return 0;
	}
	en_node_add(l->open[l->depth - 1], l->key[l->depth - 1], v);
	l->key[l->depth - 1] = NULL;
	return 0;
}

static struct en_node *new_node(struct loading *l, enum en_type type, const yaml_mark_t *m)
{
	const struct en_place at = {
		.from = EN_FROM_YAML,
		.file = l->file,
		.line = (uint32_t)m->line + 1,
		.col = (uint32_t)m->column + 1,
	};

	return en_node_new(l->arena, type, at);
}

static int take_key(struct loading *l, const char *text, const yaml_mark_t *m)
{
	const struct en_node *dict = l->open[l->depth - 1], *old = en_node_get(dict, text);

	if (!strcmp(text, "<<"))
		return bad(l, m, "merge keys are not supported:", text);
	if (old)
		return ck_fail(l->err, CKPT_E_CORRUPT, l->file, m->index,
			       "line %zu, column %zu: duplicate key \"%.80s\", first in line %u; "
			       "PyYAML would silently use the last",
			       m->line + 1, m->column + 1, text, old->at.line);
	l->key[l->depth - 1] = text;
	return 0;
}

/* Plain scalars get types; "!!str 5" and the like would need PyYAML's constructors. */
static int scalar(struct loading *l, const yaml_event_t *e)
{
	const char *text = (const char *)e->data.scalar.value;
	const yaml_mark_t *m = &e->start_mark;
	struct en_node *v;

	if (e->data.scalar.tag)
		return bad(l, m, "tags are not supported:", (const char *)e->data.scalar.tag);
	if (strlen(text) != e->data.scalar.length)
		return bad(l, m, "a NUL character in a string", NULL);
	v = new_node(l, EN_STR, m);
	if (v)
		v->str = ck_arena_strdup(l->arena, text);
	if (!v || !v->str)
		return ck_fail_nomem(l->err, "a configuration", e->data.scalar.length);
	if (key_wanted(l))
		return take_key(l, v->str, m);
	if (e->data.scalar.style == YAML_PLAIN_SCALAR_STYLE)
		en_yaml_resolve(v);
	return put(l, v);
}

static int begin(struct loading *l, enum en_type type, const yaml_event_t *e)
{
	const yaml_char_t *tag = type == EN_DICT ? e->data.mapping_start.tag
						 : e->data.sequence_start.tag;
	struct en_node *v;
	int rc;

	if (key_wanted(l))
		return bad(l, &e->start_mark, "a key must be a word", NULL);
	if (tag)
		return bad(l, &e->start_mark, "tags are not supported:", (const char *)tag);
	if (l->depth == EN_MAX_CONFIG_DEPTH)
		return ck_fail(l->err, CKPT_E_LIMIT, l->file, e->start_mark.index,
			       "a configuration nested deeper than %u", EN_MAX_CONFIG_DEPTH);
	v = new_node(l, type, &e->start_mark);
	rc = v ? put(l, v) : ck_fail_nomem(l->err, "a configuration", sizeof(*v));
	if (rc)
		return rc;
	l->key[l->depth] = NULL;
	l->open[l->depth++] = v;
	return 0;
}

/* 1 = the text is read. */
static int add_event(struct loading *l, const yaml_event_t *e)
{
	switch (e->type) {
	case YAML_STREAM_END_EVENT:
		return 1;
	case YAML_DOCUMENT_START_EVENT:
		if (l->has_document)
			return bad(l, &e->start_mark, "a second document begins", NULL);
		l->has_document = true;
		return 0;
	case YAML_ALIAS_EVENT:
		return bad(l, &e->start_mark, "aliases are not supported: *",
			   (const char *)e->data.alias.anchor);
	case YAML_SCALAR_EVENT:
		return scalar(l, e);
	case YAML_SEQUENCE_START_EVENT:
		return begin(l, EN_LIST, e);
	case YAML_MAPPING_START_EVENT:
		return begin(l, EN_DICT, e);
	case YAML_SEQUENCE_END_EVENT:
	case YAML_MAPPING_END_EVENT:
		l->depth--;
		return 0;
	default:
		return 0;
	}
}

static int load(struct loading *l)
{
	int rc = 0;

	while (!rc) {
		yaml_event_t e;

		if (!yaml_parser_parse(&l->parser, &e))
			return syntax(l);
		rc = add_event(l, &e);
		yaml_event_delete(&e);
	}
	return rc < 0 ? rc : 0;
}

bool en_node_has_yaml(void)
{
	return true;
}

int en_node_yaml(struct ck_arena *arena, const char *text, uint64_t len, const char *file,
		 struct en_node **root_out, struct ckpt_err *err)
{
	struct loading l = { .arena = arena, .file = file, .err = err };
	int rc;

	if (!yaml_parser_initialize(&l.parser))
		return ck_fail_nomem(err, "a YAML reader", sizeof(l.parser));
	yaml_parser_set_encoding(&l.parser, YAML_UTF8_ENCODING);
	yaml_parser_set_input_string(&l.parser, (const unsigned char *)text, len);
	rc = load(&l);
	yaml_parser_delete(&l.parser);
	if (!rc && (!l.root || l.root->type != EN_DICT))
		rc = ck_fail(err, CKPT_E_CORRUPT, file, 0,
			     "an accelerate configuration is a mapping of keys; found %s",
			     l.root ? "another value" : "empty");
	if (!rc)
		*root_out = l.root;
	return rc;
}

#else

bool en_node_has_yaml(void)
{
	return false;
}

int en_node_yaml(struct ck_arena *arena, const char *text, uint64_t len, const char *file,
		 struct en_node **root_out, struct ckpt_err *err)
{
	(void)arena;
	(void)text;
	(void)len;
	(void)root_out;
	return ck_fail(err, CKPT_E_UNSUPPORTED, file, CKPT_NO_OFFSET,
		       "built without libyaml: rebuild with YAML=1, or give the DeepSpeed "
		       "configuration itself");
}

#endif
