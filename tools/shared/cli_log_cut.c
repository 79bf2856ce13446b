/*
 * cli_log_cut.c -- a log as a stream of objects; see cli_log.h.
 *
 * JSON lines are cut at line ends.  Of trainer_state.json, which may be large, the objects in the
 * array "log_history" of the outer object are cut out by counting brackets outside of strings, so
 * no more than one of them is in memory.  Python writes NaN and Infinity bare, which is no JSON:
 * they get quotes on the way.
 */
#include <string.h>

#include "cli_log.h"
#include "cli_mem.h"

#define MOST ((size_t)1 << 20)	/* bytes of an object */
#define WORD 64

struct log_cut {
	enum log_kind kind;
	struct log_taker taker;
	char *text;
	size_t n, room;
	uint64_t bytes;		/* since the last cut */
	uint64_t number;	/* of objects or lines */
	int too_long;
	/* Where the next byte is. */
	int in_string, escaped, bare;
	unsigned depth;
	int in_list;		/* log_history, at depth 2 */
	int taking;		/* an object of it */
	char word[WORD], key[WORD];	/* the last string or plain value, and key, at depth 1 */
	size_t nword;
	int has_value;
};

struct log_cut *log_cut_new(enum log_kind kind, const struct log_taker *taker)
{
	struct log_cut *c = cli_alloc(sizeof(*c));

	c->kind = kind;
	c->taker = *taker;
	c->room = 4096;
	c->text = cli_alloc(c->room);
	return c;
}

static void push(struct log_cut *c, char byte)
{
	char *more;

	if (c->n + 1 >= c->room && c->room < MOST) {
		more = cli_alloc(c->room * 2);
		memcpy(more, c->text, c->n);
		cli_free(c->text);
		c->text = more;
		c->room *= 2;
	}
	if (c->n + 1 < c->room)
		c->text[c->n++] = byte;
	else
		c->too_long = 1;
}

static void give(struct log_cut *c)
{
	c->number++;
	c->text[c->n] = 0;
	c->taker.take(c->taker.arg, c->too_long ? NULL : c->text, c->n, c->number);
	c->n = 0;
	c->bytes = 0;
	c->too_long = 0;
}

static int is_letter(char b)
{
	return (b >= 'A' && b <= 'Z') || (b >= 'a' && b <= 'z');
}

/* A byte of an object, outside of its strings: NaN, Infinity and -Infinity get quotes. */
static void push_plain(struct log_cut *c, char b)
{
	const int minus = c->n && c->text[c->n - 1] == '-';

	if (c->bare && !is_letter(b)) {
		push(c, '"');
		c->bare = 0;
	}
	if (!c->bare && (b == 'N' || b == 'I')) {
		c->n -= (size_t)minus;
		push(c, '"');
		if (minus)
			push(c, '-');
		c->bare = 1;
	}
	push(c, b);
}

/* Whether the byte is in a string, its quotes included. */
static int pass_string(struct log_cut *c, char b)
{
	if (!c->in_string) {
		c->in_string = b == '"';
		return c->in_string;
	}
	if (c->escaped)
		c->escaped = 0;
	else if (b == '\\')
		c->escaped = 1;
	else if (b == '"')
		c->in_string = 0;
	return 1;
}

static void add_word(struct log_cut *c, char b)
{
	if (c->nword < WORD - 1)
		c->word[c->nword++] = b;
	c->word[c->nword] = 0;
}

static void end_value(struct log_cut *c)
{
	if (c->has_value && c->taker.scalar && *c->key)
		c->taker.scalar(c->taker.arg, c->key, c->word);
	c->key[0] = 0;
	c->nword = 0;
	c->word[0] = 0;
	c->has_value = 0;
}

/* Of the outer object: its keys, and plain values. */
static void outer(struct log_cut *c, char b)
{
	if (b == ':') {
		memcpy(c->key, c->word, WORD);
		c->nword = 0;
		c->word[0] = 0;
		c->has_value = 1;
	} else if (b == ',' || b == '}') {
		end_value(c);
	} else if ((unsigned char)b > ' ' && !strchr("\"{[", b)) {
		add_word(c, b);
	}
}

static void open_bracket(struct log_cut *c, char b)
{
	c->depth++;
	if (c->depth == 2) {
		c->in_list = b == '[' && !strcmp(c->key, "log_history");
		if (c->in_list && c->taker.scalar)
			c->taker.scalar(c->taker.arg, c->key, "");
		c->has_value = 0;
		c->nword = 0;
	} else if (c->depth == 3 && c->in_list && b == '{') {
		c->taking = 1;
		c->n = 0;
		c->bytes = 0;
	}
}

static void trainer_byte(struct log_cut *c, char b)
{
	const int was = c->in_string, is_string = pass_string(c, b);

	c->bytes++;
	if (!is_string && (b == '{' || b == '['))
		open_bracket(c, b);
	if (c->taking) {
		if (is_string)
			push(c, b);
		else
			push_plain(c, b);
	} else if (c->depth == 1 && is_string) {
		if (was && c->in_string)
			add_word(c, b);
	} else if (c->depth == 1) {
		outer(c, b);
	}
	if (is_string || (b != '}' && b != ']') || !c->depth)
		return;
	if (c->taking && c->depth == 3) {
		c->taking = 0;
		give(c);
	}
	c->depth--;
}

static void line_byte(struct log_cut *c, char b)
{
	c->bytes++;
	if (b == '\n') {
		if (c->bare)
			push(c, '"');
		give(c);
		c->in_string = c->escaped = c->bare = 0;
		return;
	}
	if (pass_string(c, b))
		push(c, b);
	else
		push_plain(c, b);
}

void log_cut_feed(struct log_cut *c, const char *bytes, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (c->kind == LOG_TRAINER)
			trainer_byte(c, bytes[i]);
		else
			line_byte(c, bytes[i]);
	}
}

int log_cut_end(struct log_cut *c, uint64_t *bytes_out)
{
	const uint64_t rest = c->bytes;
	const int torn = c->kind == LOG_LINES ? rest > 0 : c->depth > 0;

	if (c->kind == LOG_LINES && rest)
		line_byte(c, '\n');
	*bytes_out = torn ? rest : 0;
	cli_free(c->text);
	cli_free(c);
	return torn;
}
