/*
 * cli_opt.h -- options of a program from tables: parsing, help, and what was probably meant.
 *
 * "--name value", "--name=value", "-n value", "-nvalue", "-qv"; '-' and '_' are the
 * same in names; the beginning of a name is the option if no other begins so; "--" ends the
 * options; "-" alone is no option.
 */
#ifndef CLI_OPT_H
#define CLI_OPT_H

#include <stdint.h>
#include <stdio.h>

#include "cli_mem.h"

enum opt_kind {
	OPT_END = 0,
	OPT_HEADING,	/* no option: 'help' is a line above those that follow */
	OPT_FLAG,	/* int: 1; with OPT_NEGATABLE 0 by --no-NAME */
	OPT_TEXT,	/* const char *: the last one given */
	OPT_WORDS,	/* struct words: every one given */
	OPT_COMMAS,	/* struct words: the same, each cut at commas */
	OPT_COUNT,	/* uint64_t: an integer, below 2^31 */
	OPT_SIZE,	/* uint64_t: bytes with a unit, not 0 */
	OPT_CHOICE,	/* int: index of the word among the choices in 'value' */
	OPT_OWN,	/* struct opt_own: what its function makes of it */
};

#define OPT_UNSET UINT64_MAX	/* a number that was not given */
#define OPT_NEGATABLE 1u
#define OPT_HIDDEN 2u	/* accepted, not in the help */
#define OPT_LAST 4u	/* a flag that ends the parsing */
#define OPT_RARE 8u	/* listed by '-h --all' only */

struct opt_call;

/* An option: "--name", "-letter". */
struct opt {
	const char *name;
	char letter;
	enum opt_kind kind;
	void *to;		/* what it fills */
	const char *value;	/* what the help calls it; of OPT_CHOICE "a|b|c" */
	const char *help;
	unsigned flags;
};

/* A value of the program's own kind. */
struct opt_own {
	/* 0, or the status of a wrong call after saying what is wrong. */
	int (*set)(const struct opt_call *call, const struct opt *opt, const char *text);
	void *to;
	/* for 'set', as it needs them */
	int64_t least, most;
	const char *const *choice;	/* ends with NULL */
};

/* How a call is parsed. */
struct opt_call {
	const struct opt *const *tables;	/* end with NULL; each with OPT_END */
	struct words *rest;			/* what is no option, in order */
	/* Prints what is wrong, and where help is; returns the exit status. */
	int (*wrong)(const void *arg, const char *what);
	const void *arg;
	/* NULL, or: what to give for an unknown option of another program.  It may return NULL. */
	const char *(*meant)(const char *name);
	/*
	 * May be NULL.  The same of an unknown option, 'word' as it was typed; 'near' is the name
	 * of the one that was probably meant, or NULL.
	 */
	int (*unknown)(const struct opt_call *call, const char *word, const char *near);
	/* NULL, or: 'unknown' knows 'name', which several options begin with. */
	int (*is_meant)(const struct opt_call *call, const char *name);
};

/* 0, or what 'wrong' returned. */
int opt_parse(const struct opt_call *call, int argc, char **argv);
/* Calls 'wrong' with that text. */
int opt_wrong(const struct opt_call *call, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* The one of 'names' (NULL-terminated) nearest to 'word', NULL if none is near. */
const char *opt_nearest(const char *word, const char *const *names);
/* Whether 'a' and 'b' are one name: '-' and '_' are the same, and so are cases. */
int opt_is_name(const char *a, const char *b);

/* Bytes from "5GB", "200MiB", "1.5GB", "4096", "1e9", rounded down.  0, or -1 if it is no size. */
int opt_size_parse(const char *text, uint64_t *bytes_out);
/* The option of that name, '-' and '_' the same; NULL if there is none. */
const struct opt *opt_find(const struct opt_call *call, const char *name);
/* Fills what an option with a value fills. */
int opt_set(const struct opt_call *call, const struct opt *opt, const char *text);

enum opt_list {
	OPT_LIST_COMMON = 0,	/* those without OPT_RARE */
	OPT_LIST_RARE,
	OPT_LIST_ALL,
};

/* A list of options: which, and its columns. */
struct opt_style {
	enum opt_list list;
	int column;	/* of the help; an option that comes closer gets a line of its own */
	int gap;	/* blanks before it, at least */
	int width;
	int letters;	/* whether short options are listed */
};
void opt_help(const struct opt *table, const struct opt_style *style, FILE *out);
/* How many options of the tables (they end with NULL) opt_help() lists. */
unsigned opt_count(const struct opt *const *tables, enum opt_list list);
/* Whether a call for help asks for rare options too: its last word is --all. */
int opt_help_all(int argc, char **argv);
/* Words of 'text' from 'column' on, further lines indented by 'indent', at most 'width' wide. */
void opt_wrap(FILE *out, const char *text, size_t column, size_t indent, size_t width);

#endif
